//! Reads the beginnings of TLS flights, as they go through calls of the system.
//!
//! Nothing here is certain: calls are missing, their bytes are cut, and a library may read the header
//! of a record and its content apart. The parser looks for the next header whenever it is lost, and
//! keeps at most 8,192 bytes for each direction.

mod messages;
pub mod names;

use crate::event::{Bytes, Direction};
use crate::functions::Side;
use messages::ServerHello;

/// Most bytes of a handshake message that are kept.
const MOST_OF_A_MESSAGE: usize = 8192;

/// Known facts about a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Side of the process: a server reads a ClientHello.
    pub side: Option<Side>,
    /// The version that the server chose, as [`names::version`] takes it.
    pub version: Option<u16>,
    /// The cipher suite that it chose, as [`names::cipher`] takes it.
    pub cipher: Option<u16>,
    /// The group of the key exchange, as [`names::group`] takes it.
    pub group: Option<u16>,
    /// True if a session was resumed; `None` if not known.
    pub resumed: Option<bool>,
    /// The host that the client asked for. Bytes that are not printable ASCII are escaped.
    pub server_name: Option<String>,
    /// The last alert.
    pub alert: Option<Alert>,
    /// A ClientHello was seen.
    pub client_hello: bool,
    /// A ServerHello was seen that is not a HelloRetryRequest.
    pub server_hello: bool,
    /// A HelloRetryRequest was seen.
    pub retried: bool,
}

/// An alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Direction of the alert: read or written by the process.
    pub direction: Direction,
    /// Level and description; `None` if it is encrypted.
    pub plain: Option<(u8, u8)>,
}

impl Alert {
    /// Returns whether the alert ends the handshake, as far as can be seen.
    pub fn is_fatal(&self) -> bool {
        const FATAL: u8 = 2;
        self.plain.is_none_or(|(level, _)| level == FATAL)
    }

    /// Name of the alert, if it is not encrypted.
    pub fn name(&self) -> Option<String> {
        self.plain.map(|(_, description)| names::alert(description))
    }
}

/// The parser of both directions of a connection.
#[derive(Clone, Debug, Default)]
pub struct Flights {
    read: Stream,
    written: Stream,
    facts: Facts,
    /// The session that the client asked for.
    asked: Vec<u8>,
}

impl Flights {
    /// Takes what a call of the system has read or written.
    pub fn take(&mut self, bytes: &Bytes) {
        let stream = self.stream(bytes.direction);
        let missing = bytes.length.saturating_sub(bytes.bytes.len() as u64);
        let mut parts = Vec::new();
        stream.take(&bytes.bytes, &mut parts);
        if missing > 0 {
            stream.skip(missing, &mut parts);
        }
        for part in parts {
            self.learn(bytes.direction, part);
        }
    }

    /// Facts so far. Reads messages of which only a part has come.
    pub fn facts(&mut self) -> &Facts {
        for direction in [Direction::Read, Direction::Written] {
            if let Some(message) = self.stream(direction).abandoned() {
                self.learn(direction, message);
            }
        }
        &self.facts
    }

    fn stream(&mut self, direction: Direction) -> &mut Stream {
        match direction {
            Direction::Read => &mut self.read,
            Direction::Written => &mut self.written,
        }
    }

    fn learn(&mut self, direction: Direction, part: Part) {
        let facts = &mut self.facts;
        match part {
            Part::Alert(plain) => facts.alert = Some(Alert { direction, plain }),
            // The server goes on without a certificate.
            Part::ChangeCipherSpec if facts.side == Some(side_of_answers(direction)) => {
                self.without_certificate(true);
            }
            Part::ChangeCipherSpec => {}
            Part::Message(kind, body) => self.learn_message(direction, kind, &body),
        }
    }

    fn learn_message(&mut self, direction: Direction, kind: u8, body: &[u8]) {
        let facts = &mut self.facts;
        match kind {
            CLIENT_HELLO => {
                facts.client_hello = true;
                facts.side = Some(match direction {
                    Direction::Read => Side::Server,
                    Direction::Written => Side::Client,
                });
                let hello = messages::client_hello(body);
                facts.server_name = hello.server_name.or(facts.server_name.take());
                self.asked = hello.session;
            }
            SERVER_HELLO => {
                facts.side.get_or_insert(side_of_answers(direction));
                let hello = messages::server_hello(body);
                self.learn_server_hello(&hello);
            }
            SERVER_KEY_EXCHANGE => {
                self.without_certificate(false);
                let facts = &mut self.facts;
                let name = facts.cipher.map(names::cipher).unwrap_or_default();
                if facts.server_hello && facts.group.is_none() && name.contains("_ECDHE_") {
                    facts.group = messages::named_curve(body, name.contains("_PSK_"));
                }
            }
            NEW_SESSION_TICKET => self.without_certificate(true),
            CERTIFICATE | SERVER_HELLO_DONE => self.without_certificate(false),
            _ => {}
        }
    }

    fn learn_server_hello(&mut self, hello: &ServerHello) {
        let facts = &mut self.facts;
        facts.version = hello.version.or(facts.version);
        facts.cipher = hello.cipher.or(facts.cipher);
        // That of a retry is the group of the ServerHello too, which does not name one without a key.
        facts.group = hello.group.or(facts.group);
        if hello.retry {
            facts.retried = true;
            return;
        }
        facts.server_hello = true;
        let echoed = !hello.session.is_empty() && hello.session == self.asked;
        facts.resumed = match facts.version {
            Some(TLS13) => Some(hello.preshared),
            // The messages that follow tell.
            _ => echoed.then_some(true),
        };
    }

    /// TLS 1.2: what follows the ServerHello tells whether the session was resumed. The first says it.
    fn without_certificate(&mut self, resumed: bool) {
        let facts = &mut self.facts;
        if facts.server_hello && facts.version != Some(TLS13) {
            facts.resumed.get_or_insert(resumed);
        }
    }
}

/// Side of a process that reads or writes what servers send.
fn side_of_answers(direction: Direction) -> Side {
    match direction {
        Direction::Read => Side::Client,
        Direction::Written => Side::Server,
    }
}

const TLS13: u16 = 0x0304;

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

pub(crate) const CLIENT_HELLO: u8 = 1;
pub(crate) const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const CERTIFICATE: u8 = 11;
const SERVER_KEY_EXCHANGE: u8 = 12;
const SERVER_HELLO_DONE: u8 = 14;
const CERTIFICATE_VERIFY: u8 = 15;
const CLIENT_KEY_EXCHANGE: u8 = 16;
/// No message that is sent in the clear has a higher number: CompressedCertificate (RFC 8879, 4).
const LAST_MESSAGE: u8 = 25;

/// Shortest record after which a message goes on in another one, while a ChangeCipherSpec may come: the shortest limit
/// of fragments (RFC 6066, 4).
const LEAST_FRAGMENT: usize = 512;

/// Part of a stream.
#[derive(Debug)]
enum Part {
    /// Type and beginning of the body.
    Message(u8, Vec<u8>),
    ChangeCipherSpec,
    /// Level and description, if it is not encrypted.
    Alert(Option<(u8, u8)>),
}

/// One direction.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// The beginning of a record's header.
    header: Vec<u8>,
    /// Type of the record that has begun, its length, and how many bytes of it are still to come.
    record: Option<Record>,
    /// The handshake message that has begun, with its header.
    message: Vec<u8>,
    /// Bytes of the message that are not kept, and still to come.
    surplus: usize,
    /// The type of the last message.
    last: Option<u8>,
    /// A ChangeCipherSpec was seen: handshake messages are encrypted, but for a second Hello after
    /// a HelloRetryRequest.
    changed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    kind: u8,
    length: usize,
    left: usize,
}

impl Stream {
    fn take(&mut self, bytes: &[u8], parts: &mut Vec<Part>) {
        let joined;
        let mut bytes = bytes;
        let carried = std::mem::take(&mut self.header);
        if !carried.is_empty() && Record::parse(bytes).is_none() {
            joined = [&carried[..], bytes].concat();
            bytes = &joined;
        }
        // A header where content should be: calls between are missing, as a call begins with one.
        if self.record.is_some() && Record::parse(bytes).is_some() {
            self.lose(parts);
        }
        if self.record.is_none() && Record::parse(bytes).is_none() && bytes.len() >= HEADER {
            // The header of what may be a record's content was not reported.
            self.record = self.content(bytes);
        } else if self.record.is_none() && bytes.len() == 2 {
            let alert = matches!(bytes, [1 | 2, description] if names::is_alert(*description));
            self.record = alert.then(|| Record::of(ALERT, 2));
        }
        while !bytes.is_empty() {
            if let Some(record) = self.record {
                let (content, rest) = bytes.split_at(bytes.len().min(record.left));
                self.content_of(record, content, parts);
                bytes = rest;
            } else if let Some(record) = Record::parse(bytes) {
                self.record = (record.length > 0).then_some(record);
                bytes = bytes.get(HEADER..).unwrap_or_default();
            } else {
                if bytes.len() < HEADER && Record::may_begin(bytes) {
                    self.header = bytes.to_vec();
                } else {
                    self.lose(parts);
                }
                return;
            }
        }
    }

    /// The record of which `bytes` may be the content, read apart from its header.
    fn content(&self, bytes: &[u8]) -> Option<Record> {
        let &[kind, high, middle, low, version, ..] = bytes else {
            return None;
        };
        let length = usize::from(middle) << 8 | usize::from(low);
        let hello = matches!(kind, CLIENT_HELLO | SERVER_HELLO) && version == 3 && length > 37;
        let others = [NEW_SESSION_TICKET, CERTIFICATE, SERVER_KEY_EXCHANGE, SERVER_HELLO_DONE];
        // These only where a ServerHello was before, and not of another length than what is there.
        let other = others.contains(&kind) && !self.changed && length + 4 == bytes.len();
        (high == 0 && (hello || other)).then(|| Record::of(HANDSHAKE, bytes.len()))
    }

    fn content_of(&mut self, record: Record, content: &[u8], parts: &mut Vec<Part>) {
        let first = record.left == record.length;
        let left = record.left - content.len();
        self.record = (left > 0).then_some(Record { left, ..record });
        match record.kind {
            HANDSHAKE => self.handshake(record, content, parts),
            CHANGE_CIPHER_SPEC if first => {
                self.changed = true;
                parts.push(Part::ChangeCipherSpec);
            }
            ALERT if record.length != 2 && first => parts.push(Part::Alert(None)),
            // The second byte may come apart from the first; then nothing is known about it.
            ALERT => {
                if let [level, description] = *content {
                    parts.push(Part::Alert(Some((level, description))));
                }
            }
            // In TLS 1.3, level, description, type and tag of an encrypted alert are 19 bytes. No
            // handshake message is as short.
            APPLICATION_DATA if first && record.length == 19 => parts.push(Part::Alert(None)),
            _ => {}
        }
    }

    fn handshake(&mut self, record: Record, content: &[u8], parts: &mut Vec<Part>) {
        let first = record.left == record.length;
        if self.changed && first {
            let hello = matches!(content, [CLIENT_HELLO | SERVER_HELLO, 0, _, _, 3, 3, ..]);
            self.message.clear();
            self.surplus = 0;
            if !hello {
                return;
            }
        } else if self.changed && self.message.is_empty() && self.surplus == 0 {
            return;
        }
        let seen = content;
        let mut content = content;
        while !content.is_empty() {
            if self.surplus > 0 {
                let skipped = self.surplus.min(content.len());
                self.surplus -= skipped;
                content = content.get(skipped..).unwrap_or_default();
                continue;
            }
            let wanted = self.wanted();
            let taken = wanted.saturating_sub(self.message.len()).min(content.len());
            let (now, rest) = content.split_at(taken);
            self.message.extend_from_slice(now);
            content = rest;
            let in_record = record.left.saturating_sub(seen.len() - content.len());
            if self.message.len() == 4 && !self.is_plain(record, in_record) {
                self.changed = true;
                self.message.clear();
                return;
            }
            // The header is complete only now, or the message is.
            if self.message.len() == 4 && self.wanted() > 4 {
                continue;
            }
            if self.message.len() >= self.wanted() {
                self.surplus = self.length().saturating_sub(self.message.len());
                parts.extend(self.abandoned());
            }
        }
    }

    /// Returns whether the header of a message is one, and not the beginning of an encrypted record. The kernel does
    /// not report a ChangeCipherSpec that is read apart from what follows.
    fn is_plain(&self, record: Record, in_record: usize) -> bool {
        let &[kind, high, ..] = &self.message[..] else {
            return false;
        };
        let fits = self.length() - self.message.len() <= in_record;
        // A Hello may be cut into records of any length: some clients do that on purpose.
        let goes_on = record.length >= LEAST_FRAGMENT || (high == 0 && !self.may_change());
        kind <= LAST_MESSAGE && (fits || goes_on)
    }

    /// Returns whether a ChangeCipherSpec may follow the last message (RFC 5246, 7.3).
    fn may_change(&self) -> bool {
        let before_it = [
            SERVER_HELLO,
            NEW_SESSION_TICKET,
            CERTIFICATE_VERIFY,
            CLIENT_KEY_EXCHANGE,
        ];
        self.last.is_some_and(|kind| before_it.contains(&kind))
    }

    /// The length of the message that has begun, with its header; of the header until that is there.
    fn length(&self) -> usize {
        match *self.message {
            [_, high, middle, low, ..] => 4 + (usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)),
            _ => 4,
        }
    }

    /// Number of bytes of the message that are kept.
    fn wanted(&self) -> usize {
        self.length().min(MOST_OF_A_MESSAGE)
    }

    /// The message of which nothing more is kept.
    fn abandoned(&mut self) -> Option<Part> {
        let message = std::mem::take(&mut self.message);
        let (&kind, _) = message.split_first()?;
        let body = message.get(4..)?.to_vec();
        self.last = Some(kind);
        Some(Part::Message(kind, body))
    }

    /// Goes on behind bytes that were not seen.
    fn skip(&mut self, missing: u64, parts: &mut Vec<Part>) {
        let rest = self.record.filter(|record| record.left as u64 >= missing);
        let Some(record) = rest else {
            return self.lose(parts);
        };
        // `missing` is no more than a record has.
        let left = record.left.saturating_sub(missing as usize);
        let in_message = self.length().saturating_sub(self.message.len()) as u64;
        if !self.message.is_empty() && in_message >= missing {
            self.surplus = (in_message - missing) as usize;
            parts.extend(self.abandoned());
        } else if self.surplus as u64 >= missing {
            self.surplus -= missing as usize;
        } else {
            // The start of the next message in this record is not known.
            return self.lose(parts);
        }
        self.record = (left > 0).then_some(Record { left, ..record });
    }

    /// Gives up what has begun and waits for the next header.
    fn lose(&mut self, parts: &mut Vec<Part>) {
        parts.extend(self.abandoned());
        self.record = None;
        self.surplus = 0;
        self.header.clear();
    }
}

pub(crate) const HEADER: usize = 5;

impl Record {
    fn of(kind: u8, length: usize) -> Self {
        Self {
            kind,
            length,
            left: length,
        }
    }

    /// The header at the beginning of `bytes`, if it looks like one.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let &[kind, _, _, high, low, ..] = bytes else {
            return None;
        };
        let length = usize::from(high) << 8 | usize::from(low);
        (Self::may_begin(bytes) && length <= (1 << 14) + 2048).then(|| Self::of(kind, length))
    }

    fn may_begin(bytes: &[u8]) -> bool {
        let kind = |kind: &u8| (CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(kind);
        bytes.first().is_none_or(kind)
            && bytes.get(1).is_none_or(|&major| major == 3)
            && bytes.get(2).is_none_or(|&minor| minor <= 4)
    }
}

#[cfg(test)]
mod tests;
