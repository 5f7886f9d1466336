//! The two programs, as tests start them: they see no folder of this machine.
//!
//! A guard refuses tests that start a program by themselves.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

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

/// A command that starts a program, directly or not, apart from this machine.
pub fn apart(mut command: Command) -> Command {
    command.env("WIDELANE_ROOT", &*ROOT);
    for name in ["STATE_DIRECTORY", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command
}

/// Folder that stands for `/`: a folder of this test program, empty at its start.
static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let name = format!("root-of-{}", env!("CARGO_CRATE_NAME"));
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&root);
    for folder in ["run", "tmp", "var/lib"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    root
});
