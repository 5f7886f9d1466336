//! Responses for tests, as responders make them and as they must not.

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, ObjectIdentifier, OctetStringRef};
use der::{Decode, Encode, Tag, TagNumber};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SerialNumber, SigningKey,
};
use rustls_pki_types::{CertificateDer, alg_id};
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::message::{Answer, Answers, Basic, Content, Extension, Question, Request, Response, Status};
use super::subject::Subject;

/// When the tests are, in seconds since 1970.
pub(crate) const NOW: u64 = 1_800_000_000;

/// An authority, and a certificate from it.
pub(crate) struct Specimen {
    pub(crate) authority: CertifiedIssuer<'static, KeyPair>,
    pub(crate) leaf: CertificateDer<'static>,
    pub(crate) key: KeyPair,
    pub(crate) subject: Subject,
}

/// What a response says, and who signs it.
pub(crate) struct Says<'a> {
    /// 0 good, 1 revoked, 2 unknown.
    pub(crate) status: u32,
    pub(crate) from: u64,
    pub(crate) until: Option<u64>,
    /// How many answers are about the certificate.
    pub(crate) answers: usize,
    pub(crate) critical: bool,
    pub(crate) signer: &'a KeyPair,
    /// The signer's certificate, for its name and key.
    pub(crate) responder: CertificateDer<'static>,
    pub(crate) by_key: bool,
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

impl Specimen {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a.example".into()]).unwrap();
        let leaf = params.signed_by(&key, &authority).unwrap().der().clone();
        let subject = Subject::of(&[leaf.clone(), authority.der().clone()]).unwrap();
        Self {
            authority,
            leaf,
            key,
            subject,
        }
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.leaf.clone(), self.authority.der().clone()]
    }

    /// A certificate for the key `signer`, by the authority, that ends `until`.
    pub(crate) fn delegate(
        &self,
        signer: &KeyPair,
        usage: ExtendedKeyUsagePurpose,
        until: u64,
    ) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "signer");
        params.extended_key_usages = vec![usage];
        params.serial_number = Some(SerialNumber::from(7));
        params.not_after = OffsetDateTime::from_unix_timestamp(until as i64).unwrap();
        let made = params.signed_by(signer, &self.authority).unwrap();
        made.der().clone()
    }

    /// Good, for a day before and six after, signed by the authority.
    pub(crate) fn says(&self) -> Says<'_> {
        Says {
            status: 0,
            from: NOW - 86_400,
            until: Some(NOW + 6 * 86_400),
            answers: 1,
            critical: false,
            signer: self.authority.key(),
            responder: self.authority.der().clone(),
            by_key: false,
            certificates: Vec::new(),
        }
    }

    pub(crate) fn response(&self, says: &Says<'_>) -> Vec<u8> {
        let request = self.subject.request().unwrap();
        let request = Request::from_der(&request).unwrap();
        let [Question { certificate }] = request.body.questions[..] else {
            panic!("one question");
        };
        let when = |seconds| GeneralizedTime::from_unix_duration(Duration::from_secs(seconds));
        let tag = |constructed, number| Tag::ContextSpecific {
            constructed,
            number: TagNumber(number),
        };
        let revoked = when(says.from).unwrap().to_der().unwrap();
        let status = match says.status {
            1 => AnyRef::new(tag(true, 1), &revoked),
            status => AnyRef::new(tag(false, status), &[]),
        };
        let (_, responder) = X509Certificate::from_der(&says.responder).unwrap();
        let key = &responder.public_key().subject_public_key.data;
        let key = digest(&SHA1_FOR_LEGACY_USE_ONLY, key);
        let key = OctetStringRef::new(key.as_ref()).unwrap().to_der().unwrap();
        let responder = match says.by_key {
            true => AnyRef::new(tag(true, 2), &key),
            false => AnyRef::new(tag(true, 1), responder.subject().as_raw()),
        };
        let answer = |_| Answer {
            certificate,
            status: status.unwrap(),
            this_update: when(says.from).unwrap(),
            next_update: says.until.map(|until| when(until).unwrap()),
            extensions: None,
        };
        let extension = Extension {
            name: ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.2"),
            critical: says.critical,
            value: OctetStringRef::new(b"\x04\x01x").unwrap(),
        };
        let answers = Answers {
            version: 0,
            responder: responder.unwrap(),
            produced: when(says.from).unwrap(),
            answers: (0..says.answers).map(answer).collect(),
            extensions: Some(vec![extension]),
        };
        let signed = answers.to_der().unwrap();
        let signature = says.signer.sign(&signed).unwrap();
        let certificates = says.certificates.iter();
        let certificates = certificates.map(|one| AnyRef::from_der(one).unwrap());
        let basic = Basic {
            answers: AnyRef::from_der(&signed).unwrap(),
            algorithm: AnyRef::new(Tag::Sequence, alg_id::ECDSA_SHA256.as_ref()).unwrap(),
            signature: BitStringRef::from_bytes(&signature).unwrap(),
            certificates: Some(certificates.collect()),
        };
        let basic = basic.to_der().unwrap();
        let content = Content {
            kind: super::check::BASIC,
            bytes: OctetStringRef::new(&basic).unwrap(),
        };
        let response = Response {
            status: Status::Successful,
            content: Some(content),
        };
        response.to_der().unwrap()
    }
}
