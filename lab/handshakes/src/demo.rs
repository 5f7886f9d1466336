//! The short comparison: about twenty seconds, one table.

use crate::machine;
use crate::servers::{self, Contender, Side};
use crate::stage::{Drive, Stage, TrialError};
use crate::summary::{median_of, median_ratio, ratio, sum_of, table, whole};
use serde_json::Value;
use std::fmt::Write as _;

/// How long the short comparison takes.
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

/// Compares batching off, on and nginx, says on `progress` what it is doing, and gives the table.
///
/// # Errors
///
/// Whatever keeps a server or the load generator from running.
pub fn demo(
    stage: &Stage,
    plan: DemoPlan,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    let mut sides = vec![Side::Alone, Side::Batched];
    if stage.options.nginx.is_some() {
        sides.push(Side::Nginx);
    }
    let mut results = Vec::new();
    for side in sides {
        let contender = servers::start(stage, side)?;
        results.push((contender, Results::default()));
    }
    let turns = (plan.rounds * results.len()) as f64;
    let crowd = plan.seconds / turns * CROWD_SHARE;
    let single = plan.seconds / turns * (1.0 - CROWD_SHARE);
    for round in 0..plan.rounds {
        // Everybody goes first once: no side always follows the same other one.
        let first = round % results.len();
        results.rotate_left(first);
        for (contender, results) in &mut results {
            progress(&format!(
                "round {} of {}: {}",
                round + 1,
                plan.rounds,
                contender.side.label()
            ));
            let report = stage.drive(contender, Drive::Closed(CROWD), crowd)?;
            results.crowd.push(report);
            let report = stage.drive(contender, Drive::Closed(1), single)?;
            results.single.push(report);
        }
        results.rotate_right(first);
    }
    Ok(report(stage, plan, &results))
}

#[derive(Default)]
struct Results {
    crowd: Vec<Value>,
    single: Vec<Value>,
}

fn report(stage: &Stage, plan: DemoPlan, results: &[(Contender, Results)]) -> String {
    let nginx = results
        .iter()
        .find(|(contender, _)| contender.side == Side::Nginx)
        .map(|(_, results)| results);
    let mut rows = vec![
        [
            "server",
            "handshakes/s",
            "x nginx",
            "p50 us",
            "p99 us",
            "p50 us, 1 at a time",
            "p99 us, 1 at a time",
            "errors",
        ]
        .map(String::from)
        .to_vec(),
    ];
    for (contender, results) in results {
        let against =
            nginx.and_then(|nginx| median_ratio(&results.crowd, &nginx.crowd, "handshakes_per_s"));
        let errors = sum_of(&results.crowd, "errors") + sum_of(&results.single, "errors");
        let name = match contender.side {
            Side::Nginx => machine::nginx_name(&stage.options),
            _ => None,
        };
        rows.push(vec![
            name.unwrap_or_else(|| contender.side.label().into()),
            whole(median_of(&results.crowd, "handshakes_per_s")),
            ratio(against),
            whole(median_of(&results.crowd, "p50_us")),
            whole(median_of(&results.crowd, "p99_us")),
            whole(median_of(&results.single, "p50_us")),
            whole(median_of(&results.single, "p99_us")),
            errors.to_string(),
        ]);
    }
    let options = &stage.options;
    let mut text = format!(
        "Full TLS 1.3 handshakes: RSA-2048 certificate, X25519, AES-128-GCM, no resumption.\n\
         {}; one worker on CPU {}, load on CPU {}.\n\
         {CROWD} connections in flight unless it says 1 at a time; medians of {} rounds.\n\n{}",
        machine::cpu_model(),
        options.server_cpu,
        options.load_cpu,
        plan.rounds,
        table(&rows),
    );
    let mut notes = options.notes.clone();
    if options.nginx.is_none() {
        notes.push("nginx is not installed, so there is nothing to compare with.".into());
    }
    for (contender, results) in results {
        // Near 1, the load generator has no CPU left and the server may well have.
        let busy = median_of(&results.crowd, "busiest_thread").unwrap_or(0.0);
        if busy > GENERATOR_LIMIT {
            notes.push(format!(
                "The load generator was at its limit ({:.0} % of its CPU) for {}: the server \
                 may be faster than this.",
                busy * 100.0,
                contender.side.label()
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

/// Connections in flight where the rate is measured: more than fill several passes.
const CROWD: usize = 64;
/// The part of the time for [`CROWD`]; the rest is for one connection at a time.
const CROWD_SHARE: f64 = 0.7;
pub(crate) const GENERATOR_LIMIT: f64 = 0.97;
