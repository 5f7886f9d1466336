//! The offers of a ClientHello that rustls does not tell of where it refuses one.

use std::ops::Range;

use rustls::ProtocolVersion;
use rustls_pki_types::ServerName;

use crate::front::transcript::Changed;

/// The offers of a client. The default: it has sent no ClientHello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientHelloSummary {
    /// The newest version, at most TLS 1.3.
    pub(crate) version: Option<ProtocolVersion>,
    /// There is no extension supported_groups.
    pub(crate) lacks_groups: bool,
}

/// A ClientHello that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) summary: ClientHelloSummary,
    /// A host name that rustls cannot parse.
    pub(crate) odd_name: Option<OddName>,
}

/// Text that a client sends in place of a host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OddName {
    /// Place of the type of the extension server_name.
    type_at: usize,
    /// Place of the name.
    name: Range<usize>,
    /// An extension that the client has not sent and that no side knows.
    other_type: u16,
}

impl Hello {
    /// The message in the first record of these bytes, if it is a whole ClientHello, and where the record ends
    /// (RFC 8446, sections 4.1.2 and 5.1).
    pub(crate) fn in_record(received: &[u8]) -> Option<(Self, usize)> {
        let [HANDSHAKE, 3, _, high, low, rest @ ..] = received else {
            return None;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let hello = Self::parse(rest.get(..length)?)?;
        Some((hello, RECORD_HEADER + length))
    }

    /// `None`: it is no ClientHello, or has bytes behind it.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let mut at = 0;
        let [CLIENT_HELLO] = message.get(take(&mut at, 1))? else {
            return None;
        };
        if vector(message, &mut at, 3)?.end != message.len() {
            return None;
        }
        at = 1 + 3;
        let legacy = number(message, &mut at)?;
        at += RANDOM;
        // Session ID, cipher suites, compression methods.
        for width in [1, 2, 1] {
            vector(message, &mut at, width)?;
        }
        let mut summary = ClientHelloSummary {
            version: Some(ProtocolVersion::from(legacy.min(TLS_1_2))),
            lacks_groups: true,
        };
        let mut odd_name = None;
        let mut names = 0;
        // TLS 1.2 and before may end here.
        let extensions = match message.len() - at.min(message.len()) {
            0 => at..at,
            _ => vector(message, &mut at, 2)?,
        };
        at = extensions.start;
        while at < extensions.end {
            let type_at = at;
            let kind = number(message, &mut at)?;
            let content = vector(message, &mut at, 2)?;
            if content.end > extensions.end {
                return None;
            }
            match kind {
                SERVER_NAME => {
                    names += 1;
                    odd_name = odd_name_in(message, content).map(|name| (type_at, name));
                }
                SUPPORTED_GROUPS => summary.lacks_groups = false,
                SUPPORTED_VERSIONS => {
                    let versions = message[content].get(1..)?.chunks_exact(2);
                    let versions = versions.map(|one| u16::from_be_bytes([one[0], one[1]]));
                    // Above are those that are made up to keep servers tolerant (RFC 8701).
                    let newest = versions.filter(|version| *version <= TLS_1_3).max();
                    summary.version = newest.map(ProtocolVersion::from);
                }
                _ => {}
            }
        }
        // A repeated extension is left to rustls.
        let odd_name = odd_name.filter(|_| names == 1).and_then(|(type_at, name)| {
            Some(OddName {
                type_at,
                name,
                other_type: unused_type(message, extensions)?,
            })
        });
        Some(Self { summary, odd_name })
    }
}

/// A type of an extension that is not in this message. It is for private use (RFC 8446, section 11); rustls knows none
/// of these.
fn unused_type(message: &[u8], extensions: Range<usize>) -> Option<u16> {
    let mut types = Vec::new();
    let mut at = extensions.start;
    while at < extensions.end {
        types.push(number(message, &mut at)?);
        vector(message, &mut at, 2)?;
    }
    (FIRST_PRIVATE..=u16::MAX).find(|kind| !types.contains(kind))
}

impl OddName {
    /// Hides the name of a message from rustls: the extension gets an unknown type.
    pub(crate) fn hide(&self, message: &mut [u8]) -> Changed {
        let end = self.type_at + 2;
        let sent = message[..end].to_vec();
        message[self.type_at..end].copy_from_slice(&self.other_type.to_be_bytes());
        Changed {
            given: message[..end].to_vec(),
            sent,
        }
    }

    /// Text of the name, for people.
    pub(crate) fn text(&self, message: &[u8]) -> String {
        message[self.name.clone()].escape_ascii().to_string()
    }
}

/// Place of the host name that rustls cannot parse, as RFC 6066 (section 3) has the extension. `None`: it can,
/// or the extension is none.
fn odd_name_in(message: &[u8], content: Range<usize>) -> Option<Range<usize>> {
    let mut at = content.start;
    let list = vector(message, &mut at, 2)?;
    if list.end != content.end || list.is_empty() {
        return None;
    }
    let mut found = None;
    at = list.start;
    // What follows a name of another type has no known form.
    while at < list.end && message[at] == HOST_NAME {
        at += 1;
        let name = vector(message, &mut at, 2)?;
        // Two of them are an error.
        if name.end > list.end || found.is_some() {
            return None;
        }
        found = Some(name);
    }
    found.filter(|name| ServerName::try_from(&message[name.clone()]).is_err())
}

/// Moves over a vector, whose length has `width` bytes. `None`: it is not whole.
fn vector(bytes: &[u8], at: &mut usize, width: usize) -> Option<Range<usize>> {
    let length = bytes.get(take(at, width))?;
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let content = take(at, length);
    (content.end <= bytes.len()).then_some(content)
}

fn number(bytes: &[u8], at: &mut usize) -> Option<u16> {
    let bytes = bytes.get(take(at, 2))?;
    Some(u16::from_be_bytes(bytes.try_into().ok()?))
}

fn take(at: &mut usize, count: usize) -> Range<usize> {
    let from = *at;
    *at += count;
    from..*at
}

pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const CLIENT_HELLO: u8 = 1;
pub(crate) const RECORD_HEADER: usize = 5;
const RANDOM: usize = 32;
const HOST_NAME: u8 = 0;
const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const SUPPORTED_VERSIONS: u16 = 43;
/// First type for private use. Of those that begin so, renegotiation_info (0xff01) alone is known.
const FIRST_PRIVATE: u16 = 0xff02;
const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with a ClientHello.
    fn hello(legacy: u16, extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let with_length = |content: &[u8], width: usize| {
            let length = (content.len() as u32).to_be_bytes();
            [&length[4 - width..], content].concat()
        };
        let mut hello = legacy.to_be_bytes().to_vec();
        hello.extend([7; RANDOM]);
        hello.extend(b"\x01i\0\x02\x13\x01\x01\0");
        if !extensions.is_empty() {
            let extensions = extensions
                .iter()
                .map(|(kind, content)| [&kind.to_be_bytes()[..], &with_length(content, 2)].concat());
            hello.extend(with_length(&extensions.collect::<Vec<_>>().concat(), 2));
        }
        let message = [&[CLIENT_HELLO][..], &with_length(&hello, 3)].concat();
        [&[HANDSHAKE, 3, 1][..], &with_length(&message, 2)].concat()
    }

    #[test]
    fn the_newest_version_and_the_groups_are_seen() {
        use ProtocolVersion::*;
        let groups: (u16, &[u8]) = (SUPPORTED_GROUPS, &[0, 2, 0, 29]);
        let versions = |list: &'static [u8]| (SUPPORTED_VERSIONS, list);
        for (legacy, extensions, version, lacks_groups) in [
            (0x0302, &[][..], Some(TLSv1_1), true),
            (0x0301, &[groups], Some(TLSv1_0), false),
            (0x0303, &[groups], Some(TLSv1_2), false),
            // Nothing but the extension says that it is newer.
            (0x0304, &[groups], Some(TLSv1_2), false),
            (
                0x0303,
                &[groups, versions(&[6, 0x7a, 0x7a, 3, 3, 3, 4])],
                Some(TLSv1_3),
                false,
            ),
            (0x0303, &[versions(&[2, 3, 2])], Some(TLSv1_1), true),
            (0x0303, &[versions(&[0])], None, true),
        ] {
            let bytes = hello(legacy, extensions);
            let expected = ClientHelloSummary { version, lacks_groups };
            let (hello, end) = Hello::in_record(&bytes).unwrap();
            assert_eq!(hello.summary, expected, "{bytes:x?}");
            assert_eq!(end, bytes.len());
        }
    }

    #[test]
    fn a_part_says_nothing() {
        let extensions: [(u16, &[u8]); 1] = [(SUPPORTED_VERSIONS, &[2, 3, 4])];
        let whole = hello(0x0303, &extensions);
        assert!(Hello::in_record(&whole).is_some());
        for length in 0..whole.len() {
            assert_eq!(Hello::in_record(&whole[..length]), None, "{length}");
        }
        assert_eq!(Hello::in_record(b"GET / HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn names_that_rustls_cannot_parse_are_found_and_hidden() {
        let list = |names: &[(u8, &[u8])]| {
            let entries = names
                .iter()
                .map(|(kind, name)| [&[*kind, 0, name.len() as u8][..], name].concat());
            let entries = entries.collect::<Vec<_>>().concat();
            [&[0, entries.len() as u8][..], &entries].concat()
        };
        let odd = |names: &[(u8, &[u8])]| {
            let content = list(names);
            let record = hello(0x0303, &[(10, &[0, 2, 0, 29]), (0, &content), (0xff02, b"")]);
            let (hello, _) = Hello::in_record(&record).unwrap();
            let message = record[RECORD_HEADER..].to_vec();
            hello.odd_name.map(|name| {
                let mut given = message.clone();
                let changed = name.hide(&mut given);
                assert_eq!(changed.restore(&given), message);
                let differ = given.iter().zip(&message).filter(|(one, other)| one != other);
                assert_eq!(differ.count(), 2);
                let hidden = Hello::parse(&given).unwrap();
                assert_eq!((hidden.odd_name, hidden.summary), (None, hello.summary));
                name.text(&message)
            })
        };
        for good in ["a.example", "A_b.example.", "192.0.2.1", "xn--nxasmq6b.test"] {
            assert_eq!(odd(&[(0, good.as_bytes())]), None, "{good}");
        }
        for name in [
            "-a.example",
            "a-.example",
            "a.example:443",
            "[a.example]",
            "*.example",
            "a b",
        ] {
            assert_eq!(odd(&[(0, name.as_bytes())]).as_deref(), Some(name));
        }
        assert_eq!(odd(&[(0, b"b\xc3\xbc\0")]).as_deref(), Some("b\\xc3\\xbc\\x00"));
        // As nginx serves it.
        assert_eq!(odd(&[(0, b"")]).as_deref(), Some(""));
        // These are errors, which rustls answers.
        assert_eq!(odd(&[(0, b"-a"), (0, b"-b")]), None);
        assert_eq!(odd(&[(1, b"x"), (0, b"-a")]), None);
        assert_eq!(odd(&[]), None);
        let twice = list(&[(0, b"-a")]);
        let twice = hello(0x0303, &[(0, &twice), (0, &twice)]);
        assert_eq!(Hello::in_record(&twice).unwrap().0.odd_name, None);
    }
}
