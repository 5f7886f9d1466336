//! A set of descriptors, of which each has a bit.

use std::ffi::c_int;

/// Descriptors of a `poll` or `select`.
pub(crate) struct DescriptorSet {
    bits: Box<[u64; WORDS]>,
    /// Words that may have bits.
    used: usize,
}

/// Words of a set: handshakes with descriptors from 65,536 on are not suspended in `poll`.
const WORDS: usize = 1024;

impl Default for DescriptorSet {
    fn default() -> Self {
        Self {
            bits: Box::new([0; WORDS]),
            used: 0,
        }
    }
}

impl DescriptorSet {
    pub(crate) fn clear(&mut self) {
        self.bits[..self.used].fill(0);
        self.used = 0;
    }

    pub(crate) fn add(&mut self, fd: c_int) {
        let (word, bit) = place(fd);
        if let Some(bits) = self.bits.get_mut(word) {
            *bits |= bit;
            self.used = self.used.max(word + 1);
        }
    }

    /// Fills an empty set with the descriptors below `count`, of which each has a bit in these words.
    pub(crate) fn fill(&mut self, words: &[u64], count: usize) {
        self.bits[..words.len()].copy_from_slice(words);
        self.used = words.len();
        if let (Some(last), rest @ 1..) = (words.len().checked_sub(1), count % 64) {
            self.bits[last] &= (1 << rest) - 1;
        }
    }

    pub(crate) fn has(&self, fd: c_int) -> bool {
        let (word, bit) = place(fd);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }
}

/// The word and the bit of a descriptor. A negative one has a word that no set has.
pub(crate) fn place(fd: c_int) -> (usize, u64) {
    (fd as u32 as usize / 64, 1 << (fd as u32 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_forgets_what_was_in_it() {
        let mut set = DescriptorSet::default();
        for fd in [0, 63, 64, 65_535] {
            set.add(fd);
            assert!(set.has(fd) && !set.has(fd + 1));
        }
        set.add(-1);
        set.add(65_536);
        assert!(!set.has(-1) && !set.has(65_536));
        set.clear();
        assert!(!set.has(0) && !set.has(65_535));
    }
}
