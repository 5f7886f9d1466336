//! Events for tests.

use std::sync::Arc;

use crate::event::{Bytes, Call, Direction, Event, Reached, Stack};
use crate::functions::{Function, Returns, Role};
use crate::marks::MOST_ARGUMENTS;
use crate::table::Table;

/// A row of the table, with OpenSSL's return values.
pub(crate) fn function(symbol: &str, role: Role) -> Arc<Function> {
    Arc::new(Function {
        library: "openssl".into(),
        symbol: symbol.into(),
        role,
        name: None,
        side: None,
        object: 0,
        output: None,
        size: None,
        returns: Returns::One,
        instead: None,
        state: None,
    })
}

/// A call of process 7, thread 7, that succeeds.
pub(crate) fn call(function: &Arc<Function>, sp: u64, start: u64, wall: u64) -> Call {
    Call {
        function: function.clone(),
        pid: 7,
        tid: 7,
        comm: *b"nginx\0\0\0\0\0\0\0\0\0\0\0",
        stack: Stack::Pointer(sp),
        start,
        wall,
        cpu: Some(wall / 2),
        result: 1,
        object: 0x1000,
        size: None,
        still: None,
        data: Vec::new(),
    }
}

/// One of our own static probes, reached by the same thread.
pub(crate) fn reached(name: &str, time: u64, arguments: &[u64]) -> Reached {
    let table = Table::builtin();
    let mark = table.mark(b"widelane", name.as_bytes());
    let mut known = [None; MOST_ARGUMENTS];
    for (to, value) in known.iter_mut().zip(arguments) {
        *to = Some(*value);
    }
    Reached {
        mark: Arc::clone(mark.expect("a row of the table")),
        pid: 7,
        tid: 7,
        comm: *b"widelane\0\0\0\0\0\0\0\0",
        time,
        arguments: known,
    }
}

/// Bytes of the same thread.
pub(crate) fn bytes(direction: Direction, bytes: &[u8], sp: u64, time: u64) -> Bytes {
    Bytes {
        pid: 7,
        tid: 7,
        time,
        stack: Stack::Pointer(sp),
        descriptor: 3,
        direction,
        length: bytes.len() as u64,
        bytes: bytes.get(..bytes.len().min(4096)).unwrap_or_default().to_vec(),
    }
}

impl From<Call> for Event {
    fn from(call: Call) -> Self {
        Self::Call(call)
    }
}

impl From<Bytes> for Event {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// A record of TLS.
pub(crate) fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("a record's length");
    [&[kind, 3, 3][..], &length.to_be_bytes(), content].concat()
}

/// A handshake message.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a message's length");
    let length = length.to_be_bytes();
    [&[kind][..], &length[1..], body].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("an extension's length");
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), content].concat()
}

fn extensions(all: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let all: Vec<u8> = all
        .iter()
        .flat_map(|(kind, content)| extension(*kind, content))
        .collect();
    let length = u16::try_from(all.len()).expect("a length of extensions");
    [&length.to_be_bytes()[..], &all].concat()
}

/// The record of a ClientHello.
pub(crate) fn client_hello(session: &[u8], name: &[u8]) -> Vec<u8> {
    let length = |of: usize| u16::try_from(of).expect("a length").to_be_bytes();
    let server_name = [&length(name.len() + 3)[..], &[0], &length(name.len()), name].concat();
    let body = [
        &[3, 3][..],
        &[0x55; 32],
        &[u8::try_from(session.len()).expect("a session's length")],
        session,
        &[0, 4, 0x13, 0x01, 0xc0, 0x2f],
        &[1, 0],
        &extensions(&[(51, vec![7; 1300]), (0, server_name)]),
    ]
    .concat();
    record(22, &message(1, &body))
}

/// The message of a ServerHello.
pub(crate) fn server_hello(random: &[u8; 32], session: &[u8], cipher: u16, more: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        random,
        &[u8::try_from(session.len()).expect("a session's length")],
        session,
        &cipher.to_be_bytes(),
        &[0],
        &extensions(more),
    ]
    .concat();
    message(2, &body)
}

/// Extensions of a ServerHello of TLS 1.3 with a key share of `share` bytes.
pub(crate) fn tls13(group: u16, share: usize, preshared: bool) -> Vec<(u16, Vec<u8>)> {
    let length = u16::try_from(share).expect("a share's length");
    let share = [&group.to_be_bytes()[..], &length.to_be_bytes(), &vec![9; share]].concat();
    let mut all = vec![(43, vec![3, 4]), (51, share)];
    if preshared {
        all.push((41, vec![0, 0]));
    }
    all
}
