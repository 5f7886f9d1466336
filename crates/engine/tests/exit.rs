//! A process may end while the engine measures in the background.
#![cfg(not(loom))]

use std::fs;
use std::process::Command;
use std::time::Duration;

use widelane_crypto::agreement::{Curve, Secret};
use widelane_engine::{Config, Engine};

/// The child of `a_process_may_end_while_costs_are_measured` after so many microseconds.
const PAUSE: &str = "WIDELANE_TEST_PAUSE_US";

#[test]
fn a_process_may_end_while_costs_are_measured() {
    if let Some(pause) = std::env::var_os(PAUSE) {
        let pause = pause.to_str().and_then(|pause| pause.parse().ok());
        measure_and_exit(Duration::from_micros(pause.expect("a number")));
    }
    let own = std::env::current_exe().unwrap();
    for run in 0..20_u32 {
        let child = Command::new(&own)
            .args(["--exact", "a_process_may_end_while_costs_are_measured"])
            .env(PAUSE, (run * 150).to_string())
            .output()
            .unwrap();
        assert!(child.status.success(), "run {run}: {child:?}");
    }
}

/// The first request starts a measurement.
fn measure_and_exit(pause: Duration) -> ! {
    // What is registered first runs last.
    // SAFETY: the function has no conditions.
    unsafe { libc::atexit(nothing_measures) };
    let engine = Engine::start(Config::default()).unwrap();
    let secret = Secret::generate(Curve::X25519).unwrap();
    engine.run(secret.public()).unwrap().unwrap();
    std::thread::sleep(pause);
    std::process::exit(0);
}

/// Ends the process with another status if a thread is left that measures.
extern "C" fn nothing_measures() {
    let left = fs::read_dir("/proc/self/task").is_ok_and(|mut tasks| {
        tasks.any(|task| {
            let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| measures(&stat))
        })
    });
    if left {
        // SAFETY: the function has no conditions.
        unsafe { libc::_exit(3) };
    }
}

/// Returns whether a line of proc(5)'s `stat` is that of a thread which measures.
///
/// A thread that was joined stays listed for a moment: it has left our memory, but the kernel has
/// not put it away. It has the flag `PF_EXITING` then.
fn measures(stat: &str) -> bool {
    const PF_EXITING: u32 = 4;
    let (name, rest) = stat.rsplit_once(')').expect("a name in parentheses");
    let flags = rest
        .split_ascii_whitespace()
        .nth(6)
        .and_then(|flags| flags.parse().ok());
    name.ends_with("(calibration") && flags.is_none_or(|flags: u32| flags & PF_EXITING == 0)
}
