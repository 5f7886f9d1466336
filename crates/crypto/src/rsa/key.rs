//! Private keys: parsing, checks and the parts that signing needs.

use super::arithmetic::{
    Limbs, Secret, be_bytes, equal, integer_from_be_bytes, invert, less, limbs, mul, rem,
};
use super::padding::{Hash, emsa_pkcs1_v1_5};
use super::pass::Prepared;
use super::{Size, portable};
use crate::private_keys::{is_encrypted, kind_of_key};
use aws_lc_rs::digest;
use aws_lc_rs::rsa::{KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use crypto_bigint::BoxedUint;
use pkcs1::{RsaPrivateKeyRef, RsaPublicKeyRef};
use pkcs8::der::asn1::{AnyRef, BitStringRef, UintRef};
use pkcs8::der::{self, Decode, Encode};
use pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfo};
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use std::fmt;
use std::sync::{Arc, OnceLock};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// An RSA private key that has passed every check of [`from_der`](Self::from_der).
///
/// Cloning copies a counted reference. The secret parts are wiped when the last clone is dropped.
/// [`Debug`](fmt::Debug) shows the size and nothing else.
#[derive(Clone)]
pub struct PrivateKey {
    inner: Arc<Inner>,
}

impl PrivateKey {
    /// Parses and checks a key in any of its DER forms.
    ///
    /// Accepted are two-prime keys with a modulus of 2048 to 8192 bits and an odd public exponent
    /// of at least 3 and at most 256 bits. Checked are p ≠ q, p · q = n, d · e ≡ 1 modulo p - 1
    /// and q - 1, both exponents and the coefficient of the Chinese remainder theorem, and one
    /// trial signature, which no key with a composite "prime" gets right. The order of p and q
    /// does not matter.
    ///
    /// # Errors
    ///
    /// [`KeyError`] says what is wrong and what to do about it.
    pub fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        match der {
            PrivateKeyDer::Pkcs1(der) => Self::from_pkcs1_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => Self::from_pkcs8_der(der.secret_pkcs8_der()),
            PrivateKeyDer::Sec1(_) => Err(KeyError::NotRsa {
                found: "an elliptic-curve key (SEC 1)".to_owned(),
            }),
            _ => Err(KeyError::NotRsa {
                found: "in an unknown encoding".to_owned(),
            }),
        }
    }

    /// Parses and checks an unencrypted PKCS#8 key (RFC 5208, RFC 5958), as strict DER.
    ///
    /// The algorithm must be rsaEncryption with NULL parameters. Keys under id-RSASSA-PSS are
    /// refused, since they are forbidden to sign PKCS#1 v1.5, which TLS 1.2 clients may need.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, KeyError> {
        if is_encrypted(der) {
            return Err(KeyError::Encrypted);
        }
        let info =
            PrivateKeyInfoRef::from_der(der).map_err(|error| malformed("the PKCS#8 key", error))?;
        match info.algorithm.oid {
            RSA_ENCRYPTION => {}
            RSASSA_PSS => return Err(KeyError::RestrictedToPss),
            oid => {
                return Err(KeyError::NotRsa {
                    found: kind_of_key(oid),
                });
            }
        }
        if info.algorithm.parameters != Some(AnyRef::NULL) {
            return Err(KeyError::Malformed {
                part: "the PKCS#8 key",
                reason: "the parameters of rsaEncryption are not NULL".to_owned(),
            });
        }
        Self::from_pkcs1(info.private_key.as_bytes(), "the RSA key inside PKCS#8")
    }

    /// Parses and checks a PKCS#1 key (`RSAPrivateKey` of RFC 8017, appendix A.1.2), as strict DER.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_pkcs1_der(der: &[u8]) -> Result<Self, KeyError> {
        Self::from_pkcs1(der, "the PKCS#1 key")
    }

    /// Parses and checks the first private key in a PEM text.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der); [`KeyError::NoKeyInPem`] if there is none.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        match PrivateKeyDer::from_pem_slice(pem) {
            Ok(mut der) => {
                let key = Self::from_der(&der);
                der.zeroize();
                key
            }
            // An encrypted section is either skipped or stumbled over, by its form.
            Err(_) if ENCRYPTED_PEM.iter().any(|mark| contains(pem, mark)) => {
                Err(KeyError::Encrypted)
            }
            Err(rustls_pki_types::pem::Error::NoItemsFound) => Err(KeyError::NoKeyInPem),
            Err(error) => Err(KeyError::Malformed {
                part: "the PEM text",
                reason: error.to_string(),
            }),
        }
    }

    /// Bits in the modulus, 2048 to 8192.
    pub fn modulus_bits(&self) -> usize {
        self.inner.modulus_bits
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 5280).
    pub fn public_key_info_der(&self) -> Vec<u8> {
        self.inner.public_key_info.clone()
    }

    /// The size under which lanes take this key; `None` if it is signed one by one.
    ///
    /// Lanes take keys of exactly 2048, 3072 or 4096 bits both of whose primes have exactly half
    /// as many, with any public exponent.
    pub fn accelerated(&self) -> Option<Size> {
        self.inner.size
    }

    /// The integers of the key.
    pub(crate) fn parts(&self) -> &Parts {
        &self.inner.parts
    }

    /// What lanes derive from the integers of an accelerated key, once.
    pub(super) fn prepared(&self) -> &Prepared {
        self.inner
            .prepared
            .get_or_init(|| Prepared::new(self.parts()))
    }

    /// The same key inside aws-lc-rs; `None` if that refuses it.
    pub(super) fn aws_lc(&self) -> Option<&RsaKeyPair> {
        self.inner.aws_lc.as_ref()
    }

    /// Whether code of ours, which works on padded messages, may sign with this key.
    pub(super) fn signs_encoded(&self) -> bool {
        self.inner.size.is_some() || self.inner.aws_lc.is_none()
    }

    /// Damages a key that has no other clone, and takes it away from aws-lc-rs.
    #[cfg(test)]
    pub(super) fn corrupt(&mut self, damage: impl FnOnce(&mut Parts)) {
        let inner = Arc::get_mut(&mut self.inner).expect("the only clone");
        inner.aws_lc = None;
        damage(&mut inner.parts);
    }

    fn from_pkcs1(der: &[u8], part: &'static str) -> Result<Self, KeyError> {
        let key = match RsaPrivateKeyRef::from_der(der) {
            Ok(key) => key,
            Err(_) if is_encrypted(der) => return Err(KeyError::Encrypted),
            Err(error) => return Err(malformed(part, error)),
        };
        if key.other_prime_infos.is_some() {
            return Err(KeyError::MultiPrime);
        }
        let parts = check(&key)?;
        let public_key_info =
            public_key_info(&key).map_err(|error| malformed("the public half", error))?;
        let modulus_bits = bits(key.modulus);
        let size = Size::ALL.into_iter().find(|size| {
            modulus_bits == size.modulus_bits()
                && bits(key.prime1) == size.prime_bits()
                && bits(key.prime2) == size.prime_bits()
        });
        let aws_lc = aws_lc_key(&key, &parts);
        let key = Self {
            inner: Arc::new(Inner {
                size,
                modulus_bits,
                public_key_info,
                parts,
                aws_lc,
                prepared: OnceLock::new(),
            }),
        };
        key.try_out()?;
        Ok(key)
    }

    /// Makes one signature and checks it. The arithmetic checks hold for some composite p and q
    /// too; with those, almost every signature comes out wrong.
    fn try_out(&self) -> Result<(), KeyError> {
        const MESSAGE: &[u8] = b"widelane trial signature";
        let digest = digest::digest(&digest::SHA256, MESSAGE);
        let encoded = emsa_pkcs1_v1_5(Hash::Sha256, digest.as_ref(), self.modulus_bits());
        let signature = match self.aws_lc() {
            Some(pair) => {
                let mut signature = vec![0u8; pair.public_modulus_len()];
                pair.sign_digest(&RSA_PKCS1_SHA256, &digest, &mut signature)
                    .map(|()| signature)
                    .ok()
            }
            None => portable::sign(self.parts(), &encoded).ok(),
        };
        match signature {
            Some(signature) if portable::open(self.parts(), &signature) == encoded => Ok(()),
            _ => Err(KeyError::TrialSignature),
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("modulus_bits", &self.modulus_bits())
            .finish_non_exhaustive()
    }
}

/// The integers of a checked key, as little-endian limbs. The first prime is the larger one.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Parts {
    /// The modulus, without leading zero limbs.
    pub(crate) n: Vec<u64>,
    /// The public exponent, without leading zero limbs: at most four.
    pub(crate) e: Vec<u64>,
    /// The larger prime.
    pub(crate) p: Factor,
    /// The smaller prime.
    pub(crate) q: Factor,
    /// `q^-1 mod p`, as long as p.
    pub(crate) q_inverse: Limbs,
}

/// One prime of a key.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Factor {
    /// The prime, without leading zero limbs.
    pub(crate) prime: Limbs,
    /// The private exponent modulo `prime - 1`, as long as the prime.
    pub(crate) exponent: Limbs,
}

/// Why a private key was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The encoding is broken.
    #[error(
        "{part} is malformed: {reason}; check that the file is complete, or export it again \
         with `openssl pkey`"
    )]
    Malformed {
        /// The structure that could not be read.
        part: &'static str,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// A PEM text holds no private key.
    #[error(
        "the PEM text holds no private key; it needs a section `BEGIN PRIVATE KEY` or `BEGIN \
         RSA PRIVATE KEY`"
    )]
    NoKeyInPem,
    /// The key is protected by a passphrase.
    #[error(
        "the private key is encrypted; decrypt it with `openssl pkey -in KEY -out DECRYPTED` \
         and guard that file by its permissions"
    )]
    Encrypted,
    /// The key is for another algorithm.
    #[error("the private key is not RSA but {found}; use an RSA key here")]
    NotRsa {
        /// What it is instead.
        found: String,
    },
    /// The key is marked for PSS only.
    #[error(
        "the RSA key is marked id-RSASSA-PSS, for PSS signatures only; use a key marked \
         rsaEncryption, which can sign PSS as well"
    )]
    RestrictedToPss,
    /// The modulus has more than two prime factors.
    #[error("the RSA key has more than two primes; make a key with two")]
    MultiPrime,
    /// The modulus is too short to be secure.
    #[error(
        "the RSA key is too small: its modulus has {bits} bits and needs at least 2048; make a \
         larger one with `openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048`"
    )]
    TooSmall {
        /// Bits in its modulus.
        bits: usize,
    },
    /// The modulus is longer than any library would take.
    #[error(
        "the RSA key is too large: its modulus has {bits} bits and may have at most 8192; make \
         a smaller one"
    )]
    TooLarge {
        /// Bits in its modulus.
        bits: usize,
    },
    /// The modulus is even, so not a product of two odd primes.
    #[error(
        "the RSA key is inconsistent: its modulus is even; restore it from a backup or make a \
         new one"
    )]
    EvenModulus,
    /// The public exponent is even.
    #[error("the RSA key's public exponent is even; it must be odd, usually 65537: make a new key")]
    EvenExponent,
    /// The public exponent is 1.
    #[error(
        "the RSA key's public exponent is 1; it must be at least 3, usually 65537: make a new key"
    )]
    SmallExponent,
    /// The public exponent is too long.
    #[error(
        "the RSA key's public exponent has {bits} bits and may have at most 256; make a new \
         key, usually with 65537"
    )]
    LargeExponent {
        /// Bits in the exponent.
        bits: usize,
    },
    /// Both primes are the same.
    #[error("the RSA key is inconsistent: its two primes are equal; make a new key")]
    EqualPrimes,
    /// The modulus is not the product of the primes.
    #[error(
        "the RSA key is inconsistent: its modulus is not the product of its primes; restore it \
         from a backup or make a new one"
    )]
    Product,
    /// The private exponent does not undo the public one.
    #[error(
        "the RSA key is inconsistent: its private exponent does not belong to its public \
         exponent; restore it from a backup or make a new one"
    )]
    PrivateExponent,
    /// An exponent for one of the primes does not belong to the private exponent.
    #[error(
        "the RSA key is inconsistent: its exponent{which} is not the private exponent modulo \
         prime{which} - 1; restore it from a backup or make a new one"
    )]
    PrimeExponent {
        /// Which one, as RFC 8017 numbers them: 1 or 2.
        which: u8,
    },
    /// The coefficient is not the inverse of the second prime.
    #[error(
        "the RSA key is inconsistent: its coefficient is not the inverse of prime2 modulo \
         prime1; restore it from a backup or make a new one"
    )]
    Coefficient,
    /// A trial signature was wrong.
    #[error(
        "the RSA key makes wrong signatures: prime1 or prime2 is not a prime, or this machine \
         is faulty; make a new key"
    )]
    TrialSignature,
}

struct Inner {
    size: Option<Size>,
    modulus_bits: usize,
    public_key_info: Vec<u8>,
    parts: Parts,
    aws_lc: Option<RsaKeyPair>,
    prepared: OnceLock<Prepared>,
}

/// Checks sizes and arithmetic, and puts the larger prime first.
fn check(key: &RsaPrivateKeyRef<'_>) -> Result<Parts, KeyError> {
    let modulus_bits = bits(key.modulus);
    match modulus_bits {
        0..MIN_MODULUS_BITS => return Err(KeyError::TooSmall { bits: modulus_bits }),
        MIN_MODULUS_BITS..=MAX_MODULUS_BITS => {}
        _ => return Err(KeyError::TooLarge { bits: modulus_bits }),
    }
    if !is_odd(key.modulus) {
        return Err(KeyError::EvenModulus);
    }
    if !is_odd(key.public_exponent) {
        return Err(KeyError::EvenExponent);
    }
    match bits(key.public_exponent) {
        0..2 => return Err(KeyError::SmallExponent),
        2..=MAX_EXPONENT_BITS => {}
        bits => return Err(KeyError::LargeExponent { bits }),
    }
    // Numbers of absurd length never reach the arithmetic. Odd and above 1 is all it needs.
    let plausible = |prime| is_odd(prime) && (2..modulus_bits).contains(&bits(prime));
    if !plausible(key.prime1) || !plausible(key.prime2) {
        return Err(KeyError::Product);
    }

    let n = secret(key.modulus, modulus_bits);
    let e = secret(key.public_exponent, MAX_EXPONENT_BITS);
    let p = secret(key.prime1, bits(key.prime1));
    let q = secret(key.prime2, bits(key.prime2));
    if equal(&p, &q) {
        return Err(KeyError::EqualPrimes);
    }
    if !equal(&mul(&p, &q), &n) {
        return Err(KeyError::Product);
    }

    if bits(key.private_exponent) > modulus_bits {
        return Err(KeyError::PrivateExponent);
    }
    let d = secret(key.private_exponent, modulus_bits);
    if !less(&d, &n) {
        return Err(KeyError::PrivateExponent);
    }
    let one = BoxedUint::one();
    let given = [key.exponent1, key.exponent2];
    let mut exponents = Vec::with_capacity(2);
    for (which, (prime, given)) in (1..).zip([&p, &q].into_iter().zip(given)) {
        let order = Zeroizing::new(prime.wrapping_sub(&one));
        let exponent = rem(&d, &order);
        if !equal(&rem(&mul(&exponent, &e), &order), &one) {
            return Err(KeyError::PrivateExponent);
        }
        if bits(given) > modulus_bits || !equal(&secret(given, modulus_bits), &exponent) {
            return Err(KeyError::PrimeExponent { which });
        }
        exponents.push(exponent);
    }

    if bits(key.coefficient) > modulus_bits {
        return Err(KeyError::Coefficient);
    }
    let coefficient = secret(key.coefficient, modulus_bits);
    let reduced = less(&coefficient, &p);
    if !reduced || !equal(&rem(&mul(&coefficient, &q), &p), &one) {
        return Err(KeyError::Coefficient);
    }

    let factors = [(&p, &exponents[0]), (&q, &exponents[1])];
    let ([larger, smaller], coefficient) = if less(&p, &q) {
        let inverse = invert(&p, &q).ok_or(KeyError::Product)?;
        ([factors[1], factors[0]], inverse)
    } else {
        (factors, coefficient)
    };
    let factor = |(prime, exponent): (&Secret, &Secret)| {
        let prime = significant(prime);
        let exponent = limbs(exponent, prime.len());
        Factor { prime, exponent }
    };
    let p = factor(larger);
    let q_inverse = limbs(&coefficient, p.prime.len());
    Ok(Parts {
        n: significant(&n).to_vec(),
        e: significant(&e).to_vec(),
        p,
        q: factor(smaller),
        q_inverse,
    })
}

/// Hands the checked key to aws-lc-rs, which refuses some sound keys, such as those with public
/// exponents of more than 33 bits.
fn aws_lc_key(key: &RsaPrivateKeyRef<'_>, parts: &Parts) -> Option<RsaKeyPair> {
    let len = |limbs: &[u64]| limbs.len() * 8;
    let whole = |limbs: &[u64]| be_bytes(limbs, len(limbs));
    RsaKeyPair::from_components(&KeyPairComponents {
        public_key: PublicKeyComponents {
            n: Zeroizing::new(key.modulus.as_bytes().to_vec()),
            e: Zeroizing::new(key.public_exponent.as_bytes().to_vec()),
        },
        d: Zeroizing::new(key.private_exponent.as_bytes().to_vec()),
        p: whole(&parts.p.prime),
        q: whole(&parts.q.prime),
        dP: whole(&parts.p.exponent),
        dQ: whole(&parts.q.exponent),
        qInv: whole(&parts.q_inverse),
    })
    .ok()
}

fn public_key_info(key: &RsaPrivateKeyRef<'_>) -> der::Result<Vec<u8>> {
    let public = RsaPublicKeyRef {
        modulus: key.modulus,
        public_exponent: key.public_exponent,
    }
    .to_der()?;
    SubjectPublicKeyInfo {
        algorithm: AlgorithmIdentifierRef {
            oid: RSA_ENCRYPTION,
            parameters: Some(AnyRef::NULL),
        },
        subject_public_key: BitStringRef::from_bytes(&public)?,
    }
    .to_der()
}

fn malformed(part: &'static str, error: der::Error) -> KeyError {
    KeyError::Malformed {
        part,
        reason: error.to_string(),
    }
}

/// Bits in an integer: for secret ones, public by the format of keys.
pub(super) fn bits(integer: UintRef<'_>) -> usize {
    match integer.as_bytes() {
        [] => 0,
        [first, rest @ ..] => rest.len() * 8 + (8 - first.leading_zeros() as usize),
    }
}

pub(super) fn is_odd(integer: UintRef<'_>) -> bool {
    integer.as_bytes().last().is_some_and(|byte| byte & 1 == 1)
}

fn secret(integer: UintRef<'_>, precision: usize) -> Secret {
    integer_from_be_bytes(integer.as_bytes(), precision)
}

/// The limbs of an integer whose number of bits is public.
fn significant(value: &BoxedUint) -> Limbs {
    limbs(value, value.bits_vartime().div_ceil(64).max(1) as usize)
}

fn contains(text: &[u8], mark: &[u8]) -> bool {
    text.windows(mark.len()).any(|window| window == mark)
}

const MIN_MODULUS_BITS: usize = 2048;
const MAX_MODULUS_BITS: usize = 8192;
/// The bound of FIPS 186-5, appendix A.1.1.
const MAX_EXPONENT_BITS: usize = 256;

pub(super) const RSA_ENCRYPTION: ObjectIdentifier =
    ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSASSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");

/// What marks encrypted keys in PEM: PKCS#8, and the older form with header lines.
const ENCRYPTED_PEM: [&[u8]; 2] = [
    b"-----BEGIN ENCRYPTED PRIVATE KEY-----",
    b"Proc-Type: 4,ENCRYPTED",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{keys, odd_exponent_keys};
    use crate::rsa::vectors;

    /// The sizes that lanes rely on, whichever order the file had.
    #[test]
    fn parts_have_their_promised_shape() {
        for size in Size::ALL {
            let mut all = keys(size).to_vec();
            all.extend(odd_exponent_keys(size));
            for key in all {
                let parts = key.parts();
                let half = size.prime_bits() / 64;
                assert_eq!(parts.n.len(), 2 * half);
                assert!((1..=4).contains(&parts.e.len()));
                assert_ne!(parts.e.last(), Some(&0));
                for factor in [&parts.p, &parts.q] {
                    assert_eq!(factor.prime.len(), half);
                    assert_eq!(factor.exponent.len(), half);
                    assert_eq!(factor.prime[half - 1] >> 63, 1);
                }
                assert_eq!(parts.q_inverse.len(), half);
                assert!(parts.p.prime.iter().rev().gt(parts.q.prime.iter().rev()));
            }
        }
    }

    #[test]
    fn secret_parts_are_wiped() {
        fn wiped_on_drop<T: ZeroizeOnDrop>() {}
        wiped_on_drop::<Parts>();
        wiped_on_drop::<Factor>();
        wiped_on_drop::<Limbs>();
        wiped_on_drop::<Secret>();

        let [mut key, ..] = keys(Size::Rsa2048);
        key.corrupt(|parts| {
            parts.zeroize();
            let left = [
                &parts.p.prime,
                &parts.p.exponent,
                &parts.q.prime,
                &parts.q.exponent,
                &parts.q_inverse,
            ];
            assert!(left.iter().all(|limbs| limbs.is_empty()));
        });
    }

    /// Keys of any origin that sign and decrypt elsewhere load here.
    #[test]
    fn published_keys_are_accepted_if_large_enough() {
        let mut sizes = Vec::new();
        for (stated, der) in vectors::private_keys() {
            match PrivateKey::from_pkcs8_der(&der) {
                Ok(key) => {
                    assert!(stated.abs_diff(key.modulus_bits()) <= 1, "{stated}");
                    assert!(key.aws_lc().is_some());
                    sizes.push(key.modulus_bits());
                }
                Err(KeyError::TooSmall { bits }) => assert!(bits < 2048 && stated < 2048),
                Err(error) => panic!("{stated}: {error}"),
            }
        }
        for size in [2048, 2688, 3072, 4096, 8192] {
            assert!(sizes.contains(&size), "{size}");
        }
    }

    #[test]
    fn large_public_exponents_bypass_aws_lc_rs() {
        let bypassed: Vec<usize> = odd_exponent_keys(Size::Rsa2048)
            .iter()
            .filter(|key| key.aws_lc().is_none())
            .map(|key| key.parts().e.len())
            .collect();
        assert_eq!(bypassed, [1, 4]);
    }
}
