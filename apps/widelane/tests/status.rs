//! `widelane status` as its users see it, where no process has the provider.

mod under_test;

use std::process::Output;

fn status(arguments: &[&str]) -> Output {
    let mut command = under_test::widelane();
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

    for wrong in [
        &["nginx"][..],
        &["0"],
        &["--json", "--prometheus"],
        &["--output", "x"],
    ] {
        assert_eq!(status(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_file_for_prometheus_is_replaced_also_when_no_process_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("widelane.prom");
    std::fs::write(&file, "widelane_status_process{pid=\"1\"} 1\n").expect("writable");
    let own = std::process::id().to_string();
    let path = file.to_str().expect("text");
    let none = status(&[&own, "--prometheus", "--output", path]);
    assert_eq!(none.status.code(), Some(1));
    assert!(none.stdout.is_empty());
    let text = std::fs::read_to_string(&file).expect("it is there");
    assert!(
        text.ends_with("# EOF\n") && !text.contains("pid="),
        "{text}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).expect("ours").count(), 1);
    let nowhere = folder.path().join("missing/x");
    let path = nowhere.to_str().expect("text");
    let failed = status(&[&own, "--prometheus", "--output", path]);
    let complaint = String::from_utf8_lossy(&failed.stderr);
    assert!(complaint.contains("cannot write"), "{complaint}");
}
