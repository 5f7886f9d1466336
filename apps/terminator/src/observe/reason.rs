//! Reasons why handshakes failed, in words for operators.
//!
//! rustls names its errors for programmers. Each has words here: what the other side has done, or what its
//! certificate lacks. Errors that need no more than their names get these as words.

use std::fmt::Debug;

use rustls::{
    AlertDescription, CertRevocationListError, CertificateError, Error, ExtendedKeyPurpose, InvalidMessage,
    PeerIncompatible,
};
use rustls_pki_types::UnixTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::front::alert;

/// Says what the other side has done.
pub(crate) fn of(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::InvalidCertRevocationList(error) => revocation_list(error),
        Error::NoCertificatesPresented => "it shows no certificate".into(),
        Error::AlertReceived(alert) => received(*alert),
        Error::DecryptError => "what it has encrypted cannot be decrypted, or its Finished message is wrong".into(),
        Error::PeerSentOversizedRecord => "it sends a record that is longer than TLS allows".into(),
        Error::NoApplicationProtocol => "it offers application protocols (ALPN), and none that is spoken here".into(),
        Error::PeerIncompatible(why) => incompatible(why),
        Error::PeerMisbehaved(why) => format!("it breaks the protocol: {}", words(why)),
        Error::InvalidMessage(why) => malformed(why),
        Error::InappropriateMessage { got_type, .. } => {
            format!("it sends a record at the wrong time: {}", words(got_type))
        }
        Error::InappropriateHandshakeMessage { got_type, .. } => {
            format!("it sends a message at the wrong time: {}", words(got_type))
        }
        Error::General(text) => match text.as_str() {
            alert::NO_SIGNATURE_SCHEME => NO_SIGNATURE.into(),
            alert::NO_CERTIFICATE => "it asks for no host name that a certificate has".into(),
            text => text.into(),
        },
        other => other.to_string(),
    }
}

/// Says what is wrong with a certificate of the other side.
fn certificate(error: &CertificateError) -> String {
    use CertificateError as Bad;
    match error {
        Bad::BadEncoding => "its certificate cannot be read".into(),
        Bad::Expired => "its certificate has expired".into(),
        Bad::ExpiredContext { not_after, .. } => {
            format!("its certificate has expired, on {}", day(*not_after))
        }
        Bad::NotValidYet => "its certificate is not valid yet".into(),
        Bad::NotValidYetContext { not_before, .. } => {
            format!("its certificate is not valid before {}", day(*not_before))
        }
        Bad::Revoked => "its certificate is revoked".into(),
        Bad::UnhandledCriticalExtension => "its certificate has a critical extension that is not known here".into(),
        Bad::UnknownIssuer => "its certificate is not signed by an authority in `ca`, or it does not send the \
                               certificates between (unknown issuer)"
            .into(),
        Bad::UnknownRevocationStatus => {
            "there is no revocation list for its certificate, or for one of its authorities".into()
        }
        Bad::ExpiredRevocationList => "a revocation list for its certificate is overdue".into(),
        Bad::ExpiredRevocationListContext { next_update, .. } => format!(
            "the revocation list for its certificate is overdue, since {}",
            day(*next_update)
        ),
        Bad::BadSignature => "a signature is wrong: of its certificate, or by the key that belongs to it".into(),
        Bad::UnsupportedSignatureAlgorithmContext { .. }
        | Bad::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its certificate is signed by an algorithm that is not taken (like SHA-1 or MD5)".into()
        }
        Bad::NotValidForName => "its certificate has another name".into(),
        Bad::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "its certificate has no subject alternative name".into()
        }
        Bad::NotValidForNameContext { presented, .. } => {
            let names: Vec<_> = presented.iter().map(|name| plain_name(name)).collect();
            format!("its certificate has other names: {}", names.join(", "))
        }
        Bad::InvalidPurpose => NO_PURPOSE.into(),
        Bad::InvalidPurposeContext { required, .. } => {
            format!("{NO_PURPOSE}: it lacks {}", purpose(required))
        }
        Bad::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(webpki::Error::CaUsedAsEndEntity) => {
                "its certificate is that of an authority (CA:TRUE), and `ca` does not list this very certificate; \
                 list it, or make one with basicConstraints=CA:FALSE"
                    .into()
            }
            Some(webpki::Error::UnsupportedCertVersion) => {
                "its certificate, or one of its authorities, is not of X.509 version 3".into()
            }
            Some(webpki::Error::EndEntityUsedAsCa) => {
                "a certificate that signs another one is none of an authority (CA:FALSE)".into()
            }
            Some(webpki::Error::NameConstraintViolation) => {
                "its certificate has a name that its authority may not give (name constraints)".into()
            }
            Some(webpki::Error::PathLenConstraintViolated) => {
                "there are more authorities between than one of them allows (path length)".into()
            }
            Some(error) => format!("its certificate is refused: {}", words(error)),
            None => format!("its certificate is refused: {}", other.0),
        },
        other => format!("its certificate is refused: {}", words(other)),
    }
}

fn revocation_list(error: &CertRevocationListError) -> String {
    format!("a revocation list cannot be used: {}", words(error))
}

fn incompatible(why: &PeerIncompatible) -> String {
    use PeerIncompatible as Cannot;
    match why {
        Cannot::NoCipherSuitesInCommon => "no cipher suite in common".into(),
        Cannot::NoKxGroupsInCommon => "no key exchange group in common".into(),
        Cannot::NoSignatureSchemesInCommon => NO_SIGNATURE.into(),
        Cannot::SupportedVersionsExtensionRequired
        | Cannot::ServerDoesNotSupportTls12Or13
        | Cannot::ServerTlsVersionIsDisabledByOurConfig
        | Cannot::Tls12NotOffered
        | Cannot::Tls12NotOfferedOrEnabled => "no version of TLS in common".into(),
        Cannot::SignatureAlgorithmsExtensionRequired => {
            "it does not say which signatures it verifies, as clients before TLS 1.2 do not".into()
        }
        other => format!("it cannot be served: {}", words(other)),
    }
}

fn malformed(why: &InvalidMessage) -> String {
    match why {
        InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion => {
            "what it sends is no record of TLS".into()
        }
        InvalidMessage::HandshakePayloadTooLarge => "it sends a message that is longer than 65,515 bytes".into(),
        other => format!("it sends a malformed message: {}", words(other)),
    }
}

fn received(alert: AlertDescription) -> String {
    use AlertDescription as Alert;
    let name = alert::name(alert);
    match alert {
        Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::CertificateUnknown
        | Alert::CertificateExpired
        | Alert::CertificateRevoked
        | Alert::UnsupportedCertificate => {
            format!("it sends the alert {name}: it does not take the certificate that it was shown")
        }
        _ => format!("it sends the alert {name}"),
    }
}

fn purpose(purpose: &ExtendedKeyPurpose) -> String {
    match purpose {
        ExtendedKeyPurpose::ClientAuth => "clientAuth".into(),
        ExtendedKeyPurpose::ServerAuth => "serverAuth".into(),
        ExtendedKeyPurpose::Other(numbers) => {
            let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
            numbers.join(".")
        }
    }
}

/// rustls has the name of a certificate as `DnsName("a.example")` and the like.
fn plain_name(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

/// The name of a variant, as words: `NoCipherSuitesInCommon`.
fn words(value: &impl Debug) -> String {
    let name = format!("{value:?}");
    let end = name.find(|letter: char| !letter.is_ascii_alphanumeric());
    let name = &name[..end.unwrap_or(name.len())];
    let mut parts: Vec<String> = Vec::new();
    for letter in name.chars() {
        match parts.last_mut() {
            Some(part) if !letter.is_ascii_uppercase() => part.push(letter),
            // As in `NoALPN`.
            Some(part) if part.ends_with(|before: char| before.is_ascii_uppercase()) => {
                part.push(letter);
            }
            _ => parts.push(letter.into()),
        }
    }
    let known = |part: &String| {
        let part = part.to_ascii_lowercase();
        let found = TERMS.iter().find(|(short, _)| *short == part);
        found.map_or(part, |(_, term)| (*term).to_owned())
    };
    parts.iter().map(known).collect::<Vec<_>>().join(" ")
}

fn day(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    time.ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| "a day that has no name".into())
}

const NO_SIGNATURE: &str = "it verifies no signature that a certificate here can make";
const NO_PURPOSE: &str = "its certificate is not for this use (extended key usage, EKU)";

/// Short forms in the names of rustls, and what they stand for.
const TERMS: [(&str, &str); 10] = [
    ("alpn", "ALPN"),
    ("ccs", "change_cipher_spec"),
    ("dh", "Diffie-Hellman"),
    ("ech", "ECH"),
    ("ems", "extended master secret"),
    ("kx", "key exchange"),
    ("psk", "PSK"),
    ("sct", "SCT"),
    ("tls12", "TLS 1.2"),
    ("tls13", "TLS 1.3"),
];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{OtherError, PeerMisbehaved};

    use super::*;

    #[test]
    fn each_error_has_words_and_no_names_of_types() {
        let not_after = UnixTime::since_unix_epoch(std::time::Duration::from_secs(86_400));
        let other = |error: webpki::Error| CertificateError::Other(OtherError(Arc::new(error)));
        for (error, expected) in [
            (
                PeerIncompatible::NoCipherSuitesInCommon.into(),
                "no cipher suite in common",
            ),
            (
                PeerMisbehaved::MissingPskModesExtension.into(),
                "it breaks the protocol: missing PSK modes extension",
            ),
            (
                InvalidMessage::MissingData("ClientHello").into(),
                "it sends a malformed message: missing data",
            ),
            (
                CertificateError::ExpiredContext {
                    time: not_after,
                    not_after,
                }
                .into(),
                "its certificate has expired, on 1970-01-02T00:00:00Z",
            ),
            (
                other(webpki::Error::EndEntityUsedAsCa).into(),
                "a certificate that signs another one is none of an authority (CA:FALSE)",
            ),
            (
                other(webpki::Error::MalformedNameConstraint).into(),
                "its certificate is refused: malformed name constraint",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "it sends the alert unknown_ca: it does not take the certificate that it was shown",
            ),
            (Error::General("anything".into()), "anything"),
        ] {
            assert_eq!(of(&error), expected);
        }
        let names = CertificateError::NotValidForNameContext {
            expected: "a.example".try_into().unwrap(),
            presented: vec!["DnsName(\"b.example\")".into(), "IpAddress(192.0.2.1)".into()],
        };
        assert_eq!(
            certificate(&names),
            "its certificate has other names: b.example, 192.0.2.1"
        );
    }
}
