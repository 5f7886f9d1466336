//! Signals, and the service manager.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals as Caught;

use crate::config::{ConfigError, Document};
use crate::server::{DRAIN_LOOK, Server, ServerError};

/// The signals of this process, caught from the moment this exists: one that arrives while a server
/// still starts is neither lost nor fatal.
#[derive(Debug)]
pub struct Signals {
    caught: Caught,
}

impl Signals {
    /// Starts to catch SIGHUP, SIGTERM and SIGINT. Starts no thread.
    pub fn catch() -> Result<Self, ServerError> {
        let caught = Caught::new([SIGHUP, SIGTERM, SIGINT]);
        let caught = caught.map_err(|source| ServerError::Machine {
            doing: "watch for signals".into(),
            source,
            remedy: "raise the limit of descriptors",
        })?;
        Ok(Self { caught })
    }

    /// Lets `server` serve until SIGTERM or SIGINT, then stops it as [`Server::stop`] does after
    /// the configuration's drain time; another one of these signals stops it at once. SIGHUP takes
    /// the configuration that `reread` returns, or keeps the old one if that is an error. Tells the
    /// service manager about all of this.
    pub fn serve(
        mut self,
        mut server: Server,
        mut drain: Duration,
        mut reread: impl FnMut() -> Result<Document, ConfigError>,
    ) {
        notify(&[NotifyState::Ready]);
        for signal in self.caught.forever() {
            if signal != SIGHUP {
                break;
            }
            drain = reload(&server, &mut reread).unwrap_or(drain);
        }
        notify(&[NotifyState::Stopping]);
        tracing::info!(connections = server.connections(), "stopping");
        server.begin_drain();
        let deadline = Instant::now() + drain;
        let is_last = |signal| signal != SIGHUP;
        while !server.drained() && Instant::now() < deadline {
            if self.caught.pending().any(is_last) {
                break;
            }
            std::thread::sleep(DRAIN_LOOK);
        }
        match server.connections() {
            0 => tracing::info!("stopped"),
            left => tracing::warn!(connections = left, "stopped; these were cut off"),
        }
        server.abort();
    }
}
/// Takes the new configuration and returns its drain time, or keeps the old one and says why.
fn reload(
    server: &Server,
    reread: &mut impl FnMut() -> Result<Document, ConfigError>,
) -> Option<Duration> {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
    let reloaded = reread().map_err(|error| {
        server.note_failed_reload();
        ServerError::from(error)
    });
    let reloaded = reloaded.and_then(|document| server.reload(&document).map(|()| document));
    notify(&[NotifyState::Ready]);
    match reloaded {
        Ok(document) => {
            tracing::info!("reloaded");
            Some(document.config().drain.timeout)
        }
        Err(error) => {
            tracing::error!("kept the old configuration: {error}");
            None
        }
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not told");
    }
}
