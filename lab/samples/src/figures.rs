//! Tables of figures in documents, each from its records: written by a program, so that none is typed.
//!
//! A document marks a table by two comments that its readers do not see, each in a line of its own:
//!
//! ```text
//! <!-- figures memory lab/records/2026-01-02-cpu.jsonl -->
//! the table
//! <!-- /figures -->
//! ```
//!
//! [`renew`] writes the tables, [`faults`] finds other tables there, and numbers with units that no record is behind.
//! `render.rs` lists the marks.

mod render;

use std::fs;
use std::path::Path;

/// Faults of the figures in `document`, a path below `root`: one line each.
///
/// # Errors
///
/// If the document cannot be read, or a mark is wrong.
pub fn faults(root: &Path, document: &Path) -> Result<Vec<String>, String> {
    let text = read(root, document)?;
    let mut faults = Vec::new();
    let mut prose = String::new();
    for piece in pieces(&text)? {
        match piece {
            Piece::Prose(text) => prose.push_str(text),
            Piece::Figures { mark, shown, line } => {
                prose.extend(shown.chars().filter(|c| *c == '\n'));
                let meant = rendered(root, document, mark)?;
                if let Some(fault) = difference(shown, &meant) {
                    faults.push(format!("{}:{line}: `{mark}`: {fault}", document.display()));
                }
            }
        }
    }
    for (line, figure) in stray(&prose) {
        faults.push(format!(
            "{}:{line}: no record is behind {figure:?}: mark it with `figures`",
            document.display()
        ));
    }
    Ok(faults)
}

/// Writes into `document`, a path below `root`, the tables of its records; returns true if anything changed.
///
/// # Errors
///
/// If the document cannot be read or written, or a mark is wrong.
pub fn renew(root: &Path, document: &Path) -> Result<bool, String> {
    let before = read(root, document)?;
    let mut after = String::new();
    for piece in pieces(&before)? {
        match piece {
            Piece::Prose(text) => after.push_str(text),
            Piece::Figures { mark, .. } => {
                let meant = rendered(root, document, mark)?;
                after.push_str(&format!("{OPEN} {mark} {CLOSE}{meant}{END}"));
            }
        }
    }
    let changed = after != before;
    if changed {
        fs::write(root.join(document), after).map_err(|error| error.to_string())?;
    }
    Ok(changed)
}

/// Text in which tables are marked.
enum Piece<'a> {
    Prose(&'a str),
    Figures {
        /// Request in the first comment.
        mark: &'a str,
        /// Text between the comments.
        shown: &'a str,
        line: usize,
    },
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((prose, after)) = rest.split_once(OPEN) {
        let line = text[..text.len() - after.len()].lines().count();
        let not_closed = || format!("the mark in line {line} is not closed by `{CLOSE}`");
        let not_ended = || format!("the table that the mark in line {line} begins has no `{END}`");
        let (mark, after) = after.split_once(CLOSE).ok_or_else(not_closed)?;
        let (shown, after) = after.split_once(END).ok_or_else(not_ended)?;
        if shown.contains(OPEN) {
            return Err(not_ended());
        }
        if !(prose.is_empty() || prose.ends_with('\n')) {
            return Err(format!("line {line}: a mark begins its line"));
        }
        pieces.push(Piece::Prose(prose));
        pieces.push(Piece::Figures {
            mark: mark.trim(),
            shown,
            line,
        });
        rest = after;
    }
    pieces.push(Piece::Prose(rest));
    Ok(pieces)
}

/// Text that must stand between the comments, from the records.
fn rendered(root: &Path, document: &Path, mark: &str) -> Result<String, String> {
    // A document in a folder links upwards to the records.
    let up = "../".repeat(document.components().count().saturating_sub(1));
    render::render(root, &up, mark).map_err(|reason| format!("`{mark}`: {reason}"))
}

/// The first line that is not as in the record.
fn difference(shown: &str, meant: &str) -> Option<String> {
    if shown == meant {
        return None;
    }
    let mut lines = meant.lines();
    let differs = shown.lines().find_map(|shown| {
        let meant = lines.next().unwrap_or("nothing");
        (shown != meant).then(|| format!("{shown:?} stands where the record says {meant:?}"))
    });
    differs.or_else(|| Some("lines of the record are missing".to_owned()))
}

/// Numbers in prose that look measured, with their lines: grouped by commas, or followed by a unit.
/// Code is left out: it quotes commands.
fn stray(prose: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in prose.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.starts_with("    ") {
            continue;
        }
        // Every second part stands between backticks.
        let text: Vec<_> = line.split('`').step_by(2).collect();
        let text = text.join(" code ");
        let words: Vec<_> = text
            .split(|c: char| c.is_whitespace() || "()[]|".contains(c))
            .map(|word| word.trim_matches(|c: char| ".,;:!?\"'".contains(c)))
            .filter(|word| !word.is_empty())
            .collect();
        for (at, word) in words.iter().enumerate() {
            let digits = word.trim_start_matches(['+', '-', '~', '×']);
            let number = digits.trim_end_matches(|c: char| !c.is_ascii_digit());
            let unit = &digits[number.len()..];
            let unit = if unit.is_empty() {
                words.get(at + 1).copied().unwrap_or("")
            } else {
                unit
            };
            let is_unit = UNITS.split(' ').any(|one| one == unit);
            let numeric = number.starts_with(|c: char| c.is_ascii_digit())
                && number.chars().all(|c| c.is_ascii_digit() || ".,".contains(c));
            if numeric && (number.contains(',') || is_unit || word.starts_with('×')) {
                found.push((index + 1, format!("{number} {unit}").trim().to_owned()));
            }
        }
    }
    found
}

fn read(root: &Path, document: &Path) -> Result<String, String> {
    fs::read_to_string(root.join(document)).map_err(|error| error.to_string())
}

const OPEN: &str = "<!-- figures";
const CLOSE: &str = "-->";
const END: &str = "<!-- /figures -->";
/// Units that follow a measured number in prose.
const UNITS: &str = "\
    % × x µs us ms ns s GB/s MB kB GB MiB times handshakes/s ops/s percent GHz microseconds milliseconds seconds bytes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_with_measured_numbers_is_found() {
        let strays = |prose: &str| -> Vec<String> {
            let found = stray(prose);
            found.into_iter().map(|(_, figure)| figure).collect()
        };
        for (prose, figure) in [
            ("It takes 108 µs.", "108 µs"),
            ("(3.99 times)", "3.99 times"),
            ("about 9,069 of them", "9,069 of"),
            ("less by 12%, it", "12 %"),
            ("and ×4.4", "4.4"),
            ("| nginx | 2296 handshakes/s |", "2296 handshakes/s"),
            ("7.4\u{a0}GB/s", "7.4 GB/s"),
        ] {
            assert_eq!(strays(prose), [figure], "{prose}");
        }
        for plain in [
            "TLS 1.3 with RSA-2048, AVX-512 and 64 in flight",
            "`--seconds 0.4 s` and\n    sleep 5 s\n```\n12 %\n```\nDebian 12, rustls 0.23",
            "X25519MLKEM768 needs OpenSSL 3.5; full TLS 1.3 handshakes",
        ] {
            assert!(strays(plain).is_empty(), "{plain}: {:?}", strays(plain));
        }
    }

    #[test]
    fn a_mark_without_an_end_or_a_line_of_its_own_is_refused() {
        for (text, line) in [
            ("a\n<!-- figures pair x\nb", "line 2"),
            ("<!-- figures pair x -->1", "line 1"),
            ("<!-- figures a -->1\n<!-- figures b -->2<!-- /figures -->", "line 1"),
            ("a\nb <!-- figures x -->1<!-- /figures -->", "line 2"),
        ] {
            let error = pieces(text).err().expect("refused");
            assert!(error.contains(line), "{error}");
        }
    }
}
