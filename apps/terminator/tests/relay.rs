//! Bytes after the handshake: both directions, their ends, their limits, and what each side sees of the other.

mod common;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::*;
use socket2::{Domain, Socket, Type};
use widelane_terminator::{Backend, ClientAuth, ClientAuthMode, ProxyVersion, Server};

const MEGABYTES_8: usize = 8 << 20;

#[test]
fn a_large_body_goes_up_after_the_backend_has_closed_its_side() {
    let files = Files::new();
    let (report, received) = mpsc::channel();
    let report = Mutex::new(report);
    let backend = tcp_backend(move |mut client| {
        client.write_all(b"only this").expect("sent");
        client.shutdown(Shutdown::Write).expect("closed");
        let mut body = Vec::new();
        client.read_to_end(&mut body).expect("a body");
        report.lock().expect("a lock").send(body).expect("reported");
    });
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    for wish in [Wish::default(), Wish::tls12()] {
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        let mut first = Vec::new();
        stream.read_to_end(&mut first).expect("close_notify, not an abrupt end");
        assert_eq!(first, b"only this");
        let body = pattern(MEGABYTES_8);
        stream.write_all(&body).expect("our side is still open");
        close_sending(&mut stream).expect("closed");
        assert!(received.recv_timeout(PATIENCE).expect("a body") == body);
    }
    eventually("clean ends", || metric(&server, CLEAN) == 2);
}

#[test]
fn a_large_body_comes_down_after_the_client_has_closed_its_side() {
    let files = Files::new();
    let backend = tcp_backend(|mut client| {
        let mut request = Vec::new();
        client.read_to_end(&mut request).expect("the client's end of file");
        assert_eq!(request, b"all of it");
        client.write_all(&pattern(MEGABYTES_8)).expect("sent");
    });
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    for wish in [Wish::default(), Wish::tls12()] {
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        stream.write_all(b"all of it").expect("sent");
        let body = finish(&mut stream).expect("close_notify, not an abrupt end");
        assert!(body == pattern(MEGABYTES_8));
    }
    eventually("clean ends", || metric(&server, CLEAN) == 2);
}

#[test]
fn large_bodies_both_ways_at_once() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Ecdsa, echo()));
    let stream = hello(server.addresses()[0]).expect("TLS");
    // A socket has two halves, a TLS state has one owner: take turns in pieces larger than any
    // buffer on the way would hide.
    let mut stream = stream;
    let piece = pattern(256 << 10);
    for _ in 0..32 {
        stream.write_all(&piece).expect("sent");
        let mut back = vec![0; piece.len()];
        stream.read_exact(&mut back).expect("echoed");
        assert!(back == piece);
    }
    assert!(finish(&mut stream).expect("an orderly end").is_empty());
    eventually("all counted", || {
        metric(&server, "widelane_client_received_bytes_total") == 8 << 20
            && metric(&server, "widelane_client_sent_bytes_total") == 8 << 20
    });
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    let files = Files::new();
    let backend = tcp_backend(|mut client| client.write_all(b"220 welcome\r\n").expect("sent"));
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    let mut line = [0; 13];
    stream.read_exact(&mut line).expect("a greeting");
    assert_eq!(&line, b"220 welcome\r\n");
}

#[test]
fn a_client_that_does_not_read_does_not_make_us_hoard() {
    let files = Files::new();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let backend = tcp_backend(move |mut client| {
        let block = vec![7; 64 << 10];
        while client.write_all(&block).is_ok() {
            counter.fetch_add(block.len(), Ordering::Relaxed);
        }
    });
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    let mut first = [0; 1];
    stream.read_exact(&mut first).expect("a byte");
    // The backend's progress stops once the kernel's buffers are full.
    let mut last = usize::MAX;
    eventually("the backend is held back", || {
        std::thread::sleep(Duration::from_millis(300));
        std::mem::replace(&mut last, sent.load(Ordering::Relaxed)) == last
    });
    // Sockets take a few megabytes each way on their own; nothing of ours adds to that.
    assert!(last < 64 << 20, "{last} bytes have left the backend");
}

#[test]
fn a_request_cut_short_is_not_passed_on_as_a_whole_one() {
    let files = Files::new();
    let (report, ends) = mpsc::channel();
    let report = Mutex::new(report);
    let backend = tcp_backend(move |mut client| {
        let mut request = Vec::new();
        let end = client.read_to_end(&mut request).map_err(|error| error.kind());
        report.lock().expect("a lock").send((request, end)).expect("reported");
    });
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    stream.write_all(b"half of").expect("sent");
    eventually("the half has arrived", || {
        metric(&server, "widelane_client_received_bytes_total") == 7
    });
    stream
        .sock
        .shutdown(Shutdown::Write)
        .expect("a TCP end without close_notify");
    let (_, end) = ends.recv_timeout(PATIENCE).expect("an end");
    assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
    eventually("counted", || ended(&server, "truncated") == 1);
}

#[test]
fn unix_sockets_by_path_and_by_name() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let files = Files::new();
    let path = files.path("app.sock");
    let name = format!("widelane-test-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).expect("a name");
    for (socket, backend) in [
        (
            UnixListener::bind(&path).expect("a socket"),
            Backend::Unix(path.clone()),
        ),
        (
            UnixListener::bind_addr(&abstract_name).expect("a socket"),
            Backend::Abstract(name),
        ),
    ] {
        std::thread::spawn(move || {
            let (mut client, _) = socket.accept().expect("a connection");
            let mut copy = client.try_clone().expect("a second handle");
            io::copy(&mut copy, &mut client)
        });
        let server = start(&simple(&files, Kind::Ecdsa, backend));
        let mut stream = hello(server.addresses()[0]).expect("TLS");
        ping(&mut stream).expect("an answer");
    }
}

#[test]
fn a_backend_that_breaks_off_breaks_off_the_client() {
    let files = Files::new();
    let backend = tcp_backend(|mut client| {
        let mut question = [0];
        client.read_exact(&mut question).expect("a question");
        client.write_all(b"part").expect("sent");
        client.read_exact(&mut question).expect("another");
        // A close that resets.
        let socket = socket2::SockRef::from(&client);
        socket.set_linger(Some(Duration::ZERO)).expect("an option");
    });
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    stream.write_all(b"1").expect("sent");
    let mut part = [0; 4];
    stream.read_exact(&mut part).expect("an answer");
    stream.write_all(b"2").expect("sent");
    let error = stream.read(&mut part).expect_err("no orderly end");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    eventually("counted", || ended(&server, "backend") == 1);
}

#[test]
fn a_backend_that_is_not_there_is_no_empty_answer() {
    let files = Files::new();
    // Bound and never listening: connections are refused, and no other program gets the port.
    let deaf = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    deaf.bind(&any.into()).expect("a port");
    let address = deaf.local_addr().expect("an address").as_socket();
    let backend = Backend::Tcp(address.expect("an IP address"));
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    assert_unanswered(&mut stream);
    eventually("counted", || ended(&server, "backend_unreachable") == 1);
}

#[test]
fn the_backend_never_hears_of_clients_that_only_shake_hands() {
    let files = Files::new();
    let visits = Arc::new(AtomicUsize::new(0));
    let counter = visits.clone();
    let backend = tcp_backend(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    // The last flight and the end of the connection arrive together.
    for turn in 0..20 {
        let mut stream = prepared_to_finish(&server);
        let last = goodbye(&mut stream);
        if turn % 2 == 0 {
            // The kernel keeps the bytes back until the end goes with them.
            let socket = socket2::SockRef::from(&stream.sock);
            let sent = socket.send_with_flags(&last, MSG_MORE).expect("sent");
            assert_eq!(sent, last.len());
            stream.sock.shutdown(Shutdown::Write).expect("closed");
        } else {
            stream.sock.write_all(&last).expect("sent");
        }
        let mut end = Vec::new();
        stream.sock.read_to_end(&mut end).expect("an orderly end");
        assert!(!end.is_empty(), "tickets and close_notify");
    }
    eventually("all ended", || server.connections() == 0);
    assert_eq!(metric(&server, "widelane_connections_closed_unused_total"), 20);
    assert_eq!(visits.load(Ordering::SeqCst), 0);
}

#[test]
fn a_client_that_ends_its_direction_with_its_handshake_hears_the_backend() {
    let files = Files::new();
    let backend = tcp_backend(|mut client| {
        let end = client.read_to_end(&mut Vec::new());
        assert_eq!(end.expect("the client's end of file"), 0);
        client.write_all(b"220 welcome\r\n").expect("sent");
    });
    let mut config = simple(&files, Kind::Ecdsa, backend);
    config.listeners[0].backend_speaks_first = true;
    let server = start(&config);
    for _ in 0..20 {
        let mut stream = prepared_to_finish(&server);
        let last = goodbye(&mut stream);
        stream.sock.write_all(&last).expect("sent");
        let mut greeting = Vec::new();
        stream.read_to_end(&mut greeting).expect("close_notify");
        assert_eq!(greeting, b"220 welcome\r\n");
    }
    eventually("clean ends", || metric(&server, CLEAN) == 20);
    let unused = metric(&server, "widelane_connections_closed_unused_total");
    assert_eq!(unused, 0);
}

/// Bytes that the client has still to send, and close_notify.
fn goodbye(stream: &mut Tls) -> Vec<u8> {
    stream.conn.send_close_notify();
    let mut last = Vec::new();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut last).expect("in memory");
    }
    last
}

/// Of `send(2)`.
const MSG_MORE: i32 = 0x8000;

/// A client that has received the server's flight and not yet sent its own.
fn prepared_to_finish(server: &Server) -> Tls {
    let config = Wish::default().config();
    let name = "a.example".try_into().expect("a name");
    let mut tls = rustls::ClientConnection::new(config, name).expect("a client");
    let mut socket = std::net::TcpStream::connect(server.addresses()[0]).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    while tls.wants_write() {
        tls.write_tls(&mut socket).expect("sent");
    }
    while tls.is_handshaking() {
        tls.read_tls(&mut socket).expect("read");
        tls.process_new_packets().expect("TLS");
    }
    rustls::StreamOwned::new(tls, socket)
}

#[test]
fn idle_connections_are_closed_and_busy_ones_are_not() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, echo());
    config.limits.idle = Duration::from_millis(1500);
    let server = start(&config);
    let mut busy = hello(server.addresses()[0]).expect("TLS");
    let mut idle = hello(server.addresses()[0]).expect("TLS");
    ping(&mut idle).expect("an answer");
    let idle = std::thread::spawn(move || {
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).map(|_| rest)
    });
    while !idle.is_finished() {
        ping(&mut busy).expect("still served");
        std::thread::sleep(Duration::from_millis(20));
    }
    ping(&mut busy).expect("it has outlived the idle one");
    let end = idle.join().expect("no panic");
    let error = end.expect_err("no close_notify: the backend has not finished");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    assert_eq!(ended(&server, "idle"), 1);
}

/// A backend that reports how each connection from the terminator ended.
fn reporting_backend(first: &'static [u8], then: Shutdown) -> (Backend, mpsc::Receiver<End>) {
    let (report, ends) = mpsc::channel();
    let report = Mutex::new(report);
    let backend = tcp_backend(move |mut client| {
        client.write_all(first).expect("sent");
        if then == Shutdown::Write {
            client.shutdown(then).expect("closed");
        }
        let end = client.read_to_end(&mut Vec::new());
        let end = end.map_err(|error| error.kind());
        report.lock().expect("a lock").send(end).expect("reported");
    });
    (backend, ends)
}

/// A connection that will be idle for too long, in the middle of a request.
fn half_a_request(backend: Backend) -> (Server, Tls) {
    let files = Files::new();
    let mut config = simple(&files, Kind::Ecdsa, backend);
    config.limits.idle = Duration::from_millis(300);
    let server = start(&config);
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    stream.write_all(b"half a req").expect("sent");
    (server, stream)
}

type End = Result<usize, io::ErrorKind>;

const RESET: End = Err(io::ErrorKind::ConnectionReset);

#[test]
fn a_connection_cut_for_idleness_looks_cut_to_both_sides() {
    let (backend, ends) = reporting_backend(b"half an ans", Shutdown::Read);
    let (server, mut stream) = half_a_request(backend);
    let mut answer = Vec::new();
    let error = stream.read_to_end(&mut answer).expect_err("no close_notify");
    assert_eq!(answer, b"half an ans");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(RESET), "no end of file");
    eventually("counted", || ended(&server, "idle") == 1);
}

#[test]
fn an_answer_that_was_whole_keeps_its_close_notify() {
    let (backend, ends) = reporting_backend(b"a whole answer", Shutdown::Write);
    let (_server, mut stream) = half_a_request(backend);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("close_notify");
    assert_eq!(answer, b"a whole answer");
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(RESET), "half a request");
}

#[test]
fn an_early_answer_arrives_whole_although_the_body_is_not_read() {
    let files = Files::new();
    let backend = tcp_backend(|mut client| {
        client.read_exact(&mut [0; 4]).expect("a beginning");
        client.write_all(b"413 too large").expect("sent");
        // Closes with unread bytes, which resets the connection.
        client.shutdown(Shutdown::Write).expect("closed");
        client.read_exact(&mut [0; 4]).expect("more of it");
    });
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    // Of clients that send all before they read.
    for _ in 0..64 {
        stream.write_all(&pattern(256 << 10)).expect("taken");
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("close_notify");
    assert_eq!(answer, b"413 too large");
    eventually("counted", || ended(&server, "backend") == 1);
}

#[test]
fn connections_cut_at_the_end_of_a_drain_look_cut_to_both_sides() {
    let files = Files::new();
    let (backend, ends) = reporting_backend(b"half an ans", Shutdown::Read);
    let server = start(&simple(&files, Kind::Ecdsa, backend));
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    stream.write_all(b"half a req").expect("sent");
    let mut answer = [0; 11];
    stream.read_exact(&mut answer).expect("half an answer");
    assert_eq!(server.stop(Duration::from_millis(50)), 1, "cut off");
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(RESET), "no end of file");
    let error = stream.read(&mut answer).expect_err("no close_notify");
    let cut = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset];
    assert!(cut.contains(&error.kind()), "{error}");
}

#[test]
fn the_backend_is_told_who_connects() {
    let files = Files::new();
    let (ca, identity) = files.client_authority("Anna Example");
    let (report, headers) = mpsc::channel();
    let report = Mutex::new(report);
    let backend = tcp_backend(move |mut client| {
        let mut bytes = vec![0; 16];
        client.read_exact(&mut bytes).expect("a header");
        let length = u16::from_be_bytes([bytes[14], bytes[15]]);
        let mut rest = vec![0; usize::from(length)];
        client.read_exact(&mut rest).expect("the rest");
        bytes.extend(rest);
        let mut data = [0; 4];
        client.read_exact(&mut data).expect("what the client sent follows");
        assert_eq!(&data, b"data");
        report.lock().expect("a lock").send(bytes).expect("reported");
    });
    let mut one = listener(backend, vec![files.certificate(Kind::Rsa, &["a.example"])]);
    one.proxy_protocol_to = Some(ProxyVersion::V2Records);
    one.alpn = vec!["h2".into()];
    one.client_auth = Some(ClientAuth::new(ClientAuthMode::Optional, ca));
    let server = start(&config(vec![one]));
    let identity = Arc::new(identity);
    for (wish, version, certificate) in [
        (Wish::default(), "TLSv1.3", true),
        (Wish::tls12(), "TLSv1.2", true),
        (Wish::default(), "TLSv1.3", false),
    ] {
        let wish = Wish {
            alpn: vec![b"h2".to_vec()],
            identity: certificate.then(|| identity.clone()),
            ..wish
        };
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        stream.write_all(b"data").expect("sent");
        let header = headers.recv_timeout(PATIENCE).expect("a header");
        assert_eq!(header[..14], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11");
        let client = stream.sock.local_addr().expect("an address");
        let port = server.addresses()[0].port();
        assert_eq!(header[16..24], [127, 0, 0, 1, 127, 0, 0, 1]);
        assert_eq!(header[24..26], client.port().to_be_bytes());
        assert_eq!(header[26..28], port.to_be_bytes());
        let records = records(&header[28..]);
        assert_eq!(find(&records, 0x01), Some(&b"h2"[..]), "ALPN");
        assert_eq!(find(&records, 0x02), Some(&b"a.example"[..]), "AUTHORITY");
        let ssl = find(&records, 0x20).expect("SSL");
        assert_eq!(ssl[0], if certificate { 7 } else { 1 });
        assert_eq!(
            u32::from_be_bytes(ssl[1..5].try_into().expect("4 bytes")) == 0,
            certificate
        );
        let inner = self::records(&ssl[5..]);
        assert_eq!(find(&inner, 0x21), Some(version.as_bytes()), "VERSION");
        let name = certificate.then_some(&b"Anna Example"[..]);
        assert_eq!(find(&inner, 0x22), name, "CN");
        let cipher = find(&inner, 0x23).expect("CIPHER");
        let expected: &[u8] = match version {
            "TLSv1.3" => b"TLS_AES_128_GCM_SHA256",
            _ => b"ECDHE-RSA-AES128-GCM-SHA256",
        };
        assert_eq!(cipher, expected, "CIPHER");
    }
}

/// The type-length-value records of a PROXY header, which must fill it exactly.
fn records(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut all = Vec::new();
    while let [kind, high, low, rest @ ..] = bytes {
        let (value, after) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        all.push((*kind, value));
        bytes = after;
    }
    assert!(bytes.is_empty(), "left over: {bytes:?}");
    all
}

fn find<'a>(records: &[(u8, &'a [u8])], kind: u8) -> Option<&'a [u8]> {
    records.iter().find(|record| record.0 == kind).map(|record| record.1)
}

const CLEAN: &str = r#"widelane_connections_ended_total{how="clean"}"#;
