//! Latency against load: each server at shares of its own knee, in an open loop.

use crate::backend::Backend;
use crate::condition::Condition;
use crate::drive::Drive;
use crate::error::TrialError;
use crate::lanes::{distinct, introduction};
use crate::plan::{at_least_one, or};
use crate::record::Record;
use crate::servers::{self, Contender, Side};
use crate::setup::Setup;
use crate::stage::Stage;
use crate::summary::median_of;
use serde_json::{Value, json};
use widelane_samples::kinds::CURVE;

/// Latency against load, at shares of each server's knee; writes a record
///
/// Two minutes and a half for a condition. Example: widelane-lab handshakes curve --condition ecdsa-x25519
#[derive(Clone, Debug, clap::Args)]
pub struct CurvePlan {
    /// Servers [default: widelane-on, widelane-off where it differs, nginx]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sides: Vec<Side>,
    /// Shares of the knee, like 0.5,0.7 [default: 0.1,0.3,0.5,0.6,0.7,0.8,0.9,0.95]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub shares: Vec<f64>,
    /// Turns of each server at each share
    #[arg(long, default_value_t = 2, value_parser = at_least_one())]
    pub rounds: usize,
    /// Seconds of each turn
    #[arg(long, default_value_t = 2.5)]
    pub seconds: f64,
}

impl CurvePlan {
    /// The servers. Those that are not installed are left out.
    fn sides(&self) -> Vec<Side> {
        or(&self.sides, || distinct(&SIDES, widelane_cpu::lanes()))
    }
}

/// Measures `plan` under every condition of the stage for a record, and gives tables.
///
/// # Errors
///
/// Whatever keeps a server or the load generator from running.
pub fn curve(
    stage: &Stage,
    plan: &CurvePlan,
    record: &mut Record,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    let mut text = introduction(widelane_cpu::lanes(), &plan.sides());
    for &condition in &stage.options.conditions {
        text += &measure(stage, plan, condition, record, &mut progress)?;
    }
    Ok(text)
}

/// Measures `plan` under one condition.
pub(crate) fn measure(
    stage: &Stage,
    plan: &CurvePlan,
    condition: Condition,
    record: &mut Record,
    progress: &mut dyn FnMut(&str),
) -> Result<String, TrialError> {
    let backend = Backend::start(stage.options.load_cpu)?;
    let setup = Setup::new(condition.setting(), backend.address());
    let mut curves = Vec::new();
    for side in plan.sides() {
        if side.is_installed(&stage.options) && side.can(condition, &stage.options) {
            curves.push(Curve {
                contender: servers::start(stage, side, setup)?,
                knees: Vec::new(),
            });
        }
    }
    for round in 0..KNEE_ROUNDS {
        for curve in &mut curves {
            let side = curve.contender.side;
            progress(&format!("{condition}, knee: {}", side.name()));
            let (drive, times) = (Drive::Closed(CROWD), (WARMUP, KNEE_SECONDS));
            let line = json!({"kind": KNEE, "side": side.name(), "in_flight": CROWD, "round": round});
            let running = &mut curve.contender.running;
            let report = stage.measure(record, running, condition, drive, times, line)?;
            curve.knees.push(report);
        }
    }
    for round in 0..plan.rounds {
        for share in or(&plan.shares, || SHARES.into()) {
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
                    side.name()
                ));
                let (drive, times) = (Drive::Open(knee * share), (WARMUP, plan.seconds));
                let line = json!({
                    "kind": CURVE.kind, "side": side.name(), "share_of_knee": share, "knee": knee,
                    "rate": knee * share, "round": round,
                });
                let running = &mut curve.contender.running;
                stage.measure(record, running, condition, drive, times, line)?;
            }
        }
    }
    let table = record.table(&CURVE, |row| row.word(0) == condition.name());
    Ok(format!(
        "\n{condition}. Latency against load, from the intended start (medians of {} rounds)\n\n{}",
        plan.rounds,
        table.without(&["handshake"]).text()
    ))
}

/// One server.
struct Curve {
    contender: Contender,
    /// Reports with many in flight.
    knees: Vec<Value>,
}

impl Curve {
    /// Handshakes a second that it completes with many in flight.
    fn knee(&self) -> Option<f64> {
        median_of(&self.knees, "handshakes_per_s").filter(|knee| *knee >= 1.0)
    }
}

/// Shares of each server's own knee unless others are named.
const SHARES: [f64; 8] = [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];
/// The servers unless others are named.
const SIDES: [Side; 3] = [Side::Batched, Side::Alone, Side::Nginx];
/// The kind of lines with a knee.
const KNEE: &str = "curve-knee";
/// Number in flight at which the knee is measured: more than fill several passes.
const CROWD: usize = 64;
const KNEE_ROUNDS: usize = 3;
const KNEE_SECONDS: f64 = 1.0;
/// Seconds before each measurement.
const WARMUP: f64 = 0.2;
