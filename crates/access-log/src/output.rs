//! The file, FIFO or standard stream that takes the lines.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::options::LogTarget;

/// What takes the lines. A write never waits for a reader.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    target: LogTarget,
    /// Whether it is a file: all else has a reader, who may stand still.
    is_regular: bool,
    /// Whether it has the same reader as this process's own log.
    is_own_log: bool,
}

impl Output {
    pub(super) fn open(target: &LogTarget) -> io::Result<Self> {
        let file = match target {
            LogTarget::Off => return Err(io::ErrorKind::InvalidInput.into()),
            LogTarget::Stderr => io::stderr().as_fd().try_clone_to_owned()?.into(),
            LogTarget::Stdout => io::stdout().as_fd().try_clone_to_owned()?.into(),
            LogTarget::File(path) => open_file(path)?,
        };
        let is_regular = file.metadata()?.is_file();
        Ok(Self {
            is_regular,
            is_own_log: !is_regular && is_same(&file, io::stderr())?,
            file,
            target: target.clone(),
        })
    }

    /// The same, opened anew; `None` for a standard stream.
    pub(super) fn reopened(&self) -> Option<io::Result<Self>> {
        match self.target {
            LogTarget::File(_) => Some(Self::open(&self.target)),
            _ => None,
        }
    }

    /// Whether a line in the process's own log would wait for the same reader as the access log does.
    pub(super) fn is_own_log(&self) -> bool {
        self.is_own_log
    }

    pub(super) fn target(&self) -> &LogTarget {
        &self.target
    }

    /// Writes what it takes now. `WouldBlock`: the reader has to read first.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_regular {
            return self.file.write(bytes);
        }
        if !self.wait(Duration::ZERO)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // Standard streams are shared with other processes and may wait. So little never does, once the
        // kernel has said that there is room; and a pipe takes it whole or not at all (`pipe(7)`).
        self.file.write(&bytes[..piece(bytes)])
    }

    /// Waits until the reader has made room, for at most `patience`. A file always has room.
    pub(super) fn wait(&self, patience: Duration) -> io::Result<bool> {
        if self.is_regular {
            return Ok(true);
        }
        let mut files = [PollFd::new(&self.file, PollFlags::OUT)];
        let patience = Timespec::try_from(patience).ok();
        Ok(poll(&mut files, patience.as_ref())? > 0)
    }
}

/// As many whole lines as fit.
fn piece(bytes: &[u8]) -> usize {
    let most = bytes.len().min(PIECE);
    let lines = bytes[..most].iter().rposition(|&byte| byte == b'\n');
    lines.map_or(most, |last| last + 1)
}

/// Whether both are the same file, pipe, socket or terminal.
fn is_same(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let one = rustix::fs::fstat(one)?;
    let Ok(other) = rustix::fs::fstat(other) else {
        return Ok(false);
    };
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

fn open_file(path: &Path) -> io::Result<File> {
    // A FIFO without a reader is an error and does not wait for one.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.append(true).mode(MODE).custom_flags(flags);
    match options.clone().create_new(true).open(path) {
        // Also with a umask that would take away the group's right to read.
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(MODE))?;
            Ok(file)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.create(true).open(path),
        Err(error) => Err(error),
    }
}

/// Of a new file. One that exists keeps its own.
const MODE: u32 = 0o640;
/// `PIPE_BUF` on Linux.
const PIECE: usize = 4096;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::fs::FileType;

    use super::*;

    #[test]
    fn a_piece_has_whole_lines_if_one_fits() {
        let lines = |lengths: &[usize]| -> Vec<u8> {
            let line = |length: &usize| [&vec![b'x'; length - 1][..], b"\n"].concat();
            lengths.iter().flat_map(line).collect()
        };
        assert_eq!(piece(&lines(&[10, 20])), 30);
        assert_eq!(piece(&lines(&[3000, 1096])), 4096);
        assert_eq!(piece(&lines(&[3000, 1097])), 3000);
        assert_eq!(piece(&lines(&[5000, 10])), 4096);
        assert_eq!(piece(b""), 0);
    }

    #[test]
    fn two_descriptors_of_one_pipe_are_the_same() {
        let (_reader, one) = io::pipe().unwrap();
        let (_, other) = io::pipe().unwrap();
        let again = File::options()
            .write(true)
            .open(format!("/proc/self/fd/{}", one.as_raw_fd()))
            .unwrap();
        assert!(is_same(&one, one.try_clone().unwrap()).unwrap());
        assert!(is_same(&one, again).unwrap());
        assert!(!is_same(&one, other).unwrap());
    }

    #[test]
    fn the_own_log_is_known_unless_it_is_a_file() {
        let is_file =
            rustix::fs::fstat(io::stderr()).is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_file());
        let output = Output::open(&LogTarget::Stderr).unwrap();
        assert_eq!(output.is_own_log(), !is_file);
    }

    #[test]
    fn new_files_have_their_permissions_and_old_ones_keep_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let target = LogTarget::File(path.clone());
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(Output::open(&target).unwrap());
        assert_eq!(mode(), 0o640);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        Output::open(&target).unwrap().write(b"a\n").unwrap();
        Output::open(&target).unwrap().write(b"b\n").unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(std::fs::read(&path).unwrap(), b"a\nb\n");
    }
}
