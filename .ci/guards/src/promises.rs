//! The tests that SECURITY.md names.

use crate::files;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// Promises of `SECURITY.md` without a test, and tests that it names and that do not exist.
///
/// A promise is a paragraph that begins in bold in the section `What Widelane promises`; its tests follow it in a
/// paragraph that begins with `Tests: `, each in backticks.
pub fn unkept(root: &Path) -> io::Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE))?;
    let tests = tests(root)?;
    let mut violations = Vec::new();
    let section = page.split("\n## ").find(|part| part.starts_with(SECTION));
    let paragraphs = section.unwrap_or_default().split("\n\n");
    // Of the last promise, whose tests are due.
    let mut due: Option<&str> = None;
    for paragraph in paragraphs.chain(["**"]) {
        if let Some(names) = paragraph.strip_prefix("Tests: ") {
            due = None;
            for name in names.split('`').skip(1).step_by(2) {
                if !tests.contains(name) {
                    violations.push(format!("{PAGE}: no test is called {name}"));
                }
            }
        } else if paragraph.starts_with("**")
            && let Some(before) = due.replace(paragraph.lines().next().unwrap_or_default())
        {
            violations.push(format!("{PAGE}: a promise without tests: {before}"));
        }
    }
    Ok(violations)
}

/// Names of the functions in Rust files that are marked as tests or lie in a macro of proptest.
fn tests(root: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for path in files::below(root)? {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            match line.strip_prefix("fn ") {
                Some(function) if is_test => {
                    names.extend(function.split('(').next().map(str::to_owned));
                    is_test = false;
                }
                _ if line == "#[test]" => is_test = true,
                // Other attributes and comments lie between them.
                _ => is_test &= line.starts_with("#[") || line.starts_with("//"),
            }
        }
    }
    Ok(names)
}

const PAGE: &str = "SECURITY.md";
const SECTION: &str = "What Widelane promises";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_promise_has_its_tests() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).expect("two levels up");
        let violations = unkept(root).expect("the tree is readable");
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }

    #[test]
    fn planted_promises_without_tests_are_found() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let page = "# Security\n\n## What Widelane promises\n\n**Good.** It is.\n\nTests: `kept`, `lost`.\n\n\
                    **Bad.**\n\nMore of it.\n\n**Also bad.**\n\n## Else\n\n**Nothing promised.**\n";
        let code = "#[test]\n#[cfg(unix)]\nfn kept() {}\nfn lost() {}\n";
        fs::write(tree.path().join(PAGE), page).expect("writable");
        fs::write(tree.path().join("a.rs"), code).expect("writable");
        let found = unkept(tree.path()).expect("readable");
        let expected = [
            "SECURITY.md: no test is called lost",
            "SECURITY.md: a promise without tests: **Bad.**",
            "SECURITY.md: a promise without tests: **Also bad.**",
        ];
        assert_eq!(found, expected);
    }
}
