//! What kind of handshake is compared: certificate and key exchange group.

use std::fmt;
use std::str::FromStr;

/// One kind of handshake. The client's offer fixes it, so that no server's preference decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// RSA-2048 and X25519.
    RsaX25519,
    /// ECDSA on P-256 and X25519.
    EcdsaX25519,
    /// ECDSA on P-256, and ML-KEM-768 beside X25519.
    EcdsaHybrid,
    /// RSA-2048, and ML-KEM-768 beside X25519.
    RsaHybrid,
}

impl Condition {
    /// All, in the order of tables.
    pub const ALL: [Self; 4] = [
        Self::RsaX25519,
        Self::EcdsaX25519,
        Self::EcdsaHybrid,
        Self::RsaHybrid,
    ];

    /// As records and arguments spell it.
    pub fn id(self) -> &'static str {
        match self {
            Self::RsaX25519 => "rsa-x25519",
            Self::EcdsaX25519 => "ecdsa-x25519",
            Self::EcdsaHybrid => "ecdsa-x25519mlkem768",
            Self::RsaHybrid => "rsa-x25519mlkem768",
        }
    }

    /// Whether the server's key is an RSA key, not one on P-256.
    pub(crate) fn is_rsa(self) -> bool {
        matches!(self, Self::RsaX25519 | Self::RsaHybrid)
    }

    /// Whether it wants a group that OpenSSL has had since 3.5 only.
    pub(crate) fn is_hybrid(self) -> bool {
        matches!(self, Self::EcdsaHybrid | Self::RsaHybrid)
    }

    /// The same with a group that every OpenSSL has.
    pub(crate) fn classical(self) -> Self {
        match self {
            Self::RsaX25519 | Self::RsaHybrid => Self::RsaX25519,
            Self::EcdsaX25519 | Self::EcdsaHybrid => Self::EcdsaX25519,
        }
    }

    /// Arguments of `widelane load`.
    pub fn offer(self) -> [&'static str; 4] {
        let group = if self.is_hybrid() {
            "x25519mlkem768"
        } else {
            "x25519"
        };
        let signature = if self.is_rsa() {
            "rsa_pss_rsae_sha256"
        } else {
            "ecdsa_secp256r1_sha256"
        };
        ["--group", group, "--sigalg", signature]
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RsaX25519 => "RSA-2048, X25519",
            Self::EcdsaX25519 => "ECDSA P-256, X25519",
            Self::EcdsaHybrid => "ECDSA P-256, X25519MLKEM768",
            Self::RsaHybrid => "RSA-2048, X25519MLKEM768",
        })
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|condition| condition.id() == text);
        known.copied().ok_or_else(|| {
            let ids = Self::ALL.map(Self::id);
            format!("{text:?} is not known; choose from {}", ids.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_they_are_written() {
        for condition in Condition::ALL {
            assert_eq!(condition.id().parse(), Ok(condition));
        }
        let error = "dsa-x448".parse::<Condition>().expect_err("not known");
        assert!(error.contains("ecdsa-x25519mlkem768"), "{error}");
    }
}
