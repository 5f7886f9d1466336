//! TLS servers on a thread, well-behaved and otherwise.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use widelane_load::{Plan, Trust};
use widelane_testkit::certificates::{self, Kind};
use widelane_testkit::clients::{provider, server_config};

/// A certificate for `localhost` and 127.0.0.1 that is its own issuer.
pub(crate) struct Identity(certificates::Identity);

impl Deref for Identity {
    type Target = certificates::Identity;

    fn deref(&self) -> &certificates::Identity {
        &self.0
    }
}

impl Identity {
    pub(crate) fn new() -> Self {
        let names = ["localhost", "127.0.0.1"];
        Self(certificates::Identity::new(Kind::Ecdsa, &names))
    }

    /// With copies of the certificate in its chain: nonsense, but of a length.
    pub(crate) fn with_long_chain(copies: usize) -> Self {
        let mut identity = Self::new();
        identity.0.chain = vec![identity.chain[0].clone(); copies];
        identity
    }

    /// A server configuration for these versions (both if none is named).
    pub(crate) fn config(&self, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
        let versions = if versions.is_empty() {
            rustls::ALL_VERSIONS
        } else {
            versions
        };
        server_config(self, versions)
    }

    /// Configuration for both versions, with every group that rustls knows.
    pub(crate) fn config_for_every_group(&self) -> ServerConfig {
        let provider = CryptoProvider {
            kx_groups: aws_lc_rs::ALL_KX_GROUPS.to_vec(),
            ..provider()
        };
        ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .expect("known versions")
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .expect("a usable key")
    }

    /// Likewise, but only clients with a certificate get in.
    pub(crate) fn config_for_clients_with_certificates(&self) -> ServerConfig {
        let roots = Arc::new(self.as_root());
        let provider = Arc::new(provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
        ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .expect("known versions")
            .with_client_cert_verifier(clients.build().expect("a verifier"))
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .expect("a usable key")
    }
}

/// A listener whose connections are each given to a function on a thread of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

/// Counts of a server.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) accepted: AtomicUsize,
    /// Handshakes that the server, too, holds for complete.
    pub(crate) shaken: AtomicUsize,
    /// Connections that ended with the client's close_notify.
    pub(crate) closed_cleanly: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) most_open: AtomicUsize,
}

impl Server {
    /// A server that does `serve` with every connection.
    pub(crate) fn new(serve: impl Fn(TcpStream, &Seen) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Seen::default());
        let stop = Arc::new(AtomicBool::new(false));
        let serve = Arc::new(serve);
        let accepting = thread::spawn({
            let (seen, stop) = (seen.clone(), stop.clone());
            move || {
                let mut serving = Vec::new();
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let stream = stream.expect("a connection");
                    seen.accepted.fetch_add(1, Ordering::SeqCst);
                    let (seen, serve) = (seen.clone(), serve.clone());
                    serving.push(thread::spawn(move || {
                        let open = seen.open.fetch_add(1, Ordering::SeqCst) + 1;
                        seen.most_open.fetch_max(open, Ordering::SeqCst);
                        serve(stream, &seen);
                        seen.open.fetch_sub(1, Ordering::SeqCst);
                    }));
                }
                for thread in serving {
                    thread.join().expect("a server thread panicked");
                }
            }
        });
        Self {
            address,
            seen,
            stop,
            accepting: Some(accepting),
        }
    }

    /// A server that completes handshakes and waits for the client's close_notify.
    pub(crate) fn tls(config: ServerConfig) -> Self {
        let config = Arc::new(config);
        Self::new(move |stream, seen| {
            if let Some((connection, stream)) = shake(&config, stream, seen) {
                wait_for_close(connection, stream, seen);
            }
        })
    }

    /// A plan against it: a short run without warm-up, with long time limits, that accepts every
    /// certificate.
    pub(crate) fn plan(&self) -> Plan {
        plan_for(self.address)
    }

    /// Ends it; all its connections must have ended.
    pub(crate) fn finish(mut self) -> Arc<Seen> {
        self.join();
        self.seen.clone()
    }

    fn join(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            self.stop.store(true, Ordering::SeqCst);
            // Wakes the accept that it waits in.
            drop(TcpStream::connect(self.address));
            let joined = accepting.join();
            if !thread::panicking() {
                joined.expect("the server panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.join();
    }
}

pub(crate) fn plan_for(address: SocketAddr) -> Plan {
    let mut plan = Plan::new(&address.to_string()).expect("an address");
    plan.offer.trust = Trust::Unchecked;
    plan.warmup = Duration::ZERO;
    plan.duration = Duration::from_secs(60);
    plan.timeout = Duration::from_secs(30);
    plan
}

/// The server's side of a handshake; `None` if it failed.
pub(crate) fn shake(
    config: &Arc<ServerConfig>,
    mut stream: TcpStream,
    seen: &Seen,
) -> Option<(ServerConnection, TcpStream)> {
    let mut connection = ServerConnection::new(config.clone()).expect("a connection");
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).ok()?;
    }
    // The tickets.
    while connection.wants_write() {
        connection.write_tls(&mut stream).ok()?;
    }
    seen.shaken.fetch_add(1, Ordering::SeqCst);
    Some((connection, stream))
}

pub(crate) fn wait_for_close(mut connection: ServerConnection, mut stream: TcpStream, seen: &Seen) {
    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
    if matches!(tls.read(&mut [0; 64]), Ok(0)) {
        seen.closed_cleanly.fetch_add(1, Ordering::SeqCst);
        connection.send_close_notify();
        let _ = connection.write_tls(&mut stream);
    }
}

/// Answers one request with these bytes and closes.
pub(crate) fn answer(mut connection: ServerConnection, mut stream: TcpStream, text: &str) {
    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match tls.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            // The trial connection of another plan, or the end.
            _ => return,
        }
    }
    let _ = tls.write_all(text.as_bytes());
    connection.send_close_notify();
    let _ = connection.write_tls(&mut stream);
    // Not before the client has taken note: a close with its close_notify unread would reset.
    let _ = stream.read(&mut [0; 64]);
}
