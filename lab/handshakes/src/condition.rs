//! Kinds of handshakes that are compared: certificate, key exchange, and how the client goes on.

use crate::setup::Setting;
use std::fmt;
use std::path::Path;
use widelane_samples::{named, names};

named! {
    /// One kind of handshake. The client's offer fixes certificate and group, so that no server's
    /// preference decides.
    pub enum Condition: "kind of handshake" {
        /// RSA-2048 and X25519.
        RsaX25519 = "rsa-x25519",
        /// ECDSA on P-256 and X25519.
        EcdsaX25519 = "ecdsa-x25519",
        /// ECDSA on P-256, and ML-KEM-768 beside X25519.
        EcdsaHybrid = "ecdsa-x25519mlkem768",
        /// RSA-2048, and ML-KEM-768 beside X25519.
        RsaHybrid = "rsa-x25519mlkem768",
        /// RSA-2048, as most clients make it: tickets, default suites, an abrupt end.
        RsaUsual = "rsa-usual",
        /// ECDSA on P-256, the same.
        EcdsaUsual = "ecdsa-usual",
        /// Resumed sessions of TLS 1.3.
        Resumed13 = "resumed-tls13",
        /// Resumed sessions of TLS 1.2.
        Resumed12 = "resumed-tls12",
        /// RSA-2048 on both sides: the client shows a certificate.
        RsaMutual = "rsa-client-certificate",
        /// ECDSA on P-256 on both sides.
        EcdsaMutual = "ecdsa-client-certificate",
    }
}

impl Condition {
    /// Conditions without tickets and client certificates, which servers set up alike.
    pub(crate) const BARE: [Self; 4] = [Self::RsaX25519, Self::EcdsaX25519, Self::EcdsaHybrid, Self::RsaHybrid];

    /// Returns whether the server's key is an RSA key, not one on P-256.
    pub(crate) fn is_rsa(self) -> bool {
        matches!(
            self,
            Self::RsaX25519 | Self::RsaHybrid | Self::RsaUsual | Self::RsaMutual
        )
    }

    /// Returns whether the condition needs a group that OpenSSL has had since 3.5 only.
    pub(crate) fn is_hybrid(self) -> bool {
        matches!(self, Self::EcdsaHybrid | Self::RsaHybrid)
    }

    /// Condition with a group that every OpenSSL has.
    pub(crate) fn classical(self) -> Self {
        match self {
            Self::RsaHybrid => Self::RsaX25519,
            Self::EcdsaHybrid => Self::EcdsaX25519,
            other => other,
        }
    }

    /// Setting of servers for the condition.
    pub(crate) fn setting(self) -> Setting {
        match self {
            Self::RsaX25519 | Self::EcdsaX25519 | Self::EcdsaHybrid | Self::RsaHybrid => Setting::Bare,
            Self::RsaUsual | Self::EcdsaUsual | Self::Resumed13 | Self::Resumed12 => Setting::Usual,
            Self::RsaMutual | Self::EcdsaMutual => Setting::Mutual,
        }
    }

    /// Arguments of `widelane load`: what it offers, and what it does after a handshake. `identity`
    /// is certificate and key of a client whose key is of the same kind.
    pub(crate) fn load(self, identity: (&Path, &Path)) -> Vec<String> {
        // The host name is that of one certificate.
        let (host, signature) = match self.is_rsa() {
            true => (RSA_HOST, "rsa_pss_rsae_sha256"),
            false => (ECDSA_HOST, "ecdsa_secp256r1_sha256"),
        };
        let group = if self.is_hybrid() { "x25519mlkem768" } else { "x25519" };
        let mut words = vec!["--server-name", host, "--sigalg", signature];
        let (certificate, key) = (identity.0.display(), identity.1.display());
        let (certificate, key) = (certificate.to_string(), key.to_string());
        match self {
            Self::RsaX25519 | Self::EcdsaX25519 | Self::EcdsaHybrid | Self::RsaHybrid => {
                words.extend(["--tls", "1.3", "--cipher", "TLS_AES_128_GCM_SHA256"]);
                words.extend(["--group", group]);
            }
            // rustls' stock provider, which has no code of ours.
            Self::RsaUsual | Self::EcdsaUsual => {
                words.extend(["--close", "abrupt", "--batching", "off"]);
            }
            Self::Resumed13 => words.extend(["--tls", "1.3", "--resume"]),
            Self::Resumed12 => words.extend(["--tls", "1.2", "--resume"]),
            Self::RsaMutual | Self::EcdsaMutual => {
                words.extend(["--tls", "1.3", "--certificate", &certificate, "--key", &key]);
            }
        }
        words.into_iter().map(String::from).collect()
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(names::condition(self.name()))
    }
}

/// Names of which only one certificate has each, for servers that choose between certificates by
/// the name alone.
pub(crate) const RSA_HOST: &str = "rsa.localhost";
pub(crate) const ECDSA_HOST: &str = "ecdsa.localhost";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_they_are_written() {
        for condition in Condition::ALL {
            assert_eq!(condition.name().parse(), Ok(condition));
        }
        let error = "dsa-x448".parse::<Condition>().expect_err("not known");
        assert!(error.contains("ecdsa-x25519mlkem768"), "{error}");
    }

    #[test]
    fn what_most_clients_do_has_no_code_of_ours_and_no_close_notify() {
        let words = |condition: Condition| {
            let identity = (Path::new("client.pem"), Path::new("client.key"));
            condition.load(identity).join(" ")
        };
        for condition in [Condition::RsaUsual, Condition::EcdsaUsual] {
            let words = words(condition);
            assert!(words.contains("--batching off") && words.contains("--close abrupt"));
            assert!(!words.contains("--cipher") && !words.contains("--group"), "{words}");
        }
        assert!(words(Condition::EcdsaMutual).contains("--certificate client.pem"));
        assert!(words(Condition::RsaHybrid).contains("x25519mlkem768"));
    }

    #[test]
    fn conditions_of_one_setting_stand_together() {
        let settings = Condition::ALL.map(Condition::setting);
        let changes = settings.windows(2).filter(|pair| pair[0] != pair[1]);
        assert_eq!(changes.count(), 2, "{settings:?}");
        assert!(Condition::BARE.iter().all(|one| one.setting() == Setting::Bare));
    }
}
