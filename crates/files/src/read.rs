//! Files that another user may have put where they are.

use crate::named::own_descriptor;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The content of a regular file, which is no link.
///
/// # Errors
///
/// When there is none, it is something else, or it is longer than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bounded(open(path, OFlags::NOFOLLOW)?, most)
}

/// Opens a regular file that the user named. Links are followed.
///
/// # Errors
///
/// When there is none, or it is something else: a pipe, for example, would be waited for until another program
/// writes into it.
pub fn open_named(path: &Path) -> io::Result<File> {
    open(path, OFlags::empty())
}

/// The content of a file that the user named. Links are followed, and descriptors of this process, such as
/// `/dev/stdin`, may be pipes.
///
/// # Errors
///
/// As with [`read`].
pub fn read_named(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    match own_descriptor(path) {
        Some(own) => bounded(File::open(own)?, most),
        None => bounded(open_named(path)?, most),
    }
}

pub(crate) fn open(path: &Path, more: OFlags) -> io::Result<File> {
    match openat(CWD, path, READ.union(more), Mode::empty()) {
        Ok(file) => regular(file.into()),
        Err(Errno::LOOP) if more.contains(OFlags::NOFOLLOW) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a link"))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// The content of what is open, if it is not longer.
pub(crate) fn bounded(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(4096);
    // The file may grow while it is read, and need not end.
    file.take(most.saturating_add(1)).read_to_end(&mut content)?;
    match content.len() as u64 > most {
        false => Ok(content),
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is longer than {most} bytes"),
        )),
    }
}

/// Else a pipe would be waited for, and a terminal would become ours.
pub(crate) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::fs::{FileType, mknodat};
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    pub(crate) fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn only_regular_files_are_read_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let [file, pipe, link] = ["file", "pipe", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "content").unwrap();
        fifo(&pipe);
        symlink(&file, &link).unwrap();
        assert_eq!(read(&file, 7).unwrap(), b"content");
        assert_eq!(read_named(&link, 7).unwrap(), b"content");
        assert_eq!(read(&link, 7).unwrap_err().to_string(), "it is a link");
        for path in [pipe.as_path(), folder.path(), Path::new("/dev/zero")] {
            for read in [read, read_named] {
                let error = read(path, 7).unwrap_err();
                assert_eq!(error.to_string(), "it is no regular file");
            }
        }
        let error = read(&file, 6).unwrap_err().to_string();
        assert_eq!(error, "it is longer than 6 bytes");
    }

    #[test]
    fn a_pipe_of_this_process_may_be_named() {
        let (reader, writer) = io::pipe().unwrap();
        io::Write::write_all(&mut &writer, b"content").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_named(Path::new(&path), 7).unwrap(), b"content");
    }
}
