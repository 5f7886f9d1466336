//! `widelane status` as its users see it, where no process has the provider.

use std::process::{Command, Output};

fn status(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_widelane"));
    command.arg("status").args(arguments);
    command.output().expect("it starts")
}

#[test]
fn the_exit_status_tells_what_was_found() {
    let own = std::process::id().to_string();
    let none = status(&[&own]);
    let complaint = String::from_utf8_lossy(&none.stderr);
    assert_eq!(none.status.code(), Some(1), "{complaint}");
    assert!(
        complaint.contains("has not loaded the provider"),
        "{complaint}"
    );
    assert!(complaint.contains("widelane setup"), "{complaint}");
    assert!(none.stdout.is_empty());

    let missing = status(&["4294967295", "--json"]);
    let complaint = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(1));
    assert!(complaint.contains("no process 4294967295"), "{complaint}");

    for wrong in [&["nginx"][..], &["0"], &["--json", "--prometheus"]] {
        assert_eq!(status(wrong).status.code(), Some(2), "{wrong:?}");
    }
}
