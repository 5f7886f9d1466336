//! Gives up root.
//!
//! The kernel keeps credentials for each thread. The C library's `setuid` family changes all threads
//! of the process together, which raw system calls do not. The server gives up root before it starts
//! any thread all the same, so that no thread ever runs with half of the privileges.

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, geteuid, initgroups, setresgid, setresuid, setuid};

use crate::config::{Config, Fault};

/// A user and group that exist on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    name: CString,
    pub(crate) uid: Uid,
    pub(crate) gid: Gid,
}

/// Looks up the account that the configuration names, which this process must be able to become. `Ok(None)`:
/// the user stays the same.
pub(crate) fn lookup(config: &Config) -> Result<Option<Account>, Fault> {
    let account = find(config)?;
    match &account {
        Some(Account { name, uid, .. }) if !geteuid().is_root() && geteuid() != *uid => Err(Fault::new(
            "user",
            format!(
                "only root can become `{}`, and this is {}",
                name.to_string_lossy(),
                widelane_files::this_user()
            ),
            "start as root, or remove `user` and let the service manager choose it",
        )),
        _ => Ok(account),
    }
}

/// Looks up the account for a process that may be root.
pub(crate) fn find(config: &Config) -> Result<Option<Account>, Fault> {
    let Some(user) = &config.user else {
        return Ok(None);
    };
    let entry = found("user", user, User::from_name(user), "useradd -r")?;
    let gid = match &config.group {
        Some(group) => found("group", group, Group::from_name(group), "groupadd -r")?.gid,
        None => entry.gid,
    };
    // A name with a zero byte has no entry.
    let name = CString::new(user.as_str()).unwrap_or_default();
    let uid = entry.uid;
    Ok(Some(Account { name, uid, gid }))
}

/// The entry of this machine's users or groups that `key` names.
fn found<T>(key: &str, name: &str, entry: Result<Option<T>, Errno>, create: &str) -> Result<T, Fault> {
    match entry {
        Ok(Some(entry)) => Ok(entry),
        Ok(None) => Err(Fault::new(
            key,
            format!("this machine has no {key} `{}`", name.escape_debug()),
            format!("create it with {create}"),
        )),
        Err(error) => Err(Fault::new(
            key,
            format!("cannot look up `{name}`: {error}"),
            "check nsswitch.conf",
        )),
    }
}

impl Account {
    /// Returns whether this process has its user already.
    pub(crate) fn is_current(&self) -> bool {
        geteuid() == self.uid
    }
}

/// Becomes `account` for good: supplementary groups, group, user, in this order. Checks that the
/// process cannot become root again.
pub(crate) fn become_account(account: &Account) -> Result<(), Fault> {
    let failed = |call: &str, error: Errno| {
        Fault::new(
            "user",
            format!("{call} failed: {error}"),
            "start as root with CAP_SETUID and CAP_SETGID",
        )
    };
    if !geteuid().is_root() {
        return Ok(());
    }
    let Account { name, uid, gid } = account;
    initgroups(name, *gid).map_err(|error| failed("initgroups", error))?;
    setresgid(*gid, *gid, *gid).map_err(|error| failed("setresgid", error))?;
    setresuid(*uid, *uid, *uid).map_err(|error| failed("setresuid", error))?;
    if !uid.is_root() && setuid(Uid::from_raw(0)).is_ok() {
        return Err(Fault::new(
            "user",
            "the process can become root again after it gave up root",
            "do not grant CAP_SETUID to this process",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::unistd::getegid;

    use super::*;

    fn asking(user: &str, group: Option<&str>) -> Result<Option<Account>, Fault> {
        lookup(&Config {
            user: Some(user.into()),
            group: group.map(Into::into),
            ..Config::default()
        })
    }

    #[test]
    fn the_user_of_this_process_is_found_with_its_groups() {
        let Ok(Some(me)) = User::from_uid(geteuid()) else {
            println!("SKIP: this machine knows no name for the user of this process");
            return;
        };
        let account = asking(&me.name, None).unwrap().expect("an account");
        assert_eq!((account.uid, account.gid), (me.uid, me.gid));
        let Ok(Some(group)) = Group::from_gid(getegid()) else {
            println!("SKIP: this machine knows no name for the group of this process");
            return;
        };
        let account = asking(&me.name, Some(&group.name)).unwrap();
        assert_eq!(account.expect("an account").gid, getegid());
    }

    #[test]
    fn faults_name_the_key() {
        let root = User::from_uid(geteuid()).unwrap().map(|user| user.name);
        for (user, group, key, name) in [
            ("no such user", None, "user", "no such user"),
            ("a\0b", None, "user", r"a\0b"),
            (
                root.as_deref().unwrap_or("root"),
                Some("no such group"),
                "group",
                "no such group",
            ),
        ] {
            let fault = asking(user, group).unwrap_err();
            assert_eq!(fault.key, key);
            assert!(fault.problem.contains(name), "{}", fault.problem);
        }
        assert_eq!(lookup(&Config::default()), Ok(None));
    }
}
