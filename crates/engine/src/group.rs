//! The blocking form: threads that submit run passes for one another (group commit).
//!
//! A thread that finds a free permit runs its own job at once, and so does one whose job could not
//! share a pass anyway. While every permit is taken, jobs
//! gather. A leader runs exactly one pass; then it appoints the owner of a waiting job, whose pass
//! takes that job and those behind it. So nobody works for others once its own job is done, and no
//! thread exists for the purpose.
//!
//! What keeps two leaders from taking the same job: the appointed owners of an operation stand at
//! least `lanes` places apart (each is chosen `appointed * lanes` places from the front), and each
//! takes at most `lanes` jobs from its own place on. Taking a whole range moves everything behind
//! it forward by the same amount, so the distances never shrink below `lanes`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};

use widelane_batching::{self as batching, Idle, Lead, Waiting};

use crate::line::{AnyGatherer, AnyLine, Gatherer, Job, ReadyPass};
use crate::operation::Route;
use crate::sync::{AtomicBool, Mutex, Ordering, Parker, lock};
use crate::{JobError, Request, Ticket};

/// The threads that block in one engine, and the jobs they wait for.
pub(crate) struct Group {
    hall: Mutex<Hall>,
    parallelism: usize,
}

impl Group {
    /// A group of which `parallelism` threads may run passes at a time.
    pub(crate) fn new(lines: &[Arc<dyn AnyLine>], parallelism: usize) -> Self {
        let benches = lines.iter().map(|line| Bench {
            lanes: line.lanes(),
            gatherer: Arc::clone(line).gatherer(),
            seats: VecDeque::new(),
            appointed: 0,
        });
        let hall = Hall {
            leaders: 0,
            seated: 0,
            sequence: 0,
            benches: benches.collect(),
        };
        Self {
            hall: Mutex::new(hall),
            parallelism,
        }
    }

    /// Runs one job, in a pass of this thread or of another one.
    pub(crate) fn run<R: Request>(
        &self,
        (index, line): &Route<R>,
        request: R,
        limit: usize,
    ) -> Result<R::Output, JobError> {
        let mut hall = lock(&self.hall);
        match batching::lead(hall.leaders, self.parallelism, line.lanes(), line.worth()) {
            Lead::Alone => {
                drop(hall);
                return line.run_now(&request);
            }
            Lead::Now => {
                hall.leaders += 1;
                drop(hall);
                let _permit = Permit(self);
                return line.run_now(&request);
            }
            Lead::Wait => {}
        }
        if !batching::admit(hall.benches[*index].seats.len(), limit) {
            drop(hall);
            return Err(line.overloaded(limit).into());
        }
        let (ticket, job) = Job::new(request);
        let seat = Arc::new(Seat {
            appointed: AtomicBool::new(false),
            parker: Parker::current(),
        });
        let sequence = hall.seat(*index, job, Arc::clone(&seat));
        drop(hall);
        self.sit(*index, sequence, &seat, ticket)
    }

    /// Waits for the job's result, and leads a pass if appointed to.
    fn sit<T>(
        &self,
        index: usize,
        sequence: u64,
        seat: &Seat,
        mut ticket: Ticket<T>,
    ) -> Result<T, JobError> {
        let waker = Waker::from(Arc::clone(&seat.parker));
        loop {
            if seat.appointed.load(Ordering::Acquire) {
                let permit = Permit(self);
                let pass = lock(&self.hall).take_from(index, sequence);
                pass();
                drop(permit);
                return ticket.wait();
            }
            if let Poll::Ready(result) = ticket.poll_with(&waker) {
                return result;
            }
            seat.parker.park();
        }
    }

    /// Gives a permit back, or straight on to a thread that waits.
    fn hand_over(&self) {
        let mut hall = lock(&self.hall);
        hall.leaders -= 1;
        if hall.seated == 0 {
            return;
        }
        let waiting: Vec<Waiting> = hall.benches.iter().map(Bench::unled).collect();
        let Some(pass) = batching::next_pass(&waiting, Idle::Yes, hall.sequence) else {
            return;
        };
        let Waiting { lanes, worth, .. } = waiting[pass.operation];
        if batching::lead(hall.leaders, self.parallelism, lanes, worth) == Lead::Wait {
            return;
        }
        hall.leaders += 1;
        let seat = hall.benches[pass.operation].appoint();
        drop(hall);
        seat.appointed.store(true, Ordering::Release);
        seat.parker.unpark();
    }
}

/// The right to run one pass. Dropping it hands over, even if the pass panicked.
struct Permit<'a>(&'a Group);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

struct Hall {
    /// Permits taken.
    leaders: usize,
    /// Jobs on all benches.
    seated: usize,
    sequence: u64,
    /// Indexed as the engine's lines are.
    benches: Vec<Bench>,
}

impl Hall {
    /// Seats a job at the end of its operation's bench; returns its sequence number.
    fn seat<R: Request>(&mut self, index: usize, job: Job<R>, seat: Arc<Seat>) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        let bench = &mut self.benches[index];
        let typed = bench.gatherer.as_any().downcast_mut::<Gatherer<R>>();
        typed
            .expect("benches are indexed as lines are")
            .push(sequence, job);
        bench.seats.push_back((sequence, seat));
        self.seated += 1;
        sequence
    }

    fn take_from(&mut self, index: usize, sequence: u64) -> ReadyPass {
        let bench = &mut self.benches[index];
        let before = bench.seats.len();
        let pass = bench.take_from(sequence);
        self.seated -= before - bench.seats.len();
        pass
    }
}

/// The waiting jobs of one operation. `gatherer` and `seats` hold them in the same order; none
/// is ever cancelled, because its thread sits until it ends.
struct Bench {
    lanes: usize,
    gatherer: Box<dyn AnyGatherer>,
    seats: VecDeque<(u64, Arc<Seat>)>,
    /// Owners that were told to lead and have not taken their pass yet.
    appointed: usize,
}

impl Bench {
    /// The jobs that no appointed leader is going to take.
    fn unled(&self) -> Waiting {
        let led = self.appointed * self.lanes;
        Waiting {
            lanes: self.lanes,
            worth: self.gatherer.waiting().worth,
            jobs: self.seats.len().saturating_sub(led),
            oldest: self.seats.get(led).map_or(0, |(sequence, _)| *sequence),
        }
    }

    /// Chooses the owner of the oldest job that nobody is going to take; there must be one.
    fn appoint(&mut self) -> Arc<Seat> {
        let (_, seat) = &self.seats[self.appointed * self.lanes];
        self.appointed += 1;
        Arc::clone(seat)
    }

    /// Takes the pass of the appointed owner of job `sequence`: that job and those behind it.
    fn take_from(&mut self, sequence: u64) -> ReadyPass {
        self.appointed -= 1;
        let place = self
            .seats
            .binary_search_by_key(&sequence, |(sequence, _)| *sequence);
        let place = place.expect("only its owner takes the job that an appointment rests on");
        let jobs = self.lanes.min(self.seats.len() - place);
        self.seats.drain(place..place + jobs);
        self.gatherer.take(place, jobs)
    }
}

/// Where a thread waits.
struct Seat {
    /// Set once, by the leader that hands over to this thread.
    appointed: AtomicBool,
    parker: Arc<Parker>,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Operation, Operations, SubmitError};

    /// What may happen to a bench, in any order that a scheduler could produce.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A thread sits down.
        Sit,
        /// A leader hands over.
        Appoint,
        /// An appointed thread, counted from the front, wakes up and takes its pass.
        Take(usize),
    }

    /// Every sequence of steps: whoever leads finds its own job, and every job is taken once.
    #[test]
    fn leaders_never_take_one_anothers_jobs() {
        let mut explored = 0;
        explore(&mut Vec::new(), 12, &mut explored);
        assert!(explored > 1_000, "only {explored} sequences");
    }

    #[test]
    fn jobs_gather_while_a_pass_runs() {
        let held = Arc::new(Mutex::new(()));
        let echo = Echo {
            lanes: 4,
            held: Arc::clone(&held),
        };
        let registry = Operations::new().with(echo).register(None).unwrap();
        let group = Group::new(&registry.lines, 1);
        std::thread::scope(|scope| {
            let hold = lock(&held);
            for word in 0..9 {
                let (group, registry) = (&group, &registry);
                scope.spawn(move || {
                    let route = registry.route(&Word(word)).unwrap();
                    assert_eq!(group.run(route, Word(word), 8), Ok(word));
                });
            }
            // One thread is inside its pass, the others have sat down.
            while lock(&group.hall).seated < 8 {
                std::thread::yield_now();
            }
            let route = registry.route(&Word(9)).unwrap();
            let refused = JobError::Refused(line_is_full());
            assert_eq!(group.run(route, Word(9), 8), Err(refused));
            drop(hold);
        });
        let counters = registry.lines[0].counters();
        assert_eq!(
            counters.fills,
            [0, 1, 0, 0, 2],
            "one alone, then two full passes"
        );
        let hall = lock(&group.hall);
        assert_eq!((hall.leaders, hall.seated), (0, 0));
    }

    fn line_is_full() -> SubmitError {
        SubmitError::Overloaded {
            operation: "echo",
            limit: 8,
        }
    }

    fn explore(steps: &mut Vec<Step>, depth: usize, explored: &mut usize) {
        let (appointed, unled) = replay(steps);
        *explored += 1;
        if depth == 0 {
            return;
        }
        let takes = (0..appointed).map(Step::Take);
        let appoint = (unled > 0).then_some(Step::Appoint);
        for step in takes.chain(appoint).chain([Step::Sit]) {
            steps.push(step);
            explore(steps, depth - 1, explored);
            steps.pop();
        }
    }

    /// Plays the steps from the start; returns how many leaders are still to take their pass, and
    /// how many jobs nobody is going to take.
    fn replay(steps: &[Step]) -> (usize, usize) {
        let echo = Echo {
            lanes: 2,
            held: Arc::default(),
        };
        let registry = Operations::new().with(echo).register(None).unwrap();
        let line = Arc::clone(&registry.lines[0]);
        let mut group = Group::new(&[line], 1);
        let hall = group.hall.get_mut().unwrap();
        let mut tickets = Vec::new();
        let mut leaders: Vec<(u64, Arc<Seat>)> = Vec::new();
        for step in steps {
            match *step {
                Step::Sit => {
                    let (ticket, job) = Job::new(Word(tickets.len()));
                    tickets.push(ticket);
                    let parker = Parker::current();
                    let appointed = AtomicBool::new(false);
                    hall.seat(0, job, Arc::new(Seat { appointed, parker }));
                }
                Step::Appoint => {
                    let seat = hall.benches[0].appoint();
                    let mut seats = hall.benches[0].seats.iter();
                    let (sequence, _) = seats.find(|(_, other)| Arc::ptr_eq(other, &seat)).unwrap();
                    assert!(
                        leaders.iter().all(|(other, _)| other != sequence),
                        "{steps:?}"
                    );
                    leaders.push((*sequence, seat));
                }
                Step::Take(leader) => {
                    let (sequence, _) = leaders.remove(leader);
                    assert!(
                        (1..=2).contains(&hall.take_from(0, sequence)()),
                        "{steps:?}"
                    );
                    assert!(tickets[sequence as usize].is_done(), "{steps:?}");
                }
            }
        }
        let seated = hall.benches[0].seats.len();
        assert_eq!(hall.seated, seated);
        assert_eq!(
            tickets.iter().filter(|ticket| !ticket.is_done()).count(),
            seated
        );
        (leaders.len(), hall.benches[0].unled().jobs)
    }

    struct Word(usize);

    impl Request for Word {
        type Output = usize;
    }

    /// Waits, inside its passes, for a mutex that a test can hold.
    struct Echo {
        lanes: usize,
        held: Arc<Mutex<()>>,
    }

    impl Operation for Echo {
        type Request = Word;

        fn name(&self) -> &'static str {
            "echo"
        }

        fn lanes(&self) -> usize {
            self.lanes
        }

        fn run(&self, requests: &[Word]) -> Vec<usize> {
            let _held = lock(&self.held);
            requests.iter().map(|Word(word)| *word).collect()
        }
    }
}
