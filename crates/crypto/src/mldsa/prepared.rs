//! Values that passes derive from a private key, once.

use crate::secrecy;
use crate::secrecy::opaque;
use zeroize::Zeroizing;

/// Values derived from a private key when it first signs in lanes. Polynomials are transformed, in words below `q`.
pub(super) struct Prepared {
    /// The matrix, and `-2^13 t1` as its last column.
    pub(super) matrix: Vec<u64>,
    /// `s1` and `-s2` in one row, two polynomials in one: `a + 2^10 b`.
    pub(super) pairs: Zeroizing<Vec<u64>>,
    /// `t0`, where `c t0` can be too large: only ML-DSA-44 has `gamma2 < 2^12 tau`.
    pub(super) t0: Zeroizing<Vec<u64>>,
}

impl Prepared {
    /// Compares two results. The place of a difference stays secret.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let secrets = [(&self.pairs, &other.pairs), (&self.t0, &other.t0)];
        let differences = secrets.map(|(ours, theirs)| {
            let pairs = ours.iter().zip(&**theirs);
            pairs.fold(0, |all, (ours, theirs)| all | ours ^ theirs)
        });
        // Public: only after a fault they differ.
        self.matrix == other.matrix && secrecy::public(differences[0] | differences[1] == 0)
    }
}

opaque!(Prepared {});
