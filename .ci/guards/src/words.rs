//! Words that make a sentence hard to read, in every text of the tree.
//!
//! The project is written for engineers whose first language may be another. [`archaic`] finds
//! words and phrases that they would have to look up or to read twice. It looks at comments and
//! sentences in string literals of Rust, and at whole files of Markdown, TOML, shell and make.
//! Identifiers are not looked at, and neither is a word in quotes of its own, like the user
//! `nobody`.

use crate::files;
use std::fs;
use std::io;
use std::path::Path;

/// Every use of one of [`REFUSED`] below `root`, with file and line.
pub fn archaic(root: &Path) -> io::Result<Vec<String>> {
    let mut violations = Vec::new();
    for path in files::below(root)? {
        let name = files::relative(root, &path);
        if EXEMPT.iter().any(|exempt| name.starts_with(exempt)) || !is_text(&path)? {
            continue;
        }
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            text => text?,
        };
        let rust = name.ends_with(".rs");
        // The end of the line before, as a phrase may begin there.
        let mut before = String::new();
        for (line, number) in text.lines().zip(1..) {
            let prose = if rust { prose(line) } else { line.to_owned() };
            let prose = prose.to_lowercase();
            let both = format!(
                "{before} {}",
                prose.trim_start_matches(['#', '/', '!', ' ', '*'])
            );
            for (word, better) in REFUSED {
                if says(&prose, word) || says(&both, word) && !says(&before, word) {
                    violations.push(format!("{name}:{number}: \"{word}\"; say {better}"));
                }
            }
            let words: Vec<&str> = prose.split_whitespace().collect();
            before = words[words.len().saturating_sub(3)..].join(" ");
        }
    }
    Ok(violations)
}

/// What a line of Rust says to people: its comment, and string literals of more than one word.
fn prose(line: &str) -> String {
    let mut prose = String::new();
    let mut literal: Option<String> = None;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match (&mut literal, character) {
            (Some(text), '\\') => {
                let escaped = characters.next();
                text.push(if escaped == Some('"') { '"' } else { ' ' });
            }
            (Some(text), '"') => {
                if text.contains(' ') {
                    prose.push_str(text);
                }
                prose.push(' ');
                literal = None;
            }
            (Some(text), other) => text.push(other),
            (None, '"') => literal = Some(String::new()),
            (None, '/') if characters.peek() == Some(&'/') => {
                prose.extend(characters);
                return prose;
            }
            (None, _) => {}
        }
    }
    // A literal that goes on in the next line, and the middle of one: code has punctuation.
    if literal.is_some() || !line.contains(['"', ';', '{', '}', '(', '=']) {
        return line.to_owned();
    }
    prose
}

/// Whether `text`, in lower case, has `word` as a whole word, and not in quotes of its own.
fn says(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let part = |neighbour: Option<char>| {
            neighbour.is_some_and(|neighbour| neighbour.is_alphanumeric() || neighbour == '_')
        };
        let quote = |neighbour: Option<char>| matches!(neighbour, Some('"' | '`' | '\'' | '\\'));
        !(part(before) || part(after) || quote(before) && quote(after))
    })
}

/// Rust, Markdown, TOML, and what a shell or make reads.
fn is_text(path: &Path) -> io::Result<bool> {
    Ok(
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) => ["rs", "md", "toml", "sh"].contains(&extension),
            None => path.ends_with("Makefile") || fs::read(path)?.starts_with(b"#!"),
        },
    )
}

/// Each word or phrase with what to say in its place.
pub const REFUSED: &[(&str, &str)] = &[
    ("affair", "what it is: a task, a decision, a cost"),
    ("can be had", "\"is available\""),
    ("for want of", "\"because there is no\""),
    ("in company", "\"together with others\""),
    ("lest", "\"so that … not\""),
    (
        "nobody",
        "who does not, or \"no one\" in its place: \"no thread\", \"no other job\"",
    ),
    ("of which can be", "two sentences"),
    ("somebody", "who"),
    ("to be had", "\"available\""),
    ("whoever", "who: \"the caller that\", \"the thread that\""),
];

/// This list, its tests, and data that is not text.
const EXEMPT: &[&str] = &[".ci/guards/src/words.rs", "fuzz/corpus/", "lab/records/"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_easy_to_read() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.ancestors().nth(2).expect("two levels up");
        let found = archaic(root).expect("the tree is readable");
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn planted_words_are_found() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        let plant = |name: &str, text: &str| {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        };
        plant(
            "README.md",
            "The user `nobody` and the harvest of clests.\n",
        );
        plant(
            "a/src/lib.rs",
            "let nobody = f(\"nobody\", \"user = \\\"nobody\\\" x\");\n",
        );
        plant("target/debug/build.md", "lest\n");
        plant("tool", "just bytes: lest\n");
        assert_eq!(archaic(tree.path()).expect("readable"), [""; 0]);

        plant("README.md", "One\n\nThe door is locked, lest it open.\n");
        plant("Makefile", "# Whoever makes it.\n");
        plant(
            "tool",
            "#!/bin/sh\n# what cannot be built for want of\n# a compiler\n",
        );
        plant("a/Cargo.toml", "# It is to be\n# had.\n");
        plant(
            "a/src/lib.rs",
            "//! Nobody waits.\nlet x = f(\"nobody\", \"for somebody else\");\n\
             let y = \"it says \\\n    that nobody waits \\\n    for it\";\n",
        );
        let found = archaic(tree.path()).expect("readable");
        let places: Vec<&str> = found
            .iter()
            .map(|line| line.split("; ").next().expect("a part"))
            .collect();
        let expected = [
            "Makefile:1: \"whoever\"",
            "README.md:3: \"lest\"",
            "a/Cargo.toml:2: \"to be had\"",
            "a/src/lib.rs:1: \"nobody\"",
            "a/src/lib.rs:2: \"somebody\"",
            "a/src/lib.rs:4: \"nobody\"",
            "tool:2: \"for want of\"",
        ];
        assert_eq!(places, expected);
    }
}
