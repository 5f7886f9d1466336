//! Signatures with RSA, from the request to the checked signature.

use crate::operation::{Done, Subject};
use widelane_crypto::rsa::{PrivateKey, Scheme, SignRequest, Signing, Size};
use widelane_crypto::{Backend, Work};

/// PSS signatures with SHA-256, made as the engine makes them: a request a signature (hash, salt
/// and padding; allocation included), passes over as many requests as there are lanes, in each of
/// them blinding, exponentiations and the check with the public exponent.
///
/// A request that comes alone on a vector backend is answered in lanes, as the backend is asked for
/// by name; the engine, left to choose, takes aws-lc-rs where that is faster.
///
/// On [`Backend::AwsLc`] a request is padded as well, though aws-lc-rs pads once more by itself:
/// that is what the engine pays there, and below a hundredth of the signature.
pub(crate) fn sign(size: Size, backend: Backend) -> Result<Box<dyn Subject>, String> {
    let signing = Signing::new(backend, size).map_err(|_| why_not(backend))?;
    let pems: [&[u8]; 2] = match size {
        Size::Rsa2048 => [
            include_bytes!("../data/rsa2048_a.pem"),
            include_bytes!("../data/rsa2048_b.pem"),
        ],
        Size::Rsa3072 => [
            include_bytes!("../data/rsa3072_a.pem"),
            include_bytes!("../data/rsa3072_b.pem"),
        ],
        Size::Rsa4096 => [
            include_bytes!("../data/rsa4096_a.pem"),
            include_bytes!("../data/rsa4096_b.pem"),
        ],
    };
    let keys = pems
        .into_iter()
        .map(|pem| PrivateKey::from_pem(pem).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    Ok(Box::new(Sign { signing, keys }))
}

/// Why a vector backend cannot run here.
pub(crate) fn why_not(backend: Backend) -> String {
    widelane_cpu::why_not().unwrap_or_else(|| {
        format!(
            "{backend} needs AVX-512 VL, which this CPU does not offer or {} disables",
            widelane_cpu::DISABLE_VARIABLE
        )
    })
}

struct Sign {
    signing: Signing,
    /// Neighbouring requests have different keys.
    keys: Vec<PrivateKey>,
}

impl Subject for Sign {
    fn run(&mut self, in_flight: usize) -> Result<Done, String> {
        let requests = self
            .keys
            .iter()
            .cycle()
            .take(in_flight)
            .map(|key| SignRequest::new(key, Scheme::PssSha256, MESSAGE))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        for result in self.signing.pass(&requests) {
            std::hint::black_box(result.map_err(|error| error.to_string())?);
        }
        Ok(Done {
            operations: in_flight as u64,
            multiply_adds: 0,
        })
    }
}

/// As long as what a TLS 1.3 server signs: 64 spaces, the context string, a zero, and the hash of
/// the transcript (RFC 8446, section 4.4.3).
const MESSAGE: &[u8] = &[0x20; 64 + 33 + 1 + 32];
