//! OpenSSL's test server with the provider, for tests that look at its counters.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses its own part"
)]

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use widelane_testkit::folder::Folder;
pub use widelane_testkit::openssl::Server;
use widelane_testkit::openssl::{Configuration, installed};

/// Starts `openssl s_server` with the provider.
pub fn start(folder: &Folder) -> Server {
    let files = ["certificate", "key"].map(|name| folder.path(name).display().to_string());
    let [certificate, key] = &files;
    let options = ["-www", "-cert", certificate, "-key", key];
    Server::start(&mut with_provider("openssl", folder), &options)
}

/// A client's handshake with it.
pub fn shake_hands(server: SocketAddr) {
    let client = Command::new("openssl")
        .args(["s_client", "-groups", "X25519", "-connect"])
        .arg(server.to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(said.contains("Cipher is TLS_"), "{said}");
}

/// A folder with a key, a certificate and a configuration of OpenSSL; `None` without OpenSSL 3.
pub fn folder() -> Option<Folder> {
    let program = installed()?;
    let folder = Folder::new();
    let made = Command::new(program)
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"])
        .args(["-subj", "/CN=localhost", "-days", "2"])
        .args(["-keyout", "key", "-out", "certificate"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    folder.write("openssl.cnf", Configuration::default().to_string());
    Some(folder)
}

/// A program whose OpenSSL loads the provider.
pub fn with_provider(program: &str, folder: &Folder) -> Command {
    let mut command = Command::new(program);
    command
        .env("OPENSSL_CONF", folder.path("openssl.cnf"))
        // For measured costs: a test reads nothing that was left on the machine.
        .env("STATE_DIRECTORY", folder.path(""))
        .stdin(Stdio::null());
    command
}
