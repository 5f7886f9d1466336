//! What the tests share: certificates, backends, a server, a client of our own.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

pub mod named;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    CertificateParams, CertificateRevocationListParams, CertifiedIssuer, ExtendedKeyUsagePurpose,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
};
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, SignatureScheme,
    StreamOwned, SupportedCipherSuite, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tempfile::TempDir;
use time::OffsetDateTime;
use widelane_terminator::{Backend, Certificate, Config, Document, Listener, Server};

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Kinds of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Rsa,
    Ecdsa,
    EcdsaP384,
    Ed25519,
    MlDsa44,
    MlDsa65,
    MlDsa87,
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
        let authority = Authority::new("test authority", &self.path("ca.pem"));
        let identity = authority.identity(Kind::Ecdsa, common_name);
        (self.path("ca.pem"), identity)
    }
}

/// An authority that signs client certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// With its certificate in `file`.
    pub fn new(name: &str, file: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key(Kind::Ecdsa)).expect("an authority");
        std::fs::write(file, issuer.pem()).expect("written");
        Self { issuer }
    }

    /// A server's certificate for `names`, which is good until so many days from now.
    pub fn server(&self, names: &[&str], days: i64) -> Identity {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.not_before = OffsetDateTime::now_utc() - time::Duration::days(100);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::days(days);
        self.sign(Kind::Ecdsa, params)
    }

    pub fn identity(&self, kind: Kind, common_name: &str) -> Identity {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, common_name);
        params.serial_number = Some(common_name.as_bytes().to_vec().into());
        self.sign(kind, params)
    }

    fn sign(&self, kind: Kind, params: CertificateParams) -> Identity {
        let key = key(kind);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// A list in PEM that revokes the certificate of `common_name`, due for an update in `days`.
    pub fn revoke(&self, common_name: &str, days: i64) -> String {
        let now = OffsetDateTime::now_utc();
        let revoked = RevokedCertParams {
            serial_number: common_name.as_bytes().to_vec().into(),
            revocation_time: now - time::Duration::days(10),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now - time::Duration::days(10),
            next_update: now + time::Duration::days(days),
            crl_number: vec![1].into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("a list");
        list.pem().expect("PEM")
    }
}

/// A certificate from an authority.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub pem: String,
    pub key_pem: String,
}

/// A certificate of an authority (CA:TRUE) that signs itself and is used for one side of a connection, as
/// `openssl req -x509` makes it.
pub fn itself(name: &str, until: OffsetDateTime, usages: &[ExtendedKeyUsagePurpose]) -> Identity {
    let key = key(Kind::Ecdsa);
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_before = OffsetDateTime::now_utc() - time::Duration::days(100);
    params.not_after = until;
    params.serial_number = Some(name.as_bytes().to_vec().into());
    params.extended_key_usages = usages.to_vec();
    let certificate = params.self_signed(&key).expect("a certificate");
    Identity {
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        pem: certificate.pem(),
        key_pem: key.serialize_pem(),
    }
}

fn key(kind: Kind) -> KeyPair {
    let key = KeyPair::generate_for(match kind {
        // Of 2048 bits.
        Kind::Rsa => &rcgen::PKCS_RSA_SHA256,
        Kind::Ecdsa => &rcgen::PKCS_ECDSA_P256_SHA256,
        Kind::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        Kind::Ed25519 => &rcgen::PKCS_ED25519,
        Kind::MlDsa44 => &rcgen::PKCS_ML_DSA_44,
        Kind::MlDsa65 => &rcgen::PKCS_ML_DSA_65,
        Kind::MlDsa87 => &rcgen::PKCS_ML_DSA_87,
    })
    .expect("a key");
    match kind {
        Kind::Ed25519 => {
            // OpenSSL 3.0 reads version 1 only (RFC 8410, section 7): without the public key.
            let seed = &key.serialize_der()[ED25519_VERSION_1.len()..][..32];
            let version_1 = [&ED25519_VERSION_1[..], seed].concat();
            KeyPair::try_from(version_1).expect("the same key")
        }
        _ => key,
    }
}

/// What stands before the seed in a key of version 1; as long as in version 2.
const ED25519_VERSION_1: [u8; 16] =
    *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

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
    pub groups: Vec<&'static dyn SupportedKxGroup>,
    pub suites: Vec<SupportedCipherSuite>,
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
            groups: provider().kx_groups,
            suites: provider().cipher_suites,
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
        let builder = self.builder();
        let mut config = match &self.identity {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .expect("an identity"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.clone();
        Arc::new(config)
    }

    /// For an identity whose key need not belong to its certificate.
    pub fn config_with_any_key(&self) -> Arc<ClientConfig> {
        let identity = self.identity.as_ref().expect("an identity");
        let key = identity.key.clone_key();
        let key = provider()
            .key_provider
            .load_private_key(key)
            .expect("a key");
        let certified = CertifiedKey::new(identity.chain.clone(), key);
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        Arc::new(self.builder().with_client_cert_resolver(resolver))
    }

    fn builder(&self) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        let provider = CryptoProvider {
            kx_groups: self.groups.clone(),
            cipher_suites: self.suites.clone(),
            ..provider()
        };
        ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&self.versions)
            .expect("versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(self.schemes.clone())))
    }
}

/// Completes a handshake, with a host name to ask for.
pub fn connect(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> io::Result<Tls> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
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

/// The record of a client's ClientHello.
pub fn client_hello() -> Vec<u8> {
    client_hello_for("a.example", &Wish::default())
}

/// The same for another host name and other wishes.
pub fn client_hello_for(name: &'static str, wish: &Wish) -> Vec<u8> {
    let name = name.try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(wish.config(), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("in memory");
    bytes
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

/// Reads to the end of a connection that found no backend: no answer, and not an empty one either.
pub fn assert_unanswered(stream: &mut Tls) {
    let mut rest = Vec::new();
    let error = stream.read_to_end(&mut rest).expect_err("no close_notify");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    assert!(rest.is_empty());
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
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIP: {program} is not installed");
    }
    found
}

pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

pub fn provider() -> CryptoProvider {
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
