//! A process that makes few requests measures nothing. A test program of its own, because what one engine of
//! a process has measured the others know.
#![cfg(not(loom))]

use std::fs;
use std::thread;
use std::time::Duration;

use widelane_crypto::Task;
use widelane_crypto::{Preference, x25519};
use widelane_engine::{Config, Engine, Operation, calibration};

#[test]
fn an_operation_is_measured_after_its_sixteenth_request() {
    let config = || Config {
        backend: Preference::Auto,
        ..Config::default()
    };
    let engine = Engine::start(config()).unwrap();
    let is_batched = |name| {
        let mut lines = engine.counters().into_iter();
        lines.any(|line| line.name == name && line.lanes > 1)
    };
    if !is_batched("x25519-derive") {
        println!("SKIP: no lanes");
        return;
    }
    let specimens = x25519::Derivation.on(widelane_crypto::Backend::AwsLc).unwrap();
    let derive = || engine.run(specimens.specimen()).unwrap().unwrap();
    for _ in 0..15 {
        derive();
    }
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let names = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")));
    let names: Vec<_> = names.flatten().collect();
    assert!(!names.iter().any(|name| name == "calibration\n"), "{names:?}");
    assert!(calibration::known().is_empty());

    derive();
    let is_known = || calibration::known().iter().any(|entry| entry.name == "x25519-derive");
    // A minute and a half; a thousand times as long as it takes.
    for _ in 0..20_000 {
        if is_known() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("never measured");
}
