//! A certificate chain and its private key, from files to what handshakes show.
//!
//! Servers show it to clients, and we to backends. What is wrong is said of the certificate or of the key that it
//! is wrong with: the library that loads both looks at the leaf with the eyes of a client, and blames
//! the key for what it does not like in there. A server need not like its own certificate; nginx
//! serves one of version 1, too.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use widelane_pem::Placed;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;
use zeroize::Zeroizing;

use crate::config::Fault;
use crate::material::certificate::Facts;
use crate::material::read::{pem_fault, read_file, read_key};

/// A certificate chain and a key. Whether they belong together is seen when the key is loaded.
pub(crate) struct Identity {
    at: At,
    /// The files of the chain and of the key.
    cert: PathBuf,
    key_file: PathBuf,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    /// Line at which each certificate begins in its file.
    lines: Vec<usize>,
    /// Facts about the first certificate.
    pub(crate) facts: Facts,
    key: Zeroizing<PrivateKeyDer<'static>>,
}

/// The keys of the configuration that name the two files.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl At {
    /// In a section that has both.
    pub(crate) fn section(key: &str) -> Self {
        Self {
            cert: format!("{key}.cert"),
            key: format!("{key}.key"),
        }
    }
}

impl Identity {
    pub(crate) fn read(at: At, cert: &Path, key_file: &Path) -> Result<Self, Fault> {
        let text = read_file(&at.cert, cert)?;
        let found = widelane_pem::chain(&text).map_err(|fault| pem_fault(&at.cert, cert, fault))?;
        let facts = look_at(&at.cert, cert, &found)?;
        let key = read_key(&at.key, key_file)?;
        let (lines, chain) = found.into_iter().map(|one| (one.line, one.value)).unzip();
        Ok(Self {
            at,
            cert: cert.to_owned(),
            key_file: key_file.to_owned(),
            chain,
            lines,
            facts,
            key,
        })
    }

    /// Loads the key, and sees whether it is the certificate's.
    pub(crate) fn certify(self, provider: &CryptoProvider) -> Result<CertifiedKey, Fault> {
        let (cert, key_file) = (self.cert.display(), self.key_file.display());
        if self.facts.is_for_pss {
            return Err(Fault::new(
                self.at.cert,
                format!("the certificate in {cert} has an RSA key that is for PSS alone (id-RSASSA-PSS)"),
                "use one for an ordinary RSA key (rsaEncryption), which signs PSS as well",
            ));
        }
        let loaded = provider.key_provider.load_private_key(self.key.clone_key());
        let key = loaded.map_err(|error| {
            let reason = match (unknown_kind(&self.facts.public_key), error) {
                (Some(kind), _) => format!("it is a key of {kind}"),
                // rustls would print "unexpected error" before this text.
                (None, rustls::Error::General(reason)) => reason,
                (None, error) => error.to_string(),
            };
            Fault::new(
                self.at.key.clone(),
                format!("the key in {key_file} cannot be used: {reason}"),
                "give an RSA (2048 to 8192 bits), ECDSA (P-256, P-384, P-521), Ed25519 or ML-DSA key",
            )
        })?;
        let Some(public) = key.public_key() else {
            return Ok(CertifiedKey::new(self.chain, key));
        };
        let is_of =
            |der: &CertificateDer<'_>| Facts::of(der).is_some_and(|facts| is_same_key(&facts.public_key, &public));
        match self.chain.iter().position(is_of) {
            Some(0) => Ok(CertifiedKey::new(self.chain, key)),
            Some(place) => Err(Fault::new(
                self.at.cert,
                format!(
                    "the key in {key_file} belongs to certificate {} of {cert} (line {}), not to the first",
                    place + 1,
                    self.lines[place]
                ),
                ORDER,
            )),
            None => Err(Fault::new(
                self.at.key,
                format!("the key in {key_file} does not belong to {cert}"),
                "give the key that the certificate was made for",
            )),
        }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("cert", &self.cert)
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

/// Returns whether two keys (SubjectPublicKeyInfo) are the same. Their algorithms may be written in two ways.
fn is_same_key(one: &[u8], other: &[u8]) -> bool {
    let bits = |der| {
        let parsed = SubjectPublicKeyInfo::from_der(der).ok();
        parsed.map(|(_, info)| info.subject_public_key.data)
    };
    one == other || bits(one).is_some_and(|bits_of_one| bits(other) == Some(bits_of_one))
}

/// The name of a kind of key (SubjectPublicKeyInfo) that is in use elsewhere, and that nothing here signs with.
fn unknown_kind(public_key: &[u8]) -> Option<&'static str> {
    let (_, info) = SubjectPublicKeyInfo::from_der(public_key).ok()?;
    let curve = info.algorithm.parameters.as_ref().and_then(|one| one.as_oid().ok());
    let names = [Some(info.algorithm.algorithm), curve].into_iter().flatten();
    names.map(|name| name.to_id_string()).find_map(|name| {
        let known = |(prefix, _): &&(&str, &str)| name.starts_with(prefix);
        UNKNOWN_KINDS.iter().find(known).map(|(_, kind)| *kind)
    })
}

/// Looks at a chain, tells what clients will not like, and refuses what no client can take. What is
/// in the first certificate.
fn look_at(key: &str, path: &Path, chain: &[Placed<CertificateDer<'static>>]) -> Result<Facts, Fault> {
    let file = path.display();
    let mut all = Vec::new();
    for (place, one) in chain.iter().enumerate() {
        let facts = Facts::of(&one.value).ok_or_else(|| {
            Fault::new(
                key,
                format!("certificate {} of {file} (line {}) is damaged", place + 1, one.line),
                "write this file anew",
            )
        })?;
        if let Some(problem) = facts.invalid_at(UnixTime::now()) {
            let which = match place {
                0 => "the certificate".to_owned(),
                _ => format!("certificate {} (line {})", place + 1, one.line),
            };
            tracing::warn!(
                %file,
                "{which} {problem}: clients refuse it; renew it, or see whether this machine's clock is right",
            );
        }
        all.push(facts);
    }
    if let Some(place) = out_of_order(&all) {
        tracing::warn!(
            %file,
            "certificate {} (line {}) is not that of the issuer of the one before it: clients may find no way to \
             an authority that they know; {ORDER}",
            place + 1,
            chain[place].line,
        );
    }
    for name in all[0].names.iter().filter(|name| !is_for_hosts(name)) {
        tracing::warn!(
            %file,
            "the name `{}` in the certificate is for no host: a `*` stands for the first label alone, as in \
             `*.example.org`",
            name.escape_debug(),
        );
    }
    if all[0].has_unknown_names {
        tracing::warn!(
            %file,
            "the names in the certificate are in a form that is not understood; set `names`, or renew it",
        );
    }
    check_length(key, path, chain)?;
    Ok(all.swap_remove(0))
}

/// Returns whether a name is one that a client can ask for, or stands for such names (RFC 9525, section 6.3).
fn is_for_hosts(name: &str) -> bool {
    let host = name.strip_prefix("*.").unwrap_or(name);
    !host.is_empty() && !host.contains('*')
}

/// The first certificate that is not the issuer of the one before it.
fn out_of_order(chain: &[Facts]) -> Option<usize> {
    let pairs = chain.windows(2);
    let place = pairs.into_iter().position(|pair| pair[0].issuer != pair[1].subject);
    place.map(|place| place + 1)
}

/// The message with the chain has a length of three bytes, and clients have limits of their own.
fn check_length(key: &str, path: &Path, chain: &[Placed<CertificateDer<'static>>]) -> Result<(), Fault> {
    let of_each = |one: &Placed<CertificateDer<'static>>| one.value.len() + FRAME;
    let length: usize = chain.iter().map(of_each).sum();
    let file = path.display();
    if length > LONGEST {
        let problem = format!("the chain in {file} has {length} bytes, and TLS has no room for them");
        return Err(Fault::new(
            key,
            problem,
            "keep the certificate of the key and its issuers",
        ));
    }
    if length > LONG {
        tracing::warn!(
            %file,
            "the chain has {length} bytes: many clients refuse more than {LONG}; keep the certificate of the key \
             and its issuers",
        );
    }
    Ok(())
}

/// Beginnings of the identifiers of kinds of key and of curves.
const UNKNOWN_KINDS: [(&str, &str); 10] = [
    ("1.2.840.10040.4.1", "DSA"),
    ("1.3.101.113", "Ed448"),
    ("1.3.101.110", "X25519, which signs nothing"),
    ("1.3.101.111", "X448, which signs nothing"),
    ("1.3.132.0.10", "the curve secp256k1"),
    ("1.3.132.0.33", "the curve P-224"),
    ("1.2.840.10045.3.1.1", "the curve P-192"),
    ("1.3.36.3.3.2.8.1.1", "a Brainpool curve"),
    ("1.2.156.10197.1.301", "SM2"),
    ("2.16.840.1.101.3.4.3.2", "SLH-DSA"),
];
const ORDER: &str = "put the certificate of the key first, and behind each one that of its issuer";
/// Around each certificate in a message: two lengths (RFC 8446, section 4.4.2).
const FRAME: usize = 3 + 2;
/// Room in 2^24 bytes beside the rest of the message, which may have an OCSP response.
const LONGEST: usize = (1 << 24) - (1 << 17);
/// rustls takes no longer messages; OpenSSL takes 100 KiB.
const LONG: usize = (1 << 16) - 1;

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::crypto::aws_lc_rs::default_provider;
    use tempfile::TempDir;

    use super::*;

    impl Identity {
        /// One that no file has.
        pub(crate) fn made(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
            let file = PathBuf::from("made");
            Self {
                at: At::section("test"),
                cert: file.clone(),
                key_file: file,
                lines: vec![1; chain.len()],
                facts: Facts::of(&chain[0]).unwrap(),
                chain,
                key: Zeroizing::new(key),
            }
        }
    }

    /// A root, an authority that it has signed, and a leaf of that, as PEM, with the leaf's key.
    fn chain() -> [String; 4] {
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params
        };
        let new = || KeyPair::generate().unwrap();
        let root = CertifiedIssuer::self_signed(authority("root"), new()).unwrap();
        let middle = CertifiedIssuer::signed_by(authority("middle"), new(), &root).unwrap();
        let key = new();
        let leaf = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &middle).unwrap();
        [root.pem(), middle.pem(), leaf.pem(), key.serialize_pem()]
    }

    /// Loads these two files. Returns the number of certificates that are shown, or the message.
    fn certified(cert: &str, key: &str) -> Result<usize, String> {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.pem"), cert).unwrap();
        fs::write(path("a.key"), key).unwrap();
        let read = Identity::read(At::section("c"), &path("a.pem"), &path("a.key"));
        let certified = read.and_then(|identity| identity.certify(&default_provider()));
        let message = |fault: Fault| format!("{}: {}; {}", fault.key, fault.problem, fault.remedy);
        certified.map(|certified| certified.cert.len()).map_err(message)
    }

    #[track_caller]
    fn refused(cert: &str, key: &str, words: [&str; 3]) {
        let message = certified(cert, key).unwrap_err();
        assert!(words.iter().all(|words| message.contains(words)), "{message}");
    }

    #[test]
    fn the_certificate_or_the_key_is_blamed_whichever_it_is() {
        let [root, middle, leaf, key] = chain();
        assert_eq!(certified(&format!("{leaf}{middle}"), &key), Ok(2));
        // As HAProxy has them.
        let both = format!("{leaf}{middle}{key}");
        assert_eq!(certified(&both, &both), Ok(2));
        let second = middle.lines().count() + 1;
        refused(
            &format!("{middle}{leaf}"),
            &key,
            [
                "c.cert: the key in",
                "belongs to certificate 2 of",
                &format!("(line {second}), not to the first; put"),
            ],
        );
        refused(
            &format!("{middle}{root}"),
            &key,
            ["c.key:", "does not belong to", "a.pem"],
        );
        let nothing = "-----BEGIN CERTIFICATE-----\nMAgwADAAAwIAAA==\n-----END CERTIFICATE-----\n";
        let line = leaf.lines().count() + 1;
        refused(
            &format!("{leaf}{nothing}"),
            &key,
            ["c.cert: certificate 2 of", &format!("(line {line}) is damaged"), "anew"],
        );
        refused(&leaf, &leaf, ["c.key:", "a.key has no private key", "PEM"]);
        refused(&key, &key, ["c.cert:", "a.pem has no certificate", "PEM"]);
        let bad = "-----BEGIN PRIVATE KEY-----\nMAoCAQAwAAQDAQID\n-----END PRIVATE KEY-----\n";
        refused(&leaf, bad, ["c.key: the key in", "a.key cannot be used", "give an RSA"]);
    }

    /// A client may refuse it; a server need not.
    #[test]
    fn what_a_client_would_not_take_is_served() {
        let both = include_str!("identity/version1.pem");
        assert_eq!(certified(both, both), Ok(1));
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = (0..3000).map(|n| format!("a{n}.test")).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions.push(extension);
        let leaf = params.self_signed(&key).unwrap();
        assert_eq!(Facts::of(leaf.der()).unwrap().names.len(), 3000);
        assert_eq!(certified(&leaf.pem(), &key.serialize_pem()), Ok(1));
    }

    #[test]
    fn kinds_of_keys_that_nothing_here_signs_with_are_named() {
        let cert = include_str!("identity/ed448.pem");
        refused(cert, cert, ["c.key: the key in", "it is a key of Ed448", "give an RSA"]);
        let [_, _, leaf, _] = chain();
        let found = widelane_pem::chain(leaf.as_bytes()).unwrap();
        let facts = Facts::of(&found[0].value).unwrap();
        assert_eq!(unknown_kind(&facts.public_key), None);
    }

    #[test]
    fn a_star_is_for_the_first_label_alone() {
        for name in ["a.test", "*.a.test", "xn--bcher-kva.test", "a_b.test", "a.test."] {
            assert!(is_for_hosts(name), "{name}");
        }
        for name in ["*", "*.", "f*.a.test", "a.*.test", "*.*.test", ""] {
            assert!(!is_for_hosts(name), "{name}");
        }
    }

    #[test]
    fn a_key_for_pss_alone_is_named() {
        let [.., key] = chain();
        let cert = include_str!("identity/pss.pem");
        refused(
            cert,
            &key,
            ["c.cert:", "for PSS alone (id-RSASSA-PSS)", "rsaEncryption"],
        );
    }

    #[test]
    fn the_first_certificate_that_leads_nowhere_is_found() {
        let [root, middle, leaf, _] = chain();
        let place = |order: [&String; 3]| {
            let text = order.map(String::as_str).concat();
            let found = widelane_pem::chain(text.as_bytes()).unwrap();
            let facts: Vec<_> = found.iter().map(|one| Facts::of(&one.value).unwrap()).collect();
            out_of_order(&facts)
        };
        assert_eq!(place([&leaf, &middle, &root]), None);
        assert_eq!(place([&leaf, &root, &middle]), Some(1));
        assert_eq!(place([&leaf, &middle, &middle]), Some(2));
        assert_eq!(place([&leaf, &middle, &leaf]), Some(2));
    }

    #[test]
    fn a_chain_that_no_message_has_room_for_is_refused() {
        let one = |length| Placed {
            line: 1,
            value: vec![0; length].into(),
        };
        let check = |chain: &[_]| check_length("c", Path::new("a.pem"), chain);
        assert!(check(&[one(LONGEST - 2 * FRAME - 1), one(1)]).is_ok());
        let fault = check(&[one(LONGEST - 2 * FRAME), one(1)]).unwrap_err();
        assert!(fault.problem.contains("TLS has no room"), "{}", fault.problem);
    }
}
