//! One way to run wide code.

use std::fmt;

use widelane_affinity::{Cpus, allowed, pin};
use widelane_cpu::licence::Class;

use crate::config::{Config, Form};
use crate::error::{RunError, StartError};
use crate::nested::{self, Nested};
use crate::pool::Pool;
use crate::visit::Visit;

/// Runs closures where its configuration says. Threads share it by reference.
///
/// Dropping it ends the threads of its pool.
pub struct Wide {
    runner: Runner,
    form: Form,
}

enum Runner {
    Inline,
    Pool(Pool),
    Migrate(Cpus),
}

impl Wide {
    /// Starts the threads of the configuration, and checks that each vector core may be used.
    ///
    /// If the vector core is the only CPU of the calling thread, everything runs in place.
    ///
    /// # Errors
    ///
    /// When no CPU is named, or one may not be used; when no thread could be started.
    pub fn new(config: Config) -> Result<Self, StartError> {
        let Config {
            form,
            vector_spin,
            caller_spin,
        } = config;
        if let Form::Pool { cpus } | Form::Migrate { cpus } = &form {
            check(cpus)?;
        }
        let runner = match form {
            Form::Inline => Runner::Inline,
            Form::Pool { cpus } | Form::Migrate { cpus } if is_the_only_one(&cpus) => Runner::Inline,
            Form::Pool { cpus } => Runner::Pool(Pool::start(cpus, vector_spin, caller_spin)?),
            Form::Migrate { cpus } => Runner::Migrate(cpus),
        };
        let form = match runner {
            Runner::Inline => Form::Inline,
            Runner::Pool(_) | Runner::Migrate(_) => form,
        };
        Ok(Self { runner, form })
    }

    /// Runs everything in place.
    pub(crate) fn inline() -> Self {
        Self {
            runner: Runner::Inline,
            form: Form::Inline,
        }
    }

    /// Form and place in which closures run.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// Runs `closure` on a vector core and returns its value. Runs it in place if the calling
    /// thread is on one by such a call already, or if [`try_run`](Self::try_run) would refuse.
    ///
    /// # Panics
    ///
    /// With the panic of `closure`.
    #[inline]
    pub fn run<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> R {
        self.run_as(Class::Heavy512, closure)
    }

    /// Runs a closure as [`run`](Self::run) does, when the caller knows the class of its code. A brake (`widelane-lab
    /// emulate`) then asks for no more than that; nothing else depends on it.
    ///
    /// # Panics
    ///
    /// With the panic of `closure`.
    #[inline]
    pub fn run_as<R: Send>(&self, class: Class, closure: impl FnOnce() -> R + Send) -> R {
        // Machines without the problem must not pay for it, not even for a call of `way`.
        let closure = marked(class, closure);
        if matches!(self.runner, Runner::Inline) {
            return closure();
        }
        match self.way() {
            Ok(way) => way.run(closure),
            Err(_) => closure(),
        }
    }

    /// Runs a closure as [`run`](Self::run) does, but not in place: if the vector cores are not available, `closure`
    /// does not run.
    ///
    /// # Errors
    ///
    /// When the calling thread's cpuset does not let it move, or the pool is in the process that
    /// this one was forked from.
    ///
    /// # Panics
    ///
    /// With the panic of `closure`.
    pub fn try_run<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> Result<R, RunError> {
        Ok(self.way()?.run(marked(Class::Heavy512, closure)))
    }

    fn way(&self) -> Result<Way<'_>, RunError> {
        match &self.runner {
            Runner::Inline => Ok(Way::InPlace),
            _ if nested::is_wide() => Ok(Way::InPlace),
            Runner::Pool(pool) if pool.is_here() => Ok(Way::Pool(pool)),
            Runner::Pool(_) => Err(RunError::Forked),
            Runner::Migrate(cpus) => match Visit::to(cpus) {
                Ok(visit) => Ok(Way::Visit(Nested::new(), visit)),
                Err(source) => Err(RunError::Migrate {
                    cpus: cpus.to_string(),
                    source,
                }),
            },
        }
    }
}

impl fmt::Debug for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wide").field("form", &self.form).finish_non_exhaustive()
    }
}

/// Way in which one call runs.
enum Way<'a> {
    InPlace,
    Pool(&'a Pool),
    /// The thread goes back when this is dropped, by a panic too.
    Visit(Nested, Visit<'a>),
}

impl Way<'_> {
    fn run<R: Send>(self, closure: impl FnOnce() -> R + Send) -> R {
        match self {
            Self::InPlace => closure(),
            Self::Pool(pool) => pool.run(closure),
            Self::Visit(nested, visit) => {
                let value = closure();
                drop(visit);
                drop(nested);
                value
            }
        }
    }
}

/// The closure, with a mark for a brake while it runs.
fn marked<R: Send>(class: Class, closure: impl FnOnce() -> R + Send) -> impl FnOnce() -> R + Send {
    move || {
        let _marked = widelane_marks::wide(class);
        closure()
    }
}

/// Returns whether the calling thread may run on these CPUs alone, and they are one.
fn is_the_only_one(cpus: &Cpus) -> bool {
    cpus.count() == 1 && allowed(None).is_ok_and(|allowed| allowed == *cpus)
}

fn check(cpus: &Cpus) -> Result<(), StartError> {
    let cpu = cpus.iter().next().ok_or(StartError::NoCpus)?;
    // On another thread, because the calling thread must stay where it is.
    let usable = || {
        for cpu in cpus.iter() {
            pin(cpu).map_err(|source| StartError::Unusable { cpu, source })?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let checker = std::thread::Builder::new().spawn_scoped(scope, usable);
        let checked = checker.map_err(|source| StartError::Spawn { cpu, source })?;
        checked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
