//! Every figure in the documents is the one of its record.

use std::fs;
use std::path::{Path, PathBuf};
use widelane_samples::{faults, renew};

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
    let record = r#"{"kind":"run","started":"2026-01-02T03:04:05Z","command":"handshakes timing","machine":{"cpu":"A CPU","modified":false}}
{"kind":"timing","finding":{"operation":"x","classes":["one","two"],"measurements":5000,"t":4.04}}
{"kind":"end"}
"#;
    plant("r.jsonl", record);
    let document = Path::new("docs/page.md");
    let right = "<!-- figures timing r.jsonl -->
| operation | classes | measurements | max \\|t\\| |
| --- | --- | --- | --- |
| `x` | one; two | 5,000 | 4.0 |

Record: [A CPU](../r.jsonl), 2026-01-02.

<!-- /figures -->
";
    plant("docs/page.md", right);
    let found = || faults(folder.path(), document).expect("a document");
    assert_eq!(found(), [""; 0]);
    assert!(!renew(folder.path(), document).expect("a document"));

    plant("docs/page.md", &right.replace("4.0", "4.1"));
    let [fault] = &found()[..] else { panic!("{:?}", found()) };
    assert!(fault.starts_with("docs/page.md:1:"), "{fault}");
    assert!(fault.contains("4.1") && fault.contains("4.0"), "{fault}");
    assert!(renew(folder.path(), document).expect("a document"));
    let renewed = fs::read_to_string(folder.path().join(document)).expect("a document");
    assert_eq!(renewed, right);

    plant("docs/page.md", &format!("{right}\nA signature takes 61 µs.\n"));
    let [fault] = &found()[..] else { panic!("{:?}", found()) };
    assert!(
        fault.starts_with("docs/page.md:10:") && fault.contains("61 µs"),
        "{fault}"
    );
}
