//! The handshake messages that tell something: RFC 8446, section 4.1, and RFC 5246, section 7.4.
//!
//! Each function takes the beginning of a message's body, reads as far as it goes, and leaves the rest
//! unknown.

use crate::reader::Reader;

/// Fields of a ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientHello {
    /// The session that the client asks to resume in TLS 1.2; often invented in TLS 1.3.
    pub(super) session: Vec<u8>,
    /// The host that it asks for, escaped.
    pub(super) server_name: Option<String>,
}

/// Fields of a ServerHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerHello {
    pub(super) version: Option<u16>,
    pub(super) cipher: Option<u16>,
    pub(super) session: Vec<u8>,
    pub(super) group: Option<u16>,
    /// TLS 1.3: the server goes on from a key that both have.
    pub(super) preshared: bool,
    /// True for a HelloRetryRequest: the client must begin again.
    pub(super) retry: bool,
}

/// The random value by which a HelloRetryRequest is known.
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11,
    0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

const SERVER_NAME: u16 = 0;
const PRE_SHARED_KEY: u16 = 41;
const SUPPORTED_VERSIONS: u16 = 43;
const KEY_SHARE: u16 = 51;

pub(super) fn client_hello(body: &[u8]) -> ClientHello {
    let mut hello = ClientHello::default();
    let mut reader = Reader(body);
    let mut read = || {
        let _version = reader.big_u16()?;
        let _random = reader.bytes(32)?;
        hello.session = reader.vector8()?.to_vec();
        let _ciphers = reader.vector16()?;
        let _compressions = reader.vector8()?;
        let mut extensions = Reader(reader.beginning16()?);
        while let Some((kind, content)) = extensions.extension() {
            if kind == SERVER_NAME {
                hello.server_name = server_name(content);
            }
        }
        Some(())
    };
    let _as_far_as_it_goes = read();
    hello
}

/// The first name of type host, escaped.
fn server_name(extension: &[u8]) -> Option<String> {
    let mut reader = Reader(extension);
    let mut list = Reader(reader.vector16()?);
    while let Some(kind) = list.u8() {
        let name = list.vector16()?;
        if kind == 0 {
            let name = name.get(..name.len().min(255))?;
            return Some(name.escape_ascii().to_string());
        }
    }
    None
}

pub(super) fn server_hello(body: &[u8]) -> ServerHello {
    let mut hello = ServerHello::default();
    let mut reader = Reader(body);
    let mut read = || {
        hello.version = Some(reader.big_u16()?);
        hello.retry = reader.bytes(32)? == RETRY;
        hello.session = reader.vector8()?.to_vec();
        hello.cipher = Some(reader.big_u16()?);
        let _compression = reader.u8()?;
        let mut extensions = Reader(reader.beginning16()?);
        while let Some((kind, content)) = extensions.extension() {
            match kind {
                SUPPORTED_VERSIONS => hello.version = Reader(content).big_u16().or(hello.version),
                KEY_SHARE => hello.group = Reader(content).big_u16(),
                PRE_SHARED_KEY => hello.preshared = true,
                _ => {}
            }
        }
        Some(())
    };
    let _as_far_as_it_goes = read();
    hello
}

/// The named curve of a ServerKeyExchange of ECDHE. `hint` says that a PSK's identity hint is before it.
pub(super) fn named_curve(body: &[u8], hint: bool) -> Option<u16> {
    const NAMED_CURVE: u8 = 3;
    let mut reader = Reader(body);
    if hint {
        reader.vector16()?;
    }
    (reader.u8()? == NAMED_CURVE).then(|| reader.big_u16())?
}

impl<'a> Reader<'a> {
    /// A number of the network: its higher byte comes first.
    fn big_u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.bytes(length.into())
    }

    fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.big_u16()?;
        self.bytes(length.into())
    }

    /// Reads as much of a vector as is there.
    fn beginning16(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.big_u16()?);
        self.bytes(length.min(self.0.len()))
    }

    /// Type and content of an extension; of a content that is cut, what is there.
    fn extension(&mut self) -> Option<(u16, &'a [u8])> {
        Some((self.big_u16()?, self.beginning16()?))
    }
}
