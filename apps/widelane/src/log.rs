//! The log of commands that run on and on.

use std::io::IsTerminal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Log lines go to standard error; under systemd that is the journal, which adds the time itself.
pub(crate) fn start() {
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match std::env::var_os("JOURNAL_STREAM") {
        Some(_) => lines.without_time().with_ansi(false).boxed(),
        None => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
    };
    let levels = levels(std::env::var("RUST_LOG").ok().as_deref());
    // This fails only if a logger was set before, which nothing here does.
    let _ = tracing_subscriber::registry().with(lines).with(levels).try_init();
}

/// Levels that `RUST_LOG` asks for, like `debug` or `info,widelane_terminator=debug`; `info` if it is not
/// set or cannot be read. (Filters by span would need regular expressions: a minute of building.)
fn levels(wanted: Option<&str>) -> Targets {
    let wanted = wanted.filter(|text| !text.is_empty());
    let read = wanted.and_then(|text| text.parse().ok());
    read.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_log_sets_levels_for_all_or_for_one_crate() {
        use tracing::Level;
        let enabled = |wanted, level| levels(wanted).would_enable("widelane_terminator", &level);
        for wanted in [None, Some(""), Some("rustls=no-such-level")] {
            assert!(
                enabled(wanted, Level::INFO) && !enabled(wanted, Level::DEBUG),
                "{wanted:?}"
            );
        }
        assert!(enabled(Some("debug"), Level::DEBUG));
        assert!(enabled(Some("warn,widelane_terminator=trace"), Level::TRACE));
        assert!(!enabled(Some("warn,rustls=trace"), Level::INFO));
    }
}
