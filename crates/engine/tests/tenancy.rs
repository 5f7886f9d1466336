//! Vector cores that are given back while they have nothing to do.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use widelane_engine::{
    Config, Engine, GiveBack, Operation, Operations, Placement, Request, Tenancy,
};

/// Over and over: given back when idle, taken before a pass.
#[test]
fn an_idle_core_is_given_back_and_taken_before_the_next_pass() {
    let house = Arc::new(House::default());
    let engine = start(&[0], &house, Operations::new().with(Careful(house.clone())));
    for round in 1..=3 {
        until(|| engine.vector_cores().given_back == 1);
        until(|| house.is_lent(0));
        assert_eq!(engine.vector_cores().active, 0);
        assert_eq!(engine.run(Job), Ok(()));
        let counters = engine.vector_cores();
        assert!(counters.takes >= round, "{counters:?}");
        assert_eq!(counters.take_failures, 0);
    }
    engine.shutdown();
    let counters = engine.vector_cores();
    assert_eq!((counters.active, counters.given_back), (1, 0));
    assert_eq!(counters.gives, counters.takes);
    assert!(!house.is_lent(0));
}

#[test]
fn without_a_tenant_nothing_is_given_back() {
    let config = Config {
        placement: Placement::VectorCores { cpus: vec![0] },
        ..Config::default()
    };
    let house = Arc::new(House::default());
    let careful = Operations::new().with(Careful(house));
    let engine = Engine::start_with(config, careful).unwrap();
    assert_eq!(engine.run(Job), Ok(()));
    let counters = engine.vector_cores();
    assert_eq!((counters.active, counters.given_back), (1, 0));
    assert_eq!((counters.gives, counters.takes), (0, 0));
}

/// The pass runs all the same, and somebody can see why it may have been slow for others.
#[test]
fn a_tenant_that_does_not_go_is_counted() {
    for mischief in [Mischief::StaysHere, Mischief::Panics] {
        let house = Arc::new(House::default());
        *house.mischief.lock().unwrap() = Some(mischief);
        let indifferent = Operations::new().with(Gated(Arc::new(Gate::opened())));
        let engine = start(&[0], &house, indifferent);
        for round in 1..=2 {
            until(|| engine.vector_cores().given_back == 1);
            assert_eq!(engine.run(Job), Ok(()));
            let counters = engine.vector_cores();
            assert!(counters.take_failures >= round, "{counters:?}");
            assert_eq!(counters.take_failures, counters.takes);
        }
    }
}

/// One job takes one core; the other one follows when more waits than the first will soon have
/// run.
#[test]
fn as_many_cores_are_taken_as_the_load_needs() {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("SKIP: one CPU, and this needs two vector cores");
        return;
    }
    let house = Arc::new(House::default());
    let gate = Arc::new(Gate::default());
    let engine = start(&[0, 1], &house, Operations::new().with(Gated(gate.clone())));
    until(|| engine.vector_cores().given_back == 2);
    let worker = engine.worker();
    let mut tickets = vec![worker.submit(Job).unwrap()];
    gate.wait_until_inside(1);
    for _ in 0..4 {
        tickets.push(worker.submit(Job).unwrap());
    }
    let counters = engine.vector_cores();
    assert_eq!((counters.active, counters.given_back), (1, 1));
    tickets.push(worker.submit(Job).unwrap());
    gate.wait_until_inside(2);
    let counters = engine.vector_cores();
    assert_eq!((counters.active, counters.given_back), (2, 0));
    assert_eq!(counters.takes, 2);
    gate.open();
    for ticket in tickets {
        assert_eq!(ticket.wait(), Ok(()));
    }
    until(|| engine.vector_cores().given_back == 2);
}

fn start(cpus: &[usize], house: &Arc<House>, operations: Operations) -> Engine {
    let config = Config {
        placement: Placement::VectorCores {
            cpus: cpus.to_vec(),
        },
        give_back: Some(GiveBack {
            to: house.clone(),
            rest: Some(Duration::from_millis(1)),
        }),
        ..Config::default()
    };
    Engine::start_with(config, operations).unwrap()
}

/// Waits with patience.
fn until(come: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !come() {
        assert!(Instant::now() < end, "it never came");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Knows who has which of two CPUs.
#[derive(Default)]
struct House {
    lent: [AtomicBool; 2],
    mischief: Mutex<Option<Mischief>>,
}

#[derive(Clone, Copy)]
enum Mischief {
    StaysHere,
    Panics,
}

impl House {
    fn is_lent(&self, cpu: usize) -> bool {
        self.lent[cpu].load(Ordering::SeqCst)
    }

    fn mischief(&self) -> Option<Mischief> {
        *self.mischief.lock().unwrap()
    }
}

impl Tenancy for House {
    fn give(&self, cpu: usize) {
        let before = self.lent[cpu].swap(true, Ordering::SeqCst);
        assert!(!before, "given back twice");
        if let Some(Mischief::Panics) = self.mischief() {
            panic!("planted");
        }
    }

    fn take(&self, cpu: usize) -> io::Result<()> {
        let before = self.lent[cpu].swap(false, Ordering::SeqCst);
        assert!(before, "taken twice");
        match self.mischief() {
            None => Ok(()),
            Some(Mischief::StaysHere) => Err(io::Error::other("planted")),
            Some(Mischief::Panics) => panic!("planted"),
        }
    }
}

struct Job;

impl Request for Job {
    type Output = ();
}

/// Runs only where nobody else may.
struct Careful(Arc<House>);

impl Operation for Careful {
    type Request = Job;

    fn name(&self) -> &'static str {
        "careful"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn run(&self, requests: &[Job]) -> Vec<()> {
        assert!(!self.0.is_lent(0), "a pass on a core that was given back");
        requests.iter().map(|_| ()).collect()
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

    fn run(&self, requests: &[Job]) -> Vec<()> {
        self.0.pass();
        requests.iter().map(|_| ()).collect()
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
