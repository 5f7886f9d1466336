//! Who can write into etcd can put anything there, and a key file can hold anything. Reading them never panics;
//! an error says on one line what is wrong; what opens has a key that can encrypt, or none yet.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_ticket_etcd::fuzzing::{key_file, value};

fuzz_target!(|bytes: &[u8]| {
    for inside in [false, true] {
        match value(bytes, inside) {
            Err(problem) => assert!(!problem.is_empty() && !problem.contains('\n'), "{problem:?}"),
            Ok((_, encrypts, keys)) => {
                assert!((1..=5).contains(&keys));
                assert!(encrypts.is_none_or(|place| usize::from(place) < keys));
            }
        }
    }
    if let Err(problem) = key_file(bytes) {
        assert!(!problem.is_empty() && !problem.contains('\n'), "{problem:?}");
    }
});
