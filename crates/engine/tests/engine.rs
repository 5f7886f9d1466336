//! The engine as its callers see it, on toy operations: nothing here depends on a clock.
#![cfg(not(loom))]

use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use widelane_engine::{
    Config, CostModel, Costs, Cpus, Engine, Idle, JobError, Operation, OperationCounters, Operations, Placement,
    Request, StartError, SubmitError, Switch, Ticket, Worker,
};

/// Defines an operation: name, lanes, its type, request and answer, a specimen, and the pass.
macro_rules! operation {
    ($name:literal, $lanes:literal, $operation:ty: $request:ty => $answer:ty, $specimen:expr, $pass:expr) => {
        impl Request for $request {
            type Output = $answer;
        }

        impl Operation for $operation {
            type Request = $request;

            fn name(&self) -> &'static str {
                $name
            }

            fn lanes(&self) -> usize {
                $lanes
            }

            fn pass(&self, requests: &[$request]) -> Vec<$answer> {
                ($pass)(requests)
            }

            fn specimen(&self) -> $request {
                $specimen
            }
        }
    };
}

#[test]
fn a_partial_pass_runs_only_when_the_worker_is_idle() {
    let engine = inline(toys());
    let worker = engine.worker();
    let tickets: Vec<_> = (0..3).map(|x| worker.submit(Square(x)).unwrap()).collect();
    assert_eq!((worker.waiting(), worker.submitted()), (3, 3));
    assert_eq!(worker.turn(Idle::No), 0);
    assert_eq!(worker.turn(Idle::Yes), 3);
    assert_eq!(worker.turn(Idle::Yes), 0);
    assert_eq!(worker.waiting(), 0);
    let squares: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert_eq!(squares, [0, 1, 4]);
    let counters = of(&engine, "square");
    assert_eq!((counters.jobs, counters.passes, counters.lanes_filled), (3, 1, 3));
    assert_eq!(counters.fills, [0, 0, 0, 1, 0]);
}

#[test]
fn a_full_pass_runs_at_once_and_leaves_the_rest() {
    let engine = inline(toys());
    let worker = engine.worker();
    let tickets: Vec<_> = (0..6).map(|x| worker.submit(Square(x)).unwrap()).collect();
    assert_eq!(worker.turn(Idle::No), 4);
    assert_eq!(worker.turn(Idle::No), 0);
    assert!(tickets[3].is_done() && !tickets[4].is_done());
    assert_eq!(worker.turn(Idle::Yes), 2);
    assert!(tickets[5].is_done());
}

#[test]
fn a_job_that_no_other_could_join_needs_no_queue() {
    let engine = inline(toys());
    let worker = engine.worker();
    assert!(worker.is_quiet(0));
    assert!(!worker.is_quiet(1), "another task may submit");
    let waiting = worker.submit(Square(2)).unwrap();
    assert!(!worker.is_quiet(0), "a job waits");
    assert_eq!(worker.turn(Idle::Yes), 1);
    assert_eq!(waiting.wait(), Ok(4));
    assert!(worker.is_quiet(0));
    assert_eq!(engine.run_at_once(Square(3)), Ok(9));
    let counters = of(&engine, "square");
    assert_eq!((counters.jobs, counters.at_once), (2, 1));
    engine.shutdown();
    let refused = JobError::Refused(SubmitError::ShutDown);
    assert_eq!(engine.run_at_once(Square(3)), Err(refused));
    let elsewhere = on_vector_cores(&[0], 8);
    assert!(!elsewhere.worker().is_quiet(0), "passes run elsewhere");
}

#[test]
fn jobs_of_different_operations_do_not_share_a_pass() {
    let engine = inline(toys());
    let worker = engine.worker();
    let small = worker.submit(Cube(2)).unwrap();
    let large = worker.submit(Cube(1000)).unwrap();
    let square = worker.submit(Square(5)).unwrap();
    while worker.turn(Idle::Yes) > 0 {}
    assert_eq!(small.wait(), Ok(8));
    assert_eq!(large.wait(), Ok(1_000_000_000));
    assert_eq!(square.wait(), Ok(25));
    for name in ["small-cube", "large-cube", "square"] {
        assert_eq!((of(&engine, name).jobs, of(&engine, name).passes), (1, 1), "{name}");
    }
}

#[test]
fn a_worker_can_wait_for_its_own_jobs() {
    for placement in [Placement::Inline, Placement::VectorCores(Cpus::from_iter([0]))] {
        let config = Config {
            placement,
            ..Config::default()
        };
        let engine = Engine::start_with(config, toys()).unwrap();
        let worker = engine.worker();
        let first = worker.submit(Cube(3)).unwrap();
        let second = worker.submit(Square(3)).unwrap();
        assert_eq!(worker.wait(second), Ok(9));
        assert_eq!(worker.wait(first), Ok(27));
        // Another worker has the job: waiting for it means waiting for that worker.
        let ticket = worker.submit(Square(4)).unwrap();
        thread::scope(|scope| {
            let other = engine.clone();
            let waiting = scope.spawn(move || other.worker().wait(ticket));
            worker.turn(Idle::Yes);
            assert_eq!(waiting.join().unwrap(), Ok(16));
        });
    }
}

#[test]
fn a_ticket_is_a_future_that_is_woken_by_its_pass() {
    let engine = inline(toys());
    let worker = engine.worker();
    let mut ticket = pin!(worker.submit(Square(9)).unwrap());
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    assert_eq!(ticket.as_mut().poll(&mut context), Poll::Pending);
    // Another waker replaces the first, as when a future moves between tasks.
    let later = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&later));
    let mut context = Context::from_waker(&waker);
    assert_eq!(ticket.as_mut().poll(&mut context), Poll::Pending);
    assert_eq!(worker.turn(Idle::Yes), 1);
    assert_eq!((wakes.count(), later.count()), (0, 1));
    assert_eq!(ticket.as_mut().poll(&mut context), Poll::Ready(Ok(81)));
}

#[test]
fn a_waker_that_panics_harms_no_other_job() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("planted in a waker");
        }
    }

    let engine = inline(toys());
    let worker = engine.worker();
    let mut first = pin!(worker.submit(Square(2)).unwrap());
    let second = worker.submit(Square(3)).unwrap();
    let waker = Waker::from(Arc::new(Bomb));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(worker.turn(Idle::Yes), 2);
    assert_eq!(second.wait(), Ok(9));
    assert_eq!(first.try_take(), Some(Ok(4)));
    assert_eq!(first.try_take(), None);
}

#[test]
fn a_dropped_ticket_cancels_and_makes_room_in_the_pass() {
    let engine = inline(toys());
    let worker = engine.worker();
    let mut tickets: Vec<_> = (0..5).map(|x| worker.submit(Square(x)).unwrap()).collect();
    drop(tickets.drain(1..3));
    // Three wanted jobs are no full pass, although five were submitted.
    assert_eq!(worker.turn(Idle::No), 0);
    assert_eq!(worker.waiting(), 3);
    assert_eq!(worker.turn(Idle::Yes), 3);
    let squares: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert_eq!(squares, [0, 9, 16]);
    let counters = of(&engine, "square");
    assert_eq!((counters.jobs, counters.cancelled), (3, 2));
    assert_eq!(counters.fills, [0, 0, 0, 1, 0]);
}

#[test]
fn only_the_guilty_job_suffers_from_a_panic() {
    let engine = inline(toys());
    let worker = engine.worker();
    let tickets: Vec<_> = [1, POISON, 3, 4].map(|x| worker.submit(Square(x)).unwrap()).into();
    assert_eq!(worker.turn(Idle::No), 4);
    let results: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait()).collect();
    let panicked = Err(JobError::Panicked { operation: "square" });
    assert_eq!(results, [Ok(1), panicked, Ok(9), Ok(16)]);
    let counters = of(&engine, "square");
    assert_eq!((counters.jobs, counters.panicked, counters.passes), (3, 1, 1));
    assert_eq!(engine.run(Square(POISON)), panicked);
    assert_eq!(engine.run(Square(7)), Ok(49), "the engine survives");
}

#[test]
fn an_operation_that_loses_outputs_gives_no_wrong_answer() {
    let engine = inline(Operations::new().with(Loser));
    let worker = engine.worker();
    let tickets: Vec<_> = (0..2).map(|_| worker.submit(Loss).unwrap()).collect();
    while worker.turn(Idle::Yes) > 0 {}
    for ticket in tickets {
        assert_eq!(ticket.wait(), Err(JobError::Panicked { operation: "loser" }));
    }
}

/// Thread-locals of a program may still sign when their thread ends.
#[test]
fn a_thread_that_ends_runs_jobs_in_its_destructors() {
    struct Last(Engine, mpsc::Sender<Result<u64, JobError>>);
    impl Drop for Last {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.run(Square(3)));
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    let engine = inline(toys());
    // The thread below is the second one, so that it looks for others to share a pass with.
    assert_eq!(engine.run(Square(1)), Ok(1));
    let (sender, receiver) = mpsc::channel();
    let ended = thread::spawn({
        let engine = engine.clone();
        move || {
            // Older than the thread-locals of the engine, and so destroyed after them.
            LAST.set(Some(Last(engine.clone(), sender)));
            engine.run(Square(2))
        }
    });
    assert_eq!(ended.join().unwrap(), Ok(4));
    assert_eq!(receiver.recv(), Ok(Ok(9)));
}

#[test]
fn a_full_queue_refuses_and_says_what_to_do() {
    let config = Config {
        queue_limit: 2,
        ..Config::default()
    };
    let engine = Engine::start_with(config, toys()).unwrap();
    let worker = engine.worker();
    let kept: Vec<_> = (0..2).map(|x| worker.submit(Square(x)).unwrap()).collect();
    let refused = worker.submit(Square(2)).unwrap_err();
    assert_eq!(
        refused,
        SubmitError::Overloaded {
            operation: "square",
            limit: 2
        }
    );
    let message = refused.to_string();
    for part in ["square", "2 jobs", "`queue_limit`"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(
        worker.submit(Cube(2)).is_ok(),
        "another operation has a queue of its own"
    );
    assert_eq!(
        (worker.waiting(), worker.submitted()),
        (3, 3),
        "a refused job leaves no trace"
    );
    while worker.turn(Idle::Yes) > 0 {}
    assert!(kept.into_iter().all(|ticket| ticket.wait().is_ok()));
    assert!(worker.submit(Square(3)).is_ok());
    assert_eq!(of(&engine, "square").rejected, 1);
}

#[test]
fn an_unknown_request_is_refused_by_name() {
    let engine = inline(Operations::new().with(Squares));
    let error = engine.worker().submit(Cube(1)).unwrap_err();
    assert!(matches!(error, SubmitError::Unserved { .. }));
    assert!(error.to_string().contains("Cube"), "{error}");
    assert_eq!(engine.run(Cube(1)), Err(JobError::Refused(error)));
}

#[test]
fn bad_configurations_do_not_start() {
    let start = |config| Engine::start_with(config, toys()).map(drop);
    let cpus = |cpus: &[usize]| Config {
        placement: Placement::VectorCores(cpus.iter().copied().collect()),
        ..Config::default()
    };
    let error = start(Config {
        queue_limit: 0,
        ..Config::default()
    });
    assert!(matches!(error, Err(StartError::QueueLimitZero)));
    assert!(matches!(start(cpus(&[])), Err(StartError::NoVectorCpus)));
    let error = start(cpus(&[0, 1023])).unwrap_err();
    assert!(matches!(error, StartError::Pin { cpu: 1023, .. }), "{error:?}");
    assert!(error.to_string().contains("`vector_cpus`"), "{error}");
    let twice = Operations::new().with(Squares).with(Squares);
    let error = Engine::start_with(Config::default(), twice).map(drop);
    assert!(matches!(error, Err(StartError::DuplicateOperation { name: "square" })));
}

#[test]
fn shutdown_refuses_and_dropping_the_worker_ends_what_it_gathered() {
    let engine = inline(toys());
    let worker = engine.worker();
    let run = worker.submit(Square(3)).unwrap();
    engine.shutdown();
    engine.shutdown();
    assert_eq!(worker.submit(Square(4)).unwrap_err(), SubmitError::ShutDown);
    assert_eq!(engine.run(Square(4)), Err(JobError::Refused(SubmitError::ShutDown)));
    assert_eq!(worker.turn(Idle::Yes), 1, "gathered jobs may still run");
    assert_eq!(run.wait(), Ok(9));

    let engine = inline(toys());
    let worker = engine.worker();
    let lost = worker.submit(Square(3)).unwrap();
    drop(worker.submit(Square(4)).unwrap());
    drop(worker);
    assert_eq!(lost.wait(), Err(JobError::ShutDown));
    let counters = of(&engine, "square");
    assert_eq!((counters.shut_down, counters.cancelled), (1, 1));
}

#[test]
fn no_more_threads_lead_than_there_are_cores() {
    let gate = Arc::new(Gate::default());
    let engine = inline(Operations::new().with(gated(&gate, 4)));
    let cores = thread::available_parallelism().unwrap().get();
    let submit = |x| {
        let engine = engine.clone();
        thread::spawn(move || engine.run(Pass(x)))
    };
    // One leader a core, each held inside its pass ...
    let leaders: Vec<_> = (0..cores as u64).map(submit).collect();
    gate.wait_until_inside(cores);
    // ... while others come. None may enter before the gate opens; then all must come out.
    let others: Vec<_> = (100..100 + 8 * cores as u64).map(submit).collect();
    gate.open();
    for (thread, x) in leaders.into_iter().zip(0..) {
        assert_eq!(thread.join().unwrap(), Ok(x + 1));
    }
    for (thread, x) in others.into_iter().zip(100..) {
        assert_eq!(thread.join().unwrap(), Ok(x + 1));
    }
    let counters = of(&engine, "gated");
    assert_eq!(counters.jobs, 9 * cores as u64);
    assert!(gate.most_inside() <= cores, "more passes than cores at once");
}

#[test]
fn jobs_that_cannot_share_a_pass_do_not_delay_others() {
    let gate = Arc::new(Gate::default());
    let engine = inline(toys().with(gated(&gate, 1)));
    let more_than_cores = thread::available_parallelism().unwrap().get() + 1;
    let threads: Vec<_> = (0..more_than_cores as u64)
        .map(|x| {
            let engine = engine.clone();
            thread::spawn(move || engine.run(Pass(x)))
        })
        .collect();
    gate.wait_until_inside(more_than_cores);
    assert_eq!(engine.run(Square(6)), Ok(36));
    gate.open();
    for (thread, x) in threads.into_iter().zip(0..) {
        assert_eq!(thread.join().unwrap(), Ok(x + 1));
    }
}

#[test]
fn many_threads_block_without_losing_a_job() {
    let engine = inline(toys());
    let threads: Vec<_> = (0..8u64)
        .map(|thread| {
            let engine = engine.clone();
            thread::spawn(move || {
                for i in 0..2_000 {
                    let x = thread * 10_000 + i;
                    match i % 3 {
                        0 => assert_eq!(engine.run(Square(x)), Ok(x * x)),
                        1 => assert_eq!(engine.run(Cube(i % 50)), Ok((i % 50).pow(3))),
                        _ if i % 100 == 2 => assert!(engine.run(Square(POISON)).is_err()),
                        _ => assert_eq!(engine.run(Cube(500)), Ok(125_000_000)),
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let all = engine.counters();
    let answered: u64 = all.iter().map(|line| line.jobs).sum();
    let panicked: u64 = all.iter().map(|line| line.panicked).sum();
    assert_eq!(answered + panicked, 16_000);
    assert!(panicked > 0);
    let mut sums = Vec::new();
    engine.for_each_totals(|_, name, totals| sums.push((name, totals)));
    assert_eq!(sums.len(), all.len());
    for ((name, totals), line) in sums.iter().zip(&all) {
        assert_eq!(
            (*name, totals.lanes, totals.jobs, totals.alone),
            (line.name, line.lanes as u64, line.jobs, line.alone)
        );
        assert_eq!(
            (totals.at_once, totals.passes, totals.lanes_filled),
            (line.at_once, line.passes, line.lanes_filled)
        );
        assert_eq!(totals.failed, line.panicked);
        assert_eq!(u128::from(totals.busy_ns), line.kernel.as_nanos());
    }
    for line in all {
        assert_eq!(line.lanes_filled, line.jobs + line.panicked, "{}", line.name);
    }
}

#[test]
fn vector_cores_serve_many_workers() {
    let engine = on_vector_cores(&[0], 4096);
    let workers = 4;
    let start = Arc::new(Barrier::new(workers));
    let threads: Vec<_> = (0..workers as u64)
        .map(|number| {
            let (engine, start) = (engine.clone(), Arc::clone(&start));
            thread::spawn(move || {
                let worker = engine.worker();
                start.wait();
                for round in 0..200u64 {
                    let base = number * 1000 + round;
                    let squares: Vec<_> = (0..5)
                        .map(|i| (base + i, worker.submit(Square(base + i)).unwrap()))
                        .collect();
                    let cube = worker.submit(Cube(round)).unwrap();
                    assert_eq!((worker.turn(Idle::Yes), worker.waiting()), (0, 0));
                    for (x, ticket) in squares {
                        assert_eq!(ticket.wait(), Ok(x * x));
                    }
                    assert_eq!(cube.wait(), Ok(round.pow(3)));
                    assert_eq!(engine.run(Square(round)), Ok(round * round));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    engine.shutdown();
    let total: u64 = engine.counters().iter().map(|line| line.jobs).sum();
    assert_eq!(total, 4 * 200 * 7);
}

#[test]
fn vector_cores_are_pinned_where_told() {
    struct Where;
    struct Ask;
    operation!("where", 1, Where: Ask => (usize, String), Ask, |_: &[Ask]| {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        assert_eq!(allowed.count(), 1);
        let name = thread::current().name().unwrap_or_default().to_owned();
        vec![(rustix::thread::sched_getcpu(), name)]
    });

    let config = Config {
        placement: Placement::VectorCores(Cpus::from_iter([0])),
        ..Config::default()
    };
    let engine = Engine::start_with(config, Operations::new().with(Where)).unwrap();
    assert_eq!(engine.run(Ask), Ok((0, "vector-0".to_owned())));
}

#[test]
fn vector_cores_refuse_when_the_queue_is_full() {
    let gate = Arc::new(Gate::default());
    let config = Config {
        placement: Placement::VectorCores(Cpus::from_iter([0])),
        queue_limit: 3,
        ..Config::default()
    };
    let operations = Operations::new().with(gated(&gate, 4));
    let engine = Engine::start_with(config, operations).unwrap();
    let worker = engine.worker();
    let running = worker.submit(Pass(0)).unwrap();
    gate.wait_until_inside(1);
    let queued: Vec<_> = (1..4).map(|x| worker.submit(Pass(x)).unwrap()).collect();
    let refused = worker.submit(Pass(4)).unwrap_err();
    assert_eq!(
        refused,
        SubmitError::Overloaded {
            operation: "gated",
            limit: 3
        }
    );
    gate.open();
    assert_eq!(running.wait(), Ok(1));
    let results: Vec<_> = queued.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    assert_eq!(results, [2, 3, 4]);
    let counters = of(&engine, "gated");
    assert_eq!((counters.jobs, counters.rejected, counters.passes), (4, 1, 2));
}

#[test]
fn a_vector_core_survives_panicking_jobs_wakers_and_drops() {
    let engine = on_vector_cores(&[0], 64);
    let worker = engine.worker();
    for round in 0..50 {
        let tickets: Vec<_> = [POISON, round, POISON]
            .map(|x| worker.submit(Square(x)).unwrap())
            .into();
        let results: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait()).collect();
        assert_eq!(results[1], Ok(round * round));
        assert!(results[0].is_err() && results[2].is_err());
    }
    assert_eq!(of(&engine, "square").panicked, 100);
}

#[test]
fn shutdown_under_load_answers_every_job() {
    for _ in 0..20 {
        let engine = on_vector_cores(&[0], 64);
        let (accepted, tickets) = mpsc::channel();
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (engine, accepted) = (engine.clone(), accepted.clone());
                thread::spawn(move || {
                    let worker = engine.worker();
                    loop {
                        match worker.submit(Square(thread)) {
                            Ok(ticket) => accepted.send((thread, ticket)).unwrap(),
                            Err(SubmitError::Overloaded { .. }) => thread::yield_now(),
                            Err(SubmitError::ShutDown) => break,
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        drop(accepted);
        let (thread, first) = tickets.recv().unwrap();
        assert_eq!(first.wait(), Ok(thread * thread));
        engine.shutdown();
        let mut total = 1;
        let mut answered = 1;
        for (thread, ticket) in tickets {
            total += 1;
            match ticket.wait() {
                Ok(square) => {
                    assert_eq!(square, thread * thread);
                    answered += 1;
                }
                Err(error) => assert_eq!(error, JobError::ShutDown),
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
        let counters = of(&engine, "square");
        assert_eq!(counters.jobs, answered);
        assert_eq!(counters.jobs + counters.shut_down, total);
    }
}

#[test]
fn a_storm_of_cancellations_leaves_the_counters_consistent() {
    for placement in [Placement::Inline, Placement::VectorCores(Cpus::from_iter([0]))] {
        let config = Config {
            placement,
            queue_limit: 32,
            ..Config::default()
        };
        let engine = Engine::start_with(config, toys()).unwrap();
        let wakes = Arc::new(Wakes::default());
        let threads: Vec<_> = (0..4u64)
            .map(|number| {
                let (engine, wakes) = (engine.clone(), Arc::clone(&wakes));
                thread::spawn(move || storm(&engine.worker(), number, &wakes))
            })
            .collect();
        let mut accepted = 0;
        let mut refused = 0;
        for thread in threads {
            let (yes, no) = thread.join().unwrap();
            accepted += yes;
            refused += no;
        }
        engine.shutdown();
        let all = engine.counters();
        let sum = |count: fn(&OperationCounters) -> u64| all.iter().map(count).sum::<u64>();
        assert_eq!(sum(|line| line.rejected), refused);
        let ended = sum(|line| line.jobs + line.cancelled + line.panicked + line.shut_down);
        assert_eq!(ended, accepted);
        assert_eq!(sum(|line| line.lanes_filled), sum(|line| line.jobs + line.panicked));
    }
}

/// Submits, and drops tickets before, during and after their passes; returns how many jobs were
/// accepted and refused.
fn storm(worker: &Worker, number: u64, wakes: &Arc<Wakes>) -> (u64, u64) {
    let waker = Waker::from(Arc::clone(wakes));
    let mut context = Context::from_waker(&waker);
    let (mut accepted, mut refused) = (0, 0);
    let mut held = Vec::new();
    let mut random = number + 1;
    for _ in 0..5_000 {
        // A linear congruential generator is enough to mix the cases.
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let x = if random >> 40 & 63 == 0 { POISON } else { number };
        match worker.submit(Square(x)) {
            Ok(mut ticket) => {
                accepted += 1;
                if random >> 33 & 1 == 0 {
                    let _ = pin!(&mut ticket).poll(&mut context);
                }
                if random >> 34 & 3 != 0 {
                    held.push(ticket);
                }
            }
            Err(SubmitError::Overloaded { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        match random >> 36 & 7 {
            0 => held.clear(),
            1 => drop(worker.turn(Idle::Yes)),
            2 => drop(held.pop()),
            _ => drop(worker.turn(Idle::No)),
        }
    }
    (accepted, refused)
}

#[test]
fn the_last_handle_may_be_dropped_by_a_vector_core() {
    struct Owner(#[allow(dead_code, reason = "kept to be dropped")] Option<Engine>);
    struct Keep;
    operation!("keep", 1, Keep: Owner => (), Owner(None), |requests: &[Owner]| {
        requests.iter().map(|_| ()).collect()
    });

    let config = Config {
        placement: Placement::VectorCores(Cpus::from_iter([0])),
        ..Config::default()
    };
    let engine = Engine::start_with(config, Operations::new().with(Keep)).unwrap();
    let worker = engine.worker();
    let ticket = worker.submit(Owner(Some(engine))).unwrap();
    drop(worker);
    assert_eq!(ticket.wait(), Ok(()));
}

#[test]
fn too_few_for_a_pass_run_one_at_a_time() {
    let (engine, costs) = reluctant(Config::default(), 3);
    let worker = engine.worker();
    let submit = |word| worker.submit(Word(word)).unwrap();
    let mut tickets: Vec<_> = (0..2).map(submit).collect();
    assert_eq!(worker.turn(Idle::No), 0);
    assert_eq!(worker.turn(Idle::Yes), 1, "more jobs may still join the other");
    assert!(tickets[0].is_done() && !tickets[1].is_done());
    tickets.extend((2..4).map(submit));
    assert_eq!(worker.turn(Idle::No), 0);
    assert_eq!(worker.saved(), Some(0), "the first job ran alone");
    assert_eq!(worker.turn(Idle::Yes), 3);
    assert_eq!(worker.saved(), Some(3 * 10 - costs_with(3).pass(3)));
    // Passes cost more now: none is worth it, and no job waits for one.
    costs.learn(costs_with(5));
    tickets.extend((4..6).map(submit));
    assert_eq!((worker.turn(Idle::No), worker.turn(Idle::No)), (1, 1));
    let ways: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
    let (alone, pass) = (Way::Alone, Way::Pass);
    assert_eq!(ways, [alone, pass, pass, pass, alone, alone]);
    let counters = of(&engine, "word");
    assert_eq!((counters.jobs, counters.alone, counters.passes), (6, 3, 1));
    assert_eq!(counters.fills, [0, 0, 0, 1, 0]);
}

#[test]
fn what_a_pass_has_saved_is_not_known_without_costs() {
    let worker = inline(toys()).worker();
    let tickets = [1, 2].map(|x| worker.submit(Square(x)).unwrap());
    assert_eq!(worker.turn(Idle::Yes), 2);
    assert_eq!(worker.saved(), None);
    assert!(tickets.iter().all(widelane_engine::Ticket::is_done));
}

#[test]
fn what_needs_lanes_gets_a_pass_of_its_own() {
    let (engine, _) = reluctant(Config::default(), 3);
    let worker = engine.worker();
    let ticket = worker.submit(Word(NEEDS_LANES)).unwrap();
    assert_eq!(worker.turn(Idle::Yes), 1);
    assert_eq!(ticket.wait(), Ok(Way::Pass));
    assert_eq!(engine.run(Word(NEEDS_LANES)), Ok(Way::Pass));
    assert_eq!(engine.run(Word(0)), Ok(Way::Alone));
    let counters = of(&engine, "word");
    assert_eq!((counters.passes, counters.alone), (2, 1));
}

/// An operator takes lanes away while a job waits, and gives them back.
#[test]
fn lanes_that_are_switched_off_get_no_new_job() {
    static OFF: AtomicBool = AtomicBool::new(false);
    for placement in [Placement::Inline, Placement::VectorCores(Cpus::from_iter([0]))] {
        let config = Config {
            placement,
            switch: Switch(|| OFF.load(Ordering::SeqCst)),
            ..Config::default()
        };
        let (engine, _) = reluctant(config, 1);
        let worker = engine.worker();
        assert_eq!(engine.run(Word(0)), Ok(Way::Pass));
        let waiting = worker.submit(Word(1)).unwrap();
        OFF.store(true, Ordering::SeqCst);
        assert!(worker.is_quiet(9), "no job can join a pass now");
        assert_eq!(engine.run(Word(2)), Ok(Way::Alone));
        assert_eq!(engine.run_at_once(Word(3)), Ok(Way::Alone));
        assert_eq!(engine.run_at_once(Word(NEEDS_LANES)), Ok(Way::Pass));
        assert_eq!(worker.wait(waiting), Ok(Way::Pass), "it had begun");
        OFF.store(false, Ordering::SeqCst);
        assert_eq!(engine.run(Word(4)), Ok(Way::Pass));
        let counters = of(&engine, "word");
        assert_eq!((counters.alone, counters.passes), (2, 4));
    }
}

#[test]
fn a_job_that_panics_alone_affects_no_other() {
    let (engine, _) = reluctant(Config::default(), 3);
    let worker = engine.worker();
    let guilty = worker.submit(Word(POISON)).unwrap();
    let other = worker.submit(Word(1)).unwrap();
    while worker.turn(Idle::Yes) > 0 {}
    let panicked = Err(JobError::Panicked { operation: "word" });
    assert_eq!(guilty.wait(), panicked);
    assert_eq!(other.wait(), Ok(Way::Alone));
    assert_eq!(engine.run(Word(POISON)), panicked);
    let counters = of(&engine, "word");
    assert_eq!((counters.jobs, counters.panicked, counters.alone), (1, 2, 3));
}

#[test]
fn a_panic_before_the_pass_affects_no_other_job() {
    let (engine, _) = reluctant(Config::default(), 3);
    let worker = engine.worker();
    let jobs = [Word(BAD_QUESTION), Word(1)].map(|word| worker.submit(word).unwrap());
    while worker.turn(Idle::Yes) > 0 {}
    for job in jobs {
        assert_eq!(job.wait(), Ok(Way::Alone));
    }
    assert_eq!(engine.run(Word(BAD_QUESTION)), Ok(Way::Alone));
    assert_eq!(of(&engine, "word").panicked, 0);
}

/// The ticket is dropped during the pass, so the engine drops the output, which panics.
#[test]
fn an_output_that_panics_when_dropped_affects_no_other_job() {
    #[derive(Debug)]
    struct Output {
        panics: bool,
    }
    impl Drop for Output {
        fn drop(&mut self) {
            assert!(!self.panics || thread::panicking(), "planted");
        }
    }
    struct Job {
        panics: bool,
    }
    impl Request for Job {
        type Output = Output;
    }
    #[derive(Default)]
    struct Drops(Arc<Mutex<Option<Ticket<Output>>>>);
    impl Operation for Drops {
        type Request = Job;
        fn name(&self) -> &'static str {
            "drops"
        }
        fn lanes(&self) -> usize {
            4
        }
        fn pass(&self, requests: &[Job]) -> Vec<Output> {
            drop(self.0.lock().unwrap().take());
            let output = |job: &Job| Output { panics: job.panics };
            requests.iter().map(output).collect()
        }
        fn specimen(&self) -> Job {
            Job { panics: false }
        }
    }

    let operation = Drops::default();
    let ticket = Arc::clone(&operation.0);
    let engine = inline(Operations::new().with(operation));
    let worker = engine.worker();
    let guilty = worker.submit(Job { panics: true }).unwrap();
    let others = [(); 2].map(|()| worker.submit(Job { panics: false }).unwrap());
    *ticket.lock().unwrap() = Some(guilty);
    assert_eq!(worker.turn(Idle::Yes), 3);
    for other in others {
        assert!(other.wait().is_ok());
    }
}

#[test]
fn every_placement_decides_by_the_same_costs() {
    for placement in [Placement::Inline, Placement::VectorCores(Cpus::from_iter([0]))] {
        let config = Config {
            placement,
            ..Config::default()
        };
        let (engine, _) = reluctant(config, 3);
        thread::scope(|scope| {
            for word in 0..8 {
                let engine = &engine;
                scope.spawn(move || {
                    for _ in 0..50 {
                        assert!(engine.run(Word(word)).is_ok());
                    }
                });
            }
        });
        let counters = of(&engine, "word");
        assert_eq!(counters.jobs, 400, "{placement:?}");
        assert_eq!(counters.alone + counters.lanes_filled, 400, "{placement:?}");
        assert_eq!(counters.fills[..3], [0, 0, 0], "{placement:?}");
    }
}

// ---- toys ----

/// Answered with the way it went.
struct Word(u64);

impl Request for Word {
    type Output = Way;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Alone,
    Pass,
}

/// Checks that its costs decide.
struct Words {
    costs: Arc<CostModel>,
}

impl Operation for Words {
    type Request = Word;

    fn name(&self) -> &'static str {
        "word"
    }

    fn lanes(&self) -> usize {
        4
    }

    fn needs_lanes(&self, request: &Word) -> bool {
        assert_ne!(request.0, BAD_QUESTION, "planted");
        request.0 == NEEDS_LANES
    }

    fn pass(&self, requests: &[Word]) -> Vec<Way> {
        let needed = requests.iter().any(|request| self.needs_lanes(request));
        assert!(needed || requests.len() >= self.costs.worth());
        requests.iter().map(|_| Way::Pass).collect()
    }

    fn alone(&self, request: &Word) -> Way {
        assert_ne!(request.0, POISON, "planted");
        Way::Alone
    }

    fn specimen(&self) -> Word {
        Word(0)
    }
}

const NEEDS_LANES: u64 = u64::MAX - 1;

/// Makes `needs_lanes` panic.
const BAD_QUESTION: u64 = u64::MAX - 2;

/// An engine for [`Words`], and how many of them are worth a pass.
fn reluctant(config: Config, worth: usize) -> (Engine, Arc<CostModel>) {
    let costs = Arc::new(CostModel::default());
    costs.learn(costs_with(worth));
    let words = Words {
        costs: Arc::clone(&costs),
    };
    let operations = Operations::new().with_costs(words, Arc::clone(&costs));
    let engine = Engine::start_with(config, operations).unwrap();
    (engine, costs)
}

/// Costs by which `worth` jobs, and no fewer, are worth a pass.
fn costs_with(worth: usize) -> Costs {
    let costs = Costs {
        lanes: 4,
        first: 10 * worth as u64 - 1,
        further: 0,
        alone: 10,
    };
    let expected = if worth > 4 { usize::MAX } else { worth };
    assert_eq!(costs.worth(), expected);
    costs
}

/// Makes its operation panic.
const POISON: u64 = u64::MAX;

struct Square(u64);

struct Squares;

operation!("square", 4, Squares: Square => u64, Square(3), |requests: &[Square]| {
    let jobs = requests.len();
    assert!((1..=4).contains(&jobs), "a pass of {jobs} jobs");
    let square = |Square(x): &Square| {
        assert_ne!(*x, POISON, "planted");
        x * x
    };
    requests.iter().map(square).collect()
});

/// Served by one of two operations, by its size.
struct Cube(u64);

impl Request for Cube {
    type Output = u64;
}

struct Cubes {
    large: bool,
}

impl Operation for Cubes {
    type Request = Cube;

    fn name(&self) -> &'static str {
        if self.large { "large-cube" } else { "small-cube" }
    }

    fn lanes(&self) -> usize {
        if self.large { 1 } else { 2 }
    }

    fn takes(&self, request: &Cube) -> bool {
        self.large == (request.0 >= 100)
    }

    fn pass(&self, requests: &[Cube]) -> Vec<u64> {
        assert!(requests.iter().all(|request| self.takes(request)));
        requests.iter().map(|Cube(x)| x.pow(3)).collect()
    }

    fn specimen(&self) -> Cube {
        Cube(if self.large { 100 } else { 3 })
    }
}

struct Loss;
struct Loser;
operation!("loser", 2, Loser: Loss => (), Loss, |_: &[Loss]| Vec::new());

/// Adds one, inside a pass that a test can hold.
struct Pass(u64);

impl Request for Pass {
    type Output = u64;
}

struct Gated {
    gate: Arc<Gate>,
    lanes: usize,
}

impl Operation for Gated {
    type Request = Pass;

    fn name(&self) -> &'static str {
        "gated"
    }

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn pass(&self, requests: &[Pass]) -> Vec<u64> {
        self.gate.pass();
        requests.iter().map(|Pass(x)| x + 1).collect()
    }

    fn specimen(&self) -> Pass {
        Pass(1)
    }
}

#[derive(Default)]
struct Gate {
    open: AtomicBool,
    inside: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut inside = self.inside.lock().unwrap();
        inside.0 += 1;
        inside.1 = inside.1.max(inside.0);
        self.changed.notify_all();
        while !self.open.load(Ordering::SeqCst) {
            inside = self.changed.wait(inside).unwrap();
        }
        inside.0 -= 1;
    }

    fn wait_until_inside(&self, passes: usize) {
        let mut inside = self.inside.lock().unwrap();
        while inside.0 < passes {
            inside = self.changed.wait(inside).unwrap();
        }
    }

    fn open(&self) {
        let _inside = self.inside.lock().unwrap();
        self.open.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }

    fn most_inside(&self) -> usize {
        self.inside.lock().unwrap().1
    }
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn gated(gate: &Arc<Gate>, lanes: usize) -> Gated {
    let gate = Arc::clone(gate);
    Gated { gate, lanes }
}

fn toys() -> Operations {
    Operations::new()
        .with(Squares)
        .with(Cubes { large: false })
        .with(Cubes { large: true })
}

fn inline(operations: Operations) -> Engine {
    Engine::start_with(Config::default(), operations).unwrap()
}

fn on_vector_cores(cpus: &[usize], queue_limit: usize) -> Engine {
    let config = Config {
        placement: Placement::VectorCores(cpus.iter().copied().collect()),
        queue_limit,
        ..Config::default()
    };
    Engine::start_with(config, toys()).unwrap()
}

fn of(engine: &Engine, name: &str) -> OperationCounters {
    let mut counters = engine.counters().into_iter();
    counters.find(|counters| counters.name == name).unwrap()
}
