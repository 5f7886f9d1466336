//! Files that take the place of others in one step.

use crate::read::regular;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Puts a file with this content and these permissions in the place of what is at a path: whole at every moment,
/// also after a crash of the machine.
///
/// # Errors
///
/// When there is no such folder, or it cannot be written to.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (folder, name) = split(path)?;
    put(&folder, name, content, mode).map(drop)
}

/// Puts an empty file with these permissions in the place of what is at a path, to be written to.
///
/// # Errors
///
/// As with [`replace`].
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let (folder, name) = split(path)?;
    put(&folder, name, &[], mode)
}

/// Opens a file to be locked, for this user alone; made if it is not there. What it holds is nothing.
///
/// # Errors
///
/// When it cannot be made, or is no regular file.
pub fn lock_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = Mode::RUSR | Mode::WUSR;
    regular(openat(CWD, path, flags | OFlags::CLOEXEC, mode)?.into())
}

/// Removes a regular file or a link. Anything else stays: this crate makes none.
///
/// # Errors
///
/// When there is none, it is something else, or it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    match kind.is_file() || kind.is_symlink() {
        true => fs::remove_file(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// The folder of a path, opened, and the name in it.
fn split(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path ends without the name of a file",
        ));
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Ok((openat(CWD, folder, FOLDER, Mode::empty())?, name))
}

/// Puts a file into an open folder.
pub(crate) fn put(folder: &OwnedFd, name: &OsStr, content: &[u8], mode: u32) -> io::Result<File> {
    let mut draft = Draft::new(folder.as_fd())?;
    fchmod(&draft.file, Mode::from_raw_mode(mode))?;
    draft.file.write_all(content)?;
    draft.file.sync_all()?;
    renameat(folder, &draft.name, folder, name)?;
    draft.is_placed = true;
    match fsync(folder) {
        // Some file systems cannot.
        Ok(()) | Err(Errno::INVAL) => Ok(draft.file.try_clone()?),
        Err(error) => Err(error.into()),
    }
}

/// A new file that is removed unless it is put in its place.
struct Draft<'a> {
    folder: BorrowedFd<'a>,
    name: String,
    file: File,
    is_placed: bool,
}

impl<'a> Draft<'a> {
    fn new(folder: BorrowedFd<'a>) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            // A hidden name without an ending: programs that read all files of a folder leave it alone.
            let name = format!(".widelane-{:016x}", RandomState::new().build_hasher().finish());
            match openat(folder, &name, NEW, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    return Ok(Self {
                        folder,
                        name,
                        file: file.into(),
                        is_placed: false,
                    });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = unlinkat(self.folder, &self.name, AtFlags::empty());
        }
    }
}

pub(crate) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Nothing that is there is opened: neither a file nor a link, a pipe or a device.
const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const ATTEMPTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::tests::fifo;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn a_file_is_replaced_with_its_permissions_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let before = fs::metadata(&path).unwrap().ino();
        replace(&path, b"new", 0o640).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_ne!(after.ino(), before, "who has the old one open sees nothing");
        assert_eq!(after.mode() & 0o7777, 0o640);
        create(&path, 0o600).unwrap().write_all(b"more").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"more");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn links_pipes_and_devices_are_replaced_and_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "secret").unwrap();
        let path = folder.path().join("file");
        for target in [other.as_path(), Path::new("/dev/full"), Path::new("nowhere")] {
            symlink(target, &path).unwrap();
            replace(&path, b"new", 0o644).unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            remove(&path).unwrap();
        }
        fifo(&path);
        create(&path, 0o644).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&other).unwrap(), b"secret");
    }

    #[test]
    fn what_cannot_be_replaced_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        for path in ["inner", "none/file", "..", ""] {
            assert!(replace(&folder.path().join(path), b"x", 0o644).is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_files_and_links_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        fifo(&pipe);
        for path in [pipe.as_path(), folder.path()] {
            assert!(remove(path).is_err());
            assert!(path.exists());
        }
    }
}
