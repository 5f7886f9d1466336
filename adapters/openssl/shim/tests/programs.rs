//! Programs other than web servers, unmodified, with the provider and the library that suspends handshakes.

#![forbid(unsafe_code)]

mod common;

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use common::client::{Client, VERSIONS, Wish, reset_after_hello};
use common::{Files, Kind, Server, With};

/// First words of a client and the server's answer, each before the handshake and after it.
struct Exchange {
    before: [&'static [u8]; 2],
    after: [&'static [u8]; 2],
    /// Jobs that the passes have on average at least, where there are lanes.
    jobs_a_pass: f64,
}

const REDIS: Exchange = Exchange {
    before: [b"", b""],
    after: [b"PING\r\n", b"+PONG\r\n"],
    jobs_a_pass: 1.5,
};

/// CONNECT of MQTT 3.1.1 by a client without a name, and its acknowledgement.
const MOSQUITTO: Exchange = Exchange {
    before: [b"", b""],
    after: [b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", b"\x20\x02\x00\x00"],
    jobs_a_pass: 1.5,
};

/// A client of PostgreSQL asks for TLS, and then for the console of PgBouncer, which lets it in.
const PGBOUNCER: Exchange = Exchange {
    before: [b"\x00\x00\x00\x08\x04\xd2\x16\x2f", b"S"],
    after: [
        b"\x00\x00\x00\x23\x00\x03\x00\x00user\x00x\x00database\x00pgbouncer\x00\x00",
        b"R\x00\x00\x00\x08\x00\x00\x00\x00",
    ],
    jobs_a_pass: 1.5,
};

/// stunnel: its threads have one connection each and share passes while they block, as far as they meet.
const STUNNEL: Exchange = Exchange {
    before: [b"", b""],
    after: [b"echo", b"echo"],
    jobs_a_pass: 1.0,
};

#[test]
fn redis() {
    let Some((program, files)) = prepare("redis-server") else {
        return;
    };
    let address = common::free_address();
    let lines = format!(
        "port 0\ntls-port {}\nbind {}\ntls-auth-clients no\nsave \"\"\nprotected-mode no\n\
         tls-cert-file DIR/rsa.test.pem\ntls-key-file DIR/rsa.test.key\ntls-ca-cert-file DIR/ca.pem\n",
        address.port(),
        address.ip()
    );
    let config = write_config(&files, &lines);
    let server = Server::start(files, address, &program, &[config], With::Shim);
    serves(&server, &REDIS);
}

#[test]
fn mosquitto() {
    let Some((program, files)) = prepare("mosquitto") else {
        return;
    };
    let address = common::free_address();
    let lines = format!(
        "user root\nallow_anonymous true\nlistener {} {}\n\
         certfile DIR/rsa.test.pem\nkeyfile DIR/rsa.test.key\n",
        address.port(),
        address.ip()
    );
    let arguments = ["-c".to_owned(), write_config(&files, &lines)];
    let server = Server::start(files, address, &program, &arguments, With::Shim);
    serves(&server, &MOSQUITTO);
}

#[test]
fn pgbouncer() {
    let Some((program, files)) = prepare("pgbouncer") else {
        return;
    };
    let address = common::free_address();
    let lines = format!(
        "[databases]\n[pgbouncer]\nlisten_addr = {}\nlisten_port = {}\nunix_socket_dir =\n\
         auth_type = any\nclient_tls_sslmode = require\n\
         client_tls_cert_file = DIR/rsa.test.pem\nclient_tls_key_file = DIR/rsa.test.key\n",
        address.ip(),
        address.port()
    );
    // It does not run as root.
    let user = if common::is_root() { &["-u", "nobody"][..] } else { &[] };
    let config = write_config(&files, &lines);
    let arguments = [user, &[config.as_str()]].concat();
    let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
    let server = Server::start(files, address, &program, &arguments, With::Shim);
    serves(&server, &PGBOUNCER);
}

#[test]
fn stunnel() {
    let Some((program, files)) = prepare("stunnel4") else {
        return;
    };
    let echo = TcpListener::bind("127.0.0.1:0").expect("a port");
    let behind = echo.local_addr().expect("an address");
    std::thread::spawn(move || {
        for client in echo.incoming() {
            std::thread::spawn(|| {
                let client = client.expect("a connection");
                // It ends when stunnel does.
                let _ = io::copy(&mut &client, &mut &client);
            });
        }
    });
    let address = common::free_address();
    let lines =
        format!("foreground = yes\npid =\n[echo]\naccept = {address}\nconnect = {behind}\ncert = DIR/rsa.test.both\n");
    let config = write_config(&files, &lines);
    let server = Server::start(files, address, &program, &[config], With::Shim);
    serves(&server, &STUNNEL);
}

fn prepare(program: &str) -> Option<(PathBuf, Files)> {
    let program = common::installed(program)?;
    let files = Files::new();
    files.certificate(Kind::Rsa, "rsa.test");
    Some((program, files))
}

fn write_config(files: &Files, lines: &str) -> String {
    let directory = files.path("").display().to_string();
    let config = files.write("config", lines.replace("DIR/", &directory));
    config.to_str().expect("a path of text").to_owned()
}

/// Handshakes share passes, each client that stays is answered, and nothing of them or of others is left.
fn serves(server: &Server, exchange: &Exchange) {
    let clients = VERSIONS.map(|version| {
        let wish = Wish {
            version,
            ..Wish::default()
        };
        wish.client(&server.files)
    });
    let one = |i: usize| {
        let client = &clients[i % clients.len()];
        if i % 3 == 2 && exchange.before[0].is_empty() {
            // Whether the server has seen it before it went does not matter.
            let _ = reset_after_hello(client, server.address, "rsa.test");
            return Ok(());
        }
        ask(client, server, exchange).map_err(|error| format!("{i}: {error}"))
    };
    let process = server.process();
    process.becomes_idle();
    let before = process.descriptors();
    common::load(32, 300, one);
    common::eventually("its descriptors are as before", || process.descriptors() <= before);
    if !server.has_lanes() {
        return println!("SKIP: there are no lanes here, and so no handshake waits");
    }
    let jobs_a_pass = process.jobs_a_pass("rsa2048-sign");
    println!("{jobs_a_pass:.2} jobs a pass");
    assert!(jobs_a_pass >= exchange.jobs_a_pass, "{jobs_a_pass} jobs a pass");
}

fn ask(client: &Client, server: &Server, exchange: &Exchange) -> io::Result<()> {
    let mut tls = client.connect(server.address, "rsa.test")?;
    exchange_one(&mut tls.sock, exchange.before)?;
    exchange_one(&mut tls, exchange.after)
}

fn exchange_one(stream: &mut (impl Read + Write), [says, hears]: [&[u8]; 2]) -> io::Result<()> {
    stream.write_all(says)?;
    let mut heard = vec![0; hears.len()];
    stream.read_exact(&mut heard)?;
    match heard == hears {
        true => Ok(()),
        false => Err(io::Error::other(format!("{heard:?}"))),
    }
}
