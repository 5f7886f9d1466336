//! First bytes of clients: names that are none, and ClientHellos of any size and in any pieces.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use common::*;
use serde_json::Value;
use widelane_terminator::{ClientAuth, ClientAuthMode, Config, Server, UnknownNames};
use widelane_testkit::openssl::converse;

/// A record with a ClientHello for `a.example`, in which the name is replaced by one of the same length.
fn hello_for(name: &str) -> Vec<u8> {
    let asked = "a.example";
    let mut bytes = client_hello();
    let at = bytes.windows(asked.len()).position(|window| window == asked.as_bytes());
    let at = at.expect("the name");
    assert_eq!(name.len(), asked.len());
    bytes[at..at + asked.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// The same with an extension of padding (RFC 7685), so that the message has so many bytes.
fn padded(record: &[u8], length: usize) -> Vec<u8> {
    let mut message = record[5..].to_vec();
    let padding = length - message.len() - 4;
    // Behind the session ID, the cipher suites and the compression methods.
    let mut at = 39 + usize::from(message[38]);
    at += 2 + usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    at += 1 + usize::from(message[at]);
    let extensions = u16::from_be_bytes([message[at], message[at + 1]]);
    let extensions = usize::from(extensions) + 4 + padding;
    message[at..at + 2].copy_from_slice(&u16::try_from(extensions).expect("short").to_be_bytes());
    let mut extension = vec![0, 21];
    extension.extend(u16::try_from(padding).expect("short").to_be_bytes());
    extension.resize(4 + padding, 0);
    message.splice(at + 2..at + 2, extension);
    let body = (message.len() - 4) as u32;
    message[1..4].copy_from_slice(&body.to_be_bytes()[1..]);
    message
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    let records = message.chunks(size).map(|part| {
        let length = (part.len() as u16).to_be_bytes();
        [&[22, 3, 1, length[0], length[1]], part].concat()
    });
    records.collect::<Vec<_>>().concat()
}

/// The first record that answers.
fn answer(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.write_all(bytes).expect("sent");
    let mut header = [0; 5];
    socket.read_exact(&mut header).expect("an answer");
    let mut record = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
    socket.read_exact(&mut record).expect("all of it");
    [&header[..1], &record].concat()
}

fn is_served(answer: &[u8]) -> bool {
    const SERVER_HELLO: u8 = 2;
    answer[..2] == [22, SERVER_HELLO]
}

fn two_names(files: &Files) -> Config {
    let names = ["a.example", "*.b.example"];
    let certificates = names.map(|name| files.certificate(Kind::Ecdsa, &[name]));
    config(vec![listener(echo(), certificates.into())])
}

/// nginx and HAProxy serve such names in the same way, byte for byte.
#[test]
fn names_that_are_none_count_as_none() {
    let files = Files::new();
    let server = start(&two_names(&files));
    for name in [
        "-.example",
        "a-.exampl",
        "a.exam:44",
        "[a.examp]",
        "*.example",
        "https://a",
        "a@example",
    ] {
        let hello = hello_for(name);
        let whole = answer(server.addresses()[0], &hello);
        assert!(is_served(&whole), "{name}: {whole:?}");
        let pieces = answer(server.addresses()[0], &records(&hello[5..], 50));
        assert!(is_served(&pieces), "{name}: {pieces:?}");
    }
}

/// Runs OpenSSL's client, and says whether its handshake was complete and a ping was answered, and what it printed.
fn openssl(address: SocketAddr, arguments: &[&str]) -> (bool, String) {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &address.to_string(), "-ign_eof"]);
    converse(client.args(arguments), "a ping\n")
}

/// One line, then an end.
fn echo_of_a_line() -> widelane_terminator::Backend {
    tcp_backend(|mut client| {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let mut byte = [0];
            match client.read(&mut byte) {
                Ok(1) => line.extend(byte),
                _ => return,
            }
        }
        let _ = client.write_all(&line);
    })
}

/// Both sides hash the same messages: else neither side would take the other's Finished, nor its signature.
#[test]
fn a_client_with_an_odd_name_completes_its_handshake_whatever_that_is() {
    if installed("openssl").is_none() {
        println!("SKIP: openssl is not installed");
        return;
    }
    let files = Files::new();
    let (ca, identity) = files.client_authority("a client");
    let pem = files.path("client.pem");
    std::fs::write(&pem, identity.pem + &identity.key_pem).expect("written");
    let pem = pem.to_str().expect("text").to_owned();
    for enabled in [true, false] {
        for client_auth in [None, Some(ClientAuth::new(ClientAuthMode::Required, &ca))] {
            let mut config = two_names(&files);
            config.batching.enabled = enabled;
            config.listeners[0].backend = vec![echo_of_a_line()];
            config.listeners[0].groups = vec!["X25519".into()];
            config.listeners[0].client_auth = client_auth;
            let server = start(&config);
            let address = server.addresses()[0];
            for version in ["-tls1_3", "-tls1_2"] {
                // With a group first that the server does not have, it asks for another ClientHello.
                for groups in ["X25519:P-256", "P-384:X25519:P-256"] {
                    let session = files.path("session.pem");
                    let session = session.to_str().expect("text");
                    let common = [
                        version,
                        "-groups",
                        groups,
                        "-servername",
                        "-a.example:443",
                        "-cert",
                        &pem,
                    ];
                    let run = |more: &[&str]| openssl(address, &[&common[..], more].concat());
                    let (served, text) = run(&["-sess_out", session]);
                    assert!(served, "{enabled} {version} {groups}: {text}");
                    let (served, text) = run(&["-sess_in", session]);
                    assert!(served, "{enabled} {version} {groups}: {text}");
                    assert!(text.contains("Reused, "), "{enabled} {version} {groups}: {text}");
                }
            }
        }
    }
}

#[test]
fn a_hello_in_any_pieces_is_served_as_long_as_rustls_takes_it() {
    let files = Files::new();
    let path = files.path("access.log");
    let mut config = two_names(&files);
    config.access_log = path.to_str().expect("text").parse().expect("a target");
    let server = start(&config);
    let address = server.addresses()[0];
    let hello = hello_for("a.example");
    for name in ["a.example", "-.example"] {
        let message = padded(&hello_for(name), 20_000);
        for size in [1 << 14, 1000, 33] {
            let words = answer(address, &records(&message, size));
            assert!(is_served(&words), "{name} {size}: {words:?}");
        }
    }
    for length in [65_515, 65_516, 65_520, 65_539] {
        let words = answer(address, &records(&padded(&hello, length), 1 << 14));
        match length {
            65_515 => assert!(is_served(&words), "{words:?}"),
            _ => assert_eq!(words, [21, 2, 50], "decode_error"),
        }
    }
    // One whose pieces are small has no more room than others.
    let words = answer(address, &records(&padded(&hello, 65_515), 100));
    assert!(is_served(&words), "{words:?}");
    eventually("all are counted", || failed(&server, "protocol") == 3);
    eventually("all have their line", || {
        let log = std::fs::read_to_string(&path).unwrap_or_default();
        let lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
        let told = lines.filter(|line: &Value| {
            let reason = line["reason"].as_str().unwrap_or_default();
            line["alert_sent"] == "decode_error" && reason.contains("longer than 65,515 bytes")
        });
        told.count() == 3
    });
}

#[test]
fn unknown_names_can_be_refused() {
    let files = Files::new();
    for enabled in [true, false] {
        let mut config = two_names(&files);
        config.batching.enabled = enabled;
        config.listeners[0].unknown_names = UnknownNames::Refuse;
        let server = start(&config);
        let address = server.addresses()[0];
        for wish in [Wish::default(), Wish::tls12()] {
            for good in ["a.example", "A.EXAMPLE", "x.b.example"] {
                let mut stream = connect(address, good, &wish.config()).expect("TLS");
                ping(&mut stream).expect("an answer");
            }
            for unknown in ["other.example", "b.example", "y.x.b.example", "127.0.0.1"] {
                let error = connect(address, unknown, &wish.config()).expect_err(unknown);
                assert!(error.to_string().contains("UnrecognisedName"), "{error}");
            }
        }
        assert_eq!(answer(address, &hello_for("-.example")), [21, 2, 112]);
        eventually("all are counted", || failed(&server, "unknown_name") == 9);
    }
    let mut config = two_names(&files);
    let nameless = files.certificate(Kind::Ecdsa, &["127.0.0.1"]);
    config.listeners[0].certificates = vec![nameless];
    start(&config);
    config.listeners[0].unknown_names = UnknownNames::Refuse;
    let error = Server::start(&document(&config)).expect_err("no client would be served");
    assert!(error.to_string().contains("unknown_names"), "{error}");
}
