//! Checks of what types cannot say, such as what holds between keys.

use std::time::Duration;

use rustls_pki_types::{DnsName, ServerName};

use super::backend::Backend;
use super::fault::Fault;
use super::listener::{BackendTls, CheckKind, HealthCheck, LONGEST_ROTATION, Listener};
use super::process::Config;

/// Checks what types cannot say, such as what holds between keys.
pub(super) fn check(config: &Config) -> Result<(), Fault> {
    if config.listeners.is_empty() {
        return Err(Fault::new(
            "listener",
            "nothing to listen on",
            "add a [[listener]] section, or use --listen, --cert, --key and --backend",
        ));
    }
    if config.group.is_some() && config.user.is_none() {
        return Err(Fault::new("group", "a group without a user", "set `user` as well"));
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
            source.connections_per_second.map_or(1, |rate| rate as usize),
        ),
    ] {
        if value == 0 {
            return Err(Fault::new(key, "0 would refuse everything", "set at least 1"));
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
    Ok(())
}

fn check_listener(key: &str, listener: &Listener) -> Result<(), Fault> {
    let fault = |name: &str, problem: &str, remedy: &str| Err(Fault::new(format!("{key}.{name}"), problem, remedy));
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
        return fault("versions", "no protocol version left", "write [\"1.2\", \"1.3\"]");
    }
    if listener.tickets.count > MOST_TICKETS {
        return fault("tickets.count", "more tickets than any client keeps", "set 0 to 16");
    }
    if !(Duration::from_secs(1)..=LONGEST_ROTATION).contains(&listener.tickets.rotation) {
        return fault("tickets.rotation_seconds", "out of range", "set 1 to 21600 (six hours)");
    }
    if !(Duration::from_secs(1)..=LONGEST_SESSION).contains(&listener.tickets.session) {
        return fault("tickets.session_seconds", "out of range", "set 1 to 604800 (a week)");
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
    let fault = |name: &str, problem: String, remedy: &str| Err(Fault::new(format!("{key}{name}"), problem, remedy));
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
            return fault(".cert", "a certificate without a key".into(), "set `key` as well");
        }
        (None, Some(_)) => {
            return fault(".key", "a key without a certificate".into(), "set `cert` as well");
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
        Err(Fault::new(format!("{key}.health_check{name}"), problem, remedy))
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
        let fault =
            |name: &str, problem: String, remedy: &str| Err(Fault::new(format!("{key}.{name}"), problem, remedy));
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
            let remedy = "add `server_name` or `alpn`, or write its backend into `backend` of the listener";
            return fault("backend", "this route is for all connections".into(), remedy);
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
        let names = route.server_name.iter().map(|name| name.to_ascii_lowercase());
        let names = names.map(Some).chain(route.server_name.is_empty().then_some(None));
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
const MOST_TICKETS: usize = 16;
