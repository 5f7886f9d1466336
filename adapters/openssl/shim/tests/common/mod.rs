//! Parts that the tests share: keys, the two libraries, servers that stop at the end, a client.
//!
//! A test describes a server by its command and its configuration, runs load against it, and then
//! looks at what the server and its log say. Nothing here measures time.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses its own part"
)]

pub mod aborts;
pub mod apache;
pub mod client;
pub mod haproxy;
pub mod lighttpd;
pub mod nginx;
pub mod programs;
pub mod protocol;
pub mod subject;

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, set_child_subreaper, waitpgid};
use rustls::RootCertStore;
use widelane_testkit::certificates::{Authority, parameters};
pub use widelane_testkit::certificates::{Identity, Kind};
use widelane_testkit::folder::Folder;
use widelane_testkit::openssl::{Configuration, library, provider};
pub use widelane_testkit::process::Process;
pub use widelane_testkit::servers::free_address;
pub use widelane_testkit::skip::installed;
pub use widelane_testkit::wait::{PATIENCE, STEP, eventually};

/// An authority, and the folder in which it leaves the files of a server.
pub struct Files {
    folder: Folder,
    authority: Authority,
}

impl Deref for Files {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.folder
    }
}

impl Files {
    /// With the authority's certificate in `ca.pem`.
    pub fn new() -> Self {
        Self::of("authority")
    }

    /// With an authority of this name.
    pub fn of(authority: &str) -> Self {
        let (folder, authority) = (Folder::new(), Authority::new(authority));
        folder.write("ca.pem", authority.pem());
        Self { folder, authority }
    }

    /// A certificate for the host `name` in `name.pem`, its key in `name.key`, and both in
    /// `name.both`.
    pub fn certificate(&self, kind: Kind, name: &str) -> Identity {
        let identity = self.authority.sign(kind, parameters(&[name]));
        identity.write(&self.folder, name);
        self.write(&format!("{name}.both"), identity.both());
        identity
    }

    pub fn roots(&self) -> RootCertStore {
        self.authority.as_root()
    }

    /// Puts the provider and, if asked for, the library into a program that uses OpenSSL.
    pub fn environment<'a>(&self, command: &'a mut Command, with: With) -> &'a mut Command {
        // The runtime of a sanitizer must come first.
        let mut preloaded = Vec::from_iter(sanitizer());
        if with == With::Shim {
            preloaded.push(libraries().shim.clone());
        }
        if !preloaded.is_empty() {
            let preloaded = preloaded.iter().map(|path| path.display().to_string());
            command.env("LD_PRELOAD", Vec::from_iter(preloaded).join(" "));
        }
        if sanitizer().is_some() {
            let reports = self.path(REPORT);
            let options = format!("detect_leaks=0:log_path={}", reports.display());
            command.env("ASAN_OPTIONS", options);
        }
        command.env("OPENSSL_CONF", self.openssl_conf(with))
    }

    /// Another file for what passes cost, in the configuration that was written last, and what is measured
    /// decides.
    pub fn keep_calibration_in(&self, file: &Path) {
        let config = self.read("openssl.cnf");
        let file = file.display().to_string();
        let config = config.replace(CALIBRATION, &file);
        self.write("openssl.cnf", config.replace("prefer = widelane\n", ""));
    }

    /// OpenSSL's configuration with our provider.
    fn openssl_conf(&self, with: With) -> PathBuf {
        let library = match with {
            With::Imports => format!("library = {}\n", libraries().shim.display()),
            _ => String::new(),
        };
        let options = format!("log = info\n{library}calibration = {CALIBRATION}\nprefer = widelane\n");
        let configuration = Configuration {
            options: &options,
            ..Configuration::default()
        };
        self.write("openssl.cnf", configuration.to_string())
    }
}

/// Servers measure what passes cost once for all tests, as on a user's machine. Whether OpenSSL is as fast on
/// this one does not matter to tests.
const CALIBRATION: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/openssl-calibration");

/// Libraries of ours that a server gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// Nothing: what the server does by itself.
    Nothing,
    /// The provider alone.
    Provider,
    /// The provider, and the preloaded library.
    Shim,
    /// The provider, which puts the same library into the server's imports.
    Imports,
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
    pub fn start(files: Files, address: SocketAddr, program: &Path, arguments: &[String], with: With) -> Self {
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
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(stderr.try_clone().expect("a second handle"))
            .stderr(stderr);
        if with != With::Nothing {
            files.environment(&mut started, with);
        }
        let child = started.spawn().expect("the server starts");
        let mut server = Self { files, address, child };
        eventually("the server listens", || {
            let ended = server.child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "the server ended, {ended:?}:\n{}", server.log());
            TcpStream::connect(address).is_ok()
        });
        if with != With::Nothing {
            // lighttpd listens before it loads its certificates, and OpenSSL with them.
            eventually("the provider says what it does", || {
                server.log().contains("suspends handshakes: ")
            });
        }
        let expected = match with {
            With::Nothing => "",
            With::Shim | With::Imports if server.has_lanes() => "suspends handshakes: yes",
            _ => "suspends handshakes: no",
        };
        assert!(server.log().contains(expected), "{}", server.log());
        server
    }

    /// Returns whether its operations run in lanes; without them nothing waits.
    pub fn has_lanes(&self) -> bool {
        has_lanes(&self.log())
    }

    /// Returns whether handshakes that wait together share passes of an operation: it has lanes, and a full pass costs
    /// less than its jobs one by one. Says why not.
    pub fn shares_passes(&self, operation: &str) -> bool {
        let log = self.log();
        if !has_lanes(&log) {
            println!("SKIP: there are no lanes here, and so no handshake waits");
        } else if !full_pass_pays(&log, operation) {
            println!("SKIP: {operation} costs as little one by one on this machine as in lanes");
        } else {
            return true;
        }
        false
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

    /// Returns whether the process that was started has ended; it stays ours until it is asked for.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// Number of handshakes that wait at the same time, each on a stack of its own, if `process` finds that
    /// many new connections at once. Before any load: stacks are kept for later handshakes.
    pub fn suspended_at_once(&self, process: Process, connections: usize) -> usize {
        let client = client::Wish::default().client(&self.files);
        let before = guard_areas(process);
        process.signal(Signal::STOP);
        let mut waiting: Vec<_> = (0..connections)
            .map(|_| {
                let tls = client.connect(self.address, "rsa.test");
                let mut tls = tls.expect("a backlog");
                tls.conn.write_tls(&mut tls.sock).expect("a buffer");
                tls
            })
            .collect();
        process.signal(Signal::CONT);
        for tls in &mut waiting {
            tls.conn.complete_io(&mut tls.sock).expect("a handshake");
        }
        guard_areas(process) - before
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

impl Server {
    /// Reports of a sanitizer in the server's processes.
    fn reports(&self) -> String {
        let files = std::fs::read_dir(self.files.path("")).expect("our own directory");
        let names = files.map(|file| file.expect("readable").file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let names = names.filter(|name| name.starts_with(REPORT));
        names.map(|name| self.files.read(&name)).collect()
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
            eprintln!("the server's last words, newest first:\n{}", last.join("\n"));
        }
        let reports = self.reports();
        assert!(reports.is_empty() || std::thread::panicking(), "{reports}");
        print!("{reports}");
    }
}

impl Server {
    /// Returns whether the process that was started has ended, and all that it has left behind.
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

/// Number of areas as those below suspended stacks: 64 KiB without any access.
pub fn guard_areas(process: Process) -> usize {
    let maps = process.file("maps").expect("a process that runs");
    let is_guard = |line: &&str| {
        let Some((range, rest)) = line.split_once(' ') else {
            return false;
        };
        let range = range.split('-').map(|end| u64::from_str_radix(end, 16));
        let ends: Vec<_> = range.map_while(Result::ok).collect();
        rest.starts_with("---p") && matches!(ends[..], [from, to] if to - from == 64 * 1024)
    };
    maps.lines().filter(is_guard).count()
}

/// The two libraries that are tested.
pub struct Libraries {
    pub provider: PathBuf,
    pub shim: PathBuf,
}

/// Paths at which cargo has put them beside this test: the shim as its own library, the provider as what its
/// tests depend on.
pub fn libraries() -> &'static Libraries {
    static FOUND: OnceLock<Libraries> = OnceLock::new();
    FOUND.get_or_init(find_libraries)
}

fn find_libraries() -> Libraries {
    Libraries {
        provider: provider(),
        shim: std::env::var_os("WIDELANE_ASAN_SHIM")
            .map_or_else(|| library("libwidelane_openssl_shim.so"), PathBuf::from),
    }
}

/// The shared runtime of AddressSanitizer, if the preloaded library is one that is built for it
/// (`WIDELANE_ASAN_SHIM`).
pub fn sanitizer() -> Option<PathBuf> {
    std::env::var_os("WIDELANE_ASAN_RUNTIME").map(PathBuf::from)
}

/// Prefix of the files with a sanitizer's reports.
const REPORT: &str = "sanitizer-report";

/// Returns whether a full pass of an operation costs less here than its jobs one by one, by what was measured for the
/// backend of this log. AWS-LC may have instructions that lanes do without. True while nothing is measured, for lanes
/// compute then.
fn full_pass_pays(log: &str, operation: &str) -> bool {
    let record = std::fs::read(CALIBRATION).unwrap_or_default();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
    let entries = record["entries"].as_array().into_iter().flatten();
    let backend = log.split_once("backend ").map_or("", |(_, rest)| rest);
    let backend = backend.split([',', ' ']).next().unwrap_or_default();
    let mut costs = entries
        .filter(|one| one["operation"] == operation && one["backend"] == backend)
        .map(|one| ["lanes", "first", "further", "alone"].map(|name| one["costs"][name].as_u64().expect("a number")));
    costs.all(|[lanes, first, further, alone]| first + (lanes - 1) * further < lanes * alone)
}

/// Returns whether a provider that has written this log computes in lanes.
pub fn has_lanes(log: &str) -> bool {
    log.contains("backend ") && !log.contains("backend aws-lc")
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `one` for each number below `count`, on as many threads as `in_flight`, and fails with the
/// first errors if there are any.
pub fn load(in_flight: usize, count: usize, one: impl Fn(usize) -> Result<(), String> + Sync) {
    load_while(in_flight, |i| match i < count {
        true => one(i).map(|()| true),
        false => Ok(false),
    });
}

/// Runs such load until `one` says that it is over.
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
