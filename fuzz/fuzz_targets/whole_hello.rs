//! A client can begin with anything, in any pieces. Whether its ClientHello is whole depends on the bytes alone, and a
//! ClientHello in one record is whole with its last byte.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_terminator::fuzzing::{offer, whole_hello};

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let piece = usize::from(piece).max(1);
    let first = whole_hello(bytes, 1);
    let by_pieces = whole_hello(bytes, piece);
    match (first, by_pieces) {
        (None, None) => {}
        (Some(first), Some(later)) => assert!((first..first + piece).contains(&later)),
        different => panic!("{different:?}"),
    }
    if offer(bytes).is_some() {
        assert!(first.is_some());
    }
});
