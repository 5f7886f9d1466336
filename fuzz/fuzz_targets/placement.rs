//! Reading a form of `run_wide` from any text never panics; what is accepted names CPUs that a
//! system call could mean, each once, and is read again as it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane::Form;

fuzz_target!(|text: &str| {
    let Ok(form) = text.parse::<Form>() else {
        return;
    };
    if let Form::Pool { cpus } | Form::Migrate { cpus } = &form {
        let mut once = cpus.clone();
        once.sort_unstable();
        once.dedup();
        assert!(!cpus.is_empty() && once.len() == cpus.len());
        assert!(once.last().is_some_and(|&last| last < 1024));
    }
    assert_eq!(form.to_string().parse(), Ok(form));
});
