//! `.ci/run` hides from the tests what earlier work has left on this machine.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn tests_get_an_empty_home_and_only_the_configuration_of_cargo() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    for (name, text) in [
        ("home/.cache/widelane/costs", "old"),
        ("home/.rustup/settings.toml", ""),
        ("cargo/config.toml", "[net]\nretry = 7\n"),
        ("cargo/credentials.toml", "[registry]\ntoken = \"secret\"\n"),
        ("cargo/registry/cache/old.crate", "old"),
        ("target/fresh-cargo-home/registry/old.crate", "old"),
        (
            "bin/make",
            "#!/bin/sh\necho home $(ls -A \"$HOME\")\necho tmp $(ls -A \"$TMPDIR\")\n\
             echo cargo $(ls -A \"$CARGO_HOME\")\necho arguments \"$@\"\nenv\nexit 3\n",
        ),
    ] {
        fs::create_dir_all(path(name).parent().expect("a folder")).expect("writable");
        fs::write(path(name), text).expect("writable");
    }
    fs::set_permissions(path("bin/make"), fs::Permissions::from_mode(0o755)).expect("ours");
    let programs = std::env::var("PATH").expect("PATH");

    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join(".ci/run"))
        .env("PATH", format!("{}:{programs}", path("bin").display()))
        .env("HOME", path("home"))
        .env("XDG_CACHE_HOME", path("home/.cache"))
        .env("XDG_STATE_HOME", path("home/.local/state"))
        .env("TMPDIR", folder.path())
        .env("CARGO_HOME", path("cargo"))
        .env("CARGO_TARGET_DIR", path("target"))
        .env("CARGO_REGISTRIES_MIRROR_PROTOCOL", "sparse")
        .env_remove("RUSTUP_HOME")
        .output()
        .expect("it starts");
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(3), "the status of make: {said}");

    let lines: Vec<&str> = said.lines().collect();
    let expected = [
        "home",
        "tmp",
        "cargo config.toml",
        "arguments --no-print-directory check",
    ];
    assert_eq!(lines[..4], expected);
    let variables: HashMap<&str, &str> = lines[4..].iter().filter_map(|line| line.split_once('=')).collect();
    assert!(variables.keys().all(|name| !name.starts_with("XDG_")), "{said}");
    assert_eq!(variables["CARGO_REGISTRIES_MIRROR_PROTOCOL"], "sparse");
    assert_eq!(Path::new(variables["RUSTUP_HOME"]), path("home/.rustup"));
    for name in ["HOME", "TMPDIR"] {
        let fresh = Path::new(variables[name]);
        assert!(!fresh.starts_with(folder.path()), "{name}: {said}");
        assert!(!fresh.exists(), "{name} must be gone at the end");
    }
}
