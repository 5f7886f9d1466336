//! Reads the header of the PROXY protocol, version 1 or 2, in which a trusted proxy says whose connection it is.
//!
//! The crate `ppp` knows the format ("The PROXY protocol", W. Tarreau). This module decides what is
//! taken: where a header ends, what is refused, and whose addresses count.

use std::net::SocketAddr;

use ppp::{PartialResult, v1, v2};

/// A header that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyHeader {
    /// Length in bytes. The client's own bytes follow.
    pub(crate) length: usize,
    /// The client, and the address that it has connected to. `None`: the proxy speaks for itself
    /// (health checks) or does not know.
    pub(crate) ends: Option<[SocketAddr; 2]>,
}

/// These bytes are no header, whatever follows them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(String);

/// Reads a header. `None`: there is more to come.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let begins = |word: &[u8]| bytes.starts_with(word) || word.starts_with(bytes);
    match () {
        () if begins(WORD_OF_VERSION_1) => parse_line(bytes),
        () if begins(v2::PROTOCOL_PREFIX) => parse_binary(bytes),
        () => Err(Malformed("it begins with other bytes".into())),
    }
}

/// Version 1. `ppp` takes some parts of a line for whole and bad ones, so it gets whole lines only.
fn parse_line(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let first = &bytes[..bytes.len().min(LONGEST_LINE)];
    let Some(end) = first.windows(2).position(|both| both == b"\r\n") else {
        return match bytes.len() >= LONGEST_LINE {
            true => Err(Malformed("the line has no end".into())),
            false => Ok(None),
        };
    };
    let line = &bytes[..end + 2];
    if [UNKNOWN_AND_MORE, UNKNOWN_ALONE]
        .iter()
        .any(|word| line.starts_with(word))
    {
        // Whatever stands there up to the end of the line is ignored (section 2.1), and `ppp` would want addresses.
        let length = line.len();
        return Ok(Some(ProxyHeader { length, ends: None }));
    }
    // Digits without zeros before them (section 2.1); `ppp` also takes a sign.
    let is_number = |word: &[u8]| word.iter().all(u8::is_ascii_digit) && (word.len() == 1 || !word.starts_with(b"0"));
    let words = line[..end].rsplit(|byte| *byte == b' ');
    if !words.take(2).all(is_number) {
        return Err(Malformed("its ports are no numbers".into()));
    }
    let header = v1::Header::try_from(line).map_err(|error| Malformed(error.to_string()))?;
    if header.header.len() != line.len() {
        return Err(Malformed("the line has more than addresses".into()));
    }
    let ends = match header.addresses {
        v1::Addresses::Unknown => None,
        v1::Addresses::Tcp4(ends) => Some([
            (ends.source_address, ends.source_port).into(),
            (ends.destination_address, ends.destination_port).into(),
        ]),
        v1::Addresses::Tcp6(ends) => Some([
            (ends.source_address, ends.source_port).into(),
            (ends.destination_address, ends.destination_port).into(),
        ]),
    };
    Ok(Some(ProxyHeader {
        length: line.len(),
        ends,
    }))
}

fn parse_binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let Some((fixed, rest)) = bytes.split_at_checked(FIXED) else {
        return Ok(None);
    };
    let length = FIXED + usize::from(u16::from_be_bytes([fixed[FIXED - 2], fixed[FIXED - 1]]));
    if length > LONGEST {
        return Err(Malformed("it is too long".into()));
    }
    let is_whole = rest.len() >= length - FIXED;
    if fixed[FIXED - 4] == VERSION_2_LOCAL {
        // What follows has no meaning then, and `ppp` would want addresses of the family.
        return Ok(is_whole.then_some(ProxyHeader { length, ends: None }));
    }
    let header = v2::Header::try_from(bytes);
    if header.is_incomplete() {
        return Ok(None);
    }
    let header = header.map_err(|error| Malformed(error.to_string()))?;
    let ends = proxied(&header)?;
    Ok(Some(ProxyHeader { length, ends }))
}

fn proxied(header: &v2::Header<'_>) -> Result<Option<[SocketAddr; 2]>, Malformed> {
    let ends: [SocketAddr; 2] = match header.addresses {
        v2::Addresses::Unspecified | v2::Addresses::Unix(_) => return Ok(None),
        v2::Addresses::IPv4(ends) => [
            (ends.source_address, ends.source_port).into(),
            (ends.destination_address, ends.destination_port).into(),
        ],
        v2::Addresses::IPv6(ends) => [
            (ends.source_address, ends.source_port).into(),
            (ends.destination_address, ends.destination_port).into(),
        ],
    };
    if header.protocol != v2::Protocol::Stream {
        return Err(Malformed("it does not speak of TCP".into()));
    }
    match header.tlvs().find_map(Result::err) {
        Some(error) => Err(Malformed(error.to_string())),
        None => Ok(Some(ends)),
    }
}

/// Proxies send addresses, a few names and checksums. A certificate of the client does not fit.
pub(crate) const LONGEST: usize = 4096;

/// Length of the fixed part of version 2: the signature, version and command, family and protocol, the length of the
/// rest.
const FIXED: usize = 16;
const VERSION_2_LOCAL: u8 = 0x20;
const UNKNOWN_ALONE: &[u8] = b"PROXY UNKNOWN\r\n";
const UNKNOWN_AND_MORE: &[u8] = b"PROXY UNKNOWN ";
const WORD_OF_VERSION_1: &[u8] = b"PROXY ";
/// By the specification.
const LONGEST_LINE: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn v2(rest: &[u8]) -> Vec<u8> {
        [SIGNATURE, rest].concat()
    }

    fn ends(client: &str, server: &str) -> Option<[SocketAddr; 2]> {
        Some([client, server].map(|text| text.parse().unwrap()))
    }

    /// A line of so many bytes.
    fn unknown(length: usize) -> Vec<u8> {
        let mut line = b"PROXY UNKNOWN ".to_vec();
        line.resize(length - 2, b'x');
        line.extend(b"\r\n");
        line
    }

    /// Headers as the specification's examples and proxies send them.
    fn good() -> Vec<(Vec<u8>, Option<[SocketAddr; 2]>)> {
        let v4 = b"\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\x01\x02\x01\xbb";
        let with_records = b"\x21\x11\0\x11\xc0\0\x02\x01\xc0\0\x02\x02\x01\x02\x01\xbb\x04\0\x02ab";
        let mut v6 = b"\x21\x21\0\x24".to_vec();
        v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        v6.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        v6.extend([0, 1, 0, 2]);
        let expected = ends("192.0.2.1:258", "192.0.2.2:443");
        vec![
            (v2(v4), expected),
            (v2(with_records), expected),
            (v2(&v6), ends("[2001:db8::1]:1", "[2001:db8::2]:2")),
            (v2(b"\x20\0\0\0"), None),
            // A family without addresses, one that does not exist, and half an address.
            (v2(b"\x20\x11\0\0"), None),
            (v2(b"\x20\xff\0\0"), None),
            (v2(b"\x20\x21\0\x02ab"), None),
            (v2(b"\x21\0\0\x03\x04\0\0"), None),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 258 443\r\n".to_vec(), expected),
            (
                b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n".to_vec(),
                ends("[2001:db8::1]:1", "[2001:db8::2]:2"),
            ),
            (
                b"PROXY TCP4 192.0.2.1 192.0.2.2 0 65535\r\n".to_vec(),
                ends("192.0.2.1:0", "192.0.2.2:65535"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN a b 1 2\r\n".to_vec(), None),
            // Whatever stands behind the word, to the end of the longest line.
            (b"PROXY UNKNOWN \r\n".to_vec(), None),
            (b"PROXY UNKNOWN 1 2 3 4 5 6 7 8\r\n".to_vec(), None),
            (b"PROXY UNKNOWN \xff\r\0\n\r\n".to_vec(), None),
            (unknown(LONGEST_LINE), None),
        ]
    }

    #[test]
    fn headers_are_read_in_any_pieces_and_end_where_they_end() {
        for (header, ends) in good() {
            let expected = ProxyHeader {
                length: header.len(),
                ends,
            };
            for length in 0..header.len() {
                let part = &header[..length];
                assert_eq!(parse(part), Ok(None), "{}", part.escape_ascii());
            }
            for behind in [&b""[..], b"\x16\x03\x01", b"PROXY \r\n", &[0; 5000]] {
                let bytes = [&header[..], behind].concat();
                assert_eq!(parse(&bytes), Ok(Some(expected)));
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let endless = vec![b' '; LONGEST];
        let long = v2(&[b"\x21\x11\x20\0".as_slice(), &[0; 0x2000]].concat());
        for (bytes, which) in [
            (&b"\x16\x03\x01\x02\0"[..], "TLS"),
            (b"GET / HTTP/1.1\r\n", "HTTP"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 258 65536\r\n", "port"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n", "sign"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 +2\r\n", "sign"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 02\r\n", "zero before"),
            (b"PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n", "address"),
            (b"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", "family"),
            (b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n", "protocol"),
            (b"PROXY UNKNOWNS\r\n", "another word"),
            (b"PROXY UNKNOWN\t1\r\n", "no space"),
            (&unknown(LONGEST_LINE + 1), "too long without addresses"),
            (&[b"PROXY ", &endless[..]].concat(), "endless"),
            (&v2(b"\x11\x11\0\x0c"), "version"),
            (&v2(b"\x22\x11\0\x0c"), "command"),
            (&v2(b"\x21\x41\0\x0c"), "family"),
            (&v2(b"\x21\x11\0\x0b"), "addresses that do not fit"),
            (&v2(b"\x21\x12\0\x0caaaabbbbccdd"), "UDP"),
            (&v2(b"\x21\x11\0\x0eaaaabbbbccdd\x04\0"), "torn record"),
            (&v2(b"\x21\x11\0\x11aaaabbbbccdd\x04\0\x03ab"), "long record"),
            (&long, "too long"),
            (&long[..FIXED], "too long, as its first bytes say"),
            (&v2(b"\x20\0\xff\xff"), "too long without addresses"),
        ] {
            assert!(parse(bytes).is_err(), "{which}");
        }
    }
}
