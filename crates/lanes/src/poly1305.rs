//! Poly1305 on as many blocks at a time as a vector has lanes.
//!
//! Poly1305 (RFC 8439, section 2.5) is a polynomial in `r` modulo `p := 2^130 - 5`, whose
//! coefficients are the message's blocks. With `L` lanes, each sums every `L`th block by Horner's
//! rule in `r^L` (Goll and Gueron, "Vectorization of Poly1305 message authentication code", ITNG
//! 2015, section IV); the caller multiplies each lane by the power of `r` that it lacks and adds
//! the lanes up.
//!
//! Numbers modulo `p` are limbs with a spare bit, so that carries from the highest and from the
//! lowest limb can run at the same time. The carry of the highest limb is added to the lowest,
//! multiplied by 5, as `2^130 = 5`.

use crate::machine::{Array, Machine};

/// The instruction that multiplies, and so the size of limbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Multiplier {
    /// 52-bit multiply-adds (VPMADD52): limbs of 44, 44 and 42 bits.
    Madd52,
    /// 32-bit multiplications (VPMULUDQ): five limbs of 26 bits.
    Mul32,
}

impl Multiplier {
    /// Bits of a limb. The highest has what is left of 130.
    pub const fn limb_bits(self) -> u32 {
        match self {
            Multiplier::Madd52 => 44,
            Multiplier::Mul32 => 26,
        }
    }

    /// Limbs of a number.
    pub const fn limbs(self) -> usize {
        130usize.div_ceil(self.limb_bits() as usize)
    }

    /// Every limb that a kernel writes is below 2^bits: 13 or one more than there are in a limb.
    pub(crate) const fn sum_bits(self) -> u32 {
        match self {
            Multiplier::Madd52 => 45,
            Multiplier::Mul32 => 27,
        }
    }

    /// Words of a power of `r`: its limbs, then those from the second on times
    /// [`fold`](Self::fold).
    pub const fn power_len(self) -> usize {
        2 * self.limbs() - 1
    }

    /// The factor for a product of limbs whose weight is beyond the highest limb.
    pub const fn fold(self) -> u64 {
        5 << (self.limb_bits() * self.limbs() as u32 - 130)
    }

    /// Every word of a power of `r` is below 2^bits.
    pub(crate) const fn power_bits(self) -> u32 {
        match self {
            Multiplier::Madd52 => 49,
            Multiplier::Mul32 => 29,
        }
    }

    fn highest_bits(self) -> u32 {
        130 - self.limb_bits() * (self.limbs() as u32 - 1)
    }
}

/// Formats the multiplier as in the names of kernels: the bits of a limb.
impl std::fmt::Display for Multiplier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.limb_bits())
    }
}

/// The sums of `L` interleaved polynomials, one in each lane.
pub(crate) struct Sums<V> {
    multiplier: Multiplier,
    array: Array,
    limbs: Vec<V>,
    /// The addend of the next blocks: the caller chooses that of its first blocks, all others get
    /// 2^128 (section 2.5: "add one bit beyond the number of octets").
    addend: Vec<Option<V>>,
    power: Array,
}

impl<V: Copy> Sums<V> {
    /// `array` has the limbs of the sums and those of the first addend, `power` the words of `r^L`,
    /// `r^(2 L)` and so on.
    pub(crate) fn new<M: Machine<V = V>>(m: &mut M, multiplier: Multiplier, array: Array, power: Array) -> Self {
        let limbs = multiplier.limbs();
        Self {
            multiplier,
            array,
            limbs: (0..limbs).map(|i| m.load(array, i)).collect(),
            addend: (limbs..2 * limbs).map(|i| Some(m.load(array, i))).collect(),
            power,
        }
    }

    /// `sums := sums r^L + blocks` for each of `groups` groups of `data`, one block for each lane:
    /// all at once, as `sums r^(groups L) + ... + blocks r^L + blocks`, with a single carry.
    pub(crate) fn add<M: Machine<V = V>>(&mut self, m: &mut M, data: Array, groups: usize) {
        let beyond = self.beyond(m);
        let first = std::mem::replace(&mut self.addend, beyond);
        let blocks = |this: &Self, m: &mut M, index| {
            let addend = if index == 0 { &first } else { &this.addend };
            this.blocks(m, data, index, addend)
        };
        let last = groups - 1;
        let mut columns = blocks(self, m, last);
        for index in 0..last {
            let factor = blocks(self, m, index).low;
            self.multiply(m, &mut columns, &factor, last - index);
        }
        // The sums come last, as the call before this one may have just computed them.
        self.multiply(m, &mut columns, &self.limbs, groups);
        self.carry(m, columns);
    }

    /// Carries columns to limbs.
    fn carry<M: Machine<V = V>>(&mut self, m: &mut M, columns: Columns<V>) {
        self.limbs = match self.multiplier {
            Multiplier::Madd52 => self.carry_in_order(m, &columns),
            Multiplier::Mul32 => self.carry_in_two_chains(m, columns.low),
        };
    }

    /// Writes the sums, and the addend of every block but the first ones.
    pub(crate) fn finish<M: Machine<V = V>>(self, m: &mut M) {
        let zero = m.splat(0);
        let addend = self.addend.iter().map(|limb| limb.unwrap_or(zero));
        for (i, limb) in self.limbs.iter().copied().chain(addend).enumerate() {
            m.store(self.array, i, limb);
        }
    }

    /// The limbs of a group of blocks with the addend, as columns: those in vectors `2 index` and
    /// `2 index + 1` of `data`, of which even lanes take the first vector's in order, odd lanes the
    /// second's.
    fn blocks<M: Machine<V = V>>(&self, m: &mut M, data: Array, index: usize, addend: &[Option<V>]) -> Columns<V> {
        let (a, b) = (m.load(data, 2 * index), m.load(data, 2 * index + 1));
        let (low, high) = (m.unpack_low64(a, b), m.unpack_high64(a, b));
        let bits = self.multiplier.limb_bits();
        let ones = m.splat((1 << bits) - 1);
        let blocks: Vec<_> = (0..self.limbs.len() as u32)
            .map(|i| {
                let at = bits * i;
                let limb = if at + bits <= 64 {
                    shr(m, low, at)
                } else if at < 64 {
                    let (low, high) = (m.shr(low, at), m.shl(high, 64 - at));
                    return m.ternary(low, high, ones, A_OR_B_AND_C);
                } else {
                    m.shr(high, at - 64)
                };
                if at + bits < 128 { m.and(limb, ones) } else { limb }
            })
            .collect();
        let low = blocks
            .into_iter()
            .zip(addend)
            .map(|(limb, addend)| match *addend {
                Some(addend) => m.add(limb, addend),
                None => limb,
            })
            .collect();
        let high = match self.multiplier {
            Multiplier::Madd52 => vec![m.splat(0); self.limbs.len()],
            Multiplier::Mul32 => Vec::new(),
        };
        Columns { low, high }
    }

    /// The addend of all groups but the first.
    fn beyond<M: Machine<V = V>>(&self, m: &mut M) -> Vec<Option<V>> {
        let highest = self.limbs.len() - 1;
        let mut addend = vec![None; highest];
        addend.push(Some(m.splat(1 << (128 - self.multiplier.limb_bits() * highest as u32))));
        addend
    }

    /// `columns += factor r^(power L)`.
    fn multiply<M: Machine<V = V>>(&self, m: &mut M, columns: &mut Columns<V>, factor: &[V], power: usize) {
        let limbs = factor.len();
        let of_power = (power - 1) * self.multiplier.power_len();
        // In the order in which the call before this one computes the limbs of the sums.
        let order: &[usize] = match self.multiplier {
            Multiplier::Madd52 => &[2, 1, 0],
            Multiplier::Mul32 => &[2, 3, 4, 0, 1],
        };
        for &i in order {
            for k in 0..limbs {
                // A product beyond the highest column is folded to the lowest ones.
                let word = if i <= k { k - i } else { 2 * limbs - 1 + k - i };
                let word = m.broadcast(self.power, of_power + word);
                match self.multiplier {
                    Multiplier::Madd52 => {
                        columns.low[k] = m.madd_lo(columns.low[k], factor[i], word);
                        columns.high[k] = m.madd_hi(columns.high[k], factor[i], word);
                    }
                    Multiplier::Mul32 => {
                        let product = m.mul32(factor[i], word);
                        columns.low[k] = m.add(columns.low[k], product);
                    }
                }
            }
        }
    }

    fn carry_in_order<M: Machine<V = V>>(&self, m: &mut M, columns: &Columns<V>) -> Vec<V> {
        let bits = self.multiplier.limb_bits();
        let mut limbs = Vec::with_capacity(3);
        let mut carry = None;
        for k in 0..3 {
            let bits = if k == 2 { self.multiplier.highest_bits() } else { bits };
            let mut column = columns.low[k];
            if let Some(carry) = carry {
                column = m.add(column, carry);
            }
            let ones = m.splat((1 << bits) - 1);
            limbs.push(m.and(column, ones));
            // The high halves have the weight of 2^52 in their column.
            let low = m.shr(column, bits);
            let high = m.shl(columns.high[k], 52 - bits);
            carry = Some(m.add(low, high));
        }
        if let Some(carry) = carry {
            let carry = times_5(m, carry);
            limbs[0] = m.add(limbs[0], carry);
        }
        step(m, &mut limbs, 0, bits);
        limbs
    }

    fn carry_in_two_chains<M: Machine<V = V>>(&self, m: &mut M, mut limbs: Vec<V>) -> Vec<V> {
        let bits = self.multiplier.limb_bits();
        // From 3 by way of the highest to 1, and beside it from 0 to 4.
        for k in [3, 0, 4, 1, 0, 2, 3] {
            step(m, &mut limbs, k, bits);
        }
        limbs
    }
}

/// Numbers before their carries: for 52-bit multiply-adds the low halves and the high ones.
pub(crate) struct Columns<V> {
    low: Vec<V>,
    high: Vec<V>,
}

/// Carries the bits of limb `k` above `bits` to the next limb.
fn step<M: Machine>(m: &mut M, limbs: &mut [M::V], k: usize, bits: u32) {
    let ones = m.splat((1 << bits) - 1);
    let mut carry = m.shr(limbs[k], bits);
    limbs[k] = m.and(limbs[k], ones);
    let next = (k + 1) % limbs.len();
    if next == 0 {
        carry = times_5(m, carry);
    }
    limbs[next] = m.add(limbs[next], carry);
}

fn times_5<M: Machine>(m: &mut M, a: M::V) -> M::V {
    let four = m.shl(a, 2);
    m.add(four, a)
}

fn shr<M: Machine>(m: &mut M, a: M::V, bits: u32) -> M::V {
    if bits == 0 { a } else { m.shr(a, bits) }
}

/// The table of `(a | b) & c`.
const A_OR_B_AND_C: u8 = 0xa8;
