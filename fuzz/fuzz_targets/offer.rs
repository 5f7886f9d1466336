//! A client can begin with anything. Reading what it offers never panics, names no version above TLS 1.3, and
//! depends on nothing behind the ClientHello; a part of one offers nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_terminator::fuzzing::offer;

fuzz_target!(|bytes: &[u8]| {
    let whole = offer(bytes);
    if let Some((newest, _)) = whole {
        assert!(newest.is_none_or(|version| version <= 0x0304));
    }
    for end in 0..bytes.len().min(MOST) {
        if let Some(known) = offer(&bytes[..end]) {
            assert_eq!(whole, Some(known), "{end} bytes");
        }
    }
});

const MOST: usize = 512;
