//! HAProxy with the provider and its own `ssl-mode-async`.

#![forbid(unsafe_code)]

mod common;

use common::aborts::clients;
use common::haproxy::haproxy;
use common::nginx::KINDS;
use common::{Files, With};

#[test]
fn handshakes_on_two_threads_in_a_chroot() {
    let files = Files::new();
    std::fs::create_dir(files.path("empty")).expect("our own directory");
    let chroot = match common::is_root() {
        true => "chroot DIR/empty\n uid 65534\n gid 65534",
        false => {
            println!("SKIP: chroot, which takes root");
            ""
        }
    };
    let Some(server) = haproxy(files, &["-db"], chroot, "timeout client 30s", With::Provider) else {
        return;
    };
    let address = server.address;
    let clients = clients(&server.files);
    common::load(64, 500, |i| {
        let (_, name) = KINDS[i % KINDS.len()];
        let client = &clients[i / KINDS.len() % clients.len()];
        client.expect(address, name, "/", name).map(drop)
    });
    // Clients that go away in the middle, while jobs of theirs are paused.
    common::load(64, 500, |i| {
        let (_, name) = KINDS[i % KINDS.len()];
        let client = &clients[i / KINDS.len() % clients.len()];
        // Errors are what the server is asked for.
        let _ = common::client::reset_after_hello(client, address, name);
        Ok(())
    });
    server.process().becomes_idle();
    common::load(64, 200, |i| {
        let (_, name) = KINDS[i % KINDS.len()];
        let client = &clients[i / KINDS.len() % clients.len()];
        client.expect(address, name, "/", name).map(drop)
    });
    assert!(server.process().runs(), "{}", server.log());
}
