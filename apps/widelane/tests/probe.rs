//! `widelane probe` as its users call it.

mod under_test;

use serde_json::Value;

fn widelane(arguments: &[&str]) -> String {
    let mut command = under_test::widelane();
    let output = command.args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Figures of a profile name the program that measured them, as figures of a record do.
#[test]
fn a_profile_keeps_the_commit_of_the_program_that_measured_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("profile.json");
    let file = file.to_str().expect("a name");
    let profile = widelane(&["probe", "--quick", "--json", "--output", file]);
    let profile: Value = serde_json::from_str(&profile).expect("a profile");
    let version = widelane(&["--version"]);
    let commit = version
        .lines()
        .find_map(|line| line.strip_prefix("commit: "))
        .expect("a commit");
    let expected = (commit != "unknown").then_some(commit);
    assert_eq!(profile["commit"].as_str(), expected);
}

/// The page that a brake would share with the program is not there.
#[test]
fn a_page_that_is_none_is_refused_once_and_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let profile = folder.path().join("profile.json");
    let output = under_test::widelane()
        .args(["probe", "--quick", "--json", "--output"])
        .arg(profile)
        .env("WIDELANE_BRAKE", "/dev/null")
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        text.matches("WIDELANE_BRAKE=/dev/null is no memory of a brake").count(),
        1,
        "{text}"
    );
}
