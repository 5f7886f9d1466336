//! The way from inside rustls to the engine and back.
//!
//! rustls calls the provider synchronously. On a driver's stack the caller is suspended until its
//! jobs have ended; on any other stack it blocks, and shares passes with other threads that block.

use std::error;
use std::sync::Arc;

use rustls::OtherError;
use widelane_engine::{Engine, JobError, Request};

use crate::suspend::{Cancelled, Frame};

/// Runs one job to its end.
pub(crate) fn run<R: Request>(engine: &Engine, request: R) -> Result<R::Output, Failure> {
    Frame::with_current(|frame| match frame {
        Some(frame) => {
            let ticket = frame.worker().submit(request).map_err(JobError::from)?;
            Ok(frame.wait(ticket)??)
        }
        None => Ok(engine.run(request)?),
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
    /// Nobody waits for it any more.
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
