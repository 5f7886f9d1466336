//! The two programs, as tests start them.

use std::path::{Path, PathBuf};

/// The program of this package.
pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_widelane-lab");

/// The `widelane` beside it, which a build of the whole workspace makes; says SKIP without one.
pub(crate) fn product() -> Option<PathBuf> {
    let program = Path::new(LAB).with_file_name("widelane");
    if program.is_file() {
        return Some(program);
    }
    println!("SKIP: there is no widelane beside widelane-lab; cargo build -p widelane");
    None
}
