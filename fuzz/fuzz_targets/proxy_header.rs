//! The PROXY header carries names that the client chose. Each must come out of the header as it
//! went in: no name can end its record, start another or change the length of the header.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, SocketAddr};
use widelane_terminator::fuzzing::proxy_header;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    client: (IpAddr, u16),
    server: (IpAddr, u16),
    alpn: Option<&'a [u8]>,
    authority: Option<&'a str>,
    common_name: Option<Option<&'a str>>,
    resumed: bool,
}

fuzz_target!(|input: Input<'_>| {
    // rustls gives no longer names: ALPN has one byte for the length, and DNS ends at 253.
    let alpn = input.alpn.filter(|alpn| alpn.len() <= 255);
    let authority = input.authority.filter(|name| name.len() <= 253);
    let bytes = proxy_header(
        [input.client, input.server].map(SocketAddr::from),
        alpn,
        authority,
        ["TLSv1.3", CIPHER],
        input.common_name,
        input.resumed,
    );

    assert_eq!(bytes[..13], *b"\r\n\r\n\0\r\nQUIT\n\x21");
    let length = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    assert_eq!(bytes.len(), 16 + length);
    let addresses = match bytes[13] {
        0x11 => 12,
        0x21 => 36,
        family => panic!("family {family:#x}"),
    };
    let (_, ports) = bytes[16..16 + addresses].split_at(addresses - 4);
    let port = |port: u16| port.to_be_bytes();
    assert_eq!(ports, [port(input.client.1), port(input.server.1)].concat());

    let mut expected: Vec<(u8, &[u8])> = Vec::new();
    expected.extend(alpn.map(|alpn| (0x01, alpn)));
    expected.extend(authority.map(|name| (0x02, name.as_bytes())));
    let records = records(&bytes[16 + addresses..]);
    let (&(kind, ssl), others) = records.split_last().expect("a record about TLS");
    assert_eq!(others, expected);

    assert_eq!(kind, 0x20);
    let shown = input.common_name.is_some();
    let bits = 1 | u8::from(shown) << 2 | u8::from(shown && !input.resumed) << 1;
    assert_eq!(ssl[0], bits);
    assert_eq!(
        ssl[1..5] == [0; 4],
        shown,
        "verified is what was shown, and nothing else"
    );
    let name = input.common_name.flatten().filter(|name| name.len() <= 256);
    let mut inner = records_of(&ssl[5..], 0x21);
    assert_eq!(inner.pop(), Some(&b"TLSv1.3"[..]));
    assert_eq!(records_of(&ssl[5..], 0x23).len(), 1);
    assert_eq!(
        records_of(&ssl[5..], 0x22),
        name.map(str::as_bytes).into_iter().collect::<Vec<_>>()
    );
});

/// Type-length-value records that fill `bytes` exactly.
fn records(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut records = Vec::new();
    while let [kind, high, low, rest @ ..] = bytes {
        let (value, rest) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        records.push((*kind, value));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "a torn record");
    records
}

fn records_of(bytes: &[u8], wanted: u8) -> Vec<&[u8]> {
    let of_kind = |(kind, value): (u8, _)| (kind == wanted).then_some(value);
    records(bytes).into_iter().filter_map(of_kind).collect()
}

const CIPHER: &str = "TLS_AES_128_GCM_SHA256";
