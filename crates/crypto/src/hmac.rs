//! HMAC (RFC 2104) with SHA-256 and SHA-384, for keys that serve few short messages.
//!
//! An HMAC of a short message is four blocks of the hash, of which two depend on the key only: here
//! they are hashed once a key, and nothing is allocated, looked up or initialised for a message.
//! What that saves is in docs/decisions/key-schedule.md and docs/decisions/ecdsa-nonces.md.
//!
//! The time taken depends on lengths, never on contents.

use std::marker::PhantomData;
use std::ops::Deref;
use std::slice;

use sha2::digest::generic_array::GenericArray;
use sha2::{compress256, compress512};
use zeroize::{DefaultIsZeroes, Zeroize, Zeroizing};

/// HMAC with a key: the states after the blocks that depend on it only (RFC 2104, section 4). Wiped
/// when dropped.
#[derive(Clone)]
pub struct Hmac<S: Sha2> {
    inner: S::State,
    outer: S::State,
}

impl<S: Sha2> Hmac<S> {
    /// Takes a key of any length.
    pub fn new(key: &[u8]) -> Self {
        let mut block = Zeroizing::new(Bytes::<MAX_BLOCK>::default());
        if key.len() > S::BLOCK {
            let mut hasher = Hasher::<S>::after(S::INITIAL, 0);
            hasher.update(key);
            block.0[..S::LEN].copy_from_slice(&hasher.finish());
        } else {
            block.0[..key.len()].copy_from_slice(key);
        }
        let mut after = |pad: u8| {
            let mut state = S::INITIAL;
            block.0[..S::BLOCK].iter_mut().for_each(|byte| *byte ^= pad);
            S::compress(&mut state, &block.0[..S::BLOCK]);
            state
        };
        Self {
            inner: after(0x36),
            outer: after(0x36 ^ 0x5c),
        }
    }

    /// The code of a message, which `write` gives in parts.
    #[inline]
    pub fn mac(&self, write: impl FnOnce(&mut Hasher<S>)) -> Value<S> {
        let mut inner = self.start();
        write(&mut inner);
        self.end(&mut inner)
    }

    #[inline]
    fn start(&self) -> Hasher<S> {
        Hasher::after(self.inner, S::BLOCK)
    }

    fn end(&self, inner: &mut Hasher<S>) -> Value<S> {
        let mut outer = Hasher::<S>::after(self.outer, S::BLOCK);
        outer.update(&inner.finish());
        outer.finish()
    }
}

impl<S: Sha2> Drop for Hmac<S> {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}

/// A hash value or a code. Wiped when dropped.
pub struct Value<S>(Zeroizing<Bytes<MAX_LEN>>, PhantomData<S>);

impl<S: Sha2> Value<S> {
    /// Makes a value with this byte in all places.
    pub(crate) fn filled(byte: u8) -> Self {
        Self(Zeroizing::new(Bytes([byte; MAX_LEN])), PhantomData)
    }
}

impl<S: Sha2> Deref for Value<S> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0.0[..S::LEN]
    }
}

/// A hash function of the SHA-2 family (FIPS 180-4), as a function of blocks.
pub trait Sha2: Clone + Send + Sync + 'static {
    /// The hash value under way.
    type State: Copy + Zeroize + Send + Sync;
    /// The state before the first block.
    const INITIAL: Self::State;
    /// Bytes of a block.
    const BLOCK: usize;
    /// Bytes of a hash value.
    const LEN: usize;

    /// Takes whole blocks.
    fn compress(state: &mut Self::State, blocks: &[u8]);

    /// The hash value.
    fn value(state: &Self::State) -> Value<Self>;
}

macro_rules! sha2 {
    ($($name:ident, $about:literal: $word:ty, $len:literal, $compress:ident, $initial:expr;)+) => { $(
        #[doc = $about]
        #[derive(Clone)]
        pub struct $name;

        impl Sha2 for $name {
            type State = [$word; 8];
            const INITIAL: Self::State = $initial;
            const BLOCK: usize = 16 * size_of::<$word>();
            const LEN: usize = $len;

            #[inline]
            fn compress(state: &mut Self::State, blocks: &[u8]) {
                for block in blocks.chunks_exact(Self::BLOCK) {
                    $compress(state, slice::from_ref(GenericArray::from_slice(block)));
                }
            }

            #[inline]
            fn value(state: &Self::State) -> Value<Self> {
                let mut value = Value::filled(0);
                let places = value.0.0.chunks_exact_mut(size_of::<$word>());
                for (bytes, word) in places.zip(state) {
                    bytes.copy_from_slice(&word.to_be_bytes());
                }
                value
            }
        }
    )+ };
}

// Initial values: FIPS 180-4, sections 5.3.3 and 5.3.4.
sha2! {
    Sha256, "SHA-256.": u32, 32, compress256, [
        0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a,
        0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19,
    ];
    Sha384, "SHA-384.": u64, 48, compress512, [
        0xcbbb_9d5d_c105_9ed8, 0x629a_292a_367c_d507,
        0x9159_015a_3070_dd17, 0x152f_ecd8_f70e_5939,
        0x6733_2667_ffc0_0b31, 0x8eb4_4a87_6858_1511,
        0xdb0c_2e0d_64f9_8fa7, 0x47b5_481d_befa_4fa4,
    ];
}

/// A hash under way. Wiped when dropped.
pub struct Hasher<S: Sha2> {
    state: S::State,
    /// The beginning of a block that is not whole yet.
    block: Bytes<MAX_BLOCK>,
    filled: usize,
    /// Bytes so far.
    len: u64,
}

impl<S: Sha2> Hasher<S> {
    /// Makes the hasher after `len` bytes of whole blocks, which made `state`.
    #[inline]
    fn after(state: S::State, len: usize) -> Self {
        Self {
            state,
            block: Bytes::default(),
            filled: 0,
            len: len as u64,
        }
    }

    // Both are inlined: where lengths are constants, as in the outer hash, no branch is left.

    /// Takes the next part.
    #[inline(always)]
    pub fn update(&mut self, mut data: &[u8]) {
        self.len += data.len() as u64;
        if self.filled > 0 {
            let (now, rest) = data.split_at(data.len().min(S::BLOCK - self.filled));
            self.block.0[self.filled..][..now.len()].copy_from_slice(now);
            self.filled += now.len();
            data = rest;
            if self.filled < S::BLOCK {
                return;
            }
            S::compress(&mut self.state, &self.block.0[..S::BLOCK]);
            self.filled = 0;
        }
        let (whole, rest) = data.split_at(data.len() / S::BLOCK * S::BLOCK);
        S::compress(&mut self.state, whole);
        self.block.0[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    /// Pads (FIPS 180-4, section 5.1). Nothing may come after it.
    #[inline(always)]
    fn finish(&mut self) -> Value<S> {
        let block = &mut self.block.0[..S::BLOCK];
        block[self.filled] = 0x80;
        block[self.filled + 1..].fill(0);
        // The length is an eighth of a block long; its upper half is zero.
        if self.filled + 1 > S::BLOCK - S::BLOCK / 8 {
            S::compress(&mut self.state, block);
            block.fill(0);
        }
        block[S::BLOCK - 8..].copy_from_slice(&(8 * self.len).to_be_bytes());
        S::compress(&mut self.state, block);
        S::value(&self.state)
    }
}

impl<S: Sha2> Drop for Hasher<S> {
    fn drop(&mut self) {
        self.state.zeroize();
        self.block.zeroize();
    }
}

/// Bytes that are wiped by one store of all of them: `zeroize` stores the bytes of an array one by
/// one, which takes half as long as hashing them does.
#[derive(Clone, Copy)]
struct Bytes<const N: usize>([u8; N]);

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> DefaultIsZeroes for Bytes<N> {}

/// Bytes of the longest hash value, SHA-512's before it is cut to SHA-384's.
const MAX_LEN: usize = 64;
/// Bytes of the longest block.
const MAX_BLOCK: usize = 128;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use aws_lc_rs::hmac::{self, HMAC_SHA256, HMAC_SHA384};

    use super::*;

    #[test]
    fn macs_are_those_of_aws_lc() {
        macs_are_theirs::<Sha256>(HMAC_SHA256);
        macs_are_theirs::<Sha384>(HMAC_SHA384);
    }

    /// Compares MACs of texts of every length to beyond two blocks, given in parts.
    fn macs_are_theirs<S: Sha2>(algorithm: hmac::Algorithm) {
        let text: Vec<u8> = (0..400_u16).map(|i| (i * 7) as u8).collect();
        for n in 0..=2 * MAX_BLOCK + 1 {
            for (key, message) in [(&text[5..][..n], &text[..]), (&text[5..][..S::LEN], &text[..n])] {
                let (first, last) = message.split_at(message.len() / 3);
                let ours = Hmac::<S>::new(key).mac(|hasher| {
                    [first, &[], last].iter().for_each(|part| hasher.update(part));
                });
                let theirs = hmac::sign(&hmac::Key::new(algorithm, key), message);
                assert_eq!(&*ours, theirs.as_ref(), "{n}");
            }
        }
    }

    #[test]
    fn every_state_that_depends_on_a_key_is_wiped() {
        let counted = |act: &dyn Fn()| {
            let before = WIPED.get();
            act();
            WIPED.get() - before
        };
        let hmac = Hmac::<Counted>::new(&[1; 32]);
        assert_eq!(counted(&|| drop(hmac.clone())), 2, "both states");
        assert_eq!(counted(&|| drop(hmac.start())), 1, "a hash that is not finished");
        assert_eq!(
            counted(&|| drop(hmac.mac(|hasher| hasher.update(b"message")))),
            2,
            "both hashes"
        );
        let long = || drop(Hmac::<Counted>::new(&[1; 65]));
        assert_eq!(counted(&long), 3, "the hash of a long key, and both states");
        let boxed = || drop(Box::new(Hmac::<Counted>::new(&[1; 32])) as Box<dyn Send>);
        assert_eq!(counted(&boxed), 2, "through a trait object");

        let mut bytes = Bytes([1; MAX_BLOCK]);
        bytes.zeroize();
        assert_eq!(bytes.0, [0; MAX_BLOCK]);
    }

    thread_local! {
        static WIPED: Cell<usize> = const { Cell::new(0) };
    }

    /// SHA-256 that counts how many of its states are wiped.
    #[derive(Clone)]
    struct Counted;

    #[derive(Clone, Copy)]
    struct CountedState([u32; 8]);

    impl Zeroize for CountedState {
        fn zeroize(&mut self) {
            self.0.zeroize();
            WIPED.set(WIPED.get() + 1);
        }
    }

    impl Sha2 for Counted {
        type State = CountedState;
        const INITIAL: CountedState = CountedState(Sha256::INITIAL);
        const BLOCK: usize = Sha256::BLOCK;
        const LEN: usize = Sha256::LEN;

        fn compress(state: &mut CountedState, blocks: &[u8]) {
            Sha256::compress(&mut state.0, blocks);
        }

        fn value(state: &CountedState) -> Value<Self> {
            Value(Sha256::value(&state.0).0, PhantomData)
        }
    }
}
