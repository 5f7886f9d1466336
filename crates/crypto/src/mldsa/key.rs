//! Private keys: their encodings (RFC 9881) and checks.

use super::prepared::Prepared;
use super::size::Size;
use crate::secrecy::opaque;
use crate::sign::public_key_info;
use crate::sign::{KeyError, check_no_parameters, malformed};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::encoding::AsRawBytes;
use aws_lc_rs::signature::{KeyPair, PqdsaKeyPair};
use pkcs8::PrivateKeyInfoRef;
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::der::{self, Decode, Reader, SliceReader, Tag, TagMode, TagNumber};
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// An ML-DSA private key.
#[derive(Clone)]
pub struct PrivateKey {
    inner: Arc<Private>,
}

struct Private {
    size: Size,
    /// The encoding of FIPS 204, algorithm 22.
    public: Box<[u8]>,
    aws_lc: PqdsaKeyPair,
    /// The expanded form (FIPS 204, algorithm 24).
    expanded: Zeroizing<Vec<u8>>,
    /// Values that passes derive from the key, once.
    prepared: OnceLock<Prepared>,
}

impl PrivateKey {
    /// Checks a key of this size, in each of the three forms of RFC 9881, section 6: the seed, the
    /// expanded key, or both, which must then agree.
    pub(crate) fn from_pkcs8(size: Size, info: &PrivateKeyInfoRef<'_>) -> Result<Self, KeyError> {
        check_no_parameters(&info.algorithm, "the algorithm identifier")?;
        let form = read_private_key(info.private_key.as_bytes())
            .map_err(|error| malformed("the ML-DSA key inside PKCS#8", error))?;
        let key = match form {
            Form::Seed(seed) => Self::from_seed(size, seed)?,
            Form::Expanded(expanded) => Self::from_expanded(size, expanded)?,
            Form::Both(seed, expanded) => {
                let key = Self::from_seed(size, seed)?;
                verify_slices_are_equal(&key.inner.expanded, expanded).map_err(|_| SEED_MISMATCH)?;
                key
            }
        };
        match info.public_key {
            Some(public) if public.as_bytes() != Some(key.public_key()) => Err(KeyError::OTHER_PUBLIC_KEY),
            _ => Ok(key),
        }
    }

    /// The key that this seed of 32 bytes stands for (FIPS 204, algorithm 6).
    pub(crate) fn from_seed(size: Size, seed: &[u8]) -> Result<Self, KeyError> {
        KeyError::check_length("the seed", SEED_LEN, seed.len())?;
        let pair = PqdsaKeyPair::from_seed(size.aws_lc_signing(), seed).map_err(|_| INCONSISTENT)?;
        Self::from_aws_lc(size, pair)
    }

    /// A key in expanded form (FIPS 204, algorithm 24), whose coefficients must be in range and whose
    /// parts must fit each other.
    pub(crate) fn from_expanded(size: Size, expanded: &[u8]) -> Result<Self, KeyError> {
        KeyError::check_length("the expanded key", size.expanded_key_len(), expanded.len())?;
        let pair = PqdsaKeyPair::from_raw_private_key(size.aws_lc_signing(), expanded).map_err(|_| INCONSISTENT)?;
        Self::from_aws_lc(size, pair)
    }

    /// The parameter set.
    pub(crate) fn size(&self) -> Size {
        self.inner.size
    }

    /// The public half (FIPS 204, algorithm 22).
    pub(super) fn public_key(&self) -> &[u8] {
        &self.inner.public
    }

    /// The public key as DER of `SubjectPublicKeyInfo` (RFC 9881, section 4).
    pub(crate) fn public_key_info_der(&self) -> Vec<u8> {
        public_key_info(self.size().oid(), None, self.public_key())
    }

    /// Key inside aws-lc-rs.
    pub(super) fn aws_lc(&self) -> &PqdsaKeyPair {
        &self.inner.aws_lc
    }

    /// The expanded form of the key.
    pub(super) fn expanded(&self) -> &[u8] {
        &self.inner.expanded
    }

    /// Values that passes derive from the key: from `prepare` the first time.
    pub(super) fn prepared(&self, prepare: impl FnOnce() -> Prepared) -> &Prepared {
        self.inner.prepared.get_or_init(prepare)
    }

    /// Returns whether both are clones of one key.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn from_aws_lc(size: Size, pair: PqdsaKeyPair) -> Result<Self, KeyError> {
        let raw = pair.private_key().as_raw_bytes().map_err(|_| INCONSISTENT)?;
        let expanded = Zeroizing::new(raw.as_ref().to_vec());
        Ok(Self {
            inner: Arc::new(Private {
                size,
                public: pair.public_key().as_ref().into(),
                aws_lc: pair,
                expanded,
                prepared: OnceLock::new(),
            }),
        })
    }
}

opaque!(PrivateKey { size });

/// `ML-DSA-PrivateKey` (RFC 9881, section 6).
enum Form<'a> {
    Seed(&'a [u8]),
    Expanded(&'a [u8]),
    Both(&'a [u8], &'a [u8]),
}

fn read_private_key(der: &[u8]) -> der::Result<Form<'_>> {
    let mut reader = SliceReader::new(der)?;
    let form = match Tag::peek(&reader)? {
        Tag::OctetString => Form::Expanded(<&OctetStringRef>::decode(&mut reader)?.as_bytes()),
        Tag::Sequence => reader.sequence(|inner| -> der::Result<_> {
            let seed = <&OctetStringRef>::decode(inner)?;
            let expanded = <&OctetStringRef>::decode(inner)?;
            Ok(Form::Both(seed.as_bytes(), expanded.as_bytes()))
        })?,
        tag => {
            let seed: Option<&OctetStringRef> = reader.context_specific(TagNumber(0), TagMode::Implicit)?;
            Form::Seed(seed.ok_or_else(|| tag.unexpected_error(None))?.as_bytes())
        }
    };
    reader.finish()?;
    Ok(form)
}

pub(super) const SEED_MISMATCH: KeyError = KeyError::Inconsistent {
    key: "ML-DSA",
    reason: "its expanded form does not belong to the seed beside it",
};
pub(super) const INCONSISTENT: KeyError = KeyError::Inconsistent {
    key: "ML-DSA",
    reason: "the parts of its expanded form do not belong together",
};

/// Bytes of a seed, in every size.
pub(crate) const SEED_LEN: usize = 32;
