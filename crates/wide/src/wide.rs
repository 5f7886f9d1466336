//! One way to run wide code, and calls within calls.

use std::cell::Cell;
use std::fmt;

use crate::affinity::{Cpus, Visit, pin};
use crate::config::{Config, Placement};
use crate::error::{RunError, StartError};
use crate::pool::Pool;

/// Runs closures where its configuration says. Threads share it by reference.
///
/// Dropping it ends the threads of its pool.
pub struct Wide {
    form: Form,
    placement: Placement,
}

enum Form {
    Inline,
    Pool(Pool),
    Migrate(Cpus),
}

impl Wide {
    /// Starts what the configuration asks for, and sees that each vector core may be used.
    ///
    /// Where the vector core and the CPUs that the calling thread may use are one CPU altogether,
    /// there is nothing to move away from, and everything runs in place.
    ///
    /// # Errors
    ///
    /// When CPUs are named twice, not at all, or may not be used; when no thread could be started.
    pub fn new(config: Config) -> Result<Self, StartError> {
        let Config {
            placement,
            vector_spin,
            caller_spin,
        } = config;
        if placement != Placement::Inline {
            check(placement.cpus())?;
        }
        let form = match &placement {
            Placement::Inline => Form::Inline,
            Placement::Pool { cpus } | Placement::Migrate { cpus }
                if Cpus::new(cpus).are_the_only_one() =>
            {
                Form::Inline
            }
            Placement::Pool { cpus } => Form::Pool(Pool::start(cpus, vector_spin, caller_spin)?),
            Placement::Migrate { cpus } => Form::Migrate(Cpus::new(cpus)),
        };
        let placement = match form {
            Form::Inline => Placement::Inline,
            Form::Pool(_) | Form::Migrate(_) => placement,
        };
        Ok(Self { form, placement })
    }

    /// Runs everything in place.
    pub(crate) fn inline() -> Self {
        Self {
            form: Form::Inline,
            placement: Placement::Inline,
        }
    }

    /// Where closures run.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Runs `closure` on a vector core and returns its value. Runs it in place if the calling
    /// thread is on one by such a call already, or if [`try_run`](Self::try_run) would refuse.
    ///
    /// # Panics
    ///
    /// With the panic of `closure`.
    #[inline]
    pub fn run<R: Send>(&self, closure: impl FnOnce() -> R + Send) -> R {
        // Machines without the problem must not pay for it, not even the way out of `way`.
        if matches!(self.form, Form::Inline) {
            return closure();
        }
        match self.way() {
            Ok(way) => way.run(closure),
            Err(_) => closure(),
        }
    }

    /// As [`run`](Self::run), but where the vector cores cannot be had, `closure` does not run.
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
        Ok(self.way()?.run(closure))
    }

    fn way(&self) -> Result<Way<'_>, RunError> {
        match &self.form {
            Form::Inline => Ok(Way::InPlace),
            _ if WIDE.get() => Ok(Way::InPlace),
            Form::Pool(pool) if pool.is_here() => Ok(Way::Pool(pool)),
            Form::Pool(_) => Err(RunError::Forked),
            Form::Migrate(cpus) => match Visit::to(cpus) {
                Ok(visit) => Ok(Way::Visit(Nested::new(), visit)),
                Err(source) => Err(RunError::Migrate {
                    cpus: self.placement.to_string().replace("migrate:", ""),
                    source,
                }),
            },
        }
    }
}

impl fmt::Debug for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wide")
            .field("placement", &self.placement)
            .finish_non_exhaustive()
    }
}

/// From now on, calls on this thread run in place: it is a vector core's.
pub(crate) fn never_leaves() {
    WIDE.set(true);
}

/// How one call runs.
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

/// While this exists, calls on this thread run in place.
struct Nested(());

impl Nested {
    fn new() -> Self {
        WIDE.set(true);
        Self(())
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        WIDE.set(false);
    }
}

fn check(cpus: &[usize]) -> Result<(), StartError> {
    if cpus.is_empty() {
        return Err(StartError::NoCpus);
    }
    for (place, &cpu) in cpus.iter().enumerate() {
        if cpus[..place].contains(&cpu) {
            return Err(StartError::DuplicateCpu { cpu });
        }
    }
    // On a thread of its own, as the calling one is to stay where it is.
    let usable = || {
        for &cpu in cpus {
            pin(cpu).map_err(|source| StartError::Unusable { cpu, source })?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let checker = std::thread::Builder::new().spawn_scoped(scope, usable);
        let cpu = cpus[0];
        let checked = checker.map_err(|source| StartError::Spawn { cpu, source })?;
        checked
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

thread_local! {
    /// Whether this thread is on vector cores by a call, or as a thread of a pool.
    static WIDE: Cell<bool> = const { Cell::new(false) };
}
