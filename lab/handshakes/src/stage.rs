//! Common needs of comparisons: a folder, certificates, and programs run on their CPUs.

use crate::condition::{ECDSA_HOST, RSA_HOST};
use crate::error::TrialError;
use crate::interrupt::Interrupt;
use crate::options::Options;
use crate::process;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::RootCertStore;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};
use tempfile::TempDir;

/// Folder, certificates and programs of a comparison. Dropping it removes the folder.
#[derive(Debug)]
pub struct Stage {
    pub(crate) options: Options,
    pub(crate) interrupt: Interrupt,
    folder: TempDir,
}

impl Stage {
    /// Makes folder and certificates, and from here on turns Ctrl-C into an orderly end.
    ///
    /// # Errors
    ///
    /// What cannot be made or found.
    pub fn set(options: Options) -> Result<Self, TrialError> {
        if !options.widelane.is_file() {
            return Err(TrialError::Run {
                command: options.widelane.display().to_string(),
                reason: "there is no such program; `cargo build --release -p widelane`".into(),
            });
        }
        let listen = TrialError::machine("cannot listen to signals");
        let interrupt = Interrupt::listen().map_err(listen)?;
        let folder = tempfile::Builder::new();
        let folder = { folder }
            .prefix("widelane-handshakes-")
            .tempdir()
            .map_err(TrialError::Folder)?;
        let stage = Self {
            options,
            interrupt,
            folder,
        };
        stage.make_certificates()?;
        Ok(stage)
    }

    /// Programs and the CPUs on which they run.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Runs servers from now on on a CPU that behaves as a model's does, or as this one if it is `None`.
    pub fn emulate(&mut self, model: Option<&str>) {
        self.options.model = model.map(str::to_owned);
    }

    /// Flag that Ctrl-C or its like sets.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Runs a program that prints one JSON object, on the load's CPU.
    ///
    /// # Errors
    ///
    /// When the program fails, or prints something else.
    pub fn figures(&self, command: &mut Command) -> Result<Value, TrialError> {
        let printed = process::output(command, self.options.load_cpu, &self.interrupt)?;
        serde_json::from_slice(&printed).map_err(|source| TrialError::Figures {
            command: command.get_program().to_string_lossy().into_owned(),
            source,
        })
    }

    /// Runs a program on the servers' CPU and gives what it printed.
    pub(crate) fn printed(&self, command: &mut Command) -> Result<Vec<u8>, TrialError> {
        process::output(command, self.options.server_cpu, &self.interrupt)
    }

    /// Folder for everything that lasts no longer than the comparison.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Certificate and key of each kind, for the same name: the client's offer decides which.
    pub fn certificates(&self) -> [(PathBuf, PathBuf); 2] {
        CERTIFICATES.map(|(kind, ..)| self.pair(kind))
    }

    /// Certificate and key of clients, of each kind, for servers that ask for them.
    pub(crate) fn clients(&self) -> [(PathBuf, PathBuf); 2] {
        CERTIFICATES.map(|(kind, ..)| self.pair(&format!("client-{kind}")))
    }

    /// The certificates of the servers, for clients that trust them.
    pub(crate) fn roots(&self) -> io::Result<RootCertStore> {
        roots(self.certificates().map(|(certificate, _)| certificate))
    }

    /// The certificate of the authority that has signed those of the clients.
    pub(crate) fn client_authority(&self) -> PathBuf {
        self.pair("client-authority").0
    }

    fn pair(&self, name: &str) -> (PathBuf, PathBuf) {
        let file = |ending| self.folder().join(format!("{name}.{ending}"));
        (file("pem"), file("key"))
    }

    /// The socket of a backend that is not there.
    pub(crate) fn backend(&self) -> PathBuf {
        self.folder().join("backend.sock")
    }

    fn make_certificates(&self) -> Result<(), TrialError> {
        // RSA keys are of 2048 bits.
        for ((_, algorithm, host), files) in CERTIFICATES.iter().zip(self.certificates()) {
            let key = KeyPair::generate_for(algorithm)?;
            let names = ["localhost".into(), "127.0.0.1".into(), (*host).into()];
            let certificate = CertificateParams::new(names)?.self_signed(&key)?;
            keep(&files, &certificate.pem(), &key)?;
        }
        let mut authority = CertificateParams::new([])?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut authority.distinguished_name;
        name.push(DnType::CommonName, "authority of clients");
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let authority = CertifiedIssuer::self_signed(authority, key)?;
        fs::write(self.client_authority(), authority.pem()).map_err(TrialError::Folder)?;
        for ((_, algorithm, _), files) in CERTIFICATES.iter().zip(self.clients()) {
            let key = KeyPair::generate_for(algorithm)?;
            let client = CertificateParams::new(["client.localhost".into()])?;
            let certificate = client.signed_by(&key, &authority)?;
            keep(&files, &certificate.pem(), &key)?;
        }
        Ok(())
    }
}

/// The first certificate of each file, to be trusted.
pub(crate) fn roots(files: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for file in files {
        let chain = widelane_pem::chain(&fs::read(file)?).map_err(io::Error::other)?;
        roots.add(chain[0].value.clone()).map_err(io::Error::other)?;
    }
    Ok(roots)
}

/// Writes a certificate and its key into their files.
fn keep(files: &(PathBuf, PathBuf), certificate: &str, key: &KeyPair) -> Result<(), TrialError> {
    fs::write(&files.0, certificate)
        .and_then(|()| fs::write(&files.1, key.serialize_pem()))
        .map_err(TrialError::Folder)
}

/// Raises the limit of open descriptors for us and what we start, and gives what it is now.
pub(crate) fn raise_descriptors(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let enough = now.current.is_none_or(|limit| limit >= wanted);
    if !enough {
        let most = now.maximum.map_or(wanted, |hard| hard.max(wanted));
        let raised = Rlimit {
            current: Some(wanted),
            maximum: Some(most),
        };
        // Only root may go over the hard limit; others get what that allows.
        if setrlimit(Resource::Nofile, raised).is_err() {
            let allowed = Rlimit {
                current: now.maximum,
                maximum: now.maximum,
            };
            let _ = setrlimit(Resource::Nofile, allowed);
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Kind, algorithm of the key, and a host name of its own.
const CERTIFICATES: [(&str, &rcgen::SignatureAlgorithm, &str); 2] = [
    ("rsa", &rcgen::PKCS_RSA_SHA256, RSA_HOST),
    ("ecdsa", &rcgen::PKCS_ECDSA_P256_SHA256, ECDSA_HOST),
];
