//! `widelane serve` in front of the backend, in the settings in which experiments differ.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use widelane_handshakes::{Stage, TrialError, free_address};

use crate::error::ExperimentError;
use crate::front::FrontServer;
use crate::web::SOCKET;

/// Setup of a terminator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The form of ChaCha20-Poly1305.
    pub(crate) form: &'static str,
    /// True if operations share passes; else AWS-LC makes each alone.
    pub(crate) batching: bool,
    /// Place where passes run.
    pub(crate) placement: Placement,
}

/// Place where the wide code of a terminator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Everything on the servers' CPU.
    InPlace,
    /// Passes on the load's CPU, to which requests are shipped.
    Shipped,
    /// All of the program on the load's CPU, by `widelane run --wide`.
    Steered,
}

impl Setting {
    /// Everything in place, with this form.
    pub(crate) const fn form(form: &'static str) -> Self {
        Self {
            form,
            batching: true,
            placement: Placement::InPlace,
        }
    }
}

/// A running one.
pub(crate) struct Terminator {
    pub(crate) front: FrontServer,
    metrics: SocketAddr,
}

impl Terminator {
    /// Starts one and waits until it answers.
    pub(crate) fn start(stage: &Stage, setting: Setting) -> Result<Self, ExperimentError> {
        stage.interrupt().check()?;
        let options = stage.options();
        let (address, metrics) = (free_address()?, free_address()?);
        let folder = stage.folder();
        let file = folder.join("terminator.toml");
        fs::write(&file, configuration(stage, setting, address, metrics)).map_err(TrialError::Folder)?;
        let mut command = Command::new(&options.widelane);
        let steered = setting.placement == Placement::Steered;
        if steered {
            command.args(["run", "--wide", "--cores", &options.load_cpu.to_string()]);
            command.arg("--state-dir").arg(folder);
            command.arg("--").arg(&options.widelane);
        }
        command.arg("serve").arg("--config").arg(&file);
        // The server keeps the costs of passes on this machine: not beyond the experiment.
        command.env("STATE_DIRECTORY", folder);
        // A brake and a vector core are on both CPUs; workers are bound by the configuration.
        let mut command = options.emulated(command, None);
        let alone = options.model.is_none() && setting.placement == Placement::InPlace;
        let cpu = alone.then_some(options.server_cpu);
        let mut front = FrontServer::start(stage, NAME, &mut command, cpu, address)?;
        // The server listens before it has tried all settings. A setting that it cannot do ends it then.
        let limit = Instant::now() + START_PATIENCE;
        while fetched(metrics).is_none_or(|text| text.is_empty()) {
            front.server.alive()?;
            stage.interrupt().check()?;
            if Instant::now() > limit {
                return Err(ExperimentError::Answer {
                    server: format!("http://{metrics}/metrics"),
                    what: format!("nothing for {} s", START_PATIENCE.as_secs()),
                });
            }
            thread::sleep(PAUSE);
        }
        Ok(Self { front, metrics })
    }

    /// Figures of passes in the server's metrics: `batch`, the lanes filled by one of RSA; microseconds of all passes
    /// for each signature, `wide_us`, and for each pass of signatures, `pass_us`. `null` if none ran.
    pub(crate) fn passes(&self) -> Value {
        passes_in(&fetched(self.metrics).unwrap_or_default())
    }
}

fn configuration(stage: &Stage, setting: Setting, address: SocketAddr, metrics: SocketAddr) -> String {
    let options = stage.options();
    let bound = match setting.placement {
        Placement::Steered => String::new(),
        _ => format!("cpus = \"{}\"\n", options.server_cpu),
    };
    let placement = match setting.placement {
        Placement::Shipped => format!("placement = \"vector-cores\"\nvector_cpus = \"{}\"\n", options.load_cpu),
        _ => "placement = \"inline\"\n".to_owned(),
    };
    let mut text = format!(
        "workers = 1\n{bound}chacha20poly1305 = \"{}\"\n\
         [batching]\nenabled = {}\n{placement}\
         [metrics]\nlisten = \"{metrics}\"\n\
         [limits]\nsource.handshakes = {MOST}\n\
         [[listener]]\nlisten = [\"{address}\"]\nbackend = \"unix:{}\"\n\
         [listener.tickets]\ncount = 0\n",
        setting.form,
        setting.batching,
        stage.folder().join(SOCKET).display(),
    );
    for (certificate, key) in stage.certificates() {
        text += &format!(
            "[[listener.certificate]]\ncert = \"{}\"\nkey = \"{}\"\n",
            certificate.display(),
            key.display()
        );
    }
    text
}

/// The body of a page of metrics.
fn fetched(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// A signature fills two lanes of a pass of RSA-2048.
fn passes_in(metrics: &str) -> Value {
    let sum = |name: &str, operation: &str| -> f64 {
        let name = format!("widelane_engine_{name}_total{{");
        let of = |line: &&str| line.starts_with(&name) && line.contains(operation);
        let values = metrics.lines().filter(of);
        let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
        values.filter_map(value).sum()
    };
    let each = |sum: f64, of: f64| (of > 0.0 && sum > 0.0).then(|| sum / of);
    let named = |line: &str| {
        let (_, name) = line.split_once("operation=\"")?;
        Some(name.split_once('"')?.0.to_owned())
    };
    let operations: BTreeSet<_> = metrics.lines().filter_map(named).collect();
    // Jobs that ran one by one ran in AWS-LC.
    let wide_us = operations.iter().map(|name| {
        let (jobs, alone) = (sum("jobs", name), sum("alone", name));
        let share = if jobs > 0.0 { 1.0 - alone / jobs } else { 0.0 };
        sum("kernel_nanoseconds", name) / 1e3 * share
    });
    let wide_us: f64 = wide_us.sum();
    json!({
        "batch": each(sum("lanes_filled", "rsa"), sum("passes", "rsa")),
        "wide_us": each(wide_us, sum("jobs", "sign")),
        "pass_us": each(wide_us, sum("passes", "sign")),
    })
}

const NAME: &str = "terminator";
const PATIENCE: Duration = Duration::from_secs(2);
const START_PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);
/// Connections of one source.
const MOST: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_read_from_the_metrics() {
        let of = |name: &str, operation: &str, value: u32| {
            format!("widelane_engine_{name}_total{{operation=\"{operation}\"}} {value}\n")
        };
        let metrics = [
            of("passes", "rsa-2048-sign", 5),
            of("passes", "x25519", 7),
            of("jobs", "rsa-2048-sign", 10),
            of("jobs", "x25519", 40),
            of("alone", "x25519", 30),
            of("lanes_filled", "rsa-2048-sign", 15),
            of("kernel_nanoseconds", "rsa-2048-sign", 1_000_000),
            of("kernel_nanoseconds", "x25519", 400_000),
        ];
        let passes = passes_in(&metrics.concat());
        assert_eq!(passes["batch"], json!(3.0));
        // A quarter of the X25519 jobs ran in passes.
        assert_eq!(passes["wide_us"], json!(110.0));
        assert_eq!(passes["pass_us"], json!(220.0));
        assert!(passes_in("nothing")["wide_us"].is_null());
    }
}
