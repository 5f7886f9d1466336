//! Configurations, library contexts and keys that few programs have: the provider does its part, or
//! OpenSSL says what is wrong.

#![forbid(unsafe_code)]

mod common;

use std::path::Path;

use common::{Configuration, Scratch, With, has_lanes, provider, succeeds, text};
use widelane_testkit::process::Running;
use widelane_testkit::wait::eventually;

const SIGN: &str = "req -x509 -new -key key.pem -subj /CN=x -out c.pem -config default.cnf";
const VERIFY: &str = "verify -auth_level 0 -check_ss_sig -CAfile c.pem c.pem";

fn scratch(properties: &str, providers: &[&str], more: &str) -> Option<Scratch> {
    Scratch::system(Configuration {
        properties,
        providers,
        more,
        ..Configuration::default()
    })
}

fn key(folder: &Scratch, algorithm: &str) {
    let make = format!("genpkey -algorithm {algorithm} -out key.pem");
    folder.succeeds(With::Default, &make);
}

/// OpenSSL then has neither a hash function nor a decoder.
#[test]
fn a_configuration_without_the_default_provider_is_an_error() {
    let Some(folder) = scratch("", &["widelane"], "") else {
        return;
    };
    key(&folder, "RSA -pkeyopt rsa_keygen_bits:2048");
    let list = folder.succeeds(With::Widelane, "list -providers");
    assert!(list.contains("widelane") && !list.contains("default"), "{list}");
    folder.fails_cleanly(With::Widelane, SIGN);
    folder.fails_cleanly(With::Widelane, "s_server -key key.pem -cert key.pem -accept 0");
}

#[test]
fn default_properties_choose_among_providers() {
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
        let Some(folder) = scratch(properties, &["default", "widelane"], "") else {
            return;
        };
        for algorithm in ["RSA -pkeyopt rsa_keygen_bits:2048", "ED25519"] {
            key(&folder, algorithm);
            match works {
                true => {
                    folder.succeeds(With::Widelane, SIGN);
                    folder.succeeds(With::Default, VERIFY);
                    folder.succeeds(With::Widelane, VERIFY);
                }
                false => drop(folder.fails_cleanly(With::Widelane, SIGN)),
            }
        }
        for algorithm in ["X25519", "EC -pkeyopt ec_paramgen_curve:P-256"] {
            key(&folder, algorithm);
            folder.succeeds(With::Default, "pkey -in key.pem -pubout -out peer.pem");
            let line = "pkeyutl -derive -inkey key.pem -peerkey peer.pem -out secret";
            let agreed = folder.run(With::Widelane, line);
            assert_eq!(agreed.status.success(), works, "{properties}: {}", text(&agreed));
        }
    }
}

/// Two sections of a configuration may name the same file.
#[test]
fn the_provider_may_be_there_twice() {
    let providers = ["default", "widelane", "widelane2"];
    let Some(folder) = scratch("?widelane.batch=yes", &providers, "") else {
        return;
    };
    key(&folder, "EC -pkeyopt ec_paramgen_curve:P-256");
    folder.succeeds(With::Widelane, SIGN);
    folder.succeeds(With::Widelane, VERIFY);
    let list = folder.succeeds(With::Widelane, "list -providers");
    assert!(list.contains("widelane2"), "{list}");
}

#[test]
fn library_contexts_come_and_go_on_several_threads() {
    run("contexts");
}

#[test]
fn groups_are_announced_by_lists_that_are_made_once() {
    run("groups");
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
    let Some(folder) = Scratch::system(Configuration::default()) else {
        return;
    };
    let Some(program) = folder.build("contexts") else {
        return;
    };
    let (config, module) = (folder.config(With::Widelane), provider());
    let module = module.parent().expect("a file is in a folder");
    let line = format!("{what} {} {}", config.display(), module.display());
    let mut command = folder.command(With::Widelane, program, &line);
    println!("{}", succeeds(command.env_remove("OPENSSL_CONF")));
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
    let lacks = [MODULE, engine, "/usr/bin/softhsm2-util", "/usr/bin/pkcs11-tool"];
    if !lacks.iter().all(|file| Path::new(file).exists()) {
        return println!("SKIP: softhsm2, libengine-pkcs11-openssl and opensc are not all installed");
    }
    let engine = format!(
        "engines = engines\n[engines]\npkcs11 = pkcs11\n\
         [pkcs11]\nengine_id = pkcs11\nMODULE_PATH = {MODULE}\nPIN = 1234\ninit = 0\n"
    );
    let providers = ["default", "widelane"];
    let Some(folder) = scratch("?widelane.batch=yes", &providers, &engine) else {
        return;
    };
    std::fs::create_dir(folder.path("tokens")).expect("our own folder");
    let tokens = folder.path("tokens");
    folder.write("softhsm.conf", format!("directories.tokendir = {}\n", tokens.display()));
    let run = |program: &str, line: &str| {
        let mut command = folder.command(With::Widelane, program, line);
        succeeds(command.env("SOFTHSM2_CONF", folder.path("softhsm.conf")))
    };
    run(
        "softhsm2-util",
        "--init-token --free --label t --pin 1234 --so-pin 1234",
    );
    for (number, kind) in ["rsa:2048", "EC:prime256v1", "EC:secp384r1"].iter().enumerate() {
        run(
            "pkcs11-tool",
            &format!(
                "--module {MODULE} --login --pin 1234 --token-label t --keypairgen \
                 --key-type {kind} --label key{number} --id 0{number}"
            ),
        );
        let key = format!("pkcs11:token=t;object=key{number};type=private");
        let line = SIGN.replace("key.pem", &format!("{key} -engine pkcs11 -keyform engine"));
        run("openssl", &line);
        folder.succeeds(With::Default, VERIFY);
    }
}

/// A key in a TPM, by another provider beside ours. Its private half cannot be copied.
#[test]
fn keys_in_a_tpm_sign() {
    let lacks = ["/usr/bin/swtpm", "/usr/lib/x86_64-linux-gnu/ossl-modules/tpm2.so"];
    if !lacks.iter().all(|file| Path::new(file).exists()) {
        return println!("SKIP: swtpm and tpm2-openssl are not installed");
    }
    let providers = ["tpm2", "default", "widelane"];
    let Some(folder) = scratch("?widelane.batch=yes", &providers, "") else {
        return;
    };
    let state = folder.path("");
    let socket = folder.path("socket");
    let line = format!(
        "socket --tpm2 --tpmstate dir={} --server type=unixio,path={socket} \
         --ctrl type=unixio,path={socket}.ctrl --flags startup-clear",
        state.display(),
        socket = socket.display()
    );
    let mut tpm = folder.command(With::Widelane, "swtpm", &line);
    let _tpm = Running(tpm.spawn().expect("it is installed"));
    eventually("the TPM listens", || socket.exists());
    let tcti = format!("swtpm:path={}", socket.display());
    let command = |line: &str| {
        let mut command = folder.openssl(With::Widelane, line);
        command.env("TPM2OPENSSL_TCTI", &tcti);
        command
    };
    let run = |line: &str| succeeds(&mut command(line));
    let make = "genpkey -propquery provider=tpm2 -out key.pem -algorithm";
    run(&format!("{make} RSA -pkeyopt bits:2048"));
    let pem = folder.read("key.pem");
    assert!(pem.contains("TSS2 PRIVATE KEY"), "{pem}");
    // Without lanes we offer no signatures, and OpenSSL's own provider asks for the private half.
    if has_lanes() {
        run(SIGN);
        folder.succeeds(With::Default, VERIFY);
    }
    // Of a curve, the public half is copied, because it may be a peer's: OpenSSL says what is missing,
    // unless the configuration prefers the TPM's provider, as its manual says.
    run(&format!("{make} EC -pkeyopt group:P-256"));
    if has_lanes() {
        let ended = command(SIGN).output().expect("it starts");
        let said = text(&ended);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("missing private key"), "{said}");
    }
    let config = folder.read("widelane.cnf");
    let preferred = "= ?provider=tpm2,tpm2.digest!=yes,tpm2.cipher!=yes,?widelane.batch=yes";
    folder.write("widelane.cnf", config.replace("= ?widelane.batch=yes", preferred));
    run(SIGN);
    folder.succeeds(With::Default, VERIFY);
}
