//! Reading a file of costs from hostile text never panics; what is accepted is what would be
//! written, and every cost in it leads to a decision.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_engine::calibration::Record;

fuzz_target!(|text: &str| {
    // Most variations of a file break its frame, which hides what they do to its lines.
    let framed = format!("widelane costs 1\nmachine m\n{text}\nend\n");
    for text in [text, &framed] {
        let Ok(record) = text.parse::<Record>() else {
            continue;
        };
        assert_eq!(record.to_string(), text);
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
