//! Records after the handshake: their sizes, how the network cuts them, new keys in between, and
//! readers that do not read.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use common::*;
use rustls::ClientConnection;
use widelane_terminator::{Backend, Server};

fn serve(files: &Files, backend: Backend) -> Server {
    start(&simple(files, Kind::Ecdsa, backend))
}

/// All that the client wants to send, as records.
fn take_records(client: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut records).expect("records");
    }
    records
}

#[test]
fn bytes_arrive_however_their_records_are_cut() {
    let files = Files::new();
    let server = serve(&files, echo());
    for wish in [Wish::default(), Wish::tls12()] {
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        stream.sock.set_nodelay(true).expect("no delay");
        for length in [1, 2, 3, 1399, 1400, 16_383, 16_384, 16_385, 50_000] {
            // Records of other sizes than the ones that carry it back.
            let body = pattern(length);
            let mut records = Vec::new();
            for piece in body.chunks(5000) {
                stream.conn.writer().write_all(piece).expect("taken");
                records.extend(take_records(&mut stream.conn));
            }
            // Byte by byte at both ends, where headers and tags are, and in odd pieces between.
            let (head, rest) = records.split_at(30.min(records.len()));
            let (middle, tail) = rest.split_at(rest.len().saturating_sub(30));
            let pieces = (head.chunks(1)).chain(middle.chunks(4999)).chain(tail.chunks(1));
            for piece in pieces {
                stream.sock.write_all(piece).expect("sent");
            }
            let mut back = vec![0; length];
            stream.read_exact(&mut back).expect("echoed");
            assert!(back == body, "{length} bytes");
        }
        assert!(finish(&mut stream).expect("an orderly end").is_empty());
    }
}

#[test]
fn many_records_of_every_small_size_arrive_together() {
    let files = Files::new();
    let server = serve(&files, echo());
    for wish in [Wish::default(), Wish::tls12()] {
        let mut stream = connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS");
        let body = pattern((1..400).sum());
        let (mut records, mut rest) = (Vec::new(), &body[..]);
        for length in 1..400 {
            let (piece, after) = rest.split_at(length);
            stream.conn.writer().write_all(piece).expect("taken");
            records.extend(take_records(&mut stream.conn));
            rest = after;
        }
        stream.sock.write_all(&records).expect("sent");
        let mut back = vec![0; body.len()];
        stream.read_exact(&mut back).expect("echoed");
        assert!(back == body);
        assert!(finish(&mut stream).expect("an orderly end").is_empty());
    }
}

#[test]
fn keys_are_renewed_in_the_middle_of_bodies_both_ways() {
    let files = Files::new();
    let server = serve(&files, echo());
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    let piece = pattern(300_000);
    for _ in 0..8 {
        let (first, second) = piece.split_at(123_456);
        stream.write_all(first).expect("sent");
        // Asks the server for new keys as well, while the echo is on its way.
        stream.conn.refresh_traffic_keys().expect("TLS 1.3");
        stream.write_all(second).expect("sent");
        let mut back = vec![0; piece.len()];
        stream.read_exact(&mut back).expect("echoed");
        assert!(back == piece);
    }
    assert!(finish(&mut stream).expect("an orderly end").is_empty());
}

/// Reads as many application records as bring `body` bytes to `stream`; their lengths on the wire.
fn record_lengths(stream: &mut Tls, body: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut read = 0;
    while read < body {
        let mut record = vec![0; 5];
        stream.sock.read_exact(&mut record).expect("a header");
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + length, 0);
        stream.sock.read_exact(&mut record[5..]).expect("a record");
        let mut rest = &record[..];
        while !rest.is_empty() {
            stream.conn.read_tls(&mut rest).expect("taken");
        }
        let state = stream.conn.process_new_packets().expect("good records");
        let mut plain = vec![0; state.plaintext_bytes_to_read()];
        if !plain.is_empty() {
            stream.conn.reader().read_exact(&mut plain).expect("bytes");
            read += plain.len();
            // Not the tickets.
            lengths.push(record.len());
        }
    }
    lengths
}

#[test]
fn after_a_pause_the_first_records_fit_a_segment_and_the_others_are_large() {
    const BODY: usize = 200_000;
    let files = Files::new();
    let backend = tcp_backend(|mut client| {
        let mut request = [0; 1];
        while client.read_exact(&mut request).is_ok() {
            client.write_all(&pattern(BODY)).expect("sent");
        }
    });
    let server = serve(&files, backend);
    let mut streams = [Wish::default(), Wish::tls12()]
        .map(|wish| connect(server.addresses()[0], "a.example", &wish.config()).expect("TLS"));
    for pause in [false, true] {
        if pause {
            // The rule is one of time.
            sleep(Duration::from_millis(1100));
        }
        for stream in &mut streams {
            stream.write_all(b"?").expect("sent");
            let lengths = record_lengths(stream, BODY);
            let small = lengths.iter().take_while(|length| **length <= 1428).count();
            assert!(small >= 10, "{lengths:?}");
            assert!(lengths.iter().any(|length| *length > 16_000), "{lengths:?}");
        }
    }
}

#[test]
fn a_backend_that_does_not_read_does_not_make_us_hoard() {
    let files = Files::new();
    let released = Arc::new(AtomicBool::new(false));
    let release = released.clone();
    let backend = tcp_backend(move |client| {
        while !release.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(10));
        }
        drop(client);
    });
    let server = serve(&files, backend);
    let mut stream = hello(server.addresses()[0]).expect("TLS");
    let piece = pattern(64 << 10);
    let mut sent = 0;
    stream.sock.set_nonblocking(true).expect("nonblocking");
    let mut stalled = 0;
    // Progress stops once the kernel's buffers are full.
    while stalled < 30 {
        if !stream.conn.wants_write() {
            stream.conn.writer().write_all(&piece).expect("taken");
        }
        match stream.conn.write_tls(&mut stream.sock) {
            Ok(written) => (sent, stalled) = (sent + written, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stalled += 1;
                thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
        // Sockets take tens of megabytes on their own; nothing of ours adds to that.
        assert!(sent < 128 << 20, "{sent} bytes have left the client");
    }
    released.store(true, Ordering::Relaxed);
}
