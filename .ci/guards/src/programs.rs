//! How tests start the programs that read folders of the machine.

use crate::files;
use std::fs;
use std::io;
use std::path::Path;

/// Tests that start `widelane` by themselves, and so see profiles and measured costs of the machine.
///
/// `under_test/mod.rs` starts it apart from the machine; elsewhere neither cargo's variable with the
/// program's path nor a command made of the path alone is allowed.
pub fn not_apart(root: &Path) -> io::Result<Vec<String>> {
    let mut violations = Vec::new();
    for path in files::below(root)? {
        let name = files::relative(root, &path);
        let is_test = name.ends_with(".rs") && name.contains("tests/");
        if !is_test || name.ends_with(ROOM) {
            continue;
        }
        for (line, number) in fs::read_to_string(&path)?.lines().zip(1..) {
            let by_itself = PROGRAMS.iter().any(|program| {
                let variable = format!("env!(\"CARGO_BIN_EXE_{program}\")");
                line.contains(&variable)
            });
            if by_itself || COMMANDS.iter().any(|command| line.contains(command)) {
                violations.push(format!(
                    "{name}:{number}: starts a program without {ROOM}; use its `widelane` or `apart`"
                ));
            }
        }
    }
    Ok(violations)
}

/// Programs that read folders of the machine.
const PROGRAMS: [&str; 2] = ["widelane", "widelane-lab"];
/// Where tests get them.
const ROOM: &str = "tests/under_test/mod.rs";
const COMMANDS: [&str; 2] = [
    concat!("Command::new(", "PROGRAM)"),
    concat!("Command::new(under_test::", "PROGRAM)"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn every_test_starts_programs_apart_from_the_machine() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root: PathBuf = here.ancestors().nth(2).expect("two levels up").to_owned();
        let violations = not_apart(&root).expect("the tree is readable");
        assert!(violations.is_empty(), "{}", violations.join("\n"));
        assert!(root.join("apps/widelane").join(ROOM).is_file());
    }

    #[test]
    fn planted_starts_are_found() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let plant = |name: &str, text: &str| {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        };
        let variable = |program| format!("\nenv!(\"CARGO_BIN_EXE_{program}\")");
        plant("apps/a/tests/under_test/mod.rs", &variable("widelane"));
        plant("apps/a/tests/fine.rs", &variable("handshakes"));
        plant("apps/a/tests/one.rs", &variable("widelane"));
        plant("apps/a/tests/other.rs", &variable("widelane-lab"));
        plant("apps/a/tests/third.rs", &format!("{};", COMMANDS[0]));
        let found = not_apart(tree.path()).expect("readable");
        let places: Vec<_> = found.iter().filter_map(|one| one.split(": ").next()).collect();
        let expected = ["one.rs:2", "other.rs:2", "third.rs:1"].map(|name| format!("apps/a/tests/{name}"));
        assert_eq!(places, expected);
    }
}
