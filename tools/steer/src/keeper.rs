//! The folder with the state files, and the lock that lets one steerer at a time into a machine.

use crate::error::SteerError;
use crate::state::State;
use crate::tasks;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A folder that only this user can write to; made when something is first kept there.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Opens this folder.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Makes it if it is not there, in a folder that is.
    fn prepare(&self) -> Result<(), SteerError> {
        let is_missing = |above: &Path| !above.as_os_str().is_empty() && !above.is_dir();
        if self.0.parent().is_some_and(is_missing) {
            return Err(self.failed(rustix::io::Errno::NOENT.into()));
        }
        widelane_files::folder(&self.0).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> SteerError {
        let path = self.0.clone();
        match widelane_files::is_untrusted(&source) {
            true => SteerError::Untrusted { path },
            false => SteerError::Folder { path, source },
        }
    }

    /// The numbers of the processes that steer their own descendants now, which no other
    /// steerer should steer as well.
    pub(crate) fn steered_trees(&self) -> Vec<i32> {
        // A folder that others can write to is ignored.
        if widelane_files::check_folder(&self.0).is_err() {
            return Vec::new();
        }
        let live = |path: PathBuf| read(&path).ok().flatten().and_then(|state| owner(&state));
        self.trees().into_iter().filter_map(live).collect()
    }

    /// The files with what was done to the whole machine and to the descendants of processes.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = self.trees();
        files.push(self.0.join(MACHINE));
        files
    }

    fn trees(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let ours = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.starts_with(TREE) && name.ends_with(".state"))
        };
        entries.map(|entry| entry.path()).filter(ours).collect()
    }
}

/// One state file, for as long as its writer lives.
#[derive(Debug)]
pub(crate) struct Keeper {
    path: PathBuf,
    /// Held, not used: the kernel gives the lock free when this process is gone, however it went.
    _lock: Option<File>,
}

impl Keeper {
    /// Makes one for a steerer of the whole machine; refused while there is another.
    pub(crate) fn of_machine(folder: &Folder, roots: &Folder) -> Result<Self, SteerError> {
        if let Some(pid) = overruled(roots) {
            return Err(SteerError::Busy { pid });
        }
        let lock = lock(folder)?;
        Ok(Self {
            path: folder.0.join(MACHINE),
            _lock: Some(lock),
        })
    }

    /// Makes a state file for a process that steers its own descendants.
    pub(crate) fn of_tree(folder: &Folder) -> Result<Self, SteerError> {
        folder.prepare()?;
        let name = format!("{TREE}{}.state", std::process::id());
        Ok(Self {
            path: folder.0.join(name),
            _lock: None,
        })
    }

    /// Replaces the file in one step: if this process is killed, the old or the new content is
    /// there.
    pub(crate) fn save(&self, state: &State) -> Result<(), SteerError> {
        let text = state.to_json();
        widelane_files::replace(&self.path, text.as_bytes(), 0o644).map_err(|source| SteerError::Folder {
            path: self.path.clone(),
            source,
        })
    }

    /// Removes the file: nothing is left to be undone.
    pub(crate) fn clear(&self) {
        // If it stays, it names what is undone already, and undoing that again changes nothing.
        let _ = widelane_files::remove(&self.path);
    }
}

/// Keeps steerers of the machine out as long as it is held.
pub(crate) fn lock(folder: &Folder) -> Result<File, SteerError> {
    folder.prepare()?;
    let path = folder.0.join("steer.lock");
    let failed = |source| SteerError::Folder {
        path: path.clone(),
        source,
    };
    let file = widelane_files::lock_file(&path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let state = read(&folder.0.join(MACHINE)).ok().flatten();
            let pid = state.and_then(|state| owner(&state)).unwrap_or(0);
            Err(SteerError::Busy { pid })
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// The process of root's steerer of the machine, for any other user: root's has precedence.
pub(crate) fn overruled(roots: &Folder) -> Option<i32> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let state = read(&roots.0.join(MACHINE)).ok().flatten()?;
    owner(&state)
}

/// Reads a state file; `None` if there is none, or if it is of another boot.
pub(crate) fn read(path: &Path) -> Result<Option<State>, SteerError> {
    let failed = |source| SteerError::Folder {
        path: path.to_owned(),
        source,
    };
    let text = match widelane_files::read(path, MOST_BYTES) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let state = State::from_json(&text).map_err(|source| SteerError::Damaged {
        path: path.to_owned(),
        source,
    })?;
    let boot = tasks::boot().map_err(failed)?;
    Ok(Some(state).filter(|state| state.boot == boot))
}

/// The writer of a state file, if it still lives.
pub(crate) fn owner(state: &State) -> Option<i32> {
    let same = tasks::start_of(state.owner.tid) == Some(state.owner.start);
    same.then_some(state.owner.tid)
}

/// A record of every thread of a large machine.
const MOST_BYTES: u64 = 64 << 20;
const MACHINE: &str = "steer.state";
const TREE: &str = "run-";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn state() -> State {
        State {
            boot: tasks::boot().unwrap(),
            owner: tasks::own_id().unwrap(),
            records: Vec::new(),
        }
    }

    #[test]
    fn one_steerer_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::at(folder.path());
        let nowhere = Folder::at(&folder.0.join("none"));
        let first = Keeper::of_machine(&folder, &nowhere).unwrap();
        first.save(&state()).unwrap();
        let own = std::process::id() as i32;
        let second = Keeper::of_machine(&folder, &nowhere);
        assert!(matches!(second, Err(SteerError::Busy { pid }) if pid == own));
        drop(first);
        Keeper::of_machine(&folder, &nowhere).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let refused = Folder::at(folder.path()).prepare();
        assert!(matches!(refused, Err(SteerError::Untrusted { .. })));
    }

    #[test]
    fn a_file_is_no_folder_and_looking_makes_none() {
        let outer = tempfile::tempdir().unwrap();
        let inner = |name: &str| Folder::at(&outer.path().join(name));
        fs::write(outer.path().join("file"), "").unwrap();
        let message = inner("file").prepare().unwrap_err().to_string();
        assert!(message.contains("not a directory"), "{message}");
        assert_eq!(inner("new").steered_trees(), [0; 0]);
        assert!(!outer.path().join("new").exists());
        inner("new").prepare().unwrap();
        assert!(outer.path().join("new").is_dir());
    }

    #[test]
    fn a_link_is_not_followed() {
        let outer = tempfile::tempdir().unwrap();
        let link = outer.path().join("link");
        std::os::unix::fs::symlink(outer.path(), &link).unwrap();
        let refused = Folder::at(&link).prepare();
        assert!(matches!(refused, Err(SteerError::Untrusted { .. })));
    }

    #[test]
    fn what_was_saved_is_read_and_trees_are_known_while_they_live() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::at(folder.path());
        let keeper = Keeper::of_tree(&folder).unwrap();
        let mut state = state();
        keeper.save(&state).unwrap();
        assert_eq!(read(&keeper.path).unwrap(), Some(state.clone()));
        assert_eq!(folder.steered_trees(), [std::process::id() as i32]);
        state.owner.start += 1;
        keeper.save(&state).unwrap();
        assert_eq!(folder.steered_trees(), [0; 0]);
        keeper.clear();
        assert_eq!(read(&keeper.path).unwrap(), None);
        assert!(folder.trees().is_empty());
        let left = fs::read_dir(&folder.0).unwrap().count();
        assert_eq!(left, 0, "no half-written files");
    }

    #[test]
    fn another_boot_means_nothing_and_damage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.state");
        let other = State {
            boot: "0".into(),
            ..state()
        };
        fs::write(&path, other.to_json()).unwrap();
        assert_eq!(read(&path).unwrap(), None);
        fs::write(&path, "widelane steer 1\n").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(
            message.contains("x.state") && message.contains("another version"),
            "{message}"
        );
    }
}
