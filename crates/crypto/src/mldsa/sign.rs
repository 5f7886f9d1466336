//! Signing in lanes (FIPS 204, algorithms 2 and 7): one attempt a lane.
//!
//! Most attempts fail: about four of five for ML-DSA-65. The unit of a run through the kernels is
//! therefore not a request but an attempt, a request and its counter. A request whose attempt
//! failed goes on with the next one beside other requests; where there are fewer requests than
//! lanes, each tries several counters at once, and the lowest one that succeeds is the one of the
//! standard. So lanes are never idle, and a request gains from them even if it is alone.
//!
//! All lanes of a run have one key, whose matrix and vectors are read from memory once for all of
//! them: requests are grouped by key. A server has few keys, and a key that comes alone fills its
//! lanes with attempts.
//!
//! Public are the attempts that succeed, and their number: the standard's own loop shows both. Secret is which check an
//! attempt failed: all checks run, and leave one mask.
//!
//! A signature is completed together with others, from its bytes and the public key only: the
//! response is read back, and the hint is what corrects the verifier's view of the commitment. Then
//! all of it is verified as every verifier does it, with the message hashed again and the hint read
//! back from its bytes. A fault on the way gives an error instead of a signature that is wrong or
//! might tell the key.

use super::hints::{self, HINT_WORDS};
use super::key::PrivateKey;
use super::lanes::{Lanes, MU_WORDS, Pass, RATE, SHAKE_SUFFIX, Space, column, polynomial, polynomial_mut, set};
use super::message::Message;
use super::prepared::Prepared;
use crate::faults;
use crate::secrecy;
use crate::sign::{Error, Outcome};
use std::collections::VecDeque;
use widelane_kernels::Sponge;
use widelane_lanes::{Half, MlDsa as Constants};
use zeroize::Zeroizing;

/// A signature to be made in lanes.
#[derive(Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) key: &'a PrivateKey,
    pub(super) message: Message<'a>,
    /// `rnd`: random bytes, or zeros for a signature that depends on the key and message only.
    pub(super) random: [u8; 32],
}

/// Signs every message, one result each.
pub(super) fn sign<const L: usize>(pass: &Pass<L>, jobs: &[Job<'_>]) -> Vec<Outcome> {
    let mut groups: Vec<(&PrivateKey, Vec<Progress>)> = Vec::new();
    let mut results = vec![Err(Error::Fault); jobs.len()];
    // Before the memory is taken: this takes some as well, if the key is new.
    for job in jobs {
        job.key.prepared(|| pass.prepare(job.key));
    }
    pass.with_space(|lanes, space| {
        for (some, from) in jobs.chunks(L).zip((0..).step_by(L)) {
            for (job, progress) in some.iter().zip(start(lanes, space, some, from)) {
                match groups.iter_mut().find(|(key, _)| key.is_same(job.key)) {
                    Some((_, group)) => group.push(progress),
                    None => groups.push((job.key, vec![progress])),
                }
            }
        }
        for (key, group) in &mut groups {
            let prepared = key.prepared(|| unreachable!("it was prepared above"));
            sign_group(lanes, space, prepared, jobs, group);
        }
    });
    for progress in groups.into_iter().flat_map(|(_, group)| group) {
        if let Some(result) = progress.result {
            results[progress.place] = result;
        }
    }
    results
}

/// A signature on its way.
struct Progress {
    /// Index of the job.
    place: usize,
    mu: [u64; MU_WORDS],
    /// `rho''`, from which masks come.
    seed: Zeroizing<[u64; 8]>,
    /// Attempts made or under way.
    attempts: usize,
    /// Attempts that succeeded, the lowest counter first.
    found: VecDeque<Candidate>,
    result: Option<Outcome>,
}

/// A signature but for its hint, and the high part of its commitment.
struct Candidate {
    signature: Vec<u8>,
    high: Vec<u64>,
}

/// Steps 6 and 7 of algorithm 7 for up to `L` jobs, from place `from` on: `mu`, and
/// `rho'' := H(K || rnd || mu)`.
fn start<const L: usize>(lanes: &Lanes<L>, space: &mut Space<'_, L>, jobs: &[Job<'_>], from: usize) -> Vec<Progress> {
    let count = jobs.len();
    let jobs: [&Job<'_>; L] = std::array::from_fn(|lane| jobs.get(lane).unwrap_or(&jobs[0]));
    let hashes = jobs.map(|job| &job.key.expanded()[HASH_AT..][..64]);
    let mu = lanes.representatives(space, hashes, jobs.map(|job| job.message));
    let mu_bytes = mu.map(|mu| mu.map(u64::to_le_bytes));
    for (lane, job) in jobs.iter().enumerate() {
        let parts = [
            &job.key.expanded()[K_AT..][..32],
            &job.random,
            mu_bytes[lane].as_flattened(),
        ];
        Sponge::Shake256.start(space.state, lane, &parts);
    }
    lanes.keccak.permute(space.state, space.scratch);
    let progress = |lane| Progress {
        place: from + lane,
        mu: mu[lane],
        seed: Zeroizing::new(column(space.state, lane)),
        attempts: 0,
        found: VecDeque::new(),
        result: None,
    };
    (0..count).map(progress).collect()
}

/// Signs everything in a group with one key.
fn sign_group<const L: usize>(
    lanes: &Lanes<L>,
    space: &mut Space<'_, L>,
    prepared: &Prepared,
    jobs: &[Job<'_>],
    group: &mut [Progress],
) {
    loop {
        let mut open = Vec::with_capacity(group.len());
        let mut ready = Vec::with_capacity(L);
        for (place, progress) in group.iter_mut().enumerate() {
            match progress {
                Progress { result: Some(_), .. } => {}
                Progress { found, .. } if !found.is_empty() => ready.push(place),
                Progress { attempts, .. } if *attempts >= MAX_ATTEMPTS => {
                    progress.result = Some(Err(Error::Attempts));
                }
                _ => open.push(place),
            }
        }
        if ready.len() >= L || open.is_empty() && !ready.is_empty() {
            ready.truncate(L);
            complete(lanes, space, prepared, jobs, group, &ready);
        } else if open.is_empty() {
            return;
        } else {
            // In turn, so that each has about as many lanes, and those in the order of counters.
            let mut turn = open.iter().cycle();
            let tries: [(usize, usize); L] = std::array::from_fn(|_| {
                let place = *turn.next().expect("a cycle has no end");
                let attempt = group[place].attempts;
                group[place].attempts += 1;
                (place, attempt)
            });
            attempt(lanes, space, prepared, group, tries);
        }
    }
}

/// One attempt in each lane (algorithm 7, steps 11 to 23 and 32): a place in the group, and how
/// many attempts there were before.
fn attempt<const L: usize>(
    lanes: &Lanes<L>,
    space: &mut Space<'_, L>,
    prepared: &Prepared,
    group: &mut [Progress],
    tries: [(usize, usize); L],
) {
    let (kernels, shape, size) = (&lanes.kernels, lanes.shape, lanes.size);
    let columns = shape.columns;
    let lane_of = |of: &dyn Fn(&Progress) -> u64| tries.map(|(place, _)| of(&group[place]));
    let seed: [[u64; L]; 8] = std::array::from_fn(|i| lane_of(&|progress| progress.seed[i]));
    let seed = Zeroizing::new(seed);
    let mu: [[u64; L]; MU_WORDS] = std::array::from_fn(|i| lane_of(&|progress| progress.mu[i]));

    // 11. y := ExpandMask(rho'', kappa) (algorithm 34), and its transform.
    for i in 0..columns {
        let counter = |(_, attempt): (usize, usize)| {
            // 66 bytes: two of the counter, then the padding begins.
            (columns * attempt + i) as u64 | SHAKE_SUFFIX << 16
        };
        space.state.fill([0; L]);
        space.state[..8].copy_from_slice(&*seed);
        space.state[8] = tries.map(counter);
        space.state[RATE - 1] = [1 << 63; L];
        let len = size.response_words();
        for block in space.words[..len.next_multiple_of(RATE)].chunks_exact_mut(RATE) {
            lanes.keccak.permute(space.state, space.scratch);
            block.copy_from_slice(&space.state[..RATE]);
        }
        let y = polynomial_mut(space.vector, i);
        kernels.mask(y, &space.words[..len], space.scratch);
        let out = polynomial_mut(space.transformed, i);
        kernels.ntt(out, y, space.space, space.scratch);
    }

    space.rest();
    // 12. to 15. w := A y, w1 := HighBits(w), c~ := H(mu || w1).
    let transformed = &space.transformed[..columns * Constants::N];
    kernels.product(space.product, &prepared.matrix, transformed, space.scratch);
    space.message[..MU_WORDS].copy_from_slice(&mu);
    let high = space.message[MU_WORDS..].chunks_exact_mut(size.high_words());
    for (i, high) in high.enumerate() {
        let w = polynomial(space.product, i);
        kernels.inverse(space.plain, w, space.space, space.scratch);
        let low = polynomial_mut(space.low, i);
        kernels.decompose(high, low, space.plain, space.scratch);
    }
    lanes.hash_commitment(space);
    let len = size.challenge_len() / 8;
    let mut hash = [[0; L]; MAX_CHALLENGE_WORDS];
    hash[..len].copy_from_slice(&space.state[..len]);

    space.rest();
    // 16. and 17. c := SampleInBall(c~), and its transform.
    lanes.challenge(space);

    space.rest();
    // 18. to 23. z := y + c s1 and r0 := LowBits(w) - c s2, the low part of w - c s2 where it is
    // small (as in Ducas et al., "CRYSTALS-Dilithium", TCHES 2018, section 3.3): both small enough?
    let bad = &mut space.bad[..1];
    bad.fill([0; L]);
    let pairs = prepared.pairs.chunks_exact(Constants::N);
    for (pair, words) in pairs.enumerate() {
        let challenge = polynomial(space.transformed, columns);
        // The commitment itself is not needed any more.
        let (product, plain) = (polynomial_mut(space.product, 0), &mut *space.plain);
        kernels.scale(product, challenge, words, lanes.offset, space.scratch);
        kernels.inverse(plain, product, space.space, space.scratch);
        for (i, half) in (2 * pair..).zip([Half::Low, Half::High]) {
            if i < columns {
                let len = size.response_words();
                let z = &mut space.response[i * len..][..len];
                let y = polynomial(space.vector, i);
                kernels.respond(bad, z, y, (plain, half), space.scratch);
            } else if i < columns + shape.rows {
                let low = polynomial(space.low, i - columns);
                kernels.low(bad, low, (plain, half), space.scratch);
            }
        }
    }

    space.rest();
    // Public: which attempts succeed, as the standard's own loop shows it. How one failed is not.
    let good = space.bad[0].map(|bad| secrecy::public(bad == 0));
    for (lane, (place, _)) in tries.into_iter().enumerate() {
        if good[lane] {
            let mut signature = Vec::with_capacity(size.signature_len());
            for word in hash[..len].iter().chain(&*space.response) {
                signature.extend_from_slice(&word[lane].to_le_bytes());
            }
            let high = space.message[MU_WORDS..].iter();
            let high: Vec<_> = high.map(|vector| vector[lane]).collect();
            // Public: the response of an attempt that succeeds is distributed the same for every
            // key. With the challenge and t it gives the high part of the commitment; and t is no
            // secret, as signatures tell the part of it that the public key leaves out.
            secrecy::publish(&signature);
            secrecy::publish(&high);
            group[place].found.push_back(Candidate { signature, high });
        }
    }
}

/// Makes the hint of the first candidate of each request at these places (algorithm 7, steps 25 to
/// 33), and verifies the signature (algorithm 8).
fn complete<const L: usize>(
    lanes: &Lanes<L>,
    space: &mut Space<'_, L>,
    prepared: &Prepared,
    jobs: &[Job<'_>],
    group: &mut [Progress],
    places: &[usize],
) {
    let (kernels, shape, size) = (&lanes.kernels, lanes.shape, lanes.size);
    let columns = shape.columns;
    let hash_len = size.challenge_len();
    let progress = |lane| &group[*places.get(lane).unwrap_or(&places[0])];
    // mu again, from the request.
    let jobs: [&Job<'_>; L] = std::array::from_fn(|lane| &jobs[progress(lane).place]);
    let hashes = jobs.map(|job| &job.key.expanded()[HASH_AT..][..64]);
    let mu = lanes.representatives(space, hashes, jobs.map(|job| job.message));
    for (lane, mu) in mu.iter().enumerate() {
        let candidate = &progress(lane).found[0];
        let (hash, response) = candidate.signature.split_at(hash_len);
        set(space.response, lane, response);
        set(space.state, lane, hash);
        for (vector, &word) in space.message.iter_mut().zip(mu.iter().chain(&candidate.high)) {
            vector[lane] = word;
        }
    }
    faults::loaded("commitment", space.message);
    space.rest();

    // Algorithm 8, steps 8 to 13.
    space.bad.fill([0; L]);
    lanes.challenge(space);
    let responses = space.response.chunks_exact(size.response_words());
    for (i, words) in responses.enumerate() {
        let z = polynomial_mut(space.vector, i);
        kernels.response(&mut space.bad[..1], z, words, space.scratch);
        let out = polynomial_mut(space.transformed, i);
        kernels.ntt(out, z, space.space, space.scratch);
    }
    // w' := A z - 2^d c t1 = w - c s2 + c t0, of which the hint brings the high part to that of
    // w - c s2, which is that of w. Step 10, and steps 26 and 33 of algorithm 7.
    kernels.product(space.product, &prepared.matrix, space.transformed, space.scratch);
    let hints = space.hints.chunks_exact_mut(HINT_WORDS);
    let high = space.message[MU_WORDS..].chunks_exact(size.high_words());
    for (i, (hints, high)) in hints.zip(high).enumerate() {
        let product = polynomial(space.product, i);
        kernels.inverse(space.plain, product, space.space, space.scratch);
        let bad = &mut space.bad[..1];
        kernels.make_hint(bad, hints, space.plain, high, space.scratch);
    }
    space.rest();
    // Step 28, where c t0 can be too large.
    let no_addend = [0; Constants::N];
    for words in prepared.t0.chunks_exact(Constants::N) {
        let challenge = polynomial(space.transformed, columns);
        let product = polynomial_mut(space.vector, 0);
        kernels.scale(product, challenge, words, &no_addend, space.scratch);
        kernels.inverse(space.plain, product, space.space, space.scratch);
        kernels.norm44(&mut space.bad[1..], space.plain, space.scratch);
    }
    // The rest of the verification, with the hints that leave: steps 3, 10 and 12 of algorithm 8.
    let packed: Vec<_> = (0..places.len())
        .map(|lane| hints::encode(size, space.hints, lane))
        .collect();
    for (lane, packed) in packed.iter().enumerate() {
        let Some(bytes) = packed else { continue };
        // Nothing of ours is encoded in a way that cannot be decoded.
        let words = hints::decode(size, bytes).unwrap_or_default();
        for (vector, word) in space.hints.iter_mut().zip(words) {
            vector[lane] = word;
        }
    }
    faults::loaded("hints", space.hints);
    let high = space.message[MU_WORDS..].chunks_exact_mut(size.high_words());
    for (i, (high, hints)) in high.zip(space.hints.chunks_exact(HINT_WORDS)).enumerate() {
        // Again: a hint made from a wrong coefficient would be verified with it.
        let product = polynomial(space.product, i);
        kernels.inverse(space.plain, product, space.space, space.scratch);
        kernels.use_hint(high, hints, space.plain, space.scratch);
    }
    space.rest();
    lanes.hash_commitment(space);

    for ((lane, &place), packed) in places.iter().enumerate().zip(packed) {
        let progress = &mut group[place];
        let candidate = progress.found.pop_front();
        let mut signature = candidate.expect("the request is ready").signature;
        if space.bad[1][lane] != 0 {
            // The next one that was found, or another attempt.
            continue;
        }
        let hash = column::<RATE, L>(space.state, lane).map(u64::to_le_bytes);
        if space.bad[0][lane] != 0 || hash.as_flattened()[..hash_len] != signature[..hash_len] {
            progress.result = Some(Err(Error::Fault));
        } else if let Some(packed) = packed {
            signature.extend(packed);
            progress.result = Some(Ok(signature));
        }
    }
}

/// Offsets of `K` and of the hash of the public key in an expanded key (algorithm 24).
const K_AT: usize = 32;
const HASH_AT: usize = 64;
/// Words of the longest `c~`.
const MAX_CHALLENGE_WORDS: usize = 8;
/// Fewest attempts that the standard demands before an error (appendix C): a sound machine never comes near.
const MAX_ATTEMPTS: usize = 814;

#[cfg(test)]
mod tests {
    use super::super::lanes::Kind;
    use super::super::size::Size;
    use super::*;
    use widelane_cpu::{Target, Token};

    /// Injects what would let a fault out: a response, a challenge or a commitment that differs from the computed one.
    /// The request gets an error, and its neighbours their signatures.
    #[test]
    fn a_faulty_lane_gives_no_signature_and_harms_no_neighbour() {
        let Some(token) = Target::available().rev().find_map(Token::<8>::detect) else {
            eprintln!("SKIP: no eight lanes");
            return;
        };
        for size in Size::ALL {
            let lanes = Pass::new(Kind::signing(size), token);
            let key = PrivateKey::from_seed(size, &[1; 32]).unwrap();
            let jobs: Vec<_> = (0..8)
                .map(|i| Job {
                    key: &key,
                    message: Message::plain(b"message"),
                    random: [i; 32],
                })
                .collect();
            let expected = sign(&lanes, &jobs);
            let prepared = key.prepared(|| lanes.prepare(&key));
            let faults: [fn(&mut Candidate, Size); 4] = [
                |candidate, _| candidate.signature[0] ^= 1,
                |candidate, size| candidate.signature[size.challenge_len() + 2] ^= 1,
                |candidate, _| *candidate.signature.last_mut().unwrap() ^= 0x10,
                |candidate, _| candidate.high[5] ^= 1 << 12,
            ];
            for (faulty, fault) in (0..8).zip(faults.into_iter().cycle()) {
                let found = lanes.with_space(|lanes, space| {
                    let mut group = start(lanes, space, &jobs, 0);
                    for place in 0..8 {
                        while group[place].found.is_empty() {
                            let first = group[place].attempts;
                            group[place].attempts += 8;
                            let tries = std::array::from_fn(|lane| (place, first + lane));
                            attempt(lanes, space, prepared, &mut group, tries);
                        }
                    }
                    fault(&mut group[faulty].found[0], size);
                    let places: Vec<_> = (0..8).collect();
                    complete(lanes, space, prepared, &jobs, &mut group, &places);
                    group.into_iter().map(|progress| progress.result).collect::<Vec<_>>()
                });
                for (lane, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    if lane == faulty {
                        assert_ne!(found.as_ref(), Some(expected));
                        assert!(!matches!(found, Some(Ok(_))), "{size} {faulty}");
                    } else if let Some(found) = found {
                        assert_eq!(found, expected);
                    }
                }
                // Almost none has too many hints.
                let answered = found.iter().filter(|found| matches!(found, Some(Ok(_))));
                assert!(answered.count() >= 5);
            }
        }
    }

    #[test]
    fn a_damaged_key_in_memory_gives_no_signatures() {
        let Some(token) = Target::available().rev().find_map(Token::<8>::detect) else {
            eprintln!("SKIP: no eight lanes");
            return;
        };
        let lanes = Pass::new(Kind::signing(Size::MlDsa65), token);
        let good = PrivateKey::from_seed(Size::MlDsa65, &[1; 32]).unwrap();
        for damage in [
            (|prepared| prepared.matrix[1000] ^= 1) as fn(&mut Prepared),
            |prepared| prepared.pairs[300] ^= 1,
        ] {
            let bad = PrivateKey::from_seed(Size::MlDsa65, &[2; 32]).unwrap();
            bad.prepared(|| {
                let mut prepared = lanes.prepare(&bad);
                damage(&mut prepared);
                prepared
            });
            let job = |key| Job {
                key,
                message: Message::plain(b"message"),
                random: [0; 32],
            };
            let jobs = [job(&good), job(&bad), job(&good), job(&bad)];
            let results = sign(&lanes, &jobs);
            assert!(results[0].is_ok() && results[0] == results[2]);
            // Or all attempts fail: c s is anything then.
            assert!(results[1].is_err() && results[3].is_err());
        }
    }
}
