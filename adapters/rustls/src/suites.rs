//! Cipher suites: aws-lc-rs's, with ChaCha20-Poly1305 in registers of a chosen width, and with the
//! key schedule of `schedule.rs`.

use std::sync::OnceLock;

use rustls::crypto::CipherSuiteCommon;
use rustls::crypto::aws_lc_rs;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, KeyBlockShape, MessageDecrypter, MessageEncrypter,
    NONCE_LEN, Nonce, OutboundOpaqueMessage, OutboundPlainMessage, PrefixedPayload, Tls12AeadAlgorithm,
    Tls13AeadAlgorithm, UnsupportedOperationError, make_tls12_aad, make_tls13_aad,
};
use rustls::{
    CipherSuite, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion, SupportedCipherSuite, Tls12CipherSuite,
    Tls13CipherSuite,
};
use widelane_crypto::chacha20poly1305::{Cipher, Form, Key, TAG_LEN};

use crate::schedule::hkdf;

/// The cipher suites of [`aws_lc_rs::default_provider`], best first, of which those with
/// ChaCha20-Poly1305 use `cipher`. AES-GCM is aws-lc-rs's, and so are QUIC's packets. The key
/// schedule of TLS 1.3 is ours in all of them.
///
/// ```
/// use widelane_crypto::chacha20poly1305::{Choice, Cipher, Form};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // As wide as this machine can, but never at the expense of the clock:
/// let light = Cipher::new(Choice::Exactly(Form::Ymm256Light));
/// let cipher = light.or_else(|_| Cipher::new(Choice::Exactly(Form::AwsLc)))?;
/// let provider = rustls::crypto::CryptoProvider {
///     cipher_suites: widelane_rustls::cipher_suites(cipher),
///     ..widelane_rustls::default_provider()
/// };
/// # drop(provider);
/// # Ok(())
/// # }
/// ```
pub fn cipher_suites(cipher: Cipher) -> Vec<SupportedCipherSuite> {
    // rustls keeps suites for ever (`&'static`): one set a form.
    static SUITES: [OnceLock<Vec<SupportedCipherSuite>>; Form::ALL.len()] =
        [const { OnceLock::new() }; Form::ALL.len()];
    let place = Form::ALL.iter().position(|form| *form == cipher.form());
    let suites = &SUITES[place.expect("every form is in the list of all")];
    let ours = || {
        let theirs = aws_lc_rs::default_provider().cipher_suites;
        theirs.into_iter().map(|suite| with(cipher, suite)).collect()
    };
    suites.get_or_init(ours).clone()
}

/// The suite with our key schedule, and with `cipher` in place of its own if it is the same one.
fn with(cipher: Cipher, suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let algorithm: Option<&'static Algorithm> = match suite.suite() {
        _ if cipher.form() == Form::AwsLc => None,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(Box::leak(Box::new(Algorithm(cipher)))),
        _ => None,
    };
    let common = |theirs: &CipherSuiteCommon| CipherSuiteCommon {
        suite: theirs.suite,
        hash_provider: theirs.hash_provider,
        confidentiality_limit: theirs.confidentiality_limit,
    };
    match (suite, algorithm) {
        (SupportedCipherSuite::Tls13(suite), algorithm) => {
            let ours = hkdf(suite.common.hash_provider.algorithm());
            SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                common: common(&suite.common),
                hkdf_provider: ours.unwrap_or(suite.hkdf_provider),
                aead_alg: match algorithm {
                    Some(algorithm) => algorithm,
                    None => suite.aead_alg,
                },
                quic: suite.quic,
            })))
        }
        (SupportedCipherSuite::Tls12(suite), Some(algorithm)) => {
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common: common(&suite.common),
                prf_provider: suite.prf_provider,
                kx: suite.kx,
                sign: suite.sign,
                aead_alg: algorithm,
            })))
        }
        (suite, None) => suite,
    }
}

/// Makes keys for records.
struct Algorithm(Cipher);

impl Algorithm {
    fn records(&self, key: &AeadKey, iv: Iv) -> Records {
        let key = key.as_ref().try_into();
        let key = key.expect("rustls derives as many bytes as key_len says");
        Records {
            key: self.0.key(key),
            iv,
        }
    }
}

impl Tls13AeadAlgorithm for Algorithm {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Tls13(self.records(&key, iv)))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Tls13(self.records(&key, iv)))
    }

    fn key_len(&self) -> usize {
        KEY_LEN
    }

    fn extract_keys(&self, key: AeadKey, iv: Iv) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Ok(ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv })
    }
}

impl Tls12AeadAlgorithm for Algorithm {
    fn encrypter(&self, key: AeadKey, iv: &[u8], _: &[u8]) -> Box<dyn MessageEncrypter> {
        Box::new(Tls12(self.records(&key, Iv::copy(iv))))
    }

    fn decrypter(&self, key: AeadKey, iv: &[u8]) -> Box<dyn MessageDecrypter> {
        Box::new(Tls12(self.records(&key, Iv::copy(iv))))
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        // RFC 7905, section 2.
        KeyBlockShape {
            enc_key_len: KEY_LEN,
            fixed_iv_len: NONCE_LEN,
            explicit_nonce_len: 0,
        }
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: &[u8],
        _: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        let iv = Iv::copy(iv);
        Ok(ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv })
    }
}

/// Records of TLS 1.3 (RFC 8446, section 5.2).
struct Tls13(Records);

impl MessageEncrypter for Tls13 {
    fn encrypt(&mut self, message: OutboundPlainMessage<'_>, sequence: u64) -> Result<OutboundOpaqueMessage, Error> {
        let len = self.encrypted_payload_len(message.payload.len());
        let mut payload = PrefixedPayload::with_capacity(len);
        payload.extend_from_chunks(&message.payload);
        payload.extend_from_slice(&[message.typ.into()]);
        self.0.seal(sequence, &make_tls13_aad(len), &mut payload)?;
        Ok(OutboundOpaqueMessage::new(
            ContentType::ApplicationData,
            ProtocolVersion::TLSv1_2,
            payload,
        ))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len + 1 + TAG_LEN
    }
}

impl MessageDecrypter for Tls13 {
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let aad = make_tls13_aad(message.payload.len());
        self.0.open(sequence, &aad, &mut message)?;
        message.into_tls13_unpadded_message()
    }
}

/// Records of TLS 1.2 (RFC 7905, section 2; RFC 5246, section 6.2.3.3).
struct Tls12(Records);

impl MessageEncrypter for Tls12 {
    fn encrypt(&mut self, message: OutboundPlainMessage<'_>, sequence: u64) -> Result<OutboundOpaqueMessage, Error> {
        let len = message.payload.len();
        let mut payload = PrefixedPayload::with_capacity(self.encrypted_payload_len(len));
        payload.extend_from_chunks(&message.payload);
        let aad = make_tls12_aad(sequence, message.typ, message.version, len);
        self.0.seal(sequence, &aad, &mut payload)?;
        Ok(OutboundOpaqueMessage::new(message.typ, message.version, payload))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len + TAG_LEN
    }
}

impl MessageDecrypter for Tls12 {
    fn decrypt<'a>(
        &mut self,
        mut message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let len = message.payload.len().checked_sub(TAG_LEN);
        let len = len.ok_or(Error::DecryptError)?;
        let aad = make_tls12_aad(sequence, message.typ, message.version, len);
        self.0.open(sequence, &aad, &mut message)?;
        if len > MAX_FRAGMENT_LEN {
            return Err(Error::PeerSentOversizedRecord);
        }
        Ok(message.into_plain_message())
    }
}

/// Key and nonces of the records in one direction.
struct Records {
    key: Key,
    iv: Iv,
}

impl Records {
    /// Encrypts the payload in place and appends the tag.
    fn seal(&self, sequence: u64, aad: &[u8], payload: &mut PrefixedPayload) -> Result<(), Error> {
        let Nonce(nonce) = Nonce::new(&self.iv, sequence);
        let tag = self.key.seal_in_place(&nonce, aad, payload.as_mut());
        payload.extend_from_slice(&tag.map_err(|_| Error::EncryptError)?);
        Ok(())
    }

    /// Decrypts the payload in place and takes the tag off.
    fn open(&self, sequence: u64, aad: &[u8], message: &mut InboundOpaqueMessage<'_>) -> Result<(), Error> {
        let Nonce(nonce) = Nonce::new(&self.iv, sequence);
        let opened = self.key.open_in_place(&nonce, aad, &mut message.payload);
        let len = opened.map_err(|_| Error::DecryptError)?.len();
        message.payload.truncate(len);
        Ok(())
    }
}

/// Bytes of a key (RFC 8439, section 2.8).
const KEY_LEN: usize = 32;
/// Bytes of plaintext in a record (RFC 5246, section 6.2.1).
const MAX_FRAGMENT_LEN: usize = 16_384;
