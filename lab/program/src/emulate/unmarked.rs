//! Wide code of programs that do not mark: `usage` sees the registers in use at the end of each time
//! slice.

use std::collections::HashMap;
use std::fs;

use widelane_brake::{Brake, ObservedBurst};
use widelane_cpu::licence::Class;
use widelane_usage::{Slice, Slices};

use widelane_cli::failure::Failure;

/// Lets the brake know of such slices. `level` is what they ask for.
pub(super) fn watch(brake: &mut Brake, level: u8) -> Result<(), Failure> {
    let mut slices = Slices::open().map_err(|error| Failure::Failed(format!("--unmarked: {error}")))?;
    let class = match level {
        1 => Class::Light512,
        _ => Class::Heavy512,
    };
    let mut marking = HashMap::new();
    let seen = move || {
        let slices = slices.take();
        if marking.len() > MOST_KNOWN {
            marking.clear();
        }
        let mut others = |slice: &Slice| {
            let pid = slice.thread.pid;
            !*marking.entry(pid).or_insert_with(|| marks(pid))
        };
        let slices = slices.into_iter().filter(|slice| others(slice));
        let burst = |slice: Slice| ObservedBurst {
            cpu: slice.cpu,
            thread: slice.thread.tid,
            class,
            begin: slice.begin,
            end: slice.end,
        };
        slices.map(burst).collect()
    };
    brake.watch(seen).map_err(|error| Failure::Failed(error.to_string()))
}

/// Returns whether a process has the page of a brake, and so marks its wide code itself.
fn marks(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains("memfd:widelane-brake")
}

/// Processes, before their numbers are asked for anew.
const MOST_KNOWN: usize = 4096;
