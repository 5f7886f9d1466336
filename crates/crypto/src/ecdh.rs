//! ECDH on P-256 and P-384 (SP 800-56A revision 3, section 5.7.1.2), for ephemeral keys.
//!
//! [`Secret::generate`] makes a key, a [`Public`] request asks for its public half, a [`Derive`]
//! request for the secret shared with a peer. [`Keygen`] and [`Derivation`] answer them.

use crate::nist::{self, Lanes, Multiple, MultipleError, Scalar, random_scalar};
use crate::operation::{in_passes, requests};
use crate::{AgreeError, Backend, BackendUnavailable, Operation, Shared};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

pub use crate::nist::Curve;

#[cfg(test)]
mod tests;

/// A secret key. Cloning copies a counted reference; the key is wiped with the last clone.
///
/// A generated key gets its value when it is first used, from whichever code uses it first:
/// aws-lc-rs imports foreign keys at a price that would double the cost of a lone agreement.
#[derive(Clone)]
pub struct Secret {
    inner: Arc<Inner>,
}

struct Inner {
    curve: Curve,
    origin: OnceLock<Origin>,
    /// A scalar of ours inside aws-lc-rs, once it was wanted there.
    imported: OnceLock<PrivateKey>,
}

/// Where a key has its value from.
enum Origin {
    Scalar(Scalar),
    AwsLc(PrivateKey),
}

impl Secret {
    /// A new random key.
    ///
    /// # Errors
    ///
    /// [`AgreeError::Entropy`] when the system's random generator fails; it may also be noticed at
    /// the first use.
    pub fn generate(curve: Curve) -> Result<Self, AgreeError> {
        Ok(Self::new(curve, OnceLock::new()))
    }

    /// The key with this value: big-endian bytes, as many as the curve's scalars have.
    ///
    /// # Errors
    ///
    /// [`AgreeError::InvalidSecret`] if the length is another, or the value is zero or not below
    /// the order of the curve.
    pub fn from_bytes(curve: Curve, bytes: &[u8]) -> Result<Self, AgreeError> {
        let scalar = nist::scalar(curve, bytes).ok_or(AgreeError::InvalidSecret)?;
        Ok(Self::new(curve, Origin::Scalar(scalar).into()))
    }

    /// The curve.
    pub fn curve(&self) -> Curve {
        self.inner.curve
    }

    fn new(curve: Curve, origin: OnceLock<Origin>) -> Self {
        Self {
            inner: Arc::new(Inner {
                curve,
                origin,
                imported: OnceLock::new(),
            }),
        }
    }

    /// The key inside aws-lc-rs.
    fn aws_lc(&self) -> Result<&PrivateKey, AgreeError> {
        let algorithm = self.curve().agreement();
        let origin = self.origin(|| {
            let key = PrivateKey::generate(algorithm).map_err(|_| AgreeError::Entropy)?;
            Ok(Origin::AwsLc(key))
        })?;
        let scalar = match origin {
            Origin::AwsLc(key) => return Ok(key),
            Origin::Scalar(scalar) => scalar,
        };
        if let Some(key) = self.inner.imported.get() {
            return Ok(key);
        }
        let key =
            PrivateKey::from_private_key(algorithm, scalar).map_err(|_| AgreeError::Failed)?;
        Ok(self.inner.imported.get_or_init(|| key))
    }

    /// The value as bytes.
    fn scalar(&self) -> Result<Cow<'_, Scalar>, AgreeError> {
        let curve = self.curve();
        let origin = self.origin(|| {
            let scalar = random_scalar(curve).map_err(|_| AgreeError::Entropy)?;
            Ok(Origin::Scalar(scalar))
        })?;
        match origin {
            Origin::Scalar(scalar) => Ok(Cow::Borrowed(scalar)),
            Origin::AwsLc(key) => {
                let bytes: EcPrivateKeyBin<'_> =
                    key.as_be_bytes().map_err(|_| AgreeError::Failed)?;
                let scalar = nist::scalar(curve, bytes.as_ref());
                Ok(Cow::Owned(scalar.ok_or(AgreeError::Failed)?))
            }
        }
    }

    /// The value. `make` chooses it if there is none yet.
    fn origin(
        &self,
        make: impl FnOnce() -> Result<Origin, AgreeError>,
    ) -> Result<&Origin, AgreeError> {
        if let Some(origin) = self.inner.origin.get() {
            return Ok(origin);
        }
        let made = make()?;
        // Another thread may have been faster: then its value is the key.
        Ok(self.inner.origin.get_or_init(|| made))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("curve", &self.curve())
            .finish_non_exhaustive()
    }
}

/// Asks for the public half of a key: an uncompressed point (SEC 1, section 2.3.3).
#[derive(Clone, Debug)]
pub struct Public {
    /// The key.
    pub secret: Secret,
}

/// Asks for the secret shared with a peer: the x-coordinate, big endian.
#[derive(Clone, Debug)]
pub struct Derive {
    /// Our key.
    pub secret: Secret,
    /// The peer's public key as an uncompressed point. Anything else is refused, as TLS 1.3
    /// demands (RFC 8446, section 4.2.8.2), and so is a point off the curve.
    pub peer: Vec<u8>,
}

impl Public {
    pub(crate) fn alone(&self) -> Result<Vec<u8>, AgreeError> {
        let key = self.secret.aws_lc()?;
        let point = key.compute_public_key().map_err(|_| AgreeError::Failed)?;
        Ok(point.as_ref().to_vec())
    }
}

impl Derive {
    pub(crate) fn alone(&self) -> Result<Shared, AgreeError> {
        let curve = self.secret.curve();
        // aws-lc-rs takes other encodings too.
        if !curve.is_point(&self.peer) {
            return Err(NOT_A_POINT);
        }
        let peer = UnparsedPublicKey::new(curve.agreement(), self.peer.as_slice());
        let key = self.secret.aws_lc()?;
        agreement::agree(key, peer, OFF_CURVE, |secret| Ok(Shared::new(secret)))
    }
}

/// Public halves of keys on one curve: `p256-keygen`, `p384-keygen`.
#[derive(Debug)]
pub struct Keygen {
    curve: Curve,
    lanes: Option<Box<dyn Lanes>>,
}

impl Keygen {
    /// Public halves with this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, curve: Curve) -> Result<Self, BackendUnavailable> {
        let lanes = nist::lanes(backend, curve)?;
        Ok(Self { curve, lanes })
    }
}

requests! {
    Public => Vec<u8>, AgreeError;
    Derive => Shared, AgreeError;
}

impl Operation for Keygen {
    type Request = Public;

    fn name(&self) -> &'static str {
        match self.curve {
            Curve::P256 => "p256-keygen",
            Curve::P384 => "p384-keygen",
        }
    }

    fn lanes(&self) -> usize {
        self.lanes.as_ref().map_or(1, |lanes| lanes.lanes())
    }

    fn takes(&self, request: &Public) -> bool {
        request.secret.curve() == self.curve
    }

    fn pass(&self, requests: &[Public]) -> Vec<Result<Vec<u8>, AgreeError>> {
        let Some(lanes) = &self.lanes else {
            return requests.iter().map(Public::alone).collect();
        };
        let scalars = requests.iter().map(|request| {
            let of_curve = request.secret.curve() == self.curve;
            let curve = of_curve.then_some(()).ok_or(AgreeError::InvalidSecret);
            curve.and_then(|()| request.secret.scalar())
        });
        in_passes(lanes.lanes(), scalars.collect(), |scalars| {
            let scalars: Vec<&[u8]> = scalars.iter().map(|scalar| scalar.as_slice()).collect();
            let points = lanes.base_multiples(&scalars).into_iter();
            points
                .map(|point| point.map_err(|_| AgreeError::Failed))
                .collect()
        })
    }

    fn alone(&self, request: &Public) -> Result<Vec<u8>, AgreeError> {
        request.alone()
    }

    fn specimen(&self) -> Public {
        Public {
            secret: Secret::new(self.curve, OnceLock::new()),
        }
    }
}

/// Shared secrets on one curve: `p256-ecdh`, `p384-ecdh`.
#[derive(Debug)]
pub struct Derivation {
    curve: Curve,
    lanes: Option<Box<dyn Lanes>>,
}

impl Derivation {
    /// Shared secrets with this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, curve: Curve) -> Result<Self, BackendUnavailable> {
        let lanes = nist::lanes(backend, curve)?;
        Ok(Self { curve, lanes })
    }
}

impl Operation for Derivation {
    type Request = Derive;

    fn name(&self) -> &'static str {
        match self.curve {
            Curve::P256 => "p256-ecdh",
            Curve::P384 => "p384-ecdh",
        }
    }

    fn lanes(&self) -> usize {
        self.lanes.as_ref().map_or(1, |lanes| lanes.lanes())
    }

    fn takes(&self, request: &Derive) -> bool {
        request.secret.curve() == self.curve
    }

    fn pass(&self, requests: &[Derive]) -> Vec<Result<Shared, AgreeError>> {
        let Some(lanes) = &self.lanes else {
            return requests.iter().map(Derive::alone).collect();
        };
        let problem = |request: &'_ Derive| {
            if request.secret.curve() != self.curve {
                return Err(AgreeError::InvalidSecret);
            }
            if !self.curve.is_point(&request.peer) {
                return Err(NOT_A_POINT);
            }
            request.secret.scalar().map(|scalar| scalar.into_owned())
        };
        let problems = requests.iter().map(|request| {
            let scalar = problem(request)?;
            Ok((scalar, &request.peer[1..]))
        });
        in_passes(lanes.lanes(), problems.collect(), |problems| {
            let problems: Vec<_> = problems
                .iter()
                .map(|&(ref scalar, point)| Multiple { scalar, point })
                .collect();
            let result = |x: Result<nist::Coordinate, MultipleError>| match x {
                Ok(x) => Ok(Shared::new(&x)),
                Err(MultipleError::OffCurve) => Err(OFF_CURVE),
                Err(MultipleError::Fault) => Err(AgreeError::Failed),
            };
            lanes.multiples(&problems).into_iter().map(result).collect()
        })
    }

    fn alone(&self, request: &Derive) -> Result<Shared, AgreeError> {
        request.alone()
    }

    fn specimen(&self) -> Derive {
        // Its public share was made before, as in every handshake.
        static SECRETS: [OnceLock<Secret>; 2] = [const { OnceLock::new() }; 2];
        let secret = SECRETS[self.curve as usize].get_or_init(|| {
            let scalar = vec![0x5a; self.curve.bytes()];
            Secret::from_bytes(self.curve, &scalar).expect("it is below both orders")
        });
        Derive {
            secret: secret.clone(),
            peer: self.curve.generator().to_vec(),
        }
    }
}

const NOT_A_POINT: AgreeError =
    AgreeError::InvalidPeer("it is not an uncompressed point with coordinates below the prime");
const OFF_CURVE: AgreeError = AgreeError::InvalidPeer("it is not on the curve");
