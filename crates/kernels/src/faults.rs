//! Deliberate faults, for tests that show what the checks of a signature catch.
//!
//! Compiled with the feature `fault-injection` only. [`without_claims`] serves tests under valgrind, [`wipes`] those of
//! registers; the rest are faults. [`run`] counts the positions at which a fault
//! can hit a computation on this thread, and damages one array at one of them. A position is an
//! array at one moment: after a kernel has written it, while a kernel reads it, after values were
//! loaded into it, or between two steps of a pass.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt::Debug;

/// Moment at which an array is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// After a kernel has written it. The damage stays in memory.
    Written,
    /// While one call of a kernel reads it. Memory keeps the right value.
    Read,
    /// After the caller has put values into it. The damage stays in memory.
    Loaded,
    /// Between two steps, whatever it holds then. The damage stays in memory.
    Resting,
}

impl Moment {
    /// Every moment.
    pub const ALL: [Self; 4] = [Self::Written, Self::Read, Self::Loaded, Self::Resting];
}

/// Change that a fault makes to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// One bit of one vector flips in one lane.
    Bit,
    /// One lane of the whole array becomes zero.
    Zero,
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Moment of the fault.
    pub moment: Moment,
    /// Index of the position among those of that moment, from zero.
    pub position: usize,
    /// Change that the fault makes.
    pub damage: Damage,
    /// Chooses vector, lane and bit.
    pub seed: u64,
}

/// Positions that [`run`] reached, and the damage it did.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Positions of each moment, in the order of [`Moment::ALL`].
    pub positions: [usize; 4],
    /// Place of the fault, if its position was reached and its array was not empty.
    pub hit: Option<Hit>,
}

/// Place of a fault.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The kernel and the number of its array, or the name that the caller gave.
    pub place: String,
    /// The lane that was damaged.
    pub lane: usize,
}

/// Runs `work` with this fault, or with none to count positions.
pub fn run<R>(fault: Option<Fault>, work: impl FnOnce() -> R) -> (R, Seen) {
    let before = PLAN.replace(Some(Plan {
        fault,
        seen: Seen::default(),
    }));
    assert!(before.is_none(), "fault campaigns cannot be nested");
    // The plan goes away even when `work` panics.
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            PLAN.set(None);
        }
    }
    let reset = Reset;
    let result = work();
    let plan = PLAN.take().expect("only `run` removes the plan");
    drop(reset);
    (result, plan.seen)
}

/// Runs `work`, in which kernels in portable Rust check no claim on this thread. A check is a branch
/// on a lane, and valgrind reports it where the lane is secret.
pub fn without_claims<R>(work: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            CHECKS_CLAIMS.set(self.0);
        }
    }
    let _reset = Reset(CHECKS_CLAIMS.replace(false));
    work()
}

/// Returns whether kernels in portable Rust check their claims: not beside a fault, which breaks them.
pub(crate) fn claims_are_checked() -> bool {
    let fault = PLAN.with_borrow(|plan| plan.as_ref().is_some_and(|plan| plan.fault.is_some()));
    CHECKS_CLAIMS.get() && !fault
}

/// A position: `array` can be damaged here, and the damage stays.
pub fn position<const L: usize>(moment: Moment, place: impl Debug, array: &mut [[u64; L]]) {
    if let Some((fault, [vector, lane, bit])) = due(moment, place, array) {
        match fault.damage {
            Damage::Bit => array[vector][lane] ^= 1 << bit,
            Damage::Zero => array.iter_mut().for_each(|vector| vector[lane] = 0),
        }
    }
}

/// A position: what one call of a kernel reads instead of `array`.
pub(crate) fn operand<'a, const L: usize>(place: impl Debug, array: &'a [[u64; L]]) -> Cow<'a, [[u64; L]]> {
    match due(Moment::Read, place, array) {
        None => Cow::Borrowed(array),
        Some((fault, [vector, lane, bit])) => {
            let mut copy = array.to_vec();
            match fault.damage {
                Damage::Bit => copy[vector][lane] ^= 1 << bit,
                Damage::Zero => copy.iter_mut().for_each(|vector| vector[lane] = 0),
            }
            Cow::Owned(copy)
        }
    }
}

/// Calls of [`wipe_registers`](crate::wipe_registers) on this thread so far.
pub fn wipes() -> usize {
    WIPES.get()
}

pub(crate) fn wiped() {
    WIPES.set(WIPES.get() + 1);
}

struct Plan {
    fault: Option<Fault>,
    seen: Seen,
}

/// Counts the position; the fault with its vector, lane and bit if it happens here.
fn due<const L: usize>(moment: Moment, place: impl Debug, array: &[[u64; L]]) -> Option<(Fault, [usize; 3])> {
    PLAN.with_borrow_mut(|plan| {
        let plan = plan.as_mut()?;
        let count = &mut plan.seen.positions[moment as usize];
        let position = *count;
        *count += 1;
        let fault = plan
            .fault
            .filter(|fault| fault.moment == moment && fault.position == position)?;
        if array.is_empty() {
            return None;
        }
        let mut seed = fault.seed;
        let at = [array.len(), L, 64].map(|bound| (split_mix(&mut seed) % bound as u64) as usize);
        plan.seen.hit = Some(Hit {
            place: format!("{place:?}"),
            lane: at[1],
        });
        Some((fault, at))
    })
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
    static CHECKS_CLAIMS: Cell<bool> = const { Cell::new(true) };
    static WIPES: Cell<usize> = const { Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembled::Callable;
    use crate::machine::Machine;
    use widelane_lanes::Modular;

    /// One call with three arrays read and one written: four positions, and each fault is seen.
    #[test]
    fn a_call_has_a_position_for_each_array() {
        let kernel = Callable::<4>::new(Machine::model(), Modular::Amm(20));
        let one: Vec<[u64; 4]> = (0..20).map(|i| [u64::from(i == 0); 4]).collect();
        let mut n = vec![[1; 4]; 21];
        n[20] = [(1 << 52) - 1; 4];
        let call = || {
            let mut out = vec![[0; 4]; 20];
            kernel.call([&mut out], [&one, &one, &n], &mut []);
            out
        };
        let (right, seen) = run(None, call);
        assert_eq!(seen.positions, [1, 3, 0, 0]);
        assert!(seen.hit.is_none());
        let fault = Fault {
            moment: Moment::Written,
            position: 0,
            damage: Damage::Bit,
            seed: 1,
        };
        let (wrong, seen) = run(Some(fault), call);
        let flipped: u32 = (wrong.iter().flatten().zip(right.iter().flatten()))
            .map(|(wrong, right)| (wrong ^ right).count_ones())
            .sum();
        assert_eq!(flipped, 1);
        let hit = seen.hit.unwrap();
        assert!(hit.place.contains("Amm"), "{hit:?}");
        let read = Fault {
            moment: Moment::Read,
            damage: Damage::Zero,
            ..fault
        };
        let (wrong, seen) = run(Some(read), call);
        let lane = seen.hit.unwrap().lane;
        for (wrong, right) in wrong.iter().zip(&right) {
            for other in (0..4).filter(|&other| other != lane) {
                assert_eq!(wrong[other], right[other]);
            }
        }
        assert_ne!(wrong, right);
        assert_eq!(call(), right);
    }
}
