//! Pictures in the documents are those of the records.

use std::fs;
use std::path::Path;

use widelane_report::{goodput, records};

/// `widelane-lab report --goodput docs/goodput-overload.svg`, in the folder of the sources, draws it anew.
#[test]
fn goodput_under_overload_is_drawn_from_the_last_record() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (records, _) = records(&[sources.join("lab/records")]);
    let drawn = goodput(&records).expect("a record of overload");
    let kept = fs::read_to_string(sources.join("docs/goodput-overload.svg")).expect("a picture");
    assert!(
        drawn == kept,
        "run: widelane-lab report --goodput docs/goodput-overload.svg"
    );
}
