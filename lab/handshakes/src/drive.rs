//! One turn of load on one server.

use crate::condition::Condition;
use crate::error::TrialError;
use crate::record::Record;
use crate::servers::Running;
use crate::stage::Stage;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

/// Load that `widelane load` puts on a server.
#[derive(Clone, Copy, Debug)]
pub enum Drive {
    /// Closed loop with this number in flight.
    Closed(usize),
    /// Open loop with this number of random starts a second.
    Open(f64),
}

impl Stage {
    /// Drives `target` for `seconds`, after a warm-up, and returns the report of `widelane load`, with the CPU time of
    /// the server.
    pub(crate) fn drive(
        &self,
        target: &mut Running,
        condition: Condition,
        drive: Drive,
        (warmup, seconds): (f64, f64),
    ) -> Result<Value, TrialError> {
        if seconds < SHORTEST {
            return Err(TrialError::TooShort { seconds });
        }
        target.server.alive()?;
        let mut command = self.load(target.address, condition, drive, (warmup, seconds));
        command.args(target.exchange);
        let (mut report, spent) = twice(|| {
            let before = target.server.cpu_time();
            let report = self.figures(&mut command)?;
            Ok((report, target.server.cpu_time().zip(before)))
        })?;
        let rate = report["handshakes_per_s"].as_f64().unwrap_or(0.0);
        let each = spent.and_then(|(after, before)| {
            let spent = after.checked_sub(before)?;
            cpu_of_each(spent, rate, warmup + seconds, drive)
        });
        report[SERVER_CPU] = json!(each);
        Ok(report)
    }

    /// The command that loads a server for `seconds`, after a warm-up, and prints its report.
    pub fn load(
        &self,
        address: SocketAddr,
        condition: Condition,
        drive: Drive,
        (warmup, seconds): (f64, f64),
    ) -> Command {
        let mut command = Command::new(&self.options.widelane);
        command.arg("load").arg(address.to_string());
        match drive {
            Drive::Closed(in_flight) => command.args(["--concurrency", &in_flight.to_string()]),
            Drive::Open(rate) => command.args(["--rate", &format!("{rate:.0}"), "--poisson"]),
        };
        command.args(["--duration", &seconds.to_string()]);
        command.args(["--warmup", &warmup.to_string()]);
        command.args(["--cpus", &self.options.load_cpu.to_string()]);
        let [rsa, ecdsa] = self.clients();
        let (certificate, key) = if condition.is_rsa() { &rsa } else { &ecdsa };
        command.args(["--insecure", "--json"]);
        command.args(condition.load((certificate, key)));
        // The server keeps the costs of passes on this machine: for the next turns, not beyond the comparison.
        command.env("STATE_DIRECTORY", self.folder());
        command
    }

    /// Drives `target` for a record: `line` with the condition and the report is written, and the report is returned.
    pub(crate) fn measure(
        &self,
        record: &mut Record,
        target: &mut Running,
        condition: Condition,
        drive: Drive,
        times: (f64, f64),
        mut line: Value,
    ) -> Result<Value, TrialError> {
        let report = self.drive(target, condition, drive, times)?;
        line["condition"] = json!(condition.name());
        line["report"] = report.clone();
        record.line(&line)?;
        Ok(report)
    }
}

/// Runs a program once more if it failed: where others use the machine as well, a turn of some
/// tenths of a second can pass without one handshake.
fn twice<T>(mut run: impl FnMut() -> Result<T, TrialError>) -> Result<T, TrialError> {
    match run() {
        Err(TrialError::Run { .. }) => run(),
        once => once,
    }
}

/// A server's CPU time for a handshake, in microseconds, if it has `spent` this on a turn of
/// this rate and length.
///
/// The generator's rate is without the warm-up, in which it was much the same. What was in flight
/// when the turn ended is completed after it, and the server spends time on that as well.
fn cpu_of_each(spent: Duration, rate: f64, seconds: f64, drive: Drive) -> Option<f64> {
    let left = match drive {
        Drive::Closed(in_flight) => in_flight as f64,
        Drive::Open(_) => 0.0,
    };
    (rate > 0.0).then(|| spent.as_secs_f64() * 1e6 / (rate * seconds + left))
}

/// A generator that shares its machine with other programs can wait that long for its CPU.
pub(crate) const SHORTEST: f64 = 0.05;
/// A server's CPU time for a handshake, in microseconds: what one core could do is its reciprocal,
/// also where the generator was the limit.
pub(crate) const SERVER_CPU: &str = "server_cpu_us_per_handshake";

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> TrialError {
        TrialError::Run {
            command: "load".into(),
            reason: "it failed".into(),
        }
    }

    #[test]
    fn what_is_in_flight_at_the_end_is_paid_for_as_well() {
        let spent = Duration::from_millis(500);
        let each = |rate, drive| cpu_of_each(spent, rate, 0.5, drive);
        assert_eq!(each(1872.0, Drive::Closed(64)), Some(500.0));
        assert_eq!(each(2000.0, Drive::Open(2000.0)), Some(500.0));
        assert_eq!(each(0.0, Drive::Closed(64)), None);
    }

    #[test]
    fn a_program_that_failed_has_a_second_chance_and_no_third() {
        let mut runs = 0;
        let mut run = |failures| {
            runs = 0;
            twice(|| {
                runs += 1;
                if runs <= failures { Err(failed()) } else { Ok(runs) }
            })
        };
        assert_eq!(run(0).expect("a run"), 1);
        assert_eq!(run(1).expect("a second run"), 2);
        assert!(matches!(run(2), Err(TrialError::Run { .. })));
        assert_eq!(runs, 2);
    }

    #[test]
    fn who_interrupts_is_obeyed_at_once() {
        let mut runs = 0;
        let interrupted: Result<(), _> = twice(|| {
            runs += 1;
            Err(TrialError::Interrupted)
        });
        assert!(matches!(interrupted, Err(TrialError::Interrupted)));
        assert_eq!(runs, 1);
    }
}
