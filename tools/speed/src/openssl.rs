//! The installed `openssl` program as a peer.

use std::io::{BufRead, BufReader, ErrorKind};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An installed `openssl`.
#[derive(Debug)]
pub(crate) struct OpenSsl {
    /// Name and version of the program, like `OpenSSL 3.0.22 25 Aug 2026`.
    pub(crate) version: String,
}

/// An operation of `openssl speed`.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Arguments of `openssl speed`, like `rsa2048`.
    pub(crate) arguments: Vec<&'static str>,
    /// The beginning of the line with the count in its machine-readable output, like `+R1:` for
    /// signatures with RSA.
    pub(crate) line: &'static str,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Operations a second of CPU time, or of wall-clock time if the CPU time is not known.
    pub(crate) rate: f64,
    /// CPU time divided by wall-clock time.
    pub(crate) cpu_share: Option<f64>,
}

impl OpenSsl {
    /// Finds the program in the search path.
    pub(crate) fn find() -> Result<Self, String> {
        let output = Command::new(PROGRAM)
            .arg("version")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => format!("the program {PROGRAM} is not installed"),
                _ => format!("the program {PROGRAM} cannot be run: {error}"),
            })?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.lines().next() {
            Some(line) if output.status.success() => Ok(Self {
                // Without "(Library: ...)", which repeats it.
                version: line.split(" (").next().unwrap_or(line).to_owned(),
            }),
            _ => Err(format!("`{PROGRAM} version` failed with {}", output.status)),
        }
    }

    /// Measures for one second, on the CPU that the calling thread is pinned to.
    ///
    /// Ends the program when it has printed the count, because it may go on to measure something
    /// else.
    pub(crate) fn measure(&self, peer: &Peer) -> Result<Measured, String> {
        let speed = ["speed", "-elapsed", "-seconds", "1", "-mr"];
        let arguments = [&speed, &peer.arguments[..]].concat();
        let mut child = Command::new(PROGRAM)
            .args(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the program {PROGRAM} cannot be run: {error}"))?;
        let mut start = None;
        let mut measured = None;
        let mut last = String::new();
        let output = child.stderr.take().map(BufReader::new);
        for line in output.into_iter().flat_map(BufRead::lines) {
            let Ok(line) = line else { break };
            if line.starts_with(ANNOUNCEMENT) {
                start = cpu_time(child.id()).map(|spent| (spent, Instant::now()));
            } else if line.starts_with(peer.line) {
                let cpu_share = start.and_then(|(before, since)| {
                    let spent = cpu_time(child.id())?.saturating_sub(before);
                    Some(spent.div_duration_f64(since.elapsed()).min(1.0))
                });
                measured = parse(&line).map(|rate| Measured {
                    rate: rate / cpu_share.filter(|share| *share > 0.0).unwrap_or(1.0),
                    cpu_share,
                });
                last = line;
                break;
            }
            last = line;
        }
        // The child may have ended already.
        let _ = child.kill();
        let _ = child.wait();
        measured.ok_or_else(|| {
            let command = arguments.join(" ");
            format!(
                "`{PROGRAM} {command}` gave no count; its last line was `{}`",
                last.escape_debug()
            )
        })
    }
}

/// The CPU time of a process so far, which the kernel counts in nanoseconds: finer than `openssl`
/// measures it.
fn cpu_time(process: u32) -> Option<Duration> {
    let text = widelane_files::kernel_text(format!("/proc/{process}/schedstat")).ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

/// The rate in a line like `+R1:1704:2048:1.00`: the count is the second field, the seconds are
/// the last.
fn parse(line: &str) -> Option<f64> {
    let (_, fields) = line.split_once(':')?;
    let mut fields = fields.split(':');
    let count: f64 = fields.next()?.parse().ok()?;
    let seconds: f64 = fields.next_back()?.parse().ok()?;
    (seconds > 0.0).then(|| count / seconds)
}

const PROGRAM: &str = "openssl";

/// The beginning of the line that `openssl` prints before it measures.
const ANNOUNCEMENT: &str = "+DT";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_that_runs_is_known() {
        assert!(cpu_time(std::process::id()) > Some(Duration::ZERO));
    }

    #[test]
    fn the_count_is_divided_by_the_seconds() {
        assert_eq!(parse("+R1:1704:2048:1.00"), Some(1704.0));
        assert_eq!(parse("+R1:1704:2048:2.00"), Some(852.0));
        for wrong in ["+R1", "+R1:x:2048:1.00", "+R1:1704:2048:0.00", "+R1:1704"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
