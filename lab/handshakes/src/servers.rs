//! The servers that are compared, and how each is set up.
//!
//! Alike for all: the certificates, what a [`Setup`] says, one worker on the same CPU, no access
//! log. nginx answers requests itself (a `return` without a body); the terminator, and the peers of
//! `peers.rs`, stand before a backend. All run from configurations of their own in a temporary
//! folder; servers that serve this machine are not touched.

use crate::condition::Condition;
use crate::error::TrialError;
use crate::machine;
use crate::options::Options;
use crate::peers;
use crate::process::Server;
use crate::setup::{Setting, Setup};
use crate::stage::Stage;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use widelane_samples::named;

named! {
    /// One side of the comparison.
    pub enum Side: "server" {
        /// `widelane serve` with `--batching off`: AWS-LC makes each signature alone.
        Alone = "widelane-off",
        /// `widelane serve` as it comes.
        Batched = "widelane-on",
        /// `widelane serve` with `--placement inline`: whatever the machine's profile says.
        Inline = "widelane-inline",
        /// Another `widelane serve`, as it comes: that of [`Options::old`].
        Old = "widelane-old",
        /// nginx with its OpenSSL.
        Nginx = "nginx",
        /// nginx's stream module, which relays to a backend.
        NginxStream = "nginx-stream",
        /// HAProxy, which relays to a backend.
        Haproxy = "haproxy",
        /// hitch, which relays to a backend.
        Hitch = "hitch",
        /// nginx while `widelane trace latency` traces it.
        NginxLatency = "nginx-trace-latency",
        /// nginx while `widelane trace handshakes` traces it.
        NginxHandshakes = "nginx-trace-handshakes",
    }
}

impl Side {
    /// Returns whether this side can do such handshakes.
    pub(crate) fn can(self, condition: Condition, options: &Options) -> bool {
        match self {
            Self::Alone | Self::Batched | Self::Inline | Self::Old => true,
            Self::Nginx | Self::NginxStream | Self::NginxLatency | Self::NginxHandshakes => {
                !condition.is_hybrid() || machine::nginx_has_hybrids(options)
            }
            Self::Haproxy => !condition.is_hybrid(),
            // hitch has no setting to send no tickets, nor to ask clients for certificates.
            Self::Hitch => condition.setting() == Setting::Usual,
        }
    }

    /// Returns whether the program of this side is installed.
    pub(crate) fn is_installed(self, options: &Options) -> bool {
        match self {
            Self::Alone | Self::Batched | Self::Inline => true,
            Self::Old => options.old.is_some(),
            Self::Nginx | Self::NginxLatency | Self::NginxHandshakes => options.nginx.is_some(),
            Self::NginxStream => peers::has_stream(options),
            Self::Haproxy => options.haproxy.is_some(),
            Self::Hitch => options.hitch.is_some(),
        }
    }

    /// The view of `widelane trace` that looks at this side while it is driven.
    fn view(self) -> Option<&'static str> {
        match self {
            Self::NginxLatency => Some("latency"),
            Self::NginxHandshakes => Some("handshakes"),
            _ => None,
        }
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
        start(stage, side, Setup::BARE)
    }

    /// Address of the server.
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
        let (folder, _) = place(stage, self.side.name())?;
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
    /// Arguments of `widelane load` for the server's protocol.
    pub(crate) exchange: &'static [&'static str],
}

impl Running {
    /// Starts `command`, which is to listen on `address`, on the stage's server CPU, and waits
    /// until it takes connections. What it says goes to a file of `folder`.
    pub(crate) fn start(
        stage: &Stage,
        name: &str,
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
        Ok(Self {
            address,
            server,
            exchange: &[],
        })
    }
}

/// Starts `side` on the stage's server CPU and waits until it takes connections.
pub(crate) fn start(stage: &Stage, side: Side, setup: Setup) -> Result<Contender, TrialError> {
    let name = format!("{}-{}", side.name(), setup.setting.name());
    let (folder, address) = place(stage, &name)?;
    let command = match side {
        Side::Alone | Side::Batched | Side::Inline | Side::Old => widelane(stage, side, setup, &folder, address)?,
        Side::Nginx | Side::NginxLatency | Side::NginxHandshakes => nginx(stage, setup, &folder, address, "")?,
        Side::NginxStream => peers::nginx_stream(stage, setup, &folder, address)?,
        Side::Haproxy => peers::haproxy(stage, setup, &folder, address)?,
        Side::Hitch => peers::hitch(stage, setup, &folder, address)?,
    };
    let running = Running::start(stage, side.name(), command, address, &folder)?;
    Ok(Contender { side, running })
}

/// A folder for a server's files, and a loopback address that was free a moment ago.
pub(crate) fn place(stage: &Stage, name: &str) -> Result<(PathBuf, SocketAddr), TrialError> {
    let folder = stage.folder().join(name);
    fs::create_dir_all(&folder).map_err(TrialError::Folder)?;
    Ok((folder, free_address()?))
}

fn widelane(
    stage: &Stage,
    side: Side,
    setup: Setup,
    folder: &Path,
    address: SocketAddr,
) -> Result<Command, TrialError> {
    let program = match side {
        Side::Old => stage.options.old.as_ref().ok_or(TrialError::NoOld)?,
        _ => &stage.options.widelane,
    };
    let backend = setup.backend.map_or_else(
        || format!("unix:{}", stage.backend().display()),
        |address| address.to_string(),
    );
    let (versions, tickets) = match setup.setting.has_tickets() {
        true => (r#""1.2", "1.3""#, 2),
        false => (r#""1.3""#, 0),
    };
    let clients = match setup.setting.asks_for_certificates() {
        true => format!(
            "client_auth = {{ mode = \"required\", ca = \"{}\" }}\n",
            stage.client_authority().display()
        ),
        false => String::new(),
    };
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
backend = "{backend}"
versions = [{versions}]
{clients}[listener.tickets]
count = {tickets}
"#,
        cpu = stage.options.server_cpu,
        batching = side != Side::Alone,
        placement = if side == Side::Inline { "inline" } else { "auto" },
    );
    for (certificate, key) in stage.certificates() {
        configuration.push_str(&format!(
            "[[listener.certificate]]\ncert = \"{}\"\nkey = \"{}\"\n",
            certificate.display(),
            key.display()
        ));
    }
    let file = write(folder, "widelane.toml", &configuration)?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(file);
    Ok(command)
}

/// nginx with a configuration of its own, which is written into `folder`.
pub(crate) fn nginx(
    stage: &Stage,
    setup: Setup,
    folder: &Path,
    address: SocketAddr,
    more: &str,
) -> Result<Command, TrialError> {
    let binary = stage.options.nginx.as_ref().ok_or(TrialError::NoServer("nginx"))?;
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
        {tls}
        {more}
        return 204;
    }}
}}
"#,
        folder = folder.display(),
        tls = peers::nginx_tls(stage, setup, address),
    );
    peers::nginx_with(binary, folder, &configuration)
}

/// Writes a file into a server's folder.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, TrialError> {
    let file = folder.join(name);
    fs::write(&file, text).map_err(TrialError::Folder)?;
    Ok(file)
}

/// A loopback address at which nothing listens.
///
/// # Errors
///
/// When there is none.
pub fn free_address() -> Result<SocketAddr, TrialError> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    free.map_err(TrialError::machine("cannot find a free port"))
}

/// The name of what looks at a server, in errors and for its log.
const TRACER: &str = "widelane trace";
/// More than the largest number of idle connections that is measured.
const MOST_CONNECTIONS: usize = 12_000;
