//! Private keys of every kind, and what their encodings have in common.

use pkcs8::der::asn1::{AnyRef, BitStringRef, OctetStringRef};
use pkcs8::der::{self, Decode, Encode, Reader, SliceReader};
use pkcs8::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfo, SubjectPublicKeyInfoRef};
use pkcs8::{ObjectIdentifier, PrivateKeyInfoRef};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use zeroize::Zeroize;

use super::{Algorithm, KeyError, Scheme};
use crate::{ecdsa, ed25519, mldsa, rsa};

/// A private key that has passed every check of its kind.
///
/// Cloning copies a counted reference. The secret parts are wiped when the last clone is dropped.
/// [`Debug`](std::fmt::Debug) shows size, curve or public key and nothing else.
///
/// - RSA: two-prime keys with a modulus of 2048 to 8192 bits and an odd public exponent of at least
///   3 and at most 256 bits. Checked are p ≠ q, p · q = n, d · e ≡ 1 modulo p - 1 and q - 1, both
///   exponents and the coefficient of the Chinese remainder theorem, and one trial signature, which
///   no key with a composite "prime" gets right. The order of p and q does not matter.
/// - ECDSA on P-256 and P-384: the range of the secret.
/// - Ed25519, and ML-DSA in each of the three forms of RFC 9881, section 6: the seed, the expanded
///   key, or both, which must then agree.
///
/// Where the encoding has the public key, it must belong to the private one. PKCS#8 may have it in
/// two places (RFC 5915, section 3; RFC 5958, section 2).
#[derive(Clone, Debug)]
pub struct Key(pub(crate) Kind);

/// A key in the form of its family.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Rsa(rsa::PrivateKey),
    Ecdsa(ecdsa::PrivateKey),
    Ed25519(ed25519::PrivateKey),
    MlDsa(mldsa::PrivateKey),
}

impl Key {
    /// Reads and checks a key: PKCS#8 of every algorithm, PKCS#1 of RSA, or SEC 1 of a curve.
    ///
    /// # Errors
    ///
    /// [`KeyError`] says what is wrong and what to do about it.
    pub fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        match der {
            PrivateKeyDer::Pkcs8(der) => Self::from_pkcs8_der(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(der) => Self::from_pkcs1_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Sec1(der) => Self::from_sec1_der(der.secret_sec1_der()),
            _ => Err(KeyError::Unsupported {
                found: "in an unknown encoding".to_owned(),
            }),
        }
    }

    /// Reads and checks an unencrypted PKCS#8 key (RFC 5208, RFC 5958), as strict DER.
    ///
    /// RSA must be marked rsaEncryption with NULL parameters. Keys under id-RSASSA-PSS are refused,
    /// since they are forbidden to sign PKCS#1 v1.5, which TLS 1.2 clients may need.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_pkcs8_der(der: &[u8]) -> Result<Self, KeyError> {
        let info = match PrivateKeyInfoRef::from_der(der) {
            Ok(info) => info,
            Err(_) if is_encrypted(der) => return Err(KeyError::Encrypted),
            Err(error) => return Err(malformed("the PKCS#8 key", error)),
        };
        Ok(Self(match info.algorithm.oid {
            rsa::ENCRYPTION => Kind::Rsa(rsa::PrivateKey::from_pkcs8(&info)?),
            rsa::SSA_PSS => return Err(KeyError::RestrictedToPss),
            ecdsa::PUBLIC_KEY => Kind::Ecdsa(ecdsa::PrivateKey::from_pkcs8(&info)?),
            ed25519::ID => Kind::Ed25519(ed25519::PrivateKey::from_pkcs8(&info)?),
            oid => match mldsa::Size::ALL.into_iter().find(|size| size.oid() == oid) {
                Some(size) => Kind::MlDsa(mldsa::PrivateKey::from_pkcs8(size, &info)?),
                None => return Err(unsupported(oid)),
            },
        }))
    }

    /// Reads and checks an RSA key in PKCS#1 (`RSAPrivateKey` of RFC 8017, appendix A.1.2), as
    /// strict DER.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_pkcs1_der(der: &[u8]) -> Result<Self, KeyError> {
        let key = rsa::PrivateKey::from_pkcs1(der, "the PKCS#1 key");
        Ok(Self(Kind::Rsa(key?)))
    }

    /// Reads and checks a key in SEC 1 (`ECPrivateKey` of RFC 5915), where the length of the secret
    /// tells the curve if nothing else does.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_sec1_der(der: &[u8]) -> Result<Self, KeyError> {
        Ok(Self(Kind::Ecdsa(ecdsa::PrivateKey::from_sec1(der)?)))
    }

    /// Reads and checks the first private key in a PEM text.
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der); [`KeyError::NoKeyInPem`] if there is none.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let contains = |mark: &&[u8]| pem.windows(mark.len()).any(|window| window == *mark);
        match PrivateKeyDer::from_pem_slice(pem) {
            Ok(mut der) => {
                let key = Self::from_der(&der);
                der.zeroize();
                key
            }
            // An encrypted section is either skipped or stumbled over, by its form.
            Err(_) if ENCRYPTED_PEM.iter().any(contains) => Err(KeyError::Encrypted),
            Err(rustls_pki_types::pem::Error::NoItemsFound) => Err(KeyError::NoKeyInPem),
            Err(error) => Err(KeyError::Malformed {
                part: "the PEM text",
                reason: error.to_string(),
            }),
        }
    }

    /// Makes a key of its secret as the standard of its algorithm has it: PKCS#1 of RSA, the
    /// big-endian scalar of a curve, the seed of Ed25519 (RFC 8032, section 5.1.5), and of ML-DSA
    /// the seed or the expanded key (FIPS 204, algorithms 6 and 24).
    ///
    /// # Errors
    ///
    /// As for [`from_der`](Self::from_der).
    pub fn from_secret(algorithm: Algorithm, secret: &[u8]) -> Result<Self, KeyError> {
        Ok(Self(match algorithm {
            Algorithm::Rsa => return Self::from_pkcs1_der(secret),
            Algorithm::Ecdsa(curve) => Kind::Ecdsa(ecdsa::PrivateKey::from_scalar(curve, secret)?),
            Algorithm::Ed25519 => Kind::Ed25519(ed25519::PrivateKey::from_seed(secret)?),
            Algorithm::MlDsa(size) => Kind::MlDsa(match secret.len() {
                mldsa::SEED_LEN => mldsa::PrivateKey::from_seed(size, secret)?,
                _ => mldsa::PrivateKey::from_expanded(size, secret)?,
            }),
        }))
    }

    /// The key, if lanes sign with it.
    ///
    /// Lanes take RSA keys of exactly 2048, 3072 or 4096 bits both of whose primes have exactly
    /// half as many, with any public exponent, and every other key.
    ///
    /// # Errors
    ///
    /// [`KeyError::WithoutLanes`] if it is signed with one by one.
    pub fn in_lanes(self) -> Result<Self, KeyError> {
        match &self.0 {
            Kind::Rsa(key) if key.accelerated().is_none() => Err(KeyError::WithoutLanes),
            _ => Ok(self),
        }
    }

    /// The kind of the key.
    pub fn algorithm(&self) -> Algorithm {
        match &self.0 {
            Kind::Rsa(_) => Algorithm::Rsa,
            Kind::Ecdsa(key) => Algorithm::Ecdsa(key.curve()),
            Kind::Ed25519(_) => Algorithm::Ed25519,
            Kind::MlDsa(key) => Algorithm::MlDsa(key.size()),
        }
    }

    /// The operation that signs with the key; `None` if [lanes do not take](Self::in_lanes) it.
    pub fn operation(&self) -> Option<&'static str> {
        let number = match &self.0 {
            Kind::Rsa(key) => key.accelerated()? as usize,
            _ => 0,
        };
        self.algorithm().operations().get(number).copied()
    }

    /// The schemes of the key in TLS, best first.
    pub fn schemes(&self) -> &'static [Scheme] {
        self.algorithm().schemes()
    }

    /// The most bytes that a signature can have.
    pub fn signature_len(&self) -> usize {
        match &self.0 {
            Kind::Rsa(key) => key.modulus_bits().div_ceil(8),
            Kind::Ecdsa(key) => key.curve().signature_len(),
            Kind::Ed25519(_) => 64,
            Kind::MlDsa(key) => key.size().signature_len(),
        }
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 5280; RFC 5480; RFC 8410, section 4;
    /// RFC 9881, section 4).
    pub fn public_key_info_der(&self) -> Vec<u8> {
        match &self.0 {
            Kind::Rsa(key) => key.public_key_info_der(),
            Kind::Ecdsa(key) => key.public_key_info_der(),
            Kind::Ed25519(key) => key.public_key_info_der(),
            Kind::MlDsa(key) => key.public_key_info_der(),
        }
    }
}

/// Returns whether this is `EncryptedPrivateKeyInfo` (RFC 5958, section 3): a sequence of an algorithm identifier and
/// an octet string, where a plain key begins with a version number.
pub(crate) fn is_encrypted(der: &[u8]) -> bool {
    let parse = || -> der::Result<()> {
        let mut reader = SliceReader::new(der)?;
        reader.sequence(|inner| {
            AlgorithmIdentifierRef::decode(inner)?;
            <&OctetStringRef>::decode(inner)?;
            Ok(())
        })
    };
    parse().is_ok()
}

/// An encoding that is broken as `error` says.
pub(crate) fn malformed(part: &'static str, error: der::Error) -> KeyError {
    KeyError::Malformed {
        part,
        reason: error.to_string(),
    }
}

/// Refuses an identifier that has parameters.
pub(crate) fn check_no_parameters(algorithm: &AlgorithmIdentifierRef<'_>, part: &'static str) -> Result<(), KeyError> {
    match algorithm.parameters {
        None => Ok(()),
        Some(_) => Err(KeyError::Malformed {
            part,
            reason: "the algorithm has parameters".to_owned(),
        }),
    }
}

/// A key for this algorithm, where it is not supported.
fn unsupported(algorithm: ObjectIdentifier) -> KeyError {
    let known = KINDS.iter().find(|(known, _)| *known == algorithm);
    let found = known.map_or_else(|| format!("of algorithm {algorithm}"), |(_, kind)| (*kind).to_owned());
    KeyError::Unsupported { found }
}

/// The key inside a `SubjectPublicKeyInfo` (RFC 5280, section 4.1) that is known to be one.
pub(crate) fn public_key_bytes(info: &[u8]) -> &[u8] {
    let info = SubjectPublicKeyInfoRef::from_der(info).ok();
    let key = info.and_then(|info| info.subject_public_key.as_bytes());
    key.expect("the encoding of a public key")
}

/// DER of `SubjectPublicKeyInfo` (RFC 5280, section 4.1).
pub(crate) fn public_key_info(oid: ObjectIdentifier, parameters: Option<AnyRef<'_>>, key: &[u8]) -> Vec<u8> {
    let encode = || {
        SubjectPublicKeyInfo {
            algorithm: AlgorithmIdentifierRef { oid, parameters },
            subject_public_key: BitStringRef::from_bytes(key)?,
        }
        .to_der()
    };
    encode().expect("a few thousand bytes can be encoded")
}

/// RFC 8017, appendix A.1; RFC 5480, section 2.1; RFC 8410, section 3; RFC 3279, sections 2.3.2 and
/// 2.3.3; RFC 9881, section 2.
const KINDS: [(ObjectIdentifier, &str); 10] = [
    (rsa::ENCRYPTION, "an RSA key"),
    (ecdsa::PUBLIC_KEY, "an elliptic-curve key"),
    (ed25519::ID, "an Ed25519 key"),
    (oid("1.3.101.113"), "an Ed448 key"),
    (oid("1.3.101.110"), "an X25519 key"),
    (oid("1.2.840.10040.4.1"), "a DSA key"),
    (oid("1.2.840.113549.1.3.1"), "a Diffie-Hellman key"),
    (mldsa::Size::MlDsa44.oid(), "an ML-DSA-44 key"),
    (mldsa::Size::MlDsa65.oid(), "an ML-DSA-65 key"),
    (mldsa::Size::MlDsa87.oid(), "an ML-DSA-87 key"),
];

const fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new_unwrap(text)
}

/// Marks of encrypted keys in PEM: PKCS#8, and the older form with header lines.
const ENCRYPTED_PEM: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_is_recognised() {
        let der = include_bytes!("../../tests/data/encrypted_pkcs8.der");
        assert!(is_encrypted(der) && !is_encrypted(&der[1..]) && !is_encrypted(&[]));
    }

    #[test]
    fn keys_are_called_by_their_kind() {
        for (algorithm, kind) in [("1.3.101.112", "an Ed25519 key"), ("1.2.3.4", "of algorithm 1.2.3.4")] {
            let found = kind.to_owned();
            assert_eq!(unsupported(oid(algorithm)), KeyError::Unsupported { found });
        }
    }
}
