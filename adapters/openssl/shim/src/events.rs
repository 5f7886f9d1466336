//! Order of passes, looks at the sockets, and events that the server gets.
//!
//! One thread's event loop asks [`Loop::next`] again and again inside one call that waits, and does what
//! it says. The decision is a pure function of counts, so that it is tested without sockets.

/// State of an event loop's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// True if there are handshakes that can go on and that no wait has reported.
    pub(crate) is_ready: bool,
    /// Jobs that wait for a pass.
    pub(crate) waiting: usize,
    /// Jobs that were submitted in all.
    pub(crate) submitted: u64,
}

/// Next step of a call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Tells the server of the handshakes that can go on, and nothing else in the same call.
    Deliver,
    /// Looks at the sockets without waiting; if there are events, returns them.
    Look,
    /// Runs one pass.
    Run,
    /// Waits as the server wants.
    Wait,
}

/// The state of one event loop.
#[derive(Debug)]
pub(crate) struct Loop {
    /// Number of jobs that had been submitted at the last look at the sockets.
    looked_at: u64,
    /// True if handshakes were delivered since the last look: sockets get their turn in between.
    delivered: bool,
}

impl Loop {
    pub(crate) const fn new() -> Self {
        Self {
            looked_at: 0,
            delivered: false,
        }
    }

    /// Decides what comes next.
    pub(crate) fn next(&mut self, seen: Seen) -> Next {
        if seen.is_ready && !self.delivered {
            self.delivered = true;
            return Next::Deliver;
        }
        if seen.is_ready || (seen.waiting > 0 && seen.submitted != self.looked_at) {
            // One look for each new job: suspended sockets stay readable, so that a look may find
            // the same events again and again.
            self.delivered = false;
            self.looked_at = seen.submitted;
            return Next::Look;
        }
        self.delivered = false;
        match seen.waiting {
            0 => Next::Wait,
            _ => Next::Run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(ready: usize, waiting: usize, submitted: u64) -> Seen {
        Seen {
            is_ready: ready > 0,
            waiting,
            submitted,
        }
    }

    #[test]
    fn without_jobs_the_loop_waits_as_the_server_wants() {
        let mut state = Loop::new();
        for _ in 0..3 {
            assert_eq!(state.next(seen(0, 0, 0)), Next::Wait);
        }
        assert_eq!(state.next(seen(0, 0, 9)), Next::Wait, "jobs ran at once");
    }

    #[test]
    fn each_new_job_gets_one_look_and_then_its_pass() {
        let mut state = Loop::new();
        assert_eq!(state.next(seen(0, 1, 1)), Next::Look);
        // The look brought another job.
        assert_eq!(state.next(seen(0, 2, 2)), Next::Look);
        // It brought events, but no job.
        assert_eq!(state.next(seen(0, 2, 2)), Next::Run);
        assert_eq!(state.next(seen(2, 0, 2)), Next::Deliver);
        assert_eq!(state.next(seen(0, 0, 2)), Next::Wait);
    }

    #[test]
    fn sockets_get_a_turn_between_two_deliveries() {
        let mut state = Loop::new();
        assert_eq!(state.next(seen(5, 0, 5)), Next::Deliver);
        assert_eq!(state.next(seen(3, 0, 5)), Next::Look);
        assert_eq!(state.next(seen(3, 0, 5)), Next::Deliver);
    }
}
