//! Cryptography of a server: public-key operations by AWS-LC, one by one, or by the engine, in batches.

use std::fmt;
use std::sync::{Arc, LazyLock};

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustls::crypto::{CryptoProvider, KeyProvider, SupportedKxGroup, aws_lc_rs};
use rustls::sign::SigningKey;
use rustls_pki_types::PrivateKeyDer;
use widelane_batching::{self as batching, Placement, Records};
use widelane_crypto::chacha20poly1305::{Choice, Cipher, Form, FormUnavailable};
use widelane_crypto::{Backend, Preference};
use widelane_engine::{CoreLending, Engine, OperationCounters, StartError, Switch};
use zeroize::Zeroizing;

use crate::config::{Config, Environment, Fault};
use crate::lending::Borrowers;
use crate::observe::encode;
use crate::observe::page;

/// The cryptography of a server.
pub(crate) struct Crypto {
    /// The provider of TLS configurations.
    pub(crate) provider: CryptoProvider,
    /// All key exchange groups, also those that are used only if the configuration names them.
    pub(crate) groups: Vec<&'static dyn SupportedKxGroup>,
    /// Shut down when the server is dropped. `None`: AWS-LC, one by one.
    engine: Option<Engine>,
    /// The lanes of the engine's passes; 1: there are none.
    lanes: usize,
    /// A profile says what wide code does to the clock.
    has_profile: bool,
}

impl Crypto {
    /// `borrowers` may use the vector cores of `placement` while they are idle.
    pub(crate) fn start(
        config: &Config,
        environment: &Environment,
        placement: Placement,
        borrowers: Option<Arc<Borrowers>>,
    ) -> Result<Self, Fault> {
        let records = batching::records(&environment.clock.unwrap_or_default());
        let cipher = cipher(config.chacha20poly1305, records).map_err(|error| {
            let remedy = "or leave it out, which takes the widest that there is";
            Fault::new("chacha20poly1305", error.to_string(), remedy)
        })?;
        let mut crypto = match config.batching.enabled {
            true => Self::batched(config, environment, placement, borrowers)?,
            false => Self::plain(),
        };
        crypto.provider.cipher_suites = widelane_rustls::cipher_suites(cipher);
        Ok(crypto)
    }

    /// Starts the engine. The cipher suites are the provider's own.
    fn batched(
        config: &Config,
        environment: &Environment,
        placement: Placement,
        borrowers: Option<Arc<Borrowers>>,
    ) -> Result<Self, Fault> {
        let batching = &config.batching;
        let engine = Engine::start(widelane_engine::Config {
            placement,
            clock: environment.clock.unwrap_or_default(),
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
            has_profile: environment.clock.is_some(),
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

    pub(crate) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// Makes the page on which `widelane status` looks, and measures what passes cost on this machine,
    /// unless that is known, while the server serves.
    pub(crate) fn begin(&self, backend: Preference) {
        let Some(engine) = &self.engine else { return };
        if let Ok(backend) = backend.resolve() {
            page::begin(backend);
        }
        engine.calibrate_in_background();
    }

    /// The engine's counters, for one scrape.
    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let enabled = ConstGauge::new(i64::from(self.engine.is_some()));
        let help = "1 if public-key operations are batched";
        encode::plain(encoder, [("widelane_batching", help, enabled)])?;
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
        encode::plain(encoder, gauges)?;
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
        encode::plain(encoder, counters)?;
        let operations = engine.counters();
        for (name, help, value) in SERIES {
            let values = operations.iter().map(|one| ([("operation", one.name)], value(one)));
            encode::counters(encoder, name, help, values)?;
        }
        Ok(())
    }
}

/// Loads keys into AWS-LC, as its own provider does, and wipes what they were read from.
#[derive(Debug)]
struct Wiping;

impl KeyProvider for Wiping {
    fn load_private_key(&self, der: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
        aws_lc_rs::sign::any_supported_type(&Zeroizing::new(der))
    }
}

impl fmt::Debug for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crypto")
            .field("batched", &self.engine.is_some())
            .finish_non_exhaustive()
    }
}

impl Drop for Crypto {
    fn drop(&mut self) {
        if let Some(engine) = &self.engine {
            engine.shutdown();
        }
    }
}

fn lanes(backend: Backend) -> usize {
    backend.target().map_or(1, |target| target.lanes())
}

/// The configured code of ChaCha20-Poly1305, or the widest that does not slow down other code.
fn cipher(asked: Choice, records: Records) -> Result<Cipher, FormUnavailable> {
    let kept = match (asked, records) {
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
