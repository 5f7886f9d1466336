//! The recorder: a kernel run on names instead of numbers leaves its list of operations.

use std::collections::{HashMap, HashSet};

use widelane_cpu::Target;

use crate::machine::{Array, Machine};

/// Records what a kernel does, in the order in which its source does it.
pub(crate) struct Trace {
    pub(crate) ops: Vec<Op>,
    lanes: usize,
    has_few_registers: bool,
    /// One name for each constant, so that it can stay in one register.
    constants: HashMap<Op, Name>,
    stored: HashSet<(Array, usize)>,
    /// Vectors of scratch memory.
    pub(crate) scratch: usize,
}

/// A vector or mask: the place of the operation that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(pub(crate) usize);

/// One recorded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Splat(u64),
    Vector([u64; 8]),
    Load(Array, usize),
    Broadcast(Array, usize),
    Store(Array, usize, Name),
    Two(TwoOp, Name, Name),
    Shift(ShiftOp, Name, u32),
    /// A number below 2^52 as a double-precision one. Of lowered traces alone.
    Double(Name),
    /// The operand that the instruction overwrites, then the others.
    Three(ThreeOp, Name, Name, Name),
    Compare(CompareOp, Name, Name),
    /// Mask, yes, no.
    Select(Name, Name, Name),
    /// Chooses by the highest bit of each lane of a vector, not by a mask. Only in lowered traces.
    Blend(Name, Name, Name),
    /// The head of a loop that runs up to its [`End`](Op::End), this many times, and by how many vectors
    /// each turn moves scratch memory. All [`Carried`](Op::Carried) values come next, and as many
    /// [`Next`](Op::Next) ones last.
    Repeat(usize, usize),
    /// A value that a loop carries from turn to turn, with its value in the first turn.
    Carried(Name),
    /// The value that replaces a carried one in the next turn. Its own name is the result of the
    /// loop.
    Next(Name),
    /// The end of a loop.
    End,
}

/// Operations on two vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TwoOp {
    Add,
    Sub,
    And,
    Or,
    Xor,
    Mul32,
    Add32,
    Sub32,
    Add16,
    Sub16,
    MulLo16,
    MulHi16,
    UnpackLow32,
    UnpackHigh32,
    UnpackLow64,
    UnpackHigh64,
    // Only in lowered traces:
    /// `!a & b`.
    AndNot,
    /// All ones in the lanes in which both are equal.
    Eq,
    /// Indices of 32-bit words, then their table.
    Permute32,
    /// Subtracts double-precision numbers.
    SubDouble,
}

/// Operations on a vector and a constant number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ShiftOp {
    Left,
    Right,
    RightSigned,
    Rotate,
    Rotate32,
    Right32,
    Left16,
    Right16,
    RightSigned16,
    /// Only in lowered traces.
    Left32,
}

/// Operations on three vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ThreeOp {
    /// Accumulator, then the factors.
    MaddLo,
    MaddHi,
    /// Does what [`MaddLo`](Self::MaddLo) does, and takes a first factor wider than a digit.
    MulLo,
    Ternary(u8),
    /// Low half of the table, index, high half.
    Pick2,
    /// Addend, then the factors, which are double-precision numbers. Of lowered traces alone.
    Fma,
}

/// Comparisons of two vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CompareOp {
    Eq,
    Test,
}

impl TwoOp {
    /// Returns whether the operands may change places.
    pub(crate) fn commutes(self) -> bool {
        use TwoOp::*;
        matches!(
            self,
            Add | And | Or | Xor | Mul32 | Add32 | Add16 | MulLo16 | MulHi16 | Eq
        )
    }

    /// Returns whether the operation multiplies, which decides about the licence.
    pub(crate) fn multiplies(self) -> bool {
        matches!(self, TwoOp::Mul32 | TwoOp::MulLo16 | TwoOp::MulHi16)
    }

    /// Returns whether the instruction can read one 64-bit constant for all lanes from memory.
    pub(crate) fn broadcasts(self) -> bool {
        use TwoOp::*;
        matches!(
            self,
            Add | Sub | And | Or | Xor | Mul32 | UnpackLow64 | UnpackHigh64 | SubDouble
        )
    }
}

impl ShiftOp {
    /// Returns whether the instruction can read one 64-bit constant for all lanes from memory.
    pub(crate) fn broadcasts(self) -> bool {
        use ShiftOp::*;
        matches!(self, Left | Right | RightSigned | Rotate)
    }
}

impl ThreeOp {
    /// Returns the operation that gives the same result with the last two operands exchanged, if there is one.
    pub(crate) fn swapped(self) -> Option<Self> {
        match self {
            ThreeOp::MaddLo | ThreeOp::MaddHi | ThreeOp::MulLo | ThreeOp::Fma => Some(self),
            // Rows are numbered 4 a + 2 b + c.
            ThreeOp::Ternary(table) => Some(ThreeOp::Ternary(permuted(table, [0, 2, 1]))),
            ThreeOp::Pick2 => None,
        }
    }

    /// Returns the operation that gives the same result with the first two operands exchanged, if there is one.
    pub(crate) fn rotated(self) -> Option<Self> {
        match self {
            ThreeOp::Ternary(table) => Some(ThreeOp::Ternary(permuted(table, [1, 0, 2]))),
            _ => None,
        }
    }
}

/// The table of a ternary function whose operand `i` was operand `from[i]`.
fn permuted(table: u8, from: [usize; 3]) -> u8 {
    (0..8u8)
        .filter(|row| {
            let bit = |operand: usize| row >> (2 - operand) & 1;
            let mut old = 0;
            for (operand, &was) in from.iter().enumerate() {
                old |= bit(operand) << (2 - was);
            }
            table >> old & 1 == 1
        })
        .fold(0, |sum, row| sum | 1 << row)
}

impl Op {
    /// Returns whether the operation reads memory or a constant and computes nothing.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Op::Splat(_) | Op::Vector(_) | Op::Load(..) | Op::Broadcast(..))
    }

    /// Returns whether the operation belongs to the frame of a loop.
    pub(crate) fn frames_loop(self) -> bool {
        matches!(self, Op::Repeat(..) | Op::Carried(_) | Op::Next(_) | Op::End)
    }

    /// Returns whether the operation's result is a mask.
    pub(crate) fn makes_mask(self) -> bool {
        matches!(self, Op::Compare(..))
    }

    /// Names that the operation reads, the operand that it may overwrite first.
    pub(crate) fn reads(self) -> Reads {
        let (names, len) = match self {
            Op::Splat(_) | Op::Vector(_) | Op::Load(..) | Op::Broadcast(..) => ([Name(0); 3], 0),
            Op::Repeat(..) | Op::End => ([Name(0); 3], 0),
            Op::Store(_, _, a) | Op::Shift(_, a, _) | Op::Carried(a) | Op::Next(a) => ([a; 3], 1),
            Op::Double(a) => ([a; 3], 1),
            Op::Two(_, a, b) | Op::Compare(_, a, b) => ([a, b, b], 2),
            Op::Three(_, acc, a, b) => ([acc, a, b], 3),
            Op::Select(mask, yes, no) | Op::Blend(mask, yes, no) => ([no, yes, mask], 3),
        };
        Reads { names, len, at: 0 }
    }

    /// Applies the operation to other names.
    pub(crate) fn map(self, name: impl Fn(Name) -> Name) -> Op {
        let n = name;
        match self {
            Op::Splat(_) | Op::Vector(_) | Op::Load(..) | Op::Broadcast(..) => self,
            Op::Repeat(..) | Op::End => self,
            Op::Carried(a) => Op::Carried(n(a)),
            Op::Next(a) => Op::Next(n(a)),
            Op::Store(array, index, a) => Op::Store(array, index, n(a)),
            Op::Two(op, a, b) => Op::Two(op, n(a), n(b)),
            Op::Double(a) => Op::Double(n(a)),
            Op::Shift(op, a, bits) => Op::Shift(op, n(a), bits),
            Op::Three(op, acc, a, b) => Op::Three(op, n(acc), n(a), n(b)),
            Op::Compare(op, a, b) => Op::Compare(op, n(a), n(b)),
            Op::Select(mask, yes, no) => Op::Select(n(mask), n(yes), n(no)),
            Op::Blend(mask, yes, no) => Op::Blend(n(mask), n(yes), n(no)),
        }
    }
}

/// The names that an operation reads.
pub(crate) struct Reads {
    names: [Name; 3],
    len: usize,
    at: usize,
}

impl Iterator for Reads {
    type Item = Name;

    fn next(&mut self) -> Option<Name> {
        let name = (self.at < self.len).then(|| self.names[self.at]);
        self.at += 1;
        name
    }
}

impl Trace {
    /// An empty record, for the vectors of a target.
    pub(crate) fn new(target: Target) -> Self {
        Self {
            ops: Vec::new(),
            lanes: target.lanes(),
            has_few_registers: target.has_few_registers(),
            constants: HashMap::new(),
            stored: HashSet::new(),
            scratch: 0,
        }
    }

    fn push(&mut self, op: Op) -> Name {
        self.ops.push(op);
        Name(self.ops.len() - 1)
    }

    /// Records a loop.
    fn record_loop(
        &mut self,
        (times, stride): (usize, usize),
        values: Vec<Name>,
        body: impl FnOnce(&mut Self, Vec<Name>) -> Vec<Name>,
    ) -> Vec<Name> {
        self.push(Op::Repeat(times, stride));
        let carried: Vec<_> = values.into_iter().map(|value| self.push(Op::Carried(value))).collect();
        let (start, count) = (self.ops.len(), carried.len());
        let next = body(self, carried);
        assert_eq!(next.len(), count, "a loop returns as many values as it was given");
        for op in &self.ops[start..] {
            assert!(!op.frames_loop(), "a loop contains no other loop");
            let inner = |name: Name| name.0 >= start - count || self.ops[name.0].is_read();
            assert!(op.reads().all(inner), "the body of a loop reads only its values");
        }
        let next = next.into_iter().map(|value| self.push(Op::Next(value))).collect();
        self.push(Op::End);
        next
    }

    fn constant(&mut self, op: Op) -> Name {
        match self.constants.get(&op) {
            Some(&name) => name,
            None => {
                let name = self.push(op);
                self.constants.insert(op, name);
                name
            }
        }
    }
}

/// The methods of a machine that only record their name.
macro_rules! recorded {
    ($($method:ident: $op:ident($kind:expr), $($operand:ident: $type:ty),* => $result:ty;)*) => {
        $(fn $method(&mut self, $($operand: $type),*) -> $result {
            self.push(Op::$op($kind, $($operand),*))
        })*
    };
}

impl Machine for Trace {
    type V = Name;
    type M = Name;

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn has_few_registers(&self) -> bool {
        self.has_few_registers
    }

    fn splat(&mut self, value: u64) -> Name {
        self.constant(Op::Splat(value))
    }

    fn vector(&mut self, values: [u64; 8]) -> Name {
        self.constant(Op::Vector(values))
    }

    /// # Panics
    ///
    /// If the kernel has written this vector: loads happen when first needed, and may happen
    /// again, so that no store may come between.
    fn load(&mut self, array: Array, index: usize) -> Name {
        assert!(
            !self.stored.contains(&(array, index)),
            "vector {index} of {array:?} is read after it is written"
        );
        self.push(Op::Load(array, index))
    }

    fn broadcast(&mut self, array: Array, index: usize) -> Name {
        self.push(Op::Broadcast(array, index))
    }

    fn store(&mut self, array: Array, index: usize, value: Name) {
        self.stored.insert((array, index));
        self.push(Op::Store(array, index, value));
    }

    recorded! {
        add: Two(TwoOp::Add), a: Name, b: Name => Name;
        sub: Two(TwoOp::Sub), a: Name, b: Name => Name;
        and: Two(TwoOp::And), a: Name, b: Name => Name;
        or: Two(TwoOp::Or), a: Name, b: Name => Name;
        xor: Two(TwoOp::Xor), a: Name, b: Name => Name;
        shl: Shift(ShiftOp::Left), a: Name, bits: u32 => Name;
        shr: Shift(ShiftOp::Right), a: Name, bits: u32 => Name;
        sra: Shift(ShiftOp::RightSigned), a: Name, bits: u32 => Name;
        rol: Shift(ShiftOp::Rotate), a: Name, bits: u32 => Name;
        add64: Two(TwoOp::Add), a: Name, b: Name => Name;
        madd_lo: Three(ThreeOp::MaddLo), acc: Name, a: Name, b: Name => Name;
        madd_hi: Three(ThreeOp::MaddHi), acc: Name, a: Name, b: Name => Name;
        mul32: Two(TwoOp::Mul32), a: Name, b: Name => Name;
        add32: Two(TwoOp::Add32), a: Name, b: Name => Name;
        sub32: Two(TwoOp::Sub32), a: Name, b: Name => Name;
        rol32: Shift(ShiftOp::Rotate32), a: Name, bits: u32 => Name;
        shr32: Shift(ShiftOp::Right32), a: Name, bits: u32 => Name;
        add16: Two(TwoOp::Add16), a: Name, b: Name => Name;
        sub16: Two(TwoOp::Sub16), a: Name, b: Name => Name;
        mul_lo16: Two(TwoOp::MulLo16), a: Name, b: Name => Name;
        mul_hi16: Two(TwoOp::MulHi16), a: Name, b: Name => Name;
        shl16: Shift(ShiftOp::Left16), a: Name, bits: u32 => Name;
        shr16: Shift(ShiftOp::Right16), a: Name, bits: u32 => Name;
        sra16: Shift(ShiftOp::RightSigned16), a: Name, bits: u32 => Name;
        unpack_low32: Two(TwoOp::UnpackLow32), a: Name, b: Name => Name;
        unpack_high32: Two(TwoOp::UnpackHigh32), a: Name, b: Name => Name;
        unpack_low64: Two(TwoOp::UnpackLow64), a: Name, b: Name => Name;
        unpack_high64: Two(TwoOp::UnpackHigh64), a: Name, b: Name => Name;
        eq: Compare(CompareOp::Eq), a: Name, b: Name => Name;
        test: Compare(CompareOp::Test), a: Name, b: Name => Name;
    }

    fn ternary(&mut self, a: Name, b: Name, c: Name, table: u8) -> Name {
        self.push(Op::Three(ThreeOp::Ternary(table), a, b, c))
    }

    fn mul_lo(&mut self, a: Name, b: Name) -> Name {
        let zero = self.splat(0);
        self.push(Op::Three(ThreeOp::MulLo, zero, a, b))
    }

    fn pick2(&mut self, low: Name, high: Name, index: Name) -> Name {
        self.push(Op::Three(ThreeOp::Pick2, low, index, high))
    }

    fn select(&mut self, mask: Name, yes: Name, no: Name) -> Name {
        self.push(Op::Select(mask, yes, no))
    }

    /// # Panics
    ///
    /// If the body stores, contains a loop or reads a value that it was not given, or if the kernel
    /// stored before the loop.
    fn repeat(
        &mut self,
        times: usize,
        values: Vec<Name>,
        body: impl Fn(&mut Self, Vec<Name>) -> Vec<Name>,
    ) -> Vec<Name> {
        let next = self.record_loop((times, 0), values, body);
        assert!(self.stored.is_empty(), "loops come before all stores");
        next
    }

    fn scratch(&mut self, len: usize) -> Array {
        assert_eq!(self.scratch, 0, "a kernel asks for scratch memory once");
        self.scratch = len;
        Array::SCRATCH
    }

    /// # Panics
    ///
    /// If the body contains a loop, reads a value that it was not given or stores to an array, or if the
    /// kernel stored to one before the loop.
    fn walk(
        &mut self,
        times: usize,
        stride: usize,
        values: Vec<Name>,
        body: impl Fn(&mut Self, usize, Vec<Name>) -> Vec<Name>,
    ) -> Vec<Name> {
        // Before, inside and after the loop, scratch memory holds other values.
        let only_scratch = |stored: &HashSet<(Array, usize)>| stored.iter().all(|&(array, _)| array == Array::SCRATCH);
        assert!(only_scratch(&self.stored), "loops come before all stores");
        self.stored.clear();
        let next = self.record_loop((times, stride), values, |m, values| body(m, 0, values));
        assert!(only_scratch(&self.stored), "loops store to scratch memory alone");
        self.stored.clear();
        next
    }

    fn claim(&mut self, value: Name, _: u32, _: &'static str) -> Name {
        value
    }
}
