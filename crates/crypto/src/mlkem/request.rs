//! The three requests, and their answers one by one, from aws-lc-rs.

use super::key::DecapsulationKey;
use super::size::Size;
use crate::agreement::{Answer, Outcome};
use crate::{AgreeError, Shared};
use aws_lc_rs::kem;

/// Make a key pair.
///
/// The answer is the decapsulation key and the bytes of the encapsulation key for the peer.
#[derive(Clone, Copy, Debug)]
pub struct Keygen {
    /// Parameter set of the key.
    pub size: Size,
}

/// Choose a secret for the owner of an encapsulation key.
///
/// The answer is the ciphertext for the peer, and the secret.
#[derive(Clone, Debug)]
pub struct Encapsulate {
    /// Parameter set of the key.
    pub size: Size,
    /// The peer's encapsulation key, as received.
    pub key: Vec<u8>,
}

/// Find the secret that a peer has chosen.
#[derive(Clone, Debug)]
pub struct Decapsulate {
    /// Own key.
    pub key: DecapsulationKey,
    /// The peer's ciphertext, as received.
    pub ciphertext: Vec<u8>,
}

impl Keygen {
    pub(crate) fn alone(&self) -> Outcome {
        kem::DecapsulationKey::generate(self.size.aws_lc())
            .and_then(|key| DecapsulationKey::from_aws_lc(self.size, key))
            .map(Answer::from)
            .map_err(|_| AgreeError::Failed)
    }
}

impl Encapsulate {
    /// The key, if it has the right length; what else is wrong with it shows in the pass.
    pub(super) fn checked(&self) -> Result<&[u8], AgreeError> {
        let fits = self.key.len() == self.size.encapsulation_key_len();
        let key = fits.then_some(self.key.as_slice());
        key.ok_or(AgreeError::InvalidPeer(KEY_LENGTH))
    }

    pub(crate) fn alone(&self) -> Outcome {
        let key = kem::EncapsulationKey::new(self.size.aws_lc(), self.checked()?).map_err(|_| AgreeError::Failed)?;
        // Checks the key (FIPS 203, section 7.2); nothing else in it can fail.
        let (ciphertext, shared) = key.encapsulate().map_err(|_| AgreeError::InvalidPeer(KEY_MODULUS))?;
        let share = ciphertext.as_ref().to_vec();
        Ok(Answer {
            share,
            ..Answer::from(Shared::new(shared.as_ref()))
        })
    }
}

impl Decapsulate {
    /// The ciphertext, if it has the right length, all that can be wrong with it.
    pub(super) fn checked(&self) -> Result<&[u8], AgreeError> {
        let fits = self.ciphertext.len() == self.key.size().ciphertext_len();
        let ciphertext = fits.then_some(self.ciphertext.as_slice());
        ciphertext.ok_or(AgreeError::InvalidPeer(CIPHERTEXT_LENGTH))
    }

    pub(crate) fn alone(&self) -> Outcome {
        let ciphertext = kem::Ciphertext::from(self.checked()?);
        let shared = self.key.aws_lc()?.decapsulate(ciphertext);
        let shared = shared.map_err(|_| AgreeError::Failed)?;
        Ok(Shared::new(shared.as_ref()).into())
    }
}

const KEY_LENGTH: &str = "an ML-KEM encapsulation key of the wrong length";
pub(super) const KEY_MODULUS: &str = "an ML-KEM encapsulation key with unreduced coefficients";
const CIPHERTEXT_LENGTH: &str = "an ML-KEM ciphertext of the wrong length";
