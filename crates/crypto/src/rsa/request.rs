//! Requests for signatures, and their answer one by one.

use super::key::PrivateKey;
use super::padding::{Padding, emsa_pkcs1_v1_5, emsa_pss, pad_pkcs1, room_in_pkcs1};
use super::{Size, portable};
use crate::Hash;
use crate::sign::{Error, Outcome};
use aws_lc_rs::digest::Digest;
use aws_lc_rs::signature as aws;

/// Padding and hash function of a signature. PSS salts are as long as the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Pkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Pkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Pkcs1Sha512,
    /// RSASSA-PSS with SHA-256 and MGF1 with SHA-256.
    PssSha256,
    /// RSASSA-PSS with SHA-384 and MGF1 with SHA-384.
    PssSha384,
    /// RSASSA-PSS with SHA-512 and MGF1 with SHA-512.
    PssSha512,
}

impl Scheme {
    /// Every scheme.
    pub const ALL: [Self; 6] = [
        Self::Pkcs1Sha256,
        Self::Pkcs1Sha384,
        Self::Pkcs1Sha512,
        Self::PssSha256,
        Self::PssSha384,
        Self::PssSha512,
    ];

    /// The hash function.
    pub const fn hash(self) -> Hash {
        match self {
            Self::Pkcs1Sha256 | Self::PssSha256 => Hash::Sha256,
            Self::Pkcs1Sha384 | Self::PssSha384 => Hash::Sha384,
            Self::Pkcs1Sha512 | Self::PssSha512 => Hash::Sha512,
        }
    }

    /// Returns whether the padding is that of PSS.
    pub(crate) const fn is_pss(self) -> bool {
        matches!(self.padding(), Padding::Pss)
    }

    pub(super) const fn padding(self) -> Padding {
        match self {
            Self::Pkcs1Sha256 | Self::Pkcs1Sha384 | Self::Pkcs1Sha512 => Padding::Pkcs1,
            Self::PssSha256 | Self::PssSha384 | Self::PssSha512 => Padding::Pss,
        }
    }

    pub(crate) fn aws_lc_verification(self) -> &'static aws::RsaParameters {
        match self {
            Self::Pkcs1Sha256 => &aws::RSA_PKCS1_2048_8192_SHA256,
            Self::Pkcs1Sha384 => &aws::RSA_PKCS1_2048_8192_SHA384,
            Self::Pkcs1Sha512 => &aws::RSA_PKCS1_2048_8192_SHA512,
            Self::PssSha256 => &aws::RSA_PSS_2048_8192_SHA256,
            Self::PssSha384 => &aws::RSA_PSS_2048_8192_SHA384,
            Self::PssSha512 => &aws::RSA_PSS_2048_8192_SHA512,
        }
    }

    fn aws_lc(self) -> &'static dyn aws::RsaEncoding {
        match self {
            Self::Pkcs1Sha256 => &aws::RSA_PKCS1_SHA256,
            Self::Pkcs1Sha384 => &aws::RSA_PKCS1_SHA384,
            Self::Pkcs1Sha512 => &aws::RSA_PKCS1_SHA512,
            Self::PssSha256 => &aws::RSA_PSS_SHA256,
            Self::PssSha384 => &aws::RSA_PSS_SHA384,
            Self::PssSha512 => &aws::RSA_PSS_SHA512,
        }
    }
}

/// One signature to be made: owns its padded message and a counted reference to its key.
#[derive(Clone)]
pub struct SignRequest {
    pub(crate) key: PrivateKey,
    /// Digest that aws-lc-rs pads and signs. `None` for what aws-lc-rs cannot sign: it takes hash values only.
    hashed: Option<(Scheme, Digest)>,
    /// Padded message that our own code signs; `None` if only aws-lc-rs signs it.
    encoded: Option<Box<[u8]>>,
}

impl SignRequest {
    /// Hashes and pads the message.
    pub(crate) fn new(key: &PrivateKey, scheme: Scheme, message: &[u8]) -> Result<Self, Error> {
        Self::salted(key, scheme, scheme.hash().digest(message))
    }

    /// Takes the hash value of a message, by the hash function of the scheme, and pads it.
    pub(crate) fn prehashed(key: &PrivateKey, scheme: Scheme, hash_value: &[u8]) -> Result<Self, Error> {
        let digest = Digest::import_less_safe(hash_value, scheme.hash().algorithm());
        let wrong = |_| Error::HashLength {
            expected: scheme.hash().output_len(),
            found: hash_value.len(),
        };
        Self::salted(key, scheme, digest.map_err(wrong)?)
    }

    /// Takes data that is padded as it is: [`sign::Request::unhashed`](crate::sign::Request::unhashed).
    pub(crate) fn unhashed(key: &PrivateKey, data: &[u8]) -> Result<Self, Error> {
        let bits = key.modulus_bits();
        let most = room_in_pkcs1(bits);
        if data.len() > most {
            let found = data.len();
            return Err(Error::TooLong { most, found });
        }
        if key.accelerated().is_none() {
            return Err(Error::OnlyInLanes);
        }
        Ok(Self {
            key: key.clone(),
            hashed: None,
            encoded: Some(pad_pkcs1(&[data], bits).into_boxed_slice()),
        })
    }

    /// Pads a digest, for PSS with a random salt.
    fn salted(key: &PrivateKey, scheme: Scheme, digest: Digest) -> Result<Self, Error> {
        let mut salt = [0u8; MAX_SALT];
        let salt = match scheme.padding() {
            Padding::Pss if key.signs_encoded() => &mut salt[..scheme.hash().output_len()],
            Padding::Pss | Padding::Pkcs1 => &mut [],
        };
        aws_lc_rs::rand::fill(salt).map_err(|_| Error::Random)?;
        Ok(Self::padded(key, scheme, digest, salt))
    }

    /// Hashes the message and pads it with this salt, which only PSS uses.
    #[cfg(test)]
    pub(super) fn with_salt(key: &PrivateKey, scheme: Scheme, message: &[u8], salt: &[u8]) -> Self {
        Self::padded(key, scheme, scheme.hash().digest(message), salt)
    }

    fn padded(key: &PrivateKey, scheme: Scheme, digest: Digest, salt: &[u8]) -> Self {
        let hash = scheme.hash();
        let bits = key.modulus_bits();
        let encoded = key.signs_encoded().then(|| match scheme.padding() {
            Padding::Pkcs1 => emsa_pkcs1_v1_5(hash, digest.as_ref(), bits),
            Padding::Pss => emsa_pss(hash, digest.as_ref(), salt, bits),
        });
        Self {
            key: key.clone(),
            hashed: Some((scheme, digest)),
            encoded: encoded.map(Vec::into_boxed_slice),
        }
    }

    /// The size of the key if lanes can answer the request.
    pub(crate) fn size(&self) -> Option<Size> {
        self.key.accelerated()
    }

    /// The padding and hash function; `None` for [`unhashed`](Self::unhashed) data.
    #[cfg(test)]
    pub(crate) fn scheme(&self) -> Option<Scheme> {
        self.hashed.map(|(scheme, _)| scheme)
    }

    /// Signs through aws-lc-rs, or through portable code where that refuses the key.
    pub(crate) fn alone(&self) -> Outcome {
        match (self.key.aws_lc(), self.encoded()) {
            (Some(pair), _) => {
                let (scheme, digest) = self.hashed.as_ref().ok_or(Error::OnlyInLanes)?;
                let mut signature = vec![0u8; pair.public_modulus_len()];
                pair.sign_digest(scheme.aws_lc(), digest, &mut signature)
                    .map_err(|_| Error::AwsLc)?;
                Ok(signature)
            }
            (None, Some(encoded)) => portable::sign(self.key.parts(), encoded),
            (None, None) => unreachable!("a key that aws-lc-rs refuses has its messages encoded"),
        }
    }

    /// The padded message as big-endian bytes of modulus length, less than the modulus; present
    /// whenever [`size`](Self::size) is.
    pub(crate) fn encoded(&self) -> Option<&[u8]> {
        self.encoded.as_deref()
    }
}

/// The longest digest.
const MAX_SALT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rsa::chain::{assert_verifies, from_pem, keys, odd_exponent_keys};
    use crate::rsa::{Signing, vectors};
    use crate::{OnBackend, Operation};

    /// Wycheproof's signatures, byte for byte: of the hash value, and of the encoding that says which
    /// hash function it is of.
    #[test]
    fn hash_values_and_encodings_are_signed_like_their_messages() {
        for size in Size::ALL {
            let bits = size.modulus_bits();
            let mut in_lanes = 0;
            for group in vectors::pkcs1(bits) {
                let hash = group.scheme.hash();
                for vector in group.vectors.iter().take(3) {
                    let digest = hash.digest(&vector.message);
                    let digest = digest.as_ref();
                    let em = emsa_pkcs1_v1_5(hash, digest, bits);
                    let zero = em.iter().skip(1).position(|byte| *byte == 0).unwrap() + 1;
                    let hashed = SignRequest::prehashed(&group.key, group.scheme, digest).unwrap();
                    let unhashed = SignRequest::unhashed(&group.key, &em[zero + 1..]).unwrap();
                    let expected = Ok(vector.signature.clone());
                    assert_eq!(hashed.alone(), expected);
                    for signing in OnBackend::everywhere(Signing(size)) {
                        let results = signing.answers(&[hashed.clone(), unhashed.clone()]);
                        assert_eq!(results[0], expected);
                        match signing.lanes() {
                            1 => assert_eq!(results[1], Err(Error::OnlyInLanes)),
                            _ => {
                                assert_eq!(results[1], expected);
                                in_lanes += 1;
                            }
                        }
                    }
                }
            }
            if in_lanes == 0 {
                eprintln!("SKIP: no lanes here for {size}");
            }
        }
    }

    #[test]
    fn hash_values_are_padded_for_pss() {
        for size in Size::ALL {
            let [key, ..] = keys(size);
            for scheme in Scheme::ALL {
                let digest = scheme.hash().digest(b"message");
                let request = SignRequest::prehashed(&key, scheme, digest.as_ref()).unwrap();
                for signing in OnBackend::everywhere(Signing(size)) {
                    let mut results = signing.answers(std::slice::from_ref(&request));
                    results.push(request.alone());
                    for result in results {
                        assert_verifies(signing.name(), &request, b"message", &result.unwrap());
                    }
                }
            }
        }
    }

    #[test]
    fn data_of_any_length_that_has_room_is_signed() {
        let size = Size::Rsa2048;
        let odd = odd_exponent_keys(size);
        for key in keys(size).iter().chain(&odd) {
            for len in [0, 1, 36, 245] {
                let data = vec![0xff; len];
                let request = SignRequest::unhashed(key, &data).unwrap();
                assert!(request.encoded().unwrap().ends_with(&data));
                for signing in OnBackend::everywhere(Signing(size)).filter(|signing| signing.lanes() > 1) {
                    for result in signing.answers(&[request.clone(), request.clone()]) {
                        assert_verifies(signing.name(), &request, &data, &result.unwrap());
                    }
                }
                match key.aws_lc() {
                    Some(_) => assert_eq!(request.alone(), Err(Error::OnlyInLanes)),
                    None => assert_verifies("one", &request, &data, &request.alone().unwrap()),
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let [key, ..] = keys(Size::Rsa2048);
        for found in [0, 31, 33, 48] {
            let refused = SignRequest::prehashed(&key, Scheme::PssSha256, &vec![0; found]);
            let expected = 32;
            assert_eq!(refused.unwrap_err(), Error::HashLength { expected, found });
        }
        let refused = SignRequest::unhashed(&key, &[0; 246]).unwrap_err();
        let (most, found) = (245, 246);
        assert_eq!(refused, Error::TooLong { most, found });
        let pem = include_bytes!("../../tests/data/rsa2560.pem");
        let key = from_pem(pem);
        let refused = SignRequest::unhashed(&key, &[0; 36]).unwrap_err();
        assert_eq!(refused, Error::OnlyInLanes);
    }
}
