//! The file in which processes keep what passes cost, in programs that are no servers.

#![forbid(unsafe_code)]

mod common;

use std::fs;

use common::{Scratch, With, has_lanes, text};

const SIGN: &str = "dgst -sha256 -sign rsa.pem -out signature text";
const VERIFY: &str = "dgst -sha256 -verify public.pem -signature signature text";

/// A folder with an RSA key and a text, for a provider that keeps its figures in `file`.
fn keeping_in(plain: &Scratch, file: &str) -> Scratch {
    let file = plain.path(file);
    let scratch = plain.with(&format!("calibration = {}", file.display()));
    for line in ["genrsa -out rsa.pem 2048", "rsa -in rsa.pem -pubout -out public.pem"] {
        scratch.succeeds(With::Default, line);
    }
    scratch.write("text", "a message\n");
    scratch
}

/// A server that forks for each connection, and a client: to measure takes longer than they compute. Where
/// a server measures is tested with nginx.
#[test]
fn a_process_that_signs_once_measures_nothing() {
    for plain in Scratch::all("") {
        let scratch = keeping_in(&plain, "cache/calibration");
        for line in [SIGN, VERIFY] {
            scratch.succeeds(With::Widelane, line);
            scratch.succeeds(With::Default, line);
        }
        let kept = fs::read_to_string(plain.path("cache/calibration"));
        match has_lanes() {
            true => assert!(kept.is_err(), "{kept:?}"),
            // What OpenSSL is compared with, once; there are no passes.
            false => assert!(kept.unwrap().contains("\"entries\": []")),
        }
    }
}

#[test]
fn a_file_that_cannot_be_kept_is_no_error_and_a_mistake_is_named() {
    for plain in Scratch::all("") {
        fs::write(plain.path("in-the-way"), "").unwrap();
        let scratch = keeping_in(&plain, "in-the-way/calibration");
        let said = text(&scratch.run(With::Widelane, SIGN));
        assert!(!said.contains("calibration"), "{said}");
        scratch.succeeds(With::Default, VERIFY);

        let wrong = plain.with("calibration = cache/calibration");
        let said = text(&wrong.run(With::Widelane, "list -providers"));
        let named = "calibration: `cache/calibration` is no absolute path";
        assert!(said.contains(named), "{said}");
    }
}
