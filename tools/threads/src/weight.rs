//! What share of the CPUs the kernel gives a control group.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::cgroup::Cgroups;

/// The weights of control groups, read once each.
#[derive(Debug)]
pub struct Weights {
    mounts: Vec<(PathBuf, Kind)>,
    known: HashMap<PathBuf, Option<f64>>,
}

/// The file in which a hierarchy of groups says its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `cpu.weight`, of the unified hierarchy.
    Weight,
    /// `cpu.shares`, of the older one.
    Shares,
}

impl Weights {
    /// Nothing is read yet.
    pub fn new() -> Self {
        Self::below(Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup/cpu"))
    }

    /// The same for a unified hierarchy and an older one that are mounted elsewhere.
    pub fn below(unified: &Path, older: &Path) -> Self {
        Self {
            mounts: vec![(unified.to_owned(), Kind::Weight), (older.to_owned(), Kind::Shares)],
            known: HashMap::new(),
        }
    }

    /// Forgets what was read.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// The groups around a process that have a weight, the outermost first, each with its path and
    /// its weight. A group has 100 unless its owner sets another weight.
    ///
    /// Groups without a weight are left out: the kernel does not weigh them, and what they contain
    /// competes one level further out.
    pub fn of(&mut self, cgroups: &Cgroups) -> Vec<(String, f64)> {
        for at in 0..self.mounts.len() {
            let (mount, kind) = self.mounts[at].clone();
            let path = match kind {
                Kind::Weight => cgroups.unified(),
                Kind::Shares => cgroups.of_controller("cpu"),
            };
            // A path with `..` lies outside of what this process is shown.
            let Some(path) = path.filter(|path| !path.split('/').any(|part| part == "..")) else {
                continue;
            };
            let mut groups = Vec::new();
            let mut folder = mount;
            let mut name = String::new();
            let parts = path.split('/').filter(|part| !part.is_empty());
            for part in parts.take(MOST_LEVELS) {
                folder.push(part);
                name = format!("{name}/{part}");
                if let Some(weight) = self.read(&folder, kind) {
                    groups.push((name.clone(), weight));
                }
            }
            if !groups.is_empty() {
                return groups;
            }
        }
        Vec::new()
    }

    fn read(&mut self, folder: &Path, kind: Kind) -> Option<f64> {
        if let Some(known) = self.known.get(folder) {
            return *known;
        }
        let (file, usual) = match kind {
            Kind::Weight => ("cpu.weight", 100.0),
            Kind::Shares => ("cpu.shares", 1024.0),
        };
        let text = widelane_files::kernel_text(folder.join(file)).ok();
        let number = text.and_then(|text| text.trim().parse::<u32>().ok());
        // An idle group says 0 and gets next to nothing.
        let weight = number.map(|number| (f64::from(number) * 100.0 / usual).max(LEAST));
        self.known.insert(folder.to_owned(), weight);
        weight
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self::new()
    }
}

/// A user may nest groups as deep as he likes. Deeper ones divide only what these are given.
const MOST_LEVELS: usize = 16;
/// The weight of a group for idle time only.
const LEAST: f64 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn named(groups: &[(&str, f64)]) -> Vec<(String, f64)> {
        let group = |&(name, weight): &(&str, f64)| (name.to_owned(), weight);
        groups.iter().map(group).collect()
    }

    #[test]
    fn groups_with_a_weight_are_told_from_the_outside_in() {
        let folder = folder(&[
            ("user.slice/cpu.weight", "200\n"),
            ("user.slice/user-7.slice/other", ""),
            ("user.slice/user-7.slice/idle.scope/cpu.weight", "0\n"),
        ]);
        let mut weights = Weights::below(folder.path(), &folder.path().join("none"));
        let mut of = |text: &str| weights.of(&Cgroups::parse(text.as_bytes()));
        let expected = named(&[("/user.slice", 200.0), ("/user.slice/user-7.slice/idle.scope", LEAST)]);
        assert_eq!(of("0::/user.slice/user-7.slice/idle.scope\n"), expected);
        assert_eq!(of("0::/\n"), []);
        assert_eq!(of("0::/../user.slice\n"), [], "outside of our namespace");
        assert_eq!(of(""), []);
    }

    #[test]
    fn the_older_hierarchy_counts_in_shares() {
        let folder = folder(&[("web/cpu.shares", "2048\n")]);
        let mut weights = Weights::below(&folder.path().join("none"), folder.path());
        let text = b"4:cpu,cpuacct:/web\n1:name=systemd:/x\n0::/y\n";
        let groups = weights.of(&Cgroups::parse(text));
        assert_eq!(groups, named(&[("/web", 200.0)]));
    }
}
