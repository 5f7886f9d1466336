//! Keys of the configuration that take effect at the next start only.

use crate::config::{Config, Environment, Fault};
use crate::cores::{Cores, Machine};
use crate::observe::endpoint;
use crate::privileges;

/// The keys that differ although a reload cannot change them.
pub(crate) fn keys_changed(before: &Config, after: &Config) -> Vec<&'static str> {
    let same = [
        ("workers", before.workers == after.workers),
        ("cpus", before.cpus == after.cpus),
        ("user", before.user == after.user),
        ("group", before.group == after.group),
        ("core_files", before.core_files == after.core_files),
        ("batching", before.batching == after.batching),
        ("chacha20poly1305", before.chacha20poly1305 == after.chacha20poly1305),
        ("metrics", before.metrics == after.metrics),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(key, _)| key).collect()
}

/// Checks what has changed and takes effect at the next start only: a fault in it would not be noticed until then.
pub(crate) fn check(before: &Config, after: &Config, environment: &Environment) -> Result<(), Fault> {
    if (&before.user, &before.group) != (&after.user, &after.group) {
        privileges::find(after)?;
    }
    if (&before.cpus, &before.batching) != (&after.cpus, &after.batching) {
        Cores::decide(after, &Machine::here(environment))?;
    }
    // At a port of our own, only the next start can tell.
    let own = before.listeners.iter().flat_map(|listener| &listener.listen);
    let mut own = own.chain(&before.metrics.listen).map(|one| one.port());
    match after.metrics.listen {
        Some(address) if !own.any(|own| own == address.port()) => endpoint::bind_for(after).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn what_would_stop_the_next_start_is_refused_in_a_reload() {
        let before = Config::default();
        let key = |change: fn(&mut Config)| {
            let mut after = before.clone();
            change(&mut after);
            check(&before, &after, &Environment::default()).map_err(|fault| fault.key)
        };
        assert_eq!(key(|config| config.user = Some("no user".into())), Err("user".into()));
        let group = |config: &mut Config| {
            (config.user, config.group) = (Some("root".into()), Some("no group".into()));
        };
        assert_eq!(key(group), Err("group".into()));
        let cpus = |config: &mut Config| config.cpus = "1023".parse().unwrap();
        assert_eq!(key(cpus), Err("cpus".into()));
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = other.local_addr().unwrap();
        let metrics = |before: &Config| {
            let mut after = before.clone();
            after.metrics.listen = Some(taken);
            check(before, &after, &Environment::default()).map_err(|fault| fault.key)
        };
        assert_eq!(metrics(&before), Err("metrics.listen".into()));
        let mut own = before.clone();
        own.metrics.listen = Some(taken);
        assert_eq!(metrics(&own), Ok(()));
        // Also if this process is not root any more.
        assert_eq!(key(|config| config.user = Some("daemon".into())), Ok(()));
        assert_eq!(key(|config| config.workers = NonZeroUsize::new(9)), Ok(()));
    }

    #[test]
    fn fixed_keys_are_noticed() {
        let before = Config::default();
        let mut after = before.clone();
        assert_eq!(keys_changed(&before, &after), [""; 0]);
        after.limits.handshakes = 7;
        after.workers = NonZeroUsize::new(7);
        after.batching.queue = 7;
        assert_eq!(keys_changed(&before, &after), ["workers", "batching"]);
    }
}
