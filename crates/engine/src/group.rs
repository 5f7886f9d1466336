//! The blocking form: threads that submit run passes for one another (group commit).
//!
//! A thread runs its job at once if a permit is free, or if the job could not share a pass anyway.
//! While all permits are taken, jobs go to waiting lists. A leader, the holder of a permit, runs
//! exactly one pass; then it appoints the thread of a waiting job, whose pass takes that job and
//! those behind it. So no thread works for others after its own job is done, and the form needs no
//! threads of its own.
//!
//! Where several threads submit in turn, a new leader first lets the others run once: on a machine
//! whose CPUs are all busy, they have jobs and have not come to submit them. A thread that is alone
//! skips that look.
//!
//! Two leaders never take the same job: the appointed threads of an operation are at least `lanes`
//! places apart (each is chosen `appointed * lanes` places from the front), and each takes at most
//! `lanes` jobs, starting with its own. Taking a whole range moves all jobs behind it forward by
//! the same number of places, so the distances never become smaller than `lanes`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};

use widelane_batching::{self as batching, Idle, Lead, Waiting};
use widelane_crypto::Request;

use crate::error::JobError;
use crate::line::{AnyGatherer, AnyLine, Gatherer, Job, ReadyPass};
use crate::operations::Route;
use crate::slot::Ticket;
use crate::sync::{AtomicBool, Mutex, Ordering, Parker, lock, thread};

/// The threads that block in one engine, and their jobs.
pub(crate) struct Group {
    state: Mutex<State>,
    parallelism: usize,
    /// Lets other threads run before a new leader takes its pass.
    look: fn(),
}

impl Group {
    /// A group of which `parallelism` threads may run passes at a time.
    pub(crate) fn new(lines: &[Arc<dyn AnyLine>], parallelism: usize) -> Self {
        let lists = lines.iter().map(|line| WaitingList {
            lanes: line.lanes(),
            gatherer: Arc::clone(line).gatherer(),
            waiters: VecDeque::new(),
            appointed: 0,
        });
        let state = State {
            leaders: 0,
            waiting: 0,
            sequence: 0,
            last: None,
            several: 0,
            lists: lists.collect(),
        };
        Self {
            state: Mutex::new(state),
            parallelism,
            look: thread::yield_now,
        }
    }

    /// Runs one job, in a pass of this thread or of another one.
    pub(crate) fn run<R: Request>(
        &self,
        (index, line): &Route<R>,
        request: R,
        limit: usize,
    ) -> Result<R::Output, JobError> {
        let mut state = lock(&self.state);
        let several = state.several_threads(thread::current().id());
        match batching::lead(state.leaders, self.parallelism, line.lanes(), line.worth()) {
            Lead::Alone => {
                drop(state);
                return line.run_now(&request);
            }
            Lead::Now if several && state.lists[*index].has_no_unled() => {
                state.leaders += 1;
                let (ticket, job) = line.job(request);
                let waiter = Arc::new(Waiter {
                    appointed: AtomicBool::new(true),
                    parker: Parker::current(),
                });
                let sequence = state.add(*index, job, waiter);
                state.lists[*index].appointed += 1;
                drop(state);
                let permit = Permit(self);
                (self.look)();
                let pass = lock(&self.state).take_from(*index, sequence);
                pass();
                drop(permit);
                return ticket.wait();
            }
            Lead::Now => {
                state.leaders += 1;
                drop(state);
                let _permit = Permit(self);
                return line.run_now(&request);
            }
            Lead::Wait => {}
        }
        if !batching::admit(state.lists[*index].waiters.len(), limit) {
            drop(state);
            return Err(line.overloaded(limit).into());
        }
        let (ticket, job) = line.job(request);
        let waiter = Arc::new(Waiter {
            appointed: AtomicBool::new(false),
            parker: Parker::current(),
        });
        let sequence = state.add(*index, job, Arc::clone(&waiter));
        drop(state);
        self.wait(*index, sequence, &waiter, ticket)
    }

    /// Waits for the job's result; leads a pass if appointed.
    fn wait<T>(&self, index: usize, sequence: u64, waiter: &Waiter, mut ticket: Ticket<T>) -> Result<T, JobError> {
        let waker = Waker::from(Arc::clone(&waiter.parker));
        loop {
            if waiter.appointed.load(Ordering::Acquire) {
                let permit = Permit(self);
                let pass = lock(&self.state).take_from(index, sequence);
                pass();
                drop(permit);
                return ticket.wait();
            }
            if let Poll::Ready(result) = ticket.poll_with(&waker) {
                return result;
            }
            waiter.parker.park();
        }
    }

    /// Returns a permit, or hands it over to a waiting thread.
    fn hand_over(&self) {
        let mut state = lock(&self.state);
        state.leaders -= 1;
        if state.waiting == 0 {
            return;
        }
        let waiting: Vec<Waiting> = state.lists.iter().map(WaitingList::unled).collect();
        let Some(pass) = batching::next_pass(&waiting, Idle::Yes, state.sequence) else {
            return;
        };
        let Waiting { lanes, worth, .. } = waiting[pass.operation];
        if batching::lead(state.leaders, self.parallelism, lanes, worth) == Lead::Wait {
            return;
        }
        state.leaders += 1;
        let waiter = state.lists[pass.operation].appoint();
        drop(state);
        waiter.appointed.store(true, Ordering::Release);
        waiter.parker.unpark();
    }
}

/// The right to run one pass. Dropping it hands over, even if the pass panicked.
struct Permit<'a>(&'a Group);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.hand_over();
    }
}

struct State {
    /// Taken permits.
    leaders: usize,
    /// Jobs in all lists.
    waiting: usize,
    sequence: u64,
    /// The thread of the last job.
    last: Option<thread::ThreadId>,
    /// For how many more jobs it is assumed that several threads submit.
    several: u32,
    /// One for each operation, with the indices of the engine's lines.
    lists: Vec<WaitingList>,
}

impl State {
    /// Notes a job of this thread; returns whether other threads have submitted lately.
    fn several_threads(&mut self, thread: thread::ThreadId) -> bool {
        let other = self.last.replace(thread).is_some_and(|last| last != thread);
        self.several = match other {
            true => REMEMBERED,
            false => self.several.saturating_sub(1),
        };
        self.several > 0
    }

    /// Appends a job to the list of its operation; returns its sequence number.
    fn add<R: Request>(&mut self, index: usize, job: Job<R>, waiter: Arc<Waiter>) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        let list = &mut self.lists[index];
        let typed = list.gatherer.as_any().downcast_mut::<Gatherer<R>>();
        typed.expect("lists have the indices of the lines").push(sequence, job);
        list.waiters.push_back((sequence, waiter));
        self.waiting += 1;
        sequence
    }

    fn take_from(&mut self, index: usize, sequence: u64) -> ReadyPass {
        let list = &mut self.lists[index];
        let before = list.waiters.len();
        let pass = list.take_from(sequence);
        self.waiting -= before - list.waiters.len();
        pass
    }
}

/// The waiting jobs of one operation. `gatherer` and `waiters` have the same order. No job is ever
/// cancelled, because its thread waits until it ends.
struct WaitingList {
    lanes: usize,
    gatherer: Box<dyn AnyGatherer>,
    waiters: VecDeque<(u64, Arc<Waiter>)>,
    /// Threads that were appointed and have not taken their pass yet.
    appointed: usize,
}

impl WaitingList {
    /// Returns whether the next job would be the first that no appointed thread will take.
    fn has_no_unled(&self) -> bool {
        self.waiters.len() == self.appointed * self.lanes
    }

    /// The jobs that no appointed thread will take.
    fn unled(&self) -> Waiting {
        let led = self.appointed * self.lanes;
        Waiting {
            lanes: self.lanes,
            worth: self.gatherer.waiting().worth,
            jobs: self.waiters.len().saturating_sub(led),
            oldest: self.waiters.get(led).map_or(0, |(sequence, _)| *sequence),
            cost: self.gatherer.waiting().cost,
        }
    }

    /// Appoints the thread of the oldest job that no appointed thread will take. There must be one.
    fn appoint(&mut self) -> Arc<Waiter> {
        let (_, waiter) = &self.waiters[self.appointed * self.lanes];
        self.appointed += 1;
        Arc::clone(waiter)
    }

    /// Takes the pass of the appointed thread of job `sequence`: that job and those behind it.
    fn take_from(&mut self, sequence: u64) -> ReadyPass {
        self.appointed -= 1;
        let place = self.waiters.binary_search_by_key(&sequence, |(sequence, _)| *sequence);
        let place = place.expect("only the appointed thread takes its own job");
        let jobs = self.lanes.min(self.waiters.len() - place);
        self.waiters.drain(place..place + jobs);
        self.gatherer.take(place, jobs)
    }
}

/// A waiting thread.
struct Waiter {
    /// Set once, by the leader that hands its permit over to this thread.
    appointed: AtomicBool,
    parker: Arc<Parker>,
}

/// So many jobs of one thread in a row, and it counts as alone.
const REMEMBERED: u32 = 32;

#[cfg(all(test, not(loom)))]
mod tests {
    use widelane_crypto::Operation;

    use super::*;
    use crate::error::SubmitError;
    use crate::operations::Operations;

    /// The events of a waiting list; a scheduler may produce them in any order.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A thread starts to wait.
        Wait,
        /// A leader hands over.
        Appoint,
        /// An appointed thread, counted from the front, wakes up and takes its pass.
        Take(usize),
    }

    /// In every sequence of steps each leader finds its own job, and each job is taken once.
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
            // One thread is inside its pass, the others wait.
            while lock(&group.state).waiting < 8 {
                std::thread::yield_now();
            }
            let route = registry.route(&Word(9)).unwrap();
            let refused = JobError::Refused(line_is_full());
            assert_eq!(group.run(route, Word(9), 8), Err(refused));
            drop(hold);
        });
        let counters = registry.lines[0].counters();
        assert_eq!(counters.fills, [0, 1, 0, 0, 2], "one alone, then two full passes");
        let state = lock(&group.state);
        assert_eq!((state.leaders, state.waiting), (0, 0));
    }

    /// A leader's look lets another thread bring its job into the same pass.
    #[test]
    fn a_leader_lets_other_threads_submit_first() {
        let echo = Echo {
            lanes: 4,
            held: Arc::default(),
        };
        let registry = Operations::new().with(echo).register(None).unwrap();
        let group = GROUP.get_or_init(|| Group {
            look: || {
                LOOKS.fetch_add(1, Ordering::SeqCst);
                // Until the other thread's job waits, too.
                let group = GROUP.get().expect("it runs");
                while lock(&group.state).waiting < 2 {
                    thread::yield_now();
                }
            },
            ..Group::new(&registry.lines, 1)
        });
        let run = |x| group.run(registry.route(&Word(x)).unwrap(), Word(x), 8);
        for x in 0..3 {
            assert_eq!(run(x), Ok(x), "a thread that is alone does not look");
        }
        assert_eq!(LOOKS.load(Ordering::SeqCst), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(run(3), Ok(3)));
            while LOOKS.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            scope.spawn(|| assert_eq!(run(4), Ok(4)));
        });
        let fills = &registry.lines[0].counters().fills;
        let jobs: u64 = fills.iter().zip(0..).map(|(passes, fill)| passes * fill).sum();
        assert_eq!((fills[1] + fills[2], jobs), (4, 5), "{fills:?}");
        assert_eq!(fills[2], 1, "the later job was in the leader's pass");
        let state = lock(&group.state);
        assert_eq!((state.leaders, state.waiting), (0, 0));
    }

    static LOOKS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    static GROUP: std::sync::OnceLock<Group> = std::sync::OnceLock::new();

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
        for step in takes.chain(appoint).chain([Step::Wait]) {
            steps.push(step);
            explore(steps, depth - 1, explored);
            steps.pop();
        }
    }

    /// Plays the steps from the start. Returns how many leaders have not taken their pass yet, and
    /// how many jobs no appointed thread will take.
    fn replay(steps: &[Step]) -> (usize, usize) {
        let echo = Echo {
            lanes: 2,
            held: Arc::default(),
        };
        let registry = Operations::new().with(echo).register(None).unwrap();
        let line = Arc::clone(&registry.lines[0]);
        let mut group = Group::new(&[line], 1);
        let state = group.state.get_mut().unwrap();
        let mut tickets = Vec::new();
        let mut leaders: Vec<(u64, Arc<Waiter>)> = Vec::new();
        for step in steps {
            match *step {
                Step::Wait => {
                    let (ticket, job) = Job::new(Word(tickets.len()));
                    tickets.push(ticket);
                    let parker = Parker::current();
                    let appointed = AtomicBool::new(false);
                    state.add(0, job, Arc::new(Waiter { appointed, parker }));
                }
                Step::Appoint => {
                    let waiter = state.lists[0].appoint();
                    let mut waiters = state.lists[0].waiters.iter();
                    let is_it = |(_, other): &&(u64, Arc<Waiter>)| Arc::ptr_eq(other, &waiter);
                    let (sequence, _) = waiters.find(is_it).unwrap();
                    assert!(leaders.iter().all(|(other, _)| other != sequence), "{steps:?}");
                    leaders.push((*sequence, waiter));
                }
                Step::Take(leader) => {
                    let (sequence, _) = leaders.remove(leader);
                    assert!((1..=2).contains(&state.take_from(0, sequence)()), "{steps:?}");
                    assert!(tickets[sequence as usize].is_done(), "{steps:?}");
                }
            }
        }
        let waiting = state.lists[0].waiters.len();
        assert_eq!(state.waiting, waiting);
        assert_eq!(tickets.iter().filter(|ticket| !ticket.is_done()).count(), waiting);
        (leaders.len(), state.lists[0].unled().jobs)
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

        fn pass(&self, requests: &[Word]) -> Vec<usize> {
            let _held = lock(&self.held);
            requests.iter().map(|Word(word)| *word).collect()
        }

        fn specimen(&self) -> Word {
            Word(0)
        }
    }
}
