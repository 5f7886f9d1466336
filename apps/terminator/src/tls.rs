//! From configuration and files to `rustls::ServerConfig`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, NamedGroup, RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;

use crate::config::{ClientAuth, Fault, Listener, TlsVersion};
use crate::material::{Facts, Material};

/// Ticket keys, kept over reloads so that clients can still resume.
///
/// A session resumed under a ticket skips the check of the client certificate, so listeners share
/// ticket keys with nobody, and a change of the client policy starts fresh ones.
#[derive(Debug, Default)]
pub(crate) struct TicketKeys(HashMap<TicketScope, Arc<dyn ProducesTickets>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TicketScope {
    listener: String,
    client_auth: ClientAuth,
    client_ca: Vec<CertificateDer<'static>>,
    rotation: Duration,
}

/// What the TLS side of a listener is, after everything was checked.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) certificates: Vec<Facts>,
}

/// Builds a listener's `ServerConfig`. `keys` are those of the configuration before this one;
/// `next` gathers those that go on living.
pub(crate) fn build(
    key: &str,
    listener: &Listener,
    material: Material,
    provider: &CryptoProvider,
    keys: &TicketKeys,
    next: &mut TicketKeys,
) -> Result<Built, Fault> {
    let provider = Arc::new(restrict(key, listener, provider)?);
    let fault = |name: &str, error: rustls::Error| {
        let remedy = "allow at least one suite and one group for each version";
        Fault::new(format!("{key}.{name}"), error.to_string(), remedy)
    };
    let versions: Vec<&SupportedProtocolVersion> = listener
        .versions
        .iter()
        .map(|version| match version {
            TlsVersion::Tls12 => &rustls::version::TLS12,
            TlsVersion::Tls13 => &rustls::version::TLS13,
        })
        .collect();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|error| fault("cipher_suites", error))?;
    let builder = match listener.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        mode => builder.with_client_cert_verifier(client_verifier(
            key,
            mode,
            &material.client_ca,
            &provider,
        )?),
    };
    let certificates = material
        .certificates
        .iter()
        .map(|pair| pair.facts.clone())
        .collect();
    let client_ca = material.client_ca.clone();
    let resolver = resolver(key, listener, material, &provider)?;
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = listener
        .alpn
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    // The server's order: AES-128-GCM with SHA-256 costs the least where the CPU has instructions
    // for both, and is no weaker for the life of a connection.
    config.ignore_client_order = true;
    config.send_tls13_tickets = listener.tickets.count;
    if listener.tickets.count == 0 {
        config.session_storage = Arc::new(NoServerSessionStorage {});
    } else {
        let scope = TicketScope {
            listener: format!("{:?}", listener.listen),
            client_auth: listener.client_auth,
            client_ca,
            rotation: listener.tickets.rotation,
        };
        config.ticketer = keys
            .get_or_new(&scope)
            .map_err(|error| fault("tickets", error))?;
        next.0.insert(scope, config.ticketer.clone());
    }
    Ok(Built {
        config: Arc::new(config),
        certificates,
    })
}

impl TicketKeys {
    fn get_or_new(&self, scope: &TicketScope) -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
        if let Some(ticketer) = self.0.get(scope) {
            return Ok(ticketer.clone());
        }
        let seconds = u32::try_from(scope.rotation.as_secs()).unwrap_or(u32::MAX);
        let generate = || match rustls::crypto::aws_lc_rs::Ticketer::new() {
            Ok(ticketer) => Ok(Box::new(Shared(ticketer)) as Box<dyn ProducesTickets>),
            Err(_) => Err(rustls::crypto::GetRandomFailed),
        };
        Ok(Arc::new(rustls::ticketer::TicketRotator::new(
            seconds, generate,
        )?))
    }
}

/// The library hands its ticketer out in an `Arc` and takes it back in a `Box`.
#[derive(Debug)]
struct Shared(Arc<dyn ProducesTickets>);

impl ProducesTickets for Shared {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher)
    }
}

/// The provider with the suites and groups that the operator wants, in the wanted order.
fn restrict(
    key: &str,
    listener: &Listener,
    provider: &CryptoProvider,
) -> Result<CryptoProvider, Fault> {
    let mut provider = provider.clone();
    let suites = match &listener.cipher_suites[..] {
        [] => {
            provider
                .cipher_suites
                .sort_by_key(|suite| suite_rank(suite.suite()));
            provider.cipher_suites
        }
        names => pick(
            key,
            "cipher_suites",
            names,
            &provider.cipher_suites,
            |suite| iana_name(suite.suite()),
        )?,
    };
    provider.cipher_suites = suites;
    let groups = match &listener.groups[..] {
        [] => {
            provider
                .kx_groups
                .sort_by_key(|group| group.name() != NamedGroup::X25519MLKEM768);
            provider.kx_groups
        }
        names => pick(key, "groups", names, &provider.kx_groups, |group| {
            group.name().as_str().unwrap_or("?").to_owned()
        })?,
    };
    provider.kx_groups = groups;
    Ok(provider)
}

/// The items with the wanted names, in the wanted order.
fn pick<T: Copy>(
    key: &str,
    field: &str,
    wanted: &[String],
    known: &[T],
    name: impl Fn(T) -> String,
) -> Result<Vec<T>, Fault> {
    let find = |(index, wanted): (usize, &String)| {
        let found = known
            .iter()
            .copied()
            .find(|item| name(*item).eq_ignore_ascii_case(wanted));
        found.ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|item| name(*item)).collect();
            Fault::new(
                format!("{key}.{field}[{index}]"),
                format!("`{wanted}` is not known"),
                format!("choose from {}", names.join(", ")),
            )
        })
    };
    wanted.iter().enumerate().map(find).collect()
}

/// The registry's spelling; rustls writes `TLS13_` where the registry writes `TLS_`.
pub(crate) fn iana_name(suite: CipherSuite) -> String {
    let name = suite.as_str().unwrap_or("?");
    match name.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}"),
        None => name.to_owned(),
    }
}

fn suite_rank(suite: CipherSuite) -> u8 {
    let name = suite.as_str().unwrap_or("?");
    match () {
        () if name.contains("AES_128_GCM") => 0,
        () if name.contains("AES_256_GCM") => 1,
        () => 2,
    }
}

fn client_verifier(
    key: &str,
    mode: ClientAuth,
    authorities: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, Fault> {
    let fault = |problem: String| {
        Fault::new(
            format!("{key}.client_ca"),
            problem,
            "give CA certificates (X.509 v3, PEM)",
        )
    };
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority.clone())
            .map_err(|error| fault(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = match mode {
        ClientAuth::Optional => builder.allow_unauthenticated(),
        _ => builder,
    };
    builder.build().map_err(|error| fault(error.to_string()))
}

fn resolver(
    key: &str,
    listener: &Listener,
    material: Material,
    provider: &CryptoProvider,
) -> Result<BySni, Fault> {
    let mut resolver = BySni::default();
    for (index, (files, pair)) in listener
        .certificates
        .iter()
        .zip(material.certificates)
        .enumerate()
    {
        let key = format!("{key}.certificate[{index}]");
        let path = files.key.display();
        let certified =
            CertifiedKey::from_der(pair.chain, pair.key, provider).map_err(|error| {
                let (problem, remedy) = match error {
                rustls::Error::InconsistentKeys(_) => (
                    format!("the key in {path} does not belong to {}", files.cert.display()),
                    "give the key that the certificate was made for".to_owned(),
                ),
                error => (
                    format!("the key in {path} cannot be used: {error}"),
                    "give an RSA (2048 to 8192 bits), ECDSA (P-256, P-384, P-521) or Ed25519 key"
                        .to_owned(),
                ),
            };
                Fault::new(format!("{key}.key"), problem, remedy)
            })?;
        let names = if files.names.is_empty() {
            &pair.facts.names
        } else {
            &files.names
        };
        resolver.add(names, Arc::new(certified));
    }
    Ok(resolver)
}

/// Chooses the certificate by the host name that the client asks for.
///
/// An exact name wins over a wildcard; a wildcard stands for one label. Clients that name no host
/// or an unknown one get the first certificate. Where several certificates share a name, the first
/// whose key the client can verify is taken.
#[derive(Default)]
struct BySni {
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By what follows `*.`
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
    default: Vec<Arc<CertifiedKey>>,
}

impl BySni {
    fn add(&mut self, names: &[String], certified: Arc<CertifiedKey>) {
        for name in names {
            let name = name.to_ascii_lowercase();
            let entry = match name.strip_prefix("*.") {
                Some(parent) => self.wildcard.entry(parent.to_owned()),
                None => self.exact.entry(name),
            };
            entry.or_default().push(certified.clone());
        }
        self.default.push(certified);
    }

    fn candidates(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        let Some(name) = name else {
            return &self.default;
        };
        let name = name.to_ascii_lowercase();
        if let Some(found) = self.exact.get(&name) {
            return found;
        }
        let parent = name.split_once('.').map(|(_, parent)| parent);
        match parent.and_then(|parent| self.wildcard.get(parent)) {
            Some(found) => found,
            None => &self.default,
        }
    }
}

impl ResolvesServerCert for BySni {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let candidates = self.candidates(hello.server_name());
        match candidates {
            [only] => Some(only.clone()),
            several => several
                .iter()
                .find(|one| one.key.choose_scheme(hello.signature_schemes()).is_some())
                .or(several.first())
                .cloned(),
        }
    }
}

impl fmt::Debug for BySni {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BySni")
            .field("exact", &self.exact.keys())
            .field("wildcard", &self.wildcard.keys())
            .finish_non_exhaustive()
    }
}
