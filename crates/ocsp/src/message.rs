//! OCSP's messages as RFC 6960 defines them. The crate `der` reads and writes them; what it does not take
//! apart here stays as the bytes that came, because signatures and comparisons are about those.

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, ObjectIdentifier, OctetStringRef};
use der::{Enumerated, Sequence};

/// OCSPRequest (section 4.1.1), without signature and extensions: RFC 5019, section 2.1.1 wants it so,
/// for answers that can be made in advance and cached.
#[derive(Debug, Sequence)]
pub(crate) struct Request<'a> {
    pub(crate) body: RequestBody<'a>,
}

/// TBSRequest.
#[derive(Debug, Sequence)]
pub(crate) struct RequestBody<'a> {
    pub(crate) questions: Vec<Question<'a>>,
}

/// Request.
#[derive(Debug, Sequence)]
pub(crate) struct Question<'a> {
    pub(crate) certificate: CertificateId<'a>,
}

/// CertID: which certificate a question or an answer is about.
#[derive(Clone, Copy, Debug, Sequence)]
pub(crate) struct CertificateId<'a> {
    pub(crate) hash: Algorithm<'a>,
    pub(crate) issuer_name: &'a OctetStringRef,
    pub(crate) issuer_key: &'a OctetStringRef,
    /// An INTEGER.
    pub(crate) serial: AnyRef<'a>,
}

/// AlgorithmIdentifier.
#[derive(Clone, Copy, Debug, Sequence)]
pub(crate) struct Algorithm<'a> {
    pub(crate) name: ObjectIdentifier,
    pub(crate) parameters: Option<AnyRef<'a>>,
}

/// OCSPResponse (section 4.2.1).
#[derive(Debug, Sequence)]
pub(crate) struct Response<'a> {
    pub(crate) status: Status,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    pub(crate) content: Option<Content<'a>>,
}

/// OCSPResponseStatus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumerated)]
#[repr(u8)]
pub(crate) enum Status {
    Successful = 0,
    MalformedRequest = 1,
    InternalError = 2,
    TryLater = 3,
    SignatureRequired = 5,
    Unauthorized = 6,
}

impl Status {
    /// What it says, in words.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Successful => "it has succeeded",
            Self::MalformedRequest => "it does not understand the question",
            Self::InternalError => "it has an internal error",
            Self::TryLater => "it asks to try again later",
            Self::SignatureRequired => "it answers signed questions only",
            Self::Unauthorized => "it does not answer about this certificate, or not to us",
        }
    }
}

/// ResponseBytes.
#[derive(Debug, Sequence)]
pub(crate) struct Content<'a> {
    pub(crate) kind: ObjectIdentifier,
    pub(crate) bytes: &'a OctetStringRef,
}

/// BasicOCSPResponse.
#[derive(Debug, Sequence)]
pub(crate) struct Basic<'a> {
    /// [`Answers`], as they were signed.
    pub(crate) answers: AnyRef<'a>,
    /// An AlgorithmIdentifier.
    pub(crate) algorithm: AnyRef<'a>,
    pub(crate) signature: BitStringRef<'a>,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    pub(crate) certificates: Option<Vec<AnyRef<'a>>>,
}

/// ResponseData.
#[derive(Debug, Sequence)]
pub(crate) struct Answers<'a> {
    #[asn1(context_specific = "0", default = "Default::default", tag_mode = "EXPLICIT")]
    pub(crate) version: u8,
    /// `[1]` a Name, or `[2]` the hash of a key.
    pub(crate) responder: AnyRef<'a>,
    pub(crate) produced: GeneralizedTime,
    pub(crate) answers: Vec<Answer<'a>>,
    #[asn1(context_specific = "1", optional = "true", tag_mode = "EXPLICIT")]
    pub(crate) extensions: Option<Vec<Extension<'a>>>,
}

/// SingleResponse.
#[derive(Debug, Sequence)]
pub(crate) struct Answer<'a> {
    pub(crate) certificate: CertificateId<'a>,
    /// `[0]` good, `[1]` revoked, with when and why, or `[2]` unknown.
    pub(crate) status: AnyRef<'a>,
    pub(crate) this_update: GeneralizedTime,
    #[asn1(context_specific = "0", optional = "true", tag_mode = "EXPLICIT")]
    pub(crate) next_update: Option<GeneralizedTime>,
    #[asn1(context_specific = "1", optional = "true", tag_mode = "EXPLICIT")]
    pub(crate) extensions: Option<Vec<Extension<'a>>>,
}

/// Extension (RFC 5280).
#[derive(Debug, Sequence)]
pub(crate) struct Extension<'a> {
    pub(crate) name: ObjectIdentifier,
    #[asn1(default = "Default::default")]
    pub(crate) critical: bool,
    pub(crate) value: &'a OctetStringRef,
}
