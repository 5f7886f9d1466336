//! The parameter sets.

use aws_lc_rs::kem;
use std::fmt;

/// The parameter sets of FIPS 203, section 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// ML-KEM-512, security category 1.
    MlKem512,
    /// ML-KEM-768, security category 3.
    MlKem768,
    /// ML-KEM-1024, security category 5.
    MlKem1024,
}

impl Size {
    /// Every size, the smallest first.
    pub const ALL: [Self; 3] = [Self::MlKem512, Self::MlKem768, Self::MlKem1024];

    /// The names of the operations: keys, encapsulation, decapsulation.
    pub(super) const fn operations(self) -> [&'static str; 3] {
        match self {
            Self::MlKem512 => ["mlkem512-keygen", "mlkem512-encaps", "mlkem512-decaps"],
            Self::MlKem768 => ["mlkem768-keygen", "mlkem768-encaps", "mlkem768-decaps"],
            Self::MlKem1024 => ["mlkem1024-keygen", "mlkem1024-encaps", "mlkem1024-decaps"],
        }
    }

    /// Bytes of an encapsulation key.
    pub(crate) const fn encapsulation_key_len(self) -> usize {
        384 * self.rank() + 32
    }

    /// Bytes of a decapsulation key in expanded form.
    pub(crate) const fn decapsulation_key_len(self) -> usize {
        768 * self.rank() + 96
    }

    /// Bytes of a ciphertext.
    pub const fn ciphertext_len(self) -> usize {
        let (du, dv) = match self {
            Self::MlKem512 | Self::MlKem768 => (10, 4),
            Self::MlKem1024 => (11, 5),
        };
        32 * (du * self.rank() + dv)
    }

    /// k: the polynomials of a vector.
    pub(super) const fn rank(self) -> usize {
        match self {
            Self::MlKem512 => 2,
            Self::MlKem768 => 3,
            Self::MlKem1024 => 4,
        }
    }

    pub(super) fn aws_lc(self) -> &'static kem::Algorithm<kem::AlgorithmId> {
        match self {
            Self::MlKem512 => &kem::ML_KEM_512,
            Self::MlKem768 => &kem::ML_KEM_768,
            Self::MlKem1024 => &kem::ML_KEM_1024,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MlKem512 => "ML-KEM-512",
            Self::MlKem768 => "ML-KEM-768",
            Self::MlKem1024 => "ML-KEM-1024",
        })
    }
}
