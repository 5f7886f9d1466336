//! The files of the tree.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// All regular files below `root`, sorted, without those in folders that cargo or git fills.
pub(crate) fn below(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_file() {
                files.push(entry.path());
            } else if kind.is_dir() && !GENERATED.iter().any(|name| entry.file_name() == *name) {
                folders.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The path of a file from `root`, as text.
pub(crate) fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.to_string_lossy().into_owned()
}

const GENERATED: [&str; 2] = ["target", ".git"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_every_folder_but_the_generated_ones() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        for name in ["b.rs", "a/b/c.md", "a/target/x.rs", ".git/x", ".ci/run"] {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, "").expect("writable");
        }
        std::os::unix::fs::symlink(tree.path(), tree.path().join("loop")).expect("writable");
        let found = below(tree.path()).expect("readable");
        let names: Vec<_> = found.iter().map(|path| relative(tree.path(), path)).collect();
        assert_eq!(names, [".ci/run", "a/b/c.md", "b.rs"]);
    }
}
