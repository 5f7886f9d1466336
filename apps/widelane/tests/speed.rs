//! `widelane speed` and `widelane kernels` as scripts see them.

mod under_test;

use serde_json::Value;
use std::process::{Command, Output};
use widelane_lanes::{Definition, Kernel, Modular, Target};

fn widelane(arguments: &[&str]) -> Command {
    let mut command = under_test::widelane();
    command.args(arguments);
    command
}

/// The lines of standard output as JSON objects.
fn objects(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = str::from_utf8(&output.stdout).unwrap();
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects.iter().all(Value::is_object), "{text}");
    objects
}

#[test]
fn speed_prints_one_object_a_condition() {
    let arguments = ["speed", "rsa2048-sign", "--seconds", "0.01", "--json"];
    let output = widelane(&arguments).arg("--no-openssl").output().unwrap();
    let rows = objects(&output);
    for row in &rows {
        assert!(row["operation"].is_string() && row["backend"].is_string(), "{row}");
        assert!(row["in_flight"].is_u64() && row["cpu"].is_u64(), "{row}");
        let measured = row["ops_per_s"].as_f64().is_some_and(|rate| rate > 0.0);
        assert_ne!(measured, row["reason"].is_string(), "{row}");
        assert!(row["command"].as_str().unwrap().contains("speed rsa2048-sign"), "{row}");
    }
    let in_flight: Vec<_> = rows
        .iter()
        .filter(|row| row["operation"] == "rsa2048-sign" && row["backend"] == "aws-lc")
        .map(|row| row["in_flight"].as_u64().unwrap())
        .collect();
    assert_eq!(in_flight, [1, 2, 4, 8, 16]);
    assert!(rows.iter().any(|row| row["operation"] == "port-limit"));
}

#[test]
fn without_kernels_and_openssl_speed_says_why_and_measures_the_rest() {
    let output = widelane(&["speed", "rsa2048-sign", "--seconds", "0.01", "--json"])
        .env("WIDELANE_CPU_DISABLE", "avx2")
        .env("PATH", "")
        .output()
        .unwrap();
    for row in objects(&output) {
        let measured = row["ops_per_s"].is_number();
        let needs_nothing = row["backend"] == "aws-lc" || row["backend"] == "auto";
        assert_eq!(measured, needs_nothing, "{row}");
        if !measured {
            assert!(row["latency_us"].is_null(), "{row}");
            let reason = row["reason"].as_str().unwrap();
            let expected = match row["backend"].as_str() {
                Some("openssl") => "not installed",
                // On a CPU without the kernels it is not the variable's fault.
                _ => "takes lacks",
            };
            let fits = expected.split(' ').any(|word| reason.contains(word));
            assert!(fits, "{row}");
        }
    }
    let output = widelane(&["speed", "rsa2048-sign", "--seconds", "0.01"])
        .env("WIDELANE_CPU_DISABLE", "avx2")
        .env("PATH", "")
        .output()
        .unwrap();
    let text = str::from_utf8(&output.stdout).unwrap();
    assert!(output.status.success() && text.contains("n/a ("), "{text}");
}

#[test]
fn wrong_usage_of_speed_has_status_2_and_names_the_choices() {
    for (arguments, word) in [
        (&["speed", "rsa2048-singe"][..], "rsa2048-sign"),
        (&["speed", "--cpu", "1000000"][..], "only on"),
        (&["speed", "--seconds", "long"][..], "seconds"),
        (&["kernels", "--assembly", "amm52x21"][..], "amm52x20"),
    ] {
        let output = widelane(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        let text = str::from_utf8(&output.stderr).unwrap();
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn speed_lists_its_operations() {
    let output = widelane(&["speed", "--list"]).output().unwrap();
    let text = str::from_utf8(&output.stdout).unwrap();
    for name in ["rsa2048-sign", "x25519-derive", "mldsa65-verify", "port-limit"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
    }
}

#[test]
fn kernels_prints_one_object_a_kernel_and_width() {
    let output = widelane(&["kernels", "--json"]).output().unwrap();
    let rows = objects(&output);
    let row = |symbol: &str| rows.iter().find(|row| row["symbol"] == symbol).unwrap();
    let wide = row("widelane_amm52x20_mb8");
    let report = Kernel::from(Modular::Amm(20)).report(Target::Avx512Ifma);
    assert_eq!(wide["multiply_adds"], report.multiply_adds);
    assert_eq!(wide["licence"], "LVL2");
    assert_eq!(row("widelane_amm52x20_mb4")["licence"], "LVL1");
    assert!(rows.iter().all(|row| row["widest_bits"].as_u64() <= Some(64)));
    assert!(rows.iter().all(|row| row["multiply_bound_cycles"].as_u64() > Some(0)));
}

#[test]
fn kernels_prints_a_table_and_assembly() {
    let output = widelane(&["kernels"]).output().unwrap();
    let text = str::from_utf8(&output.stdout).unwrap();
    assert!(text.contains("ams52x20") && text.contains("cycles/a:"), "{text}");
    let output = widelane(&["kernels", "--assembly", "ams52x20_mb4"]).output().unwrap();
    let text = str::from_utf8(&output.stdout).unwrap();
    assert!(text.contains("widelane_ams52x20_mb4:\n") && text.contains("vpmadd52luq ymm"));
}
