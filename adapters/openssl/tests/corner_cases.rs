//! Configurations, library contexts and keys that few programs have: the provider does its part, or
//! OpenSSL says what is wrong.

#![forbid(unsafe_code)]

mod common;

use common::{Folder, fails_cleanly, has_lanes, has_openssl, provider, succeeds, text};

const SIGN: &str = "req -x509 -new -key key.pem -subj /CN=x -out c.pem -config plain.cnf";
const VERIFY: &str = "verify -auth_level 0 -check_ss_sig -CAfile c.pem c.pem";

fn key(folder: &Folder, algorithm: &str) {
    succeeds(&folder.plainly(&format!("genpkey -algorithm {algorithm} -out key.pem")));
}

/// OpenSSL then has neither a hash function nor a decoder.
#[test]
fn a_configuration_without_the_default_provider_is_an_error() {
    if !has_openssl() {
        return;
    }
    let folder = Folder::of("", &["widelane"], "");
    key(&folder, "RSA -pkeyopt rsa_keygen_bits:2048");
    let list = succeeds(&folder.openssl("list -providers"));
    assert!(
        list.contains("widelane") && !list.contains("default"),
        "{list}"
    );
    fails_cleanly(&folder.openssl(SIGN));
    fails_cleanly(&folder.openssl("s_server -key key.pem -cert key.pem -accept 0"));
}

#[test]
fn default_properties_choose_among_providers() {
    if !has_openssl() {
        return;
    }
    for (properties, works) in [
        ("", true),
        ("?provider=widelane", true),
        ("?fips=yes", true),
        ("provider=default", true),
        ("provider!=widelane", true),
        // There is no such implementation, with ours as without it.
        ("fips=yes", false),
        ("provider=widelane", false),
    ] {
        let folder = Folder::of(properties, &["default", "widelane"], "");
        for algorithm in ["RSA -pkeyopt rsa_keygen_bits:2048", "ED25519"] {
            key(&folder, algorithm);
            let made = folder.openssl(SIGN);
            match works {
                true => {
                    succeeds(&made);
                    succeeds(&folder.plainly(VERIFY));
                    succeeds(&folder.openssl(VERIFY));
                }
                false => drop(fails_cleanly(&made)),
            }
        }
        for algorithm in ["X25519", "EC -pkeyopt ec_paramgen_curve:P-256"] {
            key(&folder, algorithm);
            succeeds(&folder.plainly("pkey -in key.pem -pubout -out peer.pem"));
            let line = "pkeyutl -derive -inkey key.pem -peerkey peer.pem -out secret";
            let agreed = folder.openssl(line);
            assert_eq!(
                agreed.status.success(),
                works,
                "{properties}: {}",
                text(&agreed)
            );
        }
    }
}

/// Two sections of a configuration may name the same file.
#[test]
fn the_provider_may_be_there_twice() {
    if !has_openssl() {
        return;
    }
    let providers = ["default", "widelane", "widelane2"];
    let folder = Folder::of("?widelane.batch=yes", &providers, "");
    key(&folder, "EC -pkeyopt ec_paramgen_curve:P-256");
    succeeds(&folder.openssl(SIGN));
    succeeds(&folder.openssl(VERIFY));
    let list = succeeds(&folder.openssl("list -providers"));
    assert!(list.contains("widelane2"), "{list}");
}

#[test]
fn library_contexts_come_and_go_on_several_threads() {
    run("contexts");
}

#[test]
fn the_provider_is_unloaded_and_loaded_again() {
    run("reload");
}

#[test]
fn damaged_keys_sign_rightly_or_fail() {
    run("damage");
}

fn run(what: &str) {
    let folder = Folder::new();
    let Some(program) = folder.build("contexts").filter(|_| has_openssl()) else {
        return;
    };
    let (config, module) = (folder.path("openssl.cnf"), provider());
    let module = module.parent().expect("a file is in a folder");
    let line = format!("{what} {} {}", config.display(), module.display());
    let ended = folder
        .command(program, &line)
        .env_remove("OPENSSL_CONF")
        .output();
    println!("{}", succeeds(&ended.expect("it starts")));
}

#[test]
fn rsa_keys_of_odd_sizes_sign_all_the_same() {
    run("odd");
}

/// A key in a token of PKCS#11, by OpenSSL's engine for it: a key without a provider.
#[test]
fn keys_in_a_pkcs11_token_sign() {
    const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
    let engine = "/usr/lib/x86_64-linux-gnu/engines-3/pkcs11.so";
    let lacks = [
        MODULE,
        engine,
        "/usr/bin/softhsm2-util",
        "/usr/bin/pkcs11-tool",
    ];
    if lacks
        .iter()
        .any(|file| !std::path::Path::new(file).exists())
        || !has_openssl()
    {
        return println!(
            "SKIP: softhsm2, libengine-pkcs11-openssl and opensc are not all installed"
        );
    }
    let engine = format!(
        "engines = engines\n[engines]\npkcs11 = pkcs11\n\
         [pkcs11]\nengine_id = pkcs11\nMODULE_PATH = {MODULE}\nPIN = 1234\ninit = 0\n"
    );
    let folder = Folder::of("?widelane.batch=yes", &["default", "widelane"], &engine);
    std::fs::create_dir(folder.path("tokens")).expect("our own folder");
    let tokens = folder.path("tokens");
    folder.write(
        "softhsm.conf",
        format!("directories.tokendir = {}\n", tokens.display()),
    );
    let run = |program: &str, line: &str| {
        let mut command = folder.command(program, line);
        let ended = command
            .env("SOFTHSM2_CONF", folder.path("softhsm.conf"))
            .output();
        ended.expect("it is installed")
    };
    succeeds(&run(
        "softhsm2-util",
        "--init-token --free --label t --pin 1234 --so-pin 1234",
    ));
    for (number, kind) in ["rsa:2048", "EC:prime256v1", "EC:secp384r1"]
        .iter()
        .enumerate()
    {
        succeeds(&run(
            "pkcs11-tool",
            &format!(
                "--module {MODULE} --login --pin 1234 --token-label t --keypairgen \
                 --key-type {kind} --label key{number} --id 0{number}"
            ),
        ));
        let key = format!("pkcs11:token=t;object=key{number};type=private");
        let line = SIGN.replace("key.pem", &format!("{key} -engine pkcs11 -keyform engine"));
        succeeds(&run("openssl", &line));
        succeeds(&folder.plainly(VERIFY));
    }
}

/// A simulated TPM, which ends with its test.
struct Tpm(std::process::Child);

impl Drop for Tpm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A key in a TPM, by another provider beside ours. Its private half cannot be copied.
#[test]
fn keys_in_a_tpm_sign() {
    let lacks = [
        "/usr/bin/swtpm",
        "/usr/lib/x86_64-linux-gnu/ossl-modules/tpm2.so",
    ];
    if lacks
        .iter()
        .any(|file| !std::path::Path::new(file).exists())
        || !has_openssl()
    {
        return println!("SKIP: swtpm and tpm2-openssl are not installed");
    }
    let providers = ["tpm2", "default", "widelane"];
    let folder = Folder::of("?widelane.batch=yes", &providers, "");
    let state = folder.path("");
    let socket = folder.path("socket");
    let line = format!(
        "socket --tpm2 --tpmstate dir={} --server type=unixio,path={socket} \
         --ctrl type=unixio,path={socket}.ctrl --flags startup-clear",
        state.display(),
        socket = socket.display()
    );
    let _tpm = Tpm(folder
        .command("swtpm", &line)
        .spawn()
        .expect("it is installed"));
    for _ in 0..600 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let tcti = format!("swtpm:path={}", socket.display());
    let run = |line: &str| {
        let mut command = folder.command("openssl", line);
        let ended = command.env("TPM2OPENSSL_TCTI", &tcti).output();
        ended.expect("it is here")
    };
    let make = "genpkey -propquery provider=tpm2 -out key.pem -algorithm";
    succeeds(&run(&format!("{make} RSA -pkeyopt bits:2048")));
    let pem = std::fs::read_to_string(folder.path("key.pem")).expect("it was written");
    assert!(pem.contains("TSS2 PRIVATE KEY"), "{pem}");
    // Without lanes we offer no signatures, and OpenSSL's own provider asks for the private half.
    if has_lanes() {
        succeeds(&run(SIGN));
        succeeds(&folder.plainly(VERIFY));
    }
    // Of a curve, the public half is copied, because it may be a peer's: OpenSSL says what is missing,
    // unless the configuration prefers the TPM's provider, as its manual says.
    succeeds(&run(&format!("{make} EC -pkeyopt group:P-256")));
    let made = run(SIGN);
    if has_lanes() {
        let said = fails_cleanly(&made);
        assert!(said.contains("missing private key"), "{said}");
    }
    let config = std::fs::read_to_string(folder.path("openssl.cnf")).expect("ours");
    let preferred = "= ?provider=tpm2,tpm2.digest!=yes,tpm2.cipher!=yes,?widelane.batch=yes";
    folder.write(
        "openssl.cnf",
        config.replace("= ?widelane.batch=yes", preferred),
    );
    succeeds(&run(SIGN));
    succeeds(&folder.plainly(VERIFY));
}
