//! Whole operations in the lanes of AVX-IFMA, which the CPU of a test seldom has: by emulation. The tests of
//! `widelane-kernels` have every kernel, in this way, too; here one size of each family is enough, as a signal for
//! each product takes long.
#![cfg(target_arch = "x86_64")]

use std::fmt::Debug;

use widelane_crypto::{
    Backend, BackendUnavailable, Operation, Request, Shared, Target, ecdh, ecdsa, ed25519, mldsa,
    mlkem, rsa, x25519,
};

const BACKEND: Backend = Backend::Lanes(Target::AvxIfma);

type Made<O> = Result<O, BackendUnavailable>;
type Output<O> = <<O as Operation>::Request as Request>::Output;

/// A full pass. Its answers are no failures.
fn pass<O: Operation>(operation: &O) -> (Vec<O::Request>, Vec<Output<O>>) {
    let name = operation.name();
    assert!(operation.lanes() > 1, "{name}");
    let specimens = (0..operation.lanes()).map(|_| operation.specimen());
    let requests: Vec<_> = specimens.collect();
    let outputs = operation.pass(&requests);
    assert_eq!(outputs.len(), requests.len(), "{name}");
    if let Some(failure) = outputs.iter().find_map(O::Request::failure) {
        panic!("{name}: {failure}");
    }
    (requests, outputs)
}

/// A full pass gives the answers that aws-lc-rs gives.
fn agrees<O, T, E>(operation: Made<O>)
where
    O: Operation,
    O::Request: Request<Output = Result<T, E>>,
    T: PartialEq + Debug,
    E: Debug,
{
    let operation = operation.unwrap();
    let (requests, outputs) = pass(&operation);
    for (request, output) in requests.iter().zip(outputs) {
        let alone = operation.alone(request).unwrap();
        assert_eq!(output.unwrap(), alone, "{}", operation.name());
    }
}

fn agrees_on_secrets<O, E>(operation: Made<O>)
where
    O: Operation,
    O::Request: Request<Output = Result<Shared, E>>,
    E: Debug,
{
    let operation = operation.unwrap();
    let (requests, outputs) = pass(&operation);
    for (request, output) in requests.iter().zip(outputs) {
        let alone = operation.alone(request).unwrap();
        assert_eq!(output.unwrap().as_bytes(), alone.as_bytes());
    }
}

#[test]
fn whole_operations_run_in_lanes_of_avx_ifma() {
    eprintln!("AVX-IFMA by {}", widelane_emulation::install());
    agrees(x25519::Keygen::new(BACKEND));
    agrees_on_secrets(x25519::Derivation::new(BACKEND));
    agrees(ed25519::Signing::new(BACKEND));
    agrees(ed25519::Verification::new(BACKEND));
    for curve in ecdh::Curve::ALL {
        agrees(ecdh::Keygen::new(BACKEND, curve));
        // Passes check what they sign, and choose a number for it.
        pass(&ecdsa::Signing::new(BACKEND, curve).unwrap());
    }
    agrees_on_secrets(ecdh::Derivation::new(BACKEND, ecdh::Curve::P256));
    agrees(ecdsa::Verification::new(BACKEND, ecdsa::Curve::P256));
    let size = mlkem::Size::MlKem768;
    pass(&mlkem::KeyGeneration::new(BACKEND, size).unwrap());
    pass(&mlkem::Encapsulation::new(BACKEND, size).unwrap());
    agrees_on_secrets(mlkem::Decapsulation::new(BACKEND, size));
    let size = mldsa::Size::MlDsa65;
    agrees(mldsa::Verification::new(BACKEND, size));
    pass(&rsa::Signing::new(BACKEND, rsa::Size::Rsa2048).unwrap());
    agrees(rsa::Verification::new(BACKEND));
}

/// Each thread asks for itself: no other test meets a target by emulation.
#[test]
fn a_thread_that_does_not_ask_has_what_the_cpu_has() {
    let means = widelane_emulation::install();
    let elsewhere = std::thread::spawn(|| Target::AvxIfma.is_available());
    let has_cpu = means == widelane_emulation::Means::Cpu;
    assert_eq!(elsewhere.join().unwrap(), has_cpu);
    assert!(Target::AvxIfma.is_available());
}
