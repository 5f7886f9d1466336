//! Signatures of hash values (`EVP_PKEY_sign`): in lanes where they are worth it, and with the results
//! and errors of OpenSSL's default provider in every case.

#![forbid(unsafe_code)]

mod common;

use std::fs;

use common::{KEYS, Scratch, With, counted, has_lanes, source, text, watch};
use widelane_testkit::c::compile;

/// Every length of input, padding and hash function, as a small program in C.
#[test]
fn results_and_errors_are_those_of_the_default_provider() {
    for scratch in Scratch::all("") {
        let (program, library) = (scratch.path("hash_values"), scratch.libcrypto());
        let libraries = match library.parent().filter(|folder| folder.is_absolute()) {
            Some(folder) => vec![
                library.display().to_string(),
                format!("-Wl,-rpath,{}", folder.display()),
            ],
            None => vec!["-lcrypto".to_owned()],
        };
        let libraries: Vec<_> = libraries.iter().map(String::as_str).collect();
        if compile(&source("hash_values"), &program, &libraries).is_none() {
            return;
        }
        scratch.keys();
        for (name, _) in KEYS.iter().filter(|(name, _)| *name != "ed25519") {
            let command = scratch.command(With::Widelane, &program, &format!("{name}.pem"));
            let (ended, report) = counted(command);
            let said = text(&ended);
            assert!(ended.status.success(), "{} {name}: {said}", scratch.version);
            let jobs: u64 = report.map_or(0, |report| report.operations.iter().map(|row| row.totals.jobs).sum());
            let in_lanes = has_lanes() && !matches!(*name, "rsa1024" | "p521");
            assert_eq!(jobs > 0, in_lanes, "{name}: {jobs} jobs, {said}");
        }
    }
}

/// The program that administrators measure with: its jobs share passes. Each call takes a second for each of
/// its operations, however fast the CPU is, so all run at once. The lanes are named, because some cost more than AWS-LC
/// on some machines, and are not chosen there.
#[test]
fn the_speed_program_fills_lanes() {
    let named = widelane_cpu::lanes().targets().next();
    let named = named.map(|target| format!("backend = {target}"));
    for scratch in Scratch::all(&named.unwrap_or_default()) {
        std::thread::scope(|scope| {
            for (algorithm, operation, said) in [
                ("rsa2048", "rsa2048-sign", "rsa 2048 bits"),
                ("ecdsap256", "p256-ecdsa-sign", "256 bits"),
                ("ed25519", "ed25519-sign", "253 bits"),
                ("ecdhx25519", "x25519-derive", "253 bits"),
            ] {
                let scratch = &scratch;
                scope.spawn(move || fills_lanes(scratch, algorithm, operation, said));
            }
        });
    }
}

fn fills_lanes(scratch: &Scratch, algorithm: &str, operation: &str, said: &str) {
    let line = format!("speed -seconds 1 -async_jobs 8 {algorithm}");
    let (ended, report) = watch(scratch.openssl(With::Widelane, &line));
    let out = text(&ended);
    // The columns are as wide as the version of the program makes them.
    let lines = out.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.join(" ")
    });
    let mut rates = lines.filter(|line| line.starts_with(said));
    let rate = rates.find_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    assert!(
        ended.status.success() && rate.is_some_and(|rate| rate > 0.0) && !out.contains("failure"),
        "{algorithm}: {out}"
    );
    if !has_lanes() {
        return;
    }
    let report = report.expect("the provider has counted");
    let row = report.operations.iter().find(|row| row.name == operation);
    let totals = &row.expect("it ran").totals;
    let average = totals.lanes_filled as f64 / totals.passes as f64;
    println!("{} {operation}: {average:.2} of {}", scratch.version, totals.lanes);
    assert!(
        totals.lanes > 1 && average > 0.75 * totals.lanes as f64,
        "{algorithm}: {totals:?}"
    );
    assert!(totals.lanes_filled > 100, "{algorithm}: {totals:?}");
    assert_eq!(totals.failed, 0);
}

/// OpenSSL's own program that signs files of hash values gives signatures that verify, too.
#[test]
fn files_of_hash_values_verify_without_the_provider() {
    for scratch in Scratch::all("") {
        scratch.keys();
        for len in [1, 20, 32, 36, 48, 64] {
            let value: Vec<u8> = (1..=len).collect();
            scratch.write("value", value);
            for (name, _) in KEYS.iter().filter(|(name, _)| *name != "ed25519") {
                scratch.succeeds(With::Default, &format!("pkey -in {name}.pem -pubout -out pub.pem"));
                let mut options = vec![String::new()];
                let hash = match len {
                    32 => Some("sha256"),
                    48 => Some("sha384"),
                    64 => Some("sha512"),
                    _ => None,
                };
                if let Some(hash) = hash {
                    options.push(format!("-pkeyopt digest:{hash}"));
                    if *name == "rsa" {
                        let pss = "-pkeyopt rsa_padding_mode:pss";
                        options.push(format!("{pss} -pkeyopt digest:{hash}"));
                        options.push(format!("{pss} -pkeyopt rsa_pss_saltlen:-1 -pkeyopt digest:{hash}"));
                        options.push(format!(
                            "{pss} -pkeyopt digest:{hash} -pkeyopt rsa_pss_saltlen:{len} \
                             -pkeyopt rsa_mgf1_md:{hash}"
                        ));
                    }
                }
                for options in options {
                    let made = |with| {
                        scratch.succeeds(
                            with,
                            &format!("pkeyutl -sign -inkey {name}.pem -in value -out s {options}"),
                        );
                        scratch.succeeds(
                            With::Default,
                            &format!("pkeyutl -verify -pubin -inkey pub.pem -in value -sigfile s {options}"),
                        );
                        fs::read(scratch.path("s")).unwrap()
                    };
                    let ours = made(With::Widelane);
                    if name.starts_with("rsa") && !options.contains("pss") {
                        assert_eq!(ours, made(With::Default), "{name} {len} {options}");
                    }
                }
            }
        }
        // A hash value of another length than the function's is refused, with it as without.
        for with in [With::Widelane, With::Default] {
            for key in ["rsa", "p256"] {
                scratch.write("value", [7; 31]);
                scratch.fails_cleanly(
                    with,
                    &format!("pkeyutl -sign -inkey {key}.pem -in value -out s -pkeyopt digest:sha256"),
                );
            }
        }
    }
}
