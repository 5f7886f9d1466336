//! Established clients of a data store while others connect: how long their requests take, with OpenSSL alone and with
//! Widelane.
//!
//! The clients send SET and GET in turn by the clock, at half of the rate that the server alone answers. A request that
//! is due waits for a client that has none under way. Its latency counts from when it was due.

use crate::backend::Backend;
use crate::condition::Condition;
use crate::crowd::{Crowd, Request};
use crate::drive::{Drive, SHORTEST};
use crate::error::TrialError;
use crate::plan::at_least_one;
use crate::record::Record;
use crate::relay::traffic::{Client, us_at};
use crate::servers::Running;
use crate::stage::Stage;
use crate::unmodified::{self, Software};
use crate::ways_in::SIDES;
use rustls::CipherSuite;
use serde_json::{Value, json};
use std::io;
use std::thread;
use std::time::Duration;
use widelane_samples::kinds::BESIDE;

/// Established clients of Valkey or Redis while others connect, with OpenSSL alone and with Widelane
/// in it; writes a record
///
/// A minute and a half for a server. Example: widelane-lab handshakes beside --servers redis --seconds 2
#[derive(Clone, Debug, clap::Args)]
pub struct BesidePlan {
    /// valkey, valkey-io-threads, redis, redis-io-threads
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "valkey,redis")]
    pub servers: Vec<Software>,
    /// Established clients, which send SET and GET at half of the rate that the server alone answers
    #[arg(long, default_value_t = 200, value_parser = at_least_one())]
    pub clients: usize,
    /// Others that connect at random, say PING and go: a share of the connections a second that the server
    /// alone accepts
    #[arg(long, value_name = "SHARE", default_value_t = 0.6)]
    pub storm: f64,
    /// Turns of each side, with the others and without; six at least for an interval
    #[arg(long, default_value_t = 7, value_parser = at_least_one())]
    pub rounds: usize,
    /// Seconds of each turn
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
}

/// Compares each server of `plan` with itself for a record, and gives a table.
///
/// # Errors
///
/// Whatever keeps an installed server, the clients or the load generator from running.
pub fn beside(
    stage: &Stage,
    plan: &BesidePlan,
    record: &mut Record,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    if plan.seconds < SHORTEST {
        return Err(TrialError::TooShort { seconds: plan.seconds });
    }
    let backend = Backend::start(stage.options.load_cpu)?;
    let mut text = String::new();
    for &software in &plan.servers {
        if !software.is_store() {
            return Err(TrialError::Nothing(format!("{software} has no SET and GET.")));
        }
        if software.program(&stage.options).is_none() {
            text += &format!("{software} is not installed, and left out.\n");
            continue;
        }
        progress(&format!("starting {software}"));
        let plain = unmodified::plain(stage, software, CONDITION, backend.address())?;
        let (with, said) = unmodified::with_widelane(stage, software, CONDITION, true, backend.address())?;
        text += &format!("{software}: Widelane {said}\n");
        let mut sides = [plain, with];
        let most = turn(stage, plan, &mut sides[0], None, 0.0)?;
        let rate = most["requests_per_s"].as_f64().unwrap_or(0.0) / 2.0;
        let knee = stage.drive(&mut sides[0], CONDITION, Drive::Closed(64), (WARMUP, plan.seconds))?;
        let knee = knee["handshakes_per_s"].as_f64().unwrap_or(0.0);
        for round in 0..plan.rounds {
            for storm in [0.0, plan.storm] {
                let others = format!("{:.0} others connect a second", storm * knee);
                progress(&format!("{software}, round {} of {}, {others}", round + 1, plan.rounds));
                for side in [round % 2, (round + 1) % 2] {
                    let report = turn(stage, plan, &mut sides[side], Some(rate), storm * knee)?;
                    record.line(&json!({
                        "kind": BESIDE.kind, "server": software.name(), "side": SIDES[side], "storm": storm, "knee_per_s": knee,
                        "clients": plan.clients, "rate": rate, "round": round, "report": report,
                    }))?;
                }
            }
        }
    }
    if record.written().of(BESIDE.kind).next().is_none() {
        return Err(TrialError::Nothing(text));
    }
    Ok(format!("{}\n{text}", record.table(&BESIDE, |_| true).text()))
}

/// One turn of one server.
fn turn(
    stage: &Stage,
    plan: &BesidePlan,
    running: &mut Running,
    rate: Option<f64>,
    others_per_s: f64,
) -> Result<Value, TrialError> {
    stage.interrupt.check()?;
    running.server.alive()?;
    let (address, exchange) = (running.address, running.exchange);
    let (cpu, seconds) = (stage.options.load_cpu, plan.seconds);
    let (latencies, others) = thread::scope(|scope| {
        let (connected, wait) = std::sync::mpsc::channel();
        let clients = scope.spawn(move || -> io::Result<Vec<u32>> {
            widelane_affinity::pin(cpu)?;
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            let interrupted = || stage.interrupt.check().is_err();
            let suite = CipherSuite::TLS13_AES_128_GCM_SHA256;
            let client = Client::new(address, suite, stage.roots()?, &|| None, &interrupted)?;
            let mut crowd = Crowd::new(&client, plan.clients, b"", &REQUESTS)?;
            let _ = connected.send(());
            crowd.run(&client, rate, Duration::from_secs_f64(WARMUP))?;
            crowd.run(&client, rate, Duration::from_secs_f64(seconds))
        });
        // If the clients have failed, their error says more.
        let others = match wait.recv() {
            Ok(()) if others_per_s > 0.0 => {
                let drive = Drive::Open(others_per_s);
                let mut command = stage.load(address, CONDITION, drive, (WARMUP, seconds));
                stage.figures(command.args(exchange))
            }
            _ => Ok(Value::Null),
        };
        let panicked = |_| Err(io::Error::other("the clients panicked"));
        (clients.join().unwrap_or_else(panicked), others)
    });
    stage.interrupt.check()?;
    let mut latencies = latencies.map_err(|error| running.server.failed(&format!("does not answer: {error}")))?;
    latencies.sort_unstable();
    let at = |share| us_at(&latencies, share);
    Ok(json!({
        // Those of SET are kept, half of all.
        "requests_per_s": latencies.len() as f64 * 2.0 / seconds,
        "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999), "others": others?,
    }))
}

const CONDITION: Condition = Condition::RsaX25519;
/// SET, and GET of the same.
static REQUESTS: [Request; 2] = [
    Request {
        asks: b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$16\r\n0123456789abcdef\r\n",
        hears: b"+OK\r\n",
    },
    Request {
        asks: b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
        hears: b"$16\r\n0123456789abcdef\r\n",
    },
];
/// Seconds before each measurement.
const WARMUP: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{RootCertStore, ServerConfig, ServerConnection, Stream};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;

    /// A store that answers these to SET and to GET.
    fn store(answers: [&'static [u8]; 2]) -> (SocketAddr, RootCertStore) {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(["localhost".into()]).and_then(|one| one.self_signed(&key));
        let chain = vec![certificate.expect("a certificate").der().clone()];
        let mut roots = RootCertStore::empty();
        roots.add(chain[0].clone()).expect("a certificate");
        let key = rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key));
        let config = Arc::new(config.expect("a configuration"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for mut socket in listener.incoming().map_while(Result::ok) {
                let config = Arc::clone(&config);
                thread::spawn(move || {
                    let mut tls = ServerConnection::new(config).expect("a connection");
                    let mut stream = Stream::new(&mut tls, &mut socket);
                    let mut request = [0; 256];
                    while let Ok(read @ 1..) = stream.read(&mut request) {
                        let is_set = request[..read] == *REQUESTS[0].asks;
                        assert!(is_set || request[..read] == *REQUESTS[1].asks);
                        let answered = stream.write_all(answers[usize::from(!is_set)]);
                        answered.expect("the client waits for its answer");
                    }
                });
            }
        });
        (address, roots)
    }

    fn run((address, roots): &(SocketAddr, RootCertStore), rate: Option<f64>) -> io::Result<usize> {
        let suite = CipherSuite::TLS13_AES_128_GCM_SHA256;
        let client = Client::new(*address, suite, roots.clone(), &|| None, &|| false)?;
        let mut crowd = Crowd::new(&client, 3, b"", &REQUESTS)?;
        Ok(crowd.run(&client, rate, Duration::from_millis(50))?.len())
    }

    #[test]
    fn all_requests_that_are_due_are_answered_however_few_clients_there_are() {
        let store = store(REQUESTS.each_ref().map(|request| request.hears));
        // Half of fifty, and half of a thousand, for which the time does not suffice.
        assert_eq!(run(&store, Some(1000.0)).expect("answers"), 25);
        assert_eq!(run(&store, Some(20_000.0)).expect("answers"), 500);
        assert!(run(&store, None).expect("answers") > 0);
    }

    #[test]
    fn other_answers_are_errors() {
        assert!(run(&store([b"+OK\r\n", b"$-1\r\n"]), Some(1000.0)).is_err());
    }
}
