//! Fetched responses on disk, so that a server that starts again has them.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use super::check::LONGEST;

/// A directory with a file for each certificate. What is in it is checked like what comes from the
/// network; who can write there cannot have anything else stapled.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// Keeps responses in this directory.
    pub fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Makes the directory, for the user and group that this process will have.
    pub fn prepare(&self, owner: Option<(u32, u32)>) -> io::Result<()> {
        if let Some(parent) = self.0.parent() {
            fs::create_dir_all(parent)?;
        }
        match DirBuilder::new().mode(0o700).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if let Some((user, group)) = owner {
            // Never the target of a link that the user has put there.
            let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits();
            let mut options = OpenOptions::new();
            let directory = options.read(true).custom_flags(flags.cast_signed());
            fchown(directory.open(&self.0)?, Some(user), Some(group))?;
        }
        Ok(())
    }

    /// The response that was kept for a certificate, if it can be read.
    pub fn read(&self, fingerprint: &str) -> Option<Vec<u8>> {
        // Root may read what the user has put there that it will become.
        widelane_files::read(&self.path(fingerprint), LONGEST as u64).ok()
    }

    /// Keeps a response, whole or not at all.
    pub(crate) fn keep(&self, fingerprint: &str, response: &[u8]) -> io::Result<()> {
        let path = self.path(fingerprint);
        let draft = self.0.join(format!(".{fingerprint}"));
        if !self.0.exists() {
            // Where no response was fetched when this process started, it was not made then.
            self.prepare(None)?;
        }
        // What a process has left that ended in between may have another owner.
        let _ = fs::remove_file(&draft);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(response)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    }

    /// Deletes what belongs to certificates that are no longer in use.
    pub(crate) fn clean(&self) {
        let is_old = |path: &Path| {
            let written = fs::symlink_metadata(path).and_then(|seen| seen.modified());
            let age = written.map(|written| SystemTime::now().duration_since(written));
            matches!(age, Ok(Ok(age)) if age > FORGOTTEN)
        };
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            let ours = path.extension().is_some_and(|ending| ending == ENDING);
            if ours && is_old(&path) {
                let _ = fs::remove_file(path);
            }
        }
    }

    fn path(&self, fingerprint: &str) -> PathBuf {
        self.0.join(fingerprint).with_extension(ENDING)
    }
}

const ENDING: &str = "ocsp";
/// No response is valid for so long, and each is written anew before.
const FORGOTTEN: Duration = Duration::from_secs(60 * 24 * 3600);

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn responses_are_kept_whole_and_private_and_old_ones_go() {
        let root = tempfile::TempDir::new().unwrap();
        let directory = root.path().join("new/ocsp");
        let store = Store::new(directory.clone());
        assert_eq!(store.read("ab"), None);
        store.keep("cd", b"made by need").unwrap();
        fs::remove_dir_all(&directory).unwrap();
        store.prepare(None).unwrap();
        store.prepare(None).unwrap();
        assert_eq!(store.read("ab"), None);
        fs::write(directory.join(".ab"), "left").unwrap();
        store.keep("ab", b"one").unwrap();
        store.keep("ab", b"two").unwrap();
        assert_eq!(store.read("ab").as_deref(), Some(&b"two"[..]));
        let names: Vec<_> = fs::read_dir(&directory).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        assert_eq!(mode(&names[0].path()), 0o600);
        store.clean();
        assert!(store.read("ab").is_some());
        let file = File::options().write(true).open(names[0].path()).unwrap();
        file.set_modified(SystemTime::now() - 2 * FORGOTTEN).unwrap();
        store.clean();
        assert_eq!(store.read("ab"), None);
        // Neither a link nor a pipe, for which root would wait.
        let [link, pipe] = ["ln", "pi"].map(|name| store.path(name));
        fs::write(directory.join("other"), "x").unwrap();
        symlink(directory.join("other"), link).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, mode, 0).unwrap();
        assert_eq!((store.read("ln"), store.read("pi")), (None, None));
    }

    #[test]
    fn the_directory_is_given_away_but_never_through_a_link() {
        let root = tempfile::TempDir::new().unwrap();
        use rustix::process::{getegid, geteuid};
        let own = (geteuid().as_raw(), getegid().as_raw());
        let store = Store::new(root.path().join("ocsp"));
        store.prepare(Some(own)).unwrap();
        symlink(root.path(), root.path().join("link")).unwrap();
        let store = Store::new(root.path().join("link"));
        assert!(store.prepare(Some(own)).is_err());
    }
}
