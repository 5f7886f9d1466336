//! Shared secrets on P-256 and P-384 in lanes are those of aws-lc-rs, whatever the peer's share is,
//! and both refuse the same shares, among neighbours that are good.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use widelane_crypto::agreement::Secret;
use widelane_crypto::ecdh::{Curve, Derivation, Keygen};
use widelane_crypto::{Backend, OnBackend, Operation, Preference, Task};

static WORKS: LazyLock<[(OnBackend<Keygen>, OnBackend<Derivation>); 2]> = LazyLock::new(|| {
    let backend = Preference::Auto.resolve().unwrap_or(Backend::AwsLc);
    Curve::ALL.map(|curve| {
        let keygen = Keygen(curve).on(backend).expect("an available backend");
        let derivation = Derivation(curve).on(backend).expect("an available backend");
        (keygen, derivation)
    })
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let curve = Curve::ALL[usize::from(first & 1)];
    let (keygen, derivation) = &WORKS[usize::from(first & 1)];
    let Some((scalar, peer)) = rest.split_at_checked(curve.bytes()) else {
        return;
    };
    let Ok(secret) = Secret::from_bytes(curve.into(), scalar) else {
        return;
    };
    let public = secret.public();
    let [ours, theirs] = [keygen.pass(&[public.clone()]).remove(0), public.alone()]
        .map(|outcome| outcome.expect("every scalar has a public key").into_share());
    assert_eq!(ours, theirs);
    // A peer of the fuzzer's choice, and one that is certainly on the curve, damaged or not.
    let mut near = ours;
    if let Some((&place, &with)) = peer.first().zip(peer.get(1)) {
        let place = usize::from(place) % near.len();
        near[place] ^= with;
    }
    let derive = |peer: &[u8]| secret.derive(peer).expect("the answer says what is wrong");
    let requests = [derive(peer), derive(&near), derive(&near), derive(peer)];
    let results = derivation.pass(&requests);
    for (request, ours) in requests.iter().zip(results) {
        match (ours, request.alone()) {
            (Ok(ours), Ok(theirs)) => {
                let shared = [ours, theirs].map(|answer| answer.into_shared().expect("it is one"));
                assert_eq!(shared[0].as_bytes(), shared[1].as_bytes());
            }
            (Err(ours), Err(theirs)) => assert_eq!(ours, theirs),
            (ours, theirs) => panic!("{ours:?} in lanes, {theirs:?} alone"),
        }
    }
});
