//! Private keys: parsing, checks and the parts that signing needs.

use super::arithmetic::{Limbs, Secret, be_bytes, equal, integer_from_be_bytes, invert, less, limbs, mul, rem};
use super::padding::emsa_pkcs1_v1_5;
use super::pass::Prepared;
use super::{Size, portable};
use crate::Hash;
use crate::secrecy::opaque;
use crate::sign::{KeyError, is_encrypted, malformed, public_key_info};
use aws_lc_rs::rsa::{KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use crypto_bigint::BoxedUint;
use pkcs1::{RsaPrivateKeyRef, RsaPublicKeyRef};
use pkcs8::der::asn1::{AnyRef, UintRef};
use pkcs8::der::{Decode, Encode};
use pkcs8::spki::AlgorithmIdentifierRef;
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use std::sync::{Arc, OnceLock};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// An RSA private key that was checked as [`sign::Key`](crate::sign::Key) says.
#[derive(Clone)]
pub(crate) struct PrivateKey {
    inner: Arc<Inner>,
}

impl PrivateKey {
    /// Checks a key under rsaEncryption.
    pub(crate) fn from_pkcs8(info: &PrivateKeyInfoRef<'_>) -> Result<Self, KeyError> {
        check_parameters(&info.algorithm, "the PKCS#8 key")?;
        Self::from_pkcs1(info.private_key.as_bytes(), "the RSA key inside PKCS#8")
    }

    /// Bits in the modulus, 2048 to 8192.
    pub(crate) fn modulus_bits(&self) -> usize {
        self.inner.modulus_bits
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 5280).
    pub(crate) fn public_key_info_der(&self) -> Vec<u8> {
        self.inner.public_key_info.clone()
    }

    /// The size under which lanes take this key; `None` if it is signed one by one.
    pub(crate) fn accelerated(&self) -> Option<Size> {
        self.inner.size
    }

    /// The integers of the key.
    pub(crate) fn parts(&self) -> &Parts {
        &self.inner.parts
    }

    /// Values that lanes derive from the integers of an accelerated key, once.
    pub(super) fn prepared(&self) -> &Prepared {
        self.inner.prepared.get_or_init(|| Prepared::new(self.parts()))
    }

    /// Key inside aws-lc-rs; `None` if aws-lc-rs refuses it.
    pub(super) fn aws_lc(&self) -> Option<&RsaKeyPair> {
        self.inner.aws_lc.as_ref()
    }

    /// Returns whether our own code, which works on padded messages, may sign with this key.
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

    /// Reads and checks `RSAPrivateKey` (RFC 8017, appendix A.1.2), called `part` in errors.
    pub(crate) fn from_pkcs1(der: &[u8], part: &'static str) -> Result<Self, KeyError> {
        let key = match RsaPrivateKeyRef::from_der(der) {
            Ok(key) => key,
            Err(_) if is_encrypted(der) => return Err(KeyError::Encrypted),
            Err(error) => return Err(malformed(part, error)),
        };
        if key.other_prime_infos.is_some() {
            return Err(KeyError::MultiPrime);
        }
        let parts = check(&key)?;
        let public = RsaPublicKeyRef {
            modulus: key.modulus,
            public_exponent: key.public_exponent,
        };
        let public = public.to_der();
        let public = public.map_err(|error| malformed("the public half", error))?;
        let public_key_info = public_key_info(ENCRYPTION, Some(AnyRef::NULL), &public);
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
        let digest = Hash::Sha256.digest(MESSAGE);
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

opaque!(PrivateKey { modulus_bits });

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
        return Err(inconsistent("its modulus is even"));
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
        return Err(inconsistent(PRODUCT));
    }

    let n = secret(key.modulus, modulus_bits);
    let e = secret(key.public_exponent, MAX_EXPONENT_BITS);
    let p = secret(key.prime1, bits(key.prime1));
    let q = secret(key.prime2, bits(key.prime2));
    if equal(&p, &q) {
        return Err(inconsistent("its two primes are equal"));
    }
    if !equal(&mul(&p, &q), &n) {
        return Err(inconsistent(PRODUCT));
    }

    if bits(key.private_exponent) > modulus_bits {
        return Err(inconsistent(EXPONENT));
    }
    let d = secret(key.private_exponent, modulus_bits);
    if !less(&d, &n) {
        return Err(inconsistent(EXPONENT));
    }
    let one = BoxedUint::one();
    let given = [key.exponent1, key.exponent2];
    let mut exponents = Vec::with_capacity(2);
    let reasons = [
        "its exponent1 is not the private exponent modulo prime1 - 1",
        "its exponent2 is not the private exponent modulo prime2 - 1",
    ];
    for ((prime, given), reason) in [&p, &q].into_iter().zip(given).zip(reasons) {
        let order = Zeroizing::new(prime.wrapping_sub(&one));
        let exponent = rem(&d, &order);
        if !equal(&rem(&mul(&exponent, &e), &order), &one) {
            return Err(inconsistent(EXPONENT));
        }
        if bits(given) > modulus_bits || !equal(&secret(given, modulus_bits), &exponent) {
            return Err(inconsistent(reason));
        }
        exponents.push(exponent);
    }

    if bits(key.coefficient) > modulus_bits {
        return Err(inconsistent(COEFFICIENT));
    }
    let coefficient = secret(key.coefficient, modulus_bits);
    let reduced = less(&coefficient, &p);
    if !reduced || !equal(&rem(&mul(&coefficient, &q), &p), &one) {
        return Err(inconsistent(COEFFICIENT));
    }

    let factors = [(&p, &exponents[0]), (&q, &exponents[1])];
    let ([larger, smaller], coefficient) = if less(&p, &q) {
        let inverse = invert(&p, &q).ok_or(inconsistent(PRODUCT))?;
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

/// rsaEncryption has NULL parameters (RFC 8017, appendix A.1).
pub(super) fn check_parameters(algorithm: &AlgorithmIdentifierRef<'_>, part: &'static str) -> Result<(), KeyError> {
    match algorithm.parameters == Some(AnyRef::NULL) {
        true => Ok(()),
        false => Err(KeyError::Malformed {
            part,
            reason: "the parameters of rsaEncryption are not NULL".to_owned(),
        }),
    }
}

/// An RSA key whose numbers do not belong together.
pub(super) fn inconsistent(reason: &'static str) -> KeyError {
    KeyError::Inconsistent { key: "RSA", reason }
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

const PRODUCT: &str = "its modulus is not the product of its primes";
const EXPONENT: &str = "its private exponent does not belong to its public exponent";
const COEFFICIENT: &str = "its coefficient is not the inverse of prime2 modulo prime1";

const MIN_MODULUS_BITS: usize = 2048;
const MAX_MODULUS_BITS: usize = 8192;
/// The bound of FIPS 186-5, appendix A.1.1.
const MAX_EXPONENT_BITS: usize = 256;

/// rsaEncryption and id-RSASSA-PSS (RFC 8017, appendix C).
pub(crate) const ENCRYPTION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
pub(crate) const SSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{self, keys, odd_exponent_keys};
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
            match chain::from_pkcs8(&der) {
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
