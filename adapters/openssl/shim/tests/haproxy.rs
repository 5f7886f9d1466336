//! HAProxy with the provider and its own `ssl-mode-async`.

#![forbid(unsafe_code)]

mod common;

use common::client::{GROUPS, VERSIONS, Wish};
use common::{Files, Kind, Server, With};

#[test]
fn handshakes_on_two_threads_in_a_chroot() {
    let Some(program) = common::installed("haproxy") else {
        return;
    };
    let files = Files::new();
    let address = common::free_address();
    let names = [
        (Kind::Rsa, "rsa.test"),
        (Kind::Ecdsa, "ecdsa.test"),
        (Kind::EcdsaP384, "p384.test"),
        (Kind::Ed25519, "ed25519.test"),
    ];
    let certificates = names.map(|(kind, name)| {
        files.certificate(kind, name);
        format!("crt {} ", files.path(&format!("{name}.both")).display())
    });
    std::fs::create_dir(files.path("empty")).expect("our own directory");
    let chroot = match common::is_root() {
        true => format!(
            "chroot {}\n uid 65534\n gid 65534",
            files.path("empty").display()
        ),
        false => {
            println!("SKIP: chroot, which takes root");
            String::new()
        }
    };
    let config = files.write(
        "haproxy.cfg",
        format!(
            "global\n nbthread 2\n ssl-mode-async\n {chroot}\n\
             defaults\n mode http\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n\
             frontend tls\n bind {address} ssl {certificates}\n\
             http-request return status 200 content-type text/plain lf-string %[ssl_fc_sni]\n",
            certificates = certificates.concat(),
        ),
    );
    let arguments = ["-db", "-f", config.to_str().expect("a path of text")].map(str::to_owned);
    let server = Server::start(files, address, &program, &arguments, With::Provider);
    let clients = VERSIONS.map(|version| {
        GROUPS.map(|group| {
            let wish = Wish {
                version,
                group,
                ..Wish::default()
            };
            wish.client(&server.files)
        })
    });
    let clients = clients.concat();
    common::load(64, 500, |i| {
        let (_, name) = names[i % names.len()];
        let client = &clients[i / names.len() % clients.len()];
        client.expect(address, name, "/", name)?;
        Ok(())
    });
    // Clients that go away in the middle, while jobs of theirs are paused.
    common::load(64, 500, |i| {
        let (_, name) = names[i % names.len()];
        let client = &clients[i / names.len() % clients.len()];
        // Errors are what the server is asked for.
        let _ = common::client::reset_after_hello(client, address, name);
        Ok(())
    });
    server.process().becomes_idle();
    common::load(64, 200, |i| {
        let (_, name) = names[i % names.len()];
        let client = &clients[i / names.len() % clients.len()];
        client.expect(address, name, "/", name)?;
        Ok(())
    });
    assert!(server.process().runs(), "{}", server.log());
}
