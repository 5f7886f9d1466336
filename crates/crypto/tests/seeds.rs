//! Test of the sources of seeds for AWS-LC's random generators.

#![forbid(unsafe_code)]

use std::fs;

/// `.cargo/config.toml` switches the jitter of the CPU's clock off as a source
/// (docs/decisions/random-seeds.md). Nothing but the time that a process takes to start tells that a
/// build has lost this setting.
#[test]
fn no_seed_comes_from_jitter() {
    let program = fs::read("/proc/self/exe").unwrap();
    // Names are written backwards, so that the program has no such text but the symbol's own name.
    let has_symbol = |backwards: &str| {
        let name: Vec<u8> = backwards.bytes().rev().collect();
        program.windows(name.len()).any(|bytes| bytes == name)
    };
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).unwrap();
    assert!(has_symbol("tini_GBRD_RTC"), "AWS-LC's names can be found");
    assert!(!has_symbol("tini_yportne_tnej"), "jitter is a source");
}
