//! What answers at a metrics address may be anything: it is read or refused, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_top::{metrics, rates};

fuzz_target!(|answer: &[u8]| {
    let Ok(samples) = metrics::parse(&String::from_utf8_lossy(answer)) else {
        return;
    };
    let half = samples.len() / 2;
    if let Some(server) = rates(&samples[..half], &samples, 1.0) {
        assert!(server.handshakes >= 0.0 && server.all.jobs >= 0.0);
    }
});
