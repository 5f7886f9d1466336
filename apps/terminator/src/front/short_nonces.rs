//! Ticket nonces of eight bytes, as OpenSSL has them.
//!
//! rustls gives each ticket of TLS 1.3 a nonce of 32 random bytes. That is legal (RFC 8446, section 4.6.1), but
//! small clients keep room for eight, and some of them end the connection when they get more (wolfSSL
//! before 5.6). rustls has no setting for it. But what it does with a nonce passes the provider twice, and
//! both times only the first eight bytes are taken here:
//!
//! - The key of the session is derived from it: HKDF-Expand-Label with the label "resumption".
//! - The message NewSessionTicket, which has it, is encrypted. No transcript contains that message.
//!
//! A nonce only has to differ from those of the other tickets of its connection. This is for servers alone: a client
//! takes nonces as they come.

use std::borrow::Cow;

use rustls::crypto::cipher::{
    AeadKey, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundOpaqueMessage, OutboundPlainMessage,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{ActiveKeyExchange, hmac};
use rustls::{ConnectionTrafficSecrets, ContentType, Error};

use crate::as_inside::as_inside;

/// The key schedule of a suite, with short nonces.
pub(crate) struct Schedule(pub(crate) &'static dyn Hkdf);

impl Hkdf for Schedule {
    as_inside! { 0:
        fn extract_from_zero_ikm(salt: Option<&[u8]>) -> Box<dyn HkdfExpander>;
        fn extract_from_secret(salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander>;
        fn extract_from_kx_shared_secret(
            salt: Option<&[u8]>, kx: Box<dyn ActiveKeyExchange>, peer: &[u8]
        ) -> Result<Box<dyn HkdfExpander>, Error>;
        fn hmac_sign(key: &OkmBlock, message: &[u8]) -> hmac::Tag;
        fn fips() -> bool;
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        Box::new(Expander(self.0.expander_for_okm(okm)))
    }
}

struct Expander(Box<dyn HkdfExpander>);

impl HkdfExpander for Expander {
    as_inside! { 0:
        fn expand_slice(info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError>;
        fn hash_len() -> usize;
    }

    /// The key of a ticket is one block.
    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        match shortened(info) {
            Some(info) => self.0.expand_block(&[&info]),
            None => self.0.expand_block(info),
        }
    }
}

/// The HkdfLabel (RFC 8446, section 7.1) of a ticket's key, with a shorter nonce. `None`: it is none, or
/// short enough.
fn shortened(info: &[&[u8]]) -> Option<Vec<u8>> {
    // Most labels are shorter or differ early, and nothing is copied for them.
    let length: usize = info.iter().map(|part| part.len()).sum();
    let mut bytes = info.iter().copied().flatten().skip(LABEL_AT);
    if length <= LABEL_AT + LABEL.len() + 1 + NONCE || LABEL.iter().any(|byte| bytes.next() != Some(byte)) {
        return None;
    }
    let info = info.concat();
    let (label, nonce) = info.split_at(LABEL_AT + LABEL.len() + 1);
    let is_ticket = usize::from(label[LABEL_AT - 1]) == LABEL.len()
        && label.last().map(|length| usize::from(*length)) == Some(nonce.len());
    let before = label.split_last()?.1;
    is_ticket.then(|| [before, &[NONCE as u8], &nonce[..NONCE]].concat())
}

/// The record protection of a suite, with short nonces.
pub(crate) struct Protection(pub(crate) &'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Protection {
    as_inside! { 0:
        fn decrypter(key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter>;
        fn key_len() -> usize;
        fn extract_keys(key: AeadKey, iv: Iv) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError>;
        fn fips() -> bool;
    }

    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Encrypter {
            inner: self.0.encrypter(key, iv),
            messages: Messages::default(),
        })
    }
}

struct Encrypter {
    inner: Box<dyn MessageEncrypter>,
    messages: Messages,
}

impl MessageEncrypter for Encrypter {
    as_inside! { inner: fn encrypted_payload_len(length: usize) -> usize; }

    fn encrypt(&mut self, message: OutboundPlainMessage<'_>, sequence: u64) -> Result<OutboundOpaqueMessage, Error> {
        if message.typ != ContentType::Handshake {
            return self.inner.encrypt(message, sequence);
        }
        let record = match &message.payload {
            OutboundChunks::Single(record) => Cow::Borrowed(*record),
            pieces => Cow::Owned(pieces.to_vec()),
        };
        if self.messages.passes(&record) {
            return self.inner.encrypt(message, sequence);
        }
        let payload = self.messages.pass(&record);
        let message = OutboundPlainMessage {
            typ: message.typ,
            version: message.version,
            payload: payload.as_slice().into(),
        };
        self.inner.encrypt(message, sequence)
    }
}

/// Handshake messages on their way out, in records that may begin and end anywhere in them. A record never ends
/// up empty: only one that is full ends inside of a message, and no more than the first bytes of that are held back.
#[derive(Default)]
struct Messages {
    /// The first bytes of a message, as long as they are too few to know what it is.
    head: Vec<u8>,
    /// Bytes of the message that has begun, which are passed on, then left out, then passed on.
    keep: usize,
    omit: usize,
    rest: usize,
}

impl Messages {
    /// Returns whether a record has only whole messages of other kinds: nothing of it changes.
    fn passes(&self, mut record: &[u8]) -> bool {
        let is_between = self.head.is_empty() && self.keep + self.omit + self.rest == 0;
        while let &[kind, high, middle, low, ref behind @ ..] = record {
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            match behind.get(length..) {
                Some(later) if kind != NEW_SESSION_TICKET => record = later,
                _ => return false,
            }
        }
        is_between && record.is_empty()
    }

    fn pass(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.head.len() + bytes.len());
        while !bytes.is_empty() {
            let (run, is_kept) = if self.keep > 0 {
                (&mut self.keep, true)
            } else if self.omit > 0 {
                (&mut self.omit, false)
            } else {
                (&mut self.rest, true)
            };
            if *run == 0 {
                // As many bytes as are needed to know more of the message.
                let needed = match self.head.len() {
                    length @ ..4 => 4 - length,
                    length => 4 + NONCE_AT - length,
                };
                let (now, later) = bytes.split_at(bytes.len().min(needed));
                self.head.extend_from_slice(now);
                bytes = later;
                self.begin(&mut out);
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(*run));
            *run -= now.len();
            if is_kept {
                out.extend_from_slice(now);
            }
            bytes = later;
        }
        out
    }

    /// Begins a message, if what is there of it says what it is.
    fn begin(&mut self, out: &mut Vec<u8>) {
        let &[kind, high, middle, low, ref body @ ..] = &self.head[..] else {
            return;
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if kind == NEW_SESSION_TICKET && length >= NONCE_AT {
            let Some(&nonce) = body.get(NONCE_AT - 1) else {
                return;
            };
            let nonce = usize::from(nonce);
            let omit = nonce.saturating_sub(NONCE);
            if let (1.., Some(rest)) = (omit, length.checked_sub(NONCE_AT + nonce)) {
                let shorter = ((length - omit) as u32).to_be_bytes();
                self.head[1..4].copy_from_slice(&shorter[1..]);
                self.head[4 + NONCE_AT - 1] = NONCE as u8;
                (self.keep, self.omit, self.rest) = (NONCE, omit, rest);
                out.append(&mut self.head);
                return;
            }
        }
        self.keep = length.saturating_sub(body.len());
        out.append(&mut self.head);
    }
}

const NEW_SESSION_TICKET: u8 = 4;
/// Place of the nonce in its message (RFC 8446, section 4.6.1): behind lifetime, age and its own length.
const NONCE_AT: usize = 4 + 4 + 1;
/// Length of the nonces of OpenSSL.
const NONCE: usize = 8;
const LABEL: &[u8] = b"tls13 resumption";
/// Behind the length of the output and its own.
const LABEL_AT: usize = 2 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32).to_be_bytes();
        [&[kind][..], &length[1..], body].concat()
    }

    fn ticket(nonce: &[u8], rest: &[u8]) -> Vec<u8> {
        let nonce = [&[nonce.len() as u8], nonce].concat();
        message(NEW_SESSION_TICKET, &[b"lifeage_", &nonce[..], rest].concat())
    }

    #[test]
    fn tickets_leave_with_short_nonces_and_all_else_as_it_is() {
        let long: Vec<u8> = (0..32).collect();
        let messages = [
            message(8, b"\0\0"),
            ticket(&long, &[7; 300]),
            message(24, b"\0"),
            ticket(&long[..9], b""),
            ticket(&long[..8], b"ticket"),
            ticket(b"", b"ticket"),
            message(20, &[1; 40]),
            message(14, b""),
            message(NEW_SESSION_TICKET, b"of no known form"),
        ];
        let expected = [
            message(8, b"\0\0"),
            ticket(&long[..8], &[7; 300]),
            message(24, b"\0"),
            ticket(&long[..8], b""),
            ticket(&long[..8], b"ticket"),
            ticket(b"", b"ticket"),
            message(20, &[1; 40]),
            message(14, b""),
            message(NEW_SESSION_TICKET, b"of no known form"),
        ];
        let (messages, expected) = (messages.concat(), expected.concat());
        for size in 1..messages.len() {
            let mut passing = Messages::default();
            let records = messages.chunks(size).map(|record| {
                let passes = passing.passes(record);
                let passed = passing.pass(record);
                assert!(!passes || passed == record, "{size}");
                passed
            });
            assert_eq!(records.collect::<Vec<_>>().concat(), expected, "{size}");
        }
    }

    #[test]
    fn a_record_of_whole_messages_passes_unless_one_is_a_ticket() {
        let others = [message(8, b"\0\0"), message(20, &[1; 40])].concat();
        let with_ticket = [&others[..], &ticket(&[1; 32], b"ticket")].concat();
        let between = Messages::default();
        assert!(between.passes(&others) && between.passes(b""));
        assert!(!between.passes(&with_ticket));
        assert!(!between.passes(&others[1..]) && !between.passes(&others[..others.len() - 1]));
        let mut within = Messages::default();
        within.pass(&others[..others.len() - 1]);
        assert!(!within.passes(&others));
    }

    #[test]
    fn the_key_of_a_ticket_is_derived_from_the_same_bytes() {
        let label = |label: &[u8], context: &[u8]| {
            [&[0, 32, label.len() as u8], label, &[context.len() as u8], context].concat()
        };
        let nonce: Vec<u8> = (0..32).collect();
        let expected = label(LABEL, &nonce[..8]);
        let info = label(LABEL, &nonce);
        assert_eq!(shortened(&[&info]), Some(expected.clone()));
        let parts: Vec<&[u8]> = info.chunks(1).collect();
        assert_eq!(shortened(&parts), Some(expected));
        for other in [
            label(LABEL, &nonce[..8]),
            label(b"tls13 res master", &nonce),
            label(b"tls13 c hs traffic", &nonce),
            label(b"tls13 key", b""),
        ] {
            assert_eq!(shortened(&[&other]), None);
        }
    }
}
