//! Programs that see no folder of this machine.
//!
//! Profiles, measured costs and the state of other runs in `/var/lib/widelane`, `/run/widelane` and the user's
//! folders would decide what a test sees. Here they are those of an empty folder.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// A command that starts a program, directly or not, apart from this machine. Call it again after
/// [`Command::env_clear`].
pub fn apart(mut command: Command) -> Command {
    command.env("WIDELANE_ROOT", &*ROOT);
    for name in ["STATE_DIRECTORY", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command
}

/// Folder that stands for `/`: one of this test program, empty at its start but for what every machine has.
pub static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = std::env::current_exe().expect("a program has a file");
    let name = test.file_stem().and_then(|name| name.to_str());
    // The number behind it differs from one build to the next.
    let (name, _) = name.and_then(|name| name.rsplit_once('-')).expect("a test program");
    let target = test.ancestors().nth(3).expect("cargo's folder");
    let root = target.join("tmp").join(format!("root-of-{name}"));
    let _ = fs::remove_dir_all(&root);
    for folder in ["run", "tmp", "var/lib"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    root
});
