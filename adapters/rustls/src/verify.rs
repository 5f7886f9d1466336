//! Verification of signatures, in certificates and over handshakes, through the engine.
//!
//! ECDSA on P-256 and P-384, Ed25519, ML-DSA and RSA with 2048 bits run in passes. RSA of other
//! sizes, P-521 and whatever else aws-lc-rs verifies stays with aws-lc-rs.
//!
//! A verifier can only say yes or no. When the engine is full or has been shut down, aws-lc-rs
//! answers at once instead: no peer is called a forger because this machine is busy.

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls_pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};
use widelane_crypto::verify::{Request, Scheme};
use widelane_engine::Engine;

use crate::jobs::{Failure, run};

/// The algorithms of `theirs`, those that have lanes through `engine`.
///
/// rustls wants them for ever (`&'static`), so each call leaks a few kilobytes.
pub(crate) fn in_passes(theirs: WebPkiSupportedAlgorithms, engine: &Engine) -> WebPkiSupportedAlgorithms {
    let ours = |algorithms: &[Algorithm]| -> &'static [Algorithm] {
        let ours = algorithms.iter().map(|algorithm| ours(*algorithm, engine));
        ours.collect::<Vec<_>>().leak()
    };
    let mapping = theirs.mapping.iter();
    let mapping = mapping.map(|(scheme, algorithms)| (*scheme, ours(algorithms)));
    WebPkiSupportedAlgorithms {
        all: ours(theirs.all),
        mapping: mapping.collect::<Vec<_>>().leak(),
    }
}

type Algorithm = &'static dyn SignatureVerificationAlgorithm;

fn ours(theirs: Algorithm, engine: &Engine) -> Algorithm {
    let key = theirs.public_key_alg_id();
    let Some(scheme) = Scheme::of(key, theirs.signature_alg_id()) else {
        return theirs;
    };
    Box::leak(Box::new(InPasses {
        scheme,
        theirs,
        engine: engine.clone(),
    }))
}

/// An algorithm that has lanes, and the same of aws-lc-rs.
#[derive(Debug)]
struct InPasses {
    scheme: Scheme,
    theirs: Algorithm,
    engine: Engine,
}

impl SignatureVerificationAlgorithm for InPasses {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        // Also a key in a form that our types do not take.
        let Ok(request) = Request::new(self.scheme, key, message, signature) else {
            return self.theirs.verify_signature(key, message, signature);
        };
        match run(&self.engine, request) {
            Ok(verdict) => verdict.map_err(|_| InvalidSignature),
            // The answer has no reader.
            Err(Failure::Cancelled(_)) => Err(InvalidSignature),
            Err(_) => self.theirs.verify_signature(key, message, signature),
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.theirs.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.theirs.signature_alg_id()
    }
}
