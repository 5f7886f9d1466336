//! What fills lanes: requests, the operations that serve them, and the set an engine starts with.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;

use widelane_batching::Width;

use crate::line::{AnyLine, Line};
use crate::{StartError, SubmitError};

/// A job's input: owned, so that it outlives whoever submitted it.
///
/// The type chooses the operation; where several operations share a request type, each says with
/// [`Operation::takes`] which requests it serves.
pub trait Request: Send + 'static {
    /// What one job yields, usually a `Result`: a job that fails on its own account does so here.
    type Output: Send + 'static;
}

/// One kind of work that fills lanes.
pub trait Operation: Send + Sync + 'static {
    /// What the operation works on.
    type Request: Request;

    /// The name under which counters appear and errors speak, such as `rsa2048-sign`.
    fn name(&self) -> &'static str;

    /// Jobs that one pass takes; read once, when the engine starts. One: nothing is gathered.
    fn lanes(&self) -> usize;

    /// Whether this operation serves `request`. The first registered operation that says yes gets
    /// it.
    fn takes(&self, _request: &Self::Request) -> bool {
        true
    }

    /// The fewest requests that are worth a pass: fewer are cheaper one by one, with
    /// [`run_alone`](Self::run_alone). More than the lanes: no pass is worth it. Asked often; the
    /// answer may change while an engine runs.
    fn worth(&self) -> usize {
        1
    }

    /// Finds out now what [`worth`](Self::worth) depends on, unless that is known.
    fn calibrate(&self) {}

    /// Whether this request runs in a pass even if that carries nothing else.
    fn needs_lanes(&self, _request: &Self::Request) -> bool {
        false
    }

    /// Runs one pass: at least one and at most [`lanes`](Self::lanes) requests, exactly one output
    /// for each, in order.
    ///
    /// Runs on an ordinary thread stack. Requests are borrowed because a pass that panics is run
    /// again, one request at a time, to find out whose fault it was.
    fn run(&self, requests: &[Self::Request]) -> Vec<<Self::Request as Request>::Output>;

    /// The registers for a pass of `jobs` requests that begins now, on the calling thread.
    fn width(&self, _jobs: usize) -> Width {
        Width::Wide
    }

    /// Runs one pass in registers of this [`width`](Self::width); see [`run`](Self::run).
    fn run_in(
        &self,
        _width: Width,
        requests: &[Self::Request],
    ) -> Vec<<Self::Request as Request>::Output> {
        self.run(requests)
    }

    /// Runs one request without lanes: as long as there are fewer than [`worth`](Self::worth).
    fn run_alone(&self, request: &Self::Request) -> <Self::Request as Request>::Output {
        let mut outputs = self.run(std::slice::from_ref(request));
        outputs.pop().expect("one output a request")
    }
}

/// The operations that an engine is to serve.
///
/// ```
/// # use widelane_engine::{Config, Engine, Idle, Operation, Operations, Request};
/// struct Square(u64);
///
/// impl Request for Square {
///     type Output = u64;
/// }
///
/// struct Squares;
///
/// impl Operation for Squares {
///     type Request = Square;
///     fn name(&self) -> &'static str {
///         "square"
///     }
///     fn lanes(&self) -> usize {
///         4
///     }
///     fn run(&self, requests: &[Square]) -> Vec<u64> {
///         requests.iter().map(|Square(x)| x * x).collect()
///     }
/// }
///
/// let engine = Engine::start_with(Config::default(), Operations::new().with(Squares))?;
/// let worker = engine.worker();
/// let ticket = worker.submit(Square(12))?;
/// worker.turn(Idle::Yes);
/// assert_eq!(ticket.wait()?, 144);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Operations {
    registrations: Vec<Registration>,
}

type Registration = Box<dyn FnOnce(&mut Registry) -> Result<(), StartError>>;

impl Operations {
    /// No operation yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `operation` after those already there.
    pub fn with<O: Operation>(mut self, operation: O) -> Self {
        self.add(operation);
        self
    }

    pub(crate) fn add<O: Operation>(&mut self, operation: O) {
        self.registrations
            .push(Box::new(|registry| registry.add(operation)));
    }

    /// Makes the lines; each gets a queue of `queue_capacity` if vector cores are to share it.
    pub(crate) fn register(self, queue_capacity: Option<usize>) -> Result<Registry, StartError> {
        let mut registry = Registry {
            queue_capacity,
            lines: Vec::new(),
            routes: HashMap::new(),
        };
        for add in self.registrations {
            add(&mut registry)?;
        }
        Ok(registry)
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations")
            .field("count", &self.registrations.len())
            .finish()
    }
}

/// Every operation's line, and the way from a request's type to it.
pub(crate) struct Registry {
    queue_capacity: Option<usize>,
    pub(crate) lines: Vec<std::sync::Arc<dyn AnyLine>>,
    /// Each value is a `Vec<Route<R>>` for the `R` of its key.
    routes: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

/// One operation that serves `R`, and its index in the registry.
pub(crate) type Route<R> = (usize, std::sync::Arc<Line<R>>);

impl Registry {
    /// Finds the operation for a request.
    pub(crate) fn route<R: Request>(&self, request: &R) -> Result<&Route<R>, SubmitError> {
        let routes = self.routes.get(&TypeId::of::<R>());
        routes
            .and_then(|routes| routes.downcast_ref::<Vec<Route<R>>>())
            .and_then(|routes| routes.iter().find(|(_, line)| line.takes(request)))
            .ok_or(SubmitError::Unserved {
                request: type_name::<R>(),
            })
    }

    fn add<O: Operation>(&mut self, operation: O) -> Result<(), StartError> {
        let name = operation.name();
        if self.lines.iter().any(|line| line.name() == name) {
            return Err(StartError::DuplicateOperation { name });
        }
        let line = std::sync::Arc::new(Line::new(operation, self.queue_capacity));
        let route: Route<O::Request> = (self.lines.len(), std::sync::Arc::clone(&line));
        self.lines.push(line);
        let routes = self
            .routes
            .entry(TypeId::of::<O::Request>())
            .or_insert_with(|| Box::new(Vec::<Route<O::Request>>::new()));
        if let Some(routes) = routes.downcast_mut::<Vec<Route<O::Request>>>() {
            routes.push(route);
        }
        Ok(())
    }
}
