//! Loom models: every interleaving of programs that mark and a brake that looks and sleeps.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p widelane-marks --lib --release`

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::slot::{Kind, Quiet, Slot};
use crate::sync::Ordering;

/// A CPU's slot, and what a futex does.
struct Cpu {
    slot: Slot,
    bed: Mutex<()>,
    bell: Condvar,
}

impl Cpu {
    fn new() -> Arc<Self> {
        let slot = Slot::default();
        slot.set_braked(true);
        Arc::new(Self {
            slot,
            bed: Mutex::new(()),
            bell: Condvar::new(),
        })
    }

    fn mark(&self, kind: Kind, now: u64) {
        if self.slot.begin(kind, now, 1) {
            self.slot.woken().fetch_add(1, Ordering::Release);
            let _bed = self.bed.lock().unwrap();
            self.bell.notify_all();
        }
    }

    /// Sleeps unless the word has another value, as `FUTEX_WAIT` does.
    fn sleep(&self, woken: u32) {
        let bed = self.bed.lock().unwrap();
        if self.slot.woken().load(Ordering::Acquire) == woken {
            drop(self.bell.wait(bed).unwrap());
        }
    }
}

/// begin ∥ look and sleep: a brake that sleeps for ever is woken by every mark that must wake it.
#[test]
fn no_mark_is_missed() {
    // A mark reads when each kind was marked last: too many orders to try them all.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let cpu = Cpu::new();
        let brake = {
            let cpu = Arc::clone(&cpu);
            thread::spawn(move || {
                let mut seen = cpu.slot.look();
                while seen.kinds().last() != Some(Kind::Heavy512) {
                    // The brake has granted what it saw, and needs no wake-up for it.
                    let most = seen.kinds().last();
                    let quiet = most.map_or(Quiet::Never, Quiet::Granted);
                    if let Some(woken) = cpu.slot.prepare_sleep(quiet, &seen) {
                        cpu.sleep(woken);
                    }
                    seen = cpu.slot.look();
                }
            })
        };
        cpu.mark(Kind::Light512, 8);
        cpu.mark(Kind::Heavy512, 16);
        brake.join().unwrap();
    });
}

/// end and begin ∥ look and sleep: a brake that has granted what runs hears of the first mark after a
/// long pause, and sees the end before it.
#[test]
fn a_burst_after_a_pause_is_told_from_the_one_before() {
    const LATER: u64 = 8 + Slot::SHORTEST_TAIL;
    loom::model(|| {
        let cpu = Cpu::new();
        let _ = cpu.slot.begin(Kind::Light512, 1, 1);
        let brake = {
            let cpu = Arc::clone(&cpu);
            thread::spawn(move || {
                let mut seen = cpu.slot.look();
                while seen.begun[2] != LATER {
                    let granted = Quiet::Granted(Kind::Light512);
                    if let Some(woken) = cpu.slot.prepare_sleep(granted, &seen) {
                        cpu.sleep(woken);
                    }
                    seen = cpu.slot.look();
                }
                assert_eq!(seen.ended[2], 8);
            })
        };
        cpu.slot.end(Kind::Light512, 8);
        cpu.mark(Kind::Light512, LATER);
        brake.join().unwrap();
    });
}

/// begin and end ∥ begin and end ∥ look: what runs is counted, and in the end nothing runs.
#[test]
fn counts_of_two_threads_come_out() {
    loom::model(|| {
        let cpu = Cpu::new();
        let other = {
            let cpu = Arc::clone(&cpu);
            thread::spawn(move || {
                let _ = cpu.slot.begin(Kind::Heavy512, 8, 2);
                assert!(cpu.slot.look().running[3] > 0);
                cpu.slot.end(Kind::Heavy512, 16);
            })
        };
        let _ = cpu.slot.begin(Kind::Light512, 24, 1);
        assert_eq!(cpu.slot.look().running[2], 1);
        cpu.slot.end(Kind::Light512, 32);
        other.join().unwrap();
        let look = cpu.slot.look();
        assert_eq!((look.running, look.ended), ([0; 4], [0, 0, 32, 16]));
    });
}

/// forget ∥ begin and end: a thread that the brake took for dead takes nothing from the others.
#[test]
fn forgetting_never_counts_below_nothing() {
    loom::model(|| {
        let cpu = Cpu::new();
        let _ = cpu.slot.begin(Kind::Heavy512, 8, 1);
        let brake = {
            let cpu = Arc::clone(&cpu);
            thread::spawn(move || cpu.slot.forget(&cpu.slot.look()))
        };
        let _ = cpu.slot.begin(Kind::Heavy512, 16, 2);
        cpu.slot.end(Kind::Heavy512, 24);
        cpu.slot.end(Kind::Heavy512, 32);
        brake.join().unwrap();
        assert_eq!(cpu.slot.look().running, [0; 4]);
    });
}
