//! The terminal while a picture is renewed on it.

use crate::picture::Picture;
use crate::snapshot::Snapshot;
use ratatui::DefaultTerminal;
use ratatui::crossterm::terminal::size;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::stdio::stdin;
use std::io;
use std::time::Duration;

/// A terminal that is ours: other contents are put aside, keys come one by one. It is given back
/// when this is dropped, and before the message of a panic.
pub struct Screen {
    /// The terminal, until this is dropped.
    terminal: Option<DefaultTerminal>,
    colour: bool,
    /// Columns and rows when last looked at.
    size: Option<(u16, u16)>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn open(colour: bool) -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()))?;
        Ok(Self {
            terminal: Some(terminal),
            colour,
            size: None,
        })
    }

    /// Shows a snapshot.
    ///
    /// # Errors
    ///
    /// When the terminal has gone away.
    pub fn show(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let colour = self.colour;
        if let Some(terminal) = &mut self.terminal {
            terminal.draw(|frame| {
                let picture = Picture { snapshot, colour };
                frame.render_widget(picture, frame.area());
            })?;
        }
        Ok(())
    }

    /// Waits for a key or a resize, for so long.
    ///
    /// # Errors
    ///
    /// When the terminal can no longer be asked.
    pub fn wait(&mut self, most: Duration) -> io::Result<Told> {
        let keys = stdin();
        let mut waiting = [PollFd::new(&keys, PollFlags::IN)];
        let most = Timespec::try_from(most).map_err(io::Error::other)?;
        match poll(&mut waiting, Some(&most)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => {
                let mut pressed = [0; 64];
                match read(keys, &mut pressed) {
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    // No more will come: the terminal has gone away.
                    Ok(0) | Err(_) => return Ok(Told::End),
                    Ok(length) if ends(&pressed[..length]) => return Ok(Told::End),
                    Ok(_) => {}
                }
            }
            Err(error) => return Err(error.into()),
        }
        let size = size()?;
        if self.size.replace(size).is_some_and(|before| before != size) {
            return Ok(Told::Resized);
        }
        Ok(Told::Nothing)
    }
}

/// News from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing that matters.
    Nothing,
    /// Another size: the picture must be shown again.
    Resized,
    /// The user wants the end.
    End,
}

impl Drop for Screen {
    fn drop(&mut self) {
        if ratatui::try_restore().is_err() {
            // It has gone away. Dropped, ratatui's would complain there, and panic as it cannot.
            std::mem::forget(self.terminal.take());
        }
    }
}

/// Returns whether keys ask for the end: q, ^C, or Esc by itself, with which other keys' sequences only begin.
fn ends(keys: &[u8]) -> bool {
    let ending = |key: &u8| matches!(*key, b'q' | b'Q' | CONTROL_C);
    keys == b"\x1b" || keys.iter().any(ending)
}

/// Byte that the terminal sends for ^C while keys come one by one.
const CONTROL_C: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_escape_and_control_c_end_it() {
        for keys in [&b"q"[..], b"Q", b"\x1b", b"\x03", b"xq"] {
            assert!(ends(keys), "{keys:?}");
        }
        for keys in [&b""[..], b"c", b"\r", b"\x1b[A", b"\x1bOP"] {
            assert!(!ends(keys), "{keys:?}");
        }
    }
}
