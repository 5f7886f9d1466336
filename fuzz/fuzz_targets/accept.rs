//! A reader of metrics can ask for anything. Choosing its form never panics, and OpenMetrics is for those who name it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_terminator::fuzzing::accepts_openmetrics;

fuzz_target!(|field: &[u8]| {
    let name = b"application/openmetrics-text";
    let is_named = field
        .windows(name.len())
        .any(|window| window.eq_ignore_ascii_case(name));
    assert!(is_named || !accepts_openmetrics(field));
});
