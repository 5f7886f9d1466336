//! Words to the user beside the output.

use std::io::{self, Write as _};
use widelane_text::printable;

/// Writes `text` to standard error; an error there is ignored, as nothing could report it.
pub fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(printable(text).as_bytes());
}

/// Writes a line on progress to standard error, in place of the one before; an empty one removes that.
pub fn progress(text: &str) {
    let line = format!("\r{}\x1b[K", printable(text));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}
