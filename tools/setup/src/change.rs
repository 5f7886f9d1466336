//! Files to write and to remove.

use crate::diff::unified;
use crate::error::SetupError;
use crate::stamp;
use crate::system::read;
use std::io;
use std::path::{Path, PathBuf};
use widelane_files::Root;

/// One file, before and after. `None` is no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    path: PathBuf,
    before: Option<String>,
    after: Option<String>,
}

impl Change {
    /// Path of the file, below the root of the plan.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the change removes the file.
    pub fn removes(&self) -> bool {
        self.after.is_none()
    }
}

/// The changes of one call, in their order.
#[derive(Debug)]
pub struct Plan<'a> {
    root: &'a Root,
    changes: Vec<Change>,
}

impl<'a> Plan<'a> {
    /// A plan for files below `root`, each with its text afterwards. A file that is right already is
    /// left out.
    ///
    /// A file that was edited, or was never ours, is refused; with `force` it is replaced or removed.
    pub(crate) fn new(root: &'a Root, files: Vec<(PathBuf, Option<String>)>, force: bool) -> Result<Self, SetupError> {
        let mut changes = Vec::new();
        for (path, after) in files {
            let before = read(root, &path)?;
            let is_link = root.has_link(&path);
            let ours = || before.as_deref().is_some_and(stamp::is_untouched) && !is_link;
            if before == after {
                continue;
            }
            if (before.is_some() || is_link) && !ours() && !force {
                return Err(SetupError::Changed {
                    path: root.outside(&path),
                });
            }
            changes.push(Change { path, before, after });
        }
        Ok(Self { root, changes })
    }

    /// The changes; none if everything is as it should be.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The changes as a unified difference.
    pub fn diff(&self) -> String {
        let mut text = String::new();
        for change in &self.changes {
            let path = change.path.to_string_lossy();
            text += &unified(&path, change.before.as_deref(), change.after.as_deref());
        }
        text
    }

    /// Checks that this user may make the changes.
    ///
    /// # Errors
    ///
    /// When a file cannot be written: names the first one.
    pub fn check(&self) -> Result<(), SetupError> {
        for change in &self.changes {
            let checked = self.root.check_writable(&change.path);
            checked.map_err(self.failed(change))?;
        }
        Ok(())
    }

    /// Makes the changes. Each file is whole at every moment. A folder of ours that becomes empty is
    /// removed.
    ///
    /// # Errors
    ///
    /// With the first file that cannot be written, or was changed since the plan was made. The changes
    /// before it are made then; a new plan goes on from there.
    pub fn apply(&self) -> Result<(), SetupError> {
        for change in &self.changes {
            if read(self.root, &change.path)? != change.before {
                return Err(SetupError::Changed {
                    path: self.root.outside(&change.path),
                });
            }
            // A server may read it as another user.
            let done = match &change.after {
                Some(text) => self.root.replace(&change.path, text.as_bytes(), 0o644),
                None => remove(self.root, &change.path),
            };
            done.map_err(self.failed(change))?;
        }
        Ok(())
    }

    fn failed(&self, change: &Change) -> impl FnOnce(io::Error) -> SetupError {
        let path = self.root.outside(&change.path);
        move |source| SetupError::Write { path, source }
    }
}

/// Makes a folder, if there is none, and refuses one into which other users can write: a server will
/// load what a file in it names.
///
/// # Errors
///
/// When it cannot be made, or other users can write to it.
pub(crate) fn own_folder(path: &Path) -> Result<(), SetupError> {
    widelane_files::folder(path).map_err(|source| {
        let path = path.to_owned();
        match widelane_files::is_untrusted(&source) {
            true => SetupError::Untrusted { path },
            false => SetupError::Write { path, source },
        }
    })
}

fn remove(root: &Root, path: &Path) -> io::Result<()> {
    root.remove(path)?;
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if name == "widelane" || name.ends_with(".service.d") {
        // Fails if there are other files.
        let _ = root.remove_folder(folder);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::stamp::stamped;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn nginx() -> Server {
        Server::of_unit("nginx").unwrap()
    }

    fn plan<'a>(root: &'a Root, after: Option<&str>, force: bool) -> Result<Plan<'a>, SetupError> {
        let after = after.map(|body| stamped(&nginx(), body));
        Plan::new(root, vec![("/etc/widelane/x.cnf".into(), after)], force)
    }

    #[test]
    fn a_file_is_written_replaced_and_removed_with_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = &Root::open(folder.path()).unwrap();
        let file = folder.path().join("etc/widelane/x.cnf");
        for body in ["a\n", "b\n"] {
            let plan = plan(root, Some(body), false).unwrap();
            plan.check().unwrap();
            plan.apply().unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), stamped(&nginx(), body));
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o644);
        }
        let again = plan(root, Some("b\n"), false).unwrap();
        assert!(again.changes().is_empty());
        let above = file.parent().unwrap();
        assert_eq!(fs::read_dir(above).unwrap().count(), 1);
        plan(root, None, false).unwrap().apply().unwrap();
        assert!(!above.exists() && root.has(Path::new("/etc")));
    }

    #[test]
    fn a_folder_with_other_files_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = &Root::open(folder.path()).unwrap();
        let other = folder.path().join("etc/widelane/widelane.toml");
        plan(root, Some("a\n"), false).unwrap().apply().unwrap();
        fs::write(&other, "").unwrap();
        plan(root, None, false).unwrap().apply().unwrap();
        assert!(other.exists());
    }

    #[test]
    fn an_edited_file_and_a_link_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let root = &Root::open(folder.path()).unwrap();
        let file = folder.path().join("etc/widelane/x.cnf");
        let first = plan(root, Some("a\n"), false).unwrap();
        first.apply().unwrap();
        fs::write(&file, stamped(&nginx(), "a\n") + "edited\n").unwrap();
        for after in [Some("b\n"), None] {
            let refused = plan(root, after, false);
            assert!(matches!(refused, Err(SetupError::Changed { path }) if path == file));
        }
        // Edited between the plan and its changes.
        assert!(matches!(first.apply(), Err(SetupError::Changed { .. })));
        plan(root, None, true).unwrap().apply().unwrap();
        assert!(!file.exists());
        let other = folder.path().join("other");
        fs::write(&other, stamped(&nginx(), "a\n")).unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        assert!(plan(root, Some("b\n"), false).is_err());
    }

    /// The maker of an image chose its links.
    #[test]
    fn no_link_of_an_image_leads_to_files_of_this_system() {
        let outer = tempfile::tempdir().unwrap();
        let [image, host] = ["image", "host"].map(|name| outer.path().join(name));
        fs::create_dir(&image).unwrap();
        fs::create_dir(&host).unwrap();
        symlink(&host, image.join("etc")).unwrap();
        let root = &Root::open(&image).unwrap();
        let written = plan(root, Some("a\n"), true).and_then(|plan| plan.apply());
        assert!(written.is_err());
        assert_eq!(fs::read_dir(&host).unwrap().count(), 0);
        fs::remove_file(image.join("etc")).unwrap();
        symlink("/real", image.join("etc")).unwrap();
        fs::create_dir(image.join("real")).unwrap();
        plan(root, Some("a\n"), false).unwrap().apply().unwrap();
        assert!(image.join("real/widelane/x.cnf").is_file());
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("a/b");
        own_folder(&inner).unwrap();
        fs::set_permissions(&inner, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(own_folder(&inner), Err(SetupError::Untrusted { .. })));
        let link = outer.path().join("link");
        std::os::unix::fs::symlink(outer.path(), &link).unwrap();
        assert!(matches!(own_folder(&link), Err(SetupError::Untrusted { .. })));
    }
}
