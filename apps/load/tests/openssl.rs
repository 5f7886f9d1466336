//! The generator against OpenSSL's server: every group and every kind of certificate on either
//! side, alone and in passes.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use widelane_load::{Arrivals, Identity, Plan, Trust, run};
use widelane_testkit::certificates::{self, Kind};
use widelane_testkit::folder::Folder;
use widelane_testkit::openssl::{GROUPS, Server};

fn plan(server: &Server) -> Plan {
    let mut plan = Plan::new(&server.address.to_string()).expect("an address");
    plan.offer.trust = Trust::Unchecked;
    plan.warmup = Duration::ZERO;
    plan.duration = Duration::from_secs(60);
    plan.timeout = Duration::from_secs(30);
    plan.limit = Some(12);
    plan
}

#[test]
fn every_group_and_every_kind_of_certificate_on_either_side() {
    let Some(program) = std::env::var_os("WIDELANE_OPENSSL").map(PathBuf::from) else {
        eprintln!("SKIP: WIDELANE_OPENSSL names no OpenSSL 3.5 or newer");
        return;
    };
    let folder = Folder::new();
    let kinds = KINDS.map(|(name, kind)| {
        let file = folder.write(name, certificates::Identity::new(kind, &["localhost"]).both());
        (name, file.display().to_string())
    });
    for (place, (signature, file)) in kinds.iter().enumerate() {
        // Each kind with some groups, and over all kinds each group.
        for group in GROUPS.iter().skip(place % 2).step_by(2) {
            let keys = ["-www", "-cert", file, "-key", file];
            let wishes = ["-groups", group, "-Verify", "1"];
            let server = Server::start(&mut Command::new(&program), &[&keys[..], &wishes].concat());
            for concurrency in [1, 8] {
                let mut plan = plan(&server);
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

/// By the name of their signature, with what we prefer of an RSA key's.
const KINDS: [(&str, Kind); 5] = [
    ("rsa_pss_rsae_sha256", Kind::Rsa),
    ("ecdsa_secp256r1_sha256", Kind::Ecdsa),
    ("ecdsa_secp384r1_sha384", Kind::EcdsaP384),
    ("ed25519", Kind::Ed25519),
    ("mldsa65", Kind::MlDsa65),
];
