//! Number of workers that `widelane serve` has where it does not have the whole machine.

mod serving;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serving::*;

#[test]
fn half_a_cpu_is_one_worker() {
    let Some(group) = Group::with_half_a_cpu() else {
        println!("SKIP: this user may not make a cgroup with a quota");
        return;
    };
    let site = Site::new();
    let config = site.config("127.0.0.1:0", "");
    let mut command = Command::new("sh");
    let script = "echo $$ > \"$1\"/cgroup.procs && shift && exec \"$@\"";
    command.args(["-c", script, "sh"]).arg(&group.0);
    command.args([under_test::PROGRAM, "serve", "--config"]).arg(config);
    let mut server = Process::start(&mut under_test::apart(command));
    let line = server.line_with("listening");
    assert!(line.contains("workers=1"), "{line}");
    let tasks = format!("/proc/{}/task", server.child.id());
    let workers = entries(tasks.as_ref())
        .into_iter()
        .filter_map(|task| fs::read_to_string(task.join("comm")).ok())
        .filter(|name| {
            let number = name.trim_end().strip_prefix("widelane-");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        })
        .count();
    assert_eq!(workers, 1);
    server.stop();
}

#[test]
fn cpus_outside_the_cpuset_are_left_out() {
    let found = Command::new("taskset").args(["-c", "0", "true"]).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("SKIP: no taskset, or this process may not use CPU 0");
        return;
    }
    let site = Site::new();
    let on_the_first_cpu = |cpus: &str| {
        let config = site.config("127.0.0.1:0", &format!("cpus = {cpus:?}\n"));
        let mut command = Command::new("taskset");
        command.args(["-c", "0", under_test::PROGRAM, "serve", "--config"]);
        command.arg(config);
        under_test::apart(command)
    };
    let mut server = Process::start(&mut on_the_first_cpu("0-3"));
    let line = server.line_with("this process may use these only");
    assert!(line.trim_end().ends_with("cpus=0"), "{line}");
    let line = server.line_with("listening");
    assert!(line.contains("workers=1"), "{line}");
    drop(server);
    let output = on_the_first_cpu("1-3").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("w.toml:1: cpus: this process may use none"), "{text}");
}

/// A cgroup of either version. Removed when dropped, after its process has ended.
struct Group(PathBuf);

impl Group {
    fn with_half_a_cpu() -> Option<Self> {
        let name = format!("widelane-test-{}", std::process::id());
        let make = |parent: &str, quota: &[(&str, &str)]| {
            let group = Self(PathBuf::from(parent).join(&name));
            fs::create_dir(&group.0).ok()?;
            for (file, value) in quota {
                fs::write(group.0.join(file), value).ok()?;
            }
            Some(group)
        };
        // Of version 1, each controller has a tree of its own.
        match PathBuf::from("/sys/fs/cgroup/cgroup.controllers").exists() {
            true => make("/sys/fs/cgroup", &[("cpu.max", "50000 100000")]),
            false => make(
                "/sys/fs/cgroup/cpu",
                &[("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")],
            ),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It empties a moment after its last process has ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
