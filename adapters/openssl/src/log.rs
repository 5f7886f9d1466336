//! What the provider tells the administrator, on standard error: servers lead it to their log.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::status;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// Once for each reason: what does not run in lanes, and why.
    Warn,
    /// Also that the provider was loaded, and what it offers.
    Info,
}

/// Sets how much is told from now on.
pub(crate) fn set_level(level: Level) {
    LEVEL.store(level as u8, Relaxed);
}

/// Tells something that is as expected.
pub(crate) fn info(message: &str) {
    if LEVEL.load(Relaxed) >= Level::Info as u8 {
        tell(message);
    }
}

/// Tells why something is not as the administrator may expect, the first time that it happens, and
/// counts it each time.
pub(crate) fn once(message: &str) {
    status::count_reason(message);
    if LEVEL.load(Relaxed) < Level::Warn as u8 {
        return;
    }
    let mut told = TOLD.lock().unwrap_or_else(|error| error.into_inner());
    // Reasons are few; if one should hold changing text after all, memory stays bounded.
    if told.len() < MOST && told.insert(message.to_owned()) {
        tell(message);
    }
}

fn tell(message: &str) {
    eprintln!("widelane: {message}");
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);
static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
const MOST: usize = 64;
