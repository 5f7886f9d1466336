//! Reading a placement of wide code from any text never panics; what is accepted names CPUs that a
//! system call could mean, each once, and is read again as it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane::Placement;

fuzz_target!(|text: &str| {
    let Ok(placement) = text.parse::<Placement>() else {
        return;
    };
    if let Placement::Pool { cpus } | Placement::Migrate { cpus } = &placement {
        let mut once = cpus.clone();
        once.sort_unstable();
        once.dedup();
        assert!(!cpus.is_empty() && once.len() == cpus.len());
        assert!(once.last().is_some_and(|&last| last < 1024));
    }
    assert_eq!(placement.to_string().parse(), Ok(placement));
});
