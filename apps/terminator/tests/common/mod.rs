//! What the tests share: certificates, backends, a server, a client of our own.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair, RsaKeySize};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tempfile::TempDir;
use widelane_terminator::{Backend, Certificate, Config, Document, Listener, Server};

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Kinds of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Rsa,
    Ecdsa,
    Ed25519,
}

/// A directory with files in PEM.
pub struct Files {
    directory: TempDir,
}

impl Files {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A self-signed certificate for `names`, in files called after the first of them.
    pub fn certificate(&self, kind: Kind, names: &[&str]) -> Certificate {
        let key = key(kind);
        let params = CertificateParams::new(
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        );
        let certificate = params
            .expect("names")
            .self_signed(&key)
            .expect("a certificate");
        let stem = format!("{}-{kind:?}", names[0].replace('*', "star"));
        let (cert_path, key_path) = (
            self.path(&format!("{stem}.pem")),
            self.path(&format!("{stem}.key")),
        );
        std::fs::write(&cert_path, certificate.pem()).expect("written");
        std::fs::write(&key_path, key.serialize_pem()).expect("written");
        Certificate::new(cert_path, key_path)
    }

    /// An authority in `ca.pem`, and a client certificate from it.
    pub fn client_authority(&self, common_name: &str) -> (PathBuf, Identity) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "test authority");
        let authority =
            CertifiedIssuer::self_signed(params, key(Kind::Ecdsa)).expect("an authority");
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, common_name);
        let key = key(Kind::Ecdsa);
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        let path = self.path("ca.pem");
        std::fs::write(&path, authority.pem()).expect("written");
        let identity = Identity {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        };
        (path, identity)
    }
}

/// A client's certificate.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

fn key(kind: Kind) -> KeyPair {
    match kind {
        Kind::Rsa => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
        Kind::Ecdsa => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        Kind::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
    }
    .expect("a key")
}

/// The first certificate of a file.
pub fn leaf(certificate: &Certificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(&certificate.cert).expect("PEM")
}

/// A backend on TCP: `serve` runs on a thread of its own for each connection.
pub fn tcp_backend(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Backend {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let serve = serve.clone();
            std::thread::spawn(move || serve(client));
        }
    });
    Backend::Tcp(address)
}

/// Sends back what it reads, and closes when the client does.
pub fn echo() -> Backend {
    tcp_backend(|mut client| {
        let mut copy = client.try_clone().expect("a second handle");
        let _ = io::copy(&mut copy, &mut client);
        let _ = client.shutdown(std::net::Shutdown::Write);
    })
}

/// One listener on a free port.
pub fn listener(backend: Backend, certificates: Vec<Certificate>) -> Listener {
    let mut listener = Listener::new(vec!["127.0.0.1:0".parse().expect("an address")], backend);
    listener.certificates = certificates;
    listener
}

pub fn config(listeners: Vec<Listener>) -> Config {
    let mut config = Config::default();
    config.workers = std::num::NonZeroUsize::new(2);
    config.metrics.listen = Some("127.0.0.1:0".parse().expect("an address"));
    config.listeners = listeners;
    config
}

pub fn document(config: &Config) -> Document {
    Document::from_flags(config.clone()).expect("a configuration")
}

pub fn start(config: &Config) -> Server {
    Server::start(&document(config)).expect("a server")
}

/// What a test's client wants to be different.
#[derive(Clone)]
pub struct Wish {
    pub versions: Vec<&'static SupportedProtocolVersion>,
    pub alpn: Vec<Vec<u8>>,
    pub schemes: Vec<SignatureScheme>,
    pub identity: Option<Arc<Identity>>,
}

impl Default for Wish {
    fn default() -> Self {
        Self {
            versions: vec![&rustls::version::TLS13],
            alpn: Vec::new(),
            schemes: provider()
                .signature_verification_algorithms
                .supported_schemes(),
            identity: None,
        }
    }
}

impl Wish {
    pub fn tls12() -> Self {
        Self {
            versions: vec![&rustls::version::TLS12],
            ..Self::default()
        }
    }

    pub fn config(&self) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(provider().into())
            .with_protocol_versions(&self.versions)
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(self.schemes.clone())));
        let mut config = match &self.identity {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .expect("an identity"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.clone();
        Arc::new(config)
    }
}

/// Completes a handshake, with a host name to ask for.
pub fn connect(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> io::Result<Tls> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(tls, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

pub fn hello(address: SocketAddr) -> io::Result<Tls> {
    connect(address, "a.example", &Wish::default().config())
}

/// Says goodbye in TLS and TCP and reads to the end.
pub fn finish(stream: &mut Tls) -> io::Result<Vec<u8>> {
    close_sending(stream)?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    Ok(rest)
}

pub fn close_sending(stream: &mut Tls) -> io::Result<()> {
    stream.conn.send_close_notify();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut stream.sock)?;
    }
    stream.sock.shutdown(std::net::Shutdown::Write)
}

/// One question to the echo and its answer.
pub fn ping(stream: &mut Tls) -> io::Result<()> {
    stream.write_all(b"ping")?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

/// The metrics page.
pub fn metrics(server: &Server) -> String {
    get(server.metrics_address().expect("metrics"), "/metrics").1
}

/// One series of the metrics page, by its name with labels.
pub fn metric(server: &Server, series: &str) -> u64 {
    let page = metrics(server);
    let line = page.lines().find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    let line = line.unwrap_or_else(|| panic!("no {series} in\n{page}"));
    line.rsplit(' ')
        .next()
        .expect("a value")
        .parse()
        .expect("a number")
}

/// Status line and body of a plain HTTP request.
pub fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(client, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("sent");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (
        head.lines().next().expect("a status").to_owned(),
        body.to_owned(),
    )
}

/// Waits until something is so. Fails after a time that only a hanging program needs.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let mut left = PATIENCE;
    let step = Duration::from_millis(10);
    while !so() {
        assert!(!left.is_zero(), "never came true: {what}");
        std::thread::sleep(step);
        left = left.saturating_sub(step);
    }
}

/// Whether a program is installed; says SKIP if not.
pub fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("version").output().is_ok();
    if !found {
        eprintln!("SKIP: {program} is not installed");
    }
    found
}

pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

pub fn provider() -> rustls::crypto::CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

/// Checks signatures, but trusts any certificate, as `curl -k` does.
#[derive(Debug)]
struct Anyone(Vec<SignatureScheme>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, &algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
