//! The recorder: a kernel run on names instead of numbers leaves its list of operations.

use crate::machine::{Array, Machine};

/// Records what a kernel does, in the order in which its source does it.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) ops: Vec<Op>,
}

/// A vector or mask: the place of the operation that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name(pub(crate) usize);

/// One recorded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Splat(u64),
    Load(Array, usize),
    Store(Array, usize, Name),
    Add(Name, Name),
    Sub(Name, Name),
    And(Name, Name),
    Or(Name, Name),
    Shl(Name, u32),
    Shr(Name, u32),
    Sra(Name, u32),
    /// Accumulator, then the factors.
    MaddLo(Name, Name, Name),
    MaddHi(Name, Name, Name),
    Eq(Name, Name),
    /// Mask, yes, no.
    Select(Name, Name, Name),
}

impl Op {
    /// What the operation reads, the operand that it may overwrite first.
    pub(crate) fn reads(self) -> Reads {
        let (names, len) = match self {
            Op::Splat(_) | Op::Load(..) => ([Name(0); 3], 0),
            Op::Store(_, _, a) | Op::Shl(a, _) | Op::Shr(a, _) | Op::Sra(a, _) => ([a; 3], 1),
            Op::Add(a, b) | Op::Sub(a, b) | Op::And(a, b) | Op::Or(a, b) | Op::Eq(a, b) => {
                ([a, b, b], 2)
            }
            Op::MaddLo(acc, a, b) | Op::MaddHi(acc, a, b) => ([acc, a, b], 3),
            Op::Select(mask, yes, no) => ([no, yes, mask], 3),
        };
        Reads { names, len, at: 0 }
    }
}

impl Op {
    /// The same operation on other names.
    pub(crate) fn map(self, name: impl Fn(Name) -> Name) -> Op {
        let n = name;
        match self {
            Op::Splat(value) => Op::Splat(value),
            Op::Load(array, index) => Op::Load(array, index),
            Op::Store(array, index, a) => Op::Store(array, index, n(a)),
            Op::Add(a, b) => Op::Add(n(a), n(b)),
            Op::Sub(a, b) => Op::Sub(n(a), n(b)),
            Op::And(a, b) => Op::And(n(a), n(b)),
            Op::Or(a, b) => Op::Or(n(a), n(b)),
            Op::Shl(a, bits) => Op::Shl(n(a), bits),
            Op::Shr(a, bits) => Op::Shr(n(a), bits),
            Op::Sra(a, bits) => Op::Sra(n(a), bits),
            Op::MaddLo(acc, a, b) => Op::MaddLo(n(acc), n(a), n(b)),
            Op::MaddHi(acc, a, b) => Op::MaddHi(n(acc), n(a), n(b)),
            Op::Eq(a, b) => Op::Eq(n(a), n(b)),
            Op::Select(mask, yes, no) => Op::Select(n(mask), n(yes), n(no)),
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
    fn push(&mut self, op: Op) -> Name {
        self.ops.push(op);
        Name(self.ops.len() - 1)
    }
}

impl Machine for Trace {
    type V = Name;
    type M = Name;

    fn splat(&mut self, value: u64) -> Name {
        // One name a constant, so that it can stay in one register.
        match self.ops.iter().position(|op| *op == Op::Splat(value)) {
            Some(at) => Name(at),
            None => self.push(Op::Splat(value)),
        }
    }

    fn load(&mut self, array: Array, index: usize) -> Name {
        self.push(Op::Load(array, index))
    }

    fn store(&mut self, array: Array, index: usize, value: Name) {
        self.push(Op::Store(array, index, value));
    }

    fn add(&mut self, a: Name, b: Name) -> Name {
        self.push(Op::Add(a, b))
    }

    fn sub(&mut self, a: Name, b: Name) -> Name {
        self.push(Op::Sub(a, b))
    }

    fn and(&mut self, a: Name, b: Name) -> Name {
        self.push(Op::And(a, b))
    }

    fn or(&mut self, a: Name, b: Name) -> Name {
        self.push(Op::Or(a, b))
    }

    fn shl(&mut self, a: Name, bits: u32) -> Name {
        self.push(Op::Shl(a, bits))
    }

    fn shr(&mut self, a: Name, bits: u32) -> Name {
        self.push(Op::Shr(a, bits))
    }

    fn sra(&mut self, a: Name, bits: u32) -> Name {
        self.push(Op::Sra(a, bits))
    }

    fn madd_lo(&mut self, acc: Name, a: Name, b: Name) -> Name {
        self.push(Op::MaddLo(acc, a, b))
    }

    fn madd_hi(&mut self, acc: Name, a: Name, b: Name) -> Name {
        self.push(Op::MaddHi(acc, a, b))
    }

    fn mul_lo(&mut self, a: Name, b: Name) -> Name {
        let zero = self.splat(0);
        self.push(Op::MaddLo(zero, a, b))
    }

    fn eq(&mut self, a: Name, b: Name) -> Name {
        self.push(Op::Eq(a, b))
    }

    fn select(&mut self, mask: Name, yes: Name, no: Name) -> Name {
        self.push(Op::Select(mask, yes, no))
    }

    fn claim(&mut self, value: Name, _: u32, _: &'static str) -> Name {
        value
    }
}
