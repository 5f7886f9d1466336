//! Parts that tests of `widelane serve` share: the process and its log, certificates, a client.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses its own part"
)]

#[path = "../under_test/mod.rs"]
pub mod under_test;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::Signal;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use widelane_testkit::certificates::{Authority, Identity, Kind, parameters};
pub use widelane_testkit::clients::Tls;
use widelane_testkit::clients::{VERSIONS, Wish, complete, over};
use widelane_testkit::openssl::ocsp_response;
use widelane_testkit::process;
pub use widelane_testkit::servers::free_address;
pub use widelane_testkit::skip::installed;
pub use widelane_testkit::wait::{PATIENCE, eventually};

pub fn widelane() -> Command {
    let mut command = under_test::widelane();
    command
        .env_remove("NOTIFY_SOCKET")
        .env_remove("RUST_LOG")
        .env_remove("JOURNAL_STREAM");
    command
}

/// `widelane serve` with a configuration.
pub fn serve(config: &Path) -> Process {
    Process::start(widelane().args(["serve", "--config"]).arg(config))
}

/// `widelane serve` with these files of a certificate and its key.
pub fn serve_by_flags(certificate: &Path, key: &Path) -> Command {
    let mut command = widelane();
    command.args(["serve", "--listen", "127.0.0.1:0", "--backend", "127.0.0.1:9"]);
    command.arg("--cert").arg(certificate).arg("--key").arg(key);
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
        Self { child, log: receiver }
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
        let address = line.split("address=").nth(1).and_then(|rest| rest.split(' ').next());
        address
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(|| panic!("no address in {line}"))
    }

    pub fn resident_kilobytes(&self) -> u64 {
        self.process().resident()
    }

    pub fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    /// Ends it in order.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.wait().success());
    }

    fn process(&self) -> process::Process {
        process::Process(self.child.id().cast_signed())
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
        Identity::new(Kind::Ecdsa, &["localhost"]).write(&self.directory, stem);
    }

    /// Gives `a.pem` an issuer, whose response about it this is. `None`: there is no `openssl`.
    pub fn ocsp_response(&self) -> Option<Vec<u8>> {
        installed("openssl")?;
        let issuer = Authority::in_file("of the site", &self.path("ca.pem"));
        fs::write(self.path("ca.key"), issuer.key_pem()).expect("written");
        let mut params = parameters(&["localhost"]);
        params.serial_number = Some(0x4a.into());
        let mut leaf = issuer.sign(Kind::Ecdsa, params);
        leaf.pem += &issuer.pem();
        leaf.write(&self.directory, "a");
        let register = "V\t491231235959Z\t\t4A\tunknown\t/CN=a\n";
        Some(ocsp_response(self.as_ref(), "a", register, "ca"))
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

/// Text of the metrics endpoint.
pub fn page(metrics: SocketAddr) -> String {
    let mut stream = TcpStream::connect(metrics).expect("the endpoint");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("a page");
    page
}

pub fn connect(address: SocketAddr, trusted: &Path) -> io::Result<Tls> {
    handshake(TcpStream::connect(address)?, trusted)
}

/// Succeeds only if the server shows the certificate in `trusted`.
pub fn handshake(socket: TcpStream, trusted: &Path) -> io::Result<Tls> {
    let trusted = CertificateDer::from_pem_file(trusted).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(trusted).expect("an authority");
    let wish = Wish {
        versions: VERSIONS.to_vec(),
        roots: Some(roots),
        ..Wish::default()
    };
    let mut stream = over(socket, "localhost", &wish.config())?;
    complete(&mut stream)?;
    Ok(stream)
}

pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").path()).collect()
}
