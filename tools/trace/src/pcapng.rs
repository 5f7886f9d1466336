//! A file that Wireshark opens: what TLS connections carry, as if it had gone over TCP in plain text.
//!
//! The blocks are those of draft-ietf-opsawg-pcapng: a section header (4.1), an interface description
//! (4.2), and an enhanced packet (4.3) for each segment. Packets have no link layer (LINKTYPE_RAW), an
//! IPv4 header (RFC 791, 3.1) and a TCP header (RFC 9293, 3.1).
//!
//! The addresses are made up, for a TLS library does not know those of its peer. They are of
//! 198.18.0.0/15, which is reserved for tests (RFC 2544, C.2.2): the process is 198.18.0.1, its peers
//! are 198.19.0.0/16, one for each connection. The port is 80, so that HTTP is recognised.
//!
//! Of long data only the beginning is known. What is missing counts as cut off by the capture, as if
//! with a limit of length: the next data have the sequence number that they had.

use std::collections::HashMap;
use std::io::{self, Write};

/// Writes such a file.
pub struct Pcapng<W> {
    to: W,
    /// Connections by process and object, with what each side has sent.
    connections: HashMap<(u32, u64), Connection>,
    opened: u16,
}

/// Sender of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The traced process.
    Process,
    /// The peer of the process.
    Peer,
}

struct Connection {
    number: u16,
    /// Bytes that the process has sent, and its peer.
    sent: [u32; 2],
}

impl<W: Write> Pcapng<W> {
    /// Writes the beginning of the file.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn new(mut to: W) -> io::Result<Self> {
        let mut section = Vec::new();
        section.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        section.extend([1, 0, 0, 0]); // version 1.0
        section.extend(u64::MAX.to_le_bytes()); // the length is not known
        block(&mut to, SECTION_HEADER, &section)?;
        let mut interface = Vec::new();
        interface.extend(LINKTYPE_RAW.to_le_bytes());
        interface.extend([0, 0]);
        interface.extend(0_u32.to_le_bytes()); // no limit of length
        // Option 9, if_tsresol: times are in nanoseconds. Option 0 is the last.
        interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        block(&mut to, INTERFACE_DESCRIPTION, &interface)?;
        Ok(Self {
            to,
            connections: HashMap::new(),
            opened: 0,
        })
    }

    /// Writes `length` bytes that one side has sent, of which `data` are known, with a time in nanoseconds since 1970.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(
        &mut self,
        time: u64,
        (pid, object): (u32, u64),
        sender: Sender,
        data: &[u8],
        carried: u64,
    ) -> io::Result<()> {
        if self.connections.len() >= MOST_CONNECTIONS {
            // The oldest are not known; all begin anew.
            self.connections.clear();
        }
        let opened = &mut self.opened;
        let connection = self.connections.entry((pid, object)).or_insert_with(|| {
            *opened = opened.wrapping_add(1);
            Connection {
                number: *opened,
                sent: [0; 2],
            }
        });
        let mut known = data.chunks(MOST_DATA);
        let mut left = carried.max(data.len() as u64).min(MOST_CARRIED);
        while left > 0 {
            let data = known.next().unwrap_or_default();
            let size = left.min(MOST_DATA as u64);
            left -= size;
            let packet = connection.packet(sender, data, size as u16);
            let captured = u32::try_from(packet.len()).expect("packets are short");
            let length = captured + size as u32 - data.len() as u32;
            let mut enhanced = Vec::with_capacity(packet.len() + 24);
            enhanced.extend(0_u32.to_le_bytes()); // the first interface
            let [t0, t1, t2, t3, t4, t5, t6, t7] = time.to_le_bytes();
            // The upper half of the time comes first.
            enhanced.extend([t4, t5, t6, t7, t0, t1, t2, t3]);
            enhanced.extend(captured.to_le_bytes());
            enhanced.extend(length.to_le_bytes());
            enhanced.extend(packet);
            block(&mut self.to, ENHANCED_PACKET, &enhanced)?;
        }
        self.to.flush()
    }

    /// Forgets a connection: the next with the same object is another.
    pub fn close(&mut self, pid: u32, object: u64) {
        self.connections.remove(&(pid, object));
    }
}

impl Connection {
    /// A packet that carries `size` bytes, of which `data` are known.
    fn packet(&mut self, sender: Sender, data: &[u8], size: u16) -> Vec<u8> {
        let [high, low] = self.number.to_be_bytes();
        let process = ([198, 18, 0, 1], 80);
        let peer = ([198, 19, high, low], 40_000 + self.number % 20_000);
        let (at, from, to) = match sender {
            Sender::Process => (0, process, peer),
            Sender::Peer => (1, peer, process),
        };
        let (sequence, acknowledged) = (self.sent[at], self.sent[1 - at]);
        self.sent[at] = sequence.wrapping_add(u32::from(size));

        let mut tcp = Vec::with_capacity(20 + data.len());
        tcp.extend(u16::to_be_bytes(from.1));
        tcp.extend(u16::to_be_bytes(to.1));
        tcp.extend(sequence.to_be_bytes());
        tcp.extend(acknowledged.to_be_bytes());
        // Five words of header, PSH and ACK, the largest window, no checksum yet, nothing urgent.
        tcp.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(data);
        let mut pseudo = Vec::with_capacity(12 + tcp.len());
        pseudo.extend(from.0);
        pseudo.extend(to.0);
        pseudo.extend([0, TCP]);
        pseudo.extend((size + 20).to_be_bytes());
        pseudo.extend(&tcp);
        tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());

        let mut packet = Vec::with_capacity(20 + tcp.len());
        packet.extend([0x45, 0]);
        packet.extend((size + 40).to_be_bytes());
        // No identification, not to be fragmented, 64 hops.
        packet.extend([0, 0, 0x40, 0, 64, TCP, 0, 0]);
        packet.extend(from.0);
        packet.extend(to.0);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(tcp);
        packet
    }
}

/// A block: type, length, content, length.
fn block(to: &mut impl Write, kind: u32, content: &[u8]) -> io::Result<()> {
    let padding = content.len().next_multiple_of(4) - content.len();
    let length = u32::try_from(content.len() + padding + 12).expect("blocks are short");
    to.write_all(&kind.to_le_bytes())?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(content)?;
    to.write_all(&[0; 3][..padding])?;
    to.write_all(&length.to_le_bytes())
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).expect("it was folded")
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_RAW: u16 = 101;
const TCP: u8 = 6;
/// Greatest length of a packet that fits its 16 bits.
const MOST_DATA: usize = 32_768;
/// Most bytes of one call: as many as a call of OpenSSL can carry, and fewer than a window of TCP.
const MOST_CARRIED: u64 = 1 << 30;
const MOST_CONNECTIONS: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the blocks back: type and content.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = word(&file[4..]) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(&file[length - 4..]) as usize, length);
            blocks.push((word(file), file[8..length - 4].to_vec()));
            file = &file[length..];
        }
        blocks
    }

    #[test]
    fn both_directions_of_a_connection_continue_each_other() {
        let mut file = Vec::new();
        let mut pcapng = Pcapng::new(&mut file).unwrap();
        pcapng
            .write(1 << 32 | 5, (7, 0xabc), Sender::Peer, b"GET / HTTP/1.1\r\n\r\n", 18)
            .unwrap();
        pcapng
            .write(2 << 32, (7, 0xabc), Sender::Process, b"HTTP/1.1 200 OK\r\n", 17)
            .unwrap();
        pcapng
            .write(3 << 32, (7, 0xabc), Sender::Process, b"\r\nodd", 5)
            .unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<_> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE_DESCRIPTION, 6, 6, 6]);
        let (_, first) = &blocks[2];
        assert_eq!(
            first[4..12],
            [1, 0, 0, 0, 5, 0, 0, 0],
            "the upper half of the time is first"
        );
        assert_eq!(first[12], 58);
        let packet = &first[20..78];
        assert_eq!(packet[..4], [0x45, 0, 0, 58]);
        assert_eq!(checksum(&packet[..20]), 0, "a right header sums to zero");
        assert_eq!(packet[40..], *b"GET / HTTP/1.1\r\n\r\n");
        let numbers = |at: usize| {
            let packet = &blocks[at].1[20..];
            let word = |from: usize| u32::from_be_bytes(packet[from..from + 4].try_into().unwrap());
            (word(24), word(28))
        };
        assert_eq!(numbers(2), (0, 0));
        assert_eq!(numbers(3), (0, 18));
        assert_eq!(numbers(4), (17, 18));
    }

    #[test]
    fn long_data_are_several_packets_and_a_closed_connection_is_another() {
        let mut file = Vec::new();
        let mut pcapng = Pcapng::new(&mut file).unwrap();
        pcapng.write(1, (7, 1), Sender::Process, &[0; 70_000], 70_000).unwrap();
        pcapng.close(7, 1);
        pcapng.write(1, (7, 1), Sender::Process, b"x", 1).unwrap();
        let blocks = blocks(&file);
        assert_eq!(blocks.len(), 2 + 3 + 1);
        let peer = |at: usize| blocks[at].1[20 + 16..20 + 20].to_vec();
        assert_ne!(peer(2), peer(5));
    }

    /// Writes an answer of 40,000 bytes of which 4 are known; the next answer continues it.
    #[test]
    fn what_is_not_known_counts_in_sequence_numbers() {
        let mut file = Vec::new();
        let mut pcapng = Pcapng::new(&mut file).unwrap();
        let connection = (7, 1);
        let mut write = |data: &[u8], carried| pcapng.write(1, connection, Sender::Process, data, carried);
        write(b"HTTP", 40_000).unwrap();
        write(b"HTTP", 4).unwrap();
        // The text in place of a secret may be longer than the secret.
        write(b"HTTP", 3).unwrap();
        write(b"", 0).unwrap();
        let blocks = blocks(&file);
        let packets: Vec<_> = blocks[2..]
            .iter()
            .map(|(_, content)| {
                let word = |from: usize| u32::from_le_bytes(content[from..from + 4].try_into().unwrap());
                let packet = &content[20..20 + word(12) as usize];
                let in_ip = u32::from(u16::from_be_bytes([packet[2], packet[3]]));
                assert_eq!(in_ip, word(16), "the length of the packet as it was");
                let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
                (sequence, word(12), word(16))
            })
            .collect();
        let expected = [(0, 44, 32_808), (32_768, 40, 7_272), (40_000, 44, 44), (40_004, 44, 44)];
        assert_eq!(packets, expected);
    }

    /// RFC 1071, 3: the example.
    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[1]), !0x0100);
    }
}
