//! Signatures as [`Operation`].

use super::Size;
use super::pass::{Pass, Signatures};
use super::request::SignRequest;
use crate::operation::task;
use crate::sign::{self, Algorithm, Outcome, Prepared, Request};
use crate::{Operation, Task};
use std::sync::OnceLock;
use widelane_cpu::Target;
use widelane_kernels::Method;

/// Signatures with keys of one [`Size`]: `rsa2048-sign`, `rsa3072-sign` and `rsa4096-sign`.
#[derive(Clone, Copy, Debug)]
pub struct Signing(pub Size);

/// Signatures with keys of any size, one by one: `rsa-sign`.
#[derive(Debug)]
pub struct OtherSigning;

impl Task for Signing {
    task!(Request as SignRequest, in Signatures);

    fn name(self) -> &'static str {
        Algorithm::Rsa.operations()[self.0 as usize]
    }

    fn family(self) -> Signatures {
        let prime_bits = self.0.prime_bits();
        Signatures { prime_bits }
    }

    fn answers(self, request: &SignRequest) -> bool {
        request.size() == Some(self.0)
    }

    fn pass<const L: usize>(self, pass: &Pass<L>, requests: &[&SignRequest]) -> Vec<Outcome> {
        self.pass_by(0, pass, requests)
    }

    const LANES_EACH: usize = 2;

    fn methods(self, target: Option<Target>) -> &'static [&'static str] {
        &methods(target).1
    }

    fn pass_by<const L: usize>(self, method: usize, pass: &Pass<L>, requests: &[&SignRequest]) -> Vec<Outcome> {
        let methods = &methods(pass.kernels.target()).0;
        pass.sign(methods[method], requests)
    }

    fn needs_lanes(request: &SignRequest) -> bool {
        request.key.aws_lc().is_none()
    }

    fn specimen(self) -> Request {
        sign::specimen_by(Algorithm::Rsa, self.0.specimen())
    }
}

impl Size {
    /// A private key of this size for measurements, which is public: PKCS#1.
    pub fn specimen(self) -> &'static [u8] {
        match self {
            Self::Rsa2048 => include_bytes!("specimens/rsa2048.der"),
            Self::Rsa3072 => include_bytes!("specimens/rsa3072.der"),
            Self::Rsa4096 => include_bytes!("specimens/rsa4096.der"),
        }
    }
}

impl Operation for OtherSigning {
    type Request = Request;

    fn name(&self) -> &'static str {
        "rsa-sign"
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &Request) -> bool {
        matches!(request.0, Prepared::Rsa(_))
    }

    fn pass(&self, requests: &[Request]) -> Vec<Outcome> {
        requests.iter().map(Request::alone).collect()
    }

    fn alone(&self, request: &Request) -> Outcome {
        request.alone()
    }

    fn specimen(&self) -> Request {
        sign::specimen_by(Algorithm::Rsa, include_bytes!("specimens/rsa2560.der"))
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

/// The methods that passes with a target's code may use, and their names.
fn methods(target: Option<Target>) -> &'static (Vec<Method>, Vec<&'static str>) {
    type Methods = (Vec<Method>, Vec<&'static str>);
    static FORCED: OnceLock<Option<Method>> = OnceLock::new();
    static METHODS: [OnceLock<Methods>; Target::ALL.len() + 1] = [const { OnceLock::new() }; Target::ALL.len() + 1];
    let forced = *FORCED.get_or_init(|| {
        forced_method().unwrap_or_else(|error| {
            eprintln!("widelane: {error}");
            None
        })
    });
    let place = target.map_or(Target::ALL.len(), |target| target as usize);
    METHODS[place].get_or_init(|| {
        let mut methods = target.map_or_else(|| Method::ALL.to_vec(), Method::all_for);
        match (forced, target) {
            (Some(forced), _) if methods.contains(&forced) => methods = vec![forced],
            (Some(forced), Some(target)) => eprintln!(
                "widelane: {METHOD_VARIABLE} names {}, which lanes of {target} lack; there the \
                 fastest method is measured",
                forced.name()
            ),
            _ => {}
        }
        let names = methods.iter().map(|method| method.name()).collect();
        (methods, names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{assert_verifies, keys, odd_exponent_keys};
    use crate::rsa::{PrivateKey, Scheme};
    use crate::sign::SPECIMEN_MESSAGE as MESSAGE;
    use crate::{Backend, OnBackend};

    #[test]
    fn specimens_are_signed_both_ways() {
        for size in Size::ALL {
            for signing in OnBackend::everywhere(Signing(size)) {
                let requests: Vec<_> = (0..3).map(|_| signing.specimen()).collect();
                assert!(requests.iter().all(|request| signing.takes(request)));
                let mut results = signing.pass(&requests);
                results.push(signing.alone(&requests[0]));
                assert_eq!(results.len(), 4);
                let request = Signing(size).own(&requests[0]).unwrap();
                for result in results {
                    let signature = result.unwrap();
                    assert_verifies(signing.name(), request, MESSAGE, &signature);
                }
            }
        }
        let specimen = OtherSigning.specimen();
        let Prepared::Rsa(request) = &specimen.0 else {
            panic!("{specimen:?}");
        };
        assert_eq!(request.size(), None);
        for signature in OtherSigning.pass(&[specimen.clone(), specimen.clone()]) {
            assert_verifies("other", request, MESSAGE, &signature.unwrap());
        }
    }

    #[test]
    fn only_what_aws_lc_refuses_needs_lanes() {
        let signing = Signing(Size::Rsa2048).on(Backend::AwsLc).unwrap();
        let needs = |key: &PrivateKey| {
            let request = SignRequest::new(key, Scheme::PssSha256, b"m").unwrap().into();
            assert_eq!(signing.needs_lanes(&request), key.aws_lc().is_none());
            signing.needs_lanes(&request)
        };
        assert!(!keys(Size::Rsa2048).iter().any(needs));
        assert!(odd_exponent_keys(Size::Rsa2048).iter().any(needs));
    }
}
