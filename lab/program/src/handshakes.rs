//! `widelane-lab handshakes demo`, `bench` and `ways-in`: what `make demo`, `make bench` and
//! `make ways-in` run; and closer looks at a part of it, each with a record.

use crate::PROGRAM;
use clap::Subcommand;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use widelane_cli::failure::Failure;
use widelane_cli::output::{self, hiding};
use widelane_handshakes::{
    BenchPlan, BesidePlan, Condition, CurvePlan, DemoPlan, Options, PairPlan, Record, RelayPlan, ScalingPlan, Side,
    Software, SpeedPlan, Stage, Traffic, TrialError, WaysInPlan, bench, beside, curve, demo, pair, relay, scaling,
    speed, timing, ways_in,
};
use widelane_samples::{faults, renew};

/// TLS handshakes and relayed bytes of `widelane serve` beside its peers, on one core of this machine
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,

    /// The `widelane` program [default: the one beside this]
    #[arg(long, global = true, value_name = "FILE")]
    widelane: Option<PathBuf>,

    /// The `widelane-lab` program that measures single operations [default: this]
    #[arg(long, global = true, value_name = "FILE")]
    lab: Option<PathBuf>,

    /// The nginx to compare with [default: the installed one]
    #[arg(long, global = true, value_name = "FILE")]
    nginx: Option<PathBuf>,

    /// The HAProxy to compare with [default: the installed one]
    #[arg(long, global = true, value_name = "FILE")]
    haproxy: Option<PathBuf>,

    /// The hitch to compare with [default: the installed one]
    #[arg(long, global = true, value_name = "FILE")]
    hitch: Option<PathBuf>,

    /// Another `widelane` program, like that of an earlier commit: the server widelane-old
    #[arg(long, global = true, value_name = "FILE")]
    old: Option<PathBuf>,

    /// CPU of the servers [default: the first]
    #[arg(long, global = true, value_name = "N")]
    server_cpu: Option<usize>,

    /// Only these kinds of handshake: rsa-x25519, ecdsa-x25519, ecdsa-x25519mlkem768,
    /// rsa-x25519mlkem768; for `bench` and `pair` also rsa-usual, ecdsa-usual, resumed-tls13,
    /// resumed-tls12, rsa-client-certificate, ecdsa-client-certificate [default: all, for `pair` the
    /// first four]
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',')]
    condition: Vec<Condition>,

    /// Write a record although the working tree has changes that no commit has, or the program is of
    /// another commit; the record says so
    #[arg(long, global = true)]
    modified: bool,

    /// Folder of records
    #[arg(long, global = true, default_value = "lab/records", value_name = "FOLDER")]
    records: PathBuf,

    /// CPU of the load [default: the first of another core]
    #[arg(long, global = true, value_name = "N")]
    load_cpu: Option<usize>,
}

#[derive(Subcommand)]
enum Command {
    /// About twenty seconds, one table
    Demo {
        /// Turns of each server
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Seconds of load in all
        #[arg(long, default_value_t = 15.0)]
        seconds: f64,
    },
    /// Twenty-five minutes: handshakes in closed and open loop, relayed bytes, latency against load,
    /// memory, single operations; writes a record
    Bench {
        /// Turns of each server
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Seconds of each turn; those of the open loop take twice as long
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// Idle connections whose memory is measured, 0 for none
        #[arg(long, default_value_t = 10_000)]
        idle: usize,
        /// Leave `widelane-lab speed` out
        #[arg(long)]
        no_speed: bool,
        /// Leave out relayed bytes, latency against load, and the server side in memory
        #[arg(long)]
        only_handshakes: bool,
    },
    /// Two servers in many short turns, for small differences; writes a record
    ///
    /// Example: widelane-lab handshakes pair widelane-on widelane-inline --condition rsa-x25519
    Pair {
        /// Server: widelane-on, widelane-off, widelane-inline, widelane-old (see --old), nginx,
        /// nginx-stream, haproxy or hitch; nginx-trace-latency or nginx-trace-handshakes, which
        /// `widelane trace` looks at meanwhile (as root)
        one: Side,
        /// Server it is compared with
        other: Side,
        /// Pairs of turns under each condition; six at least for an interval
        #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Seconds of each turn
        #[arg(long, default_value_t = 0.5)]
        seconds: f64,
        /// Connections in flight
        #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
        in_flight: u16,
    },
    /// Bytes through each server: its CPU time for a gibibyte and for a small request; writes a record
    ///
    /// Example: widelane-lab handshakes relay bulk-download --sides widelane-on,widelane-old
    /// --old ../old/widelane
    Relay {
        /// bulk-download, bulk-upload, bulk-download-chacha20, bulk-upload-chacha20, small-requests
        /// [default: all]
        traffic: Vec<Traffic>,
        /// Servers [default: widelane-on, with --old widelane-old, nginx-stream, haproxy, hitch]
        #[arg(long, value_name = "LIST", value_delimiter = ',')]
        sides: Vec<Side>,
        /// Turns of each server
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Mebibytes of each bulk turn
        #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
        mib: u32,
        /// Seconds of each turn with small requests
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Latency against load, at shares of each server's knee; writes a record
    ///
    /// Two minutes and a half for a condition. Example: widelane-lab handshakes curve --condition ecdsa-x25519
    Curve {
        /// Servers [default: widelane-on, widelane-off where it differs, nginx]
        #[arg(long, value_name = "LIST", value_delimiter = ',')]
        sides: Vec<Side>,
        /// Shares of the knee, like 0.5,0.7 [default: 0.1,0.3,0.5,0.6,0.7,0.8,0.9,0.95]
        #[arg(long, value_name = "LIST", value_delimiter = ',')]
        shares: Vec<f64>,
        /// Turns of each server at each share
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Seconds of each turn
        #[arg(long, default_value_t = 2.5)]
        seconds: f64,
    },
    /// The server side of handshakes in memory: one thread, and one on each CPU; writes a record
    ///
    /// Half a minute. Example: widelane-lab handshakes scaling --cpus 0,2
    Scaling {
        /// CPUs, of which each gets a thread [default: all]
        #[arg(long, value_name = "LIST", value_delimiter = ',')]
        cpus: Vec<usize>,
        /// Runs of each arrangement
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Batches of 64 handshakes in each run
        #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..))]
        batches: u16,
    },
    /// Compare the figures of documents with the records that they name
    ///
    /// Run it at the root of the sources. Example: widelane-lab handshakes figures --write README.md
    Figures {
        /// Write what the records say before comparing
        #[arg(long)]
        write: bool,
        /// Documents like README.md
        #[arg(required = true)]
        documents: Vec<PathBuf>,
    },
    /// Unmodified servers with OpenSSL alone and with Widelane in it; writes a record
    ///
    /// Five minutes. Example: widelane-lab handshakes ways-in --servers nginx,haproxy --rounds 20
    WaysIn {
        /// nginx, haproxy, apache2, lighttpd [default: these four]; valkey, valkey-io-threads, redis,
        /// redis-io-threads, pgbouncer, mosquitto, dovecot, dovecot-starttls, stunnel4, postfix. Those that
        /// are not installed are left out
        #[arg(long, value_name = "LIST", value_delimiter = ',')]
        servers: Vec<Software>,
        /// Numbers of connections in flight
        #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 16, 64],
            value_parser = clap::value_parser!(u16).range(1..=64))]
        in_flight: Vec<u16>,
        /// Turns of each side in each comparison; six at least for an interval
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Seconds of each turn
        #[arg(long, default_value_t = 0.8)]
        seconds: f64,
        /// Let Widelane do as on a CPU without lanes
        #[arg(long)]
        disable_lanes: bool,
        /// Print JSON, not a table
        #[arg(long)]
        json: bool,
    },
    /// Established clients of Valkey or Redis while others connect, with OpenSSL alone and with Widelane
    /// in it; writes a record
    ///
    /// A minute and a half for a server. Example: widelane-lab handshakes beside --servers redis --seconds 2
    Beside {
        /// valkey, valkey-io-threads, redis, redis-io-threads
        #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "valkey,redis")]
        servers: Vec<Software>,
        /// Established clients, which send SET and GET at half of the rate that the server alone answers
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
        clients: u16,
        /// Others that connect at random, say PING and go: a share of the connections a second that the server
        /// alone accepts
        #[arg(long, value_name = "SHARE", default_value_t = 0.6)]
        storm: f64,
        /// Turns of each side, with the others and without; six at least for an interval
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Seconds of each turn
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Operations on the servers' CPU, by `widelane-lab speed`; writes a record
    ///
    /// Example: widelane-lab handshakes speed x25519 mlkem768 --seconds 0.2
    Speed {
        /// Operations or groups of them, as `widelane-lab speed --list` names them [default: all]
        operations: Vec<String>,
        /// Seconds of each condition
        #[arg(long, default_value_t = 0.4)]
        seconds: f64,
    },
    /// Test whether times depend on secrets, by `widelane-lab timing`; writes a record
    Timing {
        /// Seconds for each operation
        #[arg(long, default_value_t = 20.0)]
        seconds: f64,
    },
}

/// Runs it, and gives the exit status: 130 if it was interrupted.
pub(crate) fn run(args: Args) -> ExitCode {
    let error = match compared(args) {
        Ok(text) => {
            let printed = output::print(&text).map(|()| ExitCode::SUCCESS);
            return printed.unwrap_or_else(|failure| failure.report(PROGRAM));
        }
        Err(error) => error,
    };
    let status = Failure::from_error(&error).report(PROGRAM);
    match error {
        TrialError::Interrupted => ExitCode::from(STATUS_INTERRUPTED),
        TrialError::Modified { .. } | TrialError::OtherProgram { .. } => {
            output::complain(&format!("{PROGRAM}: --modified writes a record that is marked\n"));
            status
        }
        _ => status,
    }
}

fn compared(cli: Args) -> Result<String, TrialError> {
    if let Command::Figures { write, documents } = &cli.command {
        return figures(*write, documents);
    }
    let mut options = Options::find()?;
    options.widelane = cli.widelane.unwrap_or(options.widelane);
    options.lab = cli.lab.unwrap_or(options.lab);
    options.nginx = cli.nginx.or(options.nginx);
    options.haproxy = cli.haproxy.or(options.haproxy);
    options.hitch = cli.hitch.or(options.hitch);
    options.old = cli.old;
    options.server_cpu = cli.server_cpu.unwrap_or(options.server_cpu);
    options.load_cpu = cli.load_cpu.unwrap_or(options.load_cpu);
    options.allow_modified = cli.modified;
    match &cli.command {
        _ if !cli.condition.is_empty() => options.conditions.clone_from(&cli.condition),
        Command::Bench { .. } => options.conditions = Condition::ALL.into(),
        Command::Curve { .. } => options.conditions.truncate(1),
        _ => {}
    }
    let stage = Stage::set(options)?;
    let progress = |text: &str| eprintln!("  {text}");
    let recorded = |what: &str, measure: &dyn Fn(&mut Record) -> Result<String, TrialError>| {
        let mut record = Record::begin(&stage, &cli.records, what, &command())?;
        let text = measure(&mut record)?;
        let path = record.end(&text)?;
        Ok(format!("\n{text}\nRecord: {}\n", path.display()))
    };
    match cli.command {
        // This command needs no servers, and has returned above.
        Command::Figures { .. } => Ok(String::new()),
        Command::Demo { rounds, seconds } => {
            let rounds = rounds.into();
            Ok(format!("\n{}", demo(&stage, DemoPlan { rounds, seconds }, progress)?))
        }
        Command::Bench {
            rounds,
            seconds,
            idle,
            no_speed,
            only_handshakes,
        } => {
            let plan = BenchPlan {
                rounds: rounds.into(),
                seconds,
                idle_connections: idle,
                speed: !no_speed,
                others: !only_handshakes,
            };
            recorded("", &|record| bench(&stage, &plan, record, progress))
        }
        Command::Pair {
            one,
            other,
            rounds,
            seconds,
            in_flight,
        } => {
            let plan = PairPlan {
                sides: [one, other],
                rounds: rounds.into(),
                seconds,
                in_flight: in_flight.into(),
            };
            recorded(&plan.name(), &|record| pair(&stage, &plan, record, progress))
        }
        Command::Curve {
            sides,
            shares,
            rounds,
            seconds,
        } => {
            let usual = CurvePlan::default();
            let plan = CurvePlan {
                sides: or(sides, usual.sides),
                shares: or(shares, usual.shares),
                rounds: rounds.into(),
                seconds,
            };
            recorded("curve", &|record| curve(&stage, &plan, record, progress))
        }
        Command::Scaling { cpus, rounds, batches } => {
            let plan = ScalingPlan {
                cpus,
                rounds: rounds.into(),
                batches: batches.into(),
            };
            recorded("scaling", &|record| scaling(&stage, &plan, record, progress))
        }
        Command::Relay {
            traffic,
            sides,
            rounds,
            mib,
            seconds,
        } => {
            let usual = RelayPlan::default();
            let plan = RelayPlan {
                traffic: or(traffic, usual.traffic),
                sides: or(sides, usual.sides),
                rounds: rounds.into(),
                bytes: u64::from(mib) << 20,
                duration: Duration::from_secs_f64(seconds),
            };
            recorded("relay", &|record| relay(&stage, &plan, record, progress))
        }
        Command::WaysIn {
            servers,
            in_flight,
            rounds,
            seconds,
            disable_lanes,
            json,
        } => {
            let plan = WaysInPlan {
                servers: or(servers, Software::WEB.into()),
                conditions: cli.condition,
                in_flight: in_flight.into_iter().map(usize::from).collect(),
                rounds: rounds.into(),
                seconds,
                disable_lanes,
                records: cli.records,
                command: command(),
            };
            let done = ways_in(&stage, &plan, progress)?;
            Ok(match json {
                true => format!("{}\n", done.figures),
                false => format!("\n{}\nRecord: {}\n", done.table, done.record.display()),
            })
        }
        Command::Beside {
            servers,
            clients,
            storm,
            rounds,
            seconds,
        } => {
            let plan = BesidePlan {
                servers,
                clients: clients.into(),
                storm,
                rounds: rounds.into(),
                seconds,
            };
            recorded("beside", &|record| beside(&stage, &plan, record, progress))
        }
        Command::Speed { operations, seconds } => {
            let plan = SpeedPlan { operations, seconds };
            recorded("speed", &|record| speed(&stage, &plan, record, progress))
        }
        Command::Timing { seconds } => recorded("timing", &|record| timing(&stage, seconds, record, progress)),
    }
}

/// What was asked for, or else what is usual.
fn or<T>(asked: Vec<T>, usual: Vec<T>) -> Vec<T> {
    if asked.is_empty() { usual } else { asked }
}

/// Compares the figures of documents with their records, or renews them first.
fn figures(write: bool, documents: &[PathBuf]) -> Result<String, TrialError> {
    let root = Path::new("");
    let mut text = String::new();
    let documents_to_write = if write { documents } else { &[] };
    let wrong = |document: &PathBuf, reason| TrialError::Document {
        document: document.clone(),
        reason,
    };
    for document in documents_to_write {
        if renew(root, document).map_err(|reason| wrong(document, reason))? {
            text.push_str(&format!("{}: renewed\n", document.display()));
        }
    }
    for document in documents {
        let faults = faults(root, document).map_err(|reason| wrong(document, reason))?;
        if !faults.is_empty() {
            let reason = format!("figures without a record\n{}", faults.join("\n"));
            return Err(wrong(document, reason));
        }
    }
    Ok(text)
}

/// Command line of this call, with paths relative to the current folder, which the record does not name.
fn command() -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let here = format!("{}/", here.display());
    let words = std::env::args().map(|word| word.replace(&here, ""));
    let all: Vec<_> = hiding().chain(words).collect();
    all.join(" ")
}

/// Status that shells report for a program that Ctrl-C ended.
const STATUS_INTERRUPTED: u8 = 130;
