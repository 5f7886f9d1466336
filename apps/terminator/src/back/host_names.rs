//! The host names of a configuration: lookups, and waits for the first of them.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::time::timeout;
use widelane_names::{Names, NoAnswer, Resolver};

use crate::back::pool::Upstreams;
use crate::config::{Backend, Config, Document, Fault, Listener};
use crate::housekeeping::Housekeeping;

/// Host names of all backends.
pub(crate) fn all(config: &Config) -> BTreeSet<String> {
    let all = config.listeners.iter().flat_map(|listener| {
        let routes = listener.routes.iter().flat_map(|route| &route.backend);
        listener.backend.iter().chain(routes)
    });
    let hosts = all.filter_map(|backend| match backend {
        Backend::Name(name) => Some(name.host.clone()),
        _ => None,
    });
    hosts.collect()
}

/// The fault of a host name that cannot be looked up, at the key that names it first.
pub(crate) fn fault(config: &Config, host: &str, fault: &NoAnswer) -> Fault {
    let is_it = |one: &Backend| matches!(one, Backend::Name(name) if name.host == host);
    let in_listener = |(index, listener): (usize, &Listener)| {
        let key = format!("listener[{index}]");
        if listener.backend.iter().any(is_it) {
            return Some(format!("{key}.backend"));
        }
        let mut routes = listener.routes.iter();
        let route = routes.position(|route| route.backend.iter().any(is_it))?;
        Some(format!("{key}.route[{route}].backend"))
    };
    let key = config.listeners.iter().enumerate().find_map(in_listener);
    Fault {
        passing: fault.passing,
        ..Fault::new(
            key.unwrap_or_default(),
            format!("cannot look up `{host}`: {fault}"),
            "correct the name, /etc/hosts or /etc/resolv.conf (`getent ahosts` asks for a name)",
        )
    }
}

/// Names that are looked up for `upstreams`, none so far.
pub(crate) fn look_up(housekeeping: &Housekeeping, upstreams: Arc<Upstreams>, resolver: Resolver) -> Names {
    let (names, mut follower) = Names::new(resolver);
    housekeeping.run("lookups of host names", async move || {
        follower.run(|host, answer| upstreams.looked_up(host, answer)).await;
    });
    names
}

/// What can cut a wait off.
pub(crate) trait CutOff {
    /// Becomes readable when the wait may have to end.
    fn event(&self) -> BorrowedFd<'_>;

    /// Takes what has come. Returns whether the wait is to end.
    fn is_cut_off(&mut self) -> bool;
}

/// Waits until each of these names was looked up, but not for ever, and not after `cut_off` says so. Another thread, on
/// which tasks run, learns the answers; where it is held up, this thread goes on all the same.
///
/// # Errors
///
/// When the system does not let this thread wait.
pub(crate) fn wait_for(
    housekeeping: &Housekeeping,
    upstreams: &Arc<Upstreams>,
    hosts: &BTreeSet<String>,
    cut_off: Option<&mut dyn CutOff>,
) -> io::Result<()> {
    wait_until(Instant::now() + FIRST_ANSWER, housekeeping, upstreams, hosts, cut_off)
}

fn wait_until(
    deadline: Instant,
    housekeeping: &Housekeeping,
    upstreams: &Arc<Upstreams>,
    hosts: &BTreeSet<String>,
    mut cut_off: Option<&mut dyn CutOff>,
) -> io::Result<()> {
    // The task closes its end when there is nothing more to wait for.
    let (answered, end) = UnixStream::pair()?;
    let (upstreams, hosts) = (upstreams.clone(), hosts.clone());
    let task = housekeeping.run("a wait for names", async move || {
        let _end = &end;
        upstreams.first_answers(&hosts).await;
    });
    let waited = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || cut_off.as_deref_mut().is_some_and(CutOff::is_cut_off) {
            break Ok(());
        }
        let event = cut_off.as_deref().map(CutOff::event);
        let events = [Some(answered.as_fd()), event].into_iter().flatten();
        let mut events: Vec<_> = events
            .map(|event| PollFd::from_borrowed_fd(event, PollFlags::IN))
            .collect();
        match poll(&mut events, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => break Err(error.into()),
        }
        if !events[0].revents().is_empty() {
            break Ok(());
        }
    };
    task.end_later();
    waited
}

/// Waits for the first answers about the names of a server that serves already: its listeners need not wait for a DNS
/// server that is silent.
pub(crate) async fn log_missing_later(document: &Document, upstreams: &Upstreams) {
    let hosts = all(document.config());
    let _ = timeout(FIRST_ANSWER, upstreams.first_answers(&hosts)).await;
    log_missing(document, upstreams, "it is looked up again until it has one");
}

/// Logs each name that has no address yet, with what happens `then`.
pub(crate) fn log_missing(document: &Document, upstreams: &Upstreams, then: &str) {
    for (host, missing) in upstreams.without_address(&all(document.config())) {
        let fault = document.locate(fault(document.config(), &host, &missing));
        tracing::warn!("{fault}; {then}");
    }
}

/// Longest time that a start or a reload waits for names that it does not know.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Cuts each wait off at once.
    struct AtOnce(UnixStream);

    impl CutOff for AtOnce {
        fn event(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        fn is_cut_off(&mut self) -> bool {
            true
        }
    }

    /// A reload holds the state of the server meanwhile.
    #[test]
    fn a_wait_ends_in_time_and_when_it_is_cut_off_also_where_the_other_thread_is_held_up() {
        let housekeeping = Housekeeping::start().unwrap();
        let (release, released) = mpsc::channel::<()>();
        let (hold, held) = mpsc::channel();
        housekeeping.run("holds the thread up", async move || {
            hold.send(()).unwrap();
            let _ = released.recv();
        });
        held.recv().unwrap();
        let upstreams = Arc::default();
        let hosts = BTreeSet::from(["a.test".to_owned()]);
        let soon = Instant::now() + Duration::from_millis(1);
        wait_until(soon, &housekeeping, &upstreams, &hosts, None).unwrap();
        assert!(Instant::now() >= soon);
        let mut cut_off = AtOnce(UnixStream::pair().unwrap().0);
        wait_for(&housekeeping, &upstreams, &hosts, Some(&mut cut_off)).unwrap();
        drop(release);
    }

    /// So that a reload is tried again by itself.
    #[test]
    fn a_name_that_may_be_found_later_is_a_passing_fault() {
        let config = Config::default();
        for passing in [true, false] {
            let fault = NoAnswer {
                reason: "no answer".into(),
                passing,
            };
            let fault = super::fault(&config, "app.test", &fault);
            assert_eq!(fault.passing, passing);
        }
    }
}
