//! Offer of the client in its ClientHello, and the rustls configuration for it.

use crate::batching::Batching;
use crate::error::LoadError;
use crate::names::{Group, SIGNATURE_ALGORITHMS, SignatureAlgorithm, Suite, Version};
use crate::tickets::Tickets;
use crate::trust::{Identity, Trust};
use crate::verifier::Verifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, NamedGroup, SignatureScheme};
use std::sync::Arc;

/// Offer of the client, and its trust. The default offers TLS 1.3 and 1.2, the groups X25519, P-256 and P-384 with a
/// share for the first, and rustls's cipher suites and signature algorithms, and trusts the system's bundle.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The one version offered; `None`: both.
    pub version: Option<Version>,
    /// Key exchange groups. The client sends a key share for the first one only. A server that
    /// wants another group costs a round trip. In TLS 1.2 the curve of an ECDSA certificate must be
    /// among them.
    pub groups: Vec<Group>,
    /// Signature algorithms, best first; empty: the default ones.
    pub signature_algorithms: Vec<SignatureAlgorithm>,
    /// Cipher suites, best first; empty: the default ones.
    pub suites: Vec<Suite>,
    /// Application protocols, best first; empty: none is offered.
    pub alpn: Vec<String>,
    /// Certificates that the client trusts.
    pub trust: Trust,
    /// The certificate for servers that ask for one.
    pub identity: Option<Identity>,
    /// True to resume sessions with the server's tickets. If not, every handshake is a full one.
    pub resume: bool,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            version: None,
            groups: [NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1]
                .map(Group)
                .into(),
            signature_algorithms: Vec::new(),
            suites: Vec::new(),
            alpn: Vec::new(),
            trust: Trust::System,
            identity: None,
            resume: false,
        }
    }
}

impl Offer {
    /// Looks for contradictions within the offer.
    pub(crate) fn check(&self) -> Result<(), LoadError> {
        let wrong = |text: String| Err(LoadError::Plan(text));
        if self.groups.is_empty() {
            return wrong("no key exchange group is offered; name one with --group".into());
        }
        if let Some(version) = self.version {
            let protocol = version.protocol().version;
            if let Some(suite) = self.suites.iter().find(|s| s.0.version().version != protocol) {
                return wrong(format!("--cipher {suite} does not belong to --tls {version}"));
            }
            if let Some(group) = self
                .groups
                .iter()
                .find(|g| !g.of(&[]).is_some_and(|g| g.usable_for_version(protocol)))
            {
                return wrong(format!("--group {group} cannot be used with --tls {version}"));
            }
        }
        if self.alpn.iter().any(|name| name.is_empty() || name.len() > 255) {
            return wrong("--alpn takes names of 1 to 255 bytes".into());
        }
        Ok(())
    }

    /// The configuration for one thread that has at most `in_flight` connections; it keeps two
    /// tickets for each.
    pub(crate) fn client_config(
        &self,
        in_flight: usize,
        batching: Option<&Batching>,
    ) -> Result<Arc<ClientConfig>, LoadError> {
        let provider = Arc::new(self.provider(batching));
        let schemes = self.signature_schemes(&provider);
        let (inner, pinned) = match &self.trust {
            Trust::Unchecked => (None, Vec::new()),
            trust => {
                let (roots, certificates) = trust.certificates()?;
                let builder = WebPkiServerVerifier::builder_with_provider(roots.into(), provider.clone());
                let inner = builder.build();
                let inner = inner.map_err(|error| LoadError::Plan(error.to_string()))?;
                (Some(inner), certificates)
            }
        };
        let verifier = Arc::new(Verifier { inner, schemes, pinned });
        let mut versions = match self.version {
            Some(version) => vec![version.protocol()],
            None => vec![&rustls::version::TLS13, &rustls::version::TLS12],
        };
        // With suites of one version only, rustls refuses a configuration that offers the other.
        let suites = &provider.cipher_suites;
        versions.retain(|one| suites.iter().any(|suite| suite.version() == *one));
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(|error| LoadError::Plan(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            Some(identity) => identity.shown_by(config)?,
            None => config.with_no_client_auth(),
        };
        config.resumption = if self.resume {
            Resumption::store(Arc::new(Tickets::new(TICKETS_EACH * in_flight)))
        } else {
            Resumption::disabled()
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.clone().into_bytes()).collect();
        Ok(Arc::new(config))
    }

    /// The chosen ones, else all that can be checked, in the order in which browsers list them.
    /// rustls's own order begins with the longest hash, which costs both sides more.
    fn signature_schemes(&self, provider: &CryptoProvider) -> Vec<SignatureScheme> {
        if !self.signature_algorithms.is_empty() {
            let chosen = self.signature_algorithms.iter();
            return chosen.map(|algorithm| algorithm.0).collect();
        }
        let known = provider.signature_verification_algorithms.mapping;
        SIGNATURE_ALGORITHMS
            .iter()
            .map(|(_, scheme)| *scheme)
            .filter(|scheme| known.iter().any(|(checked, _)| checked == scheme))
            .collect()
    }

    fn provider(&self, batching: Option<&Batching>) -> CryptoProvider {
        let mut provider = match batching {
            Some(batching) => batching.provider.clone(),
            None => aws_lc_rs::default_provider(),
        };
        let groups = self.groups.iter();
        provider.kx_groups = groups.filter_map(|group| group.of(&provider.kx_groups)).collect();
        if !self.suites.is_empty() {
            let suites = self.suites.iter();
            provider.cipher_suites = suites.map(|suite| suite.of(&provider.cipher_suites)).collect();
        }
        provider
    }
}

/// Most servers send two tickets on each connection.
const TICKETS_EACH: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::suite_name;
    use rustls::SupportedCipherSuite;

    #[test]
    fn offers_that_cannot_work_are_refused() {
        let text = |change: fn(&mut Offer)| {
            let mut offer = Offer::default();
            change(&mut offer);
            offer.check().expect_err("a contradiction").to_string()
        };
        assert!(text(|o| o.groups.clear()).contains("--group"));
        let hybrid = text(|o| {
            o.version = Some(Version::Tls12);
            o.groups = vec!["x25519mlkem768".parse().expect("known")];
        });
        assert!(hybrid.contains("--group x25519mlkem768"), "{hybrid}");
        let suite = text(|o| {
            o.version = Some(Version::Tls13);
            o.suites = vec!["ECDHE-RSA-AES128-GCM-SHA256".parse().expect("known")];
        });
        assert!(suite.contains("--tls 1.3"), "{suite}");
        assert!(text(|o| o.alpn = vec![String::new()]).contains("--alpn"));
    }

    #[test]
    fn chosen_suites_are_those_of_the_provider() {
        let preferred = widelane_rustls::default_provider().cipher_suites;
        for suite in preferred.iter().filter_map(SupportedCipherSuite::tls13) {
            let chosen: Suite = suite_name(suite.common.suite).parse().expect("known");
            let chosen = chosen.of(&preferred).tls13().expect("the same version");
            assert!(std::ptr::eq(chosen, suite), "{suite:?}");
        }
    }

    #[test]
    fn suites_of_one_version_narrow_the_versions() {
        let offer = Offer {
            suites: vec!["TLS_AES_128_GCM_SHA256".parse().expect("known")],
            trust: Trust::Unchecked,
            ..Offer::default()
        };
        assert!(offer.client_config(1, None).is_ok());
    }
}
