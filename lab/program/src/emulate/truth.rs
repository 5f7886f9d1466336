//! Compares brake and probe: the figures of `widelane probe` under the brake must be those given to the brake.

use std::fmt::Display;
use std::process::Command;
use widelane_affinity::{Cpus, allow, allowed};
use widelane_brake::{Brake, Model, lost_when_idle};
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_cpu::licence::Class;
use widelane_frequency::{Clock, Profile};
use widelane_samples::{Table, cell, number, text};

/// One figure.
struct Row {
    what: String,
    expected: f64,
    measured: f64,
    /// Greatest difference between the two.
    tolerance: f64,
    unit: &'static str,
    /// Reason why the figure is not judged.
    exempt: Option<String>,
}

impl Row {
    fn holds(&self) -> bool {
        self.exempt.is_some() || (self.measured - self.expected).abs() <= self.tolerance
    }
}

/// Compares `times` times; returns whether all figures of all repetitions hold.
pub(super) fn holds(model: &Model, cpus: &Cpus, times: usize, json: bool) -> Result<bool, Failure> {
    let mut all = true;
    for repetition in 1..=times {
        let rows = compare(model, cpus)?;
        all &= rows.iter().all(Row::holds);
        output::print(&match json {
            true => lines(model, repetition, &rows),
            false => table(model, repetition, times, &rows),
        })?;
    }
    Ok(all)
}

fn compare(model: &Model, cpus: &Cpus) -> Result<Vec<Row>, Failure> {
    let idle = || {
        let lost = cpus.iter().map(lost_when_idle).collect::<Result<Vec<_>, _>>();
        lost.map_err(|error| Failure::Failed(format!("cannot look at idle CPUs: {error}")))
    };
    // Without a brake first, and if that is refused, why: it says so better than we could here.
    let without = match idle() {
        Ok(without) => without,
        Err(error) => {
            super::start(model, cpus)?;
            return Err(error);
        }
    };
    let native = probe(cpus, None)?;
    let brake = super::start(model, cpus)?;
    let with = idle()?;
    let profile = probe(cpus, Some(&brake))?;
    let wake_ups = brake.exactness().iter().map(|one| one.timer_us);
    let wake_up = wake_ups.fold(0.0, f64::max);
    brake.stop();
    let mut rows = clocks(model, &profile, &native);
    rows.extend(edges(model, &profile, wake_up));
    for ((cpu, with), without) in cpus.iter().zip(with).zip(without) {
        rows.push(Row {
            what: format!("CPU {cpu}, loss without wide code"),
            expected: 0.0,
            measured: 100.0 * (with - without),
            tolerance: 0.5,
            unit: "%",
            exempt: None,
        });
    }
    Ok(rows)
}

/// Profile that `probe` measures on these CPUs, in a program of its own, because each program finds the page once. It
/// runs before others, so that a busy machine does not disturb the comparison.
fn probe(cpus: &Cpus, brake: Option<&Brake>) -> Result<Profile, Failure> {
    let failed = |what: &str, why: &dyn Display| Failure::Failed(format!("{what}: {why}"));
    let folder = tempfile::tempdir().map_err(|error| failed("no temporary folder", &error))?;
    let file = folder.path().join("profile.json");
    let own = std::env::current_exe().map_err(|error| failed("this program", &error))?;
    let widelane = own.with_file_name("widelane");
    if !widelane.is_file() {
        let missing = "there is no such program, whose `probe` measures; build it: cargo build --release \
                       -p widelane";
        return Err(failed(&widelane.display().to_string(), &missing));
    }
    let mut probe = Command::new("chrt");
    probe.args(["--fifo", PRIORITY]).arg(widelane);
    probe.args(["probe", "--json", "--output"]).arg(&file);
    if let Some(brake) = brake {
        probe.env(widelane_marks::VARIABLE, brake.variable());
    } else {
        probe.arg("--quick");
    }
    let all = allowed(None).unwrap_or_default();
    allow(None, cpus).map_err(|error| failed("the CPUs", &error))?;
    let ended = probe.output();
    let _ = allow(None, &all);
    let ended = ended.map_err(|error| failed("cannot start chrt (package util-linux)", &error))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        return Err(failed("probe failed", &said));
    }
    Profile::load_named(&file).map_err(|error| Failure::Failed(error.to_string()))
}

/// Clocks by class, and that nothing vanished that was not clock. A machine that lowers its clock by
/// itself does so under the brake, too.
fn clocks(model: &Model, profile: &Profile, native: &Profile) -> Vec<Row> {
    let mut rows = Vec::new();
    for clock in &profile.clocks {
        let Some(class) = Class::named(&clock.class) else {
            continue;
        };
        let same = |one: &&Clock| (&one.class, one.cores) == (&clock.class, clock.cores);
        let own = native.clocks.iter().find(same).map_or(1.0, |one| one.of_scalar.value);
        rows.push(Row {
            what: format!("{class} on {}, clock of scalar", clock.cores),
            expected: 100.0 * own * model.burst(class, LONG).clock,
            measured: 100.0 * clock.of_scalar.value,
            tolerance: 2.0,
            unit: "%",
            exempt: None,
        });
        // Otherwise the brake could say that it took less or more than it took.
        let scalar = profile.clocks.iter().find(|one| one.cores == clock.cores);
        let others = scalar.map_or(0.0, |one| one.vanished.value);
        let busy = || format!("others take {:.0} % of these CPUs", 100.0 * others);
        rows.push(Row {
            what: format!("{class} on {}, vanished besides", clock.cores),
            expected: 0.0,
            measured: 100.0 * (clock.vanished.value - others),
            tolerance: VANISHED,
            unit: "%",
            exempt: (others > BUSY).then(busy),
        });
    }
    rows
}

/// Lost work and tails by class. What is less than a wake-up of the brake cannot be resolved.
fn edges(model: &Model, profile: &Profile, wake_up: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for edge in &profile.transitions {
        let Some(class) = Class::named(&edge.class) else {
            continue;
        };
        let burst = model.burst(class, BURST);
        let short = || format!("less than a wake-up of {wake_up:.0} µs");
        rows.push(Row {
            what: format!("{class}, work lost"),
            expected: burst.lost_us,
            measured: edge.stall_us.p50 - edge.control_us.p50,
            tolerance: 0.2 * burst.lost_us,
            unit: "µs",
            exempt: (burst.lost_us < wake_up / 2.0).then(short),
        });
        let lowered = 1.0 - burst.clock;
        rows.push(Row {
            what: format!("{class}, tail"),
            expected: burst.tail_us,
            measured: edge.tail_us.as_ref().map_or(0.0, |tail| tail.p50),
            tolerance: 0.1 * burst.tail_us,
            unit: "µs",
            exempt: (lowered * burst.tail_us < wake_up && lowered > 0.0).then(short),
        });
    }
    rows
}

fn table(model: &Model, repetition: usize, times: usize, rows: &[Row]) -> String {
    let [expected, measured, tolerance] = ["told", "measured", "may differ by"].map(number);
    let title = format!("{}, {repetition} of {times}", model.name);
    let rows = rows.iter().map(|row| {
        let verdict = match (&row.exempt, row.holds()) {
            (Some(why), _) => format!("not judged: {why}"),
            (None, true) => "holds".to_owned(),
            (None, false) => "IS OFF".to_owned(),
        };
        let figures = [row.expected, row.measured, row.tolerance];
        let [expected, measured, tolerance] = figures.map(|figure| cell(format!("{figure:.1} {}", row.unit)));
        vec![cell(&row.what[..]), expected, measured, tolerance, cell(verdict)]
    });
    let head = [text(title), expected, measured, tolerance, text("verdict")];
    Table::new(head, None).with(rows).text()
}

fn lines(model: &Model, repetition: usize, rows: &[Row]) -> String {
    let line = |row: &Row| {
        serde_json::json!({
            "model": model.name, "repetition": repetition, "what": row.what, "told": row.expected,
            "measured": row.measured, "tolerance": row.tolerance, "unit": row.unit,
            "holds": row.holds(), "not_judged": row.exempt,
        })
    };
    rows.iter().map(|row| format!("{}\n", line(row))).collect()
}

/// Microseconds until every level is reached, and of the bursts of `probe`.
const LONG: u64 = 20_000;
const BURST: u64 = 600;
/// Priority before other programs, and after the brake.
const PRIORITY: &str = "40";
/// Share of the CPU that others may take. Above it, the comparison cannot separate other losses from theirs.
const BUSY: f64 = 0.03;
/// The kernel takes a twentieth from real-time threads that have all of a CPU, in some slots.
const VANISHED: f64 = 5.0;
