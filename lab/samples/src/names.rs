//! Names that people read for those in records.

use crate::record::Record;
use crate::table::{Cell, Piece, cell};
use serde_json::Value;

/// A kind of handshake.
pub fn condition(id: &str) -> &str {
    match id {
        "rsa-x25519" => "RSA-2048, X25519",
        "ecdsa-x25519" => "ECDSA P-256, X25519",
        "ecdsa-x25519mlkem768" => "ECDSA P-256, X25519MLKEM768",
        "rsa-x25519mlkem768" => "RSA-2048, X25519MLKEM768",
        "rsa-usual" => "RSA-2048, as most clients make it",
        "ecdsa-usual" => "ECDSA P-256, as most clients make it",
        "resumed-tls13" => "TLS 1.3, resumed",
        "resumed-tls12" => "TLS 1.2, resumed",
        "rsa-client-certificate" => "RSA-2048, with a client's certificate",
        "ecdsa-client-certificate" => "ECDSA P-256, with a client's certificate",
        other => other,
    }
}

/// An unmodified server.
pub fn software(id: &str) -> &str {
    match id {
        "haproxy" => "HAProxy",
        "apache2" => "Apache",
        "valkey" => "Valkey",
        "valkey-io-threads" => "Valkey, io-threads 4",
        "redis" => "Redis",
        "redis-io-threads" => "Redis, io-threads 4",
        "pgbouncer" => "PgBouncer",
        "mosquitto" => "Mosquitto",
        "dovecot" => "Dovecot",
        "dovecot-starttls" => "Dovecot, STARTTLS",
        "stunnel4" => "stunnel",
        "postfix" => "Postfix",
        other => other,
    }
}

/// An arrangement of threads.
pub fn arrangement(id: &str) -> &str {
    match id {
        "one" => "one thread",
        "sharing" => "all CPUs, one server",
        "apart" => "all CPUs, nothing shared",
        other => other,
    }
}

/// A server of a comparison, or one half of a server's comparison with itself.
pub fn side(record: &Record, id: &str) -> Cell {
    let serve = |setting: &str| vec![Piece::Code("widelane serve".to_owned()), setting.into()];
    match id {
        "widelane-on" => serve(""),
        "widelane-off" => serve(", batching off"),
        "widelane-inline" => serve(", inline"),
        "widelane-old" => serve(", old"),
        "plain" => cell("alone"),
        "widelane" => cell("with Widelane"),
        "nginx" => cell(nginx(record)),
        "nginx-stream" => cell("nginx stream"),
        other => match other.strip_prefix("nginx-trace-") {
            Some(view) => vec![
                format!("{}, traced by ", nginx(record)).into(),
                Piece::Code(format!("trace {view}")),
            ],
            None => cell(software(other)),
        },
    }
}

/// The version of nginx that a record's machine had, with its library.
fn nginx(record: &Record) -> String {
    let said = record.run["machine"]["nginx"].as_array();
    let said: Vec<_> = said.into_iter().flatten().filter_map(Value::as_str).collect();
    nginx_in(&said.join("\n")).unwrap_or_else(|| "nginx".to_owned())
}

/// The version in what `nginx -V` prints, with its library, like `nginx 1.22.1 (OpenSSL 3.0.22)`.
pub fn nginx_in(said: &str) -> Option<String> {
    let version = word_after(said, "nginx version: nginx/")?;
    Some(match openssl_of_nginx(said) {
        Some(library) => format!("nginx {version} (OpenSSL {library})"),
        None => format!("nginx {version}"),
    })
}

/// The version of OpenSSL in what `nginx -V` prints. Where it was built with one and runs with another, the latter
/// counts.
pub fn openssl_of_nginx(said: &str) -> Option<&str> {
    word_after(said, "running with OpenSSL ").or_else(|| word_after(said, "built with OpenSSL "))
}

/// The word behind `mark`.
pub fn word_after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark)?.1.split_whitespace().next()
}
