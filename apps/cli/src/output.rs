//! Writing to the terminal or a pipe without ever panicking because the reader left.

use crate::failure::Failure;
use std::borrow::Cow;
use std::fs;
use std::io::{self, Write};
use std::iter;
use std::path::Path;

/// Writes `text` to standard output and flushes it.
///
/// Rust programs ignore SIGPIPE, and `println!` panics on the error they get in its place; a
/// reader that has seen enough must end us quietly.
///
/// # Errors
///
/// [`Failure::ReaderGone`] if the reader has left, [`Failure::Failed`] if writing fails.
pub fn print(text: &str) -> Result<(), Failure> {
    write_all(io::stdout().lock(), text)
}

/// Writes `text` to standard error; an error there is ignored, as it cannot be told.
pub fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// How `program`, which runs here, was called, for records: without the folder in which it is.
pub fn command_line(program: &str) -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let all: Vec<_> = iter::once(program.to_owned()).chain(words).collect();
    all.join(" ")
}

/// Writes `text` to a file that is whole at every moment, for programs that read it at any time. What
/// is there and no file, such as a pipe or /dev/null, is written to and stays what it is.
///
/// # Errors
///
/// [`Failure::Failed`] with the name of the file.
pub fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| {
        let name = path.display();
        Failure::Failed(format!("cannot write {name}: {error}"))
    };
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, text).map_err(failed);
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    fs::write(&draft, text).map_err(failed)?;
    fs::rename(&draft, path).map_err(failed)
}

/// A name in a line for people. Any user can choose the name of a program or a file: nothing
/// of them may steer a terminal or look like another line.
pub fn plain(name: &str) -> Cow<'_, str> {
    match name.contains(char::is_control) {
        true => name.replace(char::is_control, "?").into(),
        false => name.into(),
    }
}

fn write_all(mut to: impl Write, text: &str) -> Result<(), Failure> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        Err(error) => Err(Failure::Failed(format!(
            "cannot write to standard output: {error}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(plain("a\x1b[2J\nb\u{9b}é"), "a?[2J?b?é");
        assert!(matches!(plain("plain"), Cow::Borrowed("plain")));
    }

    #[test]
    fn what_is_no_file_stays_what_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe)
        });
        replace(&pipe, "text").expect("written");
        let read = reader.join().expect("no panic").expect("read");
        assert_eq!(read, "text");
        let kind = fs::metadata(&pipe).expect("it is there").file_type();
        assert!(!kind.is_file());
        let file = folder.path().join("file");
        replace(&file, "one").expect("written");
        replace(&file, "two").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("read"), "two");
    }

    #[test]
    fn a_reader_that_left_is_no_failure_and_a_full_disk_is() {
        let gone = write_all(Broken(io::ErrorKind::BrokenPipe), "x");
        assert!(matches!(gone, Err(Failure::ReaderGone)));
        let full = write_all(Broken(io::ErrorKind::StorageFull), "x");
        assert!(matches!(full, Err(Failure::Failed(text)) if text.contains("standard output")));
    }
}
