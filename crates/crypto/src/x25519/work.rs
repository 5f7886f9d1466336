//! The two operations as kinds of work, each on one backend.

use super::{Derive, Public, Secret};
use crate::{AgreeError, Backend, BackendUnavailable, Preference, Shared, Work};

/// Public shares of secrets, `x25519-keygen`.
#[derive(Debug)]
pub struct Keygen(());

/// Secrets shared with peers, `x25519-derive`.
#[derive(Debug)]
pub struct Derivation(());

impl Keygen {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self(()))
    }
}

impl Derivation {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self(()))
    }
}

impl Work for Keygen {
    type Request = Public;
    type Output = Result<[u8; 32], AgreeError>;

    fn name(&self) -> &'static str {
        "x25519-keygen"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn pass(&self, requests: &[Public]) -> Vec<Self::Output> {
        requests.iter().map(Public::alone).collect()
    }

    fn alone(&self, request: &Public) -> Self::Output {
        request.alone()
    }

    fn specimen(&self) -> Public {
        Public {
            secret: Secret::from_bytes(&SPECIMEN),
        }
    }
}

impl Work for Derivation {
    type Request = Derive;
    type Output = Result<Shared, AgreeError>;

    fn name(&self) -> &'static str {
        "x25519-derive"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn pass(&self, requests: &[Derive]) -> Vec<Self::Output> {
        requests.iter().map(Derive::alone).collect()
    }

    fn alone(&self, request: &Derive) -> Self::Output {
        request.alone()
    }

    fn specimen(&self) -> Derive {
        let mut peer = [0; 32];
        peer[0] = 9;
        Derive {
            secret: Secret::from_bytes(&SPECIMEN),
            peer,
        }
    }
}

/// The secret of specimens: any would do.
const SPECIMEN: [u8; 32] = [0x5a; 32];
