//! What counters this machine lets us read, and what they say; where it lets us not, why.

use crate::clocks::class_name;
use crate::machine::pin;
use crate::spin::{runs, spin, ticks};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use widelane_cpu::licence::Class;

/// A source of counts, and what it said of each class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    /// Its name.
    pub name: String,
    /// The clock in GHz by class on one core, where it could be read.
    pub ghz: Vec<(String, f64)>,
    /// Why it could not.
    pub why_not: Option<String>,
}

/// Asks every source that there is, on one CPU.
pub(crate) fn counters(cpu: usize, hertz: f64) -> Vec<Counter> {
    vec![aperf(cpu, hertz), performance_events(), licence_events()]
}

/// APERF counts cycles, MPERF ticks of the base clock, while the core is not halted.
fn aperf(cpu: usize, hertz: f64) -> Counter {
    let path = format!("/dev/cpu/{cpu}/msr");
    let measured = std::thread::scope(|scope| {
        let measured = scope.spawn(|| -> std::io::Result<Vec<(String, f64)>> {
            let registers = File::open(&path)?;
            pin(cpu)?;
            let read = |register| -> std::io::Result<u64> {
                let mut bytes = [0; 8];
                registers.read_exact_at(&mut bytes, register)?;
                Ok(u64::from_le_bytes(bytes))
            };
            let mut found = Vec::new();
            for class in Class::ALL.into_iter().filter(|&class| runs(class)) {
                spin(class, SETTLE);
                let (start, from) = (ticks(), read(APERF)?);
                spin(class, MEASURE);
                let (cycles, time) = (read(APERF)? - from, ticks() - start);
                let ghz = cycles as f64 / time as f64 * hertz / 1e9;
                found.push((class_name(class).to_owned(), ghz));
            }
            Ok(found)
        });
        let panicked = |_| Err(std::io::Error::other("the measurement failed"));
        measured.join().unwrap_or_else(panicked)
    });
    let name = "APERF".to_owned();
    match measured {
        Ok(ghz) => Counter {
            name,
            ghz,
            why_not: None,
        },
        Err(error) => Counter {
            name,
            ghz: Vec::new(),
            why_not: Some(format!(
                "{path}: {error}; it needs root, the kernel module msr and a machine (or hypervisor) \
                 that has the register"
            )),
        },
    }
}

fn performance_events() -> Counter {
    let there = Path::new("/sys/bus/event_source/devices/cpu").exists();
    Counter {
        name: "perf cycles".to_owned(),
        ghz: Vec::new(),
        why_not: Some(match there {
            false => "this machine (or its hypervisor) offers no performance counters".to_owned(),
            true => "not read: `perf stat -e cycles,ref-cycles` tells".to_owned(),
        }),
    }
}

fn licence_events() -> Counter {
    let events = Path::new("/sys/bus/event_source/devices/cpu/events");
    let there = events.exists();
    Counter {
        name: "CORE_POWER licences".to_owned(),
        ghz: Vec::new(),
        why_not: Some(match there {
            false => "this machine (or its hypervisor) offers no performance counters".to_owned(),
            true => "not read: `perf stat -e core_power.lvl1_turbo_license` tells, where it exists"
                .to_owned(),
        }),
    }
}

const APERF: u64 = 0xe8;
/// Rounds until the clock has settled, and rounds to measure.
const SETTLE: u64 = 1_000_000;
const MEASURE: u64 = 1_000_000;
