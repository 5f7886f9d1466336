//! Argument values that sub-commands share.

use std::time::Duration;

/// A list of CPU numbers and ranges, like `0,2-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(pub Vec<usize>);

/// Reads a [`Cpus`].
///
/// # Errors
///
/// A text for people: what is no number or no range.
pub fn cpus(text: &str) -> Result<Cpus, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<usize>()
            .map_err(|_| format!("`{}` is no CPU number (like 0,2-3)", text.escape_debug()))
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => cpus.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last || last - first > MOST_CPUS {
                    return Err(format!(
                        "`{}` is no range of CPUs (like 2-3)",
                        part.escape_debug()
                    ));
                }
                cpus.extend(first..=last);
            }
        }
    }
    Ok(Cpus(cpus))
}

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

const MOST_CPUS: usize = 65_536;
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("0,2-3"), Ok(Cpus(vec![0, 2, 3])));
        assert_eq!(cpus("7"), Ok(Cpus(vec![7])));
        for wrong in ["", "a", "1,", "3-1", "-1", "0-99999999"] {
            assert!(cpus(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn spans_of_time() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "x", "-1", "inf", "NaN", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
    }
}
