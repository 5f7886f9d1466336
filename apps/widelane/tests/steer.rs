//! `widelane steer` and `widelane run` on real processes, with what is wide named by hand. No test
//! moves a process that it did not start.

mod under_test;

use rustix::process::{Signal, getpid, kill_process};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use widelane_affinity::{Cpus, Pid, allow, allowed};
use widelane_steer::RegistersInUse;
use widelane_testkit::process::Running;
use widelane_testkit::skip::installed;
use widelane_testkit::wait::eventually;

#[test]
fn wide_and_scalar_part_and_a_signal_restores_both() {
    let Some(all) = cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (wide, scalar) = (busy(), busy());
    let mut steer = steer(folder.path(), &wide, &[&wide, &scalar]);
    eventually("they are apart", || apart(&wide, &scalar));
    assert_eq!(affinity(&wide).len() + affinity(&scalar).len(), all.len());

    let second = widelane()
        .args(["steer", "--wide", "1", "--named-only", "--state-dir"])
        .arg(folder.path())
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1));
    assert!(complaint.contains(&format!("process {}", steer.0.id())), "{complaint}");

    steer.process().signal(Signal::TERM);
    assert_eq!(steer.0.wait().unwrap().code(), Some(0));
    assert_eq!((affinity(&wide), affinity(&scalar)), (all.clone(), all));
    assert!(!folder.path().join("steer.state").exists());
}

#[test]
fn killed_it_leaves_what_restore_undoes_for_children_too() {
    let Some(all) = cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let wide = busy();
    // Starts a child each time it is told to, and says its number.
    let mut shell = Running(
        Command::new("sh")
            .args(["-c", "while read -r _; do sh -c 'while :; do :; done' & echo $!; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut steer = steer(folder.path(), &wide, &[&wide, &shell]);
    eventually("they are apart", || apart(&wide, &shell));
    steer.0.kill().unwrap();
    assert_eq!(steer.0.wait().unwrap().signal(), Some(9));

    // No process steers now; what is started inherits what the shell was given.
    writeln!(shell.0.stdin.as_mut().unwrap()).unwrap();
    let mut said = String::new();
    BufReader::new(shell.0.stdout.as_mut().unwrap())
        .read_line(&mut said)
        .unwrap();
    let child = Orphan(said.trim().parse().unwrap());
    assert_eq!(affinity_of(child.0), affinity(&shell));
    assert!(affinity(&shell).len() < all.len());

    let said = restore(folder.path());
    assert!(said.starts_with("3 threads"), "{said}");
    for pid in [wide.0.id() as i32, shell.0.id() as i32, child.0] {
        assert_eq!(affinity_of(pid), all);
    }
    assert!(restore(folder.path()).starts_with("0 threads"));
}

#[test]
fn a_wide_program_is_found_by_its_registers() {
    let Some(all) = cpus() else { return };
    let Some(wide) = wide_program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let scalar = busy();
    let mut steer = steer_with(&[], folder.path(), &[&wide, &scalar]);
    eventually("they are apart", || apart(&wide, &scalar));
    assert_eq!(affinity(&wide).len() + affinity(&scalar).len(), all.len());
    steer.0.kill().unwrap();
    assert_eq!(steer.0.wait().unwrap().signal(), Some(9));
    assert!(apart(&wide, &scalar));
    assert!(restore(folder.path()).starts_with("2 threads"));
    assert_eq!((affinity(&wide), affinity(&scalar)), (all.clone(), all));
}

#[test]
fn a_program_is_kept_apart_from_its_own_wide_child() {
    if cpus().is_none() || wide_program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = widelane();
    command.args(["run", "--interval", "0.05", "--return", "60", "--state-dir"]);
    command.arg(folder.path()).args(["--", "sh", "-c"]);
    command.arg(format!("{WIDE} >&- 2>&- & echo $$ $!; while :; do :; done"));
    let mut run = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(run.0.stdout.as_mut().unwrap())
        .read_line(&mut said)
        .unwrap();
    let pids: Vec<i32> = said.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    let _wide = Orphan(pids[1]);
    eventually("they are apart", || {
        let (shell, wide) = (affinity_of(pids[0]), affinity_of(pids[1]));
        wide.iter().all(|cpu| !shell.contains(cpu))
    });
    run.process().signal(Signal::TERM);
    assert_eq!(run.0.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(Some(affinity_of(pids[1])), cpus());
}

#[test]
fn affinities_of_others_are_respected() {
    let Some(all) = cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (wide, pinned, scalar) = (busy(), busy(), busy());
    let last = [*all.last().unwrap()];
    set_affinity(&pinned, &last);
    // The wide one is pinned, too, so that its core is the vector core.
    set_affinity(&wide, &last);
    let mut steer = steer(folder.path(), &wide, &[&wide, &pinned, &scalar]);
    eventually("they are apart", || apart(&wide, &scalar));
    assert_eq!(affinity(&pinned), last);

    // Another process changes an affinity meanwhile, and it stays so.
    set_affinity(&scalar, &last);
    // A shell that starts the tests in the background makes them ignore an interrupt.
    steer.process().signal(Signal::TERM);
    assert_eq!(steer.0.wait().unwrap().code(), Some(0));
    assert_eq!(affinity(&wide), last);
    assert_eq!(affinity(&pinned), last);
    assert_eq!(affinity(&scalar), last);
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_it_would_do() {
    let Some(all) = cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (wide, scalar) = (busy(), busy());
    let output = widelane()
        .args([
            "steer",
            "--dry-run",
            "--named-only",
            "--json",
            "--duration",
            "1",
            "--interval",
            "0.1",
        ])
        .args(["--wide", &wide.0.id().to_string()])
        .args(["--only", &wide.0.id().to_string()])
        .args(["--only", &scalar.0.id().to_string()])
        .arg("--state-dir")
        .arg(folder.path())
        .output()
        .unwrap();
    let said = text(&output);
    assert_eq!((affinity(&wide), affinity(&scalar)), (all.clone(), all));
    let events: Vec<serde_json::Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let moved = |pid: u32, why: &str| {
        let of_it = |event: &&serde_json::Value| event["pid"] == pid && event["why"] == why;
        events.iter().any(|event| of_it(&event))
    };
    assert!(moved(wide.0.id(), "wide"), "{said}");
    let ended = events.last().unwrap();
    assert_eq!(ended["event"], "ended");
    assert!(ended["threads"].as_u64() > Some(0), "{said}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A run that restores nothing needs no place to keep its state.
#[test]
fn a_dry_run_needs_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = widelane();
    command.args(["steer", "--dry-run", "--duration", "0.1", "--state-dir"]);
    command.arg(folder.path().join("missing/too"));
    command.args(["--named-only", "--wide", "1"]);
    assert!(text(&command.output().unwrap()).contains("rounds"));
}

#[test]
fn a_program_is_run_on_its_side_and_its_status_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let show = "grep Cpus_allowed_list /proc/self/status; exit 7";
    let run = |side: &str| {
        let mut command = widelane();
        command.args(["run", side, "--state-dir"]).arg(folder.path());
        command.args(["--", "sh", "-c", show]).output().unwrap()
    };
    let (wide, scalar) = (run("--wide"), run("--scalar"));
    assert_eq!((wide.status.code(), scalar.status.code()), (Some(7), Some(7)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let shown = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let list = text.split_whitespace().last().unwrap_or_default().to_owned();
        list.parse::<Cpus>().unwrap()
    };
    let Some(all) = cpus() else { return };
    assert!(shown(&wide).and(&shown(&scalar)).is_empty());
    assert_eq!(shown(&wide).count() + shown(&scalar).count(), all.len());
}

#[test]
fn a_program_that_cannot_be_started_has_the_status_that_shells_give() {
    let folder = tempfile::tempdir().unwrap();
    let run = |state: &Path, program: &Path| {
        let mut command = widelane();
        command.args(["run", "--wide", "--state-dir"]).arg(state);
        let output = command.arg("--").arg(program).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaint.starts_with("widelane: "), "{complaint}");
        (output.status.code(), complaint)
    };
    let (status, complaint) = run(folder.path(), Path::new("no-such-program"));
    assert_eq!(status, Some(127));
    assert!(complaint.contains("no-such-program"), "{complaint}");
    assert_eq!(run(folder.path(), folder.path()).0, Some(126));
    let nowhere = folder.path().join("missing/too");
    assert_eq!(run(&nowhere, Path::new("true")).0, Some(125));
}

/// `nohup` and shells with jobs in the background rely on it.
#[test]
fn ignored_signals_stay_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP USR1; exec \"$@\"", "sh"]);
    command.arg(under_test::PROGRAM);
    command.args(["run", "--wide", "--state-dir"]).arg(folder.path());
    command.args(["--", "grep", "SigIgn", "/proc/self/status"]);
    let said = text(&under_test::apart(command).output().unwrap());
    let mask = said.split_whitespace().last().unwrap();
    let mask = u64::from_str_radix(mask, 16).unwrap();
    assert_eq!(mask & 0b10_0000_0001, 0b10_0000_0001, "{said}");
}

#[test]
fn what_is_named_must_be_there() {
    let complaint = |arguments: &[&str]| {
        let mut command = widelane();
        command.args(["steer", "--dry-run", "--named-only"]).args(arguments);
        let output = command.args(["--duration", "0.1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    if cpus().is_none() {
        return;
    }
    let no_cpu = complaint(&["--wide", "1", "--cores", "1023"]);
    assert!(no_cpu.contains("CPUs 1023"), "{no_cpu}");
    let no_process = complaint(&["--wide", "1", "--only", "2147483647"]);
    assert!(no_process.contains("process 2147483647"), "{no_process}");
}

/// A program that runs in a container from outside has a session leader that the container does not see.
#[test]
fn a_container_without_its_session_leader_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let apart = ["--pid", "--fork", "--mount-proc"];
    let allowed = Command::new("unshare").args(apart).arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        println!("SKIP: a PID namespace cannot be had");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(apart).arg(under_test::PROGRAM);
    command.args(["run", "--wide", "--state-dir"]);
    command.arg(folder.path()).args(["--", "echo", "done"]);
    let output = under_test::apart(command).output().unwrap();
    assert_eq!(text(&output), "done\n");
}

#[test]
fn signals_are_passed_on_and_told_by_the_status() {
    let folder = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        let mut command = widelane();
        command.args(["run", "--wide", "--state-dir"]).arg(folder.path());
        command.args(["--", "sh", "-c", script]).stdout(Stdio::piped());
        let mut run = Running(command.spawn().unwrap());
        let mut said = String::new();
        BufReader::new(run.0.stdout.as_mut().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert_eq!(said, "ready\n");
        run.process().signal(Signal::TERM);
        run.0.wait().unwrap().code()
    };
    let busy = "while :; do :; done";
    let caught = run(&format!("trap 'exit 5' TERM; echo ready; {busy}"));
    assert_eq!(caught, Some(5));
    assert_eq!(run(&format!("echo ready; {busy}")), Some(128 + 15));
}

#[test]
fn what_outlives_the_program_gets_its_affinity_back() {
    let Some(all) = cpus() else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = widelane()
        .args(["run", "--scalar", "--state-dir"])
        .arg(folder.path())
        .args(["--", "sh", "-c", "sh -c 'while :; do :; done' >&- 2>&- & echo $!"])
        .output()
        .unwrap();
    let left = Orphan(text(&output).trim().parse().unwrap());
    assert_eq!(affinity_of(left.0), all);
}

/// The CPUs that this test may use, if they are of two cores.
fn cpus() -> Option<Vec<usize>> {
    let cpus = affinity_of(getpid().as_raw_nonzero().get());
    let siblings = |cpu: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string())
    };
    let cores: HashSet<String> = cpus.iter().map(siblings).collect();
    if cores.len() < 2 {
        println!("SKIP: it takes two cores to keep anything apart, and this test may use one");
        return None;
    }
    Some(cpus)
}

/// One that is not our child.
struct Orphan(i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_raw(self.0).unwrap(), Signal::KILL);
    }
}

/// A process that wants a CPU all the time.
fn busy() -> Running {
    Running::start(Command::new("sh").args(["-c", "while :; do :; done"]))
}

/// A process that uses wide registers, if that can be and be seen here.
fn wide_program() -> Option<Running> {
    if let Err(error) = RegistersInUse::open() {
        println!("SKIP: {error}");
        return None;
    }
    let (_, arguments) = WIDE.split_once(' ')?;
    let mut openssl = Command::new(installed("openssl")?);
    Some(Running::start(openssl.args(arguments.split(' '))))
}

fn widelane() -> Command {
    under_test::widelane()
}

/// Steers `only`, of which `wide` counts as wide.
fn steer(folder: &Path, wide: &Running, only: &[&Running]) -> Running {
    let named = ["--named-only", "--wide", &wide.0.id().to_string()];
    steer_with(&named, folder, only)
}

fn steer_with(options: &[&str], folder: &Path, only: &[&Running]) -> Running {
    let mut command = widelane();
    command.args(["steer", "--interval", "0.05", "--return", "60"]);
    command.args(options).arg("--state-dir");
    command.arg(folder).stdout(Stdio::null());
    for one in only {
        command.args(["--only", &one.0.id().to_string()]);
    }
    Running(command.spawn().unwrap())
}

fn restore(folder: &Path) -> String {
    let mut command = widelane();
    command.args(["steer", "--restore", "--state-dir"]);
    text(&command.arg(folder).output().unwrap())
}

fn affinity(of: &Running) -> Vec<usize> {
    affinity_of(of.0.id() as i32)
}

fn affinity_of(pid: i32) -> Vec<usize> {
    let cpus = allowed(Pid::from_raw(pid)).unwrap();
    cpus.iter().collect()
}

fn set_affinity(of: &Running, cpus: &[usize]) {
    let cpus = cpus.iter().copied().collect();
    allow(Pid::from_raw(of.0.id() as i32), &cpus).unwrap();
}

fn apart(one: &Running, other: &Running) -> bool {
    let other = affinity(other);
    affinity(one).iter().all(|cpu| !other.contains(cpu))
}

fn text(output: &Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const WIDE: &str = "openssl speed -seconds 120 -evp chacha20-poly1305";
