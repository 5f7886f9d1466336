//! One pass: up to `L` requests at once, one a lane.
//!
//! Lanes without a request have zeros for one, and their results are dropped. The steps are those
//! of FIPS 203, whose algorithms are named where they begin; what is hashed is in
//! [`super::hashing`].
//!
//! Everything is constant time in the secrets by construction of the kernels, with one exception
//! that the standard provides for: the matrix is sampled by rejection, in a time that depends on
//! the seed rho and on nothing else, and rho is public.

use super::hashing::Digest;
use super::lanes::{ENCODED, Lanes, POLYNOMIAL, Pass, Work};
use super::parts::Parts;
use crate::Shared;
use crate::secrecy;
use widelane_kernels::Sponge;
use zeroize::Zeroizing;

/// A ciphertext and its secret; [`None`] where the encapsulation key is not reduced modulo q.
pub(super) type Encapsulated = Option<(Vec<u8>, Shared)>;

impl<const L: usize> Pass<L> {
    /// Algorithm 16, ML-KEM.KeyGen_internal: the expanded decapsulation key for each seed `d || z`.
    ///
    /// # Panics
    ///
    /// If there are no seeds, or more than lanes.
    pub(super) fn keygen(&self, seeds: &[[u8; 64]]) -> Vec<Zeroizing<Vec<u8>>> {
        self.with_memory(seeds.len(), |lanes, mut w| {
            // Algorithm 13, line 1: (rho, sigma) := G(d || k).
            for (lane, seed) in seeds.iter().enumerate() {
                set(&mut w.state[..4], lane, &seed[..32]);
            }
            w.state[4] = [lanes.size.rank() as u64; L];
            Sponge::Sha3_512.pad(w.state, 33);
            lanes.keccak.permute(w.state, w.scratch);
            w.rho.copy_from_slice(&w.state[..4]);
            // Public: it is the end of the encapsulation key.
            secrecy::publish(w.rho);
            w.random.copy_from_slice(&w.state[4..8]);
            lanes.prepare(&mut w, None);
            // Lines 8 to 17: s, e, and their transforms.
            let rank = lanes.size.rank();
            lanes.noises(&mut w, 2 * rank, 0);
            // Line 18: t := A s + e; line 19, ByteEncode_12.
            for i in 0..rank {
                lanes.sample_row(&mut w, |j| [j, i]);
                let (s, e) = w.noise.split_at(rank * POLYNOMIAL);
                let e = &e[i * POLYNOMIAL..][..POLYNOMIAL];
                lanes.kernels.product(w.sum, w.row, &s[..rank * POLYNOMIAL], w.scratch);
                let words = &mut w.public[i * ENCODED..][..ENCODED];
                lanes.kernels.encode_sum(words, e, w.sum, w.scratch);
                let words = &mut w.secret[i * ENCODED..][..ENCODED];
                let s = &s[i * POLYNOMIAL..][..POLYNOMIAL];
                lanes.kernels.encode(words, s, w.scratch);
            }
            w.public[rank * ENCODED..].copy_from_slice(w.rho);
            // Algorithm 16, line 3: dk := (dk_PKE || ek || H(ek) || z).
            lanes.hash(&mut w, Digest::Key);
            let key = |(lane, seed): (usize, &[u8; 64])| {
                let mut key = Zeroizing::new(Vec::with_capacity(lanes.size.decapsulation_key_len()));
                for words in [&*w.secret, &*w.public, &*w.hash] {
                    append(&mut key, words, lane);
                }
                key.extend_from_slice(&seed[32..]);
                key
            };
            seeds.iter().enumerate().map(key).collect()
        })
    }

    /// Algorithm 17, ML-KEM.Encaps_internal: a ciphertext and a secret for each encapsulation key
    /// and each `m`.
    ///
    /// # Panics
    ///
    /// If there are no requests, or more than lanes, or a key has another length than its size
    /// says.
    pub(super) fn encapsulate(&self, requests: &[(&[u8], &[u8; 32])]) -> Vec<Encapsulated> {
        self.with_memory(requests.len(), |lanes, mut w| {
            for (lane, (key, m)) in requests.iter().enumerate() {
                set(w.public, lane, key);
                set(w.message, lane, *m);
            }
            lanes.take_rho(&mut w);
            // Line 1: (K, r) := G(m || H(ek)).
            lanes.prepare(&mut w, Some(Digest::Key));
            lanes.derive(&mut w);
            lanes.encrypt(&mut w);
            let answer = |lane| {
                (w.bad[0][lane] == 0).then(|| {
                    let mut ciphertext = Vec::with_capacity(lanes.size.ciphertext_len());
                    append(&mut ciphertext, w.ours, lane);
                    secrecy::publish(&ciphertext);
                    (ciphertext, shared(w.shared, lane))
                })
            };
            (0..requests.len()).map(answer).collect()
        })
    }

    /// Algorithm 18, ML-KEM.Decaps_internal: the secret in each ciphertext.
    ///
    /// # Panics
    ///
    /// If there are no requests, or more than lanes, or a ciphertext has another length than its
    /// size says.
    pub(super) fn decapsulate(&self, requests: &[(Parts<'_>, &[u8])]) -> Vec<Shared> {
        self.with_memory(requests.len(), |lanes, mut w| {
            let rank = lanes.size.rank();
            // Lines 1 to 4.
            for (lane, (key, ciphertext)) in requests.iter().enumerate() {
                set(w.secret, lane, key.secret);
                set(w.public, lane, key.encapsulation_key);
                set(w.hash, lane, key.hash);
                let (z, theirs) = w.theirs.split_at_mut(4);
                set(z, lane, key.z);
                set(theirs, lane, ciphertext);
            }
            lanes.take_rho(&mut w);
            // Line 7: K~ := J(z || c).
            lanes.prepare(&mut w, Some(Digest::Ciphertext));
            // Line 5, algorithm 15: m' := v' - NTT^-1(s . NTT(u')).
            let u_words = lanes.kernels.u_words();
            let (u, v) = w.theirs[4..].split_at(rank * u_words);
            let parts = u.chunks_exact(u_words).zip(w.secret.chunks_exact(ENCODED));
            let polys = w.noise.chunks_exact_mut(POLYNOMIAL);
            let rows = w.row.chunks_exact_mut(POLYNOMIAL);
            for (((u, s), poly), row) in parts.zip(polys).zip(rows) {
                lanes.kernels.decompress_u(poly, u, w.scratch);
                lanes.kernels.ntt(poly, w.scratch);
                lanes.kernels.decode(row, w.bad, s, w.scratch);
            }
            let u = &w.noise[..rank * POLYNOMIAL];
            lanes.kernels.product(w.sum, w.row, u, w.scratch);
            lanes.kernels.inverse_ntt(w.sum, w.scratch);
            lanes.kernels.decompress_v(w.rows, v, w.scratch);
            lanes.kernels.recover(w.message, w.rows, w.sum, w.scratch);
            // Line 6: (K', r') := G(m' || h).
            lanes.derive(&mut w);
            // Lines 8 to 12: c' := K-PKE.Encrypt(ek, m', r'), and K~ where c and c' differ.
            lanes.encrypt(&mut w);
            let ciphertexts = [&*w.ours, &w.theirs[4..]];
            let chosen = &mut w.state[..4];
            lanes
                .kernels
                .choose(chosen, ciphertexts, w.shared, w.rejected, w.scratch);
            (0..requests.len()).map(|lane| shared(chosen, lane)).collect()
        })
    }

    /// Runs a pass on memory for `requests` requests.
    fn with_memory<T>(&self, requests: usize, pass: impl FnOnce(&Lanes<L>, Work<'_, L>) -> T) -> T {
        assert!((1..=L).contains(&requests), "{requests} requests");
        let lanes = &self.kernels;
        self.run(|space| pass(lanes, Work::new(lanes, space.arena.vectors(), requests)))
    }
}

impl<const L: usize> Lanes<L> {
    /// `rho`, the last part of the encapsulation key in `public`.
    fn take_rho(&self, w: &mut Work<'_, L>) {
        w.rho.copy_from_slice(&w.public[self.size.rank() * ENCODED..]);
    }

    /// Algorithm 14, K-PKE.Encrypt: `ours` is the ciphertext of `message` for the key in `public`,
    /// with the randomness `random`; `bad` tells whether the key is reduced modulo q.
    fn encrypt(&self, w: &mut Work<'_, L>) {
        let rank = self.size.rank();
        // Lines 9 to 17, and 18: y with its transform, e1, e2.
        self.noises(w, rank, rank + 1);
        // Lines 19 and 22: u := NTT^-1(A^T y) + e1, compressed.
        let u_words = self.kernels.u_words();
        for i in 0..rank {
            self.sample_row(w, |j| [i, j]);
            let (y, errors) = w.noise.split_at(rank * POLYNOMIAL);
            self.kernels.product(w.sum, w.row, y, w.scratch);
            self.kernels.inverse_ntt(w.sum, w.scratch);
            let error = &errors[i * POLYNOMIAL..][..POLYNOMIAL];
            let words = &mut w.ours[i * u_words..][..u_words];
            self.kernels.compress_u(words, w.sum, error, w.scratch);
        }
        // Line 2, and the check of section 7.2.
        w.bad[0] = [0; L];
        let encoded = w.public.chunks_exact(ENCODED);
        for (poly, words) in w.row.chunks_exact_mut(POLYNOMIAL).zip(encoded) {
            self.kernels.decode(poly, w.bad, words, w.scratch);
        }
        // Lines 20, 21 and 23: v := NTT^-1(t . y) + e2 + mu, compressed.
        let (y, errors) = w.noise.split_at(rank * POLYNOMIAL);
        self.kernels.product(w.sum, w.row, y, w.scratch);
        self.kernels.inverse_ntt(w.sum, w.scratch);
        self.kernels.message(w.rows, w.message, w.scratch);
        let error = &errors[rank * POLYNOMIAL..];
        let words = &mut w.ours[rank * u_words..];
        self.kernels.compress_v(words, w.sum, error, w.rows, w.scratch);
    }
}

/// Puts bytes into a lane.
fn set<const L: usize>(to: &mut [[u64; L]], lane: usize, bytes: &[u8]) {
    assert_eq!(8 * to.len(), bytes.len());
    for (vector, word) in to.iter_mut().zip(bytes.as_chunks().0) {
        vector[lane] = u64::from_le_bytes(*word);
    }
}

/// Takes the bytes out of a lane.
fn append<const L: usize>(to: &mut Vec<u8>, from: &[[u64; L]], lane: usize) {
    let len = to.len();
    to.resize(len + 8 * from.len(), 0);
    for (bytes, vector) in to[len..].as_chunks_mut().0.iter_mut().zip(from) {
        *bytes = vector[lane].to_le_bytes();
    }
}

/// Takes 32 bytes out of a lane.
fn shared<const L: usize>(from: &[[u64; L]], lane: usize) -> Shared {
    let mut secret = Zeroizing::new([0; 32]);
    for (bytes, vector) in secret.as_chunks_mut().0.iter_mut().zip(from) {
        *bytes = vector[lane].to_le_bytes();
    }
    Shared::new(&*secret)
}
