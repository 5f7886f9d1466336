//! The long comparison: several minutes, a record with raw samples, a summary.

use crate::backend::{Backend, no_backend};
use crate::condition::Condition;
use crate::curve::{self, CurvePlan};
use crate::drive::{Drive, SERVER_CPU};
use crate::error::TrialError;
use crate::lanes::{distinct, introduction, label};
use crate::machine;
use crate::memory;
use crate::record::Record;
use crate::relay::{self, RelayPlan};
use crate::scaling::{self, ScalingPlan};
use crate::servers::{self, Contender, Side};
use crate::setup::{Setting, Setup};
use crate::speed;
use crate::stage::{Stage, raise_descriptors};
use crate::summary::{median_of, median_ratio, ratio, sum_of, table, whole};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Plan of the long comparison.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BenchPlan {
    /// Folder of the record.
    pub records: PathBuf,
    /// Command line of this call, for the record.
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
    /// True if `widelane speed` runs as well.
    pub speed: bool,
    /// True to relay bytes, to measure latency against load, and to run the server side in memory on all CPUs.
    pub others: bool,
}

impl BenchPlan {
    /// About twenty-five minutes.
    pub fn new(records: PathBuf, command: String) -> Self {
        Self {
            records,
            command,
            rounds: 5,
            seconds: 1.0,
            open_rounds: 2,
            open_seconds: 2.0,
            idle_connections: 10_000,
            speed: true,
            others: true,
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
    let lanes = widelane_cpu::lanes();
    let mut sides = distinct(&SIDES, lanes);
    sides.retain(|side| side.is_installed(&stage.options));
    let (record, machine) = Record::begin(stage, &plan.records, "", &plan.command)?;
    let mut bench = Bench {
        stage,
        plan,
        record,
        progress,
        summary: introduction(lanes, &SIDES),
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
    for side in [Side::Nginx, Side::Haproxy, Side::Hitch] {
        if !sides.contains(&side) {
            let _ = writeln!(
                bench.summary,
                "{} is not here, and left out.\n",
                side.label()
            );
        }
    }
    for setting in [Setting::Bare, Setting::Usual, Setting::Mutual] {
        bench.handshakes(&sides, setting)?;
    }
    bench.relay()?;
    bench.curves()?;
    bench.scaling()?;
    bench.memory()?;
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
    /// All conditions under which servers are set up in one way.
    fn handshakes(&mut self, sides: &[Side], setting: Setting) -> Result<(), TrialError> {
        let options = &self.stage.options;
        let conditions = options.conditions.iter().copied();
        let conditions: Vec<_> = conditions.filter(|one| one.setting() == setting).collect();
        let backend = Backend::start(options.load_cpu).map_err(no_backend)?;
        let mut contenders = Vec::new();
        for &side in sides {
            if conditions.iter().any(|&one| side.can(one, options)) {
                let setup = Setup::new(setting, backend.address());
                contenders.push(servers::start(self.stage, side, setup)?);
            }
        }
        for condition in conditions {
            let mut able: Vec<_> = contenders
                .iter_mut()
                .filter(|one| one.side.can(condition, options))
                .collect();
            let knees = self.closed(&mut able, condition, CROWD)?;
            // A queue adds the same time in all settings.
            if setting == Setting::Bare {
                let all = able.iter().zip(knees);
                let main = all.filter(|(one, _)| MAIN.contains(&one.side));
                let knees: Vec<f64> = main.map(|(_, knee)| knee).collect();
                able.retain(|one| MAIN.contains(&one.side));
                self.closed(&mut able, condition, 1)?;
                self.open(&mut able, condition, &knees)?;
            }
        }
        Ok(())
    }

    fn relay(&mut self) -> Result<(), TrialError> {
        if !self.plan.others {
            return Ok(());
        }
        let mut plan = RelayPlan::new(self.plan.records.clone(), self.plan.command.clone());
        plan.rounds = self.plan.rounds.min(plan.rounds);
        let progress = &mut self.progress;
        let text = relay::measure(self.stage, &plan, &mut self.record, progress)?;
        self.section("Bytes through each server", &text);
        Ok(())
    }

    /// Measures curves of the first condition only: the shape is the same for the others.
    fn curves(&mut self) -> Result<(), TrialError> {
        let bare = |one: &&Condition| one.setting() == Setting::Bare;
        let condition = self.stage.options.conditions.iter().find(bare);
        let Some(&condition) = condition.filter(|_| self.plan.others) else {
            return Ok(());
        };
        let plan = CurvePlan::new(self.plan.records.clone(), self.plan.command.clone());
        let (record, progress) = (&mut self.record, &mut self.progress);
        let text = curve::measure(self.stage, &plan, condition, record, progress)?;
        self.section("Latency against load", &text);
        Ok(())
    }

    fn scaling(&mut self) -> Result<(), TrialError> {
        if !self.plan.others {
            return Ok(());
        }
        let plan = ScalingPlan::new(self.plan.records.clone(), self.plan.command.clone());
        let progress = &mut self.progress;
        let text = scaling::measure(self.stage, &plan, &mut self.record, progress)?;
        self.section("One thread and all CPUs", &text);
        Ok(())
    }

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
            "nginx's by it",
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
            let cheaper = nginx.and_then(|nginx| median_ratio(&reports[nginx], own, SERVER_CPU));
            let busy = median_of(own, "busiest_thread").map(|share| share * 100.0);
            rows.push(vec![
                self.name(contender.side),
                whole(median_of(own, "handshakes_per_s")),
                ratio(against(nginx)),
                ratio(against(off)),
                whole(median_of(own, SERVER_CPU)),
                ratio(cheaper),
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
            if alone.is_some_and(|alone| alone != index) {
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

    fn memory(&mut self) -> Result<(), TrialError> {
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
        let options = &self.stage.options;
        let sides = [Side::Batched, Side::Nginx];
        for side in sides.into_iter().filter(|side| side.is_installed(options)) {
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
        let lanes = widelane_cpu::lanes();
        let label = || label(side, &distinct(&SIDES, lanes), lanes).into();
        nginx.flatten().unwrap_or_else(label)
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

/// All that make handshakes here, in the order of tables.
const SIDES: [Side; 6] = [
    Side::Alone,
    Side::Batched,
    Side::Old,
    Side::Nginx,
    Side::Haproxy,
    Side::Hitch,
];
/// Sides whose latency is measured as well.
const MAIN: [Side; 3] = [Side::Alone, Side::Batched, Side::Nginx];
const CROWD: usize = 64;
/// Seconds before each measurement.
const WARMUP: f64 = 0.3;
const SHARE_OF_KNEE: f64 = 0.7;
const DESCRIPTORS: u64 = 30_000;
/// Seconds for each operation, backend and number in flight.
const SPEED_SECONDS: f64 = 0.3;
