//! lighttpd with the provider and the preloaded library.

#![forbid(unsafe_code)]

mod common;

use std::path::Path;

use rustix::process::Signal;

use common::client::{VERSIONS, Wish};
use common::{Files, Kind, Server, With};

#[test]
fn handshakes_and_answers() {
    let Some(server) = lighttpd() else { return };
    common::load(64, 400, |i| {
        let wish = Wish {
            version: VERSIONS[i % 2],
            ..Wish::default()
        };
        let (_, name) = NAMES[i / 2 % 2];
        wish.client(&server.files)
            .expect(server.address, name, "/body", &body())?;
        Ok(())
    });
    assert!(server.process().runs(), "{}", server.log());
    server.process().becomes_idle();
}

#[test]
fn handshakes_of_new_sockets_are_suspended() {
    let Some(server) = lighttpd() else { return };
    if !server.log().contains("backend avx512ifma") {
        return println!("SKIP: there are no lanes here, and so no handshake waits");
    }
    let process = server.process();
    let client = Wish::default().client(&server.files);
    let before = process.guard_areas();
    // The server finds all of them at once, and reads from each before it watches it.
    process.signal(Signal::STOP);
    let mut waiting: Vec<_> = (0..16)
        .map(|_| {
            let mut tls = client
                .connect(server.address, "rsa.test")
                .expect("a backlog");
            tls.conn.write_tls(&mut tls.sock).expect("a buffer");
            tls
        })
        .collect();
    process.signal(Signal::CONT);
    for tls in &mut waiting {
        tls.conn.complete_io(&mut tls.sock).expect("a handshake");
    }
    let stacks = process.guard_areas() - before;
    assert!(
        stacks >= 4,
        "at most {stacks} handshakes were under way at once"
    );
}

/// lighttpd with a server of each name; `None` if it is not installed.
fn lighttpd() -> Option<Server> {
    let program = common::installed("lighttpd")?;
    if !Path::new("/usr/lib/lighttpd/mod_openssl.so").exists() {
        println!("SKIP: lighttpd's mod_openssl is not installed");
        return None;
    }
    let files = Files::new();
    let address = common::free_address();
    files.write("body", body());
    let hosts = NAMES.map(|(kind, name)| {
        files.certificate(kind, name);
        format!(
            "$HTTP[\"host\"] == \"{name}\" {{ ssl.pemfile = \"{}\" }}\n",
            files.path(&format!("{name}.both")).display()
        )
    });
    let config = format!(
        "server.modules = (\"mod_openssl\")\n\
         server.document-root = \"{directory}\"\n\
         server.errorlog = \"{directory}/error.log\"\n\
         server.bind = \"{ip}\"\nserver.port = {port}\n\
         mimetype.assign = (\"\" => \"text/plain\")\n\
         $SERVER[\"socket\"] == \"{address}\" {{\n\
             ssl.engine = \"enable\"\nssl.pemfile = \"{directory}/rsa.test.both\"\n\
         }}\n{hosts}",
        directory = files.path("").display().to_string().trim_end_matches('/'),
        ip = address.ip(),
        port = address.port(),
        hosts = hosts.concat(),
    );
    let config = files.write("lighttpd.conf", config);
    let arguments = ["-D", "-f", config.to_str().expect("a path of text")].map(str::to_owned);
    Some(Server::start(
        files,
        address,
        &program,
        &arguments,
        With::Shim,
    ))
}

fn body() -> String {
    "lighttpd".repeat(40_000)
}

const NAMES: [(Kind, &str); 2] = [(Kind::Rsa, "rsa.test"), (Kind::Ecdsa, "ecdsa.test")];
