//! A backend can answer a check with anything. Reading the status never panics, and what is known of an answer
//! does not change with the bytes that follow.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_terminator::fuzzing::check_status;

fuzz_target!(|bytes: &[u8]| {
    let whole = check_status(bytes);
    if let Ok(Some(status)) = whole {
        assert!(status <= 999);
    }
    for end in 0..bytes.len().min(MOST) {
        match check_status(&bytes[..end]) {
            Ok(None) => {}
            Ok(known) => assert_eq!(whole, Ok(known), "{end} bytes"),
            Err(problem) => assert!(!problem.is_empty() && whole.is_err(), "{end} bytes"),
        }
    }
});

const MOST: usize = 512;
