//! What holds between keys, which the types cannot say.

use std::net::IpAddr;
use std::time::Duration;

use rustls_pki_types::{DnsName, ServerName};
use ureq::http::Uri;
use ureq::http::uri::Scheme;

use super::fault::Fault;
use super::listener::{BackendTls, CheckKind, Etcd, HealthCheck, LONGEST_ROTATION, Listener};
use super::process::Config;
use super::values::Backend;
use crate::ticket_etcd::store::StoreName;

/// What holds between keys, which the types cannot say.
pub(super) fn check(config: &Config) -> Result<(), Fault> {
    if config.listeners.is_empty() {
        return Err(Fault::new(
            "listener",
            "nothing to listen on",
            "add a [[listener]] section, or use --listen, --cert, --key and --backend",
        ));
    }
    if config.group.is_some() && config.user.is_none() {
        return Err(Fault::new(
            "group",
            "a group without a user",
            "set `user` as well",
        ));
    }
    let batching = &config.batching;
    let source = &config.limits.source;
    for (key, prefix, most) in [
        ("limits.source.ipv4_prefix", source.ipv4_prefix, 32),
        ("limits.source.ipv6_prefix", source.ipv6_prefix, 128),
    ] {
        if !(1..=most).contains(&prefix) {
            let problem = format!("{prefix} is not a length of a network's prefix");
            return Err(Fault::new(key, problem, format!("set 1 to {most}")));
        }
    }
    for (key, value) in [
        ("batching.queue", batching.queue),
        ("limits.connections", config.limits.connections.unwrap_or(1)),
        ("limits.handshakes", config.limits.handshakes),
        ("limits.source.handshakes", source.handshakes.unwrap_or(1)),
        ("limits.source.connections", source.connections.unwrap_or(1)),
        (
            "limits.source.connections_per_second",
            source
                .connections_per_second
                .map_or(1, |rate| rate as usize),
        ),
    ] {
        if value == 0 {
            return Err(Fault::new(
                key,
                "0 would refuse everything",
                "set at least 1",
            ));
        }
    }
    let mut seen = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        check_listener(&format!("listener[{index}]"), listener)?;
        for (place, address) in listener.listen.iter().enumerate() {
            if address.port() != 0 && seen.contains(address) {
                return Err(Fault::new(
                    format!("listener[{index}].listen[{place}]"),
                    format!("{address} is listed twice"),
                    "keep it in one listener only",
                ));
            }
            seen.push(*address);
        }
    }
    check_stores(&config.listeners)
}

/// Listeners with the same settings are one instance in etcd. Others would be two that write over each
/// other, and that logs and metrics tell by the prefix alone.
fn check_stores(listeners: &[Listener]) -> Result<(), Fault> {
    let mut seen: Vec<(usize, StoreName)> = Vec::new();
    for (index, listener) in listeners.iter().enumerate() {
        let Some(store) = StoreName::of(listener) else {
            continue;
        };
        let prefix = &store.etcd.prefix;
        let is_other = |other: &StoreName| other.etcd.prefix == *prefix && *other != store;
        if let Some((place, _)) = seen.iter().find(|(_, other)| is_other(other)) {
            return Err(Fault::new(
                format!("listener[{index}].tickets.etcd"),
                format!(
                    "listener[{place}].tickets.etcd has the prefix `{prefix}` and other settings"
                ),
                "write the same settings and the same `rotation_seconds` into both, or another `prefix`",
            ));
        }
        seen.push((index, store));
    }
    Ok(())
}

fn check_listener(key: &str, listener: &Listener) -> Result<(), Fault> {
    let fault = |name: &str, problem: &str, remedy: &str| {
        Err(Fault::new(format!("{key}.{name}"), problem, remedy))
    };
    if listener.listen.is_empty() {
        return fault("listen", "no address", "write listen = [\"0.0.0.0:443\"]");
    }
    check_backend(&format!("{key}.backend"), &listener.backend)?;
    if let Some(tls) = &listener.backend_tls {
        check_backend_tls(&format!("{key}.backend_tls"), &listener.backend, tls)?;
    }
    if listener.backend.is_empty() && listener.routes.is_empty() {
        return fault(
            "backend",
            "no backend",
            "write backend = \"127.0.0.1:8080\", or add a [[listener.route]] section",
        );
    }
    let tls = listener.backend_tls.as_ref();
    check_health_check(key, &listener.backend, tls, listener.health_check.as_ref())?;
    check_routes(key, listener)?;
    if listener.certificates.is_empty() && listener.certificate_directories.is_empty() {
        return fault(
            "certificate",
            "no certificate",
            "add cert and key (--cert, --key), or a directory (`certificates`)",
        );
    }
    for (index, certificate) in listener.certificates.iter().enumerate() {
        let key = format!("{key}.certificate[{index}].names");
        check_host_names(&key, &certificate.names)?;
    }
    if listener.versions.is_empty() {
        return fault(
            "versions",
            "no protocol version left",
            "write [\"1.2\", \"1.3\"]",
        );
    }
    if listener.tickets.count > MOST_TICKETS {
        return fault(
            "tickets.count",
            "more tickets than any client keeps",
            "set 0 to 16",
        );
    }
    if !(Duration::from_secs(1)..=LONGEST_ROTATION).contains(&listener.tickets.rotation) {
        return fault(
            "tickets.rotation_seconds",
            "out of range",
            "set 1 to 21600 (six hours)",
        );
    }
    if !(Duration::from_secs(1)..=LONGEST_SESSION).contains(&listener.tickets.session) {
        return fault(
            "tickets.session_seconds",
            "out of range",
            "set 1 to 604800 (a week)",
        );
    }
    if let Some(etcd) = &listener.tickets.etcd {
        check_etcd(&format!("{key}.tickets"), listener, etcd)?;
    }
    for (index, protocol) in listener.alpn.iter().enumerate() {
        if protocol.is_empty() || protocol.len() > 255 {
            return fault(
                &format!("alpn[{index}]"),
                "a protocol name has 1 to 255 bytes",
                "write for example \"h2\" or \"http/1.1\"",
            );
        }
        // No protocol of the IANA registry has one.
        if protocol.contains(',') {
            return fault(
                &format!("alpn[{index}]"),
                &format!("`{}` is no protocol name", protocol.escape_debug()),
                "write one name for each, for example [\"h2\", \"http/1.1\"] (--alpn h2 --alpn http/1.1)",
            );
        }
    }
    Ok(())
}

fn check_etcd(key: &str, listener: &Listener, etcd: &Etcd) -> Result<(), Fault> {
    let fault = |name: &str, problem: String, remedy: &str| {
        Err(Fault::new(format!("{key}.{name}"), problem, remedy))
    };
    if !cfg!(feature = "etcd") {
        let problem = "this build takes no ticket keys from etcd".into();
        let remedy = "build it in with: cargo build --release -p widelane --features etcd (it needs \
                      protoc, of Debian's protobuf-compiler)";
        return fault("etcd", problem, remedy);
    }
    if !listener.tickets.keys.is_empty() {
        let problem = "ticket keys both from files and from etcd".into();
        return fault("keys", problem, "remove `keys`, or [listener.tickets.etcd]");
    }
    let rotation = listener.tickets.rotation;
    if rotation < SHORTEST_ETCD_ROTATION || rotation.subsec_nanos() != 0 {
        let problem = "etcd counts whole seconds, and all machines need time to learn a key".into();
        return fault(
            "rotation_seconds",
            problem,
            "set a whole number from 10 to 21600",
        );
    }
    if !(1..=MOST_ENDPOINTS).contains(&etcd.endpoints.len()) {
        let problem = format!("{} endpoints", etcd.endpoints.len());
        let remedy = "write endpoints = [\"https://etcd1.example.org:2379\"], with 1 to 16 of them";
        return fault("etcd.endpoints", problem, remedy);
    }
    for (place, endpoint) in etcd.endpoints.iter().enumerate() {
        let name = format!("etcd.endpoints[{place}]");
        let remedy = "write for example \"https://etcd1.example.org:2379\"";
        if !is_endpoint(endpoint) {
            let problem = format!("`{}` is no endpoint of etcd", endpoint.escape_debug());
            return fault(&name, problem, remedy);
        }
        let tls = endpoint.starts_with("https:");
        if tls && etcd.ca.is_none() {
            let problem =
                format!("no authority is named that may sign the certificate of {endpoint}");
            return fault(
                "etcd.ca",
                problem,
                "set `ca`, in a private etcd to its own authority",
            );
        }
        if !tls && etcd.password_file.is_some() && !is_loopback(endpoint) {
            let problem = format!("the password would cross the network to {endpoint} unencrypted");
            let remedy = "write https:// and set `ca`, or name an etcd on this machine by its loopback address";
            return fault(&name, problem, remedy);
        }
        if !tls && (etcd.ca.is_some() || etcd.cert.is_some()) {
            let problem = format!("{endpoint} is without TLS, and `ca` or `cert` is set");
            return fault(
                &name,
                problem,
                "write https://, or remove `ca`, `cert` and `key`",
            );
        }
    }
    let prefix = &etcd.prefix;
    let is_plain = |byte: u8| byte.is_ascii_graphic();
    if !(1..=MOST_PREFIX).contains(&prefix.len())
        || !prefix.bytes().all(is_plain)
        || prefix.ends_with('/')
    {
        let problem = format!("`{}` is no prefix of names in etcd", prefix.escape_debug());
        let remedy =
            "write for example \"/widelane/tickets\": at most 256 characters, no `/` at the end";
        return fault("etcd.prefix", problem, remedy);
    }
    match (&etcd.user, &etcd.password_file) {
        (Some(_), None) => fault(
            "etcd.user",
            "a user without a password".into(),
            "set `password_file`; the user of a client certificate needs no `user`",
        ),
        (None, Some(_)) => fault(
            "etcd.password_file",
            "a password without a user".into(),
            "set `user`",
        ),
        _ if etcd.cert.is_some() != etcd.key.is_some() => fault(
            "etcd.cert",
            "a client certificate has two files".into(),
            "set both `cert` and `key`, or none",
        ),
        _ => Ok(()),
    }
}

/// `http://` or `https://`, a host, a port, nothing behind.
fn is_endpoint(endpoint: &str) -> bool {
    endpoint.parse::<Uri>().is_ok_and(|address| {
        let has_host = address.host().is_some_and(|host| !host.is_empty());
        let schemes = [Some(&Scheme::HTTP), Some(&Scheme::HTTPS)];
        let is_plain =
            address.path() == "/" && address.query().is_none() && !endpoint.contains('@');
        schemes.contains(&address.scheme()) && has_host && address.port().is_some() && is_plain
    })
}

/// Whether the host is this machine by an address, or by the name that is always its own (RFC 6761, section 6.3).
fn is_loopback(endpoint: &str) -> bool {
    let address = endpoint.parse::<Uri>();
    address.is_ok_and(|address| {
        let host = address.host().unwrap_or_default();
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        ip.map_or(host.eq_ignore_ascii_case("localhost"), |ip| {
            ip.to_canonical().is_loopback()
        })
    })
}

fn check_backend(key: &str, addresses: &[Backend]) -> Result<(), Fault> {
    if addresses.len() > Backend::MOST {
        let problem = format!("more than {} addresses", Backend::MOST);
        return Err(Fault::new(key, problem, "put a load balancer between"));
    }
    for (place, address) in addresses.iter().enumerate() {
        if addresses[..place].contains(address) {
            return Err(Fault::new(
                format!("{key}[{place}]"),
                format!("{address} is listed twice"),
                "list it once; each address gets as many connections as the others",
            ));
        }
    }
    Ok(())
}

fn check_backend_tls(key: &str, addresses: &[Backend], tls: &BackendTls) -> Result<(), Fault> {
    let fault = |name: &str, problem: String, remedy: &str| {
        Err(Fault::new(format!("{key}{name}"), problem, remedy))
    };
    if addresses.is_empty() {
        let remedy = "write it into the section that has the backend";
        return fault("", "TLS to no backend".into(), remedy);
    }
    match &tls.server_name {
        Some(name) if ServerName::try_from(name.as_str()).is_err() => {
            let problem = format!("`{}` is no host name", name.escape_debug());
            let remedy = "write a name that is in the backend's certificate, for example \"app.example.org\"";
            return fault(".server_name", problem, remedy);
        }
        Some(_) => {}
        None => {
            let unnamed = addresses.iter().find(|one| one.server_name().is_none());
            if let Some(address) = unnamed {
                let problem = format!("{address} has no host name that its certificate could have");
                return fault("", problem, "set `server_name`");
            }
        }
    }
    match (&tls.cert, &tls.key) {
        (Some(_), None) => {
            return fault(
                ".cert",
                "a certificate without a key".into(),
                "set `key` as well",
            );
        }
        (None, Some(_)) => {
            return fault(
                ".key",
                "a key without a certificate".into(),
                "set `cert` as well",
            );
        }
        _ => {}
    }
    if tls.versions.is_empty() {
        let problem = "no protocol version left".into();
        return fault(".versions", problem, "write [\"1.2\", \"1.3\"]");
    }
    Ok(())
}

fn check_health_check(
    key: &str,
    addresses: &[Backend],
    tls: Option<&BackendTls>,
    check: Option<&HealthCheck>,
) -> Result<(), Fault> {
    let Some(check) = check else { return Ok(()) };
    let fault = |name: &str, problem: String, remedy: &str| {
        Err(Fault::new(
            format!("{key}.health_check{name}"),
            problem,
            remedy,
        ))
    };
    if addresses.is_empty() {
        let remedy = "write it into the section that has the backend";
        return fault("", "a check of no backend".into(), remedy);
    }
    if check.kind == CheckKind::Tls && tls.is_none() {
        let remedy = "add `backend_tls`, or write kind = \"tcp\"";
        return fault(".kind", "this backend speaks no TLS".into(), remedy);
    }
    if check.rise == 0 || check.fall == 0 {
        let name = if check.rise == 0 { ".rise" } else { ".fall" };
        return fault(name, "0 checks say nothing".into(), "set at least 1");
    }
    if check.interval < Duration::from_millis(100) {
        let problem = "more than ten checks a second".into();
        return fault(".interval_seconds", problem, "set at least 0.1");
    }
    let Some(path) = &check.path else {
        return Ok(());
    };
    if check.kind != CheckKind::Http {
        let problem = "`path` needs kind = \"http\"".into();
        return fault(".path", problem, "write kind = \"http\", or remove `path`");
    }
    if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        let problem = format!("`{}` is no path", path.escape_debug());
        return fault(".path", problem, "write for example \"/healthz\"");
    }
    Ok(())
}

/// Names that clients may ask for.
fn check_host_names(key: &str, names: &[String]) -> Result<(), Fault> {
    for (place, name) in names.iter().enumerate() {
        let bare = name.strip_prefix("*.").unwrap_or(name);
        if DnsName::try_from(bare).is_err() || bare.ends_with('.') {
            return Err(Fault::new(
                format!("{key}[{place}]"),
                format!("`{}` is no host name", name.escape_debug()),
                "write for example \"www.example.org\" or \"*.example.org\"",
            ));
        }
    }
    Ok(())
}

fn check_routes(key: &str, listener: &Listener) -> Result<(), Fault> {
    let mut seen = Vec::new();
    for (index, route) in listener.routes.iter().enumerate() {
        let key = format!("{key}.route[{index}]");
        let fault = |name: &str, problem: String, remedy: &str| {
            Err(Fault::new(format!("{key}.{name}"), problem, remedy))
        };
        if route.backend.is_empty() {
            let remedy = "write backend = \"127.0.0.1:8080\"";
            return fault("backend", "no backend".into(), remedy);
        }
        check_backend(&format!("{key}.backend"), &route.backend)?;
        if let Some(tls) = &route.backend_tls {
            check_backend_tls(&format!("{key}.backend_tls"), &route.backend, tls)?;
        }
        let (tls, check) = (route.backend_tls.as_ref(), route.health_check.as_ref());
        check_health_check(&key, &route.backend, tls, check)?;
        if route.server_name.is_empty() && route.alpn.is_empty() {
            let remedy =
                "add `server_name` or `alpn`, or write its backend into `backend` of the listener";
            return fault(
                "backend",
                "this route is for all connections".into(),
                remedy,
            );
        }
        check_host_names(&format!("{key}.server_name"), &route.server_name)?;
        for (place, protocol) in route.alpn.iter().enumerate() {
            if !listener.alpn.contains(protocol) {
                return fault(
                    &format!("alpn[{place}]"),
                    format!("no client agrees on `{}`", protocol.escape_debug()),
                    "add it to `alpn` of the listener",
                );
            }
        }
        // What is not listed is a case of its own.
        let names = route
            .server_name
            .iter()
            .map(|name| name.to_ascii_lowercase());
        let names = names
            .map(Some)
            .chain(route.server_name.is_empty().then_some(None));
        for (place, name) in names.enumerate() {
            let protocols = route.alpn.iter().map(Some);
            for protocol in protocols.chain(route.alpn.is_empty().then_some(None)) {
                let case = (name.clone(), protocol);
                if seen.contains(&case) {
                    let (key, what) = match &name {
                        Some(name) => (format!("server_name[{place}]"), format!("`{name}`")),
                        None => ("alpn".to_owned(), "this protocol".to_owned()),
                    };
                    let problem = format!("{what} has a route already");
                    return fault(&key, problem, "keep one of them");
                }
                seen.push(case);
            }
        }
    }
    Ok(())
}

/// The longest life of a ticket (RFC 8446, section 4.6.1).
const LONGEST_SESSION: Duration = Duration::from_secs(7 * 24 * 3600);
/// Shorter, and a slow machine or a change of etcd's leader could take as long.
const SHORTEST_ETCD_ROTATION: Duration = Duration::from_secs(10);
const MOST_ENDPOINTS: usize = 16;
const MOST_PREFIX: usize = 256;
const MOST_TICKETS: usize = 16;
