//! Keys, signatures and verification against the vectors of NIST's validation server (ACVP).
//!
//! The vectors are for the functions of FIPS 204, section 6: messages are `M'`.

use super::lanes::{Kind, Pass};
use super::message::Message;
use super::sign::{Job, sign};
use super::verify::{Claim, verify};
use super::{PrivateKey, Size};
use crate::acvp::{self, bytes};
use serde_json::Value;
use widelane_cpu::on_every_target;

#[test]
fn keys_from_seeds() {
    let mut checked = 0;
    for (size, _, test) in vectors("keyGen") {
        let key = PrivateKey::from_seed(size, &bytes(&test["seed"])).unwrap();
        assert_eq!(key.expanded(), bytes(&test["sk"]));
        assert_eq!(key.public_key(), bytes(&test["pk"]));
        checked += 1;
    }
    assert_eq!(checked, 75);
}

#[test]
fn signatures_hedged_and_deterministic() {
    for size in Size::ALL {
        on_every_target!(token => check_signing(&Pass::new(Kind::signing(size), token)));
    }
}

fn check_signing<const L: usize>(lanes: &Pass<L>) {
    let of_size = |(size, ..): &(Size, Value, Value)| *size == lanes.family.size;
    let tests: Vec<_> = vectors("sigGen").into_iter().filter(of_size).collect();
    assert_eq!(tests.len(), 20);
    let inputs: Vec<_> = tests
        .iter()
        .map(|(size, _, test)| {
            let key = PrivateKey::from_expanded(*size, &bytes(&test["sk"])).unwrap();
            let random = match &test["rnd"] {
                Value::Null => [0; 32],
                random => bytes(random).try_into().unwrap(),
            };
            (key, bytes(&test["message"]), random)
        })
        .collect();
    let jobs: Vec<_> = inputs
        .iter()
        .map(|(key, message, random)| Job {
            key,
            message: Message::Formatted(message),
            random: *random,
        })
        .collect();
    for ((_, _, test), signature) in tests.iter().zip(sign(lanes, &jobs)) {
        let expected = bytes(&test["signature"]);
        assert!(signature == Ok(expected), "{}", test["tcId"]);
    }
}

#[test]
fn verification() {
    for size in Size::ALL {
        check_verification(&Pass::<4>::model(Kind::verification(size)), 4);
        on_every_target!(token => check_verification(&Pass::new(Kind::verification(size), token), 15));
    }
}

fn check_verification<const L: usize>(lanes: &Pass<L>, count: usize) {
    let of_size = |(size, ..): &(Size, Value, Value)| *size == lanes.family.size;
    let tests: Vec<_> = vectors("sigVer").into_iter().filter(of_size).collect();
    assert_eq!(tests.len(), 15);
    let inputs: Vec<_> = tests
        .iter()
        .take(count)
        .map(|(_, group, test)| {
            let key = bytes(&group["pk"]);
            (key, bytes(&test["message"]), bytes(&test["signature"]))
        })
        .collect();
    let claims: Vec<_> = inputs
        .iter()
        .map(|(key, message, signature)| Claim {
            key,
            message: Message::Formatted(message),
            signature,
        })
        .collect();
    for ((_, _, test), result) in tests.iter().zip(verify(lanes, &claims)) {
        let passes = test["testPassed"].as_bool().unwrap();
        assert_eq!(result.is_ok(), passes, "{}: {}", test["tcId"], test["reason"]);
    }
}

/// Every test of a mode, with its size and its group.
fn vectors(mode: &str) -> Vec<(Size, Value, Value)> {
    let tests = acvp::vectors(&format!("ML-DSA-{mode}-FIPS204"));
    let sized = |(group, test): (Value, Value)| {
        let name = group["parameterSet"].as_str().unwrap();
        let size = Size::ALL.into_iter().find(|size| size.to_string() == name);
        (size.unwrap(), group, test)
    };
    tests.into_iter().map(sized).collect()
}
