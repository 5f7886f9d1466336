//! ECDH on P-256 and P-384 (SP 800-56A revision 3, section 5.7.1.2), for ephemeral keys.
//!
//! [`Secret::generate`] makes a key, a [`Public`] request asks for its public half, a [`Derive`]
//! request for the secret shared with a peer. [`Keygen`] and [`Derivation`] answer them.

use crate::nist::{self, Scalar};
use crate::{AgreeError, Backend, BackendUnavailable, Preference, Shared, Work};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use std::fmt;
use std::sync::{Arc, OnceLock};

pub use crate::nist::Curve;

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

    /// The value, which `make` may choose if nobody has yet.
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

/// Public halves of keys on one curve: `p256-keygen`, `p384-keygen`.
#[derive(Debug)]
pub struct Keygen {
    curve: Curve,
}

impl Keygen {
    /// Public halves with this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, curve: Curve) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self { curve })
    }
}

impl Work for Keygen {
    type Request = Public;
    type Output = Result<Vec<u8>, AgreeError>;

    fn name(&self) -> &'static str {
        match self.curve {
            Curve::P256 => "p256-keygen",
            Curve::P384 => "p384-keygen",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &Public) -> bool {
        request.secret.curve() == self.curve
    }

    fn pass(&self, requests: &[Public]) -> Vec<Result<Vec<u8>, AgreeError>> {
        requests.iter().map(|request| self.alone(request)).collect()
    }

    fn alone(&self, request: &Public) -> Result<Vec<u8>, AgreeError> {
        let key = request.secret.aws_lc()?;
        let point = key.compute_public_key().map_err(|_| AgreeError::Failed)?;
        Ok(point.as_ref().to_vec())
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
}

impl Derivation {
    /// Shared secrets with this backend.
    ///
    /// # Errors
    ///
    /// When this machine cannot run the backend.
    pub fn new(backend: Backend, curve: Curve) -> Result<Self, BackendUnavailable> {
        Preference::Exactly(backend).resolve()?;
        Ok(Self { curve })
    }
}

impl Work for Derivation {
    type Request = Derive;
    type Output = Result<Shared, AgreeError>;

    fn name(&self) -> &'static str {
        match self.curve {
            Curve::P256 => "p256-ecdh",
            Curve::P384 => "p384-ecdh",
        }
    }

    fn lanes(&self) -> usize {
        1
    }

    fn takes(&self, request: &Derive) -> bool {
        request.secret.curve() == self.curve
    }

    fn pass(&self, requests: &[Derive]) -> Vec<Result<Shared, AgreeError>> {
        requests.iter().map(|request| self.alone(request)).collect()
    }

    fn alone(&self, request: &Derive) -> Result<Shared, AgreeError> {
        let curve = request.secret.curve();
        // aws-lc-rs takes other encodings too.
        if request.peer.len() != curve.point_bytes() || request.peer[0] != nist::UNCOMPRESSED {
            return Err(AgreeError::InvalidPeer("it is not an uncompressed point"));
        }
        let peer = UnparsedPublicKey::new(curve.agreement(), request.peer.as_slice());
        let key = request.secret.aws_lc()?;
        let invalid = AgreeError::InvalidPeer("it is not on the curve");
        agreement::agree(key, peer, invalid, |secret| Ok(Shared::new(secret)))
    }

    fn specimen(&self) -> Derive {
        Derive {
            secret: Secret::new(self.curve, OnceLock::new()),
            peer: self.curve.generator().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn works(curve: Curve) -> (Keygen, Derivation) {
        let keygen = Keygen::new(Backend::AwsLc, curve).unwrap();
        (keygen, Derivation::new(Backend::AwsLc, curve).unwrap())
    }

    #[test]
    fn both_sides_agree() {
        for curve in Curve::ALL {
            let (keygen, derivation) = works(curve);
            let [ours, theirs] = [0; 2].map(|_| Secret::generate(curve).unwrap());
            let public = |secret: &Secret| {
                let secret = secret.clone();
                keygen.alone(&Public { secret }).unwrap()
            };
            let derive = |secret: &Secret, peer: Vec<u8>| {
                let secret = secret.clone();
                derivation.alone(&Derive { secret, peer }).unwrap()
            };
            let one = derive(&ours, public(&theirs));
            let other = derive(&theirs, public(&ours));
            assert_eq!(one.as_bytes(), other.as_bytes());
            assert_eq!(one.as_bytes().len(), curve.bytes());
        }
    }

    #[test]
    fn one_times_the_generator_is_the_generator() {
        for curve in Curve::ALL {
            let mut one = vec![0; curve.bytes()];
            one[curve.bytes() - 1] = 1;
            let secret = Secret::from_bytes(curve, &one).unwrap();
            let public = works(curve).0.alone(&Public { secret }).unwrap();
            assert_eq!(public, curve.generator());
        }
    }

    #[test]
    fn secrets_out_of_range_are_refused() {
        for curve in Curve::ALL {
            for bytes in [vec![], vec![0; curve.bytes()], vec![0xff; curve.bytes()]] {
                let refused = Secret::from_bytes(curve, &bytes).unwrap_err();
                assert_eq!(refused, AgreeError::InvalidSecret);
            }
        }
    }
}
