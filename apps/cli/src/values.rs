//! Argument values that sub-commands share.

use std::time::Duration;

/// Reads a span of time in seconds, like `10`, `0.5` or `60s`, up to a week.
///
/// # Errors
///
/// A text for people: what is no number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.strip_suffix('s')
        .unwrap_or(text)
        .parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|span| *span <= LONGEST)
        .ok_or_else(|| {
            format!(
                "`{}` is no number of seconds between 0 and {}",
                text.escape_debug(),
                LONGEST.as_secs()
            )
        })
}

const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("60s"), Ok(Duration::from_secs(60)));
        for wrong in ["", "s", "1ss", "x", "-1", "inf", "NaN", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
    }
}
