//! Choice between several ways to run passes: the fastest at the moment.

/// The methods of one operation on one backend: all give the same answers, and one of them is in
/// use.
///
/// Which is the fastest may change while a server runs: code that fits the instruction cache alone
/// may not fit beside a neighbour's. So one pass in [`TRIAL_EVERY`] runs by another method. Each
/// trial is compared with the pass after it, which ran under the same conditions. A trial costs
/// what the other method is slower by, once in so many passes, and answers its requests like every
/// other pass.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Methods {
    used: usize,
    passes: u64,
    count: usize,
    /// The last costs of each method, those of trials and of the passes after them. The first `count` are in use.
    seen: [Window; MOST],
}

/// The last costs of a method.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Window {
    costs: [u64; WINDOW],
    count: usize,
}

impl Methods {
    /// `count` methods, of which the one in place `used` is in use.
    ///
    /// # Panics
    ///
    /// If there is no such place, or if there are more than eight methods.
    pub fn new(count: usize, used: usize) -> Self {
        assert!(used < count && count <= MOST, "method {used} of {count}");
        Self {
            used,
            passes: 0,
            count,
            seen: [Window::default(); MOST],
        }
    }

    /// The method in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns whether there is a choice.
    pub fn is_choice(&self) -> bool {
        self.count > 1
    }

    /// The method of the next pass: the one in use or, now and then, the next of the others.
    pub fn next_pass(&mut self) -> usize {
        self.passes += 1;
        let (trials, count) = (self.passes / TRIAL_EVERY, self.count);
        if count > 1 && self.passes.is_multiple_of(TRIAL_EVERY) {
            let others = count as u64 - 1;
            (self.used + 1 + (trials % others) as usize) % count
        } else {
            self.used
        }
    }

    /// A pass by this method took `cost`: in any unit in which full and partial passes are alike,
    /// such as a share of what is expected of it. Returns the method that is in use from now on, if
    /// that is another one.
    pub fn ran(&mut self, method: usize, cost: u64) -> Option<usize> {
        let counts = method != self.used || self.passes % TRIAL_EVERY == 1;
        if !counts || !self.is_choice() || method >= self.count {
            return None;
        }
        self.seen[method].push(cost);
        let used = self.seen[self.used].median()?;
        let others = self.seen.iter().take(self.count).enumerate();
        let medians = others.filter_map(|(other, window)| Some((window.median()?, other)));
        let (best, other) = medians.min()?;
        if u128::from(best) * 100 >= u128::from(used) * u128::from(100 - CLEAR) {
            return None;
        }
        self.used = other;
        self.seen.fill(Window::default());
        Some(other)
    }
}

impl Window {
    fn push(&mut self, cost: u64) {
        self.costs[self.count % WINDOW] = cost;
        self.count += 1;
    }

    /// `None` before there are enough.
    fn median(&self) -> Option<u64> {
        let mut costs = self.costs;
        costs.sort_unstable();
        (self.count >= WINDOW).then_some(costs[WINDOW / 2])
    }
}

/// One pass in so many is a trial. If the others take a third longer, all passes take 0.13 % longer
/// for it.
pub const TRIAL_EVERY: u64 = 256;
/// Most methods of one operation; RSA signatures have three.
const MOST: usize = 8;
/// Costs that a median is taken of: a few that an interrupt made longer do not show.
const WINDOW: usize = 9;
/// Another method comes into use if it takes so many percent less.
const CLEAR: u64 = 5;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Passes until a window of each of two other methods is full, and a few more.
    const SOON: u64 = TRIAL_EVERY * 2 * (WINDOW as u64 + 2);

    fn run(methods: &mut Methods, passes: u64, mut cost: impl FnMut(usize) -> u64) {
        for _ in 0..passes {
            let method = methods.next_pass();
            methods.ran(method, cost(method));
        }
    }

    #[test]
    fn one_method_is_never_tried_against_itself() {
        let mut methods = Methods::new(1, 0);
        run(&mut methods, SOON, |method| {
            assert_eq!(method, 0);
            100
        });
        assert!(!methods.is_choice());
    }

    #[test]
    fn a_crowded_cache_changes_the_method_and_a_quiet_one_changes_it_back() {
        let mut methods = Methods::new(3, 1);
        let quiet = [110, 100, 130];
        let crowded = [200, 190, 140];
        run(&mut methods, SOON, |method| quiet[method]);
        assert_eq!(methods.used(), 1);
        run(&mut methods, 2 * SOON, |method| crowded[method]);
        assert_eq!(methods.used(), 2);
        run(&mut methods, 2 * SOON, |method| quiet[method]);
        assert_eq!(methods.used(), 1);
    }

    proptest! {
        #[test]
        fn trials_are_rare_and_fair(count in 2usize..6, used in 0usize..6, rounds in 1u64..20) {
            let used = used % count;
            let mut methods = Methods::new(count, used);
            let mut ran = vec![0; count];
            for _ in 0..rounds * TRIAL_EVERY {
                let method = methods.next_pass();
                ran[method] += 1;
                methods.ran(method, 100);
            }
            prop_assert_eq!(methods.used(), used);
            prop_assert_eq!(ran[used], rounds * (TRIAL_EVERY - 1));
            let others = ran.iter().enumerate().filter(|&(method, _)| method != used);
            let others: Vec<u64> = others.map(|(_, &ran)| ran).collect();
            let spread = others.iter().max().unwrap() - others.iter().min().unwrap();
            prop_assert!(spread <= 1);
        }

        #[test]
        fn the_clearly_fastest_comes_into_use_and_stays(
            costs in proptest::collection::vec(100u64..1000, 2..5),
            fastest in 0usize..5, used in 0usize..5,
            noise in proptest::collection::vec(0u64..5, 97),
            interrupts in 4u64..20,
        ) {
            // Odd: a period that divides the trials' would make each trial late.
            let interrupts = 2 * interrupts + 1;
            let mut costs = costs;
            let (count, fastest) = (costs.len(), fastest % costs.len());
            costs[fastest] = 90;
            let mut methods = Methods::new(count, used % count);
            let mut passes = 0;
            let mut cost = |method: usize| {
                passes += 1;
                let late = if passes % interrupts == 0 { 5000 } else { 0 };
                costs[method] + noise[passes as usize % noise.len()] % 3 + late
            };
            // At most once through all that are slower.
            run(&mut methods, 4 * count as u64 * SOON, &mut cost);
            prop_assert_eq!(methods.used(), fastest);
            run(&mut methods, SOON, &mut cost);
            prop_assert_eq!(methods.used(), fastest);
        }

        #[test]
        fn noise_changes_nothing(
            noise in proptest::collection::vec(0u64..3, 101), used in 0usize..3,
        ) {
            let mut methods = Methods::new(3, used);
            let mut at = 0;
            run(&mut methods, 3 * SOON, |_| {
                at += 1;
                100 + noise[at % noise.len()]
            });
            prop_assert_eq!(methods.used(), used);
        }

        #[test]
        fn every_cost_has_an_answer(
            ran in proptest::collection::vec((0usize..9, any::<u64>()), 0..2000),
        ) {
            let mut methods = Methods::new(3, 0);
            for (method, cost) in ran {
                prop_assert!(methods.next_pass() < 3);
                methods.ran(method, cost);
                prop_assert!(methods.used() < 3);
            }
        }
    }
}
