//! What was said about a signature that lanes can do.
//!
//! OpenSSL tells the parts of a signature one by one: the key, the hash function, how RSA pads. A plan
//! takes notice of them as long as lanes know them all.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use widelane_crypto::{ecdh, ecdsa, ed25519, mldsa, rsa};

use crate::family::Family;
use crate::keys::Key;
use crate::params::{OwnParams, Params, Value};
use crate::signers::Signer;
use crate::waiting;

/// What was said about a signature that lanes can do.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) key: Arc<Key>,
    /// OpenSSL's name of the hash function, as it was said.
    pub(crate) digest: Option<CString>,
    pub(crate) settings: Settings,
    /// What a stream has brought, up to [`MOST_STREAMED`].
    pub(crate) streamed: Vec<u8>,
    /// The stream has been signed.
    pub(crate) ended: bool,
}

/// What decides how an RSA signature is padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) hash: Option<Hash>,
    pub(crate) padding: Padding,
    salt: Salt,
    mgf1: Option<Hash>,
}

/// A hash function of signatures in lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// How RSA pads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    Pkcs1,
    Pss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Salt {
    /// OpenSSL's default: as long as fits. Lanes do not do it.
    Longest,
    /// As long as the digest, as in TLS.
    Digest,
    /// So many bytes, which are as many as the digest has. OpenSSL tells the number, and goes on with it
    /// if the hash function changes.
    Bytes(usize),
}

impl Hash {
    fn named(name: &str) -> Option<Self> {
        let is = |names: &[&str]| names.iter().any(|one| one.eq_ignore_ascii_case(name));
        if is(&["SHA256", "SHA2-256", "SHA-256"]) {
            Some(Self::Sha256)
        } else if is(&["SHA384", "SHA2-384", "SHA-384"]) {
            Some(Self::Sha384)
        } else if is(&["SHA512", "SHA2-512", "SHA-512"]) {
            Some(Self::Sha512)
        } else {
            None
        }
    }

    /// OpenSSL's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
        }
    }

    /// Bytes of a hash value.
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

impl Settings {
    /// What holds before anything is said.
    pub(crate) fn new(hash: Option<Hash>) -> Self {
        Self {
            hash,
            padding: Padding::Pkcs1,
            salt: Salt::Longest,
            mgf1: None,
        }
    }

    /// Takes notice of one value about RSA; false if lanes do not know what it asks for, or if OpenSSL
    /// refuses it here: salts and masks are for PSS only.
    pub(crate) fn notice(&mut self, value: Value<'_>) -> bool {
        let text = value.text();
        let is_pss = self.padding == Padding::Pss;
        match (value.key().to_bytes(), text, value.integer()) {
            (b"pad-mode", Some("pkcs1"), _) | (b"pad-mode", _, Some(1)) if !is_pss => {}
            (b"pad-mode", Some("pss"), _) | (b"pad-mode", _, Some(6)) => {
                self.padding = Padding::Pss;
            }
            (b"saltlen", text, number) if is_pss => {
                let number = number.or_else(|| text?.parse().ok());
                let bytes = number.and_then(|number| usize::try_from(number).ok());
                self.salt = match bytes.filter(|bytes| self.hash.map(Hash::len) == Some(*bytes)) {
                    Some(bytes) => Salt::Bytes(bytes),
                    None if text == Some("digest") || number == Some(-1) => Salt::Digest,
                    None => return false,
                };
            }
            (b"mgf1-digest", Some(name), _) if is_pss => match Hash::named(name) {
                Some(hash) => self.mgf1 = Some(hash),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// Takes notice of the hash function, if a value names it and nothing has before; false if not.
    pub(crate) fn notice_hash(&mut self, value: Value<'_>) -> bool {
        if value.key() != c"digest" || self.hash.is_some() {
            return false;
        }
        self.hash = value.text().and_then(Hash::named);
        self.hash.is_some()
    }

    /// Whether a value says what holds anyway: libssl from 4.0 on names the version of TLS, which
    /// only SM2 heeds, and repeats the hash function.
    pub(crate) fn changes_nothing(self, value: Value<'_>) -> bool {
        match value.key().to_bytes() {
            b"tls-version" => true,
            b"digest" => self.hash.is_some() && value.text().and_then(Hash::named) == self.hash,
            _ => false,
        }
    }

    /// The scheme that was asked for, if lanes have it.
    pub(crate) fn rsa_scheme(self) -> Option<rsa::Scheme> {
        use rsa::Scheme;
        let hash = self.hash?;
        match self.padding {
            Padding::Pkcs1 => Some(match hash {
                Hash::Sha256 => Scheme::Pkcs1Sha256,
                Hash::Sha384 => Scheme::Pkcs1Sha384,
                Hash::Sha512 => Scheme::Pkcs1Sha512,
            }),
            Padding::Pss => {
                let salt_fits = match self.salt {
                    Salt::Longest => false,
                    Salt::Digest => true,
                    Salt::Bytes(bytes) => bytes == hash.len(),
                };
                let fits = salt_fits && self.mgf1.is_none_or(|mgf1| mgf1 == hash);
                fits.then_some(match hash {
                    Hash::Sha256 => Scheme::PssSha256,
                    Hash::Sha384 => Scheme::PssSha384,
                    Hash::Sha512 => Scheme::PssSha512,
                })
            }
        }
    }

    /// The values that lead the default provider to these settings.
    pub(crate) fn as_params(self) -> OwnParams {
        let mut params = OwnParams::default();
        if self.padding == Padding::Pss {
            params = params.text(c"pad-mode", "pss");
        }
        params = match self.salt {
            Salt::Longest => params,
            Salt::Digest => params.text(c"saltlen", "digest"),
            Salt::Bytes(bytes) => params.text(c"saltlen", &bytes.to_string()),
        };
        match self.mgf1 {
            None => params,
            Some(hash) => params.text(c"mgf1-digest", hash.name()),
        }
    }
}

/// What has become of a signature: nothing, where lanes do not make such a one, or it, or why there is
/// none that could leave. Outside, why lanes gave no answer.
pub(crate) type Made = Result<Option<Result<Vec<u8>, String>>, waiting::Failure>;

impl Plan {
    /// A plan for this key and hash function; `None` if lanes do not sign so.
    pub(crate) fn new(key: Arc<Key>, digest: Option<&CStr>, params: Params<'_>) -> Option<Self> {
        let name = digest.and_then(|name| name.to_str().ok()).unwrap_or("");
        let hash = Hash::named(name);
        let fits = match &*key.begin_signature()? {
            Signer::Rsa(_) => hash.is_some(),
            // The only hash functions that TLS 1.3 has for these curves.
            Signer::Ecdsa(key) => match key.curve() {
                ecdh::Curve::P256 => hash == Some(Hash::Sha256),
                ecdh::Curve::P384 => hash == Some(Hash::Sha384),
            },
            // They hash by themselves (RFC 8032, FIPS 204).
            Signer::Ed25519(_) | Signer::MlDsa(_) => name.is_empty(),
        };
        let mut plan = Self {
            digest: digest.map(CStr::to_owned),
            settings: Settings::new(hash),
            streamed: Vec::new(),
            ended: false,
            key,
        };
        (fits && plan.notice(params)).then_some(plan)
    }

    /// Takes notice of values; false, and then nothing is changed, if lanes do not know them all.
    pub(crate) fn notice(&mut self, params: Params<'_>) -> bool {
        let mut settings = self.settings;
        let is_rsa = self.key.family() == Family::Rsa;
        let known = params
            .iter()
            .all(|value| settings.changes_nothing(value) || is_rsa && settings.notice(value));
        if known {
            self.settings = settings;
        }
        known
    }

    /// Whether so many bytes more can be kept of a stream.
    pub(crate) fn has_room_for(&self, len: usize) -> bool {
        self.streamed.len().saturating_add(len) <= MOST_STREAMED
    }

    /// The most bytes that a signature can have; `None` if lanes do not sign so.
    pub(crate) fn signature_len(&self) -> Option<usize> {
        let signer = self.key.signer()?;
        if let Signer::Rsa(_) = *signer {
            self.settings.rsa_scheme()?;
        }
        Some(signer.signature_len())
    }

    /// The signature.
    pub(crate) fn sign(&self, message: &[u8]) -> Made {
        let Some(signer) = self.key.signer() else {
            return Ok(None);
        };
        Ok(Some(match &*signer {
            Signer::Rsa(key) => {
                let Some(scheme) = self.settings.rsa_scheme() else {
                    return Ok(None);
                };
                match rsa::SignRequest::new(key, scheme, message) {
                    Ok(request) => waiting::run(request)?.map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                }
            }
            Signer::Ecdsa(key) => waiting::run(ecdsa::SignRequest::new(key, message))?
                .map_err(|error| error.to_string()),
            Signer::Ed25519(key) => waiting::run(ed25519::SignRequest::new(key, message))?
                .map_err(|error| error.to_string()),
            Signer::MlDsa(key) => waiting::run(mldsa::SignRequest::new(key, message))?
                .map_err(|error| error.to_string()),
        }))
    }
}

/// Bytes of a stream that are kept until it is signed.
const MOST_STREAMED: usize = 65536;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(params: OwnParams) -> Option<Settings> {
        let mut settings = Settings::new(Some(Hash::Sha256));
        let mut params = params;
        let known = params.view().iter().all(|value| settings.notice(value));
        known.then_some(settings)
    }

    #[test]
    fn only_what_lanes_do_is_planned() {
        let scheme = |params| settings(params)?.rsa_scheme();
        let none = OwnParams::default;
        assert_eq!(scheme(none()), Some(rsa::Scheme::Pkcs1Sha256));
        let pss = || none().signed(c"pad-mode", 6);
        assert_eq!(scheme(pss()), None, "OpenSSL's default salt is the longest");
        let tls = |params: OwnParams| params.text(c"saltlen", "digest");
        assert_eq!(scheme(tls(pss())), Some(rsa::Scheme::PssSha256));
        assert_eq!(
            scheme(pss().text(c"saltlen", "32")),
            Some(rsa::Scheme::PssSha256)
        );
        assert_eq!(scheme(pss().signed(c"saltlen", 20)), None);
        assert_eq!(scheme(tls(pss()).text(c"mgf1-digest", "SHA1")), None);
        assert_eq!(scheme(tls(pss()).text(c"mgf1-digest", "SHA512")), None);
        assert_eq!(scheme(none().text(c"pad-mode", "x931")), None);
        assert_eq!(
            scheme(tls(none())),
            None,
            "OpenSSL wants a salt with PSS only"
        );
        assert_eq!(scheme(tls(pss()).signed(c"pad-mode", 1)), None);
        assert_eq!(
            scheme(none().text(c"digest", "SHA512")),
            None,
            "fixed by the start"
        );
    }

    #[test]
    fn the_default_provider_gets_the_same_settings() {
        let said = settings(
            OwnParams::default()
                .signed(c"pad-mode", 6)
                .signed(c"saltlen", -1)
                .text(c"mgf1-digest", "SHA2-256"),
        );
        assert_eq!(settings(said.unwrap().as_params()), said);
        let said = settings(
            OwnParams::default()
                .signed(c"pad-mode", 6)
                .text(c"saltlen", "32"),
        );
        assert_eq!(said.unwrap().salt, Salt::Bytes(32));
        assert_eq!(settings(said.unwrap().as_params()), said);
    }
}
