//! `widelane serve`: the TLS terminator.

use crate::allocator;
use crate::clock::clock;
use crate::log;
#[cfg(feature = "instruments")]
use crate::status::prove;
use crate::values::Switch;
use clap::Args as ClapArgs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
#[cfg(feature = "instruments")]
use std::time::Duration;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_cli::places::{CALIBRATION, Places, RESPONSES};
use widelane_cpu::Target;
use widelane_engine::{Clock, calibration};
use widelane_terminator::{
    Backend, Certificate, Config, ConfigError, Cpus, Demo, Document, Listener, LogFormat, LogTarget, Network,
    OcspSource, PlacementChoice, ProxyVersion, Server, Signals,
};

/// Terminate TLS in front of a backend
///
/// Accepts TLS 1.3 and 1.2, batches the public-key operations of concurrent handshakes, and relays
/// the decrypted bytes to a TCP or UNIX-socket backend.
///
/// SIGHUP reloads certificates and configuration without losing a connection; changed certificates
/// and keys are also taken without a signal. SIGUSR1 opens the access log anew. SIGTERM stops after
/// live connections have ended. RUST_LOG=debug says more.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address to listen on (repeatable) [default with --demo: 127.0.0.1:8443]
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::values::address)]
    listen: Vec<SocketAddr>,
    /// Certificate chain, PEM, leaf first (repeatable, each with its --key; chosen by host name)
    #[arg(long, value_name = "FILE")]
    cert: Vec<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// Where the OCSP response of the certificate comes from: a file in DER, `fetch` for the responder
    /// that the certificate names, or a responder's address (for each --cert, in the same order) [default:
    /// clients get none]
    #[arg(long, value_name = "FILE|fetch|http://HOST")]
    ocsp: Vec<OcspSource>,
    /// Where the decrypted bytes go (repeatable: to the address with the fewest connections)
    #[arg(long, value_name = "ADDR:PORT|HOST:PORT|unix:PATH")]
    backend: Vec<Backend>,
    /// Application protocol of the backend for ALPN, most wanted first (repeatable, or a list with commas)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    alpn: Vec<String>,
    /// Network of load balancers that send a PROXY protocol header, version 1 or 2, from which the
    /// client's address is taken (repeatable); all other clients are taken for what they are
    #[arg(long, value_name = "CIDR")]
    proxy_protocol_from: Vec<Network>,
    /// Tell the backend who connects, by a PROXY protocol header of this version; with records, also host name,
    /// protocol and client certificate [without one: v2]
    #[arg(long, value_name = "v1|v2|v2-records", num_args = 0..=1,
          default_missing_value = "v2")]
    proxy_protocol_to: Option<ProxyVersion>,
    /// Ticket keys that other machines have as well, so that clients can resume their sessions there: a
    /// directory from `widelane tickets new`, or key files of nginx or HAProxy (repeatable; the first
    /// key encrypts, all decrypt)
    #[arg(long, value_name = "DIR|FILE")]
    ticket_keys: Vec<PathBuf>,
    /// Read certificates and keys again when their files change [default: on]
    #[arg(long, value_name = "on|off")]
    watch: Option<Switch>,
    /// Write a line for each client connection when it ends: into this file, to `stderr`, or to
    /// standard output (`-`)
    #[arg(long, value_name = "FILE|stderr|-")]
    access_log: Option<LogTarget>,
    /// How these lines are written [default: json]
    #[arg(long, value_name = "json|text", requires = "access_log")]
    access_log_format: Option<LogFormat>,
    /// Event-loop threads [default: one for each CPU of --cpus, or that the process may use, but no
    /// more than its cgroup's quota]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Pin the workers to those of these CPUs that the process may use, for example 0,2,4-7
    #[arg(long, value_name = "LIST")]
    cpus: Option<Cpus>,
    /// Run the public-key operations of concurrent handshakes together [default: on]
    #[arg(long, value_name = "on|off")]
    batching: Option<Switch>,
    /// Where batches run; auto: where the machine's profile makes it cheaper [default: auto]
    #[arg(long, value_name = "auto|inline|vector-cores")]
    placement: Option<PlacementChoice>,
    /// CPUs of the vector cores [default with auto: those that --cpus leaves, else the last
    /// quarter]
    #[arg(long, value_name = "LIST", required_if_eq("placement", "vector-cores"))]
    vector_cpus: Option<Cpus>,
    /// The machine's profile, or a model with published figures like "Gold 6130" [default: the newest
    /// that `widelane probe` kept]
    #[arg(long, value_name = "FILE|MODEL")]
    profile: Option<String>,
    /// Serve Prometheus metrics (/metrics) and /healthz here, plain HTTP
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::values::address)]
    metrics: Option<SocketAddr>,
    /// Read everything from a TOML file instead of flags; packaging/widelane.toml shows every key
    #[arg(long, value_name = "FILE", conflicts_with_all = BY_FLAGS)]
    config: Option<PathBuf>,
    /// Check the configuration and the files that it names, and do not serve
    #[arg(long)]
    check: bool,
    /// Prove once what lanes save here: when there is load, switch them off and on for so many seconds, and log what a
    /// handshake takes with and without [without a number: 60]
    #[cfg(feature = "instruments")]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "60",
          value_parser = widelane_cli::values::seconds)]
    prove: Option<Duration>,
    /// Serve a page of our own with a certificate made on the spot; needs nothing
    #[arg(long, conflicts_with_all = ["cert", "key", "ocsp", "config"])]
    demo: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    log::start();
    #[cfg(feature = "instruments")]
    let plan =
        (args.prove.map(prove::plan_of_its_own).transpose()).map_err(|error| Failure::Usage(error.to_string()))?;
    let signals = Signals::catch()?;
    let demo = if args.demo { Some(Demo::start()?) } else { None };
    let source = match &args.config {
        Some(path) => Source::File(path.clone()),
        None => Source::Flags(Box::new(args.flags(demo.as_ref())?)),
    };
    // Read once: the file may be a pipe.
    let document = source.document()?;
    let clock = clock(document.config().batching.profile.as_deref())?;
    let document = on_this_machine(document, clock);
    let batching = &document.config().batching;
    if batching.enabled {
        tracing::info!("{}", who_computes(&batching.backend.to_string()));
    }
    if args.check {
        Server::check(&document)?;
        return output::print("The configuration can be served.\n");
    }
    if let Some(file) = Places::here().to_write(CALIBRATION) {
        calibration::keep_in(&file);
    }
    let server = Server::start(&document)?;
    server.give_back_memory_by(allocator::give_back_free_memory);
    if demo.is_some() {
        for address in server.addresses() {
            output::complain(&format!("Try: curl -k https://{address}/\n"));
        }
    }
    #[cfg(feature = "instruments")]
    if let Some(plan) = plan {
        prove::begin_of_its_own(plan)?;
    }
    signals.serve(server, || Ok(on_this_machine(source.document()?, clock)));
    Ok(())
}

/// The lanes that there are, and whether passes use them: `backend` is the setting of that name.
fn who_computes(backend: &str) -> String {
    let lanes = widelane_cpu::lanes();
    match Target::named(backend) {
        Some(target) => format!("{lanes}; batching.backend takes {}", target.with_caveat()),
        None if lanes.exist() && backend != "aws-lc" => lanes.to_string(),
        None => format!("{lanes}; AWS-LC does all public-key operations, one at a time"),
    }
}

/// Source of the configuration, at the start and again at every reload.
enum Source {
    File(PathBuf),
    /// Flags stay as they are, but the files that they name may have changed.
    Flags(Box<Config>),
}

impl Source {
    fn document(&self) -> Result<Document, ConfigError> {
        match self {
            Self::File(path) => Document::read(path),
            Self::Flags(config) => Document::from_flags(Config::clone(config)),
        }
    }
}

/// Adds what no configuration says: what wide code does to the clock here, and where OCSP responses are kept.
fn on_this_machine(mut document: Document, clock: Option<Clock>) -> Document {
    document.set_clock(clock);
    if let Some(folder) = Places::here().to_write(RESPONSES) {
        document.keep_responses_in(folder);
    }
    document
}

impl Args {
    fn flags(&self, demo: Option<&Demo>) -> Result<Config, Failure> {
        let usage = |message: &str| Err(Failure::Usage(message.into()));
        if self.cert.len() != self.key.len() {
            return usage("every --cert needs its --key, in the same order");
        }
        let mut listen = self.listen.clone();
        let mut listener = match (demo, self.backend.first()) {
            (Some(demo), _) => {
                if listen.is_empty() {
                    listen.push(DEMO_ADDRESS);
                }
                let mut listener = demo.listener(listen);
                if !self.backend.is_empty() {
                    listener.alpn.clear();
                }
                listener
            }
            (None, Some(backend)) => Listener::new(listen, backend.clone()),
            (None, None) => {
                return usage(
                    "nothing to serve: give --listen, --cert, --key and --backend, or --config, \
                     or --demo",
                );
            }
        };
        if !self.backend.is_empty() {
            listener.backend.clone_from(&self.backend);
        }
        if listener.listen.is_empty() {
            return usage("nowhere to listen: give --listen, for example 0.0.0.0:443");
        }
        if !self.ocsp.is_empty() && self.ocsp.len() != self.cert.len() {
            return usage("give --ocsp for every --cert, in the same order, or not at all");
        }
        let mut ocsp = self.ocsp.iter();
        for (cert, key) in self.cert.iter().zip(&self.key) {
            let mut certificate = Certificate::new(cert, key);
            certificate.ocsp = ocsp.next().cloned();
            listener.certificates.push(certificate);
        }
        if listener.certificates.is_empty() {
            return usage("no certificate: give --cert and --key, or --demo");
        }
        if !self.alpn.is_empty() {
            listener.alpn = self.alpn.clone();
        }
        listener.proxy_protocol_from.clone_from(&self.proxy_protocol_from);
        listener.proxy_protocol_to = self.proxy_protocol_to;
        listener.tickets.keys.clone_from(&self.ticket_keys);
        let mut config = Config::default();
        config.watch = self.watch != Some(Switch::Off);
        config.access_log = self.access_log.clone().unwrap_or_default();
        config.access_log_format = self.access_log_format.unwrap_or_default();
        config.workers = self.workers;
        config.cpus = self.cpus.unwrap_or_default();
        config.batching.enabled = self.batching != Some(Switch::Off);
        config.batching.vector_cpus = self.vector_cpus.unwrap_or_default();
        config.batching.profile.clone_from(&self.profile);
        config.batching.placement = self.placement.unwrap_or_default();
        config.metrics.listen = self.metrics;
        config.listeners = vec![listener];
        Ok(config)
    }
}

const DEMO_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8443);

/// The flags that a configuration file takes the place of.
const BY_FLAGS: [&str; 19] = [
    "listen",
    "cert",
    "key",
    "ocsp",
    "backend",
    "alpn",
    "proxy_protocol_from",
    "proxy_protocol_to",
    "ticket_keys",
    "watch",
    "access_log",
    "access_log_format",
    "workers",
    "cpus",
    "batching",
    "placement",
    "vector_cpus",
    "profile",
    "metrics",
];

const EXAMPLES: &str = "\
Examples:
  widelane serve --demo
  widelane serve --listen 0.0.0.0:443 --cert site.pem --key site.key --backend 127.0.0.1:8080
  widelane serve --listen [::]:443 --cert site.pem --key site.key --backend unix:/run/app.sock \\
                 --cpus 0-2 --placement vector-cores --vector-cpus 3 --metrics 127.0.0.1:9464
  widelane serve --listen 0.0.0.0:443 --cert site.pem --key site.key --backend 127.0.0.1:8080 \\
                 --ticket-keys /etc/widelane/tickets
  widelane serve --listen 0.0.0.0:443 --cert site.pem --key site.key --backend 127.0.0.1:8080 \\
                 --proxy-protocol-from 10.0.0.0/24 --proxy-protocol-to v2
  widelane serve --config /etc/widelane.toml --check";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_proxy_header_has_version_2_unless_another_is_named() {
        let version = |words: &[&str]| {
            let words = ["serve"].iter().chain(words);
            let cli = Cli::try_parse_from(words).ok();
            cli.map(|cli| cli.args.proxy_protocol_to)
        };
        assert_eq!(version(&[]), Some(None));
        assert_eq!(version(&["--proxy-protocol-to", "v1"]), Some(Some(ProxyVersion::V1)));
        let both = ["--proxy-protocol-to", "--listen", "127.0.0.1:1"];
        assert_eq!(version(&both), Some(Some(ProxyVersion::V2)));
        assert_eq!(version(&["--proxy-protocol-to", "v3"]), None);
    }

    #[test]
    #[cfg(feature = "instruments")]
    fn a_proof_of_its_own_takes_a_minute_unless_said_otherwise() {
        let length = |words: &[&str]| {
            let words = ["serve", "--demo"].iter().chain(words);
            let cli = Cli::try_parse_from(words).ok();
            cli.map(|cli| cli.args.prove)
        };
        assert_eq!(length(&[]), Some(None));
        let minute = Duration::from_secs(60);
        assert_eq!(length(&["--prove"]), Some(Some(minute)));
        assert_eq!(length(&["--prove", "120"]), Some(Some(minute * 2)));
        assert_eq!(length(&["--prove", "soon"]), None);
        let cli = Cli::try_parse_from(["serve", "--demo", "--prove", "5"]).expect("right usage");
        let short = run(cli.args).expect_err("six pairs of blocks take longer");
        assert!(matches!(short, Failure::Usage(_)), "{short:?}");
    }

    #[test]
    fn protocols_may_be_a_list() {
        for words in [&["--alpn", "h2,http/1.1"][..], &["--alpn", "h2", "--alpn", "http/1.1"]] {
            let cli = Cli::try_parse_from(["serve"].iter().chain(words)).expect("right usage");
            assert_eq!(cli.args.alpn, ["h2", "http/1.1"]);
        }
    }
}
