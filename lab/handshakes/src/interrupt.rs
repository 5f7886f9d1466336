//! Ctrl-C and its like as a flag, so that everything unwinds and cleans up behind itself.

use crate::error::TrialError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Flag that ends the program.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn listen() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// An error if this is to end.
    ///
    /// # Errors
    ///
    /// [`TrialError::Interrupted`].
    pub fn check(&self) -> Result<(), TrialError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(TrialError::Interrupted);
        }
        Ok(())
    }

    /// Calls `done` every few milliseconds until it returns something. `patience` is the time limit.
    pub(crate) fn wait_for<T>(
        &self,
        patience: Duration,
        mut done: impl FnMut() -> Result<Option<T>, TrialError>,
    ) -> Result<Option<T>, TrialError> {
        let deadline = Instant::now() + patience;
        loop {
            self.check()?;
            if let Some(value) = done()? {
                return Ok(Some(value));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(10);
