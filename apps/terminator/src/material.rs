//! The files a configuration names, read into memory: certificates, keys and authorities.
//!
//! This module reads and `tls` interprets, because files are read before root privileges are
//! dropped and keys are loaded after the engine has started.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::config::{
    BackendTls, Certificate, Config, Fault, Listener, OcspSource, is_responder, is_shortage,
};
use crate::ocsp::{self, FromFile, Staple};
use crate::privileges;
use crate::regular;
use crate::ticket_etcd::settings::Settings;
use crate::ticket_etcd::store::{Store, StoreName};
use crate::ticket_files;
use crate::ticket_key::TicketKey;

/// The contents of one listener's files, with certificates in the order of the configuration.
#[derive(Debug)]
pub(crate) struct Material {
    pub(crate) certificates: Vec<Pair>,
    pub(crate) client_ca: Vec<CertificateDer<'static>>,
    pub(crate) client_crl: Vec<CertificateRevocationListDer<'static>>,
    /// The first encrypts. Empty: the process makes its own.
    pub(crate) ticket_keys: Vec<Arc<TicketKey>>,
    /// How to ask for ticket keys in etcd.
    pub(crate) etcd: Option<(StoreName, Settings)>,
    /// What they come from. Known when etcd is asked.
    pub(crate) store: Option<Arc<Store>>,
    /// For TLS to the listener's backend and to those of its routes.
    pub(crate) backend_tls: Option<ClientFiles>,
    pub(crate) route_tls: Vec<Option<ClientFiles>>,
}

/// What this server needs as a client of a backend.
pub(crate) struct ClientFiles {
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    pub(crate) identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
}

/// A certificate chain and a key. Whether they belong together is not checked yet.
pub(crate) struct Pair {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) facts: Facts,
    /// The file with its OCSP response. Whatever is wrong with that, the certificate can be served.
    pub(crate) ocsp: Option<FromFile>,
    pub(crate) staple: Option<Arc<Staple>>,
}

/// What is in a certificate, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// DNS names of the extension subjectAltName, or else the common name.
    pub(crate) names: Vec<String>,
    /// IP addresses of the extension subjectAltName, as bytes.
    pub(crate) addresses: Vec<Vec<u8>>,
    /// From when on it is valid, in seconds since 1970.
    pub(crate) not_before: i64,
    /// Until when, in seconds since 1970.
    pub(crate) not_after: i64,
    /// Whether it demands that an OCSP response comes with it (RFC 7633).
    pub(crate) must_staple: bool,
    /// The OCSP responder that it names (RFC 5280, section 4.2.2.1), if that can be asked.
    pub(crate) responder: Option<String>,
}

impl Facts {
    /// Why it is not valid at a time.
    fn invalid_at(&self, time: UnixTime) -> Option<String> {
        let now = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let days = |seconds: i64| match seconds / (24 * 60 * 60) {
            0 => "less than a day".to_owned(),
            1 => "a day".to_owned(),
            days => format!("{days} days"),
        };
        if now > self.not_after {
            return Some(format!("expired {} ago", days(now - self.not_after)));
        }
        let left = self.not_before - now;
        (left > 0).then(|| format!("begins to be valid in {}", days(left)))
    }
}

/// Reads the files of every listener.
pub(crate) fn read(config: &Config) -> Result<Vec<Material>, Fault> {
    // A fault of the account is reported where it is needed.
    let account = privileges::lookup(config).ok().flatten();
    let user = account.map(|account| account.uid());
    let listeners = config.listeners.iter().enumerate();
    listeners
        .map(|(index, listener)| read_listener(&format!("listener[{index}]"), listener, user))
        .collect()
}

/// The common name of a certificate's subject, for logs and for the PROXY header.
pub(crate) fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

/// What is in a certificate. `None`: it is not an X.509 certificate.
pub(crate) fn facts(der: &[u8]) -> Option<Facts> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let mut names = Vec::new();
    let mut addresses = Vec::new();
    if let Ok(Some(extension)) = certificate.subject_alternative_name() {
        for name in &extension.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.push((*name).to_owned()),
                GeneralName::IPAddress(address) => addresses.push(address.to_vec()),
                _ => {}
            }
        }
    }
    if names.is_empty() {
        let common = certificate.subject().iter_common_name().next();
        names.extend(
            common
                .and_then(|name| name.as_str().ok())
                .map(str::to_owned),
        );
    }
    let features = certificate
        .extensions()
        .iter()
        .find(|extension| extension.oid.as_bytes() == TLS_FEATURE);
    Some(Facts {
        names,
        addresses,
        not_before: certificate.validity().not_before.timestamp(),
        not_after: certificate.validity().not_after.timestamp(),
        responder: responder(&certificate),
        must_staple: features.is_some_and(|features| ocsp::is_demanded(features.value)),
    })
}

/// The first address over HTTP at which a certificate says that its status can be asked.
fn responder(certificate: &X509Certificate<'_>) -> Option<String> {
    let places = certificate.extensions().iter().filter_map(|extension| {
        match extension.parsed_extension() {
            ParsedExtension::AuthorityInfoAccess(places) => Some(&places.accessdescs),
            _ => None,
        }
    });
    places
        .flatten()
        .find_map(|place| match &place.access_location {
            GeneralName::URI(address)
                if place.access_method.as_bytes() == OCSP && is_responder(address) =>
            {
                Some((*address).to_owned())
            }
            _ => None,
        })
}

impl fmt::Debug for ClientFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientFiles")
            .field("authorities", &self.authorities.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

fn read_listener(key: &str, listener: &Listener, user: Option<u32>) -> Result<Material, Fault> {
    let mut certificates = Vec::new();
    for (index, files) in listener.certificates.iter().enumerate() {
        certificates.push(read_pair(&format!("{key}.certificate[{index}]"), files)?);
    }
    let mut material = Material {
        certificates,
        client_ca: Vec::new(),
        client_crl: Vec::new(),
        ticket_keys: ticket_files::read(
            &format!("{key}.tickets.keys"),
            &listener.tickets.keys,
            user,
        )?,
        etcd: read_etcd(key, listener, user)?,
        store: None,
        backend_tls: None,
        route_tls: Vec::new(),
    };
    let client_files = |key: String, tls: &Option<BackendTls>| {
        let tls = tls.as_ref();
        tls.map(|tls| read_client_files(&key, tls)).transpose()
    };
    material.backend_tls = client_files(format!("{key}.backend_tls"), &listener.backend_tls)?;
    for (index, route) in listener.routes.iter().enumerate() {
        let key = format!("{key}.route[{index}].backend_tls");
        material
            .route_tls
            .push(client_files(key, &route.backend_tls)?);
    }
    if let Some(client_auth) = &listener.client_auth {
        material.client_ca = read_chain(&format!("{key}.client_auth.ca"), &client_auth.ca)?;
        if let Some(path) = &client_auth.crl {
            material.client_crl = read_lists(&format!("{key}.client_auth.crl"), path)?;
        }
    }
    Ok(material)
}

fn read_etcd(
    key: &str,
    listener: &Listener,
    user: Option<u32>,
) -> Result<Option<(StoreName, Settings)>, Fault> {
    let Some(name) = StoreName::of(listener) else {
        return Ok(None);
    };
    let settings = Settings::read(&format!("{key}.tickets.etcd"), &name.etcd, user)?;
    Ok(Some((name, settings)))
}

/// The text of a PEM file that has certificates.
pub(crate) fn read_pem_chain(key: &str, path: &Path) -> Result<Vec<u8>, Fault> {
    read_chain(key, path)?;
    read_file(key, path)
}

fn read_pair(key: &str, files: &Certificate) -> Result<Pair, Fault> {
    let chain_key = format!("{key}.cert");
    let chain = read_chain(&chain_key, &files.cert)?;
    let facts = facts(&chain[0]).ok_or_else(|| {
        Fault::new(
            chain_key,
            format!(
                "the first certificate of {} is damaged",
                files.cert.display()
            ),
            "put the server's own certificate (X.509, PEM) first",
        )
    })?;
    if let Some(problem) = facts.invalid_at(UnixTime::now()) {
        tracing::warn!(
            file = %files.cert.display(),
            "the certificate {problem}: clients refuse it; renew it, or see whether this machine's clock is right",
        );
    }
    Ok(Pair {
        chain,
        key: read_key(&format!("{key}.key"), &files.key)?,
        facts,
        ocsp: match &files.ocsp {
            Some(OcspSource::File(path)) => Some(FromFile {
                path: path.clone(),
                read: read_response(&format!("{key}.ocsp"), path),
            }),
            Some(OcspSource::Fetch | OcspSource::Responder(_)) | None => None,
        },
        staple: None,
    })
}

fn read_client_files(key: &str, tls: &BackendTls) -> Result<ClientFiles, Fault> {
    let authorities = match &tls.ca {
        Some(path) => read_chain(&format!("{key}.ca"), path)?,
        None => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                let problem = match found.errors.first() {
                    Some(error) => format!("cannot read the authorities of the system: {error}"),
                    None => "the system has no authorities".to_owned(),
                };
                let remedy = "set `ca`, or install the package ca-certificates";
                return Err(Fault::new(key, problem, remedy));
            }
            found.certs
        }
    };
    let identity = match (&tls.cert, &tls.key) {
        (Some(cert), Some(private)) => Some((
            read_chain(&format!("{key}.cert"), cert)?,
            read_key(&format!("{key}.key"), private)?,
        )),
        _ => None,
    };
    Ok(ClientFiles {
        authorities,
        identity,
    })
}

fn read_chain(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let remedy = "give a PEM file with `-----BEGIN CERTIFICATE-----` sections, the leaf first";
    read_sections(key, path, "certificate", remedy)
}

fn read_lists(key: &str, path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Fault> {
    let remedy = "give a PEM file with a `-----BEGIN X509 CRL-----` section for each authority";
    read_sections(key, path, "revocation list", remedy)
}

/// All sections of one kind in a PEM file. A file without one is an error.
fn read_sections<T: PemObject>(
    key: &str,
    path: &Path,
    what: &str,
    remedy: &str,
) -> Result<Vec<T>, Fault> {
    let text = read_file(key, path)?;
    let sections: Result<Vec<_>, _> = T::pem_slice_iter(&text).collect();
    match sections {
        Ok(sections) if sections.is_empty() => Err(Fault::new(
            key,
            format!("no {what} in {}", path.display()),
            remedy,
        )),
        Ok(sections) => Ok(sections),
        Err(error) => Err(Fault::new(
            key,
            format!("{} is not PEM: {}", path.display(), damage(&error)),
            remedy,
        )),
    }
}

fn read_key(key: &str, path: &Path) -> Result<PrivateKeyDer<'static>, Fault> {
    let text = Zeroizing::new(read_file(key, path)?);
    check_pem_key(key, path, &text)
}

/// The key in the text of a PEM file.
pub(crate) fn check_pem_key(
    key: &str,
    path: &Path,
    text: &[u8],
) -> Result<PrivateKeyDer<'static>, Fault> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        let encrypted = [
            &b"BEGIN ENCRYPTED PRIVATE KEY"[..],
            b"Proc-Type: 4,ENCRYPTED",
        ];
        let encrypted = encrypted
            .iter()
            .any(|mark| text.windows(mark.len()).any(|window| window == *mark));
        let path = path.display();
        match error {
            _ if encrypted => Fault::new(
                key,
                format!("the key in {path} is encrypted"),
                format!("store it decrypted: openssl pkey -in {path} -out plain.key"),
            ),
            pem::Error::NoItemsFound => Fault::new(
                key,
                format!("no private key in {path}"),
                "give a PEM file with a section `PRIVATE KEY` (or with RSA or EC before it)",
            ),
            error => Fault::new(
                key,
                format!("{path} is not PEM: {}", damage(&error)),
                "give a PEM key file",
            ),
        }
    })
}

/// What is wrong with a PEM file. The reader of PEM shows lines as lists of numbers, and there may be a key in them.
fn damage(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => {
            "a PEM section begins and does not end: the file is cut off".into()
        }
        pem::Error::IllegalSectionStart { .. } => {
            "the first line of a PEM section does not end in `-----`".into()
        }
        error => error.to_string(),
    }
}

/// An OCSP response, with one byte more than it may have if it is too long.
fn read_response(key: &str, path: &Path) -> Result<Vec<u8>, Fault> {
    let mut response = Vec::new();
    let read = regular::open(path).and_then(|file| {
        let most = ocsp::LONGEST as u64 + 1;
        file.take(most).read_to_end(&mut response)
    });
    read.map_err(|error| Fault {
        // Nothing else is a reason to keep back what is good, such as a renewed certificate.
        passing: is_shortage(&error),
        ..unreadable(key, path, &error)
    })?;
    Ok(response)
}

fn read_file(key: &str, path: &Path) -> Result<Vec<u8>, Fault> {
    let mut contents = Vec::new();
    let read = regular::open(path).and_then(|mut file| {
        // With room for all, so that no part of a key is left in memory.
        let size = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        contents.try_reserve_exact(size.saturating_add(1))?;
        file.read_to_end(&mut contents)
    });
    match read {
        Ok(_) => Ok(contents),
        Err(error) => Err(unreadable(key, path, &error)),
    }
}

fn unreadable(key: &str, path: &Path, error: &io::Error) -> Fault {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "let the user of this process read it ({}; in Kubernetes: `fsGroup` and `defaultMode: \
                 0440`); note that a reload runs after root privileges were dropped",
            crate::privileges::current()
        ),
        io::ErrorKind::NotFound => {
            "correct the path (in Kubernetes: mount the Secret that has the file)".into()
        }
        _ => "correct the path".into(),
    };
    Fault::new(
        key,
        format!("cannot read {}: {error}", path.display()),
        remedy,
    )
    .because_of(error)
}

/// id-pe-tlsfeature, 1.3.6.1.5.5.7.1.24, as the contents of an OBJECT IDENTIFIER.
const TLS_FEATURE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 24];
/// id-ad-ocsp, 1.3.6.1.5.5.7.48.1, in the same form.
const OCSP: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 48, 1];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_at_the_moment_is_told_from_a_bad_one() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("empty"), "").unwrap();
        let fault = |path: &Path| read_chain("cert", path).unwrap_err();
        let missing = fault(&path("missing"));
        assert!(!missing.passing);
        assert!(missing.remedy.contains("mount the Secret"), "{missing:?}");
        assert!(!fault(&path("empty")).passing);
        // Nothing is mapped at address 0: EIO.
        let fault = fault(Path::new("/proc/self/mem"));
        assert!(fault.passing, "{}", fault.problem);
        // A response is no reason to wait, on a disk that fails or as a directory.
        for path in [Path::new("/proc/self/mem"), directory.path()] {
            let fault = read_response("ocsp", path).unwrap_err();
            assert!(!fault.passing, "{}", fault.problem);
        }
    }

    #[test]
    fn certificates_that_are_not_valid_are_told() {
        const DAY: i64 = 24 * 60 * 60;
        let facts = Facts {
            not_before: 100 * DAY,
            not_after: 200 * DAY,
            ..Facts::default()
        };
        let at = |seconds: i64| {
            let time = Duration::from_secs(seconds.unsigned_abs());
            facts.invalid_at(UnixTime::since_unix_epoch(time))
        };
        assert_eq!(at(97 * DAY).unwrap(), "begins to be valid in 3 days");
        assert_eq!((at(100 * DAY), at(200 * DAY)), (None, None));
        assert_eq!(at(200 * DAY + 1).unwrap(), "expired less than a day ago");
        assert_eq!(at(201 * DAY + 7).unwrap(), "expired a day ago");
    }

    #[test]
    fn a_damaged_pem_file_is_told_in_words() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("file");
        for (text, problem) in [
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n",
                "a PEM section begins and does not end: the file is cut off",
            ),
            (
                "-----BEGIN CERTIFICATE\nAAAA\n-----END CERTIFICATE-----\n",
                "the first line of a PEM section does not end in `-----`",
            ),
            (
                "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
                "base64",
            ),
        ] {
            std::fs::write(&path, text).unwrap();
            let chain = read_chain("cert", &path).unwrap_err().problem;
            std::fs::write(&path, text.replace("CERTIFICATE", "PRIVATE KEY")).unwrap();
            let key = read_key("key", &path).unwrap_err().problem;
            for told in [chain, key] {
                assert!(told.contains("is not PEM: "), "{told}");
                assert!(told.contains(problem), "{told}");
            }
        }
    }
}
