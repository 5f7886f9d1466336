//! Private keys that sign through the engine.

use std::sync::Arc;

use rustls::crypto::{KeyProvider, aws_lc_rs};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use widelane_crypto::sign::{self, Input, Request, Scheme};
use widelane_engine::Engine;
use zeroize::Zeroize;

use crate::jobs::{Failure, run};

/// Loads private keys: those that have lanes into our own types, the others into aws-lc-rs's. Those
/// are keys of other kinds and sizes, and of encodings that only AWS-LC reads, such as
/// elliptic-curve keys with explicit parameters: they sign one by one.
#[derive(Debug)]
pub(crate) struct Keys {
    engine: Engine,
}

impl Keys {
    /// A loader whose keys sign through `engine`.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self { engine: engine.clone() }
    }

    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, Error> {
        match sign::Key::from_der(der) {
            Ok(key) => Ok(Arc::new(Key {
                public: key.public_key_info_der().into(),
                key,
                engine: self.engine.clone(),
            })),
            // If aws-lc-rs refuses it as well, ours is the better reason.
            Err(refused) => aws_lc_rs::sign::any_supported_type(der).map_err(|_| Error::General(refused.to_string())),
        }
    }
}

impl KeyProvider for Keys {
    fn load_private_key(&self, mut der: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        let loaded = self.load(&der);
        // rustls hands the bytes over and keeps none: this is their last owner.
        der.zeroize();
        loaded
    }
}

/// A private key and the engine that uses it.
#[derive(Debug)]
struct Key {
    key: sign::Key,
    public: SubjectPublicKeyInfoDer<'static>,
    engine: Engine,
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut schemes = self.key.schemes().iter();
        let &scheme = schemes.find(|scheme| offered.contains(&in_tls(**scheme)))?;
        Some(Box::new(KeySigner {
            key: self.key.clone(),
            engine: self.engine.clone(),
            scheme,
        }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.public.as_ref()))
    }

    /// The second byte of a scheme that TLS 1.2 has for the key (RFC 5246, section 7.4.1.4.1), which
    /// is the last of them. It has none for ML-DSA, whose numbers there mean nothing: such a key is
    /// for TLS 1.3 only.
    fn algorithm(&self) -> SignatureAlgorithm {
        let [.., last] = self.key.schemes() else {
            return SignatureAlgorithm::Anonymous;
        };
        let [_, algorithm] = last.tls_number().to_be_bytes();
        algorithm.into()
    }
}

/// A private key and the scheme that the peers have agreed upon.
#[derive(Debug)]
struct KeySigner {
    key: sign::Key,
    engine: Engine,
    scheme: Scheme,
}

impl Signer for KeySigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let request = Request::new(&self.key, self.scheme, Input::Message(message));
        let signature = run(&self.engine, request.map_err(Failure::operation)?)?;
        Ok(signature.map_err(Failure::operation)?)
    }

    fn scheme(&self) -> SignatureScheme {
        in_tls(self.scheme)
    }
}

fn in_tls(scheme: Scheme) -> SignatureScheme {
    scheme.tls_number().into()
}
