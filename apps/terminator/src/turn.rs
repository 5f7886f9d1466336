//! Time for which one connection may keep its worker before the event loop looks at sockets and timers again.
//!
//! A task that wakes itself runs again after all other tasks that are ready, but tokio asks the kernel for news
//! only after 61 tasks. So a turn ends with a deferred wake: tokio polls its driver first, and the task then.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::task::spawn_local;
use tokio::time::Instant;

use crate::observe::stats::Stats;

/// Lets the event loop look at sockets and timers, and then polls the calling task again.
pub(crate) fn defer(cx: &mut Context<'_>) {
    // The first poll of this future does nothing else.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

/// Bytes that one direction of a connection has moved within one poll. A stream that is as fast as the worker must
/// leave time for the worker's other connections.
#[derive(Debug, Default)]
pub(crate) struct Turn(usize);

impl Turn {
    /// Takes note of `bytes` bytes, or of what takes as long to move.
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.0 += bytes;
    }

    /// Pending at the end of the turn.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0 < TURN_BYTES {
            return Poll::Ready(());
        }
        defer(cx);
        Poll::Pending
    }
}

/// Measures how long the event loop takes to look at sockets and timers while its worker is busy.
///
/// A probe is a deferred wake: it is polled right after the next look. One begins each [`PROBE_INTERVAL`] at most,
/// where the worker has work anyway: an idle worker has none, and a busy one pays nothing that shows.
#[derive(Debug, Default)]
pub(crate) struct Probe(Cell<Option<Instant>>);

impl Probe {
    /// Measures from `now` on if a probe is due.
    pub(crate) fn begin(&self, now: Instant, stats: &Arc<Stats>) {
        let last = self.0.get();
        if last.is_some_and(|last| now.saturating_duration_since(last) < PROBE_INTERVAL) {
            return;
        }
        self.0.set(Some(now));
        let stats = stats.clone();
        spawn_local(async move {
            tokio::task::yield_now().await;
            stats.longest_look.note(SystemTime::now(), now.elapsed());
        });
    }
}

/// The longest of the durations of the last one to two minutes. One thread writes.
#[derive(Debug, Default)]
pub(crate) struct Longest([AtomicU64; 2]);

impl Longest {
    pub(crate) fn note(&self, now: SystemTime, took: Duration) {
        let minute = minute(now);
        let longest = &self.0[minute as usize % 2];
        let before = longest.load(Relaxed);
        let micros = u64::try_from(took.as_micros()).map_or(MOST_MICROS, |us| us.min(MOST_MICROS));
        if before / MINUTE != minute || before % MINUTE < micros {
            longest.store(minute * MINUTE + micros, Relaxed);
        }
    }

    pub(crate) fn get(&self, now: SystemTime) -> Duration {
        let minute = minute(now);
        let both = self.0.iter().map(|longest| longest.load(Relaxed));
        let recent = both.filter(|longest| minute - (longest / MINUTE).min(minute) <= 1);
        Duration::from_micros(recent.map(|longest| longest % MINUTE).max().unwrap_or(0))
    }
}

fn minute(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() / 60)
}

/// Bytes that one direction of a connection moves before others have their turn.
const TURN_BYTES: usize = crate::back::pace::MOST_READ;
const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// A [`Longest`] keeps the minute and the microseconds of a duration in one word.
const MINUTE: u64 = 1 << 32;
const MOST_MICROS: u64 = MINUTE - 1;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::io::Write;
    use std::rc::Rc;

    use tokio::io::AsyncReadExt;
    use tokio::runtime::LocalOptions;

    use super::*;

    fn on_a_worker(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default());
        runtime.expect("a runtime").block_on(test);
    }

    /// A task that is always ready, and how many turns it has had.
    fn busy() -> Rc<Cell<usize>> {
        let turns = Rc::new(Cell::new(0));
        let counter = turns.clone();
        spawn_local(poll_fn(move |cx| {
            counter.set(counter.get() + 1);
            let mut turn = Turn::default();
            turn.moved(TURN_BYTES);
            turn.poll(cx)
        }));
        turns
    }

    #[test]
    fn a_socket_is_looked_at_after_one_turn_of_a_busy_task() {
        on_a_worker(async {
            let (mut client, server) = std::os::unix::net::UnixStream::pair().expect("a pair");
            server.set_nonblocking(true).expect("an option");
            let mut server = tokio::net::UnixStream::from_std(server).expect("a socket");
            let turns = busy();
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            let before = turns.get();
            client.write_all(b"x").expect("a byte");
            server.read_u8().await.expect("a byte");
            let taken = turns.get() - before;
            assert!(taken <= 3, "{taken} turns before the byte was seen");
        });
    }

    #[test]
    fn a_probe_ends_after_the_next_look() {
        on_a_worker(async {
            let stats = Arc::<Stats>::default();
            let probe = Probe::default();
            let now = Instant::now();
            probe.begin(now, &stats);
            // Too early for another one.
            probe.begin(now, &stats);
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            assert_eq!(Arc::strong_count(&stats), 1, "all probes have ended");
            assert!(stats.longest_look.get(SystemTime::now()) > Duration::ZERO);
        });
    }

    #[test]
    fn the_longest_of_the_last_two_minutes_counts() {
        let longest = Longest::default();
        let at = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(60_000 + seconds);
        let ms = Duration::from_millis;
        longest.note(at(1), ms(30));
        longest.note(at(2), ms(20));
        assert_eq!(longest.get(at(3)), ms(30));
        longest.note(at(61), ms(10));
        assert_eq!(longest.get(at(119)), ms(30));
        assert_eq!(longest.get(at(121)), ms(10));
        longest.note(at(122), ms(5));
        assert_eq!(longest.get(at(122)), ms(10));
        assert_eq!(longest.get(at(190)), ms(5));
        assert_eq!(longest.get(at(600)), Duration::ZERO);
        longest.note(at(600), Duration::MAX);
        assert_eq!(longest.get(at(600)), Duration::from_micros(MOST_MICROS));
    }
}
