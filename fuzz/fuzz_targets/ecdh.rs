//! Shared secrets on P-256 and P-384 in lanes are those of aws-lc-rs, whatever the peer's share is,
//! and both refuse the same shares, among neighbours that are good.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use widelane_crypto::ecdh::{Curve, Derivation, Derive, Keygen, Public, Secret};
use widelane_crypto::{Backend, Preference, Operation};

static WORKS: LazyLock<[(Keygen, Derivation); 2]> = LazyLock::new(|| {
    let backend = Preference::Auto.resolve().unwrap_or(Backend::AwsLc);
    Curve::ALL.map(|curve| {
        let keygen = Keygen::new(backend, curve).expect("an available backend");
        let derivation = Derivation::new(backend, curve).expect("an available backend");
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
    let Ok(secret) = Secret::from_bytes(curve, scalar) else {
        return;
    };
    let public = Public {
        secret: secret.clone(),
    };
    let ours = keygen.pass(std::slice::from_ref(&public)).remove(0);
    assert_eq!(ours, keygen.alone(&public));
    // A peer of the fuzzer's choice, and one that is certainly on the curve, damaged or not.
    let mut near = ours.expect("every scalar has a public key");
    if let Some((&place, &with)) = peer.first().zip(peer.get(1)) {
        let place = usize::from(place) % near.len();
        near[place] ^= with;
    }
    let derive = |peer: &[u8]| Derive {
        secret: secret.clone(),
        peer: peer.to_vec(),
    };
    let requests = [derive(peer), derive(&near), derive(&near), derive(peer)];
    let results = derivation.pass(&requests);
    for (request, ours) in requests.iter().zip(results) {
        match (ours, derivation.alone(request)) {
            (Ok(ours), Ok(theirs)) => assert_eq!(ours.as_bytes(), theirs.as_bytes()),
            (Err(ours), Err(theirs)) => assert_eq!(ours, theirs),
            (ours, theirs) => panic!("{ours:?} in lanes, {theirs:?} alone"),
        }
    }
});
