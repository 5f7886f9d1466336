//! Reading a scenario from hostile text never panics, and neither does making its runs ready.

#![no_main]

use libfuzzer_sys::fuzz_target;
use widelane_sim::{Scenario, Settings};

fuzz_target!(|text: &str| {
    let Ok(scenario) = Scenario::parse(text) else {
        return;
    };
    for run in &scenario.runs {
        if let Ok(plan) = scenario.plan(run, &Settings::default()) {
            assert!(plan.cores() > 0);
            for placed in plan.placements() {
                assert!(placed.vector_cores().unwrap_or(0) < plan.cores());
            }
        }
    }
});
