//! Apache's event MPM with the provider alone: its threads block, and share passes.

#![forbid(unsafe_code)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use common::aborts::Over;
use common::apache::apache;
use common::client::Wish;
use common::nginx::KINDS;
use common::{Files, With};
use rustix::process::Signal;

#[test]
fn handshakes_go_on_during_graceful_restarts() {
    let Some(server) = apache(Files::new(), "", With::Provider) else {
        return;
    };
    let address = server.address;
    let clients = [0, 1].map(|version| Wish::of(version).client(&server.files));
    let (over, completed) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Over(&over);
            for _ in 0..3 {
                let goal = completed.load(Relaxed) + 100;
                common::eventually("handshakes go on", || completed.load(Relaxed) >= goal);
                let before = server.process().children();
                server.process().signal(Signal::USR1);
                common::eventually("other processes have taken over", || {
                    let now = server.process().children();
                    !now.is_empty() && now.is_disjoint(&before)
                });
            }
        });
        common::load_while(16, |i| {
            if over.load(Relaxed) {
                return Ok(false);
            }
            let (_, name) = KINDS[i % KINDS.len()];
            clients[i / KINDS.len() % 2].expect(address, name, "/", name)?;
            completed.fetch_add(1, Relaxed);
            Ok(true)
        });
    });
    server.assert_log_without(&["exit signal"]);
}
