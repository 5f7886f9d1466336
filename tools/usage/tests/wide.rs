//! A wide program among scalar ones is found, whatever the collector.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use widelane_scan::{Class, scan_process};
use widelane_testkit::process::Running;
use widelane_testkit::skip::installed;
use widelane_usage::{By, Collector, Evidence, Key, Method, UsageError, Verdict, grouped};

fn finds_the_wide_program(mut collector: Collector, at_least: Verdict) {
    let Some(openssl) = installed("openssl") else {
        return;
    };
    let chacha = "speed -seconds 600 -bytes 16384 -evp chacha20-poly1305";
    let wide = Running::start(Command::new(openssl).args(chacha.split(' ')));
    let scalar = Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let (wide_pid, scalar_pid) = (wide.id(), scalar.id());
    let both = |signal| {
        for child in [&wide, &scalar] {
            child.process().signal(signal);
        }
    };

    let mut evidence = Evidence::new();
    let mut last = Vec::new();
    // Under load it may take a while until both have run.
    for _ in 0..TRIES {
        both(Signal::CONT);
        std::thread::sleep(Duration::from_millis(200));
        let mut interval = collector.interval().expect("it began, so it goes on");
        // They leave the CPUs to the search for their code.
        both(Signal::STOP);
        let uses = &interval.uses;
        let ran = |pid| uses.iter().any(|r#use| r#use.thread.pid == pid);
        if !ran(wide_pid) {
            continue;
        }
        evidence.findings(&mut interval);
        evidence.wait(Duration::from_secs(600));
        let findings = evidence.findings(&mut interval);
        last = grouped(&interval, &findings, By::Process);
        let verdict = |pid| {
            let row = last.iter().find(|row| row.key == Key::Process(pid));
            row.map(|row| row.finding.verdict)
        };
        if verdict(wide_pid) < Some(at_least) {
            continue;
        }
        let narrow = verdict(scalar_pid).is_none_or(|verdict| verdict < Verdict::Possible);
        assert!(narrow, "the shell has no code for it: {last:#?}");
        return;
    }
    let has_the_code = scan_process(wide_pid).is_ok_and(|process| {
        let functions = process.images.iter().flat_map(|image| &image.functions);
        let name = |function: &widelane_scan::Function| function.near.clone().unwrap_or_default();
        let mut functions = functions.filter(|function| function.class() >= Class::Light512);
        functions.any(|function| name(function).contains("ChaCha20"))
    });
    if has_the_code {
        panic!("it was not found: {last:#?}");
    }
    eprintln!("SKIP: this openssl has no 512-bit code for ChaCha20");
}

#[test]
fn polling_finds_a_wide_program_among_scalar_ones() {
    match Collector::open(Method::Poll, true) {
        Ok(collector) => finds_the_wide_program(collector, Verdict::Possible),
        Err(error @ (UsageError::NoAvx512 | UsageError::NoArchStatus)) => {
            eprintln!("SKIP: {error}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn programs_in_the_kernel_find_it_with_certainty() {
    match Collector::open(Method::Ebpf, true) {
        Ok(collector) if std::arch::is_x86_feature_detected!("avx512f") => {
            finds_the_wide_program(collector, Verdict::Wide);
        }
        Ok(_) => eprintln!("SKIP: this CPU has no AVX-512"),
        Err(
            error @ (UsageError::Missing(_)
            | UsageError::NoRights
            | UsageError::NoTracepoint { .. }
            | UsageError::PidNamespace),
        ) => eprintln!("SKIP: {error}"),
        Err(error) => panic!("{error}"),
    }
}

const TRIES: usize = 600;
