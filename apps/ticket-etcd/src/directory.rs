//! The directory of keys that a server watches.
//!
//! `active.key` encrypts, because its name comes first; `key-NAME.key` is there for each key, and decrypts. Each
//! change is of one file as a whole, and in an order in which a server that reads at any moment knows each key that
//! was in force and is in force: keys come, then `active.key` changes, then keys go. `.followed` is locked by the one
//! agent of the directory, and was changed when the keys were last seen in etcd.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

use crate::key::KeyBytes;
use crate::options::OptionsError;

/// A directory that no other agent writes.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Opens or makes it. Other files in it are refused: their keys would be in force as well.
    pub(crate) fn open(path: &Path) -> Result<Self, OptionsError> {
        let fault = |problem: String, remedy: &str| OptionsError::new(path.display().to_string(), problem, remedy);
        let failed = |error: io::Error| match widelane_files::is_untrusted(&error) {
            true => fault(
                error.to_string(),
                "name a directory of your own, below this one for example",
            ),
            false => fault(error.to_string(), "correct the path, or let this user write there"),
        };
        widelane_files::folder(path).map_err(failed)?;
        let lock = widelane_files::lock_file(&path.join(FOLLOWED)).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => fault(
                "another agent writes keys here".into(),
                "let one do it; servers can share the directory",
            ),
            error => failed(error.into()),
        })?;
        let directory = Self {
            path: path.to_owned(),
            lock,
        };
        for name in directory.names().map_err(failed)? {
            let shown = name.to_string_lossy();
            if shown.starts_with(DRAFT) {
                // Of a write that was cut off. It may have a key.
                widelane_files::remove(&path.join(&name)).map_err(failed)?;
            } else if !shown.starts_with('.') && !is_own(&shown) {
                let problem = format!("it has `{}`, which is not of this command", shown.escape_debug());
                return Err(fault(problem, "name an empty directory, or one that is not there"));
            }
        }
        Ok(directory)
    }

    /// Time since the keys in it were last seen in etcd, by a clock that may have been set. `None`: it has none, or
    /// they were never seen there.
    pub(crate) fn unseen(&self) -> Option<Duration> {
        fs::symlink_metadata(self.path.join(ACTIVE)).ok()?;
        let seen = self.lock.metadata().ok()?;
        let (seen, is_marked) = (seen.modified().ok()?, seen.len() > 0);
        is_marked.then(|| SystemTime::now().duration_since(seen).unwrap_or_default())
    }

    /// Notes when the keys were last seen in etcd.
    pub(crate) fn mark_seen(&self, time: SystemTime) -> io::Result<()> {
        self.lock.set_len(1)?;
        self.lock.set_modified(time)
    }

    /// Adds these keys, which decrypt.
    pub(crate) fn add(&self, keys: &[&KeyBytes]) -> io::Result<()> {
        for key in keys {
            self.put(&file_of(key), key)?;
        }
        Ok(())
    }

    /// Makes these the keys, the first of which encrypts.
    pub(crate) fn write(&self, keys: &[&KeyBytes]) -> io::Result<()> {
        self.add(keys)?;
        if let Some(active) = keys.first() {
            self.put(ACTIVE, active)?;
        }
        let wanted: Vec<String> = keys.iter().map(|key| file_of(key)).collect();
        for name in self.names()? {
            let shown = name.to_string_lossy();
            if is_own(&shown) && shown != ACTIVE && wanted.iter().all(|wanted| *wanted != shown) {
                widelane_files::remove(&self.path.join(&name))?;
            }
        }
        Ok(())
    }

    /// Writes a file unless it has this key already.
    fn put(&self, name: &str, key: &KeyBytes) -> io::Result<()> {
        let path = self.path.join(name);
        let there = widelane_files::read(&path, KeyBytes::LENGTH as u64).map(zeroize::Zeroizing::new);
        if there.is_ok_and(|there| same(&there, key.as_bytes())) {
            return Ok(());
        }
        widelane_files::replace(&path, key.as_bytes(), 0o600)
    }

    fn names(&self) -> io::Result<Vec<OsString>> {
        fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name())).collect()
    }
}

fn same(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

fn file_of(key: &KeyBytes) -> String {
    format!("{KEY}{}{END}", key.name())
}

fn is_own(name: &str) -> bool {
    name == ACTIVE || name.starts_with(KEY) && name.ends_with(END)
}

const ACTIVE: &str = "active.key";
const KEY: &str = "key-";
const END: &str = ".key";
const FOLLOWED: &str = ".followed";
/// Beginning of the names of drafts of [`widelane_files::replace`].
const DRAFT: &str = ".widelane-";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn files(path: &Path) -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
            .filter(|(name, _)| !name.starts_with('.'))
            .map(|(name, path)| (name, fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    }

    #[test]
    fn the_first_file_encrypts_and_old_keys_go() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("tickets");
        let directory = Directory::open(&path).unwrap();
        let [a, b, c] = [(); 3].map(|()| KeyBytes::generate().unwrap());
        directory.write(&[&a, &b]).unwrap();
        let names = |keys: &[&KeyBytes]| {
            let mut names: Vec<_> = keys.iter().map(|key| format!("key-{}.key", key.name())).collect();
            names.push("active.key".into());
            names.sort();
            names
        };
        let first = files(&path);
        assert_eq!(first[0], ("active.key".into(), a.as_bytes().to_vec()));
        let found: Vec<_> = first.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(found, names(&[&a, &b]));
        assert_eq!(fs::metadata(path.join(ACTIVE)).unwrap().mode() & 0o777, 0o600);
        let written = || fs::metadata(path.join(ACTIVE)).unwrap().ino();
        let before = written();
        directory.write(&[&a, &b]).unwrap();
        assert_eq!((files(&path), written()), (first, before), "nothing is to be done");
        directory.add(&[&c]).unwrap();
        assert_eq!((files(&path)[0].1.as_slice(), files(&path).len()), (a.as_bytes(), 4));
        directory.write(&[&b, &c, &a]).unwrap();
        assert_eq!(files(&path)[0].1, b.as_bytes());
        directory.write(&[&c]).unwrap();
        let found: Vec<_> = files(&path).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, names(&[&c]));
    }

    #[test]
    fn what_an_earlier_agent_has_left_is_known_by_its_age() {
        let parent = tempfile::tempdir().unwrap();
        let directory = Directory::open(parent.path()).unwrap();
        assert_eq!(directory.unseen(), None);
        directory.write(&[&KeyBytes::generate().unwrap()]).unwrap();
        assert_eq!(directory.unseen(), None, "never seen in etcd");
        directory.mark_seen(SystemTime::now()).unwrap();
        assert!(directory.unseen().unwrap() < Duration::from_secs(60));
        let old = SystemTime::now() - Duration::from_secs(1000);
        directory.lock.set_modified(old).unwrap();
        assert!(directory.unseen().unwrap() >= Duration::from_secs(1000));
        directory
            .lock
            .set_modified(SystemTime::now() + Duration::from_secs(1000))
            .unwrap();
        assert_eq!(directory.unseen(), Some(Duration::ZERO), "a clock was set");
        drop(directory);
        fs::write(parent.path().join(".widelane-0123"), "half").unwrap();
        let directory = Directory::open(parent.path()).unwrap();
        assert!(directory.unseen().is_some());
        assert!(!parent.path().join(".widelane-0123").exists());
    }

    #[test]
    fn directories_of_others_are_refused_with_a_remedy() {
        let parent = tempfile::tempdir().unwrap();
        let refused = |path: &Path| Directory::open(path).unwrap_err().to_string();
        let first = Directory::open(parent.path()).unwrap();
        assert!(refused(parent.path()).contains("another agent"));
        drop(first);
        let foreign = parent.path().join("current.key");
        fs::write(&foreign, "key").unwrap();
        let error = refused(parent.path());
        assert!(
            error.contains("`current.key`") && error.contains("an empty directory"),
            "{error}"
        );
        fs::remove_file(foreign).unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(parent.path()).contains("a directory of your own"));
        assert!(refused(Path::new("/dev/null/keys")).contains("correct the path"));
    }
}
