//! The long comparison: several minutes, a record with raw samples, a summary.

use crate::condition::Condition;
use crate::drive::{Drive, SERVER_CPU};
use crate::error::TrialError;
use crate::machine;
use crate::memory;
use crate::record::Record;
use crate::servers::{self, Contender, Side};
use crate::speed;
use crate::stage::{Stage, raise_descriptors};
use crate::summary::{median_of, median_ratio, ratio, sum_of, table, whole};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// What the long comparison does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BenchPlan {
    /// Folder of the record.
    pub records: PathBuf,
    /// How this was called, for the record.
    pub command: String,
    /// Turns of each server in the closed loops.
    pub rounds: usize,
    /// Seconds of each turn.
    pub seconds: f64,
    /// Turns in the open loops.
    pub open_rounds: usize,
    /// Seconds of each of these.
    pub open_seconds: f64,
    /// Idle connections whose memory is measured; 0 leaves that out.
    pub idle_connections: usize,
    /// Whether `widelane speed` runs as well.
    pub speed: bool,
}

impl BenchPlan {
    /// Less than ten minutes.
    pub fn new(records: PathBuf, command: String) -> Self {
        Self {
            records,
            command,
            rounds: 5,
            seconds: 2.0,
            open_rounds: 2,
            open_seconds: 4.0,
            idle_connections: 10_000,
            speed: true,
        }
    }
}

/// Measures everything of `plan`, writes a record, and gives its path and a summary for people.
///
/// # Errors
///
/// Whatever keeps a program from running. What was measured until then is in the record.
pub fn bench(
    stage: &Stage,
    plan: &BenchPlan,
    progress: impl FnMut(&str),
) -> Result<(PathBuf, String), TrialError> {
    let mut sides = vec![Side::Alone, Side::Batched];
    if stage.options.nginx.is_some() {
        sides.push(Side::Nginx);
    }
    let (record, machine) = Record::begin(stage, &plan.records, "", &plan.command)?;
    let mut bench = Bench {
        stage,
        plan,
        record,
        progress,
        summary: String::new(),
    };
    let _ = writeln!(
        bench.summary,
        "{}; servers on CPU {}, load on CPU {}. Load average at the start: {}.\n",
        machine::cpu_model(),
        stage.options.server_cpu,
        stage.options.load_cpu,
        machine["load_average_at_start"].as_str().unwrap_or("n/a"),
    );
    // The limit is inherited by the servers, for which it is too late later.
    raise_descriptors(DESCRIPTORS);
    let mut contenders = Vec::new();
    for &side in &sides {
        contenders.push(servers::start(stage, side)?);
    }
    for &condition in &stage.options.conditions {
        let mut able: Vec<_> = contenders
            .iter_mut()
            .filter(|one| one.side.can(condition, &stage.options))
            .collect();
        let knees = bench.closed(&mut able, condition, CROWD)?;
        bench.closed(&mut able, condition, 1)?;
        bench.open(&mut able, condition, &knees)?;
    }
    drop(contenders);
    bench.memory(&sides)?;
    bench.speed()?;
    let Bench {
        record,
        mut summary,
        ..
    } = bench;
    for note in &stage.options.notes {
        let _ = writeln!(summary, "Note: {note}");
    }
    let path = record.end(&summary)?;
    Ok((path, summary))
}

struct Bench<'a, F> {
    stage: &'a Stage,
    plan: &'a BenchPlan,
    record: Record,
    progress: F,
    summary: String,
}

impl<F: FnMut(&str)> Bench<'_, F> {
    /// Closed loops in turns; gives each contender's median rate.
    fn closed(
        &mut self,
        contenders: &mut [&mut Contender],
        condition: Condition,
        in_flight: usize,
    ) -> Result<Vec<f64>, TrialError> {
        let mut reports = vec![Vec::new(); contenders.len()];
        for round in 0..self.plan.rounds {
            for turn in 0..contenders.len() {
                // Everybody goes first once: no side always follows the same other one.
                let index = (turn + round) % contenders.len();
                let contender = &mut *contenders[index];
                let side = contender.side;
                (self.progress)(&format!(
                    "{condition}, {in_flight} in flight, round {} of {}: {}",
                    round + 1,
                    self.plan.rounds,
                    side.label()
                ));
                let drive = Drive::Closed(in_flight);
                let times = (WARMUP, self.plan.seconds);
                let report = self
                    .stage
                    .drive(&mut contender.running, condition, drive, times)?;
                self.record.line(&json!({
                    "kind": "closed",
                    "condition": condition.id(),
                    "side": side.id(),
                    "in_flight": in_flight,
                    "round": round,
                    "report": report,
                }))?;
                reports[index].push(report);
            }
        }
        let mut rows = vec![head(&[
            "server",
            "handshakes/s",
            "x nginx",
            "x off",
            "server CPU us each",
            "p50 us",
            "p99 us",
            "errors",
            "load's CPU",
        ])];
        let (nginx, off) = (
            position(contenders, Side::Nginx),
            position(contenders, Side::Alone),
        );
        for (contender, own) in contenders.iter().zip(&reports) {
            let against = |other: Option<usize>| {
                other.and_then(|other| median_ratio(own, &reports[other], "handshakes_per_s"))
            };
            let busy = median_of(own, "busiest_thread").map(|share| share * 100.0);
            rows.push(vec![
                self.name(contender.side),
                whole(median_of(own, "handshakes_per_s")),
                ratio(against(nginx)),
                ratio(against(off)),
                whole(median_of(own, SERVER_CPU)),
                whole(median_of(own, "p50_us")),
                whole(median_of(own, "p99_us")),
                sum_of(own, "errors").to_string(),
                busy.map_or("n/a".into(), |busy| format!("{busy:.0} %")),
            ]);
        }
        let title = if in_flight == 1 {
            "One connection at a time".to_owned()
        } else {
            format!("Closed loop, {in_flight} in flight")
        };
        self.section(
            &format!(
                "{condition}. {title} (medians of {} rounds)",
                self.plan.rounds
            ),
            &table(&rows),
        );
        let rates = reports.iter().map(|own| median_of(own, "handshakes_per_s"));
        Ok(rates.map(Option::unwrap_or_default).collect())
    }

    /// Open loops: each contender at 70 % of its own knee, and all at 70 % of the knee without
    /// batching, so that there is a comparison at equal load as well.
    fn open(
        &mut self,
        contenders: &mut [&mut Contender],
        condition: Condition,
        knees: &[f64],
    ) -> Result<(), TrialError> {
        let alone = position(contenders, Side::Alone);
        let common = alone.map_or(0.0, |index| knees[index] * SHARE_OF_KNEE);
        let mut rows = vec![head(&[
            "server", "starts/s", "of", "p50 us", "p99 us", "p99.9 us", "errors",
        ])];
        let mut runs: Vec<(usize, f64, &str, Vec<Value>)> = Vec::new();
        for (index, knee) in knees.iter().enumerate() {
            runs.push((index, knee * SHARE_OF_KNEE, "its own knee", Vec::new()));
            if Some(index) != alone {
                runs.push((index, common, "the knee with batching off", Vec::new()));
            }
        }
        for round in 0..self.plan.open_rounds {
            for (index, rate, of, reports) in &mut runs {
                if *rate < 1.0 {
                    continue;
                }
                let contender = &mut *contenders[*index];
                let side = contender.side;
                (self.progress)(&format!(
                    "{condition}, {rate:.0} starts/s, round {} of {}: {}",
                    round + 1,
                    self.plan.open_rounds,
                    side.label()
                ));
                let drive = Drive::Open(*rate);
                let times = (WARMUP, self.plan.open_seconds);
                let report = self
                    .stage
                    .drive(&mut contender.running, condition, drive, times)?;
                self.record.line(&json!({
                    "kind": "open",
                    "condition": condition.id(),
                    "side": side.id(),
                    "rate": *rate,
                    "share_of_knee": SHARE_OF_KNEE,
                    "knee_of": *of,
                    "round": round,
                    "report": report,
                }))?;
                reports.push(report);
            }
        }
        for (index, rate, of, reports) in &runs {
            rows.push(vec![
                self.name(contenders[*index].side),
                whole(Some(*rate)),
                format!("{:.0} % of {of}", SHARE_OF_KNEE * 100.0),
                whole(median_of(reports, "p50_us")),
                whole(median_of(reports, "p99_us")),
                whole(median_of(reports, "p999_us")),
                sum_of(reports, "errors").to_string(),
            ]);
        }
        self.section(
            &format!("{condition}. Open loop, random starts, latency from the intended start"),
            &table(&rows),
        );
        Ok(())
    }

    fn memory(&mut self, sides: &[Side]) -> Result<(), TrialError> {
        if self.plan.idle_connections == 0 {
            return Ok(());
        }
        let mut rows = vec![head(&[
            "server",
            "connections",
            "PSS before, MiB",
            "PSS with, MiB",
            "bytes each",
        ])];
        for &side in sides.iter().filter(|side| **side != Side::Alone) {
            (self.progress)(&format!(
                "{} idle connections: {}",
                self.plan.idle_connections,
                side.label()
            ));
            let result = memory::idle(self.stage, side, self.plan.idle_connections)?;
            let mib = |state: &str| result[state]["pss_kib"].as_f64().map(|kib| kib / 1024.0);
            let one_digit = |value: Option<f64>| value.map_or("n/a".into(), |v| format!("{v:.1}"));
            rows.push(vec![
                self.name(side),
                result["connections"].to_string(),
                one_digit(mib("before")),
                one_digit(mib("with")),
                whole(result["pss_bytes_each"].as_f64()),
            ]);
            self.record
                .line(&json!({"kind": "memory", "result": result}))?;
        }
        self.section(
            "Memory of idle TLS connections (processes only, without the kernel's sockets;\n\
             the terminator holds a backend connection for each, nginx does not)",
            &table(&rows),
        );
        Ok(())
    }

    /// Single operations, for the same record; their table is `widelane speed`'s own.
    fn speed(&mut self) -> Result<(), TrialError> {
        if !self.plan.speed {
            return Ok(());
        }
        (self.progress)("operations a second, batched and single");
        let table = speed::measure(self.stage, &[], SPEED_SECONDS, &mut self.record)?;
        self.section("Operations on one core (`widelane speed`)", &table);
        Ok(())
    }

    fn section(&mut self, title: &str, text: &str) {
        let _ = writeln!(self.summary, "{title}\n\n{text}");
    }

    fn name(&self, side: Side) -> String {
        let nginx = (side == Side::Nginx).then(|| machine::nginx_name(&self.stage.options));
        nginx.flatten().unwrap_or_else(|| side.label().into())
    }
}

fn position(contenders: &[&mut Contender], side: Side) -> Option<usize> {
    contenders
        .iter()
        .position(|contender| contender.side == side)
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const CROWD: usize = 64;
/// Seconds before each measurement.
const WARMUP: f64 = 0.3;
const SHARE_OF_KNEE: f64 = 0.7;
const DESCRIPTORS: u64 = 30_000;
/// Of each operation, backend and number in flight.
const SPEED_SECONDS: f64 = 0.3;
