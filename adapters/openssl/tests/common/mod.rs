//! What tests with programs share: where the provider is, configurations, programs in C.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

/// A folder with a configuration of OpenSSL's.
pub struct Folder(TempDir);

impl Folder {
    /// With the provider beside OpenSSL's own, and preferred.
    pub fn new() -> Self {
        Self::of("?widelane.batch=yes", &["default", "widelane"], "")
    }

    /// With these default properties and providers; `more` stands in the section of all.
    pub fn of(properties: &str, providers: &[&str], more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut config = "config_diagnostics = 1\nopenssl_conf = conf\n\
             [conf]\nproviders = providers\nalg_section = properties\n"
            .to_owned();
        config += &format!("{more}\n[properties]\n");
        if !properties.is_empty() {
            config += &format!("default_properties = {properties}\n");
        }
        config += "[providers]\n";
        for name in providers {
            config += &format!("{name} = section_{name}\n");
        }
        for name in providers {
            config += &format!("[section_{name}]\nactivate = 1\n");
            if name.starts_with("widelane") {
                config += &format!("module = {}\n", provider().display());
            }
        }
        let of = Self(folder);
        of.write("openssl.cnf", config);
        // Without anything of ours.
        of.write("plain.cnf", "");
        of
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).expect("our own folder");
    }

    /// A program that runs in the folder, with the configuration.
    pub fn command(&self, program: impl AsRef<Path>, line: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env("OPENSSL_CONF", self.path("openssl.cnf"))
            .stdin(Stdio::null());
        command
    }

    pub fn openssl(&self, line: &str) -> Output {
        let ended = self.command("openssl", line).output();
        ended.expect("the openssl program is here")
    }

    /// Without the provider.
    pub fn plainly(&self, line: &str) -> Output {
        let mut command = self.command("openssl", line);
        let ended = command.env("OPENSSL_CONF", self.path("plain.cnf")).output();
        ended.expect("the openssl program is here")
    }

    /// A program of this folder of tests, which all tests of a process share. `None`, and the reason is
    /// printed, if it cannot be built here.
    pub fn build(&self, name: &str) -> Option<PathBuf> {
        static BUILT: Mutex<BTreeMap<String, Result<PathBuf, String>>> =
            Mutex::new(BTreeMap::new());
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        let program = built.entry(name.into()).or_insert_with(|| compile(name));
        match program {
            Ok(program) => Some(program.clone()),
            Err(reason) => {
                println!("SKIP: {reason}");
                None
            }
        }
    }
}

fn compile(name: &str) -> Result<PathBuf, String> {
    if !Path::new("/usr/include/openssl/async.h").exists() {
        return Err("OpenSSL's headers are not installed (Debian: libssl-dev)".into());
    }
    let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("openssl-{name}"));
    let built = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .args([&source, "-lcrypto", "-lm"])
        .output();
    let built = built.map_err(|error| format!("cc: {error}"))?;
    assert!(built.status.success(), "{built:?}");
    Ok(program)
}

/// Whether there is a program `openssl` of version 3 or later.
pub fn has_openssl() -> bool {
    let version = Command::new("openssl").arg("version").output();
    let text = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let usable =
        text.is_ok_and(|text| text.starts_with("OpenSSL 3") || text.starts_with("OpenSSL 4"));
    if !usable {
        println!("SKIP: there is no openssl program of version 3 or later");
    }
    usable
}

#[track_caller]
pub fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(output));
    text(output)
}

/// It ended by itself, with an error.
#[track_caller]
pub fn fails_cleanly(output: &Output) -> String {
    let said = text(output);
    assert!(output.status.code().is_some_and(|code| code != 0), "{said}");
    said
}

pub fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}\n{}", output.status)
}

/// Where cargo has put the library.
pub fn provider() -> PathBuf {
    let test = std::env::current_exe().expect("a program has a file");
    let deps = test.parent().expect("a file is in a folder");
    let places = [deps, deps.parent().expect("the target folder")];
    let files = places.map(|folder| folder.join("libwidelane_openssl.so"));
    let mut files = files.into_iter();
    files
        .find(|file| file.exists())
        .expect("cargo builds it for integration tests")
}

/// Whether this CPU runs the kernels: without them, the provider offers what OpenSSL lacks.
pub fn has_lanes() -> bool {
    widelane_cpu::lanes().exist()
}
