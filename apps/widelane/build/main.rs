//! Gives the program the commit that it is built from, for `widelane --version`.

mod commit;

use commit::{PRODUCT, Sources};
use std::path::Path;

fn main() {
    // Cargo runs this again after each change of these, and after none if there are none.
    println!("cargo::rerun-if-changed=build");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = Sources::at(&root, &PRODUCT);
    for path in sources.watched() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rustc-env=WIDELANE_COMMIT={}", sources.commit());
}
