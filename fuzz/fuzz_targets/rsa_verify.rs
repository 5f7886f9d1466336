//! Lanes and aws-lc-rs give the same verdict on every RSA signature: of messages padded as they
//! should be, padded wrongly by the key's owner, and made up.
//!
//! Whatever a message is padded to, there is a key with the exponent 3 that has signed it: for a
//! signature `s` with `s^3` a little above the modulus, `n = s^3 - padded`.
#![no_main]

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, ConcatenatingMul, Odd};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use widelane_crypto::rsa::{Scheme, Verification};
use widelane_crypto::sign::{self, Input, Key, KeyError, Request};
use widelane_crypto::verify;
use widelane_crypto::{Backend, OnBackend, Operation, Preference, Task};

static VERIFICATION: LazyLock<OnBackend<Verification>> = LazyLock::new(|| {
    let backend = Preference::Auto.resolve().unwrap_or(Backend::AwsLc);
    Verification.on(backend).expect("an available backend")
});

/// [`MESSAGE`], padded for each scheme: what signatures of it open to.
static PADDED: LazyLock<[Vec<u8>; 6]> = LazyLock::new(|| {
    let pem = include_bytes!("../../crates/crypto/tests/data/rsa2048_a.pem");
    let key = Key::from_pem(pem).expect("a good key");
    // Behind the headers of three sequences, an algorithm, a bit string and an integer.
    let info = key.public_key_info_der();
    let n = BoxedUint::from_be_slice_truncated(&info[33..33 + SIZE], 8 * SIZE as u32);
    let n = BoxedMontyParams::new_vartime(Odd::new(n).expect("a modulus is odd"));
    Scheme::ALL.map(|scheme| {
        let scheme = sign::Scheme::Rsa(scheme);
        let request = Request::new(&key, scheme, Input::Message(MESSAGE));
        let signature = request.expect("a random generator").alone();
        let signature = signature.expect("a good key signs");
        let signature = BoxedUint::from_be_slice_truncated(&signature, 8 * SIZE as u32);
        let opened = BoxedMontyForm::new(signature, &n).pow(&BoxedUint::from(65537u64));
        opened.retrieve().to_be_bytes().to_vec()
    })
});

fuzz_target!(|data: &[u8]| {
    let _ = to_verify(data, Scheme::PssSha256, &[], &[]);
    let Some((&[first, changes, exponent], rest)) = data.split_first_chunk() else {
        return;
    };
    let scheme = Scheme::ALL[usize::from(first) % 6];
    let other = Scheme::ALL[usize::from(first / 6) % 6];
    let changes = usize::from(changes % 4);
    let Some((changes, rest)) = rest.split_at_checked(2 * changes) else {
        return;
    };
    let mut padded = PADDED[usize::from(first) % 6].clone();
    for change in changes.chunks(2) {
        padded[usize::from(change[0])] ^= change[1];
    }
    padded[0] &= 0x7f;
    let (signature, modulus) = signed(&padded, rest);
    let key = der(&modulus, &[3]);
    let by_key = |scheme, message: &[u8], signature: &[u8]| {
        to_verify(&key, scheme, message, signature).expect("an odd modulus of 2048 bits")
    };
    let made_up = rest.iter().copied().cycle().take(rest.len().min(1) * SIZE);
    let made_up: Vec<u8> = made_up.collect();
    let more: &[u8] = match first / 36 % 3 {
        0 => &[1],
        1 => &[exponent | 3],
        _ => &[1, 0, exponent | 1],
    };
    let mut requests = vec![
        by_key(scheme, MESSAGE, &signature),
        by_key(other, MESSAGE, &signature),
        by_key(scheme, b"another", &signature),
        by_key(scheme, MESSAGE, &modulus),
        by_key(scheme, MESSAGE, &made_up),
        by_key(scheme, MESSAGE, rest),
    ];
    let stranger = der(&modulus, more);
    requests.extend(to_verify(&stranger, scheme, MESSAGE, &signature));
    let verdicts = VERIFICATION.pass(&requests);
    if padded == PADDED[usize::from(first) % 6] {
        assert_eq!(verdicts[0], Ok(()), "{scheme:?}");
    }
    for (request, ours) in requests.iter().zip(verdicts) {
        assert_eq!(ours, VERIFICATION.alone(request), "{request:?}");
    }
});

/// A signature that opens to `padded`, and the modulus of 2048 bits for that. The modulus is odd,
/// as the signature's lowest bit is chosen for it.
fn signed(padded: &[u8], bytes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    // 683 bits, of which the highest five give a cube of 3.4 to 3.9 times 2^2046; or 4.2 to 4.9
    // times, if the padded message is one or two times that.
    let mut s = [0; 86];
    for (to, from) in s[1..].iter_mut().zip(bytes) {
        *to = *from;
    }
    let high = padded[0] & 0x40 != 0;
    s[0] = 0b110;
    s[1] = s[1] & 0x3f | if high { 0x80 } else { 0 };
    s[85] = s[85] & 0xfe | (padded[SIZE - 1] & 1 ^ 1);
    let number = |bytes: &[u8]| BoxedUint::from_be_slice_truncated(bytes, 8 * SIZE as u32 + 64);
    let s = number(&s);
    let cube = s.concatenating_mul(&s).concatenating_mul(&s);
    let cube = cube.to_be_bytes();
    let cube = number(&cube[cube.len() - SIZE - 8..]);
    let modulus = cube.wrapping_sub(&number(padded)).to_be_bytes();
    let s = s.to_be_bytes();
    (s[8..].to_vec(), modulus[8..].to_vec())
}

fn to_verify(key: &[u8], scheme: Scheme, message: &[u8], signature: &[u8]) -> Result<verify::Request, KeyError> {
    verify::Request::new(verify::Scheme::Rsa(scheme), key, message, signature)
}

/// `RSAPublicKey` of a modulus with 2048 bits and an exponent of a few bytes without a high bit.
fn der(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let mut exponent = exponent.to_vec();
    if exponent[0] & 0x80 != 0 {
        exponent.insert(0, 0);
    }
    let len = exponent.len() as u16;
    let [high, low] = (4 + 1 + 256 + 2 + len).to_be_bytes();
    let mut der = vec![0x30, 0x82, high, low, 2, 0x82, 1, 1, 0];
    der.extend_from_slice(modulus);
    der.extend_from_slice(&[2, len as u8]);
    der.extend_from_slice(&exponent);
    der
}

const MESSAGE: &[u8] = b"message";
/// Bytes in a modulus.
const SIZE: usize = 256;
