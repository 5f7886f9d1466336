//! A page of counters comes from another process's memory: it is read or refused, never with more
//! rows than a page has room for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::Duration;
use widelane_status::{LONGEST, MOST_OPERATIONS, MOST_REASONS, Report, SIZE};

const NOW: Duration = Duration::from_secs(1 << 20);

fuzz_target!(|bytes: &[u8]| {
    // Most inputs are shorter than a page.
    let mut page = bytes.to_vec();
    page.resize(SIZE, 0);
    for bytes in [bytes, &page] {
        let Ok(report) = Report::parse(bytes) else {
            continue;
        };
        assert_eq!(bytes.len(), SIZE);
        match report.in_proof.at(NOW) {
            Some(asked) => {
                assert_eq!(asked, report.asked(NOW));
                assert!(NOW < report.in_proof.until && report.in_proof.until <= NOW + LONGEST);
            }
            None => assert_eq!(report.operator, report.asked(NOW)),
        }
        for times in [&report.signed_times, &report.agreed_times] {
            let tail = times.quantile(0.99);
            assert!(tail >= times.quantile(0.5) && tail.is_some() == (times.total() > 0));
        }
        assert!(report.proved.age(NOW).is_none_or(|age| age < NOW));
        let wait = report.overload.wait(99);
        assert!(wait.is_none_or(|below| below.is_power_of_two() && below <= 16_384));
        assert!(report.operations.len() <= MOST_OPERATIONS);
        assert!(report.reasons.len() <= MOST_REASONS);
        assert!(report.reasons.iter().all(|reason| !reason.text.contains('\0')));
    }
});
