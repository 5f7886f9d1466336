//! The folder for what must not outlive the machine's uptime.

use rustix::process::{Uid, geteuid};
use std::ffi::OsString;
use std::path::PathBuf;
use widelane_steer::Folder;

/// The folder of this process's user: that of root, or one in the user's runtime directory.
pub(crate) fn runtime() -> PathBuf {
    of(std::env::var_os("XDG_RUNTIME_DIR"), geteuid())
}

fn of(users: Option<OsString>, user: Uid) -> PathBuf {
    // A relative path would mean another folder in each working directory.
    let users = users
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute());
    match users {
        _ if user.is_root() => PathBuf::from(Folder::ROOTS),
        Some(folder) => folder.join("widelane"),
        None => PathBuf::from(format!("/tmp/widelane-{}", user.as_raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_a_runtime_folder() {
        let runtime = |folder: Option<&str>, user| of(folder.map(Into::into), Uid::from_raw(user));
        let given = runtime(Some("/run/user/7"), 7);
        assert_eq!(given, PathBuf::from("/run/user/7/widelane"));
        for none in [None, Some("")] {
            assert_eq!(runtime(none, 65534), PathBuf::from("/tmp/widelane-65534"));
        }
        let root = runtime(Some("/run/user/0"), 0);
        assert_eq!(root, PathBuf::from("/run/widelane"));
    }
}
