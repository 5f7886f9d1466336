//! Messages of the provider for the administrator, on standard error: servers lead it to their log.

use std::collections::BTreeSet;
use std::io::stderr;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::io::{retry_on_intr, write};
use widelane_forks::process_id;

/// Level of detail of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Level {
    /// Nothing.
    Off,
    /// What should be mended, once each. Also when overload begins and ends.
    Warn,
    /// Also that the provider was loaded, what it offers, and once for each reason, what OpenSSL does by itself.
    Info,
}

/// Sets the level of detail from now on.
pub(crate) fn set_level(level: Level) {
    LEVEL.store(level as u8, Relaxed);
}

/// Sets what counts reasons.
pub(crate) fn count_by(count: fn(&str)) {
    let _ = COUNT.set(count);
}

/// Tells something that is as expected.
pub(crate) fn info(message: &str) {
    if LEVEL.load(Relaxed) >= Level::Info as u8 {
        tell(message);
    }
}

/// Tells of something that an administrator should mend, the first time that it happens, and counts it each time.
pub(crate) fn once(message: &str) {
    count_and_tell(message, Level::Warn);
}

/// Tells why OpenSSL does something by itself, the first time that it happens, and counts it each time. Programs that
/// inherit the configuration say no more than without it: what they do with OpenSSL is no mistake.
pub(crate) fn reason(message: &str) {
    count_and_tell(message, Level::Info);
}

fn count_and_tell(message: &str, level: Level) {
    if let Some(count) = COUNT.get() {
        count(message);
    }
    if LEVEL.load(Relaxed) < level as u8 {
        return;
    }
    // Reasons are few; if one should hold changing text after all, memory stays bounded.
    let is_new = {
        let mut told = told();
        told.len() < MOST && told.insert(message.to_owned())
    };
    if is_new {
        tell(message);
    }
}

/// Writes something that happens again and again, in one process of several, each time.
pub(crate) fn event(message: &str) {
    if LEVEL.load(Relaxed) >= Level::Warn as u8 {
        tell(&format!("process {}: {message}", process_id()));
    }
}

/// Messages that were written. Nothing waits for anything else while it holds this lock, so that a fork can wait for
/// it.
pub(crate) fn told() -> MutexGuard<'static, BTreeSet<String>> {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes one line. Rust's own standard error has a lock, which a fork may leave locked.
fn tell(message: &str) {
    let line = format!("widelane: {message}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty()
        && let Ok(written @ 1..) = retry_on_intr(|| write(stderr(), rest))
    {
        rest = &rest[written..];
    }
}

static COUNT: OnceLock<fn(&str)> = OnceLock::new();
static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);
const MOST: usize = 64;
