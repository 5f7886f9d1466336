//! The servers that are compared, and how each is set up.
//!
//! Alike for all: the certificates, TLS 1.3 only, no tickets, one worker on the same CPU, no access
//! log, descriptors for 10,000 connections. nginx answers requests itself (a `return` without a
//! body) and the terminator has a backend, but a client that only shakes hands reaches neither.
//! nginx runs from a configuration of its own in a temporary folder; an nginx that serves
//! this machine is not touched.

use crate::condition::Condition;
use crate::error::TrialError;
use crate::machine;
use crate::options::Options;
use crate::process::Server;
use crate::stage::Stage;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// One side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `widelane serve` with `--batching off`: AWS-LC makes each signature alone.
    Alone,
    /// `widelane serve` as it comes.
    Batched,
    /// `widelane serve` with `--placement inline`: whatever the machine's profile says.
    Inline,
    /// nginx with its OpenSSL.
    Nginx,
    /// The same, while `widelane trace latency` looks at it.
    NginxLatency,
    /// The same, while `widelane trace handshakes` looks at it.
    NginxHandshakes,
}

impl Side {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Alone,
        Self::Batched,
        Self::Inline,
        Self::Nginx,
        Self::NginxLatency,
        Self::NginxHandshakes,
    ];

    /// As records, files and arguments spell it.
    pub fn id(self) -> &'static str {
        match self {
            Self::Alone => "widelane-off",
            Self::Batched => "widelane-on",
            Self::Inline => "widelane-inline",
            Self::Nginx => "nginx",
            Self::NginxLatency => "nginx-trace-latency",
            Self::NginxHandshakes => "nginx-trace-handshakes",
        }
    }

    /// Whether this side can do such handshakes.
    pub(crate) fn can(self, condition: Condition, options: &Options) -> bool {
        match self {
            Self::Alone | Self::Batched | Self::Inline => true,
            Self::Nginx | Self::NginxLatency | Self::NginxHandshakes => {
                !condition.is_hybrid() || machine::nginx_has_hybrids(options)
            }
        }
    }

    /// The view of `widelane trace` that looks at this side while it is driven.
    fn view(self) -> Option<&'static str> {
        match self {
            Self::NginxLatency => Some("latency"),
            Self::NginxHandshakes => Some("handshakes"),
            Self::Alone | Self::Batched | Self::Inline | Self::Nginx => None,
        }
    }

    /// As tables spell it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Alone => "widelane, batching off",
            Self::Batched => "widelane, batching on",
            Self::Inline => "widelane, inline",
            Self::Nginx => "nginx",
            Self::NginxLatency => "nginx, trace latency",
            Self::NginxHandshakes => "nginx, trace handshakes",
        }
    }
}

impl FromStr for Side {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|side| side.id() == text);
        known.ok_or_else(|| {
            let ids = Self::ALL.map(Self::id);
            format!("{text:?} is no server; choose from {}", ids.join(", "))
        })
    }
}

/// A running server of the comparison.
#[derive(Debug)]
pub struct Contender {
    pub(crate) side: Side,
    pub(crate) running: Running,
}

impl Contender {
    /// Starts `side` on the stage's server CPU and waits until it takes connections.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start(stage: &Stage, side: Side) -> Result<Self, TrialError> {
        start(stage, side)
    }

    /// Where it takes connections.
    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// An error with what it said, if it has ended.
    ///
    /// # Errors
    ///
    /// That one.
    pub fn alive(&mut self) -> Result<(), TrialError> {
        self.running.server.alive()
    }

    /// Starts what looks at this side while it is driven, if anything does, on the load's CPU, and
    /// waits until its probes are there. It stops when it is dropped.
    pub(crate) fn observer(&self, stage: &Stage) -> Result<Option<Server>, TrialError> {
        let Some(view) = self.side.view() else {
            return Ok(None);
        };
        let (folder, _) = place(stage, self.side.id())?;
        let family = self.running.server.family();
        let family: Vec<_> = family.iter().map(u32::to_string).collect();
        let mut command = Command::new(&stage.options.widelane);
        command.args(["trace", view, "--json", "--pid", &family.join(",")]);
        let mut tracer = Server::start(TRACER, &mut command, stage.options.load_cpu, &folder)?;
        tracer.says("traces", &stage.interrupt)?;
        Ok(Some(tracer))
    }
}

/// A server that takes connections.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) server: Server,
}

impl Running {
    /// Starts `command`, which is to listen on `address`, on the stage's server CPU, and waits
    /// until it takes connections. What it says goes to a file of `folder`.
    pub(crate) fn start(
        stage: &Stage,
        name: &'static str,
        command: Command,
        address: SocketAddr,
        folder: &Path,
    ) -> Result<Self, TrialError> {
        let cpu = stage.options.server_cpu;
        let mut command = stage.options.emulated(command, Some(cpu));
        // A brake is on both CPUs, the program that it starts on one.
        let cpu = stage.options.model.is_none().then_some(cpu);
        let mut server = Server::start(name, &mut command, cpu, folder)?;
        server.ready(address, &stage.interrupt)?;
        Ok(Self { address, server })
    }
}

/// Starts `side` on the stage's server CPU and waits until it takes connections.
pub(crate) fn start(stage: &Stage, side: Side) -> Result<Contender, TrialError> {
    let (folder, address) = place(stage, side.id())?;
    let command = match side {
        Side::Alone | Side::Batched | Side::Inline => widelane(stage, side, &folder, address)?,
        Side::Nginx | Side::NginxLatency | Side::NginxHandshakes => {
            nginx(stage, &folder, address, "")?
        }
    };
    let running = Running::start(stage, side.id(), command, address, &folder)?;
    Ok(Contender { side, running })
}

/// A folder for a server's files, and a loopback address that was free a moment ago.
pub(crate) fn place(stage: &Stage, name: &str) -> Result<(PathBuf, SocketAddr), TrialError> {
    let folder = stage.folder().join(name);
    let prepared = fs::create_dir_all(&folder).and_then(|()| free_address());
    Ok((folder, prepared.map_err(TrialError::Folder)?))
}

fn widelane(
    stage: &Stage,
    side: Side,
    folder: &Path,
    address: SocketAddr,
) -> Result<Command, TrialError> {
    let mut configuration = format!(
        r#"workers = 1
cpus = "{cpu}"
[batching]
enabled = {batching}
placement = "{placement}"
[limits]
connections = {MOST_CONNECTIONS}
handshakes = {MOST_CONNECTIONS}
source.handshakes = {MOST_CONNECTIONS}
[[listener]]
listen = ["{address}"]
backend = "unix:{backend}"
versions = ["1.3"]
[listener.tickets]
count = 0
"#,
        cpu = stage.options.server_cpu,
        batching = side != Side::Alone,
        placement = if side == Side::Inline {
            "inline"
        } else {
            "auto"
        },
        backend = stage.backend().display(),
    );
    for (certificate, key) in stage.certificates() {
        configuration.push_str(&format!(
            "[[listener.certificate]]\ncert = \"{}\"\nkey = \"{}\"\n",
            certificate.display(),
            key.display()
        ));
    }
    let file = write(folder, "widelane.toml", &configuration)?;
    let mut command = Command::new(&stage.options.widelane);
    command.arg("serve").arg("--config").arg(file);
    Ok(command)
}

/// nginx with a configuration of its own, which is written into `folder`.
pub(crate) fn nginx(
    stage: &Stage,
    folder: &Path,
    address: SocketAddr,
    more: &str,
) -> Result<Command, TrialError> {
    let binary = stage
        .options
        .nginx
        .as_ref()
        .ok_or(TrialError::NoServer("nginx"))?;
    let pairs = stage.certificates().map(|(certificate, key)| {
        let (certificate, key) = (certificate.display(), key.display());
        format!("ssl_certificate {certificate}; ssl_certificate_key {key};")
    });
    let configuration = format!(
        r#"daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections {MOST_CONNECTIONS}; }}
http {{
    access_log off;
    client_header_timeout 600s;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {address} ssl backlog=4096;
        {certificates}
        ssl_protocols TLSv1.3;
        ssl_session_cache off;
        ssl_session_tickets off;
        {more}
        return 204;
    }}
}}
"#,
        folder = folder.display(),
        certificates = pairs.join("\n        "),
    );
    let file = write(folder, "nginx.conf", &configuration)?;
    let mut command = Command::new(binary);
    command.arg("-e").arg("stderr").arg("-p").arg(folder);
    command.arg("-c").arg(file);
    Ok(command)
}

/// Writes a file into a server's folder.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, TrialError> {
    let file = folder.join(name);
    fs::write(&file, text).map_err(TrialError::Folder)?;
    Ok(file)
}

fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// The name of what looks at a server, in errors and for its log.
const TRACER: &str = "widelane trace";
/// More than the largest number of idle connections that is measured.
const MOST_CONNECTIONS: usize = 12_000;
