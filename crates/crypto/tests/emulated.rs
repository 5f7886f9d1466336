//! Whole operations in the lanes of AVX-IFMA, which the CPU of a test seldom has: by emulation. The tests of
//! `widelane-kernels` have every kernel, in this way, too; here one size of each family is enough, as a signal for
//! each product takes long.
#![cfg(target_arch = "x86_64")]

use std::fmt::Debug;

use widelane_crypto::{
    Backend, BackendUnavailable, Operation, Request, Target, Task, agreement, ecdh, ecdsa, ed25519, mldsa, mlkem, rsa,
    x25519,
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

fn agrees_on_keys(operation: Made<impl Operation<Request = agreement::Request>>) {
    let (requests, outputs) = pass(&operation.unwrap());
    for (request, output) in requests.iter().zip(outputs) {
        let (found, alone) = (output.unwrap(), request.alone().unwrap());
        let secrets = [&found, &alone].map(|answer| answer.clone().into_shared());
        let [found_secret, secret] = secrets.map(|shared| shared.map(|s| s.as_bytes().to_vec()));
        assert_eq!(found_secret, secret);
        assert_eq!(found.into_share(), alone.into_share());
    }
}

#[test]
fn whole_operations_run_in_lanes_of_avx_ifma() {
    eprintln!("AVX-IFMA by {}", widelane_emulation::install());
    agrees_on_keys(x25519::Keygen.on(BACKEND));
    agrees_on_keys(x25519::Derivation.on(BACKEND));
    agrees(ed25519::Signing.on(BACKEND));
    agrees(ed25519::Verification.on(BACKEND));
    for curve in ecdh::Curve::ALL {
        agrees_on_keys(ecdh::Keygen(curve).on(BACKEND));
        // Passes check what they sign, and choose a number for it.
        pass(&ecdsa::Signing(curve).on(BACKEND).unwrap());
    }
    agrees_on_keys(ecdh::Derivation(ecdh::Curve::P256).on(BACKEND));
    agrees(ecdsa::Verification(ecdsa::Curve::P256).on(BACKEND));
    let size = mlkem::Size::MlKem768;
    pass(&mlkem::KeyGeneration(size).on(BACKEND).unwrap());
    pass(&mlkem::Encapsulation(size).on(BACKEND).unwrap());
    agrees_on_keys(mlkem::Decapsulation(size).on(BACKEND));
    let size = mldsa::Size::MlDsa65;
    agrees(mldsa::Verification(size).on(BACKEND));
    pass(&rsa::Signing(rsa::Size::Rsa2048).on(BACKEND).unwrap());
    agrees(rsa::Verification.on(BACKEND));
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
