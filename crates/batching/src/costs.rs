//! The cost model: a pass, or one job at a time.

/// Cost of the answers of one operation, in any unit of time.
///
/// A pass of `k` jobs costs `first + (k - 1) * further`. Arithmetic in lanes adds nothing to
/// `further`; hashing, parsing and copying of each job do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Costs {
    /// Jobs that one pass takes. Zero is read as one.
    pub lanes: usize,
    /// A pass with a single job.
    pub first: u64,
    /// Cost that each further job adds to a pass. More than `first` is read as `first`: a job never
    /// costs more in a shared pass than in its own.
    pub further: u64,
    /// A job without lanes.
    pub alone: u64,
}

/// Division of several jobs into passes and single answers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Split {
    /// Jobs that run in passes, as many in each as it takes.
    pub in_lanes: usize,
    /// Jobs that run one by one.
    pub alone: usize,
}

impl Costs {
    /// The fewest jobs for which a pass is cheaper than one job at a time; [`NEVER`] if there is no
    /// such number. More jobs are worth a pass too, up to a full one.
    pub fn worth(&self) -> usize {
        let saved = self.alone.saturating_sub(self.further());
        let once = self.first - self.further();
        if saved == 0 {
            return NEVER;
        }
        // The least k with `once + k * further < k * alone`.
        match usize::try_from(once / saved) {
            Ok(jobs) if jobs < self.lanes.max(1) => jobs + 1,
            _ => NEVER,
        }
    }

    /// The cheapest way to answer `jobs`: no other number of passes, however filled, with the rest
    /// one by one, costs less.
    pub fn split(&self, jobs: usize) -> Split {
        let (lanes, worth) = (self.lanes.max(1), self.worth());
        let rest = jobs % lanes;
        let in_lanes = match worth {
            NEVER => 0,
            _ if rest >= worth => jobs,
            _ => jobs - rest,
        };
        Split {
            in_lanes,
            alone: jobs - in_lanes,
        }
    }

    /// Cost of one pass of `jobs`; 0 for no jobs.
    pub fn pass(&self, jobs: usize) -> u64 {
        match jobs as u64 {
            0 => 0,
            jobs => (jobs - 1).saturating_mul(self.further()).saturating_add(self.first),
        }
    }

    /// Cost of a split.
    pub fn total(&self, split: Split) -> u64 {
        let lanes = self.lanes.max(1);
        let full = ((split.in_lanes / lanes) as u64).saturating_mul(self.pass(lanes));
        let last = self.pass(split.in_lanes % lanes);
        let alone = (split.alone as u64).saturating_mul(self.alone);
        full.saturating_add(last).saturating_add(alone)
    }

    fn further(&self) -> u64 {
        self.further.min(self.first)
    }
}

/// The fewest jobs for which a pass of one of two widths is cheaper than one job at a time, and also
/// for all more jobs up to those that a wide pass takes; [`NEVER`] if there is no such number. Jobs
/// that are too many for one narrow pass take several.
///
/// A single job has to save more than one part in `clear`.
pub fn worth_in_either(wide: &Costs, narrow: &Costs, clear: u64) -> usize {
    let cheaper = |&jobs: &usize| {
        let passes = in_lanes_of_either(wide, narrow, jobs);
        let alone = (jobs as u64).saturating_mul(wide.alone);
        match jobs {
            1 => passes < alone - alone / clear.max(1),
            _ => passes < alone,
        }
    };
    let lanes = wide.lanes.clamp(1, MOST_LANES);
    match (1..=lanes).rev().take_while(cheaper).last() {
        Some(jobs) => jobs,
        None => NEVER,
    }
}

/// What one pass of `jobs` jobs costs less than the same jobs each run at once, in a pass of its own if `worth`, the
/// fewest jobs that are worth a pass, is one. The pass and single jobs run in the cheaper of two widths.
pub fn saving(wide: &Costs, narrow: &Costs, worth: usize, jobs: usize) -> u64 {
    let run = |jobs: usize| match jobs >= worth {
        true => in_lanes_of_either(wide, narrow, jobs),
        false => (jobs as u64).saturating_mul(wide.alone),
    };
    (jobs as u64).saturating_mul(run(1)).saturating_sub(run(jobs))
}

/// Cost of passes of `jobs` in the cheaper of two widths.
fn in_lanes_of_either(wide: &Costs, narrow: &Costs, jobs: usize) -> u64 {
    let split = Split {
        in_lanes: jobs,
        alone: 0,
    };
    wide.total(split).min(narrow.total(split))
}

/// More lanes than any pass has.
const MOST_LANES: usize = 64;

/// The fewest jobs that are worth a pass, if not even a full pass is.
pub const NEVER: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::{Clock, Core, Width, width};

    const fn costs(first: u64, further: u64, alone: u64) -> Costs {
        Costs {
            lanes: 8,
            first,
            further,
            alone,
        }
    }

    #[test]
    fn a_pass_saves_what_single_jobs_cost_more() {
        let (wide, narrow) = (costs(100, 5, 60), costs(70, 20, 60));
        let saved = |worth, jobs| saving(&wide, &narrow, worth, jobs);
        assert_eq!(saved(2, 1), 0);
        assert_eq!(saved(2, 2), 120 - 90);
        assert_eq!(saved(2, 4), 240 - 115);
        // Too few for a pass, and single jobs that run in passes of their own.
        assert_eq!(saved(3, 2), 0);
        assert_eq!(saved(1, 2), 140 - 90);
        assert_eq!(saved(NEVER, 8), 0);
    }

    #[test]
    fn nine_jobs_are_a_full_pass_and_one_alone() {
        let some = costs(100, 0, 60);
        assert_eq!(some.worth(), 2);
        let split = |in_lanes, alone| Split { in_lanes, alone };
        assert_eq!(some.split(0), split(0, 0));
        assert_eq!(some.split(1), split(0, 1));
        assert_eq!(some.split(2), split(2, 0));
        assert_eq!(some.split(9), split(8, 1));
        assert_eq!(some.total(some.split(9)), 160);
        assert_eq!(some.split(10), split(10, 0));
        assert_eq!(some.total(some.split(10)), 200);
    }

    #[test]
    fn what_costs_the_same_is_done_alone() {
        assert_eq!(costs(60, 0, 60).worth(), 2);
        assert_eq!(costs(59, 0, 60).worth(), 1);
        assert_eq!(costs(480, 0, 60).worth(), NEVER);
        assert_eq!(costs(479, 0, 60).worth(), 8);
    }

    #[test]
    fn further_jobs_that_cost_as_much_as_single_ones_save_nothing() {
        assert_eq!(costs(50, 60, 60).worth(), 1, "the first is cheap enough");
        assert_eq!(costs(60, 60, 60).worth(), NEVER);
        assert_eq!(costs(61, 59, 60).worth(), 3);
    }

    #[test]
    fn few_signatures_on_zen_4_run_in_narrow_passes() {
        let widths = |[wide, narrow]: &[Costs; 2]| -> Vec<_> {
            let core = Core::default();
            let free = Clock::default();
            let split = |in_lanes| Split { in_lanes, alone: 0 };
            (1..=4)
                .map(|jobs| width(&free, &core, wide.total(split(jobs)), narrow.total(split(jobs))))
                .collect()
        };
        use Width::{Narrow, Wide};
        for sizes in &ZEN_4 {
            assert_eq!(widths(sizes), [Narrow, Narrow, Wide, Wide]);
        }
        let worth = ZEN_4.map(|[wide, narrow]| worth_in_either(&wide, &narrow, 8));
        assert_eq!(worth, [2, 2, 2]);
        let wide_only = ZEN_4.map(|[wide, _]| wide.worth());
        assert_eq!(wide_only, [2, 3, 3]);
    }

    #[test]
    fn free_and_endless_costs_are_answered_too() {
        assert_eq!(costs(0, 0, 0).worth(), NEVER);
        assert_eq!(costs(0, 0, 1).worth(), 1);
        assert_eq!(costs(u64::MAX, 0, u64::MAX).worth(), 2);
        assert_eq!(costs(u64::MAX, u64::MAX, 1).worth(), NEVER);
        assert_eq!(costs(u64::MAX, 0, 1).worth(), NEVER);
    }

    /// RSA-2048, 3072 and 4096 signatures on Zen 4 in microseconds, as calibration measured them, in
    /// wide and in narrow registers.
    const ZEN_4: [[Costs; 2]; 3] = [
        [zen_4(4, 448, 0, 235), zen_4(2, 241, 9, 235)],
        [zen_4(4, 1505, 24, 704), zen_4(2, 864, 0, 704)],
        [zen_4(4, 3575, 0, 1519), zen_4(2, 2199, 0, 1519)],
    ];

    const fn zen_4(lanes: usize, first: u64, further: u64, alone: u64) -> Costs {
        Costs {
            lanes,
            first,
            further,
            alone,
        }
    }

    fn any_costs() -> impl Strategy<Value = Costs> {
        (0usize..18, 0u64..500, 0u64..120, 0u64..120).prop_map(|(lanes, first, further, alone)| Costs {
            lanes,
            first,
            further,
            alone,
        })
    }

    /// The least cost of every number of jobs up to `most`, by trying everything.
    fn cheapest(costs: &Costs, most: usize) -> Vec<u64> {
        let mut best = vec![0];
        for jobs in 1..=most {
            let passes = (1..=costs.lanes.max(1).min(jobs)).map(|filled| best[jobs - filled] + costs.pass(filled));
            let alone = best[jobs - 1] + costs.alone;
            best.push(passes.chain([alone]).min().unwrap_or(alone));
        }
        best
    }

    proptest! {
        #[test]
        fn no_other_split_is_cheaper(costs in any_costs()) {
            for (jobs, &least) in cheapest(&costs, 40).iter().enumerate() {
                let split = costs.split(jobs);
                prop_assert_eq!(split.in_lanes + split.alone, jobs);
                prop_assert_eq!(costs.total(split), least, "{} jobs", jobs);
            }
        }

        #[test]
        fn from_worth_on_a_pass_is_cheaper(costs in any_costs()) {
            for jobs in 1..=costs.lanes.max(1) {
                let cheaper = costs.pass(jobs) < jobs as u64 * costs.alone;
                prop_assert_eq!(jobs >= costs.worth(), cheaper, "{} jobs", jobs);
            }
        }

        #[test]
        fn from_worth_in_either_on_a_pass_is_cheaper(
            wide in any_costs(), narrow in any_costs(), clear in 0u64..9,
        ) {
            let worth = worth_in_either(&wide, &narrow, clear);
            let cheaper = |jobs: usize| {
                let split = Split { in_lanes: jobs, alone: 0 };
                let alone = jobs as u64 * wide.alone;
                let most = if jobs == 1 { alone - alone / clear.max(1) } else { alone };
                wide.total(split).min(narrow.total(split)) < most
            };
            let lanes = wide.lanes.max(1);
            prop_assert!((worth..=lanes).all(cheaper));
            prop_assert!(worth > lanes || worth == 1 || !cheaper(worth - 1));
            prop_assert!(worth != NEVER || !cheaper(lanes));
        }

        #[test]
        fn every_cost_has_an_answer(
            lanes in any::<usize>(), first in any::<u64>(), further in any::<u64>(),
            alone in any::<u64>(), jobs in any::<usize>(),
        ) {
            let costs = Costs { lanes, first, further, alone };
            let split = costs.split(jobs);
            prop_assert_eq!(split.in_lanes + split.alone, jobs);
            let alone = Split { in_lanes: 0, alone: jobs };
            prop_assert!(costs.total(split) <= costs.total(alone));
        }
    }
}
