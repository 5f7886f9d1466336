//! Reading a state file from hostile text never panics; what is accepted names only threads that a
//! system call could mean, gives none of them an empty affinity, and is read again as it is
//! written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_steer::{Original, State};

fuzz_target!(|text: &str| {
    // Most variations break the frame, and then nothing inside is checked.
    let owner = r#""boot":"1","owner":{"tid":1,"start":1}"#;
    let framed = format!(r#"{{"version":2,"state":{{{owner},"records":[{text}]}}}}"#);
    for text in [text, &framed] {
        let Ok(state) = State::from_json(text) else {
            continue;
        };
        for record in &state.records {
            assert!(record.id.tid > 0 && record.pid > 0);
            assert!(record.given.iter().all(|mask| !mask.is_empty()));
            assert!(!matches!(record.original, Original::Only(cpus) if cpus.is_empty()));
        }
        assert_eq!(State::from_json(&state.to_json()), Ok(state));
    }
});
