//! Writing to the terminal or a pipe without ever panicking because the reader left.

use crate::failure::Failure;
pub use crate::stderr::{complain, progress};
use std::io::{self, Write};
use std::path::Path;
use widelane_text::printable;

/// Writes `text` to standard output and flushes it. Names in it are [`escaped`](widelane_text::escaped); should
/// one not be, it cannot steer the terminal either.
///
/// Rust programs ignore SIGPIPE, and `println!` panics on the error they get in its place; a
/// reader that has seen enough must end us quietly.
///
/// # Errors
///
/// [`Failure::ReaderGone`] if the reader has left, [`Failure::Failed`] if writing fails.
pub fn print(text: &str) -> Result<(), Failure> {
    write_all(io::stdout().lock(), &printable(text))
}

/// Writes `text` to standard output in place of the picture before.
///
/// # Errors
///
/// As with [`print()`].
pub fn print_anew(text: &str) -> Result<(), Failure> {
    let text = format!("{HOME_AND_CLEAR}{}", printable(text));
    write_all(io::stdout().lock(), &text)
}

/// Command line of `program`, which runs here, for records: without the folder in which it is, and with the variables
/// that hide instructions of the CPU.
pub fn command_line(program: &str) -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let all: Vec<_> = hiding().chain([program.to_owned()]).chain(words).collect();
    all.join(" ")
}

/// The variables that are set here and hide instructions from us or from OpenSSL and AWS-LC, as in a command for a
/// shell.
pub fn hiding() -> impl Iterator<Item = String> {
    let names = [widelane_cpu::DISABLE_VARIABLE, "OPENSSL_ia32cap"];
    names.into_iter().filter_map(|name| {
        let value = std::env::var_os(name)?;
        Some(format!("{name}={}", value.to_string_lossy()))
    })
}

/// Writes `text` to a file that the user named and that is whole at every moment, for programs that read it at
/// any time. What is there and no file, such as a pipe or /dev/null, is written to and stays what it is.
///
/// # Errors
///
/// [`Failure::Failed`] with the name of the file.
pub fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    widelane_files::replace_named(path, text.as_bytes(), 0o644).map_err(|error| {
        let name = path.display();
        Failure::Failed(format!("cannot write {name}: {error}"))
    })
}

fn write_all(mut to: impl Write, text: &str) -> Result<(), Failure> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        Err(error) => Err(Failure::Failed(format!("cannot write to standard output: {error}"))),
    }
}

const HOME_AND_CLEAR: &str = "\x1b[H\x1b[J";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The owner of the folder may guess the name of a draft.
    #[test]
    fn a_file_is_replaced_and_nothing_beside_it_is_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, other] = ["file", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "secret").expect("written");
        let guessed = folder.path().join("file.new");
        std::os::unix::fs::symlink(&other, &guessed).expect("a link");
        replace(&file, "one").expect("written");
        replace(&file, "two").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("read"), "two");
        assert_eq!(fs::read_to_string(&other).expect("read"), "secret");
        replace(Path::new("/dev/null"), "text").expect("written");
        let error = replace(folder.path(), "text").expect_err("a folder");
        assert!(matches!(error, Failure::Failed(text) if text.contains("it is a folder")));
    }

    #[test]
    fn a_reader_that_left_is_no_failure_and_a_full_disk_is() {
        let gone = write_all(Broken(io::ErrorKind::BrokenPipe), "x");
        assert!(matches!(gone, Err(Failure::ReaderGone)));
        let full = write_all(Broken(io::ErrorKind::StorageFull), "x");
        assert!(matches!(full, Err(Failure::Failed(text)) if text.contains("standard output")));
    }
}
