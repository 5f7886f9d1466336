//! `handshakes demo`, `handshakes bench` and `handshakes ways-in`: what `make demo`, `make bench`
//! and `make ways-in` run; and `handshakes pair`, `handshakes speed` and `handshakes timing`.
//!
//! Exit status: 0 it worked, 1 it failed, 2 it was called wrongly, 130 interrupted.

#![forbid(unsafe_code)]

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use widelane_handshakes::{
    BenchPlan, Condition, DemoPlan, Options, PairPlan, Side, Software, SpeedPlan, Stage,
    TimingPlan, TrialError, WaysInPlan, bench, demo, faults, pair, renew, speed, timing, ways_in,
};

/// Full TLS handshakes of `widelane serve` beside nginx, on one core of this machine
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// The `widelane` program [default: the one beside this]
    #[arg(long, global = true, value_name = "FILE")]
    widelane: Option<PathBuf>,

    /// The nginx to compare with [default: the installed one]
    #[arg(long, global = true, value_name = "FILE")]
    nginx: Option<PathBuf>,

    /// CPU of the servers [default: the first]
    #[arg(long, global = true, value_name = "N")]
    server_cpu: Option<usize>,

    /// Only these kinds of handshake: rsa-x25519, ecdsa-x25519, ecdsa-x25519mlkem768,
    /// rsa-x25519mlkem768 [default: all]
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',')]
    condition: Vec<Condition>,

    /// Write a record although the working tree has changes that no commit has, or the program is of
    /// another commit; the record says so
    #[arg(long, global = true)]
    modified: bool,

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
    /// Several minutes: closed and open loop, memory, single operations; writes a record
    Bench {
        /// Folder of the record
        #[arg(long, default_value = "lab/records", value_name = "FOLDER")]
        records: PathBuf,
        /// Turns of each server
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
        rounds: u16,
        /// Seconds of each turn; those of the open loop take twice as long
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
        /// Idle connections whose memory is measured, 0 for none
        #[arg(long, default_value_t = 10_000)]
        idle: usize,
        /// Leave `widelane speed` out
        #[arg(long)]
        no_speed: bool,
    },
    /// Two servers in many short turns, for small differences; writes a record
    ///
    /// Example: handshakes pair widelane-on widelane-inline --condition rsa-x25519
    Pair {
        /// Server: widelane-on, widelane-off, widelane-inline or nginx; nginx-trace-latency or
        /// nginx-trace-handshakes, which `widelane trace` looks at meanwhile (as root)
        one: Side,
        /// Server it is compared with
        other: Side,
        /// Folder of the record
        #[arg(long, default_value = "lab/records", value_name = "FOLDER")]
        records: PathBuf,
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
    /// Compare the figures of documents with the records that they name
    ///
    /// Run it at the root of the sources. Example: handshakes figures --write README.md
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
    /// Five minutes. Example: handshakes ways-in --servers nginx,haproxy --rounds 20
    WaysIn {
        /// nginx, haproxy, apache2, lighttpd [default: all that are installed]
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
        /// Let Widelane do as on a CPU without AVX-512 IFMA
        #[arg(long)]
        disable_lanes: bool,
        /// Folder of the record
        #[arg(long, default_value = "lab/records", value_name = "FOLDER")]
        records: PathBuf,
        /// Print JSON, not a table
        #[arg(long)]
        json: bool,
    },
    /// Operations on the servers' CPU, by `widelane speed`; writes a record
    ///
    /// Example: handshakes speed x25519 mlkem768 --seconds 0.2
    Speed {
        /// Operations or groups of them, as `widelane speed --list` names them [default: all]
        operations: Vec<String>,
        /// Folder of the record
        #[arg(long, default_value = "lab/records", value_name = "FOLDER")]
        records: PathBuf,
        /// Seconds of each condition
        #[arg(long, default_value_t = 0.4)]
        seconds: f64,
    },
    /// Whether times depend on secrets, by the `timing` beside `widelane`; writes a record
    Timing {
        /// Folder of the record
        #[arg(long, default_value = "lab/records", value_name = "FOLDER")]
        records: PathBuf,
        /// Seconds for each operation
        #[arg(long, default_value_t = 20.0)]
        seconds: f64,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("handshakes: {error}");
            if matches!(
                error,
                TrialError::Modified { .. } | TrialError::OtherProgram { .. }
            ) {
                eprintln!("handshakes: --modified writes a record that is marked");
            }
            ExitCode::from(match error {
                TrialError::Interrupted => STATUS_INTERRUPTED,
                _ => 1,
            })
        }
    }
}

fn run(cli: Cli) -> Result<String, TrialError> {
    if let Command::Figures { write, documents } = &cli.command {
        return figures(*write, documents);
    }
    let mut options = Options::find()?;
    options.widelane = cli.widelane.unwrap_or(options.widelane);
    options.nginx = cli.nginx.or(options.nginx);
    options.server_cpu = cli.server_cpu.unwrap_or(options.server_cpu);
    options.load_cpu = cli.load_cpu.unwrap_or(options.load_cpu);
    options.allow_modified = cli.modified;
    if !cli.condition.is_empty() {
        options.conditions.clone_from(&cli.condition);
    }
    let stage = Stage::set(options)?;
    let progress = |text: &str| eprintln!("  {text}");
    match cli.command {
        // It needs no servers, and has returned above.
        Command::Figures { .. } => Ok(String::new()),
        Command::Demo { rounds, seconds } => {
            let mut plan = DemoPlan::default();
            plan.rounds = rounds.into();
            plan.seconds = seconds;
            Ok(format!("\n{}", demo(&stage, plan, progress)?))
        }
        Command::Bench {
            records,
            rounds,
            seconds,
            idle,
            no_speed,
        } => {
            let mut plan = BenchPlan::new(records, command());
            plan.rounds = rounds.into();
            plan.seconds = seconds;
            plan.open_seconds = 2.0 * seconds;
            plan.idle_connections = idle;
            plan.speed = !no_speed;
            let (record, summary) = bench(&stage, &plan, progress)?;
            Ok(format!("\n{summary}\nRecord: {}\n", record.display()))
        }
        Command::Pair {
            one,
            other,
            records,
            rounds,
            seconds,
            in_flight,
        } => {
            let mut plan = PairPlan::new([one, other], records, command());
            plan.rounds = rounds.into();
            plan.seconds = seconds;
            plan.in_flight = in_flight.into();
            let (record, tables) = pair(&stage, &plan, progress)?;
            Ok(format!("\n{tables}Record: {}\n", record.display()))
        }
        Command::WaysIn {
            servers,
            in_flight,
            rounds,
            seconds,
            disable_lanes,
            records,
            json,
        } => {
            let mut plan = WaysInPlan::new(records, command());
            if !servers.is_empty() {
                plan.servers = servers;
            }
            plan.conditions = cli.condition;
            plan.in_flight = in_flight.into_iter().map(usize::from).collect();
            plan.rounds = rounds.into();
            plan.seconds = seconds;
            plan.disable_lanes = disable_lanes;
            let done = ways_in(&stage, &plan, progress)?;
            if json {
                return Ok(format!("{}\n", done.figures));
            }
            Ok(format!(
                "\n{}\nRecord: {}\n",
                done.table,
                done.record.display()
            ))
        }
        Command::Speed {
            operations,
            records,
            seconds,
        } => {
            let mut plan = SpeedPlan::new(records, command());
            plan.operations = operations;
            plan.seconds = seconds;
            let (record, table) = speed(&stage, &plan, progress)?;
            Ok(format!("\n{table}\nRecord: {}\n", record.display()))
        }
        Command::Timing { records, seconds } => {
            let mut plan = TimingPlan::new(&stage, records, command());
            plan.seconds = seconds;
            let (record, table) = timing(&stage, &plan, progress)?;
            Ok(format!("\n{table}\nRecord: {}\n", record.display()))
        }
    }
}

/// Compares the figures of documents with their records, or renews them first.
fn figures(write: bool, documents: &[PathBuf]) -> Result<String, TrialError> {
    let root = Path::new("");
    let mut text = String::new();
    let documents_to_write = if write { documents } else { &[] };
    for document in documents_to_write {
        if renew(root, document)? {
            text.push_str(&format!("{}: renewed\n", document.display()));
        }
    }
    for document in documents {
        let faults = faults(root, document)?;
        if !faults.is_empty() {
            return Err(TrialError::Document {
                document: document.clone(),
                reason: format!("figures without a record\n{}", faults.join("\n")),
            });
        }
    }
    Ok(text)
}

/// How this was called, with paths relative to the current folder, which the record does not name.
fn command() -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let here = format!("{}/", here.display());
    let words = std::env::args().map(|word| word.replace(&here, ""));
    words.collect::<Vec<_>>().join(" ")
}

/// As shells report a program that Ctrl-C ended.
const STATUS_INTERRUPTED: u8 = 130;
