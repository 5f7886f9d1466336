//! Files of ticket keys can hold anything. Reading them never panics; an error says on one line what is
//! wrong; and keys that are read make a file in nginx's form that has the same key again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_terminator::fuzzing::ticket_keys;

fuzz_target!(|file: &[u8]| match ticket_keys(file) {
    Err(problem) => assert!(!problem.is_empty() && !problem.contains('\n'), "{problem:?}"),
    Ok(keys) => {
        assert!((1..=3).contains(&keys.len()));
        for key in keys {
            assert!([48, 80].contains(&key.len()));
            assert_eq!(ticket_keys(&key), Ok(vec![key.clone()]));
        }
    }
});
