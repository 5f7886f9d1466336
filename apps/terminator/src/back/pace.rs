//! Size of the next read of a relay, and the size of the records in which it leaves.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

/// The limit of the next read of one direction.
///
/// A system call costs as much as copying some ten thousand bytes, so a stream that fills its reads
/// gets larger ones. Bytes that the other side does not take wait in memory, so a stream that is
/// held back gets smaller ones. So does a stream of very short records: a read is decrypted as a whole, while
/// the worker's other connections wait.
#[derive(Debug)]
pub(crate) struct Pace {
    pub(crate) limit: usize,
    held_back: bool,
    overhead: Overhead,
}

impl Pace {
    /// The other side has not taken everything at once.
    pub(crate) fn hold_back(&mut self) {
        self.held_back = true;
    }

    /// A read has brought `received` bytes with `content` bytes of content; all earlier ones are gone. Returns
    /// what that costs in a [`Turn`](crate::turn::Turn).
    pub(crate) fn read(&mut self, received: usize, content: usize) -> usize {
        let cost = self.overhead.cost(received, content);
        if std::mem::take(&mut self.held_back) || cost > 2 * received {
            self.limit = (self.limit / 2).max(LEAST_READ);
        } else if received >= self.limit {
            self.limit = (self.limit * 2).min(MOST_READ);
        }
        cost
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            limit: LEAST_READ,
            held_back: false,
            overhead: Overhead::default(),
        }
    }
}

/// Bytes that the records of one direction add to their content.
#[derive(Debug, Default)]
struct Overhead(usize);

impl Overhead {
    /// The cost of a read, in bytes. A record without content takes as long as [`RECORD_COST`] bytes of a long one;
    /// how many records there are follows from what they add to their content.
    fn cost(&mut self, received: usize, content: usize) -> usize {
        self.0 = (self.0 + received).saturating_sub(content);
        // What has come of an incomplete record will be content.
        let of_records = self.0.saturating_sub(MOST_PENDING);
        self.0 -= of_records;
        received + of_records / LEAST_OVERHEAD * RECORD_COST
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
    pub(crate) fn pieces(&mut self, bytes: usize, now: Instant) -> impl Iterator<Item = Range<usize>> + use<> {
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
/// Room to decrypt into: all of one read, the incomplete record that rustls holds, and what it has
/// decrypted at the end of the handshake (a record and the bytes of two reads).
pub(crate) const PLAIN_BYTES: usize = MOST_READ + 64 * 1024;
/// Plaintext of a record that fits one segment: Ethernet's 1,500 bytes without the headers of IPv6
/// (40), TCP (32) and a record (29 at most, with TLS 1.2).
const SEGMENT: usize = 1500 - 40 - 32 - 29;
/// Segments that TCP sends first (RFC 6928).
const FIRST_WINDOW: usize = 10;
/// TCP begins with its first window again after a pause longer than its timeout for retransmissions
/// (RFC 5681, section 4.1), which is a second or more (RFC 6298, section 2.4).
const PAUSE: Duration = Duration::from_secs(1);
/// A call of the cipher, the tag, and the bookkeeping of rustls.
const RECORD_COST: usize = 704;
/// The least that a record adds to its content: header, type and tag (RFC 8446, section 5.2).
const LEAST_OVERHEAD: usize = 5 + 1 + 16;
/// The longest record (RFC 5246, section 6.2.3; that of TLS 1.3 is shorter).
const MOST_PENDING: usize = 5 + 16 * 1024 + 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_grow_while_they_are_filled_and_no_further_than_the_limit() {
        let mut pace = Pace::default();
        let mut limits = vec![pace.limit];
        for _ in 0..6 {
            let limit = pace.limit;
            pace.read(limit, limit);
            limits.push(pace.limit);
        }
        let kib: Vec<_> = limits.iter().map(|limit| limit / 1024).collect();
        assert_eq!(kib, [16, 32, 64, 128, 256, 256, 256]);
        pace.read(1000, 1000);
        assert_eq!(pace.limit, MOST_READ, "a short read says nothing of the reader");
    }

    #[test]
    fn a_reader_that_is_slow_halves_the_next_read_once() {
        let mut pace = Pace {
            limit: MOST_READ,
            ..Pace::default()
        };
        // However often it is found to be held back.
        pace.hold_back();
        pace.hold_back();
        pace.read(MOST_READ, MOST_READ);
        assert_eq!(pace.limit, MOST_READ / 2);
        for _ in 0..10 {
            pace.hold_back();
            let limit = pace.limit;
            pace.read(limit, limit);
        }
        assert_eq!(pace.limit, LEAST_READ);
    }

    /// Cost of 100 reads of one turn, after the first, of `read` bytes with `content` bytes of content each.
    fn cost(read: usize, content: usize) -> usize {
        let mut overhead = Overhead::default();
        // Short records first fill what an incomplete record may be.
        for _ in 0..1000 {
            overhead.cost(read, content);
        }
        (0..100).map(|_| overhead.cost(read, content)).sum()
    }

    #[test]
    fn short_records_cost_more_than_their_bytes() {
        let long = cost(16 * 1024 + 22, 16 * 1024);
        let bytes = 100 * (16 * 1024 + 22);
        assert!((bytes..bytes * 11 / 10).contains(&long), "{long}");
        let short = cost(712 * 23, 712);
        assert_eq!(short, 100 * (712 * 23 + 712 * RECORD_COST));
    }

    #[test]
    fn records_that_come_in_parts_cost_what_whole_ones_cost() {
        let (mut overhead, mut cost, mut received, mut seen) = (Overhead::default(), 0, 0, 0);
        for _ in 0..1000 {
            received += 10_000;
            let content = received / (16 * 1024 + 22) * 16 * 1024;
            cost += overhead.cost(10_000, content - seen);
            seen = content;
        }
        // The first time that the most is pending is taken for records.
        let most = received * 11 / 10 + MOST_PENDING / LEAST_OVERHEAD * RECORD_COST;
        assert!(cost <= most, "{cost}");
    }

    #[test]
    fn a_stream_of_short_records_gets_small_reads() {
        let mut pace = Pace {
            limit: MOST_READ,
            ..Pace::default()
        };
        for _ in 0..10 {
            let limit = pace.limit;
            pace.read(limit, limit / 23);
        }
        assert_eq!(pace.limit, LEAST_READ);
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
        assert_eq!(lengths(&mut records, 3000, now), [SEGMENT, SEGMENT, 3000 - 2 * SEGMENT]);
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
