//! What clients say to servers, before the handshake and after it.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use rustls_pki_types::CertificateDer;

use super::client::{Client, request};

/// What a client sends, and the answer for which it waits, one after the other.
pub type Steps = &'static [(&'static [u8], Reply)];

/// An answer for which a client waits.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// These bytes.
    Bytes(&'static [u8]),
    /// Lines of text, up to one that begins with these bytes.
    Line(&'static [u8]),
}

/// Protocol of a server.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// HTTP: the path that is asked for, and the body of the answer for a host.
    Http { path: &'static str, body: fn(&str) -> &str },
    /// Anything else: steps before the handshake, and after it.
    Steps { before: Steps, after: Steps },
}

/// One session, from a client's side.
pub struct Session {
    /// All that the server has said.
    pub heard: Vec<u8>,
    /// Version, cipher suite and group.
    pub agreed: String,
    pub certificate: CertificateDer<'static>,
}

impl Protocol {
    /// HTTP of hosts that answer with their names.
    pub const SITE: Self = Self::Http {
        path: "/",
        body: |name| name,
    };

    /// The steps that come before the handshake.
    pub fn before(self, stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
        match self {
            Self::Http { .. } => Ok(Vec::new()),
            Self::Steps { before, .. } => take(before, stream),
        }
    }

    /// The first bytes that a client says to the host `name` after the handshake.
    pub fn data(self, name: &str) -> Vec<u8> {
        match self {
            Self::Http { path, .. } => request(name, path).into_bytes(),
            Self::Steps { after, .. } => {
                let mut said = after.iter().map(|(said, _)| *said);
                said.find(|said| !said.is_empty()).unwrap_or_default().to_vec()
            }
        }
    }

    /// A whole session with the host `name`, in which every answer is as it must be.
    pub fn ask(self, client: &Client, server: SocketAddr, name: &str) -> Result<Session, String> {
        match self {
            Self::Http { path, body } => {
                let answer = client.expect(server, name, path, body(name))?;
                Ok(Session {
                    heard: answer.body.into_bytes(),
                    agreed: format!("{:?}", answer.group),
                    certificate: answer.certificate.ok_or("no certificate")?,
                })
            }
            Self::Steps { after, .. } => self
                .session(client, server, name, after)
                .map_err(|error| format!("{name}: {error}")),
        }
    }

    fn session(self, client: &Client, server: SocketAddr, name: &str, after: Steps) -> io::Result<Session> {
        let mut tls = client.connect(server, name)?;
        let mut heard = self.before(&mut tls.sock)?;
        heard.extend(take(after, &mut tls)?);
        let conn = &tls.conn;
        let [version, suite] = [
            format!("{:?}", conn.protocol_version()),
            format!("{:?}", conn.negotiated_cipher_suite()),
        ];
        let group = conn.negotiated_key_exchange_group().map(|group| group.name());
        let certificates = conn.peer_certificates().unwrap_or_default();
        Ok(Session {
            heard,
            agreed: format!("{version} {suite} {group:?}"),
            certificate: certificates.first().ok_or(io::ErrorKind::NotFound)?.clone(),
        })
    }
}

/// Takes all steps, and returns what was heard.
fn take(steps: Steps, stream: &mut (impl Read + Write)) -> io::Result<Vec<u8>> {
    let mut heard = Vec::new();
    for (said, reply) in steps {
        stream.write_all(said)?;
        let start = heard.len();
        match reply {
            Reply::Bytes(bytes) => {
                heard.resize(start + bytes.len(), 0);
                stream.read_exact(&mut heard[start..])?;
                if heard[start..] != **bytes {
                    return Err(io::Error::other(format!("{:?}", &heard[start..])));
                }
            }
            Reply::Line(begin) => read_to_line(begin, stream, &mut heard).map_err(|error| {
                let heard = String::from_utf8_lossy(&heard[start..]).into_owned();
                io::Error::other(format!("{error} after {heard:?}"))
            })?,
        }
    }
    Ok(heard)
}

/// Reads up to the end of a line that begins with `begin`, and no byte more: what follows may be TLS.
fn read_to_line(begin: &[u8], stream: &mut impl Read, heard: &mut Vec<u8>) -> io::Result<()> {
    let mut start = heard.len();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        heard.extend(byte);
        if byte == *b"\n" {
            if heard[start..].starts_with(begin) {
                return Ok(());
            }
            start = heard.len();
        }
    }
}
