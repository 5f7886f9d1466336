//! Parts that the tests share: keys, certificates, configurations, connections, an event loop.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use rcgen::KeyPair;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, ProtocolVersion, ServerConfig, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::{JoinHandle, spawn_local};
use widelane_crypto::{Backend, BackendUnavailable, Preference};
use widelane_engine::{Config, Engine, Operation, OperationCounters, Operations, Request, Visitor, for_each_operation};
use widelane_rustls::{Driver, HandshakeError, provider};
use widelane_testkit::certificates::parameters;
pub(crate) use widelane_testkit::certificates::{Identity, Kind};
use widelane_testkit::clients::Verifier;
pub(crate) use widelane_testkit::clients::provider as theirs;

pub(crate) const RSA_1024: &str = include_str!("../data/test-rsa1024.pem");
pub(crate) const RSA_2048: &str = include_str!("../data/test-rsa2048.pem");
pub(crate) const RSA_2176: &str = include_str!("../data/test-rsa2176.pem");
pub(crate) const RSA_3072: &str = include_str!("../data/test-rsa3072.pem");
pub(crate) const RSA_4096: &str = include_str!("../data/test-rsa4096.pem");

/// A certificate for `localhost` with an RSA key.
pub(crate) fn rsa(pem: &str) -> Identity {
    let key = KeyPair::from_pem_and_sign_algo(pem, &rcgen::PKCS_RSA_SHA256).unwrap();
    Identity::of(&key, parameters(&["localhost"]))
}

/// A certificate for `localhost` with a new key.
pub(crate) fn generate(kind: Kind) -> Identity {
    Identity::new(kind, &["localhost"])
}

/// One of each kind that has lanes, RSA with 2048 bits, and their names in counters.
pub(crate) fn each() -> [(&'static str, Identity); 7] {
    [
        ("rsa2048", rsa(RSA_2048)),
        ("p256-ecdsa", generate(Kind::Ecdsa)),
        ("p384-ecdsa", generate(Kind::EcdsaP384)),
        ("ed25519", generate(Kind::Ed25519)),
        ("mldsa44", generate(Kind::MlDsa44)),
        ("mldsa65", generate(Kind::MlDsa65)),
        ("mldsa87", generate(Kind::MlDsa87)),
    ]
}

/// RSA key in PKCS#1: what a PKCS#8 file wraps behind 26 bytes, for 2048 bits and above.
pub(crate) fn pkcs1(key: &PrivateKeyDer<'_>) -> PrivateKeyDer<'static> {
    PrivatePkcs1KeyDer::from(key.secret_der()[26..].to_vec()).into()
}

pub(crate) fn pkcs8(pem: &str) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap().into()
}

/// A provider of which only the private keys go through `engine`: exactly one job a handshake.
pub(crate) fn only_signing(engine: &Engine) -> CryptoProvider {
    CryptoProvider {
        key_provider: provider(engine).key_provider,
        ..theirs()
    }
}

/// A server with an RSA key, which does everything through `engine`.
pub(crate) fn rsa_server(engine: &Engine, pem: &str) -> Arc<ServerConfig> {
    server_config(provider(engine), &rsa(pem))
}

/// A server with an RSA key, which signs through `engine` and does nothing else there.
pub(crate) fn signing_server(engine: &Engine, pem: &str) -> Arc<ServerConfig> {
    server_config(only_signing(engine), &rsa(pem))
}

pub(crate) fn server_config(crypto: CryptoProvider, identity: &Identity) -> Arc<ServerConfig> {
    server_config_with(crypto, identity, identity.key.clone_key())
}

pub(crate) fn server_config_with(
    crypto: CryptoProvider,
    identity: &Identity,
    key: PrivateKeyDer<'static>,
) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(crypto.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), key)
        .unwrap();
    Arc::new(config)
}

/// A server that wants certificates from its clients, and accepts that of `client`.
pub(crate) fn mutual_server_config(
    crypto: CryptoProvider,
    identity: &Identity,
    client: &Identity,
) -> Arc<ServerConfig> {
    let crypto = Arc::new(crypto);
    let verifier = WebPkiClientVerifier::builder_with_provider(client.as_root().into(), crypto.clone()).build();
    let config = ServerConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.unwrap())
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())
        .unwrap();
    Arc::new(config)
}

/// A client that checks signatures but no certificate chains.
pub(crate) fn client_config(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(theirs().into())
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

/// A client that checks everything, trusts `server` and shows the certificate of `own`. Its
/// handshakes are full ones.
pub(crate) fn checking_client_config(
    crypto: CryptoProvider,
    version: &'static SupportedProtocolVersion,
    server: &Identity,
    own: Option<&Identity>,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(crypto.into())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(server.as_root());
    let config = match own {
        Some(own) => builder.with_client_auth_cert(own.chain.clone(), own.key.clone_key()),
        None => Ok(builder.with_no_client_auth()),
    };
    let mut config = config.unwrap();
    config.resumption = Resumption::disabled();
    Arc::new(config)
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

/// An engine that does what every other does, in passes of four jobs on any CPU: the tests of
/// gathering need lanes, not speed.
pub(crate) fn four_lanes(config: Config) -> Engine {
    let mut operations = Gathering(Operations::new());
    for_each_operation(&mut operations).unwrap();
    Engine::start_with(config, operations.0).unwrap()
}

struct Gathering(Operations);

impl Visitor for Gathering {
    fn visit<O: Operation>(
        &mut self,
        make: impl Fn(Backend) -> Result<O, BackendUnavailable>,
    ) -> Result<(), BackendUnavailable> {
        let operation = FourLanes(make(Backend::AwsLc)?);
        self.0 = std::mem::take(&mut self.0).with(operation);
        Ok(())
    }
}

struct FourLanes<O>(O);

impl<O: Operation> Operation for FourLanes<O> {
    type Request = O::Request;

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn lanes(&self) -> usize {
        4
    }

    fn takes(&self, request: &O::Request) -> bool {
        self.0.takes(request)
    }

    fn pass(&self, requests: &[O::Request]) -> Vec<<O::Request as Request>::Output> {
        requests.iter().map(|one| self.0.alone(one)).collect()
    }

    fn specimen(&self) -> O::Request {
        self.0.specimen()
    }
}

/// Counters of the engine for one operation.
pub(crate) fn counted(engine: &Engine, operation: &str) -> OperationCounters {
    let mut counters = engine.counters().into_iter();
    counters.find(|one| one.name == operation).unwrap()
}

/// Operations of a handshake with a hybrid key exchange, both sides of which are ours, and on how many of them each is.
pub(crate) fn of_a_handshake(kind: &str) -> [(String, u64); 7] {
    [
        ("x25519-keygen".into(), 2),
        ("x25519-derive".into(), 2),
        ("mlkem768-keygen".into(), 1),
        ("mlkem768-encaps".into(), 1),
        ("mlkem768-decaps".into(), 1),
        (format!("{kind}-sign"), 1),
        (format!("{kind}-verify"), 2),
    ]
}

/// Jobs and passes of all operations.
pub(crate) fn totals(engine: &Engine) -> (u64, u64) {
    let counters = engine.counters();
    counters
        .iter()
        .fold((0, 0), |(jobs, passes), one| (jobs + one.jobs, passes + one.passes))
}

/// The engine as programs get it.
pub(crate) fn engine() -> Engine {
    Engine::start(Config::default()).unwrap()
}

/// An engine of each backend that this machine has, and one that gathers without any: each does
/// everything in its lanes, also what comes by itself.
pub(crate) fn engines() -> Vec<Engine> {
    let mut engines = vec![four_lanes(Config::default())];
    for backend in Backend::ALL {
        if backend.is_available() {
            let config = Config {
                backend: Preference::Exactly(backend),
                ..Config::default()
            };
            engines.push(Engine::start(config).unwrap());
        } else {
            backend
                .target()
                .into_iter()
                .for_each(widelane_crypto::Target::tell_skipped);
        }
    }
    engines
}

/// Runs `test` on an event loop of its own with a driver and its flusher.
pub(crate) fn on_event_loop<F: Future>(engine: &Engine, test: impl FnOnce(Rc<Driver>) -> F) -> F::Output {
    without_flusher(engine, |driver| {
        spawn_local(driver.clone().flusher());
        test(driver)
    })
}

pub(crate) fn without_flusher<F: Future>(engine: &Engine, test: impl FnOnce(Rc<Driver>) -> F) -> F::Output {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(async { test(Driver::new(engine)).await })
}

/// Parameters that the peers agreed upon, asked of the server's side.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) version: ProtocolVersion,
    pub(crate) kind: HandshakeKind,
    pub(crate) group: Option<NamedGroup>,
    pub(crate) client_certificates: usize,
}

/// A server and a client on one thread, each a task.
pub(crate) struct Pair {
    pub(crate) server: JoinHandle<Result<Facts, HandshakeError>>,
    pub(crate) client: JoinHandle<Result<(), HandshakeError>>,
}

impl Pair {
    pub(crate) async fn complete(self) -> Facts {
        let facts = self.server.await.unwrap().unwrap();
        self.client.await.unwrap().unwrap();
        facts
    }

    /// Results of both ends.
    pub(crate) async fn ends(self) -> (Result<Facts, HandshakeError>, Result<(), HandshakeError>) {
        (self.server.await.unwrap(), self.client.await.unwrap())
    }
}

/// Connects both ends, through one driver, until the server closes.
pub(crate) fn connect(driver: &Rc<Driver>, server: &Arc<ServerConfig>, client: Arc<ClientConfig>) -> Pair {
    connect_to(driver, server, client, "localhost")
}

pub(crate) fn connect_to(
    driver: &Rc<Driver>,
    server: &Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: &'static str,
) -> Pair {
    let (near, far) = duplex(64 * 1024);
    let name = ServerName::try_from(name).unwrap();
    let connecting = driver.clone();
    let client = spawn_local(async move {
        let mut stream = connecting.connect(client, name, near).await?;
        // Takes the tickets too, if any.
        stream.read_to_end(&mut Vec::new()).await?;
        Ok(())
    });
    let (driver, config) = (driver.clone(), server.clone());
    let server = spawn_local(async move {
        let mut stream = driver.accept(config, far).await?;
        let tls = stream.connection();
        let facts = Facts {
            version: tls.protocol_version().unwrap(),
            kind: tls.handshake_kind().unwrap(),
            group: tls.negotiated_key_exchange_group().map(|group| group.name()),
            client_certificates: tls.peer_certificates().map_or(0, |chain| chain.len()),
        };
        stream.shutdown().await?;
        Ok(facts)
    });
    Pair { server, client }
}

/// Checks signatures but no certificate chains.
pub(crate) fn any_chain() -> Arc<Verifier> {
    let schemes = theirs().signature_verification_algorithms.supported_schemes();
    Arc::new(Verifier::new(None, schemes))
}

/// Memory that the pooled stacks of this process have touched, the largest of them, in KiB. The allocator may have
/// an area of the same size, but none with a guard right below it.
pub(crate) fn touched_stack_kib() -> usize {
    const ANONYMOUS: [&str; 3] = ["00000000", "00:00", "0"];
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let address = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
    let (mut largest, mut guard_end) = (0, 0);
    let (mut is_stack, mut is_guard, mut end) = (false, false, 0);
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("Size:") => {
                let size = words.next().unwrap();
                is_stack &= size == "256";
                guard_end = if is_guard && size == "64" { end } else { 0 };
            }
            Some("Rss:") if is_stack => {
                largest = largest.max(words.next().unwrap().parse().unwrap());
            }
            Some(range) if !range.ends_with(':') => {
                let (first, last) = range.split_once('-').unwrap();
                end = address(last);
                let may = words.next();
                // Of a file, its name would follow.
                let is_anonymous = words.eq(ANONYMOUS);
                is_stack = is_anonymous && may == Some("rw-p") && address(first) == guard_end;
                is_guard = is_anonymous && may == Some("---p");
            }
            _ => {}
        }
    }
    largest
}
