//! The files to read.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use widelane_samples::{Fault, Record};

/// The records in these folders (files that end in `.jsonl`) and files, each once, and what is
/// wrong with them: nothing stops here.
pub fn records(places: &[PathBuf]) -> (Vec<Record>, Vec<Fault>) {
    let (mut records, mut faults) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let kinds: Vec<_> = KINDS.split_whitespace().collect();
    for place in places {
        let files = match files(place) {
            Ok(files) => files,
            Err(error) => {
                faults.push(Fault {
                    record: place.display().to_string(),
                    line: None,
                    what: format!("cannot be read: {error}"),
                });
                continue;
            }
        };
        for file in files {
            let same = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            if !seen.insert(same) {
                continue;
            }
            let (record, wrong) = Record::read(&file);
            faults.extend(wrong);
            if let Some(record) = record {
                faults.extend(record.unknown(&kinds));
                records.push(record);
            }
        }
    }
    (records, faults)
}

/// The records at a place, in the order of their names.
fn files(place: &PathBuf) -> std::io::Result<Vec<PathBuf>> {
    if !fs::metadata(place)?.is_dir() {
        return Ok(vec![place.clone()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Kinds of lines that the laboratory writes; not all of them are shown.
const KINDS: &str = "\
    beside closed curve curve-knee end experiment inheritor memory open overload pair proof relay \
    scaling speed start suite timing ways-in ways-in-servers";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_whatever_is_wrong_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let run = r#"{"kind":"run","machine":{}}"#;
        for (name, text) in [
            ("a.jsonl", format!("{run}\n{{\"kind\":\"pair\"}}\nbroken\n")),
            ("b.jsonl", format!("{run}\n{{\"kind\":\"dance\"}}\n")),
            ("c.jsonl", "broken\n".to_owned()),
            ("d.txt", "no record\n".to_owned()),
        ] {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let own = folder.path().to_owned();
        let places = [own.clone(), own.join("a.jsonl"), own.join("missing")];
        let (records, faults) = records(&places);
        let names: Vec<_> = records.iter().map(|record| &record.name[..]).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let shown: Vec<_> = faults.iter().map(Fault::to_string).collect();
        let shown: Vec<_> = shown.iter().map(|fault| fault.rsplit('/').next().unwrap()).collect();
        assert_eq!(shown.len(), 4, "{shown:?}");
        assert!(shown[0].starts_with("a.jsonl:3: it is not JSON"), "{shown:?}");
        assert!(shown[1].starts_with("b.jsonl:2: the kind \"dance\""), "{shown:?}");
        assert!(shown[2].starts_with("c.jsonl:1: "), "{shown:?}");
        assert!(shown[3].starts_with("missing: cannot be read"), "{shown:?}");
    }
}
