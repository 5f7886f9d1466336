//! Signatures as [`Work`].

use super::Size;
use super::key::PrivateKey;
use super::pass::Pass;
use super::request::{Scheme, SignError, SignRequest, sign_single};
use crate::{Backend, BackendUnavailable, Work};
use std::sync::OnceLock;
use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};

/// Signatures with keys of one [`Size`]: `rsa2048-sign`, `rsa3072-sign` and `rsa4096-sign`.
#[derive(Debug)]
pub struct Signing {
    size: Size,
    lanes: Lanes,
}

/// Signatures with keys of any size, one by one: `rsa-sign`.
#[derive(Debug)]
pub struct OtherSigning;

/// The passes of the chosen backend.
#[derive(Debug)]
enum Lanes {
    Single,
    Ymm(Pass<4>),
    Zmm(Pass<8>),
}

impl Signing {
    /// Signatures with keys of this size on this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        let missing = BackendUnavailable { backend };
        let bits = size.prime_bits();
        let lanes = match backend {
            Backend::AwsLc => Lanes::Single,
            Backend::Avx512Ifma256 => {
                Lanes::Ymm(Pass::ymm(Avx512IfmaVl::detect().ok_or(missing)?, bits))
            }
            Backend::Avx512Ifma => {
                Lanes::Zmm(Pass::zmm(Avx512Ifma::detect().ok_or(missing)?, bits))
            }
        };
        Ok(Self { size, lanes })
    }

    /// Answers as many requests of this size as there are lanes.
    fn one_pass(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        match &self.lanes {
            Lanes::Single => requests.iter().map(sign_single).collect(),
            Lanes::Ymm(pass) => pass.run(requests),
            Lanes::Zmm(pass) => pass.run(requests),
        }
    }
}

impl Work for Signing {
    type Request = SignRequest;
    type Output = Result<Vec<u8>, SignError>;

    fn name(&self) -> &'static str {
        match self.size {
            Size::Rsa2048 => "rsa2048-sign",
            Size::Rsa3072 => "rsa3072-sign",
            Size::Rsa4096 => "rsa4096-sign",
        }
    }

    fn lanes(&self) -> usize {
        match &self.lanes {
            Lanes::Single => 1,
            Lanes::Ymm(pass) => pass.lanes(),
            Lanes::Zmm(pass) => pass.lanes(),
        }
    }

    fn takes(&self, request: &SignRequest) -> bool {
        request.size() == Some(self.size)
    }

    /// A request of another size gets [`SignError::WrongSize`].
    fn pass(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        if requests.iter().all(|request| self.takes(request)) {
            return requests
                .chunks(self.lanes())
                .flat_map(|some| self.one_pass(some))
                .collect();
        }
        let sign = |request: &SignRequest| {
            if self.takes(request) {
                let mut results = self.one_pass(std::slice::from_ref(request));
                results.pop().expect("one result for one request")
            } else {
                Err(SignError::WrongSize {
                    expected: self.size,
                    modulus_bits: request.modulus_bits(),
                })
            }
        };
        requests.iter().map(sign).collect()
    }

    fn alone(&self, request: &SignRequest) -> Result<Vec<u8>, SignError> {
        sign_single(request)
    }

    fn needs_lanes(&self, request: &SignRequest) -> bool {
        request.key().aws_lc().is_none()
    }

    fn specimen(&self) -> SignRequest {
        static KEYS: [OnceLock<PrivateKey>; 3] = [const { OnceLock::new() }; 3];
        specimen(
            &KEYS[self.size as usize],
            match self.size {
                Size::Rsa2048 => include_bytes!("specimens/rsa2048.der"),
                Size::Rsa3072 => include_bytes!("specimens/rsa3072.der"),
                Size::Rsa4096 => include_bytes!("specimens/rsa4096.der"),
            },
        )
    }
}

impl Work for OtherSigning {
    type Request = SignRequest;
    type Output = Result<Vec<u8>, SignError>;

    fn name(&self) -> &'static str {
        "rsa-sign"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn pass(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        requests.iter().map(sign_single).collect()
    }

    fn alone(&self, request: &SignRequest) -> Result<Vec<u8>, SignError> {
        sign_single(request)
    }

    fn specimen(&self) -> SignRequest {
        static KEY: OnceLock<PrivateKey> = OnceLock::new();
        specimen(&KEY, include_bytes!("specimens/rsa2560.der"))
    }
}

/// What a server signs with this key, which is parsed once.
fn specimen(key: &OnceLock<PrivateKey>, der: &[u8]) -> SignRequest {
    let key = key.get_or_init(|| PrivateKey::from_pkcs8_der(der).expect("our own key is sound"));
    SignRequest::with_salt(key, Scheme::PssSha256, MESSAGE, SALT)
}

/// As long as what a TLS 1.3 server signs: 64 spaces, the context string, a zero, and the hash of
/// the transcript (RFC 8446, section 4.4.3).
pub(super) const MESSAGE: &[u8] = &[0x20; 64 + 33 + 1 + 32];
const SALT: &[u8] = &[0x5a; 32];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{assert_verifies, keys, odd_exponent_keys};

    #[test]
    fn specimens_are_signed_both_ways() {
        let backends = Backend::ALL
            .into_iter()
            .filter(|backend| backend.is_available());
        for backend in backends {
            for size in Size::ALL {
                let signing = Signing::new(backend, size).unwrap();
                let requests: Vec<_> = (0..3).map(|_| signing.specimen()).collect();
                assert!(requests.iter().all(|request| signing.takes(request)));
                let mut results = signing.pass(&requests);
                results.push(signing.alone(&requests[0]));
                assert_eq!(results.len(), 4);
                for result in results {
                    let signature = result.unwrap();
                    assert_verifies(signing.name(), &requests[0], MESSAGE, &signature);
                }
            }
        }
        let request = OtherSigning.specimen();
        assert_eq!(request.size(), None);
        for signature in OtherSigning.pass(&[request.clone(), request.clone()]) {
            assert_verifies("other", &request, MESSAGE, &signature.unwrap());
        }
    }

    #[test]
    fn only_what_aws_lc_refuses_needs_lanes() {
        let signing = Signing::new(Backend::AwsLc, Size::Rsa2048).unwrap();
        let needs = |key: &PrivateKey| {
            let request = SignRequest::new(key, Scheme::PssSha256, b"m").unwrap();
            assert_eq!(signing.needs_lanes(&request), key.aws_lc().is_none());
            signing.needs_lanes(&request)
        };
        assert!(!keys(Size::Rsa2048).iter().any(needs));
        assert!(odd_exponent_keys(Size::Rsa2048).iter().any(needs));
    }
}
