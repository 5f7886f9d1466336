//! One pass: up to `L` signatures raised to their public exponents, each modulo its own modulus.
//!
//! RSAVP1 (RFC 8017, section 5.2.2) with one signature and its key a lane. Nothing here is secret,
//! so that time may depend on every value.
//!
//! A key is seldom met twice, so that what a modulus needs is computed each time:
//!
//! 1. `R^2 mod n`, `R := 2^2080`. One by one, `2^(2080 + 260) mod n`, a division of few quotient
//!    digits; that is `2^260` in Montgomery form, and three squarings in lanes make `2^2080` of it.
//! 2. `s` in Montgomery form, and squarings and multiplications from the left of the exponent.
//! 3. Exponents are odd: the last factor is `s`, which enters in its plain form, and so leaves a
//!    plain result.

use super::arithmetic::mod_pow2_vartime;
use super::pass::{bytes, minus_inverse, set, set_bytes};
use super::public_key::PublicKey;
use crate::passes::{Family, Pass, memory};
use widelane_kernels::{Arena, Machine, Moduli, Montgomery};
use widelane_lanes::DIGIT_BITS;

/// Signatures by keys of [`PublicKey::MODULUS_BITS`].
#[derive(Clone, Copy, Debug)]
pub struct Openings;

impl Family for Openings {
    type Kernels<const L: usize> = Montgomery<L>;
    type Memory<const L: usize> = Arena<L>;

    fn kernels<const L: usize>(self, machine: Machine<L>) -> Montgomery<L> {
        Montgomery::new(machine, PublicKey::MODULUS_BITS)
    }

    fn memory<const L: usize>(self, kernels: &Montgomery<L>) -> Arena<L> {
        Arena::new(Memory::len(kernels))
    }

    fn is_secret(self) -> bool {
        false
    }
}

/// Runs passes for keys of [`PublicKey::MODULUS_BITS`].
pub(super) type Opening<const L: usize> = Pass<Openings, L>;

impl<const L: usize> Opening<L> {
    /// `s^e mod n` for up to `L` signatures that their keys [admit](PublicKey::admits), as
    /// big-endian bytes of modulus length.
    ///
    /// # Panics
    ///
    /// If there are more, or none.
    pub(super) fn open(&self, signatures: &[(PublicKey<'_>, &[u8])]) -> Vec<Vec<u8>> {
        assert!((1..=L).contains(&signatures.len()), "{} signatures", signatures.len());
        self.run(|arena| {
            let mut memory = Memory::new(&self.kernels, arena.vectors());
            open(&self.kernels, &mut memory, signatures);
            let limbs = &memory.limbs[..self.kernels.limbs()];
            (0..signatures.len()).map(|lane| bytes(limbs, lane)).collect()
        })
    }
}

/// Leaves the results in `limbs`.
fn open<const L: usize>(k: &Montgomery<L>, m: &mut Memory<'_, L>, signatures: &[(PublicKey<'_>, &[u8])]) {
    let (digits, limbs) = (k.digits(), k.limbs());
    // Lanes without a signature repeat the first.
    let lanes: [(PublicKey<'_>, &[u8]); L] =
        std::array::from_fn(|lane| *signatures.get(lane).unwrap_or(&signatures[0]));

    // 1. The moduli and R^2.
    m.limbs.fill([0; L]);
    for (lane, (key, _)) in lanes.iter().enumerate() {
        set(&mut m.limbs[..limbs], lane, &key.modulus());
    }
    k.to_digits(m.double, m.limbs, m.scratch);
    m.n[..digits].copy_from_slice(&m.double[..digits]);
    m.n[digits] = m.n[0].map(minus_inverse);
    for (lane, (key, _)) in lanes.iter().enumerate() {
        let power = digits * DIGIT_BITS as usize + START_BITS;
        let power = mod_pow2_vartime(power, &key.modulus());
        set(&mut m.limbs[..limbs], lane, &power);
    }
    k.to_digits(m.double, m.limbs, m.scratch);
    m.a.copy_from_slice(&m.double[..digits]);
    // Only secret exponents want `one` of the kernels.
    let moduli = Moduli { n: m.n, one: &[] };
    k.square(m.b, m.a, moduli, m.scratch);
    k.square(m.a, m.b, moduli, m.scratch);
    k.square(m.b, m.a, moduli, m.scratch);

    // 2. s, and its form.
    for (lane, (_, signature)) in lanes.iter().enumerate() {
        set_bytes(&mut m.limbs[..limbs], lane, signature);
    }
    k.to_digits(m.double, m.limbs, m.scratch);
    m.plain.copy_from_slice(&m.double[..digits]);
    k.mul(m.base, m.plain, m.b, moduli, m.scratch);
    let exponents = lanes.map(|(key, _)| key.exponent());
    let top = exponents.map(|e| e.ilog2()).into_iter().max().unwrap_or(0);
    let uniform = exponents.iter().all(|&e| e == exponents[0]);
    if !uniform {
        m.a.fill([0; L]);
        m.a[0] = [1; L];
        k.mul(m.one, m.a, m.b, moduli, m.scratch);
    }
    // Takes one for the lanes whose exponents lack this bit.
    let select = |to: &mut [[u64; L]], at: u32| {
        let set = exponents.map(|e| e >> at & 1 == 1);
        for ((to, base), one) in to.iter_mut().zip(&*m.base).zip(&*m.one) {
            *to = std::array::from_fn(|lane| if set[lane] { base[lane] } else { one[lane] });
        }
    };
    let (mut from, mut to) = (&mut *m.a, &mut *m.b);
    select(from, top);
    for at in (1..top).rev() {
        k.square(to, from, moduli, m.scratch);
        std::mem::swap(&mut from, &mut to);
        if exponents.iter().any(|e| e >> at & 1 == 1) {
            select(m.factor, at);
            k.mul(to, from, m.factor, moduli, m.scratch);
            std::mem::swap(&mut from, &mut to);
        }
    }
    k.square(to, from, moduli, m.scratch);

    // 3. The last factor, the last subtraction, and back to limbs.
    k.mul(from, to, m.plain, moduli, m.scratch);
    to.fill([0; L]);
    let (low, high) = m.double.split_at_mut(digits);
    k.subtract(low, from, to, moduli, m.scratch);
    high.fill([0; L]);
    k.to_limbs(m.limbs, m.double, m.scratch);
}
memory! {
    /// The memory of a pass, by name. Numbers have `digits` vectors unless said otherwise.
    struct Memory(k: &Montgomery<L>) {
        /// And `-1/n`: one more vector.
        n: k.digits() + 1,
        /// `R mod n`; computed where exponents differ.
        one: k.digits(),
        /// The signatures.
        plain: k.digits(),
        /// Signatures in Montgomery form.
        base: k.digits(),
        factor: k.digits(),
        a: k.digits(),
        b: k.digits(),
        double: 2 * k.digits(),
        /// Twice as many vectors as a modulus has limbs.
        limbs: 2 * k.limbs(),
        scratch: k.scratch_len(),
    }
}

/// An eighth of the bits of `R`: three squarings of `2^260` give `R`.
const START_BITS: usize = 260;

#[cfg(test)]
mod tests {
    use super::*;
    use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
    use crypto_bigint::{BoxedUint, Odd};
    use pkcs1::RsaPublicKeyRef;
    use pkcs8::der::Encode;
    use pkcs8::der::asn1::UintRef;
    use proptest::prelude::*;
    use widelane_cpu::on_every_target;

    /// A public key whose private half need not exist.
    fn key(modulus: &[u8], exponent: u64) -> Vec<u8> {
        let exponent = exponent.to_be_bytes();
        let key = RsaPublicKeyRef {
            modulus: UintRef::new(modulus).unwrap(),
            public_exponent: UintRef::new(&exponent).unwrap(),
        };
        key.to_der().unwrap()
    }

    fn public(der: &[u8]) -> PublicKey<'_> {
        PublicKey::from_pkcs1_der(der).unwrap()
    }

    fn power(key: PublicKey<'_>, signature: &[u8]) -> Vec<u8> {
        let n = BoxedUint::from_words(key.modulus());
        let params = BoxedMontyParams::new_vartime(Odd::new(n).unwrap());
        let base = BoxedUint::from_be_slice_truncated(signature, 2048);
        let power = BoxedMontyForm::new(base, &params).pow(&BoxedUint::from(key.exponent()));
        power.retrieve().to_be_bytes().to_vec()
    }

    fn check<const L: usize>(opening: &Opening<L>, problems: &[(Vec<u8>, Vec<u8>)]) {
        for some in problems.chunks(L) {
            let signatures: Vec<_> = some.iter().map(|(key, s)| (public(key), s.as_slice())).collect();
            let opened = opening.open(&signatures);
            assert_eq!(opened.len(), some.len());
            for ((key, signature), opened) in some.iter().zip(opened) {
                assert_eq!(opened, power(public(key), signature), "{key:?}");
            }
        }
    }

    fn check_all(problems: &[(Vec<u8>, Vec<u8>)]) {
        let few = &problems[..problems.len().min(6)];
        check(&Opening::<4>::model(Openings), few);
        on_every_target!(token => check(&Opening::new(Openings, token), problems));
    }

    /// The largest and the smallest modulus with the largest and the smallest signatures and
    /// exponents that a peer can choose.
    #[test]
    fn extremes() {
        let mut smallest = vec![0; 256];
        smallest[0] = 0x80;
        smallest[255] = 1;
        let mut problems = Vec::new();
        for modulus in [vec![0xff; 256], smallest] {
            for exponent in [3, 5, 65537, (1 << 32) + 1, (1 << 33) - 1] {
                let key = key(&modulus, exponent);
                let mut below = modulus.clone();
                below[255] -= 1;
                let mut one = vec![0; 256];
                one[255] = 1;
                for signature in [below, one, vec![0; 256], vec![0x7f; 256]] {
                    assert!(public(&key).admits(&signature));
                    problems.push((key.clone(), signature));
                }
            }
        }
        check_all(&problems);
        problems.reverse();
        check_all(&problems);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn powers_are_those_of_crypto_bigint(
            parts in proptest::collection::vec(
                (
                    proptest::collection::vec(any::<u8>(), 256),
                    proptest::collection::vec(any::<u8>(), 256),
                    prop_oneof![Just(65537), 1u64..1 << 32],
                ),
                1..12,
            ),
        ) {
            let problem = |(mut modulus, mut signature, exponent): (Vec<u8>, Vec<u8>, u64)| {
                modulus[0] |= 0x80;
                modulus[255] |= 1;
                signature[0] &= 0x7f;
                (key(&modulus, exponent << 1 | 1), signature)
            };
            let problems: Vec<_> = parts.into_iter().map(problem).collect();
            check_all(&problems);
        }
    }
}
