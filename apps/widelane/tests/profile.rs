//! `widelane serve` finds the profile of the machine, also in the environment of the shipped unit.

mod under_test;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use under_test::{PROGRAM, ROOT, apart, widelane};
use widelane_frequency::{Machine, Profile};

/// A user that is not root and owns nothing.
const NOBODY: u32 = 65534;

/// A profile of this machine, in a folder that every user can read.
fn profile_in(folder: &Path) -> Option<PathBuf> {
    let text = include_str!("../../../tools/frequency/tests/data/profile.json");
    let mut profile = Profile::from_json(text).expect("the sample is a profile");
    profile.machine = Machine::here();
    if !profile.machine.is_known() {
        println!("SKIP: /proc/cpuinfo does not describe this machine");
        return None;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = folder.join("profile.json");
    profile.save(&path).expect("it can be written");
    Some(path)
}

/// Log of a command, if it succeeds.
fn log(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

/// A command as the unit starts it: with an empty environment, as a user without a home.
fn as_a_service() -> Option<Command> {
    let service = |arguments: &[&str]| {
        let mut command = widelane();
        command.env_clear().args(arguments);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        apart(command)
    };
    if service(&["--version"]).output().is_err() {
        println!("SKIP: {PROGRAM} cannot be started by another user");
        return None;
    }
    Some(service(&["serve", "--demo", "--check"]))
}

#[test]
fn a_service_finds_the_profile_in_its_state_directory_and_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let (Some(path), Some(mut command)) = (profile_in(folder.path()), as_a_service()) else {
        return;
    };
    let text = log(command.env("STATE_DIRECTORY", folder.path()));
    let path = path.display().to_string();
    assert!(text.contains("INFO uses the profile of this machine"), "{text}");
    assert!(text.contains(&path), "{text}");
}

/// Root has measured since; the folder that the service was given has precedence.
#[test]
fn the_state_directory_of_a_service_has_precedence_over_the_machines() {
    let (given, machines) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let folder = machines.path().join("var/lib/widelane");
    fs::create_dir_all(&folder).expect("it is ours");
    let (Some(path), Some(mut command)) = (profile_in(given.path()), as_a_service()) else {
        return;
    };
    let mut newer = Profile::load(&path).expect("it was written");
    newer.taken += 1;
    newer.save(&folder.join("profile.json")).expect("written");
    for folder in [machines.path(), &machines.path().join("var/lib/widelane")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    command.env("WIDELANE_ROOT", machines.path());
    let text = log(command.env("STATE_DIRECTORY", given.path()));
    assert!(text.contains(&path.display().to_string()), "{text}");
    // Without a profile of its own, the service uses the machine's.
    let text = log(command.env("STATE_DIRECTORY", machines.path()));
    let path = folder.join("profile.json");
    assert!(text.contains(&path.display().to_string()), "{text}");
}

#[test]
fn a_service_without_a_profile_says_where_it_looked() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(mut command) = as_a_service() else {
        return;
    };
    let missing = folder.path().join("none");
    let text = log(command.env("STATE_DIRECTORY", &missing));
    assert!(text.contains("INFO no profile of this machine: "), "{text}");
    for place in [missing.join("profile.json"), ROOT.join("var/lib/widelane/profile.json")] {
        assert!(text.contains(&place.display().to_string()), "{text}");
    }
}

/// Root has measured; the service has no state directory of its own.
#[test]
fn a_service_finds_what_root_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(profile) = profile_in(folder.path()) else {
        return;
    };
    // A `/var/lib` for this test alone, in the place where the program looks for it.
    let script = "mount -t tmpfs none /var/lib && mkdir /var/lib/widelane && \
                  chmod 755 /var/lib /var/lib/widelane && \
                  cp -p \"$1\" /var/lib/widelane/ && \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups \
                  env -i \"$2\" serve --demo --check";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    let output = command.arg(&profile).arg(PROGRAM).output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let found = text.contains("INFO uses the profile of this machine")
                && text.contains("/var/lib/widelane/profile.json");
            assert!(found, "{text}");
        }
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("SKIP: it takes root and a mount namespace: {why}");
        }
        Err(error) => println!("SKIP: {error}: unshare"),
    }
}

/// With the restrictions of the shipped unit, by systemd itself.
#[test]
fn under_the_shipped_unit_the_profile_is_found() {
    if !Path::new("/run/systemd/system").exists() || !rustix::process::geteuid().is_root() {
        println!("SKIP: it takes systemd and root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(profile) = profile_in(folder.path()) else {
        return;
    };
    let unit = include_str!("../../../packaging/widelane.service");
    let own = ["Type=", "Exec", "User=", "Group=", "StateDirectory=", "Restart="];
    let service = unit.split("[Service]").nth(1).expect("a unit of a service");
    let service = service.split("[Install]").next().unwrap_or_default();
    let settings = service.lines().filter(|line| {
        let kept = line.contains('=') && !line.starts_with('#');
        kept && !own.iter().any(|key| line.starts_with(key))
    });
    let state = format!("widelane-test-{}", std::process::id());
    let place = format!("/var/lib/{state}");
    let mut command = Command::new("systemd-run");
    command.args(["--quiet", "--pipe", "--wait", "--collect"]);
    settings.for_each(|setting| {
        command.arg("-p").arg(setting);
    });
    command.args(["-p", "User=nobody", "-p"]);
    command.arg(format!("StateDirectory={state}")).arg("-p");
    let (from, to) = (profile.display(), format!("{place}/profile.json"));
    command.arg(format!("ExecStartPre=+/bin/cp {from} {to}"));
    let text = log(command.arg(PROGRAM).args(["serve", "--demo", "--check"]));
    let _ = fs::remove_dir_all(&place);
    assert!(text.contains("uses the profile of this machine"), "{text}");
    assert!(text.contains(&to), "{text}");
}
