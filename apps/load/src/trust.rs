//! Certificates that the client trusts, and the one that it shows itself: both from PEM files.

use crate::error::LoadError;
use rustls::client::WantsClientCert;
use rustls::{ClientConfig, ConfigBuilder, Error as TlsError, RootCertStore};
use rustls_pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Servers' certificates that are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Certificates of issuers in the system's bundle (`SSL_CERT_FILE`, or the distribution's).
    System,
    /// Certificates of issuers in this PEM file. A self-signed certificate may be its own issuer.
    File(PathBuf),
    /// Every certificate: the client checks neither the chain, nor the name, nor the server's
    /// signature over the handshake. It costs the client least and gives no security.
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

impl Identity {
    /// Completes a configuration in which the client shows this certificate if asked for one.
    pub(crate) fn shown_by(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, LoadError> {
        let wrong = |path: &Path, reason: String| LoadError::Identity {
            path: path.to_owned(),
            reason,
        };
        let read = |path: &Path| {
            let text = std::fs::read(path).map(Zeroizing::new);
            text.map_err(|error| wrong(path, error.to_string()))
        };
        let chain = widelane_pem::chain(&read(&self.certificate)?)
            .map_err(|fault| wrong(&self.certificate, fault.to_string()))?;
        let chain = chain.into_iter().map(|one| one.value).collect();
        let key = widelane_pem::private_key(&read(&self.key)?).map_err(|fault| wrong(&self.key, fault.to_string()))?;
        builder
            .with_client_auth_cert(chain, key.clone_key())
            .map_err(|error| match error {
                TlsError::InconsistentKeys(_) => wrong(
                    &self.key,
                    format!("it does not belong to {}", self.certificate.display()),
                ),
                // rustls puts "unexpected error" before a reason that is not its own.
                TlsError::General(reason) => wrong(&self.key, reason),
                error => wrong(&self.key, error.to_string()),
            })
    }
}

/// Roots of trust, and the certificates that they are made of.
type Trusted = (RootCertStore, Vec<CertificateDer<'static>>);

impl Trust {
    pub(crate) fn certificates(&self) -> Result<Trusted, LoadError> {
        match self {
            Self::Unchecked => Ok((RootCertStore::empty(), Vec::new())),
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
    // Reading and parsing are two steps, so that a missing file and a malformed one give different
    // errors.
    let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let found = widelane_pem::authorities(&pem).map_err(|fault| wrong(fault.to_string()))?;
    let mut roots = RootCertStore::empty();
    for one in &found {
        roots.add(one.value.clone()).map_err(|_| {
            wrong(format!(
                "the certificate in line {} of it cannot be used: it is damaged",
                one.line
            ))
        })?;
    }
    let certificates = found.into_iter().map(|one| one.value).collect();
    Ok((roots, certificates))
}

/// Bundles of distributions: Debian and Arch, Fedora and RHEL, SUSE, Alpine.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
