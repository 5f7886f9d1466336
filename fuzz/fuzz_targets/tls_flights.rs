//! Whatever goes through the calls of a process is taken as flights of TLS: the parser never panics, and
//! what it tells can be printed.
//!
//! The input is a list of calls: a byte whose lowest bit is the direction and whose next bit says that
//! bytes are missing at the end, a byte for the length, and the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_trace::tls::{Flights, names};
use widelane_trace::{Bytes, Direction, Stack};

fuzz_target!(|data: &[u8]| {
    let mut flights = Flights::default();
    let mut rest = data;
    while let [kind, length, content @ ..] = rest {
        // Flights of real programs are longer than a byte can say.
        let length = usize::from(*length) * 8 + usize::from(kind >> 5);
        let (content, later) = content.split_at(length.min(content.len()));
        rest = later;
        let direction = match kind & 1 {
            0 => Direction::Read,
            _ => Direction::Written,
        };
        let missing = if kind & 2 == 0 { 0 } else { 1000 };
        flights.take(&Bytes {
            pid: 1,
            tid: 1,
            time: 0,
            stack: Stack::Pointer(0),
            descriptor: 0,
            direction,
            length: content.len() as u64 + missing,
            bytes: content.to_vec(),
        });
    }
    let facts = flights.facts();
    let host = facts.server_name.as_deref().unwrap_or_default();
    assert!(host.len() <= 4 * 255 && host.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    let texts = [
        facts.version.map(names::version),
        facts.cipher.map(names::cipher),
        facts.group.map(names::group),
        facts.alert.and_then(|alert| alert.name()),
    ];
    for text in texts.into_iter().flatten() {
        assert!(!text.is_empty() && text.is_ascii());
    }
    // A session is resumed or not only in a handshake that a server has answered.
    assert!(facts.resumed.is_none() || facts.server_hello);
});
