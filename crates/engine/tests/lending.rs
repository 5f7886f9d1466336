//! Vector cores that lend their CPUs while they are idle.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use widelane_engine::{Config, CoreBorrower, CoreLending, Cpus, Engine, Operation, Operations, Placement, Request};

/// Several times: lent when idle, reclaimed before a pass.
#[test]
fn an_idle_core_is_lent_and_reclaimed_before_the_next_pass() {
    let borrower = Arc::new(Borrower::default());
    let engine = start(&[0], &borrower, Operations::new().with(Careful(borrower.clone())));
    for round in 1..=3 {
        until(|| engine.vector_cores().lent == 1);
        until(|| borrower.is_lent(0));
        assert_eq!(engine.vector_cores().active, 0);
        assert_eq!(engine.run(Job), Ok(()));
        let counters = engine.vector_cores();
        assert!(counters.reclaims >= round, "{counters:?}");
        assert_eq!(counters.failed_reclaims, 0);
    }
    engine.shutdown();
    let counters = engine.vector_cores();
    assert_eq!((counters.active, counters.lent), (1, 0));
    assert_eq!(counters.loans, counters.reclaims);
    assert!(!borrower.is_lent(0));
}

#[test]
fn without_a_borrower_no_core_is_lent() {
    let config = Config {
        placement: Placement::VectorCores(Cpus::from_iter([0])),
        ..Config::default()
    };
    let borrower = Arc::new(Borrower::default());
    let careful = Operations::new().with(Careful(borrower));
    let engine = Engine::start_with(config, careful).unwrap();
    assert_eq!(engine.run(Job), Ok(()));
    let counters = engine.vector_cores();
    assert_eq!((counters.active, counters.lent), (1, 0));
    assert_eq!((counters.loans, counters.reclaims), (0, 0));
}

/// The pass runs all the same, and a counter shows why other threads may have been slow.
#[test]
fn a_failed_reclaim_is_counted() {
    for fault in [Fault::Stays, Fault::Panics] {
        let borrower = Arc::new(Borrower::default());
        *borrower.fault.lock().unwrap() = Some(fault);
        let operations = Operations::new().with(Gated(Arc::new(Gate::opened())));
        let engine = start(&[0], &borrower, operations);
        for round in 1..=2 {
            until(|| engine.vector_cores().lent == 1);
            assert_eq!(engine.run(Job), Ok(()));
            let counters = engine.vector_cores();
            assert!(counters.failed_reclaims >= round, "{counters:?}");
            assert_eq!(counters.failed_reclaims, counters.reclaims);
        }
    }
}

/// One job reclaims one core. The other core follows when more jobs wait than the first soon runs.
#[test]
fn as_many_cores_are_reclaimed_as_the_load_needs() {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIP: one CPU, and this needs two vector cores");
        return;
    }
    let borrower = Arc::new(Borrower::default());
    let gate = Arc::new(Gate::default());
    let engine = start(&[0, 1], &borrower, Operations::new().with(Gated(gate.clone())));
    until(|| engine.vector_cores().lent == 2);
    let worker = engine.worker();
    let mut tickets = vec![worker.submit(Job).unwrap()];
    gate.wait_until_inside(1);
    for _ in 0..4 {
        tickets.push(worker.submit(Job).unwrap());
    }
    let counters = engine.vector_cores();
    assert_eq!((counters.active, counters.lent), (1, 1));
    tickets.push(worker.submit(Job).unwrap());
    gate.wait_until_inside(2);
    let counters = engine.vector_cores();
    assert_eq!((counters.active, counters.lent), (2, 0));
    assert_eq!(counters.reclaims, 2);
    gate.open();
    for ticket in tickets {
        assert_eq!(ticket.wait(), Ok(()));
    }
    until(|| engine.vector_cores().lent == 2);
}

fn start(cpus: &[usize], borrower: &Arc<Borrower>, operations: Operations) -> Engine {
    let config = Config {
        placement: Placement::VectorCores(cpus.iter().copied().collect()),
        lending: Some(CoreLending {
            to: borrower.clone(),
            rest: Some(Duration::from_millis(1)),
        }),
        ..Config::default()
    };
    Engine::start_with(config, operations).unwrap()
}

/// Waits until `condition` holds.
fn until(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < end, "it never held");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Knows which of two CPUs are lent.
#[derive(Default)]
struct Borrower {
    lent: [AtomicBool; 2],
    fault: Mutex<Option<Fault>>,
}

#[derive(Clone, Copy)]
enum Fault {
    Stays,
    Panics,
}

impl Borrower {
    fn is_lent(&self, cpu: usize) -> bool {
        self.lent[cpu].load(Ordering::SeqCst)
    }

    fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap()
    }
}

impl CoreBorrower for Borrower {
    fn lend(&self, cpu: usize) {
        let before = self.lent[cpu].swap(true, Ordering::SeqCst);
        assert!(!before, "lent twice");
        if let Some(Fault::Panics) = self.fault() {
            panic!("planted");
        }
    }

    fn reclaim(&self, cpu: usize) -> io::Result<()> {
        let before = self.lent[cpu].swap(false, Ordering::SeqCst);
        assert!(before, "reclaimed twice");
        match self.fault() {
            None => Ok(()),
            Some(Fault::Stays) => Err(io::Error::other("planted")),
            Some(Fault::Panics) => panic!("planted"),
        }
    }
}

struct Job;

impl Request for Job {
    type Output = ();
}

/// Runs only on cores that are not lent.
struct Careful(Arc<Borrower>);

impl Operation for Careful {
    type Request = Job;

    fn name(&self) -> &'static str {
        "careful"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn pass(&self, requests: &[Job]) -> Vec<()> {
        assert!(!self.0.is_lent(0), "a pass on a lent core");
        requests.iter().map(|_| ()).collect()
    }

    fn specimen(&self) -> Job {
        Job
    }
}

/// Passes wait inside until the gate opens.
struct Gated(Arc<Gate>);

impl Operation for Gated {
    type Request = Job;

    fn name(&self) -> &'static str {
        "gated"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn pass(&self, requests: &[Job]) -> Vec<()> {
        self.0.pass();
        requests.iter().map(|_| ()).collect()
    }

    fn specimen(&self) -> Job {
        Job
    }
}

#[derive(Default)]
struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn opened() -> Self {
        let gate = Self::default();
        gate.open();
        gate
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        while !state.1 {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn wait_until_inside(&self, passes: usize) {
        let mut state = self.state.lock().unwrap();
        while state.0 < passes {
            state = self.changed.wait(state).unwrap();
        }
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}
