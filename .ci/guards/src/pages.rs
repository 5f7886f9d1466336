//! Paths that pages name.

use crate::files;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Paths in the Markdown pages of a tree that do not exist there: words in backquotes that begin with a folder at the
/// top of the tree, or that end a path of Rust code; and links that lead to no other site.
///
/// Blocks between fences and indented ones are left out: they show commands, which name what these make. So are words
/// with other characters than those of file names, as patterns and placeholders have.
pub fn dangling(root: &Path) -> io::Result<Vec<String>> {
    let files = files::below(root)?;
    let top = top_folders(root, &files);
    let mut violations = Vec::new();
    for path in &files {
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let name = files::relative(root, path);
        let text = fs::read_to_string(path)?;
        let folder = path.parent().unwrap_or(root);
        for (line, number) in prose(&text) {
            let named = named(line).filter(|word| match begins_with(word, &top) {
                true => !root.join(word).exists(),
                false => word.ends_with(".rs") && !files.iter().any(|file| file.ends_with(word)),
            });
            let links = links(line).filter(|target| !leads_to_a_file(root, folder, target));
            violations.extend(
                named
                    .chain(links)
                    .map(|word| format!("{name}:{number}: there is no {word}")),
            );
        }
    }
    Ok(violations)
}

/// Names of the folders at the top of the tree, but for what cargo and git fill.
fn top_folders(root: &Path, files: &[PathBuf]) -> BTreeSet<String> {
    let names = files.iter().filter_map(|path| {
        let name = files::relative(root, path);
        name.split_once('/').map(|(folder, _)| folder.to_owned())
    });
    names.collect()
}

/// Lines of a page outside of blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut in_block = false;
    text.lines().zip(1..).filter(move |(line, _)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence && !line.starts_with("    ")
    })
}

/// Words in backquotes that may be paths, without a number of a line behind them.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let words = quoted.flat_map(str::split_whitespace);
    let words = words.map(|word| word.split_once(':').map_or(word, |(path, _)| path));
    words.filter(|word| word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@".contains(c)))
}

/// Targets of links that are files of the tree, without their anchors.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let files = targets.map(|(target, _)| target.split_once('#').map_or(target, |(file, _)| file));
    files.filter(|file| !file.is_empty() && !file.contains(':'))
}

fn begins_with(word: &str, top: &BTreeSet<String>) -> bool {
    word.split_once('/').is_some_and(|(folder, _)| top.contains(folder))
}

/// Returns whether the target of a link in a page of `folder` exists.
fn leads_to_a_file(root: &Path, folder: &Path, target: &str) -> bool {
    match target.strip_prefix('/') {
        Some(from_root) => root.join(from_root).exists(),
        None => folder.join(target).exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_name_files_that_exist() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).expect("two levels up");
        let violations = dangling(root).expect("the tree is readable");
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }

    #[test]
    fn planted_paths_are_found() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let page = "`src/a.rs`, `src/`, `src/a.rs:7` and `cat src/gone.rs`; `src/*.rs`, `other/x`, src/gone.rs, `a.rs`, `c.rs`\n\
                    [a](src/a.rs#b), [b](gone.md#c), [c](https://a.test/x), [d](#e), [f](docs/p.md), `a`[g](docs/q.md)\n\
                    ```\n`src/shown.rs`\n```\n    `src/indented.rs`\n| `src/b/c.rs` | [h](/src/a.rs) |\n";
        let inner = "[up](../src/a.rs) [up](../a.rs) `docs/p.md`\n";
        for (name, text) in [("README.md", page), ("src/a.rs", ""), ("docs/p.md", inner)] {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        let found = dangling(tree.path()).expect("readable");
        let expected = [
            "README.md:1: there is no src/gone.rs",
            "README.md:1: there is no c.rs",
            "README.md:2: there is no gone.md",
            "README.md:2: there is no docs/q.md",
            "README.md:7: there is no src/b/c.rs",
            "docs/p.md:1: there is no ../a.rs",
        ];
        assert_eq!(found, expected);
    }
}
