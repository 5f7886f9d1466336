//! What tests of `widelane serve` share: the process and its log, certificates, a client.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

#[path = "../under_test/mod.rs"]
pub mod under_test;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

pub type Tls = StreamOwned<ClientConnection, TcpStream>;

pub fn widelane() -> Command {
    let mut command = under_test::widelane();
    command
        .env_remove("NOTIFY_SOCKET")
        .env_remove("RUST_LOG")
        .env_remove("JOURNAL_STREAM");
    command
}

/// A running server whose log is read line by line. Killed when dropped.
pub struct Process {
    pub child: Child,
    log: Receiver<String>,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let log = BufReader::new(child.stderr.take().expect("standard error"));
        let (lines, receiver) = channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            log: receiver,
        }
    }

    pub fn line_with(&mut self, text: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.log.recv_timeout(PATIENCE) {
            if line.contains(text) {
                return line;
            }
            seen.push(line);
        }
        panic!("no line with {text:?} among {seen:#?}");
    }

    pub fn listening(&mut self) -> SocketAddr {
        let line = self.line_with("listening");
        let address = line
            .split("address=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        address
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("no address in {line}"))
    }

    pub fn resident_kilobytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("/proc");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        value.expect("a figure").parse().expect("a number")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a signal");
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the process has ended", || {
            status = self.child.try_wait().expect("a status");
            status.is_some()
        });
        status.expect("just seen")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory with `a.pem`, `a.key` and a configuration.
pub struct Site {
    pub directory: TempDir,
}

impl Site {
    pub fn new() -> Self {
        let site = Self {
            directory: tempfile::tempdir().expect("a directory"),
        };
        site.certificate("a");
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn certificate(&self, stem: &str) {
        let made = rcgen::generate_simple_self_signed(["localhost".into()]).expect("a certificate");
        fs::write(self.path(&format!("{stem}.pem")), made.cert.pem()).expect("written");
        fs::write(
            self.path(&format!("{stem}.key")),
            made.signing_key.serialize_pem(),
        )
        .expect("written");
    }

    /// Gives `a.pem` an issuer, whose response about it this is. `None`: there is no `openssl`.
    pub fn ocsp_response(&self) -> Option<Vec<u8>> {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let issuer = rcgen::CertifiedIssuer::self_signed(params, key).expect("an authority");
        let key = rcgen::KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned()];
        let mut params = rcgen::CertificateParams::new(names).expect("a name");
        params.serial_number = Some(0x4a.into());
        let leaf = params.signed_by(&key, &issuer).expect("a certificate");
        for (name, text) in [
            ("ca.pem", issuer.pem()),
            ("ca.key", issuer.key().serialize_pem()),
            ("a.pem", leaf.pem() + &issuer.pem()),
            ("a.key", key.serialize_pem()),
            (
                "index",
                "V\t491231235959Z\t\t4A\tunknown\t/CN=a\n".to_owned(),
            ),
        ] {
            fs::write(self.path(name), text).expect("written");
        }
        let run = |arguments: &str| {
            let mut command = Command::new("openssl");
            command
                .args(arguments.split(' '))
                .current_dir(&self.directory);
            let output = command.output().ok()?;
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{text}");
            Some(())
        };
        run("ocsp -no_nonce -issuer ca.pem -cert a.pem -reqout request.der")?;
        run(
            "ocsp -index index -CA ca.pem -rsigner ca.pem -rkey ca.key -ndays 1 -reqin request.der \
             -respout response.der",
        )?;
        Some(fs::read(self.path("response.der")).expect("a response"))
    }

    pub fn config(&self, listen: &str, top: &str) -> PathBuf {
        let path = self.path("w.toml");
        let text = format!(
            "{top}\n[[listener]]\nlisten = [\"{listen}\"]\nbackend = \"127.0.0.1:9\"\n\
             [[listener.certificate]]\ncert = {:?}\nkey = {:?}\n",
            self.path("a.pem"),
            self.path("a.key"),
        );
        fs::write(&path, text).expect("written");
        path
    }
}

impl AsRef<Path> for Site {
    fn as_ref(&self) -> &Path {
        self.directory.path()
    }
}

/// For metrics: freed a moment before it is taken, on an address that no other test uses.
pub fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.3:0").expect("a port");
    free.local_addr().expect("an address")
}

/// What the metrics endpoint tells.
pub fn page(metrics: SocketAddr) -> String {
    let mut stream = TcpStream::connect(metrics).expect("the endpoint");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

pub fn connect(address: SocketAddr, trusted: &Path) -> io::Result<Tls> {
    handshake(TcpStream::connect(address)?, trusted)
}

/// Succeeds only if the server shows the certificate in `trusted`.
pub fn handshake(socket: TcpStream, trusted: &Path) -> io::Result<Tls> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(client(trusted)?, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

fn client(trusted: &Path) -> io::Result<ClientConnection> {
    use rustls::pki_types::pem::PemObject;
    static PROVIDER: LazyLock<Arc<rustls::crypto::CryptoProvider>> =
        LazyLock::new(|| rustls::crypto::aws_lc_rs::default_provider().into());
    let trusted = rustls::pki_types::CertificateDer::from_pem_file(trusted).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(trusted).expect("an authority");
    let config = ClientConfig::builder_with_provider(PROVIDER.clone())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)
}

pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

/// Waits until something is so. Fails after a time that only a hanging program needs.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let step = Duration::from_millis(10);
    let mut left = PATIENCE;
    while !so() {
        assert!(!left.is_zero(), "never came true: {what}");
        std::thread::sleep(step);
        left = left.saturating_sub(step);
    }
}

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
