//! `widelane trace plaintext`: what TLS connections carry.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use widelane_files::{Output, create_named};
use widelane_text::{escaped, json_line};
use widelane_trace::text::thread_name;
use widelane_trace::{Call, Clock, Event, Pcapng, Role, Sender, Style, Want, redacted, shown};

use super::Common;
use super::session::Session;
use widelane_cli::failure::Failure;
use widelane_cli::output;

/// Show what TLS connections of programs carry, in plain text: secrets, too
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    /// Show at most so many bytes of a call; calls bring 4,096 at most
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    length: usize,

    /// Show bytes in hexadecimal
    #[arg(long)]
    hex: bool,

    /// Leave out bodies, queries, cookies, authorisations and the like: of HTTP/1 only the heads of
    /// messages are shown, of other protocols only sizes
    #[arg(long)]
    redact: bool,

    /// Write what is carried to a file that Wireshark opens, with made-up addresses
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let want = Want {
        roles: vec![Role::Read, Role::Write, Role::Free],
        calls: true,
        data: true,
        ..Want::default()
    };
    let mut session = Session::open(&args.common, want, false)?;
    // Not before it is known that there will be something to write: an older file would be lost.
    let mut file = match &args.pcap {
        Some(path) => Some((path, pcapng(path)?)),
        None => None,
    };
    let clock = Clock::now();
    output::complain("widelane: shows what users send and receive in secret; keep the output as safe as that\n");
    while let Some(events) = session.events(Duration::MAX)? {
        let mut text = String::new();
        for event in events {
            let Event::Call(call) = event else {
                continue;
            };
            let sender = match call.function.role {
                Role::Read => Sender::Peer,
                Role::Write => Sender::Process,
                _ => {
                    if let Some((_, file)) = &mut file {
                        file.close(call.pid, call.object);
                    }
                    continue;
                }
            };
            if call.data.is_empty() {
                continue;
            }
            let (data, left_out) = match args.redact {
                true => redacted(&call.data),
                false => (call.data.clone(), 0),
            };
            if let Some((path, file)) = &mut file {
                let time = clock.real(call.start + call.wall);
                let written = file.write(time, (call.pid, call.object), sender, &data, carried(&call));
                written.map_err(|error| cannot_write(path, &error))?;
            }
            let cut = data.len().min(args.length);
            let missing = missing(&call, left_out, data.len() - cut);
            if args.common.json {
                text.push_str(&line(&call, clock, sender, &data[..cut], missing));
            } else {
                text.push_str(&block(&call, clock, sender, &data[..cut], missing, args));
            }
        }
        output::print(&text)?;
    }
    Ok(())
}

/// A new file that other users cannot read, whatever was there before.
fn pcapng(path: &Path) -> Result<Pcapng<BufWriter<Output>>, Failure> {
    let file = create_named(path, 0o600).map_err(|error| cannot_write(path, &error))?;
    Pcapng::new(BufWriter::new(file)).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!(
        "cannot write {}: {error}; write to a place that is writable and has room (`--pcap FILE`)",
        path.display()
    ))
}

/// Number of bytes of a call that are not shown: those that it did not bring, those that were `left_out`, and
/// those that were cut off. What stands in place of a secret may be longer than the secret was.
fn missing(call: &Call, left_out: usize, cut_off: usize) -> u64 {
    carried(call) - call.data.len() as u64 + (left_out + cut_off) as u64
}

/// Number of bytes that a call carried, of which it brings at most 4,096.
fn carried(call: &Call) -> u64 {
    call.size.unwrap_or(0).max(call.data.len() as u64)
}

fn line(call: &Call, clock: Clock, sender: Sender, data: &[u8], missing: u64) -> String {
    let seconds = clock.seconds(call.start + call.wall);
    json_line(&json!({
        "time_s": seconds,
        "pid": call.pid,
        "tid": call.tid,
        "comm": thread_name(&call.comm),
        "library": call.function.library,
        "function": call.function.symbol,
        "connection": format!("{:#x}", call.object),
        "direction": match sender { Sender::Process => "sent", Sender::Peer => "received" },
        "bytes": carried(call),
        "not_shown": missing,
        "text": String::from_utf8_lossy(data),
    }))
}

fn block(call: &Call, clock: Clock, sender: Sender, data: &[u8], missing: u64, args: &Args) -> String {
    let style = if args.hex { Style::Hex } else { Style::Text };
    let seconds = clock.seconds(call.start + call.wall);
    let comm = escaped(&thread_name(&call.comm));
    let what = match sender {
        Sender::Process => "sends",
        Sender::Peer => "receives",
    };
    let mut block = format!(
        "{seconds:.6} {} {} {:#x} {what} {} bytes\n",
        call.pid,
        comm,
        call.object,
        carried(call)
    );
    block.push_str(&shown(data, style));
    if missing > 0 {
        block.push_str(&format!("[{missing} bytes are not shown]\n"));
    }
    block.push('\n');
    block
}

const EXAMPLES: &str = "\
Examples:
  widelane trace plaintext --pid 1234
  widelane trace plaintext --comm nginx --redact
  widelane trace plaintext --comm curl --pcap /tmp/curl.pcapng

What users send in secret becomes visible: passwords, cookies, keys. It takes root.";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_capture_is_a_new_file_whatever_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["capture", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "secret").unwrap();
        for link in [false, true] {
            match link {
                false => fs::write(&path, "old").unwrap(),
                true => symlink(&other, &path).unwrap(),
            }
            // Who has it open reads no capture.
            let old = fs::File::open(&path).unwrap();
            drop(pcapng(&path).unwrap());
            let found = fs::symlink_metadata(&path).unwrap();
            assert!(found.is_file() && found.len() > 3);
            assert_eq!(found.permissions().mode() & 0o777, 0o600);
            assert!(old.metadata().unwrap().len() <= 6);
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read(&other).unwrap(), b"secret");
    }
}
