//! A load balancer can send anything as its PROXY header. Reading it never panics; what is decided does
//! not depend on the pieces in which the bytes come; and no header is waited for without end.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_terminator::fuzzing::introduction;

fuzz_target!(|bytes: &[u8]| {
    let whole = introduction(bytes);
    match &whole {
        Ok(Some((length, _))) => {
            assert!((1..=LONGEST).contains(length) && *length <= bytes.len());
            assert_eq!(introduction(&bytes[..*length]), whole, "what follows is the client's");
            for end in 0..*length {
                assert_eq!(introduction(&bytes[..end]), Ok(None), "{end} bytes");
            }
        }
        Ok(None) => assert!(bytes.len() < LONGEST),
        Err(problem) => assert!(!problem.is_empty()),
    }
});

const LONGEST: usize = 4096;
