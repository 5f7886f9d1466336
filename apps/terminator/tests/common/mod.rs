//! Parts that the tests share: certificates, backends, a server, a client of our own.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses its own part"
)]

pub mod named;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

use rustls::ClientConfig;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use socket2::{Domain, Socket, Type};
use widelane_terminator::{Backend, Certificate, Config, Document, Listener, Server};
pub use widelane_testkit::certificates::{Authority, Identity, Kind};
pub use widelane_testkit::clients::{Tls, Wish, connect, over, provider};
use widelane_testkit::folder::Folder;
pub use widelane_testkit::process::{Process, Running};
pub use widelane_testkit::servers::free_address;
pub use widelane_testkit::skip::installed;
pub use widelane_testkit::wait::{PATIENCE, eventually};

/// A folder with files in PEM.
pub struct Files(Folder);

impl Deref for Files {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.0
    }
}

impl Files {
    pub fn new() -> Self {
        Self(Folder::new())
    }

    /// A self-signed certificate for `names`, in files called after the first of them.
    pub fn certificate(&self, kind: Kind, names: &[&str]) -> Certificate {
        let stem = format!("{}-{kind:?}", names[0].replace('*', "star"));
        let [certificate, key] = Identity::new(kind, names).write(&self.0, &stem);
        Certificate::new(certificate, key)
    }

    /// An authority in `ca.pem`, and a client certificate from it.
    pub fn client_authority(&self, common_name: &str) -> (PathBuf, Identity) {
        let file = self.path("ca.pem");
        let authority = Authority::in_file("test authority", &file);
        (file, authority.client(Kind::Ecdsa, common_name))
    }
}

/// The first certificate of a file.
pub fn leaf(certificate: &Certificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(&certificate.cert).expect("PEM")
}

/// A backend on TCP: `serve` runs on a thread of its own for each connection.
pub fn tcp_backend(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Backend {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let serve = serve.clone();
            std::thread::spawn(move || serve(client));
        }
    });
    Backend::Tcp(address)
}

/// Sends back what it reads, and closes when the client does.
pub fn echo() -> Backend {
    tcp_backend(|mut client| {
        let mut copy = client.try_clone().expect("a second handle");
        let _ = io::copy(&mut copy, &mut client);
        let _ = client.shutdown(std::net::Shutdown::Write);
    })
}

/// One listener on a free port.
pub fn listener(backend: Backend, certificates: Vec<Certificate>) -> Listener {
    let mut listener = Listener::new(vec!["127.0.0.1:0".parse().expect("an address")], backend);
    listener.certificates = certificates;
    listener
}

/// One listener with a certificate of this kind for `a.example`.
pub fn simple(files: &Files, kind: Kind, backend: Backend) -> Config {
    config(vec![listener(backend, vec![files.certificate(kind, &["a.example"])])])
}

pub fn config(listeners: Vec<Listener>) -> Config {
    let mut config = Config::default();
    config.workers = std::num::NonZeroUsize::new(2);
    config.metrics.listen = Some("127.0.0.1:0".parse().expect("an address"));
    config.listeners = listeners;
    config
}

pub fn document(config: &Config) -> Document {
    Document::from_flags(config.clone()).expect("a configuration")
}

pub fn start(config: &Config) -> Server {
    Server::start(&document(config)).expect("a server")
}

pub fn hello(address: SocketAddr) -> io::Result<Tls> {
    connect(address, "a.example", &Wish::default().config())
}

/// One connection is served, from its handshake to its orderly end.
pub fn works(server: &Server) {
    serve_one(server.addresses()[0], &Wish::default().config());
}

/// The same for a client; returns its address.
pub fn serve_one(address: SocketAddr, client: &Arc<ClientConfig>) -> SocketAddr {
    let mut stream = connect(address, "a.example", client).expect("TLS");
    ping(&mut stream).expect("an answer");
    let ours = stream.sock.local_addr().expect("an address");
    assert!(finish(&mut stream).expect("an orderly end").is_empty());
    ours
}

/// Threads that do the same again and again until the end of the crowd.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    pub fn start(threads: usize, once: impl Fn() + Send + Sync + 'static) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let once = Arc::new(once);
        let again = || {
            let (stop, done, once) = (stop.clone(), done.clone(), once.clone());
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    once();
                    done.fetch_add(1, Relaxed);
                }
            })
        };
        let threads = (0..threads).map(|_| again()).collect();
        Self { stop, done, threads }
    }

    pub fn done(&self) -> usize {
        self.done.load(Relaxed)
    }

    /// Ends it; none of its threads must have failed.
    pub fn end(self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("none noticed");
        }
    }
}

/// A connection from one of this machine's addresses.
pub fn from(source: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect(&to.into())?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Bytes that do not repeat soon.
pub fn pattern(length: usize) -> Vec<u8> {
    let byte = |index| (index * 31 + index / 251) as u8;
    (0..length).map(byte).collect()
}

/// The record of a client's ClientHello.
pub fn client_hello() -> Vec<u8> {
    client_hello_for("a.example", &Wish::default())
}

/// The same for another host name and other wishes.
pub fn client_hello_for(name: &'static str, wish: &Wish) -> Vec<u8> {
    let name = name.try_into().expect("a name");
    let mut client = rustls::ClientConnection::new(wish.config(), name).expect("a client");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("in memory");
    bytes
}

/// Says goodbye in TLS and TCP and reads to the end.
pub fn finish(stream: &mut Tls) -> io::Result<Vec<u8>> {
    close_sending(stream)?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    Ok(rest)
}

pub fn close_sending(stream: &mut Tls) -> io::Result<()> {
    stream.conn.send_close_notify();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut stream.sock)?;
    }
    stream.sock.shutdown(std::net::Shutdown::Write)
}

/// Reads to the end of a connection that found no backend: no answer, and not an empty one either.
pub fn assert_unanswered(stream: &mut Tls) {
    let mut rest = Vec::new();
    let error = stream.read_to_end(&mut rest).expect_err("no close_notify");
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    assert!(rest.is_empty());
}

/// One question to the echo and its answer.
pub fn ping(stream: &mut Tls) -> io::Result<()> {
    stream.write_all(b"ping")?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"ping");
    Ok(())
}

/// The metrics page.
pub fn metrics(server: &Server) -> String {
    get(server.metrics_address().expect("metrics"), "/metrics").1
}

/// One series of the metrics page, by its name with labels.
pub fn metric(server: &Server, series: &str) -> u64 {
    let page = metrics(server);
    let line = page
        .lines()
        .find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no {series} in\n{page}"));
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

/// Handshakes that failed so.
pub fn failed(server: &Server, result: &str) -> u64 {
    let labels = format!(r#"{{result="{result}",version="",resumed=""}}"#);
    metric(server, &format!("widelane_handshakes_total{labels}"))
}

/// Connections that were refused at this limit.
pub fn refused(server: &Server, limit: &str) -> u64 {
    let labels = format!(r#"{{limit="{limit}"}}"#);
    metric(server, &format!("widelane_refused_total{labels}"))
}

/// Connections that ended so.
pub fn ended(server: &Server, how: &str) -> u64 {
    let labels = format!(r#"{{how="{how}"}}"#);
    metric(server, &format!("widelane_connections_ended_total{labels}"))
}

/// Status line and body of a plain HTTP request.
pub fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut client = TcpStream::connect(address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(client, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("sent");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    (head.lines().next().expect("a status").to_owned(), body.to_owned())
}
