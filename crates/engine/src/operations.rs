//! The operations that come with the house. A new one is an [`Operation`] and a line in
//! [`Operations::standard`].

use std::sync::Arc;

use widelane_crypto::Preference;
use widelane_crypto::rsa::{Passes, SignError, SignRequest, Size, sign_single};

use crate::{Operation, Operations, Request, StartError};

impl Operations {
    /// Everything that `widelane-crypto` does, with the preferred backend.
    ///
    /// # Errors
    ///
    /// When a backend was asked for by name and this machine cannot run it.
    pub fn standard(backend: Preference) -> Result<Self, StartError> {
        let passes = Arc::new(Passes::new(backend)?);
        tracing::debug!(backend = %passes.backend(), "RSA signatures");
        let rsa = |size| RsaSign {
            size,
            passes: Arc::clone(&passes),
        };
        Ok(Self::new()
            .with(rsa(Size::Rsa2048))
            .with(rsa(Size::Rsa3072))
            .with(rsa(Size::Rsa4096))
            .with(RsaSignOther))
    }
}

impl Request for SignRequest {
    type Output = Result<Vec<u8>, SignError>;
}

/// RSA signatures with keys of one size.
struct RsaSign {
    size: Size,
    passes: Arc<Passes>,
}

impl Operation for RsaSign {
    type Request = SignRequest;

    fn name(&self) -> &'static str {
        match self.size {
            Size::Rsa2048 => "rsa2048-sign",
            Size::Rsa3072 => "rsa3072-sign",
            Size::Rsa4096 => "rsa4096-sign",
        }
    }

    fn lanes(&self) -> usize {
        self.passes.lanes(self.size)
    }

    fn takes(&self, request: &SignRequest) -> bool {
        request.size() == Some(self.size)
    }

    fn run(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        self.passes.run(self.size, requests)
    }
}

/// RSA signatures with keys for which there are no lanes.
struct RsaSignOther;

impl Operation for RsaSignOther {
    type Request = SignRequest;

    fn name(&self) -> &'static str {
        "rsa-sign"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn run(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        requests.iter().map(sign_single).collect()
    }
}
