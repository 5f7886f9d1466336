//! The tests that everything which signs must pass: vectors, lane positions, mixed keys, faults.
//!
//! [`Subject`] is what signs; a backend's tests call [`Subject::check`] for each [`Size`].

use super::key::PrivateKey;
use super::padding::Padding;
use super::request::{Scheme, SignRequest};
use super::{Size, portable, vectors};
use crate::sign::{Error, Key, KeyError, Kind, Outcome};
use aws_lc_rs::signature::UnparsedPublicKey;

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../tests/data/", $name)).as_slice()
    };
}

/// Something that answers requests of one size.
pub(crate) struct Subject<'a> {
    /// Name that failures are reported under.
    pub(crate) name: &'a str,
    /// The most requests that it takes at a time.
    pub(crate) lanes: usize,
    /// Side that pads: a subject signs the padded message of the request, or pads anew as aws-lc-rs does.
    pub(crate) pads: Pads,
    /// Number of vectors of each file and key to try, for subjects that are slow.
    pub(crate) vectors: usize,
    /// Answers up to `lanes` requests.
    pub(crate) sign: &'a dyn Fn(&[SignRequest]) -> Vec<Outcome>,
}

/// Side that pads the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pads {
    /// The request did: the same request gives the same signature.
    Request,
    /// The subject does: PSS signatures differ each time.
    Subject,
}

impl Subject<'_> {
    /// Runs the whole chain.
    pub(crate) fn check(&self, size: Size) {
        self.signs_vectors(size);
        self.fills_every_lane_position(size);
        self.mixes_keys_and_schemes(size);
        self.isolates_faults(size);
    }

    /// Wycheproof's signatures come out byte for byte, in passes of changing fill.
    pub(crate) fn signs_vectors(&self, size: Size) {
        let pkcs1 = vectors::pkcs1(size.modulus_bits());
        let pss = vectors::pss(size.modulus_bits());
        assert!(!pkcs1.is_empty() && !pss.is_empty(), "no vectors for {size}");
        let mut cases: Vec<(SignRequest, Option<Vec<u8>>, Vec<u8>)> = Vec::new();
        for set in [&pkcs1, &pss] {
            for group in set {
                for vector in group.vectors.iter().take(self.vectors) {
                    let request = SignRequest::with_salt(&group.key, group.scheme, &vector.message, &vector.salt);
                    let repeats = self.pads == Pads::Request || group.scheme.padding() == Padding::Pkcs1;
                    let expected = repeats.then(|| vector.signature.clone());
                    cases.push((request, expected, vector.message.clone()));
                }
            }
        }
        let mut rest = cases.as_slice();
        let mut fill = self.lanes;
        while !rest.is_empty() {
            let (pass, later) = rest.split_at(fill.min(rest.len()));
            let requests: Vec<_> = pass.iter().map(|case| case.0.clone()).collect();
            for ((request, expected, message), result) in pass.iter().zip(self.run(&requests)) {
                let signature = result.unwrap_or_else(|error| panic!("{}: {error}", self.name));
                if let Some(expected) = expected {
                    assert_eq!(&signature, expected, "{} {request:?}", self.name);
                }
                assert_verifies(self.name, request, message, &signature);
            }
            rest = later;
            fill = fill % self.lanes + 1;
        }
    }

    /// One request alone in each number of requests, at each position, among equal ones.
    pub(crate) fn fills_every_lane_position(&self, size: Size) {
        let [ours, other, ..] = keys(size);
        for count in 1..=self.lanes {
            for position in 0..count {
                let texts: Vec<String> = (0..count)
                    .map(|index| format!("{count} requests, {index} of them, {position}"))
                    .collect();
                let requests: Vec<_> = (0..count)
                    .map(|index| {
                        let key = if index == position { &ours } else { &other };
                        request(key, Scheme::PssSha256, texts[index].as_bytes())
                    })
                    .collect();
                self.assert_all_verify(&requests, &texts);
            }
        }
    }

    /// Different keys, exponents and schemes share passes.
    pub(crate) fn mixes_keys_and_schemes(&self, size: Size) {
        let mut keys = keys(size).to_vec();
        keys.extend(odd_exponent_keys(size));
        let pairs: Vec<_> = (0..keys.len().max(Scheme::ALL.len()) * 2)
            .map(|index| {
                let key = &keys[index % keys.len()];
                (
                    key,
                    Scheme::ALL[(index + index / Scheme::ALL.len()) % Scheme::ALL.len()],
                )
            })
            .collect();
        for chunk in pairs.chunks(self.lanes) {
            let texts: Vec<String> = (0..chunk.len()).map(|index| "x".repeat(index)).collect();
            let requests: Vec<_> = chunk
                .iter()
                .zip(&texts)
                .map(|((key, scheme), text)| request(key, *scheme, text.as_bytes()))
                .collect();
            self.assert_all_verify(&requests, &texts);
        }
    }

    /// A key that went bad in memory gives one fault and no signature; its neighbours succeed.
    pub(crate) fn isolates_faults(&self, size: Size) {
        let good = keys(size);
        for corruption in Corruption::ALL {
            let bad = corrupted(size, corruption);
            for position in 0..self.lanes {
                let texts: Vec<String> = (0..self.lanes).map(|index| index.to_string()).collect();
                let requests: Vec<_> = (0..self.lanes)
                    .map(|index| {
                        let key = if index == position {
                            &bad
                        } else {
                            &good[index % good.len()]
                        };
                        request(key, Scheme::PssSha256, texts[index].as_bytes())
                    })
                    .collect();
                for (index, result) in self.run(&requests).into_iter().enumerate() {
                    if index == position {
                        assert_eq!(
                            result,
                            Err(Error::Fault),
                            "{} {size} {corruption:?} at {position}",
                            self.name
                        );
                    } else {
                        let signature = result.expect("a neighbour of the fault");
                        let message = texts[index].as_bytes();
                        assert_verifies(self.name, &requests[index], message, &signature);
                    }
                }
            }
        }
    }

    fn assert_all_verify(&self, requests: &[SignRequest], texts: &[String]) {
        for ((request, text), result) in requests.iter().zip(texts).zip(self.run(requests)) {
            let signature = result.unwrap_or_else(|error| panic!("{}: {error}", self.name));
            assert_verifies(self.name, request, text.as_bytes(), &signature);
        }
    }

    fn run(&self, requests: &[SignRequest]) -> Vec<Outcome> {
        let results = (self.sign)(requests);
        assert_eq!(results.len(), requests.len(), "{}: one result each", self.name);
        results
    }
}

/// A part of a key that is damaged after it was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Corruption {
    ExponentOfP,
    ExponentOfQ,
    Coefficient,
}

impl Corruption {
    pub(crate) const ALL: [Self; 3] = [Self::ExponentOfP, Self::ExponentOfQ, Self::Coefficient];
}

/// A fresh key, damaged before anything was derived from it.
pub(crate) fn corrupted(size: Size, corruption: Corruption) -> PrivateKey {
    let [pem, ..] = pems(size);
    let mut key = from_pem(pem);
    key.corrupt(|parts| match corruption {
        Corruption::ExponentOfP => parts.p.exponent[1] ^= 1 << 17,
        Corruption::ExponentOfQ => parts.q.exponent[3] ^= 1,
        Corruption::Coefficient => parts.q_inverse[0] ^= 1 << 63,
    });
    key
}

/// A key that must be sound.
pub(crate) fn from_pem(pem: &[u8]) -> PrivateKey {
    of_rsa(Key::from_pem(pem).unwrap())
}

/// A key of any size.
pub(crate) fn from_pkcs8(der: &[u8]) -> Result<PrivateKey, KeyError> {
    Key::from_pkcs8_der(der).map(of_rsa)
}

fn of_rsa(key: Key) -> PrivateKey {
    match key.0 {
        Kind::Rsa(key) => key,
        _ => panic!("not an RSA key"),
    }
}

/// Four keys of a size.
pub(crate) fn keys(size: Size) -> [PrivateKey; 4] {
    pems(size).map(from_pem)
}

/// Keys of a size with public exponents other than 65537, where there are some.
pub(crate) fn odd_exponent_keys(size: Size) -> Vec<PrivateKey> {
    let pems: &[&[u8]] = match size {
        Size::Rsa2048 => &[
            data!("rsa2048_e3.pem"),
            data!("rsa2048_e31bit.pem"),
            data!("rsa2048_e33bit.pem"),
            data!("rsa2048_e64bit.pem"),
            data!("rsa2048_e255bit.pem"),
            data!("rsa2048_p_below_q.pem"),
        ],
        Size::Rsa3072 => &[data!("rsa3072_e3.pem")],
        Size::Rsa4096 => &[data!("rsa4096_e40bit.pem")],
    };
    pems.iter().map(|pem| from_pem(pem)).collect()
}

/// A request that must be possible.
pub(crate) fn request(key: &PrivateKey, scheme: Scheme, message: &[u8]) -> SignRequest {
    SignRequest::new(key, scheme, message).unwrap()
}

/// aws-lc-rs accepts the signature, or, where it refuses the public key or what was signed, our own
/// check does.
pub(crate) fn assert_verifies(name: &str, request: &SignRequest, message: &[u8], signature: &[u8]) {
    let key = &request.key;
    let is_taken = key.parts().e.len() == 1 && key.parts().e[0] < 1 << 33;
    if let Some(scheme) = request.scheme().filter(|_| is_taken) {
        let public = key.public_key_info_der();
        UnparsedPublicKey::new(scheme.aws_lc_verification(), public)
            .verify(message, signature)
            .unwrap_or_else(|_| panic!("{name}: aws-lc-rs refuses the signature of {request:?}"));
    } else {
        let encoded = request.encoded().unwrap();
        assert_eq!(portable::open(key.parts(), signature), encoded, "{name} {request:?}");
    }
}

fn pems(size: Size) -> [&'static [u8]; 4] {
    match size {
        Size::Rsa2048 => [
            data!("rsa2048_a.pem"),
            data!("rsa2048_b.pem"),
            data!("rsa2048_c.pem"),
            data!("rsa2048_d.pem"),
        ],
        Size::Rsa3072 => [
            data!("rsa3072_a.pem"),
            data!("rsa3072_b.pem"),
            data!("rsa3072_c.pem"),
            data!("rsa3072_d.pem"),
        ],
        Size::Rsa4096 => [
            data!("rsa4096_a.pem"),
            data!("rsa4096_b.pem"),
            data!("rsa4096_c.pem"),
            data!("rsa4096_d.pem"),
        ],
    }
}

mod subjects {
    use super::*;
    use crate::rsa::{Signing, portable};
    use crate::{Backend, Operation, Task};

    #[test]
    fn aws_lc_passes() {
        for size in Size::ALL {
            let signing = Signing(size).on(Backend::AwsLc).unwrap();
            assert_eq!(signing.lanes(), 1);
            let subject = Subject {
                name: "aws-lc",
                lanes: 3,
                pads: Pads::Subject,
                vectors: usize::MAX,
                sign: &|requests| signing.answers(requests),
            };
            subject.check(size);
        }
    }

    #[test]
    fn portable_code() {
        for size in Size::ALL {
            let subject = Subject {
                name: "portable",
                lanes: 2,
                pads: Pads::Request,
                vectors: 8,
                sign: &|requests| {
                    let sign = |request: &SignRequest| portable::sign(request.key.parts(), request.encoded().unwrap());
                    requests.iter().map(sign).collect()
                },
            };
            subject.check(size);
        }
    }

    /// The chain is no use if it passes what is wrong.
    #[test]
    #[should_panic(expected = "refuses the signature")]
    fn exchanged_results_are_noticed() {
        let subject = Subject {
            name: "exchanged",
            lanes: 2,
            pads: Pads::Subject,
            vectors: 1,
            sign: &|requests| requests.iter().rev().map(SignRequest::alone).collect(),
        };
        subject.fills_every_lane_position(Size::Rsa2048);
    }

    #[test]
    #[should_panic(expected = "at 0")]
    fn signatures_by_damaged_keys_are_noticed() {
        let [good, ..] = keys(Size::Rsa2048);
        let subject = Subject {
            name: "unchecked",
            lanes: 1,
            pads: Pads::Subject,
            vectors: 1,
            sign: &|requests| {
                let sign = |_| request(&good, Scheme::PssSha256, b"m").alone();
                requests.iter().map(sign).collect()
            },
        };
        subject.isolates_faults(Size::Rsa2048);
    }

    #[test]
    fn vectors_of_sizes_without_lanes() {
        let groups = vectors::pkcs1(8192);
        assert!(!groups.is_empty());
        for group in groups {
            assert_eq!(group.key.accelerated(), None);
            for vector in &group.vectors {
                let request = request(&group.key, group.scheme, &vector.message);
                assert_eq!(request.alone(), Ok(vector.signature.clone()));
            }
        }
    }

    #[test]
    fn a_request_of_another_size_harms_no_neighbour() {
        let signing = Signing(Size::Rsa2048).on(Backend::AwsLc).unwrap();
        let [ours, ..] = keys(Size::Rsa2048);
        let [longer, ..] = keys(Size::Rsa3072);
        let requests = [&ours, &longer, &ours].map(|key| request(key, Scheme::PssSha384, b"m"));
        let results = signing.answers(&requests);
        assert!(results[0].is_ok() && results[2].is_ok());
        assert_eq!(
            results[1],
            Err(Error::OtherOperation {
                operation: "rsa2048-sign"
            })
        );
    }
}
