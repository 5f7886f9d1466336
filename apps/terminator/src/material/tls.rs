//! Makes a `rustls::ServerConfig` out of a listener's configuration and its files.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::{ClientAuth, ClientAuthMode, Fault, KeyKind, Listener, TlsVersion, UnknownNames};
use crate::crypto::Crypto;
use crate::front::suites;
use crate::material::files::Files;
use crate::material::pinned::Pinned;
use crate::material::resumption::{Noting, TicketKeys, TicketScope, Tickets};
use crate::observe::reason;
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CipherSuite, NamedGroup, ProtocolVersion, ServerConfig, SignatureAlgorithm, SignatureScheme,
    SupportedProtocolVersion,
};
use rustls_pki_types::DnsName;
use widelane_ocsp::ServedCertificate;

/// Builds a listener's `ServerConfig`. `before` has the ticket keys of the last configuration,
/// `next` gets those of this one.
pub(crate) fn build(
    key: &str,
    listener: &Listener,
    mut files: Files,
    crypto: &Crypto,
    clock: Arc<dyn TimeProvider>,
    before: &TicketKeys,
    next: &mut TicketKeys,
) -> Result<Arc<ServerConfig>, Fault> {
    let provider = Arc::new(restrict(key, listener, crypto)?);
    let verifier = match &listener.client_auth {
        None => None,
        Some(wanted) => Some(client_verifier(key, wanted, &files, &provider)?),
    };
    let ticket_keys = std::mem::take(&mut files.ticket_keys);
    let resolver = resolver(key, listener, files, &provider, clock.clone())?;
    check_versions(key, listener, &provider, &resolver.default)?;
    let builder = ServerConfig::builder_with_details(provider.clone(), clock)
        .with_protocol_versions(&protocol_versions(&listener.versions))
        .map_err(|error| {
            let remedy = "allow at least one suite and one group for each version";
            Fault::new(format!("{key}.versions"), error.to_string(), remedy)
        })?;
    let builder = match &verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::new(Noting(verifier.clone()))),
    };
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = protocols(&listener.alpn);
    // The server's order: AES-128-GCM with SHA-256 costs the least on CPUs with instructions for
    // both, and is strong enough.
    config.ignore_client_order = true;
    config.send_tls13_tickets = listener.tickets.count;
    if listener.tickets.count == 0 {
        config.session_storage = Arc::new(NoServerSessionStorage {});
    } else {
        let scope = TicketScope {
            listener: format!("{:?}", listener.listen),
            client_auth: listener.client_auth.as_ref().map(|wanted| wanted.mode),
            rotation: ticket_keys.is_empty().then_some(listener.tickets.rotation),
        };
        let keys = next.get(scope, &ticket_keys, before).map_err(|error| {
            let remedy = "start again";
            Fault::new(format!("{key}.tickets"), error.to_string(), remedy)
        })?;
        Tickets::install(&mut config, keys, verifier, listener.tickets.session);
    }
    Ok(Arc::new(config))
}

/// The protocols for rustls. HTTP/1.0 has a name of its own there, which some clients offer alone, and
/// servers of HTTP/1.1 speak it.
fn protocols(alpn: &[String]) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let has = |wanted: &str| alpn.iter().any(|name| name == wanted);
    if has(HTTP_1_1) && !has(HTTP_1_0) {
        names.push(HTTP_1_0.into());
    }
    names
}

/// The versions as rustls names them.
pub(crate) fn protocol_versions(versions: &[TlsVersion]) -> Vec<&'static SupportedProtocolVersion> {
    let named = |version: &TlsVersion| match version {
        TlsVersion::Tls12 => &rustls::version::TLS12,
        TlsVersion::Tls13 => &rustls::version::TLS13,
    };
    versions.iter().map(named).collect()
}

/// The provider with the suites and groups of the configuration, in its order.
fn restrict(key: &str, listener: &Listener, crypto: &Crypto) -> Result<CryptoProvider, Fault> {
    let mut provider = crypto.provider.clone();
    let suites = match &listener.cipher_suites[..] {
        [] => {
            provider.cipher_suites.sort_by_key(|suite| suite_rank(suite.suite()));
            provider.cipher_suites
        }
        names => pick(key, "cipher_suites", names, &provider.cipher_suites, |suite| {
            iana_name(suite.suite())
        })?,
    };
    provider.cipher_suites = suites.into_iter().map(suites::for_server).collect();
    provider.kx_groups = match &listener.groups[..] {
        [] => usual_groups(crypto),
        names => pick(key, "groups", names, &crypto.groups, |group| group_name(group.name()))?,
    };
    Ok(provider)
}

/// The groups of a listener and of backends that name none: the same, in the same order, with and without batching.
pub(crate) fn usual_groups(crypto: &Crypto) -> Vec<&'static dyn SupportedKxGroup> {
    let find = |name| crypto.groups.iter().find(|group| group.name() == name);
    USUAL_GROUPS.into_iter().filter_map(find).copied().collect()
}

/// Refuses a listener that has no version on which a client could agree, and tells of one of two that
/// cannot be used: rustls looks neither at the groups of each version nor at the keys of certificates.
fn check_versions(
    key: &str,
    listener: &Listener,
    provider: &CryptoProvider,
    certificates: &[Arc<ServedCertificate>],
) -> Result<(), Fault> {
    let versions = protocol_versions(&listener.versions);
    let faults: Vec<Fault> = (versions.iter().copied())
        .filter_map(|version| unusable(key, version, provider, certificates))
        .collect();
    let all = faults.len() == versions.len();
    for fault in faults {
        if all {
            return Err(fault);
        }
        tracing::info!("{}: {}; {}", fault.key, fault.problem, fault.remedy);
    }
    Ok(())
}

/// Reason why no client can agree on this version, if so.
fn unusable(
    key: &str,
    version: &'static SupportedProtocolVersion,
    provider: &CryptoProvider,
    certificates: &[Arc<ServedCertificate>],
) -> Option<Fault> {
    let is_tls12 = version.version == ProtocolVersion::TLSv1_2;
    let (name, suite, other) = match is_tls12 {
        true => ("1.2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "1.3"),
        false => ("1.3", "TLS_AES_128_GCM_SHA256", "1.2"),
    };
    let suites = provider.cipher_suites.iter();
    let suites: Vec<_> = suites.filter(|one| one.version() == version).collect();
    let mut groups = provider.kx_groups.iter();
    // Suites of TLS 1.3 are for every kind of key, and those of TLS 1.2 for none of ML-DSA.
    let fits = |certificate: &Arc<ServedCertificate>| {
        let algorithm = certificate.plain.key.algorithm();
        let mut suites = suites.iter();
        !is_tls12
            || kind(&certificate.plain) != Some(KeyKind::MlDsa)
                && suites.any(|suite| suite.usable_for_signature_algorithm(algorithm))
    };
    let (field, problem, remedy) = if suites.is_empty() {
        (
            "cipher_suites",
            "none of these is",
            format!("add one, for example {suite}"),
        )
    } else if !groups.any(|one| one.usable_for_version(version.version)) {
        ("groups", "none of these is", "add one, for example X25519".to_owned())
    } else if !certificates.iter().any(fits) {
        let remedy = "allow more of them, or use another certificate".to_owned();
        ("cipher_suites", "no certificate has a key for those", remedy)
    } else {
        return None;
    };
    Some(Fault::new(
        format!("{key}.{field}"),
        format!("{problem} for TLS {name}, which `versions` allows"),
        format!("{remedy}, or set versions = [\"{other}\"]"),
    ))
}

/// The items of `known` with the names in `wanted`, in the order of `wanted`.
fn pick<T: Copy>(
    key: &str,
    field: &str,
    wanted: &[String],
    known: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<Vec<T>, Fault> {
    let find = |(index, wanted): (usize, &String)| {
        let written = OTHER_SPELLINGS
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(wanted))
            .map_or(wanted.as_str(), |(_, name)| name);
        let found = known
            .iter()
            .copied()
            .find(|item| name(*item).eq_ignore_ascii_case(written));
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
pub(crate) fn iana_name(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS13_AES_128_CCM_SHA256 => "TLS_AES_128_CCM_SHA256",
        CipherSuite::TLS13_AES_128_CCM_8_SHA256 => "TLS_AES_128_CCM_8_SHA256",
        suite => suite.as_str().unwrap_or("?"),
    }
}

/// The registry's spelling.
pub(crate) fn group_name(group: NamedGroup) -> &'static str {
    match group {
        NamedGroup::secp256r1MLKEM768 => "SecP256r1MLKEM768",
        NamedGroup::Unknown(SECP384R1_MLKEM1024) => "SecP384r1MLKEM1024",
        group => group.as_str().unwrap_or("?"),
    }
}

fn suite_rank(suite: CipherSuite) -> usize {
    let name = suite.as_str().unwrap_or("?");
    let order = ["AES_128_GCM", "AES_256_GCM"];
    order.iter().position(|one| name.contains(one)).unwrap_or(order.len())
}

/// The verifier of client certificates. It verifies signatures with the provider, which may batch
/// them.
fn client_verifier(
    key: &str,
    wanted: &ClientAuth,
    files: &Files,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Fault> {
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(files.client_ca.roots.clone()), provider.clone());
    let builder = match wanted.mode {
        ClientAuthMode::Optional => builder.allow_unauthenticated(),
        ClientAuthMode::Required => builder,
    };
    let names = files.client_ca.roots.roots.iter();
    // Each name is a SEQUENCE behind two bytes of length.
    let length: usize = names.map(|one| 2 + sequence(one.subject.len())).sum();
    let builder = if length > MOST_NAMES {
        tracing::warn!(
            "{key}.client_auth.ca: {} is too long to be shown to clients: the names of its {} authorities have \
             {length} bytes, and a request for a certificate has room for {MOST_NAMES}; clients are asked for one \
             without these names, and some of those that have several may choose a wrong one; name fewer authorities",
            wanted.ca.display(),
            files.client_ca.roots.len(),
        );
        builder.clear_root_hint_subjects()
    } else {
        builder
    };
    let builder = builder
        .with_crls(files.client_crl.iter().cloned())
        .enforce_revocation_expiration();
    let verifier = builder.build().map_err(|error| match error {
        VerifierBuilderError::InvalidCrl(error) => Fault::new(
            format!("{key}.client_auth.crl"),
            reason::of(&error.into()),
            "give whole version 2 lists (PEM), as `openssl ca -gencrl` makes them",
        ),
        _ => Fault::new(
            format!("{key}.client_auth.ca"),
            "there are no authorities",
            "give CA certificates (X.509, PEM)",
        ),
    })?;
    let (listed, lists) = (files.client_ca.listed.clone(), &files.client_crl);
    Ok(Arc::new(Pinned::new(verifier, listed, lists)))
}

/// Length of a SEQUENCE with contents of this length (X.690, section 8.1.3).
fn sequence(contents: usize) -> usize {
    contents
        + match contents {
            0..=0x7f => 2,
            0x80..=0xff => 3,
            0x100..=0xffff => 4,
            _ => 5,
        }
}

fn resolver(
    key: &str,
    listener: &Listener,
    files: Files,
    provider: &CryptoProvider,
    clock: Arc<dyn TimeProvider>,
) -> Result<BySni, Fault> {
    let mut resolver = BySni {
        exact: HashMap::new(),
        wildcard: HashMap::new(),
        default: Vec::new(),
        first: Names::default(),
        companions: 0,
        tls13: listener.versions.contains(&TlsVersion::Tls13),
        refuses_unknown: listener.unknown_names == UnknownNames::Refuse,
        clock,
    };
    let mut all = Vec::new();
    for pair in files.certificates {
        let facts = pair.identity.facts.clone();
        let certified = pair.identity.certify(provider)?;
        let names = match &pair.files.names[..] {
            [] => &facts.names[..],
            names => names,
        };
        let names = Names {
            hosts: names.iter().map(|name| asked_for(name)).collect(),
            addresses: facts.addresses,
        };
        let candidate = Arc::new(ServedCertificate::new(certified, pair.staple));
        all.push((candidate.clone(), pair.files.cert));
        resolver.add(names, candidate);
    }
    let mut named = resolver.exact.keys().chain(resolver.wildcard.keys());
    // A common name that stands for the names that a certificate lacks may be any text.
    if resolver.refuses_unknown && !named.any(|name| DnsName::try_from(name.as_str()).is_ok()) {
        return Err(Fault::new(
            format!("{key}.unknown_names"),
            "no certificate has a host name, so that every client would be refused",
            "set `names` of a certificate, or unknown_names = \"default\"",
        ));
    }
    resolver.prefer(&listener.certificate_preference);
    for file in resolver.never_shown(&all) {
        tracing::warn!(
            "{key}: no client gets the certificate in {}: others before it have its names, and keys of the same kind; \
             remove it, or put it first",
            file.display()
        );
    }
    Ok(resolver)
}

/// Chooses the certificate by the host name that the client asks for (Server Name Indication).
///
/// An exact name wins over a wildcard; a wildcard stands for one label. If several certificates
/// have that name, the client gets the first kind of key in `certificate_preference` that it can
/// verify. A client that names no host, or an unknown one, gets the first certificate or a
/// companion of it (a certificate that has all its names and IP addresses). If the client can verify
/// none of these, it gets any certificate that it can verify.
struct BySni {
    exact: HashMap<String, Vec<Arc<ServedCertificate>>>,
    /// The key is the name without `*.`.
    wildcard: HashMap<String, Vec<Arc<ServedCertificate>>>,
    default: Vec<Arc<ServedCertificate>>,
    /// Names of the first certificate.
    first: Names,
    /// The length of the part of `default` that has all these names: it comes first.
    companions: usize,
    /// True if the listener speaks TLS 1.3.
    tls13: bool,
    /// True if a client gets no certificate that names no host or an unknown one.
    refuses_unknown: bool,
    /// Clock for OCSP responses, which expire.
    clock: Arc<dyn TimeProvider>,
}

/// Names that a certificate is for.
#[derive(Clone, Default)]
struct Names {
    /// In lower case.
    hosts: Vec<String>,
    addresses: Vec<Vec<u8>>,
}

impl Names {
    /// Returns whether these are all the names of another certificate, which has some.
    fn cover(&self, others: &Self) -> bool {
        let has_some = !others.hosts.is_empty() || !others.addresses.is_empty();
        has_some
            && others.hosts.iter().all(|host| self.hosts.contains(host))
            && others.addresses.iter().all(|one| self.addresses.contains(one))
    }
}

impl BySni {
    fn add(&mut self, names: Names, candidate: Arc<ServedCertificate>) {
        if self.default.is_empty() {
            self.first.clone_from(&names);
        }
        let companion = self.default.is_empty() || names.cover(&self.first);
        for name in names.hosts {
            let entry = match name.strip_prefix("*.") {
                Some(parent) => self.wildcard.entry(parent.to_owned()),
                None => self.exact.entry(name),
            };
            entry.or_default().push(candidate.clone());
        }
        if companion {
            self.default.insert(self.companions, candidate);
            self.companions += 1;
        } else {
            self.default.push(candidate);
        }
    }

    /// Sorts the candidates of each name by kind of key; equal kinds keep the order of the file.
    fn prefer(&mut self, kinds: &[KeyKind]) {
        let sort = |candidates: &mut [Arc<ServedCertificate>]| {
            candidates.sort_by_key(|candidate| {
                let kind = kind(&candidate.plain);
                let rank = kinds.iter().position(|wanted| kind == Some(*wanted));
                rank.unwrap_or(kinds.len())
            });
        };
        let named = self.exact.values_mut().chain(self.wildcard.values_mut());
        named.for_each(|candidates| sort(candidates));
        let (companions, others) = self.default.split_at_mut(self.companions);
        sort(companions);
        sort(others);
    }

    /// The files of certificates that stand behind another one for each name, whatever the client verifies.
    fn never_shown<'a>(&self, all: &'a [(Arc<ServedCertificate>, PathBuf)]) -> Vec<&'a PathBuf> {
        let kinds: HashMap<_, _> = all
            .iter()
            .map(|(one, _)| (Arc::as_ptr(one), schemes(&one.plain)))
            .collect();
        let named = self.exact.values().chain(self.wildcard.values());
        let mut shown = HashSet::new();
        for candidates in named.chain([&self.default]) {
            let mut before = HashSet::new();
            for one in candidates.iter().map(Arc::as_ptr) {
                if before.insert(kinds.get(&one)) {
                    shown.insert(one);
                }
            }
        }
        let is_hidden = |(one, _): &&(Arc<ServedCertificate>, _)| !shown.contains(&Arc::as_ptr(one));
        all.iter().filter(is_hidden).map(|(_, file)| file).collect()
    }

    fn candidates(&self, name: Option<&str>) -> &[Arc<ServedCertificate>] {
        match name.and_then(|name| self.named(&asked_for(name))) {
            Some(found) => found,
            None if self.refuses_unknown => &[],
            None => &self.default,
        }
    }

    fn named(&self, name: &str) -> Option<&Vec<Arc<ServedCertificate>>> {
        let wildcard = || {
            let (_, parent) = name.split_once('.')?;
            self.wildcard.get(parent)
        };
        self.exact.get(name).or_else(wildcard)
    }
}

impl ResolvesServerCert for BySni {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certified = |one: &Arc<ServedCertificate>| one.certified(&*self.clock);
        let several = match self.candidates(hello.server_name()) {
            [only] => return Some(certified(only)),
            several => several,
        };
        let mut offered = hello.signature_schemes().to_vec();
        // TLS 1.2 has no ML-DSA, but clients may offer it there, too. rustls does not say which
        // version was chosen; the suites show it.
        let is_tls13 = |suite: &CipherSuite| suite.as_str().is_some_and(|name| name.starts_with("TLS13_"));
        if !self.tls13 || !hello.cipher_suites().iter().any(is_tls13) {
            offered.retain(|scheme| !ML_DSA.contains(scheme));
        }
        several
            .iter()
            .find(|one| one.plain.key.choose_scheme(&offered).is_some())
            .or(several.first())
            .map(certified)
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

/// A host name that a client asks for, as the configuration has it: without the dot that ends an
/// absolute one, which RFC 6066 (section 3) forbids and some clients send.
pub(crate) fn asked_for(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The kind of a certificate's key. rustls has no name for the algorithm ML-DSA, but for its
/// schemes.
fn kind(certified: &CertifiedKey) -> Option<KeyKind> {
    match certified.key.algorithm() {
        SignatureAlgorithm::ECDSA => Some(KeyKind::Ecdsa),
        SignatureAlgorithm::ED25519 => Some(KeyKind::Ed25519),
        SignatureAlgorithm::RSA => Some(KeyKind::Rsa),
        _ => certified.key.choose_scheme(&ML_DSA).map(|_| KeyKind::MlDsa),
    }
}

/// The signatures that a key makes, by their place in [`SCHEMES`].
fn schemes(certified: &CertifiedKey) -> [bool; SCHEMES.len()] {
    SCHEMES.map(|scheme| certified.key.choose_scheme(&[scheme]).is_some())
}

/// One for each kind of key that clients can tell.
const SCHEMES: [SignatureScheme; 9] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::ML_DSA_44,
    SignatureScheme::ML_DSA_65,
    SignatureScheme::ML_DSA_87,
];

const ML_DSA: [SignatureScheme; 3] = [
    SignatureScheme::ML_DSA_44,
    SignatureScheme::ML_DSA_65,
    SignatureScheme::ML_DSA_87,
];

const HTTP_1_0: &str = "http/1.0";
const HTTP_1_1: &str = "http/1.1";

/// Groups of packaging/widelane.toml. Others cost more, and have to be asked for by name.
const USUAL_GROUPS: [NamedGroup; 4] = [
    NamedGroup::X25519MLKEM768,
    NamedGroup::X25519,
    NamedGroup::secp256r1,
    NamedGroup::secp384r1,
];
/// Most bytes of the names in a request for a certificate, whose length has two bytes (RFC 5246, section 7.4.4); in TLS
/// 1.3 those of all extensions together have two (RFC 8446, section 4.3.2).
const MOST_NAMES: usize = 0xffff - 1024;

/// The group SecP384r1MLKEM1024 of draft-ietf-tls-ecdhe-mlkem. rustls has no name for it.
const SECP384R1_MLKEM1024: u16 = 0x11ed;

/// Other common names of groups, and the registry's.
const OTHER_SPELLINGS: [(&str, &str); 5] = [
    ("P-256", "secp256r1"),
    ("P256", "secp256r1"),
    ("prime256v1", "secp256r1"),
    ("P-384", "secp384r1"),
    ("P384", "secp384r1"),
];
