//! `widelane-lab emulate` as a process: a program that marks wide code loses time, one that does not loses
//! none; errors name what is wrong.

mod under_test;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Marks wide code, if a variable asks this program to do so.
#[test]
fn marking_program() {
    let Ok(class) = std::env::var(MARKS) else {
        return;
    };
    let class = widelane_cpu::licence::Class::named(&class).expect("a class");
    let _marked = widelane_marks::wide(class);
    let end = Instant::now() + Duration::from_millis(800);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[test]
fn wide_code_is_slowed_down_as_on_the_model_and_scalar_code_is_not() {
    let Some(heavy) = emulated("512-heavy") else {
        return;
    };
    // All of its second is at level 2, but for the start and the tail of tests.
    let (owed, taken, level2) = shares(&heavy);
    assert!(level2 > 0.3, "{heavy}");
    assert!((taken - owed).abs() < 0.02, "{heavy}");
    let scalar = emulated("scalar").expect("it worked before");
    let (owed, taken, level2) = shares(&scalar);
    assert!(owed == 0.0 && taken < 0.005 && level2 == 0.0, "{scalar}");
}

/// OpenSSL knows nothing of a brake.
#[test]
fn wide_code_without_marks_is_slowed_down_by_its_time_slices() {
    let speed = |more: &[&str]| {
        let cpu = last_cpu();
        let output = laboratory(&["emulate", "--as", "Silver 4116", "--json", "--cpus", &cpu])
            .args(more)
            .args(["--", "openssl", "speed", "-seconds", "1", "-bytes", "16384"])
            .args(["-evp", "chacha20-poly1305"])
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(127) || said.contains("--unmarked: ") {
            println!("SKIP: {said}");
            return None;
        }
        if cannot(&output) {
            return None;
        }
        assert!(output.status.success(), "{said}");
        let line = said.lines().last().expect("a line");
        Some(serde_json::from_str::<Value>(line).expect("JSON"))
    };
    let Some(seen) = speed(&["--unmarked", "1"]) else {
        return;
    };
    let unseen = speed(&[]).expect("it worked before");
    let level1 = |of: &Value| {
        let cpu = &of["cpus"][0];
        cpu["level_seconds"][1].as_f64().expect("a number") / cpu["seconds"].as_f64().expect("one")
    };
    assert_eq!(level1(&unseen), 0.0, "{unseen}");
    if level1(&seen) == 0.0 && !has_wide_chacha20() {
        return println!("SKIP: this openssl has no 512-bit code for ChaCha20 on this CPU");
    }
    // Other programs may want this CPU: no more than this is sure.
    assert!(level1(&seen) > 0.02, "{seen}");
    let (owed, taken, _) = shares(&seen);
    assert!(owed > 0.002 && (taken - owed).abs() < 0.03, "{seen}");
}

/// OpenSSL's is for CPUs that have all of these.
fn has_wide_chacha20() -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    ["avx512f", "avx512vl", "avx512bw"]
        .iter()
        .all(|flag| text.contains(flag))
}

fn last_cpu() -> String {
    let cpus = widelane_affinity::allowed(None).expect("CPUs");
    cpus.iter().last().expect("one").to_string()
}

/// Report of the brake on the CPU on which a program marks a class; `None` if this machine cannot have a brake.
fn emulated(class: &str) -> Option<Value> {
    let own = std::env::current_exe().expect("the test");
    let output = laboratory(&["emulate", "--as", "Silver 4116", "--json", "--cpus", &last_cpu()])
        .arg("--")
        .arg(own)
        .args(["marking_program", "--exact"])
        .env(MARKS, class)
        .output()
        .expect("it starts");
    if cannot(&output) {
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().last().expect("a line");
    Some(serde_json::from_str(line).expect("JSON"))
}

/// Shares of the time that were lost by the model, taken, and at level 2, on the only CPU.
fn shares(of: &Value) -> (f64, f64, f64) {
    let cpu = &of["cpus"][0];
    let number = |value: &Value| value.as_f64().expect("a number");
    let time = number(&cpu["seconds"]);
    let share = |value: &Value| number(value) / time;
    (
        share(&cpu["owed_seconds"]),
        share(&cpu["taken_seconds"]),
        share(&cpu["level_seconds"][2]),
    )
}

#[test]
fn status_and_signals_are_the_programs_and_nothing_stays() {
    let run = |script: &str| {
        let mut command = laboratory(&["emulate", "--as", "Gold 6130", "--", "sh", "-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let output = run("exit 7").output().expect("it starts");
    if cannot(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let output = run("echo $WIDELANE_BRAKE").output().expect("it starts");
    let page = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(page.starts_with("/proc/") && !Path::new(&page).exists(), "{page}");
    // A signal reaches the program.
    let mut brake = run("trap 'exit 5' TERM; echo ready; sleep 20 & wait")
        .spawn()
        .expect("started");
    let mut ready = [0; 6];
    std::io::Read::read_exact(brake.stdout.as_mut().expect("a pipe"), &mut ready).expect("ready");
    let pid = Pid::from_raw(brake.id() as i32).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs");
    assert_eq!(brake.wait().expect("it ends").code(), Some(5));
}

/// On the model wide code runs on cores of its own. On this machine that may be otherwise.
#[test]
fn advice_is_that_for_the_model() {
    let cpus = widelane_affinity::allowed(None).expect("CPUs").iter().count();
    if cpus < 2 {
        return println!("SKIP: this process may use one CPU only");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(product) = under_test::product() else {
        return;
    };
    let own = product.display();
    let file = folder.path().join("profile.json").display().to_string();
    let script =
        format!("'{own}' probe --quick --json --output '{file}' >&2 && '{own}' advise --json --profile '{file}'");
    let output = laboratory(&["emulate", "--as", "Gold 6130", "--", "sh", "-c", &script])
        .output()
        .expect("it starts");
    if cannot(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let advice: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    if advice["penalty"].is_null() {
        return println!("SKIP: the machine is too busy to measure");
    }
    // Without lanes nothing is measured of what passes use, and nothing moves.
    let expected = match widelane_cpu::lanes().exist() {
        true => "vector-cores",
        false => "inline",
    };
    assert_eq!(advice["placement"], expected, "{advice}");
    // Outside of the brake, that profile is of another machine.
    let output = under_test::apart(Command::new(&product))
        .args(["advise", "--profile", &file])
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("which emulates Xeon Gold 6130"), "{said}");
}

#[test]
fn mistakes_are_named() {
    let said = |arguments: &[&str]| {
        let output = laboratory(arguments).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    for (arguments, status, expected) in [
        (&["--as", "Pentium", "--", "true"][..], 2, "known are Xeon Silver 4116"),
        (&["--as", "EPYC 9654", "--", "true"], 2, "nothing to emulate"),
        (&["--as", "Gold 6326", "--", "true"], 2, "--level1-ghz"),
        (&["--as", "Gold 5512U", "--", "true"], 2, "no source gives the clock"),
        (&["--as", "Gold 6130", "--cpus", "1023", "--", "true"], 2, "CPU 1023"),
        (
            &["--as", "Gold 6130", "--cpus", "8191", "--", "true"],
            2,
            "`8191` names no CPUs",
        ),
        (&["--as", "Gold 6130"], 2, "COMMAND"),
    ] {
        let (found, text) = said(&[&["emulate"], arguments].concat());
        assert_eq!(found, Some(status), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let missing = laboratory(&["emulate", "--as", "Gold 6130", "--", "/no/such/program"]).output();
    let missing = missing.expect("it starts");
    if !cannot(&missing) {
        assert_eq!(missing.status.code(), Some(127), "{missing:?}");
        let text = String::from_utf8_lossy(&missing.stderr);
        assert!(text.contains("/no/such/program"), "{text}");
    }
}

/// Returns whether this machine or this user cannot have a brake.
fn cannot(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let reasons = [
        "real-time threads are not allowed",
        "sched_rt_runtime_us",
        "the CPU is too busy",
    ];
    let cannot = reasons.iter().any(|reason| said.contains(reason));
    if cannot {
        println!("SKIP: {said}");
    }
    cannot
}

fn laboratory(arguments: &[&str]) -> Command {
    let mut command = under_test::laboratory();
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("WIDELANE_BRAKE");
    command
}

const MARKS: &str = "WIDELANE_TEST_MARKS";
