//! Damages the memory of a pass of signatures at any moment, and checks what leaves the pass.

use super::key::PrivateKey;
use super::lanes::{Kind, Pass};
use super::message::Message;
use super::sign::{Job, sign};
use super::size::Size;
use crate::faults::{Campaign, Owner, Verdict};
use crate::passes::are_wiped;
use crate::verify::{Request, Scheme};
use widelane_cpu::on_preferred_target;
use widelane_kernels::faults::Moment;

/// `fresh` damages also what is derived from a key that signs for the first time.
fn run<const L: usize>(pass: &Pass<L>, fresh: bool, [sample, most]: [usize; 2]) {
    let size = pass.family.size;
    let key = || PrivateKey::from_seed(size, &[3; 32]).unwrap();
    let message = |i: usize| vec![i as u8; 40 * i];
    let messages: Vec<_> = (0..L).map(message).collect();
    let sign_with = |key: &PrivateKey| {
        let jobs: Vec<_> = (messages.iter().zip(0..))
            .map(|(message, i)| Job {
                key,
                message: Message::plain(message),
                random: [i; 32],
            })
            .collect();
        sign(pass, &jobs)
    };
    let used = key();
    let expected: Vec<_> = sign_with(&used).into_iter().map(Result::unwrap).collect();
    assert!(are_wiped(&mut pass.idle()));
    let name = format!("{size}{}", if fresh { ", new key" } else { "" });
    let campaign = Campaign {
        name: &name,
        bits: 2,
        sample,
        most,
        // Requests change lanes, and all lanes read one key.
        owner: &|moment, _| match moment {
            Moment::Read => Owner::All,
            _ if fresh => Owner::All,
            _ => Owner::One,
        },
        skip: &|_, _| false,
        prepare: &|| {},
        pass: &|| {
            let results = if fresh { sign_with(&key()) } else { sign_with(&used) };
            let verdict = |(i, result): (usize, &Result<Vec<u8>, _>)| {
                Verdict::of(result, &expected[i], |signature| {
                    let key = used.public_key();
                    let request = Request::new(Scheme::MlDsa(size), key, &messages[i], signature);
                    request.unwrap().alone().is_ok()
                })
            };
            results.iter().enumerate().map(verdict).collect()
        },
    };
    campaign.run();
}

fn campaign(size: Size, fresh: bool, faults: [usize; 2]) {
    let operation = Kind::signing(size);
    on_preferred_target!(
        token => run(&Pass::new(operation, token), fresh, faults),
        else run(
            &Pass::<4>::model(operation),
            fresh,
            faults.map(|faults| faults / 20),
        )
    );
}

#[test]
fn fault_campaign_mldsa44() {
    campaign(Size::MlDsa44, false, [1500, 40_000]);
}

#[test]
fn fault_campaign_mldsa65() {
    campaign(Size::MlDsa65, false, [1500, 100_000]);
}

#[test]
fn fault_campaign_mldsa65_new_key() {
    campaign(Size::MlDsa65, true, [500, 10_000]);
}

#[test]
fn fault_campaign_mldsa87() {
    campaign(Size::MlDsa87, false, [1500, 40_000]);
}
