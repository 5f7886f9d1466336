//! Names and times, as lines for people show them.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use serde_json::Value;

pub(crate) use widelane_text::{escaped, json_line, thousands};

/// The name of a thread, as the kernel has it: up to the first zero byte.
pub fn thread_name(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|&byte| byte == 0).unwrap_or(comm.len());
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
    for character in widelane_text::label(value).chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// Members of a JSON object, in the order in which they are printed: a map of `serde_json` would sort them.
pub(crate) struct Members<const N: usize>(pub(crate) [(&'static str, Value); N]);

impl<const N: usize> Serialize for Members<N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Microseconds, for JSON.
pub(crate) fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Serializes nanoseconds as microseconds.
pub(crate) fn as_micros<S: Serializer>(ns: &u64, to: S) -> Result<S::Ok, S::Error> {
    micros(*ns).serialize(to)
}

/// Serializes nanoseconds that may not be known as microseconds.
pub(crate) fn known_as_micros<S: Serializer>(ns: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    ns.map(micros).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(time_of_day(86_400_000_000_000 + 3_723_000_001_000), "01:02:03.000001");
    }
}
