//! A folder that stands for the whole system, such as that of an image.

use crate::place::{FOLDER, put};
use crate::read::{READ, bounded, regular};
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode, ResolveFlags, access, fchmod, fstat, mkdirat, openat,
    openat2, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A folder that is taken for the root of the system: absolute paths and links are those below it. Who made an
/// image cannot lay a link in it that leads out.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// `None`: the root of this system.
    folder: Option<OwnedFd>,
}

impl Root {
    /// The root of this system.
    pub fn of_this_system() -> Self {
        Self {
            path: PathBuf::from("/"),
            folder: None,
        }
    }

    /// Opens this folder as the root.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("/") {
            return Ok(Self::of_this_system());
        }
        Ok(Self {
            path: path.to_owned(),
            folder: Some(openat(CWD, path, FOLDER, Mode::empty())?),
        })
    }

    /// Returns whether this is the root of the running system.
    pub fn is_this_system(&self) -> bool {
        self.folder.is_none()
    }

    /// An absolute path in it as it is called outside, for messages.
    pub fn outside(&self, path: &Path) -> PathBuf {
        self.path.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Returns whether anything is at a path.
    pub fn has(&self, path: &Path) -> bool {
        self.at(path, OFlags::PATH).is_ok()
    }

    /// Returns whether a folder is at a path.
    pub fn has_folder(&self, path: &Path) -> bool {
        self.at(path, OFlags::PATH | OFlags::DIRECTORY).is_ok()
    }

    /// Returns whether a link is at a path.
    pub fn has_link(&self, path: &Path) -> bool {
        self.at(path, OFlags::PATH | OFlags::NOFOLLOW)
            .and_then(|found| Ok(fstat(found)?))
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
    }

    /// The content of a regular file.
    ///
    /// # Errors
    ///
    /// When there is none, it is something else, or it is longer than `most` bytes.
    pub fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        // Opening alone changes the state of some devices, so it is looked at first.
        let place = regular(self.at(path, OFlags::PATH)?.into())?;
        let link = format!("/proc/self/fd/{}", place.as_raw_fd());
        bounded(openat(CWD, link, READ, Mode::empty())?.into(), most)
    }

    /// The names in a folder, sorted.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::new(self.at(path, FOLDER)?)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Checks that this user may write a file at a path; folders above it may be missing.
    ///
    /// # Errors
    ///
    /// When it may not.
    pub fn check_writable(&self, path: &Path) -> io::Result<()> {
        let mut above = path.ancestors().skip(1);
        let folder = above.find_map(|folder| self.at(folder, OFlags::PATH).ok());
        let folder = folder.ok_or(io::ErrorKind::NotFound)?;
        let link = format!("/proc/self/fd/{}", folder.as_raw_fd());
        Ok(access(link, Access::WRITE_OK)?)
    }

    /// Puts a file in the place of what is at a path, as [`replace`](crate::replace) does. Folders that are
    /// missing are made.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn replace(&self, path: &Path, content: &[u8], mode: RawMode) -> io::Result<()> {
        let (folder, name) = self.split(path, true)?;
        put(&folder, name, content, mode).map(drop)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be removed.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.split(path, false)?;
        Ok(unlinkat(&folder, name, AtFlags::empty())?)
    }

    /// Removes a folder, if nothing is in it.
    ///
    /// # Errors
    ///
    /// When there is none, or it is not empty.
    pub fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.split(path, false)?;
        Ok(unlinkat(&folder, name, AtFlags::REMOVEDIR)?)
    }

    /// The folder of a path, opened, and the name in it.
    fn split<'a>(&self, path: &'a Path, make: bool) -> io::Result<(OwnedFd, &'a OsStr)> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = match make {
            true => self.made(folder)?,
            false => self.at(folder, FOLDER)?,
        };
        Ok((folder, name))
    }

    /// A folder, opened; made with mode 0755 if it is not there.
    fn made(&self, path: &Path) -> io::Result<OwnedFd> {
        let missing = match self.at(path, FOLDER) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            other => return other,
        };
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(missing);
        };
        let above = self.made(above)?;
        mkdirat(&above, name, Mode::from_raw_mode(0o755))?;
        let made = openat(&above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        // Whatever the umask is: servers read there as other users.
        fchmod(&made, Mode::from_raw_mode(0o755))?;
        Ok(made)
    }

    fn at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let Some(root) = &self.folder else {
            return Ok(openat(CWD, path, flags, Mode::empty())?);
        };
        for _ in 0..ATTEMPTS {
            // The kernel gives up when something is renamed meanwhile.
            match openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                Err(Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

const ATTEMPTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn files_are_written_read_and_removed_below_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let path = Path::new("/etc/a/file");
        root.check_writable(path).unwrap();
        assert!(!root.has(path));
        root.replace(path, b"content", 0o644).unwrap();
        let outside = folder.path().join("etc/a/file");
        assert_eq!(root.outside(path), outside);
        assert_eq!(fs::read(&outside).unwrap(), b"content");
        let mode = fs::metadata(outside.parent().unwrap()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o755);
        assert_eq!(root.read(path, 7).unwrap(), b"content");
        assert!(root.read(path, 6).is_err() && root.read(Path::new("/etc"), 6).is_err());
        assert!(root.has(path) && !root.has_folder(path) && !root.has_link(path));
        assert_eq!(root.names(Path::new("/etc/a")).unwrap(), ["file"]);
        assert!(root.remove_folder(Path::new("/etc/a")).is_err());
        root.remove(path).unwrap();
        root.remove_folder(Path::new("/etc/a")).unwrap();
        assert!(root.has_folder(Path::new("/etc")) && !root.has(Path::new("/etc/a")));
    }

    /// Opening a socket fails in a way of its own, so that it shows.
    #[test]
    fn what_is_no_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        let root = Root::open(folder.path()).unwrap();
        let refused = root.read(Path::new("/socket"), 7).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
    }

    #[test]
    fn no_link_leads_out_of_the_root() {
        let outer = tempfile::tempdir().unwrap();
        let [inner, other] = ["inner", "other"].map(|name| outer.path().join(name));
        for folder in [&inner, &other] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(other.join("file"), "secret").unwrap();
        symlink(&other, inner.join("etc")).unwrap();
        symlink("../other", inner.join("lib")).unwrap();
        symlink(other.join("file"), inner.join("link")).unwrap();
        let root = Root::open(&inner).unwrap();
        for path in ["/etc/file", "/lib/file", "/link", "/../other/file"] {
            let path = Path::new(path);
            assert!(!root.has(path) && root.read(path, 99).is_err(), "{path:?}");
        }
        assert!(root.has_link(Path::new("/link")));
        assert!(root.remove(Path::new("/etc/file")).is_err());
        // The target of a link is not made, and a link at the end is replaced.
        assert!(root.replace(Path::new("/etc/new"), b"x", 0o644).is_err());
        root.replace(Path::new("/link"), b"new", 0o644).unwrap();
        assert_eq!(fs::read(other.join("file")).unwrap(), b"secret");
        assert_eq!(fs::read(inner.join("link")).unwrap(), b"new");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
    }
}
