//! The state of the measured CPUs before, during and after a run: their clocks, and how busy others keep
//! them. A reader sees from it whether a neighbour, or a changed clock, disturbed the figures.

use crate::error::TrialError;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};
use widelane_affinity::Cpus;

/// The CPUs of servers and of the load while a run is under way, with the other hyperthreads of their cores.
#[derive(Debug)]
pub(crate) struct Watch {
    server_cpu: usize,
    load_cpu: usize,
    begun: Times,
    /// The last look.
    last: Option<Instant>,
    looks: usize,
    /// The lowest and the highest clock of each CPU, in GHz.
    clocks: BTreeMap<usize, [f64; 2]>,
}

impl Watch {
    pub(crate) fn new(server_cpu: usize, load_cpu: usize) -> Self {
        Self {
            server_cpu,
            load_cpu,
            begun: times(),
            last: None,
            looks: 0,
            clocks: BTreeMap::new(),
        }
    }

    /// Measures, for about a third of a second in which nothing of ours runs: the clocks, and how busy the CPUs are.
    ///
    /// # Errors
    ///
    /// If this thread may not run on one of the CPUs.
    pub(crate) fn state(&self) -> Result<Value, TrialError> {
        let before = times();
        thread::sleep(LOOK);
        let busy = busy(&before, &times(), &self.cores());
        let clocks = self
            .clocks()?
            .into_iter()
            .map(|(cpu, ghz)| (cpu.to_string(), json!(ghz)));
        Ok(json!({
            "clock_ghz": Map::from_iter(clocks),
            "busy": busy,
            "server_core": widelane_affinity::siblings(self.server_cpu).to_string(),
            "load_core": widelane_affinity::siblings(self.load_cpu).to_string(),
            "load_average": fs::read_to_string("/proc/loadavg").ok().map(|text| text.trim().to_owned()),
        }))
    }

    /// Measures the clocks between two samples, for a millisecond each, unless that was done within the last second. A
    /// core that has just computed still has the clock of that. Most virtual machines show no frequency to read.
    ///
    /// # Errors
    ///
    /// As [`state`](Self::state).
    pub(crate) fn look(&mut self) -> Result<(), TrialError> {
        if self.last.is_none_or(|last| last.elapsed() >= BETWEEN_LOOKS) {
            let clocks = self.clocks()?;
            self.note(clocks);
            self.last = Some(Instant::now());
        }
        Ok(())
    }

    fn note(&mut self, clocks: impl IntoIterator<Item = (usize, f64)>) {
        self.looks += 1;
        for (cpu, ghz) in clocks {
            let [least, most] = self.clocks.entry(cpu).or_insert([ghz; 2]);
            (*least, *most) = (least.min(ghz), most.max(ghz));
        }
    }

    /// Ranges of the clocks that were seen, and shares of the time since the beginning: of all that ran here, and of
    /// the hypervisor.
    pub(crate) fn during(&self) -> Value {
        let clocks = self.clocks.iter().map(|(cpu, range)| (cpu.to_string(), json!(range)));
        json!({
            "clock_ghz": Map::from_iter(clocks),
            "looks": self.looks,
            "busy": busy(&self.begun, &times(), &self.cores()),
        })
    }

    fn measured(&self) -> Cpus {
        Cpus::from_iter([self.server_cpu, self.load_cpu])
    }

    fn cores(&self) -> Cpus {
        let measured = self.measured();
        let siblings = measured.iter().map(widelane_affinity::siblings);
        siblings.fold(measured, |all, core| all.or(&core))
    }

    /// Clocks in GHz.
    fn clocks(&self) -> Result<Vec<(usize, f64)>, TrialError> {
        let cpus = self.measured();
        let clocks = cpus.iter().map(|cpu| Ok((cpu, hundredths(clock(cpu)?))));
        let clocks = clocks.collect::<std::io::Result<_>>();
        clocks.map_err(TrialError::machine("cannot run on a CPU to measure its clock"))
    }
}

/// The clock of a CPU in GHz: a chain in which each step waits for the one before takes a known
/// number of cycles. The fastest of several short runs counts, so that an interrupt does not.
fn clock(cpu: usize) -> std::io::Result<f64> {
    let measured = thread::spawn(move || -> std::io::Result<f64> {
        widelane_affinity::pin(cpu)?;
        let (mask, factor) = (black_box(0x5851_f42d_u64), black_box(0x2545_f491_u64 | 1));
        let mut fastest = Duration::MAX;
        let mut value = black_box(1_u64);
        for _ in 0..CLOCK_RUNS {
            let start = Instant::now();
            for _ in 0..CLOCK_STEPS {
                value = (value ^ mask).wrapping_mul(factor);
            }
            value = black_box(value);
            fastest = fastest.min(start.elapsed());
        }
        Ok(CLOCK_STEPS as f64 * CYCLES_A_STEP / fastest.as_secs_f64() / 1e9)
    });
    let panicked = |_| Err(std::io::Error::other("the measuring thread panicked"));
    measured.join().unwrap_or_else(panicked)
}

/// Ticks of each CPU: busy, taken by the hypervisor, and all.
type Times = BTreeMap<usize, [u64; 3]>;

fn times() -> Times {
    parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The lines `cpuN user nice system idle iowait irq softirq steal …`.
fn parse(stat: &str) -> Times {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = words.take(8).map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, wait, irq, soft, steal] = ticks.try_into().ok()?;
        let busy = user + nice + system + irq + soft;
        Some((cpu, [busy, steal, busy + steal + idle + wait]))
    };
    stat.lines().filter_map(of_line).collect()
}

/// Shares of the time between two looks, by CPU.
fn busy(before: &Times, after: &Times, cpus: &Cpus) -> Map<String, Value> {
    let share = |cpu: usize| {
        let (before, after) = (before.get(&cpu)?, after.get(&cpu)?);
        let grown = |index: usize| after[index].saturating_sub(before[index]) as f64;
        let all = grown(2);
        (all > 0.0).then(|| {
            let (busy, stolen) = (hundredths(grown(0) / all), hundredths(grown(1) / all));
            json!({"busy": busy, "stolen": stolen})
        })
    };
    let rows = cpus.iter().map(|cpu| (cpu.to_string(), json!(share(cpu))));
    rows.collect()
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Twenty or more of the kernel's ticks.
const LOOK: Duration = Duration::from_millis(300);
/// Samples of some tenths of a second are not disturbed more often than this.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
const CLOCK_RUNS: usize = 50;
const CLOCK_STEPS: u32 = 20_000;
/// An exclusive or takes one cycle and a multiplication three, on every x86-64 core since 2008.
const CYCLES_A_STEP: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_and_stolen_time_are_separated() {
        let before = "cpu  9 9 9 9\ncpu0 100 0 50 1000 10 0 5 7 0 0\ncpu1 1 1 1 1 1 1 1 1\nintr 5\n";
        let after = "cpu0 110 0 60 1060 20 0 5 17 0 0\ncpu1 1 1 1 1 1 1 1 1\n";
        let shares = busy(&parse(before), &parse(after), &Cpus::from_iter([0, 1, 7]));
        assert_eq!(shares["0"], json!({"busy": 0.2, "stolen": 0.1}));
        // No tick has passed, or there is no such CPU: not known.
        assert_eq!((&shares["1"], &shares["7"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn a_run_has_the_range_of_its_clocks() {
        let mut watch = Watch::new(3, 4);
        watch.note([(3, 3.7), (4, 2.0)]);
        watch.note([(3, 2.9), (4, 2.0)]);
        watch.note([(3, 3.1)]);
        let during = watch.during();
        assert_eq!(during["clock_ghz"], json!({"3": [2.9, 3.7], "4": [2.0, 2.0]}));
        assert_eq!(during["looks"], 3);
    }

    #[test]
    fn the_clock_of_a_cpu_that_is_ours_is_known() {
        let cpu = widelane_affinity::allowed(None).expect("CPUs");
        let ghz = clock(cpu.iter().next().expect("one")).expect("it may run there");
        assert!(ghz.is_finite() && ghz > 0.0, "{ghz}");
    }
}
