//! The checks of a server's certificate and signature.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error as TlsError, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::cell::Cell;
use std::sync::Arc;

/// Checks certificates and signatures, and offers only the chosen signature algorithms.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// `None`: accepts every certificate and every signature without a check.
    pub(crate) inner: Option<Arc<WebPkiServerVerifier>>,
    pub(crate) schemes: Vec<SignatureScheme>,
    /// The certificates of the operator's file.
    pub(crate) pinned: Vec<CertificateDer<'static>>,
}

impl Verifier {
    /// Notes the algorithm of a signature, and checks it, if anything is checked.
    fn checked(
        &self,
        dss: &DigitallySignedStruct,
        check: impl FnOnce(&WebPkiServerVerifier) -> Result<HandshakeSignatureValid, TlsError>,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        if self.inner.is_some() && !self.schemes.contains(&dss.scheme) {
            return Err(TlsError::InvalidCertificate(CertificateError::BadSignature));
        }
        SIGNATURE.set(Some(dss.scheme));
        self.inner
            .as_deref()
            .map_or(Ok(HandshakeSignatureValid::assertion()), check)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(inner) = &self.inner else {
            return Ok(ServerCertVerified::assertion());
        };
        match inner.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            // `openssl req -x509` makes a certificate that is its own CA. webpki checks its dates,
            // and then refuses a CA as a server. But the operator has named this certificate as
            // trusted.
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
        self.checked(dss, |inner| inner.verify_tls12_signature(message, cert, dss))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.checked(dss, |inner| inner.verify_tls13_signature(message, cert, dss))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// The algorithm of the last signature that a verifier of this thread has checked since the last
/// call, if any.
pub(crate) fn take_signature() -> Option<SignatureScheme> {
    SIGNATURE.take()
}

thread_local! {
    // rustls tells it only to a verifier.
    static SIGNATURE: Cell<Option<SignatureScheme>> = const { Cell::new(None) };
}
