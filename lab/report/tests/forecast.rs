//! Tests that the predictions of `advise` for processors without AVX-512 IFMA rest on a record.

use std::path::Path;

use widelane_frequency::RSA2048_IN_AVX2;
use widelane_samples::Record;

#[test]
fn the_forecast_is_the_quotient_of_the_record() {
    let file = "../records/2026-11-28-intel-r-xeon-r-processor-speed-2.jsonl";
    let (record, faults) = Record::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    assert!(faults.is_empty(), "{faults:?}");
    let record = record.expect("a record");
    let rate = |backend: &str, in_flight: u64| {
        let mut results = record.of("speed").map(|line| &line.value["result"]);
        let found = results.find(|one| {
            one["operation"] == "rsa2048-sign" && one["backend"] == backend && one["in_flight"] == in_flight
        });
        found
            .and_then(|one| one["ops_per_s"].as_f64())
            .expect("it was measured")
    };
    let quotient = rate("avx2", 8) / rate("aws-lc", 1);
    assert!((quotient - RSA2048_IN_AVX2).abs() < 0.005, "{quotient}");
}
