use super::*;
use crate::event::{Bytes, Direction, Stack};
use crate::functions::{Function, Returns};
use crate::specimens::{bytes, call, client_hello, function, record, server_hello, tls13};
use Direction::{Read, Written};
use std::sync::Arc;

const TOP: u64 = 0x7fff_0000_0000;
const MS: u64 = 1_000_000;

/// The functions of OpenSSL.
struct Ssl {
    accept: Arc<Function>,
    handshake: Arc<Function>,
    error: Arc<Function>,
    free: Arc<Function>,
    sign: Arc<Function>,
    derive: Arc<Function>,
}

fn ssl() -> Ssl {
    let mut accept = (*function("SSL_accept", Role::Handshake)).clone();
    accept.side = Some(Side::Server);
    Ssl {
        accept: Arc::new(accept),
        handshake: function("SSL_do_handshake", Role::Handshake),
        error: function("SSL_get_error", Role::Error),
        free: function("SSL_free", Role::Free),
        sign: function("EVP_DigestSign", Role::Sign),
        derive: function("EVP_PKEY_derive", Role::Derive),
    }
}

fn handshakes() -> Handshakes {
    Handshakes::new(Clock::at(0, 1_700_000_000_000_000_000))
}

/// All handshakes of these events, also those that are complete at the end.
fn run(events: impl IntoIterator<Item = Event>) -> Vec<Handshake> {
    let mut handshakes = handshakes();
    let mut ended: Vec<Handshake> = Vec::new();
    for event in events {
        ended.extend(handshakes.take(&event));
    }
    ended.extend(handshakes.finish());
    ended
}

fn failing(mut call: Call) -> Call {
    // Leaves -1 in a register of 64 bits, as an `int` does.
    call.result = -1;
    call
}

fn error(ssl: &Ssl, code: i64, time: u64) -> Call {
    let mut call = call(&ssl.error, TOP, time, 100);
    call.result = code;
    call
}

fn sized(mut call: Call, size: u64) -> Call {
    call.size = Some(size);
    call
}

fn hello13() -> Vec<u8> {
    record(22, &server_hello(&[1; 32], &[], 0x1301, &tls13(29, 32, false)))
}

/// A server's handshake of TLS 1.3 on a stack and an object, from a time: two calls.
fn server(ssl: &Ssl, sp: u64, object: u64, from: u64) -> Vec<(u64, Event)> {
    let mut first = failing(call(&ssl.handshake, sp, from, 2 * MS));
    let mut second = call(&ssl.handshake, sp, from + 10 * MS, MS);
    let mut why = error(ssl, 2, from + 2 * MS + 100);
    (first.object, second.object, why.object) = (object, object, object);
    let sign = sized(call(&ssl.sign, sp - 0x800, from + 1000, 900_000), 256);
    let derive = sized(call(&ssl.derive, sp - 0x900, from + 950_000, 30_000), 32);
    vec![
        (
            from + 500,
            bytes(Read, &client_hello(&[], b"a.example"), sp - 0x400, from + 500).into(),
        ),
        (from + 901_000, sign.into()),
        (from + 980_000, derive.into()),
        (
            from + 990_000,
            bytes(Written, &hello13(), sp - 0x300, from + 990_000).into(),
        ),
        (from + 2 * MS, first.into()),
        (from + 2 * MS + 200, why.into()),
        (from + 11 * MS, second.into()),
    ]
}

fn in_order(mut events: Vec<(u64, Event)>) -> Vec<Event> {
    events.sort_by_key(|(time, _)| *time);
    events.into_iter().map(|(_, event)| event).collect()
}

/// Python's asyncio and Node.js read and write by themselves, for many connections in turns.
#[test]
fn bytes_that_the_program_moves_belong_to_the_call_after_them() {
    let ssl = ssl();
    let moved = |direction, content: &[u8], socket, time| {
        // The functions of the system are not deeper than the library's.
        let mut bytes = bytes(direction, content, TOP, time);
        bytes.descriptor = socket;
        Event::from(bytes)
    };
    let go_on = |object, result, time| {
        let mut call = call(&ssl.handshake, TOP, time, MS);
        (call.object, call.result) = (object, result);
        Event::from(call)
    };
    let why = |object, time| {
        let mut why = error(&ssl, 2, time);
        why.object = object;
        Event::from(why)
    };
    let hello = |name: &[u8]| client_hello(&[], name);
    let answer = |group, cipher| record(22, &server_hello(&[1; 32], &[], cipher, &tls13(group, 32, false)));
    let all = run([
        // Bytes of another connection, which had the descriptor before.
        moved(Read, &hello(b"old.example"), 5, MS),
        moved(Read, &hello(b"a.example"), 5, 2 * MS),
        go_on(0xa, -1, 3 * MS),
        why(0xa, 4 * MS + 100),
        moved(Written, &answer(29, 0x1301), 5, 5 * MS),
        moved(Read, &hello(b"b.example"), 6, 6 * MS),
        go_on(0xb, -1, 7 * MS),
        why(0xb, 8 * MS + 100),
        moved(Written, &answer(23, 0x1302), 6, 9 * MS),
        // A server may call before it has read anything: what was moved last is not its own.
        go_on(0xd, -1, 10 * MS),
        why(0xd, 11 * MS + 100),
        moved(Read, &hello(b"d.example"), 8, 12 * MS),
        go_on(0xd, -1, 13 * MS),
        why(0xd, 14 * MS + 100),
        moved(Written, &answer(29, 0x1302), 8, 15 * MS),
        go_on(0xa, 1, 20 * MS),
        go_on(0xb, 1, 22 * MS),
        go_on(0xd, 1, 24 * MS),
        // A client shows its socket at the second call.
        go_on(0xc, -1, 30 * MS),
        why(0xc, 31 * MS + 100),
        moved(Written, &hello(b"c.example"), 7, 32 * MS),
        moved(Read, &answer(24, 0x1303), 7, 33 * MS),
        go_on(0xc, 1, 34 * MS),
    ]);
    let facts: Vec<_> = (all.iter())
        .map(|one| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            (one.side, text(&one.server_name), text(&one.group), text(&one.cipher))
        })
        .collect();
    let fact = |side, name: &str, group: &str, cipher: &str| {
        (Some(side), name.to_owned(), group.to_owned(), cipher.to_owned())
    };
    assert_eq!(
        facts,
        [
            fact(Side::Server, "a.example", "x25519", "TLS_AES_128_GCM_SHA256"),
            fact(Side::Server, "b.example", "secp256r1", "TLS_AES_256_GCM_SHA384"),
            fact(Side::Server, "d.example", "x25519", "TLS_AES_256_GCM_SHA384"),
            fact(Side::Client, "c.example", "secp384r1", "TLS_CHACHA20_POLY1305_SHA256"),
        ]
    );
    assert!(all.iter().all(|one| one.result == Ending::Ok));
}

/// Node.js writes its last flight of TLS 1.2 in a function that the library calls when the handshake is done.
#[test]
fn a_program_that_moves_the_bytes_may_do_so_inside_a_call_too() {
    let ssl = ssl();
    let moved = |direction, content: &[u8], depth, time| {
        let mut bytes = bytes(direction, content, TOP - depth, time);
        bytes.descriptor = 5;
        Event::from(bytes)
    };
    let go_on = |result, time| {
        let mut call = call(&ssl.handshake, TOP, time, MS);
        call.result = result;
        Event::from(call)
    };
    let answer = record(22, &server_hello(&[1; 32], &[], 0x1301, &tls13(29, 32, false)));
    let all = run([
        moved(Read, &client_hello(&[], b"a.example"), 0, MS),
        go_on(-1, 2 * MS),
        error(&ssl, 2, 3 * MS + 100).into(),
        moved(Written, &answer, 0, 4 * MS),
        moved(Written, &record(22, &[4; 100]), 0x100, 6 * MS + 500),
        go_on(1, 6 * MS),
    ]);
    let [one] = &all[..] else {
        panic!("one handshake, not {all:?}");
    };
    assert_eq!(one.group.as_deref(), Some("x25519"));
    assert_eq!(one.server_name.as_deref(), Some("a.example"));
}

/// Bytes that no call has read are not those of a connection that reads inside its calls.
#[test]
fn bytes_of_others_are_not_taken_by_who_reads_inside() {
    let ssl = ssl();
    let mut events = server(&ssl, TOP, 0x1000, 5 * MS);
    let mut passed_on = bytes(Read, &client_hello(&[], b"other.example"), TOP, 14 * MS);
    passed_on.descriptor = 9;
    events.push((14 * MS, passed_on.into()));
    let all = run(in_order(events));
    let [one] = &all[..] else {
        panic!("one handshake, not {all:?}");
    };
    assert_eq!(one.server_name.as_deref(), Some("a.example"));
}

#[test]
fn a_handshake_of_two_calls() {
    let ssl = ssl();
    let all = run(in_order(server(&ssl, TOP, 0x1000, 5 * MS)));
    let [one] = &all[..] else {
        panic!("one handshake, not {all:?}");
    };
    assert_eq!((one.time, one.time_s), (5 * MS, 1_700_000_000.005));
    assert_eq!((one.pid, one.tid, one.comm.as_str()), (7, 7, "nginx"));
    assert_eq!((one.side, one.result), (Some(Side::Server), Ending::Ok));
    assert_eq!(one.version.as_deref(), Some("TLSv1.3"));
    assert_eq!(one.cipher.as_deref(), Some("TLS_AES_128_GCM_SHA256"));
    assert_eq!(one.group.as_deref(), Some("x25519"));
    assert_eq!(one.server_name.as_deref(), Some("a.example"));
    assert_eq!((one.resumed, one.alert.clone()), (Some(false), None));
    assert_eq!((one.calls, one.again), (2, 1));
    assert_eq!(
        (one.wall, one.cpu, one.waiting.unwrap()),
        (11 * MS, Some(3 * MS / 2), 8 * MS)
    );
    let functions: Vec<_> = one.functions.iter().map(|f| (&*f.name, f.count, f.ns)).collect();
    assert_eq!(functions, [("rsa-2048 sign", 1, 900_000), ("x25519 derive", 1, 30_000)]);
}

#[test]
fn coroutines_of_one_thread_do_not_mix() {
    let ssl = ssl();
    // Each is suspended while the other runs: their times cross. The stacks are 64 KiB apart.
    let mut events = server(&ssl, TOP, 0x1000, 5 * MS);
    events.extend(server(&ssl, TOP - 0x1_0000, 0x2000, 5 * MS + 700_000));
    let all = run(in_order(events));
    assert_eq!(all.len(), 2);
    for one in all {
        let functions: Vec<_> = one.functions.iter().map(|f| (&*f.name, f.count)).collect();
        let expected = [("rsa-2048 sign", 1), ("x25519 derive", 1)];
        assert_eq!(functions, expected, "{one:?}");
        assert_eq!((one.calls, one.again), (2, 1));
    }
}

#[test]
fn the_outer_of_two_calls_on_an_object_counts() {
    let ssl = ssl();
    let inner = call(&ssl.handshake, TOP - 0x100, 1_010, 2 * MS);
    let outer = call(&ssl.accept, TOP, 1_000, 2 * MS + 30);
    let sign = sized(call(&ssl.sign, TOP - 0x900, 2_000, 500), 71);
    let all = run([sign.into(), inner.into(), outer.into()]);
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].calls, all[0].wall, all[0].side),
        (1, 2 * MS + 30, Some(Side::Server))
    );
    assert_eq!(all[0].functions[0].name, "ecdsa-p256 sign");
    // Also if it must be called again, and the program does not ask why.
    let step = |start| {
        let inner = failing(call(&ssl.handshake, TOP - 0x100, start + 10, MS));
        let outer = failing(call(&ssl.accept, TOP, start, MS + 20));
        [Event::from(inner), outer.into()]
    };
    let last = call(&ssl.accept, TOP, 9 * MS, MS);
    let all = run(step(0).into_iter().chain(step(4 * MS)).chain([last.into()]));
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].calls, all[0].again, all[0].result), (3, 2, Ending::Ok));
    assert_eq!(all[0].waiting, Some(10 * MS - (3 * MS + 40)));
}

#[test]
fn functions_that_call_each_other_count_once() {
    let ssl = ssl();
    let sign = |depth: u64, start: u64, wall: u64| Event::from(sized(call(&ssl.sign, TOP - depth, start, wall), 384));
    let events = [
        sign(0x900, 1_020, 100),
        sign(0x800, 1_010, 130),
        sign(0x700, 1_000, 150),
        sign(0x700, 3_000, 150),
        call(&ssl.handshake, TOP, 500, MS).into(),
    ];
    let all = run(events);
    let expected = Operations {
        name: "rsa-3072 sign".into(),
        role: Role::Sign,
        count: 2,
        ns: 300,
        innermost_ns: 125,
    };
    assert_eq!(all[0].functions, [expected]);
}

#[test]
fn a_pointer_that_is_null_is_no_operation() {
    let ssl = ssl();
    let mut pair = (*function("PK11_GenerateKeyPairWithOpFlags", Role::Generate)).clone();
    pair.returns = Returns::Pointer;
    let pair = Arc::new(pair);
    let tried = |start: u64, result: i64| {
        let mut call = call(&pair, TOP - 0x100, start, 100);
        call.result = result;
        Event::from(call)
    };
    let whole = Event::from(call(&ssl.handshake, TOP, 1_000, MS));
    let all = run([tried(1_100, 0), tried(1_300, 0), tried(1_500, 0x7f00_0000_0000), whole]);
    assert_eq!(all[0].functions.len(), 1, "{all:?}");
    assert_eq!((all[0].functions[0].count, all[0].functions[0].ns), (1, 100));
}

#[test]
fn a_goroutine_moves_and_its_functions_count() {
    let ssl = ssl();
    let on = |mut call: Call, tid: u32| {
        call.stack = Stack::Goroutine(0xc000);
        call.tid = tid;
        Event::from(call)
    };
    let all = run([
        on(sized(call(&ssl.sign, 0, 2_000, 100), 64), 8),
        on(sized(call(&ssl.sign, 0, 1_900, 300), 64), 9),
        on(call(&ssl.handshake, 0, 1_000, MS), 9),
    ]);
    assert_eq!((all[0].functions[0].count, all[0].functions[0].ns), (1, 300));
    assert_eq!(all[0].functions[0].name, "ed25519 sign");
}

#[test]
fn errors_explain_failures() {
    let ssl = ssl();
    for (code, result) in [(1, Ending::Alert), (5, Ending::Closed), (6, Ending::Closed)] {
        let call = failing(call(&ssl.handshake, TOP, 0, MS));
        let all = run([call.into(), error(&ssl, code, MS + 5).into()]);
        assert_eq!((all.len(), all[0].result, all[0].again), (1, result, 0));
    }
    for code in [2, 3, 4, 7, 8, 9, 10, 11, 12] {
        let call = failing(call(&ssl.handshake, TOP, 0, MS));
        assert!(run([call.into(), error(&ssl, code, MS + 5).into()]).is_empty());
    }
    // A peer that leaves is no error of the protocol, though OpenSSL says the same.
    let end: Event = bytes(Read, &[], TOP - 0x100, 500).into();
    let failed = failing(call(&ssl.handshake, TOP, 0, MS));
    let all = run([end, failed.into(), error(&ssl, 1, MS + 5).into()]);
    assert_eq!(all[0].result, Ending::Closed);
}

#[test]
fn alerts_have_names() {
    let ssl = ssl();
    let alert: Event = bytes(Written, &record(21, &[2, 40]), TOP - 0x100, 500).into();
    let failed = failing(call(&ssl.handshake, TOP, 0, MS));
    let all = run([alert, failed.into(), call(&ssl.free, TOP, 2 * MS, 10).into()]);
    assert_eq!(
        (all[0].result, all[0].alert.as_deref()),
        (Ending::Alert, Some("handshake_failure"))
    );
}

/// OpenSSL 3 sends `decode_error` to a client that closed the connection without a word.
#[test]
fn an_alert_to_a_peer_that_has_gone_is_no_reason() {
    let ssl = ssl();
    let gone: Event = bytes(Read, &[], TOP - 0x100, 400).into();
    let alert: Event = bytes(Written, &record(21, &[2, 50]), TOP - 0x100, 500).into();
    let ends = [
        failing(call(&ssl.handshake, TOP, 0, MS)).into(),
        call(&ssl.free, TOP, 2 * MS, 10).into(),
    ];
    let result = |first: &Event, second: &Event| {
        let before = [first.clone(), second.clone()];
        let all = run(before.into_iter().chain(ends.clone()));
        (all[0].result, all[0].alert.clone())
    };
    assert_eq!(result(&gone, &alert), (Ending::Closed, None));
    let reason = Some("decode_error".to_owned());
    let alert_first = bytes(Written, &record(21, &[2, 50]), TOP - 0x100, 300);
    assert_eq!(result(&alert_first.into(), &gone), (Ending::Alert, reason.clone()));
    // The end of a file is not that of the connection.
    let mut file = bytes(Read, &[], TOP - 0x100, 400);
    file.descriptor = 9;
    assert_eq!(result(&file.into(), &alert), (Ending::Alert, reason));
}

#[test]
fn objects_that_are_freed_and_processes_that_end_close_handshakes() {
    let ssl = ssl();
    let waits = |start| Event::from(failing(call(&ssl.handshake, TOP, start, MS)));
    let free: Event = call(&ssl.free, TOP, 5 * MS, 10).into();
    for last in [free.clone(), Event::Exit { pid: 7 }] {
        for why in [None, Some(Event::from(error(&ssl, 2, MS + 5)))] {
            let events = [waits(0)].into_iter().chain(why).chain([last.clone()]);
            let all = run(events);
            assert_eq!((all.len(), all[0].result, all[0].calls), (1, Ending::Closed, 1));
        }
    }
    // After the end, both tell nothing.
    let done: Event = call(&ssl.handshake, TOP, 0, MS).into();
    assert_eq!(run([done, free, Event::Exit { pid: 7 }]).len(), 1);
    assert!(run([waits(0), Event::Exit { pid: 8 }]).is_empty());
}

#[test]
fn an_address_belongs_to_the_next_connection_after_free() {
    let ssl = ssl();
    let mut events = server(&ssl, TOP, 0x1000, 0);
    let mut free = call(&ssl.free, TOP, 20 * MS, 10);
    free.object = 0x1000;
    events.push((20 * MS, free.into()));
    events.extend(server(&ssl, TOP, 0x1000, 30 * MS));
    let all = run(in_order(events));
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|one| one.result == Ending::Ok && one.calls == 2));
}

#[test]
fn without_free_a_hello_begins_the_next_and_other_calls_do_not() {
    let ssl = ssl();
    let mut events = server(&ssl, TOP, 0x1000, 0);
    for time in [100, 101, 102] {
        events.push((time * MS, call(&ssl.handshake, TOP, time * MS, 300).into()));
    }
    assert_eq!(run(in_order(events.clone())).len(), 1);
    events.extend(server(&ssl, TOP, 0x1000, 200 * MS));
    assert_eq!(run(in_order(events)).len(), 2);
    // In the middle of a handshake that was answered.
    let mut events = server(&ssl, TOP, 0x1000, 0);
    events.pop();
    events.extend(server(&ssl, TOP, 0x1000, 200 * MS));
    let all = run(in_order(events));
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].result, all[1].result), (Ending::Closed, Ending::Ok));
    assert_eq!((all[0].calls, all[1].calls), (1, 2));
}

#[test]
fn a_call_on_a_connection_from_before_the_trace_is_no_handshake() {
    let ssl = ssl();
    assert!(run([call(&ssl.handshake, TOP, 0, 400).into()]).is_empty());
}

#[test]
fn gnutls_reports_ends_by_itself() {
    let mut row = (*function("gnutls_handshake", Role::Handshake)).clone();
    row.returns = Returns::Zero;
    row.library = "gnutls".into();
    let row = Arc::new(row);
    let step = |start, result: i32| {
        let mut call = call(&row, TOP, start, MS);
        call.result = i64::from(result);
        Event::from(call)
    };
    let all = run([step(0, -28), step(2 * MS, -52), step(4 * MS, 0)]);
    assert_eq!((all[0].again, all[0].calls, all[0].result), (2, 3, Ending::Ok));
    assert_eq!(run([step(0, -12)])[0].result, Ending::Alert);
    assert_eq!(run([step(0, -110)])[0].result, Ending::Closed);
}

#[test]
fn lost_children_leave_fields_unknown() {
    let ssl = ssl();
    let events = server(&ssl, TOP, 0x1000, 0);
    let calls = in_order(events)
        .into_iter()
        .filter(|event| matches!(event, Event::Call(call) if call.function.role == Role::Handshake));
    let all = run(calls);
    assert_eq!((all.len(), all[0].result), (1, Ending::Ok));
    let json: serde_json::Value = serde_json::from_str(&all[0].json()).expect("JSON");
    for key in ["side", "version", "cipher", "group", "resumed", "server_name", "alert"] {
        assert!(json[key].is_null(), "{key}: {json}");
    }
    assert_eq!(json["functions"], serde_json::json!([]));
}

#[test]
fn a_handshake_is_reported_when_it_has_settled() {
    let ssl = ssl();
    let mut handshakes = handshakes();
    assert!(handshakes.take(&call(&ssl.handshake, TOP, 0, MS).into()).is_empty());
    assert!(handshakes.settle(MS + SETTLED - 1).is_empty());
    assert_eq!(handshakes.settle(MS + SETTLED).len(), 1);
    assert!(handshakes.settle(u64::MAX).is_empty());
}

#[test]
fn the_connections_used_longest_ago_are_forgotten() {
    let ssl = ssl();
    let mut handshakes = handshakes();
    handshakes.connections.most = 3;
    for object in 0..5 {
        let mut call = failing(call(&ssl.handshake, TOP, object * MS, 500));
        call.object = object;
        assert!(handshakes.take(&call.into()).is_empty());
    }
    assert_eq!(
        handshakes.lost(),
        Lost {
            connections: 2,
            children: 0
        }
    );
    assert_eq!(handshakes.connections.len(), 3);
    assert_eq!(handshakes.take(&Event::Exit { pid: 7 }).len(), 3);
    assert!(handshakes.connections.len() == 0);
}

/// Each at an address of its own, which is freed: what is kept does not grow with their number.
#[test]
fn nothing_is_kept_of_connections_that_are_gone() {
    let ssl = ssl();
    let mut handshakes = handshakes();
    let mut count = 0;
    for number in 0..5000 {
        let (object, from) = (0x1000 + number * 0x100, number * 20 * MS);
        let mut free = call(&ssl.free, TOP, from + 12 * MS, 0);
        free.object = object;
        let mut events = server(&ssl, TOP, object, from);
        events.push((from + 12 * MS, free.into()));
        for event in in_order(events) {
            count += handshakes.take(&event).len();
        }
        assert!(handshakes.connections.len() == 0);
        // Calls that may still be inside another are looked at for 50 ms.
        assert!(handshakes.settling.len() <= 4, "{number}");
    }
    assert_eq!(count, 5000);
    assert_eq!(handshakes.lost(), Lost::default());
}

#[test]
fn lines_cannot_steer_a_terminal() {
    let ssl = ssl();
    let mut one = call(&ssl.handshake, TOP, 0, MS);
    one.comm = *b"\x1b[2J\nroot\x07\xc2\x9b\xff\0\0\0";
    let hello: Event = bytes(Read, &client_hello(&[], b"\x1b]0;x\x07"), TOP - 8, 5).into();
    let all = run([hello, one.into()]);
    let text = all[0].text();
    assert!(
        text.ends_with('\n') && !text.trim_end().contains(char::is_control),
        "{text:?}"
    );
    let json = all[0].json();
    assert!(
        json.ends_with('\n') && !json.trim_end().contains(char::is_control),
        "{json:?}"
    );
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["comm"], "\x1b[2J\nroot\x07\u{9b}\u{fffd}");
    assert_eq!(value["server_name"], "\\x1b]0;x\\x07");
}

#[test]
fn the_line_for_programs_has_these_keys() {
    let all = run(in_order(server(&ssl(), TOP, 0x1000, 0)));
    let value: serde_json::Value = serde_json::from_str(&all[0].json()).expect("JSON");
    let expected = serde_json::json!({
        "time_s": 1.7e9, "pid": 7, "tid": 7, "comm": "nginx", "library": "openssl",
        "side": "server", "version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256",
        "group": "x25519", "resumed": false, "server_name": "a.example", "result": "ok",
        "alert": null, "wall_us": 11000.0, "cpu_us": 1500.0, "waiting_us": 8000.0,
        "calls": 2, "again": 1,
        "functions": [
            { "name": "rsa-2048 sign", "count": 1, "us": 900.0 },
            { "name": "x25519 derive", "count": 1, "us": 30.0 },
        ],
    });
    assert_eq!(value, expected);
    let columns = |line: &str| line.find("nginx").or(line.find("COMMAND"));
    assert_eq!(columns(&all[0].text()), columns(&Handshake::header()));
}

proptest::proptest! {
    /// Any order of any events ends, and each handshake has at least one call.
    #[test]
    fn any_events_are_taken(
        all in proptest::collection::vec((0..8usize, 0..4u64, 0..200u64, 0..100u64, -2..14i64), 0..80),
    ) {
        let ssl = ssl();
        let rows = [&ssl.accept, &ssl.handshake, &ssl.error, &ssl.free, &ssl.sign, &ssl.derive];
        let mut taken = handshakes();
        let mut ended = Vec::new();
        for (kind, object, start, wall, result) in all {
            let event: Event = match rows.get(kind) {
                Some(row) => {
                    let mut call = call(row, TOP - start, start * 1000, wall * 1000);
                    (call.object, call.result) = (object, result);
                    call.into()
                }
                None if kind == 6 => Bytes { bytes: hello13(), ..bytes(Read, &[], TOP - wall, start) }.into(),
                None => Event::Exit { pid: 7 },
            };
            ended.extend(taken.take(&event));
        }
        ended.extend(taken.finish());
        for one in ended {
            proptest::prop_assert!(one.calls > 0 && one.again <= one.calls);
            proptest::prop_assert!(one.waiting.unwrap() <= one.wall);
        }
    }
}

/// A read with which a handshake goes on: of the connection `object`, from a time.
fn read_inside(object: u64, from: u64, result: i64, still: bool) -> Call {
    let mut row = (*function("SSL_read", Role::Read)).clone();
    row.returns = Returns::Any;
    let mut read = call(&Arc::new(row), TOP, from, 2 * MS);
    (read.object, read.result, read.still) = (object, result, Some(still));
    read
}

/// lighttpd: the read after the client's last message has nothing to give to the program yet.
#[test]
fn a_read_that_ends_the_handshake_ends_it_whatever_it_returns() {
    let ssl = ssl();
    let hello = bytes(Read, &client_hello(&[], b"a.example"), TOP - 0x400, 500);
    let answer = bytes(Written, &hello13(), TOP - 0x300, MS);
    let events = |second: Call| -> Vec<Event> {
        let time = second.start + second.wall;
        vec![
            hello.clone().into(),
            answer.clone().into(),
            read_inside(0x1000, 0, 0xffff_ffff, true).into(),
            error(&ssl, 2, 2 * MS + 100).into(),
            second.into(),
            error(&ssl, 2, time + 100).into(),
        ]
    };
    for result in [0xffff_ffff, 0, 100] {
        let all = run(events(read_inside(0x1000, 10 * MS, result, false)));
        let [one] = &all[..] else {
            panic!("one handshake, not {all:?}");
        };
        assert_eq!((one.result, one.side), (Ending::Ok, Some(Side::Server)));
        assert_eq!((one.calls, one.again, one.wall), (2, 1, 12 * MS));
        assert_eq!(one.version.as_deref(), Some("TLSv1.3"));
    }
    // Bytes of the client after the handshake: an encrypted alert of TLS 1.2.
    let mut all = events(read_inside(0x1000, 10 * MS, 0, false));
    let farewell = bytes(Read, &record(21, &[7; 26]), TOP - 0x400, 11 * MS);
    all.insert(4, farewell.into());
    assert_eq!(run(all)[0].alert, None);
    // Not done, and the program does not read on: nothing has ended. Early data are no end either.
    for result in [0xffff_ffff, 100] {
        assert_eq!(run(events(read_inside(0x1000, 10 * MS, result, true))), []);
    }
}

#[test]
fn reads_outside_of_handshakes_are_none() {
    let mut read = read_inside(0x1000, 0, 100, false);
    read.still = None;
    assert_eq!(run([read.into()]), []);
}
