//! When each long stage last passed, and for which state of its rooms: `.ci/passed.toml`.
//!
//! A stage of `check-all` whose rooms are as they were then need not run again. Rooms are compared
//! by the hashes of their trees in git. A room with changes that are not committed has none.

use crate::table::{Stage, Table};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The hash of each room of a stage.
pub(crate) type Hashes = BTreeMap<String, String>;

/// Full passes of stages, by name.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    passes: BTreeMap<String, Pass>,
}

#[derive(Debug)]
struct Pass {
    cpu: String,
    date: String,
    rooms: Hashes,
}

impl Passes {
    /// Reads the file of the tree at `root`. Without a file, nothing has passed.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let text = match fs::read_to_string(root.join(PATH)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{PATH}: {error}")),
        };
        let document: toml::Table = text.parse().map_err(|error| format!("{PATH}: {error}"))?;
        let word = |value: Option<&toml::Value>| {
            let text = value.and_then(toml::Value::as_str);
            text.map(str::to_owned).unwrap_or_default()
        };
        let pass = |(name, value): (&String, &toml::Value)| {
            let rooms = value.get("rooms").and_then(toml::Value::as_table);
            let rooms = rooms.into_iter().flatten();
            let pass = Pass {
                cpu: word(value.get("cpu")),
                date: word(value.get("date")),
                rooms: rooms.map(|(room, hash)| (room.clone(), word(Some(hash)))).collect(),
            };
            (name.clone(), pass)
        };
        Ok(Self {
            passes: document.iter().map(pass).collect(),
        })
    }

    /// Rooms of the stage that are not as they were when it last passed.
    pub(crate) fn changed(&self, root: &Path, stage: &Stage) -> Vec<String> {
        let pass = self.passes.get(&stage.name);
        let then = |room: &String| pass.and_then(|pass| pass.rooms.get(room));
        let rooms = stage.rooms.iter();
        rooms
            .filter(|room| hash(root, room).as_ref().is_none_or(|now| then(room) != Some(now)))
            .cloned()
            .collect()
    }

    /// Remembers a full pass of the stage, unless a room has changes that are not committed.
    pub(crate) fn record(&mut self, root: &Path, stage: &Stage) {
        let rooms = stage.rooms.iter();
        let hashes = rooms.map(|room| Some((room.clone(), hash(root, room)?)));
        if let Some(rooms) = hashes.collect::<Option<Hashes>>()
            && !rooms.is_empty()
        {
            let pass = Pass {
                cpu: cpu(),
                date: date(),
                rooms,
            };
            self.passes.insert(stage.name.clone(), pass);
        }
    }

    /// Writes the file, without stages that the table does not have.
    pub(crate) fn write(&self, root: &Path, table: &Table) -> Result<(), String> {
        let mut text = String::from(HEAD);
        for (name, pass) in &self.passes {
            if table.stages.iter().any(|stage| stage.name == *name) {
                let Pass { cpu, date, rooms } = pass;
                let _ = write!(text, "\n[{name}]\ndate = \"{date}\"\ncpu = \"{cpu}\"\n");
                for (room, hash) in rooms {
                    let _ = writeln!(text, "rooms.\"{room}\" = \"{hash}\"");
                }
            }
        }
        fs::write(root.join(PATH), text).map_err(|error| format!("{PATH}: {error}"))
    }
}

/// The hash of a folder or file at HEAD, if it is as it was committed.
fn hash(root: &Path, room: &str) -> Option<String> {
    let changes = git(root, &["status", "--porcelain", "--", room])?;
    let hash = git(root, &["rev-parse", "--verify", "--quiet", &format!("HEAD:{room}")])?;
    changes.is_empty().then_some(hash)
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    said(Command::new("git").arg("-C").arg(root).args(arguments))
}

fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| {
        let line = text
            .lines()
            .find(|line| line.split(':').next().map(str::trim) == Some(key));
        line.and_then(|line| line.split_once(": "))
            .map_or("", |(_, value)| value)
    };
    let [name, family, model] = ["model name", "cpu family", "model"].map(value);
    format!("{name}, family {family}, model {model}").replace(['"', '\\'], "")
}

fn date() -> String {
    said(Command::new("date").args(["-u", "+%F"])).unwrap_or_default()
}

const PATH: &str = ".ci/passed.toml";

const HEAD: &str = "\
# The last full pass of each long stage, and the git tree hashes of its rooms then. `make check`
# runs a stage again whose rooms differ. Written by .ci/stages; commit it with the change.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Tier, Work};

    struct Tree(tempfile::TempDir);

    impl Tree {
        /// Makes a tree with two rooms. `None` without git, which `make test` does not ask for.
        fn new() -> Option<Self> {
            if said(Command::new("git").arg("--version")).is_none() {
                println!("SKIP: git is not installed");
                return None;
            }
            let tree = Self(tempfile::tempdir().expect("a temporary folder"));
            fs::create_dir(tree.path().join(".ci")).expect("writable");
            for room in ["near", "far"] {
                fs::create_dir(tree.path().join(room)).expect("writable");
                tree.write(&format!("{room}/code"), "first");
            }
            tree.git(&["init", "--quiet"]);
            tree.commit();
            Some(tree)
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path().join(name), text).expect("writable");
        }

        fn git(&self, arguments: &[&str]) {
            let mut all = vec!["-c", "user.name=t", "-c", "user.email=t@example.org"];
            all.extend(arguments);
            git(self.path(), &all).unwrap_or_else(|| panic!("git {arguments:?}"));
        }

        fn commit(&self) {
            self.git(&["add", "."]);
            self.git(&["commit", "--quiet", "--message", "state"]);
        }
    }

    fn stage(name: &str, rooms: &[&str]) -> Stage {
        Stage {
            name: name.into(),
            tier: Tier::CheckAll,
            does: String::new(),
            work: Work::Command("true".into()),
            environment: BTreeMap::new(),
            needs: Vec::new(),
            rooms: rooms.iter().map(|&room| room.to_owned()).collect(),
            may_skip: Vec::new(),
        }
    }

    #[test]
    fn a_change_in_a_room_brings_its_stages_and_no_others() {
        let Some(tree) = Tree::new() else { return };
        let table = Table {
            stages: vec![stage("one", &["near"]), stage("both", &["near", "far"])],
        };
        let [one, both] = &table.stages[..] else {
            panic!("two stages")
        };
        let mut passes = Passes::read(tree.path()).expect("no file is no error");
        assert_eq!(passes.changed(tree.path(), one), ["near"], "it has never passed");
        for stage in &table.stages {
            passes.record(tree.path(), stage);
        }
        passes.write(tree.path(), &table).expect("writable");

        let passes = Passes::read(tree.path()).expect("as written");
        assert!(passes.changed(tree.path(), one).is_empty());
        assert!(passes.changed(tree.path(), both).is_empty());
        tree.write("far/code", "second");
        assert_eq!(passes.changed(tree.path(), both), ["far"], "not committed");
        tree.commit();
        assert_eq!(passes.changed(tree.path(), both), ["far"], "committed");
        assert!(passes.changed(tree.path(), one).is_empty());
    }

    #[test]
    fn a_pass_of_uncommitted_work_is_not_recorded() {
        let Some(tree) = Tree::new() else { return };
        let stage = stage("one", &["near"]);
        tree.write("near/new", "not committed");
        let mut passes = Passes::default();
        passes.record(tree.path(), &stage);
        tree.commit();
        assert_eq!(passes.changed(tree.path(), &stage), ["near"]);
    }

    #[test]
    fn a_tree_without_git_has_changed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("near")).expect("writable");
        let changed = Passes::default().changed(folder.path(), &stage("one", &["near"]));
        assert_eq!(changed, ["near"]);
    }
}
