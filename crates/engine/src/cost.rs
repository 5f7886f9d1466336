//! The cost model of one operation: how many jobs are worth a pass.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use widelane_batching::{Costs, Methods, Split};

/// Costs of one operation's answers on one backend, as far as they are known.
///
/// It may learn its costs while an engine runs.
#[derive(Debug, Default)]
pub struct CostModel {
    /// The fewest jobs that are worth a pass, or [`UNKNOWN`].
    worth: AtomicUsize,
    /// Cost of a pass with one job; 0 while that is not known.
    first: AtomicU64,
    costs: Mutex<Option<Costs>>,
    /// The ways to run passes; `None`: there is one.
    methods: Mutex<Option<Methods>>,
}

impl CostModel {
    /// `worth` jobs are worth a pass, whatever they cost.
    pub(crate) fn fixed(worth: usize) -> Self {
        Self {
            worth: AtomicUsize::new(worth),
            ..Self::default()
        }
    }

    /// The fewest jobs that are worth a pass; a guess while the costs are not known.
    pub fn worth(&self) -> usize {
        match self.worth.load(Relaxed) {
            UNKNOWN => GUESS,
            worth => worth,
        }
    }

    /// Nanoseconds of a pass with one job; 0 while that is not known.
    pub(crate) fn first(&self) -> u64 {
        self.first.load(Relaxed)
    }

    /// Decides by `costs` from now on.
    pub fn learn(&self, costs: Costs) {
        let clearly_less = costs.alone - costs.alone / CLEAR;
        let worth = match costs.worth() {
            1 if costs.lanes > 1 && costs.first > clearly_less => 2,
            worth => worth,
        };
        self.worth.store(worth, Relaxed);
        self.first.store(costs.first, Relaxed);
        *lock(&self.costs) = Some(costs);
    }

    /// Lets passes run by any of `methods`, of which the one in use is the fastest as measured.
    pub(crate) fn choose_among(&self, methods: Methods) {
        *lock(&self.methods) = methods.is_choice().then_some(methods);
    }

    /// The method of a pass that starts now.
    pub(crate) fn next_method(&self) -> usize {
        lock(&self.methods).as_mut().map_or(0, Methods::next_pass)
    }

    /// A pass of `jobs` jobs by this method took so many nanoseconds. Returns the method in use
    /// from now on, if that is another one.
    pub(crate) fn ran(&self, method: usize, jobs: usize, nanoseconds: u64) -> Option<usize> {
        let expected = self.busy(jobs).filter(|&expected| expected > 0)?;
        let cost = u128::from(nanoseconds) * 1000 / u128::from(expected);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        lock(&self.methods).as_mut()?.ran(method, cost)
    }

    /// Costs of passes and single jobs; `None` while they are not known.
    pub(crate) fn costs(&self) -> Option<Costs> {
        *lock(&self.costs)
    }

    pub(crate) fn is_known(&self) -> bool {
        self.worth.load(Relaxed) != UNKNOWN
    }

    /// Cost of a pass with `jobs` jobs; `None` while that is not known.
    pub(crate) fn busy(&self, jobs: usize) -> Option<u64> {
        let split = Split {
            in_lanes: jobs,
            alone: 0,
        };
        self.costs().map(|costs| costs.total(split))
    }
}

/// Locks a mutex even if a holder panicked: each holder leaves the data whole at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`Costs::worth`] never returns this.
const UNKNOWN: usize = 0;

/// In all measurements two jobs were worth a pass; a single one is never much slower alone.
const GUESS: usize = 2;

/// A single job goes into a pass only if that saves more than one part in `CLEAR`: on a busy
/// machine the two measurements differ by some percent from what the jobs cost later.
pub(crate) const CLEAR: u64 = 8;

#[cfg(all(test, not(loom)))]
mod tests {
    use widelane_batching::NEVER;

    use super::*;

    fn costs(first: u64, alone: u64) -> Costs {
        Costs {
            lanes: 8,
            first,
            further: 0,
            alone,
        }
    }

    #[test]
    fn costs_decide() {
        let model = CostModel::default();
        assert_eq!((model.is_known(), model.worth()), (false, GUESS));
        assert_eq!(model.first(), 0);
        assert_eq!(model.busy(1), None);
        for (costs, worth) in [
            (costs(10, 20), 1),
            (costs(17, 20), 1),
            (costs(19, 20), 2),
            (costs(20, 10), 3),
            (costs(90, 10), NEVER),
        ] {
            model.learn(costs);
            assert_eq!((model.is_known(), model.worth()), (true, worth));
            assert_eq!(model.first(), costs.first);
            assert_eq!(model.busy(9), Some(2 * costs.first));
        }
    }

    #[test]
    fn full_and_partial_passes_are_compared_with_what_they_should_take() {
        let model = CostModel::default();
        model.learn(Costs {
            further: 100,
            ..costs(1000, 2000)
        });
        assert_eq!(model.next_method(), 0);
        assert_eq!(model.ran(0, 1, 1000), None, "there is no choice");
        model.choose_among(Methods::new(2, 1));
        let mut changes = Vec::new();
        for pass in 0..30 * widelane_batching::TRIAL_EVERY {
            let (method, jobs) = (model.next_method(), 1 + pass as usize % 8);
            // The method in use takes twice as long as it should.
            let nanoseconds = (900 + 100 * jobs as u64) * [1, 2][method];
            changes.extend(model.ran(method, jobs, nanoseconds));
        }
        assert_eq!(changes, [0]);
    }

    #[test]
    fn a_fixed_number_is_known() {
        for worth in [1, NEVER] {
            let model = CostModel::fixed(worth);
            assert_eq!((model.is_known(), model.worth()), (true, worth));
        }
    }
}
