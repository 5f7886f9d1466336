//! Secrets and requests, and their answers one by one, from aws-lc-rs.

use crate::{AgreeError, Shared};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::rand;
use std::fmt;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// A private key: 32 bytes.
///
/// Cloning copies a counted reference; the bytes are wiped when the last clone is dropped.
/// [`Debug`](fmt::Debug) shows nothing of them.
#[derive(Clone)]
pub struct Secret {
    inner: Arc<Inner>,
}

struct Inner {
    bytes: Zeroizing<[u8; 32]>,
    /// The same key inside aws-lc-rs, once one is made: that takes as long as a public share.
    aws_lc: OnceLock<PrivateKey>,
}

impl Secret {
    /// A new key.
    ///
    /// # Errors
    ///
    /// [`AgreeError::Entropy`] when there are no random bytes.
    pub fn generate() -> Result<Self, AgreeError> {
        let mut bytes = Zeroizing::new([0; 32]);
        rand::fill(&mut *bytes).map_err(|_| AgreeError::Entropy)?;
        Ok(Self::new(bytes))
    }

    /// The key of these bytes, all of which are good. Which bits of them count is up to
    /// the function, not to its caller (`decodeScalar25519` of RFC 7748, section 5).
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self::new(Zeroizing::new(*bytes))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.inner.bytes
    }

    fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        let aws_lc = OnceLock::new();
        Self {
            inner: Arc::new(Inner { bytes, aws_lc }),
        }
    }

    /// The key inside aws-lc-rs, which computes its public share.
    fn to_aws_lc(&self) -> Result<PrivateKey, AgreeError> {
        PrivateKey::from_private_key(&agreement::X25519, self.bytes())
            .map_err(|_| AgreeError::Failed)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

/// Compute the public share of a secret.
#[derive(Clone, Debug)]
pub struct Public {
    /// One's own secret.
    pub secret: Secret,
}

/// Compute the secret shared with a peer.
#[derive(Clone, Debug)]
pub struct Derive {
    /// One's own secret.
    pub secret: Secret,
    /// The peer's public share.
    pub peer: [u8; 32],
}

impl Public {
    pub(crate) fn alone(&self) -> Result<[u8; 32], AgreeError> {
        let key = self.secret.to_aws_lc()?;
        let public = key.compute_public_key().map_err(|_| AgreeError::Failed)?;
        // The share is computed anew each time; the key is kept for a derivation.
        let _ = self.secret.inner.aws_lc.set(key);
        public.as_ref().try_into().map_err(|_| AgreeError::Failed)
    }
}

impl Derive {
    pub(crate) fn alone(&self) -> Result<Shared, AgreeError> {
        let aws_lc = &self.secret.inner.aws_lc;
        let key = match aws_lc.get() {
            Some(key) => key,
            None => {
                let key = self.secret.to_aws_lc()?;
                aws_lc.get_or_init(|| key)
            }
        };
        let peer = UnparsedPublicKey::new(&agreement::X25519, self.peer);
        // aws-lc-rs fails on shares of low order, and says no more than that it failed.
        agreement::agree(key, peer, AgreeError::WeakPeer, |shared| {
            Ok(Shared::new(shared))
        })
    }
}
