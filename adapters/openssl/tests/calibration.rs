//! What passes cost, kept in a file for the next processes.

#![forbid(unsafe_code)]

mod programs;

use std::fs;
use std::os::unix::fs::MetadataExt;

use programs::{Scratch, With, has_lanes, text};

const SIGN: &str = "dgst -sha256 -sign rsa.pem -out signature text";
const VERIFY: &str = "dgst -sha256 -verify public.pem -signature signature text";

/// A folder with an RSA key and a text, for a provider that keeps its figures in `file`.
fn keeping_in(plain: &Scratch, file: &str) -> Scratch {
    let file = plain.path(file);
    let scratch = plain.with(&format!("calibration = {}", file.display()));
    for line in [
        "genrsa -out rsa.pem 2048",
        "rsa -in rsa.pem -pubout -out public.pem",
    ] {
        scratch.succeeds(With::Default, line);
    }
    fs::write(scratch.path("text"), "a message\n").unwrap();
    scratch
}

#[test]
fn the_first_process_with_a_private_key_measures_for_all() {
    for plain in Scratch::all("") {
        let file = plain.path("cache/calibration");
        let scratch = keeping_in(&plain, "cache/calibration");
        scratch.succeeds(With::Default, SIGN);
        scratch.succeeds(With::Widelane, VERIFY);
        assert!(!file.exists(), "a public key is no reason to measure");
        scratch.succeeds(With::Widelane, SIGN);
        if !has_lanes() {
            assert!(!file.exists(), "there is nothing to measure");
            continue;
        }
        let measured = fs::read_to_string(&file).unwrap();
        for operation in ["rsa2048-sign", "p256-ecdsa-sign", "x25519-derive"] {
            assert!(measured.contains(operation), "{operation}: {measured}");
        }
        let inode = fs::metadata(&file).unwrap().ino();
        scratch.succeeds(With::Widelane, SIGN);
        let second = fs::metadata(&file).unwrap().ino();
        assert_eq!(second, inode, "the second process has measured again");
        scratch.succeeds(With::Default, VERIFY);

        fs::write(&file, "{}").unwrap();
        scratch.succeeds(With::Widelane, SIGN);
        let again = fs::read_to_string(&file).unwrap();
        assert!(again.contains("rsa2048-sign"), "{again}");
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
