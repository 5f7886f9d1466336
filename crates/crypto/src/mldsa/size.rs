//! The parameter sets.

use aws_lc_rs::signature as aws;
use pkcs8::ObjectIdentifier;
use std::fmt;
use widelane_lanes::MlDsaShape;

/// The parameter sets of FIPS 204, section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Size {
    /// ML-DSA-44, security category 2.
    MlDsa44,
    /// ML-DSA-65, security category 3.
    MlDsa65,
    /// ML-DSA-87, security category 5.
    MlDsa87,
}

impl Size {
    /// Every size, the smallest first.
    pub const ALL: [Self; 3] = [Self::MlDsa44, Self::MlDsa65, Self::MlDsa87];

    /// Bytes of a signature.
    pub const fn signature_len(self) -> usize {
        let (rows, columns) = self.dimensions();
        self.challenge_len() + 8 * columns * self.response_words() + self.omega() + rows
    }

    /// Bytes of a public key.
    pub const fn public_key_len(self) -> usize {
        32 + 320 * self.dimensions().0
    }

    /// Bytes of a private key in expanded form.
    pub(crate) const fn expanded_key_len(self) -> usize {
        let (rows, columns) = self.dimensions();
        128 + (rows + columns) * self.short_len() + 416 * rows
    }

    /// Bytes of `c~`.
    pub(super) const fn challenge_len(self) -> usize {
        match self {
            Self::MlDsa44 => 32,
            Self::MlDsa65 => 48,
            Self::MlDsa87 => 64,
        }
    }

    /// Coefficients of the challenge that are not zero.
    pub(super) const fn tau(self) -> usize {
        match self {
            Self::MlDsa44 => 39,
            Self::MlDsa65 => 49,
            Self::MlDsa87 => 60,
        }
    }

    /// The largest coefficient of the secret vectors.
    pub(super) const fn eta(self) -> u64 {
        match self {
            Self::MlDsa44 | Self::MlDsa87 => 2,
            Self::MlDsa65 => 4,
        }
    }

    /// Bits of a coefficient of the secret vectors.
    pub(super) const fn short_bits(self) -> usize {
        match self {
            Self::MlDsa44 | Self::MlDsa87 => 3,
            Self::MlDsa65 => 4,
        }
    }

    /// Bytes of a polynomial of the secret vectors.
    pub(super) const fn short_len(self) -> usize {
        32 * self.short_bits()
    }

    /// Hints that a signature may have.
    pub(super) const fn omega(self) -> usize {
        match self {
            Self::MlDsa44 => 80,
            Self::MlDsa65 => 55,
            Self::MlDsa87 => 75,
        }
    }

    pub(super) const fn shape(self) -> MlDsaShape {
        MlDsaShape::ALL[self as usize]
    }

    const fn dimensions(self) -> (usize, usize) {
        let shape = self.shape();
        (shape.rows, shape.columns)
    }

    /// 64-bit words of a polynomial of the response.
    pub(super) const fn response_words(self) -> usize {
        4 * self.shape().bits as usize
    }

    /// 64-bit words of a polynomial of high parts.
    pub(super) const fn high_words(self) -> usize {
        4 * self.shape().high_bits() as usize
    }

    /// The algorithm's identifier in keys and certificates (RFC 9881, section 2).
    pub(crate) const fn oid(self) -> ObjectIdentifier {
        ObjectIdentifier::new_unwrap(match self {
            Self::MlDsa44 => "2.16.840.1.101.3.4.3.17",
            Self::MlDsa65 => "2.16.840.1.101.3.4.3.18",
            Self::MlDsa87 => "2.16.840.1.101.3.4.3.19",
        })
    }

    pub(super) fn aws_lc_signing(self) -> &'static aws::PqdsaSigningAlgorithm {
        match self {
            Self::MlDsa44 => &aws::ML_DSA_44_SIGNING,
            Self::MlDsa65 => &aws::ML_DSA_65_SIGNING,
            Self::MlDsa87 => &aws::ML_DSA_87_SIGNING,
        }
    }

    pub(crate) fn aws_lc_verification(self) -> &'static aws::PqdsaVerificationAlgorithm {
        match self {
            Self::MlDsa44 => &aws::ML_DSA_44,
            Self::MlDsa65 => &aws::ML_DSA_65,
            Self::MlDsa87 => &aws::ML_DSA_87,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MlDsa44 => "ML-DSA-44",
            Self::MlDsa65 => "ML-DSA-65",
            Self::MlDsa87 => "ML-DSA-87",
        })
    }
}
