//! Measures whether a second CPU does as much as the first: runs the server side of handshakes in memory.
//!
//! No sockets, no kernel: batches of clients greet, the servers of all threads answer at the same
//! time, the clients finish, and the servers take that at the same time. Only what servers do is
//! counted, in CPU time of their threads, so that programs beside this one take nothing from it; what
//! two threads cost each other in caches and locks is in it. Threads share what the workers of
//! `widelane serve` share: engine, configuration, keys, ticket keys.
//!
//! A second run shares nothing: what the machine itself loses with all CPUs at work, for example
//! because two of them are one core, is in both.

use crate::error::TrialError;
use crate::plan::at_least_one;
use crate::record::Record;
use crate::relay::config;
use crate::stage::{Stage, roots};
use rustls::crypto::aws_lc_rs;
use rustls::server::{NoServerSessionStorage, ServerConnection};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use rustls_pki_types::ServerName;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::slice::from_ref;
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;
use widelane_affinity::thread_time;
use widelane_engine::{Config, Engine};
use widelane_rustls::{Driver, HandshakeError, Turns, provider};
use widelane_samples::kinds::SCALING;
use widelane_samples::{named, names};

/// The server side of handshakes in memory: one thread, and one on each CPU; writes a record
///
/// Half a minute. Example: widelane-lab handshakes scaling --cpus 0,2
#[derive(Clone, Debug, clap::Args)]
pub struct ScalingPlan {
    /// CPUs, of which each gets a thread [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// Runs of each arrangement
    #[arg(long, default_value_t = 7, value_parser = at_least_one())]
    pub rounds: usize,
    /// Batches of 64 handshakes in each run
    #[arg(long, default_value_t = 40, value_parser = at_least_one())]
    pub batches: usize,
}

/// Measures `plan` for a record, and gives a table.
///
/// # Errors
///
/// [`TrialError::Machine`] for what the system refuses, and for a handshake that fails.
pub fn scaling(
    stage: &Stage,
    plan: &ScalingPlan,
    record: &mut Record,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    let mut cpus = plan.cpus.clone();
    if cpus.is_empty() {
        let allowed = widelane_affinity::allowed(None).map_err(failed)?;
        cpus.extend(allowed.iter());
    }
    for (kind, files) in ["RSA-2048", "ECDSA P-256"].iter().zip(stage.certificates()) {
        for round in 0..plan.rounds {
            for arrangement in Arrangement::ALL {
                stage.interrupt.check()?;
                progress(&format!(
                    "{kind}, {}, round {} of {}",
                    names::arrangement(arrangement.name()),
                    round + 1,
                    plan.rounds
                ));
                let outcome = arrangement.run(&files, &cpus, plan.batches).map_err(failed)?;
                let report = json!({
                    "threads": outcome.threads,
                    "handshakes_per_s": outcome.rate,
                });
                record.line(&json!({
                    "kind": SCALING.kind,
                    "certificate": kind,
                    "arrangement": arrangement.name(),
                    "cpus": cpus,
                    "round": round,
                    "report": report,
                }))?;
            }
        }
    }
    Ok(format!(
        "\nThe server side of full TLS 1.3 handshakes in memory: X25519, AES-128-GCM, two tickets;\n\
         {BATCH} under way in each thread, by CPU time; medians of {} rounds.\n\n{}",
        plan.rounds,
        record.table(&SCALING, |_| true).text()
    ))
}

named! {
    /// Arrangement of threads.
    enum Arrangement: "arrangement" {
        /// One thread, on each CPU in turn.
        One = "one",
        /// One thread on each CPU, as workers of one server.
        Sharing = "sharing",
        /// One on each CPU, each with an engine and a configuration of its own.
        Apart = "apart",
    }
}

/// What a run has measured.
struct Outcome {
    /// Number of threads at the same time.
    threads: usize,
    /// Their handshakes a second.
    rate: f64,
}

impl Arrangement {
    fn run(self, files: &(PathBuf, PathBuf), cpus: &[usize], batches: usize) -> std::io::Result<Outcome> {
        let make = || Server::new(&files.0, &files.1);
        let first = make()?;
        let mut places = Vec::new();
        for &cpu in cpus {
            let own = match self {
                Self::Apart if !places.is_empty() => make()?,
                _ => first.clone(),
            };
            places.push((cpu, own));
        }
        let outcome = match self {
            // The mean over the CPUs, which need not be equally fast.
            Self::One => {
                let rates = places.iter().map(|place| together(from_ref(place), batches));
                Outcome {
                    threads: 1,
                    rate: rates.sum::<std::io::Result<f64>>()? / cpus.len() as f64,
                }
            }
            Self::Sharing | Self::Apart => Outcome {
                threads: cpus.len(),
                rate: together(&places, batches)?,
            },
        };
        for (_, server) in &places {
            server.engine.shutdown();
        }
        Ok(outcome)
    }
}

/// State that the workers of a server share.
#[derive(Clone)]
struct Server {
    engine: Engine,
    config: Arc<ServerConfig>,
    /// What its clients take.
    client: Arc<ClientConfig>,
}

impl Server {
    fn new(certificate: &Path, key: &Path) -> std::io::Result<Self> {
        let engine = Engine::start(Config::default()).map_err(std::io::Error::other)?;
        engine.calibrate();
        let mut provider = provider(&engine);
        provider
            .cipher_suites
            .retain(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
        let client = client(roots([certificate])?).map_err(std::io::Error::other)?;
        let read = |path: &Path| std::fs::read(path);
        let chain = widelane_pem::chain(&read(certificate)?).map_err(std::io::Error::other)?;
        let chain = chain.into_iter().map(|one| one.value).collect();
        let key = widelane_pem::private_key(&read(key)?).map_err(std::io::Error::other)?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| {
                let builder = builder.with_no_client_auth();
                builder.with_single_cert(chain, key.clone_key())
            })
            .map_err(std::io::Error::other)?;
        config.send_tls13_tickets = 2;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(std::io::Error::other)?;
        Ok(Self {
            engine,
            config: Arc::new(config),
            client,
        })
    }
}

/// Runs a thread on each CPU at the same time; gives the sum of their rates.
fn together(places: &[(usize, Server)], batches: usize) -> std::io::Result<f64> {
    let barrier = Barrier::new(places.len());
    thread::scope(|scope| {
        let threads: Vec<_> = places
            .iter()
            .map(|(cpu, server)| {
                let barrier = &barrier;
                scope.spawn(move || -> std::io::Result<f64> {
                    // All threads get to every barrier, also those that fail.
                    let pinned = widelane_affinity::pin(*cpu);
                    let mut worker = Worker::new(server);
                    let mut spent = Duration::ZERO;
                    let mut result = pinned;
                    // The first batches fill caches, pools and stacks.
                    for batch in 0..batches + WARM_BATCHES {
                        let time = worker.batch(server, barrier);
                        match time {
                            Ok(time) if batch >= WARM_BATCHES => spent += time,
                            Ok(_) => {}
                            Err(error) => result = result.and(Err(error)),
                        }
                    }
                    result?;
                    Ok((batches * BATCH) as f64 / spent.as_secs_f64())
                })
            })
            .collect();
        let panicked = |_| Err(std::io::Error::other("a thread panicked"));
        let rates = threads.into_iter().map(|one| one.join().unwrap_or_else(panicked));
        rates.sum()
    })
}

type Step = (Box<ServerConnection>, Result<(), HandshakeError>);

/// One thread's event loop, without sockets.
struct Worker {
    driver: Rc<Driver>,
    turns: Turns,
}

impl Worker {
    fn new(server: &Server) -> Self {
        let driver = Driver::new(&server.engine);
        Self {
            turns: driver.turns(),
            driver,
        }
    }

    /// A batch of handshakes; gives the CPU time of their server side.
    fn batch(&mut self, server: &Server, barrier: &Barrier) -> std::io::Result<Duration> {
        let mut failure = None;
        let mut clients: Vec<ClientConnection> = Vec::new();
        let mut flights = Vec::new();
        for _ in 0..BATCH {
            let name = ServerName::try_from("localhost").expect("a name");
            match ClientConnection::new(Arc::clone(&server.client), name) {
                Ok(mut tls) => {
                    flights.push(written(&mut tls));
                    clients.push(tls);
                }
                Err(error) => failure = Some(error.to_string()),
            }
        }
        barrier.wait();
        let start = thread_time();
        let mut steps: Vec<Pin<Box<dyn Future<Output = Step>>>> = Vec::new();
        for flight in &flights {
            let mut handshake = self.driver.handshake();
            let config = Arc::clone(&server.config);
            let tls = ServerConnection::new(config).map_err(std::io::Error::other);
            let Ok(mut tls) = tls else { continue };
            let _ = tls.read_tls(&mut &flight[..]);
            steps.push(Box::pin(async move {
                let (tls, result) = handshake.process(Box::new(tls)).await;
                (tls, result.map(drop))
            }));
        }
        let mut servers = self.finish(steps);
        let answers: Vec<_> = servers.iter_mut().map(|(tls, _)| written(&mut **tls)).collect();
        let mut spent = thread_time().saturating_sub(start);
        for ((client, answer), flight) in clients.iter_mut().zip(&answers).zip(&mut flights) {
            let mut answer = &answer[..];
            while !answer.is_empty() && client.read_tls(&mut answer).is_ok() {
                if let Err(error) = client.process_new_packets() {
                    failure = Some(error.to_string());
                    break;
                }
            }
            *flight = written(client);
        }
        barrier.wait();
        let start = thread_time();
        for ((tls, result), flight) in servers.iter_mut().zip(&flights) {
            let _ = tls.read_tls(&mut &flight[..]);
            if let Err(error) = tls.process_new_packets() {
                failure = Some(error.to_string());
            }
            if let Err(error) = result {
                failure = Some(error.to_string());
            }
            let _tickets = written(&mut **tls);
        }
        let done = servers.iter().filter(|(tls, _)| !tls.is_handshaking()).count();
        let all = done == BATCH;
        drop(servers);
        spent += thread_time().saturating_sub(start);
        match failure {
            None if all => Ok(spent),
            None => Err(std::io::Error::other("a handshake was not completed")),
            Some(reason) => Err(std::io::Error::other(reason)),
        }
    }

    /// Polls all steps, and runs passes while none can go on, as an event loop does.
    fn finish(&self, mut steps: Vec<Pin<Box<dyn Future<Output = Step>>>>) -> Vec<Step> {
        let mut done: Vec<Option<Step>> = steps.iter().map(|_| None).collect();
        let mut cx = Context::from_waker(Waker::noop());
        while done.iter().any(Option::is_none) {
            for (step, done) in steps.iter_mut().zip(&mut done) {
                if done.is_none()
                    && let std::task::Poll::Ready(ended) = step.as_mut().poll(&mut cx)
                {
                    *done = Some(ended);
                }
            }
            self.turns.turn();
        }
        done.into_iter().flatten().collect()
    }
}

/// Bytes that a side of a connection wants to send.
fn written<D>(tls: &mut impl std::ops::DerefMut<Target = rustls::ConnectionCommon<D>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while tls.wants_write() && tls.write_tls(&mut bytes).is_ok() {}
    bytes
}

fn client(roots: RootCertStore) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut provider = aws_lc_rs::default_provider();
    provider
        .kx_groups
        .retain(|group| group.name() == rustls::NamedGroup::X25519);
    config(provider, roots)
}

fn failed(source: std::io::Error) -> TrialError {
    TrialError::machine("cannot run handshakes in memory")(source)
}

/// Handshakes under way in each thread: more than fill several passes.
const BATCH: usize = 64;
const WARM_BATCHES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::KeyPair;

    #[test]
    fn all_arrangements_complete_their_handshakes() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = (folder.path().join("c.pem"), folder.path().join("k.pem"));
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
        let certificate = rcgen::CertificateParams::new(["localhost".into()]).expect("a name");
        let certificate = certificate.self_signed(&key).expect("a certificate");
        std::fs::write(&files.0, certificate.pem()).expect("a file");
        std::fs::write(&files.1, key.serialize_pem()).expect("a file");
        let cpus: Vec<_> = widelane_affinity::allowed(None).expect("CPUs").iter().collect();
        for arrangement in Arrangement::ALL {
            let Outcome { threads, rate } = arrangement.run(&files, &cpus, 1).expect("a run");
            let expected = if arrangement == Arrangement::One { 1 } else { cpus.len() };
            assert_eq!(threads, expected);
            assert!(rate.is_finite() && rate > 0.0);
        }
    }
}
