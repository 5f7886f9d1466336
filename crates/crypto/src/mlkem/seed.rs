//! The expansion of one seed in portable Rust, for keys that are loaded.
//!
//! aws-lc-rs takes keys in expanded form only. A key is expanded once, so that nothing here is made
//! to be fast. Everything is constant time in the secrets; the matrix is sampled by rejection, in a
//! time that depends on the seed rho, which is public.

use super::size::{SEED_LEN, Size};
use crate::secrecy;
use aws_lc_rs::digest::{SHA3_256, digest};
use zeroize::Zeroizing;

/// Algorithm 16, ML-KEM.KeyGen_internal: the decapsulation key of a seed `d || z`.
pub(super) fn expand(size: Size, seed: &[u8; SEED_LEN]) -> Zeroizing<Vec<u8>> {
    let rank = size.rank();
    let (d, z) = seed.split_at(32);
    // Algorithm 13, line 1: (rho, sigma) := G(d || k).
    let mut random = Zeroizing::new([0; 64]);
    Sponge::new(SHA3_512, &[d, &[rank as u8]]).squeeze(&mut *random);
    let (rho, sigma) = random.split_at(32);
    // Public: it is the end of the encapsulation key.
    secrecy::publish(rho);
    // Lines 8 to 17: s, e, and their transforms.
    let noise = |number: usize| {
        let mut polynomial = sample_noise(size, sigma, number as u8);
        transform(&mut polynomial);
        polynomial
    };
    let secret: Vec<_> = (0..rank).map(noise).collect();
    // Line 18: t := A s + e; lines 19 and 20, ByteEncode_12.
    let mut public = Vec::with_capacity(size.encapsulation_key_len());
    let mut key = Zeroizing::new(Vec::with_capacity(size.decapsulation_key_len()));
    for (i, s) in secret.iter().enumerate() {
        let mut t = noise(rank + i);
        for (j, s) in secret.iter().enumerate() {
            add_product(&mut t, &sample_uniform(rho, [j as u8, i as u8]), s);
        }
        encode(&mut public, &t);
        encode(&mut key, s);
    }
    public.extend_from_slice(rho);
    // Algorithm 16, line 3: dk := (dk_PKE || ek || H(ek) || z).
    key.extend_from_slice(&public);
    key.extend_from_slice(digest(&SHA3_256, &public).as_ref());
    key.extend_from_slice(z);
    key
}

/// Coefficients below [`Q`].
type Polynomial = Zeroizing<[u32; N]>;

/// Algorithm 7, SampleNTT(rho || index).
fn sample_uniform(rho: &[u8], index: [u8; 2]) -> Polynomial {
    let mut sponge = Sponge::new(SHAKE128, &[rho, &index]);
    let mut polynomial = Zeroizing::new([0; N]);
    let mut count = 0;
    while count < N {
        let mut bytes = [0; 3];
        sponge.squeeze(&mut bytes);
        let [a, b, c] = bytes.map(u32::from);
        for candidate in [a | (b & 0xf) << 8, b >> 4 | c << 4] {
            if candidate < Q && count < N {
                polynomial[count] = candidate;
                count += 1;
            }
        }
    }
    polynomial
}

/// Algorithm 8, SamplePolyCBD, with eta_1 and the output of PRF(sigma, number).
fn sample_noise(size: Size, sigma: &[u8], number: u8) -> Polynomial {
    let eta = match size {
        Size::MlKem512 => 3,
        Size::MlKem768 | Size::MlKem1024 => 2,
    };
    let mut bytes = Zeroizing::new([0; 64 * 3]);
    Sponge::new(SHAKE256, &[sigma, &[number]]).squeeze(&mut bytes[..64 * eta]);
    let bits = |from: usize| -> u32 {
        let bit = |at: usize| u32::from(bytes[at / 8] >> (at % 8) & 1);
        (from..from + eta).map(bit).sum()
    };
    let coefficient = |i| reduce(bits(2 * i * eta) + Q - bits((2 * i + 1) * eta));
    Zeroizing::new(std::array::from_fn(coefficient))
}

/// Algorithm 9, NTT.
fn transform(polynomial: &mut [u32; N]) {
    let mut number = 1;
    for half in (1..=7).rev().map(|log| 1 << log) {
        for block in polynomial.chunks_exact_mut(2 * half) {
            let zeta = ROOTS[reversed(number)];
            number += 1;
            let (low, high) = block.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                let product = reduce(zeta * *high);
                *high = reduce(*low + Q - product);
                *low = reduce(*low + product);
            }
        }
    }
}

/// `sum := sum + a b` of transformed polynomials: algorithms 11 and 12.
fn add_product(sum: &mut [u32; N], a: &[u32; N], b: &[u32; N]) {
    let (sums, _) = sum.as_chunks_mut();
    let factors = a.as_chunks().0.iter().zip(b.as_chunks().0);
    for (i, ([c0, c1], ([a0, a1], [b0, b1]))) in sums.iter_mut().zip(factors).enumerate() {
        let gamma = ROOTS[2 * reversed(i) + 1];
        *c0 = reduce(*c0 + a0 * b0 + reduce(a1 * b1) * gamma);
        *c1 = reduce(*c1 + a0 * b1 + a1 * b0);
    }
}

/// Algorithm 5, ByteEncode_12.
fn encode(to: &mut Vec<u8>, polynomial: &[u32; N]) {
    for [a, b] in polynomial.as_chunks().0 {
        let [bytes @ .., _] = (a | b << 12).to_le_bytes();
        to.extend_from_slice(&bytes);
    }
}

/// `x mod q`, without a division, whose time could depend on it.
fn reduce(x: u32) -> u32 {
    // Too small by at most one: 2^40 / q is rounded down, and x is below 2^32.
    let quotient = ((u64::from(x) * ((1 << 40) / u64::from(Q))) >> 40) as u32;
    let rest = x - quotient * Q;
    let less = rest.wrapping_sub(Q);
    // The highest bit says whether that was too much.
    less.wrapping_add(Q & (less >> 31).wrapping_neg())
}

/// BitRev_7 (section 4.3).
fn reversed(number: usize) -> usize {
    usize::from((number as u8).reverse_bits() >> 1)
}

/// A function of FIPS 202: bytes of a block, and what follows the message, with the first bit of the
/// padding.
type Function = (usize, u8);

/// The output of a function for a message of less than a block.
struct Sponge {
    state: Zeroizing<[u64; 25]>,
    rate: usize,
    /// Bytes of the block that were taken out.
    taken: usize,
}

impl Sponge {
    fn new((rate, suffix): Function, message: &[&[u8]]) -> Self {
        let mut state = Zeroizing::new([0; 25]);
        let message = message.iter().copied().flatten().chain([&suffix]);
        let mut add = |at: usize, byte: u8| state[at / 8] ^= u64::from(byte) << (at % 8 * 8);
        message.enumerate().for_each(|(at, &byte)| add(at, byte));
        add(rate - 1, 0x80);
        permute(&mut state);
        Self {
            state,
            rate,
            taken: 0,
        }
    }

    fn squeeze(&mut self, out: &mut [u8]) {
        for byte in out {
            if self.taken == self.rate {
                permute(&mut self.state);
                self.taken = 0;
            }
            *byte = (self.state[self.taken / 8] >> (self.taken % 8 * 8)) as u8;
            self.taken += 1;
        }
    }
}

/// Keccak-f[1600] (FIPS 202, section 3.3).
fn permute(state: &mut [u64; 25]) {
    for constant in ROUND_CONSTANTS {
        // Section 3.2.1, theta.
        let parity: [u64; 5] = std::array::from_fn(|x| (0..5).fold(0, |p, y| p ^ state[x + 5 * y]));
        for (at, lane) in state.iter_mut().enumerate() {
            *lane ^= parity[(at + 4) % 5] ^ parity[(at + 1) % 5].rotate_left(1);
        }
        // Sections 3.2.2 and 3.2.3, rho and pi, along the one cycle of pi.
        let (mut x, mut y) = (1, 0);
        let mut moved = state[1];
        for t in 0..24 {
            (x, y) = (y, (2 * x + 3 * y) % 5);
            let turned = moved.rotate_left((t + 1) * (t + 2) / 2 % 64);
            moved = std::mem::replace(&mut state[x + 5 * y], turned);
        }
        // Section 3.2.4, chi.
        for row in state.as_chunks_mut::<5>().0 {
            *row = std::array::from_fn(|x| row[x] ^ !row[(x + 1) % 5] & row[(x + 2) % 5]);
        }
        // Section 3.2.5, iota.
        state[0] ^= constant;
    }
}

/// Coefficients of a polynomial.
const N: usize = 256;
const Q: u32 = 3329;

/// The powers of 17, a 256th root of unity.
static ROOTS: [u32; N] = {
    let mut roots = [1; N];
    let mut exponent = 1;
    while exponent < N {
        roots[exponent] = 17 * roots[exponent - 1] % Q;
        exponent += 1;
    }
    roots
};

const SHAKE128: Function = (168, 0x1f);
const SHAKE256: Function = (136, 0x1f);
const SHA3_512: Function = (72, 0x06);

/// FIPS 202, section 3.2.5, algorithm 5.
const ROUND_CONSTANTS: [u64; 24] = [
    0x0000_0000_0000_0001,
    0x0000_0000_0000_8082,
    0x8000_0000_0000_808a,
    0x8000_0000_8000_8000,
    0x0000_0000_0000_808b,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8009,
    0x0000_0000_0000_008a,
    0x0000_0000_0000_0088,
    0x0000_0000_8000_8009,
    0x0000_0000_8000_000a,
    0x0000_0000_8000_808b,
    0x8000_0000_0000_008b,
    0x8000_0000_0000_8089,
    0x8000_0000_0000_8003,
    0x8000_0000_0000_8002,
    0x8000_0000_0000_0080,
    0x0000_0000_0000_800a,
    0x8000_0000_8000_000a,
    0x8000_0000_8000_8081,
    0x8000_0000_0000_8080,
    0x0000_0000_8000_0001,
    0x8000_0000_8000_8008,
];
