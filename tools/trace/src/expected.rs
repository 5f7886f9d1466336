//! Probes that a process will need before it has loaded its libraries: those of earlier processes with the same
//! program.
//!
//! A client may be done within ten milliseconds, of which its dynamic linker takes a third. The kernel puts
//! a probe on a place of a file as soon as the process maps the file.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use widelane_threads::{Identity, RegularFile};

use crate::functions::Role;
use crate::targets::{Exits, MarkProbe, Target};

/// Targets of known programs.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    programs: HashMap<Identity, ProgramTarget>,
}

#[derive(Debug)]
struct ProgramTarget {
    target: Arc<Target>,
    files: Vec<Arc<RegularFile>>,
    /// True if a process has had the program since the others were forgotten.
    used: bool,
}

impl Expected {
    /// Target of a process with this program, if one has had it before and the files are the same.
    pub(crate) fn of(&mut self, program: Identity) -> Option<Arc<Target>> {
        let known = self.programs.get_mut(&program)?;
        // One that was written over has other code at these places.
        if !known.files.iter().all(|file| file.is_unchanged()) {
            self.programs.remove(&program);
            return None;
        }
        known.used = true;
        Some(Arc::clone(&known.target))
    }

    /// Learns what a process with this program has. What has most of it tells most of the next.
    pub(crate) fn learn(&mut self, program: Identity, target: &Target) {
        let functions = target.probes.iter().map(|probe| probe.function.role);
        if !functions.into_iter().any(|role| role != Role::Load) && target.marks.is_empty() {
            return;
        }
        let worth = |target: &Target| target.probes.len() + target.marks.len();
        let known = self.programs.get(&program);
        let stays = known.is_some_and(|known| worth(&known.target) >= worth(target));
        if stays || (known.is_none() && self.programs.len() >= MOST_PROGRAMS) {
            return;
        }
        let known = ProgramTarget {
            files: files(target),
            target: Arc::new(target.clone()),
            used: true,
        };
        self.programs.insert(program, known);
    }

    /// Forgets programs that no process has had since this was called last.
    pub(crate) fn forget_unused(&mut self) {
        self.programs
            .retain(|_, known| std::mem::replace(&mut known.used, false));
    }
}

/// Each file with a probe once.
fn files(target: &Target) -> Vec<Arc<RegularFile>> {
    let of_marks = |mark: &MarkProbe| Arc::clone(&mark.file);
    let files = target.probes.iter().flat_map(|probe| {
        let callers = match &probe.returns {
            Exits::After(sites) => &sites[..],
            Exits::At(_) => &[],
        };
        let callers = callers.iter().map(|site| &site.file);
        [&probe.file].into_iter().chain(callers).map(Arc::clone)
    });
    let mut seen = HashSet::new();
    files
        .chain(target.marks.iter().map(of_marks))
        .filter(|file| seen.insert(file.identity()))
        .collect()
}

/// Programs that are remembered at the same time.
const MOST_PROGRAMS: usize = 256;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::specimens::function;
    use crate::targets::{Probe, Site};

    #[test]
    fn what_most_of_a_program_s_processes_had_is_expected_while_its_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (program, library) = (folder.path().join("program"), folder.path().join("library"));
        fs::write(&program, "program").unwrap();
        fs::write(&library, "library").unwrap();
        let program = RegularFile::named(&program).unwrap().identity();
        let mut expected = Expected::default();
        let probes = |expected: &mut Expected| {
            let target = expected.of(program);
            target.map(|target| target.probes.len())
        };
        assert_eq!(probes(&mut expected), None);
        // That a linker loads libraries is nothing to expect.
        expected.learn(program, &target(&library, &[Role::Load]));
        assert_eq!(probes(&mut expected), None);
        expected.learn(program, &target(&library, &[Role::Load, Role::Sign]));
        expected.learn(program, &target(&library, &[Role::Sign]));
        assert_eq!(probes(&mut expected), Some(2));
        expected.forget_unused();
        assert_eq!(probes(&mut expected), Some(2));
        expected.forget_unused();
        expected.forget_unused();
        assert_eq!(probes(&mut expected), None);
        expected.learn(program, &target(&library, &[Role::Sign]));
        assert_eq!(probes(&mut expected), Some(1));
        fs::write(&library, "another library").unwrap();
        assert_eq!(probes(&mut expected), None);
        // Places behind calls are in other files.
        let caller = folder.path().join("caller");
        fs::write(&caller, "caller").unwrap();
        let mut called = target(&library, &[Role::Sign]);
        let file = Arc::new(RegularFile::named(&caller).unwrap());
        called.probes[0].returns = Exits::After(vec![Site { file, offset: 3 }]);
        expected.learn(program, &called);
        assert_eq!(probes(&mut expected), Some(1));
        fs::write(&caller, "another caller").unwrap();
        assert_eq!(probes(&mut expected), None);
    }

    fn target(library: &Path, roles: &[Role]) -> Target {
        let file = Arc::new(RegularFile::named(library).unwrap());
        let probe = |role: &Role| Probe {
            function: function("f", *role),
            symbol: "f".into(),
            file: Arc::clone(&file),
            entry: 0,
            returns: Exits::At(vec![7]),
            goroutine: false,
            state: None,
        };
        Target {
            probes: roles.iter().map(probe).collect(),
            ..Target::default()
        }
    }
}
