//! `widelane-lab handshakes demo`, `bench` and `ways-in`: what `make demo`, `make bench` and
//! `make ways-in` run; and closer looks at a part of it, each with a record.

use crate::PROGRAM;
use clap::Subcommand;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use widelane_cli::failure::Failure;
use widelane_cli::output::{self, hiding};
use widelane_handshakes::{
    BenchPlan, BesidePlan, Condition, CurvePlan, DemoPlan, Options, PairPlan, Record, RelayPlan, ScalingPlan,
    SpeedPlan, Stage, TrialError, WaysInPlan, bench, beside, curve, demo, pair, relay, scaling, speed, timing, ways_in,
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
    Demo(DemoPlan),
    Bench(BenchPlan),
    Pair(PairPlan),
    Relay(RelayPlan),
    Curve(CurvePlan),
    Scaling(ScalingPlan),
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
    WaysIn(WaysInPlan),
    Beside(BesidePlan),
    Speed(SpeedPlan),
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
        Command::Bench(_) => options.conditions = Condition::ALL.into(),
        Command::Curve(_) => options.conditions.truncate(1),
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
        Command::Demo(plan) => Ok(format!("\n{}", demo(&stage, plan, progress)?)),
        Command::Bench(plan) => recorded("", &|record| bench(&stage, &plan, record, progress)),
        Command::Pair(plan) => recorded(&plan.name(), &|record| pair(&stage, &plan, record, progress)),
        Command::Curve(plan) => recorded("curve", &|record| curve(&stage, &plan, record, progress)),
        Command::Scaling(plan) => recorded("scaling", &|record| scaling(&stage, &plan, record, progress)),
        Command::Relay(plan) => recorded("relay", &|record| relay(&stage, &plan, record, progress)),
        Command::WaysIn(plan) => {
            let plan = WaysInPlan {
                conditions: cli.condition,
                records: cli.records,
                command: command(),
                ..plan
            };
            let done = ways_in(&stage, &plan, progress)?;
            Ok(match plan.json {
                true => format!("{}\n", done.figures),
                false => format!("\n{}\nRecord: {}\n", done.table, done.record.display()),
            })
        }
        Command::Beside(plan) => recorded("beside", &|record| beside(&stage, &plan, record, progress)),
        Command::Speed(plan) => recorded("speed", &|record| speed(&stage, &plan, record, progress)),
        Command::Timing { seconds } => recorded("timing", &|record| timing(&stage, seconds, record, progress)),
    }
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
