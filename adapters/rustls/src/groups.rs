//! Key exchange groups whose operations run through the engine.
//!
//! | group              | code point | share of the client, of the server; the secret          |
//! | ------------------ | ---------- | ------------------------------------------------------- |
//! | X25519MLKEM768     | 0x11ec     | ML-KEM key, X25519; ML-KEM ciphertext, X25519; the same |
//! | SecP256r1MLKEM768  | 0x11eb     | P-256, ML-KEM key; P-256, ML-KEM ciphertext; the same   |
//! | SecP384r1MLKEM1024 | 0x11ed     | P-384, ML-KEM key; P-384, ML-KEM ciphertext; the same   |
//!
//! These are of draft-ietf-tls-ecdhe-mlkem, section 4: X25519MLKEM768 alone has the post-quantum
//! part first. The curves are of RFC 8446, section 4.2.8.2, and ML-KEM by itself is of
//! draft-ietf-tls-mlkem.
//!
//! One key exchange is up to three jobs, which do not depend on one another and are submitted
//! together: a server's key pair, its derivation and its encapsulation; a client's two key pairs,
//! and later its derivation and decapsulation.

use std::fmt;

use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};
use widelane_crypto::mlkem::{Decapsulate, DecapsulationKey, Encapsulate, Keygen, Size};
use widelane_crypto::{AgreeError, Shared, ecdh, x25519};
use widelane_engine::{Engine, Request};

use crate::jobs::{Failure, run, run_together};

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
    let x25519 = X25519;
    let p256 = Nist(ecdh::Curve::P256);
    let p384 = Nist(ecdh::Curve::P384);
    let engine = || engine.clone();
    vec![
        leak(Hybrid::new(engine(), x25519, Size::MlKem768)),
        leak(Plain::new(engine(), x25519)),
        leak(Plain::new(engine(), p256)),
        leak(Plain::new(engine(), p384)),
        leak(Hybrid::new(engine(), p256, Size::MlKem768)),
        leak(Hybrid::new(engine(), p384, Size::MlKem1024)),
        leak(Kem::new(engine(), NamedGroup::MLKEM768, Size::MlKem768)),
        leak(Kem::new(engine(), NamedGroup::MLKEM1024, Size::MlKem1024)),
    ]
}

fn leak(group: impl SupportedKxGroup + 'static) -> &'static dyn SupportedKxGroup {
    Box::leak(Box::new(group))
}

/// A curve with Diffie-Hellman keys.
trait Curve: Copy + Send + Sync + 'static {
    type Secret: Send + Sync + 'static;
    type Share: AsRef<[u8]> + Send + Sync + 'static;
    type Public: Request<Output = Result<Self::Share, AgreeError>>;
    type Derive: Request<Output = Result<Shared, AgreeError>>;

    /// The group of this curve alone.
    fn name(self) -> NamedGroup;

    /// The group of this curve with ML-KEM, and whether ML-KEM comes first in it.
    fn hybrid(self) -> (NamedGroup, bool);

    /// Bytes of a share.
    fn share_len(self) -> usize;

    fn generate(self) -> Result<Self::Secret, AgreeError>;

    fn public(secret: &Self::Secret) -> Self::Public;

    fn derive(secret: &Self::Secret, peer: &[u8]) -> Result<Self::Derive, AgreeError>;
}

#[derive(Clone, Copy)]
struct X25519;

impl Curve for X25519 {
    type Secret = x25519::Secret;
    type Share = [u8; 32];
    type Public = x25519::Public;
    type Derive = x25519::Derive;

    fn name(self) -> NamedGroup {
        NamedGroup::X25519
    }

    fn hybrid(self) -> (NamedGroup, bool) {
        (NamedGroup::X25519MLKEM768, true)
    }

    fn share_len(self) -> usize {
        32
    }

    fn generate(self) -> Result<x25519::Secret, AgreeError> {
        x25519::Secret::generate()
    }

    fn public(secret: &x25519::Secret) -> x25519::Public {
        x25519::Public {
            secret: secret.clone(),
        }
    }

    fn derive(secret: &x25519::Secret, peer: &[u8]) -> Result<x25519::Derive, AgreeError> {
        let peer = peer.try_into();
        Ok(x25519::Derive {
            secret: secret.clone(),
            peer: peer.map_err(|_| AgreeError::InvalidPeer("not 32 bytes"))?,
        })
    }
}

#[derive(Clone, Copy)]
struct Nist(ecdh::Curve);

impl Curve for Nist {
    type Secret = ecdh::Secret;
    type Share = Vec<u8>;
    type Public = ecdh::Public;
    type Derive = ecdh::Derive;

    fn name(self) -> NamedGroup {
        match self.0 {
            ecdh::Curve::P256 => NamedGroup::secp256r1,
            ecdh::Curve::P384 => NamedGroup::secp384r1,
        }
    }

    fn hybrid(self) -> (NamedGroup, bool) {
        match self.0 {
            ecdh::Curve::P256 => (NamedGroup::secp256r1MLKEM768, false),
            // rustls has no name for it.
            ecdh::Curve::P384 => (NamedGroup::Unknown(0x11ed), false),
        }
    }

    /// An uncompressed point.
    fn share_len(self) -> usize {
        match self.0 {
            ecdh::Curve::P256 => 65,
            ecdh::Curve::P384 => 97,
        }
    }

    fn generate(self) -> Result<ecdh::Secret, AgreeError> {
        ecdh::Secret::generate(self.0)
    }

    fn public(secret: &ecdh::Secret) -> ecdh::Public {
        ecdh::Public {
            secret: secret.clone(),
        }
    }

    fn derive(secret: &ecdh::Secret, peer: &[u8]) -> Result<ecdh::Derive, AgreeError> {
        Ok(ecdh::Derive {
            secret: secret.clone(),
            peer: peer.to_vec(),
        })
    }
}

/// The group of a curve.
struct Plain<C> {
    engine: Engine,
    curve: C,
}

impl<C: Curve> Plain<C> {
    fn new(engine: Engine, curve: C) -> Self {
        Self { engine, curve }
    }
}

impl<C: Curve> SupportedKxGroup for Plain<C> {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let secret = self.curve.generate().map_err(refused)?;
        let share = run(&self.engine, C::public(&secret))?.map_err(refused)?;
        Ok(Box::new(ActivePlain {
            engine: self.engine.clone(),
            curve: self.curve,
            secret,
            share,
        }))
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let secret = self.curve.generate().map_err(refused)?;
        let jobs = (
            C::public(&secret),
            C::derive(&secret, client_share).map_err(refused)?,
        );
        let (share, shared) = run_together(&self.engine, jobs)?;
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: share.map_err(refused)?.as_ref().to_vec(),
            secret: shared.map_err(refused)?.as_bytes().into(),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.curve.name()
    }
}

impl<C: Curve> fmt::Debug for Plain<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// A client's key of [`Plain`].
struct ActivePlain<C: Curve> {
    engine: Engine,
    curve: C,
    secret: C::Secret,
    share: C::Share,
}

impl<C: Curve> ActiveKeyExchange for ActivePlain<C> {
    fn complete(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        derive::<C>(&self.engine, &self.secret, server_share)
    }

    fn pub_key(&self) -> &[u8] {
        self.share.as_ref()
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.curve.name()
    }
}

/// A curve and ML-KEM together: as strong as the stronger of the two.
struct Hybrid<C> {
    engine: Engine,
    layout: Layout<C>,
}

impl<C: Curve> Hybrid<C> {
    fn new(engine: Engine, curve: C, size: Size) -> Self {
        let layout = Layout { curve, size };
        Self { engine, layout }
    }
}

impl<C: Curve> SupportedKxGroup for Hybrid<C> {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let Layout { curve, size } = self.layout;
        let secret = curve.generate().map_err(refused)?;
        let (share, kem) = run_together(&self.engine, (C::public(&secret), Keygen { size }))?;
        let (key, encapsulation_key) = kem.map_err(refused)?;
        let share = share.map_err(refused)?;
        Ok(Box::new(ActiveHybrid {
            engine: self.engine.clone(),
            layout: self.layout,
            secret,
            key,
            shares: self.layout.join(share.as_ref(), &encapsulation_key),
        }))
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let Layout { curve, size } = self.layout;
        let key_len = size.encapsulation_key_len();
        let (peer, key) = self.layout.split(client_share, key_len)?;
        let secret = curve.generate().map_err(refused)?;
        let jobs = (
            C::public(&secret),
            C::derive(&secret, peer).map_err(refused)?,
            Encapsulate {
                size,
                key: key.to_vec(),
            },
        );
        let (share, shared, kem) = run_together(&self.engine, jobs)?;
        let (share, shared) = (share.map_err(refused)?, shared.map_err(refused)?);
        let (ciphertext, kem_shared) = kem.map_err(refused)?;
        let secret = self.layout.join(shared.as_bytes(), kem_shared.as_bytes());
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: self.layout.join(share.as_ref(), &ciphertext),
            secret: secret.into(),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.layout.name()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

impl<C: Curve> fmt::Debug for Hybrid<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// A client's keys of [`Hybrid`].
struct ActiveHybrid<C: Curve> {
    engine: Engine,
    layout: Layout<C>,
    secret: C::Secret,
    key: DecapsulationKey,
    /// Both public halves.
    shares: Vec<u8>,
}

impl<C: Curve> ActiveKeyExchange for ActiveHybrid<C> {
    fn complete(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        let ciphertext_len = self.layout.size.ciphertext_len();
        let (peer, ciphertext) = self.layout.split(server_share, ciphertext_len)?;
        let jobs = (
            C::derive(&self.secret, peer).map_err(refused)?,
            Decapsulate {
                key: self.key.clone(),
                ciphertext: ciphertext.to_vec(),
            },
        );
        let (shared, kem_shared) = run_together(&self.engine, jobs)?;
        let (shared, kem_shared) = (shared.map_err(refused)?, kem_shared.map_err(refused)?);
        let secret = self.layout.join(shared.as_bytes(), kem_shared.as_bytes());
        Ok(secret.into())
    }

    /// The share of the curve serves for the group of the curve alone, too.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        let key_len = self.layout.size.encapsulation_key_len();
        let (share, _) = self.layout.split(&self.shares, key_len).ok()?;
        Some((self.layout.curve.name(), share))
    }

    fn complete_hybrid_component(
        self: Box<Self>,
        server_share: &[u8],
    ) -> Result<SharedSecret, Error> {
        derive::<C>(&self.engine, &self.secret, server_share)
    }

    fn pub_key(&self) -> &[u8] {
        &self.shares
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.layout.name()
    }
}

/// Which parts a hybrid group has, and their order: the same in both shares and in the secret.
#[derive(Clone, Copy)]
struct Layout<C> {
    curve: C,
    size: Size,
}

impl<C: Curve> Layout<C> {
    fn name(&self) -> NamedGroup {
        self.curve.hybrid().0
    }

    fn join(&self, curve: &[u8], kem: &[u8]) -> Vec<u8> {
        match self.curve.hybrid() {
            (_, true) => [kem, curve].concat(),
            (_, false) => [curve, kem].concat(),
        }
    }

    /// The part of the curve and that of ML-KEM, which has `kem_len` bytes.
    fn split<'a>(&self, share: &'a [u8], kem_len: usize) -> Result<(&'a [u8], &'a [u8]), Error> {
        let curve_len = self.curve.share_len();
        if share.len() != curve_len + kem_len {
            return Err(INVALID_SHARE);
        }
        Ok(match self.curve.hybrid() {
            (_, true) => {
                let (kem, curve) = share.split_at(kem_len);
                (curve, kem)
            }
            (_, false) => share.split_at(curve_len),
        })
    }
}

/// ML-KEM by itself.
struct Kem {
    engine: Engine,
    name: NamedGroup,
    size: Size,
}

impl Kem {
    fn new(engine: Engine, name: NamedGroup, size: Size) -> Self {
        Self { engine, name, size }
    }
}

impl SupportedKxGroup for Kem {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let keys = run(&self.engine, Keygen { size: self.size })?;
        let (key, encapsulation_key) = keys.map_err(refused)?;
        Ok(Box::new(ActiveKem {
            engine: self.engine.clone(),
            name: self.name,
            key,
            encapsulation_key,
        }))
    }

    fn start_and_complete(&self, client_share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let request = Encapsulate {
            size: self.size,
            key: client_share.to_vec(),
        };
        let (ciphertext, shared) = run(&self.engine, request)?.map_err(refused)?;
        Ok(CompletedKeyExchange {
            group: self.name,
            pub_key: ciphertext,
            secret: shared.as_bytes().into(),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.name
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

impl fmt::Debug for Kem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

/// A client's key of [`Kem`].
struct ActiveKem {
    engine: Engine,
    name: NamedGroup,
    key: DecapsulationKey,
    encapsulation_key: Vec<u8>,
}

impl ActiveKeyExchange for ActiveKem {
    fn complete(self: Box<Self>, server_share: &[u8]) -> Result<SharedSecret, Error> {
        let request = Decapsulate {
            key: self.key,
            ciphertext: server_share.to_vec(),
        };
        let shared = run(&self.engine, request)?.map_err(refused)?;
        Ok(shared.as_bytes().into())
    }

    fn pub_key(&self) -> &[u8] {
        &self.encapsulation_key
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.name
    }
}

/// The secret shared with a peer on a curve.
fn derive<C: Curve>(
    engine: &Engine,
    secret: &C::Secret,
    peer: &[u8],
) -> Result<SharedSecret, Error> {
    let request = C::derive(secret, peer).map_err(refused)?;
    let shared = run(engine, request)?.map_err(refused)?;
    Ok(shared.as_bytes().into())
}

/// The error for rustls when an agreement failed: it says whether the peer is to blame.
fn refused(error: AgreeError) -> Error {
    match error {
        AgreeError::InvalidPeer(_) | AgreeError::WeakPeer => INVALID_SHARE,
        error => Failure::operation(error).into(),
    }
}

const INVALID_SHARE: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// Number of the [`kx_groups`] that a provider offers.
pub(crate) const OFFERED: usize = 6;
