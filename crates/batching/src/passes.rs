//! Choice of the next pass, of the thread that runs it, and of the jobs that are refused.

/// The jobs that wait for one operation in one place: a worker's gatherer, a queue, or the waiting
/// list of a group of threads.
///
/// Sequence numbers count the jobs in that place. They only need to grow. `oldest` and the `now` of
/// [`next_pass`] must come from the same count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Waiting {
    /// Jobs that one pass of this operation takes. Zero is read as one.
    pub lanes: usize,
    /// The fewest jobs that are worth a pass (see [`Costs::worth`](crate::Costs::worth)); fewer run
    /// one by one.
    pub worth: usize,
    /// Waiting jobs.
    pub jobs: usize,
    /// Sequence number of the oldest job; ignored while `jobs` is zero.
    pub oldest: u64,
    /// Cost of a pass, in a unit that all operations of the place share (see
    /// [`Costs::first`](crate::Costs::first)). 0 if that is not known.
    pub cost: u64,
}

/// State of the worker that asks for a pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Idle {
    /// The worker has nothing else to run and would park: to wait longer for more jobs wastes a core.
    Yes,
    /// The worker has other work, which may bring more jobs.
    No,
}

/// One pass to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pass {
    /// Index of the operation in the slice that was asked about.
    pub operation: usize,
    /// Jobs to take, oldest first: at least one and at most the operation's lanes. One if they are
    /// not [worth](Waiting::worth) a pass; it runs alone.
    pub jobs: usize,
}

/// Next step of a thread that has submitted in the blocking form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lead {
    /// Runs its job at once, without a permit: jobs of this operation never share a pass.
    Alone,
    /// Becomes a leader and runs its job at once.
    Now,
    /// Waits until a leader hands over to it, or runs its job.
    Wait,
}

/// Names the next pass, or `None` when nothing should run now.
///
/// Order: overdue operations (more than [`BYPASS_LIMIT`] jobs came after their oldest one), then
/// full passes, then partial passes if the worker is idle. Among overdue operations and among full
/// passes, the one with the oldest job. Among partial passes the cheapest, and of equal ones that
/// with the oldest job: a connection that waits for a cheap operation often needs an expensive one
/// next, and can still join the expensive pass. The other way round it would wait for a pass that
/// starts with empty lanes, and then for another one. If not even a full pass is worth it, each job
/// counts as a full pass.
///
/// A free vector core and a free leader of the blocking form ask with [`Idle::Yes`].
///
/// Guarantees:
/// * an idle worker gets a pass whenever a job waits;
/// * a pass never has more jobs than lanes, nor more than wait;
/// * at most `BYPASS_LIMIT` jobs, plus one pass for each other operation, overtake any job, however
///   busy the worker is.
pub fn next_pass(waiting: &[Waiting], idle: Idle, now: u64) -> Option<Pass> {
    let mut best = None;
    for (operation, line) in waiting.iter().enumerate() {
        let Some(urgency) = urgency(line, idle, now) else {
            continue;
        };
        let cost = match urgency {
            Urgency::Overdue | Urgency::Full => 0,
            Urgency::Partial => line.cost,
        };
        let rank = (urgency, cost, line.oldest);
        if best.is_none_or(|(best, _)| rank < best) {
            best = Some((rank, operation));
        }
    }
    best.map(|(_, operation)| {
        let line = &waiting[operation];
        let jobs = match line.jobs.min(line.lanes.max(1)) {
            worth_it if worth_it >= line.worth => worth_it,
            _ => 1,
        };
        Pass { operation, jobs }
    })
}

/// Decides whether a thread may run its own job at once.
///
/// `leaders` counts the threads that got [`Lead::Now`] and still run their pass; `parallelism` is
/// their limit. More leaders would share the same cores, while a waiting thread fills a lane of the
/// next pass at no cost. An operation with a single lane, or with passes that are never worth it,
/// gains nothing from waiting. Its jobs do not count as leaders; else a stream of them could block
/// the others for ever.
pub fn lead(leaders: usize, parallelism: usize, lanes: usize, worth: usize) -> Lead {
    if full(lanes, worth) == 1 {
        Lead::Alone
    } else if leaders < parallelism.max(1) {
        Lead::Now
    } else {
        Lead::Wait
    }
}

/// Decides whether a job runs at once, without one more look for other jobs.
///
/// `waiting` jobs wait already, and `others` tasks besides the submitter may submit soon. If both
/// are zero, no other job can share the pass, and on a quiet server the look would be the whole
/// cost of batching.
pub fn quiet(waiting: usize, others: usize) -> bool {
    waiting == 0 && others == 0
}

/// Decides whether another job may join `waiting` ones in a queue bounded by `limit`.
pub fn admit(waiting: usize, limit: usize) -> bool {
    waiting < limit
}

/// In order: the most urgent first.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
enum Urgency {
    Overdue,
    Full,
    Partial,
}

fn urgency(line: &Waiting, idle: Idle, now: u64) -> Option<Urgency> {
    if line.jobs == 0 {
        None
    } else if now.saturating_sub(line.oldest) > BYPASS_LIMIT {
        Some(Urgency::Overdue)
    } else if line.jobs >= full(line.lanes, line.worth) {
        Some(Urgency::Full)
    } else if idle == Idle::Yes {
        Some(Urgency::Partial)
    } else {
        None
    }
}

/// Jobs in a full pass: waiting for more gains nothing.
fn full(lanes: usize, worth: usize) -> usize {
    match lanes.max(1) {
        lanes if worth <= lanes => lanes,
        _ => 1,
    }
}

/// After this many later jobs, a waiting job runs even in a partial pass of a busy worker.
///
/// A handshake has four to six jobs of different operations. So about this many jobs arrive until
/// seven more signatures fill a pass of eight lanes, even if a server has certificates of two
/// kinds. In time it is one to five milliseconds of passes, too short to notice.
pub const BYPASS_LIMIT: u64 = 64;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::costs::NEVER;

    fn line(lanes: usize, jobs: usize, oldest: u64) -> Waiting {
        Waiting {
            lanes,
            worth: 1,
            jobs,
            oldest,
            cost: 0,
        }
    }

    #[test]
    fn partial_pass_waits_for_an_idle_worker() {
        let waiting = [line(4, 3, 0)];
        assert_eq!(next_pass(&waiting, Idle::No, 3), None);
        let pass = Pass { operation: 0, jobs: 3 };
        assert_eq!(next_pass(&waiting, Idle::Yes, 3), Some(pass));
    }

    #[test]
    fn cheap_partial_pass_goes_before_an_older_expensive_one() {
        let costing = |cost, line| Waiting { cost, ..line };
        let signature = costing(600, line(4, 1, 0));
        let key = costing(30, line(8, 2, 1));
        let chosen = |waiting: &[Waiting]| next_pass(waiting, Idle::Yes, 3).map(|pass| (pass.operation, pass.jobs));
        assert_eq!(chosen(&[signature, key]), Some((1, 2)));
        // The connections of both keys have come to their signatures meanwhile.
        assert_eq!(chosen(&[costing(600, line(4, 3, 0))]), Some((0, 3)));
        let same = costing(600, line(8, 2, 1));
        assert_eq!(chosen(&[same, signature]), Some((1, 1)), "the older one");
        let full = costing(600, line(4, 4, 2));
        assert_eq!(chosen(&[key, full]), Some((1, 4)), "a full one");
    }

    #[test]
    fn full_pass_goes_before_an_older_partial_one() {
        let waiting = [line(4, 1, 0), line(2, 5, 1)];
        let pass = Pass { operation: 1, jobs: 2 };
        assert_eq!(next_pass(&waiting, Idle::Yes, 6), Some(pass));
        assert_eq!(next_pass(&waiting, Idle::No, 6), Some(pass));
    }

    #[test]
    fn overdue_job_goes_before_full_passes_and_needs_no_idle_worker() {
        let waiting = [line(2, 5, 1), line(4, 1, 0)];
        let full = Pass { operation: 0, jobs: 2 };
        assert_eq!(next_pass(&waiting, Idle::No, BYPASS_LIMIT), Some(full));
        let overdue = Pass { operation: 1, jobs: 1 };
        assert_eq!(next_pass(&waiting, Idle::No, BYPASS_LIMIT + 1), Some(overdue));
    }

    #[test]
    fn jobs_too_few_for_a_pass_run_one_at_a_time_on_an_idle_worker() {
        let few = |jobs| Waiting {
            worth: 3,
            ..line(8, jobs, 0)
        };
        let pass = |jobs| Pass { operation: 0, jobs };
        assert_eq!(next_pass(&[few(2)], Idle::No, 2), None);
        assert_eq!(next_pass(&[few(2)], Idle::Yes, 2), Some(pass(1)));
        assert_eq!(next_pass(&[few(3)], Idle::Yes, 3), Some(pass(3)));
        assert_eq!(next_pass(&[few(9)], Idle::No, 9), Some(pass(8)));
        let overdue = BYPASS_LIMIT + 1;
        assert_eq!(next_pass(&[few(2)], Idle::No, overdue), Some(pass(1)));
    }

    #[test]
    fn nothing_waits_for_passes_that_are_never_worth_it() {
        for worth in [9, NEVER] {
            let waiting = [Waiting { worth, ..line(8, 5, 0) }];
            let pass = Pass { operation: 0, jobs: 1 };
            assert_eq!(next_pass(&waiting, Idle::No, 5), Some(pass));
        }
    }

    #[test]
    fn no_job_waits_for_others_that_cannot_come() {
        assert!(quiet(0, 0));
        assert!(!quiet(1, 0), "what waits may share a pass");
        assert!(!quiet(0, 1), "another task may submit");
    }

    #[test]
    fn threads_lead_until_every_core_runs_a_pass() {
        assert_eq!(lead(0, 2, 4, 1), Lead::Now);
        assert_eq!(lead(1, 2, 4, 4), Lead::Now);
        assert_eq!(lead(2, 2, 4, 4), Lead::Wait);
        assert_eq!(lead(9, 2, 1, 1), Lead::Alone, "nothing to gain from waiting");
        assert_eq!(lead(9, 2, 4, 5), Lead::Alone, "no pass is worth it");
        assert_eq!(lead(0, 0, 4, 1), Lead::Now, "an unknown parallelism makes progress");
    }

    fn any_waiting() -> impl Strategy<Value = Vec<Waiting>> {
        let line = (0usize..20, any_worth(), 0usize..40, any::<u64>(), 0u64..4);
        vec(
            line.prop_map(|(lanes, worth, jobs, oldest, cost)| Waiting {
                lanes,
                worth,
                jobs,
                oldest,
                cost,
            }),
            0..8,
        )
    }

    fn any_worth() -> impl Strategy<Value = usize> {
        prop_oneof![4 => 0usize..10, 1 => Just(NEVER)]
    }

    fn any_idle() -> impl Strategy<Value = Idle> {
        prop_oneof![Just(Idle::Yes), Just(Idle::No)]
    }

    /// An event of a worker: a job arrives, or the worker may run a pass.
    #[derive(Clone, Debug)]
    enum Event {
        Arrive(usize),
        Turn(Idle),
    }

    fn any_event(operations: usize) -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..operations).prop_map(Event::Arrive),
            1 => any_idle().prop_map(Event::Turn),
        ]
    }

    /// The simplest gatherer that follows the policy.
    struct Gatherer {
        /// Lanes, how many jobs are worth a pass, and what a pass costs.
        lines: Vec<(usize, usize, u64)>,
        queues: Vec<VecDeque<u64>>,
        next: u64,
    }

    impl Gatherer {
        fn new(lines: Vec<(usize, usize, u64)>) -> Self {
            let queues = lines.iter().map(|_| VecDeque::new()).collect();
            Self { lines, queues, next: 0 }
        }

        fn arrive(&mut self, operation: usize) {
            self.queues[operation].push_back(self.next);
            self.next += 1;
        }

        fn turn(&mut self, idle: Idle) -> Vec<u64> {
            let waiting: Vec<Waiting> = (self.lines.iter().zip(&self.queues))
                .map(|(&(lanes, worth, cost), queue)| Waiting {
                    lanes,
                    worth,
                    cost,
                    jobs: queue.len(),
                    oldest: queue.front().copied().unwrap_or(u64::MAX),
                })
                .collect();
            match next_pass(&waiting, idle, self.next) {
                None => Vec::new(),
                Some(pass) => self.queues[pass.operation].drain(..pass.jobs).collect(),
            }
        }

        fn waiting(&self) -> usize {
            self.queues.iter().map(VecDeque::len).sum()
        }
    }

    proptest! {
        #[test]
        fn decisions_are_total_and_never_exceed_lanes(
            waiting in any_waiting(), idle in any_idle(), now in any::<u64>(),
        ) {
            if let Some(pass) = next_pass(&waiting, idle, now) {
                let line = waiting[pass.operation];
                prop_assert!(pass.jobs >= 1);
                prop_assert!(pass.jobs <= line.lanes.max(1));
                prop_assert!(pass.jobs <= line.jobs);
                prop_assert!(pass.jobs >= line.worth || pass.jobs == 1);
            }
        }

        #[test]
        fn no_job_waits_while_its_worker_is_idle(waiting in any_waiting(), now in any::<u64>()) {
            let anything = waiting.iter().any(|line| line.jobs > 0);
            prop_assert_eq!(next_pass(&waiting, Idle::Yes, now).is_some(), anything);
        }

        #[test]
        fn a_full_pass_never_waits(waiting in any_waiting(), now in any::<u64>()) {
            if waiting.iter().any(|line| line.jobs > 0 && line.jobs >= line.lanes) {
                prop_assert!(next_pass(&waiting, Idle::No, now).is_some());
            }
        }

        /// No other operation would have to run before the one that runs.
        #[test]
        fn the_order_is_by_urgency_then_cost_then_age(
            waiting in any_waiting(), idle in any_idle(), now in any::<u64>(),
        ) {
            let Some(pass) = next_pass(&waiting, idle, now) else {
                return Ok(());
            };
            let chosen = &waiting[pass.operation];
            let urgency_of = |line: &Waiting| urgency(line, idle, now).map_or(3, |it| it as u8);
            for line in waiting.iter().filter(|line| line.jobs > 0) {
                let (theirs, ours) = (urgency_of(line), urgency_of(chosen));
                prop_assert!(theirs >= ours);
                if theirs > ours {
                    continue;
                }
                if ours == Urgency::Partial as u8 {
                    prop_assert!((line.cost, line.oldest) >= (chosen.cost, chosen.oldest));
                } else {
                    prop_assert!(line.oldest >= chosen.oldest);
                }
            }
        }

        #[test]
        fn leading_and_admission_are_total(
            a in any::<usize>(), b in any::<usize>(), c in any::<usize>(), d in any::<usize>(),
        ) {
            // A thread waits only when another one runs a pass, and so will hand over.
            if lead(a, b, c, d) == Lead::Wait {
                prop_assert!(a >= 1);
            }
            prop_assert_eq!(admit(a, b), a < b);
            // A job waits if another one is there or may come soon.
            prop_assert_eq!(quiet(a, b), a == 0 && b == 0);
        }

        /// A worker that is always busy still runs a job that waits alone.
        #[test]
        fn overtaking_is_bounded(
            lines in vec((1usize..9, any_worth(), 0u64..4), 1..5),
            events in vec(any_event(4), 0..600),
        ) {
            let mut place = Gatherer::new(lines.clone());
            // For each waiting job, how many later ones ran before it.
            let mut overtaken = std::collections::BTreeMap::<u64, u64>::new();
            let others: u64 = lines.iter().map(|&(lanes, ..)| lanes as u64 - 1).sum();
            for event in events {
                match event {
                    Event::Arrive(operation) => {
                        overtaken.insert(place.next, 0);
                        place.arrive(operation % lines.len());
                        // The engine's callers look for work after each arrival, too.
                        let ran = place.turn(Idle::No);
                        note(&mut overtaken, &ran);
                    }
                    Event::Turn(idle) => {
                        let ran = place.turn(idle);
                        note(&mut overtaken, &ran);
                    }
                }
                let worst = overtaken.values().max().copied().unwrap_or(0);
                prop_assert!(worst <= BYPASS_LIMIT + others, "{worst} jobs overtook one");
            }
            let mut passes = 0;
            while place.waiting() > 0 {
                prop_assert!(!place.turn(Idle::Yes).is_empty());
                passes += 1;
                prop_assert!(passes <= 600);
            }
        }
    }

    fn note(overtaken: &mut std::collections::BTreeMap<u64, u64>, ran: &[u64]) {
        for job in ran {
            overtaken.remove(job);
        }
        for job in ran {
            for (_, count) in overtaken.range_mut(..job) {
                *count += 1;
            }
        }
    }
}
