//! Every form of ChaCha20-Poly1305 seals a message to the same bytes as aws-lc-rs, at any address
//! in memory. It opens what it has sealed, and refuses it after any change.
//!
//! The input is a key, a nonce, numbers, additional data, and the message, which is repeated until
//! it is as long as the numbers say: few inputs are as long as a record.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Form, OpenError};

fuzz_target!(|data: &[u8]| {
    let Some(input) = Input::read(data) else {
        return;
    };
    let (aws_lc, others) = CIPHERS.split_first().expect("aws-lc-rs runs everywhere");
    let mut expected = input.text.clone();
    let tag = aws_lc
        .key(&input.key)
        .seal_in_place(&input.nonce, input.aad, &mut expected);
    expected.extend(tag.expect("records are short"));
    for cipher in others {
        equals(cipher, &input, &expected);
    }
});

fn equals(cipher: &Cipher, input: &Input<'_>, expected: &[u8]) {
    let Input { nonce, aad, text, .. } = input;
    let form = cipher.form();
    let key = cipher.key(&input.key);
    let mut buffer = vec![0; input.offset];
    buffer.extend(text);
    let tag = key.seal_in_place(nonce, aad, &mut buffer[input.offset..]);
    buffer.extend(tag.expect("records are short"));
    assert!(buffer[input.offset..] == *expected, "{form}");

    let mut changed = buffer.clone();
    let (place, change) = input.change;
    changed[input.offset + place % expected.len()] ^= change;
    let opened = key.open_in_place(nonce, aad, &mut changed[input.offset..]);
    if change == 0 {
        assert!(opened.is_ok_and(|opened| *opened == **text), "{form}");
    } else {
        assert_eq!(opened, Err(OpenError), "{form}");
    }
    let opened = key.open_in_place(nonce, aad, &mut buffer[input.offset..]);
    assert!(opened.is_ok_and(|opened| *opened == **text), "{form}");
}

struct Input<'a> {
    key: [u8; 32],
    nonce: [u8; 12],
    /// Where in memory the message begins.
    offset: usize,
    /// Where in it what is changed.
    change: (usize, u8),
    aad: &'a [u8],
    text: Vec<u8>,
}

impl<'a> Input<'a> {
    fn read(data: &'a [u8]) -> Option<Self> {
        let (&key, data) = data.split_first_chunk()?;
        let (&nonce, data) = data.split_first_chunk()?;
        let (&[offset, change, place, place_high, len, len_high, aad], data) = data.split_first_chunk()?;
        let (aad, text) = data.split_at_checked(aad.into())?;
        let len = u16::from_le_bytes([len, len_high]).into();
        let mut text: Vec<u8> = text.iter().copied().cycle().take(len).collect();
        text.resize(len, 0);
        Some(Self {
            key,
            nonce,
            offset: offset.into(),
            change: (u16::from_le_bytes([place, place_high]).into(), change),
            aad,
            text,
        })
    }
}

/// One for each form that runs here; aws-lc-rs is the first.
static CIPHERS: LazyLock<Vec<Cipher>> = LazyLock::new(|| {
    let cipher = |form| Cipher::new(Choice::Exactly(form)).ok();
    Form::ALL.into_iter().filter_map(cipher).collect()
});
