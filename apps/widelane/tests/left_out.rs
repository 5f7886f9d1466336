//! The program without its optional parts: it works, and says what is not there and how to get it.
//!
//! Each test runs where its feature is off: `cargo test -p widelane --no-default-features`.

mod under_test;

#[cfg(not(all(
    feature = "ebpf",
    feature = "terminal",
    feature = "peers",
    feature = "etcd"
)))]
use std::process::{Output, Stdio};

#[cfg(not(all(
    feature = "ebpf",
    feature = "terminal",
    feature = "peers",
    feature = "etcd"
)))]
fn widelane(arguments: &[&str]) -> Output {
    let mut command = under_test::widelane();
    command.args(arguments).stdin(Stdio::null());
    command.output().expect("it starts")
}

#[test]
#[cfg(not(feature = "ebpf"))]
fn usage_by_ebpf_is_refused_with_the_feature_to_build() {
    for arguments in [
        &["usage", "--method", "ebpf", "--once"][..],
        &["usage", "--overhead"],
    ] {
        let output = widelane(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("eBPF is not in this build"), "{said}");
        assert!(said.contains("-p widelane --features ebpf"), "{said}");
    }
}

#[test]
#[cfg(not(feature = "ebpf"))]
fn a_trace_is_refused_with_what_was_missing() {
    let output = widelane(&["trace", "handshakes"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("was built without"), "{said}");
    assert!(said.contains("clang") && said.contains("ebpf"), "{said}");
}

#[test]
#[cfg(not(feature = "ebpf"))]
fn usage_polls_and_says_why() {
    let output = widelane(&["usage", "--once", "--interval", "0.2"]);
    let all = format!("{output:?}");
    if !output.status.success() {
        assert!(
            all.contains("AVX-512") || all.contains("arch_status"),
            "{all}"
        );
        println!("SKIP: {}", String::from_utf8_lossy(&output.stderr).trim());
        return;
    }
    assert!(
        all.contains("by poll") && all.contains("--features ebpf"),
        "{all}"
    );
}

#[test]
#[cfg(not(feature = "terminal"))]
fn top_still_prints_plain_text() {
    let output = widelane(&["top", "--once", "--no-users", "--interval", "0.1"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("handshakes") && text.contains("by class"),
        "{text}"
    );
}

#[test]
#[cfg(not(feature = "peers"))]
fn speed_measures_the_rest_and_names_the_feature() {
    let output = widelane(&[
        "speed",
        "mlkem512-keygen",
        "--seconds",
        "0.01",
        "--no-openssl",
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("aws-lc"), "{text}");
    // With other packages in the same build, libcrux may be there after all.
    let measured = text.lines().any(|line| {
        let mut columns = line.split_whitespace();
        columns.next() == Some("libcrux") && columns.nth(1).is_some_and(|rate| rate != "n/a")
    });
    assert!(
        measured || text.contains("-p widelane --features peers"),
        "{text}"
    );
}

#[test]
#[cfg(not(feature = "etcd"))]
fn ticket_keys_from_etcd_are_refused_with_the_feature_to_build() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("widelane.toml");
    let text = "[[listener]]\nlisten = [\"127.0.0.1:0\"]\nbackend = \"127.0.0.1:9\"\n\
                [listener.tickets.etcd]\nendpoints = [\"http://127.0.0.1:2379\"]\nkey_file = \"k\"\n\
                [[listener.certificate]]\ncert = \"a\"\nkey = \"b\"\n";
    std::fs::write(&file, text).expect("written");
    let output = widelane(&[
        "serve",
        "--check",
        "--config",
        file.to_str().expect("a name"),
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("-p widelane --features etcd"), "{said}");
    assert!(said.contains("protoc"), "{said}");
}
