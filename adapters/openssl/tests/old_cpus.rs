//! The provider in a program on a CPU without AVX, which qemu emulates: it loads, and handshakes can be signed.

#![forbid(unsafe_code)]

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

use common::{Folder, has_openssl, succeeds};

/// `openssl` on the emulated CPU; `None`, and the reason is printed, if that cannot be done here.
fn emulated(folder: &Folder) -> Option<impl Fn(&str) -> Output> {
    let has_emulator = Command::new(EMULATOR).arg("--version").output().is_ok();
    if !has_emulator {
        println!("SKIP: {EMULATOR} is not installed (Debian: qemu-user)");
        return None;
    }
    let folders = std::env::var_os("PATH")?;
    let program: PathBuf = std::env::split_paths(&folders)
        .map(|folder| folder.join("openssl"))
        .find(|file| file.is_file())?;
    Some(move |line: &str| {
        let line = format!("-cpu Nehalem {} {line}", program.display());
        let ended = folder.command(EMULATOR, &line).output();
        ended.expect("the emulator starts")
    })
}

#[test]
fn what_is_signed_on_an_old_cpu_verifies() {
    let folder = Folder::new();
    if !has_openssl() {
        return;
    }
    let Some(openssl) = emulated(&folder) else {
        return;
    };
    let list = succeeds(&openssl("list -providers"));
    let (_, ours) = list.split_once("widelane").expect("the provider is listed");
    assert!(ours.contains("status: active"), "{list}");
    folder.write("text", "a message\n");
    for algorithm in ["rsa:2048", "ec -pkeyopt ec_paramgen_curve:P-256", "ed25519"] {
        let made = format!(
            "req -x509 -nodes -newkey {algorithm} -keyout key.pem -subj /CN=old -out c.pem"
        );
        succeeds(&openssl(&made));
        succeeds(&folder.plainly("verify -CAfile c.pem c.pem"));
    }
}

const EMULATOR: &str = "qemu-x86_64";
