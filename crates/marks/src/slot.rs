//! One CPU's part of a page: programs write the first half, the brake the second.
//!
//! The brake sleeps while nothing wide runs, and for as long as it can where the same wide code comes
//! again and again. It says in `quiet` what it has granted. A program wakes it that marks more than
//! that, or that marks after a pause in which the grant can have run out. Then the end of the last
//! burst is still on the page, so that the brake knows how long the pause was. Neither may miss the
//! other:
//!
//! | program                         | brake                              |
//! | ---                             | ---                                |
//! | count itself in `running`       | read `woken`                       |
//! | fence                           | write `quiet`                      |
//! | read `quiet`                    | fence                              |
//! | if it must: count up `woken`,   | read `running`: if it has changed, |
//! | wake the brake                  | do not sleep                       |
//! |                                 | sleep unless `woken` has changed   |
//!
//! At least one of the two sees what the other wrote before its fence, and a wake-up between reading
//! `woken` and sleeping changes `woken`. `models.rs` tries every order.

use widelane_cpu::licence::Class;

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Kind of wide code, by what it asks for, the least first: the classes that ask for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// 256-bit registers, light.
    Light256,
    /// 256-bit registers, with dense multiplications.
    Heavy256,
    /// 512-bit registers, light.
    Light512,
    /// 512-bit registers, with dense multiplications.
    Heavy512,
}

impl Kind {
    /// Every kind, the least first.
    pub const ALL: [Self; 4] = [Self::Light256, Self::Heavy256, Self::Light512, Self::Heavy512];

    /// Kind of a class; `None` if the class asks for nothing.
    pub const fn of(class: Class) -> Option<Self> {
        match class {
            Class::Scalar | Class::Vector128 => None,
            Class::Light256 => Some(Self::Light256),
            Class::Heavy256 => Some(Self::Heavy256),
            Class::Light512 => Some(Self::Light512),
            Class::Heavy512 => Some(Self::Heavy512),
        }
    }

    /// The class that asks so.
    pub const fn class(self) -> Class {
        match self {
            Self::Light256 => Class::Light256,
            Self::Heavy256 => Class::Heavy256,
            Self::Light512 => Class::Light512,
            Self::Heavy512 => Class::Heavy512,
        }
    }

    /// One mark of this kind in the count of running code.
    const fn one(self) -> u64 {
        1 << (16 * self as u32)
    }
}

/// Marks that need not wake the brake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// Every mark wakes the brake.
    Never,
    /// Grant of this kind and lesser ones: their marks wake the brake only after a pause of
    /// [`Slot::SHORTEST_TAIL`] or more.
    Granted(Kind),
    /// No mark wakes it: there is no brake any more.
    Always,
}

impl Quiet {
    fn to_word(self) -> u32 {
        match self {
            Self::Never => 0,
            Self::Granted(kind) => kind as u32 + 1,
            Self::Always => u32::MAX,
        }
    }

    /// Returns whether the brake sleeps on when `kind` is marked `pause` ns after the last mark of its kind.
    fn covers(word: u32, kind: Kind, pause: u64) -> bool {
        word == u32::MAX || (word > kind as u32 && pause < Slot::SHORTEST_TAIL)
    }
}

/// State of a CPU as the brake reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Marks that have begun and not ended, by [`Kind`].
    pub running: [u16; 4],
    /// Time of the last begin of each kind; 0 if never.
    pub begun: [u64; 4],
    /// Time of the last end of each kind.
    pub ended: [u64; 4],
}

impl Look {
    /// The kinds that run, the least first.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        let runs = |kind: &Kind| self.running[*kind as usize] > 0;
        Kind::ALL.into_iter().filter(runs)
    }

    /// Time of the last begin or end of any kind.
    pub fn newest(&self) -> u64 {
        let times = self.begun.into_iter().chain(self.ended);
        times.max().unwrap_or(0)
    }
}

/// One CPU's slot. Zeros are an empty one.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Slot {
    /// Number of marks of each kind under way, sixteen bits for each.
    running: AtomicU64,
    /// Times of the last begin and of the last end of each kind.
    begun: [AtomicU64; 4],
    ended: [AtomicU64; 4],
    quiet: AtomicU32,
    woken: AtomicU32,
    /// The thread that began last.
    by: AtomicU32,
    /// Nanoseconds that the brake took, and the part of them for throttling and halts.
    taken: AtomicU64,
    stalls: AtomicU64,
    /// Not zero while the brake is at work.
    braked: AtomicU32,
}

impl Slot {
    /// Shortest time in ns that a grant outlives the code that asked for it, on every known processor.
    pub const SHORTEST_TAIL: u64 = 600_000;

    /// Wide code begins on this CPU, at `now` and on thread `by`. Whether the brake must be woken.
    #[must_use]
    pub fn begin(&self, kind: Kind, now: u64, by: u32) -> bool {
        let pause = now.saturating_sub(self.last(kind));
        self.by.store(by, Relaxed);
        self.begun[kind as usize].store(now, Release);
        self.running.fetch_add(kind.one(), AcqRel);
        fence(SeqCst);
        !Quiet::covers(self.quiet.load(Relaxed), kind, pause)
    }

    /// Time of the last mark of this kind or more.
    fn last(&self, kind: Kind) -> u64 {
        let times = (kind as usize..Kind::ALL.len()).map(|kind| {
            let (begun, ended) = (&self.begun[kind], &self.ended[kind]);
            begun.load(Relaxed).max(ended.load(Relaxed))
        });
        times.max().unwrap_or(0)
    }

    /// Wide code that began here ends.
    pub fn end(&self, kind: Kind, now: u64) {
        self.ended[kind as usize].store(now, Release);
        // The brake may have forgotten it, if it took its thread for dead.
        let less = |running: u64| {
            let counted = (running / kind.one()) & 0xffff;
            (counted > 0).then(|| running - kind.one())
        };
        let _ = self.running.fetch_update(AcqRel, Acquire, less);
    }

    /// Reads the state of the CPU for the brake.
    pub fn look(&self) -> Look {
        let running = self.running.load(Acquire);
        Look {
            running: Kind::ALL.map(|kind| (running / kind.one()) as u16),
            begun: std::array::from_fn(|kind| self.begun[kind].load(Acquire)),
            ended: std::array::from_fn(|kind| self.ended[kind].load(Acquire)),
        }
    }

    /// The thread that began last.
    pub fn by(&self) -> u32 {
        self.by.load(Relaxed)
    }

    /// Forgets marks of a thread that has ended within them, if nothing has happened since `look`.
    pub fn forget(&self, look: &Look) {
        let running = Kind::ALL.map(|kind| u64::from(look.running[kind as usize]) * kind.one());
        let running = running.iter().sum();
        let _ = self.running.compare_exchange(running, 0, AcqRel, Relaxed);
    }

    /// Before the brake sleeps: says which marks need not wake it. If what runs is still what it has
    /// seen, the value of [`Slot::woken`] with which it may sleep.
    pub fn prepare_sleep(&self, quiet: Quiet, seen: &Look) -> Option<u32> {
        let woken = self.woken.load(Acquire);
        self.quiet.store(quiet.to_word(), Relaxed);
        fence(SeqCst);
        (self.look() == *seen).then_some(woken)
    }

    /// The word on which the brake sleeps.
    #[cfg(not(loom))]
    pub fn woken(&self) -> &AtomicU32 {
        &self.woken
    }

    /// The word on which the brake sleeps, for models.
    #[cfg(all(loom, test))]
    pub(crate) fn woken(&self) -> &AtomicU32 {
        &self.woken
    }

    /// A brake is at work on this CPU, or not any more.
    pub fn set_braked(&self, braked: bool) {
        let quiet = if braked { Quiet::Never } else { Quiet::Always };
        self.quiet.store(quiet.to_word(), Relaxed);
        self.braked.store(u32::from(braked), Release);
    }

    /// Returns whether a brake is at work on this CPU.
    pub fn is_braked(&self) -> bool {
        self.braked.load(Acquire) != 0
    }

    /// The brake took `ns` nanoseconds, for the lower clock or for a stall.
    pub fn add_taken(&self, ns: u64, stall: bool) {
        if stall {
            self.stalls.fetch_add(ns, Relaxed);
        }
        self.taken.fetch_add(ns, Release);
    }

    /// Nanoseconds that the brake took from this CPU.
    pub fn taken(&self) -> u64 {
        self.taken.load(Acquire)
    }

    /// The part of [`Slot::taken`] for throttling and halts, not for the lower clock.
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Relaxed)
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == crate::header::SLOT);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted_by_kind() {
        let slot = Slot::default();
        slot.set_braked(true);
        assert!(slot.begin(Kind::Heavy512, 100, 7));
        assert!(slot.begin(Kind::Light256, 200, 8));
        let look = slot.look();
        assert_eq!(look.running, [1, 0, 0, 1]);
        assert_eq!(look.begun, [200, 0, 0, 100]);
        assert!(look.kinds().eq([Kind::Light256, Kind::Heavy512]));
        slot.end(Kind::Heavy512, 300);
        let look = slot.look();
        assert_eq!((look.running, look.ended), ([1, 0, 0, 0], [0, 0, 0, 300]));
        assert_eq!((look.begun[3], look.newest()), (100, 300));
        assert_eq!(slot.by(), 8);
        slot.forget(&look);
        assert_eq!(slot.look().running, [0; 4]);
        // The thread was not dead after all.
        slot.end(Kind::Light256, 400);
        assert_eq!(slot.look().running, [0; 4]);
    }

    #[test]
    fn what_is_granted_wakes_no_brake_until_it_can_have_run_out() {
        const TAIL: u64 = Slot::SHORTEST_TAIL;
        let slot = Slot::default();
        assert!(slot.begin(Kind::Light512, 1_000, 1));
        let look = slot.look();
        let quiet = Quiet::Granted(Kind::Light512);
        assert_eq!(slot.prepare_sleep(quiet, &look), Some(0));
        assert!(!slot.begin(Kind::Light512, 1_500, 1));
        assert!(!slot.begin(Kind::Light256, 1_500, 1));
        assert!(slot.begin(Kind::Heavy512, 1_500, 1), "it is more");
        slot.end(Kind::Light512, 3_000);
        assert!(!slot.begin(Kind::Light512, 3_000 + TAIL - 1, 1));
        slot.end(Kind::Light512, 900_000);
        assert!(slot.begin(Kind::Light512, 900_000 + TAIL, 1), "after a pause");
        let look = slot.look();
        assert_eq!((look.ended[2], look.begun[2]), (900_000, 900_000 + TAIL));
        // A greater kind holds the grant of a lesser one, and not the other way round.
        slot.end(Kind::Heavy512, 5_000_000);
        assert!(!slot.begin(Kind::Light512, 5_000_000 + TAIL - 1, 1));
        slot.end(Kind::Light512, 9_000_000);
        assert_eq!(
            slot.prepare_sleep(Quiet::Granted(Kind::Heavy512), &look),
            None,
            "it has changed"
        );
        assert!(slot.begin(Kind::Heavy512, 9_000_001, 1));
        slot.set_braked(false);
        assert!(!slot.begin(Kind::Heavy512, 1 << 60, 1));
    }

    #[test]
    fn more_has_begun_since_the_look_and_nothing_is_forgotten() {
        let slot = Slot::default();
        let _ = slot.begin(Kind::Heavy512, 1, 7);
        let look = slot.look();
        let _ = slot.begin(Kind::Heavy512, 2, 8);
        slot.forget(&look);
        assert_eq!(slot.look().running, [0, 0, 0, 2]);
    }

    #[test]
    fn stalls_are_a_part_of_what_was_taken() {
        let slot = Slot::default();
        slot.add_taken(5, false);
        slot.add_taken(3, true);
        assert_eq!((slot.taken(), slot.stalls()), (8, 3));
    }
}
