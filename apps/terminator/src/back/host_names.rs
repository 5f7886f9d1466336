//! The host names of a configuration: lookups, and waits for the first of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    let (names, follower) = Names::new(resolver);
    let report = move |host: &str, answer| upstreams.looked_up(host, answer);
    housekeeping.run("lookups of host names", || follower.run(report));
    names
}

/// Waits until each of these names was looked up, but not for ever, and not after `is_cut_off` says so.
pub(crate) fn wait_for(upstreams: &Upstreams, hosts: &BTreeSet<String>, is_cut_off: &mut dyn FnMut() -> bool) {
    let until = Instant::now() + FIRST_ANSWER;
    while upstreams.awaits_any(hosts) && Instant::now() < until && !is_cut_off() {
        std::thread::sleep(LOOK);
    }
}

/// Waits for the first answers about the names of a server that serves already: its listeners need not wait for a DNS
/// server that is silent.
pub(crate) async fn log_missing_later(document: Document, upstreams: Arc<Upstreams>) {
    let hosts = all(document.config());
    let until = Instant::now() + FIRST_ANSWER;
    while upstreams.awaits_any(&hosts) && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
    }
    log_missing(&document, &upstreams, "it is looked up again until it has one");
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
/// Time between two looks at whether they have been looked up.
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

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
