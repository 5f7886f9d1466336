//! Behind load balancers that say who their clients are (PROXY protocol).

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::*;
use rustls::{ClientConnection, StreamOwned};
use widelane_terminator::{Config, ProxyVersion, Server};

/// The load balancer that is trusted.
const BALANCER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);

fn behind_a_balancer(files: &Files) -> Config {
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.proxy_protocol_from = vec![format!("{BALANCER}/32").parse().expect("a network")];
    config(vec![one])
}

fn client_from(source: Ipv4Addr, server: &Server) -> TcpStream {
    from(source, server.addresses()[0]).expect("a connection")
}

fn header(client: &str) -> String {
    format!("PROXY TCP4 {client} 192.0.2.200 1000 443\r\n")
}

fn tls(socket: TcpStream) -> Tls {
    over(socket, "a.example", &Wish::default().config()).expect("a client")
}

fn is_closed(mut stream: TcpStream) {
    // A reset is an end as well: the server has not read everything.
    assert_eq!(stream.read(&mut [0; 64]).unwrap_or(0), 0, "it is closed");
}

#[test]
fn a_header_may_come_in_any_pieces_and_together_with_the_client_hello() {
    let files = Files::new();
    let server = start(&behind_a_balancer(&files));
    let header = header("192.0.2.1");
    // By itself, as balancers send it, and torn.
    for cut in [header.len(), 1, 20, header.len() - 1] {
        let mut socket = client_from(BALANCER, &server);
        for part in [&header[..cut], &header[cut..]] {
            socket.write_all(part.as_bytes()).expect("sent");
            // Most likely read by itself; the result is the same if not.
            std::thread::sleep(Duration::from_millis(20));
        }
        ping(&mut tls(socket)).expect("an answer");
    }
    let mut socket = client_from(BALANCER, &server);
    let name = "a.example".try_into().expect("a name");
    let mut client = ClientConnection::new(Wish::default().config(), name).expect("a client");
    let mut both = header.clone().into_bytes();
    client.write_tls(&mut both).expect("a ClientHello");
    socket.write_all(&both).expect("sent");
    ping(&mut StreamOwned::new(client, socket)).expect("an answer");
    // A health check of the balancer's own.
    let mut socket = client_from(BALANCER, &server);
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    socket.write_all(local).expect("sent");
    ping(&mut tls(socket)).expect("an answer");
}

#[test]
fn only_a_trusted_balancer_may_speak_for_others_and_it_must() {
    let files = Files::new();
    let server = start(&behind_a_balancer(&files));
    ping(&mut tls(client_from(OTHER, &server))).expect("a client that comes by itself");
    let mut liar = client_from(OTHER, &server);
    liar.write_all(header("192.0.2.1").as_bytes()).expect("sent");
    eventually("the header of a stranger is no TLS", || {
        failed(&server, "protocol") == 1
    });
    assert!(ping(&mut tls(client_from(BALANCER, &server))).is_err());
    assert_eq!(failed(&server, "proxy_header"), 1);
    let mut torn = client_from(BALANCER, &server);
    torn.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 70000 443\r\n")
        .expect("sent");
    is_closed(torn);
    assert_eq!(failed(&server, "proxy_header"), 2);
    let mut gone = client_from(BALANCER, &server);
    gone.write_all(b"PROXY TCP4 192.0").expect("sent");
    drop(gone);
    eventually("an end inside a header", || failed(&server, "closed") == 1);
}

#[test]
fn limits_count_the_real_client_and_not_the_balancer() {
    let files = Files::new();
    let mut config = behind_a_balancer(&files);
    config.limits.source.handshakes = Some(2);
    let server = start(&config);
    let open = |client: &str| {
        let mut socket = client_from(BALANCER, &server);
        socket.write_all(header(client).as_bytes()).expect("sent");
        // The beginning of a handshake that does not go on.
        socket.write_all(&[22]).expect("sent");
        socket
    };
    let pending = "widelane_handshakes_pending";
    let held = ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"].map(open);
    eventually("all have a place", || metric(&server, pending) == 4);
    is_closed(open("192.0.2.1"));
    assert_eq!(refused(&server, "source_handshakes"), 1);
    drop(held);
    eventually("the places are given back", || metric(&server, pending) == 0);
    let mut socket = client_from(BALANCER, &server);
    let client = header("192.0.2.1");
    socket.write_all(client.as_bytes()).expect("sent");
    ping(&mut tls(socket)).expect("an answer");
}

#[test]
fn a_client_that_is_silent_behind_a_balancer_makes_room_and_has_its_time() {
    let files = Files::new();
    let mut config = behind_a_balancer(&files);
    // Silent connections make room on their own worker only.
    config.workers = NonZeroUsize::new(1);
    config.limits.handshakes = 2;
    let server = start(&config);
    let silent = [(); 2].map(|()| {
        let mut socket = client_from(BALANCER, &server);
        let client = header("192.0.2.1");
        socket.write_all(client.as_bytes()).expect("sent");
        socket
    });
    eventually("both wait", || metric(&server, "widelane_handshakes_pending") == 2);
    let mut socket = client_from(BALANCER, &server);
    let client = header("192.0.2.2");
    socket.write_all(client.as_bytes()).expect("sent");
    ping(&mut tls(socket)).expect("an answer");
    assert_eq!(failed(&server, "made_room"), 1);
    drop(silent);
    let mut config = behind_a_balancer(&files);
    config.limits.first_byte = Duration::from_millis(200);
    let server = start(&config);
    for words in [String::new(), header("192.0.2.1")] {
        let mut silent = client_from(BALANCER, &server);
        silent.write_all(words.as_bytes()).expect("sent");
        is_closed(silent);
    }
    assert_eq!(failed(&server, "silent"), 2);
}

#[test]
fn the_backend_is_told_what_the_balancer_has_said() {
    let files = Files::new();
    for (version, expected) in [
        (ProxyVersion::V1, &b"PROXY TCP4 192.0.2.1 192.0.2.200 1000 443\r\n"[..]),
        (ProxyVersion::V2, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"),
        (ProxyVersion::V2Records, b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0"),
    ] {
        let (report, told) = mpsc::channel();
        let report = Mutex::new(report);
        let backend = tcp_backend(move |client| {
            let mut bytes = Vec::new();
            let mut client = BufReader::new(client);
            client.read_until(b'~', &mut bytes).expect("bytes");
            report.lock().expect("a lock").send(bytes).expect("told");
        });
        let mut config = behind_a_balancer(&files);
        config.listeners[0].backend = vec![backend];
        config.listeners[0].proxy_protocol_to = Some(version);
        let server = start(&config);
        let mut socket = client_from(BALANCER, &server);
        socket.write_all(header("192.0.2.1").as_bytes()).expect("sent");
        tls(socket).write_all(b"data~").expect("sent");
        let bytes = told.recv_timeout(PATIENCE).expect("told");
        assert!(bytes.starts_with(expected), "{}", bytes.escape_ascii());
        assert!(bytes.ends_with(b"data~"));
        if version == ProxyVersion::V1 {
            assert_eq!(bytes.len(), expected.len() + 5);
        } else {
            let ends = [192, 0, 2, 1, 192, 0, 2, 200, 3, 232, 1, 187];
            assert_eq!(bytes[16..28], ends);
            assert_eq!(bytes.len() > 28 + 5, version == ProxyVersion::V2Records);
        }
    }
}

/// HAProxy in front sends headers of both versions, and another one behind takes ours; what it has
/// read from them it tells the backend.
#[test]
fn haproxy_in_front_and_behind() {
    if installed("haproxy").is_none() {
        return;
    }
    let files = Files::new();
    let (report, told) = mpsc::channel();
    let report = Arc::new(Mutex::new(report));
    let backend = tcp_backend(move |client| {
        let mut line = String::new();
        let mut client = BufReader::new(client);
        client.read_line(&mut line).expect("a line");
        let mut data = [0; 4];
        client.read_exact(&mut data).expect("what the client sent");
        assert_eq!(&data, b"ping");
        report.lock().expect("a lock").send(line).expect("told");
        let _ = client.get_mut().write_all(b"ping");
    });
    for version in [ProxyVersion::V1, ProxyVersion::V2, ProxyVersion::V2Records] {
        let behind = Haproxy::start(&files, "accept-proxy", &backend.to_string(), "send-proxy");
        let mut config = behind_a_balancer(&files);
        config.listeners[0].backend = vec![behind.address.to_string().parse().expect("a backend")];
        config.listeners[0].proxy_protocol_to = Some(version);
        let server = start(&config);
        let send = match version {
            ProxyVersion::V1 => "send-proxy",
            _ => "send-proxy-v2 proxy-v2-options crc32c,unique-id",
        };
        let source = format!("source {BALANCER} {send}");
        let front = Haproxy::start(&files, "", &server.addresses()[0].to_string(), &source);
        let socket = from(Ipv4Addr::new(127, 0, 0, 77), front.address).expect("HAProxy");
        let ends = [socket.local_addr(), socket.peer_addr()].map(|end| end.expect("an address"));
        let mut stream = tls(socket);
        ping(&mut stream).expect("an answer");
        let [from, to] = ends;
        let expected = format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port());
        assert_eq!(told.recv_timeout(PATIENCE).expect("told"), expected);
    }
}

/// A HAProxy that passes on TCP connections.
struct Haproxy {
    _running: Running,
    address: SocketAddr,
}

impl Haproxy {
    fn start(files: &Files, bind: &str, server: &str, options: &str) -> Self {
        let address = free_address();
        let text = format!(
            "defaults\n mode tcp\n timeout connect 20s\n timeout client 60s\n timeout server 60s\n\
             listen pass\n bind {address} {bind}\n server one {server} {options}\n"
        );
        let file = files.write(&format!("haproxy-{}.cfg", address.port()), text);
        let mut command = std::process::Command::new("haproxy");
        let _running = Running::start(command.arg("-db").arg("-f").arg(file));
        eventually("HAProxy listens", || TcpStream::connect(address).is_ok());
        Self { _running, address }
    }
}
