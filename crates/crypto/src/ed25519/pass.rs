//! Passes: as many requests as there are lanes, each in a lane of its own. Lanes without a request
//! repeat the first one's work, and their results are dropped.

use super::SignRequest;
use crate::lanes25519::{Kernels, Kind, Pass, divide, get, set};
use crate::passes::memory;
use crate::secrecy;
use crate::sign::{Error, Outcome, VerifyError};
use crate::verify::{Request, Verdict};
use aws_lc_rs::digest;
use aws_lc_rs::signature::KeyPair;
use std::borrow::Borrow;
use widelane_kernels::Curve25519;
use zeroize::{Zeroize, Zeroizing};

/// Memory that [`sign`] needs.
pub(super) const SIGNING: Kind = Kind {
    vectors: 46,
    is_secret: true,
};

/// Memory that [`verify`] needs.
pub(super) const VERIFICATION: Kind = Kind {
    vectors: 25 + Curve25519::<8>::TABLE_LEN,
    is_secret: false,
};

memory! {
    /// The memory of signing, by name.
    struct Work(_kernels: &Kernels<L>) {
        wide: 8,
        r: 4,
        /// r once more, for the check.
        again: 4,
        k: 4,
        a: 4,
        minus_a: 4,
        s: 4,
        /// R, and its x.
        encoded: 4,
        x: 5,
        other_r: 4,
        different: 1,
    }
}

/// The signatures, each checked before it leaves.
///
/// A signature whose R is not of the r in its S, or whose S is of another k than R and the message
/// have, tells the private key to an attacker who has a right signature of the same message. So
/// everything is done twice and in two ways, from the bytes that leave: k is hashed again, r is
/// found again as S - k a, and multiplied by the base point again. That this is R is the equation
/// of verification, with the private key for the public one, which makes it as cheap as signing: it
/// needs no doublings and no inversion. The hash for r is computed again too, and must be S - k a.
pub(super) fn sign<const L: usize>(pass: &Pass<L>, requests: &[impl Borrow<SignRequest>]) -> Vec<Outcome> {
    let mut results = Vec::with_capacity(requests.len());
    for requests in requests.chunks(L) {
        pass.with_memory(|kernels, vectors, space| {
            let mut w = Work::new(kernels, vectors);
            let lanes: [&SignRequest; L] =
                std::array::from_fn(|lane| requests.get(lane).unwrap_or(&requests[0]).borrow());
            let curve = &kernels.curve;
            // The steps of RFC 8032, section 5.1.6. 1. and 2. r
            let to_r = lanes.map(|request| [&request.key.expanded().prefix()[..], &request.message]);
            kernels.hash.hash(w.wide, to_r, space);
            curve.scalar_reduce(w.r, w.wide, space);
            // 3. R
            curve.base_multiple(w.encoded, w.x, w.r, space);
            let first: [_; L] = std::array::from_fn(|lane| get(w.encoded, lane));
            w.rest();
            // 4. k
            let to_k = std::array::from_fn(|lane| {
                let public = lanes[lane].key.public_key();
                [&first[lane][..], public, &lanes[lane].message]
            });
            kernels.hash.hash(w.wide, to_k, space);
            curve.scalar_reduce(w.k, w.wide, space);
            // 5. S
            for (lane, request) in lanes.into_iter().enumerate() {
                set(w.a, lane, request.key.expanded().scalar());
            }
            w.rest();
            curve.scalar_mul_add(w.s, [w.k, w.a, w.r], space);
            let mut signatures: [[[u8; 32]; 2]; L] = std::array::from_fn(|lane| [first[lane], get(w.s, lane)]);
            w.rest();
            // The check, with the other copy of the public key.
            for (lane, request) in lanes.into_iter().enumerate() {
                set(w.encoded, lane, &signatures[lane][0]);
                set(w.s, lane, &signatures[lane][1]);
                set(w.minus_a, lane, request.key.expanded().negative());
            }
            let to_k = std::array::from_fn(|lane| {
                let public = lanes[lane].key.aws_lc().public_key().as_ref();
                [&signatures[lane][0][..], public, &lanes[lane].message]
            });
            kernels.hash.hash(w.wide, to_k, space);
            curve.scalar_reduce(w.k, w.wide, space);
            w.rest();
            curve.scalar_mul_add(w.other_r, [w.k, w.minus_a, w.s], space);
            curve.is_base_multiple(w.different, w.encoded, w.x, w.other_r, space);
            kernels.hash.hash(w.wide, to_r, space);
            curve.scalar_reduce(w.again, w.wide, space);
            for (lane, signature) in signatures[..requests.len()].iter_mut().enumerate() {
                let pairs = w.again.iter().zip(&*w.other_r);
                let differences = pairs.map(|(r, other)| r[lane] ^ other[lane]);
                let fault = differences.fold(w.different[0][lane], |all, difference| all | difference);
                // Public: what leaves is a signature or an error.
                results.push(match secrecy::public(fault == 0) {
                    true => {
                        secrecy::publish(signature);
                        Ok(signature.concat())
                    }
                    false => {
                        signature.zeroize();
                        Err(Error::Fault)
                    }
                });
            }
        });
    }
    results
}

/// Verifies the signatures. All is public.
pub(super) fn verify<const L: usize>(pass: &Pass<L>, requests: &[&Request]) -> Vec<Verdict> {
    let mut answers = Vec::with_capacity(requests.len());
    for requests in requests.chunks(L) {
        pass.with_memory(|kernels, vectors, space| {
            let [wide, s, k, key, out, valid, table] = divide(vectors, [8, 4, 4, 4, 4, 1, Curve25519::<L>::TABLE_LEN]);
            // The steps of RFC 8032, section 5.1.7. 1. and 2. A signature that is none has a lane
            // all the same.
            let lanes: [&Request; L] = std::array::from_fn(|lane| *requests.get(lane).unwrap_or(&requests[0]));
            let parts = lanes.map(|request| halves(&request.signature).unwrap_or_default());
            for (lane, request) in lanes.into_iter().enumerate() {
                set(s, lane, &parts[lane].1);
                set(key, lane, &request.key);
            }
            let to_k = std::array::from_fn(|lane| {
                let request = lanes[lane];
                [&parts[lane].0[..], &request.key, &request.text]
            });
            kernels.hash.hash(wide, to_k, space);
            kernels.curve.scalar_reduce(k, wide, space);
            // 3. R = [S]B - [k]A, without the cofactor, as bytes.
            let read = [&*s, &*k, &*key];
            kernels.curve.base_multiple_less(out, valid, read, table, space);
            for (lane, request) in requests.iter().enumerate() {
                let good = halves(&request.signature).is_some_and(|(first, second)| {
                    is_reduced(&second) && valid[0][lane] == 1 && get(out, lane) == first
                });
                answers.push(if good { Ok(()) } else { Err(VerifyError) });
            }
        });
    }
    answers
}

/// R and S, if the signature has the right length.
fn halves(signature: &[u8]) -> Option<([u8; 32], [u8; 32])> {
    let (first, second) = signature.split_at_checked(32)?;
    Some((first.try_into().ok()?, second.try_into().ok()?))
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

/// Returns whether a public scalar, little-endian, is below l.
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
