//! A client that checks certificates and asks one question of HTTP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, NamedGroup,
    RootCertStore, SignatureScheme, StreamOwned, SupportedProtocolVersion,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use socket2::SockRef;

use super::{Files, Identity, PATIENCE};

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// What a client wants.
pub struct Wish<'a> {
    pub version: &'static SupportedProtocolVersion,
    /// The group that it prefers.
    pub group: &'static dyn SupportedKxGroup,
    pub identity: Option<&'a Identity>,
    pub resumes: bool,
    /// Whether it takes RSA signatures only.
    pub only_rsa: bool,
}

impl Default for Wish<'_> {
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

impl Wish<'_> {
    /// A client that trusts the files' authority only.
    pub fn client(&self, files: &Files) -> Client {
        self.client_that_keeps_ocsp(files).0
    }

    /// The same, with the last OCSP response that a server has stapled.
    pub fn client_that_keeps_ocsp(&self, files: &Files) -> (Client, Stapled) {
        let mut roots = RootCertStore::empty();
        roots.add(files.authority()).expect("an authority");
        let verifier = Verifier {
            inner: WebPkiServerVerifier::builder(roots.into())
                .build()
                .expect("an authority"),
            only_rsa: self.only_rsa,
            stapled: Stapled::default(),
        };
        let stapled = Arc::clone(&verifier.stapled);
        // All groups, because TLS 1.2 also asks whether the client knows the curve of an ECDSA key.
        let mut groups = GROUPS.to_vec();
        groups.sort_by_key(|group| group.name() != self.group.name());
        let provider = CryptoProvider {
            kx_groups: groups,
            ..default_provider()
        };
        let builder = ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&[self.version])
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.identity {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .expect("an identity"),
            None => builder.with_no_client_auth(),
        };
        config.enable_early_data = self.resumes;
        if !self.resumes {
            config.resumption = Resumption::disabled();
        }
        (Client(Arc::new(config)), stapled)
    }
}

/// The OCSP response that a server has stapled.
pub type Stapled = Arc<Mutex<Vec<u8>>>;

/// Verifies as rustls does by itself.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    only_rsa: bool,
    stapled: Stapled,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.stapled.lock().expect("no panic") = ocsp.to_vec();
        // Revocation is not looked at without lists.
        self.inner.verify_server_cert(leaf, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.inner.supported_verify_schemes();
        if self.only_rsa {
            schemes.retain(|scheme| format!("{scheme:?}").starts_with("RSA"));
        }
        schemes
    }
}

/// A client's configuration.
#[derive(Clone)]
pub struct Client(pub Arc<ClientConfig>);

impl Client {
    /// A connection whose handshake has not begun.
    pub fn connect(&self, server: SocketAddr, name: &str) -> io::Result<Tls> {
        let socket = TcpStream::connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let tls = ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        Ok(StreamOwned::new(tls, socket))
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
    pub fn expect(
        &self,
        server: SocketAddr,
        name: &str,
        path: &str,
        expected: &str,
    ) -> Result<Answer, String> {
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

/// What a server has answered.
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
            group: tls
                .conn
                .negotiated_key_exchange_group()
                .map(SupportedKxGroup::name),
            certificate: certificates.first().cloned(),
        })
    }
}

/// TLS 1.2 and 1.3.
pub const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS12, &rustls::version::TLS13];

pub static GROUPS: [&dyn SupportedKxGroup; 3] =
    [kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1];
