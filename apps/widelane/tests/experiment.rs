//! Experiments, as short as they can be: that they run to their end, and what they say when they cannot.
//! No rate is asserted.

use std::process::{Command, Output};

use serde_json::Value;

fn experiment(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_widelane"));
    command.arg("experiment").args(args);
    command.output().expect("it starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines of a run; `None` if this machine lacks what it takes.
fn lines(args: &[&str]) -> Option<Vec<Value>> {
    let output = experiment(args);
    let said = said(&output);
    let lacks = ["not installed", "takes two CPUs", "does not run here"];
    if let Some(what) = said
        .lines()
        .find(|line| lacks.iter().any(|one| line.contains(one)))
    {
        println!("SKIP: {what}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    Some(
        text.lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect(),
    )
}

/// An interval is median, least, most.
fn is_interval(value: &Value) -> bool {
    let number = |index: usize| value[index].as_f64().unwrap_or(f64::NAN);
    number(1) <= number(0) && number(0) <= number(2)
}

#[test]
fn kit_compares_each_way_with_light_code() {
    let args = [
        "kit",
        "--native",
        "--rounds",
        "2",
        "--seconds",
        "1.2",
        "--json",
    ];
    let Some(lines) = lines(&args) else { return };
    let conditions: Vec<_> = lines.iter().map(|line| line["condition"].clone()).collect();
    assert_eq!(
        conditions,
        [
            "256-light in place",
            "512-ifma in place",
            "512-ifma, thread pool",
            "512-ifma, migration"
        ]
    );
    for line in &lines {
        assert_eq!(line["as"], Value::Null, "{line}");
        for figure in ["requests_per_s", "change_percent", "variation_percent"] {
            assert!(is_interval(&line[figure]), "{figure}: {line}");
        }
        assert!(line["requests_per_s"][1].as_f64() > Some(0.0), "{line}");
    }
    assert_eq!(lines[0]["change_percent"][0], 0.0);
    assert_eq!(lines[1]["published_percent"], -11.2);
}

#[test]
fn xu_and_intel_compare_two_servers() {
    for (name, rows, sides) in [
        ("xu", 3, ["widelane-on", "nginx"]),
        ("intel", 2, ["widelane-on", "widelane-off"]),
    ] {
        let args = [name, "--rounds", "2", "--seconds", "0.2", "--json"];
        let Some(lines) = lines(&args) else { continue };
        assert_eq!(lines.len(), rows, "{lines:?}");
        for line in &lines {
            assert_eq!(line["sides"], Value::from(sides.to_vec()), "{line}");
            for side in 0..2 {
                assert!(is_interval(&line["handshakes_per_s"][side]), "{line}");
            }
            assert!(line["times"][0].as_f64() > Some(0.0), "{line}");
        }
    }
}

#[test]
fn mistakes_are_named() {
    for (args, says) in [
        (
            &["xu", "--as", "Silver 4116"][..],
            "`xu` runs as this CPU is; leave out --as",
        ),
        (
            &["intel", "--as", "Silver 4116"],
            "`intel` runs as this CPU is",
        ),
        (
            &["kit", "--as", "Silver 4116", "--native"],
            "cannot be used with",
        ),
        (&["xu", "--quick", "--rounds", "3"], "cannot be used with"),
        (&["lemire"], "cloudflare, kit, xu, intel"),
    ] {
        let output = experiment(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
}

#[test]
fn what_is_not_installed_is_named_with_its_packages() {
    let nothing = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_widelane"))
        .args(["experiment", "cloudflare", "--native", "--quick"])
        .env("PATH", nothing.path())
        .output()
        .expect("it starts");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not installed"), "{said}");
    assert!(
        said.contains("apt-get install --no-install-recommends"),
        "{said}"
    );
}
