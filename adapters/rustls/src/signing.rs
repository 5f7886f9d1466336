//! Private keys that sign through the engine.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::{KeyProvider, aws_lc_rs};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use widelane_crypto::{ecdsa, ed25519, mldsa, rsa};
use widelane_engine::Engine;
use zeroize::Zeroize;

use crate::jobs::{Failure, run};

/// Loads private keys: those that have lanes into our own types, the others into aws-lc-rs's. Those
/// are keys of other kinds and sizes, and of encodings that only AWS-LC reads, such as
/// elliptic-curve keys with explicit parameters: they sign one by one.
pub(crate) struct Keys {
    engine: Engine,
}

impl Keys {
    /// A loader whose keys sign through `engine`.
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
        }
    }

    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, Error> {
        let kinds = [
            Self::load_as::<rsa::PrivateKey>,
            Self::load_as::<ecdsa::PrivateKey>,
            Self::load_as::<ed25519::PrivateKey>,
            Self::load_as::<mldsa::PrivateKey>,
        ];
        let theirs = || aws_lc_rs::sign::any_supported_type(der);
        for load_as in kinds {
            match load_as(self, der) {
                Ok(Some(key)) => return Ok(key),
                Ok(None) => {}
                // If they refuse it as well, ours is the better reason.
                Err(refused) => return theirs().map_err(|_| refused),
            }
        }
        theirs()
    }

    fn load_as<K: PrivateKey>(
        &self,
        der: &PrivateKeyDer<'_>,
    ) -> Result<Option<Arc<dyn SigningKey>>, Error> {
        let Some(key) = K::load(der)? else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Key {
            public: key.public_key_info_der().into(),
            key,
            engine: self.engine.clone(),
        })))
    }
}

impl KeyProvider for Keys {
    fn load_private_key(
        &self,
        mut der: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, Error> {
        let loaded = self.load(&der);
        // rustls hands the bytes over and keeps none: this is their last owner.
        der.zeroize();
        loaded
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

/// A private key as TLS sees it. Clones share one key.
trait PrivateKey: Clone + fmt::Debug + Send + Sync + 'static {
    /// Loads a key; `None` if it is of another kind.
    fn load(der: &PrivateKeyDer<'_>) -> Result<Option<Self>, Error>;

    fn algorithm(&self) -> SignatureAlgorithm;

    /// What it can sign with, best first. TLS 1.3 allows fewer than 1.2; rustls offers what the
    /// version allows.
    fn schemes(&self) -> &'static [SignatureScheme];

    fn public_key_info_der(&self) -> Vec<u8>;

    /// Signs with one of its schemes.
    fn sign(
        &self,
        engine: &Engine,
        scheme: SignatureScheme,
        message: &[u8],
    ) -> Result<Vec<u8>, Failure>;
}

impl PrivateKey for rsa::PrivateKey {
    fn load(der: &PrivateKeyDer<'_>) -> Result<Option<Self>, Error> {
        match Self::from_der(der) {
            Err(rsa::KeyError::NotRsa { .. }) => Ok(None),
            loaded => loaded.map(Some).map_err(told),
        }
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }

    /// SHA-256 leads: CPUs have instructions for it, and the signature is as strong as the key with
    /// it.
    fn schemes(&self) -> &'static [SignatureScheme] {
        &[
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
        ]
    }

    fn public_key_info_der(&self) -> Vec<u8> {
        self.public_key_info_der()
    }

    fn sign(
        &self,
        engine: &Engine,
        scheme: SignatureScheme,
        message: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let scheme = match scheme {
            SignatureScheme::RSA_PSS_SHA256 => rsa::Scheme::PssSha256,
            SignatureScheme::RSA_PSS_SHA384 => rsa::Scheme::PssSha384,
            SignatureScheme::RSA_PSS_SHA512 => rsa::Scheme::PssSha512,
            SignatureScheme::RSA_PKCS1_SHA256 => rsa::Scheme::Pkcs1Sha256,
            SignatureScheme::RSA_PKCS1_SHA384 => rsa::Scheme::Pkcs1Sha384,
            _ => rsa::Scheme::Pkcs1Sha512,
        };
        let request = rsa::SignRequest::new(self, scheme, message).map_err(Failure::operation)?;
        run(engine, request)?.map_err(Failure::operation)
    }
}

impl PrivateKey for ecdsa::PrivateKey {
    fn load(der: &PrivateKeyDer<'_>) -> Result<Option<Self>, Error> {
        match Self::from_der(der) {
            Err(ecdsa::KeyError::NotEc { .. } | ecdsa::KeyError::OtherCurve { .. }) => Ok(None),
            loaded => loaded.map(Some).map_err(told),
        }
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }

    fn schemes(&self) -> &'static [SignatureScheme] {
        match self.curve() {
            ecdsa::Curve::P256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
            ecdsa::Curve::P384 => &[SignatureScheme::ECDSA_NISTP384_SHA384],
        }
    }

    fn public_key_info_der(&self) -> Vec<u8> {
        self.public_key_info_der()
    }

    fn sign(
        &self,
        engine: &Engine,
        _: SignatureScheme,
        message: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let request = ecdsa::SignRequest::new(self, message);
        run(engine, request)?.map_err(Failure::operation)
    }
}

impl PrivateKey for ed25519::PrivateKey {
    fn load(der: &PrivateKeyDer<'_>) -> Result<Option<Self>, Error> {
        match Self::from_der(der) {
            Err(ed25519::KeyError::NotEd25519 { .. }) => Ok(None),
            loaded => loaded.map(Some).map_err(told),
        }
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }

    fn schemes(&self) -> &'static [SignatureScheme] {
        &[SignatureScheme::ED25519]
    }

    fn public_key_info_der(&self) -> Vec<u8> {
        self.public_key_info_der()
    }

    fn sign(
        &self,
        engine: &Engine,
        _: SignatureScheme,
        message: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let request = ed25519::SignRequest::new(self, message);
        run(engine, request)?.map_err(Failure::operation)
    }
}

impl PrivateKey for mldsa::PrivateKey {
    fn load(der: &PrivateKeyDer<'_>) -> Result<Option<Self>, Error> {
        match Self::from_der(der) {
            Err(mldsa::KeyError::NotMlDsa { .. }) => Ok(None),
            loaded => loaded.map(Some).map_err(told),
        }
    }

    /// The numbers of TLS 1.2, which has none for it; so it is for TLS 1.3 only.
    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::Unknown(0)
    }

    fn schemes(&self) -> &'static [SignatureScheme] {
        match self.size() {
            mldsa::Size::MlDsa44 => &[SignatureScheme::ML_DSA_44],
            mldsa::Size::MlDsa65 => &[SignatureScheme::ML_DSA_65],
            mldsa::Size::MlDsa87 => &[SignatureScheme::ML_DSA_87],
        }
    }

    fn public_key_info_der(&self) -> Vec<u8> {
        self.public_key_info_der()
    }

    fn sign(
        &self,
        engine: &Engine,
        _: SignatureScheme,
        message: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let request = mldsa::SignRequest::new(self, message);
        run(engine, request)?.map_err(Failure::operation)
    }
}

/// Why a key was not loaded, as rustls can carry it.
fn told(error: impl fmt::Display) -> Error {
    Error::General(error.to_string())
}

/// A private key and the engine that uses it.
struct Key<K> {
    key: K,
    public: SubjectPublicKeyInfoDer<'static>,
    engine: Engine,
}

impl<K: PrivateKey> SigningKey for Key<K> {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let mut schemes = self.key.schemes().iter();
        let &scheme = schemes.find(|scheme| offered.contains(scheme))?;
        Some(Box::new(KeySigner {
            key: self.key.clone(),
            engine: self.engine.clone(),
            scheme,
        }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.public.as_ref()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.key.algorithm()
    }
}

impl<K: PrivateKey> fmt::Debug for Key<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.key).finish()
    }
}

/// A private key and the scheme that the peers have agreed upon.
struct KeySigner<K> {
    key: K,
    engine: Engine,
    scheme: SignatureScheme,
}

impl<K: PrivateKey> Signer for KeySigner<K> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.key.sign(&self.engine, self.scheme, message)?)
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

impl<K: PrivateKey> fmt::Debug for KeySigner<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySigner")
            .field("key", &self.key)
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}
