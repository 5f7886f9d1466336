//! The PROXY protocol header that tells the backend who is at the other end: version 2, or the line
//! of version 1.
//!
//! Layout of version 2 after the "PROXY protocol" specification (W. Tarreau), sections 2.2 and 2.2.1 to 2.2.8:
//! signature, version and command, family, length, addresses, then type-length-value records.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rustls::CipherSuite;

use crate::material::tls::iana_name;

/// Facts about one connection that the backend gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// The application protocol agreed on.
    pub(crate) alpn: Option<&'a [u8]>,
    /// The host name that the client asked for.
    pub(crate) authority: Option<&'a str>,
    /// `TLSv1.3` or `TLSv1.2`.
    pub(crate) version: &'a str,
    /// The cipher suite's name.
    pub(crate) cipher: Option<&'a str>,
    /// Common name in the (good) certificate of the client, if it has shown one.
    pub(crate) certificate: Option<Option<&'a str>>,
    /// True if it did so in an earlier connection, whose session this one resumes.
    pub(crate) resumed: bool,
}

/// The header of version 2 with nothing but the addresses: what every server reads that knows this version. nginx
/// before 1.23.2 reads no header of more than 107 bytes.
pub(crate) fn addresses(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(160);
    bytes.extend_from_slice(&SIGNATURE);
    bytes.push(VERSION_2_PROXY);
    match (client.ip().to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            bytes.extend_from_slice(&[TCP_OVER_IPV4, 0, 0]);
            bytes.extend_from_slice(&client.octets());
            bytes.extend_from_slice(&server.octets());
        }
        (client, server) => {
            bytes.extend_from_slice(&[TCP_OVER_IPV6, 0, 0]);
            bytes.extend_from_slice(&as_v6(client));
            bytes.extend_from_slice(&as_v6(server));
        }
    }
    bytes.extend_from_slice(&client.port().to_be_bytes());
    bytes.extend_from_slice(&server.port().to_be_bytes());
    with_length(bytes)
}

/// The header of version 2 with what the handshake has agreed on, in records.
pub(crate) fn header(facts: &Facts<'_>) -> Vec<u8> {
    let mut bytes = addresses(facts.client, facts.server);
    if let Some(alpn) = facts.alpn {
        record(&mut bytes, TYPE_ALPN, alpn);
    }
    if let Some(authority) = facts.authority {
        record(&mut bytes, TYPE_AUTHORITY, authority.as_bytes());
    }
    record(&mut bytes, TYPE_SSL, &ssl(facts));
    with_length(bytes)
}

fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u16::try_from(bytes.len() - FIXED_BYTES).unwrap_or(u16::MAX);
    bytes[LENGTH_AT..FIXED_BYTES].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The line of version 1, which has nothing but the addresses (section 2.1).
pub(crate) fn line(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let (from, to) = (client.ip().to_canonical(), server.ip().to_canonical());
    let (family, from, to) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ("TCP4", from.to_string(), to.to_string()),
        (from, to) => {
            let as_v6 = |address| Ipv6Addr::from(as_v6(address)).to_string();
            ("TCP6", as_v6(from), as_v6(to))
        }
    };
    let (from_port, to_port) = (client.port(), server.port());
    format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n").into_bytes()
}

/// The name of a cipher suite in the record PP2_SUBTYPE_SSL_CIPHER: OpenSSL's, as in the
/// specification's example and as HAProxy sends it. For TLS 1.3, that is the registry's name.
pub(crate) fn cipher_name(suite: CipherSuite) -> Cow<'static, str> {
    use CipherSuite as Suite;
    let name = match suite {
        Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "ECDHE-ECDSA-AES128-GCM-SHA256",
        Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "ECDHE-ECDSA-AES256-GCM-SHA384",
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-ECDSA-CHACHA20-POLY1305",
        Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "ECDHE-RSA-AES128-GCM-SHA256",
        Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "ECDHE-RSA-AES256-GCM-SHA384",
        Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "ECDHE-RSA-CHACHA20-POLY1305",
        other => return iana_name(other).into(),
    };
    name.into()
}

/// The value of the record PP2_TYPE_SSL, itself with records inside.
fn ssl(facts: &Facts<'_>) -> Vec<u8> {
    let mut client = CLIENT_SSL;
    if facts.certificate.is_some() {
        client |= CLIENT_CERT_SESS;
        if !facts.resumed {
            client |= CLIENT_CERT_CONN;
        }
    }
    // `verify` is zero if the client's certificate was verified. A bad one ends the handshake, so
    // what is not zero here means that none was shown.
    let verify = u32::from(facts.certificate.is_none());
    let mut value = vec![client];
    value.extend_from_slice(&verify.to_be_bytes());
    record(&mut value, SUBTYPE_VERSION, facts.version.as_bytes());
    if let Some(cipher) = facts.cipher {
        record(&mut value, SUBTYPE_CIPHER, cipher.as_bytes());
    }
    // A longer name breaks its standard. It is left out, because the first half of a name may be
    // the name of another client.
    if let Some(Some(name)) = facts.certificate
        && name.len() <= LONGEST_COMMON_NAME
    {
        record(&mut value, SUBTYPE_CN, name.as_bytes());
    }
    value
}

/// Appends a record. Values here are names of 256 bytes at most, and one that holds a few of them,
/// so that the header always fits its length field.
fn record(bytes: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else {
        return;
    };
    bytes.push(kind);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(value);
}

fn as_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const VERSION_2_PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;
const LENGTH_AT: usize = 14;
const FIXED_BYTES: usize = 16;
/// 64 characters (X.520, `ub-common-name`), each of four bytes at most.
const LONGEST_COMMON_NAME: usize = 256;
const TYPE_ALPN: u8 = 0x01;
const TYPE_AUTHORITY: u8 = 0x02;
const TYPE_SSL: u8 = 0x20;
const SUBTYPE_VERSION: u8 = 0x21;
const SUBTYPE_CN: u8 = 0x22;
const SUBTYPE_CIPHER: u8 = 0x23;
const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERT_CONN: u8 = 0x02;
const CLIENT_CERT_SESS: u8 = 0x04;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(client: &str, server: &str) -> Facts<'static> {
        Facts {
            client: client.parse().unwrap(),
            server: server.parse().unwrap(),
            alpn: Some(b"h2"),
            authority: Some("a.example"),
            version: "TLSv1.3",
            cipher: None,
            certificate: Some(Some("cn")),
            resumed: false,
        }
    }

    #[test]
    fn ipv4_byte_for_byte() {
        let bytes = header(&facts("192.0.2.1:258", "[::ffff:192.0.2.2]:443"));
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x34".to_vec();
        expected.extend_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2, 1, 2, 1, 187]);
        expected.extend_from_slice(b"\x01\x00\x02h2\x02\x00\x09a.example");
        expected.extend_from_slice(b"\x20\x00\x14\x07\0\0\0\0\x21\x00\x07TLSv1.3\x22\x00\x02cn");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn without_records_a_header_has_the_addresses_alone() {
        let header = |client: &str, server: &str| {
            let header = addresses(client.parse().unwrap(), server.parse().unwrap());
            let read = crate::front::proxy_header::parse(&header).unwrap().unwrap();
            assert_eq!(read.length, header.len());
            assert_eq!(read.ends.unwrap()[0], client.parse().unwrap());
            header.len()
        };
        assert_eq!(header("192.0.2.1:258", "192.0.2.2:443"), 28);
        assert_eq!(header("[2001:db8::1]:1", "[2001:db8::2]:443"), 52);
    }

    #[test]
    fn a_line_has_both_addresses_and_is_read_again() {
        for (client, server, expected) in [
            (
                "192.0.2.1:258",
                "[::ffff:192.0.2.2]:443",
                "PROXY TCP4 192.0.2.1 192.0.2.2 258 443\r\n",
            ),
            (
                "[2001:db8::1]:1",
                "192.0.2.2:443",
                "PROXY TCP6 2001:db8::1 ::ffff:192.0.2.2 1 443\r\n",
            ),
        ] {
            let line = line(client.parse().unwrap(), server.parse().unwrap());
            assert_eq!(line, expected.as_bytes());
            let read = crate::front::proxy_header::parse(&line).unwrap().unwrap();
            assert_eq!(read.length, line.len());
            assert_eq!(read.ends.unwrap()[0], client.parse().unwrap());
        }
    }

    #[test]
    fn ipv6_length_counts_all_that_follows() {
        let bytes = header(&facts("[2001:db8::1]:1", "192.0.2.2:443"));
        assert_eq!(bytes[13], TCP_OVER_IPV6);
        let length = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
        assert_eq!(length, bytes.len() - 16);
    }

    #[test]
    fn a_resumed_session_showed_its_certificate_before() {
        let mut facts = facts("192.0.2.1:1", "192.0.2.2:2");
        facts.resumed = true;
        assert_eq!(ssl(&facts)[..5], [CLIENT_SSL | CLIENT_CERT_SESS, 0, 0, 0, 0]);
    }

    #[test]
    fn a_common_name_is_sent_whole_or_not_at_all() {
        let (longest, longer) = ("n".repeat(256), "n".repeat(257));
        let mut facts = facts("192.0.2.1:1", "192.0.2.2:2");
        facts.certificate = Some(Some(&longest));
        let with_name = ssl(&facts);
        assert!(with_name.ends_with(longest.as_bytes()));
        facts.certificate = Some(Some(&longer));
        assert_eq!(ssl(&facts)[..], with_name[..with_name.len() - 3 - 256]);
    }

    #[test]
    fn without_a_certificate_nothing_is_verified() {
        let mut facts = facts("192.0.2.1:1", "192.0.2.2:2");
        facts.certificate = None;
        let value = ssl(&facts);
        assert_eq!(value[..5], [CLIENT_SSL, 0, 0, 0, 1]);
    }

    #[test]
    fn cipher_suites_have_the_names_that_openssl_gives_them() {
        let listed = std::process::Command::new("openssl")
            .args(["ciphers", "-stdname", "ALL"])
            .output();
        let Ok(listed) = listed else {
            println!("SKIP: openssl is not installed");
            return;
        };
        let listed = String::from_utf8(listed.stdout).expect("text");
        // The registry's name, a dash, OpenSSL's name, and more.
        let names: Vec<[&str; 2]> = listed
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some([words.next()?, words.nth(1)?])
            })
            .collect();
        let suites = rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
        assert!(!suites.is_empty());
        for suite in suites {
            let suite = suite.suite();
            let ours = cipher_name(suite);
            let registry = iana_name(suite);
            assert!(names.contains(&[registry, &ours]), "{registry} is {ours} here");
        }
    }
}
