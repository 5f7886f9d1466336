//! Decapsulation keys: their forms, and the check of what is loaded.

use super::parts::Parts;
use super::size::Size;
use crate::AgreeError;
use crate::secrecy::opaque;
use crate::sign::KeyError;
use aws_lc_rs::{digest, kem};
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// A decapsulation key.
///
/// Cloning copies a counted reference. The bytes are wiped when the last clone is dropped.
/// [`Debug`](std::fmt::Debug) shows the size and nothing else.
#[derive(Clone)]
pub struct DecapsulationKey {
    inner: Arc<Inner>,
}

impl DecapsulationKey {
    /// Loads a key in expanded form: `dk` of FIPS 203, algorithm 16.
    ///
    /// # Errors
    ///
    /// [`KeyError`], as the checks of FIPS 203, section 7.3, demand.
    pub fn from_expanded(size: Size, expanded: &[u8]) -> Result<Self, KeyError> {
        let len = size.decapsulation_key_len();
        KeyError::check_length("the expanded ML-KEM key", len, expanded.len())?;
        let parts = Parts::new(size, expanded);
        let hash = digest::digest(&digest::SHA3_256, parts.encapsulation_key);
        // Both are public.
        if hash.as_ref() != parts.hash {
            return Err(KeyError::Inconsistent {
                key: "ML-KEM",
                reason: "the hash in its expanded form is of another public key",
            });
        }
        Ok(Self::trusted(size, Zeroizing::new(expanded.to_vec())))
    }

    /// A key that has just been made, or checked.
    pub(super) fn trusted(size: Size, expanded: Zeroizing<Vec<u8>>) -> Self {
        let inner = Inner {
            size,
            expanded,
            aws_lc: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A key that aws-lc-rs has made.
    pub(super) fn from_aws_lc(size: Size, key: kem::DecapsulationKey) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let expanded = Zeroizing::new(key.key_bytes()?.as_ref().to_vec());
        let this = Self::trusted(size, expanded);
        // No other thread has the key yet, so this sets it.
        let _ = this.inner.aws_lc.set(key);
        Ok(this)
    }

    /// Parameter set of the key.
    pub fn size(&self) -> Size {
        self.inner.size
    }

    /// The key in expanded form.
    pub fn expanded(&self) -> &[u8] {
        &self.inner.expanded
    }

    /// The encapsulation key that belongs to it.
    pub fn encapsulation_key(&self) -> &[u8] {
        self.parts().encapsulation_key
    }

    pub(super) fn parts(&self) -> Parts<'_> {
        Parts::new(self.size(), self.expanded())
    }

    /// The key as aws-lc-rs wants it, made when it is first used.
    pub(super) fn aws_lc(&self) -> Result<&kem::DecapsulationKey, AgreeError> {
        if let Some(key) = self.inner.aws_lc.get() {
            return Ok(key);
        }
        let key = kem::DecapsulationKey::new(self.size().aws_lc(), self.expanded()).map_err(|_| AgreeError::Failed)?;
        Ok(self.inner.aws_lc.get_or_init(|| key))
    }
}

opaque!(DecapsulationKey { size });

struct Inner {
    size: Size,
    expanded: Zeroizing<Vec<u8>>,
    aws_lc: OnceLock<kem::DecapsulationKey>,
}
