//! Records sealed with ChaCha20-Poly1305, in every form.

use crate::openssl::Peer;
use crate::operation::{Done, Implementation, Operation, Subject};
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Form, Key};

/// Seals full and short records. The form takes the place of the backend.
pub(crate) fn operations() -> impl Iterator<Item = Operation> {
    [
        operation(
            "chacha20poly1305-16k",
            "seal of a full TLS record of 16 KiB with ChaCha20-Poly1305",
            16 * 1024,
            &["-bytes", "16384", "-evp", "chacha20-poly1305"],
        ),
        operation(
            "chacha20poly1305-1k",
            "seal of a TLS record of 1 KiB with ChaCha20-Poly1305",
            1024,
            &["-bytes", "1024", "-evp", "chacha20-poly1305"],
        ),
    ]
    .into_iter()
}

fn operation(name: &'static str, what: &'static str, bytes: usize, openssl: &'static [&'static str]) -> Operation {
    // The widest form first, as in other operations. The last one runs on every machine.
    let implementations = Form::ALL.into_iter().rev().map(|form| Implementation {
        name: form.name(),
        in_flight: &[1],
        prepare: Box::new(move || {
            let cipher = Cipher::new(Choice::Exactly(form)).map_err(|error| error.to_string())?;
            Ok(Box::new(Seal {
                key: cipher.key(&[0x5a; 32]),
                record: vec![0; bytes],
                count: 0,
            }))
        }),
    });
    Operation {
        name,
        what,
        beside: Vec::new(),
        openssl: Some(Peer {
            arguments: openssl.to_vec(),
            line: "+R:",
        }),
        bytes: Some(bytes),
        implementations: implementations.collect(),
    }
}

struct Seal {
    key: Key,
    /// Sealed in place in each run.
    record: Vec<u8>,
    count: u64,
}

impl Subject for Seal {
    fn run(&mut self, _: usize) -> Result<Done, String> {
        self.count += 1;
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.count.to_be_bytes());
        let tag = self
            .key
            .seal_in_place(&nonce, HEADER, &mut self.record)
            .map_err(|error| error.to_string())?;
        std::hint::black_box(tag);
        Ok(Done::operations(1))
    }
}

/// The header of a TLS 1.3 record (RFC 8446, section 5.2).
const HEADER: &[u8] = &[23, 3, 3, 0x40, 0x11];
