//! Tells whether the clients of a worker are so near that a handshake's next message is there by the time
//! the worker has looked at its other sockets once.
//!
//! If it is, the event loop never has to watch the connection's socket, which saves two system
//! calls. If it is not, the read was in vain. So the last handshakes decide.

use std::cell::Cell;
use std::io;

use crate::front::client::Client;

/// The experience of one worker.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    record: Cell<Record>,
}

impl ReadAhead {
    /// Prepares for the answer to a flight that was just sent: the read that follows either finds
    /// the answer there, or has the event loop watch the socket.
    pub(crate) async fn expect_answer(&self, client: &mut Client) -> io::Result<Expected<'_>> {
        let (record, tries) = self.record.get().next();
        let tries = tries && client.is_bare();
        if tries {
            self.record.set(record);
            tokio::task::yield_now().await;
        } else if client.is_bare() {
            self.record.set(record);
            client.watch()?;
        }
        Ok(Expected(tries.then_some(self)))
    }
}

/// An answer that is to be read next.
#[must_use]
pub(crate) struct Expected<'a>(Option<&'a ReadAhead>);

impl Expected<'_> {
    /// The answer has been read from `client`.
    pub(crate) fn came(self, client: &Client) {
        if let Some(read_ahead) = self.0 {
            let record = read_ahead.record.get();
            read_ahead.record.set(record.with(client.is_bare()));
        }
    }
}

/// Share of reads that found the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    /// The share of the last tries that paid, in parts of [`WHOLE`]; older ones count less.
    share: u16,
    /// Handshakes since the last try.
    untried: u16,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            share: WHOLE,
            untried: 0,
        }
    }
}

impl Record {
    /// Decides whether to try for the next handshake.
    fn next(self) -> (Self, bool) {
        let tries = self.share >= ENOUGH || self.untried + 1 >= RARELY;
        let untried = if tries { 0 } else { self.untried + 1 };
        (Self { untried, ..self }, tries)
    }

    fn with(self, paid: bool) -> Self {
        let rest = self.share - self.share / MEMORY;
        let share = if paid { rest + WHOLE / MEMORY } else { rest };
        Self { share, ..self }
    }
}

const WHOLE: u16 = 1024;
/// A read in vain costs about a third of what a read that finds the answer saves.
const ENOUGH: u16 = WHOLE / 4;
/// Number of tries that are remembered, more or less.
const MEMORY: u16 = 16;
/// Handshakes of which one tries where it does not pay: clients change.
const RARELY: u16 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries of `handshakes`, of which every `period`-th pays, and how many of them were made.
    fn tries(record: &mut Record, handshakes: usize, period: usize) -> usize {
        let mut made = 0;
        for _ in 0..handshakes {
            let (next, tries) = record.next();
            *record = next;
            if tries {
                made += 1;
                *record = record.with(made % period == 0);
            }
        }
        made
    }

    #[test]
    fn near_clients_are_tried_for_and_far_ones_are_not() {
        let mut record = Record::default();
        assert_eq!(tries(&mut record, 1000, 1), 1000, "all near");
        let far = tries(&mut record, 10_000, usize::MAX);
        assert!(far <= 200, "{far} reads in vain");
        assert!(far >= 100, "{far} tries: whether they stay far must be seen");
        let near = tries(&mut record, 10_000, 1);
        assert!(near >= 9_000, "{near} tries after they have come near");
    }

    #[test]
    fn half_of_them_near_are_enough() {
        let mut record = Record::default();
        assert_eq!(tries(&mut record, 10_000, 2), 10_000);
    }

    #[test]
    fn the_share_stays_a_share() {
        for share in 0..=WHOLE {
            let record = Record { share, untried: 0 };
            assert!(record.with(false).share <= share);
            assert!((share..=WHOLE).contains(&record.with(true).share));
        }
    }
}
