//! Reading a page from bytes.

use std::fmt;
use std::mem::offset_of;
use std::time::Duration;

use crate::overload::Overload;
use crate::page::{
    BACKEND, DECISION, Durations, Facts, Handshakes, LAYOUT, MAGIC, MOST_DECISIONS, MOST_OPERATIONS, MOST_REASONS,
    OPENSSL, OPERATION, OperationRow, Page, REASON, ReasonRow, SERVES, SUSPENDS, TOTALS, Totals, VERSION,
};
use crate::proved::Proved;
use crate::switch::{Asked, InProof};
use crate::times::{BUCKETS, Times};
use crate::way::Way;

/// Content of a page.
///
/// Each figure is whole. Together they are from within a few microseconds, because the process
/// goes on while it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The process that counts on this page, by its number in its own PID namespace. A process that
    /// has just been forked has the page of its parent.
    pub process: u32,
    /// Facts that do not change.
    pub facts: Facts,
    /// State of lanes that an operator has asked for.
    pub operator: Asked,
    /// What a proof has asked for last.
    pub in_proof: InProof,
    /// Signatures of handshakes: a server makes one in each full handshake, and none in a resumed one.
    pub signed: u64,
    /// Key exchanges: full handshakes have one, and so do most resumed ones.
    pub agreed: u64,
    /// Waits of handshakes for their signatures. Of the terminator ([`serves`](Facts::serves)): waits of full
    /// handshakes for the server.
    pub signed_times: Times,
    /// Waits for key exchanges. Of the terminator: waits of resumed handshakes for the server.
    pub agreed_times: Times,
    /// Result of the last proof.
    pub proved: Proved,
    /// Connections that came faster than they could be served.
    pub overload: Overload,
    /// Ways in which handshakes have waited, and reasons for which some were not suspended.
    pub ways: Vec<Way>,
    /// In the order of the process; also those that did nothing.
    pub operations: Vec<Operation>,
    /// Why OpenSSL did something by itself.
    pub reasons: Vec<Reason>,
    /// Number of times that it did so for reasons that the page has no room for.
    pub unlisted: u64,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Name of the operation, such as `rsa2048-sign`.
    pub name: String,
    /// Counters of the operation.
    pub totals: Totals,
}

/// Why OpenSSL did something by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// In words.
    pub text: String,
    /// Number of times.
    pub count: u64,
}

/// Why bytes are no page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadPage {
    /// There are more or fewer bytes than a page has.
    Size(usize),
    /// The bytes do not begin as a page does.
    NoPage,
    /// The page is laid out in another way: the process runs another version.
    Layout(u32),
    /// A part holds what no writer of pages writes.
    Damaged(&'static str),
}

impl fmt::Display for BadPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(size) => write!(f, "it has {size} bytes, not {}", crate::SIZE),
            Self::NoPage => f.write_str("it does not begin as a page of counters does"),
            Self::Layout(number) => write!(
                f,
                "it has layout {number}, and this program reads layout {LAYOUT}: \
                 use the program of the provider's version"
            ),
            Self::Damaged(part) => write!(f, "its {part} cannot be right"),
        }
    }
}

impl std::error::Error for BadPage {}

impl Report {
    /// State that is asked for at an instant of the process's monotonic clock.
    pub fn asked(&self, now: Duration) -> Asked {
        self.in_proof.at(now).unwrap_or(self.operator)
    }

    /// Reads the bytes of a page.
    ///
    /// # Errors
    ///
    /// When they are none, or of another layout.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadPage> {
        let page = Bytes::of::<Page>(bytes).ok_or(BadPage::Size(bytes.len()))?;
        if page.u64(offset_of!(Page, magic)) != MAGIC {
            return Err(BadPage::NoPage);
        }
        let layout = page.u32(offset_of!(Page, layout));
        if layout != LAYOUT {
            return Err(BadPage::Layout(layout));
        }
        let operations = page.u32(offset_of!(Page, operations)) as usize;
        if operations > MOST_OPERATIONS {
            return Err(BadPage::Damaged("number of operations"));
        }
        let reasons = page.u32(offset_of!(Page, reasons)) as usize;
        if reasons > MOST_REASONS {
            return Err(BadPage::Damaged("number of reasons"));
        }
        let decisions = page.u32(offset_of!(Page, decisions)) as usize;
        if decisions > MOST_DECISIONS {
            return Err(BadPage::Damaged("number of decisions"));
        }
        let flags = page.u32(offset_of!(Page, flags));
        if flags & !(SUSPENDS | SERVES) != 0 {
            return Err(BadPage::Damaged("set of flags"));
        }
        let fact = |at, length, name| page.text(at, length).ok_or(BadPage::Damaged(name));
        Ok(Self {
            process: page.u32(offset_of!(Page, process)),
            facts: Facts {
                provider: fact(offset_of!(Page, provider), VERSION, "version")?,
                openssl: fact(offset_of!(Page, openssl), OPENSSL, "version of OpenSSL")?,
                backend: fact(offset_of!(Page, backend), BACKEND, "backend")?,
                suspends: flags & SUSPENDS != 0,
                serves: flags & SERVES != 0,
                decisions: (0..decisions)
                    .map(|number| {
                        let row = offset_of!(Page, decision_rows) + number * DECISION;
                        fact(row, DECISION, "list of decisions")
                    })
                    .collect::<Result<_, _>>()?,
            },
            operator: Asked::of_word(page.u64(SWITCH)),
            in_proof: InProof::of_word(page.u64(SWITCH_IN_PROOF)),
            signed: page.u64(offset_of!(Page, handshakes) + offset_of!(Handshakes, signed)),
            agreed: page.u64(offset_of!(Page, handshakes) + offset_of!(Handshakes, agreed)),
            signed_times: page.times(offset_of!(Durations, signed)),
            agreed_times: page.times(offset_of!(Durations, agreed)),
            proved: Proved::of_words(page.words(PROVED)),
            ways: Way::set(page.u64(offset_of!(Page, ways))).ok_or(BadPage::Damaged("set of ways"))?,
            overload: Overload::from_words(page.words(offset_of!(Page, overload))),
            operations: (0..operations)
                .map(|number| page.operation(number))
                .collect::<Option<_>>()
                .ok_or(BadPage::Damaged("list of operations"))?,
            reasons: (0..reasons)
                .map(|number| page.reason(number))
                .collect::<Option<_>>()
                .ok_or(BadPage::Damaged("list of reasons"))?,
            unlisted: page.u64(offset_of!(Page, unlisted)),
        })
    }
}

/// Place of the word in a page by which an operator asks: eight bytes.
pub const SWITCH: usize = offset_of!(Page, switch);

/// Place of the word by which a proof asks.
pub const SWITCH_IN_PROOF: usize = SWITCH + 8;

/// Place of the words of [`Proved`] in a page, eight bytes each.
pub const PROVED: usize = offset_of!(Page, proved);

/// Bytes that are as many as a page has, so that what its fields name is within them.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn of<T>(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() == size_of::<T>()).then_some(Self(bytes))
    }

    fn operation(&self, number: usize) -> Option<Operation> {
        let row = offset_of!(Page, operation_rows) + number * size_of::<OperationRow>();
        let totals = row + offset_of!(OperationRow, totals);
        Some(Operation {
            name: self.text(row + offset_of!(OperationRow, name), OPERATION)?,
            totals: Totals::from_array(self.words::<TOTALS>(totals)),
        })
    }

    fn times(&self, within: usize) -> Times {
        Times::from_buckets(self.words::<BUCKETS>(offset_of!(Page, durations) + within))
    }

    fn reason(&self, number: usize) -> Option<Reason> {
        let row = offset_of!(Page, reason_rows) + number * size_of::<ReasonRow>();
        Some(Reason {
            text: self.text(row + offset_of!(ReasonRow, text), REASON)?,
            count: self.u64(row + offset_of!(ReasonRow, count)),
        })
    }

    /// Text up to the first zero; there is one within its room.
    fn text(&self, at: usize, length: usize) -> Option<String> {
        let room = &self.0[at..at + length];
        let end = room.iter().position(|&byte| byte == 0)?;
        let text = std::str::from_utf8(&room[..end]).ok()?;
        Some(text.to_owned())
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.array(at))
    }

    fn words<const N: usize>(&self, at: usize) -> [u64; N] {
        std::array::from_fn(|i| self.u64(at + i * 8))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.array(at))
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::{bytes, empty};
    use crate::{Found, MOST_OPERATIONS, MOST_REASONS, SIZE};
    use proptest::prelude::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn times(all: &[Duration]) -> Times {
        let mut times = Times::default();
        all.iter().for_each(|took| times.count(*took));
        times
    }

    fn facts() -> Facts {
        Facts {
            provider: "1.2.3".to_owned(),
            openssl: "3.0.2".to_owned(),
            backend: "avx512ifma".to_owned(),
            suspends: true,
            serves: true,
            decisions: vec!["rsa2048-sign: OpenSSL, as configured".to_owned()],
        }
    }

    fn totals(jobs: u64) -> Totals {
        Totals {
            lanes: 8,
            jobs,
            alone: 1,
            at_once: 2,
            passes: 3,
            lanes_filled: 4,
            failed: 5,
            busy_ns: 6,
        }
    }

    fn whole() -> Vec<u8> {
        let page = empty();
        page.begin(7, &facts());
        page.set_operation(0, "rsa2048-sign", &totals(9));
        page.set_operation(1, "x25519", &Totals::default());
        page.count_reason("no lanes for it");
        page.count_reason("other");
        page.count_reason("no lanes for it");
        page.count_signed(MILLISECOND);
        page.count_agreed(MILLISECOND * 2);
        page.count_agreed(MILLISECOND * 4);
        page.overload().begins();
        page.overload().refused();
        page.overload().served(12);
        for way in [Way::Threads, Way::Epoll, Way::Epoll] {
            page.waits(way);
        }
        bytes(&page)
    }

    #[test]
    fn what_was_written_is_read() {
        let report = Report::parse(&whole()).unwrap();
        assert_eq!((report.process, &report.facts), (7, &facts()));
        let [rsa, x25519] = &*report.operations else {
            panic!("{report:?}");
        };
        assert_eq!((&*rsa.name, rsa.totals), ("rsa2048-sign", totals(9)));
        assert_eq!((&*x25519.name, x25519.totals), ("x25519", Totals::default()));
        let reasons: Vec<_> = report
            .reasons
            .iter()
            .map(|reason| (&*reason.text, reason.count))
            .collect();
        assert_eq!(reasons, [("no lanes for it", 2), ("other", 1)]);
        assert_eq!(report.unlisted, 0);
        assert_eq!((report.signed, report.agreed), (1, 2));
        assert_eq!(report.signed_times, times(&[MILLISECOND]));
        let agreed = times(&[MILLISECOND * 2, MILLISECOND * 4]);
        assert_eq!(report.agreed_times, agreed);
        assert_eq!(report.proved, Proved::default());
        assert_eq!(report.ways, [Way::Epoll, Way::Threads]);
        let overload = &report.overload;
        assert_eq!((overload.now, overload.begun), (1, 1));
        assert_eq!((overload.gone, overload.refused), (0, 1));
        assert_eq!(overload.wait(50), Some(16));
    }

    #[test]
    fn handshakes_are_counted_by_their_kind() {
        let page = empty();
        page.begin(7, &facts());
        page.count_handshake(false, MILLISECOND);
        page.count_handshake(true, MILLISECOND * 2);
        page.count_handshake(true, MILLISECOND * 2);
        let report = Report::parse(&bytes(&page)).unwrap();
        assert_eq!((report.signed, report.agreed), (1, 3));
        assert_eq!(report.signed_times, times(&[MILLISECOND]));
        assert_eq!(report.agreed_times, times(&[MILLISECOND * 2; 2]));
    }

    #[test]
    fn what_a_proof_writes_is_read() {
        let proved = Proved {
            ended: Duration::from_secs(3),
            found: Found::Differ,
            with: MILLISECOND,
            without: MILLISECOND * 2,
        };
        let mut bytes = whole();
        for (at, word) in (PROVED..).step_by(8).zip(proved.to_words()) {
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        assert_eq!(Report::parse(&bytes).unwrap().proved, proved);
    }

    #[test]
    fn who_writes_into_the_switch_is_heeded() {
        let now = Duration::from_secs(9);
        let report = |operator: u64, proof: u64| {
            let mut bytes = whole();
            for (at, word) in [(SWITCH, operator), (SWITCH_IN_PROOF, proof)] {
                bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
            }
            Report::parse(&bytes).unwrap()
        };
        let asked = |asked| InProof { asked, until: now * 2 };
        for operator in [Asked::On, Asked::Off] {
            let alone = report(operator.to_word(), 0);
            assert_eq!((alone.operator, alone.asked(now)), (operator, operator));
            assert_eq!(alone.in_proof, InProof::default());
            for in_proof in [Asked::On, Asked::Off].map(asked) {
                let report = report(operator.to_word(), in_proof.to_word());
                assert_eq!((report.operator, report.in_proof), (operator, in_proof));
                assert_eq!(report.asked(now), in_proof.asked);
                assert_eq!(report.asked(now * 2), operator);
            }
        }
        assert_eq!(report(7, 7).asked(now), Asked::On);
    }

    #[test]
    fn a_full_page_keeps_what_it_has_and_counts_the_rest() {
        let page = empty();
        page.begin(7, &facts());
        for number in 0..=MOST_OPERATIONS {
            page.set_operation(number, &format!("operation {number}"), &totals(1));
        }
        for number in 0..MOST_REASONS + 2 {
            page.count_reason(&format!("reason {number} {}", "x".repeat(200)));
        }
        page.count_reason(&format!("reason 0 {}", "x".repeat(200)));
        let report = Report::parse(&bytes(&page)).unwrap();
        assert_eq!(report.operations.len(), MOST_OPERATIONS);
        assert_eq!(report.reasons.len(), MOST_REASONS);
        assert_eq!((report.reasons[0].count, report.unlisted), (2, 2));
        assert_eq!(report.reasons[MOST_REASONS - 1].text.len(), 119);
    }

    /// Variations of a page that is refused find nothing.
    #[test]
    fn the_fuzzer_begins_with_a_page_of_this_layout() {
        let seed = include_bytes!("../../../fuzz/corpus/status_page/page");
        let report = Report::parse(seed).unwrap();
        assert_eq!((report.operations.len(), report.reasons.len()), (2, 2));
        assert_eq!((report.overload.begun, report.overload.wait(99)), (3, Some(32)));
        assert_eq!(report.ways, [Way::Epoll, Way::BlockingSocket]);
    }

    #[test]
    fn later_totals_take_the_place_of_earlier_ones() {
        let page = empty();
        page.begin(7, &Facts::default());
        page.set_operation(0, "x25519", &totals(1));
        page.set_operation(0, "x25519", &totals(2));
        page.set_facts(&facts());
        let report = Report::parse(&bytes(&page)).unwrap();
        assert_eq!(report.operations[0].totals.jobs, 2);
        assert_eq!(report.facts, facts());
    }

    #[test]
    fn damage_is_refused_and_named() {
        let damaged = |at: usize, value: &[u8]| {
            let mut bytes = whole();
            bytes[at..at + value.len()].copy_from_slice(value);
            Report::parse(&bytes).unwrap_err()
        };
        let all = [0xff; 4];
        assert_eq!(Report::parse(&[0; SIZE]), Err(BadPage::NoPage));
        assert_eq!(Report::parse(&whole()[1..]), Err(BadPage::Size(SIZE - 1)));
        assert_eq!(damaged(8, &[1, 0, 0, 0]), BadPage::Layout(1));
        let cases = [
            (offset_of!(Page, operations), "number of operations"),
            (offset_of!(Page, reasons), "number of reasons"),
            (offset_of!(Page, decisions), "number of decisions"),
            (offset_of!(Page, decision_rows), "list of decisions"),
            (offset_of!(Page, flags), "set of flags"),
            (offset_of!(Page, ways) + 4, "set of ways"),
            (offset_of!(Page, backend), "backend"),
            (offset_of!(Page, operation_rows), "list of operations"),
            (offset_of!(Page, reason_rows) + 8, "list of reasons"),
        ];
        for (at, part) in cases {
            assert_eq!(damaged(at, &all), BadPage::Damaged(part));
        }
        // A text without an end.
        let endless = damaged(offset_of!(Page, provider), &[b'1'; VERSION]);
        assert_eq!(endless, BadPage::Damaged("version"));
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_panics(
            changes in prop::collection::vec((0..SIZE, any::<u8>()), 0..40),
            length in 0..SIZE * 2,
        ) {
            let mut bytes = whole();
            for (at, value) in changes {
                bytes[at] = value;
            }
            if let Ok(report) = Report::parse(&bytes) {
                prop_assert!(report.operations.len() <= MOST_OPERATIONS);
                prop_assert!(report.reasons.len() <= MOST_REASONS);
            }
            bytes.resize(length, 1);
            prop_assert!(length == SIZE || Report::parse(&bytes) == Err(BadPage::Size(length)));
        }
    }
}
