//! Curves, secret keys on them, and their requests.

use super::{Answer, Outcome, Request};
use crate::nist::{self, Scalar, random_scalar};
use crate::secrecy::opaque;
use crate::{AgreeError, Shared, ecdsa};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::encoding::{AsBigEndian, EcPrivateKeyBin};
use aws_lc_rs::rand;
use std::borrow::Cow;
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// A curve on which two sides agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve {
    /// X25519 (RFC 7748).
    X25519,
    /// A curve of NIST's.
    Nist(nist::Curve),
}

impl From<nist::Curve> for Curve {
    fn from(curve: nist::Curve) -> Self {
        Self::Nist(curve)
    }
}

impl Curve {
    /// Every curve.
    pub const ALL: [Self; 3] = [
        Self::X25519,
        Self::Nist(nist::Curve::P256),
        Self::Nist(nist::Curve::P384),
    ];

    /// Names of the curve in OpenSSL, the usual one first.
    pub const fn names(self) -> &'static [&'static CStr] {
        match self {
            Self::X25519 => &[c"x25519"],
            Self::Nist(nist::Curve::P256) => &[c"prime256v1", c"secp256r1", c"P-256"],
            Self::Nist(nist::Curve::P384) => &[c"secp384r1", c"P-384"],
        }
    }

    /// The names of its keys and of agreements with them, in OpenSSL.
    pub const fn key_names(self) -> [&'static CStr; 2] {
        match self {
            Self::X25519 => [c"X25519", c"X25519"],
            Self::Nist(_) => [c"EC", c"ECDH"],
        }
    }

    /// The names of the operations: shares of secrets, and secrets shared with peers.
    pub const fn operations(self) -> [&'static str; 2] {
        match self {
            Self::X25519 => ["x25519-keygen", "x25519-derive"],
            Self::Nist(nist::Curve::P256) => ["p256-keygen", "p256-ecdh"],
            Self::Nist(nist::Curve::P384) => ["p384-keygen", "p384-ecdh"],
        }
    }

    /// The name of such agreements in settings.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::X25519 => "x25519",
            Self::Nist(_) => "ecdh",
        }
    }

    /// The curve with one of these names, in any case of letters.
    pub fn named(name: &str) -> Option<Self> {
        let is = |known: &&CStr| known.to_bytes().eq_ignore_ascii_case(name.as_bytes());
        let mut curves = Self::ALL.into_iter();
        curves.find(|curve| curve.names().iter().any(is))
    }

    /// Bits of the order of its points: what OpenSSL calls the size of a key.
    pub const fn bits(self) -> u32 {
        match self {
            Self::X25519 => 253,
            Self::Nist(curve) => 8 * curve.bytes() as u32,
        }
    }

    /// Half as many bits as a field element has.
    pub const fn security_bits(self) -> u32 {
        4 * self.secret_len() as u32
    }

    /// Bytes of a secret key, and of what two sides agree on.
    pub const fn secret_len(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::Nist(curve) => curve.bytes(),
        }
    }

    /// Bytes of a share: 32 (RFC 7748), or an uncompressed point (SEC 1, section 2.3.3).
    pub const fn share_len(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::Nist(curve) => curve.point_bytes(),
        }
    }

    /// Size that OpenSSL reports for a key, in bytes: for keys that also sign, the length of a signature.
    pub const fn key_size(self) -> u32 {
        match self {
            Self::X25519 => 32,
            Self::Nist(curve) => curve.signature_len() as u32,
        }
    }

    /// Returns whether bytes are a share. On a curve of prime order each point of the curve is in the group (SP
    /// 800-56A, section 5.6.2.3.4), and X25519 takes every 32 bytes (RFC 7748, section 5).
    pub fn is_share(self, bytes: &[u8]) -> bool {
        match self {
            Self::X25519 => bytes.len() == 32,
            Self::Nist(curve) => ecdsa::check_point(curve, bytes).is_ok(),
        }
    }

    /// A secret key's big-endian integer with as many bytes as the curve has; `None` if it needs more.
    pub fn sized(self, integer: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let len = self.secret_len();
        let (high, low) = integer.split_at(integer.len().saturating_sub(len));
        let is_zero = high.iter().fold(0, |sum, byte| sum | byte) == 0;
        let mut sized = Zeroizing::new(vec![0; len]);
        sized[len - low.len()..].copy_from_slice(low);
        is_zero.then_some(sized)
    }

    /// The value of a secret key, if the bytes are one.
    fn value(self, bytes: &[u8]) -> Option<Scalar> {
        match self {
            Self::X25519 => (bytes.len() == 32).then(|| Zeroizing::new(bytes.to_vec())),
            Self::Nist(curve) => nist::scalar(curve, bytes),
        }
    }

    /// The value of a random secret key.
    fn random(self) -> Result<Scalar, AgreeError> {
        match self {
            Self::X25519 => {
                let mut bytes = Zeroizing::new(vec![0; 32]);
                rand::fill(&mut bytes).map_err(|_| AgreeError::Entropy)?;
                Ok(bytes)
            }
            Self::Nist(curve) => random_scalar(curve).map_err(|_| AgreeError::Entropy),
        }
    }

    fn aws_lc(self) -> &'static agreement::Algorithm {
        match self {
            Self::X25519 => &agreement::X25519,
            Self::Nist(nist::Curve::P256) => &agreement::ECDH_P256,
            Self::Nist(nist::Curve::P384) => &agreement::ECDH_P384,
        }
    }
}

/// A secret key on a curve. Cloning copies a counted reference; the key is wiped with the last clone.
/// [`Debug`](std::fmt::Debug) shows nothing of it.
///
/// A generated key on a curve of NIST's gets its value when it is first used, from whichever code uses
/// it first: aws-lc-rs imports foreign keys at a price that would double the cost of a lone agreement.
#[derive(Clone)]
pub struct Secret {
    inner: Arc<Inner>,
}

struct Inner {
    curve: Curve,
    origin: OnceLock<Origin>,
    /// A value of ours inside aws-lc-rs, once it was wanted there.
    imported: OnceLock<PrivateKey>,
}

/// Origin of a key's value.
enum Origin {
    Value(Scalar),
    AwsLc(PrivateKey),
}

impl Secret {
    /// A new random key.
    ///
    /// # Errors
    ///
    /// [`AgreeError::Entropy`] when there are no random bytes; on a curve of NIST's it may also be
    /// noticed at the first use.
    pub fn generate(curve: Curve) -> Result<Self, AgreeError> {
        Ok(Self::new(
            curve,
            match curve {
                Curve::X25519 => Origin::Value(curve.random()?).into(),
                Curve::Nist(_) => OnceLock::new(),
            },
        ))
    }

    /// The key with these bytes, big-endian on a curve of NIST's. Which bits of a key for X25519 count
    /// is up to the function, not to its caller (`decodeScalar25519` of RFC 7748, section 5).
    ///
    /// # Errors
    ///
    /// [`AgreeError::InvalidSecret`] if their number is another; on a curve of NIST's also if they are
    /// zero or not below its order.
    pub fn from_bytes(curve: Curve, bytes: &[u8]) -> Result<Self, AgreeError> {
        let value = curve.value(bytes).ok_or(AgreeError::InvalidSecret)?;
        Ok(Self::new(curve, Origin::Value(value).into()))
    }

    /// A new key from the bytes of `fill`, which are left in `bytes`. `None` if `fill` gives none.
    ///
    /// A random number is out of a curve's range once in 2^32 tries (P-256).
    pub fn fill(curve: Curve, bytes: &mut [u8], mut fill: impl FnMut(&mut [u8]) -> Option<()>) -> Option<Self> {
        (0..8).find_map(|_| {
            fill(bytes)?;
            Self::from_bytes(curve, bytes).ok()
        })
    }

    /// The curve.
    pub fn curve(&self) -> Curve {
        self.inner.curve
    }

    /// Asks for its share.
    pub fn public(&self) -> Request {
        let secret = self.clone();
        Public { secret }.into()
    }

    /// Asks for the secret shared with a peer.
    ///
    /// # Errors
    ///
    /// [`AgreeError::InvalidPeer`] if the share is not of 32 bytes for X25519. On a curve of NIST's the
    /// answer says so.
    pub fn derive(&self, peer: &[u8]) -> Result<Request, AgreeError> {
        if self.curve() == Curve::X25519 && peer.len() != 32 {
            return Err(AgreeError::InvalidPeer("not 32 bytes"));
        }
        let (secret, peer) = (self.clone(), peer.to_vec());
        Ok(Derive { secret, peer }.into())
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
        let algorithm = self.curve().aws_lc();
        let origin = self.origin(|| {
            let key = PrivateKey::generate(algorithm).map_err(|_| AgreeError::Entropy)?;
            Ok(Origin::AwsLc(key))
        })?;
        let value = match origin {
            Origin::AwsLc(key) => return Ok(key),
            Origin::Value(value) => value,
        };
        if let Some(key) = self.inner.imported.get() {
            return Ok(key);
        }
        let key = PrivateKey::from_private_key(algorithm, value).map_err(|_| AgreeError::Failed)?;
        Ok(self.inner.imported.get_or_init(|| key))
    }

    /// The value as bytes.
    pub(crate) fn value(&self) -> Result<Cow<'_, Scalar>, AgreeError> {
        let origin = self.origin(|| Ok(Origin::Value(self.curve().random()?)))?;
        match origin {
            Origin::Value(value) => Ok(Cow::Borrowed(value)),
            Origin::AwsLc(key) => {
                let bytes: EcPrivateKeyBin<'_> = key.as_be_bytes().map_err(|_| AgreeError::Failed)?;
                let value = self.curve().value(bytes.as_ref());
                Ok(Cow::Owned(value.ok_or(AgreeError::Failed)?))
            }
        }
    }

    /// The value of a key for X25519, which has one from the start.
    pub(crate) fn x25519(&self) -> &[u8] {
        match self.inner.origin.get() {
            Some(Origin::Value(value)) => value,
            _ => unreachable!("a key on another curve"),
        }
    }

    /// The value. `make` chooses it if there is none yet.
    fn origin(&self, make: impl FnOnce() -> Result<Origin, AgreeError>) -> Result<&Origin, AgreeError> {
        if let Some(origin) = self.inner.origin.get() {
            return Ok(origin);
        }
        let made = make()?;
        // Another thread may have been faster: then its value is the key.
        Ok(self.inner.origin.get_or_init(|| made))
    }
}

opaque!(Secret {});

/// Asks for the share of a secret: 32 bytes, or an uncompressed point (SEC 1, section 2.3.3).
#[derive(Clone, Debug)]
pub struct Public {
    pub(crate) secret: Secret,
}

/// Asks for the secret shared with a peer: 32 bytes, or an x-coordinate, big endian.
#[derive(Clone, Debug)]
pub struct Derive {
    pub(crate) secret: Secret,
    /// The peer's share. On a curve of NIST's, all but uncompressed points are refused, as TLS 1.3
    /// demands (RFC 8446, section 4.2.8.2), and so is a point off the curve.
    pub(crate) peer: Vec<u8>,
}

impl Public {
    pub(crate) fn alone(&self) -> Outcome {
        let share = self.secret.aws_lc()?.compute_public_key();
        let share = share.map_err(|_| AgreeError::Failed)?;
        Ok(Answer::of_share(share.as_ref()))
    }

    pub(crate) fn specimen(curve: Curve) -> Request {
        let secret = Secret::generate(curve).expect("the system has random bytes");
        secret.public()
    }
}

impl Derive {
    pub(crate) fn alone(&self) -> Outcome {
        let curve = self.secret.curve();
        let failure = match curve {
            // aws-lc-rs fails on shares of low order, and says no more than that it failed.
            Curve::X25519 => AgreeError::WeakPeer,
            // aws-lc-rs takes other encodings too.
            Curve::Nist(curve) if !curve.is_point(&self.peer) => return Err(NOT_A_POINT),
            Curve::Nist(_) => OFF_CURVE,
        };
        let peer = UnparsedPublicKey::new(curve.aws_lc(), self.peer.as_slice());
        let shared = |secret: &[u8]| Ok(Shared::new(secret).into());
        agreement::agree(self.secret.aws_lc()?, peer, failure, shared)
    }

    pub(crate) fn specimen(curve: Curve) -> Request {
        // The secret's share was made before, as in every handshake.
        static KNOWN: [OnceLock<(Secret, Vec<u8>)>; 3] = [const { OnceLock::new() }; 3];
        let place = Curve::ALL.iter().position(|known| *known == curve);
        let (secret, peer) = KNOWN[place.expect("one of all")].get_or_init(|| {
            let bytes = vec![0x5a; curve.secret_len()];
            let secret = Secret::from_bytes(curve, &bytes).expect("it is below all orders");
            let share = secret.public().alone().expect("a good secret has one");
            (secret, share.into_share())
        });
        secret.derive(peer).expect("a share has the right length")
    }
}

pub(crate) const NOT_A_POINT: AgreeError =
    AgreeError::InvalidPeer("it is not an uncompressed point with coordinates below the prime");
pub(crate) const OFF_CURVE: AgreeError = AgreeError::InvalidPeer("it is not on the curve");
