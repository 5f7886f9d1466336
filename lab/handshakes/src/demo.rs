//! The short comparison: less than half a minute, one table a condition.

use crate::condition::Condition;
use crate::drive::{Drive, SHORTEST};
use crate::error::TrialError;
use crate::lanes::{distinct, introduction};
use crate::machine;
use crate::options::Options;
use crate::plan::at_least_one;
use crate::servers::{self, Side};
use crate::setup::{Setup, other_setting};
use crate::stage::Stage;
use crate::summary::limits;
use serde_json::{Value, json};
use std::fmt::Write as _;
use widelane_cpu::Lanes;
use widelane_samples::kinds::CLOSED;
use widelane_samples::{Line, Record, Source};

/// About twenty seconds, one table
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct DemoPlan {
    /// Turns of each server
    #[arg(long, default_value_t = 3, value_parser = at_least_one())]
    pub rounds: usize,
    /// Seconds of load in all
    #[arg(long, default_value_t = 15.0)]
    pub seconds: f64,
}

impl DemoPlan {
    /// Seconds of load in a turn with many connections and with one, where there are `results`.
    fn turns(&self, results: usize) -> Result<[f64; 2], TrialError> {
        let turn = self.seconds / (self.rounds * results) as f64;
        let turns = [CROWD_SHARE, 1.0 - CROWD_SHARE].map(|share| turn * share);
        let shortest = turns[0].min(turns[1]);
        match shortest >= SHORTEST {
            true => Ok(turns),
            false => Err(TrialError::TooShort { seconds: shortest }),
        }
    }
}

/// Compares batching off, on and nginx under every condition, says on `progress` what it is doing,
/// and gives the tables. Where both settings run the same code, there is one of them.
///
/// # Errors
///
/// Whatever keeps a server or the load generator from running.
pub fn demo(stage: &Stage, plan: DemoPlan, mut progress: impl FnMut(&str)) -> Result<String, TrialError> {
    let lanes = widelane_cpu::lanes();
    let mut sides = distinct(&SETTINGS, lanes);
    if stage.options.nginx.is_some() {
        sides.push(Side::Nginx);
    }
    if let Some(other) = other_setting(&stage.options.conditions) {
        return Err(TrialError::Nothing(other));
    }
    let mut able = Vec::new();
    for (index, &side) in sides.iter().enumerate() {
        let conditions = stage.options.conditions.iter();
        let conditions = conditions.filter(|one| side.can(**one, &stage.options));
        able.extend(conditions.map(|&condition| (index, side, condition)));
    }
    let [crowd, single] = plan.turns(able.len())?;
    let contenders: Result<Vec<_>, _> = sides
        .into_iter()
        .map(|side| servers::start(stage, side, Setup::BARE))
        .collect();
    let mut contenders = contenders?;
    let mut record = Record::default();
    record.push(json!({"kind": "run", "machine": {"nginx": machine::nginx_said(&stage.options)}}));
    for round in 0..plan.rounds {
        progress(&format!("round {} of {}", round + 1, plan.rounds));
        for &condition in &stage.options.conditions {
            let mut own: Vec<_> = able.iter().filter(|one| one.2 == condition).collect();
            // Each goes first once: no side always follows the same other one.
            let first = round % own.len();
            own.rotate_left(first);
            for (index, side, _) in own {
                let running = &mut contenders[*index].running;
                for (in_flight, seconds) in [(CROWD, crowd), (1, single)] {
                    let drive = Drive::Closed(in_flight);
                    let report = stage.drive(running, condition, drive, (WARMUP, seconds))?;
                    record.push(line(*side, condition, in_flight, round, &report));
                }
            }
        }
    }
    Ok(report(&stage.options, lanes, plan, &record))
}

/// A turn, as a record has it.
fn line(side: Side, condition: Condition, in_flight: usize, round: usize, report: &Value) -> Value {
    json!({
        "kind": CLOSED.kind, "side": side.name(), "condition": condition.name(), "in_flight": in_flight, "round": round,
        "report": report,
    })
}

fn report(options: &Options, lanes: Lanes, plan: DemoPlan, record: &Record) -> String {
    let mut text = introduction(lanes, &SETTINGS);
    let _ = write!(
        text,
        "Full TLS 1.3 handshakes: AES-128-GCM, no resumption.\n\
         {}; one worker on CPU {}, load on CPU {}.\n\
         {CROWD} connections in flight, then 1 at a time; medians of {} rounds.\n",
        machine::cpu_model(),
        options.server_cpu,
        options.load_cpu,
        plan.rounds,
    );
    let source = Source::of(record, None);
    for condition in &options.conditions {
        let table = CLOSED.table_of(record, &source, |row| row.word(0) == condition.name());
        let table = table.without(&["handshake", "CPU time × nginx", "load's CPU"]);
        let _ = write!(text, "\n{condition}\n\n{}", table.text());
    }
    let mut notes = options.notes.clone();
    let is_nginx = |line: &&Line| line.value["side"] == Side::Nginx.name();
    let mut hybrids = options.conditions.iter().filter(|one| one.is_hybrid());
    let has = |condition: &Condition| {
        record
            .lines
            .iter()
            .filter(is_nginx)
            .any(|line| line.value["condition"] == condition.name())
    };
    if options.nginx.is_none() {
        notes.push("nginx is not installed, so there is nothing to compare with.".into());
    } else if !hybrids.any(has) {
        notes.push("This nginx has no X25519MLKEM768: its OpenSSL is older than 3.5.".into());
    }
    notes.extend(limits(record, &CLOSED));
    for note in notes {
        let _ = write!(text, "\nNote: {note}");
    }
    if text.ends_with('\n') { text } else { text + "\n" }
}

/// Settings of `widelane serve`.
const SETTINGS: [Side; 2] = [Side::Alone, Side::Batched];
/// Connections in flight where the rate is measured: more than fill several passes.
const CROWD: usize = 64;
/// The part of the time for [`CROWD`]; the rest is for one connection at a time.
const CROWD_SHARE: f64 = 0.65;
/// Seconds before each measurement, on top of the plan's.
const WARMUP: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::usual;

    #[test]
    fn a_turn_without_time_for_a_handshake_is_refused_before_anything_starts() {
        assert!(usual::<DemoPlan>().turns(6).is_ok());
        let plan = DemoPlan {
            rounds: 5,
            seconds: 1.0,
        };
        let error = plan.turns(6).expect_err("12 ms a turn").to_string();
        assert!(error.contains("raise --seconds, or lower --rounds"), "{error}");
    }

    fn shown(lanes: Lanes) -> String {
        let mut options = Options::find().expect("CPUs");
        options.nginx = None;
        options.conditions = vec![Condition::RsaX25519];
        let mut sides = distinct(&SETTINGS, lanes);
        sides.push(Side::Nginx);
        let mut record = Record::default();
        for side in sides {
            let report = json!({"handshakes_per_s": 1000.0});
            record.push(line(side, Condition::RsaX25519, CROWD, 0, &report));
        }
        report(&options, lanes, usual(), &record)
    }

    #[test]
    fn without_lanes_one_setting_is_compared_with_nginx() {
        let text = shown(Lanes::NONE);
        let first = text.lines().next().expect("a line");
        assert!(first.starts_with("This CPU has no lanes that Widelane uses"), "{text}");
        assert!(first.contains("the same AWS-LC code"), "{text}");
        assert!(!text.contains("batching off"), "{text}");
        let rows = |name: &str| text.lines().filter(|line| line.contains(name)).count();
        assert_eq!([rows("64  widelane serve "), rows("64  nginx ")], [1, 1], "{text}");
    }

    #[test]
    fn with_lanes_both_settings_are_compared() {
        let text = shown(Lanes::ALL);
        assert!(text.starts_with("This CPU has lanes that Widelane uses"), "{text}");
        for part in ["widelane serve, batching off  ", "widelane serve  ", "× batching off"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
