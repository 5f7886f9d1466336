//! lighttpd with the provider and the library that suspends handshakes.

#![forbid(unsafe_code)]

mod common;

use common::client::Wish;
use common::nginx::KINDS;
use common::{Files, Server, With};

#[test]
fn handshakes_and_answers() {
    let Some(server) = lighttpd(With::Shim) else {
        return;
    };
    common::load(64, 400, |i| {
        let wish = Wish::of(i);
        let (_, name) = KINDS[i / 2 % KINDS.len()];
        wish.client(&server.files)
            .expect(server.address, name, "/body", &body())
            .map(drop)
    });
    assert!(server.process().runs(), "{}", server.log());
    server.process().becomes_idle();
}

#[test]
fn handshakes_of_new_sockets_are_suspended() {
    for with in [With::Shim, With::Imports] {
        let Some(server) = lighttpd(with) else { return };
        if !server.has_lanes() {
            return println!("SKIP: there are no lanes here, and so no handshake waits");
        }
        // The server finds all of them at once, and reads from each before it watches it.
        let stacks = server.suspended_at_once(server.process(), 16);
        assert!(
            stacks >= 4,
            "{with:?}: at most {stacks} handshakes were under way at once"
        );
    }
}

fn lighttpd(with: With) -> Option<Server> {
    common::lighttpd::lighttpd(Files::new(), "", &body(), with)
}

fn body() -> String {
    "lighttpd".repeat(40_000)
}
