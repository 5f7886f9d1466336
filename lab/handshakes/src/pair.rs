//! Two servers against each other in many short turns: what a difference of a few percent needs on
//! a machine whose speed wanders by more than that.

use crate::backend::Backend;
use crate::drive::Drive;
use crate::error::TrialError;
use crate::lanes::introduction;
use crate::plan::at_least_one;
use crate::record::Record;
use crate::servers::{self, Contender, Side};
use crate::setup::{Setting, Setup};
use crate::stage::Stage;
use serde_json::json;
use widelane_samples::Source;
use widelane_samples::kinds::{FIELDS, PAIR, Pair};

/// Two servers in many short turns, for small differences; writes a record
///
/// Example: widelane-lab handshakes pair widelane-on widelane-inline --condition rsa-x25519
#[derive(Clone, Debug, clap::Args)]
pub struct PairPlan {
    /// Server: widelane-on, widelane-off, widelane-inline, widelane-old (see --old), nginx,
    /// nginx-stream, haproxy or hitch; nginx-trace-latency or nginx-trace-handshakes, which
    /// `widelane trace` looks at meanwhile (as root)
    pub one: Side,
    /// Server it is compared with
    pub other: Side,
    /// Pairs of turns under each condition; six at least for an interval
    #[arg(long, default_value_t = 40, value_parser = at_least_one())]
    pub rounds: usize,
    /// Seconds of each turn
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Connections in flight
    #[arg(long, default_value_t = 64, value_parser = at_least_one())]
    pub in_flight: usize,
}

impl PairPlan {
    fn sides(&self) -> [Side; 2] {
        [self.one, self.other]
    }

    /// Name of the comparison, for its record.
    pub fn name(&self) -> String {
        let [one, other] = self.sides().map(Side::name);
        format!("{one} {other} {}", self.in_flight)
    }
}

/// Compares the two sides of `plan` under every condition of the stage for a record,
/// and gives a table.
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
    record: &mut Record,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    let backend = Backend::start(stage.options.load_cpu)?;
    let mut text = format!("{}\n", introduction(widelane_cpu::lanes(), &plan.sides()));
    let mut running: Option<(Setting, [Contender; 2])> = None;
    for &condition in &stage.options.conditions {
        let setting = condition.setting();
        if running.as_ref().is_none_or(|(its, _)| *its != setting) {
            drop(running.take());
            let setup = Setup::new(setting, backend.address());
            let [one, other] = plan.sides();
            let both = [servers::start(stage, one, setup)?, servers::start(stage, other, setup)?];
            running = Some((setting, both));
        }
        let Some((_, contenders)) = &mut running else {
            continue;
        };
        for round in 0..plan.rounds {
            progress(&format!("{condition}, pair {} of {}", round + 1, plan.rounds));
            for turn in [round % 2, (round + 1) % 2] {
                let (drive, times) = (Drive::Closed(plan.in_flight), (WARMUP, plan.seconds));
                let line = json!({
                    "kind": PAIR, "side": plan.sides()[turn].name(), "in_flight": plan.in_flight, "round": round,
                });
                let _observer = contenders[turn].observer(stage)?;
                let running = &mut contenders[turn].running;
                stage.measure(record, running, condition, drive, times, line)?;
            }
        }
    }
    let source = Source::of(record.written(), None);
    if let Some(pair) = Pair::of(record.written()) {
        text += &pair.table(record.written(), &source, &FIELDS).text();
    }
    Ok(text)
}

/// Seconds before each measurement.
const WARMUP: f64 = 0.1;
