//! The program without its optional parts: it works, and says what is not there and how to get it.
//!
//! Each test runs where its feature is off: `cargo test -p widelane --no-default-features`, for some
//! with `--features instruments`.

mod under_test;

use std::process::{Output, Stdio};

fn widelane(arguments: &[&str]) -> Output {
    let mut command = under_test::widelane();
    command.args(arguments).stdin(Stdio::null());
    command.output().expect("it starts")
}

/// In every build, with whatever arguments, and before anything of them is looked at.
#[test]
fn commands_of_the_laboratory_say_where_they_are() {
    for arguments in [
        &["simulate", "cloudflare-2017", "--cores", "16"][..],
        &["emulate", "--as", "Gold 6130", "--", "true"],
        &["experiment", "--help"],
        &["report"],
        &["handshakes", "demo"],
        &["timing", "--list"],
    ] {
        let output = widelane(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let name = arguments[0];
        let begin = format!("widelane: `{name}` is a command of widelane-lab, which `make lab` ");
        assert!(said.starts_with(&begin), "{said}");
        assert!(said.contains(&format!(": widelane-lab {name}\n")), "{said}");
    }
}

#[test]
#[cfg(feature = "instruments")]
fn options_of_the_laboratory_say_where_they_are() {
    for (arguments, there) in [
        (&["probe", "--picture", "clocks.svg"][..], "report --clocks FILE"),
        (&["advise", "--workload", "fleet"], "advise --workload NAME"),
    ] {
        let output = widelane(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!(": widelane-lab {there}\n")), "{said}");
    }
}

/// A mistake in the name of a command stays one.
#[test]
fn commands_that_nothing_has_are_refused_by_name() {
    let output = widelane(&["sevre"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("'sevre'") && said.contains("'serve'"), "{said}");
}

#[test]
#[cfg(not(feature = "instruments"))]
fn instruments_are_refused_with_the_feature_to_build() {
    for name in [
        "setup", "status", "speed", "kernels", "probe", "advise", "scan", "usage", "top", "trace", "steer", "run",
    ] {
        let output = widelane(&[name, "--json", "x"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(&format!("`{name}` is not in this build")), "{said}");
        assert!(said.contains("-p widelane --features instruments"), "{said}");
    }
    let help = widelane(&["--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for there in ["serve", "tickets", "load"] {
        assert!(help.contains(&format!("\n  {there} ")), "{help}");
    }
    assert!(!help.contains("probe") && !help.contains("trace"), "{help}");
}

/// In builds without clang; those with it have tests of their own for each command.
#[test]
#[cfg(feature = "instruments")]
fn without_programs_for_the_kernel_the_missing_compiler_is_named() {
    let ebpf = widelane(&["usage", "--method", "ebpf", "--once", "--interval", "0.1"]);
    let missing = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stderr);
        said.contains("built without its programs for the kernel")
    };
    if !missing(&ebpf) {
        return;
    }
    let others = [&["usage", "--overhead"][..], &["trace", "handshakes"]].map(widelane);
    for refused in [&ebpf].into_iter().chain(&others) {
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(missing(refused) && said.contains("install clang"), "{said}");
    }
    let polls = widelane(&["usage", "--once", "--interval", "0.2"]);
    let said = format!("{polls:?}");
    match polls.status.success() {
        true => assert!(said.contains("by poll") && said.contains("install clang"), "{said}"),
        false => assert!(said.contains("AVX-512") || said.contains("arch_status"), "{said}"),
    }
}

#[test]
#[cfg(all(feature = "instruments", not(feature = "terminal")))]
fn top_still_prints_plain_text() {
    let output = widelane(&["top", "--once", "--no-users", "--interval", "0.1"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("handshakes") && text.contains("by class"), "{text}");
}
