//! What signs with a private key in lanes: prepared when that pays, and shared by copies of the key.
//!
//! To prepare an RSA key takes as long as half a signature. A server that loads its keys at start
//! signs with each of them again and again. nginx with `ssl_certificate $variable` loads a key for
//! one handshake, and would pay each time. Two rules serve both without a timer:
//!
//! 1. A key is prepared when it has signed once. OpenSSL makes the first signature. One that is begun and
//!    dropped does not count: libssl asks so, for each handshake, whether a key can sign.
//! 2. Copies of a key that exist at the same time are one key. Signatures with any of them count,
//!    and what was prepared for one serves the others. It goes away with the last copy.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use widelane_crypto::{ecdh, ecdsa, ed25519, mldsa, rsa};
use zeroize::Zeroizing;

use crate::family::Family;
use crate::forks::{Forked, InUse};
use crate::keys::{Curve, sized};
use crate::log;
use crate::params::Params;

/// A private key that lanes sign with.
pub(crate) enum Signer {
    Rsa(rsa::PrivateKey),
    Ecdsa(ecdsa::PrivateKey),
    Ed25519(ed25519::PrivateKey),
    MlDsa(mldsa::PrivateKey),
}

impl Signer {
    /// The most bytes that a signature can have.
    pub(crate) fn signature_len(&self) -> usize {
        match self {
            Self::Rsa(key) => key.modulus_bits().div_ceil(8),
            // SEQUENCE of two INTEGERs, each with a sign byte.
            Self::Ecdsa(key) => match key.curve() {
                ecdh::Curve::P256 => 72,
                ecdh::Curve::P384 => 104,
            },
            Self::Ed25519(_) => 64,
            Self::MlDsa(key) => key.size().signature_len(),
        }
    }
}

/// A signer while it may sign.
pub(crate) struct SignerInUse<'a>(InUse<'a, Option<Signer>>);

impl<'a> SignerInUse<'a> {
    fn of(signer: InUse<'a, Option<Signer>>) -> Option<Self> {
        signer.is_some().then_some(Self(signer))
    }
}

impl Deref for SignerInUse<'_> {
    type Target = Signer;

    fn deref(&self) -> &Signer {
        self.0.as_ref().expect("there is one: `of` has looked")
    }
}

/// A private key and, once it was prepared, its signer.
pub(crate) struct Preparation {
    family: Family,
    /// The public half, by which copies find each other; empty if it is not known.
    public: Vec<u8>,
    /// PKCS#1, SEC 1 or PKCS#8, by the family; of ML-DSA the seed or the expanded key.
    der: Zeroizing<Vec<u8>>,
    has_signed: AtomicBool,
    /// `None` if lanes do not take the key. A forked process prepares the key anew if it was signing.
    signer: Forked<Option<Signer>>,
}

impl Preparation {
    /// The preparation of the key with these values, which another copy may have begun. `None` if it
    /// is of a kind without lanes.
    pub(crate) fn of(family: Family, params: Params<'_>) -> Option<Arc<Self>> {
        let read = match family {
            Family::Rsa => rsa_key(params),
            Family::Ec => ec_key(params),
            Family::Ed25519 => ed25519_key(params),
            Family::MlDsa44 | Family::MlDsa65 | Family::MlDsa87 => ml_dsa_key(params),
            Family::X25519 => return None,
        };
        match read? {
            Ok((public, der)) => Some(Self::shared(Self {
                family,
                public,
                der,
                has_signed: AtomicBool::new(false),
                signer: Forked::new(),
            })),
            Err(reason) => {
                refused(family, &reason);
                None
            }
        }
    }

    /// A signature begins: what makes it in lanes, if anything does.
    pub(crate) fn begin(&self) -> Option<SignerInUse<'_>> {
        let is_due = || {
            self.has_signed.load(Relaxed) || AT_FIRST_USE.load(Relaxed) || AT_ONCE.with(Cell::get)
        };
        let found = match self.signer.get() {
            None if !is_due() => return None,
            found => found,
        };
        SignerInUse::of(found.unwrap_or_else(|| self.signer.set(self.prepare())))
    }

    /// OpenSSL has made a signature.
    pub(crate) fn signed(&self) {
        self.has_signed.store(true, Relaxed);
    }

    /// What was prepared.
    pub(crate) fn signer(&self) -> Option<SignerInUse<'_>> {
        SignerInUse::of(self.signer.get()?)
    }

    /// Whether lanes take the key, as far as that is known.
    pub(crate) fn may_sign(&self) -> bool {
        self.signer.get().is_none_or(|signer| signer.is_some())
    }

    fn prepare(&self) -> Option<Signer> {
        let der = self.der.as_slice();
        let signer = match self.family {
            Family::Rsa => {
                rsa::PrivateKey::from_der(&PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der)))
                    .map(Signer::Rsa)
                    .map_err(|error| error.to_string())
            }
            Family::Ec => {
                ecdsa::PrivateKey::from_der(&PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der)))
                    .map(Signer::Ecdsa)
                    .map_err(|error| error.to_string())
            }
            Family::Ed25519 => {
                ed25519::PrivateKey::from_der(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der)))
                    .map(Signer::Ed25519)
                    .map_err(|error| error.to_string())
            }
            Family::MlDsa44 | Family::MlDsa65 | Family::MlDsa87 => {
                let size = self.family.ml_dsa()?;
                let key = match der.len() {
                    SEED => mldsa::PrivateKey::from_seed(size, der),
                    _ => mldsa::PrivateKey::from_expanded(size, der),
                };
                key.map(Signer::MlDsa).map_err(|error| error.to_string())
            }
            Family::X25519 => return None,
        };
        let fit = signer.and_then(|signer| match &signer {
            Signer::Rsa(key) if key.accelerated().is_none() => {
                Err("lanes take 2048, 3072 and 4096 bits with primes of half as many".into())
            }
            _ => Ok(signer),
        });
        fit.map_err(|reason| refused(self.family, &reason)).ok()
    }

    /// The preparation of another copy, if there is one, and else this one.
    fn shared(self) -> Arc<Self> {
        if self.public.is_empty() {
            return Arc::new(self);
        }
        let mut known = known();
        let of = (self.family, self.public.clone());
        if let Some(copy) = known.get(&of).and_then(Weak::upgrade) {
            // The lock is not held when `self` goes away: that takes the lock too.
            drop(known);
            return match copy.is_same(&self) {
                true => copy,
                false => Arc::new(self),
            };
        }
        let own = Arc::new(self);
        known.insert(of, Arc::downgrade(&own));
        own
    }

    /// Whether the private halves are the same, compared without a branch on a byte of them.
    fn is_same(&self, other: &Self) -> bool {
        let pairs = self.der.iter().zip(other.der.iter());
        let difference = pairs.fold(0, |sum, (one, other)| sum | (one ^ other));
        self.der.len() == other.der.len() && difference == 0
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        let of = (self.family, std::mem::take(&mut self.public));
        let mut known = known();
        // A newer copy may have taken the place.
        if known.get(&of).is_some_and(|weak| weak.strong_count() == 0) {
            known.remove(&of);
        }
    }
}

/// Chooses whether signatures that this thread begins prepare their keys at once.
pub(crate) fn prepare_at_once(at_once: bool) {
    AT_ONCE.set(at_once);
}

/// Chooses that keys are prepared at their first signature.
pub(crate) fn prepare_at_first_use() {
    AT_FIRST_USE.store(true, Relaxed);
}

fn refused(family: Family, reason: &str) {
    log::once(&format!(
        "OpenSSL signs by itself with a key {}: {reason}",
        family.key_name().to_string_lossy()
    ));
}

pub(crate) type Known = HashMap<(Family, Vec<u8>), Weak<Preparation>>;

/// The preparations that exist, by family and public half.
pub(crate) fn known() -> MutexGuard<'static, Known> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

static AT_FIRST_USE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// A key's public half and its DER; or why lanes do not take it. `None` if it is not whole.
type Read = Option<Result<(Vec<u8>, Zeroizing<Vec<u8>>), String>>;

/// An RSA key from OpenSSL's integers, as PKCS#1 (RFC 8017, appendix A.1.2).
fn rsa_key(params: Params<'_>) -> Read {
    let value = |key: &CStr| Some(trimmed(params.get(key)?.big()?));
    if params.get(c"rsa-factor3").is_some() {
        return Some(Err("it has more than two primes".into()));
    }
    let parts = (|| {
        Some([
            value(c"n")?,
            value(c"e")?,
            value(c"d")?,
            value(c"rsa-factor1")?,
            value(c"rsa-factor2")?,
            value(c"rsa-exponent1")?,
            value(c"rsa-exponent2")?,
            value(c"rsa-coefficient1")?,
        ])
    })();
    let Some([n, e, d, p, q, dp, dq, qinv]) = &parts else {
        return Some(Err("it has no primes".into()));
    };
    let der = || {
        let integer = pkcs1::UintRef::new;
        let key = pkcs1::RsaPrivateKey {
            modulus: integer(n)?,
            public_exponent: integer(e)?,
            private_exponent: integer(d)?,
            prime1: integer(p)?,
            prime2: integer(q)?,
            exponent1: integer(dp)?,
            exponent2: integer(dq)?,
            coefficient: integer(qinv)?,
            other_prime_infos: None,
        };
        pkcs1::der::Encode::to_der(&key).map(Zeroizing::new)
    };
    let der = der().map_err(|error: pkcs1::der::Error| error.to_string());
    Some(der.map(|der| (n.to_vec(), der)))
}

/// An ECDSA key from OpenSSL's values, as SEC 1 (RFC 5915).
fn ec_key(params: Params<'_>) -> Read {
    let group = params.get(c"group")?.text()?;
    let Some(Curve::Nist(curve)) = Curve::named(group) else {
        return Some(Err(format!("lanes take P-256 and P-384, not {group}")));
    };
    let secret = sized(&params.get(c"priv")?.big()?, Curve::Nist(curve).len())?;
    let key = sec1::EcPrivateKey {
        private_key: &secret,
        parameters: Some(sec1::EcParameters::NamedCurve(match curve {
            ecdh::Curve::P256 => P256,
            ecdh::Curve::P384 => P384,
        })),
        public_key: None,
    };
    let der = sec1::der::Encode::to_der(&key).map(Zeroizing::new);
    Some(
        der.map_err(|error| error.to_string())
            .map(|der| (public(params), der)),
    )
}

/// An Ed25519 key from its 32 bytes, as PKCS#8 (RFC 8410, section 7).
fn ed25519_key(params: Params<'_>) -> Read {
    let seed = params.get(c"priv")?.octets()?;
    if seed.len() != 32 {
        return None;
    }
    let mut der = Zeroizing::new(ED25519_PKCS8.to_vec());
    der.extend_from_slice(seed);
    Some(Ok((public(params), der)))
}

/// The public half of a key on a curve; empty if OpenSSL does not know it.
fn public(params: Params<'_>) -> Vec<u8> {
    let public = params.get(c"pub").and_then(|value| value.octets());
    public.map(<[u8]>::to_vec).unwrap_or_default()
}

/// Without leading zeros: OpenSSL pads the integers of keys. Their lengths are those of the file
/// that they came from.
fn trimmed(bytes: Zeroizing<Vec<u8>>) -> Zeroizing<Vec<u8>> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Zeroizing::new(bytes[zeros..].to_vec())
}

const P256: sec1::der::oid::ObjectIdentifier =
    sec1::der::oid::ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: sec1::der::oid::ObjectIdentifier =
    sec1::der::oid::ObjectIdentifier::new_unwrap("1.3.132.0.34");

/// An ML-DSA key: the seed that FIPS 204 makes it of, or its expanded form.
fn ml_dsa_key(params: Params<'_>) -> Read {
    let octets = |key: &CStr| params.get(key)?.octets();
    let key = octets(c"seed").filter(|seed| seed.len() == SEED);
    let key = key.or_else(|| octets(c"priv"))?;
    Some(Ok((public(params), Zeroizing::new(key.to_vec()))))
}

/// Bytes of a seed of ML-DSA (FIPS 204, section 5.1).
const SEED: usize = 32;

/// The DER of a `PrivateKeyInfo` for id-Ed25519 up to the key's bytes.
const ED25519_PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn ed25519(public: u8, seed: u8) -> Arc<Preparation> {
        let mut der = Zeroizing::new(ED25519_PKCS8.to_vec());
        der.extend_from_slice(&[seed; 32]);
        Preparation::shared(Preparation {
            family: Family::Ed25519,
            public: vec![public; 32],
            der,
            has_signed: AtomicBool::new(false),
            signer: Forked::new(),
        })
    }

    #[test]
    fn a_key_that_has_signed_is_prepared() {
        let key = ed25519(1, 1);
        for _ in 0..3 {
            assert!(key.begin().is_none(), "begun and dropped");
        }
        key.signed();
        assert!(key.signer().is_none(), "no signature has begun since");
        assert!(key.begin().is_some() && key.signer().is_some());
    }

    #[test]
    fn a_server_prepares_its_keys_at_its_start() {
        let key = ed25519(5, 5);
        prepare_at_once(true);
        assert!(key.begin().is_some());
        prepare_at_once(false);
        assert!(ed25519(6, 6).begin().is_none());
    }

    #[test]
    fn copies_that_exist_at_the_same_time_are_one_key() {
        let one = ed25519(2, 2);
        assert!(one.begin().is_none());
        one.signed();
        let copy = ed25519(2, 2);
        assert!(Arc::ptr_eq(&one, &copy));
        assert!(copy.begin().is_some() && one.signer().is_some());
        drop(one);
        assert!(ed25519(2, 2).signer().is_some(), "a copy is left");
        drop(copy);
        assert!(ed25519(2, 2).begin().is_none(), "the last copy has gone");
    }

    #[test]
    fn keys_with_one_public_half_and_other_secrets_share_nothing() {
        let [one, other] = [ed25519(3, 3), ed25519(3, 4)];
        other.signed();
        assert!(one.begin().is_none() && other.begin().is_some());
        drop(other);
        assert!(one.begin().is_none());
        one.signed();
        assert!(one.begin().is_some());
        assert!(ed25519(3, 3).signer().is_some());
    }

    #[test]
    fn integers_lose_their_padding() {
        assert_eq!(trimmed(Zeroizing::new(vec![0, 0, 5, 0]))[..], [5, 0]);
    }
}
