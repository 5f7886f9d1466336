//! The parts of an expanded decapsulation key.

use super::size::Size;

/// Parts of an expanded key (FIPS 203, algorithm 16, line 3).
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    /// The vector s, in 12 bits a coefficient.
    pub(super) secret: &'a [u8],
    pub(super) encapsulation_key: &'a [u8],
    /// `H(ek)`.
    pub(super) hash: &'a [u8],
    /// Secret for implicit rejection.
    pub(super) z: &'a [u8],
}

impl<'a> Parts<'a> {
    /// # Panics
    ///
    /// If the key has another length than its size says.
    pub(super) fn new(size: Size, expanded: &'a [u8]) -> Self {
        assert_eq!(expanded.len(), size.decapsulation_key_len());
        let (secret, rest) = expanded.split_at(384 * size.rank());
        let (encapsulation_key, rest) = rest.split_at(size.encapsulation_key_len());
        let (hash, z) = rest.split_at(32);
        Self {
            secret,
            encapsulation_key,
            hash,
            z,
        }
    }
}
