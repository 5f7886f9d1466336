//! Files of the configuration.

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a regular file to be read. Anything else is an error: a named pipe, for example, would hold the server until
/// another program writes into it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    widelane_files::open_named(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        for path in [&path, folder.path(), Path::new("/dev/zero")] {
            let error = open(path).unwrap_err();
            assert_eq!(error.to_string(), "it is no regular file", "{path:?}");
        }
        std::fs::write(folder.path().join("file"), "text").unwrap();
        assert!(open(&folder.path().join("file")).is_ok());
    }
}
