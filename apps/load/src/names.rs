//! The names of versions, groups, signature algorithms and cipher suites, as users write them.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs;
use rustls::{NamedGroup, ProtocolVersion, SignatureScheme as Scheme, SupportedCipherSuite, SupportedProtocolVersion};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;
use widelane_engine::Engine;

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
pub struct Group(pub(crate) NamedGroup);

/// A signature algorithm of a server's certificate and handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureAlgorithm(pub(crate) Scheme);

/// A cipher suite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suite(pub(crate) SupportedCipherSuite);

/// An unknown name, with the list of the known ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{}`; known are {known}", .name.escape_debug())]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: String,
}

impl Version {
    pub(crate) fn protocol(self) -> &'static SupportedProtocolVersion {
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
        let all = [Self::Tls12, Self::Tls13];
        named("TLS version", name, all.into_iter(), |one| one == name)
    }
}

impl Group {
    fn every() -> impl Iterator<Item = Self> + Clone {
        let stock = aws_lc_rs::ALL_KX_GROUPS.iter().map(|group| group.name());
        stock.chain([SECP384R1MLKEM1024]).map(Self)
    }

    /// Implementation of the group: one of `preferred` if it is among them.
    pub(crate) fn of(self, preferred: &[&'static dyn SupportedKxGroup]) -> Option<&'static dyn SupportedKxGroup> {
        // For the groups that only we have. rustls wants them `'static`, so they are made once.
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
        named("group", name, Self::every(), |one| one == wanted)
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
        let all = SIGNATURE_ALGORITHMS.into_iter().map(|(_, scheme)| Self(scheme));
        named("signature algorithm", name, all, |one| one.eq_ignore_ascii_case(name))
    }
}

impl Suite {
    /// Implementation of the cipher suite: one of `preferred` if it is among them.
    pub(crate) fn of(self, preferred: &[SupportedCipherSuite]) -> SupportedCipherSuite {
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
        let all = aws_lc_rs::ALL_CIPHER_SUITES.iter().copied().map(Suite);
        let is_it = |iana: &str| name.eq_ignore_ascii_case(iana) || name.eq_ignore_ascii_case(&openssl_name(iana));
        named("cipher suite", name, all, is_it)
    }
}

/// The value among `all` whose name `is_it`.
pub(crate) fn named<T: fmt::Display>(
    what: &'static str,
    name: &str,
    all: impl Iterator<Item = T> + Clone,
    is_it: impl Fn(&str) -> bool,
) -> Result<T, UnknownName> {
    let found = all.clone().find(|one| is_it(&one.to_string()));
    found.ok_or_else(|| {
        let known: Vec<String> = all.map(|one| one.to_string()).collect();
        UnknownName {
            what,
            name: name.to_owned(),
            known: known.join(", "),
        }
    })
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
pub(crate) fn signature_name(scheme: Scheme) -> String {
    let known = SIGNATURE_ALGORITHMS.iter().find(|(_, known)| *known == scheme);
    known.map_or_else(|| format!("{scheme:?}"), |(name, _)| (*name).to_owned())
}

/// The name in IANA's registry. rustls writes `TLS13_` for suites of TLS 1.3.
pub(crate) fn suite_name(suite: rustls::CipherSuite) -> String {
    format!("{suite:?}").replacen("TLS13_", "TLS_", 1)
}

/// OpenSSL's name of a suite of TLS 1.2, like `ECDHE-RSA-AES128-GCM-SHA256` or `ECDHE-RSA-CHACHA20-POLY1305`.
fn openssl_name(iana: &str) -> String {
    let name = iana.replacen("TLS_ECDHE", "ECDHE", 1).replace("WITH_", "");
    let name = name.replace("AES_", "AES").replace('_', "-");
    name.replace("POLY1305-SHA256", "POLY1305")
}

/// draft-ietf-tls-ecdhe-mlkem; rustls has no name for it.
const SECP384R1MLKEM1024: NamedGroup = NamedGroup::Unknown(0x11ed);

/// The algorithms in the order of the usual offer. A server with several certificates or hashes follows it.
pub(crate) const SIGNATURE_ALGORITHMS: [(&str, Scheme); 13] = [
    ("ecdsa_secp256r1_sha256", Scheme::ECDSA_NISTP256_SHA256),
    ("ed25519", Scheme::ED25519),
    ("rsa_pss_rsae_sha256", Scheme::RSA_PSS_SHA256),
    ("rsa_pkcs1_sha256", Scheme::RSA_PKCS1_SHA256),
    ("ecdsa_secp384r1_sha384", Scheme::ECDSA_NISTP384_SHA384),
    ("rsa_pss_rsae_sha384", Scheme::RSA_PSS_SHA384),
    ("rsa_pkcs1_sha384", Scheme::RSA_PKCS1_SHA384),
    ("ecdsa_secp521r1_sha512", Scheme::ECDSA_NISTP521_SHA512),
    ("rsa_pss_rsae_sha512", Scheme::RSA_PSS_SHA512),
    ("rsa_pkcs1_sha512", Scheme::RSA_PKCS1_SHA512),
    ("mldsa44", Scheme::ML_DSA_44),
    ("mldsa65", Scheme::ML_DSA_65),
    ("mldsa87", Scheme::ML_DSA_87),
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
        assert_eq!("P-256".parse::<Group>().expect("a spelling").to_string(), "p256");
        assert_eq!(
            "ecdhe-rsa-aes128-gcm-sha256"
                .parse::<Suite>()
                .expect("a spelling")
                .to_string(),
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        );
    }

    #[test]
    fn suites_have_the_names_that_openssl_gives_them() {
        let ours = |name: &str| name.parse::<Suite>().map(|suite| suite.to_string());
        for (openssl, iana) in [
            ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
            (
                "ECDHE-RSA-CHACHA20-POLY1305",
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            ),
            (
                "ECDHE-ECDSA-AES128-GCM-SHA256",
                "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            ),
        ] {
            assert_eq!(ours(openssl), Ok(iana.to_owned()));
        }
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let error = "x448".parse::<Group>().expect_err("not offered").to_string();
        assert!(error.contains("x448") && error.contains("x25519mlkem768"), "{error}");
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
}
