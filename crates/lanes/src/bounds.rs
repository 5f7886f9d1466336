//! The proof: kernels run on intervals instead of numbers.

use crate::machine::{Array, DIGIT_BITS, DIGIT_MASK, Machine};

/// Runs a kernel on intervals and records the first operation that could go wrong: a lane that
/// leaves 64 bits, a multiplicand wider than a digit, an array written beyond its stated bound.
///
/// Lanes are integers in `[-2^63, 2^64)`: a kernel may read them as signed or as unsigned, and an
/// interval that needs both readings at once is refused.
pub struct Bounds {
    arrays: Vec<Vec<Interval>>,
    bits: Vec<u32>,
    fault: Option<BoundsError>,
    claims: Vec<(u32, &'static str)>,
    operations: usize,
    widest: i128,
}

/// The integers from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    low: i128,
    high: i128,
}

/// What [`Bounds`] found out about a kernel that holds its bounds.
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
    /// Its place in the order of execution, from zero.
    pub operation: usize,
    /// What could happen.
    pub what: String,
}

impl std::fmt::Display for BoundsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "operation {}: {}", self.operation, self.what)
    }
}

impl std::error::Error for BoundsError {}

impl Bounds {
    /// A machine whose arrays have `lens` vectors, each lane below 2^`bits`, always.
    pub(crate) fn new(lens: &[usize], bits: &[u32]) -> Self {
        let below = |bits: u32| Interval {
            low: 0,
            high: (1 << bits) - 1,
        };
        Self {
            arrays: lens
                .iter()
                .zip(bits)
                .map(|(&len, &bits)| vec![below(bits); len])
                .collect(),
            bits: bits.to_vec(),
            fault: None,
            claims: Vec::new(),
            operations: 0,
            widest: 0,
        }
    }

    /// The verdict after the kernel has run.
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
    fn result(&mut self, low: i128, high: i128) -> Interval {
        self.operations += 1;
        let fits_signed = low >= -(1 << 63) && high < 1 << 63;
        let fits_unsigned = low >= 0 && high < 1 << 64;
        if !(fits_signed || fits_unsigned) {
            self.fail(format!(
                "a lane between {low:#x} and {high:#x} does not fit 64 bits"
            ));
            return Interval { low: 0, high: 0 };
        }
        self.widest = self.widest.max(high).max(-low);
        Interval { low, high }
    }

    fn fail(&mut self, what: String) {
        let operation = self.operations;
        self.fault.get_or_insert(BoundsError { operation, what });
    }

    fn digit(&mut self, v: Interval) -> i128 {
        if v.low < 0 || v.high > i128::from(DIGIT_MASK) {
            self.fail(format!(
                "a multiplicand between {:#x} and {:#x} is not a {DIGIT_BITS}-bit digit",
                v.low, v.high
            ));
        }
        v.high.min(i128::from(DIGIT_MASK))
    }
}

impl Machine for Bounds {
    type V = Interval;
    type M = ();

    fn splat(&mut self, value: u64) -> Interval {
        Interval {
            low: value.into(),
            high: value.into(),
        }
    }

    fn load(&mut self, array: Array, index: usize) -> Interval {
        self.arrays[array.0][index]
    }

    fn store(&mut self, array: Array, index: usize, value: Interval) {
        let bits = self.bits[array.0];
        if value.low < 0 || value.high >> bits != 0 {
            self.fail(format!(
                "array {} vector {index} is promised below 2^{bits}, but may be {:#x} to {:#x}",
                array.0, value.low, value.high
            ));
        }
        self.arrays[array.0][index] = value;
    }

    fn add(&mut self, a: Interval, b: Interval) -> Interval {
        self.result(a.low + b.low, a.high + b.high)
    }

    fn sub(&mut self, a: Interval, b: Interval) -> Interval {
        self.result(a.low - b.high, a.high - b.low)
    }

    fn and(&mut self, a: Interval, b: Interval) -> Interval {
        // A non-negative operand bounds the result; a negative one (a mask of ones) does not.
        match (a.low >= 0, b.low >= 0) {
            (true, true) => self.result(0, a.high.min(b.high)),
            (true, false) => self.result(0, a.high),
            (false, true) => self.result(0, b.high),
            (false, false) => self.result(a.low.min(b.low), a.high.max(b.high).max(0)),
        }
    }

    fn or(&mut self, a: Interval, b: Interval) -> Interval {
        if a.low < 0 || b.low < 0 {
            self.fail("`or` of a lane that may be negative".to_owned());
        }
        let bits = 128 - (a.high | b.high).max(0).leading_zeros();
        self.result(a.low.max(b.low).max(0), (1 << bits) - 1)
    }

    fn shl(&mut self, a: Interval, bits: u32) -> Interval {
        // Kernels also shift bits out on purpose, to take a limb apart: that is not an overflow.
        if a.low >= 0 && a.high << bits < 1 << 64 {
            self.result(a.low << bits, a.high << bits)
        } else {
            self.result(0, (1 << 64) - (1 << bits))
        }
    }

    fn shr(&mut self, a: Interval, bits: u32) -> Interval {
        if a.low < 0 {
            self.fail("logical shift of a lane that may be negative".to_owned());
        }
        self.result(a.low.max(0) >> bits, a.high.max(0) >> bits)
    }

    fn sra(&mut self, a: Interval, bits: u32) -> Interval {
        if a.high >= 1 << 63 {
            self.fail("arithmetic shift of a lane that may exceed 2^63".to_owned());
        }
        self.result(a.low >> bits, a.high >> bits)
    }

    fn madd_lo(&mut self, acc: Interval, a: Interval, b: Interval) -> Interval {
        let most = (self.digit(a) * self.digit(b)).min(i128::from(DIGIT_MASK));
        self.result(acc.low, acc.high + most)
    }

    fn madd_hi(&mut self, acc: Interval, a: Interval, b: Interval) -> Interval {
        let most = (self.digit(a) * self.digit(b)) >> DIGIT_BITS;
        self.result(acc.low, acc.high + most)
    }

    fn mul_lo(&mut self, _: Interval, b: Interval) -> Interval {
        self.digit(b);
        self.result(0, i128::from(DIGIT_MASK))
    }

    fn eq(&mut self, _: Interval, _: Interval) {}

    fn select(&mut self, (): (), yes: Interval, no: Interval) -> Interval {
        self.result(yes.low.min(no.low), yes.high.max(no.high))
    }

    fn claim(&mut self, value: Interval, bits: u32, why: &'static str) -> Interval {
        if !self.claims.contains(&(bits, why)) {
            self.claims.push((bits, why));
        }
        let low = value.low.max(0);
        let high = value.high.min((1 << bits) - 1);
        if low > high {
            self.fail(format!("the claim `{why}` contradicts the interval"));
        }
        Interval {
            low,
            high: high.max(low),
        }
    }
}
