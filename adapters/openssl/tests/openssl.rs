//! The provider in the `openssl` program: what it signs, agrees on and negotiates must be the same to
//! a program without it.

#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::process::Command;

use common::{KEYS, POST_QUANTUM, Scratch, With, has_lanes, text};

#[test]
fn the_provider_is_loaded_beside_the_default_one() {
    for scratch in Scratch::all("log = info") {
        let list = scratch.succeeds(With::Widelane, "list -providers");
        assert!(list.contains("default") && list.contains("widelane"), "{list}");
        let signatures = scratch.succeeds(With::Widelane, "list -signature-algorithms");
        assert_eq!(signatures.contains("ECDSA @ widelane"), has_lanes(), "{signatures}");
    }
}

#[test]
fn options_are_respected_and_mistakes_are_named() {
    for scratch in Scratch::all("operations = ecdsa") {
        let signatures = scratch.succeeds(With::Widelane, "list -signature-algorithms");
        assert_eq!(signatures.contains("ECDSA @ widelane"), has_lanes(), "{signatures}");
        assert!(!signatures.contains("ED25519 } @ widelane"), "{signatures}");
        let wrong = scratch.with("operations = dsa");
        let said = text(&wrong.run(With::Widelane, "version"));
        let said = said + &text(&wrong.run(With::Widelane, "list -providers"));
        assert!(said.contains("`dsa` is none of rsa, ecdsa"), "{said}");
    }
}

/// A program that inherits the configuration says what it says without, whatever it asks of OpenSSL.
#[test]
fn reasons_are_logged_at_level_info_alone() {
    for scratch in Scratch::all("") {
        scratch.keys();
        let key = scratch.path("rsa1024.pem");
        let line = format!("dgst -sha256 -sign {} -hex widelane.cnf", key.display());
        let quiet = text(&scratch.run(With::Widelane, &line));
        assert!(!quiet.contains("widelane: "), "{quiet}");
        let said = text(&scratch.with("log = info").run(With::Widelane, &line));
        assert_eq!(said.contains("OpenSSL signs by itself"), has_lanes(), "{said}");
    }
}

/// valgrind maps no vDSO, though the kernel's vector names one.
#[test]
fn programs_run_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIP: there is no valgrind (Debian: apt-get install valgrind)");
        return;
    }
    for scratch in Scratch::all("") {
        for with in [With::Default, With::Widelane] {
            let openssl = scratch.openssl(with, "");
            let line = format!(
                "-q --tool=none {} genpkey -algorithm X25519",
                openssl.get_program().display()
            );
            let mut valgrind = scratch.command(with, "valgrind", &line);
            let key = common::succeeds(&mut valgrind);
            assert!(key.contains("BEGIN PRIVATE KEY"), "{with:?}: {key}");
        }
    }
}

/// Certificates are signed in one shot, as handshakes are.
#[test]
fn certificates_of_all_keys_verify_without_the_provider() {
    for scratch in Scratch::all("") {
        scratch.keys();
        for (name, _) in KEYS {
            for (signer, verifier) in [(With::Widelane, With::Default), (With::Default, With::Widelane)] {
                for options in [
                    "",
                    "-sha384",
                    "-sigopt rsa_padding_mode:pss",
                    "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1",
                    "-sha512 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:20",
                ] {
                    if options.contains("rsa") && !name.starts_with("rsa")
                        || name == "ed25519" && !options.is_empty()
                        || name == "rsa1024" && options.contains("sha512")
                    {
                        continue;
                    }
                    scratch.succeeds(
                        signer,
                        &format!(
                            "req -x509 -new -key {name}.pem -subj /CN={name} {options} -out c.pem -config default.cnf"
                        ),
                    );
                    scratch.succeeds(verifier, "verify -auth_level 0 -CAfile c.pem c.pem");
                }
            }
            // A certificate whose signature was damaged is refused.
            scratch.succeeds(With::Widelane, "x509 -in c.pem -outform DER -out c.der");
            let mut der = fs::read(scratch.path("c.der")).unwrap();
            *der.last_mut().unwrap() ^= 1;
            scratch.write("c.der", der);
            scratch.succeeds(With::Widelane, "x509 -inform DER -in c.der -out d.pem");
            let refused = scratch.run(With::Widelane, "verify -check_ss_sig -CAfile d.pem d.pem");
            assert!(!refused.status.success(), "{name}: {}", text(&refused));
        }
    }
}

/// Long streams and other hash functions are the default provider's.
#[test]
fn what_lanes_do_not_sign_is_signed_all_the_same() {
    for scratch in Scratch::all("") {
        scratch.keys();
        scratch.write("text", "a message\n".repeat(1000));
        for (name, _) in KEYS.iter().filter(|(name, _)| *name != "ed25519") {
            scratch.succeeds(With::Default, &format!("pkey -in {name}.pem -pubout -out pub.pem"));
            for hash in ["sha1", "sha256", "sha512", "sha3-256"] {
                for (signer, verifier) in [(With::Widelane, With::Default), (With::Default, With::Widelane)] {
                    scratch.succeeds(signer, &format!("dgst -{hash} -sign {name}.pem -out s text"));
                    scratch.succeeds(verifier, &format!("dgst -{hash} -verify pub.pem -signature s text"));
                }
            }
        }
        scratch.succeeds(With::Default, "pkey -in ed25519.pem -pubout -out pub.pem");
        scratch.succeeds(
            With::Widelane,
            "pkeyutl -sign -rawin -inkey ed25519.pem -in text -out s",
        );
        scratch.succeeds(
            With::Default,
            "pkeyutl -verify -rawin -pubin -inkey pub.pem -sigfile s -in text",
        );
        // An encrypted message takes RSA keys, too, which are none of ours there.
        scratch.succeeds(With::Default, "pkey -in rsa.pem -pubout -out pub.pem");
        scratch.write("short", "secret");
        scratch.succeeds(
            With::Widelane,
            "pkeyutl -encrypt -pubin -inkey pub.pem -in short -out e",
        );
        scratch.succeeds(With::Widelane, "pkeyutl -decrypt -inkey rsa.pem -in e -out d");
        assert_eq!(fs::read(scratch.path("d")).unwrap(), b"secret");
    }
}

/// Short streams are signed in one shot, long ones change hands in the middle.
#[test]
fn streams_of_any_length_have_the_same_signature() {
    for scratch in Scratch::all("") {
        scratch.keys();
        for key in ["rsa", "p256"] {
            scratch.succeeds(With::Default, &format!("pkey -in {key}.pem -pubout -out {key}.pub"));
        }
        for len in [0, 1, 8192, 65_536, 65_537, 300_000] {
            let text: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            scratch.write("text", text);
            let [ours, theirs] = [With::Widelane, With::Default].map(|with| {
                scratch.succeeds(with, "dgst -sha256 -sign rsa.pem -out s text");
                fs::read(scratch.path("s")).unwrap()
            });
            assert_eq!(ours, theirs, "{} {len}", scratch.version);
            for (key, options) in [
                ("p256", ""),
                ("rsa", "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1"),
                ("rsa", "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:20"),
            ] {
                scratch.succeeds(
                    With::Widelane,
                    &format!("dgst -sha256 {options} -sign {key}.pem -out s text"),
                );
                scratch.succeeds(
                    With::Default,
                    &format!("dgst -sha256 {options} -verify {key}.pub -signature s text"),
                );
            }
        }
    }
}

#[test]
fn both_sides_agree_whoever_makes_the_keys() {
    for scratch in Scratch::all("") {
        for algorithm in [
            "X25519",
            "EC -pkeyopt ec_paramgen_curve:P-256",
            "EC -pkeyopt ec_paramgen_curve:P-384",
            "EC -pkeyopt ec_paramgen_curve:P-521",
            "EC -pkeyopt ec_paramgen_curve:secp256k1",
        ] {
            for (one, other) in [(With::Widelane, With::Default), (With::Widelane, With::Widelane)] {
                for (with, name) in [(one, "one"), (other, "other")] {
                    scratch.succeeds(with, &format!("genpkey -algorithm {algorithm} -out {name}.pem"));
                    scratch.succeeds(with, &format!("pkey -in {name}.pem -pubout -out {name}.pub"));
                }
                let derive = |with, own: &str, peer: &str| {
                    scratch.succeeds(
                        with,
                        &format!("pkeyutl -derive -inkey {own}.pem -peerkey {peer}.pub -out secret"),
                    );
                    fs::read(scratch.path("secret")).unwrap()
                };
                let secret = derive(one, "one", "other");
                assert!(secret.len() >= 32);
                assert_eq!(secret, derive(other, "other", "one"), "{algorithm}");
                assert_eq!(secret, derive(With::Default, "one", "other"), "{algorithm}");
            }
        }
    }
}

#[test]
fn wrong_keys_are_errors() {
    for scratch in Scratch::all("") {
        scratch.keys();
        let pem = fs::read_to_string(scratch.path("rsa.pem")).unwrap();
        scratch.write("damaged.pem", pem.replacen('A', "B", 5));
        scratch.fails_cleanly(
            With::Widelane,
            "req -x509 -new -key damaged.pem -subj /CN=x -out c.pem -config default.cnf",
        );
        scratch.fails_cleanly(With::Widelane, "pkeyutl -derive -inkey rsa.pem -peerkey rsa.pem -out s");
        scratch.succeeds(With::Default, "genpkey -algorithm X25519 -out x.pem");
        scratch.succeeds(With::Default, "pkey -in p256.pem -pubout -out p256.pub");
        scratch.fails_cleanly(With::Widelane, "pkeyutl -derive -inkey x.pem -peerkey p256.pub -out s");
    }
}

/// Keys that lanes do not take, or that only some libraries take.
#[test]
fn unusual_keys_sign_all_the_same() {
    for scratch in Scratch::all("") {
        for algorithm in [
            "RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_pubexp:3",
            "RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_pubexp:1073741827",
            "RSA -pkeyopt rsa_keygen_bits:2056",
            "RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_primes:3",
            "RSA-PSS -pkeyopt rsa_keygen_bits:2048",
            "EC -pkeyopt ec_paramgen_curve:brainpoolP256r1",
            "EC -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:explicit",
            "ED448",
        ] {
            scratch.succeeds(With::Widelane, &format!("genpkey -algorithm {algorithm} -out key.pem"));
            scratch.succeeds(
                With::Widelane,
                "req -x509 -new -key key.pem -subj /CN=x -out c.pem -config default.cnf",
            );
            scratch.succeeds(With::Default, "verify -auth_level 0 -check_ss_sig -CAfile c.pem c.pem");
        }
    }
}

#[test]
fn signed_messages_verify_without_the_provider() {
    for scratch in Scratch::all("") {
        scratch.keys();
        scratch.write("text", "a message");
        for key in ["rsa", "p256", "p384"] {
            scratch.succeeds(
                With::Default,
                &format!("req -x509 -new -key {key}.pem -subj /CN=x -out {key}.crt -config default.cnf"),
            );
            for (signer, verifier) in [(With::Widelane, With::Default), (With::Default, With::Widelane)] {
                scratch.succeeds(
                    signer,
                    &format!("cms -sign -in text -signer {key}.crt -inkey {key}.pem -out signed"),
                );
                scratch.succeeds(
                    verifier,
                    &format!("cms -verify -in signed -CAfile {key}.crt -purpose any -out plain"),
                );
            }
        }
    }
}

/// A program's own property query wins over the configured one.
#[test]
fn property_queries_choose_the_provider() {
    for scratch in Scratch::all("") {
        scratch.keys();
        scratch.write("text", "a message");
        let sign = "dgst -sha256 -sign rsa.pem -out s";
        for query in ["provider=default", "?provider=widelane", "?fips=yes"] {
            scratch.succeeds(With::Widelane, &format!("{sign} -propquery {query} text"));
        }
        // There is no such provider, with ours as without it.
        for with in [With::Widelane, With::Default] {
            scratch.fails_cleanly(with, &format!("{sign} -propquery fips=yes text"));
        }
    }
}

/// Jobs of OpenSSL's own are paused and resumed by an application that polls descriptors.
#[test]
fn paused_jobs_come_to_their_end() {
    for scratch in Scratch::all("") {
        let line = "speed -seconds 1 -async_jobs 8 ecdhx25519";
        let said = scratch.succeeds(With::Widelane, line);
        assert!(said.contains("253 bits ecdh"), "{said}");
    }
}

#[test]
fn handshakes_of_all_keys_groups_and_versions() {
    for scratch in Scratch::all("") {
        scratch.keys();
        for (key, operation) in [
            ("rsa", "rsa2048-sign"),
            ("p256", "p256-ecdsa-sign"),
            ("ed25519", "ed25519-sign"),
        ] {
            scratch.certificate(key);
            for mode in ["", "-async"] {
                let options = format!("-key {key}.pem -cert {key}.crt {mode}");
                let server = scratch.serve(With::Widelane, &options);
                let mut handshakes = 0;
                for group in ["X25519", "P-256", "P-384", "P-521"] {
                    for version in ["-tls1_3", "-tls1_2"] {
                        // In TLS 1.2 the groups say also which certificates the client takes.
                        let groups = match (key, version) {
                            ("p256", "-tls1_2") if group != "P-256" => format!("{group}:P-256"),
                            _ => group.to_owned(),
                        };
                        let output = scratch.handshake(
                            With::Default,
                            &server,
                            &format!("{version} -groups {groups} -CAfile {key}.crt -verify_return_error"),
                        );
                        let text = text(&output);
                        assert!(output.status.success(), "{key} {group} {version} {mode}: {text}");
                        assert!(text.contains("Verification: OK"), "{text}");
                        handshakes += 1;
                    }
                }
                if has_lanes() {
                    let jobs = server.jobs(operation);
                    assert_eq!(jobs, handshakes, "{} {key} {mode}", scratch.version);
                }
            }
        }
    }
}

#[test]
fn post_quantum_groups_work_on_every_openssl() {
    for scratch in Scratch::all("") {
        scratch.keys();
        scratch.certificate("p256");
        for group in POST_QUANTUM {
            let options = format!("-key p256.pem -cert p256.crt -groups {group}");
            let server = scratch.serve(With::Widelane, &options);
            let line = format!("-groups {group} -CAfile p256.crt");
            let said = text(&scratch.handshake(With::Widelane, &server, &line));
            assert!(said.contains("Verification: OK"), "{group}: {said}");
            // A second implementation, where there is one.
            if scratch.is_post_quantum() {
                let output = scratch.handshake(With::Default, &server, &line);
                assert!(output.status.success(), "{group}: {}", text(&output));
            }
        }
    }
}
