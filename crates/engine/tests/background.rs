//! Costs of passes are measured while an engine answers. A test program of its own, because what one
//! engine of a process has measured the others know.
#![cfg(not(loom))]

use std::thread;
use std::time::Duration;

use widelane_crypto::Task;
use widelane_crypto::{Backend, Preference, x25519};
use widelane_engine::{Config, Engine, Idle, Operation, calibration};

#[test]
fn all_costs_are_measured_in_the_background_and_requests_are_answered_meanwhile() {
    let engine = Engine::start(Config {
        backend: Preference::Auto,
        ..Config::default()
    })
    .unwrap();
    assert!(calibration::known().is_empty());
    engine.calibrate_in_background();
    // A second call has nothing left to do.
    engine.calibrate_in_background();
    let derivation = x25519::Derivation.on(Backend::AwsLc).unwrap();
    let worker = engine.worker();
    let ticket = worker.submit(derivation.specimen()).unwrap();
    while worker.turn(Idle::Yes) > 0 {}
    ticket.wait().unwrap().unwrap();
    let lanes = engine.counters().into_iter().filter(|one| one.lanes > 1);
    let expected: Vec<_> = lanes.map(|one| one.name).collect();
    if expected.is_empty() {
        println!("SKIP: no lanes");
        return;
    }
    let unknown = || {
        let known = calibration::known();
        let is_known = |name: &&str| known.iter().any(|entry| entry.name == **name);
        let names = expected.iter().copied();
        names.filter(|name| !is_known(name)).collect::<Vec<_>>()
    };
    // A minute and a half; a hundred times as long as it takes.
    for _ in 0..20_000 {
        if unknown().is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("never measured: {:?}", unknown());
}
