//! `widelane load`: arguments and output of the handshake load generator.

use crate::values::Switch;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use widelane_affinity::Cpus;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_cli::places::{CALIBRATION, Places};
use widelane_cli::values;
use widelane_engine::calibration;
use widelane_load::{
    After, Arrivals, Close, Group, Identity, LoadError, Plan, SignatureAlgorithm, Spacing, StartTls, Storm, Suite,
    Trust, Version, Watch,
};
use widelane_text::json_line;

/// Drive a TLS server with handshakes and measure rate and latency
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where to connect
    #[arg(value_name = "ADDR:PORT")]
    target: String,

    #[command(flatten)]
    load: Load,

    #[command(flatten)]
    handshake: Handshake,

    #[command(flatten)]
    afterwards: Afterwards,

    /// Print one JSON object
    #[arg(long, help_heading = None::<&'static str>)]
    json: bool,
}

/// Options of the connections that are started.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
struct Load {
    /// Closed loop: keep N connections in flight [default: 16]
    #[arg(long, short, value_name = "N")]
    concurrency: Option<usize>,

    /// Open loop: start R connections a second, whatever the server does; latencies count from
    /// the intended start
    #[arg(long, short, value_name = "R", conflicts_with = "concurrency")]
    rate: Option<f64>,

    /// Start connections of an open loop at random (exponential) intervals, not at even ones
    #[arg(long, requires = "rate")]
    poisson: bool,

    /// Measure for S seconds
    #[arg(long, short, value_name = "S", default_value = "10", value_parser = values::seconds)]
    duration: Duration,

    /// Run for S seconds before measuring [default: 1, or 0 with --count or --hold]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    warmup: Option<Duration>,

    /// End after N connections, warm-up included
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Give up on a connection after S seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = values::seconds)]
    timeout: Duration,

    /// Clients that fail or give up try again up to N times, after 0.1 s, 0.2 s, 0.4 s, ...
    #[arg(long, value_name = "N", default_value = "0")]
    retries: u32,

    /// Start R connections a second from second F of the measured time on, for S seconds
    #[arg(long, value_name = "R@F+S", requires = "rate", value_parser = storm)]
    storm: Option<Storm>,

    /// Let the rate rise evenly to that of --storm
    #[arg(long, requires = "storm")]
    ramp: bool,

    /// Threads of the generator [default: one for each of --cpus, else 1]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Pin the threads to these CPUs, like 0,2-3
    #[arg(long, value_name = "LIST", value_parser = Cpus::named)]
    cpus: Option<Cpus>,

    /// Batch the generator's own public-key operations [default: on]
    #[arg(long, value_name = "on|off")]
    batching: Option<Switch>,

    /// Do not try one connection before the run
    #[arg(long)]
    no_preflight: bool,
}

/// Options of a handshake.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Handshake")]
struct Handshake {
    /// Offer only this TLS version: 1.2 or 1.3 [default: both]
    #[arg(long, value_name = "VERSION")]
    tls: Option<Version>,

    /// Key exchange group: x25519, p256, p384, x25519mlkem768, … Several may be given; a key
    /// share is sent for the first
    #[arg(long, value_name = "G", value_delimiter = ',', default_value = "x25519,p256,p384")]
    group: Vec<Group>,

    /// Offer only these signature algorithms, like rsa_pss_rsae_sha256
    #[arg(long, value_name = "ALG", value_delimiter = ',')]
    sigalg: Vec<SignatureAlgorithm>,

    /// Offer only these cipher suites, like TLS_AES_128_GCM_SHA256
    #[arg(long, value_name = "SUITE", value_delimiter = ',')]
    cipher: Vec<Suite>,

    /// Offer these application protocols, like http/1.1
    #[arg(long, value_name = "PROTOCOL", value_delimiter = ',')]
    alpn: Vec<String>,

    /// Resume sessions with the server's tickets [default: every handshake is a full one]
    #[arg(long)]
    resume: bool,

    /// Name for SNI, which must be in the certificate [default: from ADDR]
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,

    /// Check neither certificate nor signature, which costs the client least
    #[arg(long, short = 'k')]
    insecure: bool,

    /// Trust the certificates in this PEM file [default: the system's]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,

    /// Show this certificate to servers that ask for one (PEM, leaf first)
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,

    /// Private key of --certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,

    /// Begin in plain text and ask for TLS, as clients of this protocol do: smtp, imap, postgres
    #[arg(long, value_name = "PROTOCOL")]
    starttls: Option<StartTls>,
}

/// Options of what follows a handshake.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Afterwards")]
struct Afterwards {
    /// GET this path over HTTP/1.1 after the handshake
    #[arg(long, value_name = "PATH")]
    get: Option<String>,

    /// Send this after the handshake; \r, \n, \\ and \xHH are bytes
    #[arg(long, value_name = "TEXT", value_parser = bytes, requires = "expect")]
    send: Option<Bytes>,

    /// Succeed when the server has sent this, written as for --send
    #[arg(long, value_name = "TEXT", value_parser = bytes, conflicts_with_all = ["get", "hold"])]
    expect: Option<Bytes>,

    /// Keep connections open and idle until the end
    #[arg(long, conflicts_with = "get")]
    hold: bool,

    /// After the server's close, send a reset or a FIN (a reset leaves no socket in TIME_WAIT); or
    /// reset abruptly, right after the last flight and without close_notify
    #[arg(long, value_name = "HOW", default_value = "reset", value_parser = ["reset", "fin", "abrupt"])]
    close: String,
}

/// Runs it. Status 1 also if no handshake completed.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let json = args.json;
    let plan = plan(args)?;
    if let Some(file) = Places::here().to_write(CALIBRATION) {
        calibration::keep_in(&file);
    }
    let watch = Watch::default();
    stop_on_signals(&watch)?;
    let finished = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let length = plan.warmup + plan.duration;
        if length > PATIENCE_WITHOUT_PROGRESS && io::stderr().is_terminal() {
            let (watch, finished) = (&watch, &finished);
            scope.spawn(move || show_progress(length, watch, finished));
        }
        let report = widelane_load::run_watched(&plan, &watch);
        finished.store(true, Ordering::Relaxed);
        report
    });
    let report = report.map_err(failure)?;
    if json {
        output::print(&json_line(&report))?;
    } else {
        output::print(&report.to_string())?;
    }
    match report.attempted {
        _ if report.completed > 0 || report.interrupted => Ok(()),
        0 => Err(Failure::Failed(
            "no handshake started in the measured time; measure longer with --duration, or give \
             the generator a CPU of its own with --cpus"
                .into(),
        )),
        attempted => Err(Failure::Failed(format!("none of {attempted} handshakes completed"))),
    }
}

fn plan(args: Args) -> Result<Plan, Failure> {
    let mut plan = Plan::new(&args.target).map_err(failure)?;
    let Args {
        load,
        handshake,
        afterwards,
        ..
    } = args;
    if let Some(name) = handshake.server_name {
        plan.server_name = name;
    }
    let spacing = if load.poisson { Spacing::Poisson } else { Spacing::Even };
    match (load.concurrency, load.rate) {
        (Some(n), _) => plan.arrivals = Arrivals::Concurrency(n),
        (None, Some(per_second)) => {
            plan.arrivals = Arrivals::Rate {
                per_second,
                spacing,
                storm: load.storm.map(|storm| Storm {
                    ramp: load.ramp,
                    ..storm
                }),
            }
        }
        (None, None) => {}
    }
    plan.duration = load.duration;
    // With few connections, or connections that start once and are held, a warm-up would leave
    // none for the measurement.
    let brief = load.count.is_some() || afterwards.hold;
    plan.warmup = match load.warmup {
        Some(warmup) => warmup,
        None if brief => Duration::ZERO,
        None => plan.warmup,
    };
    plan.limit = load.count;
    plan.timeout = load.timeout;
    plan.retries = load.retries;
    plan.cpus = load.cpus.unwrap_or_default();
    plan.threads = load.threads.unwrap_or(plan.cpus.count().max(1));
    plan.preflight = !load.no_preflight;
    plan.batching = load.batching != Some(Switch::Off);
    plan.offer.version = handshake.tls;
    plan.offer.groups = handshake.group;
    plan.offer.signature_algorithms = handshake.sigalg;
    plan.offer.suites = handshake.cipher;
    plan.offer.alpn = handshake.alpn;
    plan.offer.resume = handshake.resume;
    plan.offer.trust = match handshake.ca {
        _ if handshake.insecure => Trust::Unchecked,
        Some(file) => Trust::File(file),
        None => Trust::System,
    };
    let identity = handshake.certificate.zip(handshake.key);
    plan.offer.identity = identity.map(|(certificate, key)| Identity { certificate, key });
    plan.starttls = handshake.starttls;
    plan.after = match (afterwards.get, afterwards.expect) {
        (Some(path), _) => After::Get(path),
        (_, Some(Bytes(expect))) => After::Exchange {
            send: afterwards.send.map_or_else(Vec::new, |Bytes(send)| send),
            expect,
        },
        _ if afterwards.hold => After::Hold,
        _ => After::Close,
    };
    plan.close = match &*afterwards.close {
        "fin" => Close::Fin,
        "abrupt" => Close::Abrupt,
        _ => Close::Reset,
    };
    Ok(plan)
}

/// Reads `R@F+S`: a rate, and the seconds from which and for how long.
fn storm(text: &str) -> Result<Storm, String> {
    let wrong = || "not like 2500@3+5: 2,500 starts a second, from second 3 on, for 5 seconds";
    let (rate, span) = text.split_once('@').ok_or_else(wrong)?;
    let (from, length) = span.split_once('+').ok_or_else(wrong)?;
    Ok(Storm {
        per_second: rate.parse().map_err(|_| wrong())?,
        from: values::seconds(from).map_err(|_| wrong())?,
        length: values::seconds(length).map_err(|_| wrong())?,
        ramp: false,
    })
}

/// Bytes of an argument. (A type of its own: clap reads `Vec<u8>` as several numbers.)
#[derive(Clone, Debug)]
struct Bytes(Vec<u8>);

/// Reads text with escapes.
fn bytes(text: &str) -> Result<Bytes, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend(plain.bytes());
        let digits = escaped
            .get(1..3)
            .filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let hex = || u8::from_str_radix(digits?, 16).ok();
        let (byte, length) = match escaped.bytes().next() {
            Some(b'r') => (Some(b'\r'), 1),
            Some(b'n') => (Some(b'\n'), 1),
            Some(b'\\') => (Some(b'\\'), 1),
            Some(b'x') => (hex(), 3),
            _ => (None, 0),
        };
        bytes.push(byte.ok_or(r"a backslash stands before r, n, x and two hexadecimal digits, or a backslash")?);
        rest = &escaped[length..];
    }
    bytes.extend(rest.bytes());
    Ok(Bytes(bytes))
}

/// The first Ctrl-C or SIGTERM ends the run and prints what was measured; a second one kills.
fn stop_on_signals(watch: &Watch) -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let watch = watch.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signals = signals.forever();
        signals.next();
        watch.stop();
        signals.next();
        std::process::exit(STATUS_KILLED);
    })?;
    Ok(())
}

fn show_progress(length: Duration, watch: &Watch, finished: &AtomicBool) {
    let from = Instant::now();
    let mut last = (from, watch.snapshot());
    loop {
        // Checks often and prints rarely, so that the end does not wait for the progress line.
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(50));
            if finished.load(Ordering::Relaxed) {
                output::progress("");
                return;
            }
        }
        let now = Instant::now();
        let snapshot = watch.snapshot();
        let span = (now - last.0).as_secs_f64();
        let rate = (snapshot.completed - last.1.completed) as f64 / span;
        let elapsed = now - from;
        let waiting = if elapsed > length {
            ", waiting for the last ones"
        } else {
            ""
        };
        output::progress(&format!(
            "{:.0} of {:.0} s: {} completed, {rate:.0}/s, {} errors{waiting}",
            elapsed.as_secs_f64().min(length.as_secs_f64()),
            length.as_secs_f64(),
            snapshot.completed,
            snapshot.errors,
        ));
        last = (now, snapshot);
    }
}

/// A contradictory plan is wrong usage. Every other error is a failure.
fn failure(error: LoadError) -> Failure {
    match error {
        LoadError::Plan(_) | LoadError::Target { .. } => Failure::Usage(error.to_string()),
        error => error.into(),
    }
}

const EXAMPLES: &str = "\
Examples:
  widelane load 127.0.0.1:8443 --insecure
      capacity: full handshakes, 16 in flight, 10 s
  widelane load 127.0.0.1:8443 --insecure --rate 1000 --duration 30 --json
      latency at 1,000 starts a second, as one JSON object
  widelane load example.test:443 --ca ca.pem --tls 1.2 --group p256 --cpus 1
      TLS 1.2 with P-256, certificates checked, from CPU 1
  widelane load 127.0.0.1:8443 --insecure --rate 200 --storm 3000@5+10 --timeout 1 --retries 3
      a storm of clients that give up after a second and try again: see goodput/s
  widelane load 127.0.0.1:8443 --insecure --resume --get /
      resumed sessions, each with one request
  widelane load 127.0.0.1:6379 --insecure --send 'PING\r\n' --expect +PONG
      Redis; likewise `--starttls smtp --send 'EHLO a\r\n' --expect 250` for mail

Latencies and errors are those of the connections whose intended start is in the measured time.
handshakes/s counts the handshakes done in that time. Exit status 1 if no handshake completed.";

const PATIENCE_WITHOUT_PROGRESS: Duration = Duration::from_secs(2);
/// Status by which shells report a process killed by SIGINT.
const STATUS_KILLED: i32 = 130;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(arguments: &str) -> Result<Args, clap::Error> {
        let words = std::iter::once("load").chain(arguments.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args)
    }

    fn planned(arguments: &str) -> Plan {
        plan(parse(arguments).expect("good arguments")).unwrap_or_else(|f| panic!("{f:?}"))
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        for wrong in [
            "127.0.0.1:1 --concurrency 1 --rate 1",
            "127.0.0.1:1 --insecure --ca x.pem",
            "127.0.0.1:1 --get / --hold",
            "127.0.0.1:1 --certificate x.pem",
            "127.0.0.1:1 --poisson",
            "127.0.0.1:1 --storm 5@1+1",
            "127.0.0.1:1 --rate 1 --storm 5",
            "127.0.0.1:1 --rate 1 --storm 5@1",
            "127.0.0.1:1 --rate 1 --ramp",
            "127.0.0.1:1 --tls 1.1",
            "127.0.0.1:1 --group x448",
            "127.0.0.1:1 --close gently",
            "127.0.0.1:1 --starttls gopher",
            "127.0.0.1:1 --send x",
            "127.0.0.1:1 --expect x --get /",
            "127.0.0.1:1 --expect x --hold",
            r"127.0.0.1:1 --expect \x+1",
            r"127.0.0.1:1 --expect \q",
            r"127.0.0.1:1 --expect \",
            "127.0.0.1:1 --duration -1",
            "127.0.0.1:1 --cpus one",
            "",
        ] {
            let error = parse(wrong).expect_err(wrong);
            assert_eq!(error.exit_code(), 2, "{wrong:?}");
        }
    }

    #[test]
    fn a_contradictory_plan_is_wrong_usage() {
        for wrong in [
            "nowhere",
            "127.0.0.1:1 --threads 0",
            "127.0.0.1:1 --concurrency 2 --threads 3",
            "127.0.0.1:1 --tls 1.2 --group x25519mlkem768",
            "127.0.0.1:1 --rate 0",
            "127.0.0.1:1 --close abrupt --resume",
        ] {
            let failure = run(parse(wrong).expect("clap lets it pass")).expect_err(wrong);
            assert!(matches!(failure, Failure::Usage(_)), "{wrong:?}: {failure:?}");
        }
    }

    #[test]
    fn arguments_become_a_plan() {
        let plan = planned(
            "127.0.0.1:8443 --rate 50 --poisson --duration 2.5 --warmup 0 --tls 1.2 \
             --group p256,x25519 --sigalg ed25519 --cipher ECDHE-RSA-AES128-GCM-SHA256 --resume \
             --get /x --server-name a.test --alpn http/1.1 --cpus 0-1 --timeout 3 -k --close fin \
             --count 7 --no-preflight --retries 3 --storm 70@1+0.5 --ramp",
        );
        assert_eq!(
            plan.arrivals,
            Arrivals::Rate {
                per_second: 50.0,
                spacing: Spacing::Poisson,
                storm: Some(Storm {
                    per_second: 70.0,
                    from: Duration::from_secs(1),
                    length: Duration::from_millis(500),
                    ramp: true
                }),
            }
        );
        assert_eq!(plan.retries, 3);
        assert_eq!(plan.duration, Duration::from_millis(2500));
        assert_eq!((plan.warmup, plan.timeout), (Duration::ZERO, Duration::from_secs(3)));
        assert_eq!(plan.offer.version, Some(Version::Tls12));
        let groups: Vec<_> = plan.offer.groups.iter().map(Group::to_string).collect();
        assert_eq!(groups, ["p256", "x25519"]);
        assert_eq!((plan.threads, plan.cpus), (2, Cpus::from_iter([0, 1])));
        assert_eq!(plan.after, After::Get("/x".into()));
        assert_eq!(plan.server_name, "a.test");
        assert_eq!((plan.close, plan.limit, plan.preflight), (Close::Fin, Some(7), false));
        assert_eq!(plan.offer.trust, Trust::Unchecked);
        assert!(plan.offer.resume);
    }

    #[test]
    fn an_exchange_is_read_with_its_escapes() {
        let plan = planned(r"127.0.0.1:5432 --starttls postgres --send a\r\n\\n\x00\xfFé --expect \x52");
        assert_eq!(plan.starttls, Some(StartTls::Postgres));
        let send = [&b"a\r\n\\n\0\xff"[..], "é".as_bytes()].concat();
        let expect = b"R".to_vec();
        assert_eq!(plan.after, After::Exchange { send, expect });
        let plan = planned("127.0.0.1:143 --starttls imap --expect OK");
        let After::Exchange { send, .. } = plan.after else {
            panic!("{:?}", plan.after);
        };
        assert_eq!(send, b"");
    }

    #[test]
    fn the_default_checks_certificates_and_runs_a_closed_loop() {
        let plan = planned("127.0.0.1:8443");
        assert_eq!(plan.arrivals, Arrivals::Concurrency(16));
        assert_eq!(plan.offer.trust, Trust::System);
        assert!(plan.preflight && !plan.offer.resume);
        assert_eq!(plan.warmup, Duration::from_secs(1));
        let plan = planned("127.0.0.1:8443 --ca x.pem --hold");
        assert_eq!(plan.warmup, Duration::ZERO);
        assert_eq!(plan.offer.trust, Trust::File("x.pem".into()));
        assert_eq!(plan.after, After::Hold);
    }
}
