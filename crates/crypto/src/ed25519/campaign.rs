//! Damages the memory of a pass of signatures at any moment, and checks what leaves the pass.

use super::pass::{self, SIGNING};
use super::{PrivateKey, SignRequest};
use crate::faults::{Campaign, Owner, Verdict};
use crate::lanes25519::Pass;
use crate::passes::are_wiped;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use widelane_cpu::on_preferred_target;

fn run<const L: usize>(pass: &Pass<L>, [sample, most]: [usize; 2]) {
    let message: fn(usize) -> Vec<u8> = |i| vec![i as u8; 40 * i];
    let requests: Vec<_> = (0..L)
        .map(|i| SignRequest::new(&PrivateKey::from_seed(&[i as u8; 32]).unwrap(), &message(i)))
        .collect();
    let expected: Vec<_> = pass::sign(pass, &requests).into_iter().map(Result::unwrap).collect();
    assert!(are_wiped(&mut pass.idle()));
    let campaign = Campaign {
        name: "Ed25519",
        bits: 4,
        sample,
        most,
        // All lanes read one table of the base point.
        owner: &|_, hit| match hit.place.contains("BaseAdd") && hit.place.ends_with("1)") {
            true => Owner::All,
            false => Owner::Request(hit.lane),
        },
        skip: &|_, _| false,
        prepare: &|| {},
        pass: &|| {
            let results = pass::sign(pass, &requests);
            let verdict = |(i, result): (usize, &Result<Vec<u8>, _>)| {
                Verdict::of(result, &expected[i], |signature| {
                    UnparsedPublicKey::new(&ED25519, requests[i].key.public_key())
                        .verify(&message(i), signature)
                        .is_ok()
                })
            };
            results.iter().enumerate().map(verdict).collect()
        },
    };
    campaign.run();
}

#[test]
fn fault_campaign_ed25519() {
    on_preferred_target!(
        token => run(&Pass::new(SIGNING, token), [8000, usize::MAX]),
        else run(&Pass::<4>::model(SIGNING), [1000, 20_000])
    );
}
