//! The way from inside rustls to the engine and back.
//!
//! rustls calls the provider synchronously. On a driver's stack the caller is suspended until its
//! jobs have ended, or its jobs run at once if no other job can join them soon. On any other stack
//! the caller blocks, and shares passes with other threads that block.

use std::error;
use std::sync::Arc;

use rustls::{Error, OtherError, PeerMisbehaved};
use widelane_crypto::AgreeError;
use widelane_engine::{Engine, JobError, Request};

use crate::suspend::{Cancelled, Frame};

/// Runs one job to its end.
pub(crate) fn run<R: Request>(engine: &Engine, request: R) -> Result<R::Output, Failure> {
    Ok(run_all(engine, vec![request])?.remove(0))
}

/// Runs jobs that do not depend on one another. On a driver's stack all are submitted before the
/// caller is suspended, once; elsewhere one runs after the other.
pub(crate) fn run_all<R: Request>(engine: &Engine, requests: Vec<R>) -> Result<Vec<R::Output>, Failure> {
    Frame::with_current(|frame| match frame {
        Some(frame) => Ok(frame.run(requests)??),
        None => Ok(engine.run_all(requests)?),
    })
}

/// Why an operation gave no result. Unless the peer is to blame, it travels through rustls as
/// [`rustls::Error::Other`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The engine took the job and gave no output, or did not take it.
    #[error("the engine did not do this operation: {0}")]
    Job(#[from] JobError),
    /// The operation itself failed.
    #[error(transparent)]
    Operation(Box<dyn error::Error + Send + Sync>),
    /// There is no secret, which may be the peer's fault.
    #[error(transparent)]
    Agree(#[from] AgreeError),
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

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Agree(AgreeError::InvalidPeer(_) | AgreeError::WeakPeer) => PeerMisbehaved::InvalidKeyShare.into(),
            failure => Self::Other(OtherError(Arc::new(failure))),
        }
    }
}
