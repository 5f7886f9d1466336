//! The short comparison: less than half a minute, one table a condition.

use crate::condition::Condition;
use crate::drive::{Drive, SERVER_CPU, SHORTEST};
use crate::error::TrialError;
use crate::lanes::{distinct, introduction, label};
use crate::machine;
use crate::options::Options;
use crate::servers::{self, Side};
use crate::setup::{Setup, other_setting};
use crate::stage::Stage;
use crate::summary::{median_of, median_ratio, ratio, sum_of, table, whole};
use serde_json::Value;
use std::fmt::Write as _;
use widelane_cpu::Lanes;

/// Plan of the short comparison.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DemoPlan {
    /// Turns of each server.
    pub rounds: usize,
    /// Seconds of load in all, without the warm-up of each run.
    pub seconds: f64,
}

impl Default for DemoPlan {
    fn default() -> Self {
        Self {
            rounds: 3,
            seconds: 15.0,
        }
    }
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
pub fn demo(
    stage: &Stage,
    plan: DemoPlan,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    let lanes = widelane_cpu::lanes();
    let mut sides = distinct(&SETTINGS, lanes);
    if stage.options.nginx.is_some() {
        sides.push(Side::Nginx);
    }
    if let Some(other) = other_setting(&stage.options.conditions) {
        return Err(TrialError::Nothing(other));
    }
    let mut results = Vec::new();
    for (index, &side) in sides.iter().enumerate() {
        for &condition in &stage.options.conditions {
            if side.can(condition, &stage.options) {
                results.push(Results::new(index, side, condition));
            }
        }
    }
    let [crowd, single] = plan.turns(results.len())?;
    let contenders: Result<Vec<_>, _> = sides
        .into_iter()
        .map(|side| servers::start(stage, side, Setup::BARE))
        .collect();
    let mut contenders = contenders?;
    for round in 0..plan.rounds {
        progress(&format!("round {} of {}", round + 1, plan.rounds));
        for &condition in &stage.options.conditions {
            let mut own: Vec<_> = results
                .iter_mut()
                .filter(|one| one.condition == condition)
                .collect();
            // Everybody goes first once: no side always follows the same other one.
            let first = round % own.len();
            own.rotate_left(first);
            for one in own {
                let running = &mut contenders[one.contender].running;
                let drive = Drive::Closed(CROWD);
                let report = stage.drive(running, condition, drive, (WARMUP, crowd))?;
                one.crowd.push(report);
                let drive = Drive::Closed(1);
                let report = stage.drive(running, condition, drive, (WARMUP, single))?;
                one.single.push(report);
            }
        }
    }
    Ok(report(&stage.options, lanes, plan, &results))
}

/// One side under one condition.
struct Results {
    /// Index among the running servers.
    contender: usize,
    side: Side,
    condition: Condition,
    crowd: Vec<Value>,
    single: Vec<Value>,
}

impl Results {
    fn new(contender: usize, side: Side, condition: Condition) -> Self {
        Self {
            contender,
            side,
            condition,
            crowd: Vec::new(),
            single: Vec::new(),
        }
    }
}

fn report(options: &Options, lanes: Lanes, plan: DemoPlan, results: &[Results]) -> String {
    let mut text = introduction(lanes, &SETTINGS);
    let _ = write!(
        text,
        "Full TLS 1.3 handshakes: AES-128-GCM, no resumption.\n\
         {}; one worker on CPU {}, load on CPU {}.\n\
         {CROWD} connections in flight unless it says 1 at a time; medians of {} rounds.\n",
        machine::cpu_model(),
        options.server_cpu,
        options.load_cpu,
        plan.rounds,
    );
    for &condition in &options.conditions {
        let own: Vec<_> = results
            .iter()
            .filter(|one| one.condition == condition)
            .collect();
        let _ = write!(text, "\n{}", compared(options, lanes, condition, &own));
    }
    let mut notes = options.notes.clone();
    if options.nginx.is_none() {
        notes.push("nginx is not installed, so there is nothing to compare with.".into());
    } else if results
        .iter()
        .all(|one| one.side != Side::Nginx || !one.condition.is_hybrid())
    {
        notes.push("This nginx has no X25519MLKEM768: its OpenSSL is older than 3.5.".into());
    }
    for one in results {
        // Near 1, the load generator has no CPU left and the server may well have.
        let busy = median_of(&one.crowd, "busiest_thread").unwrap_or(0.0);
        if busy > GENERATOR_LIMIT {
            notes.push(format!(
                "The load generator was at its limit ({:.0} % of its CPU) for {}, {}: the server \
                 may be faster than this; its CPU time for a handshake tells.",
                busy * 100.0,
                label(one.side, &distinct(&SETTINGS, lanes), lanes),
                one.condition
            ));
        }
    }
    for note in notes {
        let _ = write!(text, "\nNote: {note}");
    }
    if text.ends_with('\n') {
        text
    } else {
        text + "\n"
    }
}

/// The table of one condition.
fn compared(options: &Options, lanes: Lanes, condition: Condition, results: &[&Results]) -> String {
    let of = |side| results.iter().find(|one| one.side == side);
    let against = |one: &Results, side| {
        let other = of(side)?;
        median_ratio(&one.crowd, &other.crowd, "handshakes_per_s")
    };
    let mut rows = vec![
        [
            &condition.to_string(),
            "handshakes/s",
            "x nginx",
            "x off",
            "server CPU us each",
            "p50 us",
            "p99 us",
            "p50 us, 1 at a time",
            "p99 us, 1 at a time",
            "errors",
        ]
        .map(String::from)
        .to_vec(),
    ];
    for one in results {
        let errors = sum_of(&one.crowd, "errors") + sum_of(&one.single, "errors");
        let name = match one.side {
            Side::Nginx => machine::nginx_name(options),
            _ => None,
        };
        rows.push(vec![
            name.unwrap_or_else(|| label(one.side, &distinct(&SETTINGS, lanes), lanes).into()),
            whole(median_of(&one.crowd, "handshakes_per_s")),
            ratio(against(one, Side::Nginx)),
            ratio(against(one, Side::Alone)),
            whole(median_of(&one.crowd, SERVER_CPU)),
            whole(median_of(&one.crowd, "p50_us")),
            whole(median_of(&one.crowd, "p99_us")),
            whole(median_of(&one.single, "p50_us")),
            whole(median_of(&one.single, "p99_us")),
            errors.to_string(),
        ]);
    }
    if of(Side::Alone).is_none() {
        for row in &mut rows {
            row.remove(TIMES_OFF);
        }
    }
    table(&rows)
}

/// Settings of `widelane serve`.
const SETTINGS: [Side; 2] = [Side::Alone, Side::Batched];
/// The column that compares with the first of them.
const TIMES_OFF: usize = 3;
/// Connections in flight where the rate is measured: more than fill several passes.
const CROWD: usize = 64;
/// The part of the time for [`CROWD`]; the rest is for one connection at a time.
const CROWD_SHARE: f64 = 0.65;
/// Seconds before each measurement, on top of the plan's.
const WARMUP: f64 = 0.1;
pub(crate) const GENERATOR_LIMIT: f64 = 0.97;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_without_time_for_a_handshake_is_refused_before_anything_starts() {
        assert!(DemoPlan::default().turns(6).is_ok());
        let plan = DemoPlan {
            rounds: 5,
            seconds: 1.0,
        };
        let error = plan.turns(6).expect_err("12 ms a turn").to_string();
        assert!(
            error.contains("raise --seconds, or lower --rounds"),
            "{error}"
        );
    }

    use serde_json::json;

    fn shown(lanes: Lanes) -> String {
        let mut options = Options::find().expect("CPUs");
        options.nginx = None;
        options.conditions = vec![Condition::RsaX25519];
        let mut sides = distinct(&SETTINGS, lanes);
        sides.push(Side::Nginx);
        let results = sides.into_iter().enumerate().map(|(index, side)| {
            let mut own = Results::new(index, side, Condition::RsaX25519);
            own.crowd.push(json!({"handshakes_per_s": 1000.0}));
            own
        });
        report(
            &options,
            lanes,
            DemoPlan::default(),
            &results.collect::<Vec<_>>(),
        )
    }

    #[test]
    fn without_lanes_one_setting_is_compared_with_nginx() {
        let text = shown(Lanes::NONE);
        let first = text.lines().next().expect("a line");
        assert!(
            first.starts_with("This CPU has no lanes that Widelane uses"),
            "{text}"
        );
        assert!(first.contains("the same AWS-LC code"), "{text}");
        assert!(
            !text.contains("widelane, batching") && !text.contains("x off"),
            "{text}"
        );
        let rows = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!([rows("widelane "), rows("nginx ")], [1, 1], "{text}");
    }

    #[test]
    fn with_lanes_both_settings_are_compared() {
        let text = shown(Lanes::ALL);
        assert!(
            text.starts_with("This CPU has lanes that Widelane uses"),
            "{text}"
        );
        for part in ["widelane, batching off", "widelane, batching on", "x off"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
