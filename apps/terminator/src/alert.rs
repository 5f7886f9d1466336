//! Which alert a client gets where rustls ends a handshake without one.
//!
//! rustls sends alerts for most errors itself. The others it only reports, so the alert is chosen
//! here, as RFC 8446 (sections 4.2, 5, 5.1, 5.4 and 6.2) and RFC 5246 (section 7.2.2) say.

use rustls::{AlertDescription, PeerMisbehaved};

use crate::signing::ProcessFailure;

/// The alert for a failure, as a record that is not encrypted. `None`: the client has ended the
/// handshake itself.
pub(crate) fn record(failure: &ProcessFailure) -> Option<[u8; 7]> {
    let description = description(failure)?;
    Some([ALERT, 3, 3, 0, 2, FATAL, description.into()])
}

/// Whether bytes that are not encrypted end with a fatal alert.
pub(crate) fn ends(bytes: &[u8]) -> bool {
    matches!(bytes.last_chunk(), Some([ALERT, 3, _, 0, 2, FATAL, _]))
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
        rustls::Error::InvalidMessage(error) => Alert::from(*error),
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
        MissingKeyShare | MissingPskExtensionInSecondClientHello | MissingPskModesExtension => {
            Alert::MissingExtension
        }
        MissingBinderInPskExtension => Alert::DecodeError,
        IncorrectBinder => Alert::DecryptError,
        UnsolicitedCertExtension => Alert::UnsupportedExtension,
        _ => Alert::IllegalParameter,
    }
}

const ALERT: u8 = 21;
const FATAL: u8 = 2;
/// What rustls says in TLS 1.2 when the certificate's key has no scheme that the client verifies.
const NO_SIGNATURE_SCHEME: &str = "incompatible signing key";

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;

    fn alert(error: impl Into<rustls::Error>) -> Option<AlertDescription> {
        description(&ProcessFailure::Tls(error.into()))
    }

    #[test]
    fn each_kind_of_error_has_its_alert() {
        use AlertDescription::*;
        use PeerMisbehaved as Peer;
        for (error, expected) in [
            (
                Peer::MessageInterleavedWithHandshakeMessage,
                UnexpectedMessage,
            ),
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
        assert_eq!(
            description(&ProcessFailure::Overloaded),
            Some(InternalError)
        );
    }

    #[test]
    fn an_alert_at_the_end_is_seen() {
        let alert = record(&ProcessFailure::Overloaded).unwrap();
        assert!(ends(&alert));
        assert!(ends(&[&[22, 3, 3, 0, 1, 0][..], &alert].concat()));
        assert!(!ends(&[&alert[..], &[22, 3, 3, 0, 1, 0]].concat()));
        assert!(!ends(&alert[1..]));
    }
}
