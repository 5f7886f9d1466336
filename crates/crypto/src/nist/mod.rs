//! The curves P-256 and P-384 (SP 800-186, section 3.2.1): what ECDH and ECDSA have in common.

#[cfg(test)]
pub(crate) mod chain;
mod nonce;
mod pass;

pub(crate) use nonce::{ADDED_BYTES, nonce};
pub(crate) use pass::{Coordinate, Fault, Multiple, MultipleError, Pass, ToSign, ToVerify, secret_digits};

use crate::secrecy;
use aws_lc_rs::rand;
use std::fmt;
use zeroize::Zeroizing;

/// A curve of NIST for which there are lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Curve {
    /// P-256, also called secp256r1 and prime256v1.
    P256,
    /// P-384, also called secp384r1.
    P384,
}

impl Curve {
    /// Every curve, the smaller one first.
    pub const ALL: [Self; 2] = [Self::P256, Self::P384];

    /// Bytes of a coordinate and of a scalar.
    pub const fn bytes(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
        }
    }

    /// Bytes of an uncompressed point (SEC 1, section 2.3.3).
    pub const fn point_bytes(self) -> usize {
        1 + 2 * self.bytes()
    }

    /// The most bytes of an ECDSA signature: a sequence of two integers, each with a sign byte.
    pub const fn signature_len(self) -> usize {
        2 * self.bytes() + 8
    }

    /// The order `n` of the curve, big endian.
    pub(crate) const fn order(self) -> &'static [u8] {
        match self {
            Self::P256 => &P256_ORDER,
            Self::P384 => &P384_ORDER,
        }
    }

    /// The prime of the field, big endian.
    pub(crate) const fn prime(self) -> &'static [u8] {
        match self {
            Self::P256 => &P256_PRIME,
            Self::P384 => &P384_PRIME,
        }
    }

    /// Curve as kernels name it.
    pub(crate) const fn in_lanes(self) -> widelane_lanes::nist::Curve {
        match self {
            Self::P256 => widelane_lanes::nist::Curve::P256,
            Self::P384 => widelane_lanes::nist::Curve::P384,
        }
    }

    /// Returns whether bytes are an uncompressed point with coordinates below the prime. The point may be off the
    /// curve.
    pub(crate) fn is_point(self, bytes: &[u8]) -> bool {
        bytes.len() == self.point_bytes()
            && bytes[0] == UNCOMPRESSED
            && bytes[1..]
                .chunks(self.bytes())
                .all(|coordinate| coordinate < self.prime())
    }

    /// `r + n`, if it is below the prime.
    pub(crate) fn second_candidate(self, r: &[u8]) -> Option<Vec<u8>> {
        let mut sum = r.to_vec();
        let mut carry = 0;
        for (byte, &order) in sum.iter_mut().zip(self.order()).rev() {
            carry += u16::from(*byte) + u16::from(order);
            *byte = carry as u8;
            carry >>= 8;
        }
        (carry == 0 && sum.as_slice() < self.prime()).then_some(sum)
    }

    /// The base point as an uncompressed point.
    #[cfg(test)]
    pub(crate) const fn generator(self) -> &'static [u8] {
        match self {
            Self::P256 => &P256_GENERATOR,
            Self::P384 => &P384_GENERATOR,
        }
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
        })
    }
}

/// A scalar in `[1, n - 1]`, big endian, as long as the curve's scalars are.
pub(crate) type Scalar = Zeroizing<Vec<u8>>;

/// Takes big-endian bytes as a scalar if they are one: of the right length and in `[1, n - 1]`.
pub(crate) fn scalar(curve: Curve, bytes: &[u8]) -> Option<Scalar> {
    // Public: whether it is a scalar. A number that is none is not used.
    let fits = bytes.len() == curve.bytes() && secrecy::public(is_scalar(curve, bytes));
    fits.then(|| Zeroizing::new(bytes.to_vec()))
}

/// Makes a scalar from a big-endian integer of any length without leading zeros.
pub(crate) fn scalar_from(curve: Curve, integer: &[u8]) -> Option<Scalar> {
    let zeros = curve.bytes().checked_sub(integer.len())?;
    let mut bytes = vec![0; curve.bytes()];
    bytes[zeros..].copy_from_slice(integer);
    scalar(curve, &bytes)
}

/// A uniformly random scalar (FIPS 186-5, appendix A.2.2: rejection).
pub(crate) fn random_scalar(curve: Curve) -> Result<Scalar, RandomFailed> {
    let mut bytes = Zeroizing::new(vec![0; curve.bytes()]);
    loop {
        rand::fill(&mut bytes).map_err(|_| RandomFailed)?;
        secrecy::secret(&bytes);
        // Public: rejected values are never used, so that how many there were tells nothing.
        if secrecy::public(is_scalar(curve, &bytes)) {
            return Ok(bytes);
        }
    }
}

/// The system's random generator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RandomFailed;

/// Returns whether `0 < bytes < n`. Which of the bytes decides stays secret.
fn is_scalar(curve: Curve, bytes: &[u8]) -> bool {
    let mut any = 0;
    let mut borrow = 0;
    for (&byte, &order) in bytes.iter().zip(curve.order()).rev() {
        any |= byte;
        borrow = (i16::from(byte) - i16::from(order) - borrow) >> 8 & 1;
    }
    // Both bits are known only together with the other: no branch on either.
    (u8::from(any != 0) & (borrow as u8)) == 1
}

const P256_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
    0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];
const P384_ORDER: [u8; 48] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xc7, 0x63, 0x4d, 0x81, 0xf4, 0x37, 0x2d, 0xdf, 0x58, 0x1a, 0x0d, 0xb2, 0x48, 0xb0,
    0xa7, 0x7a, 0xec, 0xec, 0x19, 0x6a, 0xcc, 0xc5, 0x29, 0x73,
];

const P256_PRIME: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
];
const P384_PRIME: [u8; 48] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff,
];
#[cfg(test)]
const P256_GENERATOR: [u8; 65] = [
    0x04, 0x6b, 0x17, 0xd1, 0xf2, 0xe1, 0x2c, 0x42, 0x47, 0xf8, 0xbc, 0xe6, 0xe5, 0x63, 0xa4, 0x40, 0xf2, 0x77, 0x03,
    0x7d, 0x81, 0x2d, 0xeb, 0x33, 0xa0, 0xf4, 0xa1, 0x39, 0x45, 0xd8, 0x98, 0xc2, 0x96, 0x4f, 0xe3, 0x42, 0xe2, 0xfe,
    0x1a, 0x7f, 0x9b, 0x8e, 0xe7, 0xeb, 0x4a, 0x7c, 0x0f, 0x9e, 0x16, 0x2b, 0xce, 0x33, 0x57, 0x6b, 0x31, 0x5e, 0xce,
    0xcb, 0xb6, 0x40, 0x68, 0x37, 0xbf, 0x51, 0xf5,
];
#[cfg(test)]
const P384_GENERATOR: [u8; 97] = [
    0x04, 0xaa, 0x87, 0xca, 0x22, 0xbe, 0x8b, 0x05, 0x37, 0x8e, 0xb1, 0xc7, 0x1e, 0xf3, 0x20, 0xad, 0x74, 0x6e, 0x1d,
    0x3b, 0x62, 0x8b, 0xa7, 0x9b, 0x98, 0x59, 0xf7, 0x41, 0xe0, 0x82, 0x54, 0x2a, 0x38, 0x55, 0x02, 0xf2, 0x5d, 0xbf,
    0x55, 0x29, 0x6c, 0x3a, 0x54, 0x5e, 0x38, 0x72, 0x76, 0x0a, 0xb7, 0x36, 0x17, 0xde, 0x4a, 0x96, 0x26, 0x2c, 0x6f,
    0x5d, 0x9e, 0x98, 0xbf, 0x92, 0x92, 0xdc, 0x29, 0xf8, 0xf4, 0x1d, 0xbd, 0x28, 0x9a, 0x14, 0x7c, 0xe9, 0xda, 0x31,
    0x13, 0xb5, 0xf0, 0xb8, 0xc0, 0x0a, 0x60, 0xb1, 0xce, 0x1d, 0x7e, 0x81, 0x9d, 0x7a, 0x43, 0x1d, 0x7c, 0x90, 0xea,
    0x0e, 0x5f,
];

/// The first octet of an uncompressed point (SEC 1, section 2.3.3).
pub(crate) const UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_from_one_to_the_order_less_one() {
        for curve in Curve::ALL {
            let len = curve.bytes();
            let mut one = vec![0; len];
            assert!(scalar(curve, &one).is_none(), "{curve}: zero");
            one[len - 1] = 1;
            assert!(scalar(curve, &one).is_some(), "{curve}: one");
            assert!(scalar(curve, &one[1..]).is_none(), "{curve}: too short");
            let order = curve.order().to_vec();
            assert!(scalar(curve, &order).is_none(), "{curve}: the order");
            let mut less = order.clone();
            less[len - 1] -= 1;
            assert!(scalar(curve, &less).is_some(), "{curve}: order less one");
            let mut more = order;
            more[0] = 0xff;
            more[len - 1] += 1;
            assert!(scalar(curve, &more).is_none(), "{curve}: order and one");
            assert!(scalar(curve, &vec![0xff; len]).is_none(), "{curve}: all ones");
        }
    }
}
