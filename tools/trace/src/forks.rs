//! Servers that fork a process for each connection.
//!
//! The handshake is the first thing that such a process does, so that probes come too late if they are made
//! when the tracer hears of the process. Servers that fork their workers when they start are not meant:
//! those live on.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Processes that fork again and again.
#[derive(Debug, Default)]
pub(crate) struct Forks {
    recent: HashMap<u32, Recent>,
    servers: HashSet<u32>,
}

/// Forks of one process that follow each other.
#[derive(Debug)]
struct Recent {
    first: Instant,
    last: Instant,
    count: u32,
}

impl Forks {
    /// Notes that a process has forked. Returns whether that makes it such a server.
    pub(crate) fn add(&mut self, parent: u32, now: Instant) -> bool {
        if self.servers.contains(&parent) {
            return false;
        }
        let new = || Recent {
            first: now,
            last: now,
            count: 0,
        };
        let recent = self.recent.entry(parent).or_insert_with(new);
        if now.saturating_duration_since(recent.last) > LONGEST_PAUSE {
            *recent = new();
        }
        recent.last = now;
        recent.count += 1;
        let lasts = now.saturating_duration_since(recent.first) >= LONGER_THAN_A_START;
        if !lasts || recent.count < FEWEST {
            return false;
        }
        self.recent.remove(&parent);
        self.servers.insert(parent)
    }

    /// Returns whether a process is such a server.
    pub(crate) fn is_server(&self, pid: u32) -> bool {
        self.servers.contains(&pid)
    }

    /// Notes that a process has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.recent.remove(&pid);
        self.servers.remove(&pid);
    }
}

/// Fewest forks of a server. They last longer than servers take to start their workers, without longer pauses.
const FEWEST: u32 = 3;
const LONGER_THAN_A_START: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Index of the fork that makes a process known as a server, if it forks at these milliseconds.
    fn known_at(times: &[u64]) -> Option<usize> {
        let (mut forks, start) = (Forks::default(), Instant::now());
        let at = |time: &u64| start + Duration::from_millis(*time);
        let known = times.iter().position(|time| forks.add(7, at(time)));
        assert_eq!(forks.is_server(7), known.is_some());
        assert!(!forks.is_server(8));
        known
    }

    #[test]
    fn who_forks_again_and_again_is_a_server() {
        assert_eq!(known_at(&[0, 1_000, 2_000]), Some(2));
        assert_eq!(known_at(&[0, 5, 10, 15, 199, 200, 205]), Some(5));
        // Workers at a start, and again when the configuration is read anew an hour later.
        assert_eq!(known_at(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), None);
        assert_eq!(known_at(&[0, 1, 2, 3_600_000, 3_600_001, 3_600_002]), None);
        assert_eq!(known_at(&[0, 11_000, 22_000, 33_000]), None);
    }

    #[test]
    fn a_number_begins_anew_when_its_process_has_ended() {
        let (mut forks, start) = (Forks::default(), Instant::now());
        for second in 0..3 {
            forks.add(7, start + Duration::from_secs(second));
        }
        assert!(forks.is_server(7));
        assert!(!forks.add(7, start + Duration::from_secs(3)), "it is known");
        forks.forget(7);
        assert!(!forks.is_server(7) && !forks.add(7, start + Duration::from_secs(4)));
    }
}
