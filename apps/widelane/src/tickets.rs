//! `widelane tickets`: the keys of session tickets that several machines share.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_terminator::{TicketDirectory, TicketFilesError, make_etcd_key};

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
    /// List the keys: file, name (no secret: tickets carry it in plain), age, what it does
    List {
        /// A directory that `widelane tickets new` has made
        directory: PathBuf,
        /// Print a JSON object a line for each key
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::New { directory } => {
            TicketDirectory::create(directory).map_err(failed)?;
            list(directory, false)
        }
        What::Rotate { directory, min_age } => {
            let least_age = Duration::from_secs(*min_age);
            let keys = TicketDirectory::open(directory);
            keys.rotate(least_age).map_err(failed)?;
            list(directory, false)
        }
        What::EtcdKey { file } => make_etcd_key(file).map_err(failed),
        What::List { directory, json } => list(directory, *json),
    }
}

fn list(directory: &Path, json: bool) -> Result<(), Failure> {
    let keys = TicketDirectory::open(directory).list().map_err(failed)?;
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

fn failed(error: TicketFilesError) -> Failure {
    Failure::from_error(&error)
}

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
      once, for `key_file` in [listener.tickets.etcd] of all machines

A key waits until the next rotation, then encrypts until the one after it, and decrypts until the
one after that. Exit status: 0 it worked, 1 it failed, 2 it was called wrongly.";
