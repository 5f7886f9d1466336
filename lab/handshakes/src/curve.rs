//! Latency against load: each server at shares of its own knee, in an open loop.

use crate::backend::{Backend, no_backend};
use crate::condition::Condition;
use crate::drive::Drive;
use crate::error::TrialError;
use crate::lanes::{distinct, introduction, label};
use crate::record::Record;
use crate::servers::{self, Contender, Side};
use crate::setup::Setup;
use crate::stage::Stage;
use crate::summary::{median_of, sum_of, table, whole};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Plan of curves: servers, and shares of the knee.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CurvePlan {
    /// Servers. Those that are not installed are left out.
    pub sides: Vec<Side>,
    /// Shares of each server's own knee.
    pub shares: Vec<f64>,
    /// Turns of each server at each share.
    pub rounds: usize,
    /// Seconds of each of these turns.
    pub seconds: f64,
    /// Folder of the record.
    pub records: PathBuf,
    /// Command line of this call, for the record.
    pub command: String,
}

impl CurvePlan {
    /// Batching on, off (where that differs), and nginx, from a tenth of the knee to 95 %: two minutes and a half for a
    /// condition.
    pub fn new(records: PathBuf, command: String) -> Self {
        Self {
            sides: distinct(&SIDES, widelane_cpu::lanes()),
            shares: vec![0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95],
            rounds: 2,
            seconds: 2.5,
            records,
            command,
        }
    }
}

/// Measures `plan` under every condition of the stage, writes a record, and gives its path and the
/// tables.
///
/// # Errors
///
/// Whatever keeps a server or the load generator from running.
pub fn curve(
    stage: &Stage,
    plan: &CurvePlan,
    mut progress: impl FnMut(&str),
) -> Result<(PathBuf, String), TrialError> {
    let (mut record, _) = Record::begin(stage, &plan.records, "curve", &plan.command)?;
    let mut text = format!("{}\n", introduction(widelane_cpu::lanes(), &plan.sides));
    for &condition in &stage.options.conditions {
        text.push_str(&measure(
            stage,
            plan,
            condition,
            &mut record,
            &mut progress,
        )?);
    }
    Ok((record.end(&text)?, text))
}

/// Measures `plan` under one condition for a record that is open already, and gives the table.
pub(crate) fn measure(
    stage: &Stage,
    plan: &CurvePlan,
    condition: Condition,
    record: &mut Record,
    progress: &mut dyn FnMut(&str),
) -> Result<String, TrialError> {
    let backend = Backend::start(stage.options.load_cpu).map_err(no_backend)?;
    let setup = Setup::new(condition.setting(), backend.address());
    let mut curves = Vec::new();
    for &side in &plan.sides {
        if side.is_installed(&stage.options) && side.can(condition, &stage.options) {
            curves.push(Curve {
                contender: servers::start(stage, side, setup)?,
                knees: Vec::new(),
                reports: vec![Vec::new(); plan.shares.len()],
            });
        }
    }
    for round in 0..KNEE_ROUNDS {
        for curve in &mut curves {
            let side = curve.contender.side;
            progress(&format!("{condition}, knee: {}", side.label()));
            let drive = Drive::Closed(CROWD);
            let running = &mut curve.contender.running;
            let report = stage.drive(running, condition, drive, (WARMUP, KNEE_SECONDS))?;
            record.line(&json!({
                "kind": KNEE,
                "condition": condition.id(),
                "side": side.id(),
                "in_flight": CROWD,
                "round": round,
                "report": report,
            }))?;
            curve.knees.push(report);
        }
    }
    for round in 0..plan.rounds {
        for (index, &share) in plan.shares.iter().enumerate() {
            for turn in 0..curves.len() {
                let at = (turn + round) % curves.len();
                let curve = &mut curves[at];
                let side = curve.contender.side;
                let Some(knee) = curve.knee() else { continue };
                progress(&format!(
                    "{condition}, {:.0} % of the knee, round {} of {}: {}",
                    share * 100.0,
                    round + 1,
                    plan.rounds,
                    side.label()
                ));
                let drive = Drive::Open(knee * share);
                let running = &mut curve.contender.running;
                let report = stage.drive(running, condition, drive, (WARMUP, plan.seconds))?;
                record.line(&json!({
                    "kind": KIND,
                    "condition": condition.id(),
                    "side": side.id(),
                    "share_of_knee": share,
                    "knee": knee,
                    "rate": knee * share,
                    "round": round,
                    "report": report,
                }))?;
                curve.reports[index].push(report);
            }
        }
    }
    Ok(format!(
        "\n{condition}. Latency against load, from the intended start (medians of {} rounds)\n\n{}",
        plan.rounds,
        shown(
            &plan.shares,
            &curves
                .iter()
                .map(|curve| curve.row(&plan.sides))
                .collect::<Vec<_>>()
        )
    ))
}

/// Reports of one server.
struct Curve {
    contender: Contender,
    knees: Vec<Value>,
    /// Reports by share of the knee.
    reports: Vec<Vec<Value>>,
}

impl Curve {
    /// Handshakes a second that it completes with many in flight.
    fn knee(&self) -> Option<f64> {
        median_of(&self.knees, "handshakes_per_s").filter(|knee| *knee >= 1.0)
    }

    fn row(&self, sides: &[Side]) -> Row<'_> {
        let name = label(self.contender.side, sides, widelane_cpu::lanes());
        (name, self.knee(), &self.reports)
    }
}

/// A server's name, its knee, and its reports by share.
type Row<'a> = (&'a str, Option<f64>, &'a [Vec<Value>]);

fn shown(shares: &[f64], curves: &[Row<'_>]) -> String {
    let head = [
        "server",
        "of its knee",
        "starts/s",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "errors",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for (label, knee, reports) in curves {
        for (share, reports) in shares.iter().zip(*reports) {
            rows.push(vec![
                (*label).into(),
                format!("{:.0} %", share * 100.0),
                whole(knee.map(|knee| knee * share)),
                whole(median_of(reports, "p50_us")),
                whole(median_of(reports, "p99_us")),
                whole(median_of(reports, "p999_us")),
                sum_of(reports, "errors").to_string(),
            ]);
        }
    }
    table(&rows)
}

/// The kinds of a record's lines.
pub(crate) const KIND: &str = "curve";
/// The servers unless others are named.
const SIDES: [Side; 3] = [Side::Batched, Side::Alone, Side::Nginx];
const KNEE: &str = "curve-knee";
/// Number in flight at which the knee is measured: more than fill several passes.
const CROWD: usize = 64;
const KNEE_ROUNDS: usize = 3;
const KNEE_SECONDS: f64 = 1.0;
/// Seconds before each measurement.
const WARMUP: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_a_row_for_each_share_of_its_knee() {
        let report = |p99: u64| json!({"p50_us": 10, "p99_us": p99, "p999_us": 99, "errors": 1});
        let measured = [vec![report(20), report(30), report(40)], vec![report(50)]];
        let unknown = [Vec::new(), Vec::new()];
        let curves: [Row<'_>; 2] = [("a", Some(2000.0), &measured), ("b", None, &unknown)];
        let text = shown(&[0.5, 0.7], &curves);
        let rows: Vec<Vec<_>> = text
            .lines()
            .skip(2)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], ["a", "50", "%", "1,000", "10", "30", "99", "3"]);
        assert_eq!(rows[1], ["a", "70", "%", "1,400", "10", "50", "99", "1"]);
        assert_eq!(rows[2], ["b", "50", "%", "n/a", "n/a", "n/a", "n/a", "0"]);
        assert_eq!(rows.len(), 4);
    }
}
