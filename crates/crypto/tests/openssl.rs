//! OpenSSL accepts the signatures and agrees on the public keys. Needs the `openssl` program.

use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use widelane_crypto::rsa::Scheme;
use widelane_crypto::sign::{self, Algorithm, Input, Key, Request};

const MESSAGE: &[u8] = b"signed here, verified there";

#[test]
fn openssl_accepts_every_signature() {
    if !openssl_is_installed() {
        eprintln!("SKIP: openssl is not installed");
        return;
    }
    for path in key_files() {
        let Ok(key) = Key::from_pem(&fs::read(&path).unwrap()) else {
            continue;
        };
        if key.algorithm() != Algorithm::Rsa {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let public = directory.path().join("public.der");
        let message = directory.path().join("message");
        let signature = directory.path().join("signature");
        fs::write(&public, key.public_key_info_der()).unwrap();
        fs::write(&message, MESSAGE).unwrap();
        for scheme in Scheme::ALL {
            let input = Input::Message(MESSAGE);
            let request = Request::new(&key, sign::Scheme::Rsa(scheme), input).unwrap();
            fs::write(&signature, request.alone().unwrap()).unwrap();
            let (hash, pss) = match scheme {
                Scheme::Pkcs1Sha256 => ("-sha256", false),
                Scheme::Pkcs1Sha384 => ("-sha384", false),
                Scheme::Pkcs1Sha512 => ("-sha512", false),
                Scheme::PssSha256 => ("-sha256", true),
                Scheme::PssSha384 => ("-sha384", true),
                Scheme::PssSha512 => ("-sha512", true),
            };
            let mut command = Command::new("openssl");
            command.args(["dgst", hash, "-keyform", "DER", "-verify"]);
            command.arg(&public).arg("-signature").arg(&signature);
            if pss {
                command.args(["-sigopt", "rsa_padding_mode:pss"]);
                command.args(["-sigopt", "rsa_pss_saltlen:digest"]);
            }
            let output = command.arg(&message).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && said.contains("Verified OK"),
                "{} {scheme:?}: {said}{}",
                path.display(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn openssl_derives_the_same_public_key() {
    if !openssl_is_installed() {
        eprintln!("SKIP: openssl is not installed");
        return;
    }
    for path in key_files() {
        let pem = fs::read(&path).unwrap();
        let Ok(key) = Key::from_pem(&pem) else {
            continue;
        };
        let derived = openssl(["pkey", "-pubout", "-outform", "DER", "-in"], &path);
        assert_eq!(key.public_key_info_der(), derived, "{}", path.display());
        if key.algorithm() != Algorithm::Rsa {
            continue;
        }
        let pkcs1 = openssl(["rsa", "-traditional", "-outform", "DER", "-in"], &path);
        let again = Key::from_pkcs1_der(&pkcs1).unwrap();
        assert_eq!(again.public_key_info_der(), derived, "{}", path.display());
        assert!(PrivateKeyDer::from_pem_slice(&pem).is_ok());
    }
}

fn key_files() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<PathBuf> = fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new("pem")))
        .collect();
    files.sort();
    assert!(files.len() > 20);
    files
}

fn openssl<'a>(arguments: impl IntoIterator<Item = &'a str>, file: &Path) -> Vec<u8> {
    let output = Command::new("openssl").args(arguments).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn openssl_is_installed() -> bool {
    Command::new("openssl")
        .arg("version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
