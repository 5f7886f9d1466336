//! Ticket keys in files, which several machines share: reading them, making them, rotating them.
//!
//! A directory of our own has `current.key`, which encrypts, `next.key` and `previous.key`, which
//! decrypt. A new key waits as the next one until it is on all machines; only then does one of them
//! encrypt with it. Whatever the moment at which a rotation is cut off, the files are good: each step
//! is one atomic change after which the current key is known as such or as the next or previous one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::unistd::geteuid;
use rustix::fs::{FlockOperation, flock};
use zeroize::Zeroizing;

use crate::config::Fault;
use crate::material::read;
use crate::material::ticket_key::{KeyBytes, KeySource, TicketKey};

/// The keys in the files and directories of a listener. The first encrypts, all decrypt. The files
/// may belong to root, to the user of this process, and to `user`, which it will be.
pub(crate) fn read(key: &str, paths: &[PathBuf], user: Option<u32>) -> Result<Vec<Arc<TicketKey>>, Fault> {
    let mut found: Vec<(KeyBytes, Arc<TicketKey>)> = Vec::new();
    for path in paths {
        let fault = |problem: String, remedy: String| Fault::new(key, problem, remedy);
        if path.is_dir() {
            tell_strangers(path);
        }
        for file in files(path).map_err(|error| unreadable(key, path, &error))? {
            // As the operator knows it. What Kubernetes mounts is elsewhere after each update.
            let shown = match file.file_name() {
                Some(name) if file != *path => path.join(name),
                _ => file.clone(),
            };
            let (bytes, metadata) = match read_file(&file) {
                Ok(read) => read,
                // A rotation has renamed it since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound && file != *path => continue,
                Err(error) => return Err(unreadable(key, &shown, &error)),
            };
            check_access(key, &shown, &metadata, user)?;
            let written = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let keys = keys_in(&shown, &bytes).map_err(|problem| fault(problem, GIVE_KEYS.into()))?;
            for bytes in keys {
                if let Some((same, of)) = found.iter().find(|(one, _)| one.name() == bytes.name()) {
                    if same.is(&bytes) {
                        continue;
                    }
                    let other = of.source.as_ref().map(|source| source.file.display().to_string());
                    let problem = format!(
                        "two different ticket keys have the name {}: in {} and in {}",
                        bytes.name(),
                        other.unwrap_or_default(),
                        shown.display()
                    );
                    return Err(fault(problem, "copy the files of one machine".into()));
                }
                let source = KeySource {
                    file: shown.clone(),
                    written,
                };
                let made = TicketKey::new(&bytes, Some(source))
                    .map_err(|error| fault(error.to_string(), "start again".into()))?;
                found.push((bytes, made));
            }
        }
        if found.is_empty() {
            return Err(fault(
                format!("no ticket key in {}", path.display()),
                format!("make some: widelane tickets new {}", path.display()),
            ));
        }
        if found.len() > MOST_KEYS {
            return Err(fault(
                format!("more than {MOST_KEYS} ticket keys"),
                "delete old ones; two or three suffice".into(),
            ));
        }
    }
    Ok(found.into_iter().map(|(_, key)| key).collect())
}

/// A directory of ticket keys as `widelane tickets` makes it.
#[derive(Debug)]
pub struct TicketDirectory(PathBuf);

/// A key in such a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketFile {
    /// The file's name.
    pub file: String,
    /// The key's name in hexadecimal, which tickets carry in plain.
    pub name: String,
    /// Time since it was made. `None`: in the future, by this machine's clock.
    pub age: Option<Duration>,
}

/// Reason why keys were not made or rotated.
#[derive(Debug, thiserror::Error)]
#[error("{problem}; {remedy}")]
pub struct TicketFilesError {
    problem: String,
    remedy: String,
}

impl TicketDirectory {
    /// Makes a directory with a key that encrypts and one that waits. The directory may exist, but
    /// it must not have keys.
    pub fn create(path: &Path) -> Result<Self, TicketFilesError> {
        if let Err(error) = DirBuilder::new().mode(0o700).create(path)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(failed("make", path, &error));
        }
        let directory = Self(path.to_owned());
        let _lock = directory.lock()?;
        let is_there = |file: &str| path.join(file).symlink_metadata().is_ok();
        if let Some(file) = FILES.into_iter().find(|file| is_there(file)) {
            return Err(TicketFilesError {
                problem: format!("{} exists already", path.join(file).display()),
                remedy: format!("rotate: widelane tickets rotate {}", path.display()),
            });
        }
        let now = SystemTime::now();
        directory.write(CURRENT, None, now - APART)?;
        directory.write(NEXT, None, now)?;
        Ok(directory)
    }

    /// An existing directory.
    pub fn open(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Makes the next key the current one, the current one the previous one, and a new key the next
    /// one. Refuses if the next key is younger than `least_age`: other machines may not have it yet,
    /// and could not decrypt the tickets that this one would make.
    pub fn rotate(&self, least_age: Duration) -> Result<(), TicketFilesError> {
        let mut after = |wait| {
            std::thread::sleep(wait);
            SystemTime::now()
        };
        self.rotate_by(&mut after, least_age)
    }

    /// Rotates by a clock: it waits, and tells the time `after` that.
    fn rotate_by(&self, after: Clock<'_>, least_age: Duration) -> Result<(), TicketFilesError> {
        let _lock = self.lock()?;
        let path = |file: &str| self.0.join(file);
        let current = self.read(CURRENT)?.ok_or_else(|| TicketFilesError {
            problem: format!("there is no {}", path(CURRENT).display()),
            remedy: format!(
                "make keys in a new directory: widelane tickets new DIR; {} was not made by it",
                self.0.display()
            ),
        })?;
        let Some(next) = self.read(NEXT)? else {
            // A rotation was cut off before its last step, or the file was lost.
            let now = later_second(after, &current.metadata);
            return self.write(NEXT, Some(&current.metadata), now);
        };
        let age = next.age();
        if age.is_none() && !least_age.is_zero() {
            return Err(TicketFilesError {
                problem: format!("{} is from the future by this machine's clock", path(NEXT).display()),
                remedy: "set the clock, or --min-age 0".into(),
            });
        }
        let age = age.unwrap_or_default();
        if age < least_age {
            return Err(TicketFilesError {
                problem: format!(
                    "{} is only {} seconds old, and other machines may not have it yet",
                    path(NEXT).display(),
                    age.as_secs()
                ),
                remedy: "copy it there and wait, or set --min-age 0".into(),
            });
        }
        let step = |result: io::Result<()>| result.map_err(|error| failed("write", &self.0, &error));
        let draft = path(DRAFT);
        let _ = fs::remove_file(&draft);
        step(fs::hard_link(path(CURRENT), &draft))?;
        step(fs::rename(&draft, path(PREVIOUS)))?;
        // If both were the same file already, the rename has left the draft.
        let _ = fs::remove_file(&draft);
        step(fs::rename(path(NEXT), path(CURRENT)))?;
        let now = later_second(after, &next.metadata);
        self.write(NEXT, Some(&current.metadata), now)
    }

    /// The keys as a server has them, the one that encrypts first, each with its first file.
    pub fn list(&self) -> Result<Vec<TicketFile>, TicketFilesError> {
        let paths = match files(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            paths => paths.map_err(|error| failed("read", &self.0, &error))?,
        };
        let mut keys: Vec<TicketFile> = Vec::new();
        for path in paths {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(stored) = self.read(&file)? else {
                continue;
            };
            let name = stored.bytes.name();
            if keys.iter().all(|key| key.name != name) {
                let (file, age) = (file.into_owned(), stored.age());
                keys.push(TicketFile { file, name, age });
            }
        }
        Ok(keys)
    }

    /// Writes a new key, whole or not at all, as if at the time `written`.
    fn write(&self, file: &str, like: Option<&fs::Metadata>, written: SystemTime) -> Result<(), TicketFilesError> {
        let draft = self.0.join(DRAFT);
        let write = || {
            let _ = fs::remove_file(&draft);
            let mut new = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&draft)?;
            if let Some(like) = like {
                let own = new.metadata()?;
                if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
                    fchown(&new, Some(like.uid()), Some(like.gid()))?;
                }
                new.set_permissions(like.permissions())?;
            }
            let bytes = KeyBytes::generate().map_err(io::Error::other)?;
            new.write_all(bytes.as_bytes())?;
            new.set_modified(written)?;
            new.sync_all()?;
            fs::rename(&draft, self.0.join(file))?;
            File::open(&self.0)?.sync_all()
        };
        write().map_err(|error| failed("write", &self.0.join(file), &error))
    }

    /// A key, or `None` if the file does not exist.
    fn read(&self, file: &str) -> Result<Option<StoredKey>, TicketFilesError> {
        let path = self.0.join(file);
        let (bytes, metadata) = match read_file(&path) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path, &error)),
        };
        let mut keys = keys_in(&path, &bytes).map_err(|problem| TicketFilesError {
            problem,
            remedy: GIVE_KEYS.into(),
        })?;
        let bytes = keys.swap_remove(0);
        Ok(Some(StoredKey { bytes, metadata }))
    }

    /// One rotation at a time.
    fn lock(&self) -> Result<File, TicketFilesError> {
        let lock = File::open(&self.0).map_err(|error| failed("open", &self.0, &error))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let error = match error {
                rustix::io::Errno::WOULDBLOCK => io::Error::other("another rotation is at work"),
                error => error.into(),
            };
            failed("lock", &self.0, &error)
        })?;
        Ok(lock)
    }
}

struct StoredKey {
    bytes: KeyBytes,
    metadata: fs::Metadata,
}

impl StoredKey {
    fn age(&self) -> Option<Duration> {
        let written = self.metadata.modified().ok()?;
        SystemTime::now().duration_since(written).ok()
    }
}

type Clock<'a> = &'a mut dyn FnMut(Duration) -> SystemTime;

/// The present, but not in the second in which a file was written: waits for the next one then. Programs
/// that copy files take two of one size and one second for the same.
fn later_second(after: Clock<'_>, than: &fs::Metadata) -> SystemTime {
    let mut wait = Duration::ZERO;
    loop {
        let now = after(wait);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if i64::try_from(since.as_secs()).ok() != Some(than.mtime()) {
            return now;
        }
        wait = Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into());
    }
}

/// The files of a directory in the order of their names, without hidden ones; or the file itself.
pub(crate) fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let place = place(path);
    let directory = fs::canonicalize(&place).unwrap_or(place);
    let mut files = list(&directory)?;
    // A file that is renamed while the directory is listed may be missing or be there twice.
    for _ in 0..MOST_LISTS {
        let again = list(&directory)?;
        if again == files {
            break;
        }
        files = again;
    }
    Ok(files)
}

fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => files.push(path),
            Ok(_) => {}
            // A rotation has just renamed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.sort();
    Ok(files)
}

/// Says what is in a directory beside files, which is not read. Hidden names are for others.
pub(crate) fn tell_strangers(directory: &Path) {
    for entry in fs::read_dir(place(directory)).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && fs::metadata(&path).is_ok_and(|seen| !seen.is_file()) {
            tracing::warn!(path = %path.display(), "not read: it is no regular file");
        }
    }
}

/// Place of the files of a directory. What Kubernetes mounts is behind a link that it replaces as a
/// whole, so that all files are of one version.
pub(crate) fn place(directory: &Path) -> PathBuf {
    let data = directory.join(KUBERNETES_DATA);
    match data.is_dir() {
        true => data,
        false => directory.to_owned(),
    }
}

/// The keys in the contents of a file.
fn keys_in(path: &Path, bytes: &[u8]) -> Result<Vec<KeyBytes>, String> {
    KeyBytes::parse(bytes).map_err(|problem| format!("no ticket key in {}: {problem}", path.display()))
}

/// Refuses files that others than the owner can use, and owners that are not trusted with the keys.
fn check_access(key: &str, path: &Path, metadata: &fs::Metadata, user: Option<u32>) -> Result<(), Fault> {
    let (owner, own) = (metadata.uid(), geteuid().as_raw());
    if owner != 0 && owner != own && Some(owner) != user {
        return Err(Fault::new(
            key,
            format!(
                "{} belongs to user {owner}, who knows the ticket keys and can change them",
                path.display()
            ),
            format!("chown {} {}, and make new keys", user.unwrap_or(own), path.display()),
        ));
    }
    let mode = metadata.mode();
    if mode & READ_BY_OTHERS != 0 {
        return Err(Fault::new(
            key,
            format!(
                "{} has mode {:04o}, so that other users can read or change the ticket keys",
                path.display(),
                mode & 0o7777
            ),
            format!(
                "chmod 600 {} (in Kubernetes: `defaultMode: 0400`, or 0440 with `fsGroup`), and \
                 make new keys",
                path.display()
            ),
        ));
    }
    Ok(())
}

/// Reads a file into memory that never moves, so that no copy stays behind.
fn read_file(path: &Path) -> io::Result<(Zeroizing<Vec<u8>>, fs::Metadata)> {
    let mut file = read::open(path)?;
    let mut bytes = Zeroizing::new(vec![0; LONGEST_FILE + 1]);
    let mut length = 0;
    loop {
        match file.read(&mut bytes[length..])? {
            0 if length > LONGEST_FILE => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long")),
            0 => break,
            read => length += read,
        }
    }
    bytes.truncate(length);
    Ok((bytes, file.metadata()?))
}

fn unreadable(key: &str, path: &Path, error: &io::Error) -> Fault {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("let the user of this process read it ({})", widelane_files::this_user())
        }
        io::ErrorKind::NotFound => format!(
            "correct the path, mount the Secret, or make keys: widelane tickets new {}",
            path.display()
        ),
        _ => GIVE_KEYS.into(),
    };
    let problem = format!("cannot read ticket keys from {}: {error}", path.display());
    Fault::new(key, problem, remedy).because_of(error)
}

fn failed(what: &str, path: &Path, error: &io::Error) -> TicketFilesError {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("call it as the owner of the keys ({})", widelane_files::this_user())
        }
        io::ErrorKind::NotFound => "correct the path; the directory above must exist".into(),
        _ => "try again".into(),
    };
    TicketFilesError {
        problem: format!("cannot {what} {}: {error}", path.display()),
        remedy,
    }
}

const CURRENT: &str = "current.key";
const NEXT: &str = "next.key";
const PREVIOUS: &str = "previous.key";
/// In the order of their names, in which a directory is read.
const FILES: [&str; 3] = [CURRENT, NEXT, PREVIOUS];
const DRAFT: &str = ".new.key";
/// The first two keys, so that they are not of one second: see [`later_second`].
const APART: Duration = Duration::from_secs(2);
/// In a directory that Kubernetes mounts, a link to that of the moment.
pub(crate) const KUBERNETES_DATA: &str = "..data";
const GIVE_KEYS: &str = "give files of 48 or 80 random bytes (nginx) or lines of base64 of as many (HAProxy)";
/// Reading or writing by others, writing by the group.
const READ_BY_OTHERS: u32 = 0o026;
const LONGEST_FILE: usize = 16 * 1024;
const MOST_KEYS: usize = 32;
/// Most times that a directory is listed which changes meanwhile.
const MOST_LISTS: usize = 5;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    /// A clock that goes on by itself where it is waited for.
    fn fast() -> impl FnMut(Duration) -> SystemTime {
        let mut ahead = Duration::ZERO;
        move |wait| {
            ahead += wait;
            SystemTime::now() + ahead
        }
    }

    fn rotate(directory: &TicketDirectory) {
        directory.rotate_by(&mut fast(), Duration::ZERO).unwrap();
    }

    fn names(paths: &[PathBuf]) -> Vec<String> {
        let keys = read("tickets.keys", paths, None).unwrap();
        keys.iter().map(|key| key.name()).collect()
    }

    fn fault(paths: &[PathBuf]) -> String {
        let fault = read("tickets.keys", paths, None).unwrap_err();
        assert_eq!(fault.key, "tickets.keys");
        format!("{}; {}", fault.problem, fault.remedy)
    }

    fn put(path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn a_rotation_never_encrypts_with_a_key_that_was_not_known_before() {
        let parent = TempDir::new().unwrap();
        let path = parent.path().join("tickets");
        let directory = TicketDirectory::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let mut before = names(std::slice::from_ref(&path));
        assert_eq!(before.len(), 2);
        for _ in 0..3 {
            rotate(&directory);
            let after = names(std::slice::from_ref(&path));
            assert_eq!(after.len(), 3);
            assert_eq!(after[0], before[1], "the next one encrypts");
            assert_eq!(after[2], before[0], "the current one still decrypts");
            assert!(!before.contains(&after[1]), "a new key waits");
            before = after;
        }
        let listed = directory.list().unwrap();
        let listed: Vec<_> = listed.into_iter().map(|key| key.name).collect();
        assert_eq!(listed, before);
    }

    /// `rsync` without `--checksum` does not copy a file whose size and second are the same.
    #[test]
    fn a_rotation_gives_every_file_another_second() {
        let parent = TempDir::new().unwrap();
        let path = parent.path().join("tickets");
        let directory = TicketDirectory::create(&path).unwrap();
        let seconds = || {
            let of = |file| fs::metadata(path.join(file)).ok();
            FILES.map(|file| of(file).map(|metadata| metadata.mtime()))
        };
        let mut clock = fast();
        let mut rotate = || directory.rotate_by(&mut clock, Duration::ZERO).unwrap();
        let mut before = seconds();
        for _ in 0..3 {
            rotate();
            let after = seconds();
            for (before, after) in before.into_iter().zip(after) {
                assert!(after.is_some() && before != after);
            }
            before = after;
        }
        // A rotation was cut off before its last step.
        fs::remove_file(path.join(NEXT)).unwrap();
        rotate();
        assert_ne!(seconds()[0], seconds()[1]);
        let written = |file| fs::metadata(path.join(file)).unwrap().modified().unwrap();
        let now = clock(Duration::ZERO);
        assert!(FILES.iter().all(|file| written(file) <= now), "none is from the future");
    }

    #[test]
    fn a_rotation_that_was_cut_off_is_finished() {
        let parent = TempDir::new().unwrap();
        let path = parent.path().join("tickets");
        let directory = TicketDirectory::create(&path).unwrap();
        rotate(&directory);
        let [current, next, _] = &names(std::slice::from_ref(&path))[..] else {
            panic!("three keys")
        };
        // After its first step.
        fs::remove_file(path.join(PREVIOUS)).unwrap();
        fs::hard_link(path.join(CURRENT), path.join(PREVIOUS)).unwrap();
        assert_eq!(names(std::slice::from_ref(&path)), [current.clone(), next.clone()]);
        // After its second one.
        fs::rename(path.join(NEXT), path.join(CURRENT)).unwrap();
        assert_eq!(names(std::slice::from_ref(&path)), [next.clone(), current.clone()]);
        // A draft that was not finished is in the way of no later one.
        put(&path.join(DRAFT), b"half");
        rotate(&directory);
        let after = names(std::slice::from_ref(&path));
        assert_eq!([&after[0], &after[2]], [next, current]);
        // All three steps, from the first one on.
        fs::remove_file(path.join(PREVIOUS)).unwrap();
        fs::hard_link(path.join(CURRENT), path.join(PREVIOUS)).unwrap();
        rotate(&directory);
        assert_eq!(names(std::slice::from_ref(&path))[0], after[1]);
        assert!(!path.join(DRAFT).exists());
    }

    #[test]
    fn a_rotation_keeps_owner_and_mode_and_refuses_what_it_would_break() {
        let parent = TempDir::new().unwrap();
        let path = parent.path().join("tickets");
        let directory = TicketDirectory::create(&path).unwrap();
        let error = TicketDirectory::create(&path).unwrap_err().to_string();
        assert!(error.contains("widelane tickets rotate"), "{error}");
        let error = directory.rotate(Duration::from_secs(3600)).unwrap_err();
        assert!(error.to_string().contains("other machines"), "{error}");
        let shared = fs::Permissions::from_mode(0o640);
        fs::set_permissions(path.join(CURRENT), shared).unwrap();
        rotate(&directory);
        let mode = fs::metadata(path.join(NEXT)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o640);
        let lock = directory.lock().unwrap();
        let error = directory.rotate(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("another rotation"), "{error}");
        drop(lock);
        put(&path.join(NEXT), b"torn!");
        let before = fs::read(path.join(CURRENT)).unwrap();
        let error = directory.rotate(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("next.key") && error.contains("5 bytes"), "{error}");
        assert_eq!(fs::read(path.join(CURRENT)).unwrap(), before);
        fs::remove_file(path.join(CURRENT)).unwrap();
        let error = directory.rotate(Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("no ") && error.contains("current.key"), "{error}");
    }

    #[test]
    fn a_kubernetes_mount_is_read_behind_its_link() {
        let mount = TempDir::new().unwrap();
        let version = |name: &str, seed: u8| {
            let directory = mount.path().join(name);
            fs::create_dir(&directory).unwrap();
            let bytes: Vec<u8> = (seed..seed + 80).collect();
            put(&directory.join("a.key"), &bytes);
        };
        version("..1", 1);
        symlink("..1", mount.path().join("..data")).unwrap();
        symlink("..data/a.key", mount.path().join("a.key")).unwrap();
        let paths = [mount.path().to_owned()];
        assert_eq!(names(&paths)[0][..4], *"0102");
        version("..2", 2);
        symlink("..2", mount.path().join("..new")).unwrap();
        fs::rename(mount.path().join("..new"), mount.path().join("..data")).unwrap();
        assert_eq!(names(&paths)[0][..4], *"0203");
        let keys = read("tickets.keys", &paths, None).unwrap();
        let shown = &keys[0].source.as_ref().unwrap().file;
        assert_eq!(*shown, mount.path().join("a.key"), "the same each time");
    }

    #[test]
    fn a_file_that_vanishes_while_its_directory_is_listed_is_no_fault() {
        let parent = TempDir::new().unwrap();
        let path = parent.path().join("tickets");
        TicketDirectory::create(&path).unwrap();
        // It is listed, and has gone when it is looked at.
        symlink("gone", path.join("next2.key")).unwrap();
        assert_eq!(names(std::slice::from_ref(&path)).len(), 2);
        assert!(fault(&[path.join("next2.key")]).contains("next2.key"));
    }

    #[test]
    fn a_key_from_the_future_is_not_called_young() {
        let parent = TempDir::new().unwrap();
        let path = parent.path().join("tickets");
        let directory = TicketDirectory::create(&path).unwrap();
        let next = File::options().write(true).open(path.join(NEXT)).unwrap();
        let future = SystemTime::now() + Duration::from_secs(3600);
        next.set_modified(future).unwrap();
        let error = directory.rotate(Duration::from_secs(300)).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("next.key is from the future") && error.contains("set the clock"),
            "{error}"
        );
        rotate(&directory);
    }

    #[test]
    fn only_trusted_users_own_ticket_keys() {
        let parent = TempDir::new().unwrap();
        let path = parent.path().join("tickets");
        TicketDirectory::create(&path).unwrap();
        let current = path.join(CURRENT);
        if std::os::unix::fs::chown(&current, Some(12_345), None).is_err() {
            println!("SKIP: only root can give files away");
            return;
        }
        let text = fault(std::slice::from_ref(&path));
        assert!(
            text.contains("current.key belongs to user 12345") && text.contains("chown 0 "),
            "{text}"
        );
        let keys = read("tickets.keys", &[path], Some(12_345));
        assert_eq!(keys.unwrap().len(), 2, "root's, and of the user that it becomes");
    }

    #[test]
    fn mistakes_are_named_with_their_remedy() {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        let paths = [directory.path().to_owned()];
        assert!(fault(&paths).contains("widelane tickets new"));
        assert!(fault(&[path("missing")]).contains("mount the Secret"));
        let bytes: Vec<u8> = (0..80).collect();
        put(&path("a"), &bytes);
        fs::set_permissions(path("a"), fs::Permissions::from_mode(0o644)).unwrap();
        let text = fault(&paths);
        assert!(text.contains("mode 0644") && text.contains("chmod 600"), "{text}");
        fs::set_permissions(path("a"), fs::Permissions::from_mode(0o440)).unwrap();
        assert_eq!(names(&paths).len(), 1);
        put(&path("b"), &bytes);
        assert_eq!(names(&paths).len(), 1, "the same key twice");
        let mut other = bytes.clone();
        other[79] ^= 1;
        put(&path("b"), &other);
        let text = fault(&paths);
        assert!(text.contains("two different ticket keys"), "{text}");
        put(&path("b"), &bytes[..50]);
        let text = fault(&paths);
        assert!(text.contains("50 bytes") && text.contains("48 or 80"), "{text}");
        put(&path("b"), &vec![b'\n'; LONGEST_FILE + 1]);
        assert!(fault(&paths).contains("too long"));
    }
}
