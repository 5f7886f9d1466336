//! A real process with the OpenSSL provider, in the picture.

#[path = "../../status/tests/server/mod.rs"]
mod server;

use std::thread::sleep;
use std::time::Duration;

use server::{folder, shake_hands, start};
use widelane_top::{Known, Monitor, Options, Provider, Snapshot, Work, plain};

#[test]
fn a_server_with_the_provider_is_shown_with_its_rates() {
    let Some(folder) = folder() else { return };
    let server = start(&folder);
    let pid = server.running.id();
    let mut monitor = Monitor::new(Options {
        metrics: Err("none".to_owned()),
        users: Err("none".to_owned()),
        handshakes: false,
        profile: Err("none".to_owned()),
        patience: Duration::ZERO,
    });
    // OpenSSL makes the first signature with a key.
    shake_hands(server.address);
    // Counters are written after the answers.
    sleep(Duration::from_millis(50));
    monitor.snapshot();
    for _ in 0..3 {
        shake_hands(server.address);
    }
    sleep(Duration::from_millis(50));
    let snapshot = monitor.snapshot();
    let Provider { work, backend, .. } = provider(&snapshot, pid);
    let Known::Known(Work { operations, .. }) = work else {
        println!("SKIP: this user may not read the memory of other processes: {work:?}");
        return;
    };
    if backend.as_deref() == Some("aws-lc") {
        println!("SKIP: this CPU has no lanes, so that OpenSSL signs by itself");
        return;
    }
    let sign = operations.iter().find(|one| one.name == "rsa2048-sign");
    let sign = sign.expect("it signed");
    // Each handshake has one signature and two other jobs: ratios do not depend on the clock.
    let exchange = operations.iter().find(|one| one.name == "x25519-derive");
    assert_eq!(Some(sign.jobs), exchange.map(|one| one.jobs));
    assert!(sign.jobs > 0.0 && sign.failed == 0.0, "{operations:?}");
    assert!(plain(&snapshot).contains("\n  rsa2048-sign "));

    let idle = monitor.snapshot();
    let Known::Known(Work { operations, .. }) = &provider(&idle, pid).work else {
        panic!("{idle:?}");
    };
    assert!(operations.is_empty(), "it did nothing since: {operations:?}");
}

fn provider(snapshot: &Snapshot, pid: u32) -> &Provider {
    let Known::Known(providers) = &snapshot.providers else {
        panic!("{snapshot:?}");
    };
    let found = providers.processes.iter().find(|one| one.pid == pid);
    found.unwrap_or_else(|| panic!("{providers:?}"))
}
