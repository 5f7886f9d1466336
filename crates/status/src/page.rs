//! The layout, and writing.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

use crate::overload::OverloadCounters;
use crate::proved::Words;
use crate::switch::Switch;
use crate::times::Histogram;
use crate::way::Way;

/// The memory. Zeros are an empty page, which no reader takes for a whole one.
///
/// Whatever changes here changes the number of the layout.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Page {
    pub(crate) magic: AtomicU64,
    pub(crate) layout: AtomicU32,
    pub(crate) process: AtomicU32,
    pub(crate) flags: AtomicU32,
    pub(crate) operations: AtomicU32,
    pub(crate) reasons: AtomicU32,
    pub(crate) decisions: AtomicU32,
    /// A bit for each [`Way`] that was seen.
    pub(crate) ways: AtomicU64,
    pub(crate) unlisted: AtomicU64,
    pub(crate) provider: Text<VERSION>,
    pub(crate) openssl: Text<OPENSSL>,
    pub(crate) backend: Text<BACKEND>,
    pub(crate) switch: OwnLine<Switch>,
    pub(crate) handshakes: OwnLine<Handshakes>,
    pub(crate) overload: OwnLine<OverloadCounters>,
    pub(crate) operation_rows: [OperationRow; MOST_OPERATIONS],
    pub(crate) reason_rows: [ReasonRow; MOST_REASONS],
    pub(crate) decision_rows: [Text<DECISION>; MOST_DECISIONS],
    pub(crate) proved: OwnLine<Words>,
    pub(crate) durations: OwnLine<Durations>,
}

/// Part of the page with cache lines of its own: threads read the switch often, and write the
/// counts of handshakes and of overload often.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct OwnLine<T>(pub(crate) T);

/// Handshakes, as far as the process sees them.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Handshakes {
    pub(crate) signed: AtomicU64,
    pub(crate) agreed: AtomicU64,
}

/// Durations of what [`Handshakes`] counts.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Durations {
    pub(crate) signed: Histogram,
    pub(crate) agreed: Histogram,
}

/// One operation.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct OperationRow {
    pub(crate) name: Text<OPERATION>,
    /// In the order of the fields of [`Totals`].
    pub(crate) totals: [AtomicU64; TOTALS],
}

/// One reason for which OpenSSL did something by itself.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ReasonRow {
    pub(crate) count: AtomicU64,
    pub(crate) text: Text<REASON>,
}

/// A text, with zeros behind it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Text<const N: usize>([AtomicU8; N]);

/// Facts that do not change while a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The version of the provider, or of the terminator.
    pub provider: String,
    /// Version of OpenSSL; empty if it is not known.
    pub openssl: String,
    /// The code that does the arithmetic; empty if none was chosen.
    pub backend: String,
    /// True if handshakes are suspended while they wait for a pass.
    pub suspends: bool,
    /// True if it is the terminator, not OpenSSL with the provider: then `openssl` and `decisions` are empty.
    pub serves: bool,
    /// Decisions: who computes an operation, and why; a line for each. There is room for [`MOST_DECISIONS`].
    pub decisions: Vec<String>,
}

macro_rules! totals {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $total:ident,)+ }) => {
        $(#[$outer])*
        pub struct $name {
            $($(#[$inner])* pub $total: u64,)+
        }

        impl $name {
            pub(crate) fn to_array(self) -> [u64; TOTALS] {
                [$(self.$total),+]
            }

            pub(crate) fn from_array([$($total),+]: [u64; TOTALS]) -> Self {
                Self { $($total),+ }
            }
        }
    };
}

totals! {
    /// Counters of one operation since the process began to count.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    Totals {
        /// Jobs that one pass takes.
        lanes,
        /// Jobs answered.
        jobs,
        /// Jobs that ran one by one, because that was cheaper than a pass.
        alone,
        /// Jobs run at once, because no other job could share a pass with them.
        at_once,
        /// Passes.
        passes,
        /// Jobs in passes.
        lanes_filled,
        /// Jobs without an answer: refused, or ended by a panic or by the end of the process.
        failed,
        /// Nanoseconds in jobs, in passes and one by one.
        busy_ns,
    }
}

impl Page {
    /// Begins to count: writes the facts and makes the page whole. The page has only zeros before.
    pub fn begin(&self, process: u32, facts: &Facts) {
        self.layout.store(LAYOUT, Relaxed);
        self.process.store(process, Relaxed);
        self.set_facts(facts);
        self.magic.store(MAGIC, Release);
    }

    /// Writes the facts anew.
    pub fn set_facts(&self, facts: &Facts) {
        self.provider.set(&facts.provider);
        self.openssl.set(&facts.openssl);
        self.backend.set(&facts.backend);
        for (row, text) in self.decision_rows.iter().zip(&facts.decisions) {
            row.set(text);
        }
        let decisions = facts.decisions.len().min(MOST_DECISIONS) as u32;
        self.decisions.store(decisions, Release);
        let flag = |is, flag| if is { flag } else { 0 };
        let flags = flag(facts.suspends, SUSPENDS) | flag(facts.serves, SERVES);
        self.flags.store(flags, Release);
    }

    /// Writes the totals of the operation with this number, whose name stays the same. Numbers
    /// begin at 0 without gaps. Those from [`MOST_OPERATIONS`] on are not counted. One thread
    /// writes at a time.
    pub fn set_operation(&self, number: usize, name: &str, totals: &Totals) {
        let Some(row) = self.operation_rows.get(number) else {
            return;
        };
        let rows = self.operations.load(Relaxed);
        // Most operations of most processes do nothing.
        if row.totals[JOBS].load(Relaxed) == totals.jobs
            && row.totals[FAILED].load(Relaxed) == totals.failed
            && number < rows as usize
        {
            return;
        }
        for (to, value) in row.totals.iter().zip(totals.to_array()) {
            to.store(value, Relaxed);
        }
        if number >= rows as usize {
            row.name.set(name);
            self.operations.store(number as u32 + 1, Release);
        }
    }

    /// Switch by which an operator or a proof turns lanes off.
    pub fn switch(&self) -> &Switch {
        &self.switch.0
    }

    /// Counts a signature of a handshake, for which the handshake waited so long: a server makes one in each full
    /// handshake, and none in a resumed one.
    pub fn count_signed(&self, took: Duration) {
        self.handshakes.0.signed.fetch_add(1, Relaxed);
        self.durations.0.signed.count(took);
    }

    /// Counts a key exchange: full handshakes have one, and so do most resumed ones.
    pub fn count_agreed(&self, took: Duration) {
        self.handshakes.0.agreed.fetch_add(1, Relaxed);
        self.durations.0.agreed.count(took);
    }

    /// Counts a whole handshake, where the process sees of which kind it is, and how much of the server's time it took.
    pub fn count_handshake(&self, is_resumed: bool, took: Duration) {
        let Durations { signed, agreed } = &self.durations.0;
        self.handshakes.0.agreed.fetch_add(1, Relaxed);
        if is_resumed {
            agreed.count(took);
        } else {
            self.handshakes.0.signed.fetch_add(1, Relaxed);
            signed.count(took);
        }
    }

    /// Notes a way in which handshakes wait.
    pub fn waits(&self, way: Way) {
        // Mostly it is known, and the line stays with all who read it.
        if self.ways.load(Relaxed) & way.bit() == 0 {
            self.ways.fetch_or(way.bit(), Relaxed);
        }
    }

    /// Counters of overload.
    pub fn overload(&self) -> &OverloadCounters {
        &self.overload.0
    }

    /// Counts a reason for which OpenSSL did something by itself. One thread writes at a time.
    pub fn count_reason(&self, text: &str) {
        let rows = self.reasons.load(Acquire) as usize;
        let known = self.reason_rows.iter().take(rows);
        if let Some(row) = known.into_iter().find(|row| row.text.is(text)) {
            row.count.fetch_add(1, Relaxed);
        } else if let Some(row) = self.reason_rows.get(rows) {
            row.text.set(text);
            row.count.store(1, Relaxed);
            self.reasons.store(rows as u32 + 1, Release);
        } else {
            self.unlisted.fetch_add(1, Relaxed);
        }
    }
}

impl<const N: usize> Text<N> {
    /// As much of a text as there is room for, up to a whole letter. The last byte stays zero.
    fn fitting(text: &str) -> &str {
        &text[..text.floor_char_boundary(N - 1)]
    }

    fn set(&self, text: &str) {
        let bytes = Self::fitting(text).bytes().chain(std::iter::repeat(0));
        for (to, byte) in self.0.iter().zip(bytes) {
            to.store(byte, Relaxed);
        }
    }

    fn is(&self, text: &str) -> bool {
        let bytes = Self::fitting(text).bytes().chain(std::iter::repeat(0));
        self.0.iter().zip(bytes).all(|(own, byte)| own.load(Relaxed) == byte)
    }
}

/// Operations that a page has room for.
pub const MOST_OPERATIONS: usize = 32;
/// Reasons that a page has room for; others are only counted.
pub const MOST_REASONS: usize = 37;

/// Decisions that a page has room for.
pub const MOST_DECISIONS: usize = 32;

/// `WIDELANE`, as bytes in memory.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"WIDELANE");
/// The number of this layout.
pub(crate) const LAYOUT: u32 = 7;
/// In `flags`: handshakes are suspended.
pub(crate) const SUSPENDS: u32 = 1;
/// In `flags`: the process is the terminator.
pub(crate) const SERVES: u32 = 2;
pub(crate) const TOTALS: usize = 8;
/// Bytes of texts, each with a zero at its end.
pub(crate) const VERSION: usize = 24;
pub(crate) const OPENSSL: usize = 32;
pub(crate) const BACKEND: usize = 24;
pub(crate) const OPERATION: usize = 32;
pub(crate) const REASON: usize = 120;
pub(crate) const DECISION: usize = 128;
const JOBS: usize = 1;
const FAILED: usize = 6;

const _: () = assert!(size_of::<Page>() == 16384, "four pages of memory");

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An empty page: what a process maps.
    pub(crate) fn empty() -> Box<Page> {
        Box::new(Page {
            magic: AtomicU64::new(0),
            layout: AtomicU32::new(0),
            process: AtomicU32::new(0),
            flags: AtomicU32::new(0),
            operations: AtomicU32::new(0),
            reasons: AtomicU32::new(0),
            decisions: AtomicU32::new(0),
            ways: AtomicU64::new(0),
            unlisted: AtomicU64::new(0),
            provider: no_text(),
            openssl: no_text(),
            backend: no_text(),
            switch: OwnLine::default(),
            handshakes: OwnLine::default(),
            overload: OwnLine::default(),
            operation_rows: std::array::from_fn(|_| OperationRow {
                name: no_text(),
                totals: Default::default(),
            }),
            reason_rows: std::array::from_fn(|_| ReasonRow {
                count: AtomicU64::new(0),
                text: no_text(),
            }),
            decision_rows: std::array::from_fn(|_| no_text()),
            proved: OwnLine::default(),
            durations: OwnLine(Durations {
                signed: no_times(),
                agreed: no_times(),
            }),
        })
    }

    /// The bytes of a page, in the order of its fields.
    pub(crate) fn bytes(page: &Page) -> Vec<u8> {
        let mut bytes = page.magic.load(Relaxed).to_ne_bytes().to_vec();
        for word in [
            &page.layout,
            &page.process,
            &page.flags,
            &page.operations,
            &page.reasons,
            &page.decisions,
        ] {
            bytes.extend(word.load(Relaxed).to_ne_bytes());
        }
        bytes.extend(page.ways.load(Relaxed).to_ne_bytes());
        bytes.extend(page.unlisted.load(Relaxed).to_ne_bytes());
        page.provider.add_to(&mut bytes);
        page.openssl.add_to(&mut bytes);
        page.backend.add_to(&mut bytes);
        let handshakes = &page.handshakes.0;
        for line in [
            page.switch.0.words().to_vec(),
            [&handshakes.signed, &handshakes.agreed]
                .map(|word| word.load(Relaxed))
                .to_vec(),
            page.overload.0.words().iter().map(|word| word.load(Relaxed)).collect(),
        ] {
            for word in line {
                bytes.extend(word.to_ne_bytes());
            }
            bytes.resize(bytes.len().next_multiple_of(64), 0);
        }
        for row in &page.operation_rows {
            row.name.add_to(&mut bytes);
            for total in &row.totals {
                bytes.extend(total.load(Relaxed).to_ne_bytes());
            }
        }
        for row in &page.reason_rows {
            bytes.extend(row.count.load(Relaxed).to_ne_bytes());
            row.text.add_to(&mut bytes);
        }
        for text in &page.decision_rows {
            text.add_to(&mut bytes);
        }
        let Durations { signed, agreed } = &page.durations.0;
        for word in &page.proved.0.0 {
            bytes.extend(word.load(Relaxed).to_ne_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        for count in signed.0.iter().chain(&agreed.0) {
            bytes.extend(count.load(Relaxed).to_ne_bytes());
        }
        bytes.resize(size_of::<Page>(), 0);
        bytes
    }

    impl<const N: usize> Text<N> {
        fn add_to(&self, bytes: &mut Vec<u8>) {
            bytes.extend(self.0.iter().map(|byte| byte.load(Relaxed)));
        }
    }

    fn no_times() -> Histogram {
        Histogram(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn no_text<const N: usize>() -> Text<N> {
        Text(std::array::from_fn(|_| AtomicU8::new(0)))
    }

    #[test]
    fn a_text_that_is_too_long_ends_with_a_whole_letter() {
        let text: Text<6> = no_text();
        text.set("abcdé");
        assert!(text.is("abcd") && text.is("abcdé") && !text.is("abc"));
        assert_eq!(text.0[4].load(Relaxed), 0);
        text.set("x");
        assert!(text.is("x"), "nothing of the longer text stays");
    }
}
