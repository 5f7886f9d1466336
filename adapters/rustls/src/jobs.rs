//! The way from inside rustls to the engine and back.
//!
//! rustls calls the provider synchronously. On a driver's stack the caller is suspended until its
//! jobs have ended, or its jobs run at once if no other job can join them soon. On any other stack
//! the caller blocks, and shares passes with other threads that block.

use std::error;
use std::sync::Arc;

use rustls::OtherError;
use widelane_engine::{Engine, JobError, Request, Requests};

use crate::suspend::{Cancelled, Frame};

/// Runs one job to its end.
pub(crate) fn run<R: Request>(engine: &Engine, request: R) -> Result<R::Output, Failure> {
    let (output,) = run_together(engine, (request,))?;
    Ok(output)
}

/// Runs jobs that do not depend on one another. On a driver's stack all are submitted before the
/// caller is suspended, once; elsewhere one runs after the other.
pub(crate) fn run_together<R: Requests>(
    engine: &Engine,
    requests: R,
) -> Result<R::Outputs, Failure> {
    Frame::with_current(|frame| match frame {
        Some(frame) => Ok(frame.run(requests)??),
        None => Ok(requests.block(engine)?),
    })
}

/// Why an operation gave no result although the peer did nothing wrong. It travels through rustls
/// as [`rustls::Error::Other`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The engine took the job and gave no output, or did not take it.
    #[error("the engine did not do this operation: {0}")]
    Job(#[from] JobError),
    /// The operation itself failed.
    #[error(transparent)]
    Operation(Box<dyn error::Error + Send + Sync>),
    /// The connection that wanted it is gone.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl Failure {
    /// An operation that failed with `cause`.
    pub(crate) fn operation(cause: impl error::Error + Send + Sync + 'static) -> Self {
        Self::Operation(Box::new(cause))
    }
}

impl From<Failure> for rustls::Error {
    fn from(failure: Failure) -> Self {
        Self::Other(OtherError(Arc::new(failure)))
    }
}
