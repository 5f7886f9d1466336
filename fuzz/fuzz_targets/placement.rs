//! Reading a form of `run_wide` from any text never panics; what is accepted names CPUs, and is read
//! again as it is written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane::Form;

fuzz_target!(|text: &str| {
    let Ok(form) = text.parse::<Form>() else {
        return;
    };
    if let Form::Pool { cpus } | Form::Migrate { cpus } = &form {
        assert!(!cpus.is_empty());
    }
    assert_eq!(form.to_string().parse(), Ok(form));
});
