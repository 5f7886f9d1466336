//! How files are opened by what runs as root.

use crate::files;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::fs;
use std::io;
use std::path::Path;

/// Code that opens, writes or makes files by itself. `widelane_files` does it: there links are not followed, pipes
/// not waited for and names of drafts not guessed. Text of strangers becomes JSON by `widelane_text` alone.
///
/// Tests and build scripts may, and so may the files of [`EXCEPTIONS`].
pub fn by_itself(root: &Path) -> io::Result<Vec<String>> {
    let mut violations = Vec::new();
    for path in files::below(root)? {
        let name = files::relative(root, &path);
        let in_room = ROOMS.iter().any(|room| name.starts_with(room));
        if !in_room || is_for_tests(&name) {
            continue;
        }
        let excepted = EXCEPTIONS.iter().find(|one| name.starts_with(one.place));
        let text = fs::read_to_string(&path)?;
        // Another rule finds files that are no Rust.
        let tokens: TokenStream = text.parse().unwrap_or_default();
        let mut found = Vec::new();
        look(tokens, &mut found);
        found.dedup();
        found.retain(|what| !excepted.is_some_and(|one| one.allows(what)));
        violations.extend(
            found
                .into_iter()
                .map(|what| format!("{name}: uses {what}; widelane_files and widelane_text do that in one way")),
        );
    }
    Ok(violations)
}

fn is_for_tests(name: &str) -> bool {
    let ends = ["/tests.rs", "/build.rs", "/build/main.rs"];
    !name.ends_with(".rs") || name.contains("/tests/") || ends.iter().any(|end| name.ends_with(end))
}

/// What is forbidden in these tokens, without modules for tests.
fn look(tokens: TokenStream, found: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    let mut is_test = false;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Group(group) if is_cfg_test(tokens.get(at.wrapping_sub(1)), group) => {
                is_test = true;
            }
            // The body of the module, or the end of another item, which is not left out.
            TokenTree::Group(group) if is_test && group.delimiter() == Delimiter::Brace => {
                is_test = false;
            }
            TokenTree::Group(group) => look(group.stream(), found),
            TokenTree::Punct(punct) if punct.as_char() == ';' => is_test = false,
            TokenTree::Ident(ident) if !is_test => {
                let ident = ident.to_string();
                if WORDS.contains(&ident.as_str()) {
                    found.push(ident.clone());
                }
                for (of, names) in MEMBERS {
                    let after = tokens.get(at + 1..).unwrap_or_default();
                    if ident == *of {
                        members(of, after, names, found);
                    }
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        at += 1;
    }
}

/// `of::name` and `of::{name, …}`.
fn members(of: &str, after: &[TokenTree], names: &[&str], found: &mut Vec<String>) {
    let colon = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ':');
    let [first, second, member, ..] = after else {
        return;
    };
    if !colon(first) || !colon(second) {
        return;
    }
    let mut one = |token: &TokenTree| {
        if let TokenTree::Ident(ident) = token
            && names.iter().any(|name| ident == name)
        {
            found.push(format!("{of}::{ident}"));
        }
    };
    match member {
        TokenTree::Group(group) => group.stream().into_iter().for_each(|token| one(&token)),
        token => one(token),
    }
}

/// `#[cfg(test)]`, and `#[cfg(all(test, …))]`.
fn is_cfg_test(before: Option<&TokenTree>, group: &proc_macro2::Group) -> bool {
    let hash = matches!(before, Some(TokenTree::Punct(punct)) if punct.as_char() == '#');
    hash && inside(group, "cfg")
        .is_some_and(|of| names_test(&of) || inside(&of, "all").is_some_and(|of| names_test(&of)))
}

/// The arguments of `name(…)`, which is all that a group holds.
fn inside(group: &proc_macro2::Group, name: &str) -> Option<proc_macro2::Group> {
    let mut inner = group.stream().into_iter();
    match (inner.next(), inner.next()) {
        (Some(TokenTree::Ident(ident)), Some(TokenTree::Group(of))) if ident == name => Some(of),
        _ => None,
    }
}

fn names_test(group: &proc_macro2::Group) -> bool {
    let is_test = |one| matches!(one, TokenTree::Ident(name) if name == "test");
    group.stream().into_iter().any(is_test)
}

/// What ships and may run as root.
const ROOMS: [&str; 5] = ["adapters/", "apps/", "crates/", "packaging/", "tools/"];
/// A place that may do some of this by itself.
pub struct Exception {
    /// A file, or a folder.
    pub place: &'static str,
    /// What it may use; all if nothing is named.
    uses: &'static [&'static str],
    /// Why.
    pub reason: &'static str,
}

impl Exception {
    fn allows(&self, what: &str) -> bool {
        self.uses.is_empty() || self.uses.contains(&what)
    }
}

const fn except(place: &'static str, uses: &'static [&'static str], reason: &'static str) -> Exception {
    Exception { place, uses, reason }
}

/// Those places.
pub const EXCEPTIONS: &[Exception] = &[
    except("crates/files/", &[], "it is the one way"),
    except("crates/text/", &[], "it is the one way"),
    except(
        "crates/affinity/",
        &["fs::read_to_string"],
        "below everything; reads constant paths of the kernel",
    ),
    except(
        "crates/cpu/src/environment.rs",
        &["fs::read"],
        "below everything; reads a constant path of the kernel",
    ),
    except(
        "crates/engine/src/calibration/record.rs",
        &["serde_json::to_string_pretty"],
        "makes the JSON of its own file",
    ),
    except(
        "crates/marks/src/page.rs",
        &["fs::open"],
        "maps a page; refuses links itself",
    ),
    except("crates/poison/", &[], "ships in nothing"),
    except("crates/testkit/", &[], "ships in nothing"),
    except(
        "adapters/rustls/src/generation.rs",
        &["File::open"],
        "maps a device of the kernel",
    ),
    except(
        "adapters/openssl/src/ffi/abi.rs",
        &["fs::read_to_string"],
        "a test compares it with a header",
    ),
    except(
        "apps/load/",
        &[],
        "no instrument: reads what its user names, with the rights of that user",
    ),
    except(
        "crates/access-log/src/output.rs",
        &["OpenOptions"],
        "appends to a log, after it has given up root",
    ),
    except(
        "apps/terminator/src/config/document.rs",
        &["fs::read"],
        "the configuration, which its administrator may give by a pipe",
    ),
    except(
        "apps/terminator/src/demo.rs",
        &["fs::write", "fs::remove_dir_all", "DirBuilder"],
        "a folder of its own that must be new",
    ),
    except(
        "crates/ocsp/src/store.rs",
        &[],
        "a folder of its own, which it hands to the user that it becomes",
    ),
    except(
        "apps/terminator/src/material/ticket_files.rs",
        &[],
        "keys keep owner and mode of the one before, in new files only",
    ),
    except(
        "tools/frequency/src/profile.rs",
        &["serde_json::to_string_pretty"],
        "makes the JSON of its own file",
    ),
    except(
        "tools/steer/src/state.rs",
        &["serde_json::to_string", "serde_json::to_string_pretty"],
        "makes the JSON of its own file",
    ),
    except(
        "tools/threads/src/code.rs",
        &["openat"],
        "folders of processes, by O_PATH",
    ),
    except(
        "tools/threads/src/file.rs",
        &["openat", "openat2"],
        "files of processes, found by O_PATH before they are read",
    ),
    except(
        "tools/threads/src/memory.rs",
        &["openat"],
        "the folder of a process, by O_PATH",
    ),
];
const WORDS: [&str; 5] = ["OpenOptions", "DirBuilder", "NamedTempFile", "openat", "openat2"];
const MEMBERS: &[(&str, &[&str])] = &[
    (
        "fs",
        &[
            "read",
            "read_to_string",
            "write",
            "copy",
            "rename",
            "hard_link",
            "open",
            "create_dir",
            "create_dir_all",
            "remove_file",
            "remove_dir_all",
            "set_permissions",
            "read_to_end",
        ],
    ),
    ("File", &["open", "create", "create_new", "options"]),
    ("serde_json", &["to_string", "to_string_pretty", "to_writer", "to_vec"]),
    ("tempfile", &["Builder", "tempfile", "tempdir"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn root() -> PathBuf {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        here.ancestors().nth(2).expect("two levels up").to_owned()
    }

    #[test]
    fn files_are_opened_in_one_way() {
        let violations = by_itself(&root()).expect("the tree is readable");
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    }

    #[test]
    fn every_exception_exists() {
        for Exception { place, .. } in EXCEPTIONS {
            assert!(root().join(place).exists(), "{place} is gone; shorten the list");
        }
    }

    #[test]
    fn planted_openings_are_found() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let plant = |name: &str, text: &str| {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        };
        let test = "#[cfg(all(test, not(a)))]\nmod tests { fn f() { std::fs::write(\"a\", \"b\"); } }\n";
        plant("tools/a/src/lib.rs", &format!("// fs::write\n{test}"));
        plant("tools/a/tests/t.rs", "fn f() { fs::write(p, t); }");
        plant("tools/a/build.rs", "fn f() { fs::write(p, t); }");
        plant("crates/files/src/a.rs", "fn f() { File::open(p); }");
        plant("lab/a/src/lib.rs", "fn f() { File::open(p); }");
        assert_eq!(by_itself(tree.path()).expect("readable"), [""; 0]);

        let expected = [
            ("fs::write", "fn f() { g(std::fs::write(p, t)); }"),
            ("fs::read", "use std::fs::{self, read};"),
            ("fs::read_to_string", "fn f() { fs::read_to_string(p); }"),
            ("File::create", "fn f() { File::create(p); }"),
            ("OpenOptions", "fn f() { OpenOptions::new(); }"),
            ("openat", "use rustix::fs::{Mode, openat};"),
            ("serde_json::to_string", "fn f() { serde_json::to_string(x) }"),
            ("NamedTempFile", "#[cfg(test)]\nuse a;\nuse tempfile::NamedTempFile;"),
        ];
        for (what, text) in expected {
            plant("tools/a/src/lib.rs", &format!("{test}{text}\n"));
            let found = by_itself(tree.path()).expect("readable");
            let message =
                format!("tools/a/src/lib.rs: uses {what}; widelane_files and widelane_text do that in one way");
            assert_eq!(found, [message], "{text}");
        }
    }
}
