//! Alerts that a client gets where rustls ends a handshake without one, or with another one than the
//! RFCs demand.
//!
//! rustls sends alerts for most errors itself. The others it only reports, so the alert is chosen
//! here, as RFC 8446 (sections 4.2, 5, 5.1, 5.4, 6.2 and 9.2) and RFC 5246 (sections 7.2.2 and 7.4.6,
//! appendix E.1) say.

use rustls::{AlertDescription, InvalidMessage, PeerIncompatible, PeerMisbehaved, ProtocolVersion};
use widelane_access_log::Alert;

use crate::front::client_hello::ClientHelloSummary;
use crate::handshaker::ProcessFailure;

/// The alert for a failure, as a record that is not encrypted. `None`: the client has ended the
/// handshake itself.
fn record(failure: &ProcessFailure) -> Option<[u8; 7]> {
    let description = description(failure)?;
    Some([ALERT, 3, 3, 0, 2, FATAL, description.into()])
}

/// The alert that the client has sent or was sent by rustls, as far as an error tells. `complete`: the
/// handshake was.
pub(crate) fn of(error: &rustls::Error, complete: bool) -> Option<Alert> {
    match error {
        rustls::Error::AlertReceived(alert) => Some(Alert::Received(name(*alert))),
        error => sent_for(error, complete).map(sent),
    }
}

/// An alert to the client.
pub(crate) fn sent(alert: AlertDescription) -> Alert {
    Alert::Sent(name(alert))
}

/// The fatal alert with which bytes that are not encrypted end.
pub(crate) fn at_end(bytes: &[u8]) -> Option<AlertDescription> {
    match bytes.last_chunk() {
        Some([ALERT, 3, _, 0, 2, FATAL, description]) => Some((*description).into()),
        _ => None,
    }
}

/// Returns whether a client begins with close_notify. rustls takes that for a warning like any other, because it
/// is not authenticated, and goes on to wait for a ClientHello.
pub(crate) fn is_goodbye(bytes: &[u8]) -> bool {
    bytes.starts_with(&[ALERT, 3]) && matches!(bytes.get(3..7), Some([0, 2, WARNING, 0]))
}

/// Ends bytes that are not encrypted with the alert that is due, in place of rustls' own if need be.
/// `agreed`: the version, if that is known.
pub(crate) fn finish(
    words: &mut Vec<u8>,
    failure: &ProcessFailure,
    summary: ClientHelloSummary,
    agreed: Option<ProtocolVersion>,
) {
    match (at_end(words), failure) {
        (None, _) => words.extend(record(failure).into_iter().flatten()),
        (Some(_), ProcessFailure::Tls(error)) => {
            if let (Some(due), Some(last)) = (instead(error, summary, agreed), words.last_mut()) {
                *last = due.into();
            }
        }
        (Some(_), ProcessFailure::Overloaded | ProcessFailure::Internal(_)) => {}
    }
}

/// The alert that is due where rustls sends another one.
fn instead(
    error: &rustls::Error,
    summary: ClientHelloSummary,
    agreed: Option<ProtocolVersion>,
) -> Option<AlertDescription> {
    use AlertDescription as Alert;
    use PeerIncompatible::*;
    match error {
        rustls::Error::InvalidMessage(error) => Some(invalid(*error)),
        // RFC 8446, section 9.2.
        rustls::Error::PeerIncompatible(KeyShareExtensionRequired) => Some(Alert::MissingExtension),
        rustls::Error::PeerIncompatible(NoKxGroupsInCommon)
            if agreed == Some(ProtocolVersion::TLSv1_3) && summary.lacks_groups =>
        {
            Some(Alert::MissingExtension)
        }
        // rustls looks for this extension first, before the version is known.
        rustls::Error::PeerIncompatible(SignatureAlgorithmsExtensionRequired) => {
            match summary.version {
                Some(ProtocolVersion::TLSv1_3) => Some(Alert::MissingExtension),
                // RFC 5246, appendix E.1.
                Some(version) if u16::from(version) < u16::from(ProtocolVersion::TLSv1_2) => {
                    Some(Alert::ProtocolVersion)
                }
                _ => None,
            }
        }
        // RFC 6066, section 3.
        rustls::Error::General(text) if text == NO_CERTIFICATE => Some(Alert::UnrecognisedName),
        // RFC 5246, section 7.4.6; the alert of rustls came with TLS 1.3.
        rustls::Error::NoCertificatesPresented if agreed == Some(ProtocolVersion::TLSv1_2) => {
            Some(Alert::HandshakeFailure)
        }
        _ => None,
    }
}

/// Alert for a record or a message with a wrong form (RFC 8446, sections 5 and 5.1).
fn invalid(error: InvalidMessage) -> AlertDescription {
    match error {
        InvalidMessage::MessageTooLarge => AlertDescription::RecordOverflow,
        InvalidMessage::InvalidContentType | InvalidMessage::InvalidCcs | InvalidMessage::InvalidEmptyPayload => {
            AlertDescription::UnexpectedMessage
        }
        error => error.into(),
    }
}

/// The alert that rustls has sent for an error, encrypted, where that is certain. `complete`: the
/// handshake was.
fn sent_for(error: &rustls::Error, complete: bool) -> Option<AlertDescription> {
    use AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(error) => Some(error.clone().into()),
        rustls::Error::NoCertificatesPresented => Some(Alert::CertificateRequired),
        rustls::Error::InvalidMessage(error) => Some((*error).into()),
        rustls::Error::PeerSentOversizedRecord => Some(Alert::RecordOverflow),
        // In a handshake, it may be a Finished that is wrong.
        rustls::Error::DecryptError if complete => Some(Alert::BadRecordMac),
        _ => None,
    }
}

/// The name of an alert in the RFCs.
pub(crate) fn name(alert: AlertDescription) -> String {
    let Some(name) = alert.as_str() else {
        return u8::from(alert).to_string();
    };
    let letters: Vec<char> = name.chars().collect();
    let mut words = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        let is_end = before.is_some_and(char::is_ascii_lowercase);
        // As in NoALPN or UnknownPSKIdentity.
        let is_last_capital = before.is_some() && after.is_some_and(char::is_ascii_lowercase);
        if letter.is_ascii_uppercase() && (is_end || is_last_capital) {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn description(failure: &ProcessFailure) -> Option<AlertDescription> {
    use AlertDescription as Alert;
    let error = match failure {
        ProcessFailure::Overloaded | ProcessFailure::Internal(_) => {
            return Some(Alert::InternalError);
        }
        ProcessFailure::Tls(error) => error,
    };
    Some(match error {
        rustls::Error::AlertReceived(_) => return None,
        rustls::Error::InvalidMessage(error) => invalid(*error),
        rustls::Error::PeerMisbehaved(error) => misbehaviour(error),
        rustls::Error::PeerIncompatible(_) => Alert::HandshakeFailure,
        rustls::Error::General(text) if text == NO_SIGNATURE_SCHEME => Alert::HandshakeFailure,
        _ => Alert::InternalError,
    })
}

fn misbehaviour(error: &PeerMisbehaved) -> AlertDescription {
    use AlertDescription as Alert;
    use PeerMisbehaved::*;
    match error {
        // Records and messages that are well formed and come at the wrong time.
        IllegalMiddleboxChangeCipherSpec
        | IllegalTlsInnerPlaintext
        | KeyEpochWithPendingFragment
        | MessageInterleavedWithHandshakeMessage
        | RejectedEarlyDataInterleavedWithHandshakeMessage
        | TooManyEmptyFragments
        | TooManyKeyUpdateRequests
        | TooManyRenegotiationRequests
        | TooManyWarningAlertsReceived
        | TooMuchEarlyDataReceived => Alert::UnexpectedMessage,
        MissingKeyShare | MissingPskExtensionInSecondClientHello | MissingPskModesExtension => Alert::MissingExtension,
        MissingBinderInPskExtension => Alert::DecodeError,
        IncorrectBinder => Alert::DecryptError,
        UnsolicitedCertExtension => Alert::UnsupportedExtension,
        _ => Alert::IllegalParameter,
    }
}

/// Error of rustls when there is no certificate for the host name that the client asks for.
pub(crate) const NO_CERTIFICATE: &str = "no server certificate chain resolved";
const ALERT: u8 = 21;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
/// Error of rustls in TLS 1.2 when the certificate's key has no scheme that the client verifies.
pub(crate) const NO_SIGNATURE_SCHEME: &str = "incompatible signing key";

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(error: impl Into<rustls::Error>) -> Option<AlertDescription> {
        description(&ProcessFailure::Tls(error.into()))
    }

    #[test]
    fn each_kind_of_error_has_its_alert() {
        use AlertDescription::*;
        use PeerMisbehaved as Peer;
        for (error, expected) in [
            (Peer::MessageInterleavedWithHandshakeMessage, UnexpectedMessage),
            (Peer::TooManyWarningAlertsReceived, UnexpectedMessage),
            (Peer::MissingPskModesExtension, MissingExtension),
            (Peer::IncorrectBinder, DecryptError),
            (Peer::InvalidKeyShare, IllegalParameter),
            (Peer::ServerNameDifferedOnRetry, IllegalParameter),
        ] {
            assert_eq!(alert(error), Some(expected));
        }
        let invalid = InvalidMessage::HandshakePayloadTooLarge;
        assert_eq!(alert(invalid), Some(DecodeError));
        let repeated = InvalidMessage::DuplicateExtension(0);
        assert_eq!(alert(repeated), Some(IllegalParameter));
        let received = rustls::Error::AlertReceived(HandshakeFailure);
        assert_eq!(alert(received), None);
        let other = rustls::Error::General("another reason".into());
        assert_eq!(alert(other), Some(InternalError));
        assert_eq!(description(&ProcessFailure::Overloaded), Some(InternalError));
    }

    #[test]
    fn an_alert_of_rustls_gives_way_to_the_one_that_is_due() {
        use AlertDescription::*;
        use PeerIncompatible as Cannot;
        use rustls::Error::NoCertificatesPresented;
        use rustls::ProtocolVersion::{TLSv1_1, TLSv1_2, TLSv1_3};
        // One that is never due here.
        let own = UserCanceled;
        let finished = |error: rustls::Error, offered, lacks_groups, agreed| {
            let mut words = [22, 3, 3, 0, 1, 2, ALERT, 3, 3, 0, 2, FATAL, own.into()].to_vec();
            let summary = ClientHelloSummary {
                version: offered,
                lacks_groups,
            };
            finish(&mut words, &ProcessFailure::Tls(error), summary, agreed);
            assert_eq!(words.len(), 13);
            at_end(&words).unwrap()
        };
        // Before anything is known of the client.
        for (error, expected) in [
            (InvalidMessage::MessageTooLarge, RecordOverflow),
            (InvalidMessage::InvalidContentType, UnexpectedMessage),
            (InvalidMessage::InvalidCcs, UnexpectedMessage),
            (InvalidMessage::InvalidEmptyPayload, UnexpectedMessage),
            (InvalidMessage::MessageTooShort, DecodeError),
        ] {
            assert_eq!(finished(error.into(), None, false, None), expected);
        }
        for (offered, expected) in [
            (Some(TLSv1_3), MissingExtension),
            (Some(TLSv1_2), own),
            (Some(TLSv1_1), ProtocolVersion),
            (None, own),
        ] {
            let error = Cannot::SignatureAlgorithmsExtensionRequired.into();
            assert_eq!(finished(error, offered, false, None), expected);
        }
        for (version, lacks_groups, expected) in [
            (TLSv1_3, true, MissingExtension),
            (TLSv1_3, false, own),
            (TLSv1_2, true, own),
        ] {
            let error = Cannot::NoKxGroupsInCommon.into();
            let alert = finished(error, Some(version), lacks_groups, Some(version));
            assert_eq!(alert, expected);
        }
        let no_name = rustls::Error::General(NO_CERTIFICATE.into());
        assert_eq!(finished(no_name, None, false, None), UnrecognisedName);
        let agreed = |error, version| finished(error, Some(version), false, Some(version));
        let no_share = Cannot::KeyShareExtensionRequired.into();
        assert_eq!(agreed(no_share, TLSv1_3), MissingExtension);
        assert_eq!(agreed(NoCertificatesPresented, TLSv1_2), HandshakeFailure);
        assert_eq!(agreed(NoCertificatesPresented, TLSv1_3), own);
    }

    #[test]
    fn an_alert_at_the_end_is_seen() {
        let alert = record(&ProcessFailure::Overloaded).unwrap();
        let description = Some(AlertDescription::InternalError);
        assert_eq!(at_end(&alert), description);
        let behind = [&[22, 3, 3, 0, 1, 0][..], &alert].concat();
        assert_eq!(at_end(&behind), description);
        assert_eq!(at_end(&[&alert[..], &[22, 3, 3, 0, 1, 0]].concat()), None);
        assert_eq!(at_end(&alert[1..]), None);
    }

    #[test]
    fn alerts_have_the_names_of_the_rfcs() {
        use AlertDescription::*;
        for (alert, expected) in [
            (CloseNotify, "close_notify"),
            (BadRecordMac, "bad_record_mac"),
            (UnknownCA, "unknown_ca"),
            (NoApplicationProtocol, "no_application_protocol"),
            (UnknownPSKIdentity, "unknown_psk_identity"),
            (Unknown(200), "200"),
        ] {
            assert_eq!(name(alert), expected);
        }
    }
}
