//! Clients that do not behave, and more of them than fit.

mod common;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use rustls::NamedGroup;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{ActiveKeyExchange, SharedSecret, SupportedKxGroup};
use widelane_crypto::{Backend, Preference};
use widelane_terminator::{ClientAuth, ClientAuthMode, PlacementChoice, Server};

fn raw(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// All that the server sends until it closes; a reset counts as an end.
fn last_words(socket: &mut TcpStream) -> Vec<u8> {
    let mut words = Vec::new();
    match socket.read_to_end(&mut words) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("neither an end nor a reset: {error}"),
    }
    words
}

/// Groups of one curve, which TLS 1.2 has as well.
const CURVES: [NamedGroup; 3] = [NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1];

#[test]
fn garbage_is_answered_by_an_alert_and_an_end() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Rsa, echo()));
    let hello = client_hello();
    let mut wrong_version = hello.clone();
    wrong_version[1] = 9;
    let mut huge_record = hello.clone();
    huge_record[3..5].copy_from_slice(&[0xff, 0xff]);
    let cases: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        &[0xff; 600],
        // An alert, application data and a handshake message that is no ClientHello.
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x17\x03\x03\x00\x04abcd",
        b"\x16\x03\x01\x00\x04\x14\0\0\0",
        &huge_record,
    ];
    for garbage in cases {
        let mut socket = raw(server.addresses()[0]);
        socket.write_all(garbage).expect("sent");
        let words = last_words(&mut socket);
        // Record type 21 is an alert; some garbage gets none, but never anything else.
        assert!(
            words.is_empty() || words[0] == 21,
            "{garbage:?} was answered by {words:?}"
        );
    }
    eventually("no connection left", || server.connections() == 0);
    let all = failed(&server, "protocol") + failed(&server, "closed");
    assert_eq!(all, cases.len() as u64);
    assert!(failed(&server, "protocol") >= 4);
    ping(&mut self::hello(&server)).expect("others are still served");
}

/// Bytes that a client may send in place of a key share.
#[derive(Debug)]
struct Forged {
    group: NamedGroup,
    share: Vec<u8>,
}

impl SupportedKxGroup for Forged {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, rustls::Error> {
        Ok(Box::new(ForgedShare(self.group, self.share.clone())))
    }

    fn name(&self) -> NamedGroup {
        self.group
    }
}

struct ForgedShare(NamedGroup, Vec<u8>);

impl ActiveKeyExchange for ForgedShare {
    /// In TLS 1.2 the share is sent after this. A server that goes on is found out later.
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, rustls::Error> {
        Ok(SharedSecret::from(&[0; 32][..]))
    }

    fn pub_key(&self) -> &[u8] {
        &self.1
    }

    fn group(&self) -> NamedGroup {
        self.0
    }
}

/// Shares that every server must refuse (RFC 8446, section 4.2.8.2; RFC 7748, section 6.1; FIPS
/// 203, section 7.2), by group.
fn invalid_shares() -> Vec<Forged> {
    let good = |group: &'static dyn SupportedKxGroup| group.start().expect("a key").pub_key().to_vec();
    let mut forged = Vec::new();
    let mut add = |group: NamedGroup, shares: Vec<Vec<u8>>| {
        forged.extend(shares.into_iter().map(|share| Forged { group, share }));
    };
    // The x coordinate of a point of order 8: like 0 and 1, it gives an all-zero secret.
    let order_8 = vec![
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09,
        0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ];
    let mut one = vec![0; 32];
    one[0] = 1;
    add(
        NamedGroup::X25519,
        vec![vec![0; 32], one, order_8, vec![7; 31], vec![7; 33]],
    );
    for group in [kx_group::SECP256R1, kx_group::SECP384R1] {
        let share = good(group);
        let mut off_the_curve = share.clone();
        *off_the_curve.last_mut().expect("bytes") ^= 1;
        let mut compressed = share[..1 + share.len() / 2].to_vec();
        compressed[0] = 2;
        let not_reduced = [&[4][..], &vec![0xff; share.len() - 1]].concat();
        let short = share[..share.len() - 1].to_vec();
        let infinity = vec![0];
        add(
            group.name(),
            vec![off_the_curve, compressed, not_reduced, short, infinity],
        );
    }
    for (group, key_at, point_at) in [
        (kx_group::X25519MLKEM768, 0, 1184),
        (kx_group::SECP256R1MLKEM768, 65, 0),
    ] {
        let share = good(group);
        let mut coefficients = share.clone();
        coefficients[key_at..key_at + 3].fill(0xff);
        let mut point = share.clone();
        let length = if point_at == 0 { 65 } else { 32 };
        point[point_at..point_at + length].fill(0);
        let long = [&share[..], &[0]].concat();
        let short = share[..share.len() - 1].to_vec();
        add(group.name(), vec![coefficients, point, long, short]);
    }
    forged
}

/// Connects with a forged share and with a good one.
fn assert_refused_beside_a_good_one(address: SocketAddr, forged: Forged, mut wish: Wish) {
    let what = format!("{forged:?}");
    let good = aws_lc_rs::ALL_KX_GROUPS
        .iter()
        .copied()
        .find(|group| group.name() == forged.group)
        .expect("a known group");
    // rustls keeps groups for ever.
    let forged: &'static Forged = Box::leak(Box::new(forged));
    wish.groups = vec![forged];
    let bad = wish.config();
    wish.groups = vec![good];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let refused = connect(address, "a.example", &bad);
            let error = refused.expect_err(&what).to_string();
            assert!(error.contains("IllegalParameter"), "{what}: {error}");
        });
        let stream = connect(address, "a.example", &wish.config());
        ping(&mut stream.expect("TLS")).expect("an answer");
    });
}

#[test]
fn invalid_key_shares_are_an_illegal_parameter_and_neighbours_are_served() {
    let files = Files::new();
    for enabled in [true, false] {
        let mut config = simple(&files, Kind::Rsa, echo());
        // One worker, so that good and bad shares meet in its passes.
        config.workers = std::num::NonZeroUsize::new(1);
        config.batching.enabled = enabled;
        config.listeners[0].groups = [
            "X25519",
            "secp256r1",
            "secp384r1",
            "X25519MLKEM768",
            "SecP256r1MLKEM768",
        ]
        .map(str::to_owned)
        .into();
        let server = start(&config);
        let address = server.addresses()[0];
        let mut cases: Vec<_> = invalid_shares()
            .into_iter()
            .map(|share| (share, Wish::default()))
            .collect();
        for share in invalid_shares() {
            if CURVES.contains(&share.group) {
                cases.push((share, Wish::tls12()));
            }
        }
        let count = cases.len() as u64;
        std::thread::scope(|scope| {
            for (forged, wish) in cases {
                scope.spawn(move || assert_refused_beside_a_good_one(address, forged, wish));
            }
        });
        eventually("all counted", || failed(&server, "protocol") == count);
    }
}

/// rustls ends some handshakes without a word. Before anything is encrypted, we have one.
#[test]
fn the_client_is_told_where_rustls_knows_no_alert() {
    let files = Files::new();
    for enabled in [true, false] {
        let mut config = simple(&files, Kind::Rsa, echo());
        config.batching.enabled = enabled;
        config.listeners[0].groups = vec!["secp256r1".into()];
        let server = start(&config);
        let converse = |first: &[u8], answered: fn(&[u8]) -> bool, second: &[u8]| {
            let mut socket = raw(server.addresses()[0]);
            socket.write_all(first).expect("sent");
            let mut answer = Vec::new();
            while !answered(&answer) {
                let mut bytes = [0; 4096];
                let read = socket.read(&mut bytes).expect("an answer");
                assert_ne!(read, 0, "an end after {answer:x?}");
                answer.extend_from_slice(&bytes[..read]);
            }
            socket.write_all(second).expect("sent");
            last_words(&mut socket)
        };

        // TLS 1.2: after ServerHelloDone, a ClientKeyExchange with an empty point.
        let hello = client_hello_for("a.example", &Wish::tls12());
        let key_exchange = [22, 3, 3, 0, 5, 16, 0, 0, 1, 0];
        let done = |answer: &[u8]| answer.ends_with(&[14, 0, 0, 0]);
        let words = converse(&hello, done, &key_exchange);
        assert_eq!(words, [21, 3, 3, 0, 2, 2, 50], "decode_error");

        // TLS 1.3: after HelloRetryRequest, another name.
        let wish = |groups: [&'static dyn SupportedKxGroup; 2]| Wish {
            groups: groups.into(),
            ..Wish::default()
        };
        let hello = client_hello_for("a.example", &wish([kx_group::X25519, kx_group::SECP256R1]));
        let other = client_hello_for("b.example", &wish([kx_group::SECP256R1, kx_group::X25519]));
        let changed = [20, 3, 3, 0, 1, 1];
        let retry = |answer: &[u8]| !answer.is_empty();
        let words = converse(&hello, retry, &other);
        let words = words.strip_prefix(&changed).unwrap_or(&words);
        assert_eq!(words, [21, 3, 3, 0, 2, 2, 47], "illegal_parameter");
        eventually("both counted", || failed(&server, "protocol") == 2);
    }
}

/// Cases in which rustls' own alert is another one (RFC 8446, sections 5, 5.1 and 9.2; RFC 5246, sections 7.4.6 and E.1).
#[test]
fn the_alert_is_that_of_the_rfc() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Rsa, echo());
    let (ca, _) = files.client_authority("a client");
    let required = ClientAuth::new(ClientAuthMode::Required, &ca);
    config.listeners[0].client_auth = Some(required);
    let server = start(&config);
    let new = client_hello();
    // An extension under a number that is not assigned is ignored.
    let without = |hello: &[u8], extension: [u8; 2]| {
        let at = extensions(hello).find(|(kind, _)| *kind == extension);
        let mut hello = hello.to_vec();
        hello[at.expect("the extension").1] = 0x5a;
        hello
    };
    let without_schemes = without(&new, [0, 13]);
    let mut old = without(&without_schemes, [0, 43]);
    old[9..11].copy_from_slice(&[3, 2]);
    let too_large = [&[22, 3, 1, 0x48, 1][..], &[0; 0x4801]].concat();
    for (bytes, alert) in [
        (old, 70),
        (too_large, 22),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 10),
        (without_schemes, 109),
        (without(&new, [0, 51]), 109),
        (without(&new, [0, 10]), 109),
    ] {
        let mut socket = raw(server.addresses()[0]);
        socket.write_all(&bytes).expect("sent");
        let words = last_words(&mut socket);
        assert_eq!(words, [21, 3, 3, 0, 2, 2, alert], "{bytes:x?}");
    }
    let refused = connect(server.addresses()[0], "a.example", &Wish::tls12().config());
    let error = refused.expect_err("no certificate").to_string();
    assert!(error.contains("HandshakeFailure"), "{error}");
}

/// The extensions of a ClientHello in one record, and where they begin.
fn extensions(hello: &[u8]) -> impl Iterator<Item = ([u8; 2], usize)> {
    let length = |at: usize| usize::from(u16::from_be_bytes([hello[at], hello[at + 1]]));
    // Behind the session ID, the cipher suites, the compression methods and the length of all extensions.
    let mut at = 44 + usize::from(hello[43]);
    at += 2 + length(at);
    at += 1 + usize::from(hello[at]) + 2;
    std::iter::from_fn(move || {
        let kind = hello.get(at..at + 2)?.try_into().ok()?;
        let found = (kind, at);
        at += 4 + length(at + 2);
        Some(found)
    })
}

#[test]
fn a_client_that_begins_with_close_notify_is_closed_at_once() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Rsa, echo());
    config.limits.handshake = PATIENCE * 10;
    let server = start(&config);
    let mut socket = raw(server.addresses()[0]);
    socket.write_all(&[21, 3, 1, 0, 2, 1, 0]).expect("close_notify");
    assert!(last_words(&mut socket).is_empty());
    eventually("counted", || failed(&server, "closed") == 1);
}

const UNEXPECTED_MESSAGE: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

/// RFC 8446, sections 5 and 5.1.
#[test]
fn records_in_the_wrong_place_are_unexpected() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Rsa, echo()));
    let fragment =
        |record: &[u8], length: u8| [&record[..3], &[0, length], &record[5..5 + usize::from(length)]].concat();
    let changed = [20, 3, 3, 0, 1, 1];

    // Between two fragments of a ClientHello, before the server has said anything.
    let interleaved = [&fragment(&client_hello(), 20)[..], &changed].concat();
    // More warnings than an honest client sends.
    let warnings = [21, 3, 3, 0, 2, 1, 90].repeat(16);
    let empty = [21, 3, 3, 0, 0].to_vec();
    for bytes in [interleaved, warnings, empty] {
        let mut socket = raw(server.addresses()[0]);
        socket.write_all(&bytes).expect("sent");
        assert_eq!(last_words(&mut socket), UNEXPECTED_MESSAGE, "{bytes:?}");
    }

    // TLS 1.2, between ClientHello and the server's first flight, which is sent before the alert.
    let wish = Wish {
        groups: vec![kx_group::X25519],
        ..Wish::tls12()
    };
    let hello = client_hello_for("a.example", &wish);
    let half_finished = fragment(&[22, 3, 3, 0, 1, 20], 1);
    let mut socket = raw(server.addresses()[0]);
    let bytes = [&hello[..], &half_finished, &changed].concat();
    socket.write_all(&bytes).expect("sent");
    let words = last_words(&mut socket);
    assert_eq!(words[0], 22);
    assert!(words.ends_with(&UNEXPECTED_MESSAGE), "{words:?}");

    // TLS 1.2, behind the client's key exchange.
    let mut socket = raw(server.addresses()[0]);
    socket.write_all(&hello).expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(&[14, 0, 0, 0]) {
        let mut bytes = [0; 4096];
        let read = socket.read(&mut bytes).expect("an answer");
        assert_ne!(read, 0, "an end after {answer:x?}");
        answer.extend_from_slice(&bytes[..read]);
    }
    let mut point = [0; 32];
    point[0] = 9;
    let key_exchange = [&[22, 3, 3, 0, 37, 16, 0, 0, 33, 32][..], &point].concat();
    let bytes = [&key_exchange[..], &half_finished, &changed].concat();
    socket.write_all(&bytes).expect("sent");
    assert_eq!(last_words(&mut socket), UNEXPECTED_MESSAGE);
    eventually("all counted", || failed(&server, "protocol") == 5);
}

#[test]
fn an_error_right_behind_the_handshake_is_answered_and_counted() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Rsa, echo()));
    let mut socket = raw(server.addresses()[0]);
    let name = "a.example".try_into().expect("a name");
    let config = Wish::default().config();
    let mut client = rustls::ClientConnection::new(config, name).expect("a client");
    while client.is_handshaking() {
        while client.wants_write() {
            client.write_tls(&mut socket).expect("sent");
        }
        client.read_tls(&mut socket).expect("received");
        client.process_new_packets().expect("a good server");
    }
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("in memory");
    }
    // Too long for the read that brings the client's Finished (4096 bytes), and short enough for
    // the next one.
    bytes.extend_from_slice(&[23, 3, 3, 0x14, 0]);
    bytes.extend_from_slice(&[7; 0x1400]);
    socket.write_all(&bytes).expect("sent");
    let error = loop {
        assert_ne!(client.read_tls(&mut socket).expect("received"), 0, "no alert");
        if let Err(error) = client.process_new_packets() {
            break error;
        }
    };
    let expected = rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac);
    assert_eq!(error, expected);
    eventually("counted", || failed(&server, "protocol") == 1);
    let ok = r#"widelane_handshakes_total{result="ok",version="1.3",resumed="no"}"#;
    assert_eq!(metric(&server, ok), 0);
}

/// A client that does not stop to read must not lose the alert to a reset.
#[test]
fn an_alert_reaches_a_client_that_is_still_sending() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Rsa, echo()));
    // A ClientHello of 128 KiB, of which this is the first record.
    let mut hello = vec![0; 5 + 16 * 1024];
    hello[..9].copy_from_slice(&[22, 3, 1, 0x40, 0, 1, 2, 0, 0]);
    let mut before = raw(server.addresses()[0]);
    before.write_all(&hello).expect("sent");
    let mut behind = self::hello(&server);
    ping(&mut behind).expect("an answer");
    let wrong = b"\x17\x03\x03\x00\x20this is not encrypted with a key";
    behind.sock.write_all(&[&wrong[..], &hello].concat()).expect("sent");
    for (socket, alert) in [(&mut before, 21), (&mut behind.sock, 23)] {
        socket.peek(&mut [0]).expect("an alert");
        for _ in 0..6 {
            socket.write_all(&hello).expect("the server still reads");
        }
        socket.shutdown(std::net::Shutdown::Write).expect("closed");
        let mut words = Vec::new();
        socket.read_to_end(&mut words).expect("an end and no reset");
        assert_eq!(words.first(), Some(&alert), "{words:?}");
    }
}

#[test]
fn a_record_cut_short_ends_the_connection_without_a_word() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Rsa, echo()));
    let hello = client_hello();
    for length in [1, 4, 5, 6, hello.len() / 2, hello.len() - 1] {
        let mut socket = raw(server.addresses()[0]);
        socket.write_all(&hello[..length]).expect("sent");
        socket.shutdown(std::net::Shutdown::Write).expect("closed");
        assert_eq!(last_words(&mut socket), b"", "after {length} bytes");
    }
    eventually("all counted", || failed(&server, "closed") == 6);
}

#[test]
fn broken_records_after_the_handshake_end_the_connection() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Rsa, echo()));
    let mut stream = hello(&server);
    ping(&mut stream).expect("an answer");
    stream
        .sock
        .write_all(b"\x17\x03\x03\x00\x20this is not encrypted with a key")
        .expect("sent");
    let words = last_words(&mut stream.sock);
    assert_eq!(words.first(), Some(&23), "an encrypted alert: {words:?}");
    eventually("counted", || ended(&server, "client") == 1);
}

/// docs/running.md says where the answers differ from the RFCs: only rustls can encrypt an alert.
#[test]
fn encrypted_alerts_are_those_of_rustls() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Rsa, echo()));
    let record = |kind: u8, content: u8| [kind, 3, 3, 0, 1, content];
    for (wish, bytes, alert) in [
        (Wish::default(), record(99, 1), "DecodeError"),
        (Wish::tls12(), record(99, 1), "DecodeError"),
        (Wish::tls12(), record(20, 1), "UnexpectedMessage"),
        (Wish::tls12(), record(20, 2), "DecodeError"),
        (Wish::default(), record(20, 2), "DecodeError"),
    ] {
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        ping(&mut stream).expect("an answer");
        stream.sock.write_all(&bytes).expect("sent");
        let error = stream.read(&mut [0]).expect_err("an alert").to_string();
        assert!(error.contains(alert), "{bytes:?}: {error}");
    }
}

#[test]
fn slow_handshakes_are_cut_off_and_swift_ones_are_not() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Rsa, echo());
    config.limits.handshake = Duration::from_millis(1500);
    let server = start(&config);
    let address = server.addresses()[0];
    // One byte at a time, and not a byte at all.
    let slow = std::thread::spawn(move || {
        let mut socket = raw(address);
        for byte in client_hello() {
            if socket.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(40));
        }
        last_words(&mut socket)
    });
    let mut silent = raw(address);
    while !slow.is_finished() {
        ping(&mut hello(&server)).expect("others are served meanwhile");
    }
    assert!(slow.join().expect("no panic").is_empty());
    assert!(last_words(&mut silent).is_empty());
    eventually("counted", || failed(&server, "timeout") == 2);
}

#[test]
fn connections_over_the_limit_are_refused_and_those_here_are_served() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Rsa, echo());
    config.limits.connections = Some(3);
    let server = start(&config);
    let mut here: Vec<Tls> = (0..3).map(|_| hello(&server)).collect();
    for _ in 0..5 {
        let refused = connect(server.addresses()[0], "a.example", &Wish::default().config());
        assert!(refused.is_err(), "a fourth connection was served");
    }
    eventually("counted", || refused(&server, "connections") == 5);
    for stream in &mut here {
        ping(stream).expect("still served");
    }
    drop(here.pop());
    eventually("a place is free", || server.connections() == 2);
    ping(&mut hello(&server)).expect("served in the free place");
}

#[test]
fn handshakes_over_the_limit_are_refused() {
    let files = Files::new();
    let mut config = simple(&files, Kind::Rsa, echo());
    config.limits.handshakes = 2;
    let server = start(&config);
    let mut established = hello(&server);
    ping(&mut established).expect("an answer, so the server has finished as well");
    // Those who have sent nothing would make room.
    let mut pending = [raw(server.addresses()[0]), raw(server.addresses()[0])];
    for socket in &mut pending {
        socket.write_all(&client_hello()).expect("sent");
        let read = socket.read(&mut [0]).expect("an answer");
        assert_eq!(read, 1);
    }
    assert_eq!(metric(&server, "widelane_handshakes_pending"), 2);
    let third = connect(server.addresses()[0], "a.example", &Wish::default().config());
    assert!(third.is_err(), "a third handshake was served");
    assert_eq!(refused(&server, "handshakes"), 1);
    ping(&mut established).expect("finished handshakes do not count");
    drop(pending);
    eventually("both are gone", || metric(&server, "widelane_handshakes_pending") == 0);
    ping(&mut hello(&server)).expect("served again");
}

#[test]
fn silent_clients_of_the_metrics_keep_out_nobody_who_asks() {
    let files = Files::new();
    let server = start(&simple(&files, Kind::Rsa, echo()));
    let address = server.metrics_address().expect("metrics");
    let mut crowd: Vec<_> = (0..200).map(|_| raw(address)).collect();
    // More come with each question, so that there are always too many of them.
    for _ in 0..20 {
        crowd.extend((0..70).map(|_| raw(address)));
        let (status, body) = get(address, "/healthz");
        assert_eq!((&*status, &*body), ("HTTP/1.1 200 OK", "ok\n"));
    }
    // Without a question there is no place for long, and not for more than 64 at a time.
    for mut silent in crowd {
        assert!(last_words(&mut silent).is_empty());
    }
}

#[test]
fn a_full_engine_queue_refuses_some_and_serves_the_others() {
    let files = Files::new();
    let alone = Preference::Auto.resolve() == Ok(Backend::AwsLc);
    for placement in [PlacementChoice::Inline, PlacementChoice::VectorCores] {
        if alone && placement == PlacementChoice::Inline {
            eprintln!("SKIP: without lanes a pass has one lane, so nothing ever waits inline");
            continue;
        }
        let mut config = simple(&files, Kind::Rsa, echo());
        config.workers = std::num::NonZeroUsize::new(1);
        config.batching.queue = 1;
        // Without a second round trip, so that a refusal comes before the first flight.
        config.listeners[0].groups = vec!["X25519".into()];
        config.batching.placement = placement;
        config.batching.vector_cpus = "0".parse().expect("a list");
        let server = start(&config);
        let address = server.addresses()[0];
        let (served, turned_away) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut rounds = 0;
        while turned_away.load(Ordering::Relaxed) == 0 {
            rounds += 1;
            assert!(rounds <= 50, "{placement:?}: no queue was ever full");
            let clients: Vec<_> = (0..24)
                .map(|_| {
                    let (served, turned_away) = (served.clone(), turned_away.clone());
                    std::thread::spawn(move || {
                        let config = Wish::default().config();
                        let counter = match connect(address, "a.example", &config) {
                            Ok(_) => served,
                            Err(error) => {
                                let error = error.to_string();
                                assert!(error.contains("InternalError"), "{error}");
                                turned_away
                            }
                        };
                        counter.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect();
            for client in clients {
                client.join().expect("no panic");
            }
        }
        assert!(
            served.load(Ordering::Relaxed) > 0,
            "{placement:?}: no client was served"
        );
        let turned_away = turned_away.load(Ordering::Relaxed) as u64;
        eventually("refusals are counted as such", || {
            refused(&server, "engine") == turned_away
        });
        ping(&mut hello(&server)).expect("served after the rush");
    }
}

fn hello(server: &Server) -> Tls {
    common::hello(server.addresses()[0]).expect("TLS")
}
