//! Text of strangers: names of processes, files and cgroups, and what other processes say of themselves.
//!
//! Any user chooses such a name. Shown as it is, it could steer a terminal, reverse the direction of what
//! follows or look like another line. [`escaped`] is for a name in a line for people, [`json_line`] for JSON,
//! [`label`] for Prometheus, and [`printable`] for whole texts. [`columns`] puts texts below one another.

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
    escape(name, |character| matches!(character, '\n' | ' ' | '"' | '\'' | '\\'))
}

/// A whole number with a comma between thousands.
pub fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rows in columns, the first a head with a rule below it. Columns of `left` begin at the left, others end at the
/// right. Their cells are [`printable`] already.
pub fn columns(rows: &[Vec<String>], left: &[bool]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| Some(row.get(column)?.chars().count()))
            .max()
    };
    let widths: Vec<usize> = (0..left.len()).map(|column| width(column).unwrap_or(0)).collect();
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let (head, others) = rows.split_at(rows.len().min(1));
    let mut text = String::new();
    for row in head.iter().chain([&rule]).chain(others) {
        let cells = row.iter().zip(&widths).zip(left);
        let cells = cells.map(|((cell, &width), left)| match left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Defines an enum whose values have names, as files, arguments and metrics spell them: `ALL` has every value, and `name`
/// gives the name. With a text after the type, `FromStr` takes it back: the text says in messages what the values are.
#[macro_export]
macro_rules! named {
    (
        $(#[$of_type:meta])*
        $visibility:vis enum $Type:ident {
            $($(#[$of_value:meta])* $Value:ident = $name:literal,)+
        }
    ) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $Type {
            $($(#[$of_value])* $Value,)+
        }

        impl $Type {
            /// Every value, in the order of tables.
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$Value),+];

            /// Name of the value.
            $visibility const fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)+
                }
            }
        }
    };
    (
        $(#[$of_type:meta])*
        $visibility:vis enum $Type:ident: $what:literal {
            $($(#[$of_value:meta])* $Value:ident = $name:literal,)+
        }
    ) => {
        $crate::named! {
            $(#[$of_type])*
            $visibility enum $Type {
                $($(#[$of_value])* $Value = $name,)+
            }
        }

        impl ::std::str::FromStr for $Type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let known = Self::ALL.into_iter().find(|one| one.name() == text);
                known.ok_or_else(|| {
                    let names = [$($name),+].join(", ");
                    format!("{text:?} is no {}; choose from {names}", $what)
                })
            }
        }
    };
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

    named! {
        /// A fruit.
        enum Fruit: "fruit" {
            /// Red.
            Apple = "apple",
            /// Yellow.
            Lemon = "lemon",
        }
    }

    #[test]
    fn a_value_is_found_by_its_name_and_a_message_lists_all_names() {
        for fruit in Fruit::ALL {
            assert_eq!(fruit.name().parse(), Ok(fruit));
        }
        let refused = "pear".parse::<Fruit>();
        assert_eq!(
            refused,
            Err("\"pear\" is no fruit; choose from apple, lemon".to_owned())
        );
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "b", ""], ["cc", "1,000", ""], ["", "", "d"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let text = columns(&rows, &[true, false, true]);
        assert_eq!(text, "a       b\n--  -----  -\ncc  1,000\n           d\n");
    }

    #[test]
    fn thousands_have_commas() {
        for (digits, expected) in [("", ""), ("999", "999"), ("1234567", "1,234,567")] {
            assert_eq!(thousands(digits), expected);
        }
    }

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
        assert_eq!(printable("\x1b[2J\r\u{9b}\u{2066}"), "\\u{1b}[2J\\r\\u{9b}\\u{2066}");
    }

    #[test]
    fn a_label_keeps_what_its_format_escapes() {
        assert_eq!(label("dev-a\\x2db\"\n\u{9b}"), "dev-a\\x2db\"\n\\u{9b}");
    }

    #[test]
    fn lines_of_json_cannot_steer_a_terminal_and_mean_the_same() {
        let value = "a\x1b[2J\u{9b}\u{7f}\u{202e}é\u{e0001}\\\"\n";
        let line = json_line(&value);
        assert_eq!(line, "\"a\\u001b[2J\\u009b\\u007f\\u202eé\\udb40\\udc01\\\\\\\"\\n\"\n");
        let back: String = serde_json::from_str(&line).unwrap();
        assert_eq!(back, value);
    }
}
