//! The configuration of the process, in a process of its own.

use std::thread;

use widelane::{Cpus, Form, StartError, configure, run_wide};
use widelane_affinity::allowed;

#[test]
fn a_process_is_configured_once() {
    let Ok(allowed) = allowed(None) else {
        return println!("SKIP: the CPUs of this process cannot be read");
    };
    let cpus = Cpus::from_iter(allowed.iter().last());
    let none = Cpus::default();
    let wrong = configure(Form::Pool { cpus: none }.into());
    assert!(matches!(wrong, Err(StartError::NoCpus)));

    // A refused configuration does not count.
    configure(Form::Pool { cpus }.into()).expect("the CPU is allowed");
    let elsewhere = run_wide(|| thread::current().id()) != thread::current().id();
    assert_eq!(elsewhere, allowed.count() > 1);

    let error = configure(Form::Inline.into()).expect_err("it is configured");
    assert!(matches!(error, StartError::Configured { .. }), "{error}");
    assert!(error.to_string().contains("before the first call"), "{error}");
}
