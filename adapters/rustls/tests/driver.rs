//! Many handshakes on one thread: they share passes, and none harms another.

mod common;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use common::*;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert, ServerConnection};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig, SignatureAlgorithm, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::{spawn_local, yield_now};
use widelane_engine::{Config, Cpus, Engine, Operation, Operations, Placement, Request};
use widelane_rustls::{Driver, HandshakeError, kx_groups, provider};

#[test]
fn handshakes_of_one_thread_share_passes() {
    let identity = rsa(RSA_2048);
    for count in [8, 64] {
        for engine in [four_lanes(Config::default()), engine()] {
            let config = server_config(only_signing(&engine), &identity);
            on_event_loop(&engine, async |driver| {
                let connect = |_| connect(&driver, &config, client_config(&TLS13));
                let pairs: Vec<_> = (0..count).map(connect).collect();
                for pair in pairs {
                    pair.complete().await;
                }
                assert_eq!(driver.stacks_in_use(), 0);
            });
            let (jobs, passes) = totals(&engine);
            assert_eq!(jobs, count);
            let lanes = engine.counters().iter().map(|one| one.lanes).max().unwrap();
            if lanes > 1 {
                assert!(passes <= jobs / 2, "{passes} passes for {jobs} jobs");
            } else {
                eprintln!("SKIP: shared passes of the real engine; this CPU has one lane");
            }
        }
    }
}

#[test]
fn a_lone_handshake_waits_for_nobody() {
    for engine in engines() {
        let config = rsa_server(&engine, RSA_2048);
        on_event_loop(&engine, async |driver| {
            yield_now().await;
            let mut io = pin!(served(&driver, &config));
            let mut cx = Context::from_waker(Waker::noop());
            // The very poll that brings the hello brings the answer, through every operation.
            assert!(io.as_mut().poll(&mut cx).is_pending(), "it waits for the client");
            assert_eq!(driver.stacks_in_use(), 0);
        });
        let (jobs, at_once) = at_once(&engine);
        assert_eq!((jobs, at_once), (3, 3), "two of the exchange, and a signature");
    }
}

#[test]
fn connections_past_their_first_flight_are_no_company() {
    let engine = four_lanes(Config::default());
    let config = rsa_server(&engine, RSA_2048);
    on_event_loop(&engine, async |driver| {
        yield_now().await;
        // Some have answered and wait for the client, some are established.
        let mut cx = Context::from_waker(Waker::noop());
        let mut answered: Vec<_> = (0..3).map(|_| Box::pin(served(&driver, &config))).collect();
        for served in &mut answered {
            assert!(served.as_mut().poll(&mut cx).is_pending());
        }
        let (near, far) = duplex(64 * 1024);
        let name = "localhost".try_into().unwrap();
        let client = spawn_local({
            let (driver, client) = (driver.clone(), client_config(&TLS13));
            async move { driver.connect(client, name, near).await.unwrap() }
        });
        let _established = (driver.accept(config.clone(), far).await.unwrap(), client.await.unwrap());
        let (jobs, before) = at_once(&engine);
        let mut last = pin!(served(&driver, &config));
        assert!(last.as_mut().poll(&mut cx).is_pending());
        let (all_jobs, after) = at_once(&engine);
        assert_eq!((all_jobs - jobs, after - before), (3, 3));
    });
}

#[test]
fn handshakes_that_are_under_way_together_wait_for_each_other() {
    let engine = four_lanes(Config::default());
    let config = rsa_server(&engine, RSA_2048);
    on_event_loop(&engine, async |driver| {
        yield_now().await;
        // Both are announced before either begins.
        let both = [driver.handshake(), driver.handshake()].map(|mut handshake| {
            let tls = greeted(&config);
            spawn_local(async move { handshake.process(tls).await.1.unwrap() })
        });
        for one in both {
            one.await.unwrap();
        }
    });
    assert_eq!(at_once(&engine), (6, 0));
    for operation in ["x25519-keygen", "x25519-derive", "rsa2048-sign"] {
        assert_eq!(counted(&engine, operation).fills, [0, 0, 1, 0, 0], "{operation}");
    }
}

#[test]
fn a_handshake_is_alone_again_when_the_other_has_vanished() {
    let engine = four_lanes(Config::default());
    let config = rsa_server(&engine, RSA_2048);
    let driver = Driver::new(&engine);
    let turns = driver.turns();
    let mut cx = Context::from_waker(Waker::noop());
    let silent = driver.handshake();
    let mut abandoned = driver.handshake();
    let mut step = Box::pin(abandoned.process(greeted(&config)));
    assert!(step.as_mut().poll(&mut cx).is_pending(), "another job may join");
    drop(step);
    drop(abandoned);
    let mut staying = driver.handshake();
    let mut step = Box::pin(staying.process(greeted(&config)));
    assert!(step.as_mut().poll(&mut cx).is_pending(), "another job may join");
    drop(silent);
    // What waits is left to the next turns; no other job can join the signature.
    assert_eq!((turns.turn(), turns.turn()), (1, 1));
    assert!(step.as_mut().poll(&mut cx).is_ready());
    assert_eq!(turns.turn(), 0);
    assert_eq!(at_once(&engine), (3, 1));
    let cancelled = engine.counters().iter().map(|one| one.cancelled).sum::<u64>();
    assert_eq!(cancelled, 2);
}

#[test]
fn a_job_that_panics_at_once_fails_its_handshake_only() {
    let engine = Engine::start_with(Config::default(), Operations::new().with(Mine)).unwrap();
    let config = signing_server(&engine, RSA_2048);
    on_event_loop(&engine, async |driver| {
        yield_now().await;
        let mut handshake = driver.handshake();
        let (_, result) = handshake.process(greeted(&config)).await;
        let error = result.unwrap_err();
        assert!(error.to_string().contains("mine"), "{error}");
        assert_eq!(driver.stacks_in_use(), 0);
    });
    let counters = counted(&engine, "mine");
    assert_eq!((counters.at_once, counters.panicked, counters.jobs), (1, 1, 0));
}

#[test]
fn beside_another_handshake_jobs_wait_for_one_look_at_the_sockets() {
    let engine = four_lanes(Config::default());
    let config = signing_server(&engine, RSA_2048);
    on_event_loop(&engine, async |driver| {
        yield_now().await;
        let looks = Rc::new(Cell::new(0));
        let counting = spawn_local({
            let looks = looks.clone();
            async move {
                loop {
                    // Comes back whenever the sockets have been looked at.
                    yield_now().await;
                    looks.set(looks.get() + 1);
                }
            }
        });
        let other = driver.handshake();
        let pair = suspended(&driver, &config).await;
        assert_eq!(totals(&engine).0, 0, "it waits for others to join");
        let before = looks.get();
        while driver.stacks_in_use() > 0 {
            once_more().await;
        }
        assert!(looks.get() - before <= 1, "{} looks", looks.get() - before);
        assert_eq!(at_once(&engine), (1, 0));
        drop(other);
        pair.complete().await;
        counting.abort();
    });
}

#[test]
fn every_size_version_and_encoding_handshakes() {
    let engine = engine();
    for pem in [RSA_2048, RSA_2176, RSA_3072, RSA_4096] {
        let identity = rsa(pem);
        for key in [identity.key.clone_key(), pkcs1(&identity.key)] {
            let config = server_config_with(only_signing(&engine), &identity, key);
            for version in [&TLS12, &TLS13] {
                on_event_loop(&engine, async |driver| {
                    let pair = connect(&driver, &config, client_config(version));
                    assert_eq!(pair.complete().await.version, version.version);
                });
            }
        }
    }
    let (jobs, _) = totals(&engine);
    assert_eq!(jobs, 4 * 2 * 2);
}

#[test]
fn handshakes_end_without_a_flusher() {
    let engine = four_lanes(Config::default());
    let config = signing_server(&engine, RSA_2048);
    without_flusher(&engine, async |driver| {
        connect(&driver, &config, client_config(&TLS13)).complete().await;
    });
}

#[test]
fn the_end_of_the_flusher_leaves_nobody_waiting() {
    let engine = four_lanes(Config::default());
    let config = signing_server(&engine, RSA_2048);
    without_flusher(&engine, async |driver| {
        let flusher = spawn_local(driver.clone().flusher());
        yield_now().await;
        let _other = driver.handshake();
        let pair = suspended(&driver, &config).await;
        flusher.abort();
        pair.complete().await;
    });
}

#[test]
fn vector_cores_serve_the_driver_too() {
    let config = Config {
        placement: Placement::VectorCores(Cpus::from_iter([an_allowed_cpu()])),
        ..Config::default()
    };
    let engine = four_lanes(config);
    let config = rsa_server(&engine, RSA_2048);
    on_event_loop(&engine, async |driver| {
        let pairs = [(); 16].map(|()| connect(&driver, &config, client_config(&TLS13)));
        let mut vanished = Vec::new();
        for (number, pair) in pairs.into_iter().enumerate() {
            if number % 4 == 0 {
                // Vanishes while its job is on another thread, or before or after.
                pair.server.abort();
                vanished.push(pair.server);
            } else {
                pair.complete().await;
            }
        }
        for server in vanished {
            // The event loop drops an aborted task when its turn comes. One may have ended before.
            let _ = server.await;
        }
        assert_eq!(driver.stacks_in_use(), 0);
    });
    engine.shutdown();
    // Those that vanished may have done so before their signature.
    let sign = counted(&engine, "rsa2048-sign");
    let ended = sign.jobs + sign.cancelled;
    assert!((12..=16).contains(&ended), "{ended} jobs");
}

#[test]
fn a_resumed_handshake_signs_nothing() {
    let engine = engine();
    let config = signing_server(&engine, RSA_2048);
    for version in [&TLS12, &TLS13] {
        let client = client_config(version);
        let before = totals(&engine).0;
        on_event_loop(&engine, async |driver| {
            let first = connect(&driver, &config, client.clone()).complete().await;
            assert_eq!(first.kind, HandshakeKind::Full);
            let second = connect(&driver, &config, client.clone()).complete().await;
            assert_eq!(second.kind, HandshakeKind::Resumed);
        });
        assert_eq!(totals(&engine).0, before + 1);
    }
}

#[test]
fn an_event_loop_of_ones_own_turns_by_hand() {
    let engine = four_lanes(Config::default());
    let config = signing_server(&engine, RSA_2048);
    let driver = Driver::new(&engine);
    let turns = driver.turns();
    let (mut handshake, _other) = (driver.handshake(), driver.handshake());
    let mut step = Box::pin(handshake.process(greeted(&config)));
    let mut cx = Context::from_waker(Waker::noop());
    let mut jobs = 0;
    let (tls, result) = loop {
        if let Poll::Ready(ended) = step.as_mut().poll(&mut cx) {
            break ended;
        }
        // No other caller runs it.
        assert!(step.as_mut().poll(&mut cx).is_pending());
        jobs += turns.turn();
    };
    assert!(result.is_ok() && tls.wants_write());
    assert_eq!(jobs as u64, totals(&engine).0);
    assert_eq!(turns.turn(), 0);
}

#[test]
fn a_vanished_connection_leaves_nothing_behind() {
    let engine = four_lanes(Config::default());
    let config = signing_server(&engine, RSA_2048);
    without_flusher(&engine, async |driver| {
        let flusher = spawn_local(driver.clone().flusher());
        yield_now().await;
        // Before its first byte.
        let (_io, server) = duplex(64 * 1024);
        poll_once(driver.accept(config.clone(), server)).await;
        assert_eq!(driver.stacks_in_use(), 0);

        // In the middle of its ClientHello.
        let (mut io, server) = duplex(64 * 1024);
        let hello = client_hello();
        io.write_all(&hello[..hello.len() / 2]).await.unwrap();
        poll_once(driver.accept(config.clone(), server)).await;
        assert_eq!(driver.stacks_in_use(), 0);

        // While its signature is waited for.
        for _ in 0..3 {
            let _other = driver.handshake();
            let (mut io, server) = duplex(64 * 1024);
            io.write_all(&hello).await.unwrap();
            {
                let mut accept = pin!(driver.accept(config.clone(), server));
                assert!(poll_fn(|cx| Poll::Ready(accept.as_mut().poll(cx).is_pending())).await);
                assert_eq!(driver.stacks_in_use(), 1);
            }
            assert_eq!(driver.stacks_in_use(), 0);
            assert_eq!(driver.stacks_pooled(), 1);
        }

        // After its signature, before the client's answer.
        let (mut io, server) = duplex(64 * 1024);
        io.write_all(&hello).await.unwrap();
        let task = spawn_local({
            let (driver, config) = (driver.clone(), config.clone());
            async move { driver.accept(config, server).await.map(drop) }
        });
        assert!(io.read(&mut [0; 4096]).await.unwrap() > 0);
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(driver.stacks_in_use(), 0);

        // When the peer closes.
        let (mut io, server) = duplex(64 * 1024);
        io.write_all(&hello).await.unwrap();
        drop(io);
        let closed = driver.accept(config.clone(), server).await.unwrap_err();
        assert!(
            matches!(closed, HandshakeError::Closed | HandshakeError::Io(_)),
            "{closed:?}"
        );

        // The others go on.
        connect(&driver, &config, client_config(&TLS13)).complete().await;
        assert_eq!(driver.stacks_in_use(), 0);
        flusher.abort();
    });
    let counters = engine.counters();
    assert_eq!(counters.iter().map(|counters| counters.cancelled).sum::<u64>(), 3);
}

#[test]
fn neighbours_of_vanishing_connections_complete() {
    let engine = four_lanes(Config::default());
    let config = rsa_server(&engine, RSA_2048);
    on_event_loop(&engine, async |driver| {
        let (mut staying, mut vanishing) = (Vec::new(), Vec::new());
        for number in 0..150_usize {
            let pair = connect(&driver, &config, client_config([&TLS12, &TLS13][number % 2]));
            if number % 3 > 0 {
                staying.push(pair);
            } else {
                // Lives for a varying number of steps, so that it goes at any stage.
                vanishing.push(spawn_local(async move {
                    for _ in 0..number % 29 {
                        once_more().await;
                    }
                    pair.client.abort();
                    pair.server.abort();
                    let _ = pair.server.await;
                }));
            }
            if number % 5 == 0 {
                once_more().await;
            }
        }
        for pair in staying {
            pair.complete().await;
        }
        for vanished in vanishing {
            vanished.await.unwrap();
        }
        assert_eq!(driver.stacks_in_use(), 0);
    });
    let sign = counted(&engine, "rsa2048-sign");
    let ended = sign.jobs + sign.cancelled;
    assert!((100..=150).contains(&ended), "{ended} signatures");
    let cancelled: u64 = engine.counters().iter().map(|one| one.cancelled).sum();
    assert!(cancelled > 0, "some went while their jobs waited");
}

#[test]
fn an_overloaded_engine_fails_the_handshake_and_says_so() {
    let engine = four_lanes(Config {
        queue_limit: 2,
        ..Config::default()
    });
    let config = signing_server(&engine, RSA_4096);
    on_event_loop(&engine, async |driver| {
        let pairs: Vec<_> = (0..8)
            .map(|_| connect(&driver, &config, client_config(&TLS13)))
            .collect();
        let (mut served, mut refused) = (0, 0);
        for pair in pairs {
            match pair.server.await.unwrap() {
                Ok(_) => served += 1,
                Err(HandshakeError::Overloaded) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(served + refused, 8);
        assert!(served >= 2, "{served} served");
        assert_eq!(refused, engine.counters().iter().map(|one| one.rejected).sum::<u64>());
        assert_eq!(driver.stacks_in_use(), 0);
    });
}

#[test]
fn an_engine_that_is_shut_down_fails_handshakes_and_says_so() {
    let engine = engine();
    let config = signing_server(&engine, RSA_2048);
    engine.shutdown();
    on_event_loop(&engine, async |driver| {
        let error = connect(&driver, &config, client_config(&TLS13)).server.await.unwrap();
        assert!(matches!(error, Err(HandshakeError::ShutDown)), "{error:?}");
    });
}

#[test]
fn a_panic_kills_its_connection_only() {
    let engine = four_lanes(Config::default());
    let identity = rsa(RSA_2048);
    let crypto = only_signing(&engine);
    let key = CertifiedKey::from_der(identity.chain.clone(), identity.key.clone_key(), &crypto);
    let resolver = Arc::new(Trap {
        key: key.unwrap(),
        after_signing: AtomicBool::new(false),
    });
    let config = ServerConfig::builder_with_provider(crypto.into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(resolver.clone());
    let config = Arc::new(config);
    on_event_loop(&engine, async |driver| {
        for after_signing in [false, true] {
            resolver.after_signing.store(after_signing, Ordering::Relaxed);
            let name = "boom.test";
            let before = connect(&driver, &config, client_config(&TLS13));
            let dead = connect_to(&driver, &config, client_config(&TLS13), name);
            let after = connect(&driver, &config, client_config(&TLS13));
            assert!(dead.server.await.unwrap_err().is_panic());
            before.complete().await;
            after.complete().await;
            assert_eq!(driver.stacks_in_use(), 0);
        }
    });
}

#[test]
fn the_stack_is_several_times_what_a_handshake_needs() {
    let engine = engine();
    on_event_loop(&engine, async |driver| {
        // Every key exchange and every signature in turn, with certificates on both sides.
        for (_, identity) in each() {
            let config = mutual_server_config(
                CryptoProvider {
                    kx_groups: kx_groups(&engine),
                    ..provider(&engine)
                },
                &identity,
                &identity,
            );
            for group in kx_groups(&engine) {
                let crypto = CryptoProvider {
                    kx_groups: vec![group],
                    ..provider(&engine)
                };
                let client = checking_client_config(crypto, &TLS13, &identity, Some(&identity));
                // Three at once: three stacks, at most one of which is next to other memory.
                let pairs = [(); 3].map(|()| connect(&driver, &config, client.clone()));
                for pair in pairs {
                    assert_eq!(pair.complete().await.client_certificates, 1);
                }
            }
        }
        let touched = touched_stack_kib();
        let lanes = engine.counters().iter().map(|one| one.lanes).max().unwrap();
        if touched == 0 && lanes == 1 {
            // Without lanes no handshake waits, so that there is one stack, and the kernel may show it
            // as one area with other memory.
            return eprintln!("SKIP: the depth of stacks; the only one is next to other memory");
        }
        eprintln!("handshakes touched {touched} of 256 KiB of stack");
        assert!((4..=64).contains(&touched), "{touched} KiB");
    });
}

/// A pair whose server waits for its signature.
async fn suspended(driver: &Rc<Driver>, server: &Arc<ServerConfig>) -> Pair {
    let pair = connect(driver, server, client_config(&TLS13));
    let turns = Cell::new(0);
    while driver.stacks_in_use() == 0 {
        assert!(turns.replace(turns.get() + 1) < 100, "the server never suspended");
        once_more().await;
    }
    pair
}

/// Serves a client that says hello and no more.
async fn served(driver: &Rc<Driver>, config: &Arc<ServerConfig>) {
    let (mut io, server) = duplex(64 * 1024);
    io.write_all(&client_hello()).await.unwrap();
    let accepted = driver.accept(config.clone(), server).await;
    drop((accepted, io));
}

/// A server's connection that has read a hello.
fn greeted(config: &Arc<ServerConfig>) -> Box<ServerConnection> {
    let mut hello = &client_hello()[..];
    let mut tls = Box::new(ServerConnection::new(config.clone()).unwrap());
    while !hello.is_empty() {
        tls.read_tls(&mut hello).unwrap();
    }
    tls
}

/// Jobs of all operations, and how many of them ran at once.
fn at_once(engine: &Engine) -> (u64, u64) {
    let at_once = engine.counters().iter().map(|one| one.at_once).sum();
    (totals(engine).0, at_once)
}

/// An operation that panics.
struct Mine;

impl Operation for Mine {
    type Request = widelane_crypto::sign::Request;

    fn name(&self) -> &'static str {
        "mine"
    }

    fn lanes(&self) -> usize {
        4
    }

    fn pass(&self, _: &[Self::Request]) -> Vec<<Self::Request as Request>::Output> {
        panic!("stepped on");
    }

    fn specimen(&self) -> Self::Request {
        unreachable!("this operation is not measured")
    }
}

/// Lets every ready task run once, without a look at the sockets and so without the flusher.
async fn once_more() {
    let mut again = true;
    poll_fn(|cx| {
        if !std::mem::take(&mut again) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn client_hello() -> Vec<u8> {
    let mut hello = Vec::new();
    client(&client_config(&TLS13), "localhost")
        .write_tls(&mut hello)
        .unwrap();
    hello
}

async fn poll_once<F: Future>(future: F) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// The first CPU that this process may use.
fn an_allowed_cpu() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    let first = list.trim().split([',', '-']).next().unwrap();
    first.parse().unwrap()
}

/// Panics in the middle of a handshake with `boom.test`.
#[derive(Debug)]
struct Trap {
    key: CertifiedKey,
    after_signing: AtomicBool,
}

impl ResolvesServerCert for Trap {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if hello.server_name() != Some("boom.test") {
            return Some(Arc::new(self.key.clone()));
        }
        assert!(self.after_signing.load(Ordering::Relaxed), "the trap in the resolver");
        let key = Arc::new(TrapKey(self.key.key.clone()));
        Some(Arc::new(CertifiedKey::new(self.key.cert.clone(), key)))
    }
}

#[derive(Debug)]
struct TrapKey(Arc<dyn SigningKey>);

impl SigningKey for TrapKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(TrapSigner(self.0.choose_scheme(offered)?)))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[derive(Debug)]
struct TrapSigner(Box<dyn Signer>);

impl Signer for TrapSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let signature = self.0.sign(message)?;
        panic!("the trap behind a signature of {} bytes", signature.len());
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}
