//! Sources of figures: records, profiles, and their addresses seen from the page.

use std::path::{Component, Path, PathBuf, absolute};
use std::rc::Rc;
use time::OffsetDateTime;
use widelane_frequency::Profile;
use widelane_samples::{MODIFIED, Record, Source};

/// Common source of all figures of a record.
pub(crate) fn of_record(record: &Record, page: &Path) -> Rc<Source> {
    Source::of(record, Some(link(page, Path::new(&record.name))))
}

/// Common source of all figures of a profile.
pub(crate) fn of_profile(path: &Path, profile: &Profile, page: &Path) -> Rc<Source> {
    let (commit, modified) = commit_of(profile.commit.as_deref());
    let mut notes: Vec<String> = modified.then(|| MODIFIED.to_owned()).into_iter().collect();
    if profile.quick {
        notes.push("measured in a hurry".to_owned());
    }
    let vanished = profile.clocks.iter().map(|clock| clock.vanished.value);
    if vanished.fold(0.0, f64::max) > BUSY {
        notes.push("measured while the CPUs had much else to do".to_owned());
    }
    let quick = if profile.quick { " --quick" } else { "" };
    Rc::new(Source {
        machine: profile.machine.name.clone(),
        virtual_machine: profile.machine.virtual_machine,
        commit,
        date: date(profile.taken),
        name: path.display().to_string(),
        link: Some(link(page, path)),
        command: format!("widelane probe{quick}"),
        notes,
    })
}

/// Source without a file: numbers that `command` of this program computes.
pub(crate) fn of_program(command: &str, commit: Option<&str>, date: &str) -> Rc<Source> {
    let (commit, modified) = commit_of(commit);
    Rc::new(Source {
        machine: "simulated".to_owned(),
        commit,
        date: date.to_owned(),
        name: command.to_owned(),
        command: command.to_owned(),
        notes: modified.then(|| MODIFIED.to_owned()).into_iter().collect(),
        ..Source::default()
    })
}

/// A program's commit, and whether its sources were modified.
fn commit_of(commit: Option<&str>) -> (Option<String>, bool) {
    match commit.map(|all| (all.strip_suffix("-modified"), all)) {
        Some((Some(commit), _)) => (Some(commit.to_owned()), true),
        Some((None, commit)) => (Some(commit.to_owned()), false),
        None => (None, false),
    }
}

/// The day of a moment in seconds since 1970, like `2026-01-02`.
pub(crate) fn date(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let moment = OffsetDateTime::from_unix_timestamp(seconds);
    moment.map_or("unknown".to_owned(), |moment| moment.date().to_string())
}

/// The address of `file` in a page at `page`: relative, so that both can move together.
fn link(page: &Path, file: &Path) -> String {
    let whole = |path: &Path| absolute(path).unwrap_or_else(|_| path.to_owned());
    let (page, file) = (plain(&whole(page)), plain(&whole(file)));
    let folder: Vec<_> = page.parent().map_or(Vec::new(), |parent| parent.components().collect());
    let steps: Vec<_> = file.components().collect();
    let common = folder
        .iter()
        .zip(&steps)
        .take_while(|(one, other)| one == other)
        .count();
    let mut parts = vec!["..".to_owned(); folder.len() - common];
    let names = steps[common..]
        .iter()
        .map(|step| encoded(&step.as_os_str().to_string_lossy()));
    parts.extend(names);
    parts.join("/")
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for step in path.components() {
        match step {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            step => plain.push(step),
        }
    }
    plain
}

/// A name as a part of an address (RFC 3986, section 2.3: all but these are encoded).
fn encoded(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Share of vanished time from which on a profile should be measured again.
const BUSY: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_relative_and_encoded() {
        for (page, file, expected) in [
            ("/a/report.html", "/a/lab/records/r.jsonl", "lab/records/r.jsonl"),
            ("/a/b/report.html", "/a/c/../r x.jsonl", "../r%20x.jsonl"),
            ("/a/report.html", "/var/\"><b>", "../var/%22%3E%3Cb%3E"),
            ("report.html", "lab/r.jsonl", "lab/r.jsonl"),
        ] {
            assert_eq!(link(Path::new(page), Path::new(file)), expected);
        }
    }

    #[test]
    fn a_commit_and_changes_to_it_are_separated() {
        let sample = include_str!("../../../tools/frequency/tests/data/profile.json");
        let mut profile = Profile::from_json(sample).expect("the sample is a profile");
        for (commit, expected, notes) in [
            (Some("0123456789ab"), Some("0123456789ab"), 0),
            (Some("0123456789ab-modified"), Some("0123456789ab"), 1),
            (None, None, 0),
        ] {
            profile.commit = commit.map(str::to_owned);
            let measured = of_profile(Path::new("p.json"), &profile, Path::new("page.html"));
            let computed = of_program("widelane-lab simulate", commit, "2026-01-02");
            for source in [measured, computed] {
                assert_eq!(source.commit.as_deref(), expected);
                assert_eq!(source.notes.len(), notes, "{:?}", source.notes);
            }
        }
    }

    #[test]
    fn days() {
        assert_eq!(date(1_763_769_600), "2025-11-22");
        assert_eq!(date(u64::MAX), "unknown");
    }

    #[test]
    fn a_record_says_what_its_reader_must_know() {
        let text = r#"{"kind":"run","schema":4,"started":"2026-11-23T18:38:21Z","machine":{"cpu":"A","modified":true}}
{"kind":"pair"}"#;
        let (record, _) = Record::parse("r/a.jsonl", text.as_bytes());
        let source = of_record(&record.expect("a record"), Path::new("page.html"));
        assert_eq!(source.name, "a.jsonl");
        assert_eq!(source.link.as_deref(), Some("r/a.jsonl"));
        assert_eq!(source.notes.len(), 2, "{:?}", source.notes);
        assert_eq!(source.date, "2026-11-23");
    }
}
