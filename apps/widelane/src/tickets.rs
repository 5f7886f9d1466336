//! `widelane tickets`: the keys of session tickets that several machines share.

use crate::log;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_terminator::TicketDirectory;
use widelane_ticket_etcd::{Agent, Options, make_key_file};

/// Make and rotate the keys with which clients resume sessions on any machine
///
/// A directory has `current.key`, which encrypts tickets, `next.key`, which waits until all machines
/// have it, and `previous.key`, which still decrypts. Copy the directory to all machines after each
/// change; `widelane serve --ticket-keys DIR` takes over new keys by itself.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make a directory with new keys
    New {
        /// The directory; the one above must exist
        directory: PathBuf,
    },
    /// Encrypt with the next key, keep the current one for decryption, and make a new next key
    Rotate {
        /// A directory that `widelane tickets new` has made
        directory: PathBuf,
        /// Refuse if the next key is younger: other machines may not have it yet
        #[arg(long, value_name = "SECONDS", default_value_t = LEAST_AGE)]
        min_age: u64,
    },
    /// Make the file under whose key ticket keys in etcd are encrypted; copy it to all machines
    EtcdKey {
        /// A file that does not exist yet
        file: PathBuf,
    },
    FollowEtcd(Box<FollowEtcd>),
    /// List the keys: file, name (no secret: tickets carry it in plain), age, what it does
    List {
        /// A directory that `widelane tickets` has made
        directory: PathBuf,
        /// Print a JSON object a line for each key
        #[arg(long)]
        json: bool,
    },
}

/// Keep a directory of ticket keys as the machines share them through etcd
///
/// One machine makes the keys, all take them, and nothing has to be copied or rotated. Beside `widelane serve
/// --ticket-keys DIR`, as the same user, on each machine. Until SIGTERM or SIGINT. Asks etcd's JSON gateway every few
/// seconds; while etcd is away, the keys stay for two rotations, and then each machine makes its own.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES_OF_ETCD)]
struct FollowEtcd {
    /// The directory: empty, or not there yet; in memory if possible (/run)
    directory: PathBuf,
    /// A member of etcd (repeatable, or a list with commas)
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    endpoint: Vec<String>,
    /// What the names of the keys in etcd begin with; machines with the same one share keys
    #[arg(long, value_name = "NAME", default_value = "/widelane/tickets")]
    prefix: String,
    /// How long one key encrypts, 10 to 21600; the same on all machines
    #[arg(long, value_name = "SECONDS", default_value_t = LONGEST_ROTATION)]
    rotation: u64,
    /// The file from `widelane tickets etcd-key`, the same on all machines
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// A user of etcd; needs --password-file
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The file with the user's password; without TLS only to this machine
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The authorities that sign etcd's certificates, PEM; needed with https://
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// This client's own certificate, PEM, if etcd wants one; needs --key
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Write metrics into this file after each look, for the textfile collector of Prometheus' node exporter
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Look once, write the directory, and end: status 1 if etcd's keys are not in it
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::New { directory } => {
            TicketDirectory::create(directory)?;
            list(directory, false)
        }
        What::Rotate { directory, min_age } => {
            let least_age = Duration::from_secs(*min_age);
            let keys = TicketDirectory::open(directory);
            keys.rotate(least_age)?;
            list(directory, false)
        }
        What::EtcdKey { file } => Ok(make_key_file(file)?),
        What::FollowEtcd(args) => args.run(),
        What::List { directory, json } => list(directory, *json),
    }
}

impl FollowEtcd {
    fn run(&self) -> Result<(), Failure> {
        let options = Options {
            endpoints: self.endpoint.clone(),
            prefix: self.prefix.clone(),
            rotation: Duration::from_secs(self.rotation),
            key_file: self.key_file.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            ca: self.ca.clone(),
            cert: self.cert.clone(),
            key: self.key.clone(),
            metrics: self.metrics.clone(),
        };
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let agent = Agent::new(options, &self.directory)?;
        if self.once {
            agent.once().map_err(Failure::Failed)?;
            return list(&self.directory, false);
        }
        log::start();
        let (sender, stop) = mpsc::channel();
        thread::Builder::new().name("signals".into()).spawn(move || {
            signals.forever().next();
            drop(sender);
        })?;
        agent.follow(&stop);
        Ok(())
    }
}

fn list(directory: &Path, json: bool) -> Result<(), Failure> {
    let keys = TicketDirectory::open(directory).list()?;
    if keys.is_empty() {
        let directory = directory.display();
        return Err(Failure::Failed(format!(
            "no ticket keys in {directory}; make some: widelane tickets new {directory}"
        )));
    }
    let mut text = String::new();
    for (index, key) in keys.iter().enumerate() {
        let does = if index == 0 { "encrypts" } else { "decrypts" };
        let age = key.age.map(|age| age.as_secs());
        if json {
            let object = serde_json::json!({
                "file": key.file, "name": key.name, "age_seconds": age, "does": does,
            });
            let _ = writeln!(text, "{object}");
        } else {
            let age = age.map_or("n/a (from the future)".into(), |age| format!("{age} s old"));
            let _ = writeln!(text, "{:<12}  {}  {does}  {age}", key.file, key.name);
        }
    }
    output::print(&text)
}

/// Six hours.
const LONGEST_ROTATION: u64 = 21_600;

/// Five minutes: enough for a copy that is started right after a rotation.
const LEAST_AGE: u64 = 300;

const EXAMPLES: &str = "\
Examples:
  widelane tickets new /etc/widelane/tickets
  widelane serve --ticket-keys /etc/widelane/tickets --listen 0.0.0.0:443 \\
                 --cert site.pem --key site.key --backend 127.0.0.1:8080
  widelane tickets rotate /etc/widelane/tickets
      every 12 hours, on one machine; then copy the directory to the others
      (rsync -a --checksum --delay-updates)
  widelane tickets list /etc/widelane/tickets
  widelane tickets etcd-key /etc/widelane/etcd.key
      once, for --key-file of all machines
  widelane tickets follow-etcd /run/widelane-tickets/keys --key-file /etc/widelane/etcd.key \\
                   --endpoint https://etcd1.example.org:2379 --ca /etc/widelane/etcd-ca.pem

A key waits until the next rotation, then encrypts until the one after it, and decrypts until the
one after that. Exit status: 0 it worked, 1 it failed, 2 it was called wrongly.";

const EXAMPLES_OF_ETCD: &str = "\
Examples:
  widelane tickets etcd-key /etc/widelane/etcd.key
      once; copy the file to all machines
  widelane tickets follow-etcd /run/widelane-tickets/keys --key-file /etc/widelane/etcd.key \\
                   --endpoint https://etcd1.example.org:2379,https://etcd2.example.org:2379 \\
                   --ca /etc/widelane/etcd-ca.pem --user widelane --password-file /etc/widelane/etcd.password
  widelane serve --ticket-keys /run/widelane-tickets/keys --listen 0.0.0.0:443 \\
                 --cert site.pem --key site.key --backend 127.0.0.1:8080
  widelane tickets follow-etcd keys --key-file etcd.key --endpoint http://127.0.0.1:2379 --once

Give the options of a service in a file of its unit: widelane-tickets.service reads
/etc/widelane/follow-etcd.conf. Exit status: 0 it worked, 1 it failed, 2 it was called wrongly.";
