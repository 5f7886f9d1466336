//! `widelane-lab speed`, `timing` and `--version` as scripts see them.

mod under_test;

use serde_json::Value;

fn printed(arguments: &[&str]) -> String {
    let output = under_test::laboratory().args(arguments).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn other_libraries_stand_beside_ours() {
    let text = printed(&[
        "speed",
        "mlkem512-keygen",
        "--seconds",
        "0.01",
        "--no-openssl",
        "--json",
    ]);
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let libcrux = rows.iter().find(|row| row["backend"] == "libcrux");
    let libcrux = libcrux.expect("a row");
    assert!(libcrux["ops_per_s"].as_f64() > Some(0.0), "{libcrux}");
    let ours = rows.iter().find(|row| row["backend"] == "aws-lc");
    let ours = ours.expect("a row");
    assert!(ours["times_libcrux"].as_f64() > Some(0.0), "{ours}");
    let command = ours["command"].as_str().expect("text");
    assert!(command.starts_with("widelane-lab speed mlkem512"), "{ours}");
}

#[test]
fn timing_lists_its_operations_and_refuses_others() {
    assert!(printed(&["timing", "--list"]).contains("\nplanted-leak\n"));
    let output = under_test::laboratory().args(["timing", "nothing"]).output();
    let output = output.expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("planted-leak"), "{said}");
}

/// Prints the version as `widelane` does: one line for scripts, and the commit in the long one.
#[test]
fn the_version_names_program_and_commit() {
    let short = format!("widelane-lab {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed(&["-V"]), short);
    assert!(printed(&["--version"]).contains("\ncommit: "));
}
