//! The `openssl` programs that are here, each with the provider and without it.

// Each test program uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

/// A folder with keys and the configuration that loads the provider, for one of the programs.
pub(crate) struct Scratch {
    program: PathBuf,
    folder: TempDir,
    /// Such as 3.0.17.
    pub(crate) version: String,
    /// Whether its programs play a CPU without lanes.
    plays_no_lanes: bool,
}

/// Whether a program runs with the provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum With {
    Widelane,
    Default,
}

impl Scratch {
    /// One for each program: the system's, and those that `WIDELANE_OPENSSL` and `WIDELANE_OPENSSL_4` name.
    pub(crate) fn all(options: &str) -> Vec<Self> {
        let named = ["WIDELANE_OPENSSL", "WIDELANE_OPENSSL_4"].map(|variable| {
            let program = PathBuf::from(std::env::var_os(variable)?);
            let is_one = version(&program).is_some();
            assert!(is_one, "{variable} names no openssl program: {program:?}");
            Some(program)
        });
        let system = PathBuf::from("openssl");
        let system = version(&system).map(|_| system);
        let programs: Vec<_> = [system].into_iter().chain(named).flatten().collect();
        if programs.is_empty() {
            println!("SKIP: the system has no openssl program of version 3 or later");
        }
        programs
            .iter()
            .map(|program| Self::new(program, options))
            .collect()
    }

    /// Another one for the same program, in which the provider has other options.
    pub(crate) fn with(&self, options: &str) -> Self {
        Self::new(&self.program, options)
    }

    #[track_caller]
    fn new(program: &Path, options: &str) -> Self {
        let Some(version) = version(program) else {
            panic!("{} is no OpenSSL of version 3 or later", program.display());
        };
        let folder = tempfile::tempdir().unwrap();
        let module = provider();
        let config = format!(
            "openssl_conf = conf\n[conf]\nproviders = providers\nalg_section = properties\n\
             [properties]\ndefault_properties = ?widelane.batch=yes\n\
             [providers]\ndefault = default_section\nwidelane = widelane_section\n\
             [default_section]\nactivate = 1\n\
             [widelane_section]\nmodule = {}\nactivate = 1\nprepare = first-use\n{options}\n",
            module.display()
        );
        fs::write(folder.path().join("widelane.cnf"), config).unwrap();
        fs::write(folder.path().join("default.cnf"), "").unwrap();
        Self {
            program: program.to_owned(),
            folder,
            version,
            plays_no_lanes: false,
        }
    }

    /// The same for a CPU without lanes.
    pub(crate) fn without_lanes(mut self) -> Self {
        self.plays_no_lanes = true;
        self
    }

    /// Whether this OpenSSL has ML-KEM and ML-DSA by itself.
    pub(crate) fn is_post_quantum(&self) -> bool {
        let mut numbers = self
            .version
            .split('.')
            .map(|part| part.parse().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(3), Some(5))
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file that configures the program.
    pub(crate) fn config(&self, with: With) -> PathBuf {
        self.path(match with {
            With::Widelane => "widelane.cnf",
            With::Default => "default.cnf",
        })
    }

    /// The library of the program.
    pub(crate) fn libcrypto(&self) -> PathBuf {
        let major = self.version.split('.').next().unwrap_or_default();
        let name = format!("libcrypto.so.{major}");
        match self.program.parent() {
            Some(folder) if folder.is_absolute() => folder
                .join(format!("libraries-{}", self.version))
                .join(name),
            _ => name.into(),
        }
    }

    /// A call of the program in the folder.
    pub(crate) fn openssl(&self, with: With, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .env("OPENSSL_CONF", self.config(with))
            .stdin(Stdio::null());
        if self.plays_no_lanes {
            command.env("WIDELANE_CPU_DISABLE", "avx2");
        }
        command
    }

    pub(crate) fn run(&self, with: With, line: &str) -> Output {
        self.openssl(with, line).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn succeeds(&self, with: With, line: &str) -> String {
        let output = self.run(with, line);
        let text = text(&output);
        let version = &self.version;
        assert!(
            output.status.success(),
            "openssl {version} {line} ({with:?}): {text}"
        );
        text
    }

    #[track_caller]
    pub(crate) fn fails_cleanly(&self, with: With, line: &str) {
        let output = self.run(with, line);
        assert_eq!(
            output.status.code(),
            Some(1),
            "openssl {} {line}: {}",
            self.version,
            text(&output)
        );
    }

    /// Keys of all kinds, made without the provider. All tests of a process share them.
    pub(crate) fn keys(&self) {
        static MADE: OnceLock<[Vec<u8>; KEYS.len()]> = OnceLock::new();
        let file = |name: &str| self.path(&format!("{name}.pem"));
        let made = MADE.get_or_init(|| {
            KEYS.map(|(name, algorithm)| {
                self.succeeds(
                    With::Default,
                    &format!("genpkey -algorithm {algorithm} -out {name}.pem"),
                );
                fs::read(file(name)).unwrap()
            })
        });
        for ((name, _), pem) in KEYS.iter().zip(made) {
            fs::write(file(name), pem).unwrap();
        }
    }
}

pub(crate) const KEYS: [(&str, &str); 6] = [
    ("rsa", "RSA -pkeyopt rsa_keygen_bits:2048"),
    ("rsa1024", "RSA -pkeyopt rsa_keygen_bits:1024"),
    ("p256", "EC -pkeyopt ec_paramgen_curve:P-256"),
    ("p384", "EC -pkeyopt ec_paramgen_curve:P-384"),
    ("p521", "EC -pkeyopt ec_paramgen_curve:P-521"),
    ("ed25519", "ED25519"),
];

/// The version of a program of OpenSSL 3 or 4.
fn version(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let mut words = said.split_whitespace();
    let (name, version) = (words.next()?, words.next()?);
    let is_known = name == "OpenSSL" && (version.starts_with("3.") || version.starts_with("4."));
    is_known.then(|| version.to_owned())
}

/// The provider that belongs to this test: cargo builds both into the same folder.
pub(crate) fn provider() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let places = [deps, deps.parent().unwrap()];
    let found = places.map(|folder| folder.join("libwidelane_openssl.so"));
    let found = found.iter().find(|file| file.exists());
    found
        .expect("cargo builds the shared library for integration tests")
        .clone()
}

/// Whether this CPU runs the kernels: without them, the provider offers what OpenSSL lacks.
pub(crate) fn has_lanes() -> bool {
    widelane_cpu::lanes().exist()
}

pub(crate) fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

/// A server that ends with its test.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts `s_server` and waits until it accepts.
    pub(crate) fn start(scratch: &Scratch, with: With, options: &str) -> (Self, u16) {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut child = scratch
            .openssl(
                with,
                &format!("s_server -accept 127.0.0.1:{port} {options}"),
            )
            // It ends when its input ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        let out = child.stdout.as_mut().unwrap();
        while !said.ends_with(b"ACCEPT") {
            let mut byte = [0];
            assert_eq!(
                out.read(&mut byte).unwrap(),
                1,
                "s_server {options} has ended"
            );
            said.push(byte[0]);
        }
        (Self(child), port)
    }

    /// How many jobs of this operation the provider has done for the server.
    pub(crate) fn jobs(&self, operation: &str) -> u64 {
        let report = report(self.0.id());
        let report = report.expect("a process that has loaded the provider has a page");
        let found = report.operations.iter().find(|row| row.name == operation);
        found.map_or(0, |row| row.totals.jobs)
    }
}

/// What the provider has counted in a process; `None` if that has no page, or has ended.
fn report(process: u32) -> Option<widelane_status::Report> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let page = maps
        .lines()
        .find(|line| line.contains(widelane_status::NAME))?;
    let start = u64::from_str_radix(page.split('-').next()?, 16).ok()?;
    let mut bytes = vec![0; widelane_status::SIZE];
    let memory = fs::File::open(format!("/proc/{process}/mem")).ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    widelane_status::Report::parse(&bytes).ok()
}

/// Runs a program to its end, and gives what it said and the last that the provider has counted in it.
#[track_caller]
pub(crate) fn watch(mut command: Command) -> (Output, Option<widelane_status::Report>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut last = None;
    // What such programs say fits the pipes.
    while child.try_wait().unwrap().is_none() {
        last = report(child.id()).or(last);
        std::thread::sleep(Duration::from_millis(5));
    }
    (child.wait_with_output().unwrap(), last)
}

pub(crate) fn handshake(scratch: &Scratch, with: With, port: u16, options: &str) -> Output {
    scratch.run(
        with,
        &format!("s_client -connect 127.0.0.1:{port} -brief {options}"),
    )
}
