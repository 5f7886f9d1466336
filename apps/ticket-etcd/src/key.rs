//! One ticket key, as nginx's files and `widelane serve` have it.

use aws_lc_rs::rand;
use zeroize::Zeroizing;

/// The bytes of a key: its name (16 bytes), then keys of HMAC-SHA-256 and of AES-256. Erased when dropped.
#[derive(Clone)]
pub(crate) struct KeyBytes(Zeroizing<Vec<u8>>);

/// The library has no randomness.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the cryptography library gave no ticket key")]
pub(crate) struct NoKey;

impl KeyBytes {
    pub(crate) const LENGTH: usize = 80;

    /// Random bytes.
    pub(crate) fn generate() -> Result<Self, NoKey> {
        let mut bytes = Zeroizing::new(vec![0; Self::LENGTH]);
        rand::fill(&mut bytes).map_err(|_| NoKey)?;
        Ok(Self(bytes))
    }

    /// The bytes of a key that lay in etcd. `None`: a server would refuse them, because no random generator makes such.
    pub(crate) fn from_store(bytes: &[u8]) -> Option<Self> {
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        let first = bytes.first()?;
        let is_random = !bytes.iter().all(is_text) && bytes.iter().any(|byte| byte != first);
        (bytes.len() == Self::LENGTH && is_random).then(|| Self(Zeroizing::new(bytes.to_vec())))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name in hexadecimal, which tickets carry in plain.
    pub(crate) fn name(&self) -> String {
        let name = self.0.iter().take(NAME);
        name.map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeyBytes").field(&self.name()).finish()
    }
}

const NAME: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_server_takes_is_a_key() {
        let random: Vec<u8> = (0..80).collect();
        let key = KeyBytes::from_store(&random).unwrap();
        assert_eq!(key.name(), "000102030405060708090a0b0c0d0e0f");
        assert_eq!(KeyBytes::generate().unwrap().as_bytes().len(), 80);
        for wrong in [&random[..79], &[], &[b'a'; 80], &[200; 80], &[1; 81]] {
            assert!(KeyBytes::from_store(wrong).is_none());
        }
        let text = b"0123456789abcdef".repeat(5);
        assert!(KeyBytes::from_store(&text).is_none());
    }
}
