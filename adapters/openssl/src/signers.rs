//! Signatures that lanes can make, as far as OpenSSL has described them.
//!
//! OpenSSL tells the parts of a signature one by one: the key, the hash function, how RSA pads. A signer
//! takes them as long as lanes know them all. [`MessageSigner`] signs one message; [`DigestSigner`] signs
//! hash values (`EVP_PKEY_sign(3)`), many in one context, and what is said between them holds for the next.
//! Whatever is not as lanes want it (a value of a wrong length, a salt of another one, a small place for the
//! signature) is left to the default provider, whose answer or error is the right one.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use widelane_crypto::Hash;
use widelane_crypto::sign::{self, Algorithm, Error, Input, Request, Scheme};

use crate::engine;
use crate::family::Family;
use crate::ffi::keys::Key;
use crate::ffi::params::{OwnParams, Params, Value};
use crate::ffi::status;
use crate::jobs::waiting;

/// A signature of one message.
#[derive(Clone)]
pub(crate) struct MessageSigner {
    pub(crate) key: Arc<Key>,
    /// OpenSSL's name of the hash function, as it was said.
    pub(crate) digest: Option<CString>,
    pub(crate) settings: Settings,
    /// Bytes that a stream has brought, up to [`MOST_STREAMED`].
    pub(crate) streamed: Vec<u8>,
    /// The stream has been signed.
    pub(crate) ended: bool,
}

/// Signatures of hash values.
#[derive(Clone)]
pub(crate) struct DigestSigner {
    pub(crate) key: Arc<Key>,
    algorithm: Algorithm,
    pub(crate) settings: Settings,
}

/// The outcome of a signature.
pub(crate) enum Attempt {
    /// Lanes do not make such a one: OpenSSL does.
    NotInLanes,
    /// The signature.
    Signed(Vec<u8>),
    /// There is none that could leave. OpenSSL makes it once more, by other code.
    Withheld(Error),
    /// Lanes gave no answer.
    Failed(engine::Failure),
}

impl Attempt {
    /// Signs, if a request could be made.
    fn with(request: Result<Request, Error>) -> Self {
        match request.map(waiting::run) {
            Ok(Err(failure)) => Self::Failed(failure),
            Ok(Ok(Ok(signature))) => Self::Signed(signature),
            // AWS-LC does not pad a value as it is: only a pass signs that, and where none is worth while,
            // OpenSSL does.
            Err(Error::OnlyInLanes | Error::TooLong { .. }) | Ok(Ok(Err(Error::OnlyInLanes))) => Self::NotInLanes,
            Err(error) | Ok(Ok(Err(error))) => Self::Withheld(error),
        }
    }
}

impl MessageSigner {
    /// A signer for this key and hash function; `None` if lanes do not sign so, or are switched off.
    pub(crate) fn new(key: Arc<Key>, digest: Option<&CStr>, params: Params<'_>) -> Option<Self> {
        if status::lanes_are_off() {
            return None;
        }
        let hash = match digest.and_then(|name| name.to_str().ok()).unwrap_or("") {
            "" => None,
            name => Some(Hash::named(name)?),
        };
        let algorithm = key.begin_signature()?.algorithm();
        let mut schemes = algorithm.schemes().iter();
        let fits = schemes.any(|scheme| scheme.hash() == hash);
        let mut signer = Self {
            digest: digest.map(CStr::to_owned),
            settings: Settings {
                hash,
                ..Settings::new(key.family())
            },
            streamed: Vec::new(),
            ended: false,
            key,
        };
        (fits && signer.settings.set_params(params)).then_some(signer)
    }

    /// Returns whether so many bytes more can be kept of a stream.
    pub(crate) fn has_room_for(&self, len: usize) -> bool {
        self.streamed.len().saturating_add(len) <= MOST_STREAMED
    }

    /// The most bytes that a signature can have; `None` if lanes do not sign so.
    pub(crate) fn signature_len(&self) -> Option<usize> {
        let key = self.key.prepared()?;
        self.settings.scheme(key.algorithm())?;
        Some(key.signature_len())
    }

    /// The signature.
    pub(crate) fn sign(&self, message: &[u8]) -> Attempt {
        let Some(key) = self.key.prepared() else {
            return Attempt::NotInLanes;
        };
        match self.settings.scheme(key.algorithm()) {
            Some(scheme) => Attempt::with(Request::new(&key, scheme, Input::Message(message))),
            None => Attempt::NotInLanes,
        }
    }
}

impl DigestSigner {
    /// A signer for this key; `None` if lanes do not sign so.
    pub(crate) fn new(key: Arc<Key>, params: Params<'_>) -> Option<Self> {
        let algorithm = key.algorithm_in_lanes()?;
        let mut schemes = algorithm.schemes().iter();
        // The others sign messages.
        let signs_values = schemes.any(|scheme| scheme.hash().is_some());
        let mut signer = Self {
            algorithm,
            settings: Settings {
                takes_hash: true,
                ..Settings::new(key.family())
            },
            key,
        };
        (signs_values && signer.settings.set_params(params)).then_some(signer)
    }

    /// The most bytes that a signature can have; `None` before the key is prepared.
    pub(crate) fn signature_len(&self) -> Option<usize> {
        self.key.prepared().map(|key| key.signature_len())
    }

    /// The signature of a hash value, for a place of `room` bytes. Without a hash function, RSA pads the
    /// value as it is.
    pub(crate) fn sign(&self, value: &[u8], room: usize) -> Attempt {
        let Settings { hash, is_pss, .. } = self.settings;
        let is_whole = hash.map_or(!value.is_empty(), |hash| hash.output_len() == value.len());
        let scheme = match self.algorithm.schemes() {
            // ECDSA takes the leftmost bits of a value by any hash function.
            [only] => Some(*only),
            _ => self.settings.scheme(self.algorithm),
        };
        let is_known = is_whole && (scheme.is_some() || hash.is_none() && !is_pss);
        // A context for hash values may outlive what an operator asks for.
        if !is_known || status::lanes_are_off() {
            return Attempt::NotInLanes;
        }
        let Some(key) = self.key.begin_signature() else {
            self.key.signed();
            return Attempt::NotInLanes;
        };
        if room < key.signature_len() {
            return Attempt::NotInLanes;
        }
        let key: &sign::Key = &key;
        Attempt::with(match scheme {
            Some(scheme) => Request::new(key, scheme, Input::Digest(value)),
            None => Request::unhashed(key, value),
        })
    }
}

/// Settings that decide the scheme of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// There are signatures with PSS: OpenSSL names paddings.
    is_padded: bool,
    /// The hash function may be named by a value, once.
    takes_hash: bool,
    hash: Option<Hash>,
    is_pss: bool,
    salt: Salt,
    mgf1: Option<Hash>,
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

impl Settings {
    /// Defaults, before anything is said.
    fn new(family: Family) -> Self {
        Self {
            is_padded: (family.algorithms.iter())
                .flat_map(|algorithm| algorithm.schemes())
                .any(|scheme| scheme.is_pss()),
            takes_hash: false,
            hash: None,
            is_pss: false,
            salt: Salt::Longest,
            mgf1: None,
        }
    }

    /// Takes values; false, and then nothing is changed, if lanes do not know them all.
    pub(crate) fn set_params(&mut self, params: Params<'_>) -> bool {
        let mut settings = *self;
        let known = params.iter().all(|value| settings.set_param(value));
        if known {
            *self = settings;
        }
        known
    }

    /// Takes one value; false if lanes do not know what it asks for, or if OpenSSL refuses it here: salts and
    /// masks are for PSS only.
    fn set_param(&mut self, value: Value<'_>) -> bool {
        let text = value.text();
        match (value.key().to_bytes(), text, value.integer()) {
            // libssl from 4.0 on names the version, which only SM2 heeds, and repeats the hash function.
            (b"tls-version", ..) => {}
            (b"digest", name, _) if self.hash.is_some() || self.takes_hash => {
                let hash = name.and_then(Hash::named);
                if hash.is_none() || self.hash.is_some_and(|said| Some(said) != hash) {
                    return false;
                }
                self.hash = hash;
            }
            _ if !self.is_padded => return false,
            (b"pad-mode", Some("pkcs1"), _) | (b"pad-mode", _, Some(1)) if !self.is_pss => {}
            (b"pad-mode", Some("pss"), _) | (b"pad-mode", _, Some(6)) => self.is_pss = true,
            (b"saltlen", text, number) if self.is_pss => {
                let number = number.or_else(|| text?.parse().ok());
                let bytes = number.and_then(|number| usize::try_from(number).ok());
                let digest = self.hash.map(Hash::output_len);
                self.salt = match bytes.filter(|bytes| digest == Some(*bytes)) {
                    Some(bytes) => Salt::Bytes(bytes),
                    None if text == Some("digest") || number == Some(-1) => Salt::Digest,
                    None => return false,
                };
            }
            (b"mgf1-digest", Some(name), _) if self.is_pss => match Hash::named(name) {
                Some(hash) => self.mgf1 = Some(hash),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    /// The scheme that was asked for, if lanes have it.
    fn scheme(self, algorithm: Algorithm) -> Option<Scheme> {
        let salt_fits = match self.salt {
            Salt::Longest => false,
            Salt::Digest => true,
            Salt::Bytes(bytes) => self.hash.map(Hash::output_len) == Some(bytes),
        };
        let fits = !self.is_pss || salt_fits && (self.mgf1.is_none() || self.mgf1 == self.hash);
        let is_asked = |scheme: &Scheme| fits && scheme.hash() == self.hash && scheme.is_pss() == self.is_pss;
        algorithm.schemes().iter().copied().find(is_asked)
    }

    /// The values that lead the default provider to these settings.
    pub(crate) fn as_params(self) -> OwnParams {
        let mut params = OwnParams::default();
        if self.is_pss {
            params = params.text(c"pad-mode", "pss");
        }
        params = match self.salt {
            Salt::Longest => params,
            Salt::Digest => params.text(c"saltlen", "digest"),
            Salt::Bytes(bytes) => params.text(c"saltlen", &bytes.to_string()),
        };
        let named = self.hash.filter(|_| self.takes_hash);
        for (key, hash) in [(c"mgf1-digest", self.mgf1), (c"digest", named)] {
            if let Some(hash) = hash {
                params = params.text(key, hash.names()[0]);
            }
        }
        params
    }
}

/// Bytes of a stream that are kept until it is signed.
const MOST_STREAMED: usize = 65536;

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_crypto::rsa;

    fn settings(mut params: OwnParams) -> Option<Settings> {
        let mut settings = Settings {
            hash: Some(Hash::Sha256),
            ..Settings::new(Family::numbered(0))
        };
        settings.set_params(params.view()).then_some(settings)
    }

    #[test]
    fn only_what_lanes_do_is_planned() {
        let scheme = |params| match settings(params)?.scheme(Algorithm::Rsa)? {
            Scheme::Rsa(scheme) => Some(scheme),
            _ => None,
        };
        let none = OwnParams::default;
        assert_eq!(scheme(none()), Some(rsa::Scheme::Pkcs1Sha256));
        let pss = || none().signed(c"pad-mode", 6);
        assert_eq!(scheme(pss()), None, "OpenSSL's default salt is the longest");
        let tls = |params: OwnParams| params.text(c"saltlen", "digest");
        assert_eq!(scheme(tls(pss())), Some(rsa::Scheme::PssSha256));
        assert_eq!(scheme(pss().text(c"saltlen", "32")), Some(rsa::Scheme::PssSha256));
        assert_eq!(scheme(pss().signed(c"saltlen", 20)), None);
        assert_eq!(scheme(tls(pss()).text(c"mgf1-digest", "SHA1")), None);
        assert_eq!(scheme(tls(pss()).text(c"mgf1-digest", "SHA512")), None);
        assert_eq!(scheme(none().text(c"pad-mode", "x931")), None);
        assert_eq!(scheme(tls(none())), None, "OpenSSL wants a salt with PSS only");
        assert_eq!(scheme(tls(pss()).signed(c"pad-mode", 1)), None);
        assert_eq!(scheme(none().text(c"digest", "SHA512")), None, "fixed by the start");
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
        let said = settings(OwnParams::default().signed(c"pad-mode", 6).text(c"saltlen", "32"));
        assert_eq!(said.unwrap().salt, Salt::Bytes(32));
        assert_eq!(settings(said.unwrap().as_params()), said);
    }
}
