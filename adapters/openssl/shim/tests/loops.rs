//! A small server in C for each way to wait: its handshakes share passes.

#![forbid(unsafe_code)]

mod common;

use std::path::Path;
use std::process::Command;

use common::client::{VERSIONS, Wish};
use common::{Files, Kind, Server, With};

const WAYS: [&str; 7] = [
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
];

#[test]
fn handshakes_share_passes_in_each_way_to_wait() {
    if !Path::new("/usr/include/openssl/ssl.h").exists() {
        return println!("SKIP: OpenSSL's headers are not installed (Debian: libssl-dev)");
    }
    for way in WAYS {
        let server = start(way, With::Shim);
        let before = server.process().descriptors();
        let clients = VERSIONS.map(|version| {
            let wish = Wish {
                version,
                ..Wish::default()
            };
            wish.client(&server.files)
        });
        common::load(32, 300, |i| {
            let client = &clients[i % clients.len()];
            client.expect(server.address, "rsa.test", "/", "loops").map(drop)
        });
        let none_stays = || server.process().descriptors() <= before;
        common::eventually("its descriptors are as before", none_stays);
        if !server.shares_passes("rsa2048-sign") {
            continue;
        }
        let jobs_a_pass = server.process().jobs_a_pass("rsa2048-sign");
        println!("{way}: {jobs_a_pass:.2} jobs a pass");
        assert!(jobs_a_pass > 1.5, "{way}: {jobs_a_pass} jobs a pass");
    }
}

fn start(way: &str, with: With) -> Server {
    let files = Files::new();
    files.certificate(Kind::Rsa, "rsa.test");
    let program = files.path("loops");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/loops.c");
    let built = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .args([source, "-lssl", "-lcrypto"])
        .output()
        .expect("a C compiler");
    assert!(built.status.success(), "{built:?}");
    let address = common::free_address();
    let identity = files.path("rsa.test.both");
    let arguments = [
        way,
        &address.ip().to_string(),
        &address.port().to_string(),
        identity.to_str().expect("a path of text"),
    ]
    .map(str::to_owned);
    Server::start(files, address, &program, &arguments, with)
}
