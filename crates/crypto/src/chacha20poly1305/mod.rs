//! ChaCha20-Poly1305 (RFC 8439) in registers of a chosen width.
//!
//! Wide registers and multiplications in them can lower the clock of a whole core, for a cipher
//! that itself is faster with them. So there are four [`Form`]s, which ask for different licences
//! of the CPU, and which of them runs is the operator's [`Choice`]. Unlike the other operations,
//! all lanes work on one message: there is nothing to gather.
//!
//! ```
//! use widelane_crypto::chacha20poly1305::{Choice, Cipher};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = Cipher::new(Choice::Auto)?.key(&[7; 32]);
//! let mut record = b"plaintext".to_vec();
//! let tag = key.seal_in_place(&[0; 12], b"header", &mut record)?;
//! record.extend_from_slice(&tag);
//! let opened = key.open_in_place(&[0; 12], b"header", &mut record)?;
//! assert_eq!(opened, b"plaintext");
//! # Ok(())
//! # }
//! ```

mod block;
mod poly1305;
mod record;
#[cfg(test)]
mod tests;

use crate::secrecy::opaque;
use aws_lc_rs::aead;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use widelane_cpu::licence::Class;
use widelane_cpu::{AnyToken, Target, lanes};
use widelane_lanes::{Licence, Multiplier};
use zeroize::Zeroizing;

use record::{Record, Stream, TAG};

/// The code that does the arithmetic.
///
/// The spelling of [`Display`](fmt::Display) and [`FromStr`] is stable; programs, configuration
/// files and records use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// aws-lc-rs; runs on every CPU. Spelt `aws-lc`.
    AwsLc,
    /// 256-bit registers without multiplications in them, Poly1305 in 64-bit ones: the form that
    /// keeps the clock. Spelt `256-light`.
    Ymm256Light,
    /// 256-bit registers, Poly1305 with 52-bit multiply-adds. Spelt `256`.
    Ymm256,
    /// 512-bit registers, Poly1305 with ordinary multiplications. Spelt `512`.
    Zmm512,
    /// 512-bit registers, Poly1305 with 52-bit multiply-adds. Spelt `512-ifma`.
    Zmm512Ifma,
}

/// Choice of the operator: the widest form that runs here, or one in particular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The widest form that this machine runs. Spelt `auto`.
    #[default]
    Auto,
    /// Exactly this one, or an error. Spelt like the [`Form`].
    Exactly(Form),
}

/// The code of one form, found to run here.
#[derive(Clone, Copy, Debug)]
pub struct Cipher {
    code: Code,
    /// Bytes of the messages that are left to aws-lc-rs.
    left: [usize; 2],
}

#[derive(Clone, Copy, Debug)]
enum Code {
    AwsLc,
    Four(Form, Record<4>),
    Eight(Form, Record<8>),
}

/// A key, and the code that uses it. Zeroised when dropped.
pub struct Key {
    cipher: Cipher,
    words: Zeroizing<[u32; 8]>,
    /// For the messages that are left to aws-lc-rs, once there were any.
    peer: OnceLock<aead::LessSafeKey>,
}

/// A message that is encrypted or decrypted in pieces, by the [`Key`] that has begun it.
///
/// What is decrypted so is not authentic before [`Message::tag`] has been compared with the tag that
/// came with it.
#[derive(Clone)]
pub struct Message(Stream);

/// Bytes of a nonce.
pub const NONCE_LEN: usize = 12;
/// Bytes of a tag.
pub const TAG_LEN: usize = TAG;

impl Form {
    /// Every form, the most widely available first.
    pub const ALL: [Self; 5] = [
        Self::AwsLc,
        Self::Ymm256Light,
        Self::Ymm256,
        Self::Zmm512,
        Self::Zmm512Ifma,
    ];

    /// Returns whether this CPU and process can run the form now.
    pub fn is_available(self) -> bool {
        self.target().is_none_or(Target::is_available)
    }

    /// The kind of its machine code; `None` for aws-lc-rs.
    const fn target(self) -> Option<Target> {
        match self {
            Self::AwsLc => None,
            Self::Ymm256Light | Self::Ymm256 => Some(Target::Avx512Ifma256),
            Self::Zmm512 | Self::Zmm512Ifma => Some(Target::Avx512Ifma),
        }
    }

    /// The stable spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::Ymm256Light => "256-light",
            Self::Ymm256 => "256",
            Self::Zmm512 => "512",
            Self::Zmm512Ifma => "512-ifma",
        }
    }

    /// The licence that the form's instructions ask for, the highest of any; of aws-lc-rs it is not
    /// known.
    pub const fn licence(self) -> Option<Licence> {
        match self {
            Self::AwsLc => None,
            Self::Ymm256Light => Some(Licence::Level0),
            Self::Ymm256 => Some(Licence::Level1),
            Self::Zmm512 | Self::Zmm512Ifma => Some(Licence::Level2),
        }
    }

    /// Class of the form's code, which decides about the clock. For aws-lc-rs it is not known.
    ///
    /// Its multiplications are too far apart to count as dense, and then heavy code asks for no more
    /// than light code of its width: Cloudflare (2017) saw level 1 under such a cipher, not level 2.
    /// What 256-bit light code asks for keeps the clock, and a mark for it would cost more.
    fn asks_for(self) -> Class {
        match self {
            Self::AwsLc | Self::Ymm256Light | Self::Ymm256 => Class::Scalar,
            Self::Zmm512 | Self::Zmm512Ifma => Class::Light512,
        }
    }

    /// Bytes, from and to, of the messages for which aws-lc-rs is faster, as measured on Zen 5: a
    /// little text beyond the first call of a kernel is not worth the second one, if its sums are
    /// not made in lanes either.
    fn left_to_aws_lc(self) -> [usize; 2] {
        match self {
            Self::Ymm256Light => [1025, 1800],
            Self::AwsLc | Self::Ymm256 | Self::Zmm512 | Self::Zmm512Ifma => [0, 0],
        }
    }

    /// Multiplication by which lanes compute Poly1305's sums; `None` if they do not.
    fn multiplier(self) -> Option<Multiplier> {
        match self {
            Self::AwsLc | Self::Ymm256Light => None,
            Self::Zmm512 => Some(Multiplier::Mul32),
            // With the same licence as ordinary multiplications.
            Self::Ymm256 | Self::Zmm512Ifma => Some(Multiplier::Madd52),
        }
    }
}

impl Cipher {
    /// Chooses the form.
    ///
    /// # Errors
    ///
    /// When a form was asked for by name and this machine cannot run it.
    pub fn new(choice: Choice) -> Result<Self, FormUnavailable> {
        let form = match choice {
            Choice::Auto => Form::ALL
                .into_iter()
                .rfind(|form| form.is_available())
                .unwrap_or(Form::AwsLc),
            Choice::Exactly(form) => form,
        };
        let code = match form.target().map(AnyToken::detect) {
            None => Code::AwsLc,
            Some(Some(AnyToken::Four(token))) => Code::Four(form, Record::new(form.multiplier(), token)),
            Some(Some(AnyToken::Eight(token))) => Code::Eight(form, Record::new(form.multiplier(), token)),
            Some(None) => return Err(FormUnavailable { form }),
        };
        let left = form.left_to_aws_lc();
        Ok(Self { code, left })
    }

    /// The form that was chosen.
    pub fn form(&self) -> Form {
        match self.code {
            Code::AwsLc => Form::AwsLc,
            Code::Four(form, _) | Code::Eight(form, _) => form,
        }
    }

    /// A key for this code.
    pub fn key(&self, key: &[u8; 32]) -> Key {
        let (words, _) = key.as_chunks();
        Key {
            cipher: *self,
            words: Zeroizing::new(std::array::from_fn(|i| u32::from_le_bytes(words[i]))),
            peer: OnceLock::new(),
        }
    }
}

impl Key {
    /// The code that uses the key.
    pub fn form(&self) -> Form {
        self.cipher.form()
    }

    /// Encrypts `text` in place and gives the tag of it and of `aad`.
    ///
    /// A nonce must never be used twice with the same key.
    ///
    /// # Errors
    ///
    /// If `text` is longer than [`MAX_LEN`].
    pub fn seal_in_place(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_LEN], SealError> {
        let len = text.len();
        if len as u64 > MAX_LEN {
            return Err(SealError::TooLong { len });
        }
        if let Some(key) = self.aws_lc(len) {
            let nonce = aead::Nonce::assume_unique_for_key(*nonce);
            let tag = key
                .seal_in_place_separate_tag(nonce, aead::Aad::from(aad), text)
                .map_err(|_| SealError::TooLong { len })?;
            let mut bytes = [0; TAG_LEN];
            bytes.copy_from_slice(tag.as_ref());
            return Ok(bytes);
        }
        let _marked = widelane_marks::wide(self.form().asks_for());
        Ok(match &self.cipher.code {
            Code::Four(_, record) => record.seal(&self.words, nonce, aad, text),
            Code::Eight(_, record) => record.seal(&self.words, nonce, aad, text),
            Code::AwsLc => unreachable!("answered above"),
        })
    }

    /// Decrypts in place what is a ciphertext followed by its tag, and gives the plaintext.
    ///
    /// # Errors
    ///
    /// If the tag is not that of the ciphertext and of `aad`; nothing is left then of what was
    /// decrypted. Or if there is no room for a tag, or more than [`MAX_LEN`] bytes before it.
    pub fn open_in_place<'a>(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenError> {
        let len = sealed.len().checked_sub(TAG_LEN).ok_or(OpenError)?;
        if len as u64 > MAX_LEN {
            return Err(OpenError);
        }
        if let Some(key) = self.aws_lc(len) {
            let nonce = aead::Nonce::assume_unique_for_key(*nonce);
            return key
                .open_in_place(nonce, aead::Aad::from(aad), sealed)
                .map_err(|_| OpenError);
        }
        let (text, tag) = sealed.split_last_chunk_mut().ok_or(OpenError)?;
        let _marked = widelane_marks::wide(self.form().asks_for());
        let genuine = match &self.cipher.code {
            Code::Four(_, record) => record.open(&self.words, nonce, aad, text, tag),
            Code::Eight(_, record) => record.open(&self.words, nonce, aad, text, tag),
            Code::AwsLc => unreachable!("answered above"),
        };
        if genuine { Ok(text) } else { Err(OpenError) }
    }
}

impl Key {
    /// Begins a message that comes in pieces; `None` if the form is aws-lc-rs, which has no such
    /// thing.
    ///
    /// A nonce must never be used twice with the same key.
    pub fn message(&self, nonce: &[u8; NONCE_LEN]) -> Option<Message> {
        match &self.cipher.code {
            Code::AwsLc => None,
            Code::Four(..) | Code::Eight(..) => Some(Message(Stream::new(&self.words, nonce))),
        }
    }

    /// Encrypts the next piece of a message in place. The message must be one of this key's.
    ///
    /// # Errors
    ///
    /// If the text gets longer than [`MAX_LEN`]; then nothing is encrypted.
    ///
    /// # Panics
    ///
    /// If this key's form begins no message.
    pub fn encrypt(&self, message: &mut Message, text: &mut [u8]) -> Result<(), SealError> {
        self.piece(message, text, true)
    }

    /// Decrypts the next piece of a message in place. The message must be one of this key's.
    ///
    /// # Errors
    ///
    /// If the text gets longer than [`MAX_LEN`]; then nothing is decrypted.
    ///
    /// # Panics
    ///
    /// If this key's form begins no message.
    pub fn decrypt(&self, message: &mut Message, text: &mut [u8]) -> Result<(), SealError> {
        self.piece(message, text, false)
    }

    /// The key for aws-lc-rs, if a message of `len` bytes is left to it.
    fn aws_lc(&self, len: usize) -> Option<&aead::LessSafeKey> {
        let [from, to] = self.cipher.left;
        let is_left = matches!(self.cipher.code, Code::AwsLc) || (from..to).contains(&len);
        let key = || {
            let mut bytes = Zeroizing::new([0; 32]);
            for (bytes, word) in bytes.chunks_exact_mut(4).zip(self.words.iter()) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            let key = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, &*bytes);
            aead::LessSafeKey::new(key.expect("its keys have 32 bytes"))
        };
        is_left.then(|| self.peer.get_or_init(key))
    }

    fn piece(&self, Message(message): &mut Message, text: &mut [u8], seals: bool) -> Result<(), SealError> {
        let len = message.text_len().saturating_add(text.len());
        if len as u64 > MAX_LEN {
            return Err(SealError::TooLong { len });
        }
        let _marked = widelane_marks::wide(self.form().asks_for());
        match &self.cipher.code {
            Code::Four(_, record) => record.piece(&self.words, message, text, seals),
            Code::Eight(_, record) => record.piece(&self.words, message, text, seals),
            Code::AwsLc => unreachable!("it begins no message"),
        }
        Ok(())
    }
}

impl Message {
    /// Takes additional data, in pieces, too. All of it comes before the text.
    pub fn aad(&mut self, aad: &[u8]) {
        debug_assert_eq!(self.0.text_len(), 0, "additional data comes before the text");
        self.0.aad(aad);
    }

    /// The tag of additional data and text.
    pub fn tag(self) -> [u8; TAG_LEN] {
        self.0.tag()
    }
}

/// Bytes of the longest text: what 2^32 - 1 blocks encrypt (RFC 8439, section 2.8).
pub const MAX_LEN: u64 = (u32::MAX as u64) * 64;

/// No ciphertext.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The counter of blocks does not reach so far.
    #[error("a text of {len} bytes is too long; the cipher takes {MAX_LEN}: send it in pieces")]
    TooLong {
        /// Bytes of the text.
        len: usize,
    },
}

/// The tag is wrong or missing: this is not what the owner of the key sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record is not authentic")]
pub struct OpenError;

/// The form asked for by name does not run on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the form {form} of ChaCha20-Poly1305 does not run here: {}; use auto or aws-lc",
    lanes()
)]
pub struct FormUnavailable {
    /// The form that was asked for.
    pub form: Form,
}

/// A text that names no form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown form {0:?} of ChaCha20-Poly1305; use auto, 512-ifma, 512, 256, 256-light or aws-lc")]
pub struct ParseFormError(String);

opaque!(Key { form });

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Form {
    type Err = ParseFormError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|form| form.name() == text)
            .ok_or_else(|| ParseFormError(text.to_owned()))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad(AUTO),
            Self::Exactly(form) => form.fmt(f),
        }
    }
}

impl FromStr for Choice {
    type Err = ParseFormError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == AUTO {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Exactly)
    }
}

const AUTO: &str = "auto";
