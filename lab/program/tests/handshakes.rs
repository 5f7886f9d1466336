//! Tests the programs of which `widelane-lab handshakes` writes records.

mod under_test;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// A record names the commit of the working tree, so a program of another commit needs `--modified`,
/// and the record then says so.
#[test]
fn a_program_of_another_commit_gets_no_record_unless_it_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("a"), "text").expect("a file");
    let repository: [&[&str]; 3] = [
        &["init", "--quiet"],
        &["add", "a"],
        &["commit", "--quiet", "--message", "a"],
    ];
    if Command::new("git").arg("--version").output().is_err() {
        println!("SKIP: git is not installed");
        return;
    }
    for arguments in repository {
        assert!(git(&tree, arguments).status.success(), "{arguments:?}");
    }
    let head = String::from_utf8(git(&tree, &["rev-parse", "HEAD"]).stdout).expect("text");
    let (short, _) = head.split_at(12);

    let programs = ["widelane", "widelane-lab"].map(|name| folder.path().join(name));
    for (commit, reason) in [
        ("0123456789ab", "and the tree is at"),
        (&format!("{short}-modified"), "changes that the commit does not have"),
        ("unknown", "does not say"),
    ] {
        // One of them is enough.
        for other in &programs {
            programs.iter().for_each(|program| stand_in(program, short));
            stand_in(other, commit);
            let output = handshakes(&tree, folder.path(), &["speed", "x"], &[]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{said}");
            let name = format!("{} ", other.display());
            for part in [reason, "cargo build", "--modified", &name] {
                assert!(said.contains(part), "{part} is not in {said}");
            }
            assert!(records(folder.path()).is_empty());
            let output = handshakes(&tree, folder.path(), &["speed", "x"], &["--modified"]);
            assert!(output.status.success(), "{output:?}");
            let [record] = &records(folder.path())[..] else {
                panic!("one record");
            };
            assert_eq!(record["machine"]["modified"], true, "{record}");
            fs::remove_dir_all(folder.path().join("records")).expect("the records");
        }
    }

    programs.iter().for_each(|program| stand_in(program, short));
    let output = handshakes(&tree, folder.path(), &["speed", "x"], &[]);
    assert!(output.status.success(), "{output:?}");
    let [record] = &records(folder.path())[..] else {
        panic!("one record");
    };
    assert_eq!(record["machine"]["modified"], false, "{record}");
    assert_eq!(record["machine"]["commit"], head.trim());
    assert_eq!(record["machine"]["widelane_commit"], short);
    assert_eq!(record["machine"]["lab_commit"], short);

    // `timing` gets its record in the same way.
    let output = handshakes(&tree, folder.path(), &["timing"], &[]);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let (_, path) = printed.rsplit_once("Record: ").expect("a path");
    let text = fs::read_to_string(path.trim()).expect("the record");
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let line = lines.find(|line| line["kind"] == "timing").expect("a finding");
    assert_eq!(line["finding"], serde_json::from_str::<Value>(FINDING).expect("JSON"));
}

/// A program that says of itself what is asked of `widelane` and `widelane-lab` here.
fn stand_in(program: &Path, commit: &str) {
    let text = format!(
        "#!/bin/sh\ncase $1 in\n\
         --version) printf 'widelane 0.1.0\\ncommit: {commit}\\n' ;;\n\
         speed) echo '{{\"operation\": \"x\", \"backend\": \"y\", \"ops_per_s\": 1}}' ;;\n\
         timing) echo '{FINDING}' ;;\n\
         *) exit 1 ;;\n\
         esac\n"
    );
    fs::write(program, text).expect("the program");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("the program");
}

fn handshakes(tree: &Path, folder: &Path, command: &[&str], more: &[&str]) -> Output {
    git_free(under_test::PROGRAM)
        .arg("handshakes")
        .args(command)
        .arg("--records")
        .arg(folder.join("records"))
        .arg("--widelane")
        .arg(folder.join("widelane"))
        .arg("--lab")
        .arg(folder.join("widelane-lab"))
        .args(more)
        .current_dir(tree)
        .output()
        .expect("it runs")
}

/// The first lines of all records.
fn records(folder: &Path) -> Vec<Value> {
    let Ok(files) = fs::read_dir(folder.join("records")) else {
        return Vec::new();
    };
    let texts = files.map(|file| fs::read_to_string(file.expect("a file").path()));
    let first = |text: String| serde_json::from_str(text.lines().next()?).ok();
    texts.filter_map(|text| first(text.expect("text"))).collect()
}

fn git(tree: &Path, arguments: &[&str]) -> Output {
    git_free("git")
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.com"])
        .args(arguments)
        .current_dir(tree)
        .output()
        .expect("git runs")
}

/// A command without what a hook of another repository, or this machine, tells git.
fn git_free(program: &str) -> Command {
    let mut command = under_test::apart(Command::new(program));
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"] {
        command.env_remove(name);
    }
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    command
}

/// Output of `timing`.
const FINDING: &str = r#"{"operation": "x", "classes": ["one", "two"], "measurements": 9000, "t": 1.25}"#;
