//! Random order and random inputs. Not for keys.

use crate::subjects::Class;
use std::hash::{BuildHasher, RandomState};

/// SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators",
/// OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Another sequence in each process.
    pub fn new() -> Self {
        Self(RandomState::new().hash_one(std::process::id()))
    }

    /// Makes the generator from a seed: equal seeds give equal sequences.
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of the two classes.
    pub fn class(&mut self) -> Class {
        if self.number() >> 63 == 0 { Class::A } else { Class::B }
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.number().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}
