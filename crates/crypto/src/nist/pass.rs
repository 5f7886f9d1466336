//! Passes: up to `L` problems of one curve at once, one a lane.
//!
//! Lanes without a problem repeat the first one's work, and their results are dropped.

use super::Curve;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_kernels::{Arena, NistCurve, NistSpace, wipe_registers};
use widelane_lanes::DIGIT_BITS;
use zeroize::Zeroizing;

use crate::{Backend, BackendUnavailable};

/// Passes of some width. Slices are never longer than [`lanes`](Self::lanes), nor empty; scalars
/// and coordinates are big-endian bytes of the curve's length.
pub(crate) trait Lanes: fmt::Debug + Send + Sync {
    /// Problems of one pass.
    fn lanes(&self) -> usize;

    /// Multiples of the base point, uncompressed.
    fn base_multiples(&self, scalars: &[&[u8]]) -> Vec<Result<Vec<u8>, Fault>>;

    /// The x-coordinates of multiples of points.
    fn multiples(&self, problems: &[Multiple<'_>]) -> Vec<Result<Coordinate, MultipleError>>;

    /// ECDSA signatures `(r, s)`.
    fn sign(&self, problems: &[ToSign<'_>]) -> Vec<Result<(Coordinate, Coordinate), Fault>>;

    /// Whether ECDSA signatures are right; `None` where this cannot tell.
    fn verify(&self, problems: &[ToVerify<'_>]) -> Vec<Option<bool>>;
}

/// A multiple of a point to be computed.
#[derive(Clone, Copy)]
pub(crate) struct Multiple<'a> {
    /// In `[1, n - 1]`.
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
    /// As many bytes as the curve's scalars have.
    pub(crate) digest: &'a [u8],
    /// In `[1, n - 1]`, and used nowhere else.
    pub(crate) nonce: &'a [u8],
}

/// A signature to be verified.
#[derive(Clone, Copy)]
pub(crate) struct ToVerify<'a> {
    /// Two coordinates of a point on the curve.
    pub(crate) point: &'a [u8],
    /// At most as many bytes as the curve's scalars have.
    pub(crate) digest: &'a [u8],
    /// In `[1, n - 1]`.
    pub(crate) r: &'a [u8],
    /// In `[1, n - 1]`.
    pub(crate) s: &'a [u8],
}

/// Big-endian bytes.
pub(crate) type Coordinate = Zeroizing<Vec<u8>>;

/// A result failed its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Why there is no multiple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MultipleError {
    /// The point is not on the curve.
    OffCurve,
    /// The result is not, although the point is.
    Fault,
}

/// The passes of a backend; `None` where it has none.
pub(crate) fn lanes(
    backend: Backend,
    curve: Curve,
) -> Result<Option<Box<dyn Lanes>>, BackendUnavailable> {
    static YMM: [OnceLock<Arc<NistCurve<4>>>; 2] = [OnceLock::new(), OnceLock::new()];
    static ZMM: [OnceLock<Arc<NistCurve<8>>>; 2] = [OnceLock::new(), OnceLock::new()];
    let missing = BackendUnavailable { backend };
    Ok(match backend {
        Backend::AwsLc => None,
        Backend::Avx512Ifma256 => {
            let token = Avx512IfmaVl::detect().ok_or(missing)?;
            // The tables of a curve are made once.
            let make = || Arc::new(NistCurve::ymm(token, curve.in_lanes()));
            let kernels = Arc::clone(YMM[curve as usize].get_or_init(make));
            Some(Box::new(Pass::new(curve, kernels, Some(token.zmm()))))
        }
        Backend::Avx512Ifma => {
            let token = Avx512Ifma::detect().ok_or(missing)?;
            let make = || Arc::new(NistCurve::zmm(token, curve.in_lanes()));
            let kernels = Arc::clone(ZMM[curve as usize].get_or_init(make));
            Some(Box::new(Pass::new(curve, kernels, Some(token))))
        }
    })
}

/// Passes of one width.
#[derive(Debug)]
pub(crate) struct Pass<const L: usize> {
    curve: Curve,
    kernels: Arc<NistCurve<L>>,
    /// Present where the kernels run in vector registers, to wipe those.
    registers: Option<Avx512Ifma>,
    /// Memory of passes that are not running.
    memories: Mutex<Vec<Memory<L>>>,
}

#[derive(Debug)]
struct Memory<const L: usize> {
    space: NistSpace<L>,
    arena: Arena<L>,
}

/// The memory of a pass, by name. Each has as many numbers of `d` vectors as it says.
struct Work<'a, const L: usize> {
    /// Three.
    point: &'a mut [[u64; L]],
    /// Three.
    other: &'a mut [[u64; L]],
    /// Four.
    a: &'a mut [[u64; L]],
    /// Four.
    b: &'a mut [[u64; L]],
    /// Four.
    c: &'a mut [[u64; L]],
    /// As many vectors as a scalar has limbs.
    limbs: &'a mut [[u64; L]],
    /// The same.
    more_limbs: &'a mut [[u64; L]],
    space: &'a mut NistSpace<L>,
}

impl<const L: usize> Pass<L> {
    pub(crate) fn new(
        curve: Curve,
        kernels: Arc<NistCurve<L>>,
        registers: Option<Avx512Ifma>,
    ) -> Self {
        Self {
            curve,
            kernels,
            registers,
            memories: Mutex::default(),
        }
    }

    /// Runs one pass in memory that is wiped after it.
    fn with_memory<T>(&self, pass: impl FnOnce(&mut Work<'_, L>) -> T) -> T {
        let memory = lock(&self.memories).pop();
        let mut memory = memory.unwrap_or_else(|| Memory {
            space: self.kernels.space(),
            arena: Arena::new(NUMBERS * self.kernels.digits() + 2 * self.kernels.limbs()),
        });
        let mut rest = memory.arena.vectors();
        let mut take = |len: usize| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            part
        };
        let (d, limbs) = (self.kernels.digits(), self.kernels.limbs());
        let result = pass(&mut Work {
            point: take(3 * d),
            other: take(3 * d),
            a: take(4 * d),
            b: take(4 * d),
            c: take(4 * d),
            limbs: take(limbs),
            more_limbs: take(limbs),
            space: &mut memory.space,
        });
        memory.arena.wipe();
        memory.space.wipe();
        if let Some(token) = self.registers {
            wipe_registers(token);
        }
        lock(&self.memories).push(memory);
        result
    }

    fn coordinate(&self, number: &[[u64; L]], lane: usize) -> Coordinate {
        let mut bytes = Zeroizing::new(vec![0; self.curve.bytes()]);
        get(number, lane, DIGIT_BITS, &mut bytes);
        bytes
    }
}

impl<const L: usize> Lanes for Pass<L> {
    fn lanes(&self) -> usize {
        L
    }

    fn base_multiples(&self, scalars: &[&[u8]]) -> Vec<Result<Vec<u8>, Fault>> {
        let (k, d) = (&*self.kernels, self.kernels.digits());
        self.with_memory(|w| {
            for lane in 0..L {
                let scalar = scalars.get(lane).unwrap_or(&scalars[0]);
                set(w.limbs, lane, u64::BITS, scalar);
            }
            let right = k.multiply_base(w.point, w.limbs, w.space);
            k.invert(&mut w.a[..d], &w.point[2 * d..], w.space);
            k.leave(&mut w.b[..3 * d], w.point, &w.a[..d], w.space);
            let result = |lane: usize| {
                if !right[lane] || !is_zero(&w.b[2 * d..3 * d], lane) {
                    return Err(Fault);
                }
                let mut point = vec![super::UNCOMPRESSED];
                point.extend_from_slice(&self.coordinate(&w.b[..d], lane));
                point.extend_from_slice(&self.coordinate(&w.b[d..2 * d], lane));
                Ok(point)
            };
            (0..scalars.len()).map(result).collect()
        })
    }

    fn multiples(&self, problems: &[Multiple<'_>]) -> Vec<Result<Coordinate, MultipleError>> {
        let (k, d) = (&*self.kernels, self.kernels.digits());
        self.with_memory(|w| {
            for lane in 0..L {
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                set(w.limbs, lane, u64::BITS, problem.scalar);
                let (x, y) = problem.point.split_at(self.curve.bytes());
                set(&mut w.a[..d], lane, DIGIT_BITS, x);
                set(&mut w.a[d..2 * d], lane, DIGIT_BITS, y);
            }
            k.enter(w.b, &w.a[..2 * d], w.space);
            // A point off the curve harms nobody but itself: its own lane's result is dropped.
            let on_curve: [bool; L] = std::array::from_fn(|l| is_zero(&w.b[3 * d..], l));
            k.multiply(w.point, &w.b[..3 * d], w.limbs, w.space);
            k.invert(&mut w.a[..d], &w.point[2 * d..], w.space);
            k.leave(&mut w.c[..3 * d], w.point, &w.a[..d], w.space);
            let result = |lane: usize| {
                if !on_curve[lane] {
                    Err(MultipleError::OffCurve)
                } else if !is_zero(&w.c[2 * d..3 * d], lane) {
                    Err(MultipleError::Fault)
                } else {
                    Ok(self.coordinate(&w.c[..d], lane))
                }
            };
            (0..problems.len()).map(result).collect()
        })
    }

    fn sign(&self, problems: &[ToSign<'_>]) -> Vec<Result<(Coordinate, Coordinate), Fault>> {
        let (k, d) = (&*self.kernels, self.kernels.digits());
        self.with_memory(|w| {
            for lane in 0..L {
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                set(w.limbs, lane, u64::BITS, problem.nonce);
                set(&mut w.b[d..2 * d], lane, DIGIT_BITS, problem.nonce);
                set(&mut w.b[2 * d..3 * d], lane, DIGIT_BITS, problem.digest);
                for (digit, &value) in w.c[..d].iter_mut().zip(problem.digits) {
                    digit[lane] = value;
                }
                set(&mut w.c[d..2 * d], lane, DIGIT_BITS, problem.secret);
            }
            // (x, y) := k G, and 1/k.
            let right = k.multiply_base(w.point, w.limbs, w.space);
            w.a[..d].copy_from_slice(&w.point[2 * d..]);
            k.enter_order(&mut w.a[d..2 * d], &w.b[d..2 * d], w.space);
            k.invert_both(&mut w.other[..2 * d], &w.a[..2 * d], w.space);
            k.leave(&mut w.a[..3 * d], w.point, &w.other[..d], w.space);
            let on_curve: [bool; L] = std::array::from_fn(|l| is_zero(&w.a[2 * d..3 * d], l));
            // r and s.
            w.b[..d].copy_from_slice(&w.other[d..2 * d]);
            let inputs = [&w.a[..d], &w.b[..2 * d], &w.b[2 * d..3 * d], &w.c[..2 * d]];
            k.respond(w.other, inputs, w.space);
            let result = |lane: usize| {
                let number = |i: usize| &w.other[i * d..(i + 1) * d];
                let zero = is_zero(number(0), lane) | is_zero(number(1), lane);
                if right[lane] && on_curve[lane] && is_zero(number(2), lane) && !zero {
                    let [r, s] = [0, 1].map(|i| self.coordinate(number(i), lane));
                    Ok((r, s))
                } else {
                    Err(Fault)
                }
            };
            (0..problems.len()).map(result).collect()
        })
    }

    fn verify(&self, problems: &[ToVerify<'_>]) -> Vec<Option<bool>> {
        let (k, d) = (&*self.kernels, self.kernels.digits());
        self.with_memory(|w| {
            for lane in 0..L {
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                set(&mut w.a[..d], lane, DIGIT_BITS, problem.s);
                set(&mut w.b[..d], lane, DIGIT_BITS, problem.digest);
                set(&mut w.b[d..2 * d], lane, DIGIT_BITS, problem.r);
            }
            // w := 1/s, (u1, u2) := (e w, r w). The other half of the inversion has nothing to do.
            w.c[..d].fill([0; L]);
            k.enter_order(&mut w.c[d..2 * d], &w.a[..d], w.space);
            k.invert_both(&mut w.other[..2 * d], &w.c[..2 * d], w.space);
            w.b[2 * d..3 * d].copy_from_slice(&w.other[d..2 * d]);
            k.split(&mut w.c[..2 * d], &w.b[..3 * d], w.space);
            for lane in 0..L {
                for (limbs, u) in [&mut *w.limbs, &mut *w.more_limbs].into_iter().zip(0..) {
                    let scalar = self.coordinate(&w.c[u * d..(u + 1) * d], lane);
                    set(limbs, lane, u64::BITS, &scalar);
                }
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                let (x, y) = problem.point.split_at(self.curve.bytes());
                set(&mut w.a[..d], lane, DIGIT_BITS, x);
                set(&mut w.a[d..2 * d], lane, DIGIT_BITS, y);
            }
            // u1 G + u2 Q
            k.enter(w.b, &w.a[..2 * d], w.space);
            k.multiply(w.other, &w.b[..3 * d], w.more_limbs, w.space);
            k.multiply_base(w.point, w.limbs, w.space);
            k.add(w.point, w.other, w.space);
            // x = r modulo n means x = r or x = r + n.
            for lane in 0..L {
                let problem = problems.get(lane).unwrap_or(&problems[0]);
                set(&mut w.a[..d], lane, DIGIT_BITS, problem.r);
                let second = self.curve.second_candidate(problem.r);
                let second = second.as_deref().unwrap_or(problem.r);
                set(&mut w.a[d..2 * d], lane, DIGIT_BITS, second);
            }
            k.matches(&mut w.b[..3 * d], w.point, &w.a[..2 * d], w.space);
            let verdict = |lane: usize| {
                let zero = |i: usize| is_zero(&w.b[i * d..(i + 1) * d], lane);
                (!zero(2)).then(|| zero(0) || zero(1))
            };
            (0..problems.len()).map(verdict).collect()
        })
    }
}

/// A secret in Montgomery form modulo the order, as digits.
pub(crate) fn secret_digits(curve: Curve, secret: &[u8]) -> Zeroizing<Vec<u64>> {
    use widelane_lanes::Kernel;
    use widelane_lanes::nist::Nist;
    let d = curve.in_lanes().digits();
    let mut digits = Zeroizing::new(vec![[0; 1]; d]);
    set(&mut digits, 0, DIGIT_BITS, secret);
    let mut out = Zeroizing::new(vec![[0; 1]; d]);
    // In portable Rust: once for a key.
    Kernel::from(Nist::EnterOrder(curve.in_lanes())).model(&mut [&mut out], &[&digits]);
    Zeroizing::new(out.as_flattened().to_vec())
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

/// Whether a lane of a number is zero.
fn is_zero<const L: usize>(number: &[[u64; L]], lane: usize) -> bool {
    number.iter().fold(0, |any, digit| any | digit[lane]) == 0
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What it guards is whole between operations.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Limbs of the longest number, 8 digits of 52 bits, and a zero.
const MAX_LIMBS: usize = 8;
/// Numbers in the memory of a pass.
const NUMBERS: usize = 18;
