//! Scripts that `make` runs: their checks fail where they should, and their records are JSON.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with programs, each with its text of a shell script.
fn programs(all: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in all {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    folder
}

/// Runs a command of bash in the root of the tree, with these programs before all others.
fn bash(command: &str, programs: &TempDir, fault: &str) -> Output {
    let path = std::env::var("PATH").expect("PATH");
    Command::new("bash")
        .args(["-c", command])
        .current_dir(root())
        .env("PATH", format!("{}:{path}", programs.path().join("bin").display()))
        .env("CARGO_TARGET_DIR", programs.path().join("target"))
        .env("FAULT", fault)
        .output()
        .expect("bash")
}

#[test]
fn the_stage_of_the_demonstration_fails_at_planted_faults() {
    let laboratory = r#"
case "$FAULT: $*" in
file:*"demo --rounds 1 "* | bench:*bench*) : >"$TMPDIR/left" ;;
process:*"demo --rounds 1 "*) sh -c '/bin/sleep 2; :' sh "$TMPDIR/left" >/dev/null 2>&1 & ;;
failure:*"demo --rounds 1 "*) exit 1 ;;
deaf:*"demo --rounds 9 "*) exit 0 ;;
*"demo --rounds 9 "*) exit 130 ;;
esac"#;
    let programs = programs(&[
        ("bin/make", ""),
        ("bin/sleep", ""),
        ("target/release/widelane-lab", laboratory),
    ]);
    for (fault, said) in [
        ("none", ""),
        ("file", "left in the temporary folder:\nleft\n"),
        ("bench", "left in the temporary folder:\nleft\n"),
        ("process", "left running: sh -c /bin/sleep 2; : sh "),
        ("failure", ""),
        ("deaf", "interrupted, it ended with status 0\n"),
    ] {
        let output = bash(".ci/scripts/demonstration", &programs, fault);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.success(), fault == "none", "{fault}: {output:?}");
        assert!(printed.starts_with(said), "{fault}: {printed}");
    }
}

#[test]
fn the_records_of_scripts_say_how_busy_the_cpus_were() {
    let programs = programs(&[("bin/git", "case $1 in rev-parse) echo 0a1b ;; esac")]);
    let command = r#"
set -euo pipefail
source lab/record.bash
record_begins 'SHARE=0.1 lab/overload 12'
record_begins 'lab/starts 9' '"openssl":"OpenSSL 3"' '"postgres":"15"'
times_at_start=$(awk '{ print $1, $2 - 30, $3 - 10, $4 - 100 }' <<<"$times_at_start")
cpu_times() { awk '{ print $1, $2 + 30, $3 + 10, $4 + 100 }' <<<"$times_at_start"; }
record_ends"#;
    let output = bash(command, &programs, "");
    let lines = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let lines: Vec<Value> = lines.collect::<Result<_, _>>().expect("JSON");
    let [plain, more, end] = &lines[..] else {
        panic!("{output:?}")
    };
    assert_eq!(plain["command"], "SHARE=0.1 lab/overload 12");
    assert_eq!(
        (&plain["machine"]["commit"], &plain["machine"]["modified"]),
        (&"0a1b".into(), &false.into())
    );
    assert_eq!(
        (&more["machine"]["openssl"], &more["machine"]["postgres"]),
        (&"OpenSSL 3".into(), &"15".into())
    );
    assert!(more["machine"]["load_average_at_start"].is_string(), "{more}");
    let busy = end["during"]["busy"].as_object().expect("CPUs");
    let expected = serde_json::json!({"busy": 0.3, "stolen": 0.1});
    assert!(
        !busy.is_empty() && busy.values().all(|share| *share == expected),
        "{end}"
    );
}
