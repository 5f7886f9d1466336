//! Checks that a resumption repeats, with a clock that the tests set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams,
};
use rustls::client::{Resumption, Tls12Resumption};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, RootCertStore, ServerConnection, SupportedProtocolVersion,
};
use rustls_pki_types::{CertificateRevocationListDer, PrivateKeyDer};
use time::OffsetDateTime;

use super::*;
use crate::config::{Backend, Batching, Certificate, ClientAuth, Config, Environment, Listener};
use crate::crypto::Crypto;
use crate::handshaker::{Handshaker, ProcessFailure};
use crate::material::files::{Authorities, Files, Pair};
use crate::material::identity::Identity;

impl Keys {
    /// The key that encrypts.
    pub(crate) fn encrypting(&self) -> Option<Arc<TicketKey>> {
        self.generation.load().as_ref()?.keys.first().cloned()
    }
}

/// Time at which the tests begin, in seconds since 1970.
const START: u64 = 1_800_000_000;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[derive(Debug)]
struct Clock(AtomicU64);

impl Clock {
    fn at(&self, seconds: u64) {
        self.0.store(START + seconds, Ordering::Relaxed);
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = self.0.load(Ordering::Relaxed);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now)))
    }
}

/// A listener that wants client certificates, and the authority that makes them.
struct World {
    authority: CertifiedIssuer<'static, KeyPair>,
    server: (CertificateDer<'static>, KeyPair),
    clock: Arc<Clock>,
    keys: TicketKeys,
    listener: Listener,
    lists: Vec<CertificateRevocationListDer<'static>>,
    files: Vec<Arc<TicketKey>>,
}

impl World {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = "test authority";
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a.example".into()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let mut listener = Listener::new(vec![address], Backend::Tcp(address));
        listener.certificates = vec![Certificate::new("unused", "unused")];
        listener.client_auth = Some(ClientAuth::new(ClientAuthMode::Required, "unused"));
        Self {
            authority,
            server: (certificate.der().clone(), key),
            clock: Arc::new(Clock(AtomicU64::new(START))),
            keys: TicketKeys::default(),
            listener,
            lists: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Makes the configuration as a start or a reload does.
    fn config(&mut self) -> Arc<ServerConfig> {
        let key = PrivateKeyDer::try_from(self.server.1.serialize_der()).unwrap();
        let mut client_ca = Authorities::none();
        client_ca.roots.add(self.authority.der().clone()).unwrap();
        let files = Files {
            backend_tls: Vec::new(),
            certificates: vec![Pair {
                files: self.listener.certificates[0].clone(),
                identity: Identity::made(vec![self.server.0.clone()], key),
                ocsp: None,
                staple: None,
            }],
            client_ca,
            client_crl: self.lists.clone(),
            ticket_keys: self.files.clone(),
        };
        let alone = Batching {
            enabled: false,
            ..Batching::default()
        };
        let config = Config {
            batching: alone,
            ..Config::default()
        };
        let environment = Environment::default();
        let crypto = Crypto::start(&config, &environment, Default::default(), None).unwrap();
        let mut next = TicketKeys::default();
        let built = crate::material::tls::build(
            "listener[0]",
            &self.listener,
            files,
            &crypto,
            self.clock.clone(),
            &self.keys,
            &mut next,
        );
        next.succeed(std::mem::take(&mut self.keys));
        self.keys = next;
        built.unwrap()
    }

    /// A client whose certificate ends `seconds` after the start.
    fn client(&self, version: &'static SupportedProtocolVersion, name: &str, seconds: u64) -> ClientConfig {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(name.as_bytes().to_vec().into());
        params.not_after = moment(seconds);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap()
    }

    /// A list that revokes the certificate of `name`, due for an update `seconds` after the start.
    fn revoke(&mut self, name: &str, seconds: u64) {
        let revoked = RevokedCertParams {
            serial_number: name.as_bytes().to_vec().into(),
            revocation_time: moment(0),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: moment(0),
            next_update: moment(seconds),
            crl_number: vec![1].into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.authority).unwrap();
        self.lists = vec![list.der().clone()];
    }
}

fn moment(seconds: u64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(i64::try_from(START + seconds).unwrap()).unwrap()
}

/// A handshake in memory. The client takes the tickets.
fn shake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>) -> Result<HandshakeKind, rustls::Error> {
    let mut tls = Box::new(ServerConnection::new(server.clone()).unwrap());
    let name = "a.example".try_into().unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let mut handshake = Handshaker::default().handshake();
    while client.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            tls.read_tls(&mut bytes).unwrap();
            let result;
            (tls, result) = at_once(handshake.process(tls));
            match result {
                Ok(()) => {}
                Err(ProcessFailure::Tls(error)) => return Err(error),
                Err(other) => panic!("{other:?}"),
            }
        }
        let mut bytes = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    assert!(!tls.is_handshaking());
    assert_eq!(tls.peer_certificates().map(<[_]>::len), Some(1));
    Ok(tls.handshake_kind().unwrap())
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it waits"),
    }
}

const FULL: Result<HandshakeKind, rustls::Error> = Ok(HandshakeKind::Full);
const RESUMED: Result<HandshakeKind, rustls::Error> = Ok(HandshakeKind::Resumed);

/// Asserts that the full handshake that followed was refused, by this error.
#[track_caller]
fn assert_refused(result: Result<HandshakeKind, rustls::Error>, expected: impl Fn(&CertificateError) -> bool) {
    match result {
        Err(rustls::Error::InvalidCertificate(error)) => assert!(expected(&error), "{error:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certificate_that_has_expired_ends_its_session() {
    for version in VERSIONS {
        let mut world = World::new();
        let server = world.config();
        let client = Arc::new(world.client(version, "a client", 100));
        assert_eq!(shake(&server, &client), FULL);
        world.clock.at(60);
        assert_eq!(shake(&server, &client), RESUMED);
        world.clock.at(101);
        assert_refused(shake(&server, &client), |error| {
            matches!(error, CertificateError::ExpiredContext { .. })
        });
    }
}

#[test]
fn a_new_revocation_list_ends_the_sessions_that_it_names_and_no_others() {
    for version in VERSIONS {
        let mut world = World::new();
        world.revoke("an earlier client", 1000);
        let server = world.config();
        let good = Arc::new(world.client(version, "good", 1000));
        let bad = Arc::new(world.client(version, "bad", 1000));
        for client in [&good, &bad] {
            assert_eq!(shake(&server, client), FULL);
            assert_eq!(shake(&server, client), RESUMED);
        }
        world.revoke("bad", 1000);
        let server = world.config();
        assert_eq!(shake(&server, &good), RESUMED);
        assert_refused(shake(&server, &bad), |error| *error == CertificateError::Revoked);
    }
}

#[test]
fn a_revocation_list_past_its_date_ends_all_sessions() {
    for version in VERSIONS {
        let mut world = World::new();
        world.revoke("an earlier client", 100);
        let server = world.config();
        let client = Arc::new(world.client(version, "a client", 1000));
        assert_eq!(shake(&server, &client), FULL);
        world.clock.at(99);
        assert_eq!(shake(&server, &client), RESUMED);
        world.clock.at(101);
        assert_refused(shake(&server, &client), |error| {
            matches!(error, CertificateError::ExpiredRevocationListContext { .. })
        });
    }
}

#[test]
fn renewed_tickets_do_not_prolong_a_session() {
    for version in VERSIONS {
        let mut world = World::new();
        world.listener.tickets.session = Duration::from_secs(100);
        let server = world.config();
        let client = Arc::new(world.client(version, "a client", 1000));
        // Each handshake gives the client a new ticket, which it uses the next time.
        for (seconds, expected) in [
            (0, FULL),
            (40, RESUMED),
            (80, RESUMED),
            (99, RESUMED),
            (100, FULL),
            (180, RESUMED),
            (199, RESUMED),
            (200, FULL),
        ] {
            world.clock.at(seconds);
            let kind = shake(&server, &client);
            assert_eq!(kind, expected, "{version:?} after {seconds} s");
        }
        // A clock that was set back does not prolong it either.
        world.clock.at(150);
        assert_eq!(shake(&server, &client), FULL);
    }
}

#[test]
fn there_are_no_sessions_beside_the_tickets() {
    let mut world = World::new();
    let server = world.config();
    let mut client = world.client(&rustls::version::TLS12, "a client", 1000);
    client.resumption = Resumption::in_memory_sessions(8).tls12_resumption(Tls12Resumption::SessionIdOnly);
    let client = Arc::new(client);
    assert_eq!(shake(&server, &client), FULL);
    assert_eq!(shake(&server, &client), FULL);
}

#[test]
fn a_ticket_that_is_not_used_in_the_end_leaves_no_trace() {
    let mut session = Session::default();
    session.known().resumed = Some(Origin {
        began: START,
        chain: Vec::new(),
    });
    session.known().shown = vec![CertificateDer::from(vec![1])];
    assert_eq!(session.origin(START + 5), (START, &[][..]));
    session.settle(None);
    session.settle(Some(HandshakeKind::Resumed));
    assert_eq!(session.origin(START + 5), (START, &[][..]));
    session.settle(Some(HandshakeKind::Full));
    let shown = [CertificateDer::from(vec![1])];
    assert_eq!(session.origin(START + 5), (START + 5, &shown[..]));
}

#[test]
fn a_ticket_lives_no_longer_than_its_session() {
    let clock = Arc::new(Clock(AtomicU64::new(START)));
    let tickets = Tickets {
        keys: Arc::new(Keys::new(None, Duration::from_secs(40), Instant::now()).unwrap()),
        verifier: None,
        clock: clock.clone(),
        longest: Duration::from_secs(100),
    };
    let mut session = Session::default();
    let ticket = session.enter(|| tickets.encrypt(b"a session")).unwrap();
    assert_eq!(session.enter(|| tickets.lifetime()), 80);
    clock.at(70);
    let plain = session.enter(|| tickets.decrypt(&ticket));
    assert_eq!(plain.as_deref(), Some(&b"a session"[..]));
    assert_eq!(session.enter(|| tickets.lifetime()), 30);
    // Without a connection there is no session to make or to take.
    assert_eq!(tickets.encrypt(b"a session"), None);
    assert_eq!(tickets.decrypt(&ticket), None);
}

#[test]
fn one_connection_has_few_chains_verified() {
    let mut world = World::new();
    let server = world.config();
    let client = world.client(&rustls::version::TLS13, "a client", 1000);
    let chain = client
        .client_auth_cert_resolver
        .resolve(&[], &[SignatureScheme::ECDSA_NISTP256_SHA256])
        .unwrap();
    let mut session = Session::default();
    session.known().shown = chain.cert.clone();
    let plain = [&b"before"[..], &chain.cert[0], b"behind"].concat();
    let ticket = session.enter(|| server.ticketer.encrypt(&plain)).unwrap();
    let mut session = Session::default();
    for attempt in 1..=MOST_VERIFIED + 2 {
        let decrypted = session.enter(|| server.ticketer.decrypt(&ticket));
        assert_eq!(decrypted.is_some(), attempt <= MOST_VERIFIED, "{attempt}");
    }
}

#[test]
fn what_a_ticket_keeps_is_read_back_and_damage_is_refused() {
    let chain = [vec![1, 2, 3], vec![2, 3], vec![9; 300]].map(CertificateDer::from);
    let plain = [&[0, 1, 2][..], &chain[0], &[0], &chain[1], &chain[2], &[7]].concat();
    let kept = Kept::encode(START, &chain, &plain).unwrap();
    let read = Kept::decode(&kept).unwrap();
    assert_eq!((read.began, read.plain), (START, &plain[..]));
    assert_eq!(read.chain, chain);
    // Without its last byte it still has all certificates.
    for length in 0..kept.len() - 1 {
        assert!(Kept::decode(&kept[..length]).is_none(), "{length}");
    }
    for place in 9..9 + 8 * chain.len() {
        let mut damaged = kept.to_vec();
        damaged[place] ^= 0x80;
        if let Some(read) = Kept::decode(&damaged) {
            assert_ne!(read.chain, chain, "{place}");
        }
    }
    let elsewhere = [CertificateDer::from(vec![5; 4])];
    assert!(Kept::encode(START, &elsewhere, &plain).is_none());
    assert!(Kept::encode(START, &[CertificateDer::from(vec![])], &plain).is_none());
    assert!(Kept::encode(START, &[], &[0; LONGEST_PLAINTEXT]).is_none());
}

#[test]
fn keys_end_with_time_and_not_with_use() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let keys = Keys::new(None, Duration::from_secs(100), start).unwrap();
    let ticket = keys.encrypt(b"plain", after(99)).unwrap();
    assert!(keys.decrypt(&ticket, after(100)).is_some(), "its second half");
    assert!(keys.decrypt(&ticket, after(199)).is_some(), "its second half");
    assert!(keys.decrypt(&ticket, after(200)).is_none(), "over");

    // No client uses them in between.
    let ticket = keys.encrypt(b"plain", after(290)).unwrap();
    assert!(keys.decrypt(&ticket, after(1000)).is_none(), "long over");
    let ticket = keys.encrypt(b"plain", after(1001)).unwrap();
    assert!(keys.decrypt(&ticket, after(1100)).is_some());
}

#[test]
fn retired_keys_neither_make_nor_take_tickets() {
    let scope = TicketScope {
        listener: "a".into(),
        client_auth: None,
        rotation: Some(Duration::from_secs(100)),
    };
    let other = TicketScope {
        listener: "b".into(),
        ..scope.clone()
    };
    let mut before = TicketKeys::default();
    let nothing = TicketKeys::default();
    let stays = before.get(scope.clone(), &[], &nothing).unwrap();
    let goes = before.get(other, &[], &nothing).unwrap();
    let mut after = TicketKeys::default();
    assert!(Arc::ptr_eq(&after.get(scope, &[], &before).unwrap(), &stays));
    after.succeed(before);
    let now = Instant::now();
    assert!(stays.encrypt(b"plain", now).is_some());
    assert!(goes.encrypt(b"plain", now).is_none());
    assert!(goes.roll(now).is_none());
}

#[test]
fn unused_keys_are_erased_in_time() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let keys = Arc::new(Keys::new(None, Duration::from_millis(20), Instant::now()).unwrap());
    let first = Arc::downgrade(&keys.generation.load_full().unwrap().keys[0]);
    let sender = watch::Sender::new(Vec::new());
    let receiver = sender.subscribe();
    runtime.block_on(async {
        let rolling = tokio::spawn(roll_in_time(receiver));
        // As a reload does.
        tokio::task::yield_now().await;
        sender.send_replace(vec![keys.clone()]);
        let erased = async {
            while first.strong_count() > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // Longer than a busy machine takes.
        let patience = Duration::from_secs(60);
        tokio::time::timeout(patience, erased).await.unwrap();
        drop(sender);
        rolling.await.unwrap();
    });
}

/// Two machines with the same key files and clock.
fn machines(files: &[Arc<TicketKey>]) -> [World; 2] {
    let one = World::new();
    let mut other = World::new();
    other.clock = one.clock.clone();
    other.server = (one.server.0.clone(), clone_of(&one.server.1));
    let params = one.authority.key().serialize_der();
    let key = KeyPair::try_from(params.as_slice()).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let name = "test authority";
    params.distinguished_name.push(DnType::CommonName, name);
    other.authority = CertifiedIssuer::self_signed(params, key).unwrap();
    [one, other].map(|mut world| {
        world.files = files.to_vec();
        world
    })
}

fn clone_of(key: &KeyPair) -> KeyPair {
    KeyPair::try_from(key.serialize_der().as_slice()).unwrap()
}

fn ticket_keys<const N: usize>() -> [Arc<TicketKey>; N] {
    [(); N].map(|()| TicketKey::generate().unwrap())
}

#[test]
fn machines_with_the_same_key_files_resume_each_others_sessions_within_their_bounds() {
    for version in VERSIONS {
        let [mut one, mut other] = machines(&ticket_keys::<2>());
        for world in [&mut one, &mut other] {
            world.listener.tickets.session = Duration::from_secs(1000);
        }
        let client = Arc::new(one.client(version, "a client", 5000));
        assert_eq!(shake(&one.config(), &client), FULL);
        assert_eq!(shake(&other.config(), &client), RESUMED);
        // That has renewed the ticket, but not the session.
        one.clock.at(999);
        assert_eq!(shake(&one.config(), &client), RESUMED);
        one.clock.at(1000);
        assert_eq!(shake(&other.config(), &client), FULL);
    }
}

#[test]
fn another_rule_for_client_certificates_is_another_session() {
    for version in VERSIONS {
        let [mut one, mut other] = machines(&ticket_keys::<1>());
        other.listener.client_auth = Some(ClientAuth::new(ClientAuthMode::Optional, "unused"));
        let client = Arc::new(one.client(version, "a client", 1000));
        assert_eq!(shake(&one.config(), &client), FULL);
        assert_eq!(shake(&other.config(), &client), FULL);
        assert_eq!(shake(&other.config(), &client), RESUMED);
        assert_eq!(shake(&one.config(), &client), FULL);
    }
}

#[test]
fn clocks_of_machines_may_differ_a_little() {
    for version in VERSIONS {
        let [mut one, mut other] = machines(&ticket_keys::<1>());
        let client = Arc::new(one.client(version, "a client", 5000));
        one.clock.at(CLOCK_SKEW.as_secs());
        assert_eq!(shake(&one.config(), &client), FULL);
        one.clock.at(0);
        assert_eq!(shake(&other.config(), &client), RESUMED);
        let client = Arc::new(one.client(version, "a client", 5000));
        one.clock.at(CLOCK_SKEW.as_secs() + 1);
        assert_eq!(shake(&one.config(), &client), FULL);
        one.clock.at(0);
        assert_eq!(shake(&other.config(), &client), FULL);
    }
}

#[test]
fn rotated_files_keep_sessions_and_erase_the_oldest_key() {
    for version in VERSIONS {
        let keys = ticket_keys::<4>();
        let [mut world, _] = machines(&keys[..2]);
        let first = world.config();
        let client = Arc::new(world.client(version, "a client", 1000));
        assert_eq!(shake(&first, &client), FULL);
        let [first_key, current, next, last] = keys;
        let oldest = Arc::downgrade(&first_key);
        drop(first_key);
        world.files = vec![current.clone(), next.clone(), world.files[0].clone()];
        let second = world.config();
        // Handshakes under way have the configuration from before, and the new keys.
        assert_eq!(shake(&first, &client), RESUMED);
        assert_eq!(shake(&second, &client), RESUMED);
        world.files = vec![next, last, current];
        world.config();
        assert_eq!(oldest.strong_count(), 0, "the key is erased");
        assert_eq!(shake(&second, &client), RESUMED, "its ticket was renewed");
    }
}

#[test]
fn files_of_a_configuration_that_is_not_taken_change_nothing() {
    let scope = TicketScope {
        listener: "a".into(),
        client_auth: None,
        rotation: None,
    };
    let [old, new] = ticket_keys();
    let mut before = TicketKeys::default();
    let files = [old.clone()];
    let keys = before.get(scope.clone(), &files, &TicketKeys::default());
    let keys = keys.unwrap();
    let ticket = keys.encrypt(b"plain", Instant::now()).unwrap();
    let mut after = TicketKeys::default();
    after.get(scope, &[new], &before).unwrap();
    drop(after);
    assert!(keys.decrypt(&ticket, Instant::now()).is_some());
    assert!(keys.roll(Instant::now()).is_none(), "files have their own time");
}

#[test]
fn the_reason_of_a_refusal_is_known_unless_another_ticket_was_good() {
    let clock = Arc::new(Clock(AtomicU64::new(START)));
    let [key] = ticket_keys();
    let tickets = Tickets {
        keys: Arc::new(Keys::with(None, None, Instant::now(), vec![key])),
        verifier: None,
        clock: clock.clone(),
        longest: Duration::from_secs(1000),
    };
    let mut session = Session::default();
    let ticket = session.enter(|| tickets.encrypt(b"a session")).unwrap();
    let refused = |now: u64, offered: &[&[u8]]| {
        clock.at(now);
        let mut session = Session::default();
        for ticket in offered {
            session.enter(|| tickets.decrypt(ticket));
        }
        session.refused_ticket()
    };
    let foreign = vec![7; 200];
    let endless = [&ticket[..], &[0; 64 * 1024]].concat();
    assert_eq!(refused(0, &[]), None);
    assert_eq!(refused(0, &[&ticket]), None);
    assert_eq!(refused(0, &[&foreign, &ticket]), None);
    assert_eq!(refused(0, &[&foreign]), Some(TicketRefusal::Key));
    assert_eq!(refused(0, &[&endless]), Some(TicketRefusal::Key));
    assert_eq!(refused(1000, &[&ticket]), Some(TicketRefusal::Age));
}
