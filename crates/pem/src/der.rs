//! Parser of DER (X.690), as much as it takes to see what a section holds and where its value ends.

/// The tag and the whole length of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) tag: u8,
    /// Length of tag, length and contents.
    pub(crate) length: usize,
    header: usize,
}

/// Outer form of a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyForm {
    /// PrivateKeyInfo (RFC 5958).
    Pkcs8,
    /// RSAPrivateKey (RFC 8017, appendix A.1.2).
    Pkcs1,
    /// ECPrivateKey (RFC 5915).
    Sec1,
    /// EncryptedPrivateKeyInfo (RFC 5958).
    Encrypted,
    /// OpenSSL's own form: six integers.
    Dsa,
    Other,
}

impl Element {
    /// The first one in `bytes`, which may be cut off behind its header.
    pub(crate) fn first(bytes: &[u8]) -> Option<Self> {
        let (&tag, rest) = bytes.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (header, contents) = match first {
            0..=0x7f => (2, usize::from(first)),
            0x81..=0x84 => {
                let digits = usize::from(first & 0x7f);
                let length = rest.get(..digits)?;
                let length = length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
                (2 + digits, length)
            }
            _ => return None,
        };
        Some(Self {
            tag,
            length: header + contents,
            header,
        })
    }
}

/// The form of the key in `der`, which is one SEQUENCE.
pub(crate) fn key_form(der: &[u8]) -> KeyForm {
    match tags(der)[..] {
        [INTEGER, SEQUENCE, OCTET_STRING, ..] => KeyForm::Pkcs8,
        [INTEGER, OCTET_STRING, ..] => KeyForm::Sec1,
        [INTEGER, INTEGER, INTEGER, INTEGER, INTEGER, INTEGER] => KeyForm::Dsa,
        [INTEGER, INTEGER, ..] => KeyForm::Pkcs1,
        [SEQUENCE, OCTET_STRING] => KeyForm::Encrypted,
        _ => KeyForm::Other,
    }
}

/// Returns whether `der` has the outer form of certificates: content, algorithm and signature.
pub(crate) fn is_signed(der: &[u8]) -> bool {
    tags(der) == [SEQUENCE, SEQUENCE, BIT_STRING]
}

/// Returns whether a file that begins with DER is PKCS#12.
pub(crate) fn is_pkcs12(der: &[u8]) -> bool {
    let tags = tags(der);
    tags.starts_with(&[INTEGER, SEQUENCE]) && tags.get(2) != Some(&OCTET_STRING)
}

/// The tags of the elements in the first element. Some files are long, and the first few tell.
fn tags(der: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    let Some(outer) = Element::first(der) else {
        return found;
    };
    let mut rest = der.get(outer.header..outer.length).unwrap_or_default();
    while let Some(element) = Element::first(rest)
        && found.len() < MOST_TAGS
        && let Some(behind) = rest.get(element.length..)
    {
        found.push(element.tag);
        rest = behind;
    }
    found
}

pub(crate) const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
/// Most tags that are read: more than any of the forms above has.
const MOST_TAGS: usize = 16;
