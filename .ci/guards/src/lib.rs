//! Rules about the whole tree that no compiler checks, as tests.
//!
//! [`stray_unsafe`]: `unsafe` and assembly stand only in the files named in [`UNSAFE_ROOMS`], and
//! every other crate forbids it. [`upward_edges`]: a crate depends only on what [`EDGES`] lets it.
//! [`refused_licences`]: every dependency's licence is one that `deny.toml` allows.
//!
//! It is not a linter of style; rustfmt and clippy are. Each rule is a function from a tree to the
//! list of its violations, so that the tests at the bottom can show it a violation and see it
//! found. Start with the three lists of constants.

#![forbid(unsafe_code)]

use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Uses of `unsafe` or of inline assembly outside [`UNSAFE_ROOMS`], and crates without unsafe
/// files of their own whose root does not forbid it.
///
/// Rust tokens are looked at, so a comment or a string that says "unsafe" is nothing.
pub fn stray_unsafe(root: &Path) -> io::Result<Vec<String>> {
    let mut violations = Vec::new();
    for path in rust_files(root)? {
        let name = relative(root, &path);
        let text = fs::read_to_string(&path)?;
        let tokens: TokenStream = match text.parse() {
            Ok(tokens) => tokens,
            Err(error) => {
                violations.push(format!("{name}: is not Rust: {error}"));
                continue;
            }
        };
        if !in_room(&name) {
            for word in FORBIDDEN {
                if contains(tokens.clone(), word) {
                    violations.push(format!("{name}: uses {word} outside the rooms for it"));
                }
            }
        }
        let lint = if has_room(&name) { "deny" } else { "forbid" };
        let stated = states(tokens.clone(), "forbid") || states(tokens, lint);
        if is_crate_root(&path) && !stated {
            violations.push(format!("{name}: does not say #![{lint}(unsafe_code)]"));
        }
    }
    Ok(violations)
}

/// Dependencies between workspace members that [`EDGES`] does not allow, and members it does not
/// know. Takes what `cargo metadata` prints.
///
/// Test dependencies of one program on another are allowed: they ship in nothing.
pub fn upward_edges(metadata: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    let members = metadata["workspace_members"].as_array();
    let members = members.map_or(&[][..], Vec::as_slice);
    for package in packages(metadata) {
        if !members.contains(&package["id"]) {
            continue;
        }
        let name = text(package, "name");
        let Some((_, allowed)) = EDGES.iter().find(|(of, _)| *of == name) else {
            violations.push(format!("{name}: is in no row of the table of edges"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = text(dependency, "name");
            let ours = EDGES.iter().any(|(of, _)| *of == to);
            let for_tests = text(dependency, "kind") == "dev";
            let program = |name| PROGRAMS.contains(&name);
            if ours && !allowed.contains(&to) && !(for_tests && program(name) && program(to)) {
                violations.push(format!("{name}: must not depend on {to}"));
            }
        }
    }
    violations
}

/// Packages whose licence is missing, unreadable or not allowed by `deny`, the text of a
/// `deny.toml`.
pub fn refused_licences(metadata: &Value, deny: &str) -> Result<Vec<String>, toml::de::Error> {
    let deny: toml::Table = deny.parse()?;
    let allow: Vec<Expression> = deny["licenses"]["allow"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|licence| Expression::parse(licence.as_str()?).ok())
        .collect();
    let allowed = |wanted: &LicenseReq| {
        allow
            .iter()
            .flat_map(Expression::requirements)
            .any(|requirement| requirement.req == *wanted)
    };
    let mut violations = Vec::new();
    for package in packages(metadata) {
        let name = text(package, "name");
        let licence = text(package, "license");
        match Expression::parse_mode(licence, ParseMode::LAX) {
            Ok(expression) if expression.evaluate(allowed) => {}
            Ok(_) => violations.push(format!("{name}: {licence} is not allowed by deny.toml")),
            Err(_) => violations.push(format!("{name}: no readable licence ({licence:?})")),
        }
    }
    Ok(violations)
}

/// What `cargo metadata` says about the workspace at `root`, with its dependencies on Linux.
pub fn metadata(root: &Path) -> io::Result<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("cargo metadata: {message}")));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

fn rust_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        if entry.file_type()?.is_dir() {
            if name != "target" && name != ".git" {
                files.extend(rust_files(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.to_string_lossy().into_owned()
}

fn in_room(file: &str) -> bool {
    UNSAFE_ROOMS.contains(&file)
}

/// Whether some file beside this crate root is an unsafe room.
fn has_room(file: &str) -> bool {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    UNSAFE_ROOMS.iter().any(|room| room.starts_with(folder))
}

fn is_crate_root(path: &Path) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs")
}

fn contains(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == word,
        TokenTree::Group(group) => contains(group.stream(), word),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// Whether `#![lint(unsafe_code)]` is there, at the top level.
fn states(tokens: TokenStream, lint: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(attribute) => {
            let mut inner = attribute.stream().into_iter();
            matches!(inner.next(), Some(TokenTree::Ident(name)) if name == lint)
                && matches!(inner.next(), Some(TokenTree::Group(of))
                    if contains(of.stream(), "unsafe_code"))
        }
        _ => false,
    })
}

/// Files that may say `unsafe`.
pub const UNSAFE_ROOMS: &[&str] = &[
    "adapters/c/src/calls.rs",
    "adapters/rustls/src/suspend.rs",
    "apps/terminator/src/privileges.rs",
    "crates/engine/src/slot.rs",
    "crates/kernels/src/arena.rs",
    "crates/kernels/src/assembled.rs",
    "crates/kernels/src/port_limit.rs",
    "crates/wide/src/job.rs",
    "tools/frequency/src/spin.rs",
];

/// Every crate of ours with those of ours it may depend on.
pub const EDGES: &[(&str, &[&str])] = &[
    ("widelane-lanes", &[]),
    ("widelane-cpu", &[LANES]),
    (AFFINITY, &[]),
    ("widelane-kernels", &[LANES, CPU]),
    ("widelane-crypto", &[LANES, CPU, KERNELS]),
    ("widelane-batching", &[]),
    (
        "widelane-engine",
        &[LANES, CPU, AFFINITY, KERNELS, CRYPTO, BATCHING],
    ),
    (WIDE, &[]),
    ("widelane-c", &[WIDE]),
    (
        "widelane-rustls",
        &[LANES, CPU, AFFINITY, KERNELS, CRYPTO, BATCHING, ENGINE],
    ),
    (
        "widelane-terminator",
        &[
            LANES, CPU, AFFINITY, KERNELS, CRYPTO, BATCHING, ENGINE, RUSTLS,
        ],
    ),
    (
        "widelane-load",
        &[
            LANES, CPU, AFFINITY, KERNELS, CRYPTO, BATCHING, ENGINE, RUSTLS,
        ],
    ),
    (
        "widelane-speed",
        &[
            LANES, CPU, AFFINITY, KERNELS, CRYPTO, BATCHING, ENGINE, RUSTLS,
        ],
    ),
    ("widelane-handshakes", &[AFFINITY]),
    (
        "widelane-frequency",
        &[LANES, CPU, AFFINITY, WIDE, BATCHING],
    ),
    ("widelane-scan", &[LANES, CPU]),
    ("widelane-steer", &[AFFINITY]),
    (
        "widelane-top",
        &[CPU, AFFINITY, "widelane-frequency", "widelane-usage"],
    ),
    ("widelane-usage", &[AFFINITY, "widelane-scan"]),
    ("widelane-guards", &[]),
    (
        "widelane",
        &[
            LANES,
            CPU,
            AFFINITY,
            KERNELS,
            CRYPTO,
            BATCHING,
            ENGINE,
            RUSTLS,
            "widelane-terminator",
            "widelane-load",
            "widelane-speed",
            "widelane-frequency",
            "widelane-scan",
            "widelane-steer",
            "widelane-top",
            "widelane-usage",
        ],
    ),
];

const LANES: &str = "widelane-lanes";
const CPU: &str = "widelane-cpu";
const AFFINITY: &str = "widelane-affinity";
const KERNELS: &str = "widelane-kernels";
const CRYPTO: &str = "widelane-crypto";
const BATCHING: &str = "widelane-batching";
const ENGINE: &str = "widelane-engine";
const RUSTLS: &str = "widelane-rustls";
const WIDE: &str = "widelane-wide";

const PROGRAMS: &[&str] = &["widelane", "widelane-terminator", "widelane-load"];
const FORBIDDEN: &[&str] = &["unsafe", "asm", "global_asm", "naked_asm"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn root() -> PathBuf {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        here.ancestors().nth(2).expect("two levels up").to_owned()
    }

    fn none(violations: Vec<String>) {
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }

    #[test]
    fn unsafe_stands_only_in_its_rooms() {
        none(stray_unsafe(&root()).expect("the tree is readable"));
    }

    #[test]
    fn every_unsafe_room_exists() {
        for room in UNSAFE_ROOMS {
            assert!(
                root().join(room).exists(),
                "{room} is gone; shorten the list"
            );
        }
    }

    #[test]
    fn edges_point_down() {
        none(upward_edges(&metadata(&root()).expect("cargo metadata")));
    }

    #[test]
    fn licences_are_allowed() {
        let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
        let metadata = metadata(&root()).expect("cargo metadata");
        none(refused_licences(&metadata, &deny).expect("deny.toml is TOML"));
    }

    /// A record is for everybody: it names programs, and not the folders of whoever measured.
    #[test]
    fn records_name_no_folders() {
        let records = root().join("lab/records");
        let mut read = 0;
        for entry in fs::read_dir(records).expect("the records") {
            let path = entry.expect("an entry").path();
            let text = fs::read_to_string(&path).expect("a record");
            for line in text.lines() {
                assert!(!line.contains(r#""command":"/"#), "{}", path.display());
                read += 1;
            }
        }
        assert!(read > 0, "no records were found");
    }

    #[test]
    fn planted_unsafe_is_found() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let plant = |name: &str, text: &str| {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        };
        let quiet = "#![forbid(unsafe_code)]\n// unsafe\nconst WORD: &str = \"unsafe asm!\";\n";
        plant("crates/lanes/src/lib.rs", quiet);
        plant("crates/kernels/src/arena.rs", "fn f() { unsafe { g() } }");
        plant("crates/engine/src/lib.rs", "#![deny(unsafe_code)]\n");
        plant("crates/engine/src/slot.rs", "unsafe fn f() {}");
        assert_eq!(stray_unsafe(tree.path()).expect("readable"), [""; 0]);

        plant(
            "crates/engine/src/line.rs",
            "mod a { fn f() { unsafe { g() } } }",
        );
        plant(
            "crates/lanes/tests/t.rs",
            "fn f() { std::arch::asm!(\"nop\") }",
        );
        plant(
            "crates/batching/src/lib.rs",
            "//! #![forbid(unsafe_code)]\n",
        );
        plant("crates/crypto/src/lib.rs", "#![deny(unsafe_code)]\n");
        let found = stray_unsafe(tree.path()).expect("readable");
        let expected = [
            "crates/batching/src/lib.rs: does not say #![forbid(unsafe_code)]",
            "crates/crypto/src/lib.rs: does not say #![forbid(unsafe_code)]",
            "crates/engine/src/line.rs: uses unsafe outside the rooms for it",
            "crates/lanes/tests/t.rs: uses asm outside the rooms for it",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn planted_edges_are_found() {
        let package = |name: &str, to: &str, kind: Option<&str>| {
            let dependencies = json!([{"name": to, "kind": kind}]);
            json!({"id": name, "name": name, "dependencies": dependencies})
        };
        let metadata = json!({
            "workspace_members": [BATCHING, ENGINE, LANES, "widelane-load", "stranger"],
            "packages": [
                package(BATCHING, CPU, None),
                package(ENGINE, BATCHING, None),
                package(LANES, KERNELS, Some("build")),
                package("widelane-load", "widelane-terminator", Some("dev")),
                package("stranger", "serde", None),
                package("serde", "serde_derive", None),
            ],
        });
        let expected = [
            "widelane-batching: must not depend on widelane-cpu",
            "widelane-lanes: must not depend on widelane-kernels",
            "stranger: is in no row of the table of edges",
        ];
        assert_eq!(upward_edges(&metadata), expected);
    }

    #[test]
    fn planted_licences_are_found() {
        let licences = [
            "MIT OR GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "MIT/Apache-2.0",
            "",
        ];
        let packages: Vec<_> = licences
            .iter()
            .map(|licence| json!({"name": "x", "license": licence}))
            .collect();
        let deny = "[licenses]\nallow = [\"MIT\", \"Apache-2.0\"]";
        let found = refused_licences(&json!({"packages": packages}), deny).expect("TOML");
        let expected = [
            "x: MIT AND GPL-3.0-only is not allowed by deny.toml",
            "x: no readable licence (\"\")",
        ];
        assert_eq!(found, expected);
    }
}
