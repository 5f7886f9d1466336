//! The encoding of hints in signatures.

use super::size::Size;
use widelane_lanes::MlDsa as Constants;

/// `HintBitPack` (algorithm 20): the end of a signature. Nothing if there are too many hints.
pub(super) fn encode<const L: usize>(size: Size, hints: &[[u64; L]], lane: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size.omega() + hints.len() / HINT_WORDS);
    let mut ends = Vec::with_capacity(hints.len() / HINT_WORDS);
    for words in hints.chunks_exact(HINT_WORDS) {
        for (word, first) in words.iter().zip((0..).step_by(64)) {
            let mut rest = word[lane];
            while rest != 0 {
                bytes.push(first + rest.trailing_zeros() as u8);
                rest &= rest - 1;
            }
        }
        ends.push(bytes.len() as u8);
    }
    if bytes.len() > size.omega() {
        return None;
    }
    bytes.resize(size.omega(), 0);
    bytes.extend(ends);
    Some(bytes)
}

/// `HintBitUnpack` (algorithm 21): nothing if the encoding is not the only one of its hints.
pub(super) fn decode(size: Size, bytes: &[u8]) -> Option<Vec<u64>> {
    let (places, ends) = bytes.split_at(size.omega());
    let mut hints = vec![0; ends.len() * HINT_WORDS];
    let mut from = 0;
    for (words, &end) in hints.chunks_exact_mut(HINT_WORDS).zip(ends) {
        // Step 4.
        let end = usize::from(end);
        let places = (from <= end).then(|| places.get(from..end)).flatten()?;
        // Step 9.
        if !places.is_sorted_by(|a, b| a < b) {
            return None;
        }
        for &place in places {
            words[usize::from(place) / 64] |= 1 << (place % 64);
        }
        from = end;
    }
    // Steps 16 to 18.
    places[from..].iter().all(|&place| place == 0).then_some(hints)
}

/// Words with a hint for each coefficient of a polynomial.
pub(super) const HINT_WORDS: usize = Constants::N / 64;
