//! `widelane-lab simulate` and `advise` as their users call them.

mod under_test;

use std::process::Output;

use serde_json::Value;

fn laboratory(args: &[&str]) -> Output {
    let mut command = under_test::laboratory();
    command.args(args).output().expect("the program starts")
}

fn objects(args: &[&str]) -> Vec<Value> {
    let output = laboratory(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    lines.collect()
}

fn failed(args: &[&str]) -> (Option<i32>, String) {
    let output = laboratory(args);
    let said = String::from_utf8(output.stderr).expect("text");
    (output.status.code(), said)
}

/// A line for each published number, and the status of success.
#[test]
fn every_published_number_is_printed() {
    let lines = objects(&["simulate", "--all", "--json"]);
    assert!(lines.len() > 30);
    for line in &lines {
        assert!(line["scenario"].is_string() && line["what"].is_string());
        let [published, simulated, error, tolerance] = ["published", "simulated", "error", "tolerance"]
            .map(|key| line[key].as_f64().unwrap_or_else(|| panic!("{line}")));
        assert!((simulated - published - error).abs() < 1e-9, "{line}");
        let met = error.abs() <= tolerance + 1e-9;
        assert!(met || line["explanation"].is_string(), "{line}");
    }
    let held = lines.iter().filter(|line| line["held_out"] == true);
    assert!(held.count() >= 5);
}

#[test]
fn a_sweep_has_a_line_for_each_run_and_step() {
    let args = ["simulate", "kit-2018", "--sweep", "vector_cores=1..3:3", "--json"];
    let lines = objects(&args);
    // Four of the publication, and ten in lanes.
    assert_eq!(lines.len(), 3 * (4 + 10));
    assert_eq!(lines[0]["sweep"], "vector_cores = 1");
    let marked: Vec<f64> = (lines.iter())
        .filter(|line| line["run"] == "one")
        .map(|line| line["clock_ghz"].as_f64().expect("a clock"))
        .collect();
    assert!(marked.is_sorted_by(|a, b| a > b), "{marked:?}");
    assert_eq!(lines[0]["cores"].as_array().map(Vec::len), Some(8));
    assert!(lines[0]["energy_j"].is_null() && lines[0]["energy_why"].is_string());
}

#[test]
fn a_workload_is_advised_on_another_processor() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kit.toml");
    let shown = laboratory(&["simulate", "kit-2018", "--show"]).stdout;
    let shown = String::from_utf8(shown).expect("text");
    let light = "light-cycles = 30800, ";
    assert!(shown.contains(light), "{shown}");
    std::fs::write(&file, shown.replace(light, "")).expect("written");
    let args = [
        "advise",
        "Gold 6130",
        "--workload",
        file.to_str().expect("text"),
        "--cores",
        "8",
        "--json",
    ];
    let lines = objects(&args);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(line["model"], "Xeon Gold 6130");
    let options = line["options"].as_array().expect("options");
    let ours = options.iter().find(|one| one["placement"] == "marked-pool");
    let ours = ours.expect("it is among them");
    assert!(ours["requests_percent"].as_f64() > Some(0.0), "{ours}");
    // The page of that file has no form in 256-bit light code.
    assert!(options.iter().all(|one| one["placement"] != "light-256"));
}

#[test]
fn a_time_line_is_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("core.svg");
    let file = file.to_str().expect("text");
    let output = laboratory(&["simulate", "kit-2018", "--run", "avx-512", "--time-line", file]);
    assert!(output.status.success());
    let svg = std::fs::read_to_string(file).expect("the picture");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

/// The file that `--show` prints is a scenario; a mistake in it is named with the file.
#[test]
fn a_file_of_ones_own_is_simulated() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mine.toml");
    let path = file.to_str().expect("text");
    let shown = laboratory(&["simulate", "downs-2020", "--show"]).stdout;
    std::fs::write(&file, &shown).expect("written");
    assert_eq!(objects(&["simulate", path, "--json"]).len(), 3);
    let text = String::from_utf8(shown).expect("text");
    std::fs::write(&file, text.replace("512-light", "512-lite")).expect("written");
    let (status, said) = failed(&["simulate", path]);
    assert_eq!(status, Some(2));
    assert!(said.contains("mine.toml") && said.contains("512-lite"), "{said}");
}

#[test]
fn mistakes_in_arguments_are_named() {
    for (args, says) in [
        (
            vec!["simulate", "nothing"],
            "a scenario of the program: cloudflare-2017",
        ),
        (
            vec!["simulate", "kit-2018", "--machine", "Pentium"],
            "known are Xeon Silver 4116",
        ),
        (
            vec!["simulate", "kit-2018", "--cores", "1"],
            "set fewer vector-cores or more cores",
        ),
        (
            vec!["simulate", "kit-2018", "--set", "pages=1"],
            "there is no parameter \"pages\"",
        ),
        (
            vec!["simulate", "kit-2018", "--run", "three"],
            "the runs are avx-512, one",
        ),
        (vec!["simulate", "kit-2018", "--rate", "5"], "no fleet"),
        (
            vec!["simulate", "fleet", "--sweep", "x=1..2"],
            "--sweep is for one machine",
        ),
        (
            vec!["simulate", "kit-2018", "--set", "seed=1.5"],
            "seed: 1.5 is no whole number",
        ),
        (
            vec!["simulate", "fleet", "--rate", "0"],
            "the rate is 0; it must be above 0",
        ),
        (vec!["simulate", "kit-2018", "--sweep", "seed=5..1"], "5 is not below 1"),
        (
            vec!["simulate", "kit-2018", "--time-line", "x.svg"],
            "choose one with --run",
        ),
    ] {
        let (status, said) = failed(&args);
        assert_eq!(status, Some(2), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
}
