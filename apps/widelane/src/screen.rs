//! The terminal while a table is renewed on it: keys, signals and size.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{IsTerminal, Read, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_threads::Proc;

/// The signals that end a live view. What was ignored at the start stays so: `nohup` relies on it.
pub(crate) fn ending_signals() -> impl Iterator<Item = i32> {
    let ignored = Proc::here().ignored_signals();
    let heard = move |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    [SIGHUP, SIGINT, SIGTERM].into_iter().filter(heard)
}

/// Returns whether standard output is a terminal on which a picture can replace the one before.
pub(crate) fn is_renewable() -> bool {
    let term = std::env::var_os("TERM").unwrap_or_default();
    stdout().is_terminal() && !term.is_empty() && term != "dumb"
}

/// Shows tables until a key or a signal ends it.
pub(crate) struct Screen {
    /// True if tables replace each other.
    pub(crate) live: bool,
    /// Becomes readable at SIGHUP, SIGINT and SIGTERM.
    signals: UnixStream,
    /// The settings of the terminal that gives us keys.
    keys: Option<Termios>,
}

impl Screen {
    /// Opens it. With `tables`, they replace each other if standard output is a terminal that can do so, and
    /// q ends.
    pub(crate) fn open(tables: bool) -> Result<Self, Failure> {
        let (signals, raised) = UnixStream::pair()?;
        for signal in ending_signals() {
            signal_hook::low_level::pipe::register(signal, raised.try_clone()?)?;
        }
        let live = tables && is_renewable();
        let mut keys = None;
        if live && let Ok(settings) = tcgetattr(stdin()) {
            let mut single = settings.clone();
            single.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            if tcsetattr(stdin(), OptionalActions::Now, &single).is_ok() {
                keys = Some(settings);
            }
        }
        Ok(Self { live, signals, keys })
    }

    /// Becomes readable when a signal says to end.
    pub(crate) fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Waits until then; whether a signal or a key said to end before.
    pub(crate) fn ended_before(&self, then: Instant) -> Result<bool, Failure> {
        let stdin = stdin();
        let mut hung_up = false;
        loop {
            let left = then.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left)?;
            let mut waiting = vec![PollFd::new(&self.signals, PollFlags::IN)];
            if self.keys.is_some() && !hung_up {
                waiting.push(PollFd::new(&stdin, PollFlags::IN));
            }
            match poll(&mut waiting, Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                // A signal that ends us has made the other end readable.
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !waiting[0].revents().is_empty() {
                return Ok(true);
            }
            let mut key = [0];
            match stdin.lock().read(&mut key) {
                Ok(1) if matches!(key[0], b'q' | b'Q') => return Ok(true),
                Ok(1) => {}
                // No more keys will come.
                _ => hung_up = true,
            }
        }
    }

    /// Shows a table: in place of the one before, cut to the size of the terminal; or after it.
    pub(crate) fn show(&self, table: &str) -> Result<(), Failure> {
        if !self.live {
            return output::print(table);
        }
        let (lines, columns) = match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
            _ => (24, 80),
        };
        let cut = cut(table, lines.into(), columns.into());
        output::print_anew(&cut)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(settings) = &self.keys {
            // Nothing better can be done if that fails.
            let _ = tcsetattr(stdin(), OptionalActions::Now, settings);
        }
    }
}

/// The first lines, without what is too long; the last line of a terminal stays empty.
fn cut(text: &str, lines: usize, columns: usize) -> String {
    let mut cut = String::new();
    for line in text.lines().take(lines.saturating_sub(1)) {
        cut.extend(line.chars().take(columns));
        cut.push('\n');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_cut_to_the_terminal() {
        assert_eq!(cut("äbc\nde\nf\n", 3, 2), "äb\nde\n");
        assert_eq!(cut("abc\n", 1, 9), "");
        assert_eq!(cut("abc\n", 0, 0), "");
    }
}
