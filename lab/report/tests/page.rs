//! The page of the laboratory's own records: each figure on it is the one of the lines that it
//! names, nothing comes from elsewhere, and nothing in a record becomes markup.

mod common;

use common::{Element, Page, inputs, page_of, profile, records_of_the_laboratory};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use widelane_report::{Inputs, records, report};
use widelane_sim::Comparison;

#[test]
fn every_figure_is_the_one_of_the_lines_that_it_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let inputs = inputs(folder.path());
    let page = Page::read(report(&inputs).html());
    let mut files: HashMap<PathBuf, Vec<Value>> = HashMap::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for figure in page.elements("data") {
        let origin = figure.attribute("title").unwrap_or_default();
        let number = |name: &str| figure.attribute(name).and_then(|text| text.parse::<f64>().ok());
        let value = number("value").expect("a figure has a value");
        let (low, high) = (number("data-low"), number("data-high"));
        let file = folder
            .path()
            .join(decoded(figure.attribute("data-record").expect("a record")));
        let lines = files.entry(file.clone()).or_insert_with(|| {
            let text = fs::read_to_string(&file).expect("the record is there");
            match serde_json::from_str(&text) {
                Ok(profile) => vec![profile],
                Err(_) => text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
            }
        });
        let field = figure.attribute("data-field").expect("a field");
        let statistic = figure.attribute("data-statistic").expect("a statistic");
        let scale = number("data-scale").expect("a scale");
        let of = |name: &str| -> Vec<Vec<f64>> {
            let numbers = figure.attribute(name).unwrap_or_default().split_whitespace();
            let at = |number: &str| numbers_at(&lines[number.parse::<usize>().unwrap() - 1], field);
            numbers.map(at).collect()
        };
        let all = match statistic {
            "value" => numbers_at(&lines[0], field),
            "quotient" => {
                let pairs = of("data-lines").into_iter().zip(of("data-by"));
                let each = pairs.flat_map(|(ours, theirs)| {
                    assert_eq!(ours.len(), theirs.len(), "{origin}");
                    ours.into_iter().zip(theirs).map(|(our, their)| our / their)
                });
                each.collect()
            }
            "median" | "sum" => of("data-lines").concat(),
            other => panic!("{origin}: {other} is no statistic of a file"),
        };
        let all: Vec<f64> = all.into_iter().map(|number| number * scale).collect();
        let meant = match statistic {
            "sum" => all.iter().sum(),
            _ => middle(&all),
        };
        assert!(same(value, meant), "{origin}: shows {value}, the lines say {meant}");
        for end in [low, high].into_iter().flatten() {
            let known = statistic == "value" || all.iter().any(|number| same(*number, end));
            assert!(known, "{origin}: {end} is an end of the interval and in no line");
        }
        if let (Some(low), Some(high)) = (low, high) {
            assert!(low <= value && value <= high, "{origin}: {low} {value} {high}");
        }
        shows(figure, value, origin);
        *seen.entry(statistic.to_owned()).or_default() += 1;
    }
    // The records have all of these, so that nothing above was looked at in vain.
    for (statistic, at_least) in [("median", 300), ("quotient", 80), ("sum", 20), ("value", 20)] {
        let count = seen.get(statistic).copied().unwrap_or_default();
        assert!(count >= at_least, "{count} of {statistic}: {seen:?}");
    }
}

#[test]
fn programs_get_the_figures_of_the_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = report(&inputs(folder.path()));
    let page = Page::read(report.html());
    let shown: Vec<f64> = page
        .elements("data")
        .map(|figure| figure.attribute("value").unwrap().parse().unwrap())
        .collect();
    let lines: Vec<Value> = report
        .json()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let printed: Vec<f64> = lines.iter().map(|line| line["value"].as_f64().unwrap()).collect();
    // A tile repeats a figure of the sentence above it, in both.
    assert_eq!(shown, printed);
    for line in &lines {
        for key in ["machine", "date", "record", "what", "section"] {
            assert!(line[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {line}");
        }
        assert!(
            line["interval"].is_object() != line["no_interval"].is_string(),
            "{line}"
        );
        assert_eq!(line["commit"].as_str().map(str::is_empty), Some(false), "{line}");
    }
}

#[test]
fn the_page_needs_no_other_file_and_its_links_lead_somewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = report(&inputs(folder.path())).html().to_owned();
    let page = Page::read(&text);
    let ids: Vec<_> = page.all().filter_map(|element| element.attribute("id")).collect();
    let mut records = 0;
    for link in page.elements("a") {
        let target = link.attribute("href").expect("a link has a target");
        match target.strip_prefix('#') {
            Some(id) => assert!(ids.contains(&id), "{target}"),
            None => {
                assert!(folder.path().join(decoded(target)).is_file(), "{target}");
                records += 1;
            }
        }
    }
    assert!(records > 20, "{records}");
    for element in page.all() {
        let name = &element.name[..];
        let loads = [
            "script", "link", "img", "iframe", "object", "embed", "base", "image", "use",
        ];
        assert!(!loads.contains(&name), "<{name}>");
        for (attribute, value) in &element.attributes {
            let loads = attribute == "src" || attribute.starts_with("on") || value.contains("://");
            assert!(!loads || attribute == "xmlns", "<{name} {attribute}={value:?}>");
        }
    }
    for from_elsewhere in ["url(", "@import", "@font-face"] {
        assert!(!text.contains(from_elsewhere), "{from_elsewhere}");
    }
}

/// The style sheet replaces colours by their value: one that it does not know would stay light.
#[test]
fn dark_paper_has_a_colour_for_each_in_the_pictures() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = report(&inputs(folder.path())).html().to_owned();
    let page = Page::read(&text);
    let mut colours = 0;
    for element in page.all() {
        for (attribute, value) in &element.attributes {
            if ["fill", "stroke"].contains(&&attribute[..]) && value.starts_with('#') {
                let rule = format!("svg [{attribute}=\"{value}\"]{{{attribute}:#");
                assert!(text.contains(&rule), "{rule}");
                colours += 1;
            }
        }
    }
    assert!(colours > 500, "{colours}");
}

#[test]
fn operations_are_shown_in_the_lanes_that_were_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = "../records/2026-11-28-intel-r-xeon-r-processor-speed-2.jsonl";
    let (records, faults) = records(&[Path::new(env!("CARGO_MANIFEST_DIR")).join(record)]);
    let report = report(&Inputs {
        records,
        faults,
        ..inputs(folder.path())
    });
    assert!(report.html().contains("rsa2048-sign: × AWS-LC"));
    assert!(report.html().contains(">avx512f<"));
}

#[test]
fn nothing_in_a_record_becomes_markup() {
    const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&amp;</title>";
    let folder = tempfile::tempdir().expect("a folder");
    let mut lines = vec![json!({"kind": "run", "schema": 5, "started": HOSTILE,
        "command": HOSTILE, "machine": {"cpu": HOSTILE, "commit": HOSTILE, "modified": false,
            "nginx": [format!("nginx version: nginx/{HOSTILE}")]}})];
    for round in 0..6 {
        for side in ["nginx", HOSTILE] {
            let report = json!({"handshakes_per_s": 100 + round, "errors": 0,
                "server_cpu_us_per_handshake": 7});
            for kind in ["pair", "ways-in", "closed"] {
                lines.push(json!({"kind": kind, "server": HOSTILE, "side": side, "round": round,
                    "condition": HOSTILE, "in_flight": 16, "report": report}));
            }
        }
        lines.push(json!({"kind": "experiment", "scenario": HOSTILE, "what": HOSTILE,
            "value": 3 + round, "published": 2, "simulated": 2.5}));
    }
    for backend in ["avx512ifma", "aws-lc"] {
        let in_flight = if backend == "aws-lc" { 1 } else { 8 };
        lines.push(
            json!({"kind": "speed", "result": {"operation": HOSTILE, "backend": backend,
            "in_flight": in_flight, "ops_per_s": 2.0, "samples": [1.0, 2.0], "reason": HOSTILE,
            "multiply_adds_per_ns": 2.0}}),
        );
    }
    lines.push(json!({"kind": HOSTILE}));
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    let name = "a\"'><script>b<i>c.jsonl";
    fs::write(folder.path().join(name), text.join("\n") + "\nbroken").expect("written");
    let (records, faults) = records(&[folder.path().to_owned()]);
    let mut profile = profile();
    profile.machine.name = HOSTILE.to_owned();
    let report = report(&Inputs {
        machine: HOSTILE.to_owned(),
        profile: Ok((PathBuf::from(HOSTILE), profile)),
        records,
        faults,
        predictions: vec![Comparison {
            scenario: HOSTILE.to_owned(),
            what: HOSTILE.to_owned(),
            published: 10.0,
            simulated: 12.0,
            error: 0.2,
            tolerance: 0.1,
            held_out: true,
            explanation: Some(HOSTILE.to_owned()),
        }],
        ..inputs(folder.path())
    });
    let page = Page::read(report.html());
    let allowed = [
        "a",
        "body",
        "circle",
        "code",
        "data",
        "details",
        "div",
        "figcaption",
        "figure",
        "h1",
        "h2",
        "h3",
        "head",
        "header",
        "html",
        "li",
        "line",
        "main",
        "meta",
        "nav",
        "p",
        "path",
        "polygon",
        "polyline",
        "rect",
        "section",
        "small",
        "span",
        "strong",
        "style",
        "summary",
        "svg",
        "table",
        "tbody",
        "td",
        "text",
        "th",
        "thead",
        "time",
        "title",
        "tr",
        "ul",
    ];
    for element in page.all() {
        assert!(allowed.contains(&&element.name[..]), "<{}>", element.name);
        let scripted = element.attributes.iter().any(|(name, _)| name.starts_with("on"));
        assert!(!scripted, "<{} {:?}>", element.name, element.attributes);
    }
    // The hostile text is there, as text: in the tables, in pictures, in faults, and where a number is missing.
    assert!(page.text.matches(HOSTILE).count() > 20, "{}", page.text);
    assert!(page.text.contains("the kind") && page.text.contains("it is not JSON"));
    assert!(page.elements("title").count() == 1);
}

#[test]
fn faults_are_listed_with_file_and_line_and_the_rest_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let (name, text) = records_of_the_laboratory()
        .into_iter()
        .find(|(name, _)| name.contains("widelane-on-nginx-64.jsonl"))
        .expect("a pair");
    // One line of many breaks, and another one is of the future.
    let mut lines: Vec<&str> = text.lines().collect();
    let cut = &lines[4][..100];
    lines[4] = cut;
    lines.push("{\"kind\":\"dance\"}");
    fs::write(folder.path().join(&name), lines.join("\n")).expect("written");
    let (records, faults) = records(&[folder.path().to_owned()]);
    let report = report(&Inputs {
        records,
        faults,
        ..inputs(folder.path())
    });
    let page = Page::read(report.html());
    for fault in [
        format!("{name}:5: it is not JSON"),
        format!("{name}:83: the kind \"dance\""),
    ] {
        assert!(page.text.contains(&fault), "{fault}");
    }
    // The pair of the broken line is missing, and the others still are pairs.
    let answer: Value = report
        .json()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|line: &Value| line["what"] == "RSA-2048, X25519: × nginx")
        .expect("the answer");
    let pairs = answer["lines"].as_array().unwrap().len();
    assert_eq!((pairs, answer["by_lines"].as_array().unwrap().len()), (19, 19));
}

#[test]
fn the_answer_is_that_of_the_profile_and_of_the_nearest_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = |inputs: &Inputs| {
        let page = page_of(inputs);
        let (_, answer) = page.text.split_once("Do I have this problem?").expect("the question");
        let (answer, _) = answer.split_once("This machine").expect("the contents");
        let answer = answer.split_whitespace().collect::<Vec<_>>().join(" ");
        let (problem, answer) = answer.split_once(" afterwards. ").expect("what it is about");
        assert!(problem.contains("can lower the clock of a core"), "{problem}");
        answer.to_owned()
    };
    let mut inputs = inputs(folder.path());
    let answer = text(&inputs);
    assert!(answer.starts_with("Yes."), "{answer}");
    assert!(answer.contains("it falls to 66.7 % (66.0 to 67.4)"), "{answer}");
    assert!(answer.contains("on cores of their own"), "{answer}");
    assert!(answer.contains("the nearest CPU with a record"), "{answer}");

    inputs.machine = "AMD EPYC".to_owned();
    let answer = text(&inputs);
    assert!(answer.contains("On a CPU of this name, one core completes 3.99 (3.95 to 4.03) times"));

    let measured = inputs.profile.clone();
    if let Ok((_, hasty)) = &mut inputs.profile {
        (hasty.quick, hasty.commit) = (true, Some("0123456-modified".to_owned()));
    }
    // Which sources the program was of is no reason to doubt the clock; a hurry is.
    let answer = text(&inputs);
    let told = "after a burst (measured in a hurry).";
    assert!(answer.contains(told), "{answer}");
    inputs.profile = measured;

    let (path, mut free) = inputs.profile.clone().expect("a profile");
    for clock in &mut free.clocks {
        clock.of_scalar.value = 1.0;
        (clock.of_scalar.low, clock.of_scalar.high) = (0.99, 1.01);
    }
    inputs.profile = Ok((path, free));
    let answer = text(&inputs);
    assert!(answer.starts_with("No."), "{answer}");
    assert!(
        answer.contains("100.0 % (99.0 to 101.0) of that of scalar code"),
        "{answer}"
    );

    inputs.profile = Err("no profile of this machine: /x/profile.json: not there".to_owned());
    let answer = text(&inputs);
    assert!(answer.starts_with("Not known yet."), "{answer}");
    assert!(answer.contains("widelane probe && widelane-lab report"), "{answer}");

    for (licences, begin) in [(true, "Probably. "), (false, "Probably not. ")] {
        inputs.licences = Some(licences);
        let answer = text(&inputs);
        assert!(answer.starts_with(begin), "{answer}");
        assert!(answer.contains("was not measured"), "{answer}");
    }

    inputs.lanes = widelane_cpu::Lanes::NONE;
    let answer = text(&inputs);
    assert!(answer.contains("gains nothing"), "{answer}");
    assert!(!answer.contains("On a CPU of this name"), "{answer}");
    // A record may be of a CPU that has the same name, and lanes.
    let elsewhere = "On a CPU that has them (AMD EPYC), one core completes 3.99";
    assert!(answer.contains(elsewhere), "{answer}");
    assert_eq!(answer.matches("(on another CPU: AMD EPYC)").count(), 3, "{answer}");
}

#[test]
fn experiments_have_published_simulated_and_measured_numbers_beside_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut lines = vec![json!({"kind": "run", "started": "2026-01-02T", "machine": {"cpu": "A",
        "commit": "0123456789", "modified": false}})];
    for round in 0..7 {
        lines.push(json!({"kind": "experiment", "scenario": "cloudflare-2017",
            "what": "change of requests/s, %", "round": round, "value": -9.0 - f64::from(round)}));
    }
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(folder.path().join("x.jsonl"), text.join("\n")).expect("written");
    let (records, faults) = records(&[folder.path().to_owned()]);
    let prediction = |what: &str, error: f64, explanation: Option<&str>| Comparison {
        scenario: "cloudflare-2017".to_owned(),
        what: what.to_owned(),
        published: -10.0,
        simulated: -10.5,
        error,
        tolerance: 0.1,
        held_out: false,
        explanation: explanation.map(str::to_owned),
    };
    let page = page_of(&Inputs {
        records,
        faults,
        predictions: vec![
            prediction("change of requests/s, %", 0.05, None),
            prediction("another", 0.5, Some("it was measured with less memory")),
            prediction("a third", 0.5, None),
        ],
        ..inputs(folder.path())
    });
    let (_, section) = page.text.rsplit_once("Held out:").expect("the section");
    let rows: Vec<String> = section
        .split('\n')
        .map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let row = |start: &str| rows.iter().find(|row| row.starts_with(start)).expect("a row");
    let measured = row("change of requests/s, % -10");
    assert!(measured.contains("-10.5 -12 -15 to -9 0.05 0.1 no"), "{measured}");
    assert!(
        measured.contains("x.jsonl lines 2–8 (A, 2026-01-02, commit 0123456)"),
        "{measured}"
    );
    let missed = row("another -10");
    assert!(missed.contains("0.5 misses 0.1"), "{missed}");
    let told = "another misses its tolerance : it was measured with less memory.";
    assert_eq!(row("another misses"), told);
    let told = "a third misses its tolerance : not explained.";
    assert_eq!(row("a third misses"), told);
    assert!(
        section.contains("On the dangers of Intel's frequency scaling"),
        "{section}"
    );
    let chart = page.elements("circle").count();
    assert_eq!(chart, 4, "three simulated numbers and a measured one");

    let empty = page_of(&Inputs {
        records: Vec::new(),
        ..inputs(folder.path())
    });
    assert!(empty.text.contains("widelane-lab experiment cloudflare --record DIR"));
}

/// Checks that the shown text has the value, to the digits that it shows.
fn shows(figure: &Element, value: f64, origin: &str) {
    let shown = figure.text.replace(',', "");
    let digits: String = shown
        .chars()
        .take_while(|c| c.is_ascii_digit() || "-.".contains(*c))
        .collect();
    let number: f64 = digits.parse().unwrap_or_else(|_| panic!("{origin}: {shown:?}"));
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let value = match figure.attribute("data-unit") {
        Some("share") => 100.0 * value,
        _ => value,
    };
    let half = 0.5 * 10f64.powi(-(decimals as i32));
    assert!(
        (number - value).abs() <= half * 1.0001,
        "{origin}: {shown:?} is not {value}"
    );
}

fn numbers_at(line: &Value, field: &str) -> Vec<f64> {
    match line.pointer(field) {
        Some(Value::Array(all)) => all.iter().map(|one| one.as_f64().unwrap()).collect(),
        Some(one) => one.as_f64().into_iter().collect(),
        None => Vec::new(),
    }
}

fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[half],
        _ => (sorted[half - 1] + sorted[half]) / 2.0,
    }
}

fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

/// The path that an address means.
fn decoded(address: &str) -> PathBuf {
    let bytes = address.as_bytes();
    let (mut path, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let code = address.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                path.push(byte);
                at += 3;
            }
            None => {
                path.push(bytes[at]);
                at += 1;
            }
        }
    }
    Path::new(&String::from_utf8(path).expect("a name")).to_owned()
}
