//! Leaving root behind, and the other things that only the C library does for a whole process.
//!
//! The kernel keeps credentials for each thread; the C library's `setuid` family changes all
//! threads of the process together, which raw system calls do not. The server drops privileges
//! before it starts any thread all the same, so that nothing ever runs with half of them.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;

use crate::config::{Config, Fault};

/// A user and group that exist on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    name: CString,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Who this process is, for messages.
pub(crate) fn current() -> String {
    let uid = rustix::process::geteuid().as_raw();
    format!(
        "user id {uid}, group id {}",
        rustix::process::getegid().as_raw()
    )
}

/// Looks up the account that the configuration names. `Ok(None)`: stay who we are.
pub(crate) fn lookup(config: &Config) -> Result<Option<Account>, Fault> {
    let Some(user) = &config.user else {
        return Ok(None);
    };
    let name = CString::new(user.as_str())
        .map_err(|_| Fault::new("user", "a NUL byte in a user name", "remove it"))?;
    let unknown = || {
        Fault::new(
            "user",
            format!("no user `{user}` on this machine"),
            "create it with useradd -r",
        )
    };
    let (uid, mut gid) = user_ids(&name)
        .map_err(|error| {
            Fault::new(
                "user",
                format!("cannot look up `{user}`: {error}"),
                "check nsswitch.conf",
            )
        })?
        .ok_or_else(unknown)?;
    if let Some(group) = &config.group {
        let fault = |problem: String| Fault::new("group", problem, "create it with groupadd -r");
        let group_name = CString::new(group.as_str())
            .map_err(|_| Fault::new("group", "a NUL byte in a group name", "remove it"))?;
        gid = group_id(&group_name)
            .map_err(|error| fault(format!("cannot look up `{group}`: {error}")))?
            .ok_or_else(|| fault(format!("no group `{group}` on this machine")))?;
    }
    if !rustix::process::geteuid().is_root() && rustix::process::geteuid().as_raw() != uid {
        return Err(Fault::new(
            "user",
            format!("only root can become `{user}`, and this is {}", current()),
            "start as root, or remove `user` and let the service manager choose it",
        ));
    }
    Ok(Some(Account { name, uid, gid }))
}

/// Becomes `account` for good: supplementary groups, group, user, in this order, and checks that
/// the way back is closed.
pub(crate) fn become_account(account: &Account) -> Result<(), Fault> {
    let failed = |call: &str, error: io::Error| {
        Fault::new(
            "user",
            format!("{call} failed: {error}"),
            "start as root with CAP_SETUID/CAP_SETGID",
        )
    };
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // SAFETY: `name` is a NUL-terminated string that outlives the call; initgroups keeps no
    // pointer.
    check(unsafe { libc::initgroups(account.name.as_ptr(), account.gid) })
        .map_err(|error| failed("initgroups", error))?;
    // SAFETY: takes three plain integers.
    check(unsafe { libc::setresgid(account.gid, account.gid, account.gid) })
        .map_err(|error| failed("setresgid", error))?;
    // SAFETY: takes three plain integers.
    check(unsafe { libc::setresuid(account.uid, account.uid, account.uid) })
        .map_err(|error| failed("setresuid", error))?;
    // SAFETY: takes a plain integer.
    if account.uid != 0 && unsafe { libc::setuid(0) } == 0 {
        return Err(Fault::new(
            "user",
            "root privileges could be regained after dropping them",
            "do not grant CAP_SETUID to this process",
        ));
    }
    Ok(())
}

fn user_ids(name: &CStr) -> io::Result<Option<(libc::uid_t, libc::gid_t)>> {
    let mut text = vec![0; TEXT_BYTES];
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is valid for the whole call, `text` for the length that is passed.
    let status = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    if status != 0 {
        return Err(io::Error::from_raw_os_error(status));
    }
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: status 0 and a result that is not null mean that `entry` was filled in.
    let entry = unsafe { entry.assume_init() };
    Ok(Some((entry.pw_uid, entry.pw_gid)))
}

fn group_id(name: &CStr) -> io::Result<Option<libc::gid_t>> {
    let mut text = vec![0; TEXT_BYTES];
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: every pointer is valid for the whole call, `text` for the length that is passed.
    let status = unsafe {
        libc::getgrnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    if status != 0 {
        return Err(io::Error::from_raw_os_error(status));
    }
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: status 0 and a result that is not null mean that `entry` was filled in.
    Ok(Some(unsafe { entry.assume_init() }.gr_gid))
}

fn check(status: libc::c_int) -> io::Result<()> {
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Room for the strings of one entry; a group with thousands of members still fits.
const TEXT_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nobody_else_by_chance() {
        assert_eq!(user_ids(c"root").unwrap(), Some((0, 0)));
        assert_eq!(user_ids(c"no such user").unwrap(), None);
        assert_eq!(group_id(c"no such group").unwrap(), None);
    }

    #[test]
    fn faults_name_the_key() {
        let config = Config {
            user: Some("no such user".into()),
            ..Config::default()
        };
        let fault = lookup(&config).unwrap_err();
        assert_eq!(fault.key, "user");
        assert!(fault.problem.contains("no such user"));
        assert_eq!(lookup(&Config::default()), Ok(None));
    }
}
