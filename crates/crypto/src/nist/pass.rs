//! Passes: up to `L` problems of one curve at once, one a lane.
//!
//! Lanes without a problem repeat the first one's work, and their results are dropped.

use super::Curve;
use crate::faults;
use crate::passes::{Family, Memory, lock, memory};
use crate::rsa::arithmetic::{be_bytes, integer_from_be_bytes, limbs, mod_pow2, mul_mod};
use crate::secrecy;
use std::any::Any;
use std::sync::{Arc, Mutex};
use widelane_cpu::{Target, Token};
use widelane_kernels::{Arena, Machine, NistCurve, NistSpace};
use widelane_lanes::DIGIT_BITS;
use zeroize::Zeroizing;

/// A multiple of a point to be computed.
#[derive(Clone, Copy)]
pub(crate) struct Multiple<'a> {
    /// Scalar in `[1, n - 1]`.
    pub(crate) scalar: &'a [u8],
    /// Two coordinates, below the prime.
    pub(crate) point: &'a [u8],
}

/// A signature to be made.
#[derive(Clone, Copy)]
pub(crate) struct ToSign<'a> {
    /// The secret, in `[1, n - 1]`.
    pub(crate) secret: &'a [u8],
    /// The secret in Montgomery form, as [`secret_digits`] gave it: the result is computed from
    /// this form and checked with the other.
    pub(crate) digits: &'a [u64],
    /// Digest, as long as the curve's scalars.
    pub(crate) digest: &'a [u8],
    /// Nonce in `[1, n - 1]`, used nowhere else.
    pub(crate) nonce: &'a [u8],
}

/// A signature to be verified.
#[derive(Clone, Copy)]
pub(crate) struct ToVerify<'a> {
    /// Two coordinates of a point on the curve.
    pub(crate) point: &'a [u8],
    /// Digest, at most as long as the curve's scalars.
    pub(crate) digest: &'a [u8],
    /// Number in `[1, n - 1]`.
    pub(crate) r: &'a [u8],
    /// Number in `[1, n - 1]`.
    pub(crate) s: &'a [u8],
}

/// Big-endian bytes.
pub(crate) type Coordinate = Zeroizing<Vec<u8>>;

/// A result failed its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Reason why there is no multiple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MultipleError {
    /// The point is not on the curve.
    OffCurve,
    /// The result is not, although the point is.
    Fault,
}

/// Passes of one width. Slices are never longer than `L`, nor empty; scalars and coordinates are
/// big-endian bytes of the curve's length.
pub(crate) type Pass<const L: usize> = crate::passes::Pass<Curve, L>;

impl Family for Curve {
    type Kernels<const L: usize> = Arc<NistCurve<L>>;
    type Memory<const L: usize> = Space<L>;

    fn kernels<const L: usize>(self, machine: Machine<L>) -> Arc<NistCurve<L>> {
        // The tables of a curve are made once for each target, and in tests for the model.
        static KERNELS: Mutex<Vec<Known>> = Mutex::new(Vec::new());
        let of = (self, machine.token().map(Token::target));
        let mut all = lock(&KERNELS);
        let known = all.iter().find(|(known, _)| *known == of);
        let known = known.and_then(|(_, kernels)| Arc::clone(kernels).downcast().ok());
        known.unwrap_or_else(|| {
            let made = Arc::new(NistCurve::new(machine, self.in_lanes()));
            all.push((of, made.clone()));
            made
        })
    }

    fn memory<const L: usize>(self, kernels: &Arc<NistCurve<L>>) -> Space<L> {
        Space {
            space: kernels.space(),
            arena: Arena::new(Numbers::len(kernels)),
        }
    }
}

/// The kernels of a curve, and what they run on: `None` is the model.
type Known = ((Curve, Option<Target>), Arc<dyn Any + Send + Sync>);

/// The memory of a pass.
#[derive(Debug)]
pub struct Space<const L: usize> {
    space: NistSpace<L>,
    arena: Arena<L>,
}

impl<const L: usize> Memory for Space<L> {
    fn wipe(&mut self) {
        self.arena.wipe();
        self.space.wipe();
    }
}

memory! {
    /// The numbers of a pass, by name. Each has as many of `digits` vectors as it says.
    struct Numbers(k: &NistCurve<L>) {
        /// Three numbers.
        point: 3 * k.digits(),
        /// Three numbers.
        other: 3 * k.digits(),
        /// Four numbers.
        a: 4 * k.digits(),
        /// Four numbers.
        b: 4 * k.digits(),
        /// Four numbers.
        c: 4 * k.digits(),
        /// Three numbers: a signature and its defect.
        first: 3 * k.digits(),
        /// Three numbers: the same, computed again.
        second: 3 * k.digits(),
        /// One vector per limb of a scalar.
        limbs: k.limbs(),
        /// One vector per limb of a scalar.
        more_limbs: k.limbs(),
    }
}

impl<const L: usize> Pass<L> {
    /// Runs one pass in memory that is wiped after it.
    fn with_memory<T>(&self, pass: impl FnOnce(&mut Numbers<'_, L>, &mut NistSpace<L>) -> T) -> T {
        self.run(|memory| {
            let mut numbers = Numbers::new(&self.kernels, memory.arena.vectors());
            pass(&mut numbers, &mut memory.space)
        })
    }

    fn coordinate(&self, number: &[[u64; L]], lane: usize) -> Coordinate {
        let mut bytes = Zeroizing::new(vec![0; self.family.bytes()]);
        get(number, lane, DIGIT_BITS, &mut bytes);
        bytes
    }

    /// Multiples of the base point, uncompressed.
    pub(crate) fn base_multiples(&self, scalars: &[&[u8]]) -> Vec<Result<Vec<u8>, Fault>> {
        let (k, d) = (&*self.kernels, self.kernels.digits());
        self.with_memory(|w, space| {
            for lane in 0..L {
                let scalar = scalars.get(lane).unwrap_or(&scalars[0]);
                set(w.limbs, lane, u64::BITS, scalar);
            }
            let right = k.multiply_base(w.point, w.limbs, space);
            k.invert(&mut w.a[..d], &w.point[2 * d..], space);
            k.leave(&mut w.b[..3 * d], w.point, &w.a[..d], space);
            let result = |lane: usize| {
                // Public: what leaves is a point, which is public, or an error.
                if !secrecy::public(right[lane] & is_zero(&w.b[2 * d..3 * d], lane)) {
                    return Err(Fault);
                }
                let mut point = vec![super::UNCOMPRESSED];
                point.extend_from_slice(&self.coordinate(&w.b[..d], lane));
                point.extend_from_slice(&self.coordinate(&w.b[d..2 * d], lane));
                secrecy::publish(&point);
                Ok(point)
            };
            (0..scalars.len()).map(result).collect()
        })
    }

    /// The x-coordinates of multiples of points.
    pub(crate) fn multiples(&self, problems: &[Multiple<'_>]) -> Vec<Result<Coordinate, MultipleError>> {
        let (k, d) = (&*self.kernels, self.kernels.digits());
        self.with_memory(|w, space| {
            for lane in 0..L {
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                set(w.limbs, lane, u64::BITS, problem.scalar);
                let (x, y) = problem.point.split_at(self.family.bytes());
                set(&mut w.a[..d], lane, DIGIT_BITS, x);
                set(&mut w.a[d..2 * d], lane, DIGIT_BITS, y);
            }
            k.enter(w.b, &w.a[..2 * d], space);
            // A point off the curve affects its own lane only, and that result is dropped.
            let on_curve: [bool; L] = std::array::from_fn(|l| is_zero(&w.b[3 * d..], l));
            k.multiply(w.point, &w.b[..3 * d], w.limbs, space);
            k.invert(&mut w.a[..d], &w.point[2 * d..], space);
            k.leave(&mut w.c[..3 * d], w.point, &w.a[..d], space);
            let result = |lane: usize| {
                if !on_curve[lane] {
                    Err(MultipleError::OffCurve)
                } else if !secrecy::public(is_zero(&w.c[2 * d..3 * d], lane)) {
                    // Public: the point is on the curve, so that only a fault leads here.
                    Err(MultipleError::Fault)
                } else {
                    Ok(self.coordinate(&w.c[..d], lane))
                }
            };
            (0..problems.len()).map(result).collect()
        })
    }

    /// ECDSA signatures `(r, s)`.
    ///
    /// Everything after the nonce's point and `1/k` is computed twice, each time from what the
    /// requests hold; the second time must give the bytes that leave.
    pub(crate) fn sign(&self, problems: &[ToSign<'_>]) -> Vec<Result<(Coordinate, Coordinate), Fault>> {
        let (k, d) = (&*self.kernels, self.kernels.digits());
        self.with_memory(|w, space| {
            let lanes: [&ToSign<'_>; L] = std::array::from_fn(|lane| problems.get(lane).unwrap_or(&problems[0]));
            for (lane, problem) in lanes.iter().enumerate() {
                set(w.limbs, lane, u64::BITS, problem.nonce);
                set(&mut w.b[..d], lane, DIGIT_BITS, problem.nonce);
            }
            w.rest();
            // (x, y) := k G, and 1/k.
            let right = k.multiply_base(w.point, w.limbs, space);
            w.rest();
            w.a[..d].copy_from_slice(&w.point[2 * d..]);
            w.a[d..2 * d].copy_from_slice(&w.b[..d]);
            k.invert_both(&mut w.other[..2 * d], &w.a[..2 * d], space);
            w.rest();
            // r and s.
            let mut on_curve = [true; L];
            let mut leaves = Vec::new();
            for second in [false, true] {
                k.leave(&mut w.a[..3 * d], w.point, &w.other[..d], space);
                for (lane, problem) in lanes.iter().enumerate() {
                    on_curve[lane] &= is_zero(&w.a[2 * d..3 * d], lane);
                    set(&mut w.b[d..2 * d], lane, DIGIT_BITS, problem.nonce);
                    set(&mut w.b[2 * d..3 * d], lane, DIGIT_BITS, problem.digest);
                    for (digit, &value) in w.c[..d].iter_mut().zip(problem.digits) {
                        digit[lane] = value;
                    }
                    set(&mut w.c[d..2 * d], lane, DIGIT_BITS, problem.secret);
                }
                faults::loaded("secret", &mut w.c[..d]);
                w.b[..d].copy_from_slice(&w.other[d..2 * d]);
                w.rest();
                let inputs = [&w.a[..d], &w.b[..2 * d], &w.b[2 * d..3 * d], &w.c[..2 * d]];
                let out = if second { &mut *w.second } else { &mut *w.first };
                k.respond(out, inputs, space);
                w.rest();
                if !second {
                    let coordinates = |lane| [0, 1].map(|i| self.coordinate(&w.first[i * d..(i + 1) * d], lane));
                    leaves = (0..problems.len()).map(coordinates).collect::<Vec<_>>();
                }
            }
            // Back from the bytes.
            for (lane, numbers) in leaves.iter().enumerate() {
                for (i, bytes) in numbers.iter().enumerate() {
                    set(&mut w.a[i * d..(i + 1) * d], lane, DIGIT_BITS, bytes);
                }
            }
            let result = |(lane, [r, s]): (usize, [Coordinate; 2])| {
                let number = |i: usize| &w.second[i * d..(i + 1) * d];
                let zero = is_zero(number(0), lane) | is_zero(number(1), lane);
                let again = w.a[..2 * d].iter().zip(&*w.second);
                let differences = again.fold(0, |all, (a, b)| all | a[lane] ^ b[lane]);
                let sound = right[lane]
                    & on_curve[lane]
                    & is_zero(number(2), lane)
                    & (differences == 0)
                    & is_number(w.limbs, lane, lanes[lane].nonce);
                // Public: what leaves is a signature or an error.
                if secrecy::public(sound & !zero) {
                    secrecy::publish(&r);
                    secrecy::publish(&s);
                    Ok((r, s))
                } else {
                    Err(Fault)
                }
            };
            leaves.into_iter().enumerate().map(result).collect()
        })
    }

    /// Verifies ECDSA signatures; `None` if lanes cannot decide.
    pub(crate) fn verify(&self, problems: &[ToVerify<'_>]) -> Vec<Option<bool>> {
        let (k, d) = (&*self.kernels, self.kernels.digits());
        self.with_memory(|w, space| {
            for lane in 0..L {
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                set(&mut w.c[d..2 * d], lane, DIGIT_BITS, problem.s);
                set(&mut w.b[..d], lane, DIGIT_BITS, problem.digest);
                set(&mut w.b[d..2 * d], lane, DIGIT_BITS, problem.r);
            }
            // w := 1/s, (u1, u2) := (e w, r w). The other half of the inversion has nothing to do.
            w.c[..d].fill([0; L]);
            k.invert_both(&mut w.other[..2 * d], &w.c[..2 * d], space);
            w.b[2 * d..3 * d].copy_from_slice(&w.other[d..2 * d]);
            k.split(&mut w.c[..2 * d], &w.b[..3 * d], space);
            for lane in 0..L {
                for (limbs, u) in [&mut *w.limbs, &mut *w.more_limbs].into_iter().zip(0..) {
                    let scalar = self.coordinate(&w.c[u * d..(u + 1) * d], lane);
                    set(limbs, lane, u64::BITS, &scalar);
                }
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                let (x, y) = problem.point.split_at(self.family.bytes());
                set(&mut w.a[..d], lane, DIGIT_BITS, x);
                set(&mut w.a[d..2 * d], lane, DIGIT_BITS, y);
            }
            // u1 G + u2 Q
            k.enter(w.b, &w.a[..2 * d], space);
            k.multiply(w.other, &w.b[..3 * d], w.more_limbs, space);
            k.multiply_base(w.point, w.limbs, space);
            k.add(w.point, w.other, space);
            // x = r modulo n means x = r or x = r + n.
            for lane in 0..L {
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                set(&mut w.a[..d], lane, DIGIT_BITS, problem.r);
                let second = self.family.second_candidate(problem.r);
                let second = second.as_deref().unwrap_or(problem.r);
                set(&mut w.a[d..2 * d], lane, DIGIT_BITS, second);
            }
            k.matches(&mut w.b[..3 * d], w.point, &w.a[..2 * d], space);
            let verdict = |lane: usize| {
                let zero = |i: usize| is_zero(&w.b[i * d..(i + 1) * d], lane);
                (!zero(2)).then(|| zero(0) || zero(1))
            };
            (0..problems.len()).map(verdict).collect()
        })
    }
}

/// A secret in Montgomery form modulo the order, `secret R mod n`, as digits. Computed once for a
/// key, so that one by one is fast enough.
pub(crate) fn secret_digits(curve: Curve, secret: &[u8]) -> Zeroizing<Vec<u64>> {
    let integer = |bytes: &[u8]| limbs(&integer_from_be_bytes(bytes, 8 * bytes.len()), bytes.len() / 8);
    let (secret, order) = (integer(secret), integer(curve.order()));
    let mut digits = Zeroizing::new(vec![[0; 1]; curve.in_lanes().digits()]);
    let r = mod_pow2(digits.len() * DIGIT_BITS as usize, &order);
    let product = be_bytes(&mul_mod(&secret, &r, &order), curve.bytes());
    set(&mut digits, 0, DIGIT_BITS, &product);
    Zeroizing::new(digits.as_flattened().to_vec())
}

/// Big-endian bytes to a lane of a number in radix 2^bits.
fn set<const L: usize>(number: &mut [[u64; L]], lane: usize, bits: u32, bytes: &[u8]) {
    let mut limbs = [0; MAX_LIMBS];
    for (limb, bytes) in limbs.iter_mut().zip(bytes.rchunks(8)) {
        let mut word = [0; 8];
        word[8 - bytes.len()..].copy_from_slice(bytes);
        *limb = u64::from_be_bytes(word);
    }
    for (digit, at) in number.iter_mut().zip((0..).step_by(bits as usize)) {
        digit[lane] = bits_of(&limbs, at) & (u64::MAX >> (u64::BITS - bits));
    }
    faults::loaded("number", number);
}

/// Returns whether a lane of limbs is the number in these bytes.
fn is_number<const L: usize>(limbs: &[[u64; L]], lane: usize, bytes: &[u8]) -> bool {
    let mut found = Zeroizing::new([0; 8 * MAX_LIMBS]);
    let found = &mut found[..bytes.len()];
    get(limbs, lane, u64::BITS, found);
    let pairs = found.iter().zip(bytes);
    pairs.fold(0, |all, (found, byte)| all | found ^ byte) == 0
}

/// A lane of a number in radix 2^bits to big-endian bytes.
fn get<const L: usize>(number: &[[u64; L]], lane: usize, bits: u32, bytes: &mut [u8]) {
    let mut limbs = [0; MAX_LIMBS];
    for (digit, at) in number.iter().zip((0..).step_by(bits as usize)) {
        let (limb, offset) = (at / 64, at % 64);
        limbs[limb] |= digit[lane] << offset;
        // In two steps, as a shift by 64 is none.
        limbs[limb + 1] |= digit[lane] >> 1 >> (63 - offset);
    }
    for (limb, bytes) in limbs.iter().zip(bytes.rchunks_mut(8)) {
        let word = limb.to_be_bytes();
        bytes.copy_from_slice(&word[8 - bytes.len()..]);
    }
}

/// 64 bits of a number in radix 2^64, from bit `at`.
fn bits_of(limbs: &[u64; MAX_LIMBS], at: usize) -> u64 {
    let (limb, offset) = (at / 64, at % 64);
    limbs[limb] >> offset | limbs[limb + 1] << 1 << (63 - offset)
}

/// Returns whether a lane of a number is zero.
fn is_zero<const L: usize>(number: &[[u64; L]], lane: usize) -> bool {
    number.iter().fold(0, |any, digit| any | digit[lane]) == 0
}

/// Limbs of the longest number, 8 digits of 52 bits, and a zero.
const MAX_LIMBS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::arithmetic::Limbs;
    use widelane_lanes::nist::Nist;
    use widelane_lanes::{Definition, Kernel};

    /// Compares with the kernel that enters the order's field.
    #[test]
    fn digits_of_secrets_are_those_of_the_kernel() {
        for curve in Curve::ALL {
            let mut largest = curve.order().to_vec();
            *largest.last_mut().unwrap() -= 1;
            let mut one = vec![0; curve.bytes()];
            one[curve.bytes() - 1] = 1;
            let random = crate::nist::random_scalar(curve).unwrap().to_vec();
            for secret in [one, largest, random] {
                let mut plain = vec![[0; 1]; curve.in_lanes().digits()];
                set(&mut plain, 0, DIGIT_BITS, &secret);
                let mut expected = plain.clone();
                let kernel = Kernel::from(Nist::EnterOrder(curve.in_lanes()));
                kernel.model(&mut [&mut expected], &[&plain]);
                let digits = secret_digits(curve, &secret);
                assert_eq!(remainder(curve, &digits), remainder(curve, expected.as_flattened()));
                // Canonical, so that it is within every kernel's bounds.
                let canonical = remainder(curve, &digits);
                assert_eq!(canonical[..], number(curve, &digits)[..canonical.len()]);
            }
        }
    }

    /// Digits as limbs, one more than the order has.
    fn number(curve: Curve, digits: &[u64]) -> Limbs {
        let (digits, _) = digits.as_chunks::<1>();
        let mut bytes = vec![0; curve.bytes() + 8];
        get(digits, 0, DIGIT_BITS, &mut bytes);
        limbs(&integer_from_be_bytes(&bytes, 8 * bytes.len()), bytes.len() / 8)
    }

    fn remainder(curve: Curve, digits: &[u64]) -> Limbs {
        let order = integer_from_be_bytes(curve.order(), 8 * curve.bytes());
        mul_mod(&number(curve, digits), &[1], &limbs(&order, curve.bytes() / 8))
    }
}
