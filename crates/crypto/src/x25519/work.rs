//! The two operations, each on one backend.

use super::pass;
use super::{Derive, Public, Secret};
use crate::lanes25519::Kind;
use crate::operation::requests;
use crate::passes::{Passes, with_pass};
use crate::{AgreeError, Backend, BackendUnavailable, Operation, Shared};
use std::sync::LazyLock;

/// Public shares of secrets, `x25519-keygen`.
#[derive(Debug)]
pub struct Keygen(Passes<Kind>);

/// Secrets shared with peers, `x25519-derive`.
#[derive(Debug)]
pub struct Derivation(Passes<Kind>);

impl Keygen {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Passes::new(backend, pass::AGREEMENT).map(Self)
    }
}

impl Derivation {
    /// The operation on a backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend) -> Result<Self, BackendUnavailable> {
        Passes::new(backend, pass::AGREEMENT).map(Self)
    }
}

requests! {
    Public => [u8; 32], AgreeError;
    Derive => Shared, AgreeError;
}

impl Operation for Keygen {
    type Request = Public;

    fn name(&self) -> &'static str {
        "x25519-keygen"
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn pass(&self, requests: &[Public]) -> Vec<Result<[u8; 32], AgreeError>> {
        with_pass!(&self.0, lanes => pass::public(lanes, requests), else {
            requests.iter().map(Public::alone).collect()
        })
    }

    fn alone(&self, request: &Public) -> Result<[u8; 32], AgreeError> {
        request.alone()
    }

    fn specimen(&self) -> Public {
        Public {
            secret: Secret::from_bytes(&SPECIMEN),
        }
    }
}

impl Operation for Derivation {
    type Request = Derive;

    fn name(&self) -> &'static str {
        "x25519-derive"
    }

    fn lanes(&self) -> usize {
        self.0.lanes()
    }

    fn pass(&self, requests: &[Derive]) -> Vec<Result<Shared, AgreeError>> {
        with_pass!(&self.0, lanes => pass::derive(lanes, requests), else {
            requests.iter().map(Derive::alone).collect()
        })
    }

    fn alone(&self, request: &Derive) -> Result<Shared, AgreeError> {
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
