//! `openssl` programs, their configuration with the provider, and their server.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::process::Running;

/// Groups of key exchange, as OpenSSL and our configuration spell them; those of every OpenSSL first.
pub const GROUPS: [&str; 8] = [
    "X25519",
    "P-256",
    "P-384",
    "X25519MLKEM768",
    "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024",
    "MLKEM768",
    "MLKEM1024",
];
/// Groups that OpenSSL has from 3.5 on.
pub const POST_QUANTUM: &[&str] = GROUPS.split_at(3).1;

/// The system's `openssl` if it is of version 3 or 4; `None`, and prints why, otherwise.
pub fn installed() -> Option<PathBuf> {
    let program = PathBuf::from("openssl");
    let is_usable = version(&program).is_some();
    if !is_usable {
        println!("SKIP: there is no openssl program of version 3 or later");
    }
    is_usable.then_some(program)
}

/// Version of a program of OpenSSL 3 or 4, such as `3.0.17`.
pub fn version(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let mut words = said.split_whitespace();
    let (name, version) = (words.next()?, words.next()?);
    let is_known = name == "OpenSSL" && (version.starts_with("3.") || version.starts_with("4."));
    is_known.then(|| version.to_owned())
}

/// A shared library that cargo has built for this test program.
///
/// # Panics
///
/// If it has not: the package lacks the dependency.
pub fn library(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a program has a file");
    let mut folders = test.ancestors().skip(1).take(2);
    let found = folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.exists()));
    found.unwrap_or_else(|| panic!("cargo has not built {name}"))
}

/// The provider that cargo has built for this test program.
pub fn provider() -> PathBuf {
    library("libwidelane_openssl.so")
}

/// A configuration that loads our provider, as text of `openssl.cnf`.
#[derive(Clone, Copy, Debug)]
pub struct Configuration<'a> {
    /// Properties that are preferred; empty for none.
    pub properties: &'a str,
    /// Names of the providers; ours begin with `widelane`.
    pub providers: &'a [&'a str],
    /// Further lines of the first section, and other sections.
    pub more: &'a str,
    /// Lines in the section of our providers.
    pub options: &'a str,
    /// Makes a program fail whose configuration has a mistake.
    pub is_strict: bool,
}

impl Default for Configuration<'_> {
    /// The provider beside OpenSSL's own, and preferred.
    fn default() -> Self {
        Self {
            properties: "?widelane.batch=yes",
            providers: &["default", "widelane"],
            more: "",
            options: "",
            is_strict: false,
        }
    }
}

impl fmt::Display for Configuration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_strict {
            writeln!(f, "config_diagnostics = 1")?;
        }
        writeln!(f, "openssl_conf = conf\n[conf]")?;
        writeln!(f, "providers = providers\nalg_section = properties\n{}", self.more)?;
        writeln!(f, "[properties]")?;
        if !self.properties.is_empty() {
            writeln!(f, "default_properties = {}", self.properties)?;
        }
        writeln!(f, "[providers]")?;
        for name in self.providers {
            writeln!(f, "{name} = section_{name}")?;
        }
        for name in self.providers {
            writeln!(f, "[section_{name}]\nactivate = 1")?;
            if name.starts_with("widelane") {
                writeln!(f, "module = {}\n{}", provider().display(), self.options)?;
            }
        }
        Ok(())
    }
}

/// `openssl s_server`. It ends with its value.
#[derive(Debug)]
pub struct Server {
    /// The process.
    pub running: Running,
    /// Address on which it listens.
    pub address: SocketAddr,
}

impl Server {
    /// Runs `command`, an `openssl` program, as a server on a free port.
    pub fn start(command: &mut Command, options: &[&str]) -> Self {
        let child = command
            .args(["s_server", "-accept", "127.0.0.1:0"])
            .args(options)
            // It ends when its input ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut running = Running(child.expect("openssl"));
        let mut said = BufReader::new(running.0.stdout.take().expect("a pipe"));
        let mut line = String::new();
        let address = loop {
            line.clear();
            let length = said.read_line(&mut line).expect("text");
            assert!(length > 0, "s_server {options:?} has ended");
            if let Some(address) = line.trim().strip_prefix("ACCEPT ") {
                break address.parse().expect("an address");
            }
        };
        // The server ends when its output is closed, and stands still when the pipe is full.
        thread::spawn(move || io::copy(&mut said, &mut io::sink()));
        Self { running, address }
    }
}

/// Runs `client`, an `openssl s_client` to a server that sends back what it reads, and sends it a line. Returns whether
/// that came back, and all that the client has said.
pub fn converse(client: &mut Command, line: &str) -> (bool, String) {
    let piped = client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = piped.stderr(Stdio::piped()).spawn().expect("openssl");
    let mut stdin = client.stdin.take().expect("a pipe");
    // It may have given up already, which its output tells.
    let _ = stdin.write_all(line.as_bytes());
    let mut said = String::new();
    let mut stdout = BufReader::new(client.stdout.take().expect("a pipe"));
    // In the middle of a line, if it comes while a session is being printed.
    while !said.ends_with(line) && stdout.read_line(&mut said).expect("text") > 0 {}
    let came_back = said.ends_with(line);
    drop(stdin);
    stdout.read_to_string(&mut said).expect("text");
    let mut stderr = client.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut said).expect("text");
    client.wait().expect("an end");
    (came_back, said)
}

/// Returns the answer of an authority about the certificate in `NAME.pem`, by `openssl ocsp`. `folder` has the
/// authority in `ca.pem`, a key in `SIGNER.key` that signs, and its certificate in `SIGNER.pem`. `register` is the entry
/// about the certificate, as `openssl ca` keeps it.
pub fn ocsp_response(folder: &Path, name: &str, register: &str, signer: &str) -> Vec<u8> {
    let own = "a file of our own folder";
    fs::write(folder.join("index"), register).expect(own);
    // Without certificates everything is signed.
    let bare = if signer == "ca" { "-resp_no_certs" } else { "" };
    for line in [
        format!("-no_nonce -issuer ca.pem -cert {name}.pem -reqout request.der"),
        format!(
            "-index index -CA ca.pem -rsigner {signer}.pem -rkey {signer}.key {bare} -ndays 1 \
             -reqin request.der -respout response.der"
        ),
    ] {
        let mut openssl = Command::new("openssl");
        openssl.arg("ocsp").args(line.split_whitespace());
        let ended = openssl.current_dir(folder).stdin(Stdio::null()).output();
        let ended = ended.expect("openssl");
        assert!(ended.status.success(), "{}", text(&ended));
    }
    fs::read(folder.join("response.der")).expect(own)
}

/// Output and errors of a program that has ended.
pub fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}
