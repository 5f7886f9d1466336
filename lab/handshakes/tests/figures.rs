//! Every figure in the documents is the one of its record.

use std::fs;
use std::path::{Path, PathBuf};
use widelane_handshakes::{faults, renew};

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("two levels up").to_owned()
}

const DOCUMENTS: [&str; 2] = ["README.md", "docs/measurements.md"];

#[test]
fn documents_say_what_their_records_say() {
    for document in DOCUMENTS {
        let faults = faults(&root(), Path::new(document)).expect("a document with marks");
        assert!(
            faults.is_empty(),
            "{}\nwrite them with: handshakes figures --write {}",
            faults.join("\n"),
            DOCUMENTS.join(" ")
        );
        let text = fs::read_to_string(root().join(document)).expect("a document");
        assert!(text.contains("<!-- figures "), "{document} has no figures");
    }
}

#[test]
fn planted_figures_are_found_and_can_be_renewed() {
    let folder = tempfile::tempdir().expect("a folder");
    let plant = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("writable");
        fs::write(file, text).expect("writable");
    };
    let record = r#"{"kind":"run","command":"handshakes speed","machine":{}}
{"kind":"speed","result":{"operation":"x","backend":"avx512ifma","in_flight":8,"ops_per_s":40.0,"times_aws_lc":4.04}}
"#;
    plant("r.jsonl", record);
    let document = Path::new("docs/page.md");
    let right = "A pass is <!-- figures times r.jsonl x -->4.0<!-- /figures --> times as fast.\n";
    plant("docs/page.md", right);
    let found = || faults(folder.path(), document).expect("a document");
    assert_eq!(found(), [""; 0]);
    assert!(!renew(folder.path(), document).expect("a document"));

    plant("docs/page.md", &right.replace("4.0<", "4.1<"));
    let [fault] = &found()[..] else {
        panic!("{:?}", found())
    };
    assert!(fault.starts_with("docs/page.md:1:"), "{fault}");
    assert!(fault.contains("4.1") && fault.contains("4.0"), "{fault}");
    assert!(renew(folder.path(), document).expect("a document"));
    let renewed = fs::read_to_string(folder.path().join(document)).expect("a document");
    assert_eq!(renewed, right);

    plant("docs/page.md", &right.replace("A pass is ", "A pass is\n"));
    let [fault] = &found()[..] else {
        panic!("{:?}", found())
    };
    assert!(
        fault.starts_with("docs/page.md:2:") && fault.contains("HTML"),
        "{fault}"
    );

    plant(
        "docs/page.md",
        &format!("{right}\nA signature takes 61 µs.\n"),
    );
    let [fault] = &found()[..] else {
        panic!("{:?}", found())
    };
    assert!(
        fault.starts_with("docs/page.md:3:") && fault.contains("61 µs"),
        "{fault}"
    );
}
