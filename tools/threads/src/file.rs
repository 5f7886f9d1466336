//! Opens files that a hostile user may have put there.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx};
use rustix::io::Errno;

use crate::patience::{LONG, within};

/// A regular file. It is found once, and whatever is asked of it afterwards is asked of the same
/// file, whatever stands at its path by then.
///
/// Nothing but a regular file is ever opened for reading. A FIFO would block, and opening some
/// devices changes their state.
#[derive(Debug)]
pub struct RegularFile {
    /// Opened with `O_PATH`: names the file without opening it.
    place: OwnedFd,
    identity: Identity,
    /// The longest content that is read.
    most: u64,
}

/// A file, and a content of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The inode.
    pub inode: u64,
    /// Bytes.
    pub length: u64,
    /// Time of the file's last change, by the kernel's clock: seconds since 1970 and nanoseconds. Programs cannot set
    /// it, as they can set the time of the content. It also changes when a name of the file goes.
    pub changed: (i64, u32),
}

impl Identity {
    fn of(status: &Statx) -> Self {
        Self {
            device: (status.stx_dev_major, status.stx_dev_minor),
            inode: status.stx_ino,
            length: status.stx_size,
            changed: (status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec),
        }
    }
}

impl RegularFile {
    /// The file at a path that the user of this process named. Links are followed.
    ///
    /// # Errors
    ///
    /// When there is none, or it is a directory, a device, a pipe or a socket.
    pub fn named(path: &Path) -> io::Result<Self> {
        let file = Self::of(openat(CWD, path, PATH_ONLY, Mode::empty())?)?;
        Ok(Self { most: u64::MAX, ..file })
    }

    /// The file at a path that the kernel named. Such a path has no link at its end: one that is
    /// there now was put there later, and is refused.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let flags = PATH_ONLY | OFlags::NOFOLLOW;
        Self::of(openat(CWD, path, flags, Mode::empty())?)
    }

    /// The file behind a link of `/proc` that leads to the file itself and not to a path.
    pub(crate) fn behind(link: &Path) -> io::Result<Self> {
        Self::of(openat(CWD, link, PATH_ONLY, Mode::empty())?)
    }

    /// The file at a path below a directory that is the root of another process. The path cannot
    /// lead out of it: the kernel resolves `..` and links within it, and here refuses links.
    pub(crate) fn below(root: &OwnedFd, path: &Path) -> io::Result<Self> {
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        Self::of(openat2(root, path, PATH_ONLY, Mode::empty(), inside)?)
    }

    fn of(place: OwnedFd) -> io::Result<Self> {
        let status = status(&place)?;
        let identity = Identity::of(&status);
        match FileType::from_raw_mode(status.stx_mode.into()) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            FileType::Symlink => return Err(io::Error::other("it was replaced by a link")),
            _ => return Err(io::Error::other("it is a device, a pipe or a socket")),
        }
        Ok(Self {
            place,
            identity,
            most: most_of(status.stx_uid),
        })
    }

    /// Returns whether it still has the content and the names that it had when it was found.
    pub fn is_unchanged(&self) -> bool {
        status(&self.place).is_ok_and(|status| Identity::of(&status) == self.identity)
    }

    /// The file and the content that were found.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// A path that leads this process, and the kernel on its behalf, to this very file: as long as
    /// this lives, and wherever the file is.
    pub fn link(&self) -> PathBuf {
        link(&self.place)
    }

    /// Its content.
    ///
    /// # Errors
    ///
    /// When it may not be read, or is longer than `most` bytes. A file that a process has mapped, and that belongs
    /// neither to root nor to this user, may have 128 MiB: it costs its owner nothing to make a longer one. When
    /// the read hangs.
    pub fn read(&self, most: u64) -> io::Result<Vec<u8>> {
        let most = most.min(self.most);
        let too_long = || io::Error::other(format!("it is larger than {} MiB", most >> 20));
        if self.identity.length > most {
            return Err(too_long());
        }
        let place = self.place.try_clone()?;
        let data = within(LONG, move || content(&place, most.saturating_add(1)))?;
        match data.len() as u64 > most {
            true => Err(too_long()),
            false => Ok(data),
        }
    }
}

fn link(place: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", place.as_fd().as_raw_fd()))
}

/// The content, up to that many bytes: it may grow while it is read.
fn content(place: &OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    // The link leads to the very file that was found. A process may hold a lease on it: then this
    // does not wait.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(CWD, link(place), flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => io::Error::other("/proc is not mounted"),
        error => error.into(),
    })?;
    let mut data = Vec::new();
    File::from(file).take(most).read_to_end(&mut data)?;
    Ok(data)
}

/// The longest content of a file that a process has mapped, by its owner.
fn most_of(owner: u32) -> u64 {
    match owner == 0 || owner == rustix::process::geteuid().as_raw() {
        true => u64::MAX,
        false => MOST_OF_OTHERS,
    }
}

/// The status of a file, without asking a server for that of a network's or another process's: that could block.
fn status(place: &OwnedFd) -> io::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(statx(place, "", flags, StatxFlags::BASIC_STATS)?)
}

/// Bytes that `usage` reads of any file.
const MOST_OF_OTHERS: u64 = 128 << 20;
/// Finds a file and opens nothing: no FIFO blocks and no device notices.
const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn root(folder: &Path) -> OwnedFd {
        openat(CWD, folder, PATH_ONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn a_file_that_is_written_over_or_replaced_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "content").unwrap();
        let file = RegularFile::named(&path).unwrap();
        assert!(file.is_unchanged());
        let other = folder.path().join("other");
        fs::write(&other, "other content").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!file.is_unchanged(), "it has no name any more");
        let file = RegularFile::named(&path).unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        // Some file systems note times in steps of the kernel's clock.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, "other cONTENT").unwrap();
        let written = fs::File::options().write(true).open(&path).unwrap();
        written.set_modified(before).unwrap();
        assert!(!file.is_unchanged(), "its length and time are set back");
    }

    #[test]
    fn a_hostile_root_leads_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("root");
        fs::create_dir_all(inside.join("lib")).unwrap();
        fs::write(folder.path().join("secret"), "of the host").unwrap();
        fs::write(inside.join("lib/code"), "its own").unwrap();
        symlink("/etc/passwd", inside.join("absolute")).unwrap();
        symlink("../secret", inside.join("relative")).unwrap();
        symlink("/proc/self/root/etc", inside.join("magic")).unwrap();
        let root = root(&inside);
        let open = |path: &str| RegularFile::below(&root, Path::new(path));
        let own = open("/lib/code").unwrap();
        assert_eq!(own.read(100).unwrap(), b"its own");
        for path in [
            "/absolute",
            "/relative",
            "/magic/passwd",
            "/../secret",
            "/lib/../../secret",
        ] {
            assert!(open(path).is_err(), "{path}");
        }
    }

    /// If this opened the FIFO as a plain `open` does, it would wait for a writer for ever.
    #[test]
    fn a_fifo_a_device_and_a_folder_are_refused_and_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let root = root(folder.path());
        let answers = [
            RegularFile::named(&fifo),
            RegularFile::at(&fifo),
            RegularFile::below(&root, Path::new("/fifo")),
            RegularFile::named(Path::new("/dev/zero")),
        ];
        for answer in answers {
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("pipe"), "{error}");
        }
        let error = RegularFile::named(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_refused_where_the_kernel_named_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        assert!(RegularFile::named(&link).is_ok());
        let error = RegularFile::at(&link).unwrap_err().to_string();
        assert!(error.contains("link"), "{error}");
    }

    #[test]
    fn what_was_found_is_read_though_something_else_is_there_now() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "first").unwrap();
        let found = RegularFile::named(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "second").unwrap();
        assert_eq!(found.read(100).unwrap(), b"first");
        assert_ne!(RegularFile::named(&path).unwrap().identity(), found.identity());
    }

    #[test]
    fn no_more_is_read_than_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [0; 100]).unwrap();
        let found = RegularFile::named(&path).unwrap();
        assert_eq!(found.read(100).unwrap().len(), 100);
        assert!(found.read(99).is_err());
        // It was small when it was found.
        fs::write(&path, [0; 101]).unwrap();
        assert!(found.read(100).is_err());
    }

    /// A sparse file costs its owner nothing, however long it is.
    #[test]
    fn of_a_mapped_file_of_another_user_less_is_read() {
        assert_eq!(most_of(0), u64::MAX);
        assert_eq!(most_of(rustix::process::geteuid().as_raw()), u64::MAX);
        assert_eq!(most_of(12_345), MOST_OF_OTHERS);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let sparse = fs::File::create(&path).unwrap();
        sparse.set_len(MOST_OF_OTHERS + 1).unwrap();
        if let Err(error) = std::os::unix::fs::chown(&path, Some(12_345), None) {
            println!("SKIP: {error}: only root gives files to other users");
            return;
        }
        for found in [RegularFile::at, RegularFile::behind] {
            let error = found(&path).unwrap().read(1 << 30).unwrap_err();
            assert_eq!(error.to_string(), "it is larger than 128 MiB");
        }
        assert_eq!(RegularFile::named(&path).unwrap().most, u64::MAX);
    }
}
