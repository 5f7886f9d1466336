//! Damages the memory of a pass of signatures at any moment, and checks what leaves the pass.

use super::chain::{keys, odd_exponent_keys};
use super::key::PrivateKey;
use super::pass::{Pass, Signatures};
use super::request::{Scheme, SignRequest};
use super::{Size, portable};
use crate::faults::{Campaign, Owner, Verdict};
use crate::passes::are_wiped;
use aws_lc_rs::signature::UnparsedPublicKey;
use widelane_cpu::on_preferred_target;
use widelane_kernels::Method;

const MESSAGE: &[u8] = b"a message";

/// Damages passes in vector registers where there are some, otherwise a part in portable Rust.
fn campaign(size: Size, method: Method, keys: Vec<PrivateKey>, fresh: bool, faults: [usize; 2]) {
    let prime_bits = size.prime_bits();
    let signatures = Signatures { prime_bits };
    let subject = (size, method);
    on_preferred_target!(
        token => run(&Pass::new(signatures, token), subject, keys, fresh, faults),
        else run(
            &Pass::<4>::model(signatures),
            subject,
            keys,
            fresh,
            faults.map(|faults| faults / 10),
        )
    );
}

fn run<const L: usize>(
    pass: &Pass<L>,
    (size, method): (Size, Method),
    keys: Vec<PrivateKey>,
    fresh: bool,
    [sample, most]: [usize; 2],
) {
    let schemes = [
        Some(Scheme::Pkcs1Sha256),
        Some(Scheme::PssSha256),
        // Data that is no hash value.
        None,
    ];
    let requests: Vec<_> = (keys.iter().zip(schemes.into_iter().cycle()))
        .map(|(key, scheme)| match scheme {
            Some(scheme) => SignRequest::new(key, scheme, MESSAGE).unwrap(),
            None => SignRequest::unhashed(key, MESSAGE).unwrap(),
        })
        .take(L / 2)
        .collect();
    assert_eq!(requests.len(), L / 2);
    let method = match pass.kernels.methods().contains(&method) {
        true => method,
        false => Method::Apart,
    };
    let expected: Vec<_> = pass.sign(method, &requests).into_iter().map(Result::unwrap).collect();
    assert!(are_wiped(&mut pass.idle()));
    let sign = || {
        let results = pass.sign(method, &requests);
        let verdict = |((result, expected), request): ((_, _), &SignRequest)| {
            Verdict::of(result, expected, |signature: &Vec<u8>| {
                let key = &request.key;
                let Some(scheme) = request.scheme() else {
                    let opened = portable::open(key.parts(), signature);
                    return Some(&*opened) == request.encoded();
                };
                UnparsedPublicKey::new(scheme.aws_lc_verification(), key.public_key_info_der())
                    .verify(MESSAGE, signature)
                    .is_ok()
            })
        };
        let verdicts = results.iter().zip(&expected).zip(&requests).map(verdict);
        verdicts.collect::<Vec<_>>()
    };
    let name = format!("{size}, {}{}", method.name(), if fresh { ", new blinding" } else { "" });
    let campaign = Campaign {
        name: &name,
        bits: 3,
        sample,
        most,
        owner: &|_, hit| Owner::Request(hit.lane / 2),
        skip: &|_, _| false,
        prepare: &|| {
            if fresh {
                requests
                    .iter()
                    .for_each(|request| request.key.prepared().forget_blindings());
            } else {
                // Also the passes that follow a fault: blinding values that it damaged.
                while sign().iter().any(|verdict| {
                    assert_ne!(*verdict, Verdict::Wrong, "after a fault");
                    *verdict != Verdict::Right
                }) {}
            }
        },
        pass: &sign,
    };
    campaign.run();
}

#[test]
fn fault_campaign_rsa2048() {
    let [a, b, c, d] = keys(Size::Rsa2048);
    let faults = [4000, usize::MAX];
    campaign(Size::Rsa2048, Method::Apart, vec![a, b, c, d], false, faults);
}

/// Exponents of different lengths share a pass, and one of the keys signs for the first time.
#[test]
fn fault_campaign_rsa2048_mixed_exponents() {
    let [a, b, ..] = keys(Size::Rsa2048);
    let mut keys = odd_exponent_keys(Size::Rsa2048);
    keys.truncate(2);
    keys.extend([a, b]);
    campaign(Size::Rsa2048, Method::Beside, keys, true, [500, 4000]);
}

#[test]
fn fault_campaign_rsa3072() {
    campaign(
        Size::Rsa3072,
        Method::Beside,
        keys(Size::Rsa3072).to_vec(),
        false,
        [500, 20_000],
    );
}

#[test]
fn fault_campaign_rsa4096() {
    campaign(
        Size::Rsa4096,
        Method::Blocks,
        keys(Size::Rsa4096).to_vec(),
        false,
        [300, 10_000],
    );
}
