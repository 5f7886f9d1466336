//! Effects of `make build` on the program, and the places in which `make install-openssl` puts files.

use std::path::Path;
use std::process::Command;

#[test]
fn debug_information_moves_into_a_file_beside_the_program() {
    let tools = ["objcopy", "readelf"];
    if let Some(missing) = tools.iter().find(|tool| !runs(tool)) {
        println!("SKIP: no {missing}; install binutils");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("widelane");
    let debug = folder.path().join("widelane.debug");
    // A program of our own: whether ours has debug information depends on the profile of the tests.
    let source = folder.path().join("main.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("writable");
    let mut compile = Command::new("cc");
    let compiled = compile.arg("-g").arg("-o").arg(&program).arg(&source).status();
    assert!(compiled.expect("a C compiler, as AWS-LC needs").success());
    std::fs::remove_file(&source).expect("it is ours");
    let before = size(&program);
    assert!(sections(&program).contains(" .debug_info "));
    split(&program);
    assert!(size(&program) < before);
    let left = sections(&program);
    for moved in [" .debug_info ", " .debug_line ", " .debug_str "] {
        assert!(!left.contains(moved), "{left}");
    }
    assert!(
        left.contains(" .gnu_debuglink ") && left.contains(" .symtab "),
        "{left}"
    );
    assert!(sections(&debug).contains(" .debug_info "));
    assert!(Command::new(&program).status().expect("it runs").success());
    // Once more changes nothing: the debug file must not be replaced by an empty one.
    let first = size(&debug);
    split(&program);
    assert_eq!(size(&debug), first);
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 2);
}

#[test]
fn the_provider_goes_where_openssl_loads_modules_from() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["widelane", "libwidelane_openssl.so", "libwidelane_openssl_shim.so"] {
        std::fs::write(folder.path().join(name), name).expect("writable");
    }
    let install = |modules: &str| {
        let mut install = Command::new(SCRIPT);
        install.arg(folder.path()).arg("/opt/wide").env("MODULES", modules);
        install
            .env("DESTDIR", folder.path().join("dest"))
            .output()
            .expect("bash")
    };
    // Twice: what is there already is replaced.
    for _ in 0..2 {
        let output = install("/opt/modules");
        assert!(output.status.success(), "{output:?}");
    }
    let read = |path: &str| {
        let path = folder.path().join("dest").join(path);
        std::fs::read_to_string(path).unwrap_or_default()
    };
    assert_eq!(read("opt/modules/widelane.so"), "libwidelane_openssl.so");
    assert_eq!(read("opt/wide/bin/widelane"), "widelane");
    let shim = "libwidelane_openssl_shim.so";
    assert_eq!(read(&format!("opt/wide/lib/widelane/{shim}")), shim);

    // A set-up is undone first; then all of it goes.
    let config = folder.path().join("dest/etc/widelane/openssl-nginx.cnf");
    std::fs::create_dir_all(config.parent().expect("a folder")).expect("writable");
    std::fs::write(&config, "module = /opt/modules/widelane.so\n").expect("writable");
    let remove = || {
        let mut remove = Command::new(SCRIPT);
        remove.args(["--remove", "/opt/wide"]).env("MODULES", "/opt/modules");
        remove
            .env("DESTDIR", folder.path().join("dest"))
            .output()
            .expect("bash")
    };
    let refused = remove();
    let complaint = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(complaint.contains("widelane setup nginx --undo"), "{complaint}");
    assert_eq!(read("opt/wide/bin/widelane"), "widelane");
    std::fs::remove_file(&config).expect("it is ours");
    let removed = remove();
    assert!(removed.status.success(), "{removed:?}");
    for gone in [
        "opt/modules/widelane.so",
        "opt/wide/bin/widelane",
        "opt/wide/lib/widelane",
    ] {
        assert!(!folder.path().join("dest").join(gone).exists(), "{gone}");
    }

    let openssl = Command::new("openssl").args(["version", "-m"]).output();
    let Some(named) = openssl.ok().filter(|output| output.status.success()) else {
        println!("SKIP: no openssl 3; install openssl");
        return;
    };
    assert!(install("").status.success());
    let named = String::from_utf8_lossy(&named.stdout).into_owned();
    let modules = named.split('"').nth(1).expect("a path in quotes");
    let provider = format!("{}/widelane.so", modules.trim_start_matches('/'));
    assert_eq!(read(&provider), "libwidelane_openssl.so");
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/install-openssl");

fn split(program: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/split-debug");
    let output = Command::new(script).arg(program).output().expect("bash");
    assert!(output.status.success(), "{output:?}");
}

fn sections(file: &Path) -> String {
    let output = Command::new("readelf")
        .args(["--wide", "--sections"])
        .arg(file)
        .output();
    String::from_utf8_lossy(&output.expect("readelf").stdout).into_owned()
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).expect("a file").len()
}

fn runs(tool: &str) -> bool {
    Command::new(tool)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}
