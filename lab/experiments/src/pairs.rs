//! Experiments that compare two servers' full handshakes, in many short turns.
//!
//! - Xu, "Analyze Ice Lake crypto acceleration with bcc/bpftrace" (2022): one worker on one core,
//!   RSA-2048, one request a connection; nginx beside a server whose signatures share passes.
//! - Intel, "Crypto Processing with 3rd Gen Xeon Scalable Processors" (2021), the NGINX row: the same
//!   server with software and with vector cryptography.

use std::path::{Path, PathBuf};

use widelane_handshakes::{Condition, PairPlan, Side, Stage, pair};
use widelane_samples::{Record, quotients};

use crate::error::ExperimentError;
use crate::interval::Interval;
use crate::plan::Plan;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Xu's.
    Xu,
    /// Intel's.
    Intel,
}

/// One comparison of two servers.
#[derive(Clone, Debug)]
pub struct PairRow {
    /// The handshake, as records spell it.
    pub condition: &'static str,
    /// Handshakes in flight.
    pub in_flight: usize,
    /// The servers: ours with vector code, and the other one.
    pub sides: [&'static str; 2],
    /// Handshakes a second of each.
    pub rates: [Interval; 2],
    /// Median time of a handshake of each, in microseconds.
    pub p50_us: [Interval; 2],
    /// The quotient of the rates in each round.
    pub quotient: Interval,
    /// The published quotient.
    pub published: Option<f64>,
    /// The record.
    pub record: Option<PathBuf>,
}

/// Does one of the experiments. `tell` gets a line of progress now and then.
///
/// # Errors
///
/// When nginx is missing, a server fails, or Ctrl-C comes.
pub fn pairs(
    which: Pairs,
    plan: &Plan,
    tell: impl Fn(&str),
) -> Result<Vec<PairRow>, ExperimentError> {
    let mut rows = Vec::new();
    for turn in turns(which) {
        let mut options = plan.options.clone();
        options.conditions = vec![turn.condition];
        // Without a record for others, it does not matter of which commit it is.
        options.allow_modified |= plan.records.is_none();
        let stage = Stage::set(options)?;
        let folder = plan.records.clone();
        let folder = folder.unwrap_or_else(|| stage.folder().join("records"));
        let mut pair_plan = PairPlan::new(turn.sides, folder, plan.command.clone());
        pair_plan.in_flight = turn.in_flight;
        pair_plan.rounds = plan.rounds;
        pair_plan.seconds = plan.seconds;
        let (record, _) = pair(&stage, &pair_plan, |_| {})?;
        let mut row = row(&turn, &record)?;
        row.record = plan.records.is_some().then_some(record);
        rows.push(row);
        tell(&format!(
            "{}, {} in flight: done",
            turn.condition.id(),
            turn.in_flight
        ));
    }
    Ok(rows)
}

struct Turn {
    sides: [Side; 2],
    condition: Condition,
    in_flight: usize,
    published: Option<f64>,
}

fn turns(which: Pairs) -> Vec<Turn> {
    let turn = |sides, condition, in_flight, published| Turn {
        sides,
        condition,
        in_flight,
        published,
    };
    match which {
        Pairs::Xu => {
            let sides = [Side::Batched, Side::Nginx];
            vec![
                turn(sides, Condition::RsaX25519, 64, Some(4141.0 / 1343.0)),
                turn(sides, Condition::RsaX25519, 1, None),
                turn(sides, Condition::EcdsaX25519, 64, Some(1.3)),
            ]
        }
        Pairs::Intel => {
            let sides = [Side::Batched, Side::Alone];
            vec![
                turn(sides, Condition::RsaX25519, 64, Some(3.07)),
                turn(sides, Condition::EcdsaX25519, 64, None),
            ]
        }
    }
}

/// The figures of a record of pairs.
fn row(turn: &Turn, path: &Path) -> Result<PairRow, ExperimentError> {
    let (record, faults) = Record::read(path);
    let unusable = || {
        let why = faults
            .first()
            .map_or("no pair of turns ended".to_owned(), ToString::to_string);
        ExperimentError::Record(path.to_owned(), why)
    };
    let record = record.ok_or_else(unusable)?;
    let sides = turn.sides.map(Side::id);
    let figures = sides.map(|side| {
        ["handshakes_per_s", "p50_us"].map(|figure| -> Vec<f64> {
            let of = record.of("pair").filter(|line| line.value["side"] == side);
            of.filter_map(|line| line.value["report"][figure].as_f64())
                .collect()
        })
    });
    let [[our_rates, our_times], [their_rates, their_times]] = &figures;
    let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
    let quotient = Interval::of(&quotients(some(our_rates), some(their_rates)));
    let median = |values: &[f64]| Interval::of(values).ok_or_else(unusable);
    Ok(PairRow {
        condition: turn.condition.id(),
        in_flight: turn.in_flight,
        sides,
        rates: [median(our_rates)?, median(their_rates)?],
        p50_us: [median(our_times)?, median(their_times)?],
        quotient: quotient.ok_or_else(unusable)?,
        published: turn.published,
        record: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn figures_are_those_of_the_record() {
        let line = |side: &str, rate: f64| {
            format!(
                "{{\"kind\":\"pair\",\"side\":\"{side}\",\"report\":{{\"handshakes_per_s\":{rate},\
                 \"p50_us\":5}}}}\n"
            )
        };
        let file = std::env::temp_dir().join(format!("widelane-pairs-{}", std::process::id()));
        let turns = turns(Pairs::Xu);
        let head = "{\"kind\":\"run\"}\n".to_owned();
        fs::write(&file, &head).expect("written");
        let told = row(&turns[0], &file).expect_err("no figures").to_string();
        assert!(told.contains(&file.display().to_string()), "{told}");
        let text = [
            head,
            line("widelane-on", 300.0),
            line("nginx", 100.0),
            "{\"kind\":\"end\"}\n".to_owned(),
        ];
        fs::write(&file, text.concat()).expect("written");
        let row = row(&turns[0], &file).expect("figures");
        fs::remove_file(&file).expect("it was written");
        assert_eq!((row.quotient.median, row.rates[1].median), (3.0, 100.0));
        assert_eq!(row.sides, ["widelane-on", "nginx"]);
    }
}
