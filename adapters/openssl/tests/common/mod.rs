//! The `openssl` programs that are here, each with the provider and without it, and programs in C.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses its own part"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use widelane_status::Report;
use widelane_testkit::c;
use widelane_testkit::folder::Folder;
use widelane_testkit::openssl;
pub use widelane_testkit::openssl::{Configuration, POST_QUANTUM, provider, text};
use widelane_testkit::process::Process;

/// A folder with keys and the configuration that loads the provider, for one of the programs.
pub struct Scratch {
    program: PathBuf,
    folder: Folder,
    /// Such as 3.0.17.
    pub version: String,
    /// Makes its programs play a CPU without lanes.
    plays_no_lanes: bool,
}

/// A program with the provider, or without it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum With {
    Widelane,
    Default,
}

impl Deref for Scratch {
    type Target = Folder;

    fn deref(&self) -> &Folder {
        &self.folder
    }
}

impl Scratch {
    /// One for each program: the system's, and those that `WIDELANE_OPENSSL` and `WIDELANE_OPENSSL_4` name.
    pub fn all(options: &str) -> Vec<Self> {
        let named = ["WIDELANE_OPENSSL", "WIDELANE_OPENSSL_4"].map(|variable| {
            let program = PathBuf::from(std::env::var_os(variable)?);
            let is_one = openssl::version(&program).is_some();
            assert!(is_one, "{variable} names no openssl program: {program:?}");
            Some(program)
        });
        let programs = [openssl::installed()].into_iter().chain(named).flatten();
        programs.map(|program| Self::new(&program, options)).collect()
    }

    /// Another one for the same program, in which the provider has other options.
    pub fn with(&self, options: &str) -> Self {
        Self::new(&self.program, options)
    }

    /// One for the system's program, which ends where its configuration has a mistake. `None` without a program.
    pub fn system(configuration: Configuration<'_>) -> Option<Self> {
        let configuration = Configuration {
            is_strict: true,
            ..configuration
        };
        Some(Self::of(&openssl::installed()?, &configuration))
    }

    fn new(program: &Path, options: &str) -> Self {
        let options = format!("prepare = first-use\n{options}");
        let configuration = Configuration {
            options: &options,
            ..Configuration::default()
        };
        Self::of(program, &configuration)
    }

    #[track_caller]
    fn of(program: &Path, configuration: &Configuration<'_>) -> Self {
        let version = openssl::version(program);
        let version = version.unwrap_or_else(|| panic!("{} is no OpenSSL 3", program.display()));
        let folder = Folder::new();
        folder.write("widelane.cnf", configuration.to_string());
        folder.write("default.cnf", "");
        Self {
            program: program.to_owned(),
            folder,
            version,
            plays_no_lanes: false,
        }
    }

    /// Plays a CPU without lanes.
    pub fn without_lanes(mut self) -> Self {
        self.plays_no_lanes = true;
        self
    }

    /// Returns whether this OpenSSL has ML-KEM and ML-DSA by itself.
    pub fn is_post_quantum(&self) -> bool {
        let mut numbers = self.version.split('.').map(|part| part.parse().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(3), Some(5))
    }

    pub fn folder(&self) -> &Path {
        self.as_ref()
    }

    /// The file that configures the program.
    pub fn config(&self, with: With) -> PathBuf {
        self.path(match with {
            With::Widelane => "widelane.cnf",
            With::Default => "default.cnf",
        })
    }

    /// The library of the program.
    pub fn libcrypto(&self) -> PathBuf {
        let major = self.version.split('.').next().unwrap_or_default();
        let name = format!("libcrypto.so.{major}");
        match self.program.parent() {
            Some(folder) if folder.is_absolute() => folder.join(format!("libraries-{}", self.version)).join(name),
            _ => name.into(),
        }
    }

    /// A call of the program in the folder.
    pub fn openssl(&self, with: With, line: &str) -> Command {
        self.command(with, &self.program, line)
    }

    /// A call of another program in the folder, with the configuration.
    pub fn command(&self, with: With, program: impl AsRef<Path>, line: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .args(line.split_whitespace())
            .current_dir(self.folder())
            .env("OPENSSL_CONF", self.config(with))
            .stdin(Stdio::null());
        if self.plays_no_lanes {
            command.env("WIDELANE_CPU_DISABLE", "avx2");
        }
        command
    }

    pub fn run(&self, with: With, line: &str) -> Output {
        self.openssl(with, line).output().expect("it starts")
    }

    #[track_caller]
    pub fn succeeds(&self, with: With, line: &str) -> String {
        let output = self.run(with, line);
        let (text, version) = (text(&output), &self.version);
        assert!(output.status.success(), "openssl {version} {line} ({with:?}): {text}");
        text
    }

    /// Ends by itself, with an error.
    #[track_caller]
    pub fn fails_cleanly(&self, with: With, line: &str) -> String {
        let output = self.run(with, line);
        let (text, version) = (text(&output), &self.version);
        let status = output.status.code();
        assert_eq!(status, Some(1), "openssl {version} {line}: {text}");
        text
    }

    /// Makes a certificate for `localhost` that signs itself, without the provider: `NAME.crt` of `NAME.pem`.
    #[track_caller]
    pub fn certificate(&self, name: &str) {
        let line = format!("req -x509 -new -key {name}.pem -subj /CN=localhost -out {name}.crt");
        self.succeeds(With::Default, &format!("{line} -config default.cnf"));
    }

    /// Keys of all kinds, made without the provider. All tests of a process share them.
    pub fn keys(&self) {
        static MADE: OnceLock<[String; KEYS.len()]> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            KEYS.map(|(name, algorithm)| {
                let make = format!("genpkey -algorithm {algorithm} -out {name}.pem");
                self.succeeds(With::Default, &make);
                self.read(&format!("{name}.pem"))
            })
        });
        for ((name, _), pem) in KEYS.iter().zip(made) {
            self.write(&format!("{name}.pem"), pem);
        }
    }

    /// A program of this folder of tests, which all tests of a process share. `None`, and the reason is
    /// printed, if it cannot be built here.
    pub fn build(&self, name: &str) -> Option<PathBuf> {
        static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = built.get(name) {
            return Some(program.clone());
        }
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("openssl-{name}"));
        c::compile(&source(name), &program, &["-lcrypto", "-lm", "-ldl"])?;
        built.insert(name.to_owned(), program.clone());
        Some(program)
    }

    /// Starts `s_server`.
    pub fn serve(&self, with: With, options: &str) -> Server {
        let options: Vec<_> = options.split_whitespace().collect();
        Server(openssl::Server::start(&mut self.openssl(with, ""), &options))
    }

    /// A handshake of `s_client`.
    pub fn handshake(&self, with: With, server: &Server, options: &str) -> Output {
        let address = server.0.address;
        self.run(with, &format!("s_client -connect {address} -brief {options}"))
    }
}

/// Source of a program in this folder of tests.
pub fn source(name: &str) -> String {
    format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"))
}

pub const KEYS: [(&str, &str); 6] = [
    ("rsa", "RSA -pkeyopt rsa_keygen_bits:2048"),
    ("rsa1024", "RSA -pkeyopt rsa_keygen_bits:1024"),
    ("p256", "EC -pkeyopt ec_paramgen_curve:P-256"),
    ("p384", "EC -pkeyopt ec_paramgen_curve:P-384"),
    ("p521", "EC -pkeyopt ec_paramgen_curve:P-521"),
    ("ed25519", "ED25519"),
];

/// Returns whether this CPU runs the kernels: without them, the provider offers what OpenSSL lacks.
pub fn has_lanes() -> bool {
    widelane_cpu::lanes().exist()
}

#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let ended = command.output().expect("it starts");
    let said = text(&ended);
    assert!(ended.status.success(), "{said}{}", ended.status);
    said
}

/// A server that ends with its test.
pub struct Server(pub openssl::Server);

impl Server {
    /// Number of jobs of this operation that the provider has done for the server.
    pub fn jobs(&self, operation: &str) -> u64 {
        let report = self.0.running.process().counts();
        let report = report.expect("a process that has loaded the provider has a page");
        let found = report.operations.iter().find(|row| row.name == operation);
        found.map_or(0, |row| row.totals.jobs)
    }
}

/// Runs a program that writes a line once its work is done and then waits for the end of its input. Gives its
/// output, and all that the provider has counted in it.
#[track_caller]
pub fn counted(mut command: Command) -> (Output, Option<Report>) {
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut line = Vec::new();
    let output = child.stdout.as_mut().expect("a pipe");
    BufReader::with_capacity(1, output)
        .read_until(b'\n', &mut line)
        .expect("a pipe");
    let report = Process(child.id().cast_signed()).counts();
    let mut ended = child.wait_with_output().expect("a child of ours");
    ended.stdout.splice(..0, line);
    (ended, report)
}

/// Runs a program to its end. Gives its output, and the last counts of the provider that could be seen in it.
#[track_caller]
pub fn watch(mut command: Command) -> (Output, Option<Report>) {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let process = Process(child.id().cast_signed());
    let mut last = None;
    // The output of such programs fits the pipes.
    while child.try_wait().expect("a child of ours").is_none() {
        last = process.counts().or(last);
        std::thread::sleep(Duration::from_millis(5));
    }
    (child.wait_with_output().expect("a child of ours"), last)
}
