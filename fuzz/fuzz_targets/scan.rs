//! Any file may be given to the scanner: it refuses it or scans what is there, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    if let Ok(image) = widelane_scan::scan_bytes(Path::new("input"), data) {
        // What it reports is in the file: no function is longer than it, none is empty.
        for function in &image.functions {
            assert!(function.size > 0 && function.size <= data.len() as u64);
            assert!(function.counts.iter().sum::<u64>() <= function.size);
        }
    }
});
