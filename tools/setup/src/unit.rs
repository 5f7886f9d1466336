//! Files of a systemd unit: systemd.unit(5), systemd.service(5). Read, never changed.

use crate::error::SetupError;
use crate::system::read;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use widelane_files::Root;

/// Settings of a service that decide what it starts and loads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Program that the service starts, as the unit names it.
    pub(crate) program: Option<String>,
    /// Files with variables for its environment.
    pub(crate) environment_files: Vec<PathBuf>,
    /// Places from which code may not be loaded.
    forbidden: Vec<PathBuf>,
    /// Places below them from which it may.
    allowed: Vec<PathBuf>,
}

impl Unit {
    /// Reads the unit and its drop-ins. `None` if there is no such unit.
    pub(crate) fn read(root: &Root, name: &str) -> Result<Option<Self>, SetupError> {
        let Some(file) = files(root, name).into_iter().next() else {
            return Ok(None);
        };
        let mut unit = Self::default();
        for path in [file].into_iter().chain(drop_ins(root, name)) {
            unit.add(&text(root, &path)?.unwrap_or_default());
        }
        Ok(Some(unit))
    }

    /// Adds the settings of one file. Later ones add to earlier ones, and an empty one forgets them.
    pub(crate) fn add(&mut self, text: &str) {
        // Comments go first: one does not continue on the next line, and may stand between lines that do.
        let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', ';']));
        let text = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
        let mut in_service = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                in_service = line == "[Service]";
            }
            let Some((name, value)) = line.split_once('=').filter(|_| in_service) else {
                continue;
            };
            let value = value.trim();
            match name.trim() {
                // Of several, the first starts the program of a simple service, and the others that of no service.
                "ExecStart" if value.is_empty() => self.program = None,
                "ExecStart" if self.program.is_none() => self.program = program(value),
                "EnvironmentFile" => {
                    let paths = paths(value);
                    add(&mut self.environment_files, value, paths);
                }
                "NoExecPaths" => add(&mut self.forbidden, value, paths(value)),
                "ExecPaths" => add(&mut self.allowed, value, paths(value)),
                _ => {}
            }
        }
    }

    /// Returns whether the service may load code from this file.
    pub(crate) fn may_load(&self, file: &Path) -> bool {
        let longest = |places: &[PathBuf]| {
            let places = places.iter().filter(|place| file.starts_with(place));
            places.map(|place| place.components().count()).max()
        };
        longest(&self.forbidden) <= longest(&self.allowed)
    }
}

/// Returns whether a unit is there and starts more than `true`, as units do that only hold others together.
pub(crate) fn starts_a_program(root: &Root, name: &str) -> bool {
    let unit = Unit::read(root, name).ok().flatten();
    unit.is_some_and(|unit| {
        let program = unit.program.as_deref();
        program.is_none_or(|program| !program.ends_with("/true"))
    })
}

/// Files of the unit that exist, the one that systemd reads first.
pub(crate) fn files(root: &Root, name: &str) -> Vec<PathBuf> {
    let names = names(name);
    let paths = names.iter().flat_map(|name| {
        let folders = UNITS.iter();
        folders.map(move |folder| Path::new(folder).join(format!("{name}.service")))
    });
    paths.filter(|path| root.has(path)).collect()
}

/// Drop-ins of the unit.
pub(crate) fn drop_ins(root: &Root, name: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let own = names_with_prefixes(name);
    let own = UNITS
        .iter()
        .flat_map(|folder| own.iter().map(move |name| (folder, format!("{name}.service.d"))));
    let of_all = UNITS.iter().map(|folder| (folder, "service.d".to_owned()));
    for (folder, name) in own.chain(of_all) {
        let folder = Path::new(folder).join(name);
        let names = root.names(&folder).unwrap_or_default();
        paths.extend(names.iter().map(|name| folder.join(name)));
    }
    paths.retain(|path| path.extension().is_some_and(|end| end == "conf"));
    // Of files with one name the first counts, whatever its folder; all are read in the order of their names.
    paths.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    paths.dedup_by(|later, first| later.file_name() == first.file_name());
    paths
}

/// Text of a unit's file. A link to `/dev/null` masks a file.
pub(crate) fn text(root: &Root, path: &Path) -> Result<Option<String>, SetupError> {
    match read(root, path) {
        Err(SetupError::Read { source, .. }) if source.kind() == ErrorKind::InvalidInput => Ok(None),
        other => other,
    }
}

/// The name itself, and that of the template if it is an instance.
fn names(name: &str) -> Vec<String> {
    let template = name.split_once('@').map(|(before, _)| format!("{before}@"));
    [Some(name.to_owned()), template].into_iter().flatten().collect()
}

/// Names whose drop-ins count for a unit: its own, that of its template, and then both cut after each dash, the longest
/// first, as in `a-` for `a-b`.
fn names_with_prefixes(name: &str) -> Vec<String> {
    let mut all = names(name);
    let last = all.last().cloned().unwrap_or_default();
    let (mut stem, template) = match last.strip_suffix('@') {
        Some(stem) => (stem, "@"),
        None => (&*last, ""),
    };
    while let Some((shorter, _)) = stem.trim_end_matches('-').rsplit_once('-') {
        stem = shorter;
        all.push(format!("{stem}-{template}"));
    }
    all
}

/// The program of a command, without what systemd has in front of it.
fn program(command: &str) -> Option<String> {
    let command = command.trim_start_matches(['@', '-', ':', '+', '!', '|']);
    let quote = command.chars().next().filter(|c| matches!(c, '"' | '\''));
    let program = match quote {
        Some(quote) => command[1..].split(quote).next(),
        None => command.split_whitespace().next(),
    };
    program.filter(|path| !path.is_empty()).map(str::to_owned)
}

/// Paths of a setting, without the mark of those that may be missing. Paths with specifiers are left out.
fn paths(value: &str) -> Vec<PathBuf> {
    let names = value.split_whitespace();
    let names = names.map(|name| name.trim_start_matches(['-', '+']).trim_matches(['"', '\'']));
    names
        .filter(|name| name.starts_with('/') && !name.contains(['%', '*']))
        .map(PathBuf::from)
        .collect()
}

fn add(places: &mut Vec<PathBuf>, value: &str, new: Vec<PathBuf>) {
    match value.is_empty() {
        true => places.clear(),
        false => places.extend(new),
    }
}

/// Folders of units. Those of generators have what systemd makes of `/etc/init.d`.
const UNITS: [&str; 6] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unit(files: &[&str]) -> Unit {
        let mut unit = Unit::default();
        files.iter().for_each(|text| unit.add(text));
        unit
    }

    #[test]
    fn the_program_is_what_the_last_file_says() {
        let program = |files: &[&str]| unit(files).program;
        let usual = "[Unit]\nExecStart=/no\n[Service]\nType=simple\nExecStartPre=/no\n ExecStart = /bin/a -x\n";
        assert_eq!(program(&[usual]).as_deref(), Some("/bin/a"));
        let replaced = "[Service]\nExecStart=\nExecStart=-@/bin/b b --c\nExecStart=/bin/d\n";
        assert_eq!(program(&[usual, replaced]).as_deref(), Some("/bin/b"));
        let quoted = "[Service]\n# ExecStart=/no\nExecStart=\\\n \"/opt/a b/c\" d\n";
        assert_eq!(program(&[quoted]).as_deref(), Some("/opt/a b/c"));
        let commented = "[Service]\n# before \\\nExecStart=/bin/e\n";
        assert_eq!(program(&[commented]).as_deref(), Some("/bin/e"));
        assert_eq!(program(&["[Service]\nExecStart=+\n"]), None);
        assert_eq!(program(&["", "ExecStart=/no"]), None);
    }

    #[test]
    fn a_masked_file_says_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let units = folder.path().join("etc/systemd/system");
        let drop_ins = units.join("own.service.d");
        std::fs::create_dir_all(&drop_ins).expect("a folder");
        std::fs::write(units.join("own.service"), "[Service]\nExecStart=/bin/a\n").expect("written");
        // Something that is no file stands for the device.
        std::fs::create_dir_all(folder.path().join("dev/null")).expect("a folder");
        std::os::unix::fs::symlink("/dev/null", drop_ins.join("a.conf")).expect("a link");
        let root = Root::open(folder.path()).expect("a root");
        let unit = Unit::read(&root, "own").expect("readable").expect("a unit");
        assert_eq!(unit.program.as_deref(), Some("/bin/a"));
    }

    #[test]
    fn code_is_loaded_from_where_the_unit_allows_it() {
        let hard = "[Service]\nNoExecPaths=/\nExecPaths=/usr/bin/redis-server /usr/lib -/lib\n";
        let may = |text: &str, path: &str| unit(&[text]).may_load(Path::new(path));
        assert!(may(hard, "/usr/lib/x/a.so") && may(hard, "/lib/a.so"));
        assert!(!may(hard, "/usr/local/lib/a.so") && !may(hard, "/usr/library/a.so"));
        assert!(may("", "/opt/a.so"));
        assert!(!may("[Service]\nNoExecPaths=/opt\n", "/opt/a.so"));
        let between = "[Service]\nNoExecPaths=/opt \\\n; between\n /srv\n";
        assert!(!may(between, "/srv/a.so") && may(between, "/between"));
        let again = "[Service]\nNoExecPaths=/\nNoExecPaths=\n";
        assert!(may(again, "/opt/a.so"));
    }

    #[test]
    fn files_of_variables_are_found() {
        let text = "[Service]\nEnvironmentFile=-/etc/a\nEnvironmentFile=/etc/%i\nEnvironmentFile=/etc/b\n";
        let expected = [PathBuf::from("/etc/a"), PathBuf::from("/etc/b")];
        assert_eq!(unit(&[text]).environment_files, expected);
    }

    #[test]
    fn an_instance_has_the_files_of_its_template() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let put = |path: &str, text: &str| {
            root.replace(Path::new(path), text.as_bytes(), 0o644).unwrap();
        };
        assert_eq!(Unit::read(&root, "a@b").unwrap(), None);
        put("/lib/systemd/system/a@.service", "[Service]\nExecStart=/a\n");
        let drop_in = "/etc/systemd/system/a@b.service.d/x.conf";
        put(drop_in, "[Service]\nExecStart=\nExecStart=/b\n");
        put("/etc/systemd/system/a@b.service.d/x.txt", "");
        let read = Unit::read(&root, "a@b").unwrap().unwrap();
        assert_eq!(read.program.as_deref(), Some("/b"));
        assert_eq!(drop_ins(&root, "a@b"), [PathBuf::from(drop_in)]);
        assert!(starts_a_program(&root, "a@c") && !starts_a_program(&root, "c"));
    }

    #[test]
    fn drop_ins_of_all_services_and_of_those_with_the_same_prefix_count() {
        assert_eq!(names_with_prefixes("a-b-c"), ["a-b-c", "a-b-", "a-"]);
        assert_eq!(names_with_prefixes("a-b@c-d"), ["a-b@c-d", "a-b@", "a-@"]);
        assert_eq!(names_with_prefixes("a--"), ["a--"]);
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let put = |path: &str| {
            let text = format!("[Service]\nNoExecPaths={path}\n");
            root.replace(Path::new(path), text.as_bytes(), 0o644).unwrap();
        };
        let unit = "/lib/systemd/system/a-b.service";
        let counting = [
            "/etc/systemd/system/a-.service.d/1.conf",
            "/lib/systemd/system/a-b.service.d/2.conf",
            "/run/systemd/system/service.d/3.conf",
        ];
        let others = [
            "/etc/systemd/system/a.service.d/4.conf",
            "/etc/systemd/system/b-.service.d/5.conf",
            // Others of the same names come first.
            "/usr/lib/systemd/system/a-b.service.d/1.conf",
            "/etc/systemd/system/service.d/2.conf",
        ];
        [unit].iter().chain(&counting).chain(&others).for_each(|path| put(path));
        assert_eq!(drop_ins(&root, "a-b"), counting.map(PathBuf::from));
        let unit = Unit::read(&root, "a-b").unwrap().unwrap();
        assert!(counting.iter().all(|path| !unit.may_load(Path::new(path))));
    }

    proptest! {
        /// Units may be those of an image that a stranger made.
        #[test]
        fn whatever_the_text_nothing_panics(parts in prop::collection::vec(
            prop::sample::select(vec![
                "[Service]\n", "ExecStart", "NoExecPaths", "EnvironmentFile", "=", "\"", "'", "-", "é", "/a", " ", "\\\n",
                "\n", "%", "[",
            ]),
            0..40,
        )) {
            let unit = unit(&[&parts.concat()]);
            let _ = unit.may_load(Path::new("/a"));
            prop_assert!(unit.program.is_none_or(|program| !program.is_empty()));
        }
    }
}
