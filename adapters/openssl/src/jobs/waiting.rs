//! Three ways in which a call of OpenSSL waits for its jobs; each call chooses anew:
//!
//! 1. On a stack of the library that suspends handshakes: the stack is left until a pass has
//!    answered ([`crate::ffi::suspension`]).
//! 2. In a job of OpenSSL's own (`ASYNC_start_job(3)`): the job is paused ([`crate::ffi::paused`]).
//! 3. On any other thread: it blocks, and shares passes with other threads that block
//!    ([`widelane_engine::Engine::run`]). A thread that is alone runs its job at once.

use widelane_engine::Request;
use widelane_status::Way;

use crate::engine::{Failure, engine, has_lanes};
use crate::ffi::suspension;
use crate::ffi::{paused, status};
use crate::log;

/// Runs one job to its end.
pub(crate) fn run<R: Request>(request: R) -> Result<R::Output, Failure> {
    Ok(run_all(vec![request])?.remove(0))
}

/// Runs jobs that do not depend on one another.
pub(crate) fn run_all<R: Request>(requests: Vec<R>) -> Result<Vec<R::Output>, Failure> {
    if !has_lanes() || status::lanes_are_off() {
        return run_at_once(requests);
    }
    if let Some(frame) = suspension::current() {
        return suspension::run(frame, requests);
    }
    if let Some(job) = paused::current() {
        status::waits(Way::Jobs);
        return paused::run(job, requests);
    }
    status::waits(Way::Threads);
    let engine = engine()?;
    Ok(status::blocking(&engine, || engine.run_all(requests))?)
}

/// Runs requests at once where there are no lanes, or an operator has switched them off: nothing can be shared.
fn run_at_once<R: Request>(requests: Vec<R>) -> Result<Vec<R::Output>, Failure> {
    let work = || {
        let engine = engine()?;
        Ok(status::blocking(&engine, || engine.run_all_at_once(requests))?)
    };
    match paused::current() {
        Some(_) => paused::on_large_stack(work),
        None => work(),
    }
}

/// Answers by `alone`, on the caller's thread, if there is no result from the engine.
///
/// # Errors
///
/// When the handshake that asked is being ended.
pub(crate) fn in_any_case<O>(result: Result<O, Failure>, alone: impl FnOnce() -> O) -> Result<O, Failure> {
    match result {
        Err(failure) if !failure.is_final() => {
            log::reason(&format!("one operation at a time: {failure}"));
            Ok(match paused::current() {
                Some(_) => paused::on_large_stack(alone),
                None => alone(),
            })
        }
        ended => ended,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use widelane_engine::{JobError, StartError, SubmitError};

    use super::*;

    /// A handshake that goes on gets an answer in any case.
    #[test]
    fn a_job_that_the_engine_does_not_answer_is_done_alone() {
        let _counts = crate::COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        let done = |failure| in_any_case(Err(failure), || 8);
        let full = SubmitError::Overloaded {
            operation: "x25519-derive",
            limit: 4096,
        };
        let unavailable = StartError::NoVectorCpus;
        for failure in [
            Failure::Job(full.into()),
            Failure::Job(JobError::ShutDown),
            Failure::Start(unavailable),
            Failure::NotPaused,
            Failure::Moved,
            Failure::Forked,
        ] {
            assert_eq!(done(failure).unwrap(), 8);
        }
        assert!(matches!(done(Failure::Cancelled), Err(Failure::Cancelled)));
    }

    /// OpenSSL does what lanes cannot do.
    #[test]
    fn openssl_takes_over_what_the_engine_does_not_do() {
        let _counts = crate::COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(Failure::NotPaused.falls_back());
        assert!(Failure::Moved.falls_back());
        assert!(Failure::Job(JobError::ShutDown).falls_back());
    }
}
