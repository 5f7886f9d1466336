//! Signatures as [`Operation`].

use super::Size;
use super::key::PrivateKey;
use super::pass::Signatures;
use super::request::{Scheme, SignError, SignRequest, sign_single};
use crate::operation::requests;
use crate::passes::{Passes, with_pass};
use crate::{Backend, BackendUnavailable, Operation};
use std::sync::OnceLock;
use widelane_kernels::Method;

/// Signatures with keys of one [`Size`]: `rsa2048-sign`, `rsa3072-sign` and `rsa4096-sign`.
#[derive(Debug)]
pub struct Signing {
    size: Size,
    passes: Passes<Signatures>,
}

/// Signatures with keys of any size, one by one: `rsa-sign`.
#[derive(Debug)]
pub struct OtherSigning;

impl Signing {
    /// Signatures with keys of this size on this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, size: Size) -> Result<Self, BackendUnavailable> {
        let prime_bits = size.prime_bits();
        let passes = Passes::new(backend, Signatures { prime_bits })?;
        Ok(Self { size, passes })
    }

    /// Answers as many requests of this size as there are lanes.
    fn one_pass(
        &self,
        method: Method,
        requests: &[SignRequest],
    ) -> Vec<Result<Vec<u8>, SignError>> {
        with_pass!(&self.passes, pass => pass.sign(method, requests), else {
            requests.iter().map(sign_single).collect()
        })
    }
}

requests! {
    SignRequest => Vec<u8>, SignError;
}

impl Operation for Signing {
    type Request = SignRequest;

    fn name(&self) -> &'static str {
        match self.size {
            Size::Rsa2048 => "rsa2048-sign",
            Size::Rsa3072 => "rsa3072-sign",
            Size::Rsa4096 => "rsa4096-sign",
        }
    }

    fn lanes(&self) -> usize {
        // Two lanes a request.
        self.passes.lanes().div_ceil(2)
    }

    fn takes(&self, request: &SignRequest) -> bool {
        request.size() == Some(self.size)
    }

    /// A request of another size gets [`SignError::WrongSize`].
    fn pass(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        self.pass_by(0, requests)
    }

    fn methods(&self) -> &'static [&'static str] {
        &methods().1
    }

    fn pass_by(&self, method: usize, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        let method = methods().0[method];
        if requests.iter().all(|request| self.takes(request)) {
            return requests
                .chunks(self.lanes())
                .flat_map(|some| self.one_pass(method, some))
                .collect();
        }
        let sign = |request: &SignRequest| {
            if self.takes(request) {
                let mut results = self.one_pass(method, std::slice::from_ref(request));
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

impl Operation for OtherSigning {
    type Request = SignRequest;

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

/// The environment variable that forces the method of all exponentiations: one of the names of
/// [`Method`]. Read once.
pub const METHOD_VARIABLE: &str = "WIDELANE_KERNELS";

/// The method that the environment forces.
///
/// # Errors
///
/// When it names none.
pub fn forced_method() -> Result<Option<Method>, UnknownMethod> {
    match widelane_cpu::variable(METHOD_VARIABLE) {
        None => Ok(None),
        Some(value) if value.is_empty() => Ok(None),
        Some(value) => value
            .to_str()
            .and_then(Method::named)
            .map(Some)
            .ok_or(UnknownMethod(value)),
    }
}

/// The environment names a method that there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{METHOD_VARIABLE} names {0:?}, which is no method; the methods are two-multipliers, \
     one-multiplier and small-code, and without the variable the fastest is measured"
)]
pub struct UnknownMethod(std::ffi::OsString);

/// The methods that passes may use, and their names.
fn methods() -> &'static (Vec<Method>, Vec<&'static str>) {
    static METHODS: OnceLock<(Vec<Method>, Vec<&'static str>)> = OnceLock::new();
    METHODS.get_or_init(|| {
        let forced = forced_method().unwrap_or_else(|error| {
            eprintln!("widelane: {error}");
            None
        });
        let methods = forced.map_or_else(|| Method::ALL.to_vec(), |method| vec![method]);
        let names = methods.iter().map(|method| method.name()).collect();
        (methods, names)
    })
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
