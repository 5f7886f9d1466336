//! Meaning of the labels of sections.

use crate::lines::{MARK, Section};
use crate::{Fault, der};

/// Purpose of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Certificate,
    /// Certificate with OpenSSL's own list of trusted uses behind it.
    TrustedCertificate,
    Key,
    EncryptedKey,
    RevocationList,
    /// Allowed in a file, without effect: a key has its parameters itself, no cipher suite of ours takes those of
    /// Diffie-Hellman, a public key is in the certificate, and a request has been answered.
    NoEffect,
}

/// Kind of content that a file is read for.
pub(crate) struct Wanted {
    name: &'static str,
    remedy: &'static str,
    /// The command that makes PEM of it.
    tool: &'static str,
}

/// The kind of a section. An error if it is not known, or of use nowhere.
pub(crate) fn kind(section: &Section<'_>) -> Result<Kind, Fault> {
    Ok(match section.label {
        "CERTIFICATE" | "X509 CERTIFICATE" => Kind::Certificate,
        "TRUSTED CERTIFICATE" => Kind::TrustedCertificate,
        "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => match section.header {
            Some((b"Proc-Type", says)) if says.ends_with(b"ENCRYPTED") => Kind::EncryptedKey,
            _ => Kind::Key,
        },
        "ENCRYPTED PRIVATE KEY" => Kind::EncryptedKey,
        "X509 CRL" => Kind::RevocationList,
        "EC PARAMETERS"
        | "DH PARAMETERS"
        | "X9.42 DH PARAMETERS"
        | "DSA PARAMETERS"
        | "PUBLIC KEY"
        | "RSA PUBLIC KEY"
        | "CERTIFICATE REQUEST"
        | "NEW CERTIFICATE REQUEST" => Kind::NoEffect,
        label => {
            let (problem, remedy) = match label {
                "PKCS7" | "PKCS #7 SIGNED DATA" | "CMS" => (
                    "holds certificates in PKCS#7, which is not read",
                    "take them out: openssl pkcs7 -print_certs -in OLD.p7b -out NEW.pem",
                ),
                "OPENSSH PRIVATE KEY" => (
                    "holds a key in OpenSSH's own form",
                    "convert a copy of it: ssh-keygen -p -m PKCS8 -f COPY.key",
                ),
                "DSA PRIVATE KEY" => (
                    "holds a DSA key, for which TLS has no use",
                    "give an RSA, ECDSA, Ed25519 or ML-DSA key",
                ),
                _ => ("is not known", "remove it, or correct its first and last line"),
            };
            return Err(section.fault(problem, remedy));
        }
    })
}

/// The fault of a text in which there is nothing of what is wanted.
pub(crate) fn none(text: &[u8], wanted: &Wanted) -> Fault {
    let text = text.strip_prefix(MARK).unwrap_or(text);
    let Wanted { name, remedy, tool } = wanted;
    let bytes = text.trim_ascii();
    if bytes.is_empty() {
        return Fault::whole("is empty", *remedy);
    }
    if bytes.starts_with(&[0xfe, 0xed, 0xfe, 0xed]) {
        let remedy = "convert it: keytool -importkeystore -srckeystore OLD.jks -destkeystore NEW.p12 \
                      -deststoretype pkcs12, then openssl pkcs12 -in NEW.p12 -nodes -out NEW.pem";
        return Fault::whole("is a key store of Java, not PEM", remedy);
    }
    let outer = der::Element::first(text);
    if outer.is_some_and(|outer| outer.tag == der::SEQUENCE && outer.length <= text.len()) {
        return match der::is_pkcs12(text) {
            true => Fault::whole(
                "is PKCS#12, not PEM",
                "convert it: openssl pkcs12 -in OLD.p12 -nodes -out NEW.pem",
            ),
            false => Fault::whole(
                "is DER, not PEM",
                format!("convert it: openssl {tool} -inform der -in OLD -out NEW.pem"),
            ),
        };
    }
    Fault::whole(format!("has no {name}"), *remedy)
}

pub(crate) const CERTIFICATE: Wanted = Wanted {
    name: "certificate",
    remedy: "give a PEM file with `-----BEGIN CERTIFICATE-----` sections",
    tool: "x509",
};
pub(crate) const LIST: Wanted = Wanted {
    name: "revocation list",
    remedy: "give a PEM file with a `-----BEGIN X509 CRL-----` section for each authority",
    tool: "crl",
};
pub(crate) const KEY: Wanted = Wanted {
    name: "private key",
    remedy: "give a PEM file with a section `PRIVATE KEY` (or with RSA or EC before it)",
    tool: "pkey",
};
