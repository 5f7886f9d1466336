//! The generator against OpenSSL's server: every group and every kind of certificate on either
//! side, alone and in passes.

use rcgen::{CertificateParams, KeyPair};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use widelane_load::{Arrivals, Identity, Plan, Trust, run};

/// `openssl s_server` on a free port. Dropping it ends it.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(["s_server", "-accept", "127.0.0.1:0", "-www"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        let stdout = child.stdout.take().expect("stdout");
        let address = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("ACCEPT ")?.parse().ok())
            .expect("an address");
        Self { child, address }
    }

    fn plan(&self) -> Plan {
        let mut plan = Plan::new(&self.address.to_string()).expect("an address");
        plan.offer.trust = Trust::Unchecked;
        plan.warmup = Duration::ZERO;
        plan.duration = Duration::from_secs(60);
        plan.timeout = Duration::from_secs(30);
        plan.limit = Some(12);
        plan
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A self-signed certificate and its key in one file.
fn pair(folder: &TempDir, name: &str, algorithm: &'static rcgen::SignatureAlgorithm) -> String {
    let key = KeyPair::generate_for(algorithm).expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let file = folder.path().join(name);
    std::fs::write(&file, certificate.pem() + &key.serialize_pem()).expect("written");
    file.to_str().expect("UTF-8").to_owned()
}

#[test]
fn every_group_and_every_kind_of_certificate_on_either_side() {
    let Some(program) = std::env::var_os("WIDELANE_OPENSSL").map(PathBuf::from) else {
        eprintln!("SKIP: WIDELANE_OPENSSL names no OpenSSL 3.5 or newer");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let kinds = KINDS.map(|(name, algorithm)| (name, pair(&folder, name, algorithm)));
    for (place, (signature, file)) in kinds.iter().enumerate() {
        // Each kind with some groups, and over all kinds each group.
        for group in GROUPS.iter().skip(place % 2).step_by(2) {
            let server = Server::start(
                &program,
                &[
                    "-cert", file, "-key", file, "-groups", group, "-Verify", "1",
                ],
            );
            for concurrency in [1, 8] {
                let mut plan = server.plan();
                plan.arrivals = Arrivals::Concurrency(concurrency);
                let ours = group.to_ascii_lowercase();
                plan.offer.groups = vec![ours.parse().expect("a group")];
                plan.offer.identity = Some(Identity {
                    certificate: file.into(),
                    key: file.into(),
                });
                let report = run(&plan).unwrap_or_else(|error| panic!("{group}: {error}"));
                assert_eq!((report.completed, report.errors), (12, 0), "{report}");
                let expected = ours.parse::<widelane_load::Group>().expect("a group");
                assert_eq!(report.group, Some(expected.to_string()), "{report}");
                assert_eq!(report.signature.as_deref(), Some(*signature), "{report}");
            }
        }
    }
}

/// Names in OpenSSL, and ours in lower case.
const GROUPS: [&str; 8] = [
    "X25519",
    "P-256",
    "P-384",
    "X25519MLKEM768",
    "SecP256r1MLKEM768",
    "SecP384r1MLKEM1024",
    "MLKEM768",
    "MLKEM1024",
];

/// By the name of their signature, with what we prefer of an RSA key's.
const KINDS: [(&str, &rcgen::SignatureAlgorithm); 5] = [
    ("rsa_pss_rsae_sha256", &rcgen::PKCS_RSA_SHA256),
    ("ecdsa_secp256r1_sha256", &rcgen::PKCS_ECDSA_P256_SHA256),
    ("ecdsa_secp384r1_sha384", &rcgen::PKCS_ECDSA_P384_SHA384),
    ("ed25519", &rcgen::PKCS_ED25519),
    ("mldsa65", &rcgen::PKCS_ML_DSA_65),
];
