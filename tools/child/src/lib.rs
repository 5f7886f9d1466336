//! Programs that a command runs until they end: signals go to the program, and its status comes back.
//!
//! [`run`] does it all. Who has something to do meanwhile, as `widelane run` has, puts it together
//! from [`catch`], [`pass_on`] and [`reap`].

#![forbid(unsafe_code)]

use std::io;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use signal_hook::consts::signal::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use widelane_threads::Proc;

/// A signal that has come, and its sender.
pub type Signalled = Origin;

/// The signals that are meant for a program that is run, and the one that tells of its end.
pub const SIGNALS: [i32; 8] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD];

/// Starts a program and waits until it ends. Gives its exit status, or 128 and the number of the
/// signal that ended it. `begun` runs between the two.
///
/// # Errors
///
/// When it cannot be started. Signals that come before are lost.
pub fn run(command: &mut Command, begun: impl FnOnce()) -> io::Result<u8> {
    let signals = catch(&SIGNALS)?;
    let child = Pid::from_child(&command.spawn()?);
    begun();
    loop {
        if let Some(status) = reap(child) {
            return Ok(status);
        }
        if let Ok(signal) = signals.recv() {
            pass_on(&signal, child);
        }
    }
}

/// Waits for all children that have ended, adopted ones too; the status of `child` if it is among
/// them.
pub fn reap(child: Pid) -> Option<u8> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == child {
            let signalled = status.terminating_signal().map(|signal| 128 + signal);
            found = status.exit_status().or(signalled);
        }
    }
    found.map(|status| status as u8)
}

/// Passes a signal on if a process sent it. From a terminal, the whole foreground group has it.
pub fn pass_on(signal: &Signalled, child: Pid) {
    if signal.process.is_none() || signal.signal == SIGCHLD {
        return;
    }
    if let Some(signal) = Signal::from_named_raw(signal.signal) {
        // A child that has just ended will be reaped in a moment.
        let _ = kill_process(child, signal);
    }
}

/// Catches signals from now on; the thread that does so ends with this process.
///
/// Those that were ignored when this process began stay so, for a program that it starts, too: that
/// is what `nohup` and shells with jobs in the background rely on.
///
/// # Errors
///
/// When the system has no thread for it.
pub fn catch(signals: &[i32]) -> io::Result<Receiver<Signalled>> {
    let ignored = Proc::here().ignored_signals();
    let signals = signals.iter().copied();
    let signals = signals.filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let mut signals = SignalsInfo::<WithOrigin>::new(signals)?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One after the other: each reaps all children of this process.
    #[test]
    fn the_status_is_the_programs_and_signals_reach_it() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(&mut command, || ())
        };
        assert_eq!(shell("exit 3").expect("there is a shell"), 3);
        assert_eq!(shell("kill -9 $$").expect("there is a shell"), 128 + 9);
        // The program sends us a signal, and gets it.
        let got = shell("trap 'exit 5' USR1; kill -USR1 $PPID; sleep 5 & wait");
        assert_eq!(got.expect("there is a shell"), 5);
        let missing = run(&mut Command::new("/no/such/program"), || ());
        let error = missing.expect_err("there is no such program");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
