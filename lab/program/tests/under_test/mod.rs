//! The two programs, as tests start them: they see no folder of this machine. A guard refuses tests that start a
//! program by themselves.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test file uses its own part"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

pub use widelane_testkit::apart::apart;

/// The program of this package.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_widelane-lab");

/// The program of this package, apart from this machine.
pub fn laboratory() -> Command {
    apart(Command::new(PROGRAM))
}

/// The `widelane` beside it, which a build of the whole workspace makes; says SKIP without one.
pub fn product() -> Option<PathBuf> {
    let program = Path::new(PROGRAM).with_file_name("widelane");
    if program.is_file() {
        return Some(program);
    }
    println!("SKIP: there is no widelane beside widelane-lab; cargo build -p widelane");
    None
}
