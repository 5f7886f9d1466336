//! How much one read of a relay may bring, and the size of the records in which it leaves.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

/// The limit of the next read of one direction.
///
/// A system call costs as much as copying some ten thousand bytes, so a stream that fills its reads
/// gets larger ones. Bytes that the other side does not take wait in memory, so a stream that is
/// held back gets smaller ones.
#[derive(Debug)]
pub(crate) struct Pace {
    limit: usize,
    held_back: bool,
}

impl Pace {
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The other side has not taken everything at once.
    pub(crate) fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// A read has brought `bytes`; all earlier ones are gone.
    pub(crate) fn read(&mut self, bytes: usize) {
        if std::mem::take(&mut self.held_back) {
            self.limit = (self.limit / 2).max(LEAST_READ);
        } else if bytes >= self.limit {
            self.limit = (self.limit * 2).min(MOST_READ);
        }
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            limit: LEAST_READ,
            held_back: false,
        }
    }
}

/// Sizes of the records for a client.
///
/// A client can decrypt a record when its last byte is there. After a pause, TCP sends ten segments
/// and waits for an answer, and a segment may be lost. So the bytes after a pause go in records of
/// one segment each, as many as TCP sends at once; then records are as large as they can be.
#[derive(Debug, Default)]
pub(crate) struct Records {
    last: Option<Instant>,
    small: usize,
}

impl Records {
    /// The pieces of `bytes` bytes that leave now, each to be written by itself.
    pub(crate) fn pieces(
        &mut self,
        bytes: usize,
        now: Instant,
    ) -> impl Iterator<Item = Range<usize>> + use<> {
        let last = self.last.replace(now);
        if last.is_none_or(|last| now.duration_since(last) >= PAUSE) {
            self.small = FIRST_WINDOW * SEGMENT;
        }
        let small = bytes.min(self.small);
        self.small -= small;
        let large = small..bytes;
        let pieces = (0..small)
            .step_by(SEGMENT)
            .map(move |from| from..small.min(from + SEGMENT));
        pieces.chain((!large.is_empty()).then_some(large))
    }
}

/// One full record.
const LEAST_READ: usize = 16 * 1024;
/// The most that one read brings, and so the most that waits for a reader that is slow.
pub(crate) const MOST_READ: usize = 256 * 1024;
/// Plaintext of a record that fits one segment: Ethernet's 1,500 bytes without the headers of IPv6
/// (40), TCP (32) and a record (29 at most, with TLS 1.2).
const SEGMENT: usize = 1500 - 40 - 32 - 29;
/// Segments that TCP sends first (RFC 6928).
const FIRST_WINDOW: usize = 10;
/// TCP begins with its first window again after a pause longer than its timeout for retransmissions
/// (RFC 5681, section 4.1), which is a second or more (RFC 6298, section 2.4).
const PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_grow_while_they_are_filled_and_no_further_than_the_limit() {
        let mut pace = Pace::default();
        let mut limits = vec![pace.limit()];
        for _ in 0..6 {
            pace.read(pace.limit());
            limits.push(pace.limit());
        }
        let kib: Vec<_> = limits.iter().map(|limit| limit / 1024).collect();
        assert_eq!(kib, [16, 32, 64, 128, 256, 256, 256]);
        pace.read(1000);
        assert_eq!(
            pace.limit(),
            MOST_READ,
            "a short read says nothing of the reader"
        );
    }

    #[test]
    fn a_reader_that_is_slow_halves_the_next_read_once() {
        let mut pace = Pace {
            limit: MOST_READ,
            held_back: false,
        };
        // However often it is found to be held back.
        pace.hold_back();
        pace.hold_back();
        pace.read(MOST_READ);
        assert_eq!(pace.limit(), MOST_READ / 2);
        for _ in 0..10 {
            pace.hold_back();
            pace.read(pace.limit());
        }
        assert_eq!(pace.limit(), LEAST_READ);
    }

    fn lengths(records: &mut Records, bytes: usize, now: Instant) -> Vec<usize> {
        let pieces: Vec<_> = records.pieces(bytes, now).collect();
        let mut end = 0;
        for piece in &pieces {
            assert!(piece.start == end && !piece.is_empty(), "{pieces:?}");
            end = piece.end;
        }
        assert_eq!(end, bytes);
        pieces.iter().map(Range::len).collect()
    }

    #[test]
    fn the_first_window_goes_in_records_of_one_segment() {
        let (mut records, now) = (Records::default(), Instant::now());
        assert_eq!(lengths(&mut records, 3, now), [3]);
        assert_eq!(
            lengths(&mut records, 3000, now),
            [SEGMENT, SEGMENT, 3000 - 2 * SEGMENT]
        );
        let left = FIRST_WINDOW * SEGMENT - 3003;
        let all = lengths(&mut records, 100_000, now);
        assert_eq!(all.iter().filter(|length| **length <= SEGMENT).count(), 8);
        assert_eq!(*all.last().unwrap(), 100_000 - left);
        assert_eq!(lengths(&mut records, 100_000, now), [100_000]);
    }

    #[test]
    fn a_pause_begins_a_window() {
        let (mut records, now) = (Records::default(), Instant::now());
        lengths(&mut records, 100_000, now);
        let soon = now + PAUSE - Duration::from_millis(1);
        assert_eq!(lengths(&mut records, 50_000, soon), [50_000]);
        let late = soon + PAUSE;
        assert_eq!(lengths(&mut records, 50_000, late)[..2], [SEGMENT, SEGMENT]);
    }
}
