//! The engine's threads leave the program's signals to the program's own threads.
#![cfg(not(loom))]

use std::fs;

use nix::sys::signal::Signal;
use widelane_engine::{Config, Cpus, Engine, Placement};

#[test]
fn vector_cores_take_no_signals() {
    let engine = Engine::start(Config {
        placement: Placement::VectorCores(Cpus::from_iter([0])),
        ..Config::default()
    })
    .unwrap();
    let blocked = blocked("vector-0").expect("it has started");
    assert_quiet(blocked);
    drop(engine);
}

/// Signals that a thread of this name blocks, as the kernel lists them.
fn blocked(name: &str) -> Option<u64> {
    fs::read_dir("/proc/self/task").ok()?.find_map(|task| {
        // Threads that end while they are looked at have no status.
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let value = |field: &str| status.lines().find_map(|line| line.strip_prefix(field));
        let mask = value("SigBlk:")?.trim();
        (value("Name:")?.trim() == name).then(|| u64::from_str_radix(mask, 16).ok())?
    })
}

#[track_caller]
fn assert_quiet(mask: u64) {
    let blocks = |signal: Signal| mask >> (signal as u32 - 1) & 1 == 1;
    for signal in [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGCHLD, Signal::SIGUSR1] {
        assert!(blocks(signal), "{signal} may reach it: {mask:x}");
    }
    assert!(!blocks(Signal::SIGSEGV) && !blocks(Signal::SIGPROF), "{mask:x}");
}
