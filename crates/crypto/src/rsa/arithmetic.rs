//! Set-up arithmetic on secret integers, constant-time through crypto-bigint.
//!
//! Integers cross module boundaries as little-endian limbs of 64 bits. Values that this module
//! returns are wiped when dropped; crypto-bigint's own working memory inside an inversion or an
//! exponentiation is not.

use crate::secrecy;
use crypto_bigint::{BoxedUint, ConcatenatingMul, CtEq, CtLt, NonZero, Odd};
use zeroize::Zeroizing;

/// A secret integer as little-endian limbs; its length says nothing about its value.
pub(crate) type Limbs = Zeroizing<Vec<u64>>;

/// A secret integer in crypto-bigint's form.
pub(crate) type Secret = Zeroizing<BoxedUint>;

/// The system's random generator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RandomFailed;

/// `2^exponent mod modulus`, as long as the modulus. `modulus` must be greater than 1.
pub(crate) fn mod_pow2(exponent: usize, modulus: &[u64]) -> Limbs {
    let mut power = vec![0u64; exponent / LIMB_BITS + 1];
    power[exponent / LIMB_BITS] = 1 << (exponent % LIMB_BITS);
    let remainder = rem(&integer(&power), &integer(modulus));
    limbs(&remainder, modulus.len())
}

/// [`mod_pow2`] in time that depends on both: where both are public.
pub(super) fn mod_pow2_vartime(exponent: usize, modulus: &[u64]) -> Vec<u64> {
    let mut power = vec![0u64; exponent / LIMB_BITS + 1];
    power[exponent / LIMB_BITS] = 1 << (exponent % LIMB_BITS);
    let modulus = BoxedUint::from_words(modulus.iter().copied());
    let modulus: &NonZero<BoxedUint> = modulus
        .as_nz_vartime()
        .expect("callers pass a modulus greater than zero");
    let remainder = BoxedUint::from_words(power).rem_vartime(modulus);
    remainder.as_words().to_vec()
}

/// `a b mod modulus`, as long as the modulus, which must be greater than 1.
pub(crate) fn mul_mod(a: &[u64], b: &[u64], modulus: &[u64]) -> Limbs {
    let product = mul(&integer(a), &integer(b));
    limbs(&rem(&product, &integer(modulus)), modulus.len())
}

/// `value^-1 mod modulus`, as long as the modulus; `None` when they share a factor.
///
/// `modulus` must be odd and greater than 1; `value` may be of any length.
pub(crate) fn invert_mod(value: &[u64], modulus: &[u64]) -> Option<Limbs> {
    let inverse = invert(&integer(value), &integer(modulus))?;
    Some(limbs(&inverse, modulus.len()))
}

/// A uniformly random integer in `1..bound`, as long as the bound, which must be greater than 1.
pub(crate) fn random_below(bound: &[u64]) -> Result<Limbs, RandomFailed> {
    let top = bound.iter().rposition(|&limb| limb != 0).unwrap_or(0);
    let mask = u64::MAX >> bound[top].leading_zeros();
    let limit = integer(bound);
    let mut bytes = Zeroizing::new(vec![0u8; (top + 1) * LIMB_BYTES]);
    // Each candidate is accepted with a probability above one half.
    loop {
        aws_lc_rs::rand::fill(&mut bytes).map_err(|_| RandomFailed)?;
        secrecy::secret(&bytes);
        let mut candidate: Limbs = Zeroizing::new(vec![0u64; bound.len()]);
        for (limb, chunk) in candidate.iter_mut().zip(bytes.chunks_exact(LIMB_BYTES)) {
            let mut word = [0u8; LIMB_BYTES];
            word.copy_from_slice(chunk);
            *limb = u64::from_le_bytes(word);
        }
        candidate[top] &= mask;
        let value = integer(&candidate);
        let accepted = value.is_nonzero() & value.ct_lt(&limit);
        // Public: which candidates were thrown away says nothing about the one that is kept.
        if secrecy::public(accepted.to_bool()) {
            return Ok(candidate);
        }
    }
}

/// Reads little-endian limbs.
pub(super) fn integer(limbs: &[u64]) -> Secret {
    Zeroizing::new(BoxedUint::from_words(limbs.iter().copied()))
}

/// Reads big-endian bytes as an integer of this precision, which must suffice: the time depends
/// on it, and not on how many zero bytes the encoding left out.
pub(crate) fn integer_from_be_bytes(bytes: &[u8], bits: usize) -> Secret {
    debug_assert!(bytes.len() * 8 < bits + 8, "precision too low");
    let bits = u32::try_from(bits).expect("callers bound the precision by that of a modulus");
    Zeroizing::new(BoxedUint::from_be_slice_truncated(bytes, bits))
}

/// Writes `length` little-endian limbs; what lies above them must be zero.
pub(crate) fn limbs(value: &BoxedUint, length: usize) -> Limbs {
    let words = value.as_words();
    let (low, high) = words.split_at(length.min(words.len()));
    debug_assert!(high.iter().all(|&word| word == 0), "value too long");
    let mut out = Vec::with_capacity(length);
    out.extend_from_slice(low);
    out.resize(length, 0);
    Zeroizing::new(out)
}

/// Writes `length` big-endian bytes; what lies above them must be zero.
pub(crate) fn be_bytes(limbs: &[u64], length: usize) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(vec![0u8; length]);
    for (index, byte) in out.iter_mut().rev().enumerate() {
        let limb = limbs.get(index / LIMB_BYTES).copied().unwrap_or(0);
        *byte = (limb >> (8 * (index % LIMB_BYTES))) as u8;
    }
    out
}

/// `a * b` without loss.
pub(super) fn mul(a: &BoxedUint, b: &BoxedUint) -> Secret {
    Zeroizing::new(a.concatenating_mul(b))
}

/// `value mod modulus` at the modulus's precision. The modulus must not be zero.
pub(super) fn rem(value: &BoxedUint, modulus: &BoxedUint) -> Secret {
    // The time tells how many of the lowest limbs are zero. A prime has none, and `p - 1` none but by a chance of
    // 2^-64.
    let modulus: &NonZero<BoxedUint> = modulus
        .as_nz_vartime()
        .expect("callers pass a modulus greater than zero");
    let (quotient, remainder) = value.div_rem(modulus);
    drop(Zeroizing::new(quotient));
    Zeroizing::new(remainder)
}

/// `value^-1 mod modulus`; `None` when they share a factor. The modulus must be odd.
pub(super) fn invert(value: &BoxedUint, modulus: &BoxedUint) -> Option<Secret> {
    // The time tells that the modulus is odd, as all are.
    let odd: &Odd<BoxedUint> = modulus.as_odd_vartime().expect("callers pass an odd modulus");
    // Marked for wiping first, as nothing tells yet whether it exists.
    let inverse = rem(value, modulus).invert_odd_mod(odd).map(Zeroizing::new);
    // Public: callers take another value, or refuse the key.
    let exists = secrecy::public(inverse.is_some().to_bool());
    exists.then(|| inverse.as_inner_unchecked().clone())
}

/// Returns whether two integers of any precision are equal, in constant time.
pub(super) fn equal(a: &BoxedUint, b: &BoxedUint) -> bool {
    a.ct_eq(b).to_bool()
}

/// Returns whether `a < b` for integers of any precision, in constant time.
pub(super) fn less(a: &BoxedUint, b: &BoxedUint) -> bool {
    a.ct_lt(b).to_bool()
}

const LIMB_BITS: usize = 64;
const LIMB_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::Size;
    use crate::rsa::chain::keys;
    use proptest::prelude::*;

    /// An odd modulus greater than 1 of one to eight limbs.
    fn odd_modulus() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(any::<u64>(), 1..9).prop_map(|mut limbs| {
            limbs[0] |= 3;
            limbs
        })
    }

    proptest! {
        /// Doubling `exponent` times gives the same.
        #[test]
        fn powers_of_two_are_repeated_doubling(modulus in odd_modulus(), exponent in 0usize..1200) {
            let reduced = integer(&modulus);
            let mut expected = rem(&BoxedUint::one(), &reduced);
            for _ in 0..exponent {
                let doubled = expected.concatenating_add(&*expected);
                expected = rem(&doubled, &reduced);
            }
            let power = mod_pow2(exponent, &modulus);
            prop_assert_eq!(&*power, &*limbs(&expected, modulus.len()));
            prop_assert_eq!(&*power, &mod_pow2_vartime(exponent, &modulus));
        }

        #[test]
        fn an_inverse_times_its_value_is_one(
            value in proptest::collection::vec(any::<u64>(), 1..12),
            modulus in odd_modulus(),
        ) {
            // Odd numbers drawn at random often share a small factor with others.
            if let Some(inverse) = invert_mod(&value, &modulus) {
                prop_assert_eq!(inverse.len(), modulus.len());
                let product = mul(&integer(&inverse), &integer(&value));
                prop_assert!(equal(&rem(&product, &integer(&modulus)), &BoxedUint::one()));
                prop_assert!(less(&integer(&inverse), &integer(&modulus)));
            }
        }

        #[test]
        fn bytes_and_limbs_agree(limbs in proptest::collection::vec(any::<u64>(), 1..20)) {
            let bytes = be_bytes(&limbs, limbs.len() * 8);
            let value = integer_from_be_bytes(&bytes, bytes.len() * 8);
            prop_assert!(equal(&value, &integer(&limbs)));
            prop_assert_eq!(&*super::limbs(&value, limbs.len()), &limbs);
        }

        #[test]
        fn random_stays_below_its_bound(bound in 2u64.., zeros in 0usize..3) {
            let mut limbs = vec![0; zeros];
            limbs.push(bound);
            limbs.push(0);
            let random = random_below(&limbs).unwrap();
            prop_assert_eq!(random.len(), limbs.len());
            prop_assert!(less(&integer(&random), &integer(&limbs)));
            prop_assert!(random.iter().any(|limb| *limb != 0));
        }
    }

    #[test]
    fn what_has_no_inverse_gets_none() {
        assert_eq!(invert_mod(&[6], &[9]), None);
        assert_eq!(invert_mod(&[0], &[9]), None);
        assert_eq!(invert_mod(&[9, 0], &[9]), None);
        assert_eq!(invert_mod(&[2], &[9]).as_deref(), Some(&vec![5]));
    }

    /// A prime leaves nothing but zero without an inverse, and inverses undo themselves.
    #[test]
    fn every_random_has_an_inverse_modulo_a_prime() {
        for size in Size::ALL {
            let [key, ..] = keys(size);
            let prime = &key.parts().p.prime;
            let random = random_below(prime).unwrap();
            let inverse = invert_mod(&random, prime).unwrap();
            assert_eq!(invert_mod(&inverse, prime).unwrap(), random);
        }
    }

    /// Every value below a small bound comes up, and no other.
    #[test]
    fn random_covers_its_range() {
        let mut seen = [0u32; 6];
        for _ in 0..1200 {
            seen[usize::try_from(random_below(&[6]).unwrap()[0]).unwrap()] += 1;
        }
        assert_eq!(seen[0], 0);
        // Each is expected 240 times; the standard deviation is 14.
        assert!(seen[1..].iter().all(|count| (100..=380).contains(count)), "{seen:?}");
    }
}
