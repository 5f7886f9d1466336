//! The provider in the `openssl` program: what it signs, agrees on and negotiates must be the same to
//! a program without it.

#![forbid(unsafe_code)]

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A folder with keys and the configuration that loads the provider.
struct Scratch {
    folder: TempDir,
}

/// Whether a program runs with the provider.
#[derive(Clone, Copy, Debug, PartialEq)]
enum With {
    Widelane,
    Default,
}

impl Scratch {
    /// `None`, and the reason is printed, if the program is not here.
    fn new(options: &str) -> Option<Self> {
        let version = Command::new("openssl").arg("version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        match version {
            Ok(text) if text.starts_with("OpenSSL 3") || text.starts_with("OpenSSL 4") => {}
            _ => {
                println!("SKIP: there is no openssl program of version 3 or later");
                return None;
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let module = provider();
        let config = format!(
            "openssl_conf = conf\n[conf]\nproviders = providers\nalg_section = properties\n\
             [properties]\ndefault_properties = ?widelane.batch=yes\n\
             [providers]\ndefault = default_section\nwidelane = widelane_section\n\
             [default_section]\nactivate = 1\n\
             [widelane_section]\nmodule = {}\nactivate = 1\n{options}\n",
            module.display()
        );
        fs::write(folder.path().join("widelane.cnf"), config).unwrap();
        fs::write(folder.path().join("default.cnf"), "").unwrap();
        Some(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A call of the program in the folder.
    fn openssl(&self, with: With, line: &str) -> Command {
        let mut command = Command::new("openssl");
        let config = match with {
            With::Widelane => "widelane.cnf",
            With::Default => "default.cnf",
        };
        command
            .args(line.split_whitespace())
            .current_dir(self.folder.path())
            .env("OPENSSL_CONF", self.path(config))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, with: With, line: &str) -> Output {
        self.openssl(with, line).output().unwrap()
    }

    #[track_caller]
    fn succeeds(&self, with: With, line: &str) -> String {
        let output = self.run(with, line);
        let text = text(&output);
        assert!(output.status.success(), "openssl {line} ({with:?}): {text}");
        text
    }

    #[track_caller]
    fn fails_cleanly(&self, with: With, line: &str) {
        let output = self.run(with, line);
        assert_eq!(
            output.status.code(),
            Some(1),
            "openssl {line}: {}",
            text(&output)
        );
    }

    /// Keys of all kinds, made without the provider.
    fn keys(&self) {
        for (name, algorithm) in KEYS {
            self.succeeds(
                With::Default,
                &format!("genpkey -algorithm {algorithm} -out {name}.pem"),
            );
        }
    }
}

const KEYS: [(&str, &str); 6] = [
    ("rsa", "RSA -pkeyopt rsa_keygen_bits:2048"),
    ("rsa1024", "RSA -pkeyopt rsa_keygen_bits:1024"),
    ("p256", "EC -pkeyopt ec_paramgen_curve:P-256"),
    ("p384", "EC -pkeyopt ec_paramgen_curve:P-384"),
    ("p521", "EC -pkeyopt ec_paramgen_curve:P-521"),
    ("ed25519", "ED25519"),
];

/// The provider that belongs to this test: cargo builds both into the same folder.
fn provider() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let places = [deps.parent().unwrap(), deps];
    let found = places.map(|folder| folder.join("libwidelane_openssl.so"));
    let found = found.iter().find(|file| file.exists());
    found
        .expect("cargo builds the shared library for integration tests")
        .clone()
}

/// Whether this CPU runs the kernels: without them, the provider offers nothing.
fn has_lanes() -> bool {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let disabled = std::env::var("WIDELANE_CPU_DISABLE").unwrap_or_default();
    flags.contains("avx512ifma") && !disabled.contains("avx512ifma")
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

#[test]
fn the_provider_is_loaded_beside_the_default_one() {
    let Some(scratch) = Scratch::new("log = info") else {
        return;
    };
    let list = scratch.succeeds(With::Widelane, "list -providers");
    assert!(
        list.contains("default") && list.contains("widelane"),
        "{list}"
    );
    let signatures = scratch.succeeds(With::Widelane, "list -signature-algorithms");
    assert_eq!(
        signatures.contains("ECDSA @ widelane"),
        has_lanes(),
        "{signatures}"
    );
}

#[test]
fn options_are_respected_and_mistakes_are_named() {
    let Some(scratch) = Scratch::new("operations = ecdsa") else {
        return;
    };
    let signatures = scratch.succeeds(With::Widelane, "list -signature-algorithms");
    assert_eq!(
        signatures.contains("ECDSA @ widelane"),
        has_lanes(),
        "{signatures}"
    );
    assert!(!signatures.contains("ED25519 } @ widelane"), "{signatures}");
    let wrong = Scratch::new("operations = dsa").unwrap();
    let said = text(&wrong.run(With::Widelane, "version"));
    let said = said + &text(&wrong.run(With::Widelane, "list -providers"));
    assert!(said.contains("`dsa` is none of rsa, ecdsa"), "{said}");
}

/// Certificates are signed in one shot, as handshakes are.
#[test]
fn certificates_of_all_keys_verify_without_the_provider() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    scratch.keys();
    for (name, _) in KEYS {
        for (signer, verifier) in [
            (With::Widelane, With::Default),
            (With::Default, With::Widelane),
        ] {
            for options in [
                "",
                "-sha384",
                "-sigopt rsa_padding_mode:pss",
                "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:-1",
                "-sha512 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:20",
            ] {
                if options.contains("rsa") && !name.starts_with("rsa")
                    || name == "ed25519" && !options.is_empty()
                    || name == "rsa1024" && options.contains("sha512")
                {
                    continue;
                }
                scratch.succeeds(
                    signer,
                    &format!("req -x509 -new -key {name}.pem -subj /CN={name} {options} -out c.pem -config default.cnf"),
                );
                scratch.succeeds(verifier, "verify -auth_level 0 -CAfile c.pem c.pem");
            }
        }
        // A certificate whose signature was damaged is refused.
        scratch.succeeds(With::Widelane, "x509 -in c.pem -outform DER -out c.der");
        let mut der = fs::read(scratch.path("c.der")).unwrap();
        *der.last_mut().unwrap() ^= 1;
        fs::write(scratch.path("c.der"), der).unwrap();
        scratch.succeeds(With::Widelane, "x509 -inform DER -in c.der -out d.pem");
        let refused = scratch.run(With::Widelane, "verify -check_ss_sig -CAfile d.pem d.pem");
        assert!(!refused.status.success(), "{name}: {}", text(&refused));
    }
}

/// Streams, other hash functions and raw signatures are the default provider's.
#[test]
fn what_lanes_do_not_sign_is_signed_all_the_same() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    scratch.keys();
    fs::write(scratch.path("text"), "a message\n".repeat(1000)).unwrap();
    for (name, _) in KEYS.iter().filter(|(name, _)| *name != "ed25519") {
        scratch.succeeds(
            With::Default,
            &format!("pkey -in {name}.pem -pubout -out pub.pem"),
        );
        for hash in ["sha1", "sha256", "sha512", "sha3-256"] {
            for (signer, verifier) in [
                (With::Widelane, With::Default),
                (With::Default, With::Widelane),
            ] {
                scratch.succeeds(
                    signer,
                    &format!("dgst -{hash} -sign {name}.pem -out s text"),
                );
                scratch.succeeds(
                    verifier,
                    &format!("dgst -{hash} -verify pub.pem -signature s text"),
                );
            }
        }
    }
    scratch.succeeds(With::Default, "pkey -in ed25519.pem -pubout -out pub.pem");
    scratch.succeeds(
        With::Widelane,
        "pkeyutl -sign -rawin -inkey ed25519.pem -in text -out s",
    );
    scratch.succeeds(
        With::Default,
        "pkeyutl -verify -rawin -pubin -inkey pub.pem -sigfile s -in text",
    );
    // An encrypted message takes RSA keys, too, which are none of ours there.
    scratch.succeeds(With::Default, "pkey -in rsa.pem -pubout -out pub.pem");
    fs::write(scratch.path("short"), "secret").unwrap();
    scratch.succeeds(
        With::Widelane,
        "pkeyutl -encrypt -pubin -inkey pub.pem -in short -out e",
    );
    scratch.succeeds(
        With::Widelane,
        "pkeyutl -decrypt -inkey rsa.pem -in e -out d",
    );
    assert_eq!(fs::read(scratch.path("d")).unwrap(), b"secret");
}

#[test]
fn both_sides_agree_whoever_makes_the_keys() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    for algorithm in [
        "X25519",
        "EC -pkeyopt ec_paramgen_curve:P-256",
        "EC -pkeyopt ec_paramgen_curve:P-384",
        "EC -pkeyopt ec_paramgen_curve:P-521",
        "EC -pkeyopt ec_paramgen_curve:secp256k1",
    ] {
        for (one, other) in [
            (With::Widelane, With::Default),
            (With::Widelane, With::Widelane),
        ] {
            for (with, name) in [(one, "one"), (other, "other")] {
                scratch.succeeds(
                    with,
                    &format!("genpkey -algorithm {algorithm} -out {name}.pem"),
                );
                scratch.succeeds(
                    with,
                    &format!("pkey -in {name}.pem -pubout -out {name}.pub"),
                );
            }
            let derive = |with, own: &str, peer: &str| {
                scratch.succeeds(
                    with,
                    &format!("pkeyutl -derive -inkey {own}.pem -peerkey {peer}.pub -out secret"),
                );
                fs::read(scratch.path("secret")).unwrap()
            };
            let secret = derive(one, "one", "other");
            assert!(secret.len() >= 32);
            assert_eq!(secret, derive(other, "other", "one"), "{algorithm}");
            assert_eq!(secret, derive(With::Default, "one", "other"), "{algorithm}");
        }
    }
}

#[test]
fn wrong_keys_are_errors() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    scratch.keys();
    let pem = fs::read_to_string(scratch.path("rsa.pem")).unwrap();
    fs::write(scratch.path("damaged.pem"), pem.replacen('A', "B", 5)).unwrap();
    scratch.fails_cleanly(
        With::Widelane,
        "req -x509 -new -key damaged.pem -subj /CN=x -out c.pem -config default.cnf",
    );
    scratch.fails_cleanly(
        With::Widelane,
        "pkeyutl -derive -inkey rsa.pem -peerkey rsa.pem -out s",
    );
    scratch.succeeds(With::Default, "genpkey -algorithm X25519 -out x.pem");
    scratch.succeeds(With::Default, "pkey -in p256.pem -pubout -out p256.pub");
    scratch.fails_cleanly(
        With::Widelane,
        "pkeyutl -derive -inkey x.pem -peerkey p256.pub -out s",
    );
}

/// Keys that lanes do not take, or that only some libraries take.
#[test]
fn unusual_keys_sign_all_the_same() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    for algorithm in [
        "RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_pubexp:3",
        "RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_pubexp:1073741827",
        "RSA -pkeyopt rsa_keygen_bits:2056",
        "RSA -pkeyopt rsa_keygen_bits:2048 -pkeyopt rsa_keygen_primes:3",
        "RSA-PSS -pkeyopt rsa_keygen_bits:2048",
        "EC -pkeyopt ec_paramgen_curve:brainpoolP256r1",
        "EC -pkeyopt ec_paramgen_curve:P-256 -pkeyopt ec_param_enc:explicit",
        "ED448",
    ] {
        scratch.succeeds(
            With::Widelane,
            &format!("genpkey -algorithm {algorithm} -out key.pem"),
        );
        scratch.succeeds(
            With::Widelane,
            "req -x509 -new -key key.pem -subj /CN=x -out c.pem -config default.cnf",
        );
        scratch.succeeds(
            With::Default,
            "verify -auth_level 0 -check_ss_sig -CAfile c.pem c.pem",
        );
    }
}

#[test]
fn signed_messages_verify_without_the_provider() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    scratch.keys();
    fs::write(scratch.path("text"), "a message").unwrap();
    for key in ["rsa", "p256", "p384"] {
        scratch.succeeds(
            With::Default,
            &format!(
                "req -x509 -new -key {key}.pem -subj /CN=x -out {key}.crt -config default.cnf"
            ),
        );
        for (signer, verifier) in [
            (With::Widelane, With::Default),
            (With::Default, With::Widelane),
        ] {
            scratch.succeeds(
                signer,
                &format!("cms -sign -in text -signer {key}.crt -inkey {key}.pem -out signed"),
            );
            scratch.succeeds(
                verifier,
                &format!("cms -verify -in signed -CAfile {key}.crt -purpose any -out plain"),
            );
        }
    }
}

/// A program's own property query wins over the configured one.
#[test]
fn property_queries_choose_the_provider() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    scratch.keys();
    fs::write(scratch.path("text"), "a message").unwrap();
    let sign = "dgst -sha256 -sign rsa.pem -out s";
    for query in ["provider=default", "?provider=widelane", "?fips=yes"] {
        scratch.succeeds(With::Widelane, &format!("{sign} -propquery {query} text"));
    }
    // There is no such provider, with ours as without it.
    for with in [With::Widelane, With::Default] {
        scratch.fails_cleanly(with, &format!("{sign} -propquery fips=yes text"));
    }
}

/// Jobs of OpenSSL's own are paused and resumed by an application that polls descriptors.
#[test]
fn paused_jobs_come_to_their_end() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    let line = "speed -seconds 1 -async_jobs 8 ecdhx25519";
    let said = scratch.succeeds(With::Widelane, line);
    assert!(said.contains("253 bits ecdh"), "{said}");
}

/// A server that ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts `s_server` and waits until it accepts.
    fn start(scratch: &Scratch, with: With, options: &str) -> (Self, u16) {
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
}

fn handshake(scratch: &Scratch, with: With, port: u16, options: &str) -> Output {
    scratch.run(
        with,
        &format!("s_client -connect 127.0.0.1:{port} -brief {options}"),
    )
}

#[test]
fn handshakes_of_all_keys_groups_and_versions() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    scratch.keys();
    for key in ["rsa", "p256", "ed25519"] {
        scratch.succeeds(
            With::Default,
            &format!("req -x509 -new -key {key}.pem -subj /CN=localhost -out {key}.crt -config default.cnf"),
        );
        for mode in ["", "-async"] {
            let options = format!("-key {key}.pem -cert {key}.crt {mode}");
            let (_server, port) = Server::start(&scratch, With::Widelane, &options);
            for group in ["X25519", "P-256", "P-384", "P-521"] {
                for version in ["-tls1_3", "-tls1_2"] {
                    // In TLS 1.2 the groups say also which certificates the client takes.
                    let groups = match (key, version) {
                        ("p256", "-tls1_2") if group != "P-256" => format!("{group}:P-256"),
                        _ => group.to_owned(),
                    };
                    let output = handshake(
                        &scratch,
                        With::Default,
                        port,
                        &format!(
                            "{version} -groups {groups} -CAfile {key}.crt -verify_return_error"
                        ),
                    );
                    let text = text(&output);
                    assert!(
                        output.status.success(),
                        "{key} {group} {version} {mode}: {text}"
                    );
                    assert!(text.contains("Verification: OK"), "{text}");
                }
            }
        }
    }
}

#[test]
fn post_quantum_groups_work_on_every_openssl() {
    let Some(scratch) = Scratch::new("") else {
        return;
    };
    if !has_lanes() {
        println!("SKIP: the provider offers nothing without AVX-512 IFMA");
        return;
    }
    scratch.keys();
    scratch.succeeds(
        With::Default,
        "req -x509 -new -key p256.pem -subj /CN=localhost -out p256.crt -config default.cnf",
    );
    for group in [
        "X25519MLKEM768",
        "SecP256r1MLKEM768",
        "SecP384r1MLKEM1024",
        "MLKEM768",
        "MLKEM1024",
    ] {
        let options = format!("-key p256.pem -cert p256.crt -groups {group}");
        let (_server, port) = Server::start(&scratch, With::Widelane, &options);
        let output = handshake(
            &scratch,
            With::Widelane,
            port,
            &format!("-groups {group} -CAfile p256.crt"),
        );
        let said = text(&output);
        assert!(
            output.status.success() && said.contains("Verification: OK"),
            "{group}: {said}"
        );
        // A second implementation, where there is one.
        let Some(second) = second_openssl() else {
            continue;
        };
        let line =
            format!("s_client -connect 127.0.0.1:{port} -brief -groups {group} -CAfile p256.crt");
        let output = Command::new(second)
            .args(line.split(' '))
            .current_dir(scratch.folder.path())
            .env_remove("OPENSSL_CONF")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{group}: {}", text(&output));
    }
}

/// A newer openssl program that the tests were given.
fn second_openssl() -> Option<PathBuf> {
    let program = std::env::var_os("WIDELANE_OPENSSL").map(PathBuf::from);
    match program.filter(|program: &PathBuf| Path::exists(program)) {
        Some(program) => Some(program),
        None => {
            println!("SKIP: WIDELANE_OPENSSL names no second openssl program");
            None
        }
    }
}
