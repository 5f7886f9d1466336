//! Load on the web server: h2load, with a cipher suite of our choice.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;

use serde_json::Value;
use widelane_handshakes::{Condition, Drive, Stage, output};

use crate::error::ExperimentError;
use crate::front::FrontServer;
use crate::programs::Programs;

/// Figures of one turn of a server with pages.
pub(crate) struct Served {
    pub(crate) requests_per_s: f64,
    /// Bytes of a page on its way.
    pub(crate) page_bytes: usize,
    /// The shares of the time at each level, under a brake.
    pub(crate) levels: Option<Value>,
}

/// Checks the answer of a server that has just started, loads it, and stops it.
pub(crate) fn served(
    stage: &Stage,
    needs: &Programs,
    mut front: FrontServer,
    chacha_percent: usize,
    seconds: f64,
) -> Result<Served, ExperimentError> {
    let page_bytes = front.check(stage, needs)?;
    let address = front.address;
    let requests_per_s = requests_per_second(stage, needs, address, chacha_percent, seconds)?;
    front.server.alive()?;
    Ok(Served {
        requests_per_s,
        page_bytes,
        levels: front.stop(),
    })
}

/// Requests a second of `connections` connections, of which a share in per cent uses ChaCha20.
///
/// Connections with each cipher are a process of their own; both run at the same time.
pub(crate) fn requests_per_second(
    stage: &Stage,
    needs: &Programs,
    address: SocketAddr,
    chacha_percent: usize,
    seconds: f64,
) -> Result<f64, ExperimentError> {
    let with_chacha = CONNECTIONS * chacha_percent / 100;
    let parts = [
        (AES_128_GCM, CONNECTIONS - with_chacha),
        (CHACHA20_POLY1305, with_chacha),
    ];
    thread::scope(|scope| {
        let running: Vec<_> = parts
            .into_iter()
            .filter(|(_, connections)| *connections > 0)
            .map(|(suite, connections)| scope.spawn(move || run(stage, needs, address, suite, connections, seconds)))
            .collect();
        let mut sum = 0.0;
        for part in running {
            // The thread only runs a program; a panic there is one of ours.
            sum += part.join().expect("the thread does not panic")?;
        }
        Ok(sum)
    })
}

/// A connection each time: a full handshake, and one request if there is a `path`. Gives what
/// `widelane load` reports; an error of a single connection is an error.
pub(crate) fn connections(
    stage: &Stage,
    address: SocketAddr,
    kind: Condition,
    in_flight: usize,
    path: Option<&str>,
    seconds: f64,
) -> Result<Value, ExperimentError> {
    let drive = Drive::Closed(in_flight);
    let mut command = stage.load(address, kind, drive, (0.2, seconds));
    command.args(path.iter().flat_map(|path| ["--get", path]));
    let report = stage.figures(&mut command)?;
    let errors = report["errors"].as_u64().unwrap_or(0);
    match report["handshakes_per_s"].as_f64() {
        Some(rate) if rate > 0.0 && errors == 0 => Ok(report),
        _ => Err(ExperimentError::Load {
            program: "widelane load",
            said: report.to_string(),
        }),
    }
}

fn run(
    stage: &Stage,
    needs: &Programs,
    address: SocketAddr,
    suite: &str,
    connections: usize,
    seconds: f64,
) -> Result<f64, ExperimentError> {
    let mut command = Command::new(&needs.h2load);
    command.args(["--h1", "--header", "accept-encoding: br"]);
    command.arg(format!("--tls13-ciphers={suite}"));
    command.arg(format!("--clients={connections}"));
    command.arg(format!("--duration={}ms", (seconds * 1e3) as u64));
    command.arg("--warm-up-time=200ms");
    command.arg(format!("https://{address}/"));
    let printed = output(&mut command, stage.options().load_cpu, stage.interrupt())?;
    rate(&String::from_utf8_lossy(&printed))
}

/// The rate in what h2load prints, if no request failed.
fn rate(printed: &str) -> Result<f64, ExperimentError> {
    let wrong = || {
        let lines: Vec<_> = printed.lines().rev().take(4).collect();
        ExperimentError::Load {
            program: "h2load",
            said: lines.into_iter().rev().collect::<Vec<_>>().join("\n"),
        }
    };
    let line = |start: &str| printed.lines().find_map(|line| line.strip_prefix(start));
    let finished = line("finished in ").and_then(|line| line.split(", ").nth(1));
    let rate = finished.and_then(|rate| rate.strip_suffix(" req/s"));
    let rate: f64 = rate.and_then(|rate| rate.parse().ok()).ok_or_else(wrong)?;
    // "requests: 10 total, 10 started, 10 done, 10 succeeded, 0 failed, 0 errored, 0 timeout"
    let requests = line("requests: ").ok_or_else(wrong)?;
    let clean = [" 0 failed", " 0 errored", " 0 timeout"];
    match rate > 0.0 && clean.iter().all(|part| requests.contains(part)) {
        true => Ok(rate),
        false => Err(wrong()),
    }
}

/// Record ciphers that clients offer.
const AES_128_GCM: &str = "TLS_AES_128_GCM_SHA256";
const CHACHA20_POLY1305: &str = "TLS_CHACHA20_POLY1305_SHA256";
/// Number of connections of which 10 % are two.
pub(crate) const CONNECTIONS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_failures_are_seen() {
        let printed = "\nfinished in 3.00s, 852.33 req/s, 36.40MB/s\n\
                       requests: 2557 total, 2577 started, 2557 done, 2557 succeeded, 0 failed, \
                       0 errored, 0 timeout\nstatus codes: 2557 2xx";
        assert!((rate(printed).expect("a rate") - 852.33).abs() < 1e-9);
        let failed = printed.replace(" 0 failed", " 3 failed");
        assert!(rate(&failed).is_err());
        let none = rate("finished in 3.00s, 0.00 req/s, 0B/s\nrequests: 0 total, 0 failed");
        assert!(none.is_err());
        let error = rate("no such host").expect_err("nothing is there").to_string();
        assert!(error.contains("h2load") && error.contains("no such host"), "{error}");
    }
}
