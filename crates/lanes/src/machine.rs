//! The one interface in which kernels are written.

/// A machine of vectors whose lanes hold 64 bits each.
///
/// A kernel is a function generic over its machine. It can add, shift, mask, multiply and permute,
/// and it can read and write its arrays at indices fixed in the source. It can do nothing else: no
/// operation returns a lane's value to the kernel, so no branch and no address can follow from
/// one. What can be written here is constant time.
///
/// Arithmetic is modulo 2^64 in each lane. Kernels may treat lanes as signed (two's complement);
/// [`Bounds`](crate::Bounds) proves that nothing wraps, except where wrapping is the purpose.
/// Operations whose names end in 32 or 16 act on the two or four words of a lane, each by itself.
pub trait Machine {
    /// A vector: one 64-bit value in each lane.
    type V: Copy;
    /// A mask: one bit for each lane.
    type M: Copy;

    /// Lanes of a vector: public, as it says how wide the registers are.
    fn lanes(&self) -> usize;

    /// Returns whether the machine has 16 registers, not 32: then another order of operations may keep fewer values
    /// alive.
    fn has_few_registers(&self) -> bool {
        false
    }

    /// Vector with one public constant in every lane.
    fn splat(&mut self, value: u64) -> Self::V;
    /// A public constant for each lane, as many of them as there are lanes.
    fn vector(&mut self, values: [u64; 8]) -> Self::V;
    /// Vector `index` of `array`.
    fn load(&mut self, array: Array, index: usize) -> Self::V;
    /// The 64-bit word `index` of `array`, counted from its first vector's first lane, in every
    /// lane. All lanes share the contents of an array that is read so, and no kernel writes it.
    fn broadcast(&mut self, array: Array, index: usize) -> Self::V;
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
    /// `a ^ b`.
    fn xor(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// Any function of three bits, bit by bit: where the bits of `a`, `b` and `c` are the number
    /// `4 a + 2 b + c`, the result has that bit of `table` (VPTERNLOGQ).
    fn ternary(&mut self, a: Self::V, b: Self::V, c: Self::V, table: u8) -> Self::V;
    /// `a << bits`, bits shifted out are lost.
    fn shl(&mut self, a: Self::V, bits: u32) -> Self::V;
    /// `a >> bits`, zeros shifted in.
    fn shr(&mut self, a: Self::V, bits: u32) -> Self::V;
    /// `a >> bits`, the sign shifted in: floor(a / 2^bits) of a signed lane.
    fn sra(&mut self, a: Self::V, bits: u32) -> Self::V;

    /// `a` rotated to the left.
    fn rol(&mut self, a: Self::V, bits: u32) -> Self::V;
    /// `a + b mod 2^64`, where wrapping is the purpose.
    fn add64(&mut self, a: Self::V, b: Self::V) -> Self::V;

    /// `acc + (a * b mod 2^52)` of two 52-bit digits (VPMADD52LUQ).
    fn madd_lo(&mut self, acc: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// `acc + floor(a * b / 2^52)` of two 52-bit digits (VPMADD52HUQ).
    fn madd_hi(&mut self, acc: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// `(a mod 2^52) * b mod 2^52`: here, and only here, `a` may be wider than a digit.
    fn mul_lo(&mut self, a: Self::V, b: Self::V) -> Self::V;

    /// `(a mod 2^32) (b mod 2^32)` (VPMULUDQ).
    fn mul32(&mut self, a: Self::V, b: Self::V) -> Self::V;

    /// `a + b` of 32-bit words, modulo 2^32.
    fn add32(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b` of 32-bit words, modulo 2^32.
    fn sub32(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// 32-bit words rotated to the left.
    fn rol32(&mut self, a: Self::V, bits: u32) -> Self::V;
    /// 32-bit words shifted right, zeros shifted in.
    fn shr32(&mut self, a: Self::V, bits: u32) -> Self::V;

    /// `a + b` of 16-bit words, signed.
    fn add16(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b` of 16-bit words, signed.
    fn sub16(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `a b mod 2^16` of 16-bit words, as a signed word (VPMULLW).
    fn mul_lo16(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// `floor(a b / 2^16)` of signed 16-bit words (VPMULHW).
    fn mul_hi16(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// 16-bit words shifted left, bits shifted out are lost.
    fn shl16(&mut self, a: Self::V, bits: u32) -> Self::V;
    /// 16-bit words shifted right, zeros shifted in.
    fn shr16(&mut self, a: Self::V, bits: u32) -> Self::V;
    /// 16-bit words shifted right, the sign shifted in.
    fn sra16(&mut self, a: Self::V, bits: u32) -> Self::V;

    /// Each lane chooses from the lanes of a table of two vectors: lane `l` is lane
    /// `index[l] mod (2 lanes)` of `low` followed by `high` (VPERMT2Q). A table in registers has no
    /// addresses, so that the index may be secret.
    fn pick2(&mut self, low: Self::V, high: Self::V, index: Self::V) -> Self::V;
    /// Interleaves the low 32-bit words: `a0` and `b0` of each pair of lanes `(a0, a1)`, `(b0, b1)` (VPUNPCKLDQ).
    fn unpack_low32(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// Interleaves the 32-bit words of `a1` and `b1` of each pair of lanes (VPUNPCKHDQ).
    fn unpack_high32(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `(a0, b0)` of each pair of lanes (VPUNPCKLQDQ).
    fn unpack_low64(&mut self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `(a1, b1)` of each pair of lanes (VPUNPCKHQDQ).
    fn unpack_high64(&mut self, a: Self::V, b: Self::V) -> Self::V;

    /// The lanes in which `a == b`.
    fn eq(&mut self, a: Self::V, b: Self::V) -> Self::M;
    /// The lanes in which `a & b` is not zero.
    fn test(&mut self, a: Self::V, b: Self::V) -> Self::M;
    /// `yes` in the lanes of `mask`, `no` in the others.
    fn select(&mut self, mask: Self::M, yes: Self::V, no: Self::V) -> Self::V;

    /// `values := body(values)`, `times` times. In machine code it is a loop, so that a kernel with
    /// many equal rounds stays small. `body` computes only from its values, from arrays and from
    /// constants; it returns as many values, and stores nothing.
    fn repeat(
        &mut self,
        times: usize,
        values: Vec<Self::V>,
        body: impl Fn(&mut Self, Vec<Self::V>) -> Vec<Self::V>,
    ) -> Vec<Self::V>
    where
        Self: Sized,
    {
        (0..times).fold(values, |values, _| body(self, values))
    }

    /// Memory of the kernel's own, of `len` vectors without contents. A kernel asks for it once.
    fn scratch(&mut self, len: usize) -> Array;
    /// Does [`repeat`](Self::repeat), and moves scratch memory by `stride` vectors each turn. `body` is given the start
    /// of its turn, adds it to every index of scratch memory, and may store there.
    fn walk(
        &mut self,
        times: usize,
        stride: usize,
        values: Vec<Self::V>,
        body: impl Fn(&mut Self, usize, Vec<Self::V>) -> Vec<Self::V>,
    ) -> Vec<Self::V>
    where
        Self: Sized,
    {
        (0..times).fold(values, |values, turn| body(self, turn * stride, values))
    }

    /// States that every lane of `value` is below 2^`bits`, for the reason `why`. The intervals of
    /// single digits cannot prove it: `Model` checks it on every run, `Bounds` lists it.
    fn claim(&mut self, value: Self::V, bits: u32, why: &'static str) -> Self::V;
}

/// One of a kernel's arrays, by its place in the kernel's argument list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Array(pub usize);

impl Array {
    /// Array that [`Machine::scratch`] returns.
    pub(crate) const SCRATCH: Self = Self(usize::MAX);
}

/// Bits of a digit: the radix of every big number here is 2^52, as VPMADD52 multiplies it.
pub const DIGIT_BITS: u32 = 52;
/// The largest digit, 2^52 - 1.
pub const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;
