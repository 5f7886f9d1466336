//! The text of `widelane --version` about the program, and how the build knows its commit.

#[path = "../build/commit.rs"]
mod commit;
mod under_test;

use commit::{PRODUCT, Sources};
use std::fs;
use std::path::Path;

#[test]
fn the_program_names_the_commit_of_this_tree() {
    let output = under_test::widelane()
        .arg("--version")
        .output()
        .expect("the program runs");
    let said = String::from_utf8(output.stdout).expect("text");
    let line = said.lines().find_map(|line| line.strip_prefix("commit: "));
    let built = line.unwrap_or_else(|| panic!("no commit in {said}"));
    // Other tests may leave files in the tree meanwhile: only the hash must be the same.
    let hash = |commit: &str| commit.trim_end_matches("-modified").to_owned();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    assert_eq!(hash(built), hash(&Sources::at(&root, &PRODUCT).commit()));
}

/// `-V` stays one line for scripts.
#[test]
fn the_short_version_is_one_line() {
    let output = under_test::widelane().arg("-V").output().expect("the program runs");
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(said, format!("widelane {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_tree_has_the_commit_of_its_head_and_changes_of_sources_show() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path();
    if !git(root, &["init", "--quiet"]) {
        println!("SKIP: git is not installed");
        return;
    }
    fs::create_dir_all(root.join("crates")).expect("a folder");
    fs::write(root.join("crates/a.rs"), "one").expect("a file");
    commit_all(root);
    let first = commit(root);
    assert!(first.len() >= 12 && first.bytes().all(|byte| byte.is_ascii_hexdigit()));

    // Of the sources, new files as well; others are not in the program.
    fs::write(root.join("README.md"), "text").expect("a file");
    assert_eq!(commit(root), first);
    fs::write(root.join("crates/b.rs"), "two").expect("a file");
    assert_eq!(commit(root), format!("{first}-modified"));
    fs::remove_file(root.join("crates/b.rs")).expect("the file");
    assert_eq!(commit(root), first);
    fs::write(root.join("crates/a.rs"), "three").expect("a file");
    assert_eq!(commit(root), format!("{first}-modified"));

    // A commit changes what cargo watches, also in a linked working tree.
    let linked = folder.path().join("target/linked");
    let path = linked.to_str().expect("a plain name");
    assert!(git(root, &["worktree", "add", "--quiet", "-b", "other", path]));
    assert_eq!(commit(&linked), first);
    for tree in [root, &linked] {
        let before = watched(tree);
        // Equal changes at the same moment would be the same commit.
        fs::write(tree.join("crates/a.rs"), tree.to_str().expect("a plain name")).expect("a file");
        commit_all(tree);
        assert_ne!(commit(tree), first);
        let after = watched(tree);
        assert!(after.iter().any(|file| !before.contains(file)), "{after:?}");
    }
    assert_ne!(commit(&linked), commit(root));

    // An archive that is unpacked inside of a working tree has no commit, and neither has a folder
    // that is in none.
    let unpacked = root.join("crates");
    assert_eq!(commit(&unpacked), "unknown");
    assert!(Sources::at(&unpacked, &PRODUCT).watched().is_empty());
    assert_eq!(commit(Path::new("/")), "unknown");
}

fn commit(root: &Path) -> String {
    Sources::at(root, &PRODUCT).commit()
}

/// The files of the repository that cargo watches, with their contents. Folders of sources are not
/// among them.
fn watched(root: &Path) -> Vec<(String, String)> {
    let paths = Sources::at(root, &PRODUCT).watched();
    assert!(paths.iter().all(|path| path.exists()));
    let files = paths.into_iter().filter(|path| path.is_file());
    files
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a file");
            (path.display().to_string(), text)
        })
        .collect()
}

fn commit_all(root: &Path) {
    assert!(git(root, &["add", "--all", "crates"]));
    assert!(git(root, &["commit", "--quiet", "--message", "a change"]));
}

/// Runs git, and returns whether it succeeded; nothing of this machine's configuration takes part.
fn git(root: &Path, arguments: &[&str]) -> bool {
    let status = commit::git(root)
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.com"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .status();
    status.is_ok_and(|status| status.success())
}
