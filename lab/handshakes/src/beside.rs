//! Established clients of a data store while others connect: how long their requests take, with OpenSSL alone and with
//! Widelane.
//!
//! The clients send SET and GET in turn by the clock, at half of the rate that the server alone answers. A request that
//! is due waits for a client that has none under way. Its latency counts from when it was due.

use crate::backend::Backend;
use crate::condition::Condition;
use crate::drive::{Drive, SHORTEST};
use crate::error::TrialError;
use crate::plan::at_least_one;
use crate::record::Record;
use crate::relay::traffic::{Client, Session, us_at};
use crate::servers::Running;
use crate::stage::Stage;
use crate::unmodified::{self, Software};
use crate::ways_in::SIDES;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::CipherSuite;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};
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
        let most = turn(stage, plan, &mut sides[0], f64::INFINITY, 0.0)?;
        let rate = most["requests_per_s"].as_f64().unwrap_or(0.0) / 2.0;
        let knee = stage.drive(&mut sides[0], CONDITION, Drive::Closed(64), (WARMUP, plan.seconds))?;
        let knee = knee["handshakes_per_s"].as_f64().unwrap_or(0.0);
        for round in 0..plan.rounds {
            for storm in [0.0, plan.storm] {
                let others = format!("{:.0} others connect a second", storm * knee);
                progress(&format!("{software}, round {} of {}, {others}", round + 1, plan.rounds));
                for side in [round % 2, (round + 1) % 2] {
                    let report = turn(stage, plan, &mut sides[side], rate, storm * knee)?;
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
    rate: f64,
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
            let client = Client::new(address, CipherSuite::TLS13_AES_128_GCM_SHA256, &|| None, &interrupted)?;
            let mut crowd = Crowd::new(&client, plan.clients)?;
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

/// Established clients.
struct Crowd {
    epoll: OwnedFd,
    sessions: Vec<Session>,
    /// Clients without a request under way.
    idle: VecDeque<usize>,
    /// The request of each client, with the time at which it was due.
    asked: Vec<(Instant, &'static Request)>,
}

/// Text of a request, and of its answer.
struct Request {
    asks: &'static [u8],
    hears: &'static [u8],
}

impl Crowd {
    fn new(client: &Client<'_>, clients: usize) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut sessions = Vec::with_capacity(clients);
        for index in 0..clients {
            let mut session = client.connect()?;
            session.send(REQUESTS[0].asks)?;
            session.receive(REQUESTS[0].hears.len() as u64)?;
            epoll::add(
                &epoll,
                &session.socket,
                EventData::new_u64(index as u64),
                EventFlags::IN,
            )?;
            sessions.push(session);
        }
        Ok(Self {
            epoll,
            sessions,
            idle: (0..clients).collect(),
            asked: vec![(Instant::now(), &REQUESTS[0]); clients],
        })
    }

    /// Sends requests at `rate` for so long, waits until all are answered, and gives the latencies of SET in nanoseconds.
    fn run(&mut self, client: &Client<'_>, rate: f64, duration: Duration) -> io::Result<Vec<u32>> {
        let start = Instant::now();
        let end = start + duration;
        let mut latencies = Vec::new();
        let mut events: Vec<Event> = Vec::with_capacity(self.sessions.len());
        let mut sent = 0usize;
        loop {
            client.go_on()?;
            let now = Instant::now();
            if now > end + PATIENCE {
                return Err(io::Error::new(ErrorKind::TimedOut, "requests are not answered"));
            }
            let next = loop {
                let due = start + Duration::from_secs_f64(sent as f64 / rate);
                // At an infinite rate all are due at the start, and the end is that of the time.
                if due > now || due >= end || rate.is_infinite() && now >= end {
                    break due;
                }
                let Some(index) = self.idle.pop_front() else {
                    break now + LOOK_EVERY;
                };
                self.asked[index] = (due, &REQUESTS[sent % REQUESTS.len()]);
                self.sessions[index].send(self.asked[index].1.asks)?;
                sent += 1;
            };
            if now >= end && (next >= end || rate.is_infinite()) && self.idle.len() == self.sessions.len() {
                return Ok(latencies);
            }
            let wait = next.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
            let wait = Timespec {
                tv_sec: 0,
                tv_nsec: i64::from(wait.subsec_nanos()),
            };
            poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&wait))?;
            epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&Timespec::default()),
            )?;
            for event in events.drain(..) {
                let index = event.data.u64() as usize;
                let (due, request) = self.asked[index];
                let expected = request.hears.len() as u64;
                if self.sessions[index].receive(expected)?.0 != expected {
                    return Err(io::Error::other("an answer is not the one that was expected"));
                }
                self.idle.push_back(index);
                if std::ptr::eq(request, &REQUESTS[0]) {
                    let latency = due.elapsed().as_nanos();
                    latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
                }
            }
        }
    }
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
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest time for the answers to requests after the last was due.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{ServerConfig, ServerConnection, Stream};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;

    /// A store that answers these to SET and to GET.
    fn store(answers: [&'static [u8]; 2]) -> SocketAddr {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(["localhost".into()]).and_then(|one| one.self_signed(&key));
        let chain = vec![certificate.expect("a certificate").der().clone()];
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
        address
    }

    fn run(address: SocketAddr, rate: f64) -> io::Result<usize> {
        let client = Client::new(address, CipherSuite::TLS13_AES_128_GCM_SHA256, &|| None, &|| false)?;
        let latencies = Crowd::new(&client, 3)?.run(&client, rate, Duration::from_millis(50))?;
        Ok(latencies.len())
    }

    #[test]
    fn all_requests_that_are_due_are_answered_however_few_clients_there_are() {
        let address = store(REQUESTS.each_ref().map(|request| request.hears));
        // Half of fifty, and half of a thousand, for which the time does not suffice.
        assert_eq!(run(address, 1000.0).expect("answers"), 25);
        assert_eq!(run(address, 20_000.0).expect("answers"), 500);
        assert!(run(address, f64::INFINITY).expect("answers") > 0);
    }

    #[test]
    fn other_answers_are_errors() {
        assert!(run(store([b"+OK\r\n", b"$-1\r\n"]), 1000.0).is_err());
    }
}
