//! The provider on a CPU without lanes, and what it leaves to OpenSSL on any.

#![forbid(unsafe_code)]

mod common;

use std::fs;

use widelane_crypto::Preference;

use common::{KEYS, POST_QUANTUM, Scratch, With, has_lanes, text};

/// Decisions that the provider logs: who computes each operation, and why.
fn decisions(scratch: &Scratch) -> Vec<(String, String)> {
    let said = scratch.succeeds(With::Widelane, "list -providers");
    let lines = said.lines().filter_map(|line| {
        let (operation, decision) = line.strip_prefix("widelane: ")?.split_once(": ")?;
        Some((operation.to_owned(), decision.to_owned()))
    });
    let decisions: Vec<_> = lines.filter(|(operation, _)| !operation.contains(' ')).collect();
    assert!(decisions.len() >= 17, "{said}");
    decisions
}

fn is_group(operation: &str) -> bool {
    operation.contains("MLKEM")
}

#[test]
fn post_quantum_groups_work_without_lanes() {
    for scratch in Scratch::all("log = info") {
        let scratch = scratch.without_lanes();
        for (operation, decision) in decisions(&scratch) {
            let expected = match is_group(&operation) && !scratch.is_post_quantum() {
                true => "AWS-LC, OpenSSL has none",
                false => "OpenSSL, until both are measured",
            };
            assert_eq!(decision, expected, "{operation}");
        }
        scratch.keys();
        scratch.certificate("rsa");
        for group in POST_QUANTUM {
            for mode in ["", "-async"] {
                let options = format!("-key rsa.pem -cert rsa.crt -groups {group} {mode}");
                let server = scratch.serve(With::Widelane, &options);
                let line = format!("-groups {group} -CAfile rsa.crt");
                let output = scratch.handshake(With::Widelane, &server, &line);
                let said = text(&output);
                assert!(
                    output.status.success() && said.contains("Verification: OK"),
                    "{group} {mode}: {said}"
                );
                let size = match group.ends_with("1024") {
                    true => "1024",
                    false => "768",
                };
                let jobs = server.jobs(&format!("mlkem{size}-encaps"));
                assert_eq!(jobs > 0, !scratch.is_post_quantum(), "{group} {mode}");
            }
        }
    }
}

/// Measured once, and decided by that; the same in the next process.
#[test]
fn what_is_clearly_faster_here_is_ours_without_lanes_too() {
    for plain in Scratch::all("") {
        let file = plain.path("cache/calibration");
        let options = format!("log = info\ncalibration = {}", file.display());
        let scratch = plain.with(&options).without_lanes();
        let first = decisions(&scratch);
        for (operation, decision) in &first {
            let is_measured = decision.ends_with("× OpenSSL")
                && (decision.starts_with("AWS-LC, ") || decision.starts_with("OpenSSL, the fastest here is "));
            // Groups are not compared.
            assert!(is_measured || is_group(operation), "{operation}: {decision}");
        }
        let kept = fs::read(&file).unwrap();
        assert_eq!(decisions(&scratch), first);
        assert_eq!(fs::read(&file).unwrap(), kept, "nothing is measured again");
    }
}

/// Figures that cannot be kept are not measured: each process would do it again.
#[test]
fn nothing_is_measured_where_nothing_can_be_kept() {
    for plain in Scratch::all("") {
        fs::write(plain.path("in-the-way"), "").unwrap();
        let file = plain.path("in-the-way/calibration");
        let options = format!("log = info\ncalibration = {}", file.display());
        let scratch = plain.with(&options).without_lanes();
        for (operation, decision) in decisions(&scratch) {
            assert!(!decision.contains('×'), "{operation}: {decision}");
        }
    }
}

#[test]
fn a_provider_that_is_told_to_measures_when_it_starts() {
    for plain in Scratch::all("") {
        let file = plain.path("cache/calibration");
        let options = format!("log = info\nmeasure = at-start\ncalibration = {}", file.display());
        let scratch = plain.with(&options);
        for (operation, decision) in decisions(&scratch) {
            assert!(
                decision.contains('×') || is_group(&operation),
                "{operation}: {decision}"
            );
        }
        // Another process knows it without measuring.
        let options = format!("log = info\ncalibration = {}", file.display());
        let next = decisions(&plain.with(&options));
        assert!(next.iter().any(|(_, decision)| decision.contains('×')), "{next:?}");
    }
}

/// One setting chooses for all that both can do.
#[test]
fn a_setting_decides_who_computes() {
    for plain in Scratch::all("") {
        for (prefer, who) in [("widelane", "AWS-LC"), ("openssl", "OpenSSL")] {
            let options = format!("log = info\nprefer = {prefer}");
            let scratch = plain.with(&options).without_lanes();
            for (operation, decision) in decisions(&scratch) {
                let expected = match is_group(&operation) && !scratch.is_post_quantum() {
                    true => "AWS-LC, OpenSSL has none".to_owned(),
                    false => format!("{who}, as configured"),
                };
                assert_eq!(decision, expected, "{operation}");
            }
            // In each case signatures verify, and both sides agree.
            scratch.keys();
            scratch.write("text", "a message\n");
            for (key, _) in KEYS {
                let mode = match key {
                    "ed25519" => "-rawin",
                    _ => "-rawin -digest sha256",
                };
                let files = format!("-inkey {key}.pem -in text {mode}");
                scratch.succeeds(With::Widelane, &format!("pkeyutl -sign {files} -out signature"));
                let verify = format!("pkeyutl -verify {files} -sigfile signature");
                scratch.succeeds(With::Default, &verify);
            }
            for key in ["p256", "rsa"] {
                let certify =
                    format!("req -x509 -new -key {key}.pem -subj /CN=localhost -out {key}.crt -config default.cnf");
                scratch.succeeds(With::Default, &certify);
                let options = format!("-key {key}.pem -cert {key}.crt");
                let server = scratch.serve(With::Widelane, &options);
                for group in ["X25519", "P-256", "P-384", "P-521"] {
                    let line = format!("-groups {group} -CAfile {key}.crt -verify_return_error");
                    let output = scratch.handshake(With::Default, &server, &line);
                    assert!(output.status.success(), "{group}: {}", text(&output));
                }
                for operation in ["x25519-derive", "p256-ecdh", "p384-keygen"] {
                    let ours = u64::from(prefer == "widelane");
                    assert_eq!(server.jobs(operation), ours, "{prefer} {operation}");
                }
            }
        }
        // Lanes are left out in the same way, and a backend that is named is not compared.
        if has_lanes() {
            let backend = Preference::Auto.resolve().unwrap();
            let scratch = plain.with(&format!("log = info\nbackend = {backend}"));
            let lanes = format!("lanes ({backend}), as configured");
            let of_lanes = |(_, decision): &(String, String)| *decision == lanes;
            assert!(decisions(&scratch).iter().any(of_lanes));
            let scratch = plain.with("log = info\nprefer = openssl");
            let of_openssl = |(_, decision): &(String, String)| decision == "OpenSSL, as configured";
            assert!(decisions(&scratch).iter().any(of_openssl));
        }
    }
}
