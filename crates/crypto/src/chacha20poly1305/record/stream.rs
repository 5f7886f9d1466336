//! A message that comes in pieces, whose tag is known after the last one.
//!
//! A piece that does not begin with a block of the key stream is brought to the next one by single
//! bytes; the rest of it goes through the kernels. There the text also begins with a whole block of
//! Poly1305, so that only the end of a piece can leave a part of a block.

use super::super::poly1305::{BLOCK, Poly1305};
use super::super::{NONCE_LEN, TAG_LEN};
use super::{Initial, KEY_BLOCK, Local, PIECE, Record, Run, Workspace, number};
use widelane_kernels::ChaCha20Poly1305 as Kernels;

/// A message under way: what of it does not depend on the code that encrypts.
#[derive(Clone)]
pub(in super::super) struct State {
    nonce: [u8; NONCE_LEN],
    poly1305: Poly1305,
    /// The begun block of additional data or ciphertext, and how much of it there is.
    block: [u8; BLOCK],
    begun: usize,
    aad: usize,
    text: usize,
}

impl State {
    pub(in super::super) fn new(key: &[u32; 8], nonce: &[u8; NONCE_LEN]) -> Self {
        let block = Initial::new(key, nonce).block(0);
        Self {
            nonce: *nonce,
            poly1305: Poly1305::new(block.first_chunk().expect("32 of its bytes")),
            block: [0; BLOCK],
            begun: 0,
            aad: 0,
            text: 0,
        }
    }

    /// Bytes of the text so far.
    pub(in super::super) fn text_len(&self) -> usize {
        self.text
    }

    /// Takes additional data, all of which comes before the text.
    pub(in super::super) fn aad(&mut self, aad: &[u8]) {
        self.aad += aad.len();
        self.absorb(aad);
    }

    pub(in super::super) fn tag(mut self) -> [u8; TAG_LEN] {
        self.pad();
        self.poly1305.finish(self.aad, self.text)
    }

    /// Ends a begun block with zeros (RFC 8439, section 2.8: `pad16`).
    fn pad(&mut self) {
        let begun = std::mem::take(&mut self.begun);
        self.poly1305.padded(&self.block[..begun]);
    }

    fn absorb(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if self.begun > 0 {
            let (head, tail) = rest.split_at(rest.len().min(BLOCK - self.begun));
            self.block[self.begun..][..head.len()].copy_from_slice(head);
            self.begun += head.len();
            rest = tail;
            if self.begun == BLOCK {
                self.pad();
            }
        }
        let (blocks, tail) = rest.split_at(rest.len() / BLOCK * BLOCK);
        self.poly1305.padded(blocks);
        if !tail.is_empty() {
            self.block[..tail.len()].copy_from_slice(tail);
            self.begun = tail.len();
        }
    }
}

impl<const L: usize> Record<L>
where
    Workspace<L>: Local,
{
    /// Encrypts or decrypts the next piece of a text in place.
    pub(in super::super) fn piece(&self, key: &[u32; 8], message: &mut State, text: &mut [u8], seals: bool) {
        if text.is_empty() {
            return;
        }
        if message.text == 0 {
            message.pad();
        }
        let begun = message.text % KEY_BLOCK;
        let head = text.len().min((KEY_BLOCK - begun) % KEY_BLOCK);
        let (head, body) = text.split_at_mut(head);
        if !head.is_empty() {
            if !seals {
                message.absorb(head);
            }
            let initial = Initial::new(key, &message.nonce);
            let block = initial.block(number(KEY_BLOCK + message.text));
            for (byte, stream) in head.iter_mut().zip(&block[begun..]) {
                *byte ^= stream;
            }
            if seals {
                message.absorb(head);
            }
            message.text += head.len();
        }
        if !body.is_empty() {
            self.body(key, message, body, seals);
        }
    }

    /// A piece that begins with a block.
    fn body(&self, key: &[u32; 8], message: &mut State, text: &mut [u8], seals: bool) {
        let at = KEY_BLOCK + message.text;
        message.text += text.len();
        let whole = text.len() / BLOCK * BLOCK;
        Workspace::with(|Workspace { state, buffer }| {
            let mut run = Run::new(self, state, key, &message.nonce, whole);
            let mut mac = run.mac(message.poly1305.clone(), self.in_lanes(whole));
            for (i, piece) in text.chunks_mut(PIECE).enumerate() {
                if seals {
                    run.encrypt(at + i * PIECE, piece, buffer);
                }
                run.authenticate(&mut mac, &piece[..piece.len() / BLOCK * BLOCK]);
            }
            run.end_sums(&mut mac);
            message.poly1305 = mac.poly1305;
            // Ciphertext, now or still.
            message.absorb(&text[whole..]);
            if !seals {
                run.encrypt(at, text, buffer);
                buffer[..Kernels::<L>::CHUNKS].fill(0);
            }
        });
    }
}
