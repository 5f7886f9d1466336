//! What the client offers in its hello and whom it trusts, and from that a rustls configuration.

use crate::error::LoadError;
use crate::lanes::Batching;
use crate::tickets::Tickets;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WantsClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error as TlsError,
    NamedGroup, ProtocolVersion, RootCertStore, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use std::cell::Cell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use widelane_engine::Engine;

/// What the client offers and whom it trusts. The default offers TLS 1.3 and 1.2, the groups
/// X25519, P-256 and P-384 with a share for the first, and rustls's cipher suites and signature
/// algorithms, and trusts the system's bundle.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The one version offered; `None`: both.
    pub version: Option<Version>,
    /// Key exchange groups. A share is sent for the first, so a server that wants another
    /// costs a round trip; nothing is generated in vain for the others. In TLS 1.2 the curve of
    /// an ECDSA certificate must be among them.
    pub groups: Vec<Group>,
    /// Signature algorithms, best first; empty: the default ones.
    pub signature_algorithms: Vec<SignatureAlgorithm>,
    /// Cipher suites, best first; empty: the default ones.
    pub suites: Vec<Suite>,
    /// Application protocols, best first; empty: none is offered.
    pub alpn: Vec<String>,
    /// Whom to trust.
    pub trust: Trust,
    /// What to show to servers that ask for a client's certificate.
    pub identity: Option<Identity>,
    /// Whether to resume sessions with the tickets that servers hand out. Otherwise every
    /// handshake is a full one.
    pub resume: bool,
}

/// Whose certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Issuers in the system's bundle (`SSL_CERT_FILE`, or the distribution's).
    System,
    /// Issuers in this PEM file. A self-signed certificate may be its own issuer.
    File(PathBuf),
    /// Every certificate: the client checks neither the chain, nor the name, nor the server's
    /// signature over the handshake. The cheapest client, without any security.
    Unchecked,
}

/// A client's certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PEM file of the chain, the client's own certificate first.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

/// A protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// A key exchange group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Group(NamedGroup);

/// A signature algorithm of a server's certificate and handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureAlgorithm(SignatureScheme);

/// A cipher suite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suite(SupportedCipherSuite);

/// A name that this client does not know, and those that it does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {name:?}; known are {known}")]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: String,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            version: None,
            groups: [
                NamedGroup::X25519,
                NamedGroup::secp256r1,
                NamedGroup::secp384r1,
            ]
            .map(Group)
            .into(),
            signature_algorithms: Vec::new(),
            suites: Vec::new(),
            alpn: Vec::new(),
            trust: Trust::System,
            identity: None,
            resume: false,
        }
    }
}

impl Offer {
    /// Looks for contradictions within the offer.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let wrong = |text: String| Err(LoadError::Plan(text));
        if self.groups.is_empty() {
            return wrong("no key exchange group is offered; name one with --group".into());
        }
        if let Some(version) = self.version {
            let protocol = version.protocol().version;
            if let Some(suite) = self
                .suites
                .iter()
                .find(|s| s.0.version().version != protocol)
            {
                return wrong(format!(
                    "--cipher {suite} does not belong to --tls {version}"
                ));
            }
            if let Some(group) = self
                .groups
                .iter()
                .find(|g| !g.of(&[]).is_some_and(|g| g.usable_for_version(protocol)))
            {
                return wrong(format!(
                    "--group {group} cannot be used with --tls {version}"
                ));
            }
        }
        if self
            .alpn
            .iter()
            .any(|name| name.is_empty() || name.len() > 255)
        {
            return wrong("--alpn takes names of 1 to 255 bytes".into());
        }
        Ok(())
    }

    /// The configuration for one thread; `in_flight` bounds the tickets worth keeping.
    pub(crate) fn client_config(
        &self,
        in_flight: usize,
        batching: Option<&Batching>,
    ) -> Result<Arc<ClientConfig>, LoadError> {
        let provider = Arc::new(self.provider(batching));
        let schemes = self.signature_schemes(&provider);
        let verifier: Arc<dyn ServerCertVerifier> = match &self.trust {
            Trust::Unchecked => Arc::new(AcceptAll { schemes }),
            trust => {
                let trusted = trust.certificates()?;
                let roots = Arc::new(trusted.roots);
                let inner = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
                    .build()
                    .map_err(|error| LoadError::Plan(error.to_string()))?;
                Arc::new(Restricted {
                    inner,
                    schemes,
                    pinned: trusted.certificates,
                })
            }
        };
        let versions: Vec<&'static SupportedProtocolVersion> = match self.version {
            Some(version) => vec![version.protocol()],
            None => vec![&rustls::version::TLS13, &rustls::version::TLS12],
        };
        // Where only suites of one version were chosen, offering the other is an error to rustls.
        let versions: Vec<_> = versions
            .into_iter()
            .filter(|v| {
                provider
                    .cipher_suites
                    .iter()
                    .any(|s| s.version().version == v.version)
            })
            .collect();
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| LoadError::Plan(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            Some(identity) => identity.shown_by(config)?,
            None => config.with_no_client_auth(),
        };
        config.resumption = if self.resume {
            Resumption::store(Arc::new(Tickets::new(TICKETS_EACH * in_flight)))
        } else {
            Resumption::disabled()
        };
        config.alpn_protocols = self
            .alpn
            .iter()
            .map(|name| name.clone().into_bytes())
            .collect();
        Ok(Arc::new(config))
    }

    /// Those chosen; else all that can be checked, in the order in which browsers list them.
    /// (rustls's own begins with the longest hash, which costs both sides more.)
    fn signature_schemes(&self, provider: &CryptoProvider) -> Vec<SignatureScheme> {
        if !self.signature_algorithms.is_empty() {
            let chosen = self.signature_algorithms.iter();
            return chosen.map(|algorithm| algorithm.0).collect();
        }
        let known = provider.signature_verification_algorithms.mapping;
        SIGNATURE_ALGORITHMS
            .iter()
            .map(|(_, scheme)| *scheme)
            .filter(|scheme| known.iter().any(|(checked, _)| checked == scheme))
            .collect()
    }

    fn provider(&self, batching: Option<&Batching>) -> CryptoProvider {
        let mut provider = match batching {
            Some(batching) => batching.provider.clone(),
            None => aws_lc_rs::default_provider(),
        };
        let groups = self.groups.iter();
        provider.kx_groups = groups
            .filter_map(|group| group.of(&provider.kx_groups))
            .collect();
        if !self.suites.is_empty() {
            let suites = self.suites.iter();
            provider.cipher_suites = suites
                .map(|suite| suite.of(&provider.cipher_suites))
                .collect();
        }
        provider
    }
}

impl Identity {
    /// Completes a configuration in which the client shows this certificate if asked for one.
    fn shown_by(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, LoadError> {
        let wrong = |path: &Path, reason: String| LoadError::Identity {
            path: path.to_owned(),
            reason,
        };
        let read = |path: &Path| std::fs::read(path).map_err(|e| wrong(path, e.to_string()));
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&read(&self.certificate)?)
                .collect::<Result<_, _>>()
                .map_err(|error| wrong(&self.certificate, format!("it is no PEM: {error}")))?;
        if chain.is_empty() {
            let reason = "it holds no certificate (no line `-----BEGIN CERTIFICATE-----`)";
            return Err(wrong(&self.certificate, reason.into()));
        }
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|error| wrong(&self.key, format!("it holds no private key: {error}")))?;
        builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| match error {
                TlsError::InconsistentKeys(_) => wrong(
                    &self.key,
                    format!("it does not belong to {}", self.certificate.display()),
                ),
                // rustls calls a reason that is not its own unexpected.
                TlsError::General(reason) => wrong(&self.key, reason),
                error => wrong(&self.key, error.to_string()),
            })
    }
}

/// The content of a file of trusted certificates.
struct Trusted {
    roots: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
}

impl Trust {
    fn certificates(&self) -> Result<Trusted, LoadError> {
        match self {
            Self::Unchecked => Ok(Trusted {
                roots: RootCertStore::empty(),
                certificates: vec![],
            }),
            Self::File(path) => trusted_in(path),
            Self::System => {
                let path = std::env::var_os("SSL_CERT_FILE")
                    .map(PathBuf::from)
                    .into_iter()
                    .chain(SYSTEM_BUNDLES.iter().map(PathBuf::from))
                    .find(|path| path.exists())
                    .ok_or(LoadError::NoSystemRoots)?;
                trusted_in(&path)
            }
        }
    }
}

fn trusted_in(path: &Path) -> Result<Trusted, LoadError> {
    let wrong = |reason: String| LoadError::CaFile {
        path: path.to_owned(),
        reason,
    };
    // Read apart from parsing, so that a missing file and a malformed one sound different.
    let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("it is no PEM: {error}")))?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots
            .add(certificate.clone())
            .map_err(|error| wrong(format!("a certificate in it cannot be used: {error}")))?;
    }
    if roots.is_empty() {
        return Err(wrong(
            "it holds no certificate (no line `-----BEGIN CERTIFICATE-----`)".into(),
        ));
    }
    Ok(Trusted {
        roots,
        certificates,
    })
}

/// Accepts every certificate and every signature without a look.
#[derive(Debug)]
struct AcceptAll {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        SIGNATURE.set(Some(dss.scheme));
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        SIGNATURE.set(Some(dss.scheme));
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// Checks for real, and offers only the chosen signature algorithms.
#[derive(Debug)]
struct Restricted {
    inner: Arc<WebPkiServerVerifier>,
    schemes: Vec<SignatureScheme>,
    /// Certificates trusted by name of the operator.
    pinned: Vec<CertificateDer<'static>>,
}

impl Restricted {
    fn offered(&self, dss: &DigitallySignedStruct) -> Result<(), TlsError> {
        if self.schemes.contains(&dss.scheme) {
            SIGNATURE.set(Some(dss.scheme));
            return Ok(());
        }
        Err(TlsError::InvalidCertificate(CertificateError::BadSignature))
    }
}

impl ServerCertVerifier for Restricted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let checked = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match checked {
            // What `openssl req -x509` makes is its own CA, and webpki lets no CA be a server
            // (after it has looked at the dates). An operator who names that very certificate
            // as trusted means it.
            Err(TlsError::InvalidCertificate(CertificateError::Other(_)))
                if self.pinned.iter().any(|pinned| pinned == end_entity) =>
            {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&parsed, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.offered(dss)?;
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.offered(dss)?;
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

impl Version {
    fn protocol(self) -> &'static SupportedProtocolVersion {
        match self {
            Self::Tls12 => &rustls::version::TLS12,
            Self::Tls13 => &rustls::version::TLS13,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(version_name(self.protocol().version))
    }
}

impl FromStr for Version {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        [Self::Tls12, Self::Tls13]
            .into_iter()
            .find(|version| version.to_string() == name)
            .ok_or_else(|| UnknownName::new("TLS version", name, ["1.2", "1.3"]))
    }
}

impl Group {
    fn every() -> impl Iterator<Item = Self> {
        let stock = aws_lc_rs::ALL_KX_GROUPS.iter().map(|group| group.name());
        stock.chain([SECP384R1MLKEM1024]).map(Self)
    }

    /// Its implementation: one of `preferred` if it is among them.
    fn of(
        self,
        preferred: &[&'static dyn SupportedKxGroup],
    ) -> Option<&'static dyn SupportedKxGroup> {
        // rustls keeps groups for ever: made once, for what only we have.
        static OURS: LazyLock<Vec<&'static dyn SupportedKxGroup>> =
            LazyLock::new(|| widelane_rustls::kx_groups(Engine::global()));
        let find = |groups: &[&'static dyn SupportedKxGroup]| {
            let found = groups.iter().find(|group| group.name() == self.0);
            found.copied()
        };
        find(preferred)
            .or_else(|| find(aws_lc_rs::ALL_KX_GROUPS))
            .or_else(|| find(&OURS))
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&group_name(self.0))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Group {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let wanted = name.to_ascii_lowercase();
        let wanted = match wanted.as_str() {
            "secp256r1" | "prime256v1" | "p-256" => "p256",
            "secp384r1" | "p-384" => "p384",
            other => other,
        };
        Self::every()
            .find(|group| group.to_string() == wanted)
            .ok_or_else(|| UnknownName::new("group", name, Self::every()))
    }
}

impl fmt::Display for SignatureAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&signature_name(self.0))
    }
}

impl FromStr for SignatureAlgorithm {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        SIGNATURE_ALGORITHMS
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, scheme)| Self(*scheme))
            .ok_or_else(|| {
                let known = SIGNATURE_ALGORITHMS.iter().map(|(known, _)| known);
                UnknownName::new("signature algorithm", name, known)
            })
    }
}

impl Suite {
    /// Its implementation: one of `preferred` if it is among them.
    fn of(self, preferred: &[SupportedCipherSuite]) -> SupportedCipherSuite {
        let found = preferred.iter().find(|suite| **suite == self.0);
        found.copied().unwrap_or(self.0)
    }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&suite_name(self.0.suite()))
    }
}

impl FromStr for Suite {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let known = || aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().map(Suite);
        let wanted = OPENSSL_SUITES
            .iter()
            .find(|(openssl, _)| openssl.eq_ignore_ascii_case(name))
            .map_or_else(
                || name.to_ascii_uppercase(),
                |(_, suite)| suite_name(suite.suite()),
            );
        known()
            .find(|suite| suite.to_string() == wanted)
            .ok_or_else(|| UnknownName::new("cipher suite", name, known()))
    }
}

impl UnknownName {
    fn new<N: fmt::Display>(
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = N>,
    ) -> Self {
        let known: Vec<String> = known.into_iter().map(|name| name.to_string()).collect();
        Self {
            what,
            name: name.to_owned(),
            known: known.join(", "),
        }
    }
}

/// `1.2` or `1.3`.
pub(crate) fn version_name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::TLSv1_2 => "1.2",
        ProtocolVersion::TLSv1_3 => "1.3",
        _ => "unknown",
    }
}

/// The spelling of `--group`.
pub(crate) fn group_name(group: NamedGroup) -> String {
    match group {
        NamedGroup::secp256r1 => "p256".into(),
        NamedGroup::secp384r1 => "p384".into(),
        SECP384R1MLKEM1024 => "secp384r1mlkem1024".into(),
        other => format!("{other:?}").to_ascii_lowercase(),
    }
}

/// The spelling of `--sigalg`.
pub(crate) fn signature_name(scheme: SignatureScheme) -> String {
    let known = SIGNATURE_ALGORITHMS
        .iter()
        .find(|(_, known)| *known == scheme);
    known.map_or_else(|| format!("{scheme:?}"), |(name, _)| (*name).to_owned())
}

/// The algorithm of the signature that a verifier of this thread has been asked about since the
/// last call, if any.
pub(crate) fn take_signature() -> Option<SignatureScheme> {
    SIGNATURE.take()
}

thread_local! {
    // rustls tells this to a verifier only.
    static SIGNATURE: Cell<Option<SignatureScheme>> = const { Cell::new(None) };
}

/// The name IANA registers; rustls marks those of TLS 1.3.
pub(crate) fn suite_name(suite: rustls::CipherSuite) -> String {
    format!("{suite:?}").replacen("TLS13_", "TLS_", 1)
}

/// draft-ietf-tls-ecdhe-mlkem; rustls has no name for it.
const SECP384R1MLKEM1024: NamedGroup = NamedGroup::Unknown(0x11ed);

/// Two tickets are what most servers hand out for a connection.
const TICKETS_EACH: usize = 2;

/// Where distributions keep their bundle: Debian and Arch, Fedora and RHEL, SUSE, Alpine.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// In the order of the usual offer: what a server with several certificates or hashes goes by.
const SIGNATURE_ALGORITHMS: [(&str, SignatureScheme); 13] = [
    (
        "ecdsa_secp256r1_sha256",
        SignatureScheme::ECDSA_NISTP256_SHA256,
    ),
    ("ed25519", SignatureScheme::ED25519),
    ("rsa_pss_rsae_sha256", SignatureScheme::RSA_PSS_SHA256),
    ("rsa_pkcs1_sha256", SignatureScheme::RSA_PKCS1_SHA256),
    (
        "ecdsa_secp384r1_sha384",
        SignatureScheme::ECDSA_NISTP384_SHA384,
    ),
    ("rsa_pss_rsae_sha384", SignatureScheme::RSA_PSS_SHA384),
    ("rsa_pkcs1_sha384", SignatureScheme::RSA_PKCS1_SHA384),
    (
        "ecdsa_secp521r1_sha512",
        SignatureScheme::ECDSA_NISTP521_SHA512,
    ),
    ("rsa_pss_rsae_sha512", SignatureScheme::RSA_PSS_SHA512),
    ("rsa_pkcs1_sha512", SignatureScheme::RSA_PKCS1_SHA512),
    ("mldsa44", SignatureScheme::ML_DSA_44),
    ("mldsa65", SignatureScheme::ML_DSA_65),
    ("mldsa87", SignatureScheme::ML_DSA_87),
];

/// The other spelling of TLS 1.2's suites that people know.
static OPENSSL_SUITES: [(&str, SupportedCipherSuite); 6] = [
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for group in Group::every() {
            assert_eq!(group.to_string().parse(), Ok(group));
            assert!(group.of(&[]).is_some(), "{group}");
        }
        for suite in aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().map(Suite) {
            assert_eq!(suite.to_string().parse(), Ok(suite));
        }
        for (name, scheme) in SIGNATURE_ALGORITHMS {
            assert_eq!(name.parse(), Ok(SignatureAlgorithm(scheme)));
            assert_eq!(SignatureAlgorithm(scheme).to_string(), name);
        }
        assert_eq!(
            "P-256".parse::<Group>().expect("a spelling").to_string(),
            "p256"
        );
        assert_eq!(
            "ecdhe-rsa-aes128-gcm-sha256"
                .parse::<Suite>()
                .expect("a spelling")
                .to_string(),
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        );
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let error = "x448"
            .parse::<Group>()
            .expect_err("not offered")
            .to_string();
        assert!(
            error.contains("x448") && error.contains("x25519mlkem768"),
            "{error}"
        );
        assert!(
            "1.1"
                .parse::<Version>()
                .expect_err("old")
                .to_string()
                .contains("1.2, 1.3")
        );
        assert!("md5".parse::<SignatureAlgorithm>().is_err());
        assert!("RC4-MD5".parse::<Suite>().is_err());
    }

    #[test]
    fn offers_that_cannot_work_are_refused() {
        let text = |change: fn(&mut Offer)| {
            let mut offer = Offer::default();
            change(&mut offer);
            offer.check().expect_err("a contradiction").to_string()
        };
        assert!(text(|o| o.groups.clear()).contains("--group"));
        let hybrid = text(|o| {
            o.version = Some(Version::Tls12);
            o.groups = vec!["x25519mlkem768".parse().expect("known")];
        });
        assert!(hybrid.contains("--group x25519mlkem768"), "{hybrid}");
        let suite = text(|o| {
            o.version = Some(Version::Tls13);
            o.suites = vec!["ECDHE-RSA-AES128-GCM-SHA256".parse().expect("known")];
        });
        assert!(suite.contains("--tls 1.3"), "{suite}");
        assert!(text(|o| o.alpn = vec![String::new()]).contains("--alpn"));
    }

    #[test]
    fn chosen_suites_are_those_of_the_provider() {
        let preferred = widelane_rustls::default_provider().cipher_suites;
        for suite in preferred.iter().filter_map(SupportedCipherSuite::tls13) {
            let chosen: Suite = suite_name(suite.common.suite).parse().expect("known");
            let chosen = chosen.of(&preferred).tls13().expect("the same version");
            assert!(std::ptr::eq(chosen, suite), "{suite:?}");
        }
    }

    #[test]
    fn suites_of_one_version_narrow_the_versions() {
        let offer = Offer {
            suites: vec!["TLS_AES_128_GCM_SHA256".parse().expect("known")],
            trust: Trust::Unchecked,
            ..Offer::default()
        };
        assert!(offer.client_config(1, None).is_ok());
    }
}
