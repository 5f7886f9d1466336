//! The handshake of one connection, from its beginning to its one end.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sites;

/// Client or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client = 0,
    /// The server.
    Server = 1,
}

/// Result of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The handshake was completed.
    Complete = 0,
    /// The handshake failed by an error of the protocol, found here or by the peer.
    Protocol = 1,
    /// The connection ended before the handshake did.
    Closed = 2,
    /// The handshake failed here, without a fault of the peer: no room in the engine, no memory.
    Own = 3,
}

/// Agreed parameters, by the numbers of IANA's registries; 0 is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The version.
    pub version: u16,
    /// The cipher suite.
    pub cipher: u16,
    /// The group of the key exchange.
    pub group: u16,
    /// True if a session was resumed; `None` if not known.
    pub resumed: Option<bool>,
}

/// Handshake of one connection, as tracers see it. A handshake that never began fires no probe.
///
/// Its functions are compiled where they are used, and their probes with them: what has no handshakes of
/// ours, such as the OpenSSL provider, has no probes of handshakes, by which tracers can tell. Call each
/// from one place, or a probe has several.
#[derive(Debug, Default)]
pub struct Connection {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    New,
    Begun {
        number: u64,
        side: Side,
    },
    Ended,
}

impl Connection {
    /// The handshake begins, unless it has begun before.
    #[inline]
    pub fn begin(&mut self, side: Side) {
        if self.state == State::New {
            let number = next_number();
            self.state = State::Begun { number, side };
            sites::handshake_begun(number, side as u8);
        }
    }

    /// The calling thread goes on with the handshake: with its next step, or one that was suspended.
    #[inline]
    pub fn step(&self) {
        if let State::Begun { number, .. } = self.state {
            sites::handshake_step(number);
        }
    }

    /// The handshake has ended. `alert` is the one that the peer has sent, if it has.
    #[inline]
    pub fn ended(&mut self, agreed: Agreed, ending: Ending, alert: Option<u8>) {
        if let State::Begun { number, side } = std::mem::replace(&mut self.state, State::Ended) {
            sites::handshake_ended(
                number,
                ending as u8,
                agreed.version,
                agreed.cipher,
                agreed.group,
                agreed.resumed.map_or(-1, i8::from),
                side as u8,
                alert.map_or(-1, i16::from),
            );
        }
    }

    /// Returns whether the handshake has begun and not ended: only then does its end fire a probe.
    pub fn is_under_way(&self) -> bool {
        matches!(self.state, State::Begun { .. })
    }
}

/// A number that no other connection of the process has. Each thread takes them from a range of its
/// own, so that threads do not wait for each other.
fn next_number() -> u64 {
    static RANGES: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NEXT: Cell<u64> = const { Cell::new(0) };
    }
    NEXT.with(|next| {
        let mut number = next.get();
        if number.is_multiple_of(RANGE) {
            number = RANGES.fetch_add(RANGE, Relaxed) + 1;
        }
        next.set(number + 1);
        number
    })
}

/// Numbers that a thread takes at a time.
const RANGE: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread;

    #[test]
    fn numbers_differ_on_all_threads() {
        let some = || (0..100).map(|_| next_number()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| thread::spawn(some)).collect();
        let mut all: Vec<u64> = some();
        for thread in threads {
            all.extend(thread.join().unwrap());
        }
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 500);
        assert!(!all.contains(&0));
    }

    #[test]
    fn a_handshake_begins_and_ends_once() {
        let mut connection = Connection::default();
        connection.ended(Agreed::default(), Ending::Protocol, None);
        assert!(!connection.is_under_way(), "it had not begun");
        let mut connection = Connection::default();
        connection.begin(Side::Server);
        let first = connection.state;
        connection.begin(Side::Server);
        assert_eq!(connection.state, first);
        assert!(connection.is_under_way());
        connection.ended(Agreed::default(), Ending::Complete, None);
        assert_eq!(connection.state, State::Ended);
        connection.begin(Side::Server);
        assert!(!connection.is_under_way());
    }
}
