//! Output on CPUs without lanes, which `WIDELANE_CPU_DISABLE` plays.

mod under_test;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use widelane_frequency::{Machine, Profile};

/// Machines without lanes: without AVX2, and without FMA and any AVX-512.
const WITHOUT: [&str; 2] = ["avx2", "fma,avxifma,avx512f"];

fn widelane(disabled: &str, arguments: &[&str]) -> Output {
    let mut command = under_test::widelane();
    command.args(arguments).env("WIDELANE_CPU_DISABLE", disabled);
    command.output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A profile of this machine without the classes that take 512-bit registers.
fn profile(folder: &Path) -> Option<PathBuf> {
    let sample = include_str!("../../../tools/frequency/tests/data/profile.json");
    let mut profile = Profile::from_json(sample).expect("the sample is a profile");
    profile.machine = Machine::here();
    if !profile.machine.is_known() {
        println!("SKIP: /proc/cpuinfo does not describe this machine");
        return None;
    }
    profile.clocks.retain(|clock| !clock.class.starts_with("512"));
    let path = folder.join("profile.json");
    profile.save(&path).expect("it can be written");
    Some(path)
}

#[test]
fn advise_names_no_width_of_registers() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(path) = profile(folder.path()) else {
        return;
    };
    let path = path.to_str().expect("a name");
    for disabled in WITHOUT {
        let said = text(&widelane(disabled, &["advise", "--profile", path]).stdout);
        assert!(said.contains("This CPU has no lanes that Widelane uses"), "{said}");
        assert!(said.contains("no registers for kernels"), "{said}");
        assert!(!said.contains("registers of"), "{said}");
        let output = widelane(disabled, &["advise", "--json", "--profile", path]);
        let line: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(line["heavy_width"].is_null() && line["light_width"].is_null(), "{line}");
    }
}

/// Of a processor that has lanes without AVX-512 IFMA.
#[test]
fn advise_names_registers_and_forms_of_a_skylake() {
    let said = text(&widelane("", &["advise", "Gold 6130"]).stdout);
    assert!(said.contains("registers of 512 bits for kernels"), "{said}");
    assert!(said.contains("Predicted for avx512f"), "{said}");
    assert!(!said.contains("no registers"), "{said}");
    let lines = text(&widelane("", &["advise", "Silver 4116", "--json"]).stdout);
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["forms"][0]["target"], "avx512f", "{line}");
    }
}

#[test]
fn probe_names_the_classes_that_it_could_not_measure() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(path) = profile(folder.path()) else {
        return;
    };
    let path = path.to_str().expect("a name");
    for disabled in WITHOUT {
        let said = text(&widelane(disabled, &["probe", "--cached", "--output", path]).stdout);
        assert!(
            said.contains("\n512-heavy  n/a: this CPU has no such instructions"),
            "{said}"
        );
        assert!(said.contains("this CPU has no lanes that Widelane uses"), "{said}");
    }
}

#[test]
fn serve_says_which_code_runs() {
    for disabled in WITHOUT {
        let output = widelane(disabled, &["serve", "--demo", "--check"]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("this CPU has no lanes that Widelane uses"), "{said}");
        assert!(said.contains("AWS-LC does all public-key operations"), "{said}");
    }
    let output = widelane("", &["serve", "--demo", "--check"]);
    let here = widelane_cpu::lanes();
    assert!(text(&output.stderr).contains(&here.to_string()), "{output:?}");
    // Of a server that does not batch, that is no news.
    let output = widelane(WITHOUT[0], &["serve", "--demo", "--check", "--batching", "off"]);
    assert!(!text(&output.stderr).contains("lanes that"), "{output:?}");
}

#[test]
fn what_cannot_be_measured_has_a_reason() {
    let output = widelane(WITHOUT[0], &["kernels", "--measure"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nothing to measure: this CPU has no lanes"), "{said}");
}
