//! Random numbers, the same for the same seed on every machine.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Numbers from a permuted congruential generator (O'Neill, 2014).
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// Makes the generator: equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::new(u128::from(seed) << 64 | 0x5851_f42d_4c95_7f2d))
    }

    /// Random number from 0 to below 1.
    pub fn share(&mut self) -> f64 {
        // 53 bits are what a floating-point number holds.
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Random number with an exponential distribution of this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.share()).ln() * mean
    }
}
