//! Places of Widelane's files when the user names none.

use rustix::process::{Uid, geteuid};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders for this process: by its user and its environment, which only this reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Folder from the service manager (`StateDirectory=` of a unit).
    given: Option<PathBuf>,
    /// The state folder of the machine.
    machines: PathBuf,
    /// The state folder of this user.
    users: Option<PathBuf>,
    /// Folder for what must not outlive the machine.
    runtime: PathBuf,
    /// Folder of root for what must not outlive the machine.
    roots: PathBuf,
    root: bool,
}

impl Places {
    /// Places of this process.
    pub fn here() -> Self {
        let moves = !has_more_rights_than_its_caller();
        let variable = |name: &str| match name {
            ROOT => std::env::var_os(name).filter(|_| moves),
            name => std::env::var_os(name),
        };
        Self::of(variable, geteuid())
    }

    fn of(variable: impl Fn(&str) -> Option<OsString>, user: Uid) -> Self {
        // A relative path would mean another folder in each working directory.
        let folder = |name: &str| {
            let folder = PathBuf::from(variable(name)?);
            folder.is_absolute().then_some(folder)
        };
        let given = || {
            let folders = variable("STATE_DIRECTORY")?.into_string().ok()?;
            // There may be several, separated by colons.
            let first = PathBuf::from(folders.split(':').next()?);
            first.is_absolute().then_some(first)
        };
        let top = folder(ROOT).unwrap_or_else(|| PathBuf::from("/"));
        let below = |path: &Path| top.join(path.strip_prefix("/").unwrap_or(path));
        let home = || Some(folder("HOME")?.join(".local/state"));
        let users = folder("XDG_STATE_HOME").or_else(home);
        let runtime = match folder("XDG_RUNTIME_DIR") {
            _ if user.is_root() => PathBuf::from(ROOTS),
            Some(folder) => folder.join(OURS),
            None => PathBuf::from(format!("/tmp/widelane-{}", user.as_raw())),
        };
        Self {
            // The service manager has named a folder: no root applies.
            given: given(),
            machines: below(Path::new(MACHINES)),
            users: users.map(|folder| below(&folder).join(OURS)),
            runtime: below(&runtime),
            roots: below(Path::new(ROOTS)),
            root: user.is_root(),
        }
    }

    /// Places to look for a file of this name, in groups, the most important first: the state folder of the service,
    /// which it was given for its files; then that of the machine and that of the user.
    pub fn to_read(&self, name: &str) -> Vec<Vec<PathBuf>> {
        let ours = [Some(&self.machines), self.users.as_ref()];
        let mut ours: Vec<&PathBuf> = ours.into_iter().flatten().collect();
        ours.retain(|folder| Some(*folder) != self.given.as_ref());
        let groups = [self.given.iter().collect(), ours];
        let groups = groups.into_iter().filter(|group| !group.is_empty());
        groups
            .map(|group| group.iter().map(|folder| folder.join(name)).collect())
            .collect()
    }

    /// Place to keep a file of this name: the first of these folders that is this user's. `None` if there is none.
    pub fn to_write(&self, name: &str) -> Option<PathBuf> {
        let machines = self.root.then_some(&self.machines);
        let folder = self.given.as_ref().or(machines);
        Some(folder.or(self.users.as_ref())?.join(name))
    }

    /// The folder for what must not outlive the machine.
    pub fn runtime(&self) -> &Path {
        &self.runtime
    }

    /// Folder of root for what must not outlive the machine.
    pub fn roots(&self) -> &Path {
        &self.roots
    }
}

/// Returns whether this process got rights at its start that its caller lacks: by set-user-ID, set-group-ID or
/// capabilities of the file (`AT_SECURE` of getauxval(3)). If the kernel does not say, it counts as so.
fn has_more_rights_than_its_caller() -> bool {
    // Pairs of machine words.
    let told = widelane_files::kernel("/proc/self/auxv").unwrap_or_default();
    let words = told.as_chunks::<{ size_of::<usize>() }>().0;
    let words: Vec<usize> = words.iter().map(|word| usize::from_ne_bytes(*word)).collect();
    let pairs = words.as_chunks::<2>().0;
    !pairs.iter().any(|[kind, value]| *kind == AT_SECURE && *value == 0)
}

/// The file with the profile of the machine; under a brake (`widelane-lab emulate`), of what it emulates.
pub fn profile_name() -> &'static str {
    match widelane_marks::emulated_model() {
        None => PROFILE,
        Some(_) => EMULATED,
    }
}

const PROFILE: &str = "profile.json";
const EMULATED: &str = "profile-emulated.json";
/// The file with what passes cost.
pub const CALIBRATION: &str = "calibration";
/// The folder with OCSP responses that were fetched.
pub const RESPONSES: &str = "ocsp";
/// The folder for what servers with the OpenSSL provider measure; it is only named in what they read.
/// Root starts them; they do not use it if others can write there.
pub const CACHE: &str = "/var/cache/widelane";
/// Our folder in one that is for many programs.
const OURS: &str = "widelane";
/// The state folder of the machine.
const MACHINES: &str = "/var/lib/widelane";
/// The runtime folder of root.
const ROOTS: &str = "/run/widelane";
/// The variable with a folder below which all other folders here are looked for, as in a chroot: tests
/// set it, so that they see nothing of this machine.
///
/// It gives no rights: options, `STATE_DIRECTORY`, `HOME` and `XDG_*` move the same folders. It is
/// ignored nevertheless where the program has more rights than its caller.
const ROOT: &str = "WIDELANE_ROOT";
/// `AT_SECURE` of `linux/auxvec.h`.
const AT_SECURE: usize = 23;

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: u32 = 65534;

    fn places(user: u32, variables: &[(&str, &str)]) -> Places {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Places::of(variable, Uid::from_raw(user))
    }

    /// One group of files.
    fn group(expected: &[&str]) -> Vec<PathBuf> {
        expected.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_service_reads_what_root_measured_and_keeps_its_own_files() {
        // Places as under the unit: its user has no home that it could see.
        let service = places(NOBODY, &[("STATE_DIRECTORY", "/var/lib/widelane")]);
        assert_eq!(service.to_read(PROFILE), [group(&["/var/lib/widelane/profile.json"])]);
        assert_eq!(
            service.to_write(CALIBRATION),
            Some(PathBuf::from("/var/lib/widelane/calibration"))
        );
        let other = places(NOBODY, &[("STATE_DIRECTORY", "/srv/a:/srv/b")]);
        let expected = ["/srv/a/profile.json", "/var/lib/widelane/profile.json"];
        assert_eq!(other.to_read(PROFILE), expected.map(|one| group(&[one])));
    }

    #[test]
    fn a_user_reads_what_root_measured_and_keeps_files_at_home() {
        let expected = ["/var/lib/widelane/x", "/home/u/.local/state/widelane/x"];
        let user = places(NOBODY, &[("HOME", "/home/u")]);
        assert_eq!(user.to_read("x"), [group(&expected)]);
        assert_eq!(user.to_write("x"), Some(PathBuf::from(expected[1])));
        let named = places(NOBODY, &[("HOME", "/home/u"), ("XDG_STATE_HOME", "/s")]);
        assert_eq!(named.to_write("x"), Some(PathBuf::from("/s/widelane/x")));
    }

    #[test]
    fn root_keeps_files_for_the_machine() {
        let root = places(0, &[("HOME", "/root")]);
        assert_eq!(root.to_write("x"), Some(PathBuf::from("/var/lib/widelane/x")));
    }

    #[test]
    fn without_any_variable_there_is_nowhere_to_write_but_still_to_read() {
        for variables in [&[][..], &[("HOME", ""), ("STATE_DIRECTORY", "relative")]] {
            let nowhere = places(NOBODY, variables);
            assert_eq!(nowhere.to_write("x"), None);
            assert_eq!(nowhere.to_read("x"), [group(&["/var/lib/widelane/x"])]);
        }
    }

    #[test]
    fn every_user_has_a_runtime_folder() {
        let runtime = |variables: &[(&str, &str)]| places(NOBODY, variables).runtime;
        let given = runtime(&[("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(given, Path::new("/run/user/7/widelane"));
        for none in [&[][..], &[("XDG_RUNTIME_DIR", "")]] {
            assert_eq!(runtime(none), Path::new("/tmp/widelane-65534"));
        }
    }

    #[test]
    fn below_another_root_nothing_of_the_machine_is_seen() {
        let variables = [("HOME", "/home/u"), (ROOT, "/t")];
        let user = places(NOBODY, &variables);
        let expected = ["/t/var/lib/widelane/x", "/t/home/u/.local/state/widelane/x"];
        assert_eq!(user.to_read("x"), [group(&expected)]);
        assert_eq!(user.to_write("x"), Some(PathBuf::from(expected[1])));
        assert_eq!(user.runtime(), Path::new("/t/tmp/widelane-65534"));
        let root = places(0, &variables);
        assert_eq!(root.to_write("x"), Some(PathBuf::from(expected[0])));
        assert_eq!([root.runtime(), root.roots()], [Path::new("/t/run/widelane"); 2]);
        // A named folder stays where it is, and a relative root is none.
        let given = places(NOBODY, &[("STATE_DIRECTORY", "/srv/a"), (ROOT, "/t")]);
        assert_eq!(given.to_write("x"), Some(PathBuf::from("/srv/a/x")));
        let relative = places(NOBODY, &[(ROOT, "t")]);
        assert_eq!(relative.to_read("x"), [group(&["/var/lib/widelane/x"])]);
    }

    #[test]
    fn the_kernel_tells_that_this_process_has_no_more_rights_than_its_caller() {
        assert!(!has_more_rights_than_its_caller());
    }
}
