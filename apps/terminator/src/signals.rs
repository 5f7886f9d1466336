//! Signals, changed files, and the service manager.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::back::host_names::CutOff;
use crate::config::{ConfigError, Document};
use crate::material::watch::{LOOK_INTERVAL, Watch};
use crate::server::Server;
use crate::server_error::ServerError;

/// The signals of this process, caught from the moment this exists: one that arrives while a server
/// still starts is neither lost nor fatal.
#[derive(Debug)]
pub struct Signals {
    caught: SignalDelivery<UnixStream, SignalOnly>,
    asked: Asked,
}

/// Requests of signals that are not done yet.
#[derive(Debug, Default)]
struct Asked {
    reopen: bool,
    hangup: bool,
    /// SIGTERM or SIGINT: the server is to stop.
    stop: bool,
}

impl Signals {
    /// Starts to catch SIGHUP, SIGUSR1, SIGTERM and SIGINT. Starts no thread.
    pub fn catch() -> Result<Self, ServerError> {
        let caught = UnixStream::pair().and_then(|(read, write)| {
            let signals = [SIGHUP, SIGUSR1, SIGTERM, SIGINT];
            SignalDelivery::with_pipe(read, write, SignalOnly, signals)
        });
        let caught = caught.map_err(ServerError::cannot("watch for signals"))?;
        Ok(Self {
            caught,
            asked: Asked::default(),
        })
    }

    /// Lets `server` serve until SIGTERM or SIGINT, then stops it as [`Server::stop`] does after
    /// the configuration's drain time; another one of these signals stops it at once. SIGHUP takes
    /// the configuration that `reread` returns, or keeps the old one if that is an error. SIGUSR1 opens
    /// the access log's file anew. When files of the configuration in use change, the server takes them,
    /// or keeps those from before if they are not good. Tells the service manager about all of this.
    pub fn serve(mut self, mut server: Server, mut reread: impl FnMut() -> Result<Document, ConfigError>) {
        let mut watch = Watch::new();
        watch.follow(server.document().config());
        notify(&[NotifyState::Ready]);
        let mut seen = None;
        let mut again = Again::default();
        while let Some(event) = self.next(&mut watch, again.due()) {
            match event {
                Event::Reopen => {
                    server.reopen_access_log();
                    continue;
                }
                Event::Hangup => {
                    again = Again::default();
                    reload(&server, Some(&mut reread), &mut again, Some(&mut self));
                }
                Event::Again => {
                    let whole = again.configuration.is_due(Instant::now());
                    let reread: Option<Reread<'_>> = if whole { Some(&mut reread) } else { None };
                    reload(&server, reread, &mut again, Some(&mut self));
                }
                Event::Look => {
                    let before = mem::replace(&mut seen, server.changed_files());
                    if seen.is_none() {
                        tracing::debug!("files are as they were");
                        if watch.lost {
                            watch.follow(server.document().config());
                        }
                        continue;
                    }
                    if seen != before {
                        // They may still change.
                        watch.look_again(Instant::now());
                        continue;
                    }
                    tracing::info!("files have changed");
                    reload(&server, None, &mut again, None);
                }
            }
            seen = None;
            watch.follow(server.document().config());
        }
        drop(watch);
        notify(&[NotifyState::Stopping]);
        tracing::info!(connections = server.connections(), "stopping");
        let timeout = server.document().config().drain.timeout;
        server.drain(timeout, || {
            let signals = Vec::from_iter(self.caught.pending());
            if signals.contains(&SIGUSR1) {
                server.reopen_access_log();
            }
            signals.iter().any(|signal| ![SIGHUP, SIGUSR1].contains(signal))
        });
        match server.connections() {
            0 => tracing::info!("stopped"),
            left => tracing::warn!(connections = left, "stopped; these were cut off"),
        }
        server.abort();
    }

    /// Waits for the next thing to do. `None`: to stop.
    fn next(&mut self, watch: &mut Watch, again: Option<Instant>) -> Option<Event> {
        loop {
            if self.asked.take(&mut self.caught) {
                return None;
            }
            if mem::take(&mut self.asked.reopen) {
                return Some(Event::Reopen);
            }
            if mem::take(&mut self.asked.hangup) {
                return Some(Event::Hangup);
            }
            let now = Instant::now();
            watch.take_events(now);
            if watch.is_time(now) {
                return Some(Event::Look);
            }
            if again.is_some_and(|again| now >= again) {
                return Some(Event::Again);
            }
            let again = again.map(|again| again.saturating_duration_since(now));
            self.wait(watch, again.into_iter().chain(watch.patience(now)).min());
        }
    }

    /// Waits for signals and for events of files.
    fn wait(&self, watch: &Watch, patience: Option<Duration>) {
        // A moment more, so that it is really over.
        let patience = patience.map(|patience| patience + Duration::from_millis(1));
        let timeout = patience.and_then(|patience| Timespec::try_from(patience).ok());
        let signals = PollFd::new(self.caught.get_read(), PollFlags::IN);
        let files = watch.events().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let mut both: Vec<_> = std::iter::once(signals).chain(files).collect();
        match poll(&mut both, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(error = %io::Error::from(error), "cannot wait for signals");
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

/// A signal that says to stop cuts off what a reload waits for.
impl CutOff for Signals {
    fn event(&self) -> BorrowedFd<'_> {
        self.caught.get_read().as_fd()
    }

    fn is_cut_off(&mut self) -> bool {
        self.asked.take(&mut self.caught)
    }
}

impl Asked {
    /// Takes the signals that have come, up to one that says to stop. Returns whether one did.
    fn take(&mut self, caught: &mut SignalDelivery<UnixStream, SignalOnly>) -> bool {
        if self.stop {
            return true;
        }
        for signal in caught.pending() {
            match signal {
                SIGUSR1 => self.reopen = true,
                SIGHUP => self.hangup = true,
                _ => {
                    self.stop = true;
                    break;
                }
            }
        }
        self.stop
    }
}

enum Event {
    /// The access log's file was renamed.
    Reopen,
    /// The configuration is to be read again.
    Hangup,
    /// Files may have changed.
    Look,
    /// Something that failed for a passing reason is to be tried again.
    Again,
}

/// Retries of what failed for a passing reason.
#[derive(Debug, Default)]
struct Again {
    configuration: Retry,
    /// Files of the configuration in use.
    files: Retry,
}

impl Again {
    /// Time at which to try something again.
    fn due(&self) -> Option<Instant> {
        let due = [self.configuration.due, self.files.due];
        due.into_iter().flatten().min()
    }
}

/// Time at which to try something again that failed, less and less often.
#[derive(Clone, Copy, Debug, Default)]
struct Retry {
    wait: Duration,
    due: Option<Instant>,
}

impl Retry {
    fn fail(&mut self, now: Instant) {
        self.wait = (2 * self.wait).clamp(LOOK_INTERVAL, LONGEST_WAIT);
        self.due = Some(now + self.wait);
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
    }
}

/// Takes the configuration that `reread` returns, without it the files of the one in use; or keeps what
/// is in use and says why. Gives up waiting for names when the server is to stop.
fn reload(server: &Server, reread: Option<Reread<'_>>, again: &mut Again, mut signals: Option<&mut Signals>) {
    let whole = reread.is_some();
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
    let reloaded = match reread.map(|reread| reread()) {
        Some(Ok(document)) => {
            let cut_off = signals.as_deref_mut().map(|signals| signals as &mut dyn CutOff);
            server.reload_unless(&document, cut_off)
        }
        Some(Err(error)) => Err(server.refuse(error)),
        None => server.reload_files(),
    };
    if reloaded.is_err() && signals.is_some_and(CutOff::is_cut_off) {
        tracing::info!("gave a reload up, because the server is to stop");
        return;
    }
    notify(&[NotifyState::Ready]);
    let retry = match whole {
        true => &mut again.configuration,
        false => &mut again.files,
    };
    let before = *retry;
    match &reloaded {
        // All files have been read.
        Ok(()) if whole => *again = Again::default(),
        Err(error) if error.is_passing() => retry.fail(Instant::now()),
        _ => *retry = Retry::default(),
    }
    match reloaded {
        Ok(()) if server.has_refused_configuration() => tracing::warn!(
            "took the files of the old configuration; the new one is still refused: correct it and \
             send SIGHUP"
        ),
        Ok(()) => tracing::info!("reloaded"),
        // It was logged the first time.
        Err(error) if before.due.is_some() && error.is_passing() => {
            tracing::debug!("still kept the old configuration: {error}");
        }
        Err(error) if error.is_passing() => {
            tracing::error!("kept the old configuration, and will try again by itself: {error}")
        }
        Err(error) => tracing::error!("kept the old configuration: {error}"),
    }
}

type Reread<'a> = &'a mut dyn FnMut() -> Result<Document, ConfigError>;

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not notified");
    }
}

const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_again_less_and_less_often() {
        let start = Instant::now();
        let mut again = Again::default();
        assert_eq!(again.due(), None);
        let mut waits = Vec::new();
        for _ in 0..7 {
            again.files.fail(start);
            waits.push((again.due().unwrap() - start).as_secs());
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 900, 900]);
        again.configuration.fail(start);
        let due = again.due().unwrap();
        assert_eq!(due, start + LOOK_INTERVAL);
        assert!(again.configuration.is_due(due) && !again.files.is_due(due));
    }
}
