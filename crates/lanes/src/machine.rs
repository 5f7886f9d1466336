//! The one interface in which kernels are written.

/// A machine of vectors whose lanes hold 64 bits each.
///
/// A kernel is a function generic over its machine. It can add, shift, mask and multiply, and it
/// can read and write its arrays at indices fixed in the source. It can do nothing else: no
/// operation returns a lane's value to the kernel, so no branch and no address can follow from
/// one. What can be written here is constant time.
///
/// Arithmetic is modulo 2^64 in each lane. Kernels may treat lanes as signed (two's complement);
/// [`Bounds`](crate::Bounds) proves that nothing wraps.
pub trait Machine {
    /// A vector: one 64-bit value in each lane.
    type V: Copy;
    /// A mask: one bit for each lane.
    type M: Copy;

    /// The same public constant in every lane.
    fn splat(&mut self, value: u64) -> Self::V;
    /// Vector `index` of `array`.
    fn load(&mut self, array: Array, index: usize) -> Self::V;
    /// Writes vector `index` of `array`.
    fn store(&mut self, array: Array, index: usize, value: Self::V);

    /// `a + b`.
    fn add(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `a & b`.
    fn and(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `a | b`.
    fn or(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `a << bits`, bits shifted out are lost.
    fn shl(&mut self, a: Self::V, bits: u32) -> Self::V;
    /// `a >> bits`, zeros shifted in.
    fn shr(&mut self, a: Self::V, bits: u32) -> Self::V;
    /// `a >> bits`, the sign shifted in: floor(a / 2^bits) of a signed lane.
    fn sra(&mut self, a: Self::V, bits: u32) -> Self::V;

    /// `acc + (a * b mod 2^52)` of two 52-bit digits (VPMADD52LUQ).
    fn madd_lo(&mut self, acc: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// `acc + floor(a * b / 2^52)` of two 52-bit digits (VPMADD52HUQ).
    fn madd_hi(&mut self, acc: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// `(a mod 2^52) * b mod 2^52`: here, and only here, `a` may be wider than a digit.
    fn mul_lo(&mut self, a: Self::V, b: Self::V) -> Self::V;

    /// The lanes in which `a == b`.
    fn eq(&mut self, a: Self::V, b: Self::V) -> Self::M;
    /// `yes` in the lanes of `mask`, `no` in the others.
    fn select(&mut self, mask: Self::M, yes: Self::V, no: Self::V) -> Self::V;

    /// States that every lane of `value` is below 2^`bits`, for the reason `why`, which intervals
    /// of single digits cannot see. `Model` checks it on every run, `Bounds` lists it.
    fn claim(&mut self, value: Self::V, bits: u32, why: &'static str) -> Self::V;
}

/// One of a kernel's arrays, by its place in the kernel's argument list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Array(pub usize);

/// Bits of a digit: the radix of every big number here is 2^52, as VPMADD52 multiplies it.
pub const DIGIT_BITS: u32 = 52;
/// The largest digit, 2^52 - 1.
pub const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;
