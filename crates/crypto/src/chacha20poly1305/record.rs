//! One message through the kernels: RFC 8439, section 2.8, in lanes.
//!
//! Block 0 of the key stream makes the key of Poly1305 (section 2.6); the rest of the first chunks
//! of key stream meets the beginning of the text in a buffer of our own, the *head*: 64 bytes for
//! block 0, then text. What follows are whole pairs of chunks in place, as many bytes as kernels
//! take at a time, and a *tail* that is encrypted in a buffer.
//!
//! Poly1305's sums take the head's buffer first. Block 0, whose bytes are zero by then, counts as
//! four blocks: three that add nothing, and one that is the last block of the additional data,
//! with what came before it. While the kernels encrypt they authenticate what they have encrypted
//! before, or, to open, what they decrypt.

use super::poly1305::{BLOCK, Columns, Number, Poly1305};
use super::{NONCE_LEN, TAG_LEN};
use std::cell::RefCell;
use widelane_cpu::Avx512Ifma;
use widelane_kernels::{ChaCha20Poly1305 as Kernels, Sums, wipe_registers};
use widelane_lanes::{ChaCha20Poly1305 as Source, Multiplier};

/// Seals and opens messages with the kernels of one form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<const L: usize> {
    kernels: Kernels<L>,
    /// Present where the kernels run in vector registers, to wipe those.
    registers: Option<Avx512Ifma>,
}

/// Memory for one message at a time: each thread has its own, without secrets between messages.
#[repr(C, align(64))]
pub(super) struct Workspace<const L: usize> {
    state: State<L>,
    head: [u8; CHUNKS],
    tail: [u8; CHUNKS],
    /// What the head was before it was decrypted.
    text: [u8; CHUNKS],
}

/// What the kernels work with besides text.
#[repr(C, align(64))]
struct State<const L: usize> {
    scratch: [[u64; L]; SCRATCH],
    parameters: [[u64; L]; PARAMETERS],
    sums: [[u64; L]; SUMS],
    power: [[u64; L]; POWER],
    /// `r` to `r^L`.
    powers: [Number; L],
}

/// The thread's workspace for vectors of so many lanes.
pub(super) trait Local: Sized {
    fn with<R>(job: impl FnOnce(&mut Self) -> R) -> R;
}

impl<const L: usize> Record<L>
where
    Workspace<L>: Local,
{
    pub(super) fn new(kernels: Kernels<L>, registers: Option<Avx512Ifma>) -> Self {
        assert!(Kernels::<L>::PARAMETERS <= PARAMETERS);
        assert!(kernels.sums_len() <= SUMS && kernels.power_len() <= POWER);
        assert!(kernels.scratch_len() <= SCRATCH);
        Self { kernels, registers }
    }

    /// Encrypts `text` in place, and gives the tag.
    pub(super) fn seal(
        &self,
        key: &[u32; 8],
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_LEN] {
        Workspace::with(
            |Workspace {
                 state, head, tail, ..
             }| {
                state.set_parameters(key, nonce);
                let mut run = Run {
                    kernels: &self.kernels,
                    state,
                };
                let len = text.len();
                let (start, rest) = text.split_at_mut(len.min(Self::HEAD));
                let mut poly1305 = run.head(head, start);
                start.copy_from_slice(&head[KEY_BLOCK..][..start.len()]);
                let multiplier = self.in_lanes(len);
                match multiplier {
                    Some(multiplier) => {
                        run.begin_sums(multiplier, &mut poly1305, aad);
                        let head = &head[..KEY_BLOCK + start.len()];
                        let last = run.seal(head, rest, &mut tail[..Self::CHUNKS]);
                        run.end_sums(multiplier, &mut poly1305, last);
                    }
                    None => {
                        poly1305.padded(aad);
                        poly1305.padded(start);
                        for (i, piece) in rest.chunks_mut(PIECE).enumerate() {
                            run.encrypt(Self::CHUNKS + i * PIECE, piece, tail);
                            poly1305.padded(piece);
                        }
                    }
                }
                self.wipe(state, multiplier.is_some());
                poly1305.finish(aad.len(), len)
            },
        )
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
            let state = &mut w.state;
            state.set_parameters(key, nonce);
            let mut run = Run {
                kernels: &self.kernels,
                state,
            };
            let len = text.len();
            let (start, rest) = text.split_at_mut(len.min(Self::HEAD));
            let mut poly1305 = run.head(&mut w.head, start);
            let multiplier = self.in_lanes(len);
            if let Some(multiplier) = multiplier {
                run.begin_sums(multiplier, &mut poly1305, aad);
                w.text[..KEY_BLOCK].fill(0);
                w.text[KEY_BLOCK..][..start.len()].copy_from_slice(start);
                let head = &w.text[..KEY_BLOCK + start.len()];
                let last = run.open(head, rest, &mut w.tail[..Self::CHUNKS]);
                run.end_sums(multiplier, &mut poly1305, last);
            } else {
                poly1305.padded(aad);
                poly1305.padded(start);
                poly1305.padded(rest);
            }
            let genuine = is_equal(&poly1305.finish(aad.len(), len), tag);
            if genuine {
                start.copy_from_slice(&w.head[KEY_BLOCK..][..start.len()]);
                if multiplier.is_some() {
                    // The chunks are decrypted by now, the tail in its buffer.
                    let (_, rest) = rest.split_at_mut(Run::<L>::whole(rest.len()));
                    rest.copy_from_slice(&w.tail[..rest.len()]);
                } else {
                    run.encrypt(Self::CHUNKS, rest, &mut w.tail);
                }
            } else {
                text.fill(0);
            }
            // These have plaintext.
            w.head[..Self::CHUNKS.min(KEY_BLOCK + len)].fill(0);
            if len > Self::HEAD {
                w.tail[..Self::CHUNKS].fill(0);
            }
            self.wipe(state, multiplier.is_some());
            genuine
        })
    }

    /// Bytes that most kernels take.
    const CHUNKS: usize = Kernels::<L>::CHUNKS;
    /// Bytes of text that the head has at most.
    const HEAD: usize = Self::CHUNKS - KEY_BLOCK;

    /// How lanes make the sums, if they do: short messages are not worth the powers of `r`.
    fn in_lanes(&self, len: usize) -> Option<Multiplier> {
        self.kernels.multiplier().filter(|multiplier| {
            len >= match multiplier {
                Multiplier::Madd52 => IN_LANES_FROM,
                Multiplier::Mul32 => IN_LANES_FROM_MUL32,
            }
        })
    }

    /// Overwrites keys and what they could be computed from. What stays in the buffers is
    /// ciphertext, and key stream that no text has met.
    fn wipe(&self, state: &mut State<L>, in_lanes: bool) {
        // The memory outlives the call, so that the compiler must keep these writes.
        state.parameters = [[0; L]; PARAMETERS];
        if in_lanes {
            state.sums = [[0; L]; SUMS];
            state.power = [[0; L]; POWER];
            state.powers = [Number::ZERO; L];
            state.scratch[..self.kernels.scratch_len()].fill([0; L]);
        } else {
            state.scratch[..self.kernels.encrypt_scratch_len()].fill([0; L]);
        }
        if let Some(token) = self.registers {
            wipe_registers(token);
        }
    }
}

/// The kernels at work on a message.
struct Run<'a, const L: usize> {
    kernels: &'a Kernels<L>,
    state: &'a mut State<L>,
}

impl<const L: usize> Run<'_, L> {
    /// Bytes of whole pairs of chunks.
    fn whole(len: usize) -> usize {
        len / Kernels::<L>::CHUNKS * Kernels::<L>::CHUNKS
    }

    /// Encrypts the head, which begins with `text`, and takes its block 0 away.
    fn head(&mut self, head: &mut [u8; CHUNKS], text: &[u8]) -> Poly1305 {
        head[KEY_BLOCK..][..text.len()].copy_from_slice(text);
        let len = (KEY_BLOCK + text.len()).next_multiple_of(Kernels::<L>::CHUNK);
        self.at(0);
        let State {
            parameters,
            scratch,
            ..
        } = &mut *self.state;
        let parameters = &parameters[..Kernels::<L>::PARAMETERS];
        self.kernels.encrypt(&mut head[..len], parameters, scratch);
        // Section 2.6: poly1305_key_gen.
        let (block, _) = head
            .split_first_chunk_mut::<KEY_BLOCK>()
            .expect("64 of its bytes");
        let poly1305 = Poly1305::new(block.first_chunk().expect("32 of its bytes"));
        block.fill(0);
        poly1305
    }

    /// Encrypts the text from byte `at` of the key stream, with the help of a buffer.
    fn encrypt(&mut self, mut at: usize, text: &mut [u8], buffer: &mut [u8; CHUNKS]) {
        for piece in text.chunks_mut(Kernels::<L>::CHUNKS) {
            self.at(at);
            at += piece.len();
            let State {
                parameters,
                scratch,
                ..
            } = &mut *self.state;
            let parameters = &parameters[..Kernels::<L>::PARAMETERS];
            let len = piece.len().next_multiple_of(Kernels::<L>::CHUNK);
            if piece.len() == len {
                self.kernels.encrypt(piece, parameters, scratch);
            } else {
                buffer[..piece.len()].copy_from_slice(piece);
                self.kernels
                    .encrypt(&mut buffer[..len], parameters, scratch);
                piece.copy_from_slice(&buffer[..piece.len()]);
            }
        }
    }

    /// Encrypts what follows the head, and authenticates everything except for what it gives back.
    fn seal<'t>(&mut self, head: &'t [u8], rest: &'t mut [u8], tail: &'t mut [u8]) -> &'t [u8] {
        if rest.is_empty() {
            return head;
        }
        let whole = Self::whole(rest.len());
        let (chunks, rest) = rest.split_at_mut(whole);
        let (mut at, mut text) = (Kernels::<L>::CHUNKS, head);
        for chunks in chunks.chunks_exact_mut(Kernels::<L>::CHUNKS) {
            self.both(at, chunks, text);
            at += chunks.len();
            text = chunks;
        }
        if rest.is_empty() {
            return text;
        }
        tail[..rest.len()].copy_from_slice(rest);
        self.both(at, tail, text);
        rest.copy_from_slice(&tail[..rest.len()]);
        rest
    }

    /// Decrypts the chunks that follow the head in place and what follows them in the tail's
    /// buffer, and authenticates everything except for what it gives back.
    fn open<'t>(&mut self, head: &'t [u8], rest: &'t mut [u8], tail: &mut [u8]) -> &'t [u8] {
        if rest.is_empty() {
            return head;
        }
        let whole = Self::whole(rest.len());
        let (chunks, rest) = rest.split_at_mut(whole);
        // The tail first, so that the head has company.
        let mut at = Kernels::<L>::CHUNKS;
        tail[..rest.len()].copy_from_slice(rest);
        self.both(at + chunks.len(), tail, head);
        for chunks in chunks.chunks_exact_mut(Kernels::<L>::CHUNKS) {
            self.at(at);
            at += chunks.len();
            let (kernels, state) = (self.kernels, &mut *self.state);
            let (parameters, mut sums, scratch) = state.arrays(kernels);
            kernels.open(chunks, parameters, &mut sums, scratch);
        }
        rest
    }

    /// Encrypts chunks at byte `at` of the key stream, and authenticates others.
    fn both(&mut self, at: usize, data: &mut [u8], text: &[u8]) {
        self.at(at);
        let (kernels, state) = (self.kernels, &mut *self.state);
        let (parameters, mut sums, scratch) = state.arrays(kernels);
        kernels.both(data, parameters, text, &mut sums, scratch);
    }

    /// Begins the sums: they are zero, `r^L` is known, and so is what the head's first blocks lack.
    fn begin_sums(&mut self, multiplier: Multiplier, poly1305: &mut Poly1305, aad: &[u8]) {
        let powers = &mut self.state.powers;
        powers[0] = poly1305.r();
        for i in 1..L {
            // Short chains: r^(i + 1) from powers of about half of it.
            powers[i] = powers[i / 2].times(powers[i - 1 - i / 2]);
        }
        let highest = powers[L - 1];
        let limbs = multiplier.limbs();
        let power = self.state.power.as_flattened_mut();
        let each = multiplier.power_len();
        for (words, power) in power
            .chunks_mut(each)
            .zip([highest, highest.times(highest)])
        {
            let power = power.to_limbs(multiplier);
            words[..limbs].copy_from_slice(&power[..limbs]);
            for (word, limb) in words[limbs..].iter_mut().zip(&power[1..]) {
                *word = limb * multiplier.fold();
            }
        }
        let first = poly1305.beginning(aad).to_limbs(multiplier);
        let beyond = Number::BEYOND.to_limbs(multiplier);
        let sums = &mut self.state.sums;
        for i in 0..limbs {
            sums[i] = [0; L];
            sums[limbs + i] = std::array::from_fn(|lane| match Source::block_of(lane, L) {
                0..LAST_OF_AAD => 0,
                LAST_OF_AAD => first[i],
                _ => beyond[i],
            });
        }
    }

    /// Authenticates the end of a text in groups, adds the lanes up, and leaves the rest to
    /// `poly1305`.
    fn end_sums(&mut self, multiplier: Multiplier, poly1305: &mut Poly1305, text: &[u8]) {
        let group = Kernels::<L>::GROUP;
        let (groups, rest) = text.split_at(text.len() / group * group);
        let (kernels, state) = (self.kernels, &mut *self.state);
        let (_, mut sums, scratch) = state.arrays(kernels);
        kernels.authenticate(groups, &mut sums, scratch);
        let mut total = Columns::default();
        for lane in 0..L {
            let sum = Number::of_limbs(|i| state.sums[i][lane], multiplier);
            // The first of a group of L blocks is multiplied by r^L, the last one by r.
            total.add(sum, state.powers[L - 1 - Source::block_of(lane, L)]);
        }
        poly1305.set(total.carried());
        poly1305.padded(rest);
    }

    /// Sets the number of the first block: that at byte `at` of the key stream.
    fn at(&mut self, at: usize) {
        let number = u32::try_from(at / KEY_BLOCK).expect("the length was checked");
        self.state.parameters.as_flattened_mut()[Source::COUNTER] = twice(number);
    }
}

impl<const L: usize> State<L> {
    fn set_parameters(&mut self, key: &[u32; 8], nonce: &[u8; NONCE_LEN]) {
        let (nonce, _) = nonce.as_chunks();
        let nonce = nonce.iter().map(|&word| u32::from_le_bytes(word));
        let words = key.iter().copied().chain([0]).chain(nonce);
        for (parameter, word) in self.parameters.as_flattened_mut().iter_mut().zip(words) {
            *parameter = twice(word);
        }
    }

    /// Parameters, sums and scratch space, as long as the kernels want them.
    fn arrays(&mut self, k: &Kernels<L>) -> (&[[u64; L]], Sums<'_, L>, &mut [[u64; L]]) {
        let sums = Sums {
            sums: &mut self.sums[..k.sums_len()],
            power: &self.power[..k.power_len()],
        };
        let parameters = &self.parameters[..Kernels::<L>::PARAMETERS];
        (parameters, sums, &mut self.scratch)
    }
}

impl<const L: usize> Workspace<L> {
    const fn new() -> Self {
        Self {
            state: State {
                scratch: [[0; L]; SCRATCH],
                parameters: [[0; L]; PARAMETERS],
                sums: [[0; L]; SUMS],
                power: [[0; L]; POWER],
                powers: [Number::ZERO; L],
            },
            head: [0; CHUNKS],
            tail: [0; CHUNKS],
            text: [0; CHUNKS],
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

/// A word of 32 bits in both halves of one of 64.
fn twice(word: u32) -> u64 {
    u64::from(word) << 32 | u64::from(word)
}

/// Compares all bits at once; only the verdict, which is public, is looked at.
fn is_equal(a: &[u8; TAG_LEN], b: &[u8; TAG_LEN]) -> bool {
    u128::from_le_bytes(*a) ^ u128::from_le_bytes(*b) == 0
}

/// Bytes of a tag.
pub(super) const TAG: usize = BLOCK;
/// Bytes of the largest pair of chunks.
const CHUNKS: usize = Kernels::<8>::CHUNKS;
/// Bytes of block 0.
const KEY_BLOCK: usize = 64;
/// The block of the head that stands for the additional data.
const LAST_OF_AAD: usize = KEY_BLOCK / BLOCK - 1;
/// Vectors of the longest arrays of any kernel.
const PARAMETERS: usize = Kernels::<4>::PARAMETERS;
const SUMS: usize = 10;
const POWER: usize = 5;
const SCRATCH: usize = 48;
/// Bytes that are encrypted before they are authenticated, in turns: whole pairs of chunks.
const PIECE: usize = 2048;
/// Bytes from which on lanes make the sums, as measured on Zen 5.
const IN_LANES_FROM: usize = 640;
const IN_LANES_FROM_MUL32: usize = 900;
