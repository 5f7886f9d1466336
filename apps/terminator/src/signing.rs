//! Who does the public-key operations of handshakes: AWS-LC, one by one, or the engine, in batches.

use std::fmt;
use std::future::poll_fn;
use std::ops::DerefMut;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustls::crypto::{CryptoProvider, KeyProvider, SupportedKxGroup, aws_lc_rs};
use rustls::sign::SigningKey;
use rustls::{ClientConfig, ClientConnection, ConnectionCommon, ServerConnection};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use widelane_batching::{self as batching, Placement, Records};
use widelane_crypto::Backend;
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Form, FormUnavailable};
use widelane_engine::{CoreLending, Engine, OperationCounters, StartError, Switch};
use widelane_rustls::{Driver, HandshakeError, Observed};
use zeroize::Zeroizing;

use crate::config::{Batching, Fault};
use crate::lending::Borrowers;
use crate::observe::page;
use crate::material::resumption::{Session, TicketRefusal};
use crate::observe::stats::encode_plain;
use crate::front::transcript::Changed;

/// Does a server's public-key operations.
pub(crate) struct SigningSource {
    /// For TLS configurations.
    pub(crate) provider: CryptoProvider,
    /// All key exchange groups, also those that are used only if the configuration names them.
    pub(crate) groups: Vec<&'static dyn SupportedKxGroup>,
    /// Shut down when the server is dropped. `None`: AWS-LC, one by one.
    engine: Option<Engine>,
    /// The lanes of the engine's passes; 1: there are none.
    lanes: usize,
    /// Whether a profile says what wide code does to the clock.
    has_profile: bool,
}

/// How a worker runs handshakes.
pub(crate) enum Signing {
    /// rustls does each operation at once.
    Plain,
    /// A handshake is suspended at each operation, which then joins those of other connections.
    Batched(Rc<Driver>),
}

/// A handshake in progress.
pub(crate) struct Handshake {
    session: Session,
    part: Part,
}

/// A handshake in progress in which this server is the client.
pub(crate) struct ClientHandshake(Part);

/// Who does the operations of a handshake.
enum Part {
    /// rustls, each at once.
    Plain(Observed),
    /// The driver: other handshakes may wait for the operations of this one.
    Batched(widelane_rustls::Handshake),
}

/// Why a handshake step failed.
#[derive(Debug)]
pub(crate) enum ProcessFailure {
    /// The engine's queue is full.
    Overloaded,
    /// An operation failed, and the client is not to blame.
    Internal(String),
    /// The client broke the protocol, or no agreement was possible.
    Tls(rustls::Error),
}

impl SigningSource {
    /// `borrowers` may use the vector cores of `placement` while they are idle.
    pub(crate) fn start(
        batching: &Batching,
        placement: Placement,
        borrowers: Option<Arc<Borrowers>>,
        records: Choice,
    ) -> Result<Self, Fault> {
        let cipher = cipher(batching, records).map_err(|error| {
            let remedy = "or leave it out, which takes the widest that there is";
            Fault::new("chacha20poly1305", error.to_string(), remedy)
        })?;
        let mut source = Self::without_records(batching, placement, borrowers)?;
        source.provider.cipher_suites = widelane_rustls::cipher_suites(cipher);
        Ok(source)
    }

    /// The same with the provider's own cipher suites.
    fn without_records(
        batching: &Batching,
        placement: Placement,
        borrowers: Option<Arc<Borrowers>>,
    ) -> Result<Self, Fault> {
        if !batching.enabled {
            return Ok(Self::plain());
        }
        let engine = Engine::start(widelane_engine::Config {
            placement,
            clock: batching.clock(),
            queue_limit: batching.queue,
            lending: borrowers.map(|to| CoreLending {
                to,
                rest: batching.rest,
            }),
            backend: batching.backend,
            switch: Switch(page::lanes_are_off),
        });
        let engine = engine.map_err(|error| {
            let key = match error {
                StartError::Backend(_) => "batching.backend",
                _ => "batching.vector_cpus",
            };
            Fault::new(key, error.to_string(), "or set batching.enabled = false")
        })?;
        Ok(Self {
            provider: widelane_rustls::provider(&engine),
            groups: widelane_rustls::kx_groups(&engine),
            engine: Some(engine),
            lanes: batching.backend.resolve().map_or(1, lanes),
            has_profile: batching.clock.is_some(),
        })
    }

    fn plain() -> Self {
        // Groups must live for ever, so they are made once. They fill the gaps of AWS-LC.
        static OURS: LazyLock<Vec<&'static dyn SupportedKxGroup>> =
            LazyLock::new(|| widelane_rustls::kx_groups(Engine::global()));
        let mut groups = aws_lc_rs::ALL_KX_GROUPS.to_vec();
        for &group in OURS.iter() {
            if groups.iter().all(|known| known.name() != group.name()) {
                groups.push(group);
            }
        }
        Self {
            provider: CryptoProvider {
                key_provider: &Wiping,
                ..aws_lc_rs::default_provider()
            },
            groups,
            engine: None,
            lanes: 1,
            has_profile: false,
        }
    }

    /// The fewest handshakes under way on one worker that fill passes.
    pub(crate) fn together(&self) -> usize {
        match &self.engine {
            Some(engine) if *engine.placement() != Placement::Inline => ON_VECTOR_CORES,
            _ => self.lanes,
        }
    }

    /// Makes the page on which `widelane status` looks.
    pub(crate) fn begin_page(&self, batching: &Batching) {
        if let (Some(_), Ok(backend)) = (&self.engine, batching.backend.resolve()) {
            page::begin(backend);
        }
    }

    /// Measures what passes cost on this machine, unless that is known, while the server serves.
    pub(crate) fn calibrate(&self) {
        if let Some(engine) = &self.engine {
            engine.calibrate_in_background();
        }
    }

    /// The engine's counters, for one scrape.
    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let enabled = ConstGauge::new(i64::from(self.engine.is_some()));
        let help = "1 if public-key operations are batched";
        encode_plain(encoder, [("widelane_batching", help, enabled)])?;
        let Some(engine) = &self.engine else {
            return Ok(());
        };
        let cores = engine.vector_cores();
        let gauges = [
            (
                "widelane_lanes",
                "1 if passes have lanes, 0 if AWS-LC does all operations, as on CPUs without lanes that Widelane uses",
                i64::from(self.lanes > 1),
            ),
            (
                "widelane_profile",
                "1 if a profile says what wide code does to the clock of this machine",
                i64::from(self.has_profile),
            ),
            (
                "widelane_vector_cores_active",
                "Vector cores that are free of scalar work now",
                cores.active as i64,
            ),
            (
                "widelane_vector_cores_given_back",
                "Idle vector cores that are lent to the workers now",
                cores.lent as i64,
            ),
        ];
        let gauges = gauges.map(|(name, help, value)| (name, help, ConstGauge::new(value)));
        encode_plain(encoder, gauges)?;
        let counters = [
            (
                "widelane_vector_core_gives",
                "How often a vector core was lent to the workers",
                cores.loans,
            ),
            (
                "widelane_vector_core_takes",
                "How often a vector core was reclaimed from the workers",
                cores.reclaims,
            ),
            (
                "widelane_vector_core_take_failures",
                "How often a reclaim failed, so that workers may have run beside wide code",
                cores.failed_reclaims,
            ),
        ];
        let counters = counters.map(|(name, help, value)| (name, help, ConstCounter::new(value)));
        encode_plain(encoder, counters)?;
        let operations = engine.counters();
        for (name, help, value) in SERIES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for operation in &operations {
                family
                    .encode_family(&[("operation", operation.name)])?
                    .encode_counter::<NoLabelSet, _, u64>(&value(operation), None)?;
            }
        }
        Ok(())
    }
}

/// Loads keys into AWS-LC, as its own provider does, and wipes what they were read from.
#[derive(Debug)]
struct Wiping;

impl KeyProvider for Wiping {
    fn load_private_key(
        &self,
        der: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        aws_lc_rs::sign::any_supported_type(&Zeroizing::new(der))
    }
}

impl fmt::Debug for SigningSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningSource")
            .field("batched", &self.engine.is_some())
            .finish_non_exhaustive()
    }
}

impl Drop for SigningSource {
    fn drop(&mut self) {
        if let Some(engine) = &self.engine {
            engine.shutdown();
        }
    }
}

impl Signing {
    /// For the calling thread. Call it inside the thread's event loop.
    pub(crate) fn new(source: &SigningSource) -> Self {
        match &source.engine {
            None => Self::Plain,
            Some(engine) => {
                let driver = Driver::new(engine);
                tokio::task::spawn_local(driver.clone().flusher());
                Self::Batched(driver)
            }
        }
    }

    /// Announces the handshake of a connection that was just accepted.
    pub(crate) fn handshake(&self) -> Handshake {
        Handshake {
            session: Session::default(),
            part: self.part(),
        }
    }

    /// A handshake has come to its end: counts it where `widelane status` looks.
    pub(crate) fn count(&self, is_resumed: bool) {
        if let Self::Batched(driver) = self {
            page::count(driver.engine(), is_resumed);
        }
    }

    /// Announces a handshake with a backend.
    pub(crate) fn client_handshake(&self) -> ClientHandshake {
        ClientHandshake(self.part())
    }

    fn part(&self) -> Part {
        match self {
            Self::Plain => Part::Plain(Observed::default()),
            Self::Batched(driver) => Part::Batched(driver.handshake()),
        }
    }
}

impl Handshake {
    /// Why a ticket that the client offered was refused, if none was accepted.
    pub(crate) fn refused_ticket(&self) -> Option<TicketRefusal> {
        self.session.refused_ticket()
    }

    /// Takes note of a ClientHello that rustls gets in another form.
    pub(crate) fn change(&mut self, changed: Changed) {
        self.session.change(changed);
    }

    /// Processes the bytes that `tls` has received. The connection comes back also with an error,
    /// so that its alert can be sent. If the future is dropped, so is the connection.
    pub(crate) async fn process(
        &mut self,
        tls: Box<ServerConnection>,
    ) -> (Box<ServerConnection>, Result<(), ProcessFailure>) {
        let Self { session, part } = self;
        let mut step = pin!(step(part, tls));
        let (tls, result) = poll_fn(|cx| session.enter(|| step.as_mut().poll(cx))).await;
        session.settle(tls.handshake_kind());
        (tls, result)
    }
}

impl ClientHandshake {
    /// On a thread without a driver.
    pub(crate) fn alone() -> Self {
        Self(Part::Plain(Observed::default()))
    }

    /// Makes the connection, with the keys of its ClientHello.
    pub(crate) async fn start(
        &mut self,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Box<ClientConnection>, ProcessFailure> {
        match &mut self.0 {
            Part::Plain(observed) => {
                let tls = ClientConnection::new(config, name).map(Box::new);
                let tls = tls.map_err(ProcessFailure::Tls)?;
                observed.step(&tls);
                Ok(tls)
            }
            Part::Batched(handshake) => {
                let started = handshake.start_client(config, name).await;
                started.map_err(ProcessFailure::from)
            }
        }
    }

    /// Processes the bytes that `tls` has received, as [`Handshake::process`] does.
    pub(crate) async fn process(
        &mut self,
        tls: Box<ClientConnection>,
    ) -> (Box<ClientConnection>, Result<(), ProcessFailure>) {
        step(&mut self.0, tls).await
    }
}

impl From<HandshakeError> for ProcessFailure {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Overloaded => Self::Overloaded,
            HandshakeError::Tls(error @ rustls::Error::Other(_)) => {
                Self::Internal(error.to_string())
            }
            HandshakeError::Tls(error) => Self::Tls(error),
            error => Self::Internal(error.to_string()),
        }
    }
}

async fn step<C, D>(part: &mut Part, mut tls: Box<C>) -> (Box<C>, Result<(), ProcessFailure>)
where
    C: DerefMut<Target = ConnectionCommon<D>> + 'static,
    D: 'static,
{
    let handshake = match part {
        Part::Batched(handshake) => handshake,
        Part::Plain(observed) => {
            observed.step(&tls);
            let result = tls.process_new_packets();
            observed.stepped(&tls, result.as_ref().err());
            return (tls, result.map(drop).map_err(ProcessFailure::Tls));
        }
    };
    let (tls, result) = handshake.process(tls).await;
    (tls, result.map(drop).map_err(ProcessFailure::from))
}

fn lanes(backend: Backend) -> usize {
    backend.target().map_or(1, |target| target.lanes())
}

/// The configured code of ChaCha20-Poly1305, or the widest that does not slow down other code.
fn cipher(settings: &Batching, asked: Choice) -> Result<Cipher, FormUnavailable> {
    let kept = match (asked, batching::records(&settings.clock())) {
        (Choice::Exactly(_), _) | (_, Records::Widest) => return Cipher::new(asked),
        (_, Records::Narrow) => Form::Ymm256,
        (_, Records::Light) => Form::Ymm256Light,
    };
    Cipher::new(Choice::Exactly(kept)).or_else(|_| Cipher::new(asked))
}

/// A vector core begins a pass while the worker prepares the next ones, for all of them.
const ON_VECTOR_CORES: usize = 64;

type Value = fn(&OperationCounters) -> u64;

/// Times are in nanoseconds, not in seconds as is usual with Prometheus: integers stay exact.
const SERIES: [(&str, &str, Value); 12] = [
    ("widelane_engine_jobs", "Jobs answered", |one| one.jobs),
    (
        "widelane_engine_alone",
        "Jobs that ran one by one because that was cheaper than a pass",
        |one| one.alone,
    ),
    (
        "widelane_engine_at_once",
        "Jobs run at once because no other job could share the pass",
        |one| one.at_once,
    ),
    ("widelane_engine_passes", "Passes run", |one| one.passes),
    (
        "widelane_engine_passes_on_vector_cores",
        "Passes that ran on vector cores",
        |one| one.on_vector_cores,
    ),
    (
        "widelane_engine_passes_narrow",
        "Passes in narrower registers than the widest, because the clock costs less",
        |one| one.narrow,
    ),
    (
        "widelane_engine_lanes_filled",
        "Jobs in passes; divided by passes: the mean fill",
        |one| one.lanes_filled,
    ),
    (
        "widelane_engine_queued_nanoseconds",
        "Time from submission to start, summed over jobs",
        |one| u64::try_from(one.queued.as_nanos()).unwrap_or(u64::MAX),
    ),
    (
        "widelane_engine_kernel_nanoseconds",
        "Time in jobs, in passes and one by one",
        |one| u64::try_from(one.kernel.as_nanos()).unwrap_or(u64::MAX),
    ),
    (
        "widelane_engine_rejected",
        "Jobs refused because the queue was full",
        |one| one.rejected,
    ),
    (
        "widelane_engine_cancelled",
        "Jobs whose connection ended before they ran",
        |one| one.cancelled,
    ),
    (
        "widelane_engine_panicked",
        "Jobs in which the operation panicked (a bug)",
        |one| one.panicked,
    ),
];
