//! Nonces for ECDSA: RFC 6979, section 3.2, in the variant of section 3.6 with additional data.
//!
//! The nonce follows from key and message, so that a broken random generator gives no key away,
//! and from fresh random bytes as well, so that making the same signature again, with a fault in
//! between, does not either (Aranha, Orlandi, Takahashi and Zaverucha, "Security of hedged
//! Fiat-Shamir signatures under fault attacks", EUROCRYPT 2020).
//!
//! HMAC is here in the form that this generator needs. Each key serves few short messages, so the
//! crates `rfc6979` and `hmac` take 1.7 to 2 times as long (`docs/decisions/ecdsa-nonces.md`).

use super::{Curve, Scalar, scalar};
use sha2::digest::generic_array::GenericArray;
use sha2::{compress256, compress512};
use std::sync::OnceLock;
use zeroize::{Zeroize, optimization_barrier};

/// Bytes of additional data that a nonce takes: as many random ones as make guessing hopeless, and
/// no more than fit the last block of a hash beside the rest.
pub(crate) const ADDED_BYTES: usize = 16;

/// The nonce for a digest, under the key whose secret is `secret`.
///
/// # Panics
///
/// If the secret or the digest has another length than the curve's scalars.
pub(crate) fn nonce(curve: Curve, secret: &[u8], digest: &[u8], added: &[u8]) -> Scalar {
    let len = curve.bytes();
    assert!(secret.len() == len && digest.len() == len);
    // bits2octets: the digest modulo n, which it exceeds less than once.
    let reduced = reduce(curve, digest);
    // b. and c.
    let mut g = Generator::new(curve);
    // d. to g.
    for separator in [0, 1] {
        g.rekey(&[&[separator], secret, &reduced, added]);
    }
    // h. One output of the hash is as long as the order.
    loop {
        g.next();
        // A value that is refused is never used, so that how many there were tells nothing.
        if let Some(nonce) = scalar(curve, &g.v[..len]) {
            return nonce;
        }
        g.rekey(&[&[0]]);
    }
}

/// `digest mod n`, for a digest below `2 n`.
fn reduce(curve: Curve, digest: &[u8]) -> Vec<u8> {
    let mut less = digest.to_vec();
    let mut borrow = 0;
    for (byte, &order) in less.iter_mut().zip(curve.order()).rev() {
        let difference = i16::from(*byte) - i16::from(order) - borrow;
        *byte = difference as u8;
        borrow = difference >> 8 & 1;
    }
    // Digests are not secret.
    if borrow == 1 { digest.to_vec() } else { less }
}

/// The generator's key and value, K and V in RFC 6979, as HMAC (RFC 2104) uses them: of the key the
/// states after its two blocks. One piece of memory, wiped at the end.
struct Generator {
    inner: State,
    outer: State,
    v: [u8; MAX_LEN],
    message: [u8; MAX_MESSAGE],
}

impl Generator {
    fn new(curve: Curve) -> Self {
        static FIRST_KEY: [OnceLock<[State; 2]>; 2] = [OnceLock::new(), OnceLock::new()];
        let [inner, outer] = FIRST_KEY[curve as usize].get_or_init(|| {
            let state = match curve {
                Curve::P256 => State::Sha256(SHA256),
                Curve::P384 => State::Sha384(SHA384),
            };
            let mut generator = Self::with_key(state.clone(), state);
            generator.set_key(&[0; MAX_LEN]);
            [generator.inner.clone(), generator.outer.clone()]
        });
        Self::with_key(inner.clone(), outer.clone())
    }

    fn with_key(inner: State, outer: State) -> Self {
        Self {
            inner,
            outer,
            v: [1; MAX_LEN],
            message: [0; MAX_MESSAGE],
        }
    }

    /// `K := HMAC(K, V || parts)`, `V := HMAC(K, V)`.
    fn rekey(&mut self, parts: &[&[u8]]) {
        let mut at = self.inner.output();
        self.message[..at].copy_from_slice(&self.v[..at]);
        for part in parts {
            self.message[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let mut key = self.mac(at);
        self.set_key(&key);
        key.zeroize();
        self.next();
    }

    /// `V := HMAC(K, V)`.
    fn next(&mut self) {
        let len = self.inner.output();
        self.message[..len].copy_from_slice(&self.v[..len]);
        self.v = self.mac(len);
    }

    /// The states after the blocks of a key as long as a digest.
    fn set_key(&mut self, key: &[u8; MAX_LEN]) {
        let (block, len) = (self.inner.block(), self.inner.output());
        for (state, pad) in [(&mut self.inner, 0x36), (&mut self.outer, 0x5c)] {
            let padded = &mut self.message[..block];
            padded.fill(pad);
            for (byte, &key) in padded.iter_mut().zip(&key[..len]) {
                *byte ^= key;
            }
            state.restart();
            state.compress(padded);
        }
    }

    /// HMAC of the first `len` bytes of the message, of which nothing is left.
    fn mac(&mut self, len: usize) -> [u8; MAX_LEN] {
        let digest = self.inner.finish(&mut self.message, len);
        let len = self.outer.output();
        self.message[..len].copy_from_slice(&digest[..len]);
        self.outer.finish(&mut self.message, len)
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.v.fill(0);
        self.message.fill(0);
        optimization_barrier(&(&self.v, &self.message));
    }
}

/// The state of a hash function (FIPS 180-4) between two blocks.
#[derive(Clone, Zeroize)]
#[zeroize(drop)]
enum State {
    Sha256([u32; 8]),
    Sha384([u64; 8]),
}

impl State {
    /// Bytes of a block.
    fn block(&self) -> usize {
        match self {
            State::Sha256(_) => 64,
            State::Sha384(_) => 128,
        }
    }

    /// Bytes of a digest.
    fn output(&self) -> usize {
        match self {
            State::Sha256(_) => 32,
            State::Sha384(_) => 48,
        }
    }

    /// The state before the first block.
    fn restart(&mut self) {
        match self {
            State::Sha256(words) => *words = SHA256,
            State::Sha384(words) => *words = SHA384,
        }
    }

    fn compress(&mut self, blocks: &[u8]) {
        let blocks = blocks.chunks_exact(self.block());
        match self {
            State::Sha256(state) => blocks.for_each(|block| {
                compress256(state, std::slice::from_ref(GenericArray::from_slice(block)));
            }),
            State::Sha384(state) => blocks.for_each(|block| {
                compress512(state, std::slice::from_ref(GenericArray::from_slice(block)));
            }),
        }
    }

    /// The digest of one block that came before and of `len` bytes, which are padded in place.
    fn finish(&self, message: &mut [u8; MAX_MESSAGE], len: usize) -> [u8; MAX_LEN] {
        // FIPS 180-4, sections 5.1.1 and 5.1.2: a one, zeros, and the length in an eighth of a
        // block.
        let block = self.block();
        let end = (len + 1 + block / 8).next_multiple_of(block);
        message[len..end].fill(0);
        message[len] = 0x80;
        let bits = 8 * (block + len) as u64;
        message[end - 8..end].copy_from_slice(&bits.to_be_bytes());
        let mut state = self.clone();
        state.compress(&message[..end]);
        let mut digest = [0; MAX_LEN];
        match &state {
            State::Sha256(words) => {
                for (bytes, word) in digest.chunks_exact_mut(4).zip(words) {
                    bytes.copy_from_slice(&word.to_be_bytes());
                }
            }
            State::Sha384(words) => {
                for (bytes, word) in digest.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.to_be_bytes());
                }
            }
        }
        digest
    }
}

/// Bytes of the longer digest, of the longer block, and of the longest padded message.
const MAX_LEN: usize = 48;
const MAX_BLOCK: usize = 128;
const MAX_MESSAGE: usize = 2 * MAX_BLOCK;

// FIPS 180-4, sections 5.3.3 and 5.3.4.
const SHA256: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];
const SHA384: [u64; 8] = [
    0xcbbb9d5dc1059ed8,
    0x629a292a367cd507,
    0x9159015a3070dd17,
    0x152fecd8f70e5939,
    0x67332667ffc00b31,
    0x8eb44a8768581511,
    0xdb0c2e0d64f98fa7,
    0x47b5481dbefa4fa4,
];

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::{digest, hmac};

    fn unhex(text: &str) -> Vec<u8> {
        let digits: Vec<char> = text.chars().collect();
        let byte = |pair: &[char]| {
            let pair: String = pair.iter().collect();
            u8::from_str_radix(&pair, 16).unwrap()
        };
        digits.chunks(2).map(byte).collect()
    }

    /// RFC 6979, appendices A.2.5 and A.2.6.
    #[test]
    fn nonces_of_the_standard() {
        let p256 = "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721";
        let p384 = "6B9D3DAD2E1B8C1C05B19875B6659F4DE23C3B667BF297BA9AA47740787137D8\
                    96D5724E4C70A825F872C9EA60D2EDF5";
        for (curve, secret, message, expected) in [
            (
                Curve::P256,
                p256,
                "sample",
                "A6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60",
            ),
            (
                Curve::P256,
                p256,
                "test",
                "D16B6AE827F17175E040871A1C7EC3500192C4C92677336EC2537ACAEE0008E0",
            ),
            (
                Curve::P384,
                p384,
                "sample",
                "94ED910D1A099DAD3254E9242AE85ABDE4BA15168EAF0CA87A555FD56D10FBCA\
                 2907E3E83BA95368623B8C4686915CF9",
            ),
            (
                Curve::P384,
                p384,
                "test",
                "015EE46A5BF88773ED9123A5AB0807962D193719503C527B031B4C2D225092AD\
                 A71F4A459BC0DA98ADB95837DB8312EA",
            ),
        ] {
            let algorithm = match curve {
                Curve::P256 => &digest::SHA256,
                Curve::P384 => &digest::SHA384,
            };
            let digest = digest::digest(algorithm, message.as_bytes());
            let nonce = nonce(curve, &unhex(secret), digest.as_ref(), &[]);
            assert_eq!(*nonce, unhex(expected), "{curve} {message}");
        }
    }

    #[test]
    fn macs_are_those_of_aws_lc() {
        for (curve, algorithm) in [
            (Curve::P256, hmac::HMAC_SHA256),
            (Curve::P384, hmac::HMAC_SHA384),
        ] {
            let len = curve.bytes();
            for message in 0..=129 {
                let key: Vec<u8> = (0..len).map(|i| (i * 7 + message) as u8).collect();
                let message: Vec<u8> = (0..message).map(|i| (i * 3) as u8).collect();
                let mut generator = Generator::new(curve);
                let mut padded = [0xff; MAX_LEN];
                padded[..len].copy_from_slice(&key);
                generator.set_key(&padded);
                generator.message[..message.len()].copy_from_slice(&message);
                let ours = generator.mac(message.len());
                let theirs = hmac::sign(&hmac::Key::new(algorithm, &key), &message);
                assert_eq!(&ours[..len], theirs.as_ref());
            }
        }
    }

    #[test]
    fn added_data_makes_another_nonce() {
        for curve in Curve::ALL {
            let secret = vec![1; curve.bytes()];
            let digest = vec![0xff; curve.bytes()];
            let one = nonce(curve, &secret, &digest, &[1; ADDED_BYTES]);
            let other = nonce(curve, &secret, &digest, &[2; ADDED_BYTES]);
            assert_ne!(one, other);
            assert_eq!(one, nonce(curve, &secret, &digest, &[1; ADDED_BYTES]));
        }
    }

    /// Nonces of a secret that valgrind follows.
    #[test]
    fn poison_nonces_branch_on_no_secret() {
        crate::secrecy::assert_no_secret_branch(|| {
            for curve in Curve::ALL {
                let secret = vec![1; curve.bytes()];
                let digest = vec![0xff; curve.bytes()];
                let added = [7; ADDED_BYTES];
                widelane_poison::secret(&secret);
                widelane_poison::secret(&added);
                let nonce = nonce(curve, &secret, &digest, &added);
                widelane_poison::public(&nonce);
                assert!(nonce.iter().any(|byte| *byte != 0));
            }
        });
    }
}
