//! Reads certificates, private keys and revocation lists from PEM files (RFC 7468).
//!
//! Nothing is skipped in silence. Text between sections is commentary, as the RFC says, unless it looks like
//! the first or last line of a section. Sections that have no effect in a file of this kind are listed in
//! `labels`; each other one is a [`Fault`] with its line.
//!
//! What is inside a section is looked at as far as it takes to tell one kind of key from another and to
//! see that nothing follows its end. Whether a certificate is good is the caller's to find out.
//!
//! Secrets are wiped: what is decoded is [`Zeroizing`], and no buffer with a key in it grows. The caller wipes the
//! text.

#![forbid(unsafe_code)]

mod der;
mod labels;
mod lines;

use std::mem;
use std::path::Path;

use base64ct::{Base64, Encoding};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use zeroize::Zeroizing;

use der::{Element, KeyForm};
use labels::Kind;
use lines::Section;

/// Something in a file, with the line at which its section begins.
#[derive(Debug)]
pub struct Placed<T> {
    /// Number of the section's first line, from 1.
    pub line: usize,
    /// Content of the section.
    pub value: T,
}

/// Fault of a file, with its remedy. Shows no text of the file but labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}; {remedy}", .line.map_or("the file ".into(), |line| format!("line {line}: ")))]
pub struct Fault {
    /// Line of the fault, from 1; `None` if it is not at one place.
    pub line: Option<usize>,
    /// Description of the fault. Without a line it is about the whole file.
    pub problem: String,
    /// Remedy for the fault.
    pub remedy: String,
}

/// Numbers of sections of each kind in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Certificates.
    pub certificates: usize,
    /// Private keys, encrypted or not.
    pub keys: usize,
    /// Revocation lists.
    pub lists: usize,
}

/// Counts what is in a file, and decodes nothing.
///
/// # Errors
///
/// When the file is no PEM, or has sections that are not known.
pub fn contents(text: &[u8]) -> Result<Contents, Fault> {
    let mut found = Contents::default();
    for section in lines::sections(text)? {
        match labels::kind(&section)? {
            Kind::Certificate | Kind::TrustedCertificate => found.certificates += 1,
            Kind::Key | Kind::EncryptedKey => found.keys += 1,
            Kind::RevocationList => found.lists += 1,
            Kind::NoEffect => {}
        }
    }
    Ok(found)
}

/// The certificates of a server or a client, at least one. Its private key may be in the same file.
///
/// # Errors
///
/// When there is none, or something in the file is not understood.
pub fn chain(text: &[u8]) -> Result<Vec<Placed<CertificateDer<'static>>>, Fault> {
    certificates(text, false)
}

/// The certificates of authorities, at least one.
///
/// # Errors
///
/// When there is none, or something in the file is not understood.
pub fn authorities(text: &[u8]) -> Result<Vec<Placed<CertificateDer<'static>>>, Fault> {
    certificates(text, true)
}

/// Revocation lists, at least one.
///
/// # Errors
///
/// When there is none, or something in the file is not understood.
pub fn revocation_lists(text: &[u8]) -> Result<Vec<Placed<CertificateRevocationListDer<'static>>>, Fault> {
    let mut found = Vec::new();
    for section in lines::sections(text)? {
        let line = section.line;
        match labels::kind(&section)? {
            Kind::RevocationList => {
                let value = mem::take(&mut *decode(&section)?.0).into();
                found.push(Placed { line, value });
            }
            Kind::NoEffect => {}
            _ => {
                return Err(section.fault(
                    "does not belong into a file of revocation lists",
                    "keep only the sections `X509 CRL` in this file",
                ));
            }
        }
    }
    match found.is_empty() {
        true => Err(labels::none(text, &labels::LIST)),
        false => Ok(found),
    }
}

/// The private key in a file. Its certificates may be in the same file.
///
/// The label does not decide what form the key has: programs write wrong ones, and OpenSSL takes them.
///
/// # Errors
///
/// When there is none, there are two, it is encrypted, or something in the file is not understood.
pub fn private_key(text: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, Fault> {
    let mut found: Option<(usize, Zeroizing<PrivateKeyDer<'static>>)> = None;
    for section in lines::sections(text)? {
        match labels::kind(&section)? {
            Kind::Key => {}
            Kind::EncryptedKey => return Err(encrypted(&section)),
            Kind::RevocationList => return Err(misplaced_list(&section)),
            Kind::Certificate | Kind::TrustedCertificate | Kind::NoEffect => continue,
        }
        let key = key_of(&section)?;
        match &found {
            Some((line, other)) if other.secret_der() != key.secret_der() => {
                let problem = format!("a second private key (the first is at line {line})");
                let remedy = "keep one, and give each certificate a key file of its own";
                return Err(Fault::at(section.line, problem, remedy));
            }
            Some(_) => {}
            None => found = Some((section.line, key)),
        }
    }
    let none = || labels::none(text, &labels::KEY);
    found.map(|(_, key)| key).ok_or_else(none)
}

/// Returns whether a file is text in UTF-16 or UTF-32, as some editors of Windows write it.
pub fn is_utf16(text: &[u8]) -> bool {
    let has_mark = text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]);
    let ascii = |byte: u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    has_mark
        || match *text {
            [0, 0, 0xfe, 0xff, ..] => true,
            [first, 0, second, 0, ..] | [0, first, 0, second, ..] => ascii(first) && ascii(second),
            _ => false,
        }
}

/// A text without the byte order mark that some editors put before UTF-8.
pub fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(lines::MARK).unwrap_or(text)
}

impl Fault {
    /// Describes the fault, with the name of the file.
    pub fn in_file(&self, path: &Path) -> String {
        let (path, problem) = (path.display(), &self.problem);
        match self.line {
            Some(line) => format!("{path}, line {line}: {problem}"),
            None => format!("{path} {problem}"),
        }
    }

    fn at(line: usize, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::whole(problem, remedy)
        }
    }

    fn whole(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            line: None,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// `of_authorities`: what OpenSSL adds to a certificate says what that is trusted for.
fn certificates(text: &[u8], of_authorities: bool) -> Result<Vec<Placed<CertificateDer<'static>>>, Fault> {
    let mut found = Vec::new();
    for section in lines::sections(text)? {
        let trusted = match labels::kind(&section)? {
            Kind::Certificate => false,
            Kind::TrustedCertificate => true,
            Kind::Key | Kind::EncryptedKey | Kind::NoEffect => continue,
            Kind::RevocationList => return Err(misplaced_list(&section)),
        };
        let (mut der, length) = match trusted {
            false => decode(&section)?,
            true => decode_first(&section)?,
        };
        if der.len() > length && of_authorities {
            return Err(section.fault(
                "says what OpenSSL trusts it for, and that is not read here",
                "write it without: openssl x509 -clrtrust -in OLD.pem -out NEW.pem",
            ));
        }
        der.truncate(length);
        if !der::is_signed(&der) {
            return Err(section.fault("holds no certificate", "write this file anew"));
        }
        let value = mem::take(&mut *der).into();
        let line = section.line;
        found.push(Placed { line, value });
    }
    match found.is_empty() {
        true => Err(labels::none(text, &labels::CERTIFICATE)),
        false => Ok(found),
    }
}

fn key_of(section: &Section<'_>) -> Result<Zeroizing<PrivateKeyDer<'static>>, Fault> {
    let mut der = decode(section)?.0;
    let form = der::key_form(&der);
    if form == KeyForm::Encrypted {
        return Err(encrypted(section));
    }
    let bytes = mem::take(&mut *der);
    Ok(Zeroizing::new(match form {
        KeyForm::Pkcs8 => PrivateKeyDer::Pkcs8(bytes.into()),
        KeyForm::Pkcs1 => PrivateKeyDer::Pkcs1(bytes.into()),
        KeyForm::Sec1 => PrivateKeyDer::Sec1(bytes.into()),
        KeyForm::Dsa | KeyForm::Other | KeyForm::Encrypted => {
            drop(Zeroizing::new(bytes));
            let problem = match form {
                KeyForm::Dsa => "holds a DSA key, for which TLS has no use",
                _ => "holds no private key",
            };
            let remedy = "give an RSA, ECDSA, Ed25519 or ML-DSA key";
            return Err(section.fault(problem, remedy));
        }
    }))
}

fn encrypted(section: &Section<'_>) -> Fault {
    let remedy = "store it decrypted: openssl pkey -in OLD.key -out NEW.key";
    Fault::at(section.line, "the private key is encrypted", remedy)
}

fn misplaced_list(section: &Section<'_>) -> Fault {
    section.fault(
        "has no effect in this file",
        "move it to a file of revocation lists, which `crl` of `client_auth` names",
    )
}

/// The DER in a section, which ends where it says.
fn decode(section: &Section<'_>) -> Result<(Zeroizing<Vec<u8>>, usize), Fault> {
    let (der, length) = decode_first(section)?;
    match der.len() - length {
        0 => Ok((der, length)),
        behind => Err(section.fault(
            &format!("has {behind} bytes behind the end of what it holds"),
            "put each certificate, key or list into a section of its own",
        )),
    }
}

/// The bytes in a section, and how long the first element of DER in them is.
fn decode_first(section: &Section<'_>) -> Result<(Zeroizing<Vec<u8>>, usize), Fault> {
    let again = "write this file anew";
    if section.header.is_some() {
        let problem = "begins with a header that is not understood";
        return Err(section.fault(problem, again));
    }
    let mut digits = Zeroizing::new(Vec::with_capacity(section.body.len()));
    let bytes = section.body.iter();
    digits.extend(bytes.filter(|byte| !byte.is_ascii_whitespace()));
    let mut der = Zeroizing::new(vec![0; digits.len() / 4 * 3 + 3]);
    let Ok(length) = Base64::decode(&digits[..], &mut der).map(<[u8]>::len) else {
        return Err(match section.line_that_is_no_base64() {
            Some(line) => Fault::at(line, "this line is not base64", again),
            None => section.fault("is damaged: its base64 is not complete", again),
        });
    };
    der.truncate(length);
    match Element::first(&der) {
        _ if der.is_empty() => Err(section.fault("is empty", again)),
        Some(element) if element.tag == der::SEQUENCE && element.length <= der.len() => {
            let length = element.length;
            Ok((der, length))
        }
        Some(element) if element.tag == der::SEQUENCE => Err(section.fault(
            &format!("is cut off: it has {} of {} bytes", der.len(), element.length),
            again,
        )),
        _ => Err(section.fault("is damaged: it does not hold DER", again)),
    }
}
