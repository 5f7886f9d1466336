//! Servers with the provider for a long time: clients that go away at random points, reloads, and
//! nothing that stays of them.
//!
//! `make soak` runs the whole form and prints a table, `make soak-minute` a shorter one. Without the
//! variable that they set, a short form shows that the test itself works.

#![forbid(unsafe_code)]

mod common;

use std::sync::Mutex;
use std::time::Duration;

use common::aborts::clients;
use common::nginx::KINDS;
use common::protocol::Protocol;
use common::subject::{Endured, Plan, Reload, Subject};
use common::{Files, With};
use rustix::process::Signal;

/// Without the variable `WIDELANE_SOAK`.
const SHORT: Plan = Plan {
    in_flight: 50,
    aborts: [150, 250],
    reloads: 1,
    pause: Duration::ZERO,
    compares_logs: false,
};

/// What `make soak-minute` runs, in a minute for all servers.
const MINUTE: Plan = Plan {
    in_flight: 100,
    aborts: [500, 1_500],
    reloads: 4,
    pause: Duration::from_secs(2),
    compares_logs: true,
};

/// What `make soak` runs: 20,000 clients that go away, then 150 seconds with reloads; for each server.
const WHOLE: Plan = Plan {
    in_flight: 200,
    aborts: [2_000, 18_000],
    reloads: 30,
    pause: Duration::from_secs(5),
    compares_logs: true,
};

/// What the servers have in common.
const SUBJECT: Subject = Subject {
    name: "",
    start: |_| None,
    with: With::Shim,
    protocol: Protocol::SITE,
    hosts: &KINDS,
    reload: Reload::Signal(Signal::USR1),
    listens_anew: false,
    worker: None,
    may_stay: (4096, 0),
    closes_idle: true,
    stopped: None,
};

/// The limit of nginx.
const LIMIT: Duration = Duration::from_millis(500);

#[test]
fn nginx() {
    soak(&Subject {
        name: "nginx",
        start: |with| {
            common::installed("nginx")?;
            let files = Files::new();
            let blocks = common::nginx::servers_of_each_kind(&files);
            let http = format!("client_header_timeout {}ms; {blocks}", LIMIT.as_millis());
            Some(common::nginx::nginx_of(files, "", &http, with))
        },
        reload: Reload::Signal(Signal::HUP),
        stopped: Some(LIMIT),
        ..SUBJECT
    });
}

#[test]
fn haproxy() {
    soak(&Subject {
        name: "haproxy",
        start: |with| {
            let global = "stats socket DIR/control expose-fd listeners";
            let defaults = "timeout client 1s";
            common::haproxy::haproxy(Files::new(), &["-W"], global, defaults, with)
        },
        with: With::Provider,
        reload: Reload::Signal(Signal::USR2),
        may_stay: (8192, HAPROXYS_OWN),
        ..SUBJECT
    });
}

#[test]
fn apache2() {
    soak(&Subject {
        name: "apache2",
        start: |with| {
            let lines = "Timeout 1\nLogLevel warn\n";
            common::apache::apache(Files::new(), lines, with)
        },
        with: With::Provider,
        may_stay: (8192, 0),
        ..SUBJECT
    });
}

#[test]
fn lighttpd() {
    soak(&Subject {
        name: "lighttpd",
        start: |with| {
            let lines = "server.max-read-idle = 1\nserver.max-write-idle = 1";
            common::lighttpd::lighttpd(Files::new(), lines, "lighttpd", with)
        },
        protocol: Protocol::Http {
            path: "/body",
            body: |_| "lighttpd",
        },
        ..SUBJECT
    });
}

/// HAProxy frees connections whose job is paused, and OpenSSL leaks such jobs: this is none of ours
/// (`docs/openssl.md`). So many KiB of a thousand clients that go away.
const HAPROXYS_OWN: u64 = 1024;

/// What HAProxy leaks when clients reset connections whose job is paused, with the provider and without
/// it. OpenSSL has no function that would free such a job: this is measured, and bounded.
#[test]
fn haproxy_under_resets() {
    if std::env::var_os("WIDELANE_SOAK").is_none_or(|form| form != "whole") {
        return;
    }
    for with in [With::Provider, With::Nothing] {
        let defaults = "timeout client 1s";
        let Some(server) = common::haproxy::haproxy(Files::new(), &["-W"], "", defaults, with) else {
            return;
        };
        let clients = clients(&server.files);
        let resets = |count| {
            common::load(WHOLE.in_flight, count, |i| {
                let (client, (_, name)) = (&clients[i % clients.len()], KINDS[i % KINDS.len()]);
                let _ = common::client::reset_after_hello(client, server.address, name);
                Ok(())
            });
        };
        // The first ones show what a crowd takes.
        let kib: Vec<_> = (0..5)
            .map(|_| {
                resets(4000);
                SUBJECT.at_rest(&server).kib
            })
            .collect();
        println!("haproxy, {with:?}: {kib:?} KiB after each 4000 resets");
        let growth = kib[4].saturating_sub(kib[0]);
        assert!(growth < 16 * HAPROXYS_OWN, "{with:?}: {growth} KiB more");
    }
}

/// Does everything to one server, and prints the table of those that have come so far.
fn soak(subject: &Subject) {
    let name = subject.name;
    let plan = match std::env::var("WIDELANE_SOAK").as_deref() {
        Ok("whole") => &WHOLE,
        Ok("minute") => &MINUTE,
        Ok(form) => panic!("WIDELANE_SOAK={form} is neither whole nor minute"),
        Err(_) => &SHORT,
    };
    let Some(endured) = subject.endure(plan) else {
        return;
    };
    let Endured { idle, first, last, .. } = endured;
    let row = format!(
        "{name:<9} {:>8} {:>12} {:>12} {:>12} {:>8} {:>9} {:>8} {:>8}",
        plan.aborts.iter().sum::<usize>(),
        first.kib,
        last.kib,
        format!("{} / {}", idle.descriptors, last.descriptors),
        last.stacks,
        endured.answered,
        endured.again,
        plan.reloads,
    );
    static ROWS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut rows = ROWS.lock().expect("no panic");
    rows.push(row);
    println!("\nSERVER     ABORTED   KiB AT 1ST   KiB AT END  DESCRIPTORS   STACKS  ANSWERED    AGAIN  RELOADS");
    for row in &*rows {
        println!("{row}");
    }
}
