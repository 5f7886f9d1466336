//! Verification in lanes (FIPS 204, algorithms 3 and 8): one signature a lane, each with its own
//! key, as clients have them.
//!
//! The matrix of each key is expanded row by row into a lane, which is most of the work; nothing is
//! kept of a key that may never come again. All this is public: time may depend on it.

use super::hints::{self, HINT_WORDS};
use super::lanes::{Lanes, MU_WORDS, Pass, Space, column, polynomial_mut, set};
use super::message::Message;
use super::size::Size;
use crate::sign::VerifyError;
use widelane_lanes::MlDsa as Constants;

/// A signature to be verified in lanes.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) key: &'a [u8],
    pub(super) message: Message<'a>,
    pub(super) signature: &'a [u8],
}

/// Verifies every signature, one result each.
pub(super) fn verify<const L: usize>(passes: &Pass<L>, claims: &[Claim<'_>]) -> Vec<Result<(), VerifyError>> {
    let mut results = vec![Err(VerifyError); claims.len()];
    // Signatures that cannot be decoded take no lane.
    let mut decoded = Vec::with_capacity(claims.len());
    for (place, claim) in claims.iter().enumerate() {
        match decode(passes.family.size, claim.signature) {
            Ok(signature) => decoded.push((place, claim, signature)),
            Err(error) => results[place] = Err(error),
        }
    }
    for some in decoded.chunks(L) {
        let inputs = std::array::from_fn(|lane| {
            let (_, claim, signature) = some.get(lane).unwrap_or(&some[0]);
            (*claim, signature)
        });
        let valid = passes.with_space(|lanes, space| pass(lanes, space, inputs));
        for (&(place, ..), valid) in some.iter().zip(valid) {
            if valid {
                results[place] = Ok(());
            }
        }
    }
    results
}

/// A signature taken apart (algorithm 27).
struct Signature<'a> {
    hash: &'a [u8],
    response: &'a [u8],
    /// A bit for each coefficient.
    hints: Vec<u64>,
}

fn decode(size: Size, signature: &[u8]) -> Result<Signature<'_>, VerifyError> {
    if signature.len() != size.signature_len() {
        return Err(VerifyError);
    }
    let (hash, rest) = signature.split_at(size.challenge_len());
    let shape = size.shape();
    let (response, packed) = rest.split_at(shape.columns * size.response_words() * 8);
    Ok(Signature {
        hash,
        response,
        hints: hints::decode(size, packed).ok_or(VerifyError)?,
    })
}

/// Returns for each lane whether its signature is valid.
fn pass<const L: usize>(
    lanes: &Lanes<L>,
    space: &mut Space<'_, L>,
    inputs: [(&Claim<'_>, &Signature<'_>); L],
) -> [bool; L] {
    let (kernels, shape, size) = (&lanes.kernels, lanes.shape, lanes.size);
    let columns = shape.columns;
    let claims = inputs.map(|(claim, _)| claim);

    // Steps 6 and 7: tr, and mu.
    let bytes = claims.map(|claim| [claim.key]);
    lanes.shake256(space, bytes.each_ref().map(|bytes| bytes.as_slice()));
    let hashes: [[u64; 8]; L] = std::array::from_fn(|lane| column(space.state, lane));
    let hashes = hashes.map(|hash| hash.map(u64::to_le_bytes));
    let hashes = hashes.each_ref().map(|hash| hash.as_flattened());
    let mu = lanes.representatives(space, hashes, claims.map(|claim| claim.message));

    // Step 8, and the transform of c.
    for (lane, (_, signature)) in inputs.iter().enumerate() {
        set(space.state, lane, signature.hash);
        set(space.response, lane, signature.response);
        for (vector, &word) in space.message.iter_mut().zip(&mu[lane]) {
            vector[lane] = word;
        }
        for (vector, &word) in space.hints.iter_mut().zip(&signature.hints) {
            vector[lane] = word;
        }
    }
    lanes.challenge(space);

    // Checks the norm of z (step 13).
    let mut bad = [[0; L]];
    let responses = space.response.chunks_exact(size.response_words());
    for (i, words) in responses.enumerate() {
        let z = polynomial_mut(space.vector, i);
        kernels.response(&mut bad, z, words, space.scratch);
        let out = polynomial_mut(space.transformed, i);
        kernels.ntt(out, z, space.space, space.scratch);
    }

    // Steps 5, 9 and 10, a row at a time: w1' := UseHint(h, A z - 2^d c t1).
    let keys = claims.map(|claim| claim.key);
    let seeds = lanes.seeds(keys);
    for row in 0..shape.rows {
        for column in 0..columns {
            lanes.expand(space, column, &seeds, [(row, column); L]);
        }
        lanes.high_key(space, columns, keys, [row; L]);
        let entries = &space.low[..(columns + 1) * Constants::N];
        let w = polynomial_mut(space.product, 0);
        kernels.row(w, entries, space.transformed, space.scratch);
        kernels.inverse(space.plain, w, space.space, space.scratch);
        let high = &mut space.message[MU_WORDS + row * size.high_words()..][..size.high_words()];
        let hints = &space.hints[row * HINT_WORDS..][..HINT_WORDS];
        kernels.use_hint(high, hints, space.plain, space.scratch);
    }

    // Steps 12 and 13.
    lanes.hash_commitment(space);
    std::array::from_fn(|lane| {
        let mut hash = space.state.iter().map(|word| word[lane].to_le_bytes());
        let (expected, _) = inputs[lane].1.hash.as_chunks();
        bad[0][lane] == 0 && expected.iter().all(|word| hash.next() == Some(*word))
    })
}
