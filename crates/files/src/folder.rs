//! Folders whose files decide what a program does.

use crate::place::FOLDER;
use crate::read::bounded;
use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, openat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Makes a folder and those above it, if they are not there, and refuses it as [`check_folder`] does.
///
/// # Errors
///
/// When it cannot be made or is refused.
pub fn folder(path: &Path) -> io::Result<()> {
    make_folder(path)?;
    check_folder(path)
}

/// Makes a folder and those above it, if they are not there, with mode 0755 whatever the umask is: a server may
/// have one of 0.
///
/// # Errors
///
/// When it cannot be made.
pub fn make_folder(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        make_folder(above)?;
    }
    match DirBuilder::new().mode(MODE).create(path) {
        Ok(()) => {
            let made = open(path)?;
            // Another one may be there since.
            if fstat(&made)?.st_uid == geteuid().as_raw() {
                fchmod(&made, Mode::from_raw_mode(MODE))?;
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Refuses a folder into which others than root and this user can write, and a link, which in `/tmp` any user
/// could have laid.
///
/// # Errors
///
/// When it is not there, or is refused: [`is_untrusted`].
pub fn check_folder(path: &Path) -> io::Result<()> {
    let folder = File::from(match open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory && path.is_symlink() => {
            return Err(untrusted("it is a link"));
        }
        other => other?,
    });
    let found = folder.metadata()?;
    if is_foreign(&found) {
        return Err(untrusted("it belongs to another user"));
    }
    match found.mode() & 0o022 {
        0 => Ok(()),
        _ => Err(untrusted("other users can write to it")),
    }
}

/// The content of a regular file whose values a program acts on: it belongs to root or to this user, and no other
/// user can write to it. As root, its folder is checked, too. Elsewhere that may be open: a volume of a pod is, and
/// who replaces a file there becomes its owner.
///
/// # Errors
///
/// As with [`read`](crate::read), and when it is refused: [`is_untrusted`].
pub fn read_trusted(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_trusted_as(path, most, geteuid().is_root())
}

fn read_trusted_as(path: &Path, most: u64, root: bool) -> io::Result<Vec<u8>> {
    if root {
        check_folder(above(path))?;
    }
    let file = crate::read::open(path, OFlags::NOFOLLOW)?;
    let found = file.metadata()?;
    match is_foreign(&found) || found.mode() & others(&found) != 0 {
        true => Err(untrusted("other users can change it")),
        false => bounded(file, most),
    }
}

/// Puts a file that [`read_trusted`] reads in the place of what is at a path, with mode 0644. Its folder is made.
///
/// # Errors
///
/// As with [`replace`](crate::replace), and as root when its folder is refused.
pub fn replace_trusted(path: &Path, content: &[u8]) -> io::Result<()> {
    match geteuid().is_root() {
        true => folder(above(path))?,
        false => make_folder(above(path))?,
    }
    crate::replace(path, content, 0o644)
}

fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Returns whether a folder or a file was refused because of what other users can do to it.
pub fn is_untrusted(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Untrusted>())
}

/// The first of a file and the folders above it that others than root and this user can change. Links are
/// followed before.
///
/// # Errors
///
/// When there is no such file.
pub fn writable_by_others(path: &Path) -> io::Result<Option<PathBuf>> {
    let path = fs::canonicalize(path)?;
    for place in path.ancestors() {
        let found = fs::symlink_metadata(place)?;
        // In a folder such as /tmp only the owner can replace an entry, and that is who was asked for before.
        let is_kept = found.is_dir() && found.mode() & STICKY != 0;
        if is_foreign(&found) || (found.mode() & others(&found) != 0 && !is_kept) {
            return Ok(Some(place.to_owned()));
        }
    }
    Ok(None)
}

fn open(path: &Path) -> io::Result<rustix::fd::OwnedFd> {
    let opened = openat(CWD, path, FOLDER.union(OFlags::NOFOLLOW), Mode::empty());
    opened.map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => io::ErrorKind::NotADirectory.into(),
        error => error.into(),
    })
}

fn is_foreign(found: &Metadata) -> bool {
    found.uid() != 0 && found.uid() != geteuid().as_raw()
}

/// The permissions that let others write. On many systems a user has a group alone.
fn others(found: &Metadata) -> u32 {
    let user = geteuid();
    match !user.is_root() && found.gid() == getegid().as_raw() {
        true => 0o002,
        false => 0o022,
    }
}

fn untrusted(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Untrusted(why))
}

#[derive(Debug)]
struct Untrusted(&'static str);

impl std::fmt::Display for Untrusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Untrusted {}

const MODE: u32 = 0o755;
const STICKY: u32 = 0o1000;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const NOBODY: u32 = 65534;

    fn allow(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("a/b");
        folder(&inner).unwrap();
        folder(&inner).unwrap();
        for mode in [0o777, 0o775, 0o1777] {
            allow(&inner, mode);
            assert!(is_untrusted(&folder(&inner).unwrap_err()), "{mode:o}");
        }
        allow(&inner, 0o755);
        let link = outer.path().join("link");
        symlink(&inner, &link).unwrap();
        assert!(is_untrusted(&folder(&link).unwrap_err()));
        if geteuid().is_root() {
            chown(&inner, Some(NOBODY), None).unwrap();
            assert!(is_untrusted(&folder(&inner).unwrap_err()));
        } else {
            println!("SKIP: only root gives folders to other users");
        }
        let file = outer.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [&file, &outer.path().join("none")] {
            let error = check_folder(path).unwrap_err();
            assert!(!is_untrusted(&error), "{error}");
        }
    }

    #[test]
    fn a_file_of_others_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("a/file");
        replace_trusted(&path, b"x").unwrap();
        let folder = path.parent().unwrap();
        assert_eq!(read_trusted(&path, 9).unwrap(), b"x");
        allow(folder, 0o777);
        assert!(is_untrusted(&read_trusted_as(&path, 9, true).unwrap_err()));
        assert_eq!(read_trusted_as(&path, 9, false).unwrap(), b"x");
        if !geteuid().is_root() {
            return println!("SKIP: only root gives files to other users");
        }
        assert!(is_untrusted(&replace_trusted(&path, b"y").unwrap_err()));
        allow(folder, 0o755);
        allow(&path, 0o664);
        assert!(is_untrusted(&read_trusted(&path, 9).unwrap_err()));
        allow(&path, 0o644);
        chown(&path, Some(NOBODY), None).unwrap();
        for root in [false, true] {
            assert!(is_untrusted(&read_trusted_as(&path, 9, root).unwrap_err()));
        }
    }

    #[test]
    fn a_file_is_as_safe_as_the_folders_above_it() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("a/b");
        make_folder(&inner).unwrap();
        let file = inner.join("file");
        fs::write(&file, "").unwrap();
        allow(&file, 0o644);
        assert_eq!(writable_by_others(&file).unwrap(), None);
        let outer = fs::canonicalize(outer.path()).unwrap();
        for (place, safe) in [("a/b/file", 0o644), ("a/b", 0o755), ("a", 0o755)] {
            let place = outer.join(place);
            allow(&place, 0o777);
            assert_eq!(writable_by_others(&file).unwrap(), Some(place.clone()));
            allow(&place, safe);
        }
        allow(&outer.join("a"), 0o1777);
        assert_eq!(writable_by_others(&file).unwrap(), None);
        let link = outer.join("link");
        symlink("a/b/file", &link).unwrap();
        allow(&file, 0o666);
        let found = writable_by_others(&link).unwrap();
        assert_eq!(found, Some(outer.join("a/b/file")));
        assert!(writable_by_others(&outer.join("none")).is_err());
    }
}
