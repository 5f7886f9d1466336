//! The curves P-256 and P-384: their constants, and the sizes of their tables.

use super::field::{Modulus, UNIT, from_hex};

/// A curve `y^2 = x^3 - 3 x + b` modulo `p`, of order `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Curve {
    /// P-256: `d` is 5, `R := 2^260`.
    P256,
    /// P-384: `d` is 8, `R := 2^416`.
    P384,
}

impl Curve {
    /// Every curve.
    pub const ALL: [Self; 2] = [Self::P256, Self::P384];

    /// Digits of a number: `d`.
    pub fn digits(self) -> usize {
        self.prime().len()
    }

    /// The digits of the base point's plain coordinates, `x` and `y`.
    pub fn generator(self) -> Vec<u64> {
        // SP 800-186, sections 3.2.1.3 and 3.2.1.4.
        let (x, y) = match self {
            Curve::P256 => (
                "6b17d1f2_e12c4247_f8bce6e5_63a440f2_77037d81_2deb33a0_f4a13945_d898c296",
                "4fe342e2_fe1a7f9b_8ee7eb4a_7c0f9e16_2bce3357_6b315ece_cbb64068_37bf51f5",
            ),
            Curve::P384 => (
                "aa87ca22_be8b0537_8eb1c71e_f320ad74_6e1d3b62_8ba79b98_59f741e0_82542a38_\
                 5502f25d_bf55296c_3a545e38_72760ab7",
                "3617de4a_96262c6f_5d9e98bf_9292dc29_f8f41dbd_289a147c_e9da3113_b5f0b8c0_\
                 0a60b1ce_1d7e819d_7a431d7c_90ea0e5f",
            ),
        };
        let d = self.digits();
        [from_hex(x, d), from_hex(y, d)].concat()
    }

    /// Every kernel keeps `X`, `Y` and `Z` below these bounds.
    pub(super) fn below(self) -> [i64; 3] {
        match self {
            Curve::P256 => [UNIT + UNIT / 64, 2 * UNIT, 3 * UNIT - UNIT / 4],
            Curve::P384 => [12 * UNIT, 3 * UNIT, 3 * UNIT],
        }
    }

    pub(super) fn prime(self) -> Modulus {
        match self {
            Curve::P256 => Modulus::P256,
            Curve::P384 => Modulus::P384,
        }
    }

    pub(super) fn order(self) -> Modulus {
        match self {
            Curve::P256 => Modulus::N256,
            Curve::P384 => Modulus::N384,
        }
    }

    pub(super) fn b(self) -> Vec<u64> {
        // SP 800-186, sections 3.2.1.3 and 3.2.1.4.
        let text = match self {
            Curve::P256 => "5ac635d8_aa3a93e7_b3ebbd55_769886bc_651d06b0_cc53b0f6_3bce3c3e_27d2604b",
            Curve::P384 => {
                "b3312fa7_e23ee7e4_988e056b_e3f82d19_181d9c6e_fe814112_0314088f_5013875a_\
                 c656398d_8a2ed19d_2a85c8ed_d3ec2aef"
            }
        };
        from_hex(text, self.digits())
    }

    /// Bits of a signed digit for which [`AddFixed`](super::Nist::AddFixed) has a table.
    pub fn fixed_bits(self) -> usize {
        match self {
            Curve::P256 => 7,
            Curve::P384 => 6,
        }
    }

    /// 64-bit limbs of a scalar.
    pub fn limbs(self) -> usize {
        match self {
            Curve::P256 => 4,
            Curve::P384 => 6,
        }
    }

    /// Signed digits of `bits` bits in a scalar: one bit more than it has, for the sign of the
    /// highest one.
    pub fn windows(self, bits: usize) -> usize {
        (64 * self.limbs() + 1).div_ceil(bits)
    }

    /// The number of such tables: one for each digit of a scalar.
    pub fn fixed_windows(self) -> usize {
        self.windows(self.fixed_bits())
    }

    /// Entries of that table.
    pub fn fixed_entries(self) -> usize {
        1 << (self.fixed_bits() - 1)
    }
}

/// Formats the curve as in the names of kernels.
impl std::fmt::Display for Curve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Curve::P256 => "p256",
            Curve::P384 => "p384",
        })
    }
}
