//! Argument values that sub-commands share.

use std::time::Duration;

/// Reads a span of time in seconds, like `10` or `0.5`, up to a week.
///
/// # Errors
///
/// A text for people: what is no number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
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
        for wrong in ["", "x", "-1", "inf", "NaN", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
    }
}
