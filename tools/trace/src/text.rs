//! What lines for people have in common: escaped names, times, and tables of fixed columns.

use std::fmt::Write as _;

/// A name from outside, so that nothing of it steers a terminal or looks like another line: what is
/// not printable is written as `\u{…}`, a backslash as two.
pub fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            ' ' | '"' | '\'' => text.push(character),
            // Direction marks, unassigned code points and the like are escaped by the standard library.
            _ => text.extend(character.escape_debug()),
        }
    }
    text
}

/// The name of a thread, as the kernel has it: up to the first zero byte.
pub fn thread_name(comm: &[u8; 16]) -> String {
    let end = comm
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..end).unwrap_or_default()).into_owned()
}

/// Nanoseconds with three digits and a unit, as `12.3µs`.
pub fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        ..9.995 => format!("{value:.2}{unit}"),
        ..99.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// The time of day in UTC, with microseconds, of nanoseconds since 1970.
pub fn time_of_day(ns: u64) -> String {
    let (seconds, micros) = (ns / 1_000_000_000 % 86_400, ns / 1_000 % 1_000_000);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{micros:06}", seconds % 60)
}

/// A label of the text format of Prometheus, with what the format escapes.
pub(crate) fn label(text: &mut String, name: &str, value: &str) {
    let _ = write!(text, "{name}=\"");
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// A line of JSON. Control characters and direction marks that JSON allows are escaped too, as terminals obey
/// them.
pub fn json_line(value: &impl serde::Serialize) -> String {
    // Numbers, strings and lists always become JSON.
    let json = serde_json::to_string(value).unwrap_or_default();
    let mut line = String::with_capacity(json.len() + 1);
    for character in json.chars() {
        // As in `escaped`.
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

/// Microseconds, for JSON.
pub(crate) fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
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

    #[test]
    fn a_thread_name_ends_at_zero_and_may_be_anything() {
        assert_eq!(thread_name(b"nginx\0old name\0\0"), "nginx");
        assert_eq!(thread_name(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(thread_name(&[0xff; 16]).chars().count(), 16);
    }

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_234, "1.23µs"),
            (9_999, "10.0µs"),
            (45_678, "45.7µs"),
            (345_678, "346µs"),
            (2_000_000, "2.00ms"),
            (61_000_000_000, "61.0s"),
        ] {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(
            time_of_day(86_400_000_000_000 + 3_723_000_001_000),
            "01:02:03.000001"
        );
    }
}
