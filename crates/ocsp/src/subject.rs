//! A certificate as OCSP names it.

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512, digest};
use der::asn1::{AnyRef, ObjectIdentifier, OctetStringRef};
use der::{Encode, Tag};
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::message::{self, CertificateId, Question, Request, RequestBody};

/// A certificate and its issuer, as questions and answers name them.
#[derive(Debug)]
pub struct Subject {
    /// SHA-256 of the certificate and its issuer's, in hexadecimal.
    pub(super) fingerprint: String,
    /// The contents of an INTEGER.
    serial: Vec<u8>,
    /// Whose key signs the responses, or the certificate of who signs them.
    pub(super) issuer: CertificateDer<'static>,
    pub(super) issuer_name: Vec<u8>,
    /// The key itself, without its algorithm.
    pub(super) issuer_key: Vec<u8>,
}

impl Subject {
    /// Of the first certificate of a chain, whose issuer must be among the others.
    pub fn of(chain: &[CertificateDer<'static>]) -> Result<Self, NoIssuer> {
        let parse = |certificate: &'_ CertificateDer<'static>| {
            let parsed = X509Certificate::from_der(certificate);
            parsed.ok().map(|(_, parsed)| {
                let name = parsed.subject().as_raw().to_vec();
                let key = parsed.public_key().subject_public_key.data.to_vec();
                (name, key)
            })
        };
        let (first, others) = chain.split_first().ok_or(NoIssuer)?;
        let (_, leaf) = X509Certificate::from_der(first).map_err(|_| NoIssuer)?;
        for issuer in others {
            if let Some((name, key)) = parse(issuer)
                && name == leaf.issuer().as_raw()
            {
                let both = [first.as_ref(), issuer.as_ref()].concat();
                let fingerprint = digest(&SHA256, &both);
                let hexadecimal = fingerprint.as_ref().iter();
                return Ok(Self {
                    fingerprint: hexadecimal.map(|byte| format!("{byte:02x}")).collect(),
                    serial: leaf.raw_serial().to_vec(),
                    issuer: issuer.clone(),
                    issuer_name: name,
                    issuer_key: key,
                });
            }
        }
        Err(NoIssuer)
    }

    /// The question for this certificate's status (RFC 6960, section 4.1). Its hashes are SHA-1, which
    /// every responder knows: they name the issuer, and nothing relies on them.
    pub(crate) fn request(&self) -> der::Result<Vec<u8>> {
        let name = digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.issuer_name);
        let key = digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.issuer_key);
        let certificate = CertificateId {
            hash: message::Algorithm {
                name: SHA1,
                parameters: Some(AnyRef::NULL),
            },
            issuer_name: OctetStringRef::new(name.as_ref())?,
            issuer_key: OctetStringRef::new(key.as_ref())?,
            serial: AnyRef::new(Tag::Integer, &self.serial)?,
        };
        let questions = vec![Question { certificate }];
        let body = RequestBody { questions };
        Request { body }.to_der()
    }

    /// Whether `id` names this certificate: its issuer by hashes of name and key, and its serial number.
    pub(super) fn is(&self, id: &CertificateId<'_>) -> bool {
        let known = HASHES.iter().find(|(name, _)| *name == id.hash.name);
        let Some((_, hash)) = known else {
            return false;
        };
        digest(hash, &self.issuer_name).as_ref() == id.issuer_name.as_bytes()
            && digest(hash, &self.issuer_key).as_ref() == id.issuer_key.as_bytes()
            && id.serial.header().tag() == Tag::Integer
            && id.serial.value() == self.serial
    }
}

/// The issuer of a certificate is not in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file does not have the certificate of the issuer")]
pub struct NoIssuer;

const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");

/// Those in which a responder may name the issuer, whatever the question has.
const HASHES: [(ObjectIdentifier, &Algorithm); 4] = [
    (SHA1, &SHA1_FOR_LEGACY_USE_ONLY),
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1"), &SHA256),
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2"), &SHA384),
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3"), &SHA512),
];
