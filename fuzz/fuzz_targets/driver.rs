//! A hostile peer of the suspending driver: its bytes may end a handshake, but never a process, and
//! no stack and no job is left behind. Handshakes are also dropped at any of their suspensions.
//!
//! The first byte chooses who is tested and how, the second says when the handshake is dropped. The
//! peer then says the rest of the input as it is, or it is an honest one of rustls and AWS-LC in
//! whose bytes some are changed: three bytes of input each, how far behind the last change and how.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rustls::crypto::aws_lc_rs;
use rustls::{
    ClientConfig, ClientConnection, Connection, ConnectionCommon, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use rustls_pki_types::{PrivatePkcs8KeyDer, ServerName};
use std::future::Future;
use std::io::Read;
use std::ops::DerefMut;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use widelane_engine::{Config, Engine};
use widelane_rustls::{Driver, Handshake, Turns, provider};

fuzz_target!(|input: &[u8]| {
    if let [mode, polls, rest @ ..] = input {
        STAGE.with(|stage| stage.run(*mode, *polls, rest));
    }
});

thread_local! {
    static STAGE: Stage = Stage::new();
}

struct Stage {
    driver: Rc<Driver>,
    turns: Turns,
    /// Each with TLS 1.3 and with TLS 1.2.
    our_servers: [Arc<ServerConfig>; 2],
    our_clients: [Arc<ClientConfig>; 2],
    their_servers: [Arc<ServerConfig>; 2],
    their_clients: [Arc<ClientConfig>; 2],
}

impl Stage {
    fn new() -> Self {
        let engine = Engine::start(Config::default()).expect("an engine");
        let driver = Driver::new(&engine);
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
        let params = rcgen::CertificateParams::new([HOST.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("a certificate");
        let roots = Arc::new(roots);

        let ours = Arc::new(provider(&engine));
        let theirs = Arc::new(aws_lc_rs::default_provider());
        let server = |provider: &Arc<_>, version: &'static SupportedProtocolVersion| {
            let key = PrivatePkcs8KeyDer::from(key.serialize_der());
            ServerConfig::builder_with_provider(Arc::clone(provider))
                .with_protocol_versions(&[version])
                .expect("a version")
                .with_no_client_auth()
                .with_single_cert(vec![certificate.clone()], key.into())
                .map(Arc::new)
                .expect("a key and its certificate")
        };
        let client = |provider: &Arc<_>, version: &'static SupportedProtocolVersion| {
            let config = ClientConfig::builder_with_provider(Arc::clone(provider))
                .with_protocol_versions(&[version])
                .expect("a version")
                .with_root_certificates(Arc::clone(&roots))
                .with_no_client_auth();
            Arc::new(config)
        };
        Self {
            turns: driver.turns(),
            driver,
            our_servers: VERSIONS.map(|version| server(&ours, version)),
            our_clients: VERSIONS.map(|version| client(&ours, version)),
            their_servers: VERSIONS.map(|version| server(&theirs, version)),
            their_clients: VERSIONS.map(|version| client(&theirs, version)),
        }
    }

    fn run(&self, mode: u8, polls: u8, rest: &[u8]) {
        let version = usize::from(mode & IS_TLS12 != 0);
        let name = || ServerName::try_from(HOST).expect("a name");
        // A second handshake that is expected makes jobs wait, and so suspends the first.
        let other = (mode & IS_ALONE == 0).then(|| self.driver.handshake());
        let mut handshake = self.driver.handshake();
        let honest = mode & IS_HONEST != 0;
        let at_most = if polls == 0 { usize::MAX } else { usize::from(polls) };
        if mode & IS_CLIENT == 0 {
            let peer = if honest {
                let config = Arc::clone(&self.their_clients[version]);
                Peer::changed(ClientConnection::new(config, name()).expect("a client"), rest)
            } else {
                Peer::says(rest)
            };
            let config = Arc::clone(&self.our_servers[version]);
            let ours = Box::new(ServerConnection::new(config).expect("a server"));
            self.drive(talk(&mut handshake, ours, peer), at_most);
        } else {
            let peer = if honest {
                let config = Arc::clone(&self.their_servers[version]);
                Peer::changed(ServerConnection::new(config).expect("a server"), rest)
            } else {
                Peer::says(rest)
            };
            let config = Arc::clone(&self.our_clients[version]);
            let step = async {
                let ours = handshake.start_client(config, name()).await.expect("a client");
                talk(&mut handshake, ours, peer).await
            };
            self.drive(step, at_most);
        }
        drop((handshake, other));
        // Jobs of a handshake that was dropped are still in the queue, and are skipped.
        while self.turns.turn() > 0 {}
        assert_eq!(self.driver.stacks_in_use(), 0);
    }

    /// Polls at most so often. Whenever the future waits, there must be a job that it waits for.
    fn drive(&self, future: impl Future<Output = Ended>, at_most: usize) {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..at_most {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(Ended { unchanged, done }) => {
                    assert!(done || !unchanged, "two honest peers must agree");
                    return;
                }
                Poll::Pending => assert!(self.turns.turn() > 0, "it waits, and no job does"),
            }
        }
    }
}

struct Ended {
    /// The peer is honest, and nothing was changed on the way.
    unchanged: bool,
    /// The handshake was completed.
    done: bool,
}

/// A whole conversation, as far as it goes.
async fn talk<C, D>(handshake: &mut Handshake, mut ours: Box<C>, mut peer: Peer<'_>) -> Ended
where
    C: DerefMut<Target = ConnectionCommon<D>> + 'static,
    D: 'static,
{
    loop {
        let mut answer = Vec::new();
        while ours.wants_write() {
            ours.write_tls(&mut answer).expect("a vector takes all");
        }
        let bytes = peer.next(&answer);
        let mut bytes = bytes.as_slice();
        if bytes.is_empty() {
            let done = !ours.is_handshaking();
            return Ended {
                unchanged: peer.is_unchanged(),
                done,
            };
        }
        while !bytes.is_empty() {
            let read = ours.read_tls(&mut bytes);
            let (back, result) = handshake.process(ours).await;
            ours = back;
            let mut plain = Vec::new();
            let _ = ours.reader().take(1 << 20).read_to_end(&mut plain);
            if result.is_err() || !read.is_ok_and(|count| count > 0) {
                return Ended {
                    unchanged: peer.is_unchanged(),
                    done: false,
                };
            }
        }
    }
}

enum Peer<'a> {
    /// What it has still to say.
    Says(&'a [u8]),
    Changed {
        honest: Box<Connection>,
        changes: &'a [u8],
        changed: bool,
        /// Bytes until the next change.
        before: usize,
    },
}

impl<'a> Peer<'a> {
    fn says(bytes: &'a [u8]) -> Self {
        Self::Says(bytes)
    }

    fn changed(honest: impl Into<Connection>, changes: &'a [u8]) -> Self {
        let honest = Box::new(honest.into());
        Self::Changed {
            honest,
            changes,
            changed: false,
            before: distance(changes),
        }
    }

    fn is_unchanged(&self) -> bool {
        matches!(self, Self::Changed { changed: false, .. })
    }

    /// Takes what we said and returns the next bytes; none when it has no more to say.
    fn next(&mut self, said: &[u8]) -> Vec<u8> {
        match self {
            Self::Says(left) => {
                // In two parts, so that messages are torn.
                let (now, later) = left.split_at(left.len().div_ceil(2));
                *left = later;
                now.to_vec()
            }
            Self::Changed {
                honest,
                changes,
                changed,
                before,
            } => {
                let mut said = said;
                while !said.is_empty() {
                    let read = honest.read_tls(&mut said);
                    // After an error it has an alert to say.
                    if honest.process_new_packets().is_err() || !read.is_ok_and(|read| read > 0) {
                        break;
                    }
                }
                let mut bytes = Vec::new();
                while honest.wants_write() {
                    honest.write_tls(&mut bytes).expect("a vector takes all");
                }
                let mut from = 0;
                while let [_, _, change, rest @ ..] = *changes
                    && *before < bytes.len() - from
                {
                    bytes[from + *before] ^= change;
                    *changed |= *change != 0;
                    from += *before + 1;
                    *changes = rest;
                    *before = distance(rest);
                }
                *before -= (*before).min(bytes.len() - from);
                bytes
            }
        }
    }
}

/// How many bytes are left alone before the next change.
fn distance(changes: &[u8]) -> usize {
    match changes {
        [low, high, ..] => usize::from(u16::from_le_bytes([*low, *high])),
        _ => 0,
    }
}

const IS_CLIENT: u8 = 1;
const IS_HONEST: u8 = 2;
const IS_TLS12: u8 = 4;
const IS_ALONE: u8 = 8;
const HOST: &str = "localhost";
const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
