//! One message through the kernels: RFC 8439, section 2.8, in lanes.
//!
//! Block 0 of the key stream makes the key of Poly1305 (section 2.6). A text that fits into one
//! call of a kernel beside block 0 is encrypted in a buffer, with block 0 before it. For a longer
//! one block 0 is made by itself, so that the text meets whole calls in its own place: 16 KiB are
//! eight calls, or sixteen, and no byte beyond.
//!
//! Poly1305's sums begin with what the additional data comes to, added to the first block of the
//! text.

mod stream;

pub(super) use stream::State as Stream;

use super::block::{BLOCK as KEY_BLOCK, Initial};
use super::poly1305::{BLOCK, Columns, Number, Poly1305};
use super::{NONCE_LEN, TAG_LEN};
use std::cell::RefCell;
use widelane_cpu::Token;
use widelane_kernels::{ChaCha20Poly1305 as Kernels, Machine, Sums, wipe_registers};
use widelane_lanes::{ChaCha20Poly1305 as Source, Multiplier};

/// Seals and opens messages with the kernels of one form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<const L: usize> {
    kernels: Kernels<L>,
    /// Present where the kernels run in vector registers, to wipe those.
    registers: Option<Token<L>>,
}

/// Memory for one message at a time: each thread has its own, without secrets between messages.
#[repr(C, align(64))]
pub(super) struct Workspace<const L: usize> {
    state: State<L>,
    buffer: [u8; CHUNKS],
}

/// Values that the kernels work with beside the text.
#[repr(C, align(64))]
struct State<const L: usize> {
    scratch: [[u64; L]; SCRATCH],
    parameters: [[u64; L]; PARAMETERS],
    sums: [[u64; L]; SUMS],
    power: [[u64; L]; POWER],
    /// `r` to `r^L`.
    powers: [Number; L],
}

/// Workspace of the thread, for vectors of a certain number of lanes.
pub(super) trait Local: Sized {
    fn with<R>(job: impl FnOnce(&mut Self) -> R) -> R;
}

impl<const L: usize> Record<L>
where
    Workspace<L>: Local,
{
    pub(super) fn new(multiplier: Option<Multiplier>, machine: impl Into<Machine<L>>) -> Self {
        let machine = machine.into();
        let kernels = Kernels::new(machine, multiplier);
        assert!(Kernels::<L>::PARAMETERS <= PARAMETERS);
        assert!(kernels.sums_len() <= SUMS && kernels.power_len() <= POWER);
        assert!(kernels.scratch_len() <= SCRATCH);
        let registers = machine.token();
        Self { kernels, registers }
    }

    /// Encrypts `text` in place, and gives the tag.
    pub(super) fn seal(&self, key: &[u32; 8], nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        Workspace::with(|Workspace { state, buffer }| {
            let len = text.len();
            let mut run = Run::new(self, state, key, nonce, len);
            let is_short = len <= Self::SHORT;
            let mut poly1305 = if is_short {
                let poly1305 = run.short(buffer, text);
                text.copy_from_slice(&buffer[KEY_BLOCK..][..len]);
                poly1305
            } else {
                run.poly1305()
            };
            poly1305.padded(aad);
            let mut mac = run.mac(poly1305, self.in_lanes(len));
            for (i, piece) in text.chunks_mut(PIECE).enumerate() {
                if !is_short {
                    run.encrypt(KEY_BLOCK + i * PIECE, piece, buffer);
                }
                run.authenticate(&mut mac, piece);
            }
            run.tag(mac, aad.len(), len)
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
        Workspace::with(|Workspace { state, buffer }| {
            let len = text.len();
            let mut run = Run::new(self, state, key, nonce, len);
            let is_short = len <= Self::SHORT;
            let mut poly1305 = if is_short {
                run.short(buffer, text)
            } else {
                run.poly1305()
            };
            poly1305.padded(aad);
            let mut mac = run.mac(poly1305, self.in_lanes(len));
            run.authenticate(&mut mac, text);
            let genuine = is_equal(&run.tag(mac, aad.len(), len), tag);
            if !genuine {
                text.fill(0);
            } else if is_short {
                text.copy_from_slice(&buffer[KEY_BLOCK..][..len]);
            } else {
                run.encrypt(KEY_BLOCK, text, buffer);
            }
            // The buffer has plaintext, the whole of a short one.
            buffer[..Self::CHUNKS].fill(0);
            genuine
        })
    }

    /// Bytes that the longest kernel takes.
    const CHUNKS: usize = Kernels::<L>::CHUNKS;
    /// Bytes of the longest text that it takes with block 0 before it.
    const SHORT: usize = Self::CHUNKS - KEY_BLOCK;

    /// Multiplication by which lanes compute the sums; `None` for short messages, which are not worth the powers of
    /// `r`.
    fn in_lanes(&self, len: usize) -> Option<Multiplier> {
        self.kernels.multiplier().filter(|multiplier| {
            len >= match (multiplier, L) {
                (Multiplier::Madd52, 4) => IN_LANES_FROM,
                (Multiplier::Madd52, _) => IN_WIDE_LANES_FROM,
                (Multiplier::Mul32, _) => IN_LANES_FROM_MUL32,
            }
        })
    }
}

/// The kernels at work on a message. The end wipes what they worked in, also when it is a panic.
struct Run<'a, const L: usize>
where
    Workspace<L>: Local,
{
    record: &'a Record<L>,
    kernels: &'a Kernels<L>,
    state: &'a mut State<L>,
    initial: Initial,
    /// Bytes of the text.
    len: usize,
}

impl<const L: usize> Drop for Run<'_, L>
where
    Workspace<L>: Local,
{
    /// Overwrites keys and what they could be computed from. What stays in the buffer is ciphertext,
    /// and key stream that no text has met.
    fn drop(&mut self) {
        // The memory outlives the call, so that the compiler must keep these writes.
        let state = &mut *self.state;
        state.parameters = [[0; L]; PARAMETERS];
        if self.record.in_lanes(self.len).is_some() {
            state.sums = [[0; L]; SUMS];
            state.power = [[0; L]; POWER];
            state.powers = [Number::ZERO; L];
            state.scratch[..self.kernels.scratch_len()].fill([0; L]);
        } else {
            state.scratch[..self.kernels.encrypt_scratch_len()].fill([0; L]);
        }
        if let Some(token) = self.record.registers {
            wipe_registers(token);
        }
    }
}

/// Poly1305 under way: in lanes, as long as there is a multiplier, and otherwise as a number.
struct Mac {
    poly1305: Poly1305,
    multiplier: Option<Multiplier>,
}

impl<'a, const L: usize> Run<'a, L>
where
    Workspace<L>: Local,
{
    fn new(
        record: &'a Record<L>,
        state: &'a mut State<L>,
        key: &[u32; 8],
        nonce: &[u8; NONCE_LEN],
        len: usize,
    ) -> Self {
        let initial = Initial::new(key, nonce);
        let parameters = state.parameters.as_flattened_mut();
        for (parameter, &word) in parameters.iter_mut().zip(initial.parameters()) {
            *parameter = twice(word);
        }
        Self {
            record,
            kernels: &record.kernels,
            state,
            initial,
            len,
        }
    }

    /// Encrypts a short text into the buffer, where it follows block 0, and takes that away.
    fn short(&mut self, buffer: &mut [u8; CHUNKS], text: &[u8]) -> Poly1305 {
        let end = KEY_BLOCK + text.len();
        // The buffer may hold the end of an earlier text. Block 0 is the encryption of zeros.
        buffer[..KEY_BLOCK].fill(0);
        buffer[KEY_BLOCK..end].copy_from_slice(text);
        self.chunks(0, &mut buffer[..end.next_multiple_of(Kernels::<L>::CHUNK)]);
        // Section 2.6: poly1305_key_gen.
        let (block, _) = buffer.split_first_chunk_mut::<KEY_BLOCK>().expect("64 of its bytes");
        let poly1305 = Poly1305::new(block.first_chunk().expect("32 of its bytes"));
        block.fill(0);
        poly1305
    }

    /// Makes the key of Poly1305 from block 0 alone.
    fn poly1305(&self) -> Poly1305 {
        let block = self.initial.block(0);
        Poly1305::new(block.first_chunk().expect("32 of its bytes"))
    }

    /// Encrypts the text from byte `at` of the key stream, its end with the help of a buffer.
    fn encrypt(&mut self, at: usize, text: &mut [u8], buffer: &mut [u8; CHUNKS]) {
        let mut at = at;
        for piece in text.chunks_mut(Kernels::<L>::CHUNKS) {
            let len = piece.len();
            let whole = len.next_multiple_of(Kernels::<L>::CHUNK);
            if len == whole {
                self.chunks(at, piece);
            } else if len <= KEY_BLOCK {
                let block = self.initial.block(number(at));
                for (byte, stream) in piece.iter_mut().zip(block.iter()) {
                    *byte ^= stream;
                }
            } else {
                buffer[..len].copy_from_slice(piece);
                self.chunks(at, &mut buffer[..whole]);
                piece.copy_from_slice(&buffer[..len]);
            }
            at += len;
        }
    }

    /// Encrypts one chunk or two.
    fn chunks(&mut self, at: usize, chunks: &mut [u8]) {
        let State {
            parameters, scratch, ..
        } = &mut *self.state;
        parameters.as_flattened_mut()[Source::COUNTER] = twice(number(at));
        let parameters = &parameters[..Kernels::<L>::PARAMETERS];
        self.kernels.encrypt(chunks, parameters, scratch);
    }

    /// Goes on with a text, in lanes if there is a multiplier.
    fn mac(&mut self, poly1305: Poly1305, multiplier: Option<Multiplier>) -> Mac {
        if let Some(multiplier) = multiplier {
            self.begin_sums(multiplier, &poly1305);
        }
        Mac { poly1305, multiplier }
    }

    /// Takes a piece of the text; all but the last are of whole groups.
    fn authenticate(&mut self, mac: &mut Mac, piece: &[u8]) {
        let mut rest = piece;
        if mac.multiplier.is_some() {
            let group = Kernels::<L>::GROUP;
            let groups;
            (groups, rest) = piece.split_at(piece.len() / group * group);
            let (kernels, state) = (self.kernels, &mut *self.state);
            let mut sums = Sums {
                sums: &mut state.sums[..kernels.sums_len()],
                power: &state.power[..kernels.power_len()],
            };
            kernels.authenticate(groups, &mut sums, &mut state.scratch);
        }
        if !rest.is_empty() {
            self.end_sums(mac);
            mac.poly1305.padded(rest);
        }
    }

    fn tag(&self, mut mac: Mac, aad: usize, text: usize) -> [u8; TAG_LEN] {
        self.end_sums(&mut mac);
        mac.poly1305.finish(aad, text)
    }

    /// Begins the sums: they are zero, except for what came before, and the powers of `r` are
    /// known.
    fn begin_sums(&mut self, multiplier: Multiplier, poly1305: &Poly1305) {
        let State {
            sums, power, powers, ..
        } = &mut *self.state;
        powers[0] = poly1305.r();
        for i in 1..L {
            // Short chains: r^(i + 1) from powers of about half of it.
            powers[i] = powers[i / 2].times(powers[i - 1 - i / 2]);
        }
        // r^L, r^(2 L), and so on.
        let mut far = [powers[L - 1]; Kernels::<8>::POWERS];
        for i in 1..far.len() {
            far[i] = far[i / 2].times(far[i - 1 - i / 2]);
        }
        let limbs = multiplier.limbs();
        let power = power.as_flattened_mut();
        for (words, power) in power.chunks_mut(multiplier.power_len()).zip(far) {
            let power = power.to_limbs(multiplier);
            words[..limbs].copy_from_slice(&power[..limbs]);
            for (word, limb) in words[limbs..].iter_mut().zip(&power[1..]) {
                *word = limb * multiplier.fold();
            }
        }
        let before = poly1305.sum().to_limbs(multiplier);
        let beyond = Number::BEYOND.to_limbs(multiplier);
        for i in 0..limbs {
            sums[i] = [0; L];
            sums[limbs + i] = [beyond[i]; L];
            sums[limbs + i][0] += before[i];
        }
    }

    /// Adds the lanes up, if there are any under way.
    fn end_sums(&self, mac: &mut Mac) {
        let Some(multiplier) = mac.multiplier.take() else {
            return;
        };
        let State { sums, powers, .. } = &*self.state;
        let mut total = Columns::default();
        for lane in 0..L {
            let sum = Number::of_limbs(|i| sums[i][lane], multiplier);
            // The first of a group of L blocks is multiplied by r^L, the last one by r.
            total.add(sum, powers[L - 1 - Source::block_of(lane, L)]);
        }
        mac.poly1305.set(total.carried());
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
            buffer: [0; CHUNKS],
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

/// The number of the block at byte `at` of the key stream.
fn number(at: usize) -> u32 {
    u32::try_from(at / KEY_BLOCK).expect("the length was checked")
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
/// Vectors of the longest arrays of any kernel.
const PARAMETERS: usize = Kernels::<4>::PARAMETERS;
const SUMS: usize = 10;
const POWER: usize = 9;
const SCRATCH: usize = 48;
/// Bytes that are encrypted before they are authenticated, in turns: whole pairs of chunks.
const PIECE: usize = 2048;
/// Bytes from which on lanes make the sums, as measured on Zen 5.
const IN_LANES_FROM: usize = 500;
const IN_WIDE_LANES_FROM: usize = 850;
const IN_LANES_FROM_MUL32: usize = 1100;

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use widelane_cpu::Target;
    use widelane_kernels::faults::wipes;

    fn is_wiped() -> bool {
        Workspace::<4>::with(|Workspace { state, .. }| {
            let parts: [&[[u64; 4]]; 4] = [&state.scratch, &state.parameters, &state.sums, &state.power];
            parts.concat().as_flattened().iter().all(|&word| word == 0)
        })
    }

    #[test]
    fn a_message_leaves_no_key_in_registers() {
        let sealed = |machine: Machine<4>| {
            let record = Record::<4>::new(None, machine);
            let before = wipes();
            record.seal(&[7; 8], &[1; NONCE_LEN], b"", &mut [0; 2000]);
            wipes() - before
        };
        assert_eq!(sealed(Machine::model()), 0);
        let target = Target::Avx512Ifma256;
        match Token::detect(target) {
            Some(token) => assert_eq!(sealed(token.into()), 1),
            None => target.tell_skipped(),
        }
    }

    #[test]
    fn neither_a_message_nor_a_panic_leaves_a_key() {
        let record = Record::<4>::new(Some(Multiplier::Madd52), Machine::model());
        let (key, nonce) = ([7; 8], [1; NONCE_LEN]);
        record.seal(&key, &nonce, b"", &mut [0; 2000]);
        assert!(is_wiped());
        let panicking = AssertUnwindSafe(|| {
            Workspace::<4>::with(|Workspace { state, .. }| {
                let mut run = Run::new(&record, state, &key, &nonce, 2000);
                let poly1305 = run.poly1305();
                run.begin_sums(Multiplier::Madd52, &poly1305);
                panic!("in the middle of a message");
            })
        });
        assert!(catch_unwind(panicking).is_err());
        assert!(is_wiped());
    }
}
