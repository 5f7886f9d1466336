use super::*;
use crate::specimens::{bytes, client_hello, message, record, server_hello, tls13};
use Direction::{Read, Written};
use proptest::prelude::*;

const RANDOM: [u8; 32] = [0x44; 32];
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

fn facts(all: &[(Direction, Vec<u8>)]) -> Facts {
    let mut flights = Flights::default();
    for (direction, content) in all {
        flights.take(&bytes(*direction, content, 0, 0));
    }
    flights.facts().clone()
}

#[test]
fn a_server_of_tls13() {
    let hello = server_hello(&RANDOM, &[1; 32], 0x1302, &tls13(0x11ec, 1120, false));
    let flight = [record(22, &hello), record(20, &[1]), record(23, &[0; 900])].concat();
    let facts = facts(&[(Read, client_hello(&[1; 32], b"example.org")), (Written, flight)]);
    assert_eq!(facts.side, Some(Side::Server));
    assert_eq!(facts.version, Some(0x0304));
    assert_eq!(facts.cipher, Some(0x1302));
    assert_eq!(facts.group, Some(0x11ec));
    assert_eq!(facts.resumed, Some(false), "an echoed session means nothing");
    assert_eq!(facts.server_name.as_deref(), Some("example.org"));
    assert_eq!(facts.alert, None);
    assert!(facts.client_hello && facts.server_hello && !facts.retried);
}

#[test]
fn a_preshared_key_behind_a_long_key_share() {
    let hello = server_hello(&RANDOM, &[], 0x1301, &tls13(0x11ec, 1120, true));
    let facts = facts(&[(Read, record(22, &hello))]);
    assert_eq!((facts.side, facts.resumed), (Some(Side::Client), Some(true)));
}

#[test]
fn header_and_content_apart_in_any_pieces() {
    let hello = record(22, &server_hello(&RANDOM, &[2; 32], 0x1301, &tls13(29, 32, true)));
    for pieces in [vec![5], vec![3], vec![5, 7], vec![1, 2, 3, 4, 5, 6], vec![5, 4, 40]] {
        let mut rest = &hello[..];
        let mut all = vec![(Written, client_hello(&[2; 32], b"a"))];
        for piece in pieces {
            let (now, later) = rest.split_at(piece);
            all.push((Read, now.to_vec()));
            rest = later;
        }
        all.push((Read, rest.to_vec()));
        let facts = facts(&all);
        assert_eq!((facts.group, facts.resumed), (Some(29), Some(true)));
        assert_eq!(facts.side, Some(Side::Client));
    }
}

/// OpenSSL reads header and content of each record apart, and the kernel does not report a
/// ChangeCipherSpec by itself. The Finished behind it begins with random bytes.
#[test]
fn an_encrypted_finished_is_no_message() {
    let hello = server_hello(&RANDOM, &[], 0xc030, &[]);
    let flight = [
        record(22, &hello),
        record(22, &message(11, &[9; 700])),
        record(22, &message(14, &[])),
    ];
    for first in 0..=255 {
        let mut finished = record(22, &[0x5a; 40]);
        finished[5] = first;
        let exchange = record(22, &message(16, &[32; 33]));
        let mut all = vec![
            (Read, client_hello(&[], b"a")),
            (Written, flight.concat()),
            (Read, exchange[..5].to_vec()),
            (Read, exchange[5..].to_vec()),
        ];
        let before = facts(&all);
        all.push((Read, finished[..5].to_vec()));
        all.push((Read, finished[5..].to_vec()));
        assert_eq!(facts(&all), before, "{first}");
        // Nothing is known of the connection yet: a call is looked at by itself.
        let alone = facts(&all[2..]);
        assert!(!alone.client_hello && !alone.server_hello, "{first}");
    }
}

/// A chain of certificates may be longer than a record.
#[test]
fn a_message_goes_on_in_other_records() {
    let hello = server_hello(&RANDOM, &[], 0xc030, &[]);
    let chain = message(11, &[9; 1200]);
    let flight = [
        record(22, &hello),
        record(22, &chain[..512]),
        record(22, &chain[512..1024]),
        record(22, &chain[1024..]),
        record(22, &message(12, &[3, 0, 24, 97])),
    ];
    let facts = facts(&[(Read, client_hello(&[], b"a")), (Written, flight.concat())]);
    assert_eq!((facts.group, facts.resumed), (Some(24), Some(false)));
}

/// Some clients cut their ClientHello into short records, so that filters on the way do not find the name.
#[test]
fn a_hello_in_short_records() {
    let hello = &client_hello(&[1; 32], b"short.example")[5..];
    let records: Vec<u8> = hello.chunks(40).flat_map(|part| record(22, part)).collect();
    let whole = facts(&[(Read, records.clone())]);
    assert_eq!(whole.server_name.as_deref(), Some("short.example"));
    let apart: Vec<_> = hello
        .chunks(40)
        .flat_map(|part| {
            let record = record(22, part);
            [(Read, record[..5].to_vec()), (Read, record[5..].to_vec())]
        })
        .collect();
    assert_eq!(facts(&apart).server_name.as_deref(), Some("short.example"));
}

#[test]
fn content_whose_header_was_not_reported() {
    let client = client_hello(&[], b"no.header");
    let facts_of = facts(&[(Read, client[5..].to_vec())]);
    assert_eq!(facts_of.server_name.as_deref(), Some("no.header"));
    // The next record has its header again.
    let server = record(22, &server_hello(&RANDOM, &[], 0x1301, &tls13(23, 65, false)));
    let facts_of = facts(&[(Read, client[5..].to_vec()), (Written, server)]);
    assert_eq!(facts_of.group, Some(23));
}

#[test]
fn a_retry_names_the_group_and_the_second_hello_counts() {
    let retry = server_hello(&RETRY, &[3; 32], 0x1301, &[(43, vec![3, 4]), (51, vec![0, 24])]);
    let second = server_hello(&RANDOM, &[3; 32], 0x1301, &tls13(24, 97, false));
    let mut all = vec![
        (Read, client_hello(&[3; 32], b"retry.example")),
        (Written, [record(22, &retry), record(20, &[1])].concat()),
    ];
    let first = facts(&all);
    assert!(first.retried && !first.server_hello);
    assert_eq!((first.resumed, first.group), (None, Some(24)));
    all.push((
        Read,
        [record(20, &[1]), client_hello(&[3; 32], b"retry.example")].concat(),
    ));
    all.push((Written, [record(22, &second), record(23, &[7; 99])].concat()));
    let last = facts(&all);
    assert!(last.retried && last.server_hello);
    assert_eq!((last.resumed, last.group), (Some(false), Some(24)));
}

/// A server's first flight of TLS 1.2, in messages.
fn tls12(session: &[u8], cipher: u16, more: &[Vec<u8>]) -> Vec<u8> {
    let hello = server_hello(&RANDOM, session, cipher, &[(0xff01, vec![0])]);
    record(22, &[vec![hello], more.to_vec()].concat().concat())
}

#[test]
fn a_full_handshake_of_tls12() {
    let exchange = message(12, &[&[3, 0, 29, 32][..], &[5; 32], &[8, 4, 1, 0], &[6; 256]].concat());
    let messages = [message(11, &[9; 3000]), exchange, message(14, &[])];
    let flight = tls12(&[8; 32], 0xc02f, &messages);
    let finished = [record(20, &[1]), record(22, &[0xaa; 40])].concat();
    let facts = facts(&[
        (Read, client_hello(&[], b"two.example")),
        (Written, flight),
        (Written, [message_record(4, &[1; 200]), finished].concat()),
    ]);
    assert_eq!((facts.version, facts.cipher), (Some(0x0303), Some(0xc02f)));
    assert_eq!((facts.group, facts.resumed), (Some(29), Some(false)));
}

fn message_record(kind: u8, body: &[u8]) -> Vec<u8> {
    record(22, &message(kind, body))
}

#[test]
fn resumed_handshakes_of_tls12() {
    let hello = |session: &[u8]| (Read, client_hello(session, b"a"));
    // Resumption is known by the session that is echoed.
    let echoed = facts(&[hello(&[4; 32]), (Written, tls12(&[4; 32], 0xc02f, &[]))]);
    assert_eq!((echoed.resumed, echoed.group), (Some(true), None));
    // Resumption is known by the next messages.
    let new_ticket = tls12(&[], 0xc02f, &[message(4, &[1; 60])]);
    assert_eq!(facts(&[hello(&[]), (Written, new_ticket)]).resumed, Some(true));
    let change = [tls12(&[], 0xc02f, &[]), record(20, &[1])].concat();
    assert_eq!(facts(&[hello(&[]), (Written, change)]).resumed, Some(true));
    // The client's own change tells nothing, nor does another session.
    let other = facts(&[
        hello(&[4; 32]),
        (Written, tls12(&[5; 32], 0xc02f, &[])),
        (Read, record(20, &[1])),
    ]);
    assert_eq!(other.resumed, None);
    let anonymous = tls12(&[5; 32], 0xc02f, &[message(14, &[])]);
    assert_eq!(facts(&[hello(&[4; 32]), (Written, anonymous)]).resumed, Some(false));
}

#[test]
fn other_key_exchanges_of_tls12_have_no_curve() {
    // The length of a prime of 6144 bits begins with 3.
    let exchange = message(12, &[&[3, 0][..], &[5; 768]].concat());
    let flight = tls12(&[], 0x009e, &[exchange]);
    assert_eq!(facts(&[(Written, flight)]).group, None);
    let hint = message(12, &[0, 2, b'h', b'i', 3, 0, 23, 1, 2]);
    let flight = tls12(&[], 0xcca8 + 4, &[hint]);
    assert_eq!(facts(&[(Written, flight)]).group, Some(23));
}

#[test]
fn alerts_plain_and_encrypted() {
    let alert = |all: &[(Direction, Vec<u8>)]| facts(all).alert.expect("an alert");
    let plain = alert(&[(Read, client_hello(&[], b"a")), (Written, record(21, &[2, 40]))]);
    assert_eq!(plain.name().as_deref(), Some("handshake_failure"));
    assert!(plain.is_fatal() && plain.direction == Written);
    let apart = alert(&[(Read, record(21, &[2, 48])[..5].to_vec()), (Read, vec![2, 48])]);
    assert_eq!(apart.name().as_deref(), Some("unknown_ca"));
    assert_eq!(alert(&[(Read, vec![1, 0])]).name().as_deref(), Some("close_notify"));
    assert!(!alert(&[(Read, vec![1, 0])]).is_fatal());
    for (kind, length) in [(21, 26), (23, 19)] {
        let hidden = alert(&[(Read, record(kind, &vec![0xee; length]))]);
        assert_eq!((hidden.plain, hidden.is_fatal()), (None, true));
    }
    assert_eq!(facts(&[(Read, record(23, &[0xee; 53]))]).alert, None);
}

#[test]
fn a_message_that_is_cut_gives_what_came() {
    let exchange = message(12, &[3, 0, 23, 1, 2]);
    let messages = [message(11, &[9; 5000]), exchange, message(14, &[])];
    let flight = tls12(&[], 0xc02f, &messages);
    // Only the first 4,096 bytes of the call are seen: not the ServerKeyExchange.
    let known = facts(&[(Written, flight)]);
    assert_eq!((known.resumed, known.group), (Some(false), None));
    // The next call begins with a header, so the parser finds its way.
    let mut flights = Flights::default();
    let mut cut = bytes(Read, &client_hello(&[], b"a"), 0, 0);
    cut.bytes.truncate(60);
    flights.take(&cut);
    assert!(flights.facts().client_hello);
    flights.take(&bytes(Read, &record(21, &[2, 10]), 0, 0));
    assert!(flights.facts().alert.is_some());
}

#[test]
fn server_names_are_escaped() {
    let facts = facts(&[(Read, client_hello(&[], b"a\x1b[2Jb\n\xff"))]);
    assert_eq!(facts.server_name.as_deref(), Some("a\\x1b[2Jb\\n\\xff"));
}

#[test]
fn encrypted_messages_are_not_read() {
    let flight = [
        tls12(&[], 0xc02f, &[]),
        record(20, &[1]),
        record(22, &message(11, &[0; 40])),
    ];
    let facts = facts(&[(Read, client_hello(&[], b"a")), (Written, flight.concat())]);
    assert_eq!(facts.resumed, Some(true));
}

/// Reads the output of `strace` on `openssl s_server` and `s_client` 3.0: `<` or `>` for read or written, the number of
/// bytes, and the first 4,096 of them.
fn flights(text: &str) -> Vec<Bytes> {
    let line = |line: &str| {
        let mut fields = line.split(' ');
        let direction = if fields.next()? == "<" { Read } else { Written };
        let length = fields.next()?.parse().ok()?;
        let hex = fields.next()?.as_bytes();
        let digits = hex.chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
        let content: Vec<u8> = digits
            .map(|pair| u8::from_str_radix(pair, 16).expect("digits"))
            .collect();
        let mut event = bytes(direction, &content, 0, 0);
        event.length = length;
        Some(event)
    };
    text.lines().map(|text| line(text).expect("a line")).collect()
}

#[test]
fn flights_of_openssl() {
    macro_rules! both {
        ($name:literal) => {
            [
                (
                    Side::Server,
                    include_str!(concat!("flights/", $name, "-server.txt")),
                ),
                (
                    Side::Client,
                    include_str!(concat!("flights/", $name, "-client.txt")),
                ),
            ]
        };
    }
    let x25519 = Some(29);
    for (both, version, cipher, group, resumed, retried) in [
        (both!("tls12"), 0x0303, 0xc030, x25519, false, false),
        (both!("tls12-resumed"), 0x0303, 0xc030, None, true, false),
        (both!("tls13"), 0x0304, 0x1302, x25519, false, false),
        (both!("tls13-resumed"), 0x0304, 0x1302, x25519, true, false),
        (both!("tls13-retry"), 0x0304, 0x1302, Some(24), false, true),
    ] {
        for (side, text) in both {
            let all = flights(text);
            // Runs the events as they are, and without the headers that are read apart.
            let apart = |event: &&Bytes| event.length != 5;
            for events in [all.clone(), all.iter().filter(apart).cloned().collect()] {
                let mut flights = Flights::default();
                events.iter().for_each(|event| flights.take(event));
                let expected = Facts {
                    side: Some(side),
                    version: Some(version),
                    cipher: Some(cipher),
                    group,
                    resumed: Some(resumed),
                    server_name: Some("trace.example".into()),
                    alert: None,
                    client_hello: true,
                    server_hello: true,
                    retried,
                };
                assert_eq!(*flights.facts(), expected);
            }
        }
    }
    for (side, text) in both!("refused") {
        let mut known = Flights::default();
        flights(text).iter().for_each(|event| known.take(event));
        let alert = known.facts().alert.expect("an alert");
        assert_eq!(alert.name().as_deref(), Some("protocol_version"));
        let direction = if side == Side::Server { Written } else { Read };
        assert_eq!((alert.direction, known.facts().side), (direction, Some(side)));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_taken(
        all in proptest::collection::vec(
            (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..80), 0..100_000u64),
            0..20,
        ),
    ) {
        let mut flights = Flights::default();
        for (read, content, more) in all {
            let direction = if read { Read } else { Written };
            let mut event = bytes(direction, &content, 0, 0);
            event.length += more;
            flights.take(&event);
        }
        let name = flights.facts().server_name.clone().unwrap_or_default();
        prop_assert!(name.is_ascii() && !name.contains(char::is_control));
    }

    /// A real flight, damaged and cut anywhere, in pieces of any size.
    #[test]
    fn damaged_flights_are_taken(
        at in 0..4400usize,
        with in any::<u8>(),
        piece in 1..500usize,
        seen in 1..500usize,
    ) {
        let retry = server_hello(&RETRY, &[3; 32], 0x1301, &tls13(24, 97, false));
        let hello = server_hello(&RANDOM, &[3; 32], 0x1301, &tls13(0x11ec, 1120, true));
        let mut flight = [
            client_hello(&[3; 32], b"damaged.example"),
            record(22, &retry),
            record(20, &[1]),
            record(22, &hello),
            tls12(&[3; 32], 0xc02f, &[message(11, &[1; 99]), message(12, &[3, 0, 23])]),
            record(21, &[2, 40]),
        ]
        .concat();
        if let Some(byte) = flight.get_mut(at) {
            *byte ^= with;
        }
        let mut flights = Flights::default();
        for content in flight.chunks(piece) {
            let mut event = bytes(Read, content, 0, 0);
            event.bytes.truncate(seen);
            flights.take(&event);
            prop_assert!(flights.read.message.len() <= MOST_OF_A_MESSAGE);
        }
        if with == 0 && seen >= piece && piece > 30 {
            prop_assert!(flights.facts().server_hello);
        }
    }
}
