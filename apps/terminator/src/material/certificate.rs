//! Contents of a certificate (RFC 5280), as far as they matter here.

use rustls_pki_types::UnixTime;
use widelane_ocsp::{is_demanded, is_responder};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

/// Contents of a certificate, as far as they matter here.
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
    /// True if it demands that an OCSP response comes with it (RFC 7633).
    pub(crate) must_staple: bool,
    /// The OCSP responder that it names (RFC 5280, section 4.2.2.1), if that can be asked.
    pub(crate) responder: Option<String>,
    /// True if its names are in a form that is not understood.
    pub(crate) has_unknown_names: bool,
    /// True if it is an authority's.
    pub(crate) is_authority: bool,
    /// Names in DER.
    pub(crate) issuer: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    /// SubjectPublicKeyInfo in DER.
    pub(crate) public_key: Vec<u8>,
    /// True if its key may sign RSASSA-PSS alone (RFC 4055).
    pub(crate) is_for_pss: bool,
}

impl Facts {
    /// Reads a certificate. `None`: it is not an X.509 certificate.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut names = Vec::new();
        let mut addresses = Vec::new();
        let alternative = certificate.subject_alternative_name();
        for name in alternative.iter().flatten().flat_map(|one| &one.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.push((*name).to_owned()),
                GeneralName::IPAddress(address) => addresses.push(address.to_vec()),
                _ => {}
            }
        }
        let common = certificate.subject().iter_common_name().next();
        let common = common.map(|name| name.as_str());
        let has_unknown_names = alternative.is_err() || names.is_empty() && matches!(common, Some(Err(_)));
        if names.is_empty() {
            names.extend(common.and_then(Result::ok).map(str::to_owned));
        }
        let features = certificate
            .extensions()
            .iter()
            .find(|extension| extension.oid.as_bytes() == TLS_FEATURE);
        let public_key = certificate.public_key();
        Some(Self {
            names,
            addresses,
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            must_staple: features.is_some_and(|features| is_demanded(features.value)),
            responder: responder(&certificate),
            has_unknown_names,
            is_authority: certificate.is_ca(),
            issuer: certificate.issuer().as_raw().to_vec(),
            subject: certificate.subject().as_raw().to_vec(),
            public_key: public_key.raw.to_vec(),
            is_for_pss: public_key.algorithm.algorithm.as_bytes() == RSASSA_PSS,
        })
    }

    /// Reason why it is not valid at a time.
    pub(crate) fn invalid_at(&self, time: UnixTime) -> Option<String> {
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

/// The common name of a certificate's subject, for logs and for the PROXY header.
pub(crate) fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let name = certificate.subject().iter_common_name().next()?;
    name.as_str().ok().map(str::to_owned)
}

/// Time at which a revocation list is to be renewed at the latest, in seconds since 1970.
pub(crate) fn next_update(der: &[u8]) -> Option<i64> {
    let (_, list) = CertificateRevocationList::from_der(der).ok()?;
    list.next_update().map(|time| time.timestamp())
}

/// The first address over HTTP at which a certificate says that its status can be asked.
fn responder(certificate: &X509Certificate<'_>) -> Option<String> {
    let places = certificate
        .extensions()
        .iter()
        .filter_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityInfoAccess(places) => Some(&places.accessdescs),
            _ => None,
        });
    places.flatten().find_map(|place| match &place.access_location {
        GeneralName::URI(address) if place.access_method.as_bytes() == OCSP && is_responder(address) => {
            Some((*address).to_owned())
        }
        _ => None,
    })
}

/// id-pe-tlsfeature, 1.3.6.1.5.5.7.1.24, as the contents of an OBJECT IDENTIFIER.
const TLS_FEATURE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 24];
/// id-ad-ocsp, 1.3.6.1.5.5.7.48.1, in the same form.
const OCSP: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 48, 1];
/// id-RSASSA-PSS, 1.2.840.113549.1.1.10, in the same form.
const RSASSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn certificates_that_are_not_valid_are_reported() {
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
}
