//! The standard operations: each request reaches the one that is for it, and its signature is
//! right.
#![cfg(not(loom))]

use aws_lc_rs::signature::{self, RsaParameters, UnparsedPublicKey};
use widelane_affinity::allowed;
use widelane_batching::{PlacementChoice, Topology, placement};
use widelane_crypto::Task;
use widelane_crypto::rsa::{Scheme, Signing, Size};
use widelane_crypto::sign::{self, Input, Key};
use widelane_crypto::{Backend, BackendUnavailable, Preference, x25519};
use widelane_engine::{
    Clock, ClockPenalty, Config, Cpus, Engine, Idle, Operation, OperationCounters, Placement, Request, Visitor,
    for_each_operation,
};

/// The keys of `widelane-crypto`'s own tests.
macro_rules! key {
    ($name:literal) => {
        Key::from_pem(include_bytes!(concat!("../../crypto/tests/data/", $name))).unwrap()
    };
}

#[test]
fn every_size_signs_in_passes_of_its_own() {
    for backend in available_backends() {
        let engine = start(backend, Placement::Inline);
        let worker = engine.worker();
        let mut signed = Vec::new();
        for (key, _) in keys() {
            // Two keys' worth of every padding and hash: mixed in every pass.
            for scheme in Scheme::ALL.into_iter().chain(Scheme::ALL) {
                let message = format!("{} bits, {scheme:?}", modulus_bits(&key)).into_bytes();
                let request = request(&key, scheme, &message);
                let ticket = worker.submit(request).unwrap();
                signed.push((key.clone(), scheme, message, ticket));
            }
        }
        while worker.turn(Idle::Yes) > 0 {}
        for (key, scheme, message, ticket) in signed {
            let signature = ticket.wait().unwrap().unwrap();
            verify(&key, scheme, &message, &signature);
        }
        for (key, name) in keys() {
            let size = Size::ALL
                .into_iter()
                .find(|size| size.modulus_bits() == modulus_bits(&key));
            let lanes = size.map_or(1, |size| Signing(size).on(backend).unwrap().lanes());
            let counters = of(&engine, name);
            assert_eq!(counters.lanes, lanes, "{backend} {name}");
            let all = 2 * Scheme::ALL.len() as u64;
            let (passes, alone) = match lanes as u64 {
                1 => (0, all),
                lanes => (all.div_ceil(lanes), 0),
            };
            assert_eq!(
                (counters.jobs, counters.passes, counters.alone),
                (all, passes, alone),
                "{backend} {name}"
            );
        }
    }
}

/// Whatever is registered finds its own requests, and answers them: in lanes where there are some
/// and the backend was asked for by name.
#[test]
fn every_operation_serves_its_specimens() {
    struct Specimens<'a> {
        engine: &'a Engine,
        backend: Backend,
        names: Vec<&'static str>,
    }

    impl Visitor for Specimens<'_> {
        fn visit<O: Operation>(
            &mut self,
            make: impl Fn(Backend) -> Result<O, BackendUnavailable>,
        ) -> Result<(), BackendUnavailable> {
            let operation = make(self.backend)?;
            let worker = self.engine.worker();
            let count = operation.lanes() + 1;
            let tickets: Vec<_> = (0..count)
                .map(|_| worker.submit(operation.specimen()).unwrap())
                .collect();
            while worker.turn(Idle::Yes) > 0 {}
            for ticket in tickets {
                let output = ticket.wait().unwrap();
                let failure = O::Request::failure(&output).map(ToString::to_string);
                assert_eq!(failure, None, "{}", operation.name());
            }
            let counters = of(self.engine, operation.name());
            let (passes, alone) = if operation.lanes() > 1 { (2, 0) } else { (0, 2) };
            assert_eq!(
                (counters.jobs, counters.passes, counters.alone),
                (count as u64, passes, alone),
                "{} on {}",
                operation.name(),
                self.backend
            );
            self.names.push(operation.name());
            Ok(())
        }
    }

    for backend in available_backends() {
        let engine = start(backend, Placement::Inline);
        let mut specimens = Specimens {
            engine: &engine,
            backend,
            names: Vec::new(),
        };
        for_each_operation(&mut specimens).unwrap();
        let registered: Vec<_> = engine.counters().iter().map(|one| one.name).collect();
        assert_eq!(specimens.names, registered);
    }
}

/// On a machine where wide code costs nothing, leaving the placement to us changes nothing at all.
#[test]
fn a_machine_without_penalty_is_left_alone() {
    let engine = Engine::start(Config {
        placement: decided(&Clock::default()),
        ..Config::default()
    })
    .unwrap();
    assert_eq!(engine.placement(), &Placement::Inline);
    fill_passes(&engine);
    for one in engine.counters() {
        assert_eq!((one.on_vector_cores, one.narrow), (0, 0), "{one:?}");
    }
}

/// On a machine where it costs something, no wide code runs beside scalar code.
#[test]
fn a_gold_6130_runs_passes_on_vector_cores_only() {
    let engine = Engine::start(Config {
        placement: decided(&Clock::GOLD_6130),
        clock: Clock::GOLD_6130,
        ..Config::default()
    })
    .unwrap();
    if engine.placement() == &Placement::Inline {
        assert_eq!(allowed(None).unwrap().count(), 1);
        eprintln!("SKIP: one CPU, which cannot be spared");
        return;
    }
    engine.calibrate();
    fill_passes(&engine);
    for one in engine.counters() {
        assert_eq!(one.on_vector_cores, one.passes, "{one:?}");
    }
    skip_without_lanes(&engine);
}

/// Inline, an isolated pass of short operations is not worth the clock.
#[test]
fn an_isolated_pass_is_narrow_where_wide_ones_cost_their_neighbours() {
    // More than any two measured passes differ by, also in an unoptimised build.
    let wide = ClockPenalty {
        stall: 1_000_000_000,
        ..Clock::GOLD_6130.wide
    };
    let engine = Engine::start(Config {
        placement: Placement::Inline,
        clock: Clock {
            wide,
            ..Clock::GOLD_6130
        },
        ..Config::default()
    })
    .unwrap();
    engine.calibrate();
    let derivation = x25519::Derivation.on(Backend::AwsLc).unwrap();
    let worker = engine.worker();
    let lanes = of(&engine, derivation.name()).lanes;
    let submit = |_| worker.submit(derivation.specimen()).unwrap();
    let tickets: Vec<_> = (0..lanes).map(submit).collect();
    while worker.turn(Idle::Yes) > 0 {}
    for ticket in tickets {
        ticket.wait().unwrap().unwrap();
    }
    let derive = of(&engine, derivation.name());
    // This thread had run none before.
    let preferred = Preference::Auto.resolve().unwrap();
    let narrow = preferred.alternative().map_or(0, |_| derive.passes);
    assert_eq!(derive.narrow, narrow, "{derive:?}");
    assert_eq!((derive.jobs, derive.on_vector_cores), (lanes as u64, 0));
    skip_without_lanes(&engine);
}

/// Submits enough of every operation for full passes, and checks every answer.
fn fill_passes(engine: &Engine) {
    struct Specimens<'a>(&'a Engine);

    impl Visitor for Specimens<'_> {
        fn visit<O: Operation>(
            &mut self,
            make: impl Fn(Backend) -> Result<O, BackendUnavailable>,
        ) -> Result<(), BackendUnavailable> {
            let operation = make(Backend::AwsLc)?;
            let worker = self.0.worker();
            let lanes = of(self.0, operation.name()).lanes;
            let submit = |_| worker.submit(operation.specimen()).unwrap();
            let tickets: Vec<_> = (0..lanes).map(submit).collect();
            while worker.turn(Idle::Yes) > 0 {}
            for ticket in tickets {
                let output = ticket.wait().unwrap();
                let failure = O::Request::failure(&output).map(ToString::to_string);
                assert_eq!(failure, None, "{}", operation.name());
            }
            Ok(())
        }
    }

    for_each_operation(&mut Specimens(engine)).unwrap();
}

fn skip_without_lanes(engine: &Engine) {
    if engine.counters().iter().all(|one| one.lanes == 1) {
        eprintln!("SKIP: no lanes, so that there are no passes");
    }
}

/// Left to choose, it takes the lanes where they cost less, and counts how it answered.
#[test]
fn the_choice_is_made_and_counted() {
    let engine = Engine::start(Config::default()).unwrap();
    engine.calibrate();
    let worker = engine.worker();
    let (key, name) = keys().swap_remove(0);
    for fill in 1..=8 {
        let sign = |message: u8| request(&key, Scheme::Pkcs1Sha256, &[message]);
        let tickets: Vec<_> = (0..fill)
            .map(|message| (message, worker.submit(sign(message)).unwrap()))
            .collect();
        while worker.turn(Idle::Yes) > 0 {}
        for (message, ticket) in tickets {
            let signature = ticket.wait().unwrap().unwrap();
            verify(&key, Scheme::Pkcs1Sha256, &[message], &signature);
        }
    }
    let counters = of(&engine, name);
    assert_eq!(counters.jobs, 36);
    assert_eq!(counters.lanes_filled + counters.alone, 36);
    if counters.lanes == 1 {
        eprintln!("SKIP: no lanes, so that there is no choice");
        return;
    }
    // A full pass beats signatures one by one on most machines, but not where AWS-LC has instructions that
    // lanes do without. What the engine has measured says which of the two this is.
    let costs = calibration::costs(name, Preference::Auto.resolve().unwrap()).unwrap();
    let full_pays = costs.split(costs.lanes).in_lanes > 0;
    let in_full_passes: usize = (1..=8).map(|fill| fill - fill % costs.lanes).sum();
    if full_pays {
        assert!(counters.lanes_filled >= in_full_passes as u64, "{costs:?} {counters:?}");
    }
}

#[test]
fn every_placement_signs() {
    for backend in available_backends() {
        for placement in [Placement::Inline, Placement::VectorCores(Cpus::from_iter([0]))] {
            let engine = start(backend, placement);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let (key, _) = &keys()[0];
                        let request = request(key, Scheme::PssSha256, b"hello");
                        let signature = engine.run(request).unwrap().unwrap();
                        verify(key, Scheme::PssSha256, b"hello", &signature);
                    });
                }
            });
            assert_eq!(engine.counters()[0].jobs, 4);
        }
    }
}

#[test]
fn a_backend_that_is_missing_is_an_error_that_says_so() {
    for backend in Backend::ALL.into_iter().filter(|backend| !backend.is_available()) {
        let config = Config {
            backend: Preference::Exactly(backend),
            ..Config::default()
        };
        let error = Engine::start(config).unwrap_err().to_string();
        assert!(error.contains(backend.name()), "{error}");
    }
}

#[test]
fn the_global_engine_is_one_engine() {
    let (key, name) = keys().swap_remove(0);
    let request = request(&key, Scheme::Pkcs1Sha256, b"hello");
    let signature = Engine::global().run(request).unwrap().unwrap();
    verify(&key, Scheme::Pkcs1Sha256, b"hello", &signature);
    let counters = Engine::global().counters();
    assert_eq!((counters[0].name, counters[0].jobs), (name, 1));
}

fn of(engine: &Engine, name: &str) -> OperationCounters {
    let counters = engine.counters();
    counters.into_iter().find(|one| one.name == name).unwrap()
}

fn modulus_bits(key: &Key) -> usize {
    8 * key.signature_len()
}

fn request(key: &Key, scheme: Scheme, message: &[u8]) -> sign::Request {
    let scheme = sign::Scheme::Rsa(scheme);
    sign::Request::new(key, scheme, Input::Message(message)).unwrap()
}

fn keys() -> Vec<(Key, &'static str)> {
    vec![
        (key!("rsa2048_a.pem"), "rsa2048-sign"),
        (key!("rsa3072_a.pem"), "rsa3072-sign"),
        (key!("rsa4096_a.pem"), "rsa4096-sign"),
        (key!("rsa2560.pem"), "rsa-sign"),
    ]
}

fn available_backends() -> Vec<Backend> {
    let (available, missing): (Vec<_>, Vec<_>) = Backend::ALL.into_iter().partition(|backend| backend.is_available());
    for backend in missing {
        backend
            .target()
            .into_iter()
            .for_each(widelane_crypto::Target::tell_skipped);
    }
    available
}

/// The placement on CPUs of this process whose clock is this one. The vector core is CPU 0.
fn decided(clock: &Clock) -> Placement {
    let topology = Topology::new(allowed(None).unwrap(), Cpus::from_iter([0]));
    placement(PlacementChoice::Auto, clock, &topology)
}

fn start(backend: Backend, placement: Placement) -> Engine {
    let backend = Preference::Exactly(backend);
    Engine::start(Config {
        backend,
        placement,
        ..Config::default()
    })
    .unwrap()
}

fn verify(key: &Key, scheme: Scheme, message: &[u8], signature: &[u8]) {
    let parameters: [&RsaParameters; 6] = [
        &signature::RSA_PKCS1_2048_8192_SHA256,
        &signature::RSA_PKCS1_2048_8192_SHA384,
        &signature::RSA_PKCS1_2048_8192_SHA512,
        &signature::RSA_PSS_2048_8192_SHA256,
        &signature::RSA_PSS_2048_8192_SHA384,
        &signature::RSA_PSS_2048_8192_SHA512,
    ];
    let mut pairs = Scheme::ALL.into_iter().zip(parameters);
    let found = pairs.find_map(|(one, parameters)| (one == scheme).then_some(parameters));
    let parameters = found.expect("one of all");
    UnparsedPublicKey::new(parameters, key.public_key_info_der())
        .verify(message, signature)
        .unwrap_or_else(|_| panic!("{} bits, {scheme:?}", modulus_bits(key)));
}
