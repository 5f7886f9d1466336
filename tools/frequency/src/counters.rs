//! Counters that this machine lets us read, and their values; else the reason.

use crate::estimate::median;
use crate::machine::Machine;
use crate::spin::{runs, spin, ticks};
use perf_event::events::{Hardware, Raw};
use perf_event::{Builder, Group};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use widelane_affinity::pin;
use widelane_cpu::licence::{Class, Generation};

/// A source of counts, and what it said of each class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Name of the counter.
    pub name: String,
    /// The clock in GHz by class on one core, where it counts cycles.
    pub ghz: Vec<(String, f64)>,
    /// The share of the cycles that it counted by class, where it counts some of them.
    #[serde(default)]
    pub share: Vec<(String, f64)>,
    /// Reason why the counter could not be read.
    pub why_not: Option<String>,
}

/// Asks every source that there is, on one CPU.
pub(crate) fn counters(cpu: usize, hertz: f64) -> Vec<Counter> {
    let machine = Machine::here();
    let mut found = vec![aperf(cpu, hertz), cycles(cpu, hertz)];
    found.push(cycles_by_reference(cpu, hertz));
    found.extend(licences(cpu, &machine));
    found
}

/// APERF counts cycles while the core is not halted.
fn aperf(cpu: usize, hertz: f64) -> Counter {
    let path = format!("/dev/cpu/{cpu}/msr");
    let read = |registers: &File| -> io::Result<u64> {
        let mut bytes = [0; 8];
        registers.read_exact_at(&mut bytes, APERF)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let measured = widelane_files::open_kernel(&path).and_then(|registers| {
        by_class(cpu, |class| {
            let (start, from) = (ticks(), read(&registers)?);
            spin(class, MEASURE);
            let cycles = read(&registers)?.wrapping_sub(from);
            Ok(vec![cycles as f64, (ticks() - start) as f64])
        })
    });
    let reason = |error| {
        format!(
            "{path}: {error}; it needs root, the kernel module msr and a machine (or hypervisor) \
             that has the register"
        )
    };
    clock("APERF", hertz, measured.map_err(reason))
}

/// Cycles of this thread, over the time that the time-stamp counter took for them.
fn cycles(cpu: usize, hertz: f64) -> Counter {
    let events = [Builder::new(Hardware::CPU_CYCLES)];
    clock("perf cycles", hertz, counted(cpu, &events))
}

/// Cycles of this thread, over those that it would have had at the clock of the time-stamp counter.
fn cycles_by_reference(cpu: usize, hertz: f64) -> Counter {
    let events = [Hardware::CPU_CYCLES, Hardware::REF_CPU_CYCLES].map(Builder::new);
    clock("perf cycles by ref-cycles", hertz, counted(cpu, &events))
}

/// The share of cycles under each licence.
fn licences(cpu: usize, machine: &Machine) -> Vec<Counter> {
    let measured = if LICENSED.contains(&machine.generation()) {
        let cycles = Builder::new(Hardware::CPU_CYCLES);
        let licences = LICENCES.map(|(_, config)| Builder::new(Raw::new(config)));
        counted(cpu, &[&[cycles], &licences[..]].concat())
    } else {
        Err("processors of this kind do not count it: Xeons from Skylake to Ice Lake do".to_owned())
    };
    let counter = |(place, (name, _)): (usize, &(&str, u64))| Counter {
        name: (*name).to_owned(),
        share: ratios(measured.as_deref().unwrap_or_default(), place + 1, 0, 1.0),
        why_not: measured.as_ref().err().cloned(),
        ..Counter::default()
    };
    LICENCES.iter().enumerate().map(counter).collect()
}

/// Samples by class: in each what the events counted, and the ticks that it took.
type Samples = Vec<(Class, Vec<Vec<f64>>)>;

/// Counts of `events` while each class runs, or the reason why they cannot be counted.
fn counted(cpu: usize, events: &[Builder<'static>]) -> Result<Samples, String> {
    let measured = || -> io::Result<Samples> {
        // The group counts the thread that opens it: the one that `by_class` measures on.
        let mut group = None;
        by_class(cpu, |class| {
            let (group, members) = match &mut group {
                Some(opened) => opened,
                None => group.insert(open(events)?),
            };
            group.reset()?;
            group.enable()?;
            let start = ticks();
            spin(class, MEASURE);
            let time = ticks() - start;
            group.disable()?;
            let counts = group.read()?;
            // Zero where something else has the registers: the counts are no counts.
            if counts.time_running().is_some_and(|time| time.is_zero()) {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, BUSY));
            }
            let mut sample: Vec<_> = members.iter().map(|one| counts[one] as f64).collect();
            sample.push(time as f64);
            Ok(sample)
        })
    };
    measured().map_err(|error| {
        let paranoid = widelane_files::kernel_text("/proc/sys/kernel/perf_event_paranoid");
        let paranoid = paranoid.ok().and_then(|text| text.trim().parse().ok());
        let there = ["cpu", "cpu_core"].map(|name| Path::new(DEVICES).join(name).exists());
        reason(&error, there.contains(&true), paranoid)
    })
}

fn open(events: &[Builder<'static>]) -> io::Result<(Group, Vec<perf_event::Counter>)> {
    let mut group = Group::new()?;
    let members = events.iter().map(|event| group.add(event));
    let members = members.collect::<io::Result<_>>()?;
    Ok((group, members))
}

/// Samples of each class that runs here, on a thread of its own on `cpu`.
fn by_class(cpu: usize, mut sample: impl FnMut(Class) -> io::Result<Vec<f64>> + Send) -> io::Result<Samples> {
    let measure = || {
        pin(cpu)?;
        let classes = Class::ALL.into_iter().filter(|&class| runs(class));
        let samples = classes.map(|class| {
            let _marked = widelane_marks::wide(class);
            spin(class, SETTLE);
            let samples = (0..SAMPLES).map(|_| sample(class));
            Ok((class, samples.collect::<io::Result<_>>()?))
        });
        samples.collect()
    };
    let panicked = |_| Err(io::Error::other("the measurement failed"));
    std::thread::scope(|scope| scope.spawn(measure).join().unwrap_or_else(panicked))
}

/// The clock from samples whose first count is of cycles, and whose last is of ticks of the
/// time-stamp counter.
fn clock(name: &str, hertz: f64, measured: Result<Samples, String>) -> Counter {
    let samples = measured.as_deref().unwrap_or_default();
    Counter {
        name: name.to_owned(),
        ghz: ratios(samples, 0, 1, hertz / 1e9),
        why_not: measured.as_ref().err().cloned(),
        ..Counter::default()
    }
}

/// The median ratio of two counts of a sample by class, in units of `unit`.
fn ratios(samples: &[(Class, Vec<Vec<f64>>)], of: usize, to: usize, unit: f64) -> Vec<(String, f64)> {
    let ratio = |(class, samples): &(Class, Vec<Vec<f64>>)| {
        let ratios = samples.iter().map(|sample| sample[of] / sample[to] * unit);
        let ratio = median(&ratios.collect::<Vec<_>>())?;
        Some((class.name().to_owned(), ratio))
    };
    samples.iter().filter_map(ratio).collect()
}

/// Reason why events could not be counted, from the kernel's answer, whether it knows performance counters of the CPU,
/// and its setting of who may use them.
fn reason(error: &io::Error, counters: bool, paranoid: Option<i32>) -> String {
    let refused = error.kind() == io::ErrorKind::PermissionDenied;
    match paranoid {
        _ if !counters => "this machine (or its hypervisor) offers no performance counters".to_owned(),
        Some(level) if refused => format!(
            "{error}: kernel.perf_event_paranoid is {level}; at 2 or less every user may count \
             what their own threads do, above that root or CAP_PERFMON"
        ),
        _ if refused => {
            format!("{error}: a container or a security module forbids perf_event_open")
        }
        _ => format!("{error}: the counters here do not count this, or not now"),
    }
}

/// Generations that count cycles by licence.
const LICENSED: [Generation; 3] = [Generation::Skylake, Generation::CascadeLake, Generation::IceLake];
/// Event 0x28 with its masks: Intel's event lists (github.com/intel/perfmon), SKX/, CLX/ and
/// ICX/events, `*_core.json`.
const LICENCES: [(&str, u64); 3] = [
    ("CORE_POWER.LVL0_TURBO_LICENSE", 0x0728),
    ("CORE_POWER.LVL1_TURBO_LICENSE", 0x1828),
    ("CORE_POWER.LVL2_TURBO_LICENSE", 0x2028),
];
const DEVICES: &str = "/sys/bus/event_source/devices";
const BUSY: &str = "other programs, or the kernel's NMI watchdog, have the counters";
const APERF: u64 = 0xe8;
/// Rounds until the clock has settled, rounds in a sample, and samples: the median leaves out those that were
/// interrupted.
const SETTLE: u64 = 600_000;
const MEASURE: u64 = 50_000;
const SAMPLES: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::allowed_cpus;
    use perf_event::events::Software;

    #[test]
    fn events_are_counted_while_each_class_runs() {
        // The kernel counts nanoseconds of a thread where the CPU counts nothing.
        let events = [Software::TASK_CLOCK, Software::CPU_MIGRATIONS].map(Builder::new);
        let samples = match counted(allowed_cpus()[0], &events) {
            Ok(samples) => samples,
            Err(why) => return println!("SKIP: perf_event_open: {why}"),
        };
        assert_eq!(samples.len(), Class::ALL.into_iter().filter(|&c| runs(c)).count());
        for (class, samples) in samples {
            assert_eq!(samples.len(), SAMPLES);
            for sample in samples {
                assert!(sample[0] > 0.0 && sample[1] == 0.0, "{class:?}: {sample:?}");
            }
        }
    }

    #[test]
    fn every_source_says_something_or_why_not() {
        let found = counters(allowed_cpus()[0], 1e9);
        assert_eq!(found.len(), 3 + LICENCES.len());
        for counter in found {
            let silent = counter.ghz.is_empty() && counter.share.is_empty();
            assert_eq!(silent, counter.why_not.is_some(), "{counter:?}");
        }
    }

    #[test]
    fn ratios_are_medians_by_class() {
        let samples = [(Class::Heavy512, vec![vec![1.0, 4.0], vec![2.0, 4.0], vec![9.0, 4.0]])];
        let found = ratios(&samples, 0, 1, 2.0);
        assert_eq!(found, [("512-heavy".to_owned(), 1.0)]);
    }

    #[test]
    fn reasons_name_what_stands_in_the_way() {
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let unknown = io::Error::from(io::ErrorKind::NotFound);
        assert!(reason(&unknown, false, Some(2)).contains("no performance counters"));
        assert!(reason(&refused, true, Some(3)).contains("perf_event_paranoid is 3"));
        assert!(reason(&refused, true, None).contains("container"));
        assert!(reason(&unknown, true, Some(1)).contains("do not count this"));
        let amd = Machine {
            vendor: "AuthenticAMD".to_owned(),
            family: 26,
            ..Machine::here()
        };
        let licences = licences(0, &amd);
        assert!(
            licences
                .iter()
                .all(|one| one.why_not.as_ref().unwrap().contains("Skylake"))
        );
    }
}
