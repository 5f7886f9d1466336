//! The operations of an engine, and the way from a request to its line of jobs.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use widelane_batching::Clock;
use widelane_crypto::{Operation, Request};

use crate::cost::CostModel;
use crate::error::{StartError, SubmitError};
use crate::line::{AnyLine, Line, Variant};

/// The operations that an engine serves.
///
/// ```
/// use widelane_engine::{Config, Engine, Idle, Operation, Operations, Request};
///
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
///     fn pass(&self, requests: &[Square]) -> Vec<u64> {
///         requests.iter().map(|Square(x)| x * x).collect()
///     }
///     fn specimen(&self) -> Square {
///         Square(3)
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

    /// Adds `operation` after the others. All its requests run in passes, however few they are.
    #[must_use]
    pub fn with<O: Operation>(mut self, operation: O) -> Self {
        self.add(Variant::always(operation), None);
        self
    }

    /// Adds `operation` after the others. `costs` decides which of its requests run in lanes.
    #[must_use]
    pub fn with_costs<O: Operation>(mut self, operation: O, costs: Arc<CostModel>) -> Self {
        self.add(Variant::new(operation, costs), None);
        self
    }

    /// Adds an operation and, if there is a choice by clock, the same in narrower registers.
    pub(crate) fn add<R: Request>(&mut self, wide: Variant<R>, narrow: Option<(Variant<R>, Clock)>) {
        self.registrations.push(Box::new(|registry| {
            let line = Line::new(wide, registry.queue_capacity);
            registry.add(match narrow {
                Some((narrow, clock)) => line.or_narrow(narrow, clock),
                None => line,
            })
        }));
    }

    /// Makes the lines. With vector cores, each gets a queue of `queue_capacity` jobs.
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

/// The lines of all operations, found by the type of their requests.
pub(crate) struct Registry {
    queue_capacity: Option<usize>,
    pub(crate) lines: Vec<Arc<dyn AnyLine>>,
    /// The value for the key of type `R` is a `Vec<Route<R>>`.
    routes: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

/// One operation that serves `R`, and its index in the registry.
pub(crate) type Route<R> = (usize, Arc<Line<R>>);

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

    fn add<R: Request>(&mut self, line: Line<R>) -> Result<(), StartError> {
        let name = line.name();
        if self.lines.iter().any(|line| line.name() == name) {
            return Err(StartError::DuplicateOperation { name });
        }
        let line = Arc::new(line);
        let route: Route<R> = (self.lines.len(), Arc::clone(&line));
        self.lines.push(line);
        let routes = self
            .routes
            .entry(TypeId::of::<R>())
            .or_insert_with(|| Box::new(Vec::<Route<R>>::new()));
        if let Some(routes) = routes.downcast_mut::<Vec<Route<R>>>() {
            routes.push(route);
        }
        Ok(())
    }
}
