//! OpenSSL's clients against the terminator: every group, every kind of certificate on either
//! side, both versions.
//!
//! With the `openssl` of the distribution, and with the one that `WIDELANE_OPENSSL` names, if it names one:
//! that has the post-quantum groups and certificates.

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use common::*;
use widelane_terminator::{Certificate, ClientAuth, ClientAuthMode, Config, PlacementChoice, Server, TlsVersion};
use widelane_testkit::openssl::{GROUPS, converse};

/// An `openssl` program and what it can do.
struct Client {
    program: PathBuf,
    modern: bool,
}

/// Outcome of one `s_client`.
struct Outcome {
    served: bool,
    text: String,
}

impl Client {
    /// The distribution's, and the one with post-quantum algorithms if there is one.
    fn all() -> Vec<Self> {
        let mut clients = Vec::new();
        clients.extend(installed("openssl").map(|program| Self { program, modern: false }));
        clients.extend(std::env::var_os("WIDELANE_OPENSSL").map(|program| Self {
            program: program.into(),
            modern: true,
        }));
        clients
    }

    fn versions(&self) -> [&'static str; 2] {
        ["-tls1_2", "-tls1_3"]
    }

    fn groups(&self, version: &str) -> &'static [&'static str] {
        match (self.modern, version) {
            (true, "-tls1_3") => &GROUPS,
            _ => &GROUPS[..CLASSICAL_GROUPS],
        }
    }

    fn kinds(&self, version: &str) -> &'static [(Kind, &'static str)] {
        match (self.modern, version) {
            (true, "-tls1_3") => &KINDS,
            _ => &KINDS[..CLASSICAL_KINDS],
        }
    }

    /// Shakes hands, sends a line and waits for its echo.
    fn connect(&self, address: SocketAddr, arguments: &[&str]) -> Outcome {
        let mut client = Command::new(&self.program);
        client.args(["s_client", "-connect", &address.to_string()]);
        let (served, text) = converse(client.args(arguments), QUESTION);
        Outcome { served, text }
    }
}

/// Batched inline, batched on a vector core, and not batched.
fn servers(configure: impl Fn(&mut Config)) -> Vec<(&'static str, Server)> {
    let mut servers = Vec::new();
    for mode in ["inline", "vector-cores", "off"] {
        let mut config = config(Vec::new());
        config.batching.enabled = mode != "off";
        if mode == "vector-cores" {
            config.batching.placement = PlacementChoice::VectorCores;
            config.batching.vector_cpus = "0".parse().expect("a list");
        }
        configure(&mut config);
        servers.push((mode, start(&config)));
    }
    servers
}

/// One of each kind, for `KIND.example`.
fn certificates(files: &Files) -> Vec<Certificate> {
    let certificate = |(kind, _): &(Kind, &str)| files.certificate(*kind, &[&host(*kind)]);
    KINDS.iter().map(certificate).collect()
}

fn host(kind: Kind) -> String {
    format!("{kind:?}.example").to_ascii_lowercase()
}

#[test]
fn every_group_and_every_kind_of_certificate() {
    let files = Files::new();
    let servers = servers(|config| {
        let mut one = listener(echo(), certificates(&files));
        one.groups = GROUPS.map(str::to_owned).into();
        config.listeners = vec![one];
    });
    for client in Client::all() {
        for (mode, server) in &servers {
            for version in client.versions() {
                let kinds = client.kinds(version);
                for (place, group) in client.groups(version).iter().enumerate() {
                    // Each kind with each classical group; of the others one each suffices.
                    let kinds = match place < CLASSICAL_GROUPS {
                        true => kinds,
                        false => &kinds[place % kinds.len()..][..1],
                    };
                    for (kind, signature) in kinds {
                        let name = host(*kind);
                        // In TLS 1.2 the curve of an ECDSA certificate must be among the groups.
                        let groups = match (version, *group) {
                            ("-tls1_2", "X25519") => "X25519:P-256:P-384",
                            ("-tls1_2", "P-256") => "P-256:P-384",
                            ("-tls1_2", "P-384") => "P-384:P-256",
                            (_, group) => group,
                        };
                        let arguments = [version, "-servername", &name, "-groups", groups];
                        let outcome = client.connect(server.addresses()[0], &arguments);
                        let text = &outcome.text;
                        assert!(outcome.served, "{mode} {arguments:?}: {text}");
                        assert!(
                            said(text, "Peer signature type:", signature),
                            "{mode} {arguments:?}: {text}"
                        );
                        assert!(agreed(text, group), "{mode} {arguments:?}: {text}");
                    }
                }
            }
        }
    }
}

#[test]
fn client_certificates_of_every_kind() {
    let files = Files::new();
    let ca = files.path("ca.pem");
    let authority = Authority::in_file("ours", &ca);
    let stranger = Authority::in_file("another", &files.path("another.pem"));
    let pair = |authority: &Authority, kind: Kind| {
        let identity = authority.client(kind, "client");
        let file = files.path("client.pem");
        files.write("client.pem", identity.both());
        file.to_str().expect("UTF-8").to_owned()
    };
    for (mode, server) in servers(|config| {
        let mut one = listener(echo(), vec![files.certificate(Kind::Rsa, &["a.example"])]);
        one.client_auth = Some(ClientAuth::new(ClientAuthMode::Required, &ca));
        config.listeners = vec![one];
    }) {
        for client in Client::all() {
            for version in client.versions() {
                for (kind, _) in client.kinds(version) {
                    let file = pair(&authority, *kind);
                    let arguments = [version, "-cert", &file, "-key", &file];
                    let outcome = client.connect(server.addresses()[0], &arguments);
                    let text = outcome.text;
                    assert!(outcome.served, "{mode} {version} {kind:?}: {text}");
                }
                let file = pair(&stranger, Kind::Ecdsa);
                let outcome = client.connect(server.addresses()[0], &[version, "-cert", &file, "-key", &file]);
                assert!(!outcome.served);
                let text = outcome.text;
                assert!(text.contains("alert unknown ca"), "{mode} {version}: {text}");
                let outcome = client.connect(server.addresses()[0], &[version]);
                assert!(!outcome.served);
                let alert = match version {
                    "-tls1_2" => "alert handshake failure",
                    _ => "alert certificate required",
                };
                let text = outcome.text;
                assert!(text.contains(alert), "{mode} {version}: {text}");
            }
        }
    }
}

#[test]
fn curves_of_certificates_are_not_mistaken_for_groups() {
    // A server of TLS 1.3 only, with one group, takes certificates on other curves.
    let files = Files::new();
    for (mode, server) in servers(|config| {
        let mut one = listener(echo(), certificates(&files));
        one.groups = vec!["X25519".into()];
        one.versions = vec![TlsVersion::Tls13];
        config.listeners = vec![one];
    }) {
        for client in Client::all() {
            let name = host(Kind::EcdsaP384);
            let arguments = ["-tls1_3", "-servername", &name, "-groups", "X25519"];
            let outcome = client.connect(server.addresses()[0], &arguments);
            assert!(outcome.served, "{mode}: {}", outcome.text);
        }
    }
}

/// Returns whether a line that begins with `label` names `what`.
fn said(text: &str, label: &str, what: &str) -> bool {
    let what = what.to_ascii_lowercase();
    text.lines()
        .filter_map(|line| line.strip_prefix(label))
        .any(|rest| rest.to_ascii_lowercase().contains(&what))
}

/// Returns whether it says that the key exchange was in `group`, which it knows by several names.
fn agreed(text: &str, group: &str) -> bool {
    let names = match group {
        "P-256" => &["prime256v1", "secp256r1"][..],
        "P-384" => &["secp384r1"],
        _ => &[group],
    };
    let labels = ["Negotiated TLS1.3 group:", "Server Temp Key:", "Peer Temp Key:"];
    let said = |name| labels.iter().any(|label| said(text, label, name));
    names.iter().any(|name| said(name))
}

/// Something that is in no other line of the output.
const QUESTION: &str = "is anybody there?\n";

const CLASSICAL_GROUPS: usize = 3;

/// With what OpenSSL calls their signatures; those of every OpenSSL first.
const KINDS: [(Kind, &str); 7] = [
    (Kind::Rsa, "RSA"),
    (Kind::Ecdsa, "ECDSA"),
    (Kind::EcdsaP384, "ECDSA"),
    (Kind::Ed25519, "Ed25519"),
    (Kind::MlDsa44, "mldsa44"),
    (Kind::MlDsa65, "mldsa65"),
    (Kind::MlDsa87, "mldsa87"),
];
const CLASSICAL_KINDS: usize = 4;
