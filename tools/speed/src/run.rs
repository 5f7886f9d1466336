//! The measurement: conditions in turn, slice by slice.

use crate::SpeedError;
use crate::openssl::OpenSsl;
use crate::operation::{Done, Implementation, Library, Operation, Subject, named, operations};
use crate::pin;
use crate::report::{Machine, Report, Series};
use std::time::{Duration, Instant};
use widelane_affinity::thread_time;

/// Operations, CPU and duration of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    operations: Vec<&'static Operation>,
    /// The CPU to measure on. `None`: the last that this process may run on.
    pub cpu: Option<usize>,
    /// The time for each condition, not counting `openssl`.
    pub span: Duration,
    /// True to measure the `openssl` program between the rounds.
    pub openssl: bool,
    /// Other libraries to measure beside ours.
    pub libraries: Vec<Library>,
    /// The command line, for the record.
    pub command: String,
}

impl Plan {
    /// Measures these operations or groups of operations, or everything if none is named, and the
    /// operations that explain them. The name of a group is the beginning of names, or a part of
    /// them between dashes, like `mlkem` or `sign`. `all` is everything.
    ///
    /// # Errors
    ///
    /// [`SpeedError::UnknownOperation`] if no operation in [`operations`] has the name.
    pub fn new<S: AsRef<str>>(names: &[S]) -> Result<Self, SpeedError> {
        let mut named = match names {
            [] => operations().iter().collect(),
            _ => Vec::new(),
        };
        for name in names {
            let name = name.as_ref();
            let meant = self::named(name);
            if meant.is_empty() {
                let known: Vec<_> = operations().iter().map(|o| o.name).collect();
                return Err(SpeedError::UnknownOperation {
                    name: name.to_owned(),
                    known: known.join(", "),
                });
            }
            named.extend(meant);
        }
        let wanted = |operation: &Operation| {
            let is = |name: &str| name == operation.name;
            named
                .iter()
                .any(|named| is(named.name) || named.beside.iter().any(|name| is(name)))
        };
        Ok(Self {
            operations: operations().iter().filter(|operation| wanted(operation)).collect(),
            cpu: None,
            span: Duration::from_secs(1),
            openssl: true,
            libraries: Vec::new(),
            command: String::new(),
        })
    }

    /// The operations, in the order of the output.
    pub fn operations(&self) -> &[&'static Operation] {
        &self.operations
    }
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Done, of 1.
    pub share: f64,
    /// Operation that is being measured.
    pub operation: &'static str,
}

/// Measures on a thread of its own, pinned to the plan's CPU. `progress` is called on that thread,
/// between slices.
///
/// # Errors
///
/// When the CPU cannot be used or an operation gives an error.
pub fn run(plan: &Plan, progress: impl FnMut(Progress) + Send) -> Result<Report, SpeedError> {
    let cpu = pin::choose(plan.cpu)?;
    std::thread::scope(|scope| {
        let measured = scope.spawn(move || {
            pin::pin(cpu)?;
            measure(plan, cpu, progress)
        });
        measured.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// One line of the output while it is measured.
struct Condition {
    series: Series,
    operation: &'static Operation,
    how: How,
}

impl Condition {
    fn new(operation: &'static Operation, backend: &str, in_flight: usize, how: Result<How, &String>) -> Self {
        let mut series = Series::new(operation, backend, in_flight);
        series.reason = how.as_ref().err().map(|why| why.to_string());
        Self {
            series,
            operation,
            how: how.unwrap_or(How::Not),
        }
    }
}

enum How {
    /// Runs the subject of this number.
    Here(usize),
    /// Runs the `openssl` program.
    OpenSsl,
    /// Cannot be measured; the series says why.
    Not,
}

fn measure(plan: &Plan, cpu: usize, mut progress: impl FnMut(Progress)) -> Result<Report, SpeedError> {
    let start = Instant::now();
    let openssl = if plan.openssl {
        OpenSsl::find()
    } else {
        Err("it was not asked for".to_owned())
    };
    let libraries = libraries(plan);
    let mut subjects = Vec::new();
    let mut conditions = conditions(plan, &libraries, &openssl, &mut subjects)?;
    let mut earlier = Vec::new();

    let rounds = plan.span.div_duration_f64(SLICE).ceil().max(1.0) as usize;
    let visits = if plan.span < Duration::from_secs(1) {
        1
    } else {
        (plan.span.as_secs_f64().ceil() as usize).clamp(OPENSSL_VISITS, rounds)
    };
    let moves = rounds.div_ceil(PLACEMENTS);
    for round in 0..rounds {
        if round > 0 && round % moves == 0 {
            // The old ones stay allocated, so that the new ones get other memory.
            for prepared in &mut subjects {
                earlier.push(prepared.again()?);
            }
        }
        // Spread over the run, and in two successive rounds only if necessary.
        let openssl_now = round * visits / rounds != (round + 1) * visits / rounds;
        let count = conditions.len();
        for step in 0..count {
            // Back and forth, so that no condition always follows the same one.
            let at = if round % 2 == 0 { step } else { count - 1 - step };
            let Condition { series, operation, how } = &mut conditions[at];
            progress(Progress {
                elapsed: start.elapsed(),
                share: (round * count + step) as f64 / (rounds * count) as f64,
                operation: operation.name,
            });
            match how {
                How::Here(subject) => {
                    if round % moves == 0 {
                        series.places.push(series.rates.len());
                    }
                    slice(&mut *subjects[*subject].subject, series).map_err(|why| SpeedError::Operation {
                        operation: operation.name,
                        backend: series.backend.clone(),
                        why,
                    })?;
                }
                How::OpenSsl if openssl_now => {
                    let (Ok(program), Some(peer)) = (&openssl, &operation.openssl) else {
                        continue;
                    };
                    match program.measure(peer) {
                        Ok(measured) => {
                            series.rates.push(measured.rate);
                            series.cpu_shares.extend(measured.cpu_share);
                        }
                        Err(why) => {
                            series.reason = Some(why);
                            *how = How::Not;
                        }
                    }
                }
                How::OpenSsl | How::Not => {}
            }
        }
    }
    let machine = Machine {
        cpu,
        cpu_model: pin::cpu_model(),
        lanes: widelane_cpu::lanes(),
        command: plan.command.clone(),
    };
    let series = conditions.into_iter().map(|condition| condition.series);
    Ok(Report::new(machine, series.collect()))
}

/// A subject, and how to make another one like it.
struct Prepared<'a> {
    operation: &'static Operation,
    implementation: &'a Implementation,
    subject: Box<dyn Subject>,
}

impl Prepared<'_> {
    /// Makes a new one with other memory, and returns the old one.
    fn again(&mut self) -> Result<Box<dyn Subject>, SpeedError> {
        let subject = (self.implementation.prepare)().map_err(|why| self.failed(why))?;
        let before = std::mem::replace(&mut self.subject, subject);
        self.warm_up()?;
        Ok(before)
    }

    /// Runs it once, because the first run derives values that later ones use again.
    fn warm_up(&mut self) -> Result<(), SpeedError> {
        let most = self.implementation.in_flight.iter().copied().max().unwrap_or(1);
        self.subject.ready(most, 1);
        match self.subject.run(most) {
            Ok(_) => Ok(()),
            Err(why) => Err(self.failed(why)),
        }
    }

    fn failed(&self, why: String) -> SpeedError {
        SpeedError::Operation {
            operation: self.operation.name,
            backend: self.implementation.name.to_owned(),
            why,
        }
    }
}

/// Implementations of other libraries for each operation of the plan, in the plan's order.
fn libraries(plan: &Plan) -> Vec<Vec<Implementation>> {
    let of = |operation: &&'static Operation| {
        let name = operation.name;
        let found = plan.libraries.iter().filter_map(|library| library.of(name));
        found.collect()
    };
    plan.operations.iter().map(of).collect()
}

/// All conditions of the plan, with the subjects that they share.
fn conditions<'a>(
    plan: &Plan,
    libraries: &'a [Vec<Implementation>],
    openssl: &Result<OpenSsl, String>,
    subjects: &mut Vec<Prepared<'a>>,
) -> Result<Vec<Condition>, SpeedError> {
    let mut conditions = Vec::new();
    for (&operation, others) in plan.operations.iter().zip(libraries) {
        if operation.openssl.is_some() {
            let how = openssl.as_ref().map(|_| How::OpenSsl);
            let mut condition = Condition::new(operation, OPENSSL, 1, how);
            let program = openssl.as_ref().ok();
            condition.series.version = program.map(|program| program.version.clone());
            conditions.push(condition);
        }
        for implementation in operation.implementations.iter().chain(others) {
            let prepared = (implementation.prepare)().map(|subject| Prepared {
                operation,
                implementation,
                subject,
            });
            let at = match prepared {
                Ok(mut prepared) => {
                    prepared.warm_up()?;
                    subjects.push(prepared);
                    Ok(subjects.len() - 1)
                }
                Err(why) => Err(why),
            };
            for &in_flight in implementation.in_flight {
                let how = at.as_ref().map(|&at| How::Here(at));
                conditions.push(Condition::new(operation, implementation.name, in_flight, how));
            }
        }
    }
    Ok(conditions)
}

/// Repeats the operation for the length of a slice and adds what it measures to the series.
fn slice(subject: &mut dyn Subject, series: &mut Series) -> Result<(), String> {
    // The condition before it has left its state in caches, branch predictors and clock.
    subject.ready(1, 1);
    subject.run(1)?;
    let mut total = Done::default();
    let (mut spent, mut worked) = (Duration::ZERO, Duration::ZERO);
    let mut runs = 1;
    let start = Instant::now();
    // The preparation may take longer than the runs.
    while spent < SLICE && start.elapsed() < 3 * SLICE {
        subject.ready(series.in_flight, runs);
        let (wall, cpu) = (Instant::now(), thread_time());
        let mut before = wall;
        for _ in 0..runs {
            let done = subject.run(series.in_flight)?;
            let now = Instant::now();
            series.latencies.push((now - before).as_nanos() as f64);
            total.operations += done.operations;
            total.multiply_adds += done.multiply_adds;
            before = now;
        }
        // By CPU time, because other programs may have run on this CPU.
        worked += thread_time().saturating_sub(cpu);
        spent += before - wall;
        // Takes enough runs that reading the clocks costs little.
        if before - wall < STRETCH {
            runs = (2 * runs).min(MOST_RUNS);
        }
    }
    let worked = worked.as_secs_f64();
    series.rates.push(total.operations as f64 / worked);
    if total.multiply_adds > 0 {
        let rate = total.multiply_adds as f64 / (worked * 1e9);
        series.multiply_adds_per_ns.push(rate);
    }
    series.cpu_shares.push((worked / spent.as_secs_f64()).min(1.0));
    Ok(())
}

/// The library's name in the output.
pub(crate) const OPENSSL: &str = "openssl";

/// Short enough that other programs affect all conditions alike, long enough for two of the slowest
/// passes.
const SLICE: Duration = Duration::from_millis(50);

/// The runs between two readings of the clocks take about this long.
const STRETCH: Duration = Duration::from_millis(1);

/// The most runs that are prepared at once, in a few megabytes.
const MOST_RUNS: usize = 128;

/// Number of times that the subjects are made anew in a run, so that the result does not depend on the addresses of one
/// set of buffers.
const PLACEMENTS: usize = 5;

/// The least number of times that the `openssl` program measures, for a second each time.
const OPENSSL_VISITS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_crypto::{Backend, Preference};

    fn short(names: &[&str]) -> Plan {
        let mut plan = Plan::new(names).unwrap();
        plan.span = Duration::from_millis(1);
        plan.openssl = false;
        plan
    }

    #[test]
    fn unknown_operations_are_refused_with_the_choices() {
        let error = Plan::new(&["rsa2048-sign", "rsa1-sign"]).unwrap_err().to_string();
        assert!(error.contains("`rsa1-sign`"), "{error}");
        assert!(error.contains("rsa2048-sign, rsa3072-sign"), "{error}");
    }

    #[test]
    fn without_names_the_plan_is_everything() {
        let none: [&str; 0] = [];
        assert_eq!(Plan::new(&none).unwrap().operations().len(), operations().len());
    }

    #[test]
    fn what_explains_an_operation_is_measured_beside_it_once() {
        let plan = Plan::new(&["rsa2048-sign", "power-1024", "rsa2048"]).unwrap();
        let names: Vec<_> = plan.operations().iter().map(|operation| operation.name).collect();
        assert_eq!(names, ["rsa2048-sign", "rsa2048-verify", "power-1024", "port-limit"]);
    }

    #[test]
    fn every_condition_has_a_row_and_rows_without_figures_have_reasons() {
        let report = run(&short(&["rsa2048-sign"]), |_| {}).unwrap();
        let of = |backend: &str| {
            let rows = report.rows().iter();
            rows.filter(|row| row.operation == "rsa2048-sign" && row.backend == backend)
                .map(|row| (row.in_flight, row.ops_per_s.is_some()))
                .collect::<Vec<_>>()
        };
        for backend in Backend::ALL {
            let here = Preference::Exactly(backend).resolve().is_ok();
            assert_eq!(of(backend.name()), [1, 2, 4, 8, 16].map(|n| (n, here)), "{backend}");
        }
        assert_eq!(of("auto"), [(1, true), (8, true)]);
        assert_eq!(of(OPENSSL), [(1, false)]);
        for row in report.rows() {
            assert_eq!(row.ops_per_s.is_none(), row.reason.is_some(), "{row:?}");
            assert_eq!(row.ops_per_s.is_none(), row.samples.is_empty(), "{row:?}");
        }
    }

    #[test]
    fn another_library_has_rows_for_what_it_can_do() {
        struct Quick;
        impl Subject for Quick {
            fn run(&mut self, in_flight: usize) -> Result<Done, String> {
                std::thread::yield_now();
                Ok(Done::operations(in_flight))
            }
        }
        let mut plan = short(&["mlkem512"]);
        plan.libraries = vec![Library {
            name: "other",
            find: |operation| match operation {
                "mlkem512-keygen" => Some(|| Ok(Box::new(Quick))),
                "mlkem512-decaps" => Some(|| Err("not on Sundays".to_owned())),
                _ => None,
            },
        }];
        let report = run(&plan, |_| {}).unwrap();
        let rows = report.rows().iter().filter(|row| row.backend == "other");
        let rows: Vec<_> = rows
            .map(|row| (row.operation, row.in_flight, row.reason.as_deref()))
            .collect();
        assert_eq!(
            rows,
            [
                ("mlkem512-keygen", 1, None),
                ("mlkem512-decaps", 1, Some("not on Sundays"))
            ]
        );
    }

    #[test]
    fn longer_runs_are_measured_in_several_places() {
        let mut plan = short(&["port-limit"]);
        plan.span = 2 * PLACEMENTS as u32 * SLICE;
        for row in run(&plan, |_| {}).unwrap().rows() {
            if row.ops_per_s.is_some() {
                assert_eq!(row.samples.len(), 2 * PLACEMENTS);
                assert_eq!(row.ops_per_s_by_placement.len(), PLACEMENTS);
            }
        }
    }

    #[test]
    fn a_failing_operation_ends_the_run() {
        struct Broken;
        impl Subject for Broken {
            fn run(&mut self, _: usize) -> Result<Done, String> {
                Err("out of lanes".to_owned())
            }
        }
        let mut series = Series::new(&operations()[0], "aws-lc", 1);
        assert_eq!(slice(&mut Broken, &mut series), Err("out of lanes".to_owned()));
        assert!(series.rates.is_empty());
    }
}
