//! Errors of webpki in words.

/// Words for what webpki finds wrong with a certificate or a revocation list.
pub fn words(error: &webpki::Error) -> &'static str {
    use webpki::Error;
    match error {
        Error::BadDer | Error::BadDerTime | Error::TrailingData(_) => "it is damaged",
        Error::CertExpired { .. } => "it has expired",
        Error::CertNotValidYet { .. } => "it is not valid yet, by this machine's clock",
        Error::InvalidSignatureForPublicKey | Error::UnknownIssuer => "the issuer has not signed it",
        Error::ExtensionValueInvalid | Error::MalformedExtensions => "one of its extensions is damaged",
        Error::UnsupportedCriticalExtension => "it has a critical extension, which is not understood",
        Error::UnsupportedCertVersion => "it is not of X.509 version 3",
        Error::UnsupportedCrlVersion => "it is not a list of version 2",
        Error::UnsupportedDeltaCrl => "it is a delta list, which is not read",
        Error::UnsupportedIndirectCrl => "it is an indirect list, which is not read",
        Error::UnsupportedCrlIssuingDistributionPoint | Error::UnsupportedRevocationReasonsPartitioning => {
            "it is for a part of the certificates, in a form that is not read"
        }
        Error::EmptyEkuExtension | Error::RequiredEkuNotFoundContext(_) => "it is for another purpose",
        _ => "it is damaged, or of a form that is not read",
    }
}
