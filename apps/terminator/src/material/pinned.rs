//! Certificates that are listed themselves where authorities are listed.
//!
//! `openssl req -x509` makes certificates of authorities (CA:TRUE), and many use them for one server or one client
//! without an authority of their own. webpki refuses an authority as the end of a chain, and finds no issuer for a
//! listed certificate that another authority has signed. Here, a certificate is taken that is listed byte for byte.
//! That gives no client and no backend more rights: the owner of a listed authority's key can sign any certificate.
//!
//! All else is checked: its time, its purpose, revocation lists, for servers the name, and that the other side has its
//! key.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, ExtendedKeyPurpose, SignatureScheme};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::as_inside::as_inside;

/// Verifies as the verifier inside does, and takes listed certificates too.
pub(crate) struct Pinned<V: ?Sized> {
    inner: Arc<V>,
    listed: Vec<CertificateDer<'static>>,
    lists: Vec<CertRevocationList<'static>>,
}

impl<V: ?Sized> Pinned<V> {
    /// The verifier inside has taken the revocation lists, so that they can be read.
    pub(crate) fn new(
        inner: Arc<V>,
        listed: Vec<CertificateDer<'static>>,
        lists: &[CertificateRevocationListDer<'_>],
    ) -> Self {
        let lists = lists
            .iter()
            .filter_map(|list| OwnedCertRevocationList::from_der(list).ok());
        Self {
            inner,
            listed,
            lists: lists.map(CertRevocationList::from).collect(),
        }
    }

    /// Takes a certificate that the verifier inside refuses for `error`, if it is listed and all else is good.
    fn take(
        &self,
        error: Error,
        own: &CertificateDer<'_>,
        required: ExtendedKeyPurpose,
        now: UnixTime,
    ) -> Result<(), Error> {
        let is_about_issuer = match &error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
            Error::InvalidCertificate(CertificateError::Other(other)) => {
                let inner = other.0.downcast_ref::<webpki::Error>();
                matches!(inner, Some(webpki::Error::CaUsedAsEndEntity))
            }
            _ => false,
        };
        if !is_about_issuer || self.listed.iter().all(|listed| listed != own) {
            return Err(error);
        }
        // Version 3, and no critical extension that is not known.
        ParsedCertificate::try_from(own)?;
        let Ok((_, certificate)) = X509Certificate::from_der(own) else {
            return Err(error);
        };
        let seconds = |at: i64| u64::try_from(at).unwrap_or(0);
        let [not_before, not_after] = [certificate.validity().not_before, certificate.validity().not_after]
            .map(|at| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds(at.timestamp()))));
        if now < not_before {
            return Err(CertificateError::NotValidYetContext { time: now, not_before }.into());
        }
        if now > not_after {
            return Err(CertificateError::ExpiredContext { time: now, not_after }.into());
        }
        let Ok(usage) = certificate.extended_key_usage() else {
            return Err(CertificateError::BadEncoding.into());
        };
        let is_allowed = usage.is_none_or(|usage| match required {
            ExtendedKeyPurpose::ServerAuth => usage.value.server_auth,
            _ => usage.value.client_auth,
        });
        if !is_allowed {
            let presented = Vec::new();
            return Err(CertificateError::InvalidPurposeContext { required, presented }.into());
        }
        let issuer = certificate.issuer().as_raw();
        let is_revoked = self.lists.iter().any(|list| {
            let found = list.find_serial(certificate.raw_serial());
            issuer.ends_with(list.issuer()) && !matches!(found, Ok(None))
        });
        match is_revoked {
            true => Err(CertificateError::Revoked.into()),
            false => Ok(()),
        }
    }
}

/// Signatures are verified as the verifier inside does, of clients as of servers.
macro_rules! signatures_as_inside {
    () => {
        as_inside! { inner:
            fn verify_tls12_signature(
                message: &[u8], certificate: &CertificateDer<'_>, signed: &DigitallySignedStruct
            ) -> Result<HandshakeSignatureValid, Error>;
            fn verify_tls13_signature(
                message: &[u8], certificate: &CertificateDer<'_>, signed: &DigitallySignedStruct
            ) -> Result<HandshakeSignatureValid, Error>;
            fn supported_verify_schemes() -> Vec<SignatureScheme>;
        }
    };
}

impl ClientCertVerifier for Pinned<dyn ClientCertVerifier> {
    as_inside! { inner:
        fn offer_client_auth() -> bool;
        fn client_auth_mandatory() -> bool;
        fn root_hint_subjects() -> &[DistinguishedName];
    }
    signatures_as_inside!();

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.inner.verify_client_cert(own, others, now).or_else(|error| {
            self.take(error, own, ExtendedKeyPurpose::ClientAuth, now)?;
            Ok(ClientCertVerified::assertion())
        })
    }
}

impl<V: ServerCertVerifier> ServerCertVerifier for Pinned<V> {
    signatures_as_inside!();

    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.inner.verify_server_cert(own, others, name, ocsp, now);
        verified.or_else(|error| {
            self.take(error, own, ExtendedKeyPurpose::ServerAuth, now)?;
            verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
            Ok(ServerCertVerified::assertion())
        })
    }
}

impl<V: ?Sized> fmt::Debug for Pinned<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("listed", &self.listed.len())
            .finish_non_exhaustive()
    }
}
