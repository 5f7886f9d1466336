//! Requests for signatures, and their answer one by one.

use super::key::PrivateKey;
use super::padding::{Hash, Padding, emsa_pkcs1_v1_5, emsa_pss, pad_pkcs1, room_in_pkcs1};
use super::{Size, portable};
use aws_lc_rs::digest::{self, Digest};
use aws_lc_rs::signature as aws;
use std::fmt;

/// Padding and hash function of a signature. PSS salts are as long as the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Pkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Pkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Pkcs1Sha512,
    /// RSASSA-PSS with SHA-256 and MGF1 with SHA-256.
    PssSha256,
    /// RSASSA-PSS with SHA-384 and MGF1 with SHA-384.
    PssSha384,
    /// RSASSA-PSS with SHA-512 and MGF1 with SHA-512.
    PssSha512,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Self; 6] = [
        Self::Pkcs1Sha256,
        Self::Pkcs1Sha384,
        Self::Pkcs1Sha512,
        Self::PssSha256,
        Self::PssSha384,
        Self::PssSha512,
    ];

    pub(super) const fn hash(self) -> Hash {
        match self {
            Self::Pkcs1Sha256 | Self::PssSha256 => Hash::Sha256,
            Self::Pkcs1Sha384 | Self::PssSha384 => Hash::Sha384,
            Self::Pkcs1Sha512 | Self::PssSha512 => Hash::Sha512,
        }
    }

    pub(super) const fn padding(self) -> Padding {
        match self {
            Self::Pkcs1Sha256 | Self::Pkcs1Sha384 | Self::Pkcs1Sha512 => Padding::Pkcs1,
            Self::PssSha256 | Self::PssSha384 | Self::PssSha512 => Padding::Pss,
        }
    }

    pub(super) fn aws_lc_verification(self) -> &'static aws::RsaParameters {
        match self {
            Self::Pkcs1Sha256 => &aws::RSA_PKCS1_2048_8192_SHA256,
            Self::Pkcs1Sha384 => &aws::RSA_PKCS1_2048_8192_SHA384,
            Self::Pkcs1Sha512 => &aws::RSA_PKCS1_2048_8192_SHA512,
            Self::PssSha256 => &aws::RSA_PSS_2048_8192_SHA256,
            Self::PssSha384 => &aws::RSA_PSS_2048_8192_SHA384,
            Self::PssSha512 => &aws::RSA_PSS_2048_8192_SHA512,
        }
    }

    fn aws_lc(self) -> &'static dyn aws::RsaEncoding {
        match self {
            Self::Pkcs1Sha256 => &aws::RSA_PKCS1_SHA256,
            Self::Pkcs1Sha384 => &aws::RSA_PKCS1_SHA384,
            Self::Pkcs1Sha512 => &aws::RSA_PKCS1_SHA512,
            Self::PssSha256 => &aws::RSA_PSS_SHA256,
            Self::PssSha384 => &aws::RSA_PSS_SHA384,
            Self::PssSha512 => &aws::RSA_PSS_SHA512,
        }
    }
}

/// One signature to be made: owns its padded message and a counted reference to its key.
///
/// A request can be moved to another thread and outlives its maker. Answering the same
/// PSS request twice may give two different signatures.
#[derive(Clone)]
pub struct SignRequest {
    key: PrivateKey,
    /// What aws-lc-rs signs; it pads by itself. Absent where it cannot: it takes hash values only.
    hashed: Option<(Scheme, Digest)>,
    /// What our own code signs; absent where only aws-lc-rs will.
    encoded: Option<Box<[u8]>>,
}

impl SignRequest {
    /// Hashes and pads the message.
    ///
    /// # Errors
    ///
    /// [`SignError::Random`] when the system gives no random salt for PSS.
    pub fn new(key: &PrivateKey, scheme: Scheme, message: &[u8]) -> Result<Self, SignError> {
        Self::salted(
            key,
            scheme,
            digest::digest(scheme.hash().algorithm(), message),
        )
    }

    /// Takes the hash value of a message, by the hash function of the scheme, and pads it.
    ///
    /// # Errors
    ///
    /// [`SignError::HashLength`] when the value is not as long as those of the hash function, and
    /// [`SignError::Random`] when the system gives no random salt for PSS.
    pub fn prehashed(
        key: &PrivateKey,
        scheme: Scheme,
        hash_value: &[u8],
    ) -> Result<Self, SignError> {
        let digest = Digest::import_less_safe(hash_value, scheme.hash().algorithm());
        let wrong = |_| SignError::HashLength {
            expected: scheme.hash().output_len(),
            found: hash_value.len(),
        };
        Self::salted(key, scheme, digest.map_err(wrong)?)
    }

    /// Takes data that is padded as it is, without the name of a hash function: the encoding of
    /// PKCS#1 v1.5 (RFC 8017, section 9.2) whose `T` is this data. TLS up to 1.1 signs two hash
    /// values so.
    ///
    /// Only lanes answer such a request, and only for a key of an [accelerated](PrivateKey::accelerated)
    /// size. The caller answers for what the data says: a peer that chooses it freely
    /// gets signatures of messages of its choice.
    ///
    /// # Errors
    ///
    /// [`SignError::TooLong`] when the key has no room for the data, and [`SignError::OnlyInLanes`]
    /// when lanes do not take the key.
    pub fn unhashed(key: &PrivateKey, data: &[u8]) -> Result<Self, SignError> {
        let bits = key.modulus_bits();
        let most = room_in_pkcs1(bits);
        if data.len() > most {
            let found = data.len();
            return Err(SignError::TooLong { most, found });
        }
        if key.accelerated().is_none() {
            return Err(SignError::OnlyInLanes);
        }
        Ok(Self {
            key: key.clone(),
            hashed: None,
            encoded: Some(pad_pkcs1(&[data], bits).into_boxed_slice()),
        })
    }

    /// Pads a digest, for PSS with a random salt.
    fn salted(key: &PrivateKey, scheme: Scheme, digest: Digest) -> Result<Self, SignError> {
        let mut salt = [0u8; MAX_SALT];
        let salt = match scheme.padding() {
            Padding::Pss if key.signs_encoded() => &mut salt[..scheme.hash().output_len()],
            Padding::Pss | Padding::Pkcs1 => &mut [],
        };
        aws_lc_rs::rand::fill(salt).map_err(|_| SignError::Random)?;
        Ok(Self::padded(key, scheme, digest, salt))
    }

    /// Hashes the message and pads it with this salt, which only PSS uses.
    pub(super) fn with_salt(key: &PrivateKey, scheme: Scheme, message: &[u8], salt: &[u8]) -> Self {
        let digest = digest::digest(scheme.hash().algorithm(), message);
        Self::padded(key, scheme, digest, salt)
    }

    fn padded(key: &PrivateKey, scheme: Scheme, digest: Digest, salt: &[u8]) -> Self {
        let hash = scheme.hash();
        let bits = key.modulus_bits();
        let encoded = key.signs_encoded().then(|| match scheme.padding() {
            Padding::Pkcs1 => emsa_pkcs1_v1_5(hash, digest.as_ref(), bits),
            Padding::Pss => emsa_pss(hash, digest.as_ref(), salt, bits),
        });
        Self {
            key: key.clone(),
            hashed: Some((scheme, digest)),
            encoded: encoded.map(Vec::into_boxed_slice),
        }
    }

    /// The size of the key if lanes can answer the request; see [`PrivateKey::accelerated`].
    pub fn size(&self) -> Option<Size> {
        self.key.accelerated()
    }

    /// The padding and hash function; `None` for [`unhashed`](Self::unhashed) data.
    pub fn scheme(&self) -> Option<Scheme> {
        self.hashed.map(|(scheme, _)| scheme)
    }

    /// Bits in the modulus of the key.
    pub fn modulus_bits(&self) -> usize {
        self.key.modulus_bits()
    }

    /// The key.
    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// The padded message as big-endian bytes of modulus length, less than the modulus; present
    /// whenever [`size`](Self::size) is.
    pub(crate) fn encoded(&self) -> Option<&[u8]> {
        self.encoded.as_deref()
    }
}

impl fmt::Debug for SignRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignRequest")
            .field("key", &self.key)
            .field("scheme", &self.scheme())
            .finish_non_exhaustive()
    }
}

/// Why a request was not answered with a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The system's random generator failed.
    #[error("the system's random generator failed; check that getrandom(2) is allowed here")]
    Random,
    /// The result did not match the request under the public key and was withheld.
    #[error(
        "the signature failed its check with the public key and was withheld; \
         if this repeats, the CPU or the memory of this machine is faulty"
    )]
    Fault,
    /// aws-lc-rs gave no signature.
    #[error(
        "aws-lc-rs gave no signature: there is no memory, or its own check failed; \
         if this repeats, the CPU or the memory of this machine is faulty"
    )]
    AwsLc,
    /// A hash value is not of the hash function that the scheme names.
    #[error(
        "the hash value has {found} bytes, and those of the signature's hash function have \
         {expected}; give the value of that function"
    )]
    HashLength {
        /// Bytes that a value has.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// The key has no room for data that is padded as it is.
    #[error("{found} bytes were to be signed, and the key has room for {most}; sign a hash value")]
    TooLong {
        /// The most bytes that the key has room for.
        most: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// Data that is no hash value was to be signed without lanes.
    #[error(
        "aws-lc-rs signs hash values only, and other data is signed in lanes, with keys of 2048, \
         3072 or 4096 bits; sign it with another library"
    )]
    OnlyInLanes,
    /// The caller put a request into a pass of another size.
    #[error("a key of {modulus_bits} bits was put into a pass for {expected}; group by size")]
    WrongSize {
        /// The size of the pass.
        expected: Size,
        /// The bits in the modulus of the request's key.
        modulus_bits: usize,
    },
}

/// Answers one request at once, on this thread, through aws-lc-rs.
///
/// aws-lc-rs blinds the operation and checks the result. Keys whose public exponent it refuses
/// are signed by portable code that does the same and is many times slower.
///
/// # Errors
///
/// [`SignError::AwsLc`], and for the portable code [`SignError::Random`] and [`SignError::Fault`].
/// [`SignError::OnlyInLanes`] for [`unhashed`](SignRequest::unhashed) data, unless aws-lc-rs refuses
/// the key.
pub fn sign_single(request: &SignRequest) -> Result<Vec<u8>, SignError> {
    match (request.key.aws_lc(), request.encoded()) {
        (Some(pair), _) => {
            let (scheme, digest) = request.hashed.as_ref().ok_or(SignError::OnlyInLanes)?;
            let mut signature = vec![0u8; pair.public_modulus_len()];
            pair.sign_digest(scheme.aws_lc(), digest, &mut signature)
                .map_err(|_| SignError::AwsLc)?;
            Ok(signature)
        }
        (None, Some(encoded)) => portable::sign(request.key().parts(), encoded),
        (None, None) => unreachable!("a key that aws-lc-rs refuses has its messages encoded"),
    }
}

/// The longest digest.
const MAX_SALT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{assert_verifies, keys, odd_exponent_keys};
    use crate::rsa::{Signing, vectors};
    use crate::{Backend, Operation};

    fn signings(size: Size) -> impl Iterator<Item = Signing> {
        let backends = Backend::ALL
            .into_iter()
            .filter(|backend| backend.is_available());
        backends.map(move |backend| Signing::new(backend, size).unwrap())
    }

    /// Wycheproof's signatures, byte for byte: of the hash value, and of the encoding that says which
    /// hash function it is of.
    #[test]
    fn hash_values_and_encodings_are_signed_like_their_messages() {
        for size in Size::ALL {
            let bits = size.modulus_bits();
            let mut in_lanes = 0;
            for group in vectors::pkcs1(bits) {
                let hash = group.scheme.hash();
                for vector in group.vectors.iter().take(3) {
                    let digest = digest::digest(hash.algorithm(), &vector.message);
                    let digest = digest.as_ref();
                    let em = emsa_pkcs1_v1_5(hash, digest, bits);
                    let zero = em.iter().skip(1).position(|byte| *byte == 0).unwrap() + 1;
                    let hashed = SignRequest::prehashed(&group.key, group.scheme, digest).unwrap();
                    let unhashed = SignRequest::unhashed(&group.key, &em[zero + 1..]).unwrap();
                    let expected = Ok(vector.signature.clone());
                    assert_eq!(sign_single(&hashed), expected);
                    for signing in signings(size) {
                        let results = signing.pass(&[hashed.clone(), unhashed.clone()]);
                        assert_eq!(results[0], expected);
                        match signing.lanes() {
                            1 => assert_eq!(results[1], Err(SignError::OnlyInLanes)),
                            _ => {
                                assert_eq!(results[1], expected);
                                in_lanes += 1;
                            }
                        }
                    }
                }
            }
            if in_lanes == 0 {
                eprintln!("SKIP: no lanes here for {size}");
            }
        }
    }

    #[test]
    fn hash_values_are_padded_for_pss() {
        for size in Size::ALL {
            let [key, ..] = keys(size);
            for scheme in Scheme::ALL {
                let digest = digest::digest(scheme.hash().algorithm(), b"message");
                let request = SignRequest::prehashed(&key, scheme, digest.as_ref()).unwrap();
                for signing in signings(size) {
                    let mut results = signing.pass(std::slice::from_ref(&request));
                    results.push(signing.alone(&request));
                    for result in results {
                        assert_verifies(signing.name(), &request, b"message", &result.unwrap());
                    }
                }
            }
        }
    }

    #[test]
    fn data_of_any_length_that_has_room_is_signed() {
        let size = Size::Rsa2048;
        let odd = odd_exponent_keys(size);
        for key in keys(size).iter().chain(&odd) {
            for len in [0, 1, 36, 245] {
                let data = vec![0xff; len];
                let request = SignRequest::unhashed(key, &data).unwrap();
                assert!(request.encoded().unwrap().ends_with(&data));
                for signing in signings(size).filter(|signing| signing.lanes() > 1) {
                    for result in signing.pass(&[request.clone(), request.clone()]) {
                        assert_verifies(signing.name(), &request, &data, &result.unwrap());
                    }
                }
                match key.aws_lc() {
                    Some(_) => assert_eq!(sign_single(&request), Err(SignError::OnlyInLanes)),
                    None => {
                        assert_verifies("one", &request, &data, &sign_single(&request).unwrap())
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let [key, ..] = keys(Size::Rsa2048);
        for found in [0, 31, 33, 48] {
            let refused = SignRequest::prehashed(&key, Scheme::PssSha256, &vec![0; found]);
            let expected = 32;
            assert_eq!(
                refused.unwrap_err(),
                SignError::HashLength { expected, found }
            );
        }
        let refused = SignRequest::unhashed(&key, &[0; 246]).unwrap_err();
        let (most, found) = (245, 246);
        assert_eq!(refused, SignError::TooLong { most, found });
        let pem = include_bytes!("../../tests/data/rsa2560.pem");
        let key = PrivateKey::from_pem(pem).unwrap();
        let refused = SignRequest::unhashed(&key, &[0; 36]).unwrap_err();
        assert_eq!(refused, SignError::OnlyInLanes);
    }
}
