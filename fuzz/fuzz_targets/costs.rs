//! Reading a calibration file from hostile text never panics. An accepted record is read again as it
//! is written, and each of its costs leads to a decision.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_engine::calibration::Record;

fuzz_target!(|text: &str| {
    // Most variations of a file break its frame, and then the entries are not looked at.
    let framed = format!(
        r#"{{"format":"widelane costs 4","machine":"m","entries":[
            {{"operation":"o","methods":["a","b"],{text}}}],"comparisons":[]}}"#
    );
    for text in [text, &framed] {
        let Ok(record) = text.parse::<Record>() else {
            continue;
        };
        assert_eq!(record.to_string().parse().as_ref(), Ok(&record));
        for entry in record.entries() {
            let costs = entry.costs;
            let worth = costs.worth();
            assert!(worth >= 1);
            for jobs in 1..=costs.lanes {
                let split = costs.split(jobs);
                assert_eq!(split.in_lanes + split.alone, jobs);
                assert_eq!(split.alone == 0, jobs >= worth);
            }
        }
    }
});
