//! Any bytes as a record: reading them never panics and names the line of each fault; the page that
//! is made of them has no markup of theirs, and its figures are numbers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use widelane_report::{Inputs, report};
use widelane_samples::Record;

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let (record, mut faults) = Record::parse("record.jsonl", bytes);
    assert!(record.is_some() || !faults.is_empty());
    for fault in &faults {
        assert!(fault.line.is_none_or(|line| (1..=lines).contains(&line)), "{fault}");
    }
    if let Some(record) = &record {
        assert!(record.lines.iter().all(|line| line.value.is_object()));
        faults.extend(record.unknown(&["pair", "end"]));
    }
    let report = report(&Inputs {
        machine: "Intel".to_owned(),
        lanes: widelane_cpu::Lanes::ALL,
        licences: None,
        profile: Err("none".to_owned()),
        records: record.into_iter().collect(),
        faults,
        predictions: Vec::new(),
        commit: None,
        page: PathBuf::from("page.html"),
        made: 0,
    });
    let page = report.html();
    for markup in ["<script", "<img", "<iframe", "<!--"] {
        assert!(!page.contains(markup), "{markup}");
    }
    let figures = report.json();
    assert_eq!(page.matches("<data ").count(), figures.lines().count());
    for figure in figures.lines() {
        let figure: serde_json::Value = serde_json::from_str(figure).unwrap();
        assert!(figure["value"].is_number(), "{figure}");
    }
});
