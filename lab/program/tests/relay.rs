//! Bytes through the servers that are installed here.

mod under_test;

use serde_json::Value;
use std::fs;

#[test]
fn bytes_pass_through_every_peer_that_is_installed() {
    let folder = tempfile::tempdir().expect("a folder");
    // The program is not started: no side is `widelane`.
    let program = folder.path().join("widelane");
    fs::write(&program, "").expect("a file");
    let output = under_test::laboratory()
        .args(["handshakes", "relay", "--sides", "nginx-stream,haproxy,hitch"])
        .args(["--mib", "3", "--seconds", "0.1", "--rounds", "1"])
        .args(["--modified", "--records"])
        .arg(folder.path())
        .arg("--widelane")
        .arg(&program)
        .output()
        .expect("it runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let left_out = printed.matches("is not here, and left out").count();
    if left_out > 0 {
        println!("SKIP: {left_out} of nginx with its stream module, HAProxy and hitch");
    }
    let (_, path) = printed.rsplit_once("Record: ").expect("a path");
    let record = fs::read_to_string(path.trim()).expect("the record");
    let lines: Vec<Value> = record
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|line: &Value| line["kind"] == "relay")
        .collect();
    // Up and down with two ciphers, and small requests.
    assert_eq!(lines.len(), 5 * (3 - left_out));
    for line in lines {
        let report = &line["report"];
        match line["traffic"].as_str() {
            Some("small-requests") => assert!(report["requests"].as_u64() > Some(0), "{line}"),
            _ => assert_eq!(report["bytes"], 3 << 20, "{line}"),
        }
        assert!(report["seconds"].as_f64() > Some(0.0), "{line}");
    }
}
