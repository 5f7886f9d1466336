//! Requests for signatures.

use std::fmt;

use super::{Error, Key, Kind, Scheme};
use crate::operation::{Requests, requests};
use crate::{ecdsa, ed25519, mldsa, rsa};

/// Input that is signed.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A message.
    Message(&'a [u8]),
    /// The hash value of a message: of RSA by the hash function of the scheme, of ECDSA by any, of
    /// which the leftmost bits are signed (FIPS 186-5, section 6.4.1, step 2). Ed25519 and ML-DSA
    /// sign messages only.
    ///
    /// The caller answers for where the value comes from: a peer that chooses it freely gets
    /// signatures of values for which no message is known.
    Digest(&'a [u8]),
}

/// Result of a request.
pub(crate) type Outcome = Result<Vec<u8>, Error>;

requests! {
    /// One signature to be made: owns its input and a counted reference to its key.
    ///
    /// A request can be moved to another thread and outlives its maker. Answering the same request
    /// twice may give two different signatures.
    Request(Prepared) => Vec<u8>, Error, |operation| Error::OtherOperation { operation };
    Rsa(rsa::SignRequest),
    Ecdsa(ecdsa::SignRequest),
    Ed25519(ed25519::SignRequest),
    MlDsa(mldsa::SignRequest),
}

impl Request {
    /// Hashes and pads what is to be signed, and copies the rest.
    ///
    /// # Errors
    ///
    /// [`Error::Scheme`] if the key does not sign so, [`Error::HashLength`] if an RSA hash value is
    /// not as long as those of the hash function, and [`Error::Random`] if the system gives no
    /// random salt for PSS.
    pub fn new(key: &Key, scheme: Scheme, input: Input<'_>) -> Result<Self, Error> {
        use Input::{Digest, Message};
        Ok(match (&key.0, scheme, input) {
            (Kind::Rsa(key), Scheme::Rsa(scheme), Message(message)) => {
                rsa::SignRequest::new(key, scheme, message)?.into()
            }
            (Kind::Rsa(key), Scheme::Rsa(scheme), Digest(value)) => {
                rsa::SignRequest::prehashed(key, scheme, value)?.into()
            }
            (Kind::Ecdsa(key), Scheme::Ecdsa(curve), Message(message)) if curve == key.curve() => {
                ecdsa::SignRequest::new(key, message).into()
            }
            (Kind::Ecdsa(key), Scheme::Ecdsa(curve), Digest(value)) if curve == key.curve() => {
                ecdsa::SignRequest::prehashed(key, value).into()
            }
            (Kind::Ed25519(key), Scheme::Ed25519, Message(message)) => ed25519::SignRequest::new(key, message).into(),
            (Kind::MlDsa(key), Scheme::MlDsa(size), Message(message)) if size == key.size() => {
                mldsa::SignRequest::new(key, message).into()
            }
            _ => return Err(Error::Scheme),
        })
    }

    /// Takes data that an RSA key pads as it is, without the name of a hash function: the encoding
    /// of PKCS#1 v1.5 (RFC 8017, section 9.2) whose `T` is this data. TLS up to 1.1 signs two hash
    /// values so.
    ///
    /// Only lanes answer such a request, and only for a key that they [take](Key::in_lanes). The
    /// caller answers for what the data says: a peer that chooses it freely gets signatures of
    /// messages of its choice.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`] when the key has no room for the data, [`Error::OnlyInLanes`] when lanes
    /// do not take the key, and [`Error::Scheme`] when it is not for RSA.
    pub fn unhashed(key: &Key, data: &[u8]) -> Result<Self, Error> {
        match &key.0 {
            Kind::Rsa(key) => rsa::SignRequest::unhashed(key, data).map(Self::from),
            _ => Err(Error::Scheme),
        }
    }

    /// Answers the request at once, on this thread, through aws-lc-rs, which checks the result.
    ///
    /// RSA keys whose public exponent aws-lc-rs refuses are signed with by portable code that does
    /// the same and is many times slower.
    ///
    /// # Errors
    ///
    /// [`Error::AwsLc`], and for the portable code [`Error::Random`] and [`Error::Fault`].
    /// [`Error::OnlyInLanes`] for [`unhashed`](Self::unhashed) data, unless aws-lc-rs refuses the
    /// key.
    pub fn alone(&self) -> Result<Vec<u8>, Error> {
        self.answer_alone()
    }
}

/// One signature to be made of a message that the algorithm takes whole: owns it and a counted reference to its key.
#[derive(Clone)]
pub struct Whole<K> {
    pub(crate) key: K,
    pub(crate) message: Box<[u8]>,
}

impl<K: Clone> Whole<K> {
    /// Copies the message.
    pub(crate) fn new(key: &K, message: &[u8]) -> Self {
        Self {
            key: key.clone(),
            message: message.into(),
        }
    }
}

macro_rules! shown_by_key {
    ($($request:ty),+) => { $(
        impl fmt::Debug for $request {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("Request")
                    .field("key", &self.key)
                    .finish_non_exhaustive()
            }
        }
    )+ };
}

shown_by_key!(
    rsa::SignRequest,
    ecdsa::SignRequest,
    ed25519::SignRequest,
    mldsa::SignRequest
);
