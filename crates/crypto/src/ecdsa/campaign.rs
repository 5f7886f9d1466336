//! Damages the memory of a pass of signatures at any moment, and checks what leaves the pass.

use super::{Curve, PrivateKey, SignRequest};
use crate::Hash;
use crate::faults::{Campaign, Owner, Verdict};
use crate::nist::chain::subjects;
use crate::nist::{ToSign, secret_digits};
use crate::verify::{Request, Scheme};
use widelane_kernels::faults::{Damage, Moment};

/// The widest passes there are here.
fn run(curve: Curve, [sample, most]: [usize; 2]) {
    let (name, lanes) = subjects(curve).pop().unwrap();
    let scale = if name == "model" { 10 } else { 1 };
    let key = PrivateKey::from_scalar(curve, &vec![0x5a; curve.bytes()]).unwrap();
    let digits = secret_digits(curve, key.secret());
    let message = |i: usize| vec![i as u8; 10];
    let digests: Vec<_> = (0..lanes.lanes())
        .map(|i| SignRequest::new(&key, &message(i)).digest.as_ref().to_vec())
        .collect();
    let nonces: Vec<Vec<u8>> = (0..lanes.lanes())
        .map(|i| (0..curve.bytes()).map(|j| (7 + 31 * i + 17 * j) as u8).collect())
        .collect();
    let problems: Vec<_> = (digests.iter().zip(&nonces))
        .map(|(digest, nonce)| ToSign {
            secret: key.secret(),
            digits: &digits,
            digest,
            nonce,
        })
        .collect();
    let expected: Vec<_> = lanes.sign(&problems).into_iter().map(Result::unwrap).collect();
    let campaign = Campaign {
        name: &curve.to_string(),
        bits: 4,
        sample: sample / scale,
        most: most / scale,
        // All lanes read one table of the base point.
        owner: &|_, hit| match hit.place.contains("AddFixed") && hit.place.ends_with("1)") {
            true => Owner::All,
            false => Owner::Request(hit.lane),
        },
        // Not covered, as docs/decisions/check-of-ecdsa-signatures.md says: a kernel that reads
        // another digit than memory has, and so adds another point; and a sum that starts anew.
        skip: &|fault, hit| {
            let misread = fault.moment == Moment::Read && hit.place.ends_with("2)");
            let lost = fault.moment == Moment::Written && fault.damage == Damage::Zero;
            hit.place.contains("AddFixed") && (misread || lost)
        },
        prepare: &|| {},
        pass: &|| {
            let results = lanes.sign(&problems);
            let verdict = |(i, result): (usize, &Result<_, _>)| {
                Verdict::of(result, &expected[i], |(r, s)| {
                    let signature = super::der::signature(r, s);
                    let scheme = Scheme::Ecdsa(curve, Hash::of(curve));
                    let request = Request::new(scheme, key.point(), &message(i), &signature);
                    request.unwrap().alone().is_ok()
                })
            };
            results.iter().enumerate().map(verdict).collect()
        },
    };
    campaign.run();
}

#[test]
fn fault_campaign_p256() {
    run(Curve::P256, [8000, usize::MAX]);
}

#[test]
fn fault_campaign_p384() {
    run(Curve::P384, [4000, usize::MAX]);
}
