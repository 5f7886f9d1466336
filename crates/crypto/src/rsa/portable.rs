//! RSA in portable constant-time arithmetic, for keys that aws-lc-rs refuses.
//!
//! aws-lc-rs takes public exponents of up to 33 bits. A key with a longer one is rare and still
//! has to work on every CPU, so it is signed here, at the speed of crypto-bigint. The public
//! operation also serves the check of a key when it is loaded.

use super::arithmetic::{
    Secret, be_bytes, equal, integer, integer_from_be_bytes, invert, limbs, mul, random_below, rem,
};
use super::key::{Factor, Parts};
use crate::sign::Error;
use crypto_bigint::BoxedUint;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use zeroize::Zeroizing;

/// `encoded^d mod n`, blinded, by the Chinese remainder theorem, and checked.
///
/// `encoded` is big-endian, as long as the modulus and less than it.
pub(super) fn sign(parts: &Parts, encoded: &[u8]) -> Result<Vec<u8>, Error> {
    let n = integer(&parts.n);
    let message = integer_from_be_bytes(encoded, encoded.len() * 8);
    // A random r is invertible unless it reveals a factor of n, which does not happen; should it
    // happen, another one serves.
    let (blind, unblind) = loop {
        let r = random_below(&parts.n).map_err(|_| Error::Random)?;
        let r = integer(&r);
        if let Some(inverse) = invert(&r, &n) {
            break (raise_public(&r, parts), inverse);
        }
    };
    let blinded = rem(&mul(&message, &blind), &n);
    let at_p = raise_private(&blinded, &parts.p);
    let at_q = raise_private(&blinded, &parts.q);
    // RFC 8017, section 5.2.1, step 2b: h = (s_1 - s_2) * qInv mod p, s = s_2 + q * h. Since p is
    // the larger prime, s_2 is below p already.
    let p = integer(&parts.p.prime);
    let at_p_plus_p = Zeroizing::new(at_p.concatenating_add(&*p));
    let difference = Zeroizing::new(at_p_plus_p.wrapping_sub(&*at_q));
    let h = rem(&mul(&difference, &integer(&parts.q_inverse)), &p);
    let result = Zeroizing::new(mul(&h, &integer(&parts.q.prime)).concatenating_add(&*at_q));
    let signature = rem(&mul(&result, &unblind), &n);

    if !equal(&raise_public(&signature, parts), &message) {
        return Err(Error::Fault);
    }
    let signature = limbs(&signature, parts.n.len());
    Ok(be_bytes(&signature, encoded.len()).to_vec())
}

/// `signature^e mod n`: the padded message under a signature, both as big-endian bytes.
pub(super) fn open(parts: &Parts, signature: &[u8]) -> Vec<u8> {
    let n = integer(&parts.n);
    let signature = rem(&integer_from_be_bytes(signature, signature.len() * 8), &n);
    let encoded = limbs(&raise_public(&signature, parts), parts.n.len());
    let length = (n.bits_vartime() as usize).div_ceil(8);
    be_bytes(&encoded, length).to_vec()
}

/// `base^e mod n`; the time depends on `n` and `e`, which are public.
fn raise_public(base: &BoxedUint, parts: &Parts) -> Secret {
    let exponent = integer(&parts.e);
    let bits = exponent.bits_vartime();
    raise(base, &integer(&parts.n), &exponent, bits)
}

/// `base^exponent mod prime`, in time that depends on the sizes only.
fn raise_private(base: &BoxedUint, factor: &Factor) -> Secret {
    let exponent = integer(&factor.exponent);
    let bits = exponent.bits_precision();
    raise(base, &integer(&factor.prime), &exponent, bits)
}

fn raise(base: &BoxedUint, modulus: &BoxedUint, exponent: &BoxedUint, bits: u32) -> Secret {
    // The time tells that the modulus is odd, as all are.
    let odd = modulus.as_odd_vartime().expect("key checks refuse an even modulus");
    let params = BoxedMontyParams::new(odd.clone());
    let base = rem(base, modulus);
    let base = Zeroizing::new(BoxedMontyForm::new((*base).clone(), &params));
    let power = Zeroizing::new(base.pow_bounded_exp(exponent, bits));
    Zeroizing::new(power.retrieve())
}
