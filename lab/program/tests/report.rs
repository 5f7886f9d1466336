//! `widelane-lab report` as its users call it.

mod under_test;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use widelane_frequency::{Machine, Profile};

const RECORD: &str = r#"{"kind":"run","schema":5,"started":"2026-01-02T03:04:05Z","command":"c","machine":{"cpu":"A","commit":"0123456789","modified":false}}
{"kind":"speed","result":{"operation":"x","backend":"aws-lc","in_flight":1,"samples":[10.0],"ops_per_s":10.0}}
{"kind":"speed","result":{"operation":"x","backend":"avx512ifma","in_flight":8,"samples":[40.0],"ops_per_s":40.0}}
{"kind":"end"}
"#;

/// In a folder of its own, and without a profile unless one is named.
fn report(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = under_test::laboratory();
    command.arg("report").args(arguments).current_dir(folder);
    command.stdin(Stdio::null()).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_page_is_written_from_the_records_of_this_folder_and_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = folder.path().join("lab/records");
    fs::create_dir_all(&shared).expect("a folder");
    fs::write(shared.join("shared.jsonl"), RECORD).expect("written");
    let own = tempfile::tempdir().expect("a folder");
    fs::write(own.path().join("own.jsonl"), RECORD).expect("written");
    let place = own.path().to_str().expect("a name");
    let output = report(folder.path(), &["--records", place]);
    assert!(output.status.success(), "{output:?}");
    // Progress on slow machines, and nothing else.
    let told = text(&output.stderr);
    let progress = |line: &str| line.starts_with("widelane-lab: simulated ");
    assert!(told.lines().all(progress), "{told}");
    let said = text(&output.stdout);
    assert!(said.starts_with("widelane-report.html: ") && said.ends_with("from 2 records\n"));
    let page = fs::read_to_string(folder.path().join("widelane-report.html")).expect("a page");
    assert!(page.starts_with("<!DOCTYPE html>"));
    assert!(page.contains("href=\"lab/records/shared.jsonl\""));
    assert!(page.contains("own.jsonl\">own.jsonl</a>"));
    // Checks the simulator's predictions of published numbers.
    assert!(page.contains("cloudflare-2017") && page.contains("khalil-2019"));
    assert!(!page.contains("The simulator was left out"));
}

#[test]
fn figures_are_printed_and_no_page_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("r.jsonl"), RECORD).expect("written");
    let output = report(folder.path(), &["--json", "--no-simulation", "--records", "r.jsonl"]);
    assert!(output.status.success(), "{output:?}");
    let lines = text(&output.stdout);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times = lines
        .iter()
        .find(|line| line["what"] == "x: × AWS-LC")
        .expect("a quotient");
    assert_eq!((&times["value"], &times["machine"]), (&4.0.into(), &"A".into()));
    assert_eq!((&times["lines"][0], &times["by_lines"][0]), (&3.into(), &2.into()));
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
}

#[test]
fn a_broken_line_is_reported_and_does_not_stop_the_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = RECORD.replace("{\"kind\":\"end\"}", "{\"kind\":\"dance\\u001b[2J\"}\n{\"ki");
    fs::write(folder.path().join("r.jsonl"), broken).expect("written");
    let output = report(
        folder.path(),
        &["--no-simulation", "--records", ".", "--output", "a.html"],
    );
    assert!(output.status.success(), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("r.jsonl:4: the kind \"dance"), "{said}");
    assert!(said.contains("r.jsonl:5: it is not JSON"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let page = fs::read_to_string(folder.path().join("a.html")).expect("a page");
    assert!(page.contains("r.jsonl:5: it is not JSON"));
    assert!(page.contains("The simulator was left out"));
    assert!(!page.contains("khalil-2019"), "published numbers come with it");
}

#[test]
fn places_that_are_wrong_are_named_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    for (arguments, told) in [
        (["--records", "missing"], "nothing at missing: --records takes a folder"),
        (["--output", "no/such/folder.html"], "cannot write no/such/folder.html"),
        (["--profile", "missing.json"], "missing.json"),
    ] {
        let output = report(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains(told), "{said}");
    }
    fs::write(folder.path().join("other.json"), SAMPLE).expect("written");
    let output = report(folder.path(), &["--profile", "other.json"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("of another machine") && said.contains("widelane probe"),
        "{said}"
    );
}

/// The sample's profile as one of this machine; `None` if that is not known.
fn of_this_machine() -> Option<Profile> {
    let mut profile = Profile::from_json(SAMPLE).expect("the sample is a profile");
    profile.machine = Machine::here();
    let is_known = profile.machine.is_known();
    if !is_known {
        println!("SKIP: /proc/cpuinfo does not describe this machine");
    }
    is_known.then_some(profile)
}

#[test]
fn the_profile_of_this_machine_answers_the_question() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(profile) = of_this_machine() else {
        return;
    };
    profile.save(&folder.path().join("p.json")).expect("written");
    let output = report(folder.path(), &["--no-simulation", "--profile", "p.json"]);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(folder.path().join("widelane-report.html")).expect("a page");
    assert!(
        page.contains("<strong>Yes. </strong>Wide code lowers the clock here"),
        "{page}"
    );
}

#[test]
fn the_clocks_of_the_profile_are_drawn() {
    let folder = tempfile::tempdir().expect("a folder");
    let clocks = ["--clocks", "clocks.svg", "--profile", "p.json"];
    fs::write(folder.path().join("p.json"), SAMPLE).expect("written");
    let output = report(folder.path(), &clocks);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("of another machine"));
    let Some(profile) = of_this_machine() else {
        return;
    };
    profile.save(&folder.path().join("p.json")).expect("written");
    let output = report(folder.path(), &clocks);
    assert!(output.status.success(), "{output:?}");
    let svg = fs::read_to_string(folder.path().join("clocks.svg")).expect("a picture");
    assert!(svg.starts_with("<svg ") && svg.contains("512-heavy"), "{svg}");
    assert!(!folder.path().join("widelane-report.html").exists());
}

#[test]
fn latency_against_load_is_drawn_from_the_newest_record_that_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = folder.path().join("lab/records");
    fs::create_dir_all(&shared).expect("a folder");
    fs::write(shared.join("2026-01-03.jsonl"), RECORD).expect("written");
    let output = report(folder.path(), &["--latency", "latency.svg"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("handshakes curve --condition rsa-x25519"), "{told}");
    for (day, machine) in [("2026-01-01", "Old"), ("2026-01-02", "New")] {
        let line = |share: f64| {
            format!(
                "{{\"kind\":\"curve\",\"condition\":\"rsa-x25519\",\"side\":\"nginx\",\
                 \"share_of_knee\":{share},\"rate\":{},\"report\":{{\"p50_us\":100,\"p99_us\":900}}}}\n",
                share * 1000.0
            )
        };
        let run = RECORD
            .lines()
            .next()
            .expect("a line")
            .replace("\"A\"", &format!("\"{machine}\""));
        let record = format!("{run}\n{}{{\"kind\":\"end\"}}\n", [0.1, 0.5, 0.7].map(line).concat());
        fs::write(shared.join(format!("{day}.jsonl")), record).expect("written");
    }
    let output = report(folder.path(), &["--latency", "latency.svg"]);
    assert!(output.status.success(), "{output:?}");
    let svg = fs::read_to_string(folder.path().join("latency.svg")).expect("a picture");
    assert!(svg.contains("RSA-2048, X25519; New, "), "{svg}");
    assert!(!folder.path().join("widelane-report.html").exists());
}

#[test]
fn goodput_under_overload_is_drawn_from_the_record_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = folder.path().join("lab/records");
    fs::create_dir_all(&shared).expect("a folder");
    fs::write(shared.join("2026-01-03.jsonl"), RECORD).expect("written");
    let output = report(folder.path(), &["--goodput", "goodput.svg"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stderr);
    assert!(told.contains("`lab/overload` writes one"), "{told}");
    let line =
        r#"{"kind":"overload","server":"serve","key":"rsa","knee_per_s":9,"rate":9,"report":{"goodput_per_s":8}}"#;
    let record = format!("{}\n{line}\n", RECORD.lines().next().expect("a run"));
    fs::write(shared.join("2026-01-02.jsonl"), record).expect("written");
    let output = report(folder.path(), &["--goodput", "goodput.svg"]);
    assert!(output.status.success(), "{output:?}");
    let svg = fs::read_to_string(folder.path().join("goodput.svg")).expect("a picture");
    assert!(svg.contains("RSA-2048; A, 2026-01-02"), "{svg}");
    assert!(!folder.path().join("widelane-report.html").exists());
}

const SAMPLE: &str = include_str!("../../../tools/frequency/tests/data/profile.json");
