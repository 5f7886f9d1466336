//! Lowering: a trace for a CPU without VPMADD52, or without masks and with fewer instructions, or both.
//!
//! Products of 52-bit digits by floating-point multiply-adds, bit for bit those of VPMADD52 (the method of
//! Emmart, Zheng and Weems, "Faster modular exponentiation using double precision floating point
//! arithmetic on the GPU", ARITH 2018). With `a` and `b` below 2^52 as exact doubles, rounding towards zero:
//!
//! ```text
//! h := fma(a, b, 2^104)           = 2^104 + 2^52 floor(a b / 2^52): multiples of 2^52, cut off
//! l := fma(a, b, 2^104 + 2^52 - h) = 2^52 + (a b mod 2^52), exact
//! ```
//!
//! The bits of `h`, read as an integer, are those of 2^104 plus `floor(a b / 2^52)`, and those of `l` are the
//! ones of 2^52 plus `a b mod 2^52`. So both accumulate by integer additions. What the constants add up
//! to is known for every value, its bias, and is subtracted once, where something else than an addition reads the
//! value.
//!
//! `Bounds` proves that both factors are below 2^52, where VPMADD52 would have ignored what is above.

use std::collections::HashMap;

use widelane_cpu::{Product, Registers, Target};

use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK};
use crate::trace::{CompareOp, Name, Op, ShiftOp, ThreeOp, TwoOp};

/// Returns whether a target lacks instructions that traces have.
pub(crate) fn is_lowered(target: Target) -> bool {
    (target.product(), target.registers()) != (Product::Vpmadd52, Registers::Avx512)
}

/// Rewrites a trace with the instructions of a target.
///
/// Vectors of scratch memory keep their biases through a loop, which must move it by one stride a turn: the
/// bias of a vector depends only on its place in a turn. A first lowering finds what a turn adds at each
/// place, a second one begins with what the turns to come will expect.
pub(crate) fn lower(ops: &[Op], target: Target) -> Vec<Op> {
    let first = Lowering::new(ops, target, HashMap::new()).run();
    if first.added.is_empty() {
        return first.ops;
    }
    let mut biases = HashMap::new();
    let mut places: Vec<_> = first.added.keys().copied().collect();
    places.sort_unstable();
    for place in places.into_iter().rev().filter(|&place| place >= first.stride) {
        let bias: u64 = biases.get(&place).copied().unwrap_or(0);
        biases.insert(place - first.stride, bias.wrapping_add(first.added[&place]));
    }
    Lowering::new(ops, target, biases).run().ops
}

/// Result of lowering a name of the trace.
#[derive(Clone, Copy, Debug)]
struct Value {
    name: Name,
    /// Difference of the register and the value.
    bias: u64,
    /// True if a mask is set in the other lanes.
    is_inverted: bool,
}

struct Lowering<'a> {
    product: Product,
    /// True if the target has masks, functions of three bits, rotations, signed shifts and choices from two vectors.
    is_evex: bool,
    from: &'a [Op],
    values: Vec<Value>,
    ops: Vec<Op>,
    constants: HashMap<Op, Name>,
    /// Digits as doubles, by their names in the trace.
    doubles: HashMap<Name, Name>,
    /// High halves of products, by their factors' names in the trace.
    highs: HashMap<[Name; 2], Name>,
    /// Indices of lanes as indices of their 32-bit words, by their names in the trace.
    indices: HashMap<Name, Name>,
    /// The biases of scratch memory at the beginning of a turn, where there are any.
    biases: HashMap<usize, u64>,
    /// Distance by which the turns so far have moved scratch memory.
    moved: usize,
    /// Distance by which each turn of the loop moves scratch memory.
    stride: usize,
    /// Knowledge from before the loop, while its body is lowered.
    before: Option<Known>,
    /// Amount that a turn adds to each bias of scratch memory.
    added: HashMap<usize, u64>,
}

/// Knowledge that holds outside of a loop as well as inside.
struct Known {
    head: usize,
    times: usize,
    values: Vec<Value>,
    doubles: HashMap<Name, Name>,
    highs: HashMap<[Name; 2], Name>,
    indices: HashMap<Name, Name>,
}

impl<'a> Lowering<'a> {
    fn new(from: &'a [Op], target: Target, biases: HashMap<usize, u64>) -> Self {
        Self {
            product: target.product(),
            is_evex: target.registers() == Registers::Avx512,
            from,
            values: Vec::with_capacity(from.len()),
            ops: Vec::with_capacity(2 * from.len()),
            constants: HashMap::new(),
            doubles: HashMap::new(),
            highs: HashMap::new(),
            indices: HashMap::new(),
            biases,
            moved: 0,
            stride: 0,
            before: None,
            added: HashMap::new(),
        }
    }

    fn run(mut self) -> Self {
        for &op in self.from {
            let value = self.step(op);
            self.values.push(value);
        }
        self
    }

    fn step(&mut self, op: Op) -> Value {
        match op {
            Op::Splat(_) | Op::Vector(_) => plain(self.constant(op)),
            Op::Load(Array::SCRATCH, index) => {
                let place = index.checked_sub(self.moved);
                assert!(place.is_some(), "a loop leaves a value that nothing reads");
                Value {
                    bias: self.bias_at(place),
                    ..plain(self.push(op))
                }
            }
            Op::Load(..) | Op::Broadcast(..) => plain(self.push(op)),
            Op::Store(Array::SCRATCH, index, value) => {
                let value = self.values[value.0];
                let expected = match self.before {
                    None => self.bias_at(Some(index)),
                    Some(_) => {
                        let now = self.bias_at(Some(index));
                        self.added.insert(index, value.bias.wrapping_sub(now));
                        self.bias_at(index.checked_sub(self.stride))
                    }
                };
                let value = self.unbiased(Value {
                    bias: value.bias.wrapping_sub(expected),
                    ..value
                });
                plain(self.push(Op::Store(Array::SCRATCH, index, value)))
            }
            Op::Store(array, index, value) => {
                let value = self.plain(value);
                plain(self.push(Op::Store(array, index, value)))
            }
            Op::Two(op, a, b) => self.two(op, a, b),
            Op::Shift(op, a, bits) => self.shift(op, a, bits),
            Op::Three(op, first, second, third) => self.three(op, [first, second, third]),
            Op::Compare(op, a, b) if self.is_evex => {
                let (a, b) = (self.plain(a), self.plain(b));
                plain(self.push(Op::Compare(op, a, b)))
            }
            Op::Compare(op, a, b) => {
                let (a, b) = (self.plain(a), self.plain(b));
                let (a, b, is_inverted) = match op {
                    CompareOp::Eq => (a, b, false),
                    CompareOp::Test => {
                        let both = self.push(Op::Two(TwoOp::And, a, b));
                        (both, self.splat(0), true)
                    }
                };
                let name = self.push(Op::Two(TwoOp::Eq, a, b));
                Value {
                    is_inverted,
                    ..plain(name)
                }
            }
            Op::Select(mask, yes, no) => {
                let mask = self.values[mask.0];
                let (yes, no) = (self.plain(yes), self.plain(no));
                if self.is_evex {
                    return plain(self.push(Op::Select(mask.name, yes, no)));
                }
                let (yes, no) = match mask.is_inverted {
                    true => (no, yes),
                    false => (yes, no),
                };
                // A mask is ones or zeros.
                plain(self.push(match (self.ops[yes.0], self.ops[no.0]) {
                    (_, Op::Splat(0)) => Op::Two(TwoOp::And, mask.name, yes),
                    (Op::Splat(0), _) => Op::Two(TwoOp::AndNot, mask.name, no),
                    _ => Op::Blend(mask.name, yes, no),
                }))
            }
            Op::Blend(..) | Op::Double(_) => unreachable!("kernels have neither"),
            Op::Repeat(times, stride) => self.head((times, stride)),
            Op::Carried(value) => {
                let value = self.plain(value);
                plain(self.push(Op::Carried(value)))
            }
            Op::Next(value) => {
                // Puts the computations of all `Next` values in front of the first.
                for op in &self.from[self.values.len()..] {
                    let Op::Next(value) = *op else { break };
                    self.plain(value);
                }
                let value = self.plain(value);
                plain(self.push(Op::Next(value)))
            }
            Op::End => self.end(),
        }
    }

    fn head(&mut self, (times, stride): (usize, usize)) -> Value {
        let head = self.values.len();
        // The body's factors from before it become doubles once, not in each turn. What its head and its
        // end do with values must stand in front of them.
        let frames = self.from[head..].iter();
        for &op in frames.take_while(|op| **op != Op::End) {
            let factors = match op {
                Op::Three(ThreeOp::MaddLo | ThreeOp::MaddHi, _, a, b) => [Some(a), Some(b)],
                Op::Three(ThreeOp::MulLo, _, _, b) => [None, Some(b)],
                Op::Carried(value) => {
                    self.plain(value);
                    [None; 2]
                }
                _ => [None; 2],
            };
            for factor in factors.into_iter().flatten() {
                if self.product == Product::Fma && factor.0 < head {
                    self.double(factor);
                }
            }
        }
        assert_eq!(self.moved, 0, "a kernel has one loop that moves scratch memory");
        self.stride = stride;
        self.before = Some(Known {
            head,
            times,
            values: self.values.clone(),
            doubles: self.doubles.clone(),
            highs: self.highs.clone(),
            indices: self.indices.clone(),
        });
        plain(self.push(Op::Repeat(times, stride)))
    }

    /// Ends the loop: values that the loop computed from values before it are known only inside it.
    fn end(&mut self) -> Value {
        let known = self.before.take().expect("an end has a head");
        self.values[..known.head].copy_from_slice(&known.values);
        (self.doubles, self.highs, self.indices) = (known.doubles, known.highs, known.indices);
        self.moved = known.times * self.stride;
        plain(self.push(Op::End))
    }

    fn bias_at(&self, place: Option<usize>) -> u64 {
        let bias = place.and_then(|place| self.biases.get(&place));
        bias.copied().unwrap_or(0)
    }

    fn two(&mut self, op: TwoOp, a: Name, b: Name) -> Value {
        match op {
            TwoOp::Add | TwoOp::Sub => self.sum(op, a, b),
            _ => {
                let (a, b) = (self.plain(a), self.plain(b));
                plain(self.push(Op::Two(op, a, b)))
            }
        }
    }

    /// A constant only changes the bias.
    fn sum(&mut self, op: TwoOp, a: Name, b: Name) -> Value {
        let (x, y) = (self.values[a.0], self.values[b.0]);
        let signed = |bias: u64| match op {
            TwoOp::Sub => bias.wrapping_neg(),
            _ => bias,
        };
        let shifted = |value: Value, by: u64| Value {
            bias: value.bias.wrapping_sub(by),
            ..value
        };
        match (op, self.from[a.0], self.from[b.0]) {
            (_, _, Op::Splat(constant)) => shifted(x, signed(constant)),
            (TwoOp::Add, Op::Splat(constant), _) => shifted(y, constant),
            _ => Value {
                bias: x.bias.wrapping_add(signed(y.bias)),
                ..plain(self.push(Op::Two(op, x.name, y.name)))
            },
        }
    }

    fn shift(&mut self, op: ShiftOp, a: Name, bits: u32) -> Value {
        let (left, right, width) = match op {
            ShiftOp::Left => {
                let value = self.values[a.0];
                return Value {
                    bias: value.bias << bits,
                    ..plain(self.push(Op::Shift(op, value.name, bits)))
                };
            }
            // floor(a / 2^bits) of a signed lane is that of a + 2^63, which is not negative, less
            // 2^(63 - bits).
            ShiftOp::RightSigned if !self.is_evex => {
                let mut value = self.values[a.0];
                value.bias = value.bias.wrapping_sub(1 << 63);
                let unsigned = self.unbiased(value);
                return Value {
                    bias: 1 << (63 - bits),
                    ..plain(self.push(Op::Shift(ShiftOp::Right, unsigned, bits)))
                };
            }
            ShiftOp::Rotate if !self.is_evex => (ShiftOp::Left, ShiftOp::Right, 64),
            ShiftOp::Rotate32 if !self.is_evex => (ShiftOp::Left32, ShiftOp::Right32, 32),
            _ => {
                let a = self.plain(a);
                return plain(self.push(Op::Shift(op, a, bits)));
            }
        };
        let a = self.plain(a);
        let high = self.push(Op::Shift(left, a, bits));
        let low = self.push(Op::Shift(right, a, width - bits));
        plain(self.push(Op::Two(TwoOp::Or, high, low)))
    }

    fn three(&mut self, op: ThreeOp, [first, second, third]: [Name; 3]) -> Value {
        match op {
            ThreeOp::MaddLo | ThreeOp::MaddHi | ThreeOp::MulLo if self.product == Product::Vpmadd52 => {
                let (a, b) = (self.plain(second), self.plain(third));
                let acc = self.values[first.0];
                Value {
                    bias: acc.bias,
                    ..plain(self.push(Op::Three(op, acc.name, a, b)))
                }
            }
            ThreeOp::MaddHi => {
                let high = self.high(second, third);
                self.accumulate(first, high, HIGH)
            }
            ThreeOp::MaddLo => {
                let low = self.low(second, third);
                self.accumulate(first, low, LOW)
            }
            ThreeOp::MulLo => {
                // The second operand may be wider than a digit.
                if !self.doubles.contains_key(&second) {
                    let (wide, mask) = (self.plain(second), self.splat(DIGIT_MASK));
                    let digit = self.push(Op::Two(TwoOp::And, wide, mask));
                    let double = self.converted(digit);
                    self.doubles.insert(second, double);
                }
                let low = self.low(second, third);
                self.accumulate(first, low, LOW)
            }
            ThreeOp::Ternary(table) => {
                let operands = [first, second, third].map(|name| self.plain(name));
                let [a, b, c] = operands;
                plain(match self.is_evex {
                    true => self.push(Op::Three(op, a, b, c)),
                    false => self.ternary(operands, table),
                })
            }
            ThreeOp::Pick2 if self.is_evex => {
                let [low, index, high] = [first, second, third].map(|name| self.plain(name));
                plain(self.push(Op::Three(op, low, index, high)))
            }
            ThreeOp::Pick2 => {
                let (low, high) = (self.plain(first), self.plain(third));
                let index = self.words(second);
                let low = self.push(Op::Two(TwoOp::Permute32, index, low));
                let high = self.push(Op::Two(TwoOp::Permute32, index, high));
                // A blend looks at the highest bit.
                let mask = match self.from[second.0] {
                    Op::Vector(index) => self.constant(Op::Vector(index.map(|lane| lane << 61))),
                    _ => {
                        let index = self.plain(second);
                        self.push(Op::Shift(ShiftOp::Left, index, 61))
                    }
                };
                plain(self.push(Op::Blend(mask, high, low)))
            }
            ThreeOp::Fma => unreachable!("kernels multiply digits"),
        }
    }

    /// The sum of an accumulator and a part of a product, which has a bias of its own.
    fn accumulate(&mut self, acc: Name, part: Name, bias: u64) -> Value {
        match (self.from[acc.0], self.values[acc.0]) {
            (Op::Splat(start), _) => Value {
                bias: bias.wrapping_sub(start),
                ..plain(part)
            },
            (_, acc) => Value {
                bias: acc.bias.wrapping_add(bias),
                ..plain(self.push(Op::Two(TwoOp::Add, acc.name, part)))
            },
        }
    }

    fn high(&mut self, a: Name, b: Name) -> Name {
        let key = [a.min(b), a.max(b)];
        if let Some(&high) = self.highs.get(&key) {
            return high;
        }
        let (x, y) = (self.double(a), self.double(b));
        let offset = self.splat(HIGH);
        let high = self.push(Op::Three(ThreeOp::Fma, offset, x, y));
        self.highs.insert(key, high);
        high
    }

    fn low(&mut self, a: Name, b: Name) -> Name {
        let high = self.high(a, b);
        let (x, y) = (self.double(a), self.double(b));
        let offset = self.splat(HIGH_AND_LOW);
        let rest = self.push(Op::Two(TwoOp::SubDouble, offset, high));
        self.push(Op::Three(ThreeOp::Fma, rest, x, y))
    }

    /// A digit as a double.
    fn double(&mut self, digit: Name) -> Name {
        if let Some(&double) = self.doubles.get(&digit) {
            return double;
        }
        let double = match (self.from[digit.0], self.values[digit.0]) {
            (Op::Splat(digit), _) => self.splat((digit as f64).to_bits()),
            // A low half as it comes from its multiplication is a double already.
            (Op::Three(..), Value { name, bias: LOW, .. }) => {
                let offset = self.splat(LOW);
                self.push(Op::Two(TwoOp::SubDouble, name, offset))
            }
            _ => {
                let digit = self.plain(digit);
                self.converted(digit)
            }
        };
        self.doubles.insert(digit, double);
        double
    }

    /// Without an instruction for it: a digit is the fraction of the double 2^52 plus the digit.
    fn converted(&mut self, digit: Name) -> Name {
        if self.is_evex {
            return self.push(Op::Double(digit));
        }
        let offset = self.splat(LOW);
        let sum = self.push(Op::Two(TwoOp::Or, digit, offset));
        self.push(Op::Two(TwoOp::SubDouble, sum, offset))
    }

    /// Indices of lanes as indices of their two words.
    fn words(&mut self, index: Name) -> Name {
        if let Some(&words) = self.indices.get(&index) {
            return words;
        }
        let of_lane = |lane: u64| 2 * (lane & 3) * ONES_32 + (1 << 32);
        let words = match self.from[index.0] {
            Op::Vector(lanes) => self.constant(Op::Vector(lanes.map(of_lane))),
            _ => {
                let (index, mask) = (self.plain(index), self.splat(3));
                let lane = self.push(Op::Two(TwoOp::And, index, mask));
                let low = self.push(Op::Shift(ShiftOp::Left, lane, 1));
                let high = self.push(Op::Shift(ShiftOp::Left, lane, 33));
                let both = self.push(Op::Two(TwoOp::Or, low, high));
                let one = self.splat(1 << 32);
                self.push(Op::Two(TwoOp::Or, both, one))
            }
        };
        self.indices.insert(index, words);
        words
    }

    /// `f(a, b, c) = f(0, b, c) ^ (a & (f(0, b, c) ^ f(1, b, c)))`, by the operand that makes this shortest.
    fn ternary(&mut self, operands: [Name; 3], table: u8) -> Name {
        let orders = [[0, 1, 2], [1, 0, 2], [2, 0, 1]];
        let parts = |[chooser, x, y]: [usize; 3]| {
            let of = |chosen: u8| {
                let value = |row: &u8| {
                    let bits = [(chooser, chosen), (x, row >> 1), (y, row & 1)];
                    let place: u8 = bits.iter().map(|(at, bit)| bit << (2 - at)).sum();
                    table >> place & 1 == 1
                };
                (0..4u8).filter(value).fold(0u8, |sum, row| sum | 1 << row)
            };
            [0, 1].map(of)
        };
        let cost = |order: &[usize; 3]| {
            let [zero, one] = parts(*order);
            let cost = match (zero, one) {
                (0, some) | (some, 0b1111) => 1 + cost_of_two(some),
                (some, 0) => 1 + cost_of_two(some),
                (zero, one) if zero ^ one == 0b1111 => 1 + cost_of_two(zero),
                (zero, one) => 2 + cost_of_two(zero) + cost_of_two(zero ^ one),
            };
            (cost, *order)
        };
        let order = *orders.iter().min_by_key(|order| cost(order)).expect("three orders");
        let [zero, one] = parts(order);
        let [chooser, x, y] = order.map(|place| operands[place]);
        let mut two = |table| self.of_two(x, y, table);
        let op = match (zero, one) {
            (0, some) => Op::Two(TwoOp::And, chooser, two(some)),
            (some, 0) => Op::Two(TwoOp::AndNot, chooser, two(some)),
            (some, 0b1111) => Op::Two(TwoOp::Or, chooser, two(some)),
            (zero, one) if zero ^ one == 0b1111 => Op::Two(TwoOp::Xor, chooser, two(zero)),
            (zero, one) => {
                let (zero, change) = (two(zero), two(zero ^ one));
                let changed = self.push(Op::Two(TwoOp::And, chooser, change));
                Op::Two(TwoOp::Xor, zero, changed)
            }
        };
        self.push(op)
    }

    /// A function of two bits: where the bits of `x` and `y` are the number `2 x + y`, the result has that
    /// bit of `table`.
    fn of_two(&mut self, x: Name, y: Name, table: u8) -> Name {
        let op = match table {
            0b0000 => return self.splat(0),
            0b0010 => Op::Two(TwoOp::AndNot, x, y),
            0b0100 => Op::Two(TwoOp::AndNot, y, x),
            0b0110 => Op::Two(TwoOp::Xor, x, y),
            0b1000 => Op::Two(TwoOp::And, x, y),
            0b1010 => return y,
            0b1100 => return x,
            0b1110 => Op::Two(TwoOp::Or, x, y),
            0b1111 => return self.splat(u64::MAX),
            other => {
                let opposite = self.of_two(x, y, !other & 0b1111);
                Op::Two(TwoOp::Xor, opposite, self.splat(u64::MAX))
            }
        };
        self.push(op)
    }

    /// The value without a bias. It is computed once.
    fn plain(&mut self, name: Name) -> Name {
        let value = self.values[name.0];
        let unbiased = self.unbiased(value);
        self.values[name.0] = Value {
            is_inverted: value.is_inverted,
            ..plain(unbiased)
        };
        unbiased
    }

    fn unbiased(&mut self, value: Value) -> Name {
        match value.bias {
            0 => value.name,
            bias => {
                let bias = self.splat(bias);
                self.push(Op::Two(TwoOp::Sub, value.name, bias))
            }
        }
    }

    fn splat(&mut self, value: u64) -> Name {
        self.constant(Op::Splat(value))
    }

    fn constant(&mut self, op: Op) -> Name {
        if let Some(&name) = self.constants.get(&op) {
            return name;
        }
        let name = self.push(op);
        self.constants.insert(op, name);
        name
    }

    fn push(&mut self, op: Op) -> Name {
        self.ops.push(op);
        Name(self.ops.len() - 1)
    }
}

fn plain(name: Name) -> Value {
    Value {
        name,
        bias: 0,
        is_inverted: false,
    }
}

/// Instructions for a function of two bits.
fn cost_of_two(table: u8) -> usize {
    match table {
        0b0000 | 0b1010 | 0b1100 | 0b1111 => 0,
        0b0010 | 0b0100 | 0b0110 | 0b1000 | 0b1110 => 1,
        _ => 1 + cost_of_two(!table & 0b1111),
    }
}

/// The bits of the double 2^52.
const LOW: u64 = (1023 + DIGIT_BITS as u64) << 52;
/// The bits of the double 2^104.
const HIGH: u64 = (1023 + 2 * DIGIT_BITS as u64) << 52;
/// The bits of the double 2^104 + 2^52.
const HIGH_AND_LOW: u64 = HIGH + 1;
/// One in each 32-bit word.
const ONES_32: u64 = 1 << 32 | 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::trace::Trace;

    /// Result that a lowered trace of bitwise operations stores in its first array, from inputs by their index.
    fn bitwise(ops: &[Op], inputs: [u64; 3]) -> u64 {
        let mut values = Vec::new();
        for op in ops {
            let value = |name: Name| -> u64 { values[name.0] };
            values.push(match *op {
                Op::Load(_, index) => inputs[index],
                Op::Splat(constant) => constant,
                Op::Two(TwoOp::And, a, b) => value(a) & value(b),
                Op::Two(TwoOp::AndNot, a, b) => !value(a) & value(b),
                Op::Two(TwoOp::Or, a, b) => value(a) | value(b),
                Op::Two(TwoOp::Xor, a, b) => value(a) ^ value(b),
                Op::Store(_, _, a) => return value(a),
                other => panic!("{other:?} is not expected"),
            });
        }
        panic!("nothing is stored")
    }

    #[test]
    fn every_function_of_three_bits_is_lowered() {
        for table in 0..=u8::MAX {
            let mut trace = Trace::new(Target::Avx2);
            let [a, b, c] = [0, 1, 2].map(|index| trace.load(Array(1), index));
            let found = trace.ternary(a, b, c, table);
            trace.store(Array(0), 0, found);
            let found = bitwise(
                &lower(&trace.ops, Target::Avx2),
                [0b1111_0000, 0b1100_1100, 0b1010_1010],
            );
            assert_eq!(found as u8, table);
        }
    }

    fn count(ops: &[Op], wanted: impl Fn(&Op) -> bool) -> usize {
        ops.iter().filter(|op| wanted(op)).count()
    }

    /// Two products, a sum of all their halves: five operations each, and the bias once.
    #[test]
    fn halves_of_a_product_share_work() {
        let mut trace = Trace::new(Target::Avx2);
        let [a, b, c] = [0, 1, 2].map(|index| trace.load(Array(1), index));
        let mut sum = trace.splat(0);
        for factor in [b, c] {
            sum = trace.madd_lo(sum, a, factor);
            sum = trace.madd_hi(sum, factor, a);
        }
        trace.store(Array(0), 0, sum);
        let ops = lower(&trace.ops, Target::Avx2);
        assert_eq!(count(&ops, |op| matches!(op, Op::Three(ThreeOp::Fma, ..))), 4);
        // One for each low half, one for each digit that becomes a double.
        assert_eq!(count(&ops, |op| matches!(op, Op::Two(TwoOp::SubDouble, ..))), 2 + 3);
        assert_eq!(count(&ops, |op| matches!(op, Op::Two(TwoOp::Add, ..))), 3);
        assert_eq!(count(&ops, |op| matches!(op, Op::Two(TwoOp::Sub, ..))), 1);
    }
}
