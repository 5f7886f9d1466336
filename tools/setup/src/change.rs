//! What is to be written and removed.

use crate::diff::unified;
use crate::error::SetupError;
use crate::stamp;
use crate::system::{below, read};
use rustix::fs::{Access, access};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// One file, before and after. `None` is no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    path: PathBuf,
    before: Option<String>,
    after: Option<String>,
}

impl Change {
    /// Where it will be, below the root of the plan.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is gone afterwards.
    pub fn removes(&self) -> bool {
        self.after.is_none()
    }
}

/// The changes of one call, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    root: PathBuf,
    changes: Vec<Change>,
}

impl Plan {
    /// A plan for files below `root`, each with its text afterwards. A file that is right already is
    /// left out.
    ///
    /// A file that was edited, or was never ours, is refused; with `force` it is replaced or removed.
    pub(crate) fn new(
        root: &Path,
        files: Vec<(PathBuf, Option<String>)>,
        force: bool,
    ) -> Result<Self, SetupError> {
        let mut changes = Vec::new();
        for (path, after) in files {
            let place = below(root, &path);
            let before = read(&place)?;
            let ours = || before.as_deref().is_some_and(stamp::is_untouched) && !place.is_symlink();
            if before == after {
                continue;
            }
            if before.is_some() && !ours() && !force {
                return Err(SetupError::Changed { path: place });
            }
            changes.push(Change {
                path,
                before,
                after,
            });
        }
        Ok(Self {
            root: root.to_owned(),
            changes,
        })
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

    /// Whether this user may make the changes.
    ///
    /// # Errors
    ///
    /// With the first file that cannot be written.
    pub fn check(&self) -> Result<(), SetupError> {
        for change in &self.changes {
            let place = below(&self.root, &change.path);
            let folder = place.ancestors().skip(1).find(|folder| folder.exists());
            let folder = folder.unwrap_or(Path::new("/"));
            access(folder, Access::WRITE_OK).map_err(|error| failed(&place)(error.into()))?;
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
            let place = below(&self.root, &change.path);
            if read(&place)? != change.before {
                return Err(SetupError::Changed { path: place });
            }
            match &change.after {
                Some(text) => write(&place, text).map_err(failed(&place))?,
                None => remove(&place).map_err(failed(&place))?,
            }
        }
        Ok(())
    }
}

/// Makes a folder, if there is none, and refuses one into which other users can write: a server will
/// load what a file in it names.
///
/// # Errors
///
/// When it cannot be made, or other users can write to it.
pub(crate) fn own_folder(path: &Path) -> Result<(), SetupError> {
    fs::create_dir_all(path).map_err(failed(path))?;
    // A link is not followed: in /tmp any user could have made it.
    let found = fs::symlink_metadata(path).map_err(failed(path))?;
    let user = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != user || found.mode() & 0o022 != 0 {
        return Err(SetupError::Untrusted {
            path: path.to_owned(),
        });
    }
    Ok(())
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> SetupError {
    let path = path.to_owned();
    move |source| SetupError::Write { path, source }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let no_folder = || io::Error::from(io::ErrorKind::NotADirectory);
    let folder = path.parent().ok_or_else(no_folder)?;
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A name that no server includes: they take `*.conf` and `*.cnf`.
    let draft = folder.join(format!(".{name}.{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&draft)?;
        // Whatever the umask is: a server may read it as another user.
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written?;
    File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    if name == "widelane" || name.ends_with(".service.d") {
        // Fails if there are other files.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::stamp::stamped;

    fn plan(root: &Path, after: Option<&str>, force: bool) -> Result<Plan, SetupError> {
        let after = after.map(|body| stamped(Server::Nginx, body));
        Plan::new(root, vec![("/etc/widelane/x.cnf".into(), after)], force)
    }

    #[test]
    fn a_file_is_written_replaced_and_removed_with_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("etc/widelane/x.cnf");
        for body in ["a\n", "b\n"] {
            let plan = plan(root.path(), Some(body), false).unwrap();
            plan.check().unwrap();
            plan.apply().unwrap();
            assert_eq!(
                fs::read_to_string(&file).unwrap(),
                stamped(Server::Nginx, body)
            );
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o644);
        }
        let again = plan(root.path(), Some("b\n"), false).unwrap();
        assert!(again.changes().is_empty());
        let folder = file.parent().unwrap();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
        plan(root.path(), None, false).unwrap().apply().unwrap();
        assert!(!folder.exists() && root.path().join("etc").exists());
    }

    #[test]
    fn a_folder_with_other_files_stays() {
        let root = tempfile::tempdir().unwrap();
        let other = root.path().join("etc/widelane/widelane.toml");
        plan(root.path(), Some("a\n"), false)
            .unwrap()
            .apply()
            .unwrap();
        fs::write(&other, "").unwrap();
        plan(root.path(), None, false).unwrap().apply().unwrap();
        assert!(other.exists());
    }

    #[test]
    fn an_edited_file_and_a_link_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("etc/widelane/x.cnf");
        let first = plan(root.path(), Some("a\n"), false).unwrap();
        first.apply().unwrap();
        fs::write(&file, stamped(Server::Nginx, "a\n") + "edited\n").unwrap();
        for after in [Some("b\n"), None] {
            let refused = plan(root.path(), after, false);
            assert!(matches!(refused, Err(SetupError::Changed { path }) if path == file));
        }
        // Edited between the plan and its changes.
        assert!(matches!(first.apply(), Err(SetupError::Changed { .. })));
        plan(root.path(), None, true).unwrap().apply().unwrap();
        assert!(!file.exists());
        let other = root.path().join("other");
        fs::write(&other, stamped(Server::Nginx, "a\n")).unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        assert!(plan(root.path(), Some("b\n"), false).is_err());
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("a/b");
        own_folder(&inner).unwrap();
        fs::set_permissions(&inner, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(
            own_folder(&inner),
            Err(SetupError::Untrusted { .. })
        ));
        let link = outer.path().join("link");
        std::os::unix::fs::symlink(outer.path(), &link).unwrap();
        assert!(matches!(
            own_folder(&link),
            Err(SetupError::Untrusted { .. })
        ));
    }
}
