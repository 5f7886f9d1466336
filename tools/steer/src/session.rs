//! Runs a session of steering from the first round to the last: until a signal, or until a program ends.

use crate::error::SteerError;
use crate::sensor::Sensor;
use crate::steering::{Event, Options, Scope, Steering, Summary};
use rustix::process::{Pid, set_child_subreaper};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::process::Command;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};
use widelane_child::{SIGNALS, catch, pass_on, reap};

/// Steers until SIGTERM, SIGINT or SIGHUP, or for as long as `most`, and restores all affinities.
///
/// # Errors
///
/// On a machine with one core, and those of [`Steering::begin`] and [`Steering::round`]; affinities
/// are restored then, too.
pub fn steer(
    options: Options,
    sensor: Box<dyn Sensor>,
    interval: Duration,
    most: Option<Duration>,
    tell: &mut dyn FnMut(Event),
) -> Result<Summary, SteerError> {
    let cores = widelane_affinity::cores().map_err(SteerError::system("the CPUs"))?;
    if cores.len() < 2 {
        return Err(SteerError::OneCore);
    }
    let signals = catch(&[SIGTERM, SIGINT, SIGHUP]).map_err(SteerError::system("signals"))?;
    let mut steering = Steering::begin(options, sensor)?;
    let end = most.and_then(|most| Instant::now().checked_add(most));
    let mut next = Instant::now();
    loop {
        let due = end.map_or(next, |end| end.min(next));
        match signals.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        if let Some(pid) = steering.overruled() {
            tell(Event::Overruled { pid });
            break;
        }
        steering.round(tell)?;
        next = Instant::now() + pause(interval, steering.looking());
    }
    Ok(steering.finish())
}

/// Outcome of a program that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Exit status of the program, or 128 and the number of the signal that ended it.
    pub status: u8,
    /// Totals of steering.
    pub summary: Summary,
}

/// Starts a program, steers it and its descendants until it ends, and restores the affinities of
/// those that outlive it.
///
/// Signals that others send to this process are passed on to the program. Those that a terminal
/// sends, it has got already. `first` is where it begins, if that is known.
///
/// # Errors
///
/// When it cannot be started, and those of [`Steering::begin`].
pub fn run(
    program: &OsString,
    arguments: &[OsString],
    mut options: Options,
    sensor: Box<dyn Sensor>,
    interval: Duration,
    tell: &mut dyn FnMut(Event),
) -> Result<Outcome, SteerError> {
    options.scope = Scope::Descendants;
    let signals = catch(&SIGNALS).map_err(SteerError::system("signals"))?;
    // Children whose parents end become ours, and not those of process 1: the tree stays known.
    let own = rustix::process::getpid();
    set_child_subreaper(Some(own)).map_err(|error| SteerError::system("the tree of processes")(error.into()))?;
    let mut steering = Steering::begin(options, sensor)?;
    let mut command = Command::new(program);
    command.args(arguments);
    let child = steering.start(|| command.spawn());
    let child = child?.map_err(|source| SteerError::Start {
        program: program.to_string_lossy().into_owned(),
        source,
    })?;
    let child = Pid::from_child(&child);
    let mut next = Instant::now();
    let status = loop {
        if let Some(status) = reap(child) {
            break status;
        }
        match signals.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(origin) => pass_on(&origin, child),
            Err(RecvTimeoutError::Disconnected) => thread::sleep(interval),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = steering.round(tell) {
                    tell(Event::Failed {
                        error: error.to_string(),
                    });
                }
                next = Instant::now() + pause(interval, steering.looking());
            }
        }
    };
    Ok(Outcome {
        status,
        summary: steering.finish(),
    })
}

/// Time to wait after a round in which looking took `looking`.
fn pause(interval: Duration, looking: Duration) -> Duration {
    interval.max(looking * (WORTH - 1))
}

/// Divisor for the time of looks: with very many threads, looks are so rare that they take at most one part in `WORTH`
/// of a CPU.
const WORTH: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_takes_a_bounded_share_of_a_cpu() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(20), ms(0)), ms(20));
        assert_eq!(pause(ms(250), ms(5)), ms(250));
        assert_eq!(pause(ms(250), ms(100)), ms(4900));
    }
}
