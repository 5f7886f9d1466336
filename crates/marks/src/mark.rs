//! Marking, from inside of any program.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::thread::{gettid, sched_getcpu};
use widelane_cpu::licence::Class;
use widelane_cpu::variable;

use crate::page::{Page, nanoseconds};
use crate::slot::{Kind, Slot};

/// Names the page of the brake: a path. It is inherited by all that a braked program starts.
pub const VARIABLE: &str = "WIDELANE_BRAKE";

/// Wide code of `class` runs on the calling thread until the returned value is dropped.
///
/// Without a brake this is one relaxed load. With one it takes about a tenth of a microsecond, and
/// where the code asks for more than the brake has granted, the brake runs before this returns.
#[inline]
pub fn wide(class: Class) -> Marked {
    if ABSENT.load(Relaxed) {
        return Marked { _begun: None };
    }
    Marked {
        _begun: Begun::new(class),
    }
}

/// Wide code that has begun.
#[derive(Debug)]
#[must_use = "the mark ends when this is dropped"]
pub struct Marked {
    _begun: Option<Begun>,
}

/// Counters of the time that the brake took from one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Spot(&'static Slot);

impl Spot {
    /// Time that the brake took, in nanoseconds.
    pub fn taken(self) -> u64 {
        self.0.taken()
    }

    /// For the lower clock alone, without what was taken for throttling and halts.
    pub fn taken_as_clock(self) -> u64 {
        // The brake writes the part first.
        let stalls = self.0.stalls();
        self.0.taken().saturating_sub(stalls)
    }
}

/// Counters of the calling thread's CPU; `None` if no brake is at work there.
pub fn here() -> Option<Spot> {
    if ABSENT.load(Relaxed) {
        return None;
    }
    let slot = page()?.slot(sched_getcpu())?;
    slot.is_braked().then_some(Spot(slot))
}

/// The model whose behaviour a brake lends to this process.
pub fn emulated_model() -> Option<&'static str> {
    if ABSENT.load(Relaxed) {
        return None;
    }
    Some(&page()?.header().model)
}

/// A mark on one CPU's slot, on which it also ends.
#[derive(Debug)]
struct Begun {
    slot: &'static Slot,
    kind: Kind,
}

impl Begun {
    #[cold]
    fn new(class: Class) -> Option<Self> {
        let kind = Kind::of(class)?;
        let slot = page()?.slot(sched_getcpu())?;
        if !slot.is_braked() {
            return None;
        }
        let thread = gettid().as_raw_nonzero().get() as u32;
        if slot.begin(kind, nanoseconds(), thread) {
            slot.wake();
        }
        Some(Self { slot, kind })
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.slot.end(self.kind, nanoseconds());
    }
}

/// The page that the environment names.
fn page() -> Option<&'static Page> {
    static PAGE: OnceLock<Option<Page>> = OnceLock::new();
    let found = PAGE.get_or_init(|| {
        let path = variable(VARIABLE).filter(|path| !path.is_empty())?;
        match Page::open(Path::new(&path)) {
            Ok(page) => Some(page),
            Err(error) => {
                eprintln!(
                    "widelane: {VARIABLE}={} {error}; this program runs without a brake",
                    path.display()
                );
                None
            }
        }
    });
    if found.is_none() {
        ABSENT.store(true, Relaxed);
    }
    found.as_ref()
}

/// Set once it is known that there is no brake.
static ABSENT: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_brake_nothing_is_marked() {
        assert!(std::env::var_os(VARIABLE).is_none(), "the tests run without one");
        drop(wide(Class::Heavy512));
        assert!(ABSENT.load(Relaxed));
        assert!(here().is_none() && emulated_model().is_none());
    }
}
