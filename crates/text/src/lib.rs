//! Text of strangers: names of processes, files and cgroups, and what other processes say of themselves.
//!
//! Any user chooses such a name. Shown as it is, it could steer a terminal, reverse the direction of what
//! follows or look like another line. [`escaped`] is for a name in a line for people, [`json_line`] for JSON,
//! [`label`] for Prometheus, and [`printable`] for whole texts.

#![forbid(unsafe_code)]

use serde::Serialize;
use std::fmt::Write as _;

/// A name in a line for people: what is not printable is written as `\u{…}` or `\n`, a backslash as two.
pub fn escaped(name: &str) -> String {
    escape(name, |character| matches!(character, ' ' | '"' | '\''))
}

/// A whole text for people, whose names are [`escaped`] already: only line ends and tabs stay of what is not
/// printable.
pub fn printable(text: &str) -> String {
    let plain = |character| matches!(character, '\n' | '\t' | ' ' | '"' | '\'' | '\\');
    escape(text, plain)
}

/// The value of a label of Prometheus. Its format escapes backslashes, quotes and line ends by itself.
pub fn label(name: &str) -> String {
    escape(name, |character| {
        matches!(character, '\n' | ' ' | '"' | '\'' | '\\')
    })
}

fn escape(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if stays(character) {
            shown.push(character);
        } else {
            // The standard library knows direction marks, unassigned code points and the like.
            shown.extend(character.escape_debug());
        }
    }
    shown
}

/// A line of JSON. Control characters and direction marks that JSON allows are escaped too, as terminals obey
/// them.
pub fn json_line(value: &impl Serialize) -> String {
    // Numbers, strings and lists always become JSON.
    let json = serde_json::to_string(value).unwrap_or_default();
    let mut line = String::with_capacity(json.len() + 1);
    for character in json.chars() {
        // Shows the same characters as `escape`.
        let is_shown = (' '..='~').contains(&character) || {
            let mut escape = character.escape_debug();
            escape.next() == Some(character)
        };
        match is_shown {
            true => line.push(character),
            false => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(line, "\\u{unit:04x}");
                }
            }
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_steer_a_terminal() {
        let escape = escaped("a\x1b[2J\nb\u{9b}\u{202e}c é\\");
        assert_eq!(escape, "a\\u{1b}[2J\\nb\\u{9b}\\u{202e}c é\\\\");
        assert_eq!(escaped("it's \"plain\""), "it's \"plain\"");
    }

    #[test]
    fn of_a_whole_text_lines_and_escapes_stay() {
        let text = "a \"b\"\t'c'\n\\u{9b} – µé\n";
        assert_eq!(printable(text), text);
        assert_eq!(
            printable("\x1b[2J\r\u{9b}\u{2066}"),
            "\\u{1b}[2J\\r\\u{9b}\\u{2066}"
        );
    }

    #[test]
    fn a_label_keeps_what_its_format_escapes() {
        assert_eq!(label("dev-a\\x2db\"\n\u{9b}"), "dev-a\\x2db\"\n\\u{9b}");
    }

    #[test]
    fn lines_of_json_cannot_steer_a_terminal_and_mean_the_same() {
        let value = "a\x1b[2J\u{9b}\u{7f}\u{202e}é\u{e0001}\\\"\n";
        let line = json_line(&value);
        assert_eq!(
            line,
            "\"a\\u001b[2J\\u009b\\u007f\\u202eé\\udb40\\udc01\\\\\\\"\\n\"\n"
        );
        let back: String = serde_json::from_str(&line).unwrap();
        assert_eq!(back, value);
    }
}
