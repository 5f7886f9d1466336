//! A client that checks certificates and asks one question of HTTP.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::kx_group;
use rustls::{ClientConfig, HandshakeKind, NamedGroup, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;
use socket2::SockRef;
use widelane_testkit::clients::{self, Stapled, connection};
pub use widelane_testkit::clients::{Tls, VERSIONS};

use super::{Files, Identity};

/// Wishes of a client.
pub struct Wish {
    pub version: &'static SupportedProtocolVersion,
    /// The group that it prefers.
    pub group: &'static dyn SupportedKxGroup,
    pub identity: Option<Arc<Identity>>,
    pub resumes: bool,
    /// Makes it take RSA signatures only.
    pub only_rsa: bool,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            version: VERSIONS[1],
            group: kx_group::X25519,
            identity: None,
            resumes: false,
            only_rsa: false,
        }
    }
}

impl Wish {
    /// As by default, but with TLS 1.2 if the number is even, and with 1.3 if it is odd.
    pub fn of(number: usize) -> Self {
        Self {
            version: VERSIONS[number % 2],
            ..Self::default()
        }
    }

    /// A client that trusts the files' authority only.
    pub fn client(&self, files: &Files) -> Client {
        self.client_that_keeps_ocsp(files).0
    }

    /// Makes such a client, with the last OCSP response that a server has stapled.
    pub fn client_that_keeps_ocsp(&self, files: &Files) -> (Client, Stapled) {
        let mut wish = clients::Wish {
            roots: Some(files.roots()),
            identity: self.identity.clone(),
            // All groups, because TLS 1.2 also asks whether the client knows the curve of an ECDSA key.
            groups: GROUPS.to_vec(),
            ..clients::Wish::of(self.version)
        };
        wish.groups.sort_by_key(|group| group.name() != self.group.name());
        if self.only_rsa {
            wish.schemes.retain(|scheme| format!("{scheme:?}").starts_with("RSA"));
        }
        let (mut config, stapled) = wish.config_and_stapled();
        config.enable_early_data = self.resumes;
        if !self.resumes {
            config.resumption = Resumption::disabled();
        }
        (Client(Arc::new(config)), stapled)
    }
}

/// A client's configuration.
#[derive(Clone)]
pub struct Client(pub Arc<ClientConfig>);

impl Client {
    /// A connection whose handshake has not begun.
    pub fn connect(&self, server: SocketAddr, name: &str) -> io::Result<Tls> {
        connection(server, name, &self.0)
    }

    /// Asks for `path` of the host `name`, on a connection of its own.
    pub fn get(&self, server: SocketAddr, name: &str, path: &str) -> Result<Answer, String> {
        let get = || -> io::Result<Answer> {
            let mut tls = self.connect(server, name)?;
            write!(tls, "{}", request(name, path))?;
            Answer::read(&mut tls)
        };
        get().map_err(|error| format!("{name}{path}: {error}"))
    }

    /// As [`Client::get`], and the body must be `expected`.
    pub fn expect(&self, server: SocketAddr, name: &str, path: &str, expected: &str) -> Result<Answer, String> {
        let answer = self.get(server, name, path)?;
        match answer.body == expected {
            true => Ok(answer),
            false => Err(format!("{name}{path}: {answer:?}")),
        }
    }
}

/// Sends a ClientHello and resets the connection.
pub fn reset_after_hello(client: &Client, server: SocketAddr, name: &str) -> io::Result<()> {
    let mut tls = client.connect(server, name)?;
    tls.conn.write_tls(&mut tls.sock)?;
    SockRef::from(&tls.sock).set_linger(Some(Duration::ZERO))
}

pub fn request(name: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")
}

/// Answer of a server.
#[derive(Debug)]
pub struct Answer {
    pub head: String,
    pub body: String,
    pub resumed: bool,
    pub group: Option<NamedGroup>,
    pub certificate: Option<CertificateDer<'static>>,
}

impl Answer {
    /// Reads until the server closes, which it must announce.
    pub fn read(tls: &mut Tls) -> io::Result<Self> {
        let mut text = String::new();
        tls.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let resumed = tls.conn.handshake_kind() == Some(HandshakeKind::Resumed);
        let certificates = tls.conn.peer_certificates().unwrap_or_default();
        Ok(Self {
            head: head.to_owned(),
            body: body.to_owned(),
            resumed,
            group: tls.conn.negotiated_key_exchange_group().map(SupportedKxGroup::name),
            certificate: certificates.first().cloned(),
        })
    }
}

pub static GROUPS: [&dyn SupportedKxGroup; 3] = [kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
