//! The policy of Widelane: which pass to run next, whether a pass is worth it, whether to wait for
//! company, and when to refuse work.
//!
//! Every function here is pure and total: it looks at counts and sequence numbers, it knows no
//! clock, thread, allocation or I/O, and it answers for every input. The engine calls exactly these
//! functions and decides nothing by itself, so what their tests show is what runs.
//!
//! It is *not* the mechanism. Queues, threads, wake-ups and counters live in `widelane-engine`.
//!
//! Start with [`next_pass`]: it carries the rule that the product stands on. A pass costs about the
//! same whether it carries one job or fills every lane, so
//!
//! 1. a full pass runs at once, for no later job could ride along;
//! 2. a partial pass runs when, and only when, its worker has nothing else to do. No timer is
//!    involved: while a pass runs, the next one gathers. Where nobody could join, that is known
//!    without a look ([`quiet`]);
//! 3. a job that too many later ones have overtaken runs next, full pass or not;
//! 4. where jobs are too few to be worth a pass, the oldest runs alone, and the others go on
//!    waiting for company while it does.
//!
//! [`Costs`] says how many are worth a pass, from what passes and single jobs cost on a machine.
//! [`Clock`] says what wide code costs beside its own time, and so where passes run; [`wake`] and
//! [`Idleness`] say how many cores they get.

#![forbid(unsafe_code)]

mod clock;
mod cores;
mod costs;

pub use clock::{
    Clock, Core, Form, Moves, Place, Records, Toll, Width, form, place, records, width,
};
pub use cores::{Idleness, Sleeper, VectorCores, passes, usual_rest, wake};
pub use costs::{Costs, NEVER, Split};

/// What waits for one operation at one place (a worker's gatherer, a set of queues, a group of
/// threads).
///
/// Sequence numbers count jobs at that place. They only need to grow; which place counts how is the
/// caller's affair as long as `oldest` and the `now` given to [`next_pass`] come from the same
/// count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Waiting {
    /// Jobs that one pass of this operation takes. Zero is read as one.
    pub lanes: usize,
    /// The fewest jobs that are worth a pass, as [`Costs::worth`] says; fewer run one by one.
    pub worth: usize,
    /// Jobs that wait.
    pub jobs: usize,
    /// Sequence number of the job that has waited longest; meaningless while `jobs` is zero.
    pub oldest: u64,
}

/// Whether the asking worker has anything else to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Idle {
    /// It would park: waiting any longer for company wastes a core.
    Yes,
    /// It has other work, which may bring more jobs.
    No,
}

/// One pass to run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pass {
    /// Index of the operation in the slice that was asked about.
    pub operation: usize,
    /// Jobs to take, oldest first: at least one and at most the operation's lanes. If they are not
    /// [worth](Waiting::worth) a pass, there is one, which runs alone.
    pub jobs: usize,
}

/// What a thread does that submits in the blocking form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lead {
    /// It runs its job at once and does not count as a leader: jobs of this operation never share.
    Alone,
    /// It runs its job at once, as one leader more.
    Now,
    /// It waits until a finished leader hands over, or until another leader took its job along.
    Wait,
}

/// Names the next pass, or `None` when nothing should run now.
///
/// Preference: overdue operations (more than [`BYPASS_LIMIT`] jobs came after their oldest one),
/// then full passes, then, for an idle worker only, partial passes. Within each, the operation
/// whose job has waited longest. Jobs whose company could never be worth a pass count as full ones,
/// each by itself.
///
/// A free vector core and a free leader of the blocking form ask with [`Idle::Yes`].
///
/// Guarantees:
/// * an idle worker gets a pass whenever anything waits;
/// * a pass never exceeds its lanes, nor what waits;
/// * however busy the worker, at most `BYPASS_LIMIT` jobs, plus one pass for each other operation,
///   overtake any job.
pub fn next_pass(waiting: &[Waiting], idle: Idle, now: u64) -> Option<Pass> {
    let mut best: Option<(Urgency, u64, Pass)> = None;
    for (operation, line) in waiting.iter().enumerate() {
        let Some(urgency) = urgency(line, idle, now) else {
            continue;
        };
        let earlier = match &best {
            None => true,
            Some((rank, oldest, _)) => (urgency, line.oldest) < (*rank, *oldest),
        };
        if earlier {
            let jobs = match line.jobs.min(line.lanes.max(1)) {
                worth_it if worth_it >= line.worth => worth_it,
                _ => 1,
            };
            best = Some((urgency, line.oldest, Pass { operation, jobs }));
        }
    }
    best.map(|(_, _, pass)| pass)
}

/// Decides whether a thread may run its own job at once.
///
/// `leaders` counts the threads that answered [`Lead::Now`] and still run their pass, and
/// `parallelism` how many may. More would only share cores out thinner, while a thread that waits
/// fills a lane of the next pass for nothing. An operation with a single lane, or one for which no
/// pass is worth it, has nothing to gain from waiting; it is not counted, lest a stream of its jobs
/// keep the others waiting for ever.
pub fn lead(leaders: usize, parallelism: usize, lanes: usize, worth: usize) -> Lead {
    if company(lanes, worth) == 1 {
        Lead::Alone
    } else if leaders < parallelism.max(1) {
        Lead::Now
    } else {
        Lead::Wait
    }
}

/// Decides whether a job runs at once, without one more look for company.
///
/// `waiting` jobs are there already, and `others` besides its submitter are under way and may
/// submit soon. Where there is neither, a look would only find that out, and on a quiet server that
/// is all that batching costs.
pub fn quiet(waiting: usize, others: usize) -> bool {
    waiting == 0 && others == 0
}

/// Decides whether another job may join `waiting` ones in a queue bounded by `limit`.
pub fn admit(waiting: usize, limit: usize) -> bool {
    waiting < limit
}

/// Order matters: the more urgent comes first.
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
    } else if line.jobs >= company(line.lanes, line.worth) {
        Some(Urgency::Full)
    } else if idle == Idle::Yes {
        Some(Urgency::Partial)
    } else {
        None
    }
}

/// Jobs for which it makes sense to wait, the first included.
fn company(lanes: usize, worth: usize) -> usize {
    match lanes.max(1) {
        lanes if worth <= lanes => lanes,
        _ => 1,
    }
}

/// Jobs that may arrive after a waiting one before it runs even in a partial pass of a busy worker.
///
/// A handshake is four to six jobs of as many operations, so its signature sees this many others
/// arrive before seven more have come to fill a pass of eight lanes, with certificates of two kinds
/// on the server too. As time it is one to five milliseconds of passes, which nobody notices.
pub const BYPASS_LIMIT: u64 = 64;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn line(lanes: usize, jobs: usize, oldest: u64) -> Waiting {
        Waiting {
            lanes,
            worth: 1,
            jobs,
            oldest,
        }
    }

    #[test]
    fn partial_pass_waits_for_an_idle_worker() {
        let waiting = [line(4, 3, 0)];
        assert_eq!(next_pass(&waiting, Idle::No, 3), None);
        let pass = Pass {
            operation: 0,
            jobs: 3,
        };
        assert_eq!(next_pass(&waiting, Idle::Yes, 3), Some(pass));
    }

    #[test]
    fn full_pass_goes_before_an_older_partial_one() {
        let waiting = [line(4, 1, 0), line(2, 5, 1)];
        let pass = Pass {
            operation: 1,
            jobs: 2,
        };
        assert_eq!(next_pass(&waiting, Idle::Yes, 6), Some(pass));
        assert_eq!(next_pass(&waiting, Idle::No, 6), Some(pass));
    }

    #[test]
    fn overdue_job_goes_before_full_passes_and_needs_no_idle_worker() {
        let waiting = [line(2, 5, 1), line(4, 1, 0)];
        let full = Pass {
            operation: 0,
            jobs: 2,
        };
        assert_eq!(next_pass(&waiting, Idle::No, BYPASS_LIMIT), Some(full));
        let overdue = Pass {
            operation: 1,
            jobs: 1,
        };
        assert_eq!(
            next_pass(&waiting, Idle::No, BYPASS_LIMIT + 1),
            Some(overdue)
        );
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
            let waiting = [Waiting {
                worth,
                ..line(8, 5, 0)
            }];
            let pass = Pass {
                operation: 0,
                jobs: 1,
            };
            assert_eq!(next_pass(&waiting, Idle::No, 5), Some(pass));
        }
    }

    #[test]
    fn nobody_looks_for_company_that_cannot_come() {
        assert!(quiet(0, 0));
        assert!(!quiet(1, 0), "what waits may share a pass");
        assert!(!quiet(0, 1), "somebody may submit");
    }

    #[test]
    fn threads_lead_until_every_core_runs_a_pass() {
        assert_eq!(lead(0, 2, 4, 1), Lead::Now);
        assert_eq!(lead(1, 2, 4, 4), Lead::Now);
        assert_eq!(lead(2, 2, 4, 4), Lead::Wait);
        assert_eq!(
            lead(9, 2, 1, 1),
            Lead::Alone,
            "nothing to gain from waiting"
        );
        assert_eq!(lead(9, 2, 4, 5), Lead::Alone, "no pass is worth it");
        assert_eq!(
            lead(0, 0, 4, 1),
            Lead::Now,
            "an unknown parallelism makes progress"
        );
    }

    fn any_waiting() -> impl Strategy<Value = Vec<Waiting>> {
        let line = (0usize..20, any_worth(), 0usize..40, any::<u64>());
        vec(
            line.prop_map(|(lanes, worth, jobs, oldest)| Waiting {
                lanes,
                worth,
                jobs,
                oldest,
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

    /// What a busy or idle worker meets: a job for one operation, or a moment to run a pass.
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

    /// A place that follows the policy, in the simplest possible form.
    struct Place {
        /// Lanes, and how many jobs are worth a pass.
        lines: Vec<(usize, usize)>,
        queues: Vec<VecDeque<u64>>,
        next: u64,
    }

    impl Place {
        fn new(lines: Vec<(usize, usize)>) -> Self {
            let queues = lines.iter().map(|_| VecDeque::new()).collect();
            Self {
                lines,
                queues,
                next: 0,
            }
        }

        fn arrive(&mut self, operation: usize) {
            self.queues[operation].push_back(self.next);
            self.next += 1;
        }

        fn turn(&mut self, idle: Idle) -> Vec<u64> {
            let waiting: Vec<Waiting> = (self.lines.iter().zip(&self.queues))
                .map(|(&(lanes, worth), queue)| Waiting {
                    lanes,
                    worth,
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

        #[test]
        fn leading_and_admission_are_total(
            a in any::<usize>(), b in any::<usize>(), c in any::<usize>(), d in any::<usize>(),
        ) {
            // A thread waits only when another one runs a pass, and so will hand over.
            if lead(a, b, c, d) == Lead::Wait {
                prop_assert!(a >= 1);
            }
            prop_assert_eq!(admit(a, b), a < b);
            // Whoever has company, now or soon, waits for it.
            prop_assert_eq!(quiet(a, b), a == 0 && b == 0);
        }

        /// A worker that is kept busy for ever must not leave a lonely job behind.
        #[test]
        fn overtaking_is_bounded(
            lines in vec((1usize..9, any_worth()), 1..5),
            events in vec(any_event(4), 0..600),
        ) {
            let mut place = Place::new(lines.clone());
            // For each waiting job, how many later ones ran before it.
            let mut overtaken = std::collections::BTreeMap::<u64, u64>::new();
            let company: u64 = lines.iter().map(|&(lanes, _)| lanes as u64 - 1).sum();
            for event in events {
                match event {
                    Event::Arrive(operation) => {
                        overtaken.insert(place.next, 0);
                        place.arrive(operation % lines.len());
                        // Work is looked for after each arrival, as the engine's callers do.
                        let ran = place.turn(Idle::No);
                        note(&mut overtaken, &ran);
                    }
                    Event::Turn(idle) => {
                        let ran = place.turn(idle);
                        note(&mut overtaken, &ran);
                    }
                }
                let worst = overtaken.values().max().copied().unwrap_or(0);
                prop_assert!(worst <= BYPASS_LIMIT + company, "{worst} jobs overtook one");
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
