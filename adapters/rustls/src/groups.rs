//! Key exchange groups whose operations run through the engine.
//!
//! One key exchange is up to three jobs, which do not depend on one another and are submitted
//! together: a server's key pair, its derivation and its encapsulation; a client's two key pairs,
//! and later its derivation and decapsulation.

use std::fmt;

use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, ProtocolVersion};
use widelane_crypto::agreement::{self, Curve, Key, Secret};
use widelane_engine::Engine;

use crate::jobs::{Failure, run_all};

/// Every key exchange group there is here, through `engine`, best first. The first six, up to
/// SecP384r1MLKEM1024, are those of [`provider`](crate::provider); MLKEM768 and MLKEM1024 follow,
/// which put all trust into ML-KEM.
///
/// To offer or accept others than the provider does, choose among these by
/// [name](SupportedKxGroup::name):
///
/// ```
/// # use rustls::NamedGroup;
/// # use widelane_engine::Engine;
/// # let engine = Engine::global();
/// let mut provider = widelane_rustls::provider(engine);
/// provider.kx_groups = widelane_rustls::kx_groups(engine);
/// provider.kx_groups.retain(|group| group.name() == NamedGroup::X25519MLKEM768);
/// # assert_eq!(provider.kx_groups.len(), 1);
/// ```
///
/// rustls wants groups for ever (`&'static`), so each call leaks a few hundred bytes and handles of
/// `engine`, as [`provider`](crate::provider) does.
pub fn kx_groups(engine: &Engine) -> Vec<&'static dyn SupportedKxGroup> {
    let leak = |group| -> &'static dyn SupportedKxGroup {
        let engine = engine.clone();
        Box::leak(Box::new(Group { engine, group }))
    };
    agreement::GROUPS.iter().map(leak).collect()
}

/// A group of which an engine runs the operations.
struct Group {
    engine: Engine,
    group: &'static agreement::Group,
}

impl SupportedKxGroup for Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let run = |requests| run_all(&self.engine, requests);
        let key = self.group.start(generate, run)?;
        Ok(Box::new(Active {
            engine: self.engine.clone(),
            curve: key.curve_alone(),
            key,
        }))
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let run = |requests| run_all(&self.engine, requests);
        let (pub_key, secret) = self.group.answer(client_share, generate, run)?;
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key,
            secret: secret.as_slice().into(),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.group.tls_number.into()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        !self.group.has_kem() || version == ProtocolVersion::TLSv1_3
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// A client's key.
struct Active {
    engine: Engine,
    key: Key,
    /// Half of the key on a curve, if there is another half.
    curve: Option<Key>,
}

impl Active {
    fn finish(&self, key: &Key, server_share: &[u8]) -> Result<SharedSecret, Error> {
        let secret = key.finish(server_share, |requests| run_all(&self.engine, requests))?;
        Ok(secret.as_slice().into())
    }
}

impl ActiveKeyExchange for Active {
    fn complete(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        self.finish(&self.key, server_share)
    }

    /// The share of the curve serves for the group of the curve alone, too.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        let curve = self.curve.as_ref()?;
        Some((curve.group().tls_number.into(), curve.share()))
    }

    fn complete_hybrid_component(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        self.finish(self.curve.as_ref().unwrap_or(&self.key), server_share)
    }

    fn pub_key(&self) -> &[u8] {
        self.key.share()
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.key.group().tls_number.into()
    }
}

fn generate(curve: Curve) -> Result<Secret, Failure> {
    Ok(Secret::generate(curve)?)
}

/// Number of the [`kx_groups`] that a provider offers.
pub(crate) const OFFERED: usize = 6;
