//! The host names of a configuration.

use std::collections::BTreeSet;

use widelane_names::NoAnswer;

use crate::config::{Backend, Config, Fault, Listener};

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
