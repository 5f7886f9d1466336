//! Places that the user named, which may be pipes and terminals.

use crate::place::{create, replace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Replaces as [`replace`] does, at a path that the user named: a pipe, a terminal or `/dev/null` there is written to
/// and stays what it is.
///
/// # Errors
///
/// As with [`replace`]; when it is a block device, a socket or a link to something that is no file; when
/// no program reads from the pipe.
pub fn replace_named(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    match special(path)? {
        Some(file) => Output(file).write_all(content),
        None => replace(path, content, mode),
    }
}

/// Creates as [`create`] does, at a path that the user named.
///
/// # Errors
///
/// As with [`replace_named`].
pub fn create_named(path: &Path, mode: u32) -> io::Result<Output> {
    Ok(Output(match special(path)? {
        Some(file) => file,
        None => create(path, mode)?,
    }))
}

/// Output that [`create_named`] opened.
#[derive(Debug)]
pub struct Output(File);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(&self.0)?,
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Waits until a pipe has room. Who reads from it may be another user, and must not hold us for ever.
fn wait(pipe: &File) -> io::Result<()> {
    let mut waiting = [PollFd::new(pipe, PollFlags::OUT)];
    match poll(&mut waiting, Some(&LONGEST_WAIT)) {
        Ok(0) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the program that reads from it takes nothing any more",
        )),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Opens what is at a path if it is no file; `None` if a file can be put there.
fn special(path: &Path) -> io::Result<Option<File>> {
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match own_descriptor(path) {
        // Shared with the program that gave it to us: the end of the file stays common.
        Some(own) if own.ends_with("1") => return own_file(io::stdout()),
        Some(own) if own.ends_with("2") => return own_file(io::stderr()),
        Some(own) => {
            let flags = WRITE.union(OFlags::APPEND);
            return Ok(Some(openat(CWD, own, flags, Mode::empty())?.into()));
        }
        None => {}
    }
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if kind.is_file() {
        return Ok(None);
    }
    if kind.is_dir() {
        return refused("it is a folder");
    }
    if kind.is_symlink() {
        // The owner of the folder chose the target. A link to a file is replaced by a file.
        return match fs::metadata(path) {
            Ok(found) if !found.is_file() => refused("it is a link to something that is no file; name that itself"),
            _ => Ok(None),
        };
    }
    let is_stream = |kind: fs::FileType| kind.is_fifo() || kind.is_char_device();
    const OTHER: &str = "it is neither a file nor a pipe nor a terminal";
    if !is_stream(kind) {
        return refused(OTHER);
    }
    match openat(CWD, path, WRITE.union(OFlags::NOFOLLOW), Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            // Another program may have exchanged it since.
            match is_stream(file.metadata()?.file_type()) {
                true => Ok(Some(file)),
                false => refused(OTHER),
            }
        }
        Err(Errno::NXIO) => Err(io::Error::new(
            io::ErrorKind::NotConnected,
            "no program reads from this pipe",
        )),
        Err(error) => Err(error.into()),
    }
}

fn own_file(own: impl AsFd) -> io::Result<Option<File>> {
    Ok(Some(own.as_fd().try_clone_to_owned()?.into()))
}

/// The link of the kernel to a descriptor of this process, if a path names one.
pub(crate) fn own_descriptor(path: &Path) -> Option<PathBuf> {
    let number = match path.to_str()? {
        "/dev/stdin" => 0,
        "/dev/stdout" => 1,
        "/dev/stderr" => 2,
        other => {
            let number = FOLDERS.iter().find_map(|folder| other.strip_prefix(folder));
            number?.parse::<u32>().ok()?
        }
    };
    Some(PathBuf::from(format!("/proc/self/fd/{number}")))
}

const FOLDERS: [&str; 2] = ["/dev/fd/", "/proc/self/fd/"];
const WRITE: OFlags = OFlags::WRONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
const LONGEST_WAIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::tests::fifo;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_pipe_that_was_named_is_written_to_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        fifo(&pipe);
        let error = replace_named(&pipe, b"x", 0o644).unwrap_err();
        assert_eq!(error.to_string(), "no program reads from this pipe");
        let flags = crate::read::READ;
        let mut reader = File::from(openat(CWD, &pipe, flags, Mode::empty()).unwrap());
        // More than a pipe takes at once.
        let text = vec![b'x'; 1 << 18];
        let writer = std::thread::spawn({
            let (pipe, text) = (pipe.clone(), text.clone());
            move || replace_named(&pipe, &text, 0o644)
        });
        let mut read = Vec::new();
        while read.len() < text.len() {
            let mut piece = [0; 4096];
            match reader.read(&mut piece) {
                Ok(length) => read.extend_from_slice(&piece[..length]),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            std::thread::yield_now();
        }
        writer.join().unwrap().unwrap();
        assert_eq!(read, text);
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    }

    #[test]
    fn no_link_leads_to_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("/dev/full", &link).unwrap();
        let error = replace_named(&link, b"x", 0o644).unwrap_err();
        assert!(error.to_string().starts_with("it is a link"), "{error}");
        replace_named(Path::new("/dev/null"), b"x", 0o644).unwrap();
        let full = create_named(Path::new("/dev/full"), 0o644).unwrap();
        let error = { full }.write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        for other in [folder.path(), Path::new("/")] {
            assert!(create_named(other, 0o644).is_err());
        }
    }

    #[test]
    fn a_link_to_a_file_is_replaced_and_the_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        replace_named(&link, b"new", 0o644).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"old");
        assert_eq!(fs::read(&link).unwrap(), b"new");
    }

    #[test]
    fn descriptors_of_this_process_can_be_named() {
        let (mut reader, writer) = io::pipe().unwrap();
        for folder in FOLDERS {
            let path = format!("{folder}{}", writer.as_raw_fd());
            replace_named(Path::new(&path), b"text", 0o644).unwrap();
        }
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "texttext");
        for (name, own) in [
            ("/dev/stdout", Some("/proc/self/fd/1")),
            ("/dev/fd/x", None),
            ("/dev/fd/../mem", None),
            ("/dev/null", None),
        ] {
            assert_eq!(own_descriptor(Path::new(name)), own.map(PathBuf::from));
        }
        create_named(Path::new("/dev/stdout"), 0o644).unwrap();
    }
}
