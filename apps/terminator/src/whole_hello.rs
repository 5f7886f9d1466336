//! Whether a client's first bytes are a whole ClientHello.
//!
//! Until they are, the connection has cost nothing and can make room for others. So nothing but lengths is read
//! here; rustls judges the content.

/// How much of a ClientHello has come, in records that are complete.
#[derive(Debug, Default)]
pub(crate) struct WholeHello {
    /// Where the first record begins that is not complete.
    records: usize,
    /// The first bytes of the message: type and length.
    header: [u8; 4],
    /// Bytes of the message.
    collected: usize,
}

impl WholeHello {
    /// Whether rustls has enough to answer: a whole ClientHello (RFC 8446, sections 4.1.2 and 5.1), in as many records
    /// as the client likes, or bytes that cannot become one. `received`: all that has come, what was there at the
    /// last call first.
    pub(crate) fn is_in(&mut self, received: &[u8]) -> bool {
        loop {
            let rest = &received[self.records..];
            let Some((&[kind, major, _, high, low], after)) = rest.split_first_chunk() else {
                let is_other = rest.first().is_some_and(|kind| *kind != HANDSHAKE);
                return is_other || received.len() > MOST_RECEIVED;
            };
            let length = usize::from(u16::from_be_bytes([high, low]));
            if kind != HANDSHAKE || major != 3 || !(1..=MOST_CONTENT).contains(&length) {
                return true;
            }
            let content = &after[..length.min(after.len())];
            let (mut header, collected) = (self.header, self.collected + content.len());
            let missing = header.iter_mut().skip(self.collected);
            missing.zip(content).for_each(|(byte, seen)| *byte = *seen);
            if collected > 0 && header[0] != CLIENT_HELLO {
                return true;
            }
            if collected >= header.len() {
                let [_, length @ ..] = header;
                let bytes = length.iter();
                let message = bytes.fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                if message > MOST_MESSAGE || collected >= header.len() + message {
                    return true;
                }
            }
            if content.len() < length {
                return received.len() > MOST_RECEIVED;
            }
            self.records += RECORD_HEADER + length;
            (self.header, self.collected) = (header, collected);
        }
    }
}

const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// RFC 8446, section 5.1, and what RFC 5246, section 6.2.3, adds.
const MOST_CONTENT: usize = 16 * 1024 + 2048;
/// What rustls takes of a message.
const MOST_MESSAGE: usize = 0xffff;
/// A message of that length in records of a hundred bytes and more.
const MOST_RECEIVED: usize = MOST_MESSAGE + 5 * MOST_MESSAGE / 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(received: &[u8]) -> bool {
        let at_once = WholeHello::default().is_in(received);
        // In pieces, it is the same.
        let mut hello = WholeHello::default();
        let mut lengths = (0..received.len()).step_by(7).chain([received.len()]);
        assert_eq!(
            lengths.any(|length| hello.is_in(&received[..length])),
            at_once
        );
        at_once
    }

    /// A message in records of `piece` bytes.
    fn records(message: &[u8], piece: usize) -> Vec<u8> {
        let pieces = message.chunks(piece).map(|piece| {
            let length = (piece.len() as u16).to_be_bytes();
            [&[HANDSHAKE, 3, 1][..], &length, piece].concat()
        });
        pieces.collect::<Vec<_>>().concat()
    }

    fn hello(length: usize) -> Vec<u8> {
        let header = (length as u32 | 1 << 24).to_be_bytes();
        [&header[..], &vec![7; length]].concat()
    }

    #[test]
    fn it_is_whole_with_its_last_byte_in_whatever_records() {
        for (length, piece) in [
            (300, 16_384),
            (300, 100),
            (300, 3),
            (300, 1),
            (60_000, 16_384),
        ] {
            let whole = records(&hello(length), piece);
            let cuts = (0..whole.len()).step_by(1 + length / 1000);
            for cut in cuts.chain([whole.len() - 1]) {
                assert!(!is_whole(&whole[..cut]), "{cut} of {length} in {piece}");
            }
            assert!(is_whole(&whole), "{length} in {piece}");
            assert!(is_whole(&[&whole[..], b"more"].concat()));
        }
    }

    #[test]
    fn what_cannot_become_one_is_left_to_rustls() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"G",
            b"\x15\x03\x01\0\x02\x01\0",
            b"\x16\x02\x01\0\x02",
            b"\x16\x03\x01\0\0",
            b"\x16\x03\x01\xff\xff",
            b"\x16\x03\x01\0\x01\x02",
        ] {
            assert!(is_whole(bytes), "{bytes:x?}");
        }
        // A message of 65,536 bytes, which rustls refuses.
        assert!(is_whole(&records(&[1, 1, 0, 0], 100)));
        let slow = records(&hello(0xffff), 1);
        assert!(
            is_whole(&slow[..MOST_RECEIVED + 1]),
            "in records of one byte"
        );
    }
}
