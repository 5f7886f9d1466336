//! The reasons for which a key is refused, or a request has no signature.

use crate::ecdsa::Curve;

/// The reason for which a key was refused.
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
        /// Fault in the key, and its place.
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
    /// The key is for an algorithm that is not supported.
    #[error("the key is {found}; use an RSA, ECDSA, Ed25519 or ML-DSA key")]
    Unsupported {
        /// The algorithm or encoding, as in "an X25519 key".
        found: String,
    },
    /// The key is on a curve that is not supported.
    #[error("the private key is on another curve, {found}; use P-256 or P-384")]
    OtherCurve {
        /// The curve.
        found: String,
    },
    /// The key is sound, but of a size without lanes.
    #[error("lanes take 2048, 3072 and 4096 bits with primes of half as many")]
    WithoutLanes,
    /// aws-lc-rs failed and does not say why.
    #[error("aws-lc-rs failed on a valid key; it may be out of memory")]
    AwsLc,
    /// The secret of a curve is no scalar of it.
    #[error(
        "the private key is not a number from 1 to the order of {curve} less 1, as long as that \
         order; make a new key"
    )]
    OutOfRange {
        /// The curve that the key names.
        curve: Curve,
    },
    /// A key or a part of it has a wrong length.
    #[error("{part} has {found} bytes and needs {expected}; make the key file anew")]
    Length {
        /// The part.
        part: &'static str,
        /// Bytes that it must have.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// Parts of the key contradict each other.
    #[error("the {key} key is inconsistent: {reason}; restore it from a backup or make a new one")]
    Inconsistent {
        /// The kind of the key.
        key: &'static str,
        /// The contradiction.
        reason: &'static str,
    },
    /// A public key is not an uncompressed point of its curve.
    #[error("the public key is not an uncompressed point of {curve}")]
    Form {
        /// The curve.
        curve: Curve,
    },
    /// A public key satisfies another equation than that of its curve.
    #[error("the public key is not a point of {curve}")]
    OffCurve {
        /// The curve.
        curve: Curve,
    },
    /// Lanes verify no signatures by RSA keys of this size.
    #[error(
        "the RSA public key has {bits} bits, and lanes verify signatures by keys of 2048 bits \
         only; verify with aws-lc-rs"
    )]
    PublicSize {
        /// Bits in its modulus.
        bits: usize,
    },
    /// The exponent of an RSA public key is even, 1 or too long.
    #[error("the RSA public key's exponent is not odd, at least 3 and at most 33 bits long")]
    PublicExponent,
    /// The RSA key is marked for PSS only.
    #[error(
        "the RSA key is marked id-RSASSA-PSS, for PSS signatures only; use a key marked \
         rsaEncryption, which can sign PSS as well"
    )]
    RestrictedToPss,
    /// The RSA modulus has more than two prime factors.
    #[error("the RSA key has more than two primes; make a key with two")]
    MultiPrime,
    /// The RSA key has a private exponent and no more.
    #[error("the RSA key has no primes; export it with all its parts")]
    NoPrimes,
    /// The RSA modulus is too short to be secure.
    #[error(
        "the RSA key is too small: its modulus has {bits} bits and needs at least 2048; make a \
         larger one with `openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048`"
    )]
    TooSmall {
        /// Bits in its modulus.
        bits: usize,
    },
    /// The RSA modulus is longer than any library would take.
    #[error(
        "the RSA key is too large: its modulus has {bits} bits and may have at most 8192; make \
         a smaller one"
    )]
    TooLarge {
        /// Bits in its modulus.
        bits: usize,
    },
    /// The public exponent of RSA is even.
    #[error("the RSA key's public exponent is even; it must be odd, usually 65537: make a new key")]
    EvenExponent,
    /// The public exponent of RSA is 1.
    #[error("the RSA key's public exponent is 1; it must be at least 3, usually 65537: make a new key")]
    SmallExponent,
    /// The public exponent of RSA is too long.
    #[error(
        "the RSA key's public exponent has {bits} bits and may have at most 256; make a new \
         key, usually with 65537"
    )]
    LargeExponent {
        /// Bits in the exponent.
        bits: usize,
    },
    /// A trial signature by an RSA key was wrong.
    #[error(
        "the RSA key makes wrong signatures: prime1 or prime2 is not a prime, or this machine \
         is faulty; make a new key"
    )]
    TrialSignature,
}

/// The reason for which a request was refused, or not answered with a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system's random generator failed.
    #[error("the system's random generator failed; check that getrandom(2) is allowed here")]
    Random,
    /// The signature failed its check and was withheld.
    #[error(
        "the signature failed its check and was withheld; if this repeats, the CPU or the memory \
         of this machine is faulty"
    )]
    Fault,
    /// More attempts at an ML-DSA signature failed than ever should.
    #[error(
        "hundreds of attempts at a signature failed, where a few are usual; \
         the CPU or the memory of this machine is faulty"
    )]
    Attempts,
    /// aws-lc-rs gave no signature.
    #[error(
        "aws-lc-rs gave no signature: there is no memory, or its own check failed; \
         if this repeats, the CPU or the memory of this machine is faulty"
    )]
    AwsLc,
    /// The scheme is not one of the key's, or signs messages and no hash values.
    #[error("the key does not sign so; choose one of its schemes, and give it messages")]
    Scheme,
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
    /// The RSA key has no room for data that is padded as it is.
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
    /// The caller put a request into a pass of another operation.
    #[error("a request of another kind or size was put into a pass of {operation}; group them")]
    OtherOperation {
        /// The operation of the pass.
        operation: &'static str,
    },
}

/// The signature is not one of this message by this key, or has no signature's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not one of this message by this key")]
pub struct VerifyError;

impl KeyError {
    /// The public key in the encoding belongs to another private key.
    pub(crate) const OTHER_PUBLIC_KEY: Self = Self::Inconsistent {
        key: "private",
        reason: "its public half is of another key",
    };

    /// A part of a key that has another length than it must have.
    pub(crate) fn check_length(part: &'static str, expected: usize, found: usize) -> Result<(), Self> {
        match found == expected {
            true => Ok(()),
            false => Err(Self::Length { part, expected, found }),
        }
    }
}
