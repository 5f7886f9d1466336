//! The commit of a tree of sources, as far as git knows.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources of the program, in a working tree or without a repository.
pub(crate) struct Sources {
    root: PathBuf,
    /// Its files and folders, seen from `root`.
    names: Vec<&'static str>,
    /// Returns whether `root` is a working tree: not only a folder in one, as an unpacked archive may be.
    is_tree: bool,
}

impl Sources {
    /// The sources of a program, by the names of files and folders in this folder.
    pub(crate) fn at(root: &Path, names: &[&'static str]) -> Self {
        let mut sources = Self {
            root: root.to_owned(),
            names: names.to_vec(),
            is_tree: false,
        };
        let top = sources.git(&["rev-parse", "--show-toplevel"]);
        let same = |top: String| Some(Path::new(&top).canonicalize().ok()? == root.canonicalize().ok()?);
        sources.is_tree = top.and_then(same) == Some(true);
        sources
    }

    /// The commit's short hash, with `-modified` if the program's sources differ from the commit;
    /// `unknown` without git or its repository.
    pub(crate) fn commit(&self) -> String {
        let Some(hash) = self.of_tree(&["rev-parse", "--short=12", "HEAD"]) else {
            return UNKNOWN.to_owned();
        };
        let mut status = vec!["status", "--porcelain", "--"];
        status.extend(&self.names);
        match self.of_tree(&status) {
            Some(changes) if changes.is_empty() => hash,
            Some(_) => format!("{hash}-modified"),
            None => UNKNOWN.to_owned(),
        }
    }

    /// The files and folders after whose change the answer may be another one. All of them exist:
    /// cargo takes one that does not for changed, each time.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        // Without a repository, nothing changes the answer.
        let Some(branch) = self.of_tree(&["rev-parse", "--symbolic-full-name", "HEAD"]) else {
            return Vec::new();
        };
        // A linked working tree has a HEAD and a log of its own, and shares the branches. The log
        // grows whenever HEAD moves; a repository may have none, and then the branch tells.
        let files = ["HEAD", "logs/HEAD", &branch, "packed-refs"];
        let files = files.into_iter().filter_map(|name| {
            let path = self.of_tree(&["rev-parse", "--git-path", name])?;
            Some(self.root.join(path))
        });
        let sources = self.names.iter().map(|name| self.root.join(name));
        files.chain(sources).filter(|path| path.exists()).collect()
    }

    /// Output of git about a working tree; nothing where there is none.
    fn of_tree(&self, arguments: &[&str]) -> Option<String> {
        self.is_tree.then(|| self.git(arguments))?
    }

    fn git(&self, arguments: &[&str]) -> Option<String> {
        let output = git(&self.root)
            // A build must not write to the repository, whose index others may hold.
            .arg("--no-optional-locks")
            .args(arguments)
            .output()
            .ok()?;
        let said = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| said.trim().to_owned())
    }
}

/// git in a folder. A hook of another repository may have started this process.
pub(crate) fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR"] {
        command.env_remove(name);
    }
    command.current_dir(folder);
    command
}

/// Sources of `widelane`.
pub(crate) const PRODUCT: [&str; 6] = ["Cargo.toml", "Cargo.lock", "crates", "adapters", "apps", "tools"];
const UNKNOWN: &str = "unknown";
