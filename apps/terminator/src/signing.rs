//! The seam between connections and public-key operations: alone by AWS-LC, or batched by the
//! engine.

use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustls::ServerConnection;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use widelane_batching::{self as batching, Records};
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Form, FormUnavailable};
use widelane_crypto::{Backend, Preference};
use widelane_engine::{Engine, GiveBack, OperationCounters, Placement, StartError};
use widelane_rustls::{Driver, HandshakeError};

use crate::config::{Batching, Fault, SigningBackend};
use crate::stats::encode_plain;
use crate::tenants::Tenants;

/// Where a server's public-key operations are done.
pub(crate) struct SigningSource {
    /// What TLS configurations are built with.
    pub(crate) provider: CryptoProvider,
    /// Every key exchange group there is, those that have to be asked for by name as well.
    pub(crate) groups: Vec<&'static dyn SupportedKxGroup>,
    /// Shut down when the server is dropped. `None`: AWS-LC, one by one.
    engine: Option<Engine>,
}

/// How a worker makes handshake progress.
pub(crate) enum Signing {
    /// Every operation where it is asked for.
    Plain,
    /// Handshakes suspend at their operations, which join those of other connections.
    Batched(Rc<Driver>),
}

/// A handshake in progress.
pub(crate) enum Handshake {
    Plain,
    /// Known to the driver, whose other handshakes may wait for its operations.
    Batched(widelane_rustls::Handshake),
}

/// Why processing did not succeed.
#[derive(Debug)]
pub(crate) enum ProcessFailure {
    /// The engine's queue is full.
    Overloaded,
    /// An operation failed, and not by the peer's fault.
    Internal(String),
    /// The peer's bytes.
    Tls(rustls::Error),
}

impl SigningSource {
    /// With these vector cores, lent to `tenants` while idle; none: passes run on the workers.
    pub(crate) fn start(
        batching: &Batching,
        vector: &[usize],
        tenants: Option<Arc<Tenants>>,
        records: Choice,
    ) -> Result<Self, Fault> {
        let cipher = cipher(batching, records).map_err(|error| {
            let remedy = "or leave it out, which takes the widest that there is";
            Fault::new("chacha20poly1305", error.to_string(), remedy)
        })?;
        let mut source = Self::without_records(batching, vector, tenants)?;
        source.provider.cipher_suites = widelane_rustls::cipher_suites(cipher);
        Ok(source)
    }

    /// The same, with the suites as they come.
    fn without_records(
        batching: &Batching,
        vector: &[usize],
        tenants: Option<Arc<Tenants>>,
    ) -> Result<Self, Fault> {
        if !batching.enabled {
            return Ok(Self::plain());
        }
        let engine = Engine::start(widelane_engine::Config {
            placement: match vector {
                [] => Placement::Inline,
                cpus => Placement::VectorCores {
                    cpus: cpus.to_vec(),
                },
            },
            clock: batching.clock,
            queue_limit: batching.queue,
            give_back: tenants.map(|to| GiveBack {
                to,
                rest: batching.rest,
            }),
            backend: match batching.backend {
                SigningBackend::Auto => Preference::Auto,
                SigningBackend::Avx512ifma => Preference::Exactly(Backend::Avx512Ifma),
                SigningBackend::Avx512ifma256 => Preference::Exactly(Backend::Avx512Ifma256),
                SigningBackend::AwsLc => Preference::Exactly(Backend::AwsLc),
            },
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
        })
    }

    fn plain() -> Self {
        // rustls keeps groups for ever: made once, for what AWS-LC has no group for.
        static OURS: LazyLock<Vec<&'static dyn SupportedKxGroup>> =
            LazyLock::new(|| widelane_rustls::kx_groups(Engine::global()));
        let mut groups = aws_lc_rs::ALL_KX_GROUPS.to_vec();
        for &group in OURS.iter() {
            if groups.iter().all(|known| known.name() != group.name()) {
                groups.push(group);
            }
        }
        Self {
            provider: aws_lc_rs::default_provider(),
            groups,
            engine: None,
        }
    }

    /// Finds out what passes cost here, where that is not known.
    pub(crate) fn calibrate(&self) {
        if let Some(engine) = &self.engine {
            engine.calibrate();
        }
    }

    /// The engine's counters for a scrape.
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
                "widelane_vector_cores_active",
                "Vector cores that are kept free of scalar work now",
                cores.active as i64,
            ),
            (
                "widelane_vector_cores_given_back",
                "Vector cores that are idle and lent to the workers now",
                cores.given_back as i64,
            ),
        ];
        let gauges = gauges.map(|(name, help, value)| (name, help, ConstGauge::new(value)));
        encode_plain(encoder, gauges)?;
        let counters = [
            (
                "widelane_vector_core_gives",
                "How often a vector core was given back",
                cores.gives,
            ),
            (
                "widelane_vector_core_takes",
                "How often a vector core was taken again",
                cores.takes,
            ),
            (
                "widelane_vector_core_take_failures",
                "How often that failed, so that workers may have run beside wide code",
                cores.take_failures,
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
    /// For the calling thread, inside its event loop.
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

    /// Announces a handshake, whose connection has just been accepted.
    pub(crate) fn handshake(&self) -> Handshake {
        match self {
            Self::Plain => Handshake::Plain,
            Self::Batched(driver) => Handshake::Batched(driver.handshake()),
        }
    }
}

impl Handshake {
    /// Processes whatever bytes `tls` has received. The connection comes back with an error too,
    /// for its alert; if the future is dropped, it is dropped.
    pub(crate) async fn process(
        &mut self,
        mut tls: Box<ServerConnection>,
    ) -> (Box<ServerConnection>, Result<(), ProcessFailure>) {
        match self {
            Self::Plain => {
                let result = tls.process_new_packets();
                (tls, result.map(drop).map_err(ProcessFailure::Tls))
            }
            Self::Batched(handshake) => {
                let (tls, result) = handshake.process(tls).await;
                let result = result.map(drop).map_err(|error| match error {
                    HandshakeError::Overloaded => ProcessFailure::Overloaded,
                    HandshakeError::Tls(error @ rustls::Error::Other(_)) => {
                        ProcessFailure::Internal(error.to_string())
                    }
                    HandshakeError::Tls(error) => ProcessFailure::Tls(error),
                    error => ProcessFailure::Internal(error.to_string()),
                });
                (tls, result)
            }
        }
    }
}

/// The cipher of records that was asked for, or the one that does not slow down what runs beside it.
fn cipher(settings: &Batching, asked: Choice) -> Result<Cipher, FormUnavailable> {
    let kept = match (asked, batching::records(&settings.clock)) {
        (Choice::Exactly(_), _) | (_, Records::Widest) => return Cipher::new(asked),
        (_, Records::Narrow) => Form::Ymm256,
        (_, Records::Light) => Form::Ymm256Light,
    };
    Cipher::new(Choice::Exactly(kept)).or_else(|_| Cipher::new(asked))
}

type Value = fn(&OperationCounters) -> u64;

/// Prometheus wants times in seconds, but these are sums of nanoseconds and stay exact as integers.
const SERIES: [(&str, &str, Value); 12] = [
    ("widelane_engine_jobs", "Jobs answered", |one| one.jobs),
    (
        "widelane_engine_alone",
        "Jobs that ran one by one, cheaper than a pass",
        |one| one.alone,
    ),
    (
        "widelane_engine_at_once",
        "Jobs that ran without a wait, since nobody could have joined them",
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
        "Passes in narrower registers than there are, by what the clock costs",
        |one| one.narrow,
    ),
    (
        "widelane_engine_lanes_filled",
        "Jobs that passes carried; over passes: the mean fill",
        |one| one.lanes_filled,
    ),
    (
        "widelane_engine_queued_nanoseconds",
        "Time jobs waited before they ran",
        |one| u64::try_from(one.queued.as_nanos()).unwrap_or(u64::MAX),
    ),
    (
        "widelane_engine_kernel_nanoseconds",
        "Time spent running jobs, in passes and one by one",
        |one| u64::try_from(one.kernel.as_nanos()).unwrap_or(u64::MAX),
    ),
    (
        "widelane_engine_rejected",
        "Jobs refused because the queue was full",
        |one| one.rejected,
    ),
    (
        "widelane_engine_cancelled",
        "Jobs whose connection went away first",
        |one| one.cancelled,
    ),
    (
        "widelane_engine_panicked",
        "Jobs that made the operation panic (a bug)",
        |one| one.panicked,
    ),
];
