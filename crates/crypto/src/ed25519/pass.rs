//! Passes: as many requests as there are lanes, each in a lane of its own. Lanes without a request
//! repeat the first one's work, and their results are dropped.

use super::{SignError, SignRequest, VerifyError, VerifyRequest};
use crate::lanes25519::{Pass, divide, get, set};
use aws_lc_rs::digest;
use widelane_kernels::Curve25519;
use zeroize::Zeroizing;

/// The signatures, each checked before it leaves.
///
/// A signature whose R is not of the r in its S tells the private key to whoever has a sound one of
/// the same message. So everything after the hash for r is done twice and in two ways: r is found
/// again as S - k a, and multiplied by the base point again. That this is R is the equation of
/// verification, with the private key for the public one, which makes it as cheap as signing: it
/// needs no doublings and no inversion. The hash for r is computed again too, and must be S - k a.
pub(super) fn sign<const L: usize>(
    pass: &Pass<L>,
    requests: &[SignRequest],
) -> Vec<Result<Vec<u8>, SignError>> {
    let mut signatures = Vec::with_capacity(requests.len());
    for requests in requests.chunks(L) {
        pass.with_memory(SIGN_VECTORS, true, |kernels, vectors, space| {
            let [wide, r, k, a, minus_a, s, encoded, x, other_r, different] =
                divide(vectors, [8, 4, 4, 4, 4, 4, 4, 5, 4, 1]);
            let lanes: [&SignRequest; L] =
                std::array::from_fn(|lane| requests.get(lane).unwrap_or(&requests[0]));
            let curve = &kernels.curve;
            // The steps of RFC 8032, section 5.1.6. 1. and 2. r
            let to_r =
                lanes.map(|request| [&request.key().expanded().prefix()[..], request.message()]);
            kernels.hash.hash(wide, to_r, space);
            curve.scalar_reduce(r, wide, space);
            // 3. R
            curve.base_multiple(encoded, x, r, space);
            // 4. k
            let points: [_; L] = std::array::from_fn(|lane| get(encoded, lane));
            let to_k = std::array::from_fn(|lane| {
                let public = lanes[lane].key().public_key().as_bytes();
                [&points[lane][..], public, lanes[lane].message()]
            });
            kernels.hash.hash(wide, to_k, space);
            curve.scalar_reduce(k, wide, space);
            // 5. S
            for (lane, request) in lanes.into_iter().enumerate() {
                let expanded = request.key().expanded();
                set(a, lane, expanded.scalar());
                set(minus_a, lane, expanded.negative());
            }
            curve.scalar_mul_add(s, [k, a, r], space);
            // The check.
            curve.scalar_mul_add(other_r, [k, minus_a, s], space);
            curve.is_base_multiple(different, encoded, x, other_r, space);
            kernels.hash.hash(wide, to_r, space);
            curve.scalar_reduce(r, wide, space);
            for lane in 0..requests.len() {
                let again = r.iter().zip(&*other_r);
                let differences = again.map(|(r, other)| r[lane] ^ other[lane]);
                let fault =
                    differences.fold(different[0][lane], |all, difference| all | difference);
                signatures.push(match fault {
                    0 => Ok([get(encoded, lane), get(s, lane)].concat()),
                    _ => Err(SignError::Fault),
                });
            }
        });
    }
    signatures
}

/// Whether the signatures are good. All is public.
pub(super) fn verify<const L: usize>(
    pass: &Pass<L>,
    requests: &[VerifyRequest],
) -> Vec<Result<(), VerifyError>> {
    let mut answers = Vec::with_capacity(requests.len());
    let len = VERIFY_VECTORS + Curve25519::<L>::TABLE_LEN;
    for requests in requests.chunks(L) {
        pass.with_memory(len, false, |kernels, vectors, space| {
            let [wide, s, k, key, out, valid, table] =
                divide(vectors, [8, 4, 4, 4, 4, 1, Curve25519::<L>::TABLE_LEN]);
            // The steps of RFC 8032, section 5.1.7. 1. and 2. A signature that is none has a lane
            // all the same.
            let lanes: [&VerifyRequest; L] =
                std::array::from_fn(|lane| requests.get(lane).unwrap_or(&requests[0]));
            let halves = lanes.map(|request| request.halves().unwrap_or_default());
            for (lane, request) in lanes.into_iter().enumerate() {
                set(s, lane, &halves[lane].1);
                set(key, lane, request.key().as_bytes());
            }
            let to_k = std::array::from_fn(|lane| {
                let request = lanes[lane];
                [
                    &halves[lane].0[..],
                    request.key().as_bytes(),
                    request.message(),
                ]
            });
            kernels.hash.hash(wide, to_k, space);
            kernels.curve.scalar_reduce(k, wide, space);
            // 3. R = [S]B - [k]A, without the cofactor, as bytes.
            let read = [&*s, &*k, &*key];
            kernels
                .curve
                .base_multiple_less(out, valid, read, table, space);
            for (lane, request) in requests.iter().enumerate() {
                let good = request.halves().is_some_and(|(first, second)| {
                    is_reduced(&second) && valid[0][lane] == 1 && get(out, lane) == first
                });
                answers.push(if good { Ok(()) } else { Err(VerifyError) });
            }
        });
    }
    answers
}

/// SHA-512 of the parts, one after the other.
pub(super) fn sha512(parts: &[&[u8]]) -> Zeroizing<[u8; 64]> {
    let mut context = digest::Context::new(&digest::SHA512);
    for part in parts {
        context.update(part);
    }
    let digest = context.finish();
    let mut bytes = Zeroizing::new([0; 64]);
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Whether a public scalar, little-endian, is below l.
fn is_reduced(scalar: &[u8; 32]) -> bool {
    scalar.iter().rev().lt(ORDER.iter().rev())
}

/// l = 2^252 + 27742317777372353535851937790883648493, little-endian.
pub(super) const ORDER: [u8; 32] = {
    let low = 27_742_317_777_372_353_535_851_937_790_883_648_493_u128.to_le_bytes();
    let mut bytes = [0; 32];
    let mut i = 0;
    while i < 16 {
        bytes[i] = low[i];
        i += 1;
    }
    bytes[31] = 0x10;
    bytes
};

const SIGN_VECTORS: usize = 42;
const VERIFY_VECTORS: usize = 25;
