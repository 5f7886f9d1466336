//! First messages of a client, before the server has answered, on their way to rustls.
//!
//! A ClientHello is read whole before rustls gets it, in whatever pieces it comes: what it offers decides which
//! alert is due ([`ClientHelloSummary`]), a host name that rustls cannot parse is hidden from it
//! ([`transcript`](crate::front::transcript)), and one that is longer than rustls takes is refused here. Records are
//! only the form in which messages come (RFC 8446, section 5.1), so a message of several records gets new ones. All
//! else goes to rustls as it comes.

use std::io;
use std::task::{Context, Poll, ready};

use rustls::{HandshakeKind, InvalidMessage, ServerConnection};

use crate::front::client::Client;
use crate::front::client_hello::{CLIENT_HELLO, ClientHelloSummary, HANDSHAKE, Hello, RECORD_HEADER};
use crate::front::transcript::Changed;
use crate::io::{PollSocket, read_tls};
use crate::worker_state::WorkerState;

/// The first messages of one client. The default: nothing has come.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    pub(crate) summary: ClientHelloSummary,
    stage: Stage,
    /// The server has asked for another ClientHello.
    is_retried: bool,
    /// Bytes that have come and not gone to rustls. `None`: nothing, as with most clients.
    buffered: Option<Box<Buffered>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// A ClientHello is due.
    #[default]
    Awaited,
    /// A ClientHello has come, or something else.
    Over,
    /// The ClientHello is longer than rustls takes.
    TooLong,
}

#[derive(Debug, Default)]
struct Buffered {
    /// Bytes for rustls, of which it has taken some.
    ready: Vec<u8>,
    taken: usize,
    /// The beginning of a record.
    header: Vec<u8>,
    /// The bytes of it that are to come, and whether they are part of the message.
    left: usize,
    is_message: bool,
    /// The ClientHello as far as it has come.
    message: Vec<u8>,
    /// The minor version of its record.
    version: u8,
    changed: Option<Changed>,
    odd_name: Option<String>,
}

impl Opening {
    /// Takes what has come before there was a TLS state. Returns whether that is enough for one: a whole ClientHello,
    /// or what cannot become one.
    pub(crate) fn gather(&mut self, bytes: &[u8]) -> bool {
        let direct = self.sort(bytes);
        if !direct.is_empty() {
            self.buffered().ready.extend_from_slice(direct);
        }
        self.stage != Stage::Awaited
    }

    /// Takes what has come, and hands rustls what it may have.
    fn take(&mut self, tls: &mut ServerConnection, bytes: &[u8]) -> io::Result<usize> {
        match self.sort(bytes) {
            mut direct @ [_, ..] => {
                let taken = tls.read_tls(&mut direct)?;
                if !direct.is_empty() {
                    self.buffered().ready.extend_from_slice(direct);
                }
                Ok(taken)
            }
            [] => self.give(tls),
        }
    }

    /// Reads once from the socket, or more often until rustls may have something. 0 means end of file.
    pub(crate) fn poll_receive(
        &mut self,
        client: &mut Client,
        tls: &mut ServerConnection,
        worker: &WorkerState,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.buffered.as_ref().is_some_and(|buffered| buffered.is_ready()) {
                return Poll::Ready(self.give(tls));
            }
            if self.stage != Stage::Awaited {
                return read_tls(client, tls, cx);
            }
            let mut scratch = worker.scratch.borrow_mut();
            let read = ready!(client.poll_receive(cx, &mut scratch[..FIRST_READ]))?;
            let given = match read {
                0 => return Poll::Ready(Ok(0)),
                read => self.take(tls, &scratch[..read])?,
            };
            if given > 0 || self.stage == Stage::TooLong {
                return Poll::Ready(Ok(read));
            }
        }
    }

    /// The server has answered.
    pub(crate) fn answered(&mut self, tls: &ServerConnection) {
        let asks_again = tls.handshake_kind() == Some(HandshakeKind::FullWithHelloRetryRequest);
        if asks_again && !self.is_retried && self.stage == Stage::Over {
            self.is_retried = true;
            self.stage = Stage::Awaited;
            // What came behind the first one goes the same way as what comes now.
            if let Some(buffered) = &mut self.buffered {
                let rest = buffered.ready.split_off(buffered.taken);
                (buffered.ready, buffered.taken) = (Vec::new(), 0);
                self.part(&rest);
            }
        }
    }

    /// Returns whether the ClientHello is longer than rustls takes, and has ended here.
    pub(crate) fn is_too_long(&self) -> bool {
        self.stage == Stage::TooLong
    }

    /// Bytes that rustls gets in place of the client's. Returned once for each ClientHello.
    pub(crate) fn changed(&mut self) -> Option<Changed> {
        self.buffered.as_mut()?.changed.take()
    }

    /// Text that the client sends in place of a host name, for people.
    pub(crate) fn odd_name(&self) -> Option<&str> {
        self.buffered.as_ref()?.odd_name.as_deref()
    }

    /// The bytes that rustls may have as they are. If there are none, it may have what is buffered.
    fn sort<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        match self.stage {
            Stage::Over if self.buffered.as_ref().is_none_or(|buffered| !buffered.is_ready()) => {
                return bytes;
            }
            Stage::Awaited if self.buffered.is_none() => {
                if let Some((hello, _)) = Hello::in_record(bytes)
                    && hello.odd_name.is_none()
                {
                    self.summary = hello.summary;
                    self.stage = Stage::Over;
                    return bytes;
                }
            }
            _ => {}
        }
        self.part(bytes);
        &[]
    }

    fn part(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.stage {
                Stage::Awaited => {}
                Stage::Over => return self.buffered().ready.extend_from_slice(bytes),
                Stage::TooLong => return,
            }
            let buffered = self.buffered();
            let wanted = match buffered.left {
                0 => RECORD_HEADER - buffered.header.len(),
                left => left,
            };
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            bytes = later;
            if buffered.left == 0 {
                buffered.header.extend_from_slice(now);
                self.look_at_header();
                continue;
            }
            buffered.left -= now.len();
            match buffered.is_message {
                true => buffered.message.extend_from_slice(now),
                false => buffered.ready.extend_from_slice(now),
            }
            if buffered.left == 0 && buffered.is_message {
                self.look_at_message();
            }
        }
    }

    /// The header of a record has come, or a part of it.
    fn look_at_header(&mut self) {
        let is_retried = self.is_retried;
        let buffered = self.buffered();
        match buffered.header[..] {
            [kind, ref rest @ ..] if kind != HANDSHAKE => {
                // change_cipher_spec, or early data: not before the first message, nor within any.
                if !is_retried || !buffered.message.is_empty() {
                    self.hand_over();
                } else if let [3, _, high, low] = *rest {
                    buffered.left = usize::from(u16::from_be_bytes([high, low]));
                    buffered.is_message = false;
                    buffered.ready.append(&mut buffered.header);
                }
            }
            [_, major, ..] if major != 3 => self.hand_over(),
            [_, _, version, high, low] => {
                let length = usize::from(u16::from_be_bytes([high, low]));
                if !(1..=LONGEST_RECORD).contains(&length) {
                    return self.hand_over();
                }
                buffered.left = length;
                buffered.is_message = true;
                buffered.version = version;
                buffered.header.clear();
            }
            _ => {}
        }
    }

    /// A record with a part of the message has come.
    fn look_at_message(&mut self) {
        let buffered = self.buffered();
        let &[kind, high, middle, low, ..] = &buffered.message[..] else {
            return;
        };
        let length = 4 + u32::from_be_bytes([0, high, middle, low]) as usize;
        if kind != CLIENT_HELLO || buffered.message.len() > length {
            return self.hand_over();
        }
        if length > LONGEST_HELLO {
            self.stage = Stage::TooLong;
        } else if buffered.message.len() == length {
            if let Some(hello) = Hello::parse(&buffered.message) {
                if let Some(name) = hello.odd_name {
                    buffered.odd_name = Some(name.text(&buffered.message));
                    buffered.changed = Some(name.hide(&mut buffered.message));
                }
                self.summary = hello.summary;
            }
            self.hand_over();
        }
    }

    /// Lets rustls have what has come, and all that comes.
    fn hand_over(&mut self) {
        self.stage = Stage::Over;
        let buffered = self.buffered();
        let message = std::mem::take(&mut buffered.message);
        for part in message.chunks(LONGEST_RECORD) {
            let length = (part.len() as u16).to_be_bytes();
            let header = [HANDSHAKE, 3, buffered.version, length[0], length[1]];
            buffered.ready.extend_from_slice(&header);
            buffered.ready.extend_from_slice(part);
        }
        buffered.ready.append(&mut buffered.header);
    }

    /// Hands rustls some of what it may have.
    pub(crate) fn give(&mut self, tls: &mut ServerConnection) -> io::Result<usize> {
        let Some(buffered) = self.buffered.as_mut().filter(|one| one.is_ready()) else {
            return Ok(0);
        };
        let given = tls.read_tls(&mut &buffered.ready[buffered.taken..])?;
        buffered.taken += given;
        if !buffered.is_ready() {
            (buffered.ready, buffered.taken) = (Vec::new(), 0);
        }
        Ok(given)
    }

    /// Bytes that rustls would get of those that come in these pieces, and what was changed.
    #[doc(hidden)]
    pub(crate) fn passed<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Option<Changed>) {
        let mut passed = Vec::new();
        for piece in pieces {
            passed.extend_from_slice(self.sort(piece));
            if let Some(buffered) = &mut self.buffered {
                passed.append(&mut buffered.ready);
            }
        }
        (passed, self.changed())
    }

    fn buffered(&mut self) -> &mut Buffered {
        self.buffered.get_or_insert_default()
    }
}

impl Buffered {
    fn is_ready(&self) -> bool {
        self.taken < self.ready.len()
    }
}

/// Error of rustls for a message that is longer still.
pub(crate) const TOO_LONG: rustls::Error = rustls::Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge);
/// Bytes that rustls takes in one call during a handshake.
pub(crate) const FIRST_READ: usize = 4096;
/// Most bytes that rustls takes in a record that is not encrypted.
const LONGEST_RECORD: usize = (1 << 14) + 2047;
/// Longest message that rustls takes: 65,535 bytes with the headers of its records, of which such a one has four.
const LONGEST_HELLO: usize = 65_535 - 4 * RECORD_HEADER;

#[cfg(test)]
mod tests {
    use super::*;

    /// A ClientHello of TLS 1.2 with this name, and padding to this length.
    fn hello(name: &[u8], length: usize) -> Vec<u8> {
        let with_length = |content: &[u8], width: usize| {
            let length = (content.len() as u32).to_be_bytes();
            [&length[4 - width..], content].concat()
        };
        let mut hello = b"\x03\x03".to_vec();
        hello.extend([7; 32]);
        hello.extend(b"\0\0\x02\xc0\x2f\x01\0");
        let name = with_length(&[b"\0", &with_length(name, 2)[..]].concat(), 2);
        let name = [b"\0\0", &with_length(&name, 2)[..]].concat();
        let others = 4 + hello.len() + 2 + name.len() + 4;
        let padding = vec![0; length.saturating_sub(others)];
        let padding = [b"\0\x15", &with_length(&padding, 2)[..]].concat();
        hello.extend(with_length(&[name, padding].concat(), 2));
        [&[CLIENT_HELLO][..], &with_length(&hello, 3)].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let records = message.chunks(size).map(|part| {
            let length = (part.len() as u16).to_be_bytes();
            [&[HANDSHAKE, 3, 1, length[0], length[1]], part].concat()
        });
        records.collect::<Vec<_>>().concat()
    }

    /// Bytes that rustls gets of those that come in pieces of this size.
    fn given(bytes: &[u8], size: usize) -> (Opening, Vec<u8>, Option<Changed>) {
        let mut opening = Opening::default();
        let (given, changed) = opening.passed(bytes.chunks(size));
        (opening, given, changed)
    }

    #[test]
    fn a_hello_goes_on_as_it_is_in_whatever_pieces_it_comes() {
        let message = hello(b"a.example", 300);
        let whole = records(&message, 1 << 14);
        for bytes in [&whole[..], &[&whole[..], b"and more"].concat()] {
            for size in 1..=bytes.len() {
                let (opening, given, changed) = given(bytes, size);
                assert_eq!(given, bytes);
                assert!(opening.summary.lacks_groups && opening.stage == Stage::Over);
                assert_eq!(changed, None);
            }
        }
        for size in [1, 7, 100] {
            let (opening, given, _) = given(&records(&message, size), 50);
            assert_eq!(given, whole, "its records do not count");
            assert!(opening.summary.lacks_groups);
        }
    }

    #[test]
    fn an_odd_name_is_hidden_in_whatever_pieces_it_comes() {
        let message = hello(b"a.example:443", 300);
        for (fragment, piece) in [(1 << 14, 4096), (1 << 14, 1), (9, 4096), (9, 10)] {
            let (opening, given, changed) = given(&records(&message, fragment), piece);
            let changed = changed.unwrap();
            assert_eq!(opening.odd_name(), Some("a.example:443"));
            assert_eq!(changed.restore(&given[RECORD_HEADER..]), message);
            let (hello, end) = Hello::in_record(&given).unwrap();
            assert!(hello.odd_name.is_none() && end == given.len());
            assert_ne!(given[RECORD_HEADER..], message);
        }
    }

    #[test]
    fn what_is_no_hello_goes_on_at_once() {
        let whole = records(&hello(b"a.example", 100), 1 << 14);
        let part = &whole[RECORD_HEADER..][..20];
        let alert = b"\x15\x03\x03\0\x02\x02\x28";
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &alert[..],
            b"\x16\x02\0",
            b"\x16\x03\x01\0\0",
            b"\x16\x03\x01\xff\xff",
            &records(b"\x14\0\0\0", 4),
            &records(b"\x01\0\0\0behind", 10),
            &[&records(part, 20), &alert[..]].concat(),
        ] {
            for size in 1..=bytes.len() {
                let (opening, given, _) = given(bytes, size);
                assert_eq!(given, bytes, "{size}");
                assert!(!opening.is_too_long());
            }
        }
    }

    #[test]
    fn the_longest_hello_is_as_long_as_rustls_takes() {
        for (length, is_taken) in [(65_515, true), (65_516, false), (65_539, false)] {
            let message = hello(b"a.example", length);
            assert_eq!(message.len(), length);
            let (opening, given, _) = given(&records(&message, 1 << 14), 4096);
            assert_eq!(!opening.is_too_long(), is_taken, "{length}");
            assert_eq!(given.len(), if is_taken { 65_535 } else { 0 });
        }
    }

    #[test]
    fn before_the_second_hello_other_records_pass() {
        let mut opening = Opening {
            is_retried: true,
            ..Opening::default()
        };
        let message = hello(b"-a", 100);
        let change = b"\x14\x03\x03\0\x01\x01";
        let bytes = [&change[..], b"\x17\x03\x03\0\x03abc", &records(&message, 60)].concat();
        let (given, changed) = opening.passed(bytes.chunks(8));
        let at = bytes.len() - records(&message, 60).len();
        assert_eq!(given[..at], bytes[..at]);
        let changed = changed.unwrap();
        assert_eq!(changed.restore(&given[at + RECORD_HEADER..]), message);
    }
}
