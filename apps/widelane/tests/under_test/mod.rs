//! The program under test, which sees no folder of this machine.
//!
//! Profiles, measured costs and the state of other runs in `/var/lib/widelane`, `/run/widelane` and
//! the user's folders would decide what a test sees. Here they are those of an empty folder. A guard
//! refuses tests that start the program by themselves.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The program's path, for commands that start it: give those to [`apart`].
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_widelane");

/// The program.
pub fn widelane() -> Command {
    apart(Command::new(PROGRAM))
}

/// A command that starts the program, directly or not, apart from this machine. Call it again after
/// [`Command::env_clear`].
pub fn apart(mut command: Command) -> Command {
    command.env("WIDELANE_ROOT", &*ROOT);
    for name in ["STATE_DIRECTORY", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command
}

/// What stands for `/`: a folder of this test program, empty at its start but for what every machine
/// has.
pub static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let name = format!("root-of-{}", env!("CARGO_CRATE_NAME"));
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&root);
    for folder in ["run", "tmp", "var/lib"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    root
});
