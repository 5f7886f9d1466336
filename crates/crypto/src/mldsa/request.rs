//! Requests, their answer one by one, and how they fail.

use super::key::{PrivateKey, PublicKey};
use super::sign::Job;
use super::verify::Claim;
use std::fmt;

/// One signature to be made: owns its message and a counted reference to its key.
///
/// Signatures are hedged: answering the same request twice gives two different ones.
#[derive(Clone)]
pub struct SignRequest {
    key: PrivateKey,
    message: Box<[u8]>,
}

impl SignRequest {
    /// A request to sign the message itself, with an empty context.
    pub fn new(key: &PrivateKey, message: &[u8]) -> Self {
        Self {
            key: key.clone(),
            message: message.into(),
        }
    }

    /// The key.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// What lanes sign: with these random bytes.
    pub(super) fn job(&self, random: [u8; 32]) -> Job<'_> {
        Job {
            key: &self.key,
            message: Message::plain(&self.message),
            random,
        }
    }

    /// Signs through aws-lc-rs.
    pub(super) fn sign_alone(&self) -> Result<Vec<u8>, SignError> {
        let mut signature = vec![0; self.key.size().signature_len()];
        match self.key.aws_lc().sign(&self.message, &mut signature) {
            Ok(_) => Ok(signature),
            Err(_) => Err(SignError::AwsLc),
        }
    }
}

impl fmt::Debug for SignRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignRequest")
            .field("key", &self.key)
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
    /// The signature was not valid under the public key and was withheld.
    #[error(
        "the signature failed its check with the public key and was withheld; \
         if this repeats, the CPU or the memory of this machine is faulty"
    )]
    Fault,
    /// More attempts failed than ever should.
    #[error(
        "hundreds of attempts at a signature failed, where a few are usual; \
         the CPU or the memory of this machine is faulty"
    )]
    Attempts,
    /// aws-lc-rs gave no signature.
    #[error(
        "aws-lc-rs gave no signature, for want of memory or of random bytes; \
         if this repeats, the memory of this machine is too small or faulty"
    )]
    AwsLc,
}

/// What is signed.
#[derive(Clone, Copy)]
pub(super) enum Message<'a> {
    /// A message and its context, of at most 255 bytes.
    Text { context: &'a [u8], text: &'a [u8] },
    /// `M'`: a message with what stands in front of it.
    #[cfg(test)]
    Formatted(&'a [u8]),
    /// The message representative `mu` itself.
    #[cfg(test)]
    Representative(&'a [u8; 64]),
}

impl<'a> Message<'a> {
    /// A message with an empty context.
    pub(super) fn plain(text: &'a [u8]) -> Self {
        Self::Text { context: &[], text }
    }

    /// What stands in front of the context (FIPS 204, algorithm 2, step 10).
    pub(super) fn prefix(self) -> [u8; 2] {
        [0, self.parts().0.len() as u8]
    }

    /// Context and text.
    pub(super) fn parts(self) -> (&'a [u8], &'a [u8]) {
        match self {
            Self::Text { context, text } => (context, text),
            #[cfg(test)]
            Self::Formatted(text) => (&[], text),
            #[cfg(test)]
            Self::Representative(_) => (&[], &[]),
        }
    }
}

/// One signature to be verified: owns the message and the signature.
#[derive(Clone, Debug)]
pub struct VerifyRequest {
    key: PublicKey,
    message: Box<[u8]>,
    signature: Box<[u8]>,
}

impl VerifyRequest {
    /// A request to verify the signature of this message, made with an empty context. Signatures
    /// of any length can be put into a request.
    pub fn new(key: &PublicKey, message: &[u8], signature: &[u8]) -> Self {
        Self {
            key: key.clone(),
            message: message.into(),
            signature: signature.into(),
        }
    }

    /// The key.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// What lanes verify.
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim {
            key: &self.key,
            message: Message::plain(&self.message),
            signature: &self.signature,
        }
    }

    /// Verifies through aws-lc-rs.
    pub(super) fn verify_alone(&self) -> Result<(), VerifyError> {
        self.check_length()?;
        let verified = self.key.aws_lc().verify_sig(&self.message, &self.signature);
        verified.map_err(|_| VerifyError::Invalid)
    }

    /// Whether the signature is as long as the key's size has it.
    pub(super) fn check_length(&self) -> Result<(), VerifyError> {
        let expected = self.key.size().signature_len();
        match self.signature.len() {
            found if found == expected => Ok(()),
            found => Err(VerifyError::Length { expected, found }),
        }
    }
}

/// Why a signature was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The signature is longer or shorter than every signature of the key's size.
    #[error("the signature has {found} bytes instead of {expected}")]
    Length {
        /// Bytes of a signature of the key's size.
        expected: usize,
        /// Bytes that came.
        found: usize,
    },
    /// It is no signature of this message under this key.
    #[error("the signature is not one of this message under this key")]
    Invalid,
}
