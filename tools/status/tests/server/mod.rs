//! OpenSSL's test server with the provider, for tests that look at its counters.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// `openssl s_server`, on a port of its own choice.
pub struct Server {
    child: Running,
    pub port: u16,
    /// What it says; if this were closed, it would end.
    _said: BufReader<ChildStdout>,
}

impl Server {
    pub fn start(folder: &TempDir) -> Self {
        let child = with_provider("openssl", folder)
            .args(["s_server", "-accept", "127.0.0.1:0", "-www", "-cert"])
            .arg(folder.path().join("certificate"))
            .arg("-key")
            .arg(folder.path().join("key"))
            .stdout(Stdio::piped())
            .spawn();
        let mut child = Running(child.unwrap());
        let mut said = BufReader::new(child.0.stdout.take().unwrap());
        let port = loop {
            let mut line = String::new();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
            let address = line.trim().strip_prefix("ACCEPT ");
            if let Some((_, port)) = address.and_then(|address| address.rsplit_once(':')) {
                break port.parse().unwrap();
            }
        };
        Self {
            child,
            port,
            _said: said,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }
}

/// A process that is ended when the test does not need it any more.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.0.id();
        let _ = Command::new("kill").arg(pid.to_string()).status();
        let ends = Instant::now() + PATIENCE;
        while Instant::now() < ends {
            if let Ok(Some(_)) = self.0.try_wait() {
                return;
            }
            sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client's handshake with it.
pub fn shake_hands(port: u16) {
    let client = Command::new("openssl")
        .args(["s_client", "-groups", "X25519", "-connect"])
        .arg(format!("127.0.0.1:{port}"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&client.stdout);
    assert!(said.contains("Cipher is TLS_"), "{said}");
}

/// A folder with a key, a certificate and a configuration of OpenSSL; `None` without OpenSSL 3.
pub fn folder() -> Option<TempDir> {
    let version = Command::new("openssl").arg("version").output();
    let version = version.map_or(String::new(), |output| {
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    if !version.starts_with("OpenSSL 3") {
        println!("SKIP: OpenSSL 3 is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"])
        .args(["-subj", "/CN=localhost", "-days", "2"])
        .arg("-keyout")
        .arg(folder.path().join("key"))
        .arg("-out")
        .arg(folder.path().join("certificate"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let provider = provider();
    let configuration = format!(
        "openssl_conf = all\n\
         [all]\nproviders = providers\nalg_section = preference\n\
         [preference]\ndefault_properties = ?widelane.batch=yes\n\
         [providers]\ndefault = base\nwidelane = lanes\n\
         [base]\nactivate = 1\n\
         [lanes]\nmodule = {}\nactivate = 1\n",
        provider.display()
    );
    fs::write(folder.path().join("openssl.cnf"), configuration).unwrap();
    Some(folder)
}

/// A program whose OpenSSL loads the provider.
pub fn with_provider(program: &str, folder: &TempDir) -> Command {
    let mut command = Command::new(program);
    command
        .env("OPENSSL_CONF", folder.path().join("openssl.cnf"))
        // For measured costs: a test reads nothing that was left on the machine.
        .env("STATE_DIRECTORY", folder.path())
        .stdin(Stdio::null());
    command
}

/// The provider, which cargo has built because this package needs it for its tests.
fn provider() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.with_file_name("libwidelane_openssl.so");
    assert!(path.exists(), "{}", path.display());
    path
}

/// How long a program may take that ends or answers at once.
pub const PATIENCE: Duration = Duration::from_secs(20);
