//! The two operations as kinds of work, each on one backend.

use super::pass;
use super::{Derive, Public, Secret};
use crate::lanes25519::Lanes;
use crate::{AgreeError, Backend, BackendUnavailable, Shared, Work};
use std::sync::LazyLock;

/// Public shares of secrets, `x25519-keygen`.
#[derive(Debug)]
pub struct Keygen(Lanes);

/// Secrets shared with peers, `x25519-derive`.
#[derive(Debug)]
pub struct Derivation(Lanes);

impl Keygen {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Lanes::new(backend).map(Self)
    }
}

impl Derivation {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Lanes::new(backend).map(Self)
    }
}

impl Work for Keygen {
    type Request = Public;
    type Output = Result<[u8; 32], AgreeError>;

    fn name(&self) -> &'static str {
        "x25519-keygen"
    }

    fn lanes(&self) -> usize {
        self.0.count()
    }

    fn pass(&self, requests: &[Public]) -> Vec<Self::Output> {
        match &self.0 {
            Lanes::Single => requests.iter().map(Public::alone).collect(),
            Lanes::Ymm(lanes) => pass::public(lanes, requests),
            Lanes::Zmm(lanes) => pass::public(lanes, requests),
        }
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
        self.0.count()
    }

    fn pass(&self, requests: &[Derive]) -> Vec<Self::Output> {
        match &self.0 {
            Lanes::Single => requests.iter().map(Derive::alone).collect(),
            Lanes::Ymm(lanes) => pass::derive(lanes, requests),
            Lanes::Zmm(lanes) => pass::derive(lanes, requests),
        }
    }

    fn alone(&self, request: &Derive) -> Self::Output {
        request.alone()
    }

    fn specimen(&self) -> Derive {
        // Its public share was made before, as in every handshake.
        static SECRET: LazyLock<Secret> = LazyLock::new(|| Secret::from_bytes(&SPECIMEN));
        let mut peer = [0; 32];
        peer[0] = 9;
        Derive {
            secret: SECRET.clone(),
            peer,
        }
    }
}

/// The secret of specimens: any would do.
const SPECIMEN: [u8; 32] = [0x5a; 32];
