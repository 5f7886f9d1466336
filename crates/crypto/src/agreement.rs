//! What all key agreements have in common: the secret that they yield, and how they fail.

use std::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A secret that two sides have agreed on, wiped when dropped.
///
/// [`Debug`](fmt::Debug) shows its length and nothing else. It has no `==`, which would take a
/// time that depends on the secret.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Shared {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Shared {
    /// # Panics
    ///
    /// If there are more bytes than any agreement yields.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut shared = Self {
            bytes: [0; MAX_LEN],
            len: bytes.len(),
        };
        shared.bytes[..bytes.len()].copy_from_slice(bytes);
        shared
    }

    /// The secret.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Why there is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AgreeError {
    /// The peer sent something that is no share of this algorithm.
    #[error("the peer's share is invalid: {0}")]
    InvalidPeer(&'static str),
    /// The peer's share leads to the same secret whatever ours is (X25519: of low order).
    #[error("the peer's share is weak: everyone can compute the shared secret")]
    WeakPeer,
    /// The caller's secret key is none.
    #[error("the secret key is invalid: its length is wrong, or it is zero or too large")]
    InvalidSecret,
    /// The operating system had no random bytes.
    #[error("no random bytes for the key agreement; see whether getrandom(2) works here")]
    Entropy,
    /// aws-lc-rs failed and does not say why.
    #[error("aws-lc-rs failed on a valid key agreement; it may be out of memory")]
    Failed,
}

/// Bytes of the longest secret, that of P-384.
const MAX_LEN: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_holds_no_secret() {
        let shared = Shared::new(&[0xab; 32]);
        assert_eq!(shared.as_bytes(), [0xab; 32]);
        assert_eq!(format!("{shared:?}"), "Shared { len: 32, .. }");
    }
}
