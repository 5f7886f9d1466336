//! What the tests share: keys, the two libraries, servers that stop at the end, a client.
//!
//! A test describes a server by its command and its configuration, runs load against it, and then
//! looks at what the server and its log say. Nothing here measures time.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

pub mod client;
pub mod nginx;

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, set_child_subreaper, waitpgid,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

/// Kinds of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Rsa,
    Ecdsa,
    EcdsaP384,
    Ed25519,
}

/// An authority, and the directory in which it leaves the files of a server.
pub struct Files {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    /// With the authority's certificate in `ca.pem`.
    pub fn new() -> Self {
        Self::of("authority")
    }

    /// With an authority of this name.
    pub fn of(authority: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // Servers that drop their privileges read here as another user.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))
            .expect("our own directory");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, authority);
        let issuer = CertifiedIssuer::self_signed(params, key(Kind::Ecdsa)).expect("an authority");
        let files = Self { directory, issuer };
        files.write("ca.pem", files.issuer.pem());
        files
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file of our own directory");
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A certificate for the host `name` in `name.pem`, its key in `name.key`, and both in
    /// `name.both`.
    pub fn certificate(&self, kind: Kind, name: &str) -> Identity {
        let key = key(kind);
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let (certificate_pem, key_pem) = (certificate.pem(), key.serialize_pem());
        self.write(&format!("{name}.pem"), &certificate_pem);
        self.write(&format!("{name}.key"), &key_pem);
        self.write(&format!("{name}.both"), certificate_pem + &key_pem);
        Identity {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        }
    }

    pub fn authority(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// OpenSSL's configuration with our provider.
    fn openssl_conf(&self) -> PathBuf {
        let module = libraries().provider.display();
        let text = format!(
            "openssl_conf = conf\n\
             [conf]\nproviders = providers\nalg_section = properties\n\
             [properties]\ndefault_properties = ?widelane.batch=yes\n\
             [providers]\ndefault = openssl\nwidelane = ours\n\
             [openssl]\nactivate = 1\n\
             [ours]\nmodule = {module}\nactivate = 1\nlog = info\n"
        );
        self.write("openssl.cnf", text)
    }
}

/// A certificate with its key.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// What a server gets from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// The provider alone.
    Provider,
    /// The provider, and the preloaded library.
    Shim,
}

/// A server that runs in the foreground, with its directory. It and all of its processes are gone
/// when this is dropped.
pub struct Server {
    pub files: Files,
    pub address: SocketAddr,
    child: Child,
}

impl Server {
    /// Starts the program and waits until it listens on `address`.
    pub fn start(
        files: Files,
        address: SocketAddr,
        program: &Path,
        arguments: &[String],
        with: With,
    ) -> Self {
        // What the server leaves behind becomes a child of ours, so that it can be waited for.
        set_child_subreaper(Some(Pid::INIT)).expect("Linux");
        let log = || File::create(files.path("stderr")).expect("a file of our own directory");
        let stderr = log();
        // If this process dies, the server gets SIGTERM.
        let mut started = Command::new("setpriv");
        started
            .args(["--pdeathsig", "TERM", "--"])
            .arg(program)
            .args(arguments)
            .env("OPENSSL_CONF", files.openssl_conf())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(stderr.try_clone().expect("a second handle"))
            .stderr(stderr);
        if with == With::Shim {
            started.env("LD_PRELOAD", &libraries().shim);
        }
        let child = started.spawn().expect("the server starts");
        let mut server = Self {
            files,
            address,
            child,
        };
        eventually("the server listens", || {
            let ended = server.child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "the server ended:\n{}", server.log());
            TcpStream::connect(address).is_ok()
        });
        let expected = match with {
            With::Shim => "suspends handshakes: yes",
            With::Provider => "suspends handshakes: no",
        };
        assert!(server.log().contains(expected), "{}", server.log());
        server
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Closes the standard input of the process that was started.
    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The process that was started.
    pub fn process(&self) -> Process {
        Process(self.pid().as_raw_nonzero().get())
    }

    /// Whether the process that was started has ended; it stays ours until it is asked for.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// All that the server has said.
    pub fn log(&self) -> String {
        self.files.read("stderr") + &self.files.read("error.log")
    }

    /// No line of the log has one of these words.
    pub fn assert_log_without(&self, words: &[&str]) {
        let log = self.log();
        let bad = |line: &&str| words.iter().any(|word| line.contains(word));
        let bad: Vec<_> = log.lines().filter(bad).take(10).collect();
        assert!(bad.is_empty(), "{}", bad.join("\n"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = self.pid();
        let _ = kill_process_group(group, Signal::TERM);
        // They stop by themselves in no time; a server that hangs is ended.
        let mut left = 500;
        while left > 0 && !self.is_gone() {
            std::thread::sleep(STEP);
            left -= 1;
        }
        if left == 0 {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let log = self.log();
            let last: Vec<_> = log.lines().rev().take(30).collect();
            eprintln!(
                "the server's last words, newest first:\n{}",
                last.join("\n")
            );
        }
    }
}

impl Server {
    /// Whether the process that was started has ended, and all that it has left behind.
    fn is_gone(&mut self) -> bool {
        if !self.has_ended() {
            return false;
        }
        loop {
            match waitpgid(self.pid(), WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }
}

/// A process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process(pub i32);

impl Process {
    pub fn signal(self, signal: Signal) {
        let pid = Pid::from_raw(self.0).expect("a number of a process");
        kill_process(pid, signal).expect("a process of ours");
    }

    /// The only child of this process, once there is one: servers listen before they start it.
    pub fn only_child(self) -> Self {
        eventually("it has a child", || !self.children().is_empty());
        let children = self.children();
        assert_eq!(children.len(), 1, "{children:?}");
        *children.first().expect("one")
    }

    /// Whether it has not ended; one that has ended may still be waited for.
    pub fn runs(self) -> bool {
        let maps = std::fs::read(format!("/proc/{}/maps", self.0));
        maps.is_ok_and(|maps| !maps.is_empty())
    }

    pub fn children(self) -> BTreeSet<Self> {
        let list = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.0));
        let list = list.unwrap_or_default();
        list.split_whitespace()
            .filter_map(|pid| pid.parse().ok().map(Self))
            .collect()
    }

    pub fn descriptors(self) -> usize {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.0));
        all.expect("a process that runs").count()
    }

    /// Waits until the process does nothing: an event that is never taken back would keep it busy.
    pub fn becomes_idle(self) {
        let mut before = self.ticks();
        eventually("the process becomes idle", || {
            std::thread::sleep(20 * STEP);
            let now = self.ticks();
            std::mem::replace(&mut before, now) == now
        });
    }

    /// The time that it has run on CPUs, in ticks of 10 ms.
    fn ticks(self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0));
        let stat = stat.expect("a process that runs");
        let (_, fields) = stat.rsplit_once(')').expect("its name is in parentheses");
        // User and system time; the first field here is the third of all.
        let times = fields.split_whitespace().skip(11).take(2);
        times
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum()
    }

    /// Resident memory in KiB.
    pub fn resident(self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0));
        let status = status.expect("a process that runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .expect("a number of KiB")
    }

    /// How many areas as those below suspended stacks there are: 64 KiB without any access.
    pub fn guard_areas(self) -> usize {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0));
        let is_guard = |line: &&str| {
            let Some((range, rest)) = line.split_once(' ') else {
                return false;
            };
            let range = range.split('-').map(|end| u64::from_str_radix(end, 16));
            let ends: Vec<_> = range.map_while(Result::ok).collect();
            rest.starts_with("---p") && matches!(ends[..], [from, to] if to - from == 64 * 1024)
        };
        let maps = maps.expect("a process that runs");
        maps.lines().filter(is_guard).count()
    }

    /// Whether a file with this name is mapped.
    pub fn maps(self, library: &Path) -> bool {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0));
        let name = library.to_str().expect("a path of text");
        maps.is_ok_and(|maps| maps.contains(name))
    }
}

/// The two libraries that are tested.
pub struct Libraries {
    pub provider: PathBuf,
    pub shim: PathBuf,
}

/// Where cargo has put them beside this test: the shim as its own library, the provider as what its
/// tests depend on.
pub fn libraries() -> &'static Libraries {
    static FOUND: OnceLock<Libraries> = OnceLock::new();
    FOUND.get_or_init(find_libraries)
}

fn find_libraries() -> Libraries {
    let test = std::env::current_exe().expect("a program has a file");
    let deps = test.parent().expect("a file is in a folder");
    let folders = [deps, deps.parent().expect("it is in the target folder")];
    let file = |name: &str| {
        let mut files = folders.iter().map(|folder| folder.join(name));
        files
            .find(|file| file.exists())
            .unwrap_or_else(|| panic!("cargo has not built {name}"))
    };
    Libraries {
        provider: file("libwidelane_openssl.so"),
        shim: file("libwidelane_openssl_shim.so"),
    }
}

/// Where a program is; says SKIP if it is not installed.
pub fn installed(program: &str) -> Option<PathBuf> {
    let found = ["/usr/sbin", "/usr/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.exists());
    if found.is_none() {
        println!("SKIP: {program} is not installed");
    }
    found
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An address on which nothing else listens. Each test process has a loopback address of its own,
/// so that neither other servers nor other clients take the port meanwhile.
pub fn free_address() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let own = IpAddr::V4(Ipv4Addr::new(127, 64 + high, middle, low.max(1)));
    let listener = TcpListener::bind((own, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

/// Waits until something is so. Fails after a time that only a hanging program needs.
pub fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let mut left = PATIENCE;
    while !so() {
        assert!(!left.is_zero(), "never came true: {what}");
        std::thread::sleep(STEP);
        left = left.saturating_sub(STEP);
    }
}

/// Runs `one` for each number below `count`, on as many threads as `in_flight`, and fails with the
/// first errors if there are any.
pub fn load(in_flight: usize, count: usize, one: impl Fn(usize) -> Result<(), String> + Sync) {
    load_while(in_flight, |i| match i < count {
        true => one(i).map(|()| true),
        false => Ok(false),
    });
}

/// The same, until `one` says that it is over.
pub fn load_while(in_flight: usize, one: impl Fn(usize) -> Result<bool, String> + Sync) {
    let (next, errors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..in_flight {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Relaxed);
                    match one(i) {
                        Ok(true) => {}
                        Ok(false) => break,
                        Err(error) => errors.lock().expect("no panic").push((i, error)),
                    }
                }
            });
        }
    });
    let errors = errors.into_inner().expect("no panic");
    let first: Vec<_> = errors
        .iter()
        .take(10)
        .map(|(i, error)| format!("{i}: {error}"))
        .collect();
    let first = first.join("\n");
    assert!(errors.is_empty(), "{} failed:\n{first}", errors.len());
}

fn key(kind: Kind) -> KeyPair {
    let key = KeyPair::generate_for(match kind {
        // Of 2048 bits.
        Kind::Rsa => &rcgen::PKCS_RSA_SHA256,
        Kind::Ecdsa => &rcgen::PKCS_ECDSA_P256_SHA256,
        Kind::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        Kind::Ed25519 => &rcgen::PKCS_ED25519,
    })
    .expect("a key");
    match kind {
        Kind::Ed25519 => {
            // OpenSSL 3.0 reads version 1 only (RFC 8410, section 7): without the public key.
            let seed = &key.serialize_der()[ED25519_VERSION_1.len()..][..32];
            let version_1 = [&ED25519_VERSION_1[..], seed].concat();
            KeyPair::try_from(version_1).expect("the same key")
        }
        _ => key,
    }
}

/// What stands before the seed in a key of version 1; as long as in version 2.
const ED25519_VERSION_1: [u8; 16] =
    *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

const STEP: Duration = Duration::from_millis(10);
