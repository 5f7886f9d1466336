//! Measures each [`Operation`]: its passes on one backend, or the engine's own choice.

use crate::operation::{Done, Subject};
use std::sync::OnceLock;
use widelane_crypto::{Backend, BackendUnavailable, Operation, Request};
use widelane_engine::{Config, Engine, Idle, Visitor, Worker, calibration, for_each_operation};

/// The names of all operations, in the engine's order.
pub(crate) fn names() -> Vec<&'static str> {
    struct Names(Vec<&'static str>);

    impl Visitor for Names {
        fn visit<O: Operation>(
            &mut self,
            make: impl Fn(Backend) -> Result<O, BackendUnavailable>,
        ) -> Result<(), BackendUnavailable> {
            self.0.push(make(Backend::AwsLc)?.name());
            Ok(())
        }
    }

    let mut names = Names(Vec::new());
    let visited = for_each_operation(&mut names);
    visited.map_or_else(|_| Vec::new(), |()| names.0)
}

/// Passes over requests that were made before. A single request runs in a pass, too, because the
/// backend was named.
pub(crate) fn passes(name: &str, backend: Backend) -> Result<Box<dyn Subject>, String> {
    search(name, backend, None)
}

/// Submits requests to an engine that chooses by itself, and waits for the results, as its users
/// do.
pub(crate) fn engine(name: &str) -> Result<Box<dyn Subject>, String> {
    // The engine calibrates once in a process, on the CPU of the measurement.
    static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();
    let start = || {
        let engine = Engine::start(Config::default()).map_err(|error| error.to_string())?;
        engine.calibrate();
        Ok(engine)
    };
    let engine = ENGINE.get_or_init(start).as_ref().map_err(String::clone)?;
    // The requests are the same on every backend. This backend runs everywhere.
    search(name, Backend::AwsLc, Some(engine))
}

/// The subject of an operation: by an engine, or else by passes on a backend.
fn search(name: &str, backend: Backend, engine: Option<&Engine>) -> Result<Box<dyn Subject>, String> {
    struct Search<'a> {
        name: &'a str,
        backend: Backend,
        engine: Option<&'a Engine>,
        found: Option<Result<Box<dyn Subject>, String>>,
    }

    impl Visitor for Search<'_> {
        fn visit<O: Operation>(
            &mut self,
            make: impl Fn(Backend) -> Result<O, BackendUnavailable>,
        ) -> Result<(), BackendUnavailable> {
            let operation = make(self.backend)?;
            if operation.name() == self.name {
                let stock = Vec::new();
                self.found = Some(match self.engine {
                    Some(engine) => Ok(Box::new(Chosen {
                        operation,
                        worker: engine.worker(),
                        stock,
                    })),
                    None if operation.lanes() == 1 && self.backend != Backend::AwsLc => {
                        Err(format!("{} has no lanes on {}", self.name, self.backend))
                    }
                    None => Ok(Box::new(Passes {
                        method: calibration::fastest_method(&operation),
                        operation,
                        stock,
                    })),
                });
            }
            Ok(())
        }
    }

    let mut search = Search {
        name,
        backend,
        engine,
        found: None,
    };
    for_each_operation(&mut search).map_err(|_| why_not(backend))?;
    let unknown = || Err(format!("there is no operation `{name}`"));
    search.found.unwrap_or_else(unknown)
}

/// Reason why a vector backend cannot run here.
pub(crate) fn why_not(backend: Backend) -> String {
    format!("{backend} does not run here: {}", widelane_cpu::lanes())
}

struct Passes<O: Operation> {
    operation: O,
    /// The fastest one here.
    method: usize,
    /// Requests for the next runs. Each is used once, because a second run of it may be cheaper.
    stock: Vec<O::Request>,
}

impl<O: Operation> Subject for Passes<O> {
    fn ready(&mut self, in_flight: usize, runs: usize) {
        self.stock.clear();
        self.stock.resize_with(in_flight * runs, || self.operation.specimen());
    }

    fn run(&mut self, in_flight: usize) -> Result<Done, String> {
        let rest = rest(&self.stock, in_flight)?;
        for output in self.operation.pass_by(self.method, &self.stock[rest..]) {
            check::<O::Request>(&output)?;
            std::hint::black_box(output);
        }
        // Keys are wiped and memory is freed, as after a job of the engine.
        self.stock.truncate(rest);
        Ok(Done::operations(in_flight))
    }
}

struct Chosen<O: Operation> {
    operation: O,
    worker: Worker,
    /// Requests for the next runs. The engine consumes them.
    stock: Vec<O::Request>,
}

impl<O: Operation> Subject for Chosen<O> {
    fn ready(&mut self, in_flight: usize, runs: usize) {
        self.stock.clear();
        self.stock.resize_with(in_flight * runs, || self.operation.specimen());
    }

    fn run(&mut self, in_flight: usize) -> Result<Done, String> {
        let rest = rest(&self.stock, in_flight)?;
        // Does what a driver of handshakes does if no other job can join.
        if in_flight == 1 && self.worker.is_quiet(0) {
            for request in self.stock.drain(rest..) {
                let output = self.worker.engine().run_at_once(request);
                let output = output.map_err(|error| error.to_string())?;
                check::<O::Request>(&output)?;
                std::hint::black_box(output);
            }
            return Ok(Done::operations(in_flight));
        }
        let submit = |request| self.worker.submit(request);
        let tickets: Result<Vec<_>, _> = self.stock.drain(rest..).map(submit).collect();
        let tickets = tickets.map_err(|error| error.to_string())?;
        while self.worker.turn(Idle::Yes) > 0 {}
        for ticket in tickets {
            let output = ticket.wait().map_err(|error| error.to_string())?;
            check::<O::Request>(&output)?;
            std::hint::black_box(output);
        }
        Ok(Done::operations(in_flight))
    }
}

/// The index of the next requests in a list from which they are taken at the end.
fn rest<R>(stock: &[R], in_flight: usize) -> Result<usize, String> {
    let rest = stock.len().checked_sub(in_flight);
    rest.ok_or_else(|| "more runs than were prepared".to_owned())
}

/// A failure, which may be quick, must not count as an operation.
fn check<R: Request>(output: &R::Output) -> Result<(), String> {
    match R::failure(output) {
        None => Ok(()),
        Some(error) => Err(error.to_string()),
    }
}
