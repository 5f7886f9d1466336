//! What a ClientHello offers, as far as rustls does not tell where it refuses one.

use rustls::ProtocolVersion;

/// What a client offers. The default: its ClientHello has not come in one piece, or is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The newest version, at most TLS 1.3.
    pub(crate) version: Option<ProtocolVersion>,
    /// There is no extension supported_groups.
    pub(crate) lacks_groups: bool,
}

impl Offer {
    /// Reads the first bytes of a connection.
    pub(crate) fn read(received: &[u8]) -> Self {
        Self::parse(received).unwrap_or_default()
    }

    /// `None`: they are no record with a whole ClientHello (RFC 8446, sections 4.1.2 and 5.1).
    fn parse(received: &[u8]) -> Option<Self> {
        let [HANDSHAKE, 3, _, length @ ..] = received else {
            return None;
        };
        let mut length = length;
        let mut record = vector(&mut length, 2)?;
        let CLIENT_HELLO = *record.split_off_first()? else {
            return None;
        };
        let mut hello = vector(&mut record, 3)?;
        let (legacy, rest) = hello.split_first_chunk()?;
        let legacy = u16::from_be_bytes(*legacy);
        hello = rest.get(RANDOM..)?;
        // Session ID, cipher suites, compression methods.
        for width in [1, 2, 1] {
            vector(&mut hello, width)?;
        }
        let mut offer = Self {
            version: Some(ProtocolVersion::from(legacy.min(TLS_1_2))),
            lacks_groups: true,
        };
        // TLS 1.2 and before may end here.
        let mut extensions = vector(&mut hello, 2).unwrap_or_default();
        while let Some((kind, rest)) = extensions.split_first_chunk() {
            extensions = rest;
            let content = vector(&mut extensions, 2)?;
            match u16::from_be_bytes(*kind) {
                SUPPORTED_GROUPS => offer.lacks_groups = false,
                SUPPORTED_VERSIONS => {
                    let versions = content.get(1..)?.chunks_exact(2);
                    let versions = versions.map(|one| u16::from_be_bytes([one[0], one[1]]));
                    // Above are those that are made up to keep servers tolerant (RFC 8701).
                    let newest = versions.filter(|version| *version <= TLS_1_3).max();
                    offer.version = newest.map(ProtocolVersion::from);
                }
                _ => {}
            }
        }
        Some(offer)
    }
}

/// Takes a vector from the front, whose length has `width` bytes.
fn vector<'a>(bytes: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = bytes.split_off(..width)?;
    let length = length
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    bytes.split_off(..length)
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RANDOM: usize = 32;
const SUPPORTED_GROUPS: u16 = 10;
const SUPPORTED_VERSIONS: u16 = 43;
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
            let extensions = extensions.iter().map(|(kind, content)| {
                [&kind.to_be_bytes()[..], &with_length(content, 2)].concat()
            });
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
            let expected = Offer {
                version,
                lacks_groups,
            };
            assert_eq!(Offer::read(&bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn a_part_says_nothing() {
        let extensions: [(u16, &[u8]); 1] = [(SUPPORTED_VERSIONS, &[2, 3, 4])];
        let whole = hello(0x0303, &extensions);
        assert_ne!(Offer::read(&whole), Offer::default());
        for length in 0..whole.len() {
            assert_eq!(Offer::read(&whole[..length]), Offer::default(), "{length}");
        }
        assert_eq!(Offer::read(b"GET / HTTP/1.1\r\n\r\n"), Offer::default());
    }
}
