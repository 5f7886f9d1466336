//! Bytes through a terminator: what a server spends on a gibibyte, and on a small request.
//!
//! Client and backend are threads of this process on the load's CPU, with code that is not ours
//! (rustls with its stock provider). The figure is the server's CPU time; rates are limited by client
//! and backend, which share a CPU.

pub(crate) mod traffic;

use crate::backend::Backend;
use crate::error::TrialError;
use crate::plan::{at_least_one, or, turns};
use crate::record::Record;
use crate::servers::{self, Contender, Side};
use crate::setup::{Setting, Setup};
use crate::stage::Stage;
use rustls::CipherSuite;
use serde_json::{Value, json};
use std::fmt;
use std::thread;
use std::time::Duration;
pub(crate) use traffic::config;
use traffic::{Client, Turn};
use widelane_samples::kinds::{RELAY_BULK, RELAY_SMALL};
use widelane_samples::{Group, Source, named};

named! {
    /// A kind of relayed bytes.
    pub enum Traffic: "traffic" {
        /// Bytes from the backend to the client, AES-128-GCM.
        BulkDownload = "bulk-download",
        /// Bytes from the client to the backend, AES-128-GCM.
        BulkUpload = "bulk-upload",
        /// Bytes from the backend to the client, ChaCha20-Poly1305.
        BulkDownloadChaCha20 = "bulk-download-chacha20",
        /// Bytes from the client to the backend, ChaCha20-Poly1305.
        BulkUploadChaCha20 = "bulk-upload-chacha20",
        /// Requests of 3 bytes with answers of 3 bytes on 64 kept connections, AES-128-GCM.
        SmallRequests = "small-requests",
    }
}

impl Traffic {
    fn suite(self) -> CipherSuite {
        match self {
            Self::BulkDownloadChaCha20 | Self::BulkUploadChaCha20 => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
            Self::BulkDownload | Self::BulkUpload | Self::SmallRequests => CipherSuite::TLS13_AES_128_GCM_SHA256,
        }
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BulkDownload => "Bulk download, AES-128-GCM",
            Self::BulkUpload => "Bulk upload, AES-128-GCM",
            Self::BulkDownloadChaCha20 => "Bulk download, ChaCha20-Poly1305",
            Self::BulkUploadChaCha20 => "Bulk upload, ChaCha20-Poly1305",
            Self::SmallRequests => "Requests of 3 bytes on 64 kept connections, AES-128-GCM",
        })
    }
}

/// Bytes through each server: its CPU time for a gibibyte and for a small request; writes a record
///
/// Example: widelane-lab handshakes relay bulk-download --sides widelane-on,widelane-old
/// --old ../old/widelane
#[derive(Clone, Debug, clap::Args)]
pub struct RelayPlan {
    /// bulk-download, bulk-upload, bulk-download-chacha20, bulk-upload-chacha20, small-requests
    /// [default: all]
    pub traffic: Vec<Traffic>,
    /// Servers [default: widelane-on, with --old widelane-old, nginx-stream, haproxy, hitch]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sides: Vec<Side>,
    /// Turns of each server
    #[arg(long, default_value_t = 3, value_parser = at_least_one())]
    pub rounds: usize,
    /// Mebibytes of each bulk turn
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub mib: u32,
    /// Seconds of each turn with small requests
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
}

impl RelayPlan {
    /// Bytes of each bulk turn.
    fn bytes(&self) -> u64 {
        u64::from(self.mib) << 20
    }
}

/// Measures `plan` for a record, and gives tables.
///
/// # Errors
///
/// Whatever keeps a server from starting or from relaying.
pub fn relay(
    stage: &Stage,
    plan: &RelayPlan,
    record: &mut Record,
    mut progress: impl FnMut(&str),
) -> Result<String, TrialError> {
    let backend = Backend::start(stage.options.load_cpu)?;
    let setup = Setup::new(Setting::Bare, backend.address());
    let mut contenders = Vec::new();
    let mut text = String::new();
    // Those that are not installed are left out, and named.
    for side in or(&plan.sides, || SIDES.into()) {
        if side.is_installed(&stage.options) {
            contenders.push(servers::start(stage, side, setup)?);
        } else if side != Side::Old {
            text.push_str(&format!("{} is not here, and left out.\n", side.name()));
        }
    }
    for traffic in or(&plan.traffic, || Traffic::ALL.into()) {
        for (round, index) in turns(plan.rounds, contenders.len()) {
            let contender = &mut contenders[index];
            let side = contender.side;
            progress(&format!(
                "{traffic}, round {} of {}: {}",
                round + 1,
                plan.rounds,
                side.name()
            ));
            let report = drive(stage, plan, contender, traffic)?;
            record.line(&json!({
                "kind": RELAY_BULK.kind,
                "traffic": traffic.name(),
                "side": side.name(),
                "round": round,
                "report": report,
            }))?;
        }
        text.push_str(&format!(
            "\n{traffic} (medians of {} rounds)\n\n{}",
            plan.rounds,
            compared(record.written(), traffic)
        ));
    }
    Ok(text)
}

/// One turn of one server.
fn drive(stage: &Stage, plan: &RelayPlan, contender: &mut Contender, traffic: Traffic) -> Result<Value, TrialError> {
    stage.interrupt.check()?;
    let running = &mut contender.running;
    running.server.alive()?;
    let (server, address) = (&running.server, running.address);
    let cpu = stage.options.load_cpu;
    let turn = thread::scope(|scope| {
        let client = scope.spawn(move || {
            widelane_affinity::pin(cpu)?;
            let spent = || server.cpu_time();
            let interrupted = || stage.interrupt.check().is_err();
            let client = Client::new(address, traffic.suite(), stage.roots()?, &spent, &interrupted)?;
            match traffic {
                Traffic::BulkDownload | Traffic::BulkDownloadChaCha20 => client.download(plan.bytes()),
                Traffic::BulkUpload | Traffic::BulkUploadChaCha20 => client.upload(plan.bytes()),
                Traffic::SmallRequests => client.requests(CONNECTIONS, WARMUP, Duration::from_secs_f64(plan.seconds)),
            }
        });
        let panicked = |_| Err(std::io::Error::other("the client panicked"));
        client.join().unwrap_or_else(panicked)
    });
    match turn {
        Ok(turn) => Ok(report(plan, traffic, &turn)),
        Err(error) => {
            stage.interrupt.check()?;
            Err(running.server.failed(&format!("does not relay: {error}")))
        }
    }
}

fn report(plan: &RelayPlan, traffic: Traffic, turn: &Turn) -> Value {
    let cpu = turn.server_cpu.map(|cpu| cpu.as_secs_f64());
    if traffic == Traffic::SmallRequests {
        let requests = turn.requests as f64;
        return json!({
            "seconds": turn.seconds,
            "connections": CONNECTIONS,
            "requests": turn.requests,
            "requests_per_s": requests / turn.seconds,
            "server_cpu_s": cpu,
            CPU_OF_REQUEST: cpu.filter(|_| requests > 0.0).map(|cpu| cpu * 1e6 / requests),
            "p50_us": turn.p50_us,
            "p99_us": turn.p99_us,
        });
    }
    let gibibytes = plan.bytes() as f64 / GIB as f64;
    json!({
        "seconds": turn.seconds,
        "bytes": plan.bytes(),
        "gib_per_s": gibibytes / turn.seconds,
        "server_cpu_s": cpu,
        CPU_OF_GIB: cpu.map(|cpu| cpu / gibibytes),
    })
}

/// The table of one kind of traffic. The best peer is the one that spends least.
fn compared(record: &widelane_samples::Record, traffic: Traffic) -> String {
    let kind = match traffic {
        Traffic::SmallRequests => RELAY_SMALL,
        _ => RELAY_BULK,
    };
    let wanted = |row: &Group<'_>| row.word(0) == traffic.name();
    let table = kind.table_of(record, &Source::of(record, None), wanted);
    table.without(&["traffic"]).text()
}

/// The servers unless others are named: the terminator and all peers.
const SIDES: [Side; 5] = [Side::Batched, Side::Old, Side::NginxStream, Side::Haproxy, Side::Hitch];
/// A server's CPU time for a gibibyte, in seconds, and for a request, in microseconds.
const CPU_OF_GIB: &str = "server_cpu_s_per_gib";
const CPU_OF_REQUEST: &str = "server_cpu_us_per_request";
const GIB: u64 = 1 << 30;
/// Kept connections, each with one request under way.
const CONNECTIONS: usize = 64;
const WARMUP: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_read_as_it_is_written() {
        for traffic in Traffic::ALL {
            assert_eq!(traffic.name().parse(), Ok(traffic));
        }
        let error = "bulk".parse::<Traffic>().expect_err("not known");
        assert!(error.contains("bulk-download-chacha20"), "{error}");
    }

    #[test]
    fn a_server_is_compared_with_the_peer_that_spends_least() {
        let mut record = widelane_samples::Record::default();
        for (side, cpu) in [
            (Side::Batched, 1.5),
            (Side::Old, 0.5),
            (Side::NginxStream, 2.5),
            (Side::Hitch, 2.0),
        ] {
            for (round, cpu) in [cpu, cpu + 0.1, cpu].into_iter().enumerate() {
                record.push(json!({
                    "kind": RELAY_BULK.kind, "traffic": Traffic::BulkUpload.name(), "side": side.name(), "round": round,
                    "report": {"gib_per_s": 1.0, CPU_OF_GIB: cpu},
                }));
            }
        }
        let text = compared(&record, Traffic::BulkUpload);
        let rows: Vec<Vec<_>> = text
            .lines()
            .map(|line| line.split_whitespace().rev().collect())
            .collect();
        // Our old program is no peer, though it spends less.
        let widelane = ["0.75", "1.600", "to", "1.500", "s", "1.500"];
        assert_eq!(rows[2][..6], widelane);
        assert_eq!(rows[4][0], "1.25");
        assert_eq!(rows[5][0], "1.00");
    }
}
