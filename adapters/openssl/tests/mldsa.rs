//! ML-DSA in OpenSSL 3.5 and later: keys and certificates are OpenSSL's, signatures are made in lanes.

#![forbid(unsafe_code)]

mod common;

use std::fs;

use common::{Scratch, With, has_lanes, text};

const SIZES: [&str; 3] = ["44", "65", "87"];

/// Each program that has ML-DSA, with a key and a certificate of each size.
fn programs() -> Vec<Scratch> {
    let mut all = Scratch::all("");
    all.retain(Scratch::is_post_quantum);
    if all.is_empty() {
        println!("SKIP: WIDELANE_OPENSSL names no OpenSSL 3.5 or later");
    }
    for scratch in &all {
        for size in SIZES {
            scratch.succeeds(
                With::Default,
                &format!("genpkey -algorithm ML-DSA-{size} -out {size}.pem"),
            );
            scratch.certificate(size);
        }
    }
    all
}

#[test]
fn handshakes_with_ml_dsa_certificates_are_signed_in_lanes() {
    for scratch in programs() {
        for size in SIZES {
            let options = format!("-key {size}.pem -cert {size}.crt -groups X25519MLKEM768");
            let server = scratch.serve(With::Widelane, &options);
            let before = server.jobs(&format!("mldsa{size}-sign"));
            let said = scratch.handshake(
                With::Default,
                &server,
                &format!("-tls1_3 -groups X25519MLKEM768 -CAfile {size}.crt -verify_return_error"),
            );
            let said = text(&said);
            assert!(said.contains("Verification: OK"), "{size}: {said}");
            assert!(said.to_lowercase().contains(&format!("mldsa{size}")), "{said}");
            let after = server.jobs(&format!("mldsa{size}-sign"));
            assert_eq!(after - before, has_lanes().into(), "{size}");
        }
    }
}

/// Contexts, signatures without random bytes and verification are the default provider's.
#[test]
fn every_option_of_ml_dsa_signs_what_the_other_side_verifies() {
    for scratch in programs() {
        scratch.write("text", "a message\n".repeat(1000));
        for size in SIZES {
            scratch.succeeds(With::Default, &format!("pkey -in {size}.pem -pubout -out {size}.pub"));
            for options in [
                "",
                "-pkeyopt deterministic:1",
                "-pkeyopt context-string:a_context",
                "-pkeyopt message-encoding:0",
            ] {
                for (signer, verifier) in [(With::Widelane, With::Default), (With::Default, With::Widelane)] {
                    scratch.succeeds(
                        signer,
                        &format!("pkeyutl -sign -rawin -inkey {size}.pem -in text -out s {options}"),
                    );
                    // A verifier cannot see how it was made.
                    let options = options.replace("-pkeyopt deterministic:1", "");
                    let verify =
                        format!("pkeyutl -verify -rawin -pubin -inkey {size}.pub -in text -sigfile s {options}");
                    scratch.succeeds(verifier, &verify);
                    let mut damaged = fs::read(scratch.path("s")).unwrap();
                    damaged[1000] ^= 1;
                    scratch.write("s", damaged);
                    scratch.fails_cleanly(verifier, &verify);
                }
            }
            let sign = format!("pkeyutl -sign -rawin -inkey {size}.pem -in text -pkeyopt deterministic:1 -out");
            scratch.succeeds(With::Widelane, &format!("{sign} ours"));
            scratch.succeeds(With::Default, &format!("{sign} theirs"));
            let [ours, theirs] = ["ours", "theirs"].map(|name| fs::read(scratch.path(name)).unwrap());
            assert_eq!(ours, theirs, "without random bytes there is one signature");
        }
    }
}

/// Keys of files come with a seed, without one, or with both.
#[test]
fn every_form_of_a_key_signs() {
    for scratch in programs() {
        for form in ["seed-only", "priv-only", "seed-priv"] {
            scratch.succeeds(
                With::Default,
                &format!("pkey -in 65.pem -provparam ml-dsa.output_formats={form} -out {form}.pem"),
            );
            scratch.succeeds(
                With::Widelane,
                &format!("req -x509 -new -key {form}.pem -subj /CN=x -out {form}.crt -config default.cnf"),
            );
            scratch.succeeds(
                With::Default,
                &format!("verify -check_ss_sig -CAfile {form}.crt {form}.crt"),
            );
        }
    }
}
