//! Rules about the whole tree that no compiler checks, as tests.
//!
//! - [`stray_unsafe`], [`safe_rooms`]: `unsafe` and assembly are in the files named in [`UNSAFE_ROOMS`] and in no
//!   other, and every other crate forbids them.
//! - [`upward_edges`], [`unused_edges`]: [`EDGES`] lists exactly the dependencies between our crates.
//! - [`shipped_test_features`]: nothing that ships turns on what is for tests, [`TEST_FEATURES`].
//! - [`laboratory_in_product`]: what ships links nothing of the laboratory, nor libraries that only it needs.
//! - [`refused_licences`]: `deny.toml` allows the licence of every dependency.
//! - [`refused_packages`]: no dependency is one that `deny.toml` refuses.
//! - [`architecture::misplaced_rooms`], [`architecture::unlisted_unsafe`]: ARCHITECTURE.md lists the workspace, each
//!   room below those that it uses, and every file of [`UNSAFE_ROOMS`].
//! - [`programs::not_apart`]: tests start `widelane` so that it sees no folder of the machine.
//! - [`opened::by_itself`]: what may run as root opens and writes files in one way.
//! - [`pages::dangling`]: pages name and link files that exist.
//! - [`promises::unkept`]: each promise of `SECURITY.md` names tests that exist.
//! - [`reference::page`]: docs/configuration.md is what the doc comments of the configuration say.
//!
//! It does not check style; rustfmt and clippy do. Each rule is a function from a tree to the list
//! of its violations. The tests at the bottom plant violations and check that the rule finds them.

#![forbid(unsafe_code)]

pub mod architecture;
mod files;
pub mod opened;
pub mod pages;
pub mod programs;
pub mod promises;
pub mod reference;

use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::BTreeSet;
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
    let is_rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    for path in files::below(root)?.into_iter().filter(is_rust) {
        let name = files::relative(root, &path);
        let text = fs::read_to_string(&path)?;
        let is_root = is_crate_root(&path);
        // Most files need no parser to tell.
        if !is_root && !FORBIDDEN.iter().any(|word| text.contains(word)) {
            continue;
        }
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
        if is_root && !stated {
            violations.push(format!("{name}: does not say #![{lint}(unsafe_code)]"));
        }
    }
    Ok(violations)
}

/// Files of [`UNSAFE_ROOMS`] that are gone, or that need to be there no more.
pub fn safe_rooms(root: &Path) -> Vec<String> {
    let uses = |room: &str| {
        let tokens = fs::read_to_string(root.join(room)).ok()?.parse::<TokenStream>().ok()?;
        // `probe::probe!` is unsafe code of another crate.
        let mut words = FORBIDDEN.iter().chain(&["probe"]);
        Some(words.any(|word| contains(tokens.clone(), word)))
    };
    let safe = UNSAFE_ROOMS.iter().filter(|room| uses(room) != Some(true));
    safe.map(|room| format!("{room}: is listed, and has no unsafe code"))
        .collect()
}

/// Dependencies between workspace members that [`EDGES`] does not allow, and members it does not
/// know. Takes what `cargo metadata` prints.
///
/// Test dependencies of one program on another, and of any crate on [`TEST_CRATES`], are allowed: they ship in nothing.
/// Nothing but tests depends on [`TEST_CRATES`], whatever [`EDGES`] say.
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
            let may = match TEST_CRATES.contains(&to) {
                true => for_tests,
                false => allowed.contains(&to) || for_tests && program(name) && program(to),
            };
            if ours && !may {
                violations.push(format!("{name}: must not depend on {to}"));
            }
        }
    }
    violations
}

/// Edges that [`EDGES`] allows and no crate uses. Takes what `cargo metadata` prints.
pub fn unused_edges(metadata: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    for (name, allowed) in EDGES {
        let package = packages(metadata).find(|package| text(package, "name") == *name);
        let Some(package) = package else {
            violations.push(format!("{name}: is in the table of edges and not in the workspace"));
            continue;
        };
        let used = |to: &str| {
            let dependencies = package["dependencies"].as_array();
            dependencies.into_iter().flatten().any(|one| text(one, "name") == to)
        };
        for to in allowed.iter().filter(|to| !used(to)) {
            violations.push(format!("{name}: may depend on {to}, and does not"));
        }
    }
    violations
}

/// Members of the workspace that turn on one of [`TEST_FEATURES`] other than for their tests: by a
/// dependency, or by a feature of their own. Takes what `cargo metadata` prints.
pub fn shipped_test_features(metadata: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    let for_tests = |to: &str, feature: &str| TEST_FEATURES.contains(&(to, feature));
    let members = metadata["workspace_members"].as_array();
    let members = members.map_or(&[][..], Vec::as_slice);
    for package in packages(metadata).filter(|package| members.contains(&package["id"])) {
        let name = text(package, "name");
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = text(dependency, "name");
            for feature in dependency["features"].as_array().into_iter().flatten() {
                let feature = feature.as_str().unwrap_or("");
                let ships = text(dependency, "kind") != "dev" && !TEST_CRATES.contains(&name);
                if ships && for_tests(to, feature) {
                    violations.push(format!("{name}: must not turn on {to}/{feature} but for tests"));
                }
            }
        }
        for (feature, implied) in package["features"].as_object().into_iter().flatten() {
            for implied in implied.as_array().into_iter().flatten() {
                let implied = implied.as_str().unwrap_or("");
                let (to, other) = implied.split_once('/').unwrap_or((name, implied));
                let to = to.trim_end_matches('?');
                if for_tests(to, other) && !for_tests(name, feature) {
                    violations.push(format!("{name}: its feature {feature} must not turn on {to}/{other}"));
                }
            }
        }
    }
    violations
}

/// Packages of a tree that `deny`, the text of a `deny.toml`, refuses: by name, or because there
/// are two versions. Takes what `cargo tree --prefix none --format {p}` prints.
pub fn refused_packages(tree: &str, deny: &str) -> Result<Vec<String>, toml::de::Error> {
    let deny: toml::Table = deny.parse()?;
    let mut violations = Vec::new();
    for rule in deny["bans"]["deny"].as_array().into_iter().flatten() {
        let Some(name) = rule["crate"].as_str() else {
            violations.push(format!("deny.toml: a rule without a crate: {rule}"));
            continue;
        };
        let versions: BTreeSet<&str> = tree
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(package, _)| *package == name)
            .filter_map(|(_, version)| version.split(' ').next())
            .collect();
        let several = rule.get("deny-multiple-versions").and_then(toml::Value::as_bool);
        let at_most = usize::from(several == Some(true));
        if versions.len() > at_most {
            let versions = Vec::from_iter(versions).join(" and ");
            violations.push(format!("{name} {versions}: refused by deny.toml"));
        }
    }
    Ok(violations)
}

/// Packages of the laboratory, and libraries that nothing else may need, in what ships. Takes what
/// [`product_tree`] gives, and the folder of the workspace.
pub fn laboratory_in_product(tree: &str, root: &Path) -> Vec<String> {
    let laboratory = format!("({}/lab/", root.display());
    let mut found = BTreeSet::new();
    for line in tree.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        if line.contains(&laboratory) {
            found.insert(format!("{name}: what ships must not need the laboratory"));
        }
        let is = |refused: &&str| match refused.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == *refused,
        };
        if LABORATORY_ONLY.iter().any(is) {
            found.insert(format!("{name}: only the laboratory may need it"));
        }
    }
    found.into_iter().collect()
}

/// What `cargo tree` says about all that is linked into what ships, with every feature.
pub fn product_tree(root: &Path) -> io::Result<String> {
    let packages = PRODUCT.iter().flat_map(|name| ["--package", name]);
    let arguments: Vec<&str> = ["--edges", "normal"].into_iter().chain(packages).collect();
    cargo_tree(root, &arguments)
}

/// What `cargo tree` says about the packages that are built on Linux for the workspace at `root`.
pub fn tree(root: &Path) -> io::Result<String> {
    cargo_tree(root, &["--workspace", "--edges", "normal,build,dev"])
}

fn cargo_tree(root: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = cargo()
        .args(["tree", "--locked", "--all-features"])
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .args(["--prefix", "none", "--format", "{p}"])
        .args(arguments)
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("cargo tree: {message}")));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
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
    let output = cargo()
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

/// The cargo that runs the tests. That which shows the times of tests is not for it.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.env_remove("RUSTC_BOOTSTRAP");
    cargo
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
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
    "apps/widelane/src/allocator.rs",
    "adapters/c/src/calls.rs",
    "adapters/openssl/src/ffi/abi.rs",
    "adapters/openssl/src/ffi/cipher.rs",
    "adapters/openssl/src/ffi/comparison.rs",
    "adapters/openssl/src/ffi/defaults.rs",
    "adapters/openssl/src/ffi/exchange.rs",
    "adapters/openssl/src/ffi/hybrid.rs",
    "adapters/openssl/src/ffi/keymgmt.rs",
    "adapters/openssl/src/ffi/keys.rs",
    "adapters/openssl/src/ffi/libcrypto.rs",
    "adapters/openssl/src/ffi/library.rs",
    "adapters/openssl/src/ffi/objects.rs",
    "adapters/openssl/src/ffi/params.rs",
    "adapters/openssl/src/ffi/paused.rs",
    "adapters/openssl/src/ffi/provider.rs",
    "adapters/openssl/src/ffi/signature.rs",
    "adapters/openssl/src/ffi/signature_context.rs",
    "adapters/openssl/src/ffi/status.rs",
    "adapters/openssl/src/ffi/suspension.rs",
    "adapters/openssl/shim/src/backlog.rs",
    "adapters/openssl/shim/src/errno.rs",
    "adapters/openssl/shim/src/established.rs",
    "adapters/openssl/shim/src/event_loop.rs",
    "adapters/openssl/shim/src/forks.rs",
    "adapters/openssl/shim/src/handshakes/callback.rs",
    "adapters/openssl/shim/src/handshakes/calls.rs",
    "adapters/openssl/shim/src/handshakes/drive.rs",
    "adapters/openssl/shim/src/handshakes/endings.rs",
    "adapters/openssl/shim/src/handshakes/retries.rs",
    "adapters/openssl/shim/src/handshakes/socket.rs",
    "adapters/openssl/shim/src/handshakes/stacks.rs",
    "adapters/openssl/shim/src/handshakes/store.rs",
    "adapters/openssl/shim/src/handshakes/unasked.rs",
    "adapters/openssl/shim/src/imports.rs",
    "adapters/openssl/shim/src/originals.rs",
    "adapters/openssl/shim/src/process.rs",
    "adapters/openssl/shim/src/signals.rs",
    "adapters/openssl/shim/src/stand_ins/descriptors.rs",
    "adapters/openssl/shim/src/stand_ins/macros.rs",
    "adapters/openssl/shim/src/stand_ins/mod.rs",
    "adapters/openssl/shim/src/stand_ins/polls.rs",
    "adapters/openssl/shim/src/stand_ins/settings.rs",
    "adapters/openssl/shim/src/table.rs",
    "adapters/rustls/src/generation.rs",
    "adapters/rustls/src/suspend.rs",
    "crates/emulation/src/handler.rs",
    "crates/engine/src/background.rs",
    "crates/engine/src/slot.rs",
    "crates/engine/tests/exit.rs",
    "crates/forks/src/wiped.rs",
    "crates/kernels/src/arena.rs",
    "crates/kernels/src/assembled.rs",
    "crates/kernels/src/port_limit.rs",
    "crates/marks/src/memory.rs",
    "crates/poison/src/request.rs",
    "crates/probes/src/sites.rs",
    "crates/stacks/src/guarded.rs",
    "crates/status/src/mapping.rs",
    "crates/wide/src/job.rs",
    "lab/brake/src/realtime.rs",
    "tools/bpf/src/calls.rs",
    "tools/frequency/src/spin.rs",
];

/// Every crate of ours with those of ours that it depends on, also for its build and its tests.
pub const EDGES: &[(&str, &[&str])] = &[
    ("widelane-lanes", &[CPU]),
    ("widelane-cpu", &[]),
    (MARKS, &[CPU]),
    (AFFINITY, &[]),
    (PEM, &[]),
    (PROBES, &[]),
    ("widelane-kernels", &[LANES, CPU]),
    ("widelane-crypto", &[LANES, CPU, MARKS, KERNELS]),
    (BATCHING, &[AFFINITY]),
    ("widelane-engine", &[AFFINITY, CRYPTO, BATCHING, FILES, PROBES, STATUS]),
    (WIDE, &[CPU, MARKS, AFFINITY]),
    (STACKS, &[]),
    (STATISTICS, &[]),
    (STATUS, &[]),
    (FILES, &[]),
    (FORKS, &[]),
    (TEXT, &[]),
    ("widelane-poison", &[]),
    ("widelane-emulation", &[CPU]),
    (ACCESS_LOG, &[FILES]),
    (NAMES, &[]),
    (OCSP, &[FILES]),
    (TESTKIT, &[STATUS]),
    ("widelane-c", &[CPU, MARKS, WIDE]),
    ("widelane-openssl", &[CPU, CRYPTO, ENGINE, FORKS, MARKS, STATUS, TABLES]),
    (TABLES, &[]),
    // The provider is for the tests.
    ("widelane-openssl-shim", &[STACKS, STATUS, TABLES, "widelane-openssl"]),
    (
        "widelane-rustls",
        &[CRYPTO, ENGINE, FORKS, PROBES, STACKS, "widelane-poison"],
    ),
    (
        "widelane-terminator",
        &[
            AFFINITY, CRYPTO, BATCHING, ENGINE, FILES, PEM, RUSTLS, STATUS, TEXT, ACCESS_LOG, NAMES, OCSP,
        ],
    ),
    (TICKET_ETCD, &[FILES, PEM]),
    ("widelane-load", &[AFFINITY, ENGINE, PEM, RUSTLS]),
    (CLI, &[CPU, MARKS, FILES, TEXT, FREQUENCY, SPEED]),
    ("widelane-sim", &[CPU, BATCHING, SAMPLES, TEXT]),
    (
        "widelane-experiments",
        &[AFFINITY, CRYPTO, WIDE, SAMPLES, "widelane-handshakes", "widelane-sim"],
    ),
    (SPEED, &[CPU, AFFINITY, KERNELS, CRYPTO, ENGINE, FILES, STATISTICS]),
    (SAMPLES, &[CPU, STATISTICS, TEXT]),
    ("widelane-report", &[CPU, SAMPLES, FREQUENCY, "widelane-sim"]),
    (
        "widelane-handshakes",
        &[CPU, AFFINITY, ENGINE, PEM, RUSTLS, SAMPLES, THREADS],
    ),
    ("widelane-timing", &[CRYPTO]),
    (
        "widelane-lab",
        &[
            CPU,
            MARKS,
            AFFINITY,
            CLI,
            FREQUENCY,
            SPEED,
            "widelane-brake",
            "widelane-child",
            "widelane-experiments",
            "widelane-handshakes",
            "widelane-report",
            SAMPLES,
            "widelane-sim",
            "widelane-timing",
            "widelane-usage",
        ],
    ),
    (FREQUENCY, &[CPU, MARKS, AFFINITY, BATCHING, WIDE, FILES, STATISTICS]),
    (THREADS, &[FILES]),
    ("widelane-scan", &[CPU, THREADS]),
    ("widelane-setup", &[CPU, FILES, THREADS]),
    // The adapter is for its tests: a process that counts.
    (
        "widelane-status-tool",
        &[STATISTICS, STATUS, THREADS, "widelane-openssl"],
    ),
    ("widelane-child", &[THREADS]),
    (
        "widelane-steer",
        &[AFFINITY, FILES, THREADS, "widelane-child", "widelane-usage"],
    ),
    // The adapter is for its tests: a process that counts.
    (
        "widelane-top",
        &[
            CPU,
            AFFINITY,
            FILES,
            TEXT,
            FREQUENCY,
            "widelane-status-tool",
            "widelane-trace",
            "widelane-usage",
            "widelane-openssl",
        ],
    ),
    (BPF, &[]),
    ("widelane-brake", &[CPU, MARKS, AFFINITY]),
    (
        "widelane-trace",
        &[
            CPU,
            AFFINITY,
            BATCHING,
            FILES,
            TEXT,
            BPF,
            PROBES,
            THREADS,
            "widelane-setup",
        ],
    ),
    (
        "widelane-usage",
        &[AFFINITY, FILES, TEXT, BPF, THREADS, "widelane-scan"],
    ),
    ("widelane-guards", &[]),
    ("widelane-stages", &[]),
    ("widelane-manual", &[FILES, "widelane"]),
    ("widelane-kubernetes", &["widelane", "widelane-terminator"]),
    (
        "widelane",
        &[
            LANES,
            CPU,
            AFFINITY,
            ENGINE,
            FILES,
            TEXT,
            "widelane-terminator",
            TICKET_ETCD,
            "widelane-load",
            CLI,
            SPEED,
            FREQUENCY,
            "widelane-scan",
            THREADS,
            "widelane-setup",
            "widelane-status-tool",
            "widelane-steer",
            "widelane-top",
            "widelane-trace",
            "widelane-usage",
        ],
    ),
];

const MARKS: &str = "widelane-marks";
const LANES: &str = "widelane-lanes";
const CPU: &str = "widelane-cpu";
const AFFINITY: &str = "widelane-affinity";
const BPF: &str = "widelane-bpf";
const KERNELS: &str = "widelane-kernels";
const CRYPTO: &str = "widelane-crypto";
const BATCHING: &str = "widelane-batching";
const PEM: &str = "widelane-pem";
const PROBES: &str = "widelane-probes";
const ENGINE: &str = "widelane-engine";
const RUSTLS: &str = "widelane-rustls";
const WIDE: &str = "widelane-wide";
const TABLES: &str = "widelane-openssl-tables";
const SAMPLES: &str = "widelane-samples";
const STACKS: &str = "widelane-stacks";
const STATISTICS: &str = "widelane-statistics";
const STATUS: &str = "widelane-status";
const TESTKIT: &str = "widelane-testkit";
const FILES: &str = "widelane-files";
const FORKS: &str = "widelane-forks";
const TEXT: &str = "widelane-text";
const ACCESS_LOG: &str = "widelane-access-log";
const NAMES: &str = "widelane-names";
const OCSP: &str = "widelane-ocsp";
const THREADS: &str = "widelane-threads";
const FREQUENCY: &str = "widelane-frequency";
const SPEED: &str = "widelane-speed";
const CLI: &str = "widelane-cli";
const TICKET_ETCD: &str = "widelane-ticket-etcd";

/// What ships: the packages that `make package` and `make install-c` build.
pub const PRODUCT: &[&str] = &["widelane", "widelane-openssl", "widelane-openssl-shim", "widelane-c"];
/// Libraries for pictures, pages, simulations and comparisons; a star stands for the rest of a name.
pub const LABORATORY_ONLY: &[&str] = &["bindgen", "html5gum", "libcrux*", "maud", "plotters", "rayon"];

const PROGRAMS: &[&str] = &["widelane", "widelane-terminator", TICKET_ETCD, "widelane-load"];
/// Crates that only tests use.
pub const TEST_CRATES: &[&str] = &["widelane-emulation", "widelane-poison", TESTKIT];
/// Features that only tests may turn on, by dev-dependencies and in [`TEST_CRATES`]: they put code into every kernel
/// call, or let code run that the CPU cannot run.
pub const TEST_FEATURES: &[(&str, &str)] = &[(CPU, "emulation"), (KERNELS, "fault-injection"), (KERNELS, "model")];
const FORBIDDEN: &[&str] = &["unsafe", "asm", "global_asm", "naked_asm"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::LazyLock;

    static METADATA: LazyLock<Value> = LazyLock::new(|| metadata(&root()).expect("cargo metadata"));

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
    fn every_unsafe_room_is_needed() {
        none(safe_rooms(&root()));
    }

    #[test]
    fn every_edge_is_used() {
        none(unused_edges(&METADATA));
    }

    #[test]
    fn edges_point_down() {
        none(upward_edges(&METADATA));
    }

    #[test]
    fn no_feature_for_tests_ships() {
        none(shipped_test_features(&METADATA));
        for (name, feature) in TEST_FEATURES {
            let mut all = packages(&METADATA);
            let package = all.find(|package| text(package, "name") == *name);
            let exists = package.is_some_and(|package| package["features"][feature].is_array());
            assert!(exists, "{name}/{feature} is gone; shorten the list");
        }
    }

    /// Each workspace of the tree has a lock file of its own.
    #[test]
    fn no_workspace_has_a_refused_package() {
        let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
        for workspace in [".", "fuzz", "lab/openssl"] {
            let tree = tree(&root().join(workspace)).expect("cargo tree");
            assert!(tree.lines().count() > 5, "{workspace}: {tree}");
            none(refused_packages(&tree, &deny).expect("deny.toml is TOML"));
        }
    }

    #[test]
    fn what_ships_is_without_the_laboratory() {
        let root = root().canonicalize().expect("a folder");
        let tree = product_tree(&root).expect("cargo tree");
        for name in PRODUCT {
            let there = tree.lines().any(|line| line.starts_with(&format!("{name} v")));
            assert!(there, "{name}: {tree}");
        }
        none(laboratory_in_product(&tree, &root));
    }

    #[test]
    fn licences_are_allowed() {
        let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
        none(refused_licences(&METADATA, &deny).expect("deny.toml is TOML"));
    }

    /// A record is public: it names programs, and not the folders of the one who measured.
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
        let safe = safe_rooms(tree.path());
        assert_eq!(safe.len(), UNSAFE_ROOMS.len() - 2, "{safe:?}");
        plant(
            "crates/kernels/src/arena.rs",
            "// unsafe\nconst WORD: &str = \"unsafe\";",
        );
        let safe = safe_rooms(tree.path());
        let expected = "crates/kernels/src/arena.rs: is listed, and has no unsafe code";
        assert!(safe.iter().any(|one| one == expected), "{safe:?}");

        plant("crates/engine/src/line.rs", "mod a { fn f() { unsafe { g() } } }");
        plant("crates/lanes/tests/t.rs", "fn f() { std::arch::asm!(\"nop\") }");
        plant("crates/batching/src/lib.rs", "//! #![forbid(unsafe_code)]\n");
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
            "workspace_members": [
                BATCHING, ENGINE, LANES, RUSTLS, "widelane-load", "widelane-terminator", "stranger",
            ],
            "packages": [
                package(BATCHING, CPU, None),
                package(ENGINE, BATCHING, None),
                package(LANES, KERNELS, Some("build")),
                package("widelane-load", "widelane-terminator", Some("dev")),
                package(LANES, "widelane-poison", Some("dev")),
                package(ENGINE, "widelane-poison", None),
                package("widelane-load", TESTKIT, None),
                package("widelane-rustls", "widelane-poison", None),
                package("widelane-terminator", TESTKIT, Some("dev")),
                package("stranger", "serde", None),
                package("serde", "serde_derive", None),
            ],
        });
        let expected = [
            "widelane-batching: must not depend on widelane-cpu",
            "widelane-lanes: must not depend on widelane-kernels",
            "widelane-engine: must not depend on widelane-poison",
            "widelane-load: must not depend on widelane-testkit",
            "widelane-rustls: must not depend on widelane-poison",
            "stranger: is in no row of the table of edges",
        ];
        assert_eq!(upward_edges(&metadata), expected);
    }

    #[test]
    fn planted_features_for_tests_are_found() {
        let to_kernels =
            |kind: Option<&str>, feature: &str| json!({"name": KERNELS, "kind": kind, "features": ["other", feature]});
        let metadata = json!({
            "workspace_members": [KERNELS, CRYPTO, ENGINE, "widelane-poison"],
            "packages": [
                {
                    "id": "widelane-poison", "name": "widelane-poison", "features": {},
                    "dependencies": [to_kernels(None, "model")],
                },
                {
                    "id": KERNELS, "name": KERNELS, "dependencies": [],
                    "features": {"fault-injection": ["model"], "model": [], "default": ["model"]},
                },
                {
                    "id": CRYPTO, "name": CRYPTO, "features": {},
                    "dependencies": [
                        to_kernels(Some("dev"), "model"),
                        to_kernels(None, "fault-injection"),
                        to_kernels(Some("build"), "model"),
                    ],
                },
                {
                    "id": ENGINE, "name": ENGINE, "dependencies": [to_kernels(None, "some")],
                    "features": {"oracle": ["widelane-kernels?/model"], "some": ["oracle"]},
                },
            ],
        });
        let expected = [
            "widelane-kernels: its feature default must not turn on widelane-kernels/model",
            "widelane-crypto: must not turn on widelane-kernels/fault-injection but for tests",
            "widelane-crypto: must not turn on widelane-kernels/model but for tests",
            "widelane-engine: its feature oracle must not turn on widelane-kernels/model",
        ];
        assert_eq!(shipped_test_features(&metadata), expected);
    }

    #[test]
    fn planted_unused_edges_are_found() {
        let mut packages: Vec<Value> = EDGES
            .iter()
            .map(|(name, allowed)| {
                let dependencies: Vec<_> = allowed.iter().map(|to| json!({"name": to})).collect();
                json!({"id": name, "name": name, "dependencies": dependencies})
            })
            .collect();
        assert_eq!(unused_edges(&json!({"packages": packages})), [""; 0]);
        let place = packages
            .iter()
            .position(|package| package["name"] == "widelane-kernels");
        packages[place.expect("a row")]["dependencies"] = json!([{"name": LANES}]);
        packages.retain(|package| package["name"] != "widelane-guards");
        let expected = [
            "widelane-kernels: may depend on widelane-cpu, and does not",
            "widelane-guards: is in the table of edges and not in the workspace",
        ];
        assert_eq!(unused_edges(&json!({"packages": packages})), expected);
    }

    #[test]
    fn planted_packages_are_found() {
        let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
        let good = "widelane v0.1.0 (/a)\nrustls v0.23.4\nring-like v1.0.0\nrustls v0.23.4 (*)\n";
        assert_eq!(refused_packages(good, &deny).expect("TOML"), [""; 0]);
        let bad = format!("{good}rustls v0.22.1\nring v0.17.14\nopenssl-sys v0.9.1\n");
        let expected = [
            "openssl-sys v0.9.1: refused by deny.toml",
            "ring v0.17.14: refused by deny.toml",
            "rustls v0.22.1 and v0.23.4: refused by deny.toml",
        ];
        assert_eq!(refused_packages(&bad, &deny).expect("TOML"), expected);
    }

    #[test]
    fn a_planted_laboratory_is_found() {
        let root = Path::new("/w");
        let good = "widelane v0.1.0 (/w/apps/widelane)\nwidelane-scan v0.1.0 (/w/tools/scan)\n\
                    rayonette v1.0.0\nlabel v1.0.0\n";
        assert_eq!(laboratory_in_product(good, root), [""; 0]);
        let bad = format!(
            "{good}widelane-sim v0.1.0 (/w/lab/sim)\nrayon v1.12.0\nlibcrux-sha3 v0.0.11\n\
             rayon v1.12.0 (*)\n"
        );
        let expected = [
            "libcrux-sha3: only the laboratory may need it",
            "rayon: only the laboratory may need it",
            "widelane-sim: what ships must not need the laboratory",
        ];
        assert_eq!(laboratory_in_product(&bad, root), expected);
    }

    #[test]
    fn planted_licences_are_found() {
        let licences = ["MIT OR GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT/Apache-2.0", ""];
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
