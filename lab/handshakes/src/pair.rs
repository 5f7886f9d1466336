//! Two servers against each other in many short turns: what a difference of a few percent needs on
//! a machine whose speed wanders by more than that.

use crate::backend::{Backend, no_backend};
use crate::condition::Condition;
use crate::drive::{Drive, SERVER_CPU};
use crate::error::TrialError;
use crate::lanes::introduction;
use crate::record::Record;
use crate::servers::{self, Contender, Side};
use crate::setup::{Setting, Setup};
use crate::stage::Stage;
use crate::summary::{interval_of_median, median, median_of, ratios, sum_of, table, whole};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Plan of a comparison of two sides.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PairPlan {
    /// The servers.
    pub sides: [Side; 2],
    /// Pairs of turns under each condition.
    pub rounds: usize,
    /// Seconds of each turn.
    pub seconds: f64,
    /// Connections in flight.
    pub in_flight: usize,
    /// Folder of the record.
    pub records: PathBuf,
    /// Command line of this call, for the record.
    pub command: String,
}

impl PairPlan {
    /// Forty pairs of half a second, 64 in flight.
    pub fn new(sides: [Side; 2], records: PathBuf, command: String) -> Self {
        Self {
            sides,
            rounds: 40,
            seconds: 0.5,
            in_flight: 64,
            records,
            command,
        }
    }
}

/// Compares the two sides of `plan` under every condition of the stage; gives the record's path
/// and the tables.
///
/// A quotient is the median of the pairs' quotients, with the distribution-free confidence interval
/// of a median: what drifts over a run drifts for both of a pair.
///
/// # Errors
///
/// Whatever keeps a server or the load generator from running.
pub fn pair(
    stage: &Stage,
    plan: &PairPlan,
    mut progress: impl FnMut(&str),
) -> Result<(PathBuf, String), TrialError> {
    let [one, other] = plan.sides.map(Side::id);
    let what = format!("{one} {other} {}", plan.in_flight);
    let (mut record, _) = Record::begin(stage, &plan.records, &what, &plan.command)?;
    let backend = Backend::start(stage.options.load_cpu).map_err(no_backend)?;
    let mut text = format!("{}\n", introduction(widelane_cpu::lanes(), &plan.sides));
    let mut running: Option<(Setting, [Contender; 2])> = None;
    for &condition in &stage.options.conditions {
        let setting = condition.setting();
        if running.as_ref().is_none_or(|(its, _)| *its != setting) {
            drop(running.take());
            let setup = Setup::new(setting, backend.address());
            let [one, other] = plan.sides;
            let both = [
                servers::start(stage, one, setup)?,
                servers::start(stage, other, setup)?,
            ];
            running = Some((setting, both));
        }
        let Some((_, contenders)) = &mut running else {
            continue;
        };
        let mut reports = [Vec::new(), Vec::new()];
        for round in 0..plan.rounds {
            progress(&format!(
                "{condition}, pair {} of {}",
                round + 1,
                plan.rounds
            ));
            for turn in [round % 2, (round + 1) % 2] {
                let drive = Drive::Closed(plan.in_flight);
                let times = (WARMUP, plan.seconds);
                let _observer = contenders[turn].observer(stage)?;
                let running = &mut contenders[turn].running;
                let report = stage.drive(running, condition, drive, times)?;
                record.line(&json!({
                    "kind": "pair",
                    "condition": condition.id(),
                    "side": plan.sides[turn].id(),
                    "in_flight": plan.in_flight,
                    "round": round,
                    "report": report,
                }))?;
                reports[turn].push(report);
            }
        }
        let _ = writeln!(text, "{}", compared(plan, condition, &reports));
    }
    Ok((record.end(&text)?, text))
}

/// The table of one condition.
fn compared(plan: &PairPlan, condition: Condition, [one, other]: &[Vec<Value>; 2]) -> String {
    let head = |side: Side| side.label().to_owned();
    let mut rows = vec![vec![
        format!("{condition}, {} in flight", plan.in_flight),
        head(plan.sides[0]),
        head(plan.sides[1]),
        "quotient".into(),
        "95 % interval".into(),
    ]];
    for (name, key) in [
        ("handshakes/s", "handshakes_per_s"),
        ("server CPU us each", SERVER_CPU),
        ("p50 us", "p50_us"),
        ("p99 us", "p99_us"),
    ] {
        let quotients = ratios(one, other, key);
        let interval = interval_of_median(&quotients).map_or_else(
            || "too few pairs".into(),
            |(low, high)| format!("{low:.3} to {high:.3}"),
        );
        rows.push(vec![
            name.into(),
            whole(median_of(one, key)),
            whole(median_of(other, key)),
            median(quotients).map_or("n/a".into(), |quotient| format!("{quotient:.3}")),
            interval,
        ]);
    }
    let errors = |reports| sum_of(reports, "errors").to_string();
    rows.push(vec!["errors".into(), errors(one), errors(other)]);
    table(&rows)
}

/// Seconds before each measurement.
const WARMUP: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_both_sides_and_what_they_differ_by() {
        let plan = PairPlan::new([Side::Batched, Side::Alone], PathBuf::new(), String::new());
        let report = |rate: f64| json!({"handshakes_per_s": rate, "p50_us": 10.0, "errors": 1});
        let reports = [1000.0, 500.0].map(|rate| vec![report(rate); 8]);
        let text = compared(&plan, Condition::RsaX25519, &reports);
        assert!(
            text.contains("batching on") && text.contains("batching off"),
            "{text}"
        );
        assert!(text.contains("2.000  2.000 to 2.000"), "{text}");
        assert!(text.contains("n/a"), "{text}");
        let errors = text.lines().last().expect("errors");
        assert_eq!(
            errors.split_whitespace().collect::<Vec<_>>(),
            ["errors", "8", "8"]
        );
    }
}
