//! The files a configuration names, read into memory: certificates, keys and authorities.
//!
//! This module reads and `tls` interprets, because files are read before root privileges are
//! dropped and keys are loaded after the engine has started.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use webpki::{BorrowedCertRevocationList, anchor_from_trusted_cert};
use widelane_ocsp::Staple;
use widelane_pem::Placed;

use crate::config::{BackendTls, Certificate, Config, Fault, Listener, OcspSource};
use crate::material::certificate::{Facts, next_update};
use crate::material::certificate_directory;
use crate::material::identity::{At, Identity};
use crate::material::read::{pem_fault, read_file, read_response};
use crate::material::ticket_files;
use crate::material::ticket_key::TicketKey;
use crate::privileges;

/// The contents of one listener's files.
#[derive(Debug)]
pub(crate) struct Files {
    /// Certificates of the configuration in its order, and behind them those of its directories.
    pub(crate) certificates: Vec<Pair>,
    pub(crate) client_ca: Authorities,
    pub(crate) client_crl: Vec<CertificateRevocationListDer<'static>>,
    /// The first encrypts. Empty: the process makes its own.
    pub(crate) ticket_keys: Vec<Arc<TicketKey>>,
    /// Files for TLS to the listener's backend, and then to those of its routes.
    pub(crate) backend_tls: Vec<Option<ClientFiles>>,
}

/// Authorities whose signatures count.
#[derive(Debug)]
pub(crate) struct Authorities {
    pub(crate) roots: RootCertStore,
    /// Their certificates. Empty: they are those of the system.
    pub(crate) listed: Vec<CertificateDer<'static>>,
}

/// Files that this server needs as a client of a backend.
#[derive(Debug)]
pub(crate) struct ClientFiles {
    pub(crate) authorities: Authorities,
    pub(crate) identity: Option<Identity>,
}

/// A certificate of a listener.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Its section of the configuration, or what follows from its directory.
    pub(crate) files: Certificate,
    pub(crate) identity: Identity,
    /// The file with its OCSP response. Whatever is wrong with that, the certificate can be served.
    pub(crate) ocsp: Option<(PathBuf, Result<Vec<u8>, Fault>)>,
    pub(crate) staple: Option<Arc<Staple>>,
}

impl Authorities {
    pub(crate) fn none() -> Self {
        Self {
            roots: RootCertStore::empty(),
            listed: Vec::new(),
        }
    }
}

/// Reads the files of every listener.
pub(crate) fn read(config: &Config) -> Result<Vec<Files>, Fault> {
    // A fault of the account is reported where it is needed.
    let account = privileges::lookup(config).ok().flatten();
    let user = account.map(|account| account.uid.as_raw());
    let listeners = config.listeners.iter().enumerate();
    listeners
        .map(|(index, listener)| read_listener(&format!("listener[{index}]"), listener, user))
        .collect()
}

/// The fault of an OCSP response that could not be read because memory or descriptors lack. Nothing else about a
/// response keeps back a reload.
pub(crate) fn unread_response(listeners: &[Files]) -> Option<&Fault> {
    let mut pairs = listeners.iter().flat_map(|files| &files.certificates);
    pairs.find_map(|pair| pair.ocsp.as_ref()?.1.as_ref().err().filter(|fault| fault.passing))
}

fn read_listener(key: &str, listener: &Listener, user: Option<u32>) -> Result<Files, Fault> {
    let mut certificates = Vec::new();
    for (index, files) in listener.certificates.iter().enumerate() {
        let key = format!("{key}.certificate[{index}]");
        certificates.push(read_pair(At::section(&key), &format!("{key}.ocsp"), files)?);
    }
    let directories = format!("{key}.certificates");
    for directory in &listener.certificate_directories {
        for files in certificate_directory::list(&directories, directory)? {
            let at = At {
                cert: directories.clone(),
                key: directories.clone(),
            };
            certificates.push(read_pair(at, &directories, &files)?);
        }
    }
    let mut files = Files {
        certificates,
        client_ca: Authorities::none(),
        client_crl: Vec::new(),
        ticket_keys: ticket_files::read(&format!("{key}.tickets.keys"), &listener.tickets.keys, user)?,
        backend_tls: Vec::new(),
    };
    for (key, tls) in listener.backend_tls(key) {
        let read = tls.map(|tls| read_client_files(&key, tls));
        files.backend_tls.push(read.transpose()?);
    }
    if let Some(client_auth) = &listener.client_auth {
        files.client_ca = read_authorities(&format!("{key}.client_auth.ca"), &client_auth.ca)?;
        if let Some(path) = &client_auth.crl {
            files.client_crl = read_lists(&format!("{key}.client_auth.crl"), path)?;
        }
    }
    Ok(files)
}

fn read_pair(at: At, ocsp_key: &str, files: &Certificate) -> Result<Pair, Fault> {
    Ok(Pair {
        identity: Identity::read(at, &files.cert, &files.key)?,
        ocsp: match &files.ocsp {
            Some(OcspSource::File(path)) => Some((path.clone(), read_response(ocsp_key, path))),
            Some(OcspSource::Fetch | OcspSource::Responder(_)) | None => None,
        },
        files: files.clone(),
        staple: None,
    })
}

fn read_client_files(key: &str, tls: &BackendTls) -> Result<ClientFiles, Fault> {
    let authorities = match &tls.ca {
        Some(path) => read_authorities(&format!("{key}.ca"), path)?,
        None => authorities_of_system(key)?,
    };
    let identity = match (&tls.cert, &tls.key) {
        (Some(cert), Some(private)) => Some(Identity::read(At::section(key), cert, private)?),
        _ => None,
    };
    Ok(ClientFiles { authorities, identity })
}

/// All that can be used. A machine's store may have a relic among hundreds.
fn authorities_of_system(key: &str) -> Result<Authorities, Fault> {
    let found = rustls_native_certs::load_native_certs();
    let mut authorities = Authorities::none();
    let (_, unusable) = authorities.roots.add_parsable_certificates(found.certs);
    let error = found.errors.first();
    if authorities.roots.is_empty() {
        let problem = match error {
            Some(error) => format!("cannot read the authorities of the system: {error}"),
            None => "the system has no authorities".to_owned(),
        };
        let remedy = "set `ca`, or install the package ca-certificates";
        return Err(Fault::new(key, problem, remedy));
    }
    if let Some(error) = error {
        tracing::warn!(%error, "some of the authorities of the system were not read; goes on with the others");
    }
    if unusable > 0 {
        tracing::info!(
            unusable,
            "authorities of the system that are damaged or of an old form are not used"
        );
    }
    Ok(authorities)
}

fn read_authorities(key: &str, path: &Path) -> Result<Authorities, Fault> {
    let text = read_file(key, path)?;
    let found = widelane_pem::authorities(&text).map_err(|fault| pem_fault(key, path, fault))?;
    let mut authorities = Authorities::none();
    for (place, one) in found.iter().enumerate() {
        let anchor = anchor_from_trusted_cert(&one.value).map_err(|error| {
            let reason = widelane_ocsp::words(&error);
            let problem = unusable("authority", place, path, one.line, reason);
            Fault::new(key, problem, "remove it, or give a CA certificate (X.509, PEM)")
        })?;
        if let Some(problem) = Facts::of(&one.value).and_then(|facts| facts.invalid_at(UnixTime::now())) {
            tracing::warn!(
                file = %path.display(),
                "authority {} (line {}) {problem}: what it has signed is still taken; remove it if it is not to be",
                place + 1,
                one.line,
            );
        }
        authorities.roots.roots.push(anchor.to_owned());
    }
    authorities.listed = found.into_iter().map(|one| one.value).collect();
    Ok(authorities)
}

fn read_lists(key: &str, path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Fault> {
    let text = read_file(key, path)?;
    let found = widelane_pem::revocation_lists(&text).map_err(|fault| pem_fault(key, path, fault))?;
    for (place, Placed { line, value }) in found.iter().enumerate() {
        BorrowedCertRevocationList::from_der(value).map_err(|error| {
            let problem = unusable("revocation list", place, path, *line, widelane_ocsp::words(&error));
            let remedy = "give whole version 2 lists (PEM), as `openssl ca -gencrl` makes them";
            Fault::new(key, problem, remedy)
        })?;
        let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
        if next_update(value).is_some_and(|next| next < now) {
            tracing::warn!(
                file = %path.display(),
                "revocation list {} (line {line}) is past its next update: all clients of its authority are refused; \
                 renew it",
                place + 1,
            );
        }
    }
    Ok(found.into_iter().map(|one| one.value).collect())
}

fn unusable(what: &str, place: usize, path: &Path, line: usize, reason: &str) -> String {
    let (number, path) = (place + 1, path.display());
    format!("{what} {number} of {path} (line {line}) cannot be used: {reason}")
}
