//! `widelane usage` as its users see it: what it prints, and how it ends.

mod under_test;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn usage(arguments: &[&str]) -> Command {
    let mut command = under_test::widelane();
    command.arg("usage").args(arguments).stdin(Stdio::null());
    command
}

/// Returns whether it cannot run because there is no AVX-512; says so.
fn skipped(output: &Output) -> bool {
    let complaint = String::from_utf8_lossy(&output.stderr);
    let lacking = complaint.contains("AVX-512") || complaint.contains("arch_status");
    let skipped = output.status.code() == Some(1) && lacking;
    if skipped {
        eprintln!("SKIP: {}", complaint.trim());
    }
    skipped
}

#[test]
fn json_has_a_line_for_each_interval() {
    for method in ["auto", "poll"] {
        let count = ["--json", "--count", "2", "--interval", "0.2", "--method", method];
        let output = usage(&count).output().expect("it starts");
        if skipped(&output) {
            return;
        }
        assert!(output.status.success(), "{output:?}");
        let lines = under_test::objects(&output);
        assert_eq!(lines.len(), 2);
        for line in &lines {
            assert!(line["seconds"].as_f64() > Some(0.0), "{line}");
            let method = line["method"].as_str();
            // It polls because it was told to, or because of what it says.
            let fell_back = line["fallback"].as_str().is_some();
            assert_eq!(method == Some("poll"), fell_back || count.contains(&"poll"));
            let rows = line["rows"].as_array().expect("rows");
            for row in rows {
                assert!(row["pid"].is_u64() && row["verdict"].is_string(), "{row}");
            }
        }
    }
}

#[test]
fn a_signal_ends_it_well_and_removes_its_file() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        if is_ignored(signal) {
            println!("SKIP: who started this test ignores {signal:?}, and so do its children");
            continue;
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("widelane.prom");
        let name = file.to_str().expect("a plain name");
        let to_file = ["--prometheus", "--output", name, "--interval", "0.1"];
        let mut command = usage(&to_file);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        if !appears(&file, &mut child) {
            let output = child.wait_with_output().expect("it has ended");
            assert!(skipped(&output), "it ended without its file: {output:?}");
            return;
        }
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{signal:?}: {output:?}");
        let left = std::fs::read_dir(folder.path()).expect("readable").count();
        assert_eq!(left, 0, "{signal:?}");
    }
}

#[test]
fn wrong_intervals_are_refused_with_the_right_ones() {
    let output = usage(&["--interval", "0"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("seconds from 0.1"), "{complaint}");
}

/// Returns whether this process ignores a signal, as under nohup or in the background of a script.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = u64::from_str_radix(mask.expect("a mask").trim(), 16).expect("hexadecimal");
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Waits until a file is there; false if the program ended before.
fn appears(file: &Path, child: &mut Child) -> bool {
    loop {
        if file.exists() {
            return true;
        }
        if child.try_wait().expect("a child of ours").is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn overhead_is_measured_or_the_reason_is_told() {
    let output = usage(&["--overhead", "--json"]).output().expect("it starts");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(1) {
        // Rights, the kernel, or the PID namespace: whichever it is, it has a name.
        eprintln!("SKIP: {}", complaint.trim());
        assert!(complaint.contains("BPF") || complaint.contains("trac"), "{complaint}");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert!(figures["rounds"].as_u64() > Some(0), "{figures}");
    for name in ["without_ns", "with_ns"] {
        let median = figures[name][1].as_f64();
        assert!(median > Some(0.0) && median >= figures[name][0].as_f64(), "{figures}");
    }
}
