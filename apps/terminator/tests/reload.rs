//! Reloading, and stopping in order.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::*;
use widelane_terminator::Config;

fn on(address: SocketAddr, files: &Files, name: &str) -> Config {
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &[name])]);
    one.listen = vec![address];
    config(vec![one])
}

#[test]
fn a_reload_under_load_loses_no_connection() {
    let files = Files::new();
    let certificates = [&["one.example"], &["two.example"]].map(|names| files.certificate(Kind::Rsa, names));
    let mut config = config(vec![listener(echo(), vec![certificates[0].clone()])]);
    let server = start(&config);
    let address = server.addresses()[0];
    let client = Wish::default().config();
    let clients = Crowd::start(4, move || {
        serve_one(address, &client);
    });
    let mut early = hello(address).expect("TLS");
    for turn in 1..=30 {
        let before = clients.done();
        config.listeners[0].certificates = vec![certificates[turn % 2].clone()];
        server.reload(&document(&config)).expect("a reload");
        let now = hello(address).expect("TLS");
        let shown = &now.conn.peer_certificates().expect("a certificate")[0];
        assert_eq!(*shown, leaf(&certificates[turn % 2]), "turn {turn}");
        eventually("clients go on", || clients.done() > before + 4);
    }
    clients.end();
    ping(&mut early).expect("a connection from before all reloads is still served");
    assert_eq!(metric(&server, "widelane_reloads_ok_total"), 30);
}

#[test]
fn a_bad_configuration_keeps_the_old_one() {
    let files = Files::new();
    let address = free_address();
    let good = on(address, &files, "a.example");
    let server = start(&good);
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut missing = good.clone();
    missing.listeners[0].certificates[0].key = files.path("nothing.key");
    let mut mismatched = good.clone();
    let other = files.certificate(Kind::Ecdsa, &["b.example"]);
    mismatched.listeners[0].certificates[0].key = other.key.clone();
    let mut broken = good.clone();
    broken.listeners[0].certificates[0].key = files.path("broken.key");
    let pem = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    std::fs::write(files.path("broken.key"), pem).expect("written");
    let mut unbindable = good.clone();
    unbindable.listeners[0].listen = vec![occupied.local_addr().expect("an address"), free_address()];
    for (bad, expected) in [
        (missing, "--key: cannot read"),
        (mismatched, "does not belong to"),
        (
            broken,
            "broken.key, line 1: the section `PRIVATE KEY` holds no private key",
        ),
        (unbindable, "cannot listen on"),
    ] {
        let error = server.reload(&document(&bad)).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
        let mut stream = hello(address).expect("the old address and certificate still serve");
        ping(&mut stream).expect("an answer");
    }
    assert_eq!(metric(&server, "widelane_reloads_failed_total"), 4);
    assert_eq!(metric(&server, "widelane_reloads_ok_total"), 0);
    assert_eq!(server.addresses(), [address]);
}

#[test]
fn addresses_come_and_go_and_live_connections_stay() {
    let files = Files::new();
    let [first, second] = [free_address(), free_address()];
    let mut config = on(first, &files, "a.example");
    let server = start(&config);
    let mut old = hello(first).expect("TLS");

    config.listeners[0].listen.push(second);
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(server.addresses(), [first, second]);
    ping(&mut hello(second).expect("TLS")).expect("the new address serves");

    config.listeners[0].listen = vec![second];
    // The backend changes as well: new connections get the new one.
    config.listeners[0].backend = vec![tcp_backend(|mut client| {
        client.write_all(b"new backend").expect("sent")
    })];
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(server.addresses(), [second]);
    eventually("the old address is closed", || TcpStream::connect(first).is_err());
    let mut greeting = [0; 11];
    let mut new = hello(second).expect("TLS");
    new.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting, b"new backend");
    ping(&mut old).expect("a connection to the address that is gone is still served");
}

#[test]
fn whoever_waits_in_a_closed_socket_is_still_served() {
    let files = Files::new();
    let [first, second] = [free_address(), free_address()];
    let mut config = on(first, &files, "a.example");
    let server = start(&config);
    config.listeners[0].listen = vec![second];
    // Connections that the workers have not seen yet when they are told to close.
    let waiting: Vec<TcpStream> = (0..50)
        .map(|_| TcpStream::connect(first).expect("a connection"))
        .collect();
    server.reload(&document(&config)).expect("a reload");
    for socket in waiting {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket.set_nodelay(true).expect("no delay");
        let name = "a.example".try_into().expect("a name");
        let tls = rustls::ClientConnection::new(Wish::default().config(), name).expect("a client");
        ping(&mut rustls::StreamOwned::new(tls, socket)).expect("an answer");
    }
}

#[test]
fn stopping_lets_live_connections_end_and_accepts_nothing_new() {
    let files = Files::new();
    let address = free_address();
    let server = start(&on(address, &files, "a.example"));
    let mut live = hello(address).expect("TLS");
    ping(&mut live).expect("an answer");
    let health = server.metrics_address().expect("metrics");
    assert_eq!(get(health, "/healthz").0, "HTTP/1.1 200 OK");
    let stopping = std::thread::spawn(move || server.stop(PATIENCE));
    eventually("new connections are refused", || TcpStream::connect(address).is_err());
    let (status, body) = get(health, "/healthz");
    assert_eq!(
        (&status[..], &body[..]),
        ("HTTP/1.1 503 Service Unavailable", "draining\n")
    );
    ping(&mut live).expect("the live connection is served");
    assert!(!stopping.is_finished());
    finish(&mut live).expect("an orderly end");
    assert_eq!(stopping.join().expect("no panic"), 0, "connections cut off");
}

#[test]
fn a_drain_that_takes_too_long_cuts_off() {
    let files = Files::new();
    let address = free_address();
    let server = start(&on(address, &files, "a.example"));
    let mut live = hello(address).expect("TLS");
    ping(&mut live).expect("an answer");
    assert_eq!(server.stop(Duration::from_millis(50)), 1);
    assert!(ping(&mut live).is_err());
}

#[test]
fn metrics_are_well_formed_and_certificates_have_their_expiry() {
    let files = Files::new();
    let address = free_address();
    let mut config = on(address, &files, "a.example");
    config.listeners[0]
        .certificates
        .push(files.certificate(Kind::Rsa, &["r.example"]));
    let server = start(&config);
    let rsa = Wish::default();
    let mut stream = connect(address, "r.example", &rsa.config()).expect("TLS");
    ping(&mut stream).expect("an answer");
    let page = metrics(&server);
    assert!(!page.contains("# EOF"), "the older form");
    let address = server.metrics_address().expect("metrics");
    let (head, open) = ask(address, "Accept: application/openmetrics-text");
    assert!(
        head.contains("Content-Type: application/openmetrics-text; version=1.0.0;"),
        "{head}"
    );
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE widelane_handshakes counter"));
    let (head, _) = ask(address, "Accept: application/json");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4;"), "{head}");
    // Each sample is declared under its own name, but for the parts of a histogram.
    let types: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let names: Vec<_> = types.iter().filter_map(|line| line.split_once(' ')).collect();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().expect("a name");
        let is_declared = |(declared, kind): &(&str, &str)| match *kind {
            "histogram" => name.starts_with(declared),
            _ => name == *declared,
        };
        assert!(names.iter().any(is_declared), "{line}");
    }
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        assert!(series.starts_with("widelane_"), "{line}");
        assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
    }
    let expiry = page
        .lines()
        .find(|line| line.starts_with("widelane_certificate_expiry") && line.contains("r.example"));
    let expiry = expiry
        .and_then(|line| line.rsplit(' ').next())
        .expect("the certificate");
    // rcgen's default is the year 4096.
    assert_eq!(expiry.parse(), Ok(67_090_118_400_u64), "{expiry}");
    let jobs = metric(&server, r#"widelane_engine_jobs_total{operation="rsa2048-sign"}"#);
    let ran = ["passes", "alone"].map(|how| {
        let series = format!(r#"widelane_engine_{how}_total{{operation="rsa2048-sign"}}"#);
        metric(&server, &series)
    });
    assert_eq!((jobs, ran[0] + ran[1]), (1, 1));
    assert_eq!(metric(&server, "widelane_handshake_duration_seconds_count"), 1);
    let health = server.metrics_address().expect("metrics");
    assert_eq!(get(health, "/").0, "HTTP/1.1 404 Not Found");
}

/// Head and body of the metrics, for a request with this field.
fn ask(address: SocketAddr, field: &str) -> (String, String) {
    let mut client = std::net::TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(client, "GET /metrics HTTP/1.1\r\nHost: test\r\n{field}\r\n\r\n").expect("sent");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}
