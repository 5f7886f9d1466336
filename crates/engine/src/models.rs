//! Loom models: every interleaving of the protocols that a scheduler could produce.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p widelane-engine --lib --release`

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::thread;

use crate::group::Group;
use crate::join::{Part, Tickets};
use crate::operations::Registry;
use crate::queue::Queue;
use crate::sleepers::{Core, Sleepers};
use crate::slot::Reply;
use crate::{
    Clock, Config, CoreBorrower, CoreLending, CostModel, Costs, Cpus, Engine, Idle, JobError, Operation,
    OperationCounters, Operations, Placement, Request, SubmitError, slot,
};

/// complete ∥ wait: no wake-up is lost and the output arrives whole.
#[test]
fn a_waiting_ticket_is_woken() {
    loom::model(|| {
        let (ticket, reply) = slot::pair();
        let runner = thread::spawn(move || reply.complete(Ok(Box::new(7))));
        assert_eq!(ticket.wait(), Ok(Box::new(7)));
        runner.join().unwrap();
    });
}

/// complete ∥ poll with one waker, then another: the last one stored is woken, or the poll sees
/// the output.
#[test]
fn the_last_waker_counts() {
    loom::model(|| {
        let (mut ticket, reply) = slot::pair();
        let runner = thread::spawn(move || reply.complete(Ok(7)));
        let (first, last) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let mut done = ticket.poll_with(&Waker::from(Arc::clone(&first)));
        if done.is_pending() {
            done = ticket.poll_with(&Waker::from(Arc::clone(&last)));
        }
        runner.join().unwrap();
        match done {
            Poll::Ready(output) => {
                assert_eq!(output, Ok(7));
                assert_eq!(last.count(), 0);
            }
            Poll::Pending => {
                assert_eq!((first.count(), last.count()), (0, 1));
                assert_eq!(ticket.try_take(), Some(Ok(7)));
            }
        }
        drop(ticket);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&last)), (1, 1));
    });
}

/// run ∥ poll and cancel: the pass skips the job or completes it; neither output nor waker leaks.
#[test]
fn a_dropped_ticket_and_its_pass_do_not_collide() {
    loom::model(|| {
        let (mut ticket, reply) = slot::pair();
        let output = Arc::new(());
        let produced = Arc::clone(&output);
        let runner = thread::spawn(move || {
            let wanted = reply.is_wanted();
            if wanted {
                reply.complete(Ok(produced));
            }
            wanted
        });
        let wakes = Arc::new(Wakes::default());
        let polled = ticket.poll_with(&Waker::from(Arc::clone(&wakes)));
        let got = polled.is_ready();
        drop(polled);
        drop(ticket);
        let ran = runner.join().unwrap();
        assert!(ran || !got, "an output without a run");
        assert!(wakes.count() <= 1);
        assert_eq!((Arc::strong_count(&output), Arc::strong_count(&wakes)), (1, 1));
    });
}

/// complete ∥ complete ∥ poll a join twice: its task is woken once both jobs have ended, or the poll sees
/// both outputs. No wake-up is lost.
#[test]
fn a_join_wakes_its_task_when_the_last_job_ends() {
    loom::model(|| {
        let (tickets, replies): (Vec<_>, Vec<_>) = (0..2).map(|_| slot::pair()).unzip();
        let mut joined = Tickets(tickets.into_iter().map(Part::new).collect());
        let runners: Vec<_> = (1..)
            .zip(replies)
            .map(|(output, reply)| thread::spawn(move || reply.complete(Ok(output))))
            .collect();
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut poll = || Pin::new(&mut joined).poll(&mut Context::from_waker(&waker));
        let mut done = poll();
        if done.is_pending() {
            done = poll();
        }
        for runner in runners {
            runner.join().unwrap();
        }
        if done.is_pending() {
            assert!(wakes.count() > 0, "a wake-up was lost");
            done = poll();
        }
        assert_eq!(done, Poll::Ready(Ok(vec![1, 2])));
        drop((joined, waker));
        assert_eq!(Arc::strong_count(&wakes), 1);
    });
}

/// The obligation to answer is dropped ∥ wait: the waiting thread learns of the shutdown.
#[test]
fn a_dropped_reply_ends_the_wait() {
    loom::model(|| {
        let (ticket, reply) = slot::pair::<u64>();
        let owner = thread::spawn(move || drop(reply));
        assert_eq!(ticket.wait(), Err(JobError::ShutDown));
        owner.join().unwrap();
    });
}

/// publish and notify ∥ look and sleep: two cores, two jobs, one producer; no job is left behind
/// while a core sleeps.
#[test]
fn no_core_sleeps_over_a_job() {
    struct Cores {
        sleepers: Sleepers,
        queue: Queue<Reply<u32>>,
    }

    /// Ends after one job, so that the other job depends on the other core.
    fn core(cores: &Cores) {
        let mut core = Core::new(0, None, &Clock::default());
        cores.sleepers.start_searching();
        loop {
            if let Some(reply) = cores.queue.pop() {
                cores.sleepers.found(|| cores.queue.len());
                return reply.complete(Ok(1));
            }
            cores.sleepers.sleep(&mut core, || cores.queue.len() > 0);
        }
    }

    bounded(2, || {
        let cores = Arc::new(Cores {
            sleepers: Sleepers::new(2, None),
            queue: Queue::new(2),
        });
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let cores = Arc::clone(&cores);
                thread::spawn(move || core(&cores))
            })
            .collect();
        let tickets: Vec<_> = (0..2)
            .map(|_| {
                let (ticket, reply) = slot::pair();
                assert!(cores.queue.push(reply).is_ok());
                cores.sleepers.notify(|| cores.queue.len());
                ticket
            })
            .collect();
        // If a core slept over a job, all threads would block, which loom reports.
        for ticket in tickets {
            assert_eq!(ticket.wait(), Ok(1));
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Cores are lent as soon as they sleep, and run until the engine closes:
/// jobs run on reclaimed cores only, and no core is reclaimed twice.
#[test]
fn no_core_sleeps_over_a_job_or_runs_it_while_lent() {
    struct Cores {
        sleepers: Sleepers,
        queue: Queue<Reply<u32>>,
        lent: Arc<Lent>,
        closed: loom::sync::atomic::AtomicBool,
    }

    fn core(cores: &Cores, cpu: usize) {
        let lending = to(&cores.lent);
        let mut core = Core::new(cpu, Some(&lending), &Clock::default());
        cores.sleepers.start_searching();
        loop {
            if let Some(reply) = cores.queue.pop() {
                cores.sleepers.found(|| cores.queue.len());
                assert!(!cores.lent.is_lent(cpu));
                reply.complete(Ok(1));
                cores.sleepers.start_searching();
                continue;
            }
            let closed = || cores.closed.load(Ordering::Acquire);
            if closed() {
                return;
            }
            let anything = || closed() || cores.queue.len() > 0;
            cores.sleepers.sleep(&mut core, anything);
        }
    }

    fn with(count: usize, jobs: usize) {
        bounded(2, move || {
            let lent = Arc::new(Lent::default());
            let cores = Arc::new(Cores {
                sleepers: Sleepers::new(count, Some(&to(&lent))),
                queue: Queue::new(jobs),
                lent,
                closed: loom::sync::atomic::AtomicBool::new(false),
            });
            let start = |cpu| {
                let cores = Arc::clone(&cores);
                thread::spawn(move || core(&cores, cpu))
            };
            let threads: Vec<_> = (0..count).map(start).collect();
            for _ in 0..jobs {
                let (ticket, reply) = slot::pair();
                assert!(cores.queue.push(reply).is_ok());
                cores.sleepers.notify(|| cores.queue.len());
                assert_eq!(ticket.wait(), Ok(1));
            }
            cores.closed.store(true, Ordering::Release);
            cores.sleepers.wake_all();
            for thread in threads {
                thread.join().unwrap();
            }
            let counters = cores.sleepers.counters();
            assert_eq!((counters.active, counters.lent), (count, 0));
            assert_eq!(counters.loans, counters.reclaims);
        });
    }

    with(1, 2);
    with(2, 1);
}

/// submit, run on a vector core, wait, all of it twice, shut down: the core's books still balance
/// when the second job comes.
#[test]
fn a_vector_core_answers() {
    bounded(2, || {
        let engine = on_a_vector_core();
        let worker = engine.worker();
        assert_eq!(worker.submit(Add(1)).unwrap().wait(), Ok(2));
        assert_eq!(worker.submit(Add(2)).unwrap().wait(), Ok(3));
        drop(worker);
        engine.shutdown();
        assert_eq!(engine.counters()[0].jobs, 2);
    });
}

/// Job of a core that is lent whenever it sleeps: passes run only after a reclaim.
#[test]
fn a_lent_vector_core_answers() {
    bounded(2, || {
        let lent = Arc::new(Lent::default());
        let config = Config {
            placement: Placement::VectorCores(Cpus::from_iter([0])),
            queue_limit: 4,
            lending: Some(to(&lent)),
            ..Config::default()
        };
        let careful = Operations::new().with(Careful(Arc::clone(&lent)));
        let engine = Engine::start_with(config, careful).unwrap();
        let worker = engine.worker();
        assert_eq!(worker.submit(Add(1)).unwrap().wait(), Ok(2));
        assert_eq!(worker.submit(Add(2)).unwrap().wait(), Ok(3));
        drop(worker);
        engine.shutdown();
        assert_eq!(engine.counters()[0].jobs, 2);
        let counters = engine.vector_cores();
        assert_eq!((counters.active, counters.lent), (1, 0));
        assert_eq!(counters.loans, counters.reclaims);
        assert!(!lent.is_lent(0));
    });
}

/// submit ∥ shutdown: the job is refused, or accepted and answered; never neither.
#[test]
fn shutdown_leaves_no_job_unanswered() {
    bounded(2, || {
        let engine = on_a_vector_core();
        let submitter = {
            let engine = engine.clone();
            thread::spawn(move || match engine.worker().submit(Add(1)) {
                Ok(ticket) => Some(ticket.wait()),
                Err(refusal) => {
                    assert_eq!(refusal, SubmitError::ShutDown);
                    None
                }
            })
        };
        engine.shutdown();
        let answer = submitter.join().unwrap();
        let counters = engine.counters().remove(0);
        match answer {
            None => assert_eq!((counters.jobs, counters.shut_down), (0, 0)),
            Some(Ok(sum)) => assert_eq!((sum, counters.jobs, counters.shut_down), (2, 1, 0)),
            Some(Err(error)) => {
                assert_eq!(error, JobError::ShutDown);
                assert_eq!((counters.jobs, counters.shut_down), (0, 1));
            }
        }
    });
}

/// cancel ∥ run on a vector core: counted on exactly one side.
#[test]
fn a_cancelled_job_is_counted_once() {
    bounded(3, || {
        let engine = on_a_vector_core();
        let worker = engine.worker();
        drop(worker.submit(Add(1)).unwrap());
        drop(worker);
        engine.shutdown();
        let counters = engine.counters().remove(0);
        assert_eq!(counters.jobs + counters.cancelled + counters.shut_down, 1);
    });
}

/// Three threads in the blocking form, one of which may run a pass: all are answered, in each order
/// of leaders.
#[test]
fn leadership_is_handed_over() {
    bounded(3, || {
        let counters = three_threads_lead_or_follow(adders());
        assert_eq!((counters.jobs, counters.lanes_filled), (3, 3));
    });
}

/// Leadership where one job is not worth a pass: a leader runs jobs alone or together, and all are
/// answered and counted once.
#[test]
fn leadership_is_handed_over_by_jobs_that_run_alone() {
    bounded(3, || {
        let costs = CostModel::default();
        costs.learn(TWO_ARE_WORTH_A_PASS);
        let reluctant = Operations::new().with_costs(Adder, Arc::new(costs));
        let counters = three_threads_lead_or_follow(reluctant);
        assert_eq!(counters.jobs, 3);
        assert_eq!(counters.alone + counters.lanes_filled, 3);
        assert_eq!(counters.fills[1], 0);
    });
}

fn three_threads_lead_or_follow(operations: Operations) -> OperationCounters {
    fn lead_or_follow(group: &Group, registry: &Registry, x: u64) {
        let route = registry.route(&Add(x)).unwrap();
        assert_eq!(group.run(route, Add(x), 8), Ok(x + 1));
    }

    let registry = Arc::new(operations.register(None).unwrap());
    let group = Arc::new(Group::new(&registry.lines, 1));
    let threads: Vec<_> = (0..2)
        .map(|x| {
            let (group, registry) = (Arc::clone(&group), Arc::clone(&registry));
            thread::spawn(move || lead_or_follow(&group, &registry, x))
        })
        .collect();
    lead_or_follow(&group, &registry, 10);
    for thread in threads {
        thread.join().unwrap();
    }
    registry.lines[0].counters()
}

/// A worker is dropped on one thread while another waits for its job.
#[test]
fn a_dropped_worker_ends_the_wait() {
    bounded(3, || {
        let engine = Engine::start_with(Config::default(), adders()).unwrap();
        let worker = engine.worker();
        let (runs, ends) = (worker.submit(Add(1)).unwrap(), worker.submit(Add(2)).unwrap());
        let waiter = thread::spawn(move || (runs.wait(), ends.wait()));
        // Two jobs fill a pass, the third does not.
        let third = worker.submit(Add(3)).unwrap();
        assert_eq!(worker.turn(Idle::No), 2);
        drop(worker);
        assert_eq!(waiter.join().unwrap(), (Ok(2), Ok(3)));
        assert_eq!(third.wait(), Err(JobError::ShutDown));
    });
}

/// Explores executions with at most so many preemptions, which is where bugs live and what is
/// affordable with several threads.
fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(model);
}

fn on_a_vector_core() -> Engine {
    Engine::start_with(
        Config {
            placement: Placement::VectorCores(Cpus::from_iter([0])),
            queue_limit: 4,
            ..Config::default()
        },
        adders(),
    )
    .unwrap()
}

fn adders() -> Operations {
    Operations::new().with(Adder)
}

struct Add(u64);

impl Request for Add {
    type Output = u64;
}

struct Adder;

const TWO_ARE_WORTH_A_PASS: Costs = Costs {
    lanes: 2,
    first: 19,
    further: 0,
    alone: 10,
};

impl Operation for Adder {
    type Request = Add;

    fn name(&self) -> &'static str {
        "add"
    }

    fn lanes(&self) -> usize {
        2
    }

    fn pass(&self, requests: &[Add]) -> Vec<u64> {
        requests.iter().map(|Add(x)| x + 1).collect()
    }

    fn specimen(&self) -> Add {
        Add(1)
    }
}

/// Adds only on cores that are not lent.
struct Careful(Arc<Lent>);

impl Operation for Careful {
    type Request = Add;

    fn name(&self) -> &'static str {
        "careful"
    }

    fn lanes(&self) -> usize {
        2
    }

    fn pass(&self, requests: &[Add]) -> Vec<u64> {
        assert!(!self.0.is_lent(0), "a pass on a lent core");
        requests.iter().map(|Add(x)| x + 1).collect()
    }

    fn specimen(&self) -> Add {
        Add(1)
    }
}

/// Two CPUs, true if lent. Not a part of the model.
#[derive(Default)]
struct Lent([std::sync::atomic::AtomicBool; 2]);

impl Lent {
    fn is_lent(&self, cpu: usize) -> bool {
        self.0[cpu].load(Ordering::SeqCst)
    }
}

impl CoreBorrower for Lent {
    fn lend(&self, cpu: usize) {
        let before = self.0[cpu].swap(true, Ordering::SeqCst);
        assert!(!before, "lent twice");
    }

    fn reclaim(&self, cpu: usize) -> std::io::Result<()> {
        let before = self.0[cpu].swap(false, Ordering::SeqCst);
        assert!(before, "reclaimed twice");
        Ok(())
    }
}

fn to(lent: &Arc<Lent>) -> CoreLending {
    CoreLending {
        to: Arc::clone(lent) as Arc<dyn CoreBorrower>,
        rest: Some(Duration::ZERO),
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
