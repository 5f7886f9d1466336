//! Measures the speed of the simulator on this machine: `make simulate-speed`.
//!
//! 256 cores of a Silver 4116 serve Cloudflare's pages at full load for 1 and for 10 simulated
//! seconds. Prints events a second, the time, and the most memory that the process had so far.

use std::time::Instant;

use widelane_sim::{BUILTIN, Scenario, ScenarioError, Settings, simulate};

fn main() -> Result<(), ScenarioError> {
    let (_, text) = BUILTIN[0];
    let settings = Settings {
        cores: Some(256),
        ..Settings::default()
    };
    for seconds in ["1", "10"] {
        let text = text.replace("seconds = 4\n", &format!("seconds = {seconds}\n"));
        let text = text.replace("value = 960", "value = 10240");
        let scenario = Scenario::parse(&text)?;
        let plan = scenario.plan(scenario.run("chacha20-10")?, &settings)?;
        let began = Instant::now();
        let events = simulate(&plan).events;
        let took = began.elapsed().as_secs_f64();
        println!(
            "{seconds:>2} simulated seconds: {events} events in {took:.1} s, {:.1} million a second; {}",
            events as f64 / took / 1e6,
            most_memory()
        );
    }
    Ok(())
}

fn most_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let words = line.unwrap_or("VmHWM: unknown").split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}
