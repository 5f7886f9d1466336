//! The page of a brake comes from another process, by a name in the environment: it is refused, or has
//! exactly the length that it claims, and is written as it was read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_marks::Header;

fuzz_target!(|input: (u64, Vec<u8>)| {
    let (size, given) = input;
    let mut bytes = [0; Header::BYTES];
    let len = given.len().min(Header::BYTES);
    bytes[..len].copy_from_slice(&given[..len]);
    let cpus = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]) as usize;
    // The right size is hard to guess.
    for size in [size, Header::size(cpus.min(1 << 20))] {
        let Ok(header) = Header::parse(&bytes, size) else {
            continue;
        };
        assert_eq!(size, Header::size(header.cpus));
        assert!(header.cpus > 0 && !header.model.is_empty());
        assert!(header.model.len() < Header::BYTES);
        let written = header.to_bytes();
        assert_eq!(Header::parse(&written, size).expect("ours"), header);
    }
});
