//! Agreements on secrets: what all of them have in common, and the groups of TLS.
//!
//! A [`Group`] is a curve, ML-KEM, or both. It [starts](Group::start) an agreement, [answers](Group::answer)
//! one, and a [`Key`] [finishes](Key::finish) it. Each of these is up to three [`Request`]s that do not depend
//! on one another; the caller runs them together.
//!
//! A new curve or KEM is a variant of [`Curve`] or a size of ML-KEM, and a row of [`GROUPS`]. Callers that take
//! groups as they come do not change.

use std::ffi::CStr;
use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::operation::{Requests, requests};
use crate::{mlkem, nist};

mod secret;

pub use secret::{Curve, Secret};
pub(crate) use secret::{Derive, NOT_A_POINT, OFF_CURVE, Public};

/// Answer to a request. Holds what the request makes: a share for the peer, a secret, and a key that finishes the
/// agreement.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub(crate) share: Vec<u8>,
    pub(crate) shared: Option<Shared>,
    pub(crate) key: Option<mlkem::DecapsulationKey>,
}

impl Answer {
    /// A share for the peer, and no more.
    pub(crate) fn of_share(share: impl Into<Vec<u8>>) -> Self {
        Self {
            share: share.into(),
            ..Self::default()
        }
    }

    /// The share for the peer; empty if the request makes none.
    pub fn into_share(self) -> Vec<u8> {
        self.share
    }

    /// The secret, if the request makes one.
    pub fn into_shared(self) -> Option<Shared> {
        self.shared
    }
}

impl From<Shared> for Answer {
    fn from(shared: Shared) -> Self {
        Self {
            shared: Some(shared),
            ..Self::default()
        }
    }
}

impl From<mlkem::DecapsulationKey> for Answer {
    /// A new key, and the share that belongs to it.
    fn from(key: mlkem::DecapsulationKey) -> Self {
        Self {
            share: key.encapsulation_key().to_vec(),
            shared: None,
            key: Some(key),
        }
    }
}

/// Result of a request.
pub type Outcome = Result<Answer, AgreeError>;

requests! {
    /// One part of an agreement.
    Request(Form) => Answer, AgreeError, |_| AgreeError::InvalidSecret;
    Public(Public),
    Derive(Derive),
    Keygen(mlkem::Keygen),
    Encapsulate(mlkem::Encapsulate),
    Decapsulate(mlkem::Decapsulate),
}

impl Request {
    /// Answers the request at once, on this thread, through aws-lc-rs.
    ///
    /// # Errors
    ///
    /// [`AgreeError`].
    pub fn alone(&self) -> Outcome {
        self.answer_alone()
    }
}

/// A group of TLS: what both sides of a handshake agree by.
#[derive(Debug)]
pub struct Group {
    /// Name of the group in IANA's registry "TLS Supported Groups".
    pub name: &'static CStr,
    /// Number of the group in that registry.
    pub tls_number: u16,
    /// Security strength: bits of a symmetric key that is as hard to find.
    pub security_bits: u32,
    /// Parts in the order in which they stand in shares and in the secret.
    parts: &'static [Part],
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Curve(Curve),
    Kem(mlkem::Size),
}

use Part::{Curve as On, Kem};
use mlkem::Size::{MlKem768, MlKem1024};

const P256: Curve = Curve::Nist(nist::Curve::P256);
const P384: Curve = Curve::Nist(nist::Curve::P384);

/// The groups, best first. The hybrids are of draft-ietf-tls-ecdhe-mlkem, section 4: X25519MLKEM768 alone has
/// ML-KEM first. The curves are of RFC 8446, section 4.2.8.2, and ML-KEM by itself, which comes last because
/// all trust is in it, is of draft-ietf-tls-mlkem.
pub static GROUPS: [Group; 8] = [
    Group::new(c"X25519MLKEM768", 0x11ec, 192, &[Kem(MlKem768), On(Curve::X25519)]),
    Group::new(c"x25519", 29, 128, &[On(Curve::X25519)]),
    Group::new(c"secp256r1", 23, 128, &[On(P256)]),
    Group::new(c"secp384r1", 24, 192, &[On(P384)]),
    Group::new(c"SecP256r1MLKEM768", 0x11eb, 192, &[On(P256), Kem(MlKem768)]),
    Group::new(c"SecP384r1MLKEM1024", 0x11ed, 256, &[On(P384), Kem(MlKem1024)]),
    Group::new(c"MLKEM768", 513, 192, &[Kem(MlKem768)]),
    Group::new(c"MLKEM1024", 514, 256, &[Kem(MlKem1024)]),
];

impl Part {
    fn offer_len(self) -> usize {
        match self {
            Self::Curve(curve) => curve.share_len(),
            Self::Kem(size) => size.encapsulation_key_len(),
        }
    }

    fn answer_len(self) -> usize {
        match self {
            Self::Curve(curve) => curve.share_len(),
            Self::Kem(size) => size.ciphertext_len(),
        }
    }

    /// ML-KEM has 32 bytes (FIPS 203, section 8).
    fn secret_len(self) -> usize {
        match self {
            Self::Curve(curve) => curve.secret_len(),
            Self::Kem(_) => 32,
        }
    }
}

impl Group {
    const fn new(name: &'static CStr, tls_number: u16, security_bits: u32, parts: &'static [Part]) -> Self {
        Self {
            name,
            tls_number,
            security_bits,
            parts,
        }
    }

    /// Returns whether ML-KEM is a part of the group.
    pub fn has_kem(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Kem(_)))
    }

    /// Returns whether the group has more than one part.
    pub fn is_hybrid(&self) -> bool {
        self.parts.len() > 1
    }

    /// Bytes of a client's share.
    pub fn offer_len(&self) -> usize {
        self.parts.iter().map(|part| part.offer_len()).sum()
    }

    /// Bytes of a server's share.
    pub fn answer_len(&self) -> usize {
        self.parts.iter().map(|part| part.answer_len()).sum()
    }

    /// Bytes of what both agree on.
    pub fn secret_len(&self) -> usize {
        self.parts.iter().map(|part| part.secret_len()).sum()
    }

    /// The client's side: a key, whose share is for the server.
    ///
    /// `secret` makes secrets on curves. `run` answers requests, each in its place.
    ///
    /// # Errors
    ///
    /// Those of both, and of the answers.
    pub fn start<E: From<AgreeError>>(
        &'static self,
        mut secret: impl FnMut(Curve) -> Result<Secret, E>,
        run: impl FnOnce(Vec<Request>) -> Result<Vec<Outcome>, E>,
    ) -> Result<Key, E> {
        let mut secrets = Vec::new();
        let mut requests = Vec::new();
        for part in self.parts {
            match *part {
                Part::Curve(curve) => {
                    let secret = secret(curve)?;
                    requests.push(secret.public());
                    secrets.push(Some(secret));
                }
                Kem(size) => {
                    requests.push(mlkem::Keygen { size }.into());
                    secrets.push(None);
                }
            }
        }
        let mut share = Vec::with_capacity(self.offer_len());
        let mut parts = Vec::new();
        for (answer, secret) in run(requests)?.into_iter().zip(secrets) {
            let answer = answer?;
            share.extend(&answer.share);
            parts.push(match secret {
                Some(secret) => KeyPart::Curve(secret),
                None => KeyPart::Kem(answer.key.ok_or(AgreeError::Failed)?),
            });
        }
        Ok(Key {
            group: self,
            parts,
            share,
        })
    }

    /// The server's side: its share, and the secret. The arguments are those of [`start`](Self::start), and
    /// the client's share.
    ///
    /// # Errors
    ///
    /// Those of both, and of the answers; [`AgreeError::InvalidPeer`] for a share of another length.
    pub fn answer<E: From<AgreeError>>(
        &self,
        offer: &[u8],
        mut secret: impl FnMut(Curve) -> Result<Secret, E>,
        run: impl FnOnce(Vec<Request>) -> Result<Vec<Outcome>, E>,
    ) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), E> {
        let mut requests = Vec::new();
        for (part, peer) in self.split(offer, Part::offer_len)? {
            match part {
                Part::Curve(curve) => {
                    let secret = secret(curve)?;
                    requests.extend([secret.public(), secret.derive(peer)?]);
                }
                Kem(size) => {
                    let key = peer.to_vec();
                    requests.push(mlkem::Encapsulate { size, key }.into());
                }
            }
        }
        self.join(run(requests)?).map_err(E::from)
    }

    /// The parts of a share, which have these lengths.
    fn split<'a>(&self, share: &'a [u8], len: impl Fn(Part) -> usize) -> Result<Vec<(Part, &'a [u8])>, AgreeError> {
        let mut rest = share;
        let mut part = |part| rest.split_off(..len(part)).map(|own| (part, own));
        let parts: Option<Vec<_>> = self.parts.iter().copied().map(&mut part).collect();
        parts.filter(|_| rest.is_empty()).ok_or(OTHER_LENGTH)
    }

    /// Puts shares and secrets together, in the order of their requests.
    fn join(&self, outcomes: Vec<Outcome>) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), AgreeError> {
        let mut share = Vec::with_capacity(self.answer_len());
        let mut joined = Zeroizing::new(Vec::with_capacity(self.secret_len()));
        for outcome in outcomes {
            let answer = outcome?;
            share.extend(answer.share);
            joined.extend(answer.shared.iter().flat_map(|shared| shared.as_bytes()));
        }
        Ok((share, joined))
    }
}

/// A client's key of a group.
#[derive(Clone, Debug)]
pub struct Key {
    group: &'static Group,
    parts: Vec<KeyPart>,
    share: Vec<u8>,
}

#[derive(Clone, Debug)]
enum KeyPart {
    Curve(Secret),
    Kem(mlkem::DecapsulationKey),
}

impl Key {
    /// The group.
    pub fn group(&self) -> &'static Group {
        self.group
    }

    /// Share that the client sends to the server.
    pub fn share(&self) -> &[u8] {
        &self.share
    }

    /// The key of the curve in a hybrid, which serves for the group of that curve alone, too.
    pub fn curve_alone(&self) -> Option<Self> {
        let shares = self.group.split(&self.share, Part::offer_len).ok()?;
        let mut parts = self.parts.iter().zip(shares);
        let (part, (_, share)) = parts.find(|(part, _)| matches!(part, KeyPart::Curve(_)))?;
        let is_alone = |group: &&Group| match (group.parts, part) {
            ([Part::Curve(curve)], KeyPart::Curve(secret)) => *curve == secret.curve(),
            _ => false,
        };
        let group = GROUPS.iter().find(is_alone)?;
        self.group.is_hybrid().then(|| Self {
            group,
            parts: vec![part.clone()],
            share: share.to_vec(),
        })
    }

    /// The secret, with the server's share. `run` answers requests, each in its place.
    ///
    /// # Errors
    ///
    /// Those of `run` and of the answers; [`AgreeError::InvalidPeer`] for a share of another length.
    pub fn finish<E: From<AgreeError>>(
        &self,
        answer: &[u8],
        run: impl FnOnce(Vec<Request>) -> Result<Vec<Outcome>, E>,
    ) -> Result<Zeroizing<Vec<u8>>, E> {
        let mut requests = Vec::new();
        let shares = self.group.split(answer, Part::answer_len)?;
        for (part, (_, peer)) in self.parts.iter().zip(shares) {
            requests.push(match part {
                KeyPart::Curve(secret) => secret.derive(peer)?,
                KeyPart::Kem(key) => {
                    let (key, ciphertext) = (key.clone(), peer.to_vec());
                    mlkem::Decapsulate { key, ciphertext }.into()
                }
            });
        }
        let (_, secret) = self.group.join(run(requests)?)?;
        Ok(secret)
    }
}

/// A secret that two sides have agreed on, wiped when dropped.
///
/// [`Debug`](fmt::Debug) shows its length and nothing else. It has no `==`, which would take a
/// time that depends on the secret.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Shared {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Shared {
    /// # Panics
    ///
    /// If there are more bytes than any agreement yields.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut shared = Self {
            bytes: [0; MAX_LEN],
            len: bytes.len(),
        };
        shared.bytes[..bytes.len()].copy_from_slice(bytes);
        shared
    }

    /// The secret.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Reason why there is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgreeError {
    /// The peer sent something that is no share of this algorithm.
    #[error("the peer's share is invalid: {0}")]
    InvalidPeer(&'static str),
    /// The peer's share leads to the same secret whatever ours is (X25519: of low order).
    #[error("the peer's share is weak: everyone can compute the shared secret")]
    WeakPeer,
    /// The caller's secret key is none.
    #[error("the secret key is invalid: its length is wrong, or it is zero or too large")]
    InvalidSecret,
    /// The operating system had no random bytes.
    #[error("no random bytes for the key agreement; see whether getrandom(2) works here")]
    Entropy,
    /// aws-lc-rs failed and does not say why.
    #[error("aws-lc-rs failed on a valid key agreement; it may be out of memory")]
    Failed,
}

/// The name of all groups with ML-KEM in settings.
pub const KEM_SETTING: &str = "mlkem";

/// Bytes of the longest secret, that of P-384.
const MAX_LEN: usize = 48;

const OTHER_LENGTH: AgreeError = AgreeError::InvalidPeer("a share of another length");

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &CStr) -> &'static Group {
        GROUPS.iter().find(|group| group.name == name).unwrap()
    }

    fn generate(curve: Curve) -> Result<Secret, AgreeError> {
        Secret::generate(curve)
    }

    fn alone(requests: Vec<Request>) -> Result<Vec<Outcome>, AgreeError> {
        Ok(requests.iter().map(Request::alone).collect())
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let shared = Shared::new(&[0xab; 32]);
        assert_eq!(shared.as_bytes(), [0xab; 32]);
        assert_eq!(format!("{shared:?}"), "Shared { len: 32, .. }");
        let secret = Secret::from_bytes(Curve::X25519, &[0xab; 32]).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret { .. }");
    }

    #[test]
    fn curves_have_openssls_names() {
        for curve in Curve::ALL {
            for name in curve.names() {
                assert_eq!(Curve::named(name.to_str().unwrap()), Some(curve));
            }
        }
        assert_eq!(Curve::named("X25519"), Some(Curve::X25519));
        assert_eq!(Curve::named("P-521"), None);
    }

    #[test]
    fn integers_get_the_length_of_their_curve() {
        let sized = P256.sized(&[1, 2]).unwrap();
        assert_eq!((sized.len(), &sized[30..]), (32, &[1, 2][..]));
        assert_eq!(P256.sized(&[&[0, 0], &sized[..]].concat()), Some(sized));
        assert!(P256.sized(&[&[1], &[0; 32][..]].concat()).is_none());
    }

    /// Lengths from draft-ietf-tls-ecdhe-mlkem, section 4.
    #[test]
    fn shares_have_the_lengths_of_the_draft() {
        for (name, offer, answer, secret) in [
            (c"X25519MLKEM768", 1216, 1120, 64),
            (c"SecP256r1MLKEM768", 1249, 1153, 64),
            (c"SecP384r1MLKEM1024", 1665, 1665, 80),
            (c"MLKEM768", 1184, 1088, 32),
            (c"MLKEM1024", 1568, 1568, 32),
            (c"x25519", 32, 32, 32),
            (c"secp256r1", 65, 65, 32),
            (c"secp384r1", 97, 97, 48),
        ] {
            let group = group(name);
            let lens = (group.offer_len(), group.answer_len(), group.secret_len());
            assert_eq!(lens, (offer, answer, secret), "{name:?}");
        }
    }

    #[test]
    fn halves_stand_in_the_order_of_the_draft() {
        let key = group(c"X25519MLKEM768").start(generate, alone).unwrap();
        assert_eq!(key.curve_alone().unwrap().share(), &key.share()[1184..]);
        let key = group(c"SecP256r1MLKEM768").start(generate, alone).unwrap();
        assert_eq!(key.curve_alone().unwrap().share(), &key.share()[..65]);
        assert_eq!(key.curve_alone().unwrap().group().name, c"secp256r1");
        let key = group(c"x25519").start(generate, alone).unwrap();
        assert!(key.curve_alone().is_none());
    }

    #[test]
    fn both_sides_agree_and_shares_of_other_lengths_are_refused() {
        for group in &GROUPS {
            let key = group.start(generate, alone).unwrap();
            let (share, secret) = group.answer(key.share(), generate, alone).unwrap();
            assert_eq!(key.finish(&share, alone).unwrap(), secret);
            assert_eq!(secret.len(), group.secret_len());
            for other in [&share[1..], &[&share[..], &[0]].concat()] {
                assert_eq!(key.finish(other, alone).unwrap_err(), OTHER_LENGTH);
            }
            let short = group.answer(&key.share()[1..], generate, alone);
            assert_eq!(short.unwrap_err(), OTHER_LENGTH);
        }
    }
}
