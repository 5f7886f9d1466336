//! What every comparison needs: a folder, certificates, CPUs, programs, and a way to drive load.

use crate::condition::Condition;
use crate::interrupt::Interrupt;
use crate::process;
use crate::servers::Contender;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Which programs run on which CPUs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The `widelane` binary.
    pub widelane: PathBuf,
    /// The `nginx` binary, if there is one to compare with.
    pub nginx: Option<PathBuf>,
    /// CPU of every server.
    pub server_cpu: usize,
    /// CPU of the load generator.
    pub load_cpu: usize,
    /// The kinds of handshake that are compared.
    pub conditions: Vec<Condition>,
    /// What a reader must know about this machine to judge the figures.
    pub notes: Vec<String>,
}

/// Why a comparison stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// Somebody pressed Ctrl-C or sent SIGTERM or SIGHUP.
    #[error("interrupted; everything that was started is stopped")]
    Interrupted,
    /// The temporary folder.
    #[error("cannot write to the temporary folder: {0}; set TMPDIR to a writable one")]
    Folder(#[source] io::Error),
    /// A certificate.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A server.
    #[error("{name} did not start: {reason}")]
    Start {
        /// Which one.
        name: &'static str,
        /// What is known.
        reason: String,
    },
    /// A program that should have printed figures.
    #[error("{command} failed: {reason}")]
    Run {
        /// Which one.
        command: String,
        /// What is known.
        reason: String,
    },
    /// Figures that cannot be read.
    #[error("{command} printed something that is not JSON: {source}")]
    Figures {
        /// Which program.
        command: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// No nginx to start.
    #[error("nginx is not installed; install it or leave it out of the comparison")]
    NoNginx,
    /// The machine.
    #[error("{what}: {source}")]
    Machine {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// What every comparison needs. Dropping it removes the folder.
#[derive(Debug)]
pub struct Stage {
    pub(crate) options: Options,
    pub(crate) interrupt: Interrupt,
    folder: TempDir,
}

/// How `widelane load` is to drive a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drive {
    /// Closed loop with so many in flight.
    Closed(usize),
    /// Open loop with so many random starts a second.
    Open(f64),
}

impl Options {
    /// Finds programs and CPUs: `widelane` beside this program, nginx where it is usually
    /// installed, the first CPU for the servers and one of another core for the load.
    ///
    /// # Errors
    ///
    /// [`TrialError::Machine`] if the system does not say which CPUs there are.
    pub fn find() -> Result<Self, TrialError> {
        let machine = |what| move |source| TrialError::Machine { what, source };
        let me = std::env::current_exe().map_err(machine("cannot find this program's folder"))?;
        let cpus = widelane_affinity::allowed(None).map_err(machine("cannot list the CPUs"))?;
        let server_cpu = cpus.iter().next().unwrap_or(0);
        let core = widelane_affinity::siblings(server_cpu);
        let other_core = cpus.without(&core).iter().next();
        let other_thread = cpus.iter().find(|&cpu| cpu != server_cpu);
        let mut notes = Vec::new();
        let load_cpu = match (other_core, other_thread) {
            (Some(cpu), _) => cpu,
            (None, Some(cpu)) => {
                notes.push(format!(
                    "CPUs {server_cpu} and {cpu} share a core: load and server slow each other."
                ));
                cpu
            }
            (None, None) => {
                notes.push(format!(
                    "Only CPU {server_cpu} is usable: the load takes part of it from every \
                     server, so all rates are too low and their ratios too close to 1."
                ));
                server_cpu
            }
        };
        Ok(Self {
            widelane: me.with_file_name("widelane"),
            nginx: find_nginx(),
            server_cpu,
            load_cpu,
            conditions: Condition::ALL.into(),
            notes,
        })
    }
}

impl Stage {
    /// Makes folder and certificates, and from here on turns Ctrl-C into an orderly end.
    ///
    /// # Errors
    ///
    /// What cannot be made or found.
    pub fn set(options: Options) -> Result<Self, TrialError> {
        if !options.widelane.is_file() {
            return Err(TrialError::Run {
                command: options.widelane.display().to_string(),
                reason: "there is no such program; `cargo build --release -p widelane`".into(),
            });
        }
        let listen = |source| TrialError::Machine {
            what: "cannot listen to signals",
            source,
        };
        let interrupt = Interrupt::listen().map_err(listen)?;
        let folder = tempfile::Builder::new();
        let folder = { folder }
            .prefix("widelane-handshakes-")
            .tempdir()
            .map_err(TrialError::Folder)?;
        let stage = Self {
            options,
            interrupt,
            folder,
        };
        stage.make_certificates()?;
        Ok(stage)
    }

    /// Lets `contender` be driven for `seconds`, after a warm-up of so many, and gives what
    /// `widelane load` reports, with the CPU time of the server beside it.
    pub(crate) fn drive(
        &self,
        contender: &mut Contender,
        condition: Condition,
        drive: Drive,
        (warmup, seconds): (f64, f64),
    ) -> Result<Value, TrialError> {
        contender.server.alive()?;
        let mut command = Command::new(&self.options.widelane);
        command.arg("load").arg(contender.address.to_string());
        match drive {
            Drive::Closed(in_flight) => command.args(["--concurrency", &in_flight.to_string()]),
            Drive::Open(rate) => command.args(["--rate", &format!("{rate:.0}"), "--poisson"]),
        };
        command.args(["--duration", &seconds.to_string()]);
        command.args(["--warmup", &warmup.to_string()]);
        command.args(["--cpus", &self.options.load_cpu.to_string()]);
        command.args(OFFER).args(condition.offer());
        let (mut report, spent) = twice(|| {
            let before = contender.server.cpu_time();
            let report = self.figures(&mut command)?;
            Ok((report, contender.server.cpu_time().zip(before)))
        })?;
        let rate = report["handshakes_per_s"].as_f64().unwrap_or(0.0);
        let each = spent.and_then(|(after, before)| {
            let spent = after.saturating_sub(before);
            cpu_of_each(spent, rate, warmup + seconds, drive)
        });
        report[SERVER_CPU] = json!(each);
        Ok(report)
    }

    /// Runs a program that prints one JSON object, on the load's CPU.
    pub(crate) fn figures(&self, command: &mut Command) -> Result<Value, TrialError> {
        let printed = process::output(command, self.options.load_cpu, &self.interrupt)?;
        serde_json::from_slice(&printed).map_err(|source| TrialError::Figures {
            command: command.get_program().to_string_lossy().into_owned(),
            source,
        })
    }

    /// Runs a program on the servers' CPU and gives what it printed.
    pub(crate) fn printed(&self, command: &mut Command) -> Result<Vec<u8>, TrialError> {
        process::output(command, self.options.server_cpu, &self.interrupt)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Certificate and key of each kind, for the same name: the client's offer decides which.
    pub(crate) fn certificates(&self) -> [(PathBuf, PathBuf); 2] {
        CERTIFICATES.map(|(kind, _)| {
            let file = |ending| self.folder().join(format!("{kind}.{ending}"));
            (file("pem"), file("key"))
        })
    }

    /// The socket of the terminator's backend. Somebody listens there only where connections are
    /// held open.
    pub(crate) fn backend(&self) -> PathBuf {
        self.folder().join("backend.sock")
    }

    fn make_certificates(&self) -> Result<(), TrialError> {
        for ((_, algorithm), (file, key_file)) in CERTIFICATES.iter().zip(self.certificates()) {
            // RSA keys are of 2048 bits.
            let key = KeyPair::generate_for(algorithm)?;
            let names = ["localhost".into(), "127.0.0.1".into()];
            let certificate = CertificateParams::new(names)?.self_signed(&key)?;
            fs::write(file, certificate.pem())
                .and_then(|()| fs::write(key_file, key.serialize_pem()))
                .map_err(TrialError::Folder)?;
        }
        Ok(())
    }
}

/// Raises the limit of open descriptors for us and what we start, and gives what it is now.
pub(crate) fn raise_descriptors(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let enough = now.current.is_none_or(|limit| limit >= wanted);
    if !enough {
        let most = now.maximum.map_or(wanted, |hard| hard.max(wanted));
        let raised = Rlimit {
            current: Some(wanted),
            maximum: Some(most),
        };
        // Only root may go over the hard limit; others get what that allows.
        if setrlimit(Resource::Nofile, raised).is_err() {
            let allowed = Rlimit {
                current: now.maximum,
                maximum: now.maximum,
            };
            let _ = setrlimit(Resource::Nofile, allowed);
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn find_nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/sbin", "/usr/local/nginx/sbin"];
    std::env::split_paths(&path)
        .chain(usual.map(PathBuf::from))
        .map(|folder| folder.join("nginx"))
        .find(|file| file.is_file())
}

/// Runs a program once more if it failed: where others use the machine as well, a turn of some
/// tenths of a second can pass without one handshake.
fn twice<T>(mut run: impl FnMut() -> Result<T, TrialError>) -> Result<T, TrialError> {
    match run() {
        Err(TrialError::Run { .. }) => run(),
        once => once,
    }
}

/// A server's CPU time for a handshake, in microseconds, if it has `spent` so much on a turn of
/// this rate and length.
///
/// The generator's rate is without the warm-up, in which it was much the same. What was in flight
/// when the turn ended is completed after it, and the server spends time on that as well.
fn cpu_of_each(spent: Duration, rate: f64, seconds: f64, drive: Drive) -> Option<f64> {
    let left = match drive {
        Drive::Closed(in_flight) => in_flight as f64,
        Drive::Open(_) => 0.0,
    };
    (rate > 0.0).then(|| spent.as_secs_f64() * 1e6 / (rate * seconds + left))
}

/// The same offer for every server: one suite, and what the condition says, so that no side's
/// preferences decide.
const OFFER: &[&str] = &[
    "--insecure",
    "--tls",
    "1.3",
    "--cipher",
    "TLS_AES_128_GCM_SHA256",
    "--json",
];
/// A server's CPU time for a handshake, in microseconds: what one core could do is its reciprocal,
/// also where the generator was the limit.
pub(crate) const SERVER_CPU: &str = "server_cpu_us_per_handshake";
const CERTIFICATES: [(&str, &rcgen::SignatureAlgorithm); 2] = [
    ("rsa", &rcgen::PKCS_RSA_SHA256),
    ("ecdsa", &rcgen::PKCS_ECDSA_P256_SHA256),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> TrialError {
        TrialError::Run {
            command: "load".into(),
            reason: "it failed".into(),
        }
    }

    #[test]
    fn what_is_in_flight_at_the_end_is_paid_for_as_well() {
        let spent = Duration::from_millis(500);
        let each = |rate, drive| cpu_of_each(spent, rate, 0.5, drive);
        assert_eq!(each(1872.0, Drive::Closed(64)), Some(500.0));
        assert_eq!(each(2000.0, Drive::Open(2000.0)), Some(500.0));
        assert_eq!(each(0.0, Drive::Closed(64)), None);
    }

    #[test]
    fn a_program_that_failed_has_a_second_chance_and_no_third() {
        let mut runs = 0;
        let mut run = |failures| {
            runs = 0;
            twice(|| {
                runs += 1;
                if runs <= failures {
                    Err(failed())
                } else {
                    Ok(runs)
                }
            })
        };
        assert_eq!(run(0).expect("a run"), 1);
        assert_eq!(run(1).expect("a second run"), 2);
        assert!(matches!(run(2), Err(TrialError::Run { .. })));
        assert_eq!(runs, 2);
    }

    #[test]
    fn who_interrupts_is_obeyed_at_once() {
        let mut runs = 0;
        let interrupted: Result<(), _> = twice(|| {
            runs += 1;
            Err(TrialError::Interrupted)
        });
        assert!(matches!(interrupted, Err(TrialError::Interrupted)));
        assert_eq!(runs, 1);
    }
}
