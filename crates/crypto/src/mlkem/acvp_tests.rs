//! Vectors of NIST's validation server (ACVP), and vectors of CCTV for rare events.
//!
//! Passes have every number of requests.

use super::tests::{passes, windows};
use super::{DecapsulationKey, Size};
use crate::acvp::{self, bytes};
use serde_json::Value;

#[test]
fn keys_from_seeds() {
    for size in Size::ALL {
        let tests = vectors("keyGen", size);
        assert_eq!(tests.len(), 25);
        for (passes, stride) in passes(size) {
            for window in windows(&tests, passes.lanes(), stride) {
                let seed = |(_, test): &&(Value, Value)| {
                    let seed = [bytes(&test["d"]), bytes(&test["z"])].concat();
                    seed.try_into().unwrap()
                };
                let seeds: Vec<[u8; 64]> = window.iter().map(seed).collect();
                let keys = passes.keygen(&seeds);
                assert_eq!(keys.len(), window.len());
                for ((_, test), key) in window.into_iter().zip(keys) {
                    assert_eq!(*key, bytes(&test["dk"]), "{size} {}", test["tcId"]);
                    let key = DecapsulationKey::from_expanded(size, &key).unwrap();
                    assert_eq!(key.encapsulation_key(), bytes(&test["ek"]));
                }
            }
        }
    }
}

#[test]
fn encapsulations() {
    for size in Size::ALL {
        let tests: Vec<_> = of_function("encapsulation", size)
            .iter()
            .map(|(_, test)| ["ek", "m", "c", "k"].map(|part| bytes(&test[part])))
            .collect();
        assert_eq!(tests.len(), 25);
        check_encapsulation(size, &tests);
    }
}

#[test]
fn decapsulations() {
    for size in Size::ALL {
        let tests: Vec<_> = of_function("decapsulation", size)
            .iter()
            .map(|(group, test)| [&group["dk"], &test["c"], &test["k"]].map(bytes))
            .collect();
        assert_eq!(tests.len(), 10);
        check_decapsulation(size, &tests);
    }
}

/// A matrix with an entry that takes more blocks than others do: one in 2^38.
#[test]
fn unlucky_matrices() {
    for size in Size::ALL {
        let unlucky = acvp::cctv(&format!("unluckysample-{size}"));
        let (_, neighbour) = &of_function("encapsulation", size)[0];
        let tests = [
            ["ek", "m", "c", "K"].map(|part| unlucky[part].clone()),
            ["ek", "m", "c", "k"].map(|part| bytes(&neighbour[part])),
        ];
        check_encapsulation(size, &tests);
        let (group, neighbour) = &of_function("decapsulation", size)[0];
        let tests = [
            ["dk", "c", "K"].map(|part| unlucky[part].clone()),
            [&group["dk"], &neighbour["c"], &neighbour["k"]].map(bytes),
        ];
        check_decapsulation(size, &tests);
    }
}

/// A ciphertext that differs from the right one behind a zero byte only.
#[test]
fn comparisons_go_on_behind_zeros() {
    for size in Size::ALL {
        let vector = acvp::cctv(&format!("strcmp-{size}"));
        check_decapsulation(size, &[["dk", "c", "K"].map(|part| vector[part].clone())]);
    }
}

/// Tests are an encapsulation key, `m`, the ciphertext and the secret.
fn check_encapsulation(size: Size, tests: &[[Vec<u8>; 4]]) {
    for (passes, stride) in passes(size) {
        for window in windows(tests, passes.lanes(), stride) {
            let request = |[key, m, ..]: &&[Vec<u8>; 4]| (key.clone(), m.as_slice().try_into().unwrap());
            let requests: Vec<(Vec<u8>, [u8; 32])> = window.iter().map(request).collect();
            let requests: Vec<_> = requests.iter().map(|(key, m)| (key.as_slice(), m)).collect();
            let answers = passes.encapsulate(&requests);
            assert_eq!(answers.len(), window.len());
            for ([_, _, ciphertext, secret], answer) in window.into_iter().zip(answers) {
                let (ours, shared) = answer.expect("the key is good");
                assert_eq!(ours, *ciphertext, "{size}");
                assert_eq!(shared.as_bytes(), secret, "{size}");
            }
        }
    }
}

/// Tests are an expanded key, a ciphertext and the secret.
fn check_decapsulation(size: Size, tests: &[[Vec<u8>; 3]]) {
    let tests: Vec<_> = tests
        .iter()
        .map(|[key, ciphertext, secret]| {
            let key = DecapsulationKey::from_expanded(size, key).unwrap();
            (key, ciphertext, secret)
        })
        .collect();
    for (passes, stride) in passes(size) {
        for window in windows(&tests, passes.lanes(), stride) {
            let requests: Vec<_> = window
                .iter()
                .map(|(key, ciphertext, _)| (key.parts(), ciphertext.as_slice()))
                .collect();
            let answers = passes.decapsulate(&requests);
            assert_eq!(answers.len(), window.len());
            for ((.., secret), shared) in window.into_iter().zip(answers) {
                assert_eq!(shared.as_bytes(), secret.as_slice(), "{size}");
            }
        }
    }
}

/// The tests of a size, each behind its group.
fn vectors(mode: &str, size: Size) -> Vec<(Value, Value)> {
    let all = acvp::vectors(&format!("ML-KEM-{mode}-FIPS203"));
    let of_size = |(group, _): &(Value, Value)| group["parameterSet"] == size.to_string();
    all.into_iter().filter(of_size).collect()
}

fn of_function(function: &str, size: Size) -> Vec<(Value, Value)> {
    let mut tests = vectors("encapDecap", size);
    tests.retain(|(group, _)| group["function"] == function);
    tests
}
