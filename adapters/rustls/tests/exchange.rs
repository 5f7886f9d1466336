//! Key exchange: every group with every kind of certificate against rustls with aws-lc-rs, in both
//! roles; and what becomes of bad shares.

mod common;

use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Wake, Waker};

use common::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, SharedSecret, SupportedKxGroup, aws_lc_rs,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, ClientConfig, Error, HandshakeKind, NamedGroup, PeerMisbehaved, ProtocolVersion, ServerConfig,
    ServerConnection,
};
use widelane_engine::{Config, Engine};
use widelane_rustls::{Driver, HandshakeError, kx_groups, provider};

#[test]
fn every_group_goes_with_every_certificate_in_both_roles() {
    for engine in engines() {
        let groups = kx_groups(&engine);
        for (_, identity) in each() {
            let server = server_config(with(provider(&engine), &groups), &identity);
            let their_server = server_config(with(theirs(), &their_groups()), &identity);
            on_event_loop(&engine, async |driver| {
                for (ours, theirs) in groups.iter().zip(their_groups()) {
                    let name = ours.name();
                    assert_eq!(name, theirs.name());
                    let client = client_of(common::theirs(), &[theirs], &identity);
                    let facts = connect(&driver, &server, client).complete().await;
                    assert_eq!(facts.group, Some(name));

                    let client = client_of(provider(&engine), &[*ours], &identity);
                    let facts = connect(&driver, &their_server, client).complete().await;
                    assert_eq!(facts.group, Some(name));
                }
                assert_eq!(driver.stacks_in_use(), 0);
            });
        }
        // Nothing of it went another way. A client starts with a key pair and a server answers with
        // one; both derive; and X25519 alone also is in one of the hybrids.
        let certificates = 7;
        let jobs = |operation: String| counted(&engine, &operation).jobs;
        for curve in ["x25519", "p256", "p384"] {
            let derive = if curve == "x25519" { "derive" } else { "ecdh" };
            assert_eq!(jobs(format!("{curve}-keygen")), 4 * certificates);
            assert_eq!(jobs(format!("{curve}-{derive}")), 4 * certificates);
        }
        for (size, groups) in [("mlkem768", 3), ("mlkem1024", 2)] {
            for operation in ["keygen", "encaps", "decaps"] {
                assert_eq!(jobs(format!("{size}-{operation}")), groups * certificates);
            }
        }
        for (kind, _) in each() {
            assert_eq!(jobs(format!("{kind}-sign")), 8, "{kind}");
            if kind != "rsa2048" {
                // That of the certificate and that of the handshake.
                assert_eq!(jobs(format!("{kind}-verify")), 2 * 8, "{kind}");
            }
        }
    }
}

#[test]
fn tls12_exchanges_keys_on_curves() {
    for engine in engines() {
        let curves = &kx_groups(&engine)[1..4];
        for (kind, identity) in &each()[..4] {
            let server = server_config(with(provider(&engine), curves), identity);
            let their_server = server_config(theirs(), identity);
            on_event_loop(&engine, async |driver| {
                for group in curves {
                    // In TLS 1.2 the list says what may be in certificates, too.
                    let offered = |crypto: CryptoProvider| {
                        let mut groups = crypto.kx_groups.clone();
                        groups.retain(|one| one.name() == group.name());
                        groups.extend(crypto.kx_groups.iter().copied());
                        let crypto = with(crypto, &groups);
                        checking_client_config(crypto, &TLS12, identity, None)
                    };
                    for pair in [
                        connect(&driver, &server, offered(theirs())),
                        connect(&driver, &their_server, offered(provider(&engine))),
                    ] {
                        let facts = pair.complete().await;
                        assert_eq!(facts.version, ProtocolVersion::TLSv1_2);
                        assert_eq!(facts.group, Some(group.name()), "{kind}");
                    }
                }
            });
        }
        for operation in ["x25519-derive", "p256-ecdh", "p384-ecdh"] {
            assert_eq!(counted(&engine, operation).jobs, 2 * 4, "{operation}");
        }
    }
}

#[test]
fn the_hybrid_of_x25519_is_preferred_and_brings_x25519_along() {
    let engine = engine();
    let ours = provider(&engine);
    let names: Vec<_> = ours.kx_groups.iter().map(|group| group.name()).collect();
    let expected = [
        NamedGroup::X25519MLKEM768,
        NamedGroup::X25519,
        NamedGroup::secp256r1,
        NamedGroup::secp384r1,
        NamedGroup::secp256r1MLKEM768,
        NamedGroup::Unknown(0x11ed),
    ];
    assert_eq!(names, expected);
    let identity = generate(Kind::Ecdsa);
    let client = checking_client_config(ours.clone(), &TLS13, &identity, None);
    let both = server_config(theirs(), &identity);
    let old = server_config(with(theirs(), &[aws_lc_rs::kx_group::X25519]), &identity);
    on_event_loop(&engine, async |driver| {
        for (server, group) in [(both, NamedGroup::X25519MLKEM768), (old, NamedGroup::X25519)] {
            let facts = connect(&driver, &server, client.clone()).complete().await;
            assert_eq!(facts.group, Some(group));
            // The client had sent both shares, made of one X25519 key.
            assert_eq!(facts.kind, HandshakeKind::Full);
        }
    });
    assert_eq!(counted(&engine, "x25519-keygen").jobs, 2);
    assert_eq!(counted(&engine, "mlkem768-keygen").jobs, 2);
    assert_eq!(counted(&engine, "mlkem768-decaps").jobs, 1);
}

#[test]
fn a_hello_retry_request_costs_one_more_round() {
    let engine = engine();
    let identity = generate(Kind::Ed25519);
    on_event_loop(&engine, async |driver| {
        for wanted in kx_groups(&engine) {
            let name = wanted.name();
            let their_wanted = their_groups().into_iter().find(|one| one.name() == name);
            let their_wanted = their_wanted.unwrap();
            // The share is for another group than the server has.
            let first = usize::from(name == NamedGroup::secp384r1);
            let (first, their_first) = (
                kx_groups(&engine)[3 - first],
                [aws_lc_rs::kx_group::SECP384R1, aws_lc_rs::kx_group::SECP256R1][first],
            );
            let server = server_config(with(provider(&engine), &[wanted]), &identity);
            let client = client_of(theirs(), &[their_first, their_wanted], &identity);
            let their_server = server_config(with(theirs(), &[their_wanted]), &identity);
            let our_client = client_of(provider(&engine), &[first, wanted], &identity);
            for pair in [
                connect(&driver, &server, client),
                connect(&driver, &their_server, our_client),
            ] {
                let facts = pair.complete().await;
                assert_eq!(facts.kind, HandshakeKind::FullWithHelloRetryRequest);
                assert_eq!(facts.group, Some(name));
            }
        }
    });
}

#[test]
fn the_jobs_of_one_exchange_are_submitted_together() {
    let engine = four_lanes(Config::default());
    let driver = Driver::new(&engine);
    let turns = driver.turns();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let (mut handshake, _other) = (driver.handshake(), driver.handshake());
    let mut step = Box::pin(handshake.process(with_hello(&engine)));
    assert!(step.as_mut().poll(&mut cx).is_pending());
    // Three passes of one job each, and one wake-up.
    for left in [2, 1, 0] {
        assert_eq!(woken.times(), 0);
        assert_eq!(turns.turn(), 1);
        assert_eq!(totals(&engine).0, 3 - left);
    }
    assert_eq!(woken.times(), 1);
    for operation in ["x25519-keygen", "x25519-derive", "mlkem768-encaps"] {
        assert_eq!(counted(&engine, operation).jobs, 1);
    }
    assert!(step.as_mut().poll(&mut cx).is_pending(), "the signature");
    assert_eq!(turns.turn(), 1);
    assert!(step.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn a_vanished_connection_takes_all_its_jobs_along() {
    let engine = four_lanes(Config::default());
    let driver = Driver::new(&engine);
    let turns = driver.turns();
    let mut cx = Context::from_waker(Waker::noop());
    for done in 0..3 {
        let (mut handshake, _other) = (driver.handshake(), driver.handshake());
        let mut step = Box::pin(handshake.process(with_hello(&engine)));
        assert!(step.as_mut().poll(&mut cx).is_pending());
        let before = totals(&engine).0;
        for _ in 0..done {
            assert_eq!(turns.turn(), 1);
        }
        drop(step);
        assert_eq!(turns.turn(), 0);
        assert_eq!(totals(&engine).0, before + done);
        assert_eq!(driver.stacks_in_use(), 0);
    }
    let counters = engine.counters();
    let cancelled: u64 = counters.iter().map(|one| one.cancelled).sum();
    assert_eq!(cancelled, 3 + 2 + 1);
}

#[test]
fn key_exchanges_of_one_thread_share_passes() {
    for engine in [four_lanes(Config::default()), engine()] {
        let identity = generate(Kind::Ecdsa);
        let config = server_config(provider(&engine), &identity);
        let client = checking_client_config(provider(&engine), &TLS13, &identity, None);
        on_event_loop(&engine, async |driver| {
            let pairs = [(); 64].map(|()| connect(&driver, &config, client.clone()));
            for pair in pairs {
                let facts = pair.complete().await;
                assert_eq!(facts.group, Some(NamedGroup::X25519MLKEM768));
            }
        });
        for (operation, sides) in of_a_handshake("p256-ecdsa") {
            let counters = counted(&engine, &operation);
            assert_eq!(counters.jobs, 64 * sides, "{operation}");
            if counters.lanes > 1 {
                let passes = counters.passes;
                assert!(2 * passes <= counters.jobs, "{operation}: {passes} passes");
            } else {
                eprintln!("SKIP: shared passes of {operation}; it has no lanes here");
            }
        }
    }
}

#[test]
fn bad_shares_of_clients_are_refused_beside_good_ones() {
    for engine in engines() {
        let identity = generate(Kind::Ecdsa);
        let config = server_config(with(provider(&engine), &kx_groups(&engine)), &identity);
        for theirs in their_groups() {
            let name = theirs.name();
            let good = client_of(common::theirs(), &[theirs], &identity);
            on_event_loop(&engine, async |driver| {
                let mut pairs = Vec::new();
                for share in bad_client_shares(theirs) {
                    pairs.push((true, fake_client(&driver, &config, &identity, name, share)));
                    pairs.push((false, connect(&driver, &config, good.clone())));
                }
                for (bad, pair) in pairs {
                    if bad {
                        let (server, client) = pair.ends().await;
                        assert_blamed(server.map(drop), client);
                    } else {
                        assert_eq!(pair.complete().await.group, Some(name));
                    }
                }
                assert_eq!(driver.stacks_in_use(), 0);
            });
        }
        let (jobs, passes) = totals(&engine);
        assert!(2 * passes < jobs, "{passes} passes for {jobs} jobs");
    }
}

#[test]
fn bad_shares_of_servers_are_refused_beside_good_ones() {
    for engine in engines() {
        let identity = generate(Kind::Ecdsa);
        for (ours, theirs) in kx_groups(&engine).into_iter().zip(their_groups()) {
            let name = ours.name();
            let client = client_of(provider(&engine), &[ours], &identity);
            let good = server_config(with(common::theirs(), &[theirs]), &identity);
            on_event_loop(&engine, async |driver| {
                let mut pairs = Vec::new();
                for share in bad_server_shares(theirs) {
                    let fake: &'static Fake = Box::leak(Box::new(Fake { name, share }));
                    let bad = server_config(with(common::theirs(), &[fake]), &identity);
                    pairs.push((true, connect(&driver, &bad, client.clone())));
                    pairs.push((false, connect(&driver, &good, client.clone())));
                }
                for (bad, pair) in pairs {
                    if bad {
                        let (server, client) = pair.ends().await;
                        assert_blamed(client, server.map(drop));
                    } else {
                        assert_eq!(pair.complete().await.group, Some(name));
                    }
                }
            });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a client sends, aws-lc-rs agrees on whether it is a share, and on its length.
    #[test]
    fn shares_are_judged_as_by_aws_lc(
        changes in vec((any::<Index>(), any::<u8>()), 0..3),
        length in option::of(0usize..2000),
    ) {
        static GROUPS: LazyLock<Vec<Vec<&dyn SupportedKxGroup>>> =
            LazyLock::new(|| engines().iter().map(kx_groups).collect());
        for (which, theirs) in their_groups().into_iter().enumerate() {
            let mut share = theirs.start().unwrap().pub_key().to_vec();
            share.resize(length.unwrap_or(share.len()), 0);
            for (place, value) in &changes {
                if !share.is_empty() {
                    let place = place.index(share.len());
                    share[place] = *value;
                }
            }
            // Which takes no other lengths.
            let splits = theirs.name() != NamedGroup::Unknown(0x11ed) || share.len() == 97 + 1568;
            let expected = match splits {
                true => theirs.start_and_complete(&share).map(|done| done.pub_key.len()),
                false => Err(INVALID),
            };
            for groups in GROUPS.iter() {
                let ours = groups[which];
                let found = ours.start_and_complete(&share).map(|done| done.pub_key.len());
                prop_assert_eq!(found, expected.clone(), "{:?}", ours);
            }
        }
    }
}

#[test]
fn a_ciphertext_for_another_key_ends_in_different_secrets() {
    let engine = engine();
    let identity = generate(Kind::Ecdsa);
    let ours = kx_groups(&engine)[6];
    assert_eq!(ours.name(), NamedGroup::MLKEM768);
    let share = vec![0x5a; 1088];
    let fake: &'static Fake = Box::leak(Box::new(Fake {
        name: ours.name(),
        share,
    }));
    let server = server_config(with(theirs(), &[fake]), &identity);
    let client = client_of(provider(&engine), &[ours], &identity);
    on_event_loop(&engine, async |driver| {
        let (_, client) = connect(&driver, &server, client).ends().await;
        // Implicit rejection: it looks like any other, and nothing can be deciphered.
        assert!(
            matches!(client, Err(HandshakeError::Tls(Error::DecryptError))),
            "{client:?}"
        );
    });
}

#[test]
fn a_full_engine_blames_nobody() {
    let engine = four_lanes(Config {
        queue_limit: 1,
        ..Config::default()
    });
    let identity = generate(Kind::Ecdsa);
    let config = server_config(provider(&engine), &identity);
    let client = checking_client_config(theirs(), &TLS13, &identity, None);
    on_event_loop(&engine, async |driver| {
        let pairs = [(); 4].map(|()| connect(&driver, &config, client.clone()));
        let mut refused = 0;
        for pair in pairs {
            match pair.ends().await {
                (Ok(_), Ok(())) => {}
                // No alert that calls the client's share illegal.
                (Err(HandshakeError::Overloaded), Err(HandshakeError::Closed)) => refused += 1,
                ends => panic!("{ends:?}"),
            }
        }
        assert!((1..4).contains(&refused), "{refused} refused");
    });
}

/// A server's connection that has read a ClientHello for X25519MLKEM768.
fn with_hello(engine: &Engine) -> Box<ServerConnection> {
    let identity = generate(Kind::Ecdsa);
    let config = server_config(provider(engine), &identity);
    let mut tls = Box::new(ServerConnection::new(config).unwrap());
    let mut hello = Vec::new();
    let hybrid = client_of(theirs(), &their_groups()[..1], &identity);
    client(&hybrid, "localhost").write_tls(&mut hello).unwrap();
    let mut hello = &hello[..];
    while !hello.is_empty() {
        tls.read_tls(&mut hello).unwrap();
    }
    tls
}

/// `sufferer` has refused its peer's share and said so.
#[track_caller]
fn assert_blamed(sufferer: Result<(), HandshakeError>, culprit: Result<(), HandshakeError>) {
    const ALERT: Error = Error::AlertReceived(AlertDescription::IllegalParameter);
    assert!(
        matches!(&sufferer, Err(HandshakeError::Tls(error)) if *error == INVALID),
        "{sufferer:?}"
    );
    assert!(
        matches!(&culprit, Err(HandshakeError::Tls(error)) if *error == ALERT),
        "{culprit:?}"
    );
}

fn with(crypto: CryptoProvider, groups: &[&'static dyn SupportedKxGroup]) -> CryptoProvider {
    CryptoProvider {
        kx_groups: groups.to_vec(),
        ..crypto
    }
}

fn client_of(crypto: CryptoProvider, groups: &[&'static dyn SupportedKxGroup], server: &Identity) -> Arc<ClientConfig> {
    checking_client_config(with(crypto, groups), &TLS13, server, None)
}

/// The groups of rustls with aws-lc-rs in the order of ours, and the one that it lacks.
fn their_groups() -> [&'static dyn SupportedKxGroup; 8] {
    use aws_lc_rs::kx_group::{MLKEM768, MLKEM1024, SECP256R1, SECP256R1MLKEM768, SECP384R1, X25519, X25519MLKEM768};
    [
        X25519MLKEM768,
        X25519,
        SECP256R1,
        SECP384R1,
        SECP256R1MLKEM768,
        &SecP384r1MlKem1024,
        MLKEM768,
        MLKEM1024,
    ]
}

/// Shares that a server must refuse.
fn bad_client_shares(group: &'static dyn SupportedKxGroup) -> Vec<Vec<u8>> {
    let good = group.start().unwrap().pub_key().to_vec();
    let kem_len = match group.name() {
        NamedGroup::X25519MLKEM768 | NamedGroup::secp256r1MLKEM768 | NamedGroup::MLKEM768 => 1184,
        NamedGroup::Unknown(_) | NamedGroup::MLKEM1024 => 1568,
        _ => 0,
    };
    let mut shares = bad_shares(group, &good, kem_len);
    if kem_len > 0 {
        // Coefficients that are not reduced.
        let kem = kem_part(group, good.len(), kem_len);
        let mut share = good;
        share[kem.start..kem.start + 384].fill(0xff);
        shares.push(share);
    }
    shares
}

/// Shares that a client must refuse.
fn bad_server_shares(group: &'static dyn SupportedKxGroup) -> Vec<Vec<u8>> {
    let client = group.start().unwrap().pub_key().to_vec();
    let good = group.start_and_complete(&client).unwrap().pub_key;
    let kem_len = match group.name() {
        NamedGroup::X25519MLKEM768 | NamedGroup::secp256r1MLKEM768 | NamedGroup::MLKEM768 => 1088,
        NamedGroup::Unknown(_) | NamedGroup::MLKEM1024 => 1568,
        _ => 0,
    };
    bad_shares(group, &good, kem_len)
}

/// Of wrong lengths, and with bad points on the curve, if it has one.
fn bad_shares(group: &dyn SupportedKxGroup, good: &[u8], kem_len: usize) -> Vec<Vec<u8>> {
    let mut shares = vec![vec![4], good[..good.len() - 1].to_vec(), [good, &[0]].concat()];
    let kem = kem_part(group, good.len(), kem_len);
    let curve = if kem.start == 0 {
        kem.end..good.len()
    } else {
        0..kem.start
    };
    let mut bad = |change: &dyn Fn(&mut [u8])| {
        let mut share = good.to_vec();
        change(&mut share[curve.clone()]);
        shares.push(share);
    };
    match curve.len() {
        0 => {}
        // X25519: the points of order 4 and 2, of order 1, and one of order 8 (RFC 7748, section
        // 7 asks to look for what they lead to: zero).
        32 => {
            bad(&|point| point.fill(0));
            bad(&|point| {
                point.fill(0);
                point[0] = 1;
            });
            bad(&|point| point.copy_from_slice(&ORDER_8));
        }
        // A point off the curve, a coordinate beyond the prime, other forms, infinity.
        len => {
            bad(&|point| point[len - 1] ^= 1);
            bad(&|point| point[1..].fill(0xff));
            bad(&|point| point[0] = 2);
            bad(&|point| point[0] = 6);
            bad(&|point| point.fill(0));
        }
    }
    shares
}

/// Range of a share that is its part of ML-KEM.
fn kem_part(group: &dyn SupportedKxGroup, len: usize, kem_len: usize) -> Range<usize> {
    match group.name() {
        NamedGroup::secp256r1MLKEM768 | NamedGroup::Unknown(_) => len - kem_len..len,
        NamedGroup::X25519MLKEM768 | NamedGroup::MLKEM768 | NamedGroup::MLKEM1024 => 0..kem_len,
        _ => len..len,
    }
}

/// A client that sends `share` for the group called `name`.
fn fake_client(
    driver: &Rc<Driver>,
    server: &Arc<ServerConfig>,
    identity: &Identity,
    name: NamedGroup,
    share: Vec<u8>,
) -> Pair {
    let fake: &'static Fake = Box::leak(Box::new(Fake { name, share }));
    connect(driver, server, client_of(theirs(), &[fake], identity))
}

/// Sends whatever it is told to.
#[derive(Debug)]
struct Fake {
    name: NamedGroup,
    share: Vec<u8>,
}

impl SupportedKxGroup for Fake {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(Fake {
            name: self.name,
            share: self.share.clone(),
        }))
    }

    fn start_and_complete(&self, _: &[u8]) -> Result<CompletedKeyExchange, Error> {
        Ok(CompletedKeyExchange {
            group: self.name,
            pub_key: self.share.clone(),
            secret: [7; 32][..].into(),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        self.name
    }
}

impl ActiveKeyExchange for Fake {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        Ok([7; 32][..].into())
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        self.name
    }
}

/// The hybrid that rustls lacks, put together from its parts as draft-ietf-tls-ecdhe-mlkem,
/// section 4, says.
#[derive(Debug)]
struct SecP384r1MlKem1024;

impl SupportedKxGroup for SecP384r1MlKem1024 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let curve = aws_lc_rs::kx_group::SECP384R1.start()?;
        let kem = aws_lc_rs::kx_group::MLKEM1024.start()?;
        let shares = [curve.pub_key(), kem.pub_key()].concat();
        Ok(Box::new(ActiveSecP384r1MlKem1024 { curve, kem, shares }))
    }

    fn start_and_complete(&self, share: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (curve, kem) = share.split_at(97);
        let curve = aws_lc_rs::kx_group::SECP384R1.start_and_complete(curve)?;
        let kem = aws_lc_rs::kx_group::MLKEM1024.start_and_complete(kem)?;
        let secret = [curve.secret.secret_bytes(), kem.secret.secret_bytes()].concat();
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [curve.pub_key, kem.pub_key].concat(),
            secret: secret.into(),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::Unknown(0x11ed)
    }
}

struct ActiveSecP384r1MlKem1024 {
    curve: Box<dyn ActiveKeyExchange>,
    kem: Box<dyn ActiveKeyExchange>,
    shares: Vec<u8>,
}

impl ActiveKeyExchange for ActiveSecP384r1MlKem1024 {
    fn complete(self: Box<Self>, share: &[u8]) -> Result<SharedSecret, Error> {
        let (curve, kem) = share.split_at(97);
        let (curve, kem) = (self.curve.complete(curve)?, self.kem.complete(kem)?);
        let secret = [curve.secret_bytes(), kem.secret_bytes()].concat();
        Ok(secret.into())
    }

    fn pub_key(&self) -> &[u8] {
        &self.shares
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::Unknown(0x11ed)
    }
}

const INVALID: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// A task that counts.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Woken {
    fn times(&self) -> usize {
        self.0.load(Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The u-coordinate of a point of order 8 on Curve25519, little endian:
/// 325606250916557431795983626356110631294008115727848805560023387167927233504.
const ORDER_8: [u8; 32] = [
    0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09, 0x8d,
    0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
];
