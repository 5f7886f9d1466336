//! Running under signals and under a service manager.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{ConfigError, Document};
use crate::server::{DRAIN_LOOK, Server, ServerError};

/// The signals of this process, caught from the moment this exists: one that arrives while a server
/// is still starting is not lost and does not kill.
#[derive(Debug)]
pub struct Signals {
    runtime: Runtime,
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts catching SIGHUP, SIGTERM and SIGINT. Starts no thread.
    pub fn catch() -> Result<Self, ServerError> {
        let caught = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let inside = runtime.enter();
            let hangup = signal(SignalKind::hangup())?;
            let terminate = signal(SignalKind::terminate())?;
            let interrupt = signal(SignalKind::interrupt())?;
            drop(inside);
            Ok(Self {
                runtime,
                hangup,
                terminate,
                interrupt,
            })
        };
        caught().map_err(|source| ServerError::Machine {
            doing: "watch for signals".into(),
            source,
            remedy: "raise the limit of descriptors",
        })
    }

    /// Lets `server` serve until SIGTERM or SIGINT, then stops it as [`Server::stop`] does after
    /// the configuration's drain time; one of these signals again stops it at once. SIGHUP takes
    /// the configuration that `reread` returns, or keeps the old one if that is an error. Tells the
    /// service manager about all of this.
    pub fn serve(
        self,
        mut server: Server,
        drain: Duration,
        mut reread: impl FnMut() -> Result<Document, ConfigError>,
    ) {
        let Self {
            runtime,
            mut hangup,
            mut terminate,
            mut interrupt,
        } = self;
        runtime.block_on(async {
            notify(&[NotifyState::Ready]);
            let mut drain = drain;
            loop {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    _ = hangup.recv() => {
                        if let Some(new_drain) = reload(&server, &mut reread) {
                            drain = new_drain;
                        }
                    }
                }
            }
            notify(&[NotifyState::Stopping]);
            tracing::info!(connections = server.connections(), "stopping");
            server.begin_drain();
            let deadline = tokio::time::sleep(drain);
            tokio::pin!(deadline);
            while !server.drained() {
                tokio::select! {
                    () = tokio::time::sleep(DRAIN_LOOK) => {}
                    () = &mut deadline => break,
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                }
            }
            match server.connections() {
                0 => tracing::info!("stopped"),
                left => tracing::warn!(connections = left, "stopped; these were cut off"),
            }
            server.abort();
        });
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
