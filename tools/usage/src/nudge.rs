//! Ends the time slices that are under way, so that they are counted now.
//!
//! The kernel notes which registers are in use when it takes a thread off its CPU. A thread that
//! has a CPU to itself may keep it for seconds, and would not be seen meanwhile. One short visit to
//! each CPU takes it off for a moment.

use std::time::{Duration, Instant};

use widelane_affinity::{allow, allowed, kept_free, pin};

/// The CPUs to visit, and where to go on next time.
pub(crate) struct Nudge {
    cpus: Vec<usize>,
    next: usize,
}

impl Nudge {
    /// Every CPU that this thread may use, except those that the system keeps free of others' work.
    pub(crate) fn new() -> Self {
        let allowed = allowed(None).unwrap_or_default();
        Self {
            cpus: allowed.without(&kept_free()).iter().collect(),
            next: 0,
        }
    }

    /// Visits as many CPUs as it can in the time given, and comes back.
    ///
    /// A CPU that is busy lets a visitor in after some milliseconds, so that on a large and loaded
    /// machine one round may take several calls.
    pub(crate) fn visit(&mut self, most: Duration) {
        let Ok(home) = allowed(None) else {
            return;
        };
        let began = Instant::now();
        for _ in 0..self.cpus.len() {
            // A CPU that has gone offline is not visited.
            let _ = pin(self.cpus[self.next]);
            self.next = (self.next + 1) % self.cpus.len();
            if began.elapsed() > most {
                break;
            }
        }
        // This CPU was allowed a moment ago.
        let _ = allow(None, &home);
    }
}

/// One round of visits takes longer on a large and busy machine; the next one goes on with it.
pub(crate) const MOST_FOR_VISITS: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_ends_where_it_began() {
        let home = allowed(None).unwrap();
        let mut nudge = Nudge::new();
        nudge.visit(Duration::from_secs(1));
        nudge.visit(Duration::ZERO);
        assert_eq!(allowed(None).unwrap(), home);
        assert!(nudge.cpus.iter().all(|&cpu| home.has(cpu)));
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
