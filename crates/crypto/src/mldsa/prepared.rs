//! What passes derive from a private key, once.

use std::fmt;
use zeroize::Zeroizing;

/// What is derived from a private key when it first signs in lanes. Polynomials are transformed,
/// in words below `q`.
#[derive(PartialEq, Eq)]
pub(super) struct Prepared {
    /// The matrix, and `-2^13 t1` as its last column.
    pub(super) matrix: Vec<u64>,
    /// `s1` and `-s2` in one row, two polynomials in one: `a + 2^10 b`.
    pub(super) pairs: Zeroizing<Vec<u64>>,
    /// `t0`, where `c t0` can be too large: only ML-DSA-44 has `gamma2 < 2^12 tau`.
    pub(super) t0: Zeroizing<Vec<u64>>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}
