//! Chooses who computes an operation here: lanes, AWS-LC one by one, or OpenSSL itself.
//!
//! What OpenSSL lacks is always ours. What both can do is ours if it is clearly faster, by what was measured
//! on this machine with this OpenSSL ([`crate::ffi::comparison`]). While nothing is measured, lanes compute what
//! they can, and OpenSSL the rest. It is decided once, when the provider starts, because OpenSSL asks once
//! what there is.

use std::fmt;
use std::sync::OnceLock;

use widelane_crypto::agreement::{Curve, GROUPS, Group, KEM_SETTING};
use widelane_crypto::{Backend, Preference};
use widelane_engine::calibration;

use crate::family::Family;
use crate::ffi::defaults::Defaults;
use crate::options::{Options, Prefer};

/// Library that computes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Lanes,
    AwsLc,
    OpenSsl,
}

/// Why it is so.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Why {
    /// OpenSSL has no such operation.
    OnlyHere,
    Configured,
    /// The fastest here does so many times as much as OpenSSL.
    Measured(f64),
    Unmeasured,
}

/// Nanoseconds of operations that are chosen together, one of each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    /// A job's share of a full pass, if there are lanes.
    in_lanes: Option<u64>,
    alone: u64,
    theirs: u64,
}

/// One line of the table.
struct Row {
    operation: &'static str,
    by: By,
    why: Why,
}

/// The table.
pub(crate) struct Choices {
    backend: Backend,
    rows: Vec<Row>,
    /// The groups with ML-KEM that are ours.
    pub(crate) groups: Vec<&'static Group>,
}

impl Choices {
    /// Decides, and remembers the first decision of this process.
    ///
    /// `with` names the OpenSSL that was measured; `known` are the numbers of the groups that it has.
    pub(crate) fn make(options: &Options, backend: Backend, with: &str, known: &[i64]) -> &'static Self {
        CHOICES.get_or_init(|| Self::decide(options, backend, with, known))
    }

    fn decide(options: &Options, backend: Backend, with: &str, known: &[i64]) -> Self {
        let has_lanes = backend != Backend::AwsLc;
        // Who names lanes wants their code to run.
        let prefer = match (options.prefer, options.backend) {
            (Prefer::Measured, Preference::Exactly(_)) if has_lanes => Prefer::Widelane,
            (prefer, _) => prefer,
        };
        let mut choices = Self {
            backend,
            rows: Vec::new(),
            groups: Vec::new(),
        };
        let defaults = Defaults::get();
        let mut add = |setting, operations: &[&'static str]| {
            let (by, why) = match options.operations.contains(&setting) {
                true => decide(prefer, has_lanes, cost(operations, backend, with)),
                false => (By::OpenSsl, Why::Configured),
            };
            let rows = operations.iter().map(|&operation| Row { operation, by, why });
            choices.rows.extend(rows);
        };
        for family in Family::all() {
            if defaults.signature(family).is_some() {
                for algorithm in &family.algorithms {
                    for operation in algorithm.operations() {
                        add(algorithm.setting(), &[operation]);
                    }
                }
            }
            if defaults.exchange(family).is_some() {
                for curve in &family.curves {
                    add(curve.setting(), &curve.operations());
                }
            }
        }
        for group in GROUPS.iter().filter(|group| group.has_kem()) {
            let is_known = known.contains(&group.tls_number.into());
            let (by, why) = match is_known {
                _ if !options.operations.contains(&KEM_SETTING) => (By::OpenSsl, Why::Configured),
                true => decide(prefer, has_lanes, None),
                false => (ours(has_lanes), Why::OnlyHere),
            };
            // The default provider's keys of ML-KEM alone are also for other uses than TLS.
            if by != By::OpenSsl && (group.is_hybrid() || !is_known) {
                choices.groups.push(group);
            }
            let operation = group.name.to_str().unwrap_or_default();
            choices.rows.push(Row { operation, by, why });
        }
        choices
    }

    /// Returns whether any signature of such keys is ours.
    pub(crate) fn signs(&self, family: Family) -> bool {
        let mut operations = family.algorithms.iter().flat_map(|one| one.operations());
        operations.any(|operation| self.is_ours(operation))
    }

    /// Returns whether any agreement with such keys is ours.
    pub(crate) fn agrees(&self, family: Family) -> bool {
        family.curves.iter().any(|curve| self.is_ours(curve.operations()[0]))
    }

    /// Returns whether anything is ours in lanes or one by one.
    fn is_ours(&self, operation: &str) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|row| row.operation == operation && row.by != By::OpenSsl)
    }

    /// A line for each operation.
    pub(crate) fn lines(&self) -> Vec<String> {
        let line = |row: &Row| {
            let by = match row.by {
                By::Lanes => format!("lanes ({})", self.backend),
                By::AwsLc => "AWS-LC".to_owned(),
                By::OpenSsl => "OpenSSL".to_owned(),
            };
            format!("{}: {by}, {}", row.operation, Reason(row))
        };
        self.rows.iter().map(line).collect()
    }
}

struct Reason<'a>(&'a Row);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.why, self.0.by) {
            (Why::OnlyHere, _) => f.write_str("OpenSSL has none"),
            (Why::Configured, _) => f.write_str("as configured"),
            (Why::Measured(times), By::OpenSsl) => {
                write!(f, "the fastest here is {times:.2} × OpenSSL")
            }
            (Why::Measured(times), By::Lanes) => write!(f, "{times:.1} × OpenSSL in full passes"),
            (Why::Measured(times), By::AwsLc) => write!(f, "{times:.1} × OpenSSL"),
            (Why::Unmeasured, By::OpenSsl) => f.write_str("until both are measured"),
            (Why::Unmeasured, _) => f.write_str("not measured beside OpenSSL yet"),
        }
    }
}

/// Returns whether we sign by this operation.
pub(crate) fn signs(operation: &str) -> bool {
    CHOICES.get().is_none_or(|choices| choices.is_ours(operation))
}

/// The curve that one of OpenSSL's names means, if agreements on it are ours.
pub(crate) fn curve_named(name: &str) -> Option<Curve> {
    Curve::named(name).filter(|curve| agrees(*curve))
}

/// Returns whether agreements on a curve are ours.
pub(crate) fn agrees(curve: Curve) -> bool {
    CHOICES
        .get()
        .is_none_or(|choices| choices.is_ours(curve.operations()[0]))
}

fn ours(has_lanes: bool) -> By {
    match has_lanes {
        true => By::Lanes,
        false => By::AwsLc,
    }
}

fn decide(prefer: Prefer, has_lanes: bool, cost: Option<Cost>) -> (By, Why) {
    match (prefer, cost) {
        (Prefer::Widelane, _) => (ours(has_lanes), Why::Configured),
        (Prefer::OpenSsl, _) => (By::OpenSsl, Why::Configured),
        (Prefer::Measured, None) => match has_lanes {
            true => (By::Lanes, Why::Unmeasured),
            false => (By::OpenSsl, Why::Unmeasured),
        },
        (Prefer::Measured, Some(cost)) => {
            let (by, fastest) = match cost.in_lanes {
                Some(in_lanes) if in_lanes < cost.alone => (By::Lanes, in_lanes),
                _ => (By::AwsLc, cost.alone),
            };
            let why = Why::Measured(cost.theirs as f64 / fastest.max(1) as f64);
            match fastest + fastest / CLEAR <= cost.theirs {
                true => (by, why),
                false => (By::OpenSsl, why),
            }
        }
    }
}

/// Cost of these operations together; `None` if that of one of them is not known.
fn cost(operations: &[&str], backend: Backend, with: &str) -> Option<Cost> {
    let has_lanes = backend != Backend::AwsLc;
    let mut sum = Cost {
        in_lanes: has_lanes.then_some(0),
        ..Cost::default()
    };
    for operation in operations {
        let compared = calibration::comparison(operation, with)?;
        sum.theirs += compared.theirs;
        sum.alone += compared.alone;
        if let Some(in_lanes) = &mut sum.in_lanes {
            let costs = calibration::costs(operation, backend)?;
            let further = costs.further * (costs.lanes as u64 - 1);
            *in_lanes += (costs.first + further) / costs.lanes as u64;
        }
    }
    Some(sum)
}

/// Ours takes at least one part in `CLEAR` less than OpenSSL's: the way to it costs something, too.
const CLEAR: u64 = 8;

static CHOICES: OnceLock<Choices> = OnceLock::new();

// The tests start an engine outside of a model.
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use widelane_crypto::sign::Algorithm;

    fn measured(in_lanes: Option<u64>, alone: u64, theirs: u64) -> By {
        let cost = Cost {
            in_lanes,
            alone,
            theirs,
        };
        decide(Prefer::Measured, in_lanes.is_some(), Some(cost)).0
    }

    #[test]
    fn the_clearly_faster_one_computes() {
        assert_eq!(measured(Some(50), 100, 100), By::Lanes);
        assert_eq!(measured(Some(95), 100, 100), By::OpenSsl);
        assert_eq!(measured(Some(120), 60, 100), By::AwsLc, "lanes do not pay");
        assert_eq!(measured(None, 80, 100), By::AwsLc);
        assert_eq!(measured(None, 95, 100), By::OpenSsl);
        assert_eq!(measured(None, 300, 100), By::OpenSsl);
    }

    #[test]
    fn what_is_not_measured_has_a_default() {
        let default = |has_lanes| decide(Prefer::Measured, has_lanes, None);
        assert_eq!(default(true), (By::Lanes, Why::Unmeasured));
        assert_eq!(default(false), (By::OpenSsl, Why::Unmeasured));
    }

    #[test]
    fn a_setting_decides_without_measurements() {
        let slow = Some(Cost {
            in_lanes: None,
            alone: 900,
            theirs: 1,
        });
        let forced = |prefer, has_lanes| decide(prefer, has_lanes, slow).0;
        assert_eq!(forced(Prefer::Widelane, false), By::AwsLc);
        assert_eq!(forced(Prefer::Widelane, true), By::Lanes);
        assert_eq!(forced(Prefer::OpenSsl, true), By::OpenSsl);
    }

    #[test]
    fn every_operation_is_one_of_the_engine() {
        let names = calibrated_names();
        let signatures = Algorithm::ALL.iter().flat_map(|one| one.operations());
        for operation in signatures {
            assert!(names.contains(operation), "{operation}");
        }
        for operation in Curve::ALL.iter().flat_map(|curve| curve.operations()) {
            assert!(names.contains(&operation), "{operation}");
        }
    }

    fn calibrated_names() -> Vec<&'static str> {
        let engine = widelane_engine::Engine::start(Default::default()).unwrap();
        let counters = engine.counters().into_iter();
        counters.map(|line| line.name).collect()
    }

    #[test]
    fn a_line_says_who_and_why() {
        let row = |operation, by, why| Row { operation, by, why };
        let choices = Choices {
            backend: Backend::AwsLc,
            rows: vec![
                row("x25519-derive", By::AwsLc, Why::Measured(1.34)),
                row("rsa2048-sign", By::OpenSsl, Why::Measured(1.02)),
                row("X25519MLKEM768", By::AwsLc, Why::OnlyHere),
            ],
            groups: Vec::new(),
        };
        assert_eq!(
            choices.lines(),
            [
                "x25519-derive: AWS-LC, 1.3 × OpenSSL",
                "rsa2048-sign: OpenSSL, the fastest here is 1.02 × OpenSSL",
                "X25519MLKEM768: AWS-LC, OpenSSL has none",
            ]
        );
    }
}
