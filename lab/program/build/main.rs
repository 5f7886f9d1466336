//! Gives the program the commit that it is built from, for `widelane-lab --version`.

#[path = "../../../apps/widelane/build/commit.rs"]
mod commit;

use commit::{PRODUCT, Sources};
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = Sources::at(&root, &[&PRODUCT[..], LABORATORY].concat());
    for path in sources.watched() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=WIDELANE_COMMIT={}", sources.commit());
}

/// The laboratory without its records: a program stays what it is when it writes one.
const LABORATORY: &[&str] = &[
    "lab/brake",
    "lab/experiments",
    "lab/handshakes",
    "lab/program",
    "lab/report",
    "lab/samples",
    "lab/scenarios",
    "lab/sim",
    "lab/timing",
];
