//! One message through the kernels: RFC 8439, section 2.8, in lanes.
//!
//! Block 0 of the key stream makes the key of Poly1305 (section 2.6); the rest of the first chunk
//! of key stream meets the beginning of the text in a buffer of our own, the *head*: 64 bytes for
//! block 0, then text. What follows are whole chunks in place, and a *tail* that is encrypted in a
//! buffer.
//!
//! Poly1305's sums take the head's buffer first. Block 0, whose bytes are zero by then, counts as
//! four blocks: three that add nothing, and one that is the last block of the additional data,
//! with what came before it. While the kernels encrypt a chunk they authenticate the chunk before
//! it, or, to open, the same.

use super::poly1305::{BLOCK, Number, Poly1305};
use super::{NONCE_LEN, TAG_LEN};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use std::cell::RefCell;
use widelane_kernels::{ChaCha20Poly1305 as Kernels, PARAMETERS, Sums};
use widelane_lanes::ChaCha20Poly1305 as Source;

/// Seals and opens messages with the kernels of one form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<const L: usize> {
    kernels: Kernels<L>,
}

/// Memory for one message at a time: each thread has its own, all zeros between messages.
#[repr(C, align(64))]
pub(super) struct Workspace<const L: usize> {
    head: [u8; CHUNK],
    tail: [u8; CHUNK],
    text: [u8; CHUNK],
    parameters: [[u64; L]; PARAMETERS],
    sums: [[u64; L]; SUMS],
    power: [[u64; L]; POWER],
    scratch: [[u64; L]; SCRATCH],
}

/// The thread's workspace for vectors of so many lanes.
pub(super) trait Local: Sized {
    fn with<R>(job: impl FnOnce(&mut Self) -> R) -> R;
}

impl<const L: usize> Record<L>
where
    Workspace<L>: Local,
{
    pub(super) fn new(kernels: Kernels<L>) -> Self {
        assert!(
            kernels.scratch_len() <= SCRATCH,
            "{}",
            kernels.scratch_len()
        );
        Self { kernels }
    }

    /// Encrypts `text` in place, and gives the tag.
    pub(super) fn seal(
        &self,
        key: &[u32; 8],
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_LEN] {
        Workspace::with(|w| {
            let mut poly1305 = self.begin(w, key, nonce, text);
            let len = text.len();
            let (head, rest) = text.split_at_mut(len.min(Self::HEAD));
            head.copy_from_slice(&w.head[KEY_BLOCK..][..head.len()]);
            if self.in_lanes(len) {
                self.set_sums(w, &mut poly1305, aad);
                self.seal_rest(w, &mut poly1305, head.len(), rest);
            } else {
                poly1305.padded(aad);
                poly1305.padded(head);
                for piece in rest.chunks_mut(PIECE) {
                    self.encrypt(w, piece);
                    poly1305.padded(piece);
                }
            }
            w.wipe(len, Self::CHUNK);
            poly1305.finish(aad.len(), len)
        })
    }

    /// Decrypts `text` in place if the tag is that of its ciphertext; otherwise overwrites it.
    pub(super) fn open(
        &self,
        key: &[u32; 8],
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        Workspace::with(|w| {
            let mut poly1305 = self.begin(w, key, nonce, text);
            let len = text.len();
            let genuine;
            if self.in_lanes(len) {
                self.set_sums(w, &mut poly1305, aad);
                self.open_in_lanes(w, &mut poly1305, text);
                genuine = is_equal(&poly1305.finish(aad.len(), len), tag);
                if genuine {
                    let (head, rest) = text.split_at_mut(len.min(Self::HEAD));
                    head.copy_from_slice(&w.head[KEY_BLOCK..][..head.len()]);
                    let tail = rest.len() % Self::CHUNK;
                    let (_, rest) = rest.split_at_mut(rest.len() - tail);
                    rest.copy_from_slice(&w.tail[..tail]);
                } else {
                    text.fill(0);
                }
            } else {
                poly1305.padded(aad);
                poly1305.padded(text);
                genuine = is_equal(&poly1305.finish(aad.len(), len), tag);
                if genuine {
                    let (head, rest) = text.split_at_mut(len.min(Self::HEAD));
                    head.copy_from_slice(&w.head[KEY_BLOCK..][..head.len()]);
                    self.encrypt(w, rest);
                } else {
                    text.fill(0);
                }
            }
            w.wipe(len, Self::CHUNK);
            genuine
        })
    }

    /// Bytes of a chunk.
    const CHUNK: usize = Kernels::<L>::CHUNK;
    /// Bytes of text that the head has.
    const HEAD: usize = Self::CHUNK - KEY_BLOCK;

    /// Whether lanes make the sums: short messages are not worth the powers of `r`.
    fn in_lanes(&self, len: usize) -> bool {
        self.kernels.multiplier().is_some() && len >= IN_LANES_FROM
    }

    /// Sets the parameters, encrypts the head in its buffer, and takes its key block away.
    fn begin(
        &self,
        w: &mut Workspace<L>,
        key: &[u32; 8],
        nonce: &[u8; NONCE_LEN],
        text: &[u8],
    ) -> Poly1305 {
        for (vector, &word) in w.parameters.iter_mut().zip(key) {
            *vector = everywhere(word);
        }
        w.parameters[COUNTER] = everywhere(0);
        let (words, _) = nonce.as_chunks();
        for (vector, &word) in w.parameters[COUNTER + 1..].iter_mut().zip(words) {
            *vector = everywhere(u32::from_le_bytes(word));
        }
        let text = &text[..text.len().min(Self::HEAD)];
        w.head[KEY_BLOCK..][..text.len()].copy_from_slice(text);
        let head = &mut w.head[..Self::CHUNK];
        self.kernels
            .encrypt(head, &mut w.parameters, &mut w.scratch);
        // Section 2.6: poly1305_key_gen.
        let (block, _) = head
            .split_first_chunk_mut::<KEY_BLOCK>()
            .expect("64 of its bytes");
        let poly1305 = Poly1305::new(block.first_chunk().expect("32 of its bytes"));
        block.fill(0);
        poly1305
    }

    /// Encrypts whole chunks in place and a last one, if it is shorter, by way of the tail.
    fn encrypt(&self, w: &mut Workspace<L>, text: &mut [u8]) {
        let mut chunks = text.chunks_exact_mut(Self::CHUNK);
        for chunk in &mut chunks {
            self.kernels
                .encrypt(chunk, &mut w.parameters, &mut w.scratch);
        }
        let rest = chunks.into_remainder();
        if !rest.is_empty() {
            let tail = &mut w.tail[..Self::CHUNK];
            tail[..rest.len()].copy_from_slice(rest);
            self.kernels
                .encrypt(tail, &mut w.parameters, &mut w.scratch);
            rest.copy_from_slice(&tail[..rest.len()]);
        }
    }

    /// `r^L`, sums of nothing, and what the head's first blocks lack.
    fn set_sums(&self, w: &mut Workspace<L>, poly1305: &mut Poly1305, aad: &[u8]) {
        let Some(multiplier) = self.kernels.multiplier() else {
            return;
        };
        let (bits, limbs) = (multiplier.limb_bits(), multiplier.limbs());
        let powers = powers::<L>(poly1305.r());
        for i in 0..limbs {
            let limb = powers[L - 1].limb(i, bits);
            w.power[i] = [limb; L];
            if i > 0 {
                w.power[limbs - 1 + i] = [limb * multiplier.fold(); L];
            }
        }
        let first = poly1305.beginning(aad);
        let addend: [Number; L] = std::array::from_fn(|lane| match Source::block_of(lane, L) {
            0..LAST_OF_AAD => Number::default(),
            LAST_OF_AAD => first,
            _ => Number([0, 0, 1]),
        });
        for i in 0..limbs {
            w.sums[i] = [0; L];
            w.sums[limbs + i] = addend.map(|number| number.limb(i, bits));
        }
    }

    /// Encrypts what follows the head, and authenticates everything.
    fn seal_rest(
        &self,
        w: &mut Workspace<L>,
        poly1305: &mut Poly1305,
        head: usize,
        rest: &mut [u8],
    ) {
        let k = &self.kernels;
        if rest.is_empty() {
            let (sums, head, scratch) = w.sums_of_head(k, head);
            return finish_sums(k, sums, poly1305, head, scratch);
        }
        let whole = rest.len() / Self::CHUNK * Self::CHUNK;
        let mut sums = Sums {
            sums: sums_of(&mut w.sums, k),
            power: power_of(&w.power, k),
        };
        let mut before = 0;
        for at in (0..whole).step_by(Self::CHUNK) {
            let (done, chunk) = rest.split_at_mut(at);
            let text = if at == 0 {
                &w.head[..Self::CHUNK]
            } else {
                &done[before..]
            };
            let chunk = &mut chunk[..Self::CHUNK];
            k.both(chunk, &mut w.parameters, text, &mut sums, &mut w.scratch);
            before = at;
        }
        let (done, rest) = rest.split_at_mut(whole);
        let text = if whole == 0 {
            &w.head[..Self::CHUNK]
        } else {
            &done[before..]
        };
        if rest.is_empty() {
            k.authenticate(text, &mut sums, &mut w.scratch);
        } else {
            let tail = &mut w.tail[..Self::CHUNK];
            tail[..rest.len()].copy_from_slice(rest);
            k.both(tail, &mut w.parameters, text, &mut sums, &mut w.scratch);
            rest.copy_from_slice(&tail[..rest.len()]);
        }
        finish_sums(k, sums, poly1305, rest, &mut w.scratch);
    }

    /// Authenticates everything, and decrypts the chunks in place and the tail in its buffer.
    fn open_in_lanes(&self, w: &mut Workspace<L>, poly1305: &mut Poly1305, text: &mut [u8]) {
        let k = &self.kernels;
        let (head, rest) = text.split_at_mut(text.len().min(Self::HEAD));
        w.text[KEY_BLOCK..][..head.len()].copy_from_slice(head);
        let mut sums = Sums {
            sums: sums_of(&mut w.sums, k),
            power: power_of(&w.power, k),
        };
        if rest.is_empty() {
            let head = &w.text[..KEY_BLOCK + head.len()];
            return finish_sums(k, sums, poly1305, head, &mut w.scratch);
        }
        let whole = rest.len() / Self::CHUNK * Self::CHUNK;
        let (chunks, rest) = rest.split_at_mut(whole);
        let text = &w.text[..Self::CHUNK];
        if rest.is_empty() {
            k.authenticate(text, &mut sums, &mut w.scratch);
        } else {
            // The tail first, so that the head has company.
            let tail = &mut w.tail[..Self::CHUNK];
            tail[..rest.len()].copy_from_slice(rest);
            let second = w.parameters[COUNTER];
            w.parameters[COUNTER] = everywhere(counter(Self::CHUNK + whole));
            k.both(tail, &mut w.parameters, text, &mut sums, &mut w.scratch);
            w.parameters[COUNTER] = second;
        }
        for chunk in chunks.chunks_exact_mut(Self::CHUNK) {
            k.open(chunk, &mut w.parameters, &mut sums, &mut w.scratch);
        }
        finish_sums(k, sums, poly1305, rest, &mut w.scratch);
    }
}

impl<const L: usize> Workspace<L> {
    const fn new() -> Self {
        Self {
            head: [0; CHUNK],
            tail: [0; CHUNK],
            text: [0; CHUNK],
            parameters: [[0; L]; PARAMETERS],
            sums: [[0; L]; SUMS],
            power: [[0; L]; POWER],
            scratch: [[0; L]; SCRATCH],
        }
    }

    fn sums_of_head(
        &mut self,
        k: &Kernels<L>,
        len: usize,
    ) -> (Sums<'_, L>, &[u8], &mut [[u64; L]]) {
        let sums = Sums {
            sums: sums_of(&mut self.sums, k),
            power: power_of(&self.power, k),
        };
        (sums, &self.head[..KEY_BLOCK + len], &mut self.scratch)
    }

    /// Overwrites what a message of `len` bytes has left.
    fn wipe(&mut self, len: usize, chunk: usize) {
        // The memory outlives the call, so that the compiler must keep these writes.
        self.head[..chunk].fill(0);
        self.parameters = [[0; L]; PARAMETERS];
        self.scratch = [[0; L]; SCRATCH];
        if len >= IN_LANES_FROM {
            self.tail[..chunk].fill(0);
            self.text[..chunk].fill(0);
            self.sums = [[0; L]; SUMS];
            self.power = [[0; L]; POWER];
        }
    }
}

impl Local for Workspace<4> {
    fn with<R>(job: impl FnOnce(&mut Self) -> R) -> R {
        thread_local! {
            static WORKSPACE: RefCell<Workspace<4>> = const { RefCell::new(Workspace::new()) };
        }
        WORKSPACE.with_borrow_mut(job)
    }
}

impl Local for Workspace<8> {
    fn with<R>(job: impl FnOnce(&mut Self) -> R) -> R {
        thread_local! {
            static WORKSPACE: RefCell<Workspace<8>> = const { RefCell::new(Workspace::new()) };
        }
        WORKSPACE.with_borrow_mut(job)
    }
}

/// Takes the end of a text in steps, adds the lanes up, and leaves it to `poly1305` to go on.
fn finish_sums<const L: usize>(
    k: &Kernels<L>,
    mut sums: Sums<'_, L>,
    poly1305: &mut Poly1305,
    text: &[u8],
    scratch: &mut [[u64; L]],
) {
    let whole = text.len() / Kernels::<L>::STEP * Kernels::<L>::STEP;
    let (steps, rest) = text.split_at(whole);
    k.authenticate(steps, &mut sums, scratch);
    let Some(multiplier) = k.multiplier() else {
        return;
    };
    let powers = powers::<L>(poly1305.r());
    let mut total = Number::default();
    for lane in 0..L {
        let limbs = sums.sums[..multiplier.limbs()]
            .iter()
            .map(|limb| limb[lane]);
        let sum = Number::of_limbs(limbs, multiplier.limb_bits());
        // The first of a group of L blocks is multiplied by r^L, the last one by r.
        let power = powers[L - 1 - Source::block_of(lane, L)];
        total = total.plus(sum.times(power));
    }
    poly1305.set(total);
    poly1305.padded(rest);
}

/// `r^1` to `r^L`.
fn powers<const L: usize>(r: Number) -> [Number; L] {
    let mut powers = [r; L];
    for i in 1..L {
        // Short chains: r^(i + 1) from powers of about half of it.
        powers[i] = powers[i / 2].times(powers[i - 1 - i / 2]);
    }
    powers
}

fn sums_of<'a, const L: usize>(
    sums: &'a mut [[u64; L]; SUMS],
    k: &Kernels<L>,
) -> &'a mut [[u64; L]] {
    let len = k
        .multiplier()
        .map_or(0, |multiplier| 2 * multiplier.limbs());
    &mut sums[..len]
}

fn power_of<'a, const L: usize>(power: &'a [[u64; L]; POWER], k: &Kernels<L>) -> &'a [[u64; L]] {
    let len = k
        .multiplier()
        .map_or(0, |multiplier| multiplier.power_len());
    &power[..len]
}

/// A word of 32 bits in all places of a vector.
fn everywhere<const L: usize>(word: u32) -> [u64; L] {
    [u64::from(word) << 32 | u64::from(word); L]
}

/// The number of the block at byte `at` of the key stream.
fn counter(at: usize) -> u32 {
    u32::try_from(at / KEY_BLOCK).expect("the length was checked")
}

fn is_equal(a: &[u8; TAG_LEN], b: &[u8; TAG_LEN]) -> bool {
    verify_slices_are_equal(a, b).is_ok()
}

/// Bytes of a tag.
pub(super) const TAG: usize = BLOCK;
/// Bytes of the largest chunk.
const CHUNK: usize = Kernels::<8>::CHUNK;
/// Bytes of block 0.
const KEY_BLOCK: usize = 64;
/// The block of the head that stands for the additional data.
const LAST_OF_AAD: usize = KEY_BLOCK / BLOCK - 1;
/// Where the number of the first block stands in the parameters.
const COUNTER: usize = 8;
/// Vectors of the largest sums and powers, and of scratch space.
const SUMS: usize = 10;
const POWER: usize = 9;
const SCRATCH: usize = 32;
/// Bytes that are encrypted before they are authenticated, in turns.
const PIECE: usize = 2048;
/// Bytes from which on lanes make the sums, as measured.
const IN_LANES_FROM: usize = 512;
