//! What the tests share: keys, certificates, configurations, a client, an event loop.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use widelane_crypto::rsa::{SignError, SignRequest, Size, sign_single};
use widelane_engine::{Config, Engine, Operation, Operations};
use widelane_rustls::Driver;

pub(crate) const RSA_1024: &str = include_str!("../data/test-rsa1024.pem");
pub(crate) const RSA_2048: &str = include_str!("../data/test-rsa2048.pem");
pub(crate) const RSA_2176: &str = include_str!("../data/test-rsa2176.pem");
pub(crate) const RSA_3072: &str = include_str!("../data/test-rsa3072.pem");
pub(crate) const RSA_4096: &str = include_str!("../data/test-rsa4096.pem");

/// A self-signed certificate for `localhost` and its key in PKCS#8.
pub(crate) struct Identity {
    pub(crate) cert: CertificateDer<'static>,
    pub(crate) key: PrivatePkcs8KeyDer<'static>,
}

impl Identity {
    pub(crate) fn rsa(pem: &str) -> Self {
        Self::new(KeyPair::from_pem_and_sign_algo(pem, &rcgen::PKCS_RSA_SHA256).unwrap())
    }

    pub(crate) fn generate(algorithm: &'static SignatureAlgorithm) -> Self {
        Self::new(KeyPair::generate_for(algorithm).unwrap())
    }

    fn new(key: KeyPair) -> Self {
        let params = CertificateParams::new(["localhost".to_string()]).unwrap();
        let cert = params.self_signed(&key).unwrap();
        Self {
            cert: cert.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
        }
    }

    pub(crate) fn pkcs8(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key().into()
    }

    /// The same RSA key in PKCS#1: what a PKCS#8 file wraps behind 26 bytes, for 2048 bits and
    /// above.
    pub(crate) fn pkcs1(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs1KeyDer::from(self.key.secret_pkcs8_der()[26..].to_vec()).into()
    }
}

pub(crate) fn pkcs8(pem: &str) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
        .unwrap()
        .into()
}

pub(crate) fn server_config(
    provider: CryptoProvider,
    identity: &Identity,
    key: PrivateKeyDer<'static>,
) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.clone()], key)
        .unwrap();
    Arc::new(config)
}

/// A client that checks signatures but no certificate chains.
pub(crate) fn client_config(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(any_chain())
        .with_no_client_auth();
    Arc::new(config)
}

pub(crate) fn client(config: &Arc<ClientConfig>, name: &'static str) -> ClientConnection {
    ClientConnection::new(config.clone(), ServerName::try_from(name).unwrap()).unwrap()
}

/// Exchanges messages until the client has what it needs to send data.
pub(crate) async fn handshake<IO>(connection: &mut ClientConnection, io: &mut IO) -> io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        flush(connection, io).await?;
        if !connection.is_handshaking() {
            return Ok(());
        }
        receive(connection, io).await?;
    }
}

pub(crate) async fn flush<IO>(connection: &mut ClientConnection, io: &mut IO) -> io::Result<()>
where
    IO: AsyncWrite + Unpin,
{
    let mut out = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut out)?;
    }
    io.write_all(&out).await
}

/// One read of the transport; an end of it is an error while the handshake lasts.
pub(crate) async fn receive<IO>(connection: &mut ClientConnection, io: &mut IO) -> io::Result<usize>
where
    IO: AsyncRead + Unpin,
{
    let mut buf = [0; 4096];
    let read = io.read(&mut buf).await?;
    if read == 0 && connection.is_handshaking() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut rest = &buf[..read];
    loop {
        connection.read_tls(&mut rest)?;
        connection.process_new_packets().map_err(io::Error::other)?;
        if rest.is_empty() {
            return Ok(read);
        }
    }
}

/// An engine whose RSA passes take four jobs on any CPU: the tests of gathering need lanes, not
/// speed.
pub(crate) fn four_lanes(config: Config) -> Engine {
    let operations = Size::ALL.into_iter().map(FourLanes);
    Engine::start_with(config, operations.fold(Operations::new(), Operations::with)).unwrap()
}

struct FourLanes(Size);

impl Operation for FourLanes {
    type Request = SignRequest;

    fn name(&self) -> &'static str {
        match self.0 {
            Size::Rsa2048 => "test-rsa2048-sign",
            Size::Rsa3072 => "test-rsa3072-sign",
            Size::Rsa4096 => "test-rsa4096-sign",
        }
    }

    fn lanes(&self) -> usize {
        4
    }

    fn takes(&self, request: &SignRequest) -> bool {
        request.size() == Some(self.0)
    }

    fn run(&self, requests: &[SignRequest]) -> Vec<Result<Vec<u8>, SignError>> {
        requests.iter().map(sign_single).collect()
    }
}

/// The engine as programs get it.
pub(crate) fn engine() -> Engine {
    Engine::start(Config::default()).unwrap()
}

/// Runs `test` on an event loop of its own with a driver and its flusher.
pub(crate) fn on_event_loop<F: Future>(
    engine: &Engine,
    test: impl FnOnce(Rc<Driver>) -> F,
) -> F::Output {
    without_flusher(engine, |driver| {
        spawn_local(driver.clone().flusher());
        test(driver)
    })
}

pub(crate) fn without_flusher<F: Future>(
    engine: &Engine,
    test: impl FnOnce(Rc<Driver>) -> F,
) -> F::Output {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async { test(Driver::new(engine)).await })
}

pub(crate) fn any_chain() -> Arc<dyn ServerCertVerifier> {
    Arc::new(AnyChain(Arc::new(aws_lc_rs::default_provider())))
}

/// Memory that the pooled stacks of this process have touched, the largest of them, in KiB.
pub(crate) fn touched_stack_kib() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut largest = 0;
    let mut is_stack = false;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("Size:") => is_stack = words.next() == Some("256"),
            Some("Rss:") if is_stack => {
                largest = largest.max(words.next().unwrap().parse().unwrap());
            }
            _ => {}
        }
    }
    largest
}

#[derive(Debug)]
struct AnyChain(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyChain {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
