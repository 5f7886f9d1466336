//! Argument values that several sub-commands share.

use std::net::SocketAddr;
use std::time::Duration;

/// A list of CPU numbers and ranges, like `0,2-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus(pub(crate) Vec<usize>);

/// Whether something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Reads a [`Cpus`].
pub(crate) fn cpus(text: &str) -> Result<Cpus, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<usize>()
            .map_err(|_| format!("{text:?} is no CPU number (like 0,2-3)"))
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            None => cpus.push(number(part)?),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last || last - first > MOST_CPUS {
                    return Err(format!("{part:?} is no range of CPUs (like 2-3)"));
                }
                cpus.extend(first..=last);
            }
        }
    }
    Ok(Cpus(cpus))
}

/// Reads a span of time in seconds, like `10` or `0.5`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|span| *span <= LONGEST)
        .ok_or_else(|| {
            format!(
                "{text:?} is no number of seconds between 0 and {}",
                LONGEST.as_secs()
            )
        })
}

/// Reads an address with a port to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "{text:?} is no address with a port; write for example 127.0.0.1:8443, 0.0.0.0:443 for all \
             of IPv4, or [::]:443 for all of IPv6"
        )
    })
}

/// Reads a span of time in seconds that is not zero.
pub(crate) fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("0 seconds measure nothing; give for example 0.5".to_owned()),
        span => Ok(span),
    }
}

const MOST_CPUS: usize = 65_536;
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_seconds_measure_nothing() {
        assert_eq!(some_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(some_seconds("0").is_err());
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(cpus("0,2-3"), Ok(Cpus(vec![0, 2, 3])));
        assert_eq!(cpus("7"), Ok(Cpus(vec![7])));
        for wrong in ["", "a", "1,", "3-1", "-1", "0-99999999"] {
            assert!(cpus(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn addresses() {
        assert!(address("127.0.0.1:443").is_ok() && address("[::1]:443").is_ok());
        for wrong in ["443", ":443", "localhost:443", "127.0.0.1", "::1:x"] {
            let error = address(wrong).unwrap_err();
            assert!(
                error.contains(wrong) && error.contains("0.0.0.0:443"),
                "{error}"
            );
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
