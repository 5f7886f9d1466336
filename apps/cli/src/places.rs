//! Where Widelane keeps files when the user names no place.

use rustix::process::{Uid, geteuid};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folders for this process: by its user and its environment, which only this reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// What the service manager gave us (`StateDirectory=` of a unit).
    given: Option<PathBuf>,
    /// The state folder of this user.
    users: Option<PathBuf>,
    root: bool,
}

impl Places {
    /// Those of this process.
    pub fn here() -> Self {
        Self::of(|name| std::env::var_os(name), geteuid())
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
        let home = || Some(folder("HOME")?.join(".local/state"));
        let users = folder("XDG_STATE_HOME").or_else(home);
        Self {
            given: given(),
            users: users.map(|folder| folder.join(OURS)),
            root: user.is_root(),
        }
    }

    /// Where to look for a file of this name, the most important place first: the state folder of
    /// the service, that of the machine, that of the user.
    pub fn to_read(&self, name: &str) -> Vec<PathBuf> {
        let mut folders: Vec<&Path> = Vec::new();
        folders.extend(self.given.as_deref());
        folders.push(Path::new(MACHINES));
        folders.extend(self.users.as_deref());
        folders.dedup();
        folders.iter().map(|folder| folder.join(name)).collect()
    }

    /// Where to keep a file of this name: the first of these folders that is this user's. `None` if
    /// there is none.
    pub fn to_write(&self, name: &str) -> Option<PathBuf> {
        let machines = self.root.then_some(Path::new(MACHINES));
        let folder = self.given.as_deref().or(machines);
        Some(folder.or(self.users.as_deref())?.join(name))
    }
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
/// Our folder in one that is for many programs.
const OURS: &str = "widelane";
/// The state folder of the machine.
const MACHINES: &str = "/var/lib/widelane";

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

    fn paths(expected: &[&str]) -> Vec<PathBuf> {
        expected.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_service_reads_what_root_measured_and_keeps_its_own_files() {
        // As under the unit: its user has no home that it could see.
        let service = places(NOBODY, &[("STATE_DIRECTORY", "/var/lib/widelane")]);
        assert_eq!(
            service.to_read(PROFILE),
            paths(&["/var/lib/widelane/profile.json"])
        );
        assert_eq!(
            service.to_write(CALIBRATION),
            Some(PathBuf::from("/var/lib/widelane/calibration"))
        );
        let other = places(NOBODY, &[("STATE_DIRECTORY", "/srv/a:/srv/b")]);
        let expected = ["/srv/a/profile.json", "/var/lib/widelane/profile.json"];
        assert_eq!(other.to_read(PROFILE), paths(&expected));
    }

    #[test]
    fn a_user_reads_what_root_measured_and_keeps_files_at_home() {
        let expected = ["/var/lib/widelane/x", "/home/u/.local/state/widelane/x"];
        let user = places(NOBODY, &[("HOME", "/home/u")]);
        assert_eq!(user.to_read("x"), paths(&expected));
        assert_eq!(user.to_write("x"), Some(PathBuf::from(expected[1])));
        let named = places(NOBODY, &[("HOME", "/home/u"), ("XDG_STATE_HOME", "/s")]);
        assert_eq!(named.to_write("x"), Some(PathBuf::from("/s/widelane/x")));
    }

    #[test]
    fn root_keeps_files_for_the_machine() {
        let root = places(0, &[("HOME", "/root")]);
        assert_eq!(
            root.to_write("x"),
            Some(PathBuf::from("/var/lib/widelane/x"))
        );
    }

    #[test]
    fn without_any_variable_there_is_nowhere_to_write_but_still_to_read() {
        for variables in [&[][..], &[("HOME", ""), ("STATE_DIRECTORY", "relative")]] {
            let nowhere = places(NOBODY, variables);
            assert_eq!(nowhere.to_write("x"), None);
            assert_eq!(nowhere.to_read("x"), paths(&["/var/lib/widelane/x"]));
        }
    }
}
