//! Requests for signatures, and their answer one by one.

use super::key::PrivateKey;
use super::padding::{Hash, Padding, emsa_pkcs1_v1_5, emsa_pss};
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
    scheme: Scheme,
    /// What aws-lc-rs signs; it pads by itself.
    digest: Digest,
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
        let mut salt = [0u8; MAX_SALT];
        let salt = match scheme.padding() {
            Padding::Pss if key.signs_encoded() => &mut salt[..scheme.hash().output_len()],
            Padding::Pss | Padding::Pkcs1 => &mut [],
        };
        aws_lc_rs::rand::fill(salt).map_err(|_| SignError::Random)?;
        Ok(Self::with_salt(key, scheme, message, salt))
    }

    /// Hashes the message and pads it with this salt, which only PSS uses.
    pub(super) fn with_salt(key: &PrivateKey, scheme: Scheme, message: &[u8], salt: &[u8]) -> Self {
        let hash = scheme.hash();
        let digest = digest::digest(hash.algorithm(), message);
        let bits = key.modulus_bits();
        let encoded = key.signs_encoded().then(|| match scheme.padding() {
            Padding::Pkcs1 => emsa_pkcs1_v1_5(hash, digest.as_ref(), bits),
            Padding::Pss => emsa_pss(hash, digest.as_ref(), salt, bits),
        });
        Self {
            key: key.clone(),
            scheme,
            digest,
            encoded: encoded.map(Vec::into_boxed_slice),
        }
    }

    /// The size of the key if lanes can answer the request; see [`PrivateKey::accelerated`].
    pub fn size(&self) -> Option<Size> {
        self.key.accelerated()
    }

    /// The padding and hash function.
    pub fn scheme(&self) -> Scheme {
        self.scheme
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
            .field("scheme", &self.scheme)
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
pub fn sign_single(request: &SignRequest) -> Result<Vec<u8>, SignError> {
    match (request.key.aws_lc(), request.encoded()) {
        (Some(pair), _) => {
            let mut signature = vec![0u8; pair.public_modulus_len()];
            pair.sign_digest(request.scheme.aws_lc(), &request.digest, &mut signature)
                .map_err(|_| SignError::AwsLc)?;
            Ok(signature)
        }
        (None, Some(encoded)) => portable::sign(request.key().parts(), encoded),
        (None, None) => unreachable!("a key that aws-lc-rs refuses has its messages encoded"),
    }
}

/// The longest digest.
const MAX_SALT: usize = 64;
