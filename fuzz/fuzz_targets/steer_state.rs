//! Reading a state file from hostile text never panics; what is accepted names only threads that a
//! system call could mean, gives none of them an empty affinity, and is read again as it is
//! written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_steer::{Original, State};

fuzz_target!(|text: &str| {
    // Most variations break the first or the last line, and then no other line is read.
    let framed = format!("widelane steer 1\nboot 1\nowner 1 1\n{text}\nend\n");
    for text in [text, &framed] {
        let Ok(state) = text.parse::<State>() else {
            continue;
        };
        for record in &state.records {
            assert!(record.id.tid > 0 && record.pid > 0);
            assert!(record.given.iter().all(|mask| !mask.is_empty()));
            assert!(!matches!(record.original, Original::Only(cpus) if cpus.is_empty()));
        }
        assert_eq!(state.to_string().parse(), Ok(state));
    }
});
