//! Servers with the provider for a long time: clients that go away at random points, reloads, and
//! nothing that stays of them.
//!
//! `make soak` runs the whole form and prints a table, `make soak-minute` a shorter one. Without the
//! variable that they set, a short form shows that the test itself works.

#![forbid(unsafe_code)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use common::aborts::{Over, Random, clients, go_away};
use common::nginx::{BAD, KINDS};
use common::{Files, Process, Server, With};
use rustix::process::Signal;

/// Amount of work for each server.
struct Plan {
    in_flight: usize,
    /// Clients that go away before memory is measured for the first time, and after that.
    aborts: [usize; 2],
    reloads: usize,
    /// Between two reloads.
    pause: Duration,
    compares_logs: bool,
}

/// Without the variable `WIDELANE_SOAK`.
const SHORT: Plan = Plan {
    in_flight: 50,
    aborts: [150, 250],
    reloads: 1,
    pause: Duration::ZERO,
    compares_logs: false,
};

/// Plan of `make soak-minute`: a minute for all servers.
const MINUTE: Plan = Plan {
    in_flight: 100,
    aborts: [500, 1_500],
    reloads: 4,
    pause: Duration::from_secs(2),
    compares_logs: true,
};

/// Plan of `make soak`: 20,000 clients that go away, then 150 seconds with reloads; for each server.
const WHOLE: Plan = Plan {
    in_flight: 200,
    aborts: [2_000, 18_000],
    reloads: 30,
    pause: Duration::from_secs(5),
    compares_logs: true,
};

/// One of the servers.
struct Subject {
    name: &'static str,
    start: fn(With) -> Option<Server>,
    with: With,
    /// Makes the server replace its processes.
    reload: Signal,
    /// KiB that may stay of all clients, and of each thousand of them.
    may_stay: (u64, u64),
    /// The time limit of a handshake, if the process shall be stopped for longer again and again:
    /// then the time of handshakes runs out that wait for a pass.
    stopped: Option<Duration>,
    path: &'static str,
    body: fn(&str) -> &str,
}

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
        with: With::Shim,
        reload: Signal::HUP,
        may_stay: (4096, 0),
        stopped: Some(LIMIT),
        path: "/",
        body: |name| name,
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
        reload: Signal::USR2,
        may_stay: (8192, HAPROXYS_OWN),
        stopped: None,
        path: "/",
        body: |name| name,
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
        reload: Signal::USR1,
        may_stay: (8192, 0),
        stopped: None,
        path: "/",
        body: |name| name,
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
        with: With::Shim,
        reload: Signal::USR1,
        may_stay: (4096, 0),
        stopped: None,
        path: "/body",
        body: |_| "lighttpd",
    });
}

/// HAProxy frees connections whose job is paused, and OpenSSL leaks such jobs: this is none of ours
/// (`docs/openssl.md`). So many KiB of a thousand clients that go away.
const HAPROXYS_OWN: u64 = 1024;

/// Leak of HAProxy when clients reset connections whose job is paused, with the provider and without
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
                at_rest(&server).kib
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
    let Some(server) = (subject.start)(subject.with) else {
        return;
    };
    let warm_up = honest(&server, subject, &AtomicUsize::new(0));
    assert_eq!(warm_up, Ok(()));
    let idle = at_rest(&server);
    println!("{name}: {idle:?} at the start");
    // More at once than later: what the heap keeps of a crowd is there before memory is measured.
    abort(&server, subject, 2 * plan.in_flight, 0..plan.aborts[0]);
    let first = settled(&server, &idle);
    println!("{name}: {first:?} after {} clients", plan.aborts[0]);
    let all: usize = plan.aborts.iter().sum();
    let mut next = plan.aborts[0];
    while next < all {
        let end = all.min(next + 3_000);
        abort(&server, subject, plan.in_flight, next..end);
        next = end;
        println!("{name}: {:?} after {next} clients", settled(&server, &idle));
    }
    let last = settled(&server, &idle);
    let may_stay = subject.may_stay.0 + subject.may_stay.1 * plan.aborts[1] as u64 / 1000;
    assert!(last.kib < first.kib + may_stay, "{name}: {first:?} became {last:?}");
    let again = AtomicUsize::new(0);
    let errors = honest(&server, subject, &again);
    assert_eq!(errors, Ok(()), "{name}");
    let answered = mixed(&server, subject, plan, &again);
    let errors = honest(&server, subject, &again);
    assert_eq!(errors, Ok(()), "{name}");
    at_rest(&server);
    server.assert_log_without(BAD);
    if plan.compares_logs {
        says_nothing_new(&server, subject, plan);
    }
    let row = format!(
        "{name:<9} {all:>8} {:>12} {:>12} {:>12} {:>8} {answered:>9} {:>8} {:>8}",
        first.kib,
        last.kib,
        format!("{} / {}", idle.descriptors, last.descriptors),
        last.stacks,
        again.load(Relaxed),
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

/// Resources of a server at rest, in the process that holds most.
#[derive(Clone, Copy, Debug)]
struct Held {
    kib: u64,
    descriptors: usize,
    stacks: usize,
}

fn at_rest(server: &Server) -> Held {
    let worker = worker(server);
    worker.becomes_idle();
    held(worker)
}

/// Resources that the server holds once no connection is open.
fn settled(server: &Server, idle: &Held) -> Held {
    common::eventually("all connections are closed", || {
        worker(server).descriptors() <= idle.descriptors
    });
    at_rest(server)
}

fn held(worker: Process) -> Held {
    Held {
        kib: worker.resident(),
        descriptors: worker.descriptors(),
        stacks: common::guard_areas(worker),
    }
}

/// The process that serves: the largest child, or the server itself.
fn worker(server: &Server) -> Process {
    let family = server.process().family();
    let running = family.iter().skip(1).filter(|one| one.runs());
    let largest = running.max_by_key(|one| one.resident());
    *largest.unwrap_or(&server.process())
}

/// Clients that go away, with these numbers.
fn abort(server: &Server, subject: &Subject, in_flight: usize, numbers: std::ops::Range<usize>) {
    let clients = clients(&server.files);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(limit) = subject.stopped {
            let (over, worker) = (&over, worker(server));
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    worker.signal(Signal::STOP);
                    std::thread::sleep(limit + limit / 4);
                    worker.signal(Signal::CONT);
                    std::thread::sleep(limit * 2);
                }
            });
        }
        let _over = Over(&over);
        let start = numbers.start;
        common::load(in_flight, numbers.len(), |i| {
            let mut random = Random::new(start + i);
            let client = &clients[random.below(clients.len())];
            let (_, name) = KINDS[random.below(KINDS.len())];
            // Errors are what the server is asked for.
            let _ = go_away(client, server.address, name, &mut random);
            Ok(())
        });
    });
}

/// A handshake of each kind, version and group. Counts how often one was tried again: on a busy machine
/// the time of honest clients may run out, too.
fn honest(server: &Server, subject: &Subject, again: &AtomicUsize) -> Result<(), String> {
    for client in clients(&server.files) {
        for (_, name) in KINDS {
            let body = (subject.body)(name);
            retried(again, || client.expect(server.address, name, subject.path, body))?;
        }
    }
    Ok(())
}

fn retried<T>(again: &AtomicUsize, mut one: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    for _ in 0..4 {
        if let Ok(done) = one() {
            return Ok(done);
        }
        again.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_millis(100));
    }
    one()
}

/// Clients of both kinds while the server is reloaded; how many were answered.
fn mixed(server: &Server, subject: &Subject, plan: &Plan, again: &AtomicUsize) -> usize {
    let clients = clients(&server.files);
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Over(&over);
            for i in 1..=plan.reloads {
                let goal = answered.load(Relaxed) + 100;
                common::eventually("handshakes go on", || answered.load(Relaxed) >= goal);
                std::thread::sleep(plan.pause);
                reload(server, subject);
                if i % 6 == 0 {
                    let sum = answered.load(Relaxed);
                    let held = held(worker(server));
                    println!("{}: {sum} answered, {i} reloads, {held:?}", subject.name);
                }
            }
        });
        common::load_while(plan.in_flight / 4, |i| {
            if over.load(Relaxed) {
                return Ok(false);
            }
            let mut random = Random::new(1_000_000 + i);
            let client = &clients[random.below(clients.len())];
            let (_, name) = KINDS[random.below(KINDS.len())];
            if i % 2 == 0 {
                let _ = go_away(client, server.address, name, &mut random);
                return Ok(true);
            }
            let body = (subject.body)(name);
            retried(again, || client.expect(server.address, name, subject.path, body))?;
            answered.fetch_add(1, Relaxed);
            Ok(true)
        });
    });
    answered.into_inner()
}

/// Reloads the server and waits until its processes were replaced, if it has several.
fn reload(server: &Server, subject: &Subject) {
    let process = server.process();
    let before = process.children();
    process.signal(subject.reload);
    if before.is_empty() {
        return;
    }
    common::eventually("other processes have taken over", || {
        let now = process.children();
        !now.is_empty() && now.is_disjoint(&before)
    });
}

/// The server's log has no kind of complaint that the server without us does not have under the same
/// load.
fn says_nothing_new(server: &Server, subject: &Subject, plan: &Plan) {
    let plain = (subject.start)(With::Nothing).expect("it was there before");
    abort(&plain, subject, plan.in_flight, 0..plan.aborts[0]);
    let again = AtomicUsize::new(0);
    mixed(&plain, subject, &SHORT, &again);
    let known: BTreeSet<_> = complaints(&plain).into_keys().collect();
    let mut new = complaints(server);
    new.retain(|kind, _| !known.contains(kind));
    assert!(new.is_empty(), "{}: {new:#?}", subject.name);
}

/// Complaints in the log, without numbers and names, and one line of each kind.
fn complaints(server: &Server) -> BTreeMap<String, String> {
    let log = server.log();
    let serious = |line: &&str| {
        let line = line.to_lowercase();
        ["warn", "error", "crit", "alert", "emerg", "widelane: openssl"]
            .iter()
            .any(|word| line.contains(word))
            // nginx tells at this level what clients do.
            && !line.contains("[info]")
            // How many clients came at once, which is ours to know.
            && !line.contains("maxrequestworkers")
    };
    let kind = |line: &str| {
        let line = line.split("client").next().unwrap_or(line);
        let keep = |c: &char| !c.is_ascii_hexdigit() || c.is_ascii_lowercase();
        line.chars().filter(keep).collect::<String>()
    };
    let lines = log.lines().filter(serious);
    lines.map(|line| (kind(line), line.to_owned())).collect()
}
