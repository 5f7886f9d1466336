//! The proof: kernels run on intervals instead of numbers.

use widelane_cpu::Target;

use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};

/// Runs a kernel on intervals and records the first operation that could go wrong: a lane that
/// leaves 64 bits, a multiplicand wider than a digit, an array written beyond its stated bound.
///
/// Lanes are integers in `[-2^63, 2^64)`: a kernel may read them as signed or as unsigned, and an
/// interval that needs both readings at once is refused. The four 16-bit words of a lane are signed
/// integers and share one interval; where the interval of the lane implies one of the words, or the
/// other way round, both are kept. 32-bit words have no interval, as their operations wrap on
/// purpose.
pub struct Bounds {
    lanes: usize,
    has_few_registers: bool,
    arrays: Vec<Vec<Value>>,
    /// Values stored so far.
    scratch: Vec<Option<Value>>,
    holds: Vec<Holds>,
    fault: Option<BoundsError>,
    claims: Vec<(u32, &'static str)>,
    operations: usize,
    widest: i128,
}

/// Known bounds of a vector: those of its lanes, and of the signed 16-bit words of its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    lane: Interval,
    word: Interval,
}

/// Contents of a kernel's array, in every lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A number below 2^bits.
    Bits(u32),
    /// Four signed 16-bit words, none of larger magnitude than `limit`.
    Words16 {
        /// Bound, at most 2^15 - 1.
        limit: u16,
    },
}

impl std::fmt::Display for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holds::Bits(bits) => write!(f, "numbers below 2^{bits}"),
            Holds::Words16 { limit } => write!(f, "16-bit words from -{limit} to {limit}"),
        }
    }
}

/// The integers from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    low: i128,
    high: i128,
}

/// Facts that [`Bounds`] proves about a kernel that keeps its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The largest number of bits that any lane needs at any time, the sign not counted.
    pub widest_bits: u32,
    /// Every claim that rests on more than intervals: bits and reason.
    pub claims: Vec<(u32, &'static str)>,
}

/// The first operation of a kernel that intervals cannot prove harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundsError {
    /// Index of the operation in the order of execution, from zero.
    pub operation: usize,
    /// Violation that could happen.
    pub what: String,
}

impl std::fmt::Display for BoundsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "operation {}: {}", self.operation, self.what)
    }
}

impl std::error::Error for BoundsError {}

impl Bounds {
    /// A machine with the lanes of a target, and the length in vectors and the bound of each array.
    pub(crate) fn new(target: Target, arrays: &[(usize, Holds)]) -> Self {
        Self {
            lanes: target.lanes(),
            has_few_registers: target.has_few_registers(),
            arrays: arrays
                .iter()
                .map(|&(len, holds)| vec![Value::holding(holds); len])
                .collect(),
            scratch: Vec::new(),
            holds: arrays.iter().map(|&(_, holds)| holds).collect(),
            fault: None,
            claims: Vec::new(),
            operations: 0,
            widest: 0,
        }
    }

    /// The result of the proof, after the kernel has run.
    pub(crate) fn finish(self) -> Result<Proof, BoundsError> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(Proof {
                widest_bits: 128 - self.widest.leading_zeros(),
                claims: self.claims,
            }),
        }
    }

    /// Counts the operation and checks that its result fits a lane.
    fn lane(&mut self, low: i128, high: i128) -> Value {
        self.operations += 1;
        let fits_signed = low >= -(1 << 63) && high < 1 << 63;
        let fits_unsigned = low >= 0 && high < 1 << 64;
        if !(fits_signed || fits_unsigned) {
            self.fail(format!("a lane between {low:#x} and {high:#x} does not fit 64 bits"));
            return Value::of_lane(Interval::exactly(0));
        }
        self.widest = self.widest.max(high).max(-low);
        Value::of_lane(Interval { low, high })
    }

    /// Counts the operation and checks that its result fits signed 16-bit words.
    fn word(&mut self, low: i128, high: i128) -> Value {
        self.operations += 1;
        if low < WORD.low || high > WORD.high {
            self.fail(format!("a word between {low:#x} and {high:#x} does not fit 16 bits"));
            return Value::of_word(Interval::exactly(0));
        }
        Value::of_word(Interval { low, high })
    }

    /// Counts an operation whose result may be anything.
    fn any(&mut self) -> Value {
        self.operations += 1;
        self.widest = self.widest.max(LANE.high);
        Value::of_lane(LANE)
    }

    /// Counts an operation that works bit by bit, and maps zeros to zero if `keeps_zero`.
    ///
    /// Where every operand is the sign extension of its lowest bits, so is the result.
    fn bitwise(&mut self, operands: &[Value], keeps_zero: bool) -> Value {
        self.operations += 1;
        let lane = |value: &Value| value.lane;
        let word = |value: &Value| value.word;
        let lane = Interval::bitwise(operands.iter().map(lane), keeps_zero).unwrap_or(LANE);
        let word = Interval::bitwise(operands.iter().map(word), keeps_zero).unwrap_or(WORD);
        self.widest = self.widest.max(lane.high).max(-lane.low);
        Value { lane, word }
    }

    /// Counts an operation whose result is one of its operands in each lane.
    fn either(&mut self, a: Value, b: Value) -> Value {
        self.operations += 1;
        Value {
            lane: a.lane.hull(b.lane),
            word: a.word.hull(b.word),
        }
    }

    fn fail(&mut self, what: String) {
        let operation = self.operations;
        self.fault.get_or_insert(BoundsError { operation, what });
    }

    fn digit(&mut self, Value { lane: v, .. }: Value) -> i128 {
        if v.low < 0 || v.high > i128::from(DIGIT_MASK) {
            self.fail(format!(
                "a multiplicand between {:#x} and {:#x} is not a {DIGIT_BITS}-bit digit",
                v.low, v.high
            ));
        }
        v.high.min(i128::from(DIGIT_MASK))
    }
}

impl Value {
    /// Value of an array's contents.
    fn holding(holds: Holds) -> Self {
        match holds {
            Holds::Bits(bits) => Self::of_lane(Interval {
                low: 0,
                high: (1 << bits) - 1,
            }),
            Holds::Words16 { limit } => Self::of_word(Interval {
                low: -i128::from(limit),
                high: limit.into(),
            }),
        }
    }

    /// A lane, and what follows for its words.
    fn of_lane(lane: Interval) -> Self {
        let word = if lane.low == lane.high {
            // A lane of either sign in two's complement.
            let bits = lane.low as u64;
            let words = (0..64)
                .step_by(16)
                .map(|at| Interval::exactly(((bits >> at) as i16).into()));
            words.reduce(Interval::hull).unwrap_or(WORD)
        } else if lane.low >= 0 && lane.high <= WORD.high {
            lane.hull(Interval::exactly(0))
        } else {
            WORD
        };
        Self { lane, word }
    }

    /// Words, and what follows for their lane.
    fn of_word(word: Interval) -> Self {
        let lane = if word.low >= 0 {
            Interval {
                low: word.low * EVERY_WORD,
                high: word.high * EVERY_WORD,
            }
        } else {
            LANE
        };
        Self { lane, word }
    }
}

impl Interval {
    fn exactly(value: i128) -> Self {
        Self {
            low: value,
            high: value,
        }
    }

    /// The smallest interval with both.
    fn hull(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    /// The values after an AND with a value of `mask`.
    fn within(self, mask: Self) -> Self {
        match (mask.low >= 0, self.low >= 0) {
            (true, true) => Self {
                low: 0,
                high: self.high.min(mask.high),
            },
            (true, false) => Self { low: 0, ..mask },
            (false, _) => self,
        }
    }

    /// Every product.
    fn times(self, other: Self) -> Self {
        let corners = [
            self.low * other.low,
            self.low * other.high,
            self.high * other.low,
            self.high * other.high,
        ];
        corners
            .into_iter()
            .map(Self::exactly)
            .reduce(Self::hull)
            .unwrap_or(self)
    }

    /// The results of any bitwise function of signed numbers, all within the same count of bits.
    fn bitwise(operands: impl Iterator<Item = Self>, keeps_zero: bool) -> Option<Self> {
        let all = operands.reduce(Self::hull)?;
        let magnitude = all.high.max(-all.low - 1).max(0);
        let bits = 128 - magnitude.leading_zeros();
        if all.low >= 0 && keeps_zero {
            Some(Self {
                low: 0,
                high: (1 << bits) - 1,
            })
        } else if bits <= 63 {
            Some(Self {
                low: -(1 << bits),
                high: (1 << bits) - 1,
            })
        } else {
            None
        }
    }
}

impl Machine for Bounds {
    type V = Value;
    type M = ();

    fn lanes(&self) -> usize {
        self.lanes
    }

    fn has_few_registers(&self) -> bool {
        self.has_few_registers
    }

    fn splat(&mut self, value: u64) -> Value {
        Value::of_lane(Interval::exactly(value.into()))
    }

    fn vector(&mut self, values: [u64; 8]) -> Value {
        let values = values[..self.lanes].iter();
        values
            .map(|&value| Value::of_lane(Interval::exactly(value.into())))
            .reduce(|a, b| Value {
                lane: a.lane.hull(b.lane),
                word: a.word.hull(b.word),
            })
            .unwrap_or(Value::of_lane(LANE))
    }

    fn scratch(&mut self, len: usize) -> Array {
        self.scratch = vec![None; len];
        Array::SCRATCH
    }

    fn load(&mut self, array: Array, index: usize) -> Value {
        if array == Array::SCRATCH {
            return self.scratch[index].unwrap_or_else(|| {
                self.fail(format!("vector {index} of scratch memory is read before it is written"));
                Value::of_lane(Interval::exactly(0))
            });
        }
        self.arrays[array.0][index]
    }

    fn broadcast(&mut self, array: Array, index: usize) -> Value {
        self.arrays[array.0][index / self.lanes]
    }

    fn store(&mut self, array: Array, index: usize, value: Value) {
        if array == Array::SCRATCH {
            self.scratch[index] = Some(value);
            return;
        }
        match self.holds[array.0] {
            Holds::Bits(bits) => {
                let lane = value.lane;
                if lane.low < 0 || lane.high >> bits != 0 {
                    self.fail(format!(
                        "array {} vector {index} is promised below 2^{bits}, but may be {:#x} to {:#x}",
                        array.0, lane.low, lane.high
                    ));
                }
            }
            Holds::Words16 { limit } => {
                let word = value.word;
                if word.high.max(-word.low) > limit.into() {
                    self.fail(format!(
                        "array {} vector {index} is promised words up to {limit}, but may have {} \
                         to {}",
                        array.0, word.low, word.high
                    ));
                }
            }
        }
        self.arrays[array.0][index] = value;
    }

    fn add(&mut self, a: Value, b: Value) -> Value {
        self.lane(a.lane.low + b.lane.low, a.lane.high + b.lane.high)
    }

    fn sub(&mut self, a: Value, b: Value) -> Value {
        self.lane(a.lane.low - b.lane.high, a.lane.high - b.lane.low)
    }

    fn and(&mut self, a: Value, b: Value) -> Value {
        let either = self.bitwise(&[a, b], true);
        // A non-negative operand bounds the result; a negative one (a mask of ones) does not.
        let bounded = |a: Interval, b: Interval, either: Interval| match (a.low >= 0, b.low >= 0) {
            (true, true) => Interval {
                low: 0,
                high: a.high.min(b.high),
            },
            (true, false) => Interval { low: 0, ..a },
            (false, true) => Interval { low: 0, ..b },
            (false, false) => either,
        };
        Value {
            lane: bounded(a.lane, b.lane, either.lane),
            word: bounded(a.word, b.word, either.word),
        }
    }

    fn or(&mut self, a: Value, b: Value) -> Value {
        self.bitwise(&[a, b], true)
    }

    fn xor(&mut self, a: Value, b: Value) -> Value {
        self.bitwise(&[a, b], true)
    }

    fn ternary(&mut self, a: Value, b: Value, c: Value, table: u8) -> Value {
        let mut value = self.bitwise(&[a, b, c], table & 1 == 0);
        // An operand that clears bits, like a mask, bounds the result.
        for (operand, without) in [(a, 0x0f), (b, 0x33), (c, 0x55)] {
            if table & without == 0 {
                value.lane = value.lane.within(operand.lane);
                value.word = value.word.within(operand.word);
            }
        }
        value
    }

    fn shl(&mut self, Value { lane: a, word }: Value, bits: u32) -> Value {
        // Kernels also shift bits out on purpose, to take a limb apart: that is not an overflow.
        let shifted = if a.low >= 0 && a.high << bits < 1 << 64 {
            self.lane(a.low << bits, a.high << bits)
        } else {
            self.lane(0, (1 << 64) - (1 << bits))
        };
        shifted.or_words(word, bits)
    }

    fn shr(&mut self, Value { lane: a, word }: Value, bits: u32) -> Value {
        if a.low < 0 {
            self.fail("logical shift of a lane that may be negative".to_owned());
        }
        self.lane(a.low.max(0) >> bits, a.high.max(0) >> bits)
            .or_words(word, bits)
    }

    fn sra(&mut self, Value { lane: a, .. }: Value, bits: u32) -> Value {
        if a.high >= 1 << 63 {
            self.fail("arithmetic shift of a lane that may exceed 2^63".to_owned());
        }
        self.lane(a.low >> bits, a.high >> bits)
    }

    fn rol(&mut self, Value { lane: a, word }: Value, bits: u32) -> Value {
        let rotated = if a.low >= 0 && a.high << bits < 1 << 64 {
            self.lane(a.low << bits, a.high << bits)
        } else {
            self.any()
        };
        match bits % 16 {
            0 => Value { word, ..rotated },
            _ => rotated,
        }
    }

    fn add64(&mut self, _: Value, _: Value) -> Value {
        self.any()
    }

    fn madd_lo(&mut self, acc: Value, a: Value, b: Value) -> Value {
        let most = (self.digit(a) * self.digit(b)).min(i128::from(DIGIT_MASK));
        self.lane(acc.lane.low, acc.lane.high + most)
    }

    fn madd_hi(&mut self, acc: Value, a: Value, b: Value) -> Value {
        let most = (self.digit(a) * self.digit(b)) >> DIGIT_BITS;
        self.lane(acc.lane.low, acc.lane.high + most)
    }

    fn mul_lo(&mut self, _: Value, b: Value) -> Value {
        self.digit(b);
        self.lane(0, i128::from(DIGIT_MASK))
    }

    fn mul32(&mut self, a: Value, b: Value) -> Value {
        let low = |Value { lane, .. }: Value| match lane.low >= 0 {
            true => lane.high.min(WORD32),
            false => WORD32,
        };
        self.lane(0, low(a) * low(b))
    }

    fn add32(&mut self, _: Value, _: Value) -> Value {
        self.any()
    }

    fn sub32(&mut self, _: Value, _: Value) -> Value {
        self.any()
    }

    fn rol32(&mut self, Value { word, .. }: Value, bits: u32) -> Value {
        let rotated = self.any();
        match bits % 16 {
            0 => Value { word, ..rotated },
            _ => rotated,
        }
    }

    fn shr32(&mut self, _: Value, bits: u32) -> Value {
        let most = WORD32 >> bits;
        self.lane(0, most << 32 | most)
    }

    fn add16(&mut self, a: Value, b: Value) -> Value {
        self.word(a.word.low + b.word.low, a.word.high + b.word.high)
    }

    fn sub16(&mut self, a: Value, b: Value) -> Value {
        self.word(a.word.low - b.word.high, a.word.high - b.word.low)
    }

    fn mul_lo16(&mut self, a: Value, b: Value) -> Value {
        // The product may wrap, on purpose; if it cannot, the exact interval holds.
        match a.word.times(b.word) {
            Interval { low, high } if low >= WORD.low && high <= WORD.high => self.word(low, high),
            _ => self.word(WORD.low, WORD.high),
        }
    }

    fn mul_hi16(&mut self, a: Value, b: Value) -> Value {
        let product = a.word.times(b.word);
        self.word(product.low >> 16, product.high >> 16)
    }

    fn shl16(&mut self, a: Value, bits: u32) -> Value {
        match a.word {
            Interval { low, high } if low << bits >= WORD.low && high << bits <= WORD.high => {
                self.word(low << bits, high << bits)
            }
            _ => self.word(WORD.low, WORD.high),
        }
    }

    fn shr16(&mut self, a: Value, bits: u32) -> Value {
        match a.word {
            Interval { low, high } if low >= 0 => self.word(low >> bits, high >> bits),
            _ if bits == 0 => self.word(WORD.low, WORD.high),
            _ => self.word(0, 0xffff >> bits),
        }
    }

    fn sra16(&mut self, a: Value, bits: u32) -> Value {
        self.word(a.word.low >> bits, a.word.high >> bits)
    }

    fn pick2(&mut self, low: Value, high: Value, _: Value) -> Value {
        self.either(low, high)
    }

    fn unpack_low32(&mut self, a: Value, b: Value) -> Value {
        let unpacked = self.any();
        Value {
            word: a.word.hull(b.word),
            ..unpacked
        }
    }

    fn unpack_high32(&mut self, a: Value, b: Value) -> Value {
        self.unpack_low32(a, b)
    }

    fn unpack_low64(&mut self, a: Value, b: Value) -> Value {
        self.either(a, b)
    }

    fn unpack_high64(&mut self, a: Value, b: Value) -> Value {
        self.either(a, b)
    }

    fn eq(&mut self, _: Value, _: Value) {}

    fn test(&mut self, _: Value, _: Value) {}

    fn select(&mut self, (): (), yes: Value, no: Value) -> Value {
        self.either(yes, no)
    }

    fn claim(&mut self, Value { lane, .. }: Value, bits: u32, why: &'static str) -> Value {
        if !self.claims.contains(&(bits, why)) {
            self.claims.push((bits, why));
        }
        let low = lane.low.max(0);
        let high = lane.high.min((1 << bits) - 1);
        if low > high {
            self.fail(format!("the claim `{why}` contradicts the interval"));
        }
        Value::of_lane(Interval {
            low,
            high: high.max(low),
        })
    }
}

impl Value {
    /// After a shift of lanes by whole words, which brings zeros: the words of before, or zero.
    fn or_words(self, word: Interval, bits: u32) -> Self {
        match bits % 16 {
            0 => Self {
                word: word.hull(Interval::exactly(0)),
                ..self
            },
            _ => self,
        }
    }
}

/// Every value of a lane, unsigned.
const LANE: Interval = Interval {
    low: 0,
    high: u64::MAX as i128,
};
/// Every value of a signed 16-bit word.
const WORD: Interval = Interval {
    low: i16::MIN as i128,
    high: i16::MAX as i128,
};
/// The largest word of 32 bits.
const WORD32: i128 = u32::MAX as i128;
/// 1 in each word of 16 bits.
const EVERY_WORD: i128 = 0x0001_0001_0001_0001;
