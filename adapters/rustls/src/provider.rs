//! The rustls provider: aws-lc-rs, with RSA private keys that sign in passes.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::crypto::{CryptoProvider, KeyProvider, aws_lc_rs};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, OtherError, SignatureAlgorithm, SignatureScheme};
use rustls_pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use widelane_crypto::rsa::{self, KeyError, PrivateKey, Scheme, SignRequest};
use widelane_engine::{Engine, JobError, Request};
use zeroize::Zeroize;

use crate::suspend::{Cancelled, Frame};

/// What [`aws_lc_rs::default_provider`] offers, with RSA signatures batched across connections by
/// [`Engine::global`]: a swap of one line.
///
/// ```
/// # fn main() -> Result<(), rustls::Error> {
/// // was: let provider = rustls::crypto::aws_lc_rs::default_provider();
/// let provider = widelane_rustls::default_provider();
/// let config = rustls::ServerConfig::builder_with_provider(provider.into())
///     .with_safe_default_protocol_versions()?
///     .with_no_client_auth();
/// # drop(config);
/// # Ok(())
/// # }
/// ```
///
/// or, for all configurations of a program, at the top of its `main`:
///
/// ```
/// widelane_rustls::default_provider().install_default().expect("installed once");
/// ```
///
/// Threads that sign at the same time share passes; nothing waits for company. The engine starts no
/// threads, and every call returns the same one. Where the CPU lacks the instructions, or the
/// environment variable `WIDELANE_CPU_DISABLE=avx512ifma` switches them off, aws-lc-rs signs.
pub fn default_provider() -> CryptoProvider {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    with_keys(KEYS.get_or_init(|| Keys {
        engine: Engine::global().clone(),
    }))
}

/// The same with an engine that the caller has configured. Give the same engine to
/// [`Driver::new`](crate::Driver::new).
///
/// rustls keeps key loaders for ever (`&'static`), so each call leaks a few bytes and one handle of
/// `engine`: call it once an engine and clone what it returns. [`Engine::shutdown`] still ends the
/// engine; signing fails from then on.
pub fn provider(engine: &Engine) -> CryptoProvider {
    with_keys(Box::leak(Box::new(Keys {
        engine: engine.clone(),
    })))
}

/// Why a private key did not sign. It travels through rustls as [`Error::Other`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignFailure {
    /// The engine took the job and gave no output, or did not take it.
    #[error("no RSA signature: {0}")]
    Job(#[from] JobError),
    /// The signature itself failed.
    #[error("no RSA signature: {0}")]
    Key(#[from] rsa::SignError),
    /// Nobody waits for it any more.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

fn with_keys(keys: &'static Keys) -> CryptoProvider {
    CryptoProvider {
        key_provider: keys,
        ..aws_lc_rs::default_provider()
    }
}

/// Loads private keys: RSA into our own, the others into aws-lc-rs.
struct Keys {
    engine: Engine,
}

impl KeyProvider for Keys {
    fn load_private_key(
        &self,
        mut der: PrivateKeyDer<'static>,
    ) -> Result<Arc<dyn SigningKey>, Error> {
        let loaded: Result<Arc<dyn SigningKey>, _> = match PrivateKey::from_der(&der) {
            Ok(key) => Ok(Arc::new(RsaKey {
                public: key.public_key_info_der().into(),
                key,
                engine: self.engine.clone(),
            })),
            Err(KeyError::NotRsa { .. }) => aws_lc_rs::sign::any_supported_type(&der),
            Err(error) => Err(Error::General(error.to_string())),
        };
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

/// An RSA key and the engine that uses it.
struct RsaKey {
    key: PrivateKey,
    public: SubjectPublicKeyInfoDer<'static>,
    engine: Engine,
}

impl SigningKey for RsaKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let &(scheme, padded) = SCHEMES
            .iter()
            .find(|(scheme, _)| offered.contains(scheme))?;
        Some(Box::new(RsaSigner {
            key: self.key.clone(),
            engine: self.engine.clone(),
            scheme,
            padded,
        }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.public.as_ref()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

impl fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RsaKey").field(&self.key).finish()
    }
}

/// An RSA key and the scheme that the peers have agreed upon.
struct RsaSigner {
    key: PrivateKey,
    engine: Engine,
    scheme: SignatureScheme,
    padded: Scheme,
}

impl Signer for RsaSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signed = SignRequest::new(&self.key, self.padded, message)
            .map_err(SignFailure::from)
            .and_then(|request| Ok(run(&self.engine, request)??));
        signed.map_err(|failure| Error::Other(OtherError(Arc::new(failure))))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

impl fmt::Debug for RsaSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RsaSigner")
            .field("key", &self.key)
            .field("scheme", &self.scheme)
            .finish_non_exhaustive()
    }
}

/// Runs one job to its end: on a driver's stack by suspending the caller, elsewhere by blocking it.
fn run<R: Request>(engine: &Engine, request: R) -> Result<R::Output, SignFailure> {
    Frame::with_current(|frame| match frame {
        Some(frame) => {
            let ticket = frame.worker().submit(request).map_err(JobError::from)?;
            Ok(frame.wait(ticket)??)
        }
        None => Ok(engine.run(request)?),
    })
}

/// What a server prefers, best first. TLS 1.3 allows PSS only; rustls offers what the version
/// allows. SHA-256 leads: CPUs have instructions for it, and the signature is as strong as the key
/// with it.
const SCHEMES: [(SignatureScheme, Scheme); 6] = [
    (SignatureScheme::RSA_PSS_SHA256, Scheme::PssSha256),
    (SignatureScheme::RSA_PSS_SHA384, Scheme::PssSha384),
    (SignatureScheme::RSA_PSS_SHA512, Scheme::PssSha512),
    (SignatureScheme::RSA_PKCS1_SHA256, Scheme::Pkcs1Sha256),
    (SignatureScheme::RSA_PKCS1_SHA384, Scheme::Pkcs1Sha384),
    (SignatureScheme::RSA_PKCS1_SHA512, Scheme::Pkcs1Sha512),
];
