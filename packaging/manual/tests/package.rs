//! The Debian package, made from stand-ins for the programs: which files it has, and which of its
//! files are the administrator's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn the_package_has_each_file_in_its_place_and_starts_nothing() {
    let lacking = ["dh", "dpkg-deb"].into_iter().find(|tool| !runs(tool));
    if let Some(tool) = lacking {
        println!("SKIP: no {tool}; install debhelper");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    for name in [
        "widelane",
        "libwidelane_openssl.so",
        "libwidelane_openssl_shim.so",
        "third-party-licences",
    ] {
        fs::write(path(name), name).expect("writable");
    }
    let manual = env!("CARGO_BIN_EXE_widelane-manual");
    succeed(Command::new(manual).arg(path("manual")));
    succeed(
        Command::new(packaging("build-deb"))
            .arg(folder.path())
            .arg(folder.path()),
    );

    let package = path(&format!("widelane_{}-1_amd64.deb", env!("CARGO_PKG_VERSION")));
    let list = succeed(Command::new("dpkg-deb").args(["--contents", &package]));
    let files: BTreeSet<_> = list
        .lines()
        .filter(|line| !line.starts_with('d'))
        .filter_map(|line| line.split_whitespace().nth(5))
        .map(|name| name.trim_start_matches('.').to_owned())
        .collect();
    let (texts, others): (BTreeSet<_>, BTreeSet<_>) = files
        .into_iter()
        .partition(|name| name.starts_with("/usr/share/doc/widelane/") || name.starts_with("/usr/share/man/man1/"));
    let expected = [
        "/etc/widelane/widelane.toml",
        "/lib/systemd/system/widelane-tickets.service",
        "/lib/systemd/system/widelane.service",
        "/lib/systemd/system/widelane.socket",
        "/usr/bin/widelane",
        "/usr/lib/sysusers.d/widelane.conf",
        "/usr/lib/widelane/libwidelane_openssl_shim.so",
        "/usr/lib/x86_64-linux-gnu/ossl-modules/widelane.so",
        "/usr/share/bash-completion/completions/widelane",
        "/usr/share/fish/vendor_completions.d/widelane.fish",
        "/usr/share/lintian/overrides/widelane",
        "/usr/share/zsh/vendor-completions/_widelane",
    ];
    // Newer versions of debhelper put units below /usr.
    let others: Vec<_> = others
        .iter()
        .map(|name| name.replace("/usr/lib/systemd/", "/lib/systemd/"))
        .collect();
    assert_eq!(BTreeSet::from_iter(others), expected.map(String::from).into());
    for name in [
        "/usr/share/man/man1/widelane.1.gz",
        "/usr/share/man/man1/widelane-setup.1.gz",
        "/usr/share/doc/widelane/README.Debian",
        "/usr/share/doc/widelane/README.md",
        "/usr/share/doc/widelane/docs/openssl.md",
        "/usr/share/doc/widelane/examples/logrotate",
        "/usr/share/doc/widelane/changelog.gz",
        "/usr/share/doc/widelane/changelog.Debian.gz",
        "/usr/share/doc/widelane/copyright",
    ] {
        assert!(texts.contains(name), "{name}: {texts:#?}");
    }

    let control = path("control");
    succeed(Command::new("dpkg-deb").args(["--control", &package, &control]));
    let read = |name: &str| fs::read_to_string(Path::new(&control).join(name)).expect(name);
    assert_eq!(read("conffiles"), "/etc/widelane/widelane.toml\n");
    // Units are enabled again where they were, and otherwise not; sockets stay open in an upgrade.
    for part in [
        "systemd-sysusers",
        "debian-installed 'widelane.service'",
        "debian-installed 'widelane.socket'",
        "_dh_action 'widelane.service'",
        "deb-systemd-invoke start 'widelane.socket'",
    ] {
        assert!(read("postinst").contains(part), "{}", read("postinst"));
    }
    assert!(read("postrm").contains("rm -rf /var/lib/widelane\n"));
    assert!(read("prerm").contains("--undo --yes"));
}

#[test]
fn the_licences_of_linked_libraries_are_there() {
    // It calls cargo, for which what shows the times of tests is not.
    let mut licences = Command::new(packaging("third-party-licences"));
    let text = succeed(licences.env_remove("RUSTC_BOOTSTRAP"));
    let (list, texts) = text.split_once("\n----").expect("a list, then texts");
    for name in ["aws-lc-sys-", "rustls-0", "corosensei-", "clap-"] {
        let listed = list.lines().any(|line| line.starts_with(name));
        assert!(listed && texts.contains(name), "{name}: {list}");
    }
    assert!(!list.contains("widelane"), "ours are in `copyright`: {list}");
    // The text of AWS-LC, and the notice of a library under the MIT licence.
    for part in ["ISC", "Permission is hereby granted, free of charge"] {
        assert!(texts.contains(part), "{part}");
    }
}

/// Package, program and provider have one version.
#[test]
fn the_newest_entry_of_the_changelog_is_this_version() {
    let changelog = fs::read_to_string(packaging("debian/changelog")).expect("it is there");
    let version = concat!("widelane (", env!("CARGO_PKG_VERSION"), "-");
    assert!(changelog.starts_with(version), "{changelog}");
}

fn packaging(name: &str) -> String {
    format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"))
}

fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let complaint = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {complaint}");
    String::from_utf8(stdout).expect("text")
}

/// Whether a tool is installed. `dh` tells its version only beside a `debian/control`.
fn runs(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}
