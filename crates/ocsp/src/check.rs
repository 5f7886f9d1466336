//! Whether a response may be stapled: the steps of RFC 6960, section 3.2.
//!
//! A response comes from the network or from a file that any program may have written. It is refused unless
//! all of this holds:
//!
//! 1. the responder was successful, and the response is of the basic kind (section 4.2.1);
//! 2. it has exactly one answer for the certificate, by hashes of the issuer's name and key and by the
//!    serial number (3.2, step 1);
//! 3. the issuer has signed it, or a certificate for that purpose which the issuer itself has signed and
//!    which is valid now (steps 2 to 4, and 4.2.2.2);
//! 4. the status is known: good or revoked (2.2);
//! 5. it is valid now (steps 5 and 6). It must say until when: RFC 5019, section 2.2.4 demands that, and
//!    without it a response would be stapled for ever.
//!
//! Whether the responder's own certificate is revoked is not asked. Section 4.2.2.2.1 leaves that open, and
//! such certificates are short-lived or say that one need not ask (id-pkix-ocsp-nocheck).

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use der::asn1::{AnyRef, ObjectIdentifier, OctetStringRef};
use der::{Decode, Encode, Tag, TagNumber};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::message::{Answers, Basic, Response, Status};
use super::subject::Subject;
use super::words::words;

/// What a response says that may be stapled. Times are in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When this was known to be right.
    pub this_update: u64,
    /// From when on it must not be used.
    pub next_update: u64,
    /// Clients are told so.
    pub revoked: bool,
}

/// Why a response is not stapled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    #[error("it is text, such as PEM, and not DER; write it with: openssl ocsp -respout")]
    Text,
    #[error("it is no OCSP response: {0}")]
    Malformed(der::Error),
    #[error("the responder gives none: {}", .0)]
    Unsuccessful(&'static str),
    #[error("it is of an unknown kind")]
    UnknownKind,
    #[error("it has a critical extension, which is not understood")]
    CriticalExtension,
    #[error("it is about another certificate")]
    OtherCertificate,
    #[error("it has several answers for the certificate")]
    Several,
    #[error("it has more than {MOST_CERTIFICATES} certificates, or something else in their place")]
    Certificates,
    #[error("neither the issuer has signed it nor a certificate in it")]
    Unsigned,
    #[error("its signer may not sign for the issuer: {}", words(.0))]
    Unauthorised(webpki::Error),
    #[error("its signature is wrong, or of an algorithm that is not supported")]
    Signature,
    #[error("the responder does not know the certificate")]
    Unknown,
    #[error("it does not say until when it is valid")]
    Endless,
    #[error("it is not valid yet, by this machine's clock")]
    Early,
    #[error("it has expired")]
    Expired,
    #[error("it is older than one that was taken before")]
    Older,
}

impl From<der::Error> for Refusal {
    fn from(error: der::Error) -> Self {
        Self::Malformed(error)
    }
}

/// Checks `response`, in DER, about `subject`.
pub fn check(subject: &Subject, response: &[u8], now: UnixTime) -> Result<Verdict, Refusal> {
    let verdict = inspect(subject, response, now, |_| now)?;
    match verdict.next_update > now.as_secs() {
        true => Ok(verdict),
        false => Err(Refusal::Expired),
    }
}

/// Checks a response that was taken before, and may have expired since: its signer need only have been
/// authorised when it signed.
pub(super) fn check_kept(subject: &Subject, response: &[u8], now: UnixTime) -> Result<Verdict, Refusal> {
    inspect(subject, response, now, |produced| produced)
}

/// All but whether it has expired. `signed` has the time at which its signer has to be authorised, of that
/// at which the response says it was made.
fn inspect(
    subject: &Subject,
    response: &[u8],
    now: UnixTime,
    signed: impl Fn(UnixTime) -> UnixTime,
) -> Result<Verdict, Refusal> {
    if response.len() > LONGEST {
        return Err(Refusal::TooLong);
    }
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if !response.is_empty() && response.iter().all(is_text) {
        return Err(Refusal::Text);
    }
    // 1
    let response = Response::from_der(response)?;
    let content = match (response.status, response.content) {
        (Status::Successful, Some(content)) => content,
        (Status::Successful, None) => return Err(Refusal::UnknownKind),
        (status, _) => return Err(Refusal::Unsuccessful(status.told())),
    };
    if content.kind != BASIC {
        return Err(Refusal::UnknownKind);
    }
    let basic = Basic::from_der(content.bytes.as_bytes())?;
    let answers: Answers<'_> = basic.answers.decode_as()?;
    // 2
    let mut about = answers.answers.iter().filter(|answer| subject.is(&answer.certificate));
    let answer = about.next().ok_or(Refusal::OtherCertificate)?;
    if about.next().is_some() {
        return Err(Refusal::Several);
    }
    let extensions = [&answers.extensions, &answer.extensions];
    let mut extensions = extensions.into_iter().flatten().flatten();
    if extensions.any(|extension| extension.critical) {
        return Err(Refusal::CriticalExtension);
    }
    // 3
    let produced = UnixTime::since_unix_epoch(answers.produced.to_unix_duration());
    verify(subject, &basic, answers.responder, signed(produced))?;
    // 4
    let revoked = match answer.status.header().tag() {
        Tag::ContextSpecific { number, .. } if number == GOOD => false,
        Tag::ContextSpecific { number, .. } if number == REVOKED => true,
        _ => return Err(Refusal::Unknown),
    };
    // 5
    let this_update = answer.this_update.to_unix_duration();
    let next_update = answer.next_update.ok_or(Refusal::Endless)?;
    let next_update = next_update.to_unix_duration();
    let now = Duration::from_secs(now.as_secs());
    if this_update > now + CLOCK_TOLERANCE {
        return Err(Refusal::Early);
    }
    if next_update <= this_update {
        return Err(Refusal::Expired);
    }
    Ok(Verdict {
        this_update: this_update.as_secs(),
        next_update: next_update.as_secs(),
        revoked,
    })
}

/// Verifies the signature of a response by the issuer's key, or by that of a certificate in the response
/// that the issuer has made for this.
fn verify(subject: &Subject, basic: &Basic<'_>, responder: AnyRef<'_>, now: UnixTime) -> Result<(), Refusal> {
    // DER has one form for each value: these are the bytes that came.
    let signed = basic.answers.to_der()?;
    let signature = basic.signature.as_bytes().ok_or(Refusal::Signature)?;
    let algorithms = default_provider().signature_verification_algorithms.all;
    let has_signed = |signer: &EndEntityCert<'_>| {
        let mut suited = algorithms.iter().filter(|algorithm| {
            basic.algorithm.header().tag() == Tag::Sequence
                && basic.algorithm.value() == algorithm.signature_alg_id().as_ref()
        });
        suited.any(|algorithm| signer.verify_signature(*algorithm, &signed, signature).is_ok())
    };
    // They are not signed: who is between the responder and this machine can put anything there, for
    // clients to stumble over.
    let mut certificates = Vec::new();
    for certificate in basic.certificates.iter().flatten() {
        certificates.push(CertificateDer::from(certificate.to_der()?));
    }
    if certificates.len() > MOST_CERTIFICATES {
        return Err(Refusal::Certificates);
    }
    let parsed = certificates
        .iter()
        .map(|certificate| X509Certificate::from_der(certificate).map(|(_, parsed)| parsed));
    let parsed: Result<Vec<_>, _> = parsed.collect();
    let parsed = parsed.map_err(|_| Refusal::Certificates)?;
    let is_responder = Responder::of(responder)?;
    let mut refusal = Refusal::Unsigned;
    if is_responder.is(&subject.issuer_name, &subject.issuer_key) {
        let issuer = EndEntityCert::try_from(&subject.issuer).map_err(Refusal::Unauthorised)?;
        if has_signed(&issuer) {
            return Ok(());
        }
        refusal = Refusal::Signature;
    }
    let anchor = anchor_from_trusted_cert(&subject.issuer).map_err(Refusal::Unauthorised)?;
    let anchors = [anchor];
    for (certificate, parsed) in certificates.iter().zip(&parsed) {
        let key = &parsed.public_key().subject_public_key.data;
        if !is_responder.is(parsed.subject().as_raw(), key) {
            continue;
        }
        // Without intermediate certificates: the issuer itself must have signed it.
        let authorised = EndEntityCert::try_from(certificate).and_then(|signer| {
            let usage = KeyUsage::required(OCSP_SIGNING);
            signer.verify_for_usage(algorithms, &anchors, &[], now, usage, None, None)?;
            Ok(has_signed(&signer))
        });
        refusal = match authorised {
            Ok(true) => return Ok(()),
            Ok(false) => Refusal::Signature,
            Err(error) => Refusal::Unauthorised(error),
        };
    }
    Err(refusal)
}

/// Whether an extension TLS feature demands that an OCSP response comes with the certificate (RFC 7633,
/// section 4.1: a SEQUENCE of numbers of TLS extensions). One that is no such thing demands nothing.
pub fn is_demanded(features: &[u8]) -> bool {
    <Vec<u16> as Decode>::from_der(features).is_ok_and(|features| features.contains(&STATUS_REQUEST))
}

/// How a response names its signer.
enum Responder<'a> {
    Name(&'a [u8]),
    /// SHA-1 of the key.
    Key(&'a [u8]),
}

impl<'a> Responder<'a> {
    fn of(id: AnyRef<'a>) -> Result<Self, Refusal> {
        match id.header().tag() {
            Tag::ContextSpecific { number, .. } if number == BY_NAME => Ok(Self::Name(id.value())),
            Tag::ContextSpecific { number, .. } if number == BY_KEY => {
                let hash = <&OctetStringRef>::from_der(id.value())?;
                Ok(Self::Key(hash.as_bytes()))
            }
            _ => Err(Refusal::Unsigned),
        }
    }

    fn is(&self, name: &[u8], key: &[u8]) -> bool {
        match self {
            Self::Name(own) => *own == name,
            Self::Key(hash) => digest(&SHA1_FOR_LEGACY_USE_ONLY, key).as_ref() == *hash,
        }
    }
}

/// id-pkix-ocsp-basic.
pub(super) const BASIC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
/// id-kp-OCSPSigning, 1.3.6.1.5.5.7.3.9, as the contents of an OBJECT IDENTIFIER.
const OCSP_SIGNING: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
const GOOD: TagNumber = TagNumber(0);
const REVOKED: TagNumber = TagNumber(1);
const BY_NAME: TagNumber = TagNumber(1);
const BY_KEY: TagNumber = TagNumber(2);

/// The TLS extension status_request.
const STATUS_REQUEST: u16 = 5;

/// Responses have one or two kilobytes; with ML-DSA-87, for the response and for its signer's certificate,
/// thirteen. Each handshake carries one.
pub const LONGEST: usize = 16 * 1024;
/// As many as Firefox takes.
const MOST_CERTIFICATES: usize = 8;
/// By how much the clocks of responders may be ahead, as in nginx and HAProxy.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);
