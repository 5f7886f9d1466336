//! ChaCha20-Poly1305 of the provider against OpenSSL's own.

#![forbid(unsafe_code)]

mod common;

use std::io::Write;
use std::process::Stdio;

use common::{Scratch, With, succeeds, text};
use widelane_crypto::chacha20poly1305::Form;

const FORMS: [&str; 5] = ["auto", "512-ifma", "512", "256", "256-light"];

/// Returns whether this CPU runs a form of the cipher that is not AWS-LC's.
fn has_forms() -> bool {
    let mut forms = Form::ALL.into_iter();
    forms.any(|form| form != Form::AwsLc && form.is_available())
}

/// Messages of random lengths, cut at random places, and records; damaged ones are refused.
#[test]
fn every_message_is_the_one_that_openssl_makes() {
    if !has_forms() {
        println!("SKIP: the provider has no form of the cipher without AVX-512 IFMA");
        return;
    }
    for scratch in Scratch::all("") {
        let Some(program) = scratch.build("cipher") else {
            return;
        };
        for form in FORMS {
            let scratch = scratch.with(&format!("chacha20poly1305 = {form}"));
            let line = format!("{} 40", scratch.libcrypto().display());
            let said = succeeds(&mut scratch.command(With::Widelane, &program, &line));
            let version = &scratch.version;
            assert!(said.contains("120 messages are the same"), "{version} {form}: {said}");
        }
    }
}

#[test]
fn the_cipher_can_be_left_out_and_mistakes_are_named() {
    for scratch in Scratch::all("chacha20poly1305 = auto") {
        let list = |scratch: &Scratch| scratch.succeeds(With::Widelane, "list -cipher-algorithms");
        let offers = |list: String| {
            list.lines()
                .any(|line| line.contains("ChaCha20-Poly1305") && line.contains("widelane"))
        };
        assert_eq!(offers(list(&scratch)), has_forms());
        assert!(!offers(list(&scratch.with(""))));
        assert!(!offers(list(&scratch.with("chacha20poly1305 = aws-lc"))));
        let wrong = scratch.with("chacha20poly1305 = 1024");
        let said = text(&wrong.run(With::Widelane, "list -providers"));
        assert!(said.contains("chacha20poly1305: unknown form"), "{said}");
    }
}

/// Connections that carry records of all lengths, in both versions and both directions.
#[test]
fn connections_carry_their_data() {
    let data: Vec<u8> = (0..600_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    for scratch in Scratch::all("chacha20poly1305 = auto") {
        scratch.keys();
        scratch.write("data", &data);
        scratch.certificate("p256");
        for version in [
            "-tls1_3 -ciphersuites TLS_CHACHA20_POLY1305_SHA256",
            "-tls1_2 -cipher ECDHE-ECDSA-CHACHA20-POLY1305",
        ] {
            for (server, client) in [(With::Widelane, With::Default), (With::Default, With::Widelane)] {
                let options = format!("-key p256.pem -cert p256.crt -WWW {version}");
                let serving = scratch.serve(server, &options);
                let address = serving.0.address;
                let line = format!("s_client -connect {address} -quiet -CAfile p256.crt {version}");
                let mut child = scratch
                    .openssl(client, &line)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                let mut request = child.stdin.take().unwrap();
                request.write_all(b"GET /data HTTP/1.0\r\n\r\n").unwrap();
                let output = child.wait_with_output().unwrap();
                drop(request);
                assert!(
                    output.stdout.ends_with(&data),
                    "{} {version} {server:?}: {}",
                    scratch.version,
                    String::from_utf8_lossy(&output.stderr)
                );
            }
        }
    }
}
