//! Signatures of hash values (`EVP_PKEY_sign(3)`): what was said about them, as long as lanes know it
//! all, and how lanes make them.
//!
//! One context may sign many values, and what is said between them holds for the next. Whatever is
//! not as lanes want it (a value of a wrong length, a salt of another one, a small place for the
//! signature) is left to the default provider, whose answer or error is the right one.

use std::sync::Arc;

use widelane_crypto::{ecdsa, rsa};

use crate::family::Family;
use crate::keys::Key;
use crate::params::{OwnParams, Params};
use crate::plan::{Made, Padding, Settings};
use crate::signers::Signer;
use crate::waiting;

/// What was said about signatures of hash values.
#[derive(Clone)]
pub(crate) struct Hashed {
    key: Arc<Key>,
    settings: Settings,
}

impl Hashed {
    /// For this key; `None` if lanes do not sign so.
    pub(crate) fn new(key: Arc<Key>, params: Params<'_>) -> Option<Self> {
        // The others sign messages.
        let signs_values = matches!(key.family(), Family::Rsa | Family::Ec) && key.may_sign();
        let mut hashed = Self {
            key,
            settings: Settings::new(None),
        };
        (signs_values && hashed.notice(params)).then_some(hashed)
    }

    pub(crate) fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// Takes notice of values; false, and then nothing is changed, if lanes do not know them all.
    pub(crate) fn notice(&mut self, params: Params<'_>) -> bool {
        let mut settings = self.settings;
        let is_rsa = self.key.family() == Family::Rsa;
        let known = params.iter().all(|value| {
            settings.changes_nothing(value)
                || settings.notice_hash(value)
                || is_rsa && settings.notice(value)
        });
        if known {
            self.settings = settings;
        }
        known
    }

    /// The values that lead the default provider to the same.
    pub(crate) fn as_params(&self) -> OwnParams {
        let params = self.settings.as_params();
        match self.settings.hash {
            Some(hash) => params.text(c"digest", hash.name()),
            None => params,
        }
    }

    /// The most bytes that a signature can have; `None` before the key is prepared.
    pub(crate) fn signature_len(&self) -> Option<usize> {
        self.key.signer().map(|signer| signer.signature_len())
    }

    /// The signature of a hash value, for a place of `room` bytes.
    ///
    /// Without a hash function, RSA pads the value as it is. AWS-LC does not: then only a pass signs,
    /// and where none is worth while, OpenSSL does.
    pub(crate) fn sign(&self, value: &[u8], room: usize) -> Made {
        let Some(form) = self.form(value.len()) else {
            return Ok(None);
        };
        let Some(signer) = self.key.begin_signature() else {
            self.key.signed();
            return Ok(None);
        };
        if room < signer.signature_len() {
            return Ok(None);
        }
        Ok(match (&*signer, form) {
            (Signer::Rsa(key), Form::Rsa(scheme)) => {
                let request = match scheme {
                    Some(scheme) => rsa::SignRequest::prehashed(key, scheme, value),
                    None => rsa::SignRequest::unhashed(key, value),
                };
                let made = match request {
                    Ok(request) => waiting::run(request)?,
                    Err(error) => Err(error),
                };
                match made {
                    Err(rsa::SignError::OnlyInLanes | rsa::SignError::TooLong { .. }) => None,
                    made => Some(made.map_err(|error| error.to_string())),
                }
            }
            (Signer::Ecdsa(key), Form::Ecdsa) => {
                let made = waiting::run(ecdsa::SignRequest::prehashed(key, value))?;
                Some(made.map_err(|error| error.to_string()))
            }
            _ => None,
        })
    }

    /// How lanes sign a value of so many bytes; `None` if they do not.
    fn form(&self, len: usize) -> Option<Form> {
        let is_whole = self.settings.hash.map_or(len > 0, |hash| hash.len() == len);
        if !is_whole {
            return None;
        }
        Some(match self.key.family() {
            Family::Rsa => Form::Rsa(match (self.settings.hash, self.settings.padding) {
                (None, Padding::Pkcs1) => None,
                _ => Some(self.settings.rsa_scheme()?),
            }),
            _ => Form::Ecdsa,
        })
    }
}

/// How lanes sign a value.
enum Form {
    /// Without a scheme, the value is padded as it is.
    Rsa(Option<rsa::Scheme>),
    /// The leftmost bits of the value.
    Ecdsa,
}
