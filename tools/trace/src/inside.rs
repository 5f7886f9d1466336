//! Decides whether the reads and writes of a process are probed, because it may do handshakes in them.
//!
//! `SSL_read` and `SSL_write` do the handshake that the program has not asked for. Most programs ask for it,
//! and their reads and writes are many: a probe on each would cost them more than it tells.

use std::time::{Duration, Instant};

use crate::event::Event;
use crate::functions::Role;
use crate::tls::HANDSHAKE;

/// Way in which a process does its handshakes, as far as is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakesInIo {
    /// A socket that is not known: reads and writes are probed until then.
    Watched(Instant),
    /// A socket that is not known, because no handshake came while they were probed.
    Idle,
    /// The program calls functions that do nothing else.
    Apart,
    /// The process does handshakes in reads and writes.
    Found,
}

impl HandshakesInIo {
    /// State of a process of which nothing is known.
    pub(crate) fn new(now: Instant) -> Self {
        Self::Watched(now + WATCHED)
    }

    /// Returns whether reads and writes are to be probed.
    pub(crate) fn is_probed(self) -> bool {
        matches!(self, Self::Watched(_) | Self::Found)
    }

    /// Time until which the process is watched.
    pub(crate) fn until(self) -> Option<Instant> {
        match self {
            Self::Watched(until) => Some(until),
            Self::Idle | Self::Apart | Self::Found => None,
        }
    }

    /// State after an event of the process.
    pub(crate) fn after(self, event: &Event, now: Instant) -> Self {
        match (self, event) {
            (Self::Found | Self::Apart, _) => self,
            (_, Event::Call(call)) if call.still.is_some() => Self::Found,
            (_, Event::Call(call)) if call.function.role == Role::Handshake => Self::Apart,
            (Self::Idle, Event::Bytes(bytes)) if bytes.bytes.first() == Some(&HANDSHAKE) => Self::new(now),
            _ => self,
        }
    }

    /// State at a time.
    pub(crate) fn at(self, now: Instant) -> Self {
        match self {
            Self::Watched(until) if until <= now => Self::Idle,
            _ => self,
        }
    }
}

/// Long enough for a handshake where there are some now and then.
const WATCHED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Direction;
    use crate::specimens::{bytes, call, function};

    #[test]
    fn reads_and_writes_are_probed_only_where_handshakes_may_be_in_them() {
        let start = Instant::now();
        let asked = Event::from(call(&function("SSL_do_handshake", Role::Handshake), 1, 1, 1));
        let mut read = call(&function("SSL_read", Role::Read), 1, 1, 1);
        read.still = Some(true);
        let read = Event::from(read);
        let hello = Event::from(bytes(Direction::Read, &[HANDSHAKE, 3, 1, 0, 0], 1, 1));
        let alert = Event::from(bytes(Direction::Read, &[21, 3, 1, 0, 2], 1, 1));

        let new = HandshakesInIo::new(start);
        assert!(new.is_probed() && new.until() == Some(start + WATCHED));
        assert_eq!(new.after(&hello, start), new);
        assert_eq!(new.at(start), new);
        assert_eq!(new.after(&read, start), HandshakesInIo::Found);
        assert_eq!(new.after(&asked, start), HandshakesInIo::Apart);
        // A known state does not change.
        assert_eq!(HandshakesInIo::Found.after(&asked, start), HandshakesInIo::Found);
        assert_eq!(HandshakesInIo::Apart.after(&read, start), HandshakesInIo::Apart);
        assert!(HandshakesInIo::Found.is_probed() && !HandshakesInIo::Apart.is_probed());

        let later = start + WATCHED;
        let idle = new.at(later);
        assert!(idle == HandshakesInIo::Idle && !idle.is_probed() && idle.until().is_none());
        assert_eq!(idle.after(&alert, later), HandshakesInIo::Idle);
        assert_eq!(idle.after(&hello, later), HandshakesInIo::new(later));
        assert_eq!(idle.after(&asked, later), HandshakesInIo::Apart);
    }
}
