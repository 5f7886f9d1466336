//! A client can begin with anything, in any pieces. What rustls gets does not depend on the pieces, and is the same as
//! the client has sent but for the headers of records, or for two bytes of a ClientHello, which are known.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_terminator::fuzzing::{offer, opening};

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let (whole, restored) = opening(bytes, MOST);
    assert!(whole.len() <= bytes.len());
    assert_eq!(
        (whole.clone(), restored.clone()),
        opening(bytes, usize::from(size.max(1)))
    );
    if let Some(restored) = restored {
        let differ = whole.iter().zip(&restored).filter(|(one, other)| one != other);
        assert!(whole.len() == restored.len() && matches!(differ.count(), 1 | 2));
        assert_eq!(offer(&whole), offer(&restored));
    } else if offer(bytes).is_some() {
        assert_eq!(whole, bytes);
    }
});

const MOST: usize = 1 << 20;
