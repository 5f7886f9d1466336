//! nginx with the provider and the preloaded library, while clients go away and while it is
//! reloaded.

#![forbid(unsafe_code)]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::Signal;

use common::aborts::{Host, Over, Random, clients, go_away};
use common::nginx::{BAD, KINDS, nginx, nginx_files, nginx_of_shell, servers_of_each_kind};
use common::protocol::Protocol;
use common::{Process, Server};

#[test]
fn nothing_stays_of_clients_that_go_away() {
    let Some(files) = nginx_files() else { return };
    let blocks = servers_of_each_kind(&files);
    // The limit is that of handshakes too.
    let limit = Duration::from_millis(40);
    let server = nginx(
        files,
        &format!("client_header_timeout {}ms; {blocks}", limit.as_millis()),
    );
    let worker = server.process().only_child();
    let clients = clients(&server.files);
    // Its first answer shows that it has opened all that it keeps open.
    let (_, name) = KINDS[0];
    common::eventually("the worker answers", || {
        clients[0].expect(server.address, name, "/", name).is_ok()
    });
    worker.becomes_idle();
    let idle = worker.descriptors();
    let abort = |seed: usize| {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // While the worker is stopped, the time of handshakes runs out that wait for a
                // pass: it frees their connections in the middle.
                while !over.load(Relaxed) {
                    worker.signal(Signal::STOP);
                    std::thread::sleep(limit + limit / 2);
                    worker.signal(Signal::CONT);
                    std::thread::sleep(limit);
                }
            });
            let _over = Over(&over);
            common::load(100, 3000, |i| {
                let mut random = Random::new(seed + i);
                let client = &clients[random.below(clients.len())];
                let (_, name) = KINDS[random.below(KINDS.len())];
                // Errors are what the server is asked for.
                let host = Host {
                    address: server.address,
                    name,
                    protocol: Protocol::SITE,
                    closes_idle: true,
                };
                let _ = go_away(client, &host, &mut random);
                Ok(())
            });
        });
        common::eventually("all connections are closed", || worker.descriptors() <= idle);
    };
    abort(0);
    let warm = worker.resident();
    abort(1_000_000);
    worker.becomes_idle();
    let after = worker.resident();
    // A sanitizer keeps what was freed.
    let flat = after < warm + 2048 || common::sanitizer().is_some();
    assert!(flat, "{warm} KiB became {after} KiB");
    for (_, name) in KINDS {
        for client in &clients {
            // On a busy machine, the limit may also end a handshake of an honest client.
            common::eventually("new handshakes work", || {
                client.expect(server.address, name, "/", name).is_ok()
            });
        }
    }
    assert_eq!(server.process().only_child(), worker, "the worker has died");
    server.assert_log_without(BAD);
}

#[test]
fn a_reload_loses_no_handshake() {
    let Some(files) = nginx_files() else { return };
    let blocks = servers_of_each_kind(&files);
    let server = nginx(files, &blocks);
    let master = server.process();
    during_load(&server, |done| {
        for _ in 0..5 {
            let before = master.children();
            master.signal(Signal::HUP);
            replaced(master, &before);
            done(50);
        }
    });
    assert_uses_the_shim(master.only_child());
    server.assert_log_without(BAD);
}

#[test]
fn another_binary_takes_over_without_losing_a_handshake() {
    let Some(files) = nginx_files() else { return };
    let blocks = servers_of_each_kind(&files);
    let mut server = nginx_of_shell(files, &blocks);
    let old = server.process().only_child();
    server.close_input();
    common::eventually("the shell ends", || server.has_ended());
    let old_worker = old.only_child();
    let mut new = None;
    during_load(&server, |done| {
        old.signal(Signal::USR2);
        common::eventually("the new binary has a worker", || {
            let found = |child: &Process| *child != old_worker && !child.children().is_empty();
            new = old.children().into_iter().find(found);
            new.is_some()
        });
        done(50);
        old.signal(Signal::QUIT);
        common::eventually("the old binary ends", || !old.runs());
        done(50);
    });
    let new = new.expect("it has come");
    assert_uses_the_shim(new);
    assert_uses_the_shim(new.only_child());
    server.assert_log_without(BAD);
}

/// Waits until none of the children is left, but another one.
fn replaced(master: Process, before: &BTreeSet<Process>) {
    common::eventually("another worker has taken over", || {
        let now = master.children();
        !now.is_empty() && now.is_disjoint(before)
    });
}

fn assert_uses_the_shim(process: Process) {
    let libraries = common::libraries();
    assert!(process.maps(&libraries.shim), "{process:?} has no shim");
    assert!(process.maps(&libraries.provider), "{process:?} has no provider");
}

/// Runs `meanwhile` while clients come and go; they must all succeed. It gets a function that waits
/// for a number of further handshakes.
fn during_load(server: &Server, meanwhile: impl FnOnce(&dyn Fn(usize))) {
    let clients = clients(&server.files);
    let (over, completed) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            common::load_while(16, |i| {
                if over.load(Relaxed) {
                    return Ok(false);
                }
                let (_, name) = KINDS[i % KINDS.len()];
                let client = &clients[i / KINDS.len() % clients.len()];
                client.expect(server.address, name, "/", name)?;
                completed.fetch_add(1, Relaxed);
                Ok(true)
            });
        });
        let over = Over(&over);
        meanwhile(&|count| {
            let goal = completed.load(Relaxed) + count;
            common::eventually("handshakes go on", || completed.load(Relaxed) >= goal);
        });
        drop(over);
    });
}
