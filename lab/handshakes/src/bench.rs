//! The long comparison: several minutes, a record with raw samples, a summary.

use crate::backend::Backend;
use crate::condition::Condition;
use crate::curve::{self, CurvePlan};
use crate::drive::Drive;
use crate::error::TrialError;
use crate::lanes::{distinct, introduction};
use crate::machine;
use crate::memory;
use crate::operations::{self, SpeedPlan};
use crate::plan::{at_least_one, turns, usual};
use crate::record::Record;
use crate::relay::{self, RelayPlan};
use crate::scaling::{self, ScalingPlan};
use crate::servers::{self, Contender, Side};
use crate::setup::{Setting, Setup};
use crate::stage::{Stage, raise_descriptors};
use crate::summary::median_of;
use serde_json::json;
use std::fmt::Write as _;
use widelane_samples::Group;
use widelane_samples::kinds::{CLOSED, MEMORY, OPEN};

/// Twenty-five minutes: handshakes in closed and open loop, relayed bytes, latency against load,
/// memory, single operations; writes a record
#[derive(Clone, Debug, clap::Args)]
pub struct BenchPlan {
    /// Turns of each server
    #[arg(long, default_value_t = 5, value_parser = at_least_one())]
    pub rounds: usize,
    /// Seconds of each turn; those of the open loop take twice as long
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Idle connections whose memory is measured, 0 for none
    #[arg(long, default_value_t = 10_000)]
    pub idle: usize,
    /// Leave `widelane-lab speed` out
    #[arg(long)]
    pub no_speed: bool,
    /// Leave out relayed bytes, latency against load, and the server side in memory
    #[arg(long)]
    pub only_handshakes: bool,
}

/// Measures everything of `plan` for a record, and gives a summary for people.
///
/// # Errors
///
/// Whatever keeps a program from running. What was measured until then is in the record.
pub fn bench(
    stage: &Stage,
    plan: &BenchPlan,
    record: &mut Record,
    progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    let lanes = widelane_cpu::lanes();
    let mut sides = distinct(&SIDES, lanes);
    sides.retain(|side| side.is_installed(&stage.options));
    let load = &record.written().run["machine"]["load_average_at_start"];
    let load = load.as_str().unwrap_or("n/a").to_owned();
    let mut bench = Bench {
        stage,
        plan,
        record,
        progress,
        summary: introduction(lanes, &SIDES),
    };
    let _ = writeln!(
        bench.summary,
        "{}; servers on CPU {}, load on CPU {}. Load average at the start: {load}.\n",
        machine::cpu_model(),
        stage.options.server_cpu,
        stage.options.load_cpu,
    );
    // The limit is inherited by the servers, for which it is too late later.
    raise_descriptors(DESCRIPTORS);
    for side in [Side::Nginx, Side::Haproxy, Side::Hitch] {
        if !sides.contains(&side) {
            let _ = writeln!(bench.summary, "{} is not here, and left out.\n", side.name());
        }
    }
    for setting in [Setting::Bare, Setting::Usual, Setting::Mutual] {
        bench.handshakes(&sides, setting)?;
    }
    if !plan.only_handshakes {
        bench.others()?;
    }
    bench.memory()?;
    bench.speed()?;
    let mut summary = bench.summary;
    for note in &stage.options.notes {
        let _ = writeln!(summary, "Note: {note}");
    }
    Ok(summary)
}

struct Bench<'a, F> {
    stage: &'a Stage,
    plan: &'a BenchPlan,
    record: &'a mut Record,
    progress: F,
    summary: String,
}

impl<F: FnMut(&str)> Bench<'_, F> {
    /// All conditions under which servers are set up in one way.
    fn handshakes(&mut self, sides: &[Side], setting: Setting) -> Result<(), TrialError> {
        let options = &self.stage.options;
        let conditions = options.conditions.iter().copied();
        let conditions: Vec<_> = conditions.filter(|one| one.setting() == setting).collect();
        let backend = Backend::start(options.load_cpu)?;
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

    /// Relayed bytes, latency against load, and the server side in memory.
    fn others(&mut self) -> Result<(), TrialError> {
        let mut plan: RelayPlan = usual();
        plan.rounds = self.plan.rounds.min(plan.rounds);
        let text = relay::relay(self.stage, &plan, self.record, &mut self.progress)?;
        self.section("Bytes through each server", &text);
        // The shape of a curve is the same for the other conditions.
        let bare = |one: &&Condition| one.setting() == Setting::Bare;
        if let Some(&condition) = self.stage.options.conditions.iter().find(bare) {
            let (plan, progress) = (usual::<CurvePlan>(), &mut self.progress);
            let text = curve::measure(self.stage, &plan, condition, self.record, progress)?;
            self.section("Latency against load", &text);
        }
        let plan: ScalingPlan = usual();
        let text = scaling::scaling(self.stage, &plan, self.record, &mut self.progress)?;
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
        for (round, index) in turns(self.plan.rounds, contenders.len()) {
            let contender = &mut *contenders[index];
            let side = contender.side;
            (self.progress)(&format!(
                "{condition}, {in_flight} in flight, round {} of {}: {}",
                round + 1,
                self.plan.rounds,
                side.name()
            ));
            let (drive, times) = (Drive::Closed(in_flight), (WARMUP, self.plan.seconds));
            let line = json!({
                "kind": CLOSED.kind, "side": side.name(), "in_flight": in_flight, "round": round,
            });
            let (record, running) = (&mut *self.record, &mut contender.running);
            let report = (self.stage).measure(record, running, condition, drive, times, line)?;
            reports[index].push(report);
        }
        let wanted = |row: &Group<'_>| row.word(0) == condition.name() && row.key[1] == in_flight;
        let table = self.record.table(&CLOSED, wanted);
        let title = if in_flight == 1 {
            "One connection at a time".to_owned()
        } else {
            format!("Closed loop, {in_flight} in flight")
        };
        self.section(
            &format!("{condition}. {title} (medians of {} rounds)", self.plan.rounds),
            &table.without(&["handshake", "in flight"]).text(),
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
        let alone = contenders.iter().position(|one| one.side == Side::Alone);
        let common = alone.map_or(0.0, |index| knees[index] * SHARE_OF_KNEE);
        let mut runs: Vec<(usize, f64, &str)> = Vec::new();
        for (index, knee) in knees.iter().enumerate() {
            runs.push((index, knee * SHARE_OF_KNEE, "its own knee"));
            if alone.is_some_and(|alone| alone != index) {
                runs.push((index, common, "the knee with batching off"));
            }
        }
        for round in 0..OPEN_ROUNDS {
            for (index, rate, of) in &runs {
                if *rate < 1.0 {
                    continue;
                }
                let contender = &mut *contenders[*index];
                let side = contender.side;
                (self.progress)(&format!(
                    "{condition}, {rate:.0} starts/s, round {} of {}: {}",
                    round + 1,
                    OPEN_ROUNDS,
                    side.name()
                ));
                let (drive, times) = (Drive::Open(*rate), (WARMUP, 2.0 * self.plan.seconds));
                let line = json!({
                    "kind": OPEN.kind, "side": side.name(), "rate": *rate, "share_of_knee": SHARE_OF_KNEE,
                    "knee_of": *of, "round": round,
                });
                let (record, running) = (&mut *self.record, &mut contender.running);
                (self.stage).measure(record, running, condition, drive, times, line)?;
            }
        }
        let table = self.record.table(&OPEN, |row| row.word(0) == condition.name());
        self.section(
            &format!("{condition}. Open loop, random starts, latency from the intended start"),
            &table.without(&["handshake"]).text(),
        );
        Ok(())
    }

    fn memory(&mut self) -> Result<(), TrialError> {
        if self.plan.idle == 0 {
            return Ok(());
        }
        let options = &self.stage.options;
        let sides = [Side::Batched, Side::Nginx];
        for side in sides.into_iter().filter(|side| side.is_installed(options)) {
            (self.progress)(&format!("{} idle connections: {}", self.plan.idle, side.name()));
            let result = memory::idle(self.stage, side, self.plan.idle)?;
            self.record.line(&json!({"kind": MEMORY.kind, "result": result}))?;
        }
        self.section(
            "Memory of idle TLS connections (processes only, without the kernel's sockets;\n\
             the terminator holds a backend connection for each, nginx does not)",
            &self.record.table(&MEMORY, |_| true).text(),
        );
        Ok(())
    }

    /// Single operations, for the same record; their table is `widelane speed`'s own.
    fn speed(&mut self) -> Result<(), TrialError> {
        if self.plan.no_speed {
            return Ok(());
        }
        let plan = SpeedPlan {
            operations: Vec::new(),
            seconds: SPEED_SECONDS,
        };
        let table = operations::speed(self.stage, &plan, self.record, &mut self.progress)?;
        self.section("Operations on one core (`widelane speed`)", &table);
        Ok(())
    }

    fn section(&mut self, title: &str, text: &str) {
        let _ = writeln!(self.summary, "{title}\n\n{text}");
    }
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
const OPEN_ROUNDS: usize = 2;
/// Seconds before each measurement.
const WARMUP: f64 = 0.3;
const SHARE_OF_KNEE: f64 = 0.7;
const DESCRIPTORS: u64 = 30_000;
/// Seconds for each operation, backend and number in flight.
const SPEED_SECONDS: f64 = 0.3;
