//! Several addresses of a backend, and several backends behind one listener.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use common::named::*;
use common::*;
use widelane_terminator::{Backend, Config, LogTarget, ProxyVersion, Route};

fn with_backends(files: &Files, backends: Vec<Backend>) -> Config {
    let mut one = listener(echo(), vec![files.certificate(Kind::Ecdsa, &["a.example"])]);
    one.backend = backends;
    config(vec![one])
}

#[test]
fn connections_go_to_the_address_with_the_fewest() {
    let files = Files::new();
    let named = [b'a', b'b'].map(Named::start);
    let backends: Vec<Backend> = named.iter().map(Named::backend).collect();
    let server = start(&with_backends(&files, backends.clone()));
    let address = server.addresses()[0];
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(served_by(address, "a.example", &[]));
    }
    let mut letters: Vec<char> = open.iter().map(|(letter, _)| *letter).collect();
    letters.sort();
    assert_eq!(letters, ['a', 'a', 'b', 'b']);
    for backend in &backends {
        assert_eq!(gauge(&server, "connections", backend), 2);
        assert_eq!(gauge(&server, "up", backend), 1);
        assert_eq!(connects(&server, backend, "ok"), 2);
    }
    let (staying, leaving): (Vec<_>, Vec<_>) = open.into_iter().partition(|(by, _)| *by == 'a');
    for (_, mut stream) in leaving {
        finish(&mut stream).expect("an orderly end");
    }
    eventually("b has none", || gauge(&server, "connections", &backends[1]) == 0);
    for _ in 0..2 {
        let (by, stream) = served_by(address, "a.example", &[]);
        assert_eq!(by, 'b');
        drop(stream);
        eventually("b has none", || gauge(&server, "connections", &backends[1]) == 0);
    }
    drop(staying);
}

#[test]
fn an_address_that_breaks_connections_before_it_answers_is_left_out() {
    let files = Files::new();
    let breaks = tcp_backend(|client| {
        // A reset that comes with the connection is a connection that has failed.
        std::thread::sleep(Duration::from_millis(20));
        let _ = socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO));
    });
    let good = Named::start(b'b');
    let mut config = with_backends(&files, vec![breaks.clone(), good.backend()]);
    config.workers = std::num::NonZeroUsize::new(1);
    let server = start(&config);
    eventually("it is left out", || {
        let mut stream = hello(server.addresses()[0]).expect("TLS");
        let _ = stream.read(&mut [0; 1]);
        gauge(&server, "up", &breaks) == 0
    });
    let connected = ["ok", "failed"].map(|result| connects(&server, &breaks, result));
    assert!(connected[0] >= 10 && connected[1] == 0, "{connected:?}");
    assert_eq!(gauge(&server, "up", &good.backend()), 1);
}

#[test]
fn an_address_that_a_reload_takes_out_is_forgotten_while_connections_to_others_live() {
    let files = Files::new();
    let named = [b'a', b'b', b'c'].map(Named::start);
    let backends: Vec<Backend> = named.iter().map(Named::backend).collect();
    let mut config = with_backends(&files, backends[..2].to_vec());
    let server = start(&config);
    let (letter, stream) = served_by(server.addresses()[0], "a.example", &[]);
    config.listeners[0].backend = vec![backends[2].clone()];
    server.reload(&document(&config)).expect("a reload");
    let (used, unused) = match letter {
        'a' => (&backends[0], &backends[1]),
        _ => (&backends[1], &backends[0]),
    };
    let page = metrics(&server);
    assert!(page.contains(&used.to_string()), "it has a connection");
    assert!(!page.contains(&unused.to_string()), "{page}");
    drop(stream);
}

#[test]
fn an_address_that_goes_down_under_load_fails_no_client_and_is_taken_again() {
    let files = Files::new();
    let mut a = Named::start(b'a');
    let b = Named::start(b'b');
    let mut config = with_backends(&files, vec![a.backend(), b.backend()]);
    let log = files.path("access.log");
    config.access_log = LogTarget::File(log.clone());
    let server = start(&config);
    let address = server.addresses()[0];
    let count_of = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    // The kernel resets connections that wait in a socket when it is closed. None waits then.
    let gate = Arc::new(RwLock::new(()));
    let client = Wish::default().config();
    let (counts, entry) = (count_of.clone(), gate.clone());
    let clients = Crowd::start(3, move || {
        let entering = entry.read().expect("no panic");
        let mut stream = connect(address, "a.example", &client).expect("TLS");
        let by = letter(&mut stream);
        drop(entering);
        ping(&mut stream).expect("an answer");
        finish(&mut stream).expect("an orderly end");
        counts[usize::from(by == 'b')].fetch_add(1, Ordering::Relaxed);
    });
    let count = |of: usize| count_of[of].load(Ordering::Relaxed);
    eventually("both serve", || count(0) > 5 && count(1) > 5);
    {
        let _closed = gate.write().expect("no panic");
        a.stop();
    }
    eventually("it is left out", || gauge(&server, "up", &a.backend()) == 0);
    let before = count(1);
    eventually("the other serves", || count(1) > before + 20);
    assert!(connects(&server, &a.backend(), "failed") > 0);
    let before = count(0);
    let a = Named::at(a.address, b'a');
    eventually("it serves again", || count(0) > before + 5);
    assert_eq!(gauge(&server, "up", &a.backend()), 1);
    clients.end();
    server.stop(PATIENCE);
    let text = std::fs::read_to_string(log).expect("the log");
    let all = text.lines().count();
    assert_eq!(text.matches(r#""end":"clean""#).count(), all);
    assert!(text.contains(r#""backend_tries":2"#), "some were retried");
}

#[test]
fn all_addresses_are_tried_before_a_client_is_sent_away() {
    let files = Files::new();
    let mut named = [b'a', b'b', b'c'].map(Named::start);
    let backends: Vec<Backend> = named.iter().map(Named::backend).collect();
    let server = start(&with_backends(&files, backends.clone()));
    let address = server.addresses()[0];
    for one in &mut named {
        one.stop();
    }
    let fails = || {
        let mut stream = hello(address).expect("TLS");
        let _ = stream.write_all(b"ping");
        assert_unanswered(&mut stream);
    };
    fails();
    for backend in &backends {
        assert_eq!(connects(&server, backend, "failed"), 1);
        assert_eq!(gauge(&server, "up", backend), 0);
    }
    // While all are left out, none is given up.
    fails();
    let tries: u64 = backends.iter().map(|one| connects(&server, one, "failed")).sum();
    assert_eq!(tries, 6);
    let again = Named::at(named[1].address, b'b');
    assert_eq!(served_by(address, "a.example", &[]).0, 'b');
    drop(again);
    eventually("it is counted", || ended(&server, "backend_unreachable") == 2);
}

/// A client that breaks the protocol may stay for a while to read why. The backend has lost it by then.
#[test]
fn a_connection_counts_for_its_backend_no_longer_than_it_lasts_there() {
    let files = Files::new();
    let named = Named::start(b'a');
    let server = start(&with_backends(&files, vec![named.backend()]));
    let (_, mut stream) = served_by(server.addresses()[0], "a.example", &[]);
    assert_eq!(gauge(&server, "connections", &named.backend()), 1);
    stream.sock.write_all(b"no record").expect("sent");
    let at_backend = format!("widelane_backend_connections{{backend=\"{}\"}} 0\n", named.backend());
    let mut page = String::new();
    eventually("it has left the backend", || {
        page = metrics(&server);
        page.contains(&at_backend)
    });
    assert!(page.contains("\nwidelane_connections 1\n"), "{page}");
}

/// An address whose queue of connections is full: SYNs are dropped there.
fn silent_address() -> (TcpListener, Vec<TcpStream>, Backend) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    socket.bind(&any.into()).expect("a port");
    socket.listen(1).expect("a queue");
    let listener = TcpListener::from(socket);
    let address = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    let short = Duration::from_millis(200);
    while let Ok(one) = TcpStream::connect_timeout(&address, short) {
        waiting.push(one);
    }
    (listener, waiting, Backend::Tcp(address))
}

#[test]
fn an_address_that_does_not_answer_is_left_out() {
    let files = Files::new();
    let (_listener, _waiting, silent) = silent_address();
    let good = Named::start(b'g');
    let mut config = with_backends(&files, vec![silent.clone(), good.backend()]);
    config.limits.backend_connect = Duration::from_millis(100);
    let server = start(&config);
    let address = server.addresses()[0];
    for _ in 0..6 {
        assert_eq!(served_by(address, "a.example", &[]).0, 'g');
    }
    assert!(connects(&server, &silent, "timeout") >= 1);
    assert_eq!(connects(&server, &silent, "ok"), 0);
    assert_eq!(connects(&server, &good.backend(), "ok"), 6);
}

#[test]
fn names_and_protocols_have_their_backends() {
    let files = Files::new();
    let named = [b'd', b'a', b'w', b'h'].map(Named::start);
    let [default, a, wildcard, h2] = &named;
    let mut config = with_backends(&files, vec![default.backend()]);
    let route = |names: &[&str], backend: &Named| {
        Route::new(names.iter().map(|&name| name.into()).collect(), vec![backend.backend()])
    };
    let mut for_h2 = route(&[], h2);
    for_h2.alpn = vec!["h2".into()];
    let one = &mut config.listeners[0];
    one.alpn = vec!["h2".into(), "http/1.1".into()];
    one.proxy_protocol_to = None;
    one.routes = vec![route(&["A.example"], a), route(&["*.w.example"], wildcard), for_h2];
    let server = start(&config);
    let address = server.addresses()[0];
    for (name, alpn, expected) in [
        ("a.example", &[][..], 'a'),
        ("a.example", &["h2"], 'a'),
        ("x.w.example", &["http/1.1"], 'w'),
        ("w.example", &["http/1.1"], 'd'),
        ("b.example", &["h2"], 'h'),
        ("b.example", &[], 'd'),
        ("127.0.0.1", &[], 'd'),
    ] {
        assert_eq!(served_by(address, name, alpn).0, expected, "{name} {alpn:?}");
    }

    // Without a default, there is none for other names.
    let log = files.path("access.log");
    config.access_log = LogTarget::File(log.clone());
    config.listeners[0].backend.clear();
    server.reload(&document(&config)).expect("a reload");
    assert_eq!(served_by(address, "a.example", &[]).0, 'a');
    let mut stream = connect(address, "b.example", &Wish::default().config()).expect("TLS");
    let _ = stream.write_all(b"ping");
    assert_unanswered(&mut stream);
    drop(stream);
    eventually("it is counted", || ended(&server, "no_backend") == 1);
    eventually("the log says so", || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains(r#""end":"no_backend""#)
    });
}

#[test]
fn a_reload_changes_the_addresses_and_keeps_what_is_known() {
    let files = Files::new();
    let named = [b'a', b'b', b'c'].map(Named::start);
    let [a, b, c] = &named;
    let mut config = with_backends(&files, vec![a.backend(), b.backend()]);
    let server = start(&config);
    let address = server.addresses()[0];
    let mut open: Vec<_> = (0..2).map(|_| served_by(address, "a.example", &[])).collect();
    config.listeners[0].backend = vec![b.backend(), c.backend()];
    server.reload(&document(&config)).expect("a reload");
    // One connection is at b already.
    assert_eq!(gauge(&server, "connections", &b.backend()), 1);
    let next: Vec<_> = (0..3).map(|_| served_by(address, "a.example", &[])).collect();
    let mut letters: Vec<char> = next.iter().map(|(letter, _)| *letter).collect();
    letters.sort();
    assert_eq!(letters, ['b', 'c', 'c']);
    for (_, stream) in &mut open {
        ping(stream).expect("connections from before are served");
    }
    assert_eq!(gauge(&server, "connections", &a.backend()), 1);
    drop(open);
    let of_a = format!("backend=\"{}\"", a.backend());
    eventually("the address that is gone is forgotten", || {
        !metrics(&server).contains(&of_a)
    });
    let mut bad = config.clone();
    bad.listeners[0].backend.clear();
    let error = widelane_terminator::Document::from_flags(bad).expect_err("no backend");
    assert!(error.to_string().contains("--backend: no backend"), "{error}");
}

/// The header is part of what an address gets; a connection that is refused got none of it.
#[test]
fn the_proxy_header_goes_to_the_address_that_answers() {
    let files = Files::new();
    let mut down = Named::start(b'x');
    down.stop();
    let headers = tcp_backend(|mut client| {
        let mut line = [0; 10];
        client.read_exact(&mut line).expect("a header");
        let _ = client.write_all(&line);
    });
    let mut config = with_backends(&files, vec![down.backend(), headers]);
    config.listeners[0].proxy_protocol_to = Some(ProxyVersion::V1);
    let server = start(&config);
    for _ in 0..4 {
        let mut stream = hello(server.addresses()[0]).expect("TLS");
        let mut line = [0; 10];
        stream.read_exact(&mut line).expect("the header");
        assert_eq!(&line, b"PROXY TCP4");
    }
}
