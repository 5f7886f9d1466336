//! Ends the time slices that are under way, so that they are counted now.
//!
//! The kernel notes which registers are in use when it takes a thread off its CPU. A thread that
//! has a CPU to itself may keep it for seconds, and would not be seen meanwhile. One short visit to
//! each CPU takes it off for a moment.

use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::procfs::cpu_list;

/// The CPUs to visit, and where to go on next time.
pub(crate) struct Nudge {
    cpus: Vec<usize>,
    next: usize,
}

impl Nudge {
    /// Every CPU that this thread may use, except those that the system keeps free of others' work.
    pub(crate) fn new() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let mut kept_free = Vec::new();
        for file in ["isolated", "nohz_full"] {
            let path = format!("/sys/devices/system/cpu/{file}");
            kept_free.extend(cpu_list(&std::fs::read_to_string(path).unwrap_or_default()));
        }
        let visited = |cpu: &usize| allowed.is_set(*cpu) && !kept_free.contains(cpu);
        Self {
            cpus: (0..CpuSet::MAX_CPU).filter(visited).collect(),
            next: 0,
        }
    }

    /// Visits as many CPUs as it can in the time given, and comes back.
    ///
    /// A CPU that is busy lets a visitor in after some milliseconds, so that on a large and loaded
    /// machine one round may take several calls.
    pub(crate) fn visit(&mut self, most: Duration) {
        let Ok(home) = sched_getaffinity(None) else {
            return;
        };
        let began = Instant::now();
        for _ in 0..self.cpus.len() {
            let mut one = CpuSet::new();
            one.set(self.cpus[self.next]);
            self.next = (self.next + 1) % self.cpus.len();
            // A CPU that has gone offline is not visited.
            let _ = sched_setaffinity(None, &one);
            if began.elapsed() > most {
                break;
            }
        }
        // It was allowed a moment ago.
        let _ = sched_setaffinity(None, &home);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_ends_where_it_began() {
        let home = sched_getaffinity(None).unwrap();
        let mut nudge = Nudge::new();
        nudge.visit(Duration::from_secs(1));
        nudge.visit(Duration::ZERO);
        assert!(sched_getaffinity(None).unwrap() == home);
        assert!(nudge.cpus.iter().all(|&cpu| home.is_set(cpu)));
    }

    #[test]
    fn without_a_cpu_to_visit_nothing_happens() {
        let mut nowhere = Nudge {
            cpus: Vec::new(),
            next: 0,
        };
        nowhere.visit(Duration::ZERO);
        assert_eq!(nowhere.next, 0);
    }
}
