//! The picture that is renewed in place on a terminal.

use super::Args;
use crate::screen;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;
use widelane_cli::failure::Failure;
use widelane_top::{Monitor, Options, Screen, Snapshot, Told};

/// Shows pictures on the terminal until a key or a signal ends it.
pub(super) fn live(args: &Args, options: Options, colour: bool) -> Result<(), Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in screen::ending_signals() {
        signal_hook::flag::register(signal, ended.clone())?;
    }
    let mut screen = Screen::open(colour)?;
    let snapshots = sample(options, args.interval)?;
    let mut last: Option<Snapshot> = None;
    let mut shown = 0;
    while !ended.load(Relaxed) && args.count.is_none_or(|count| shown < count) {
        match snapshots.try_recv() {
            Ok(snapshot) => {
                screen.show(&snapshot)?;
                last = Some(snapshot);
                shown += 1;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(Failure::Failed("the sampling thread has ended".to_owned()));
            }
        }
        match (screen.wait(REACTION)?, &last) {
            (Told::End, _) => break,
            (Told::Resized, Some(snapshot)) => screen.show(snapshot)?,
            _ => {}
        }
    }
    Ok(())
}

/// Takes snapshots on a thread of its own, so that keys are answered while a server is not.
fn sample(options: Options, interval: Duration) -> Result<Receiver<Snapshot>, Failure> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new().name("widelane-top".to_owned()).spawn(move || {
        let mut monitor = Monitor::new(options);
        // The first picture comes soon: until then the screen is empty.
        let mut wait = interval.min(FIRST);
        loop {
            thread::sleep(wait);
            if sender.send(monitor.snapshot()).is_err() {
                break;
            }
            wait = interval;
        }
    })?;
    Ok(receiver)
}

/// The longest time until a signal is noticed.
const REACTION: Duration = Duration::from_millis(100);
const FIRST: Duration = Duration::from_millis(250);
