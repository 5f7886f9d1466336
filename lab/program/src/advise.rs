//! `widelane-lab advise`: which placement suits a workload, by simulation.

use crate::simulate;
use serde_json::json;
use std::fmt::Write as _;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_sim::{Settings, WorkloadAdvice};

/// Say which placement suits a workload on a processor, by simulation
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The processor, like "Gold 6130" [default: the workload's own]
    #[arg(value_name = "MODEL")]
    model: Option<String>,

    /// The workload: a scenario of `widelane-lab simulate`, or its file
    #[arg(long, value_name = "FILE|NAME")]
    workload: String,

    /// The physical cores of the processor
    #[arg(long, value_name = "N")]
    cores: Option<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let name = &args.workload;
    let scenario = simulate::parse(name, &simulate::text(name)?)?;
    let settings = Settings {
        model: args.model.clone(),
        cores: args.cores,
        ..Settings::default()
    };
    let advice = scenario.advise(&settings);
    let advice = advice.map_err(|error| simulate::wrong(name, &error))?;
    if args.json {
        return output::print(&format!("{}\n", workload_json(name, &advice)));
    }
    output::print(&workload_words(name, &advice))
}

fn workload_words(name: &str, advice: &WorkloadAdvice) -> String {
    let cores = advice.cores;
    let plural = if cores == 1 { "" } else { "s" };
    let mut text = format!(
        "{name}, {} on a {} with {cores} core{plural} (simulated): {:.1} % of the CPU time is wide code\n  \
         as it is, {:.0} requests/s\n",
        advice.run, advice.model, advice.wide_percent, advice.as_is
    );
    let mut shown = Vec::new();
    for option in &advice.options {
        // The best number of vector cores is enough for people.
        if shown.contains(&option.placement) {
            continue;
        }
        shown.push(option.placement);
        let cores = match option.vector_cores {
            None => String::new(),
            Some(0) => ", inline".to_owned(),
            Some(1) => format!(", 1 vector core of {cores}"),
            Some(count) => format!(", {count} vector cores of {cores}"),
        };
        let _ = writeln!(
            text,
            "  {:+6.1} % requests/s, {:+6.1} % p99: {}{cores}",
            option.gain_percent, option.p99_percent, option.placement
        );
    }
    text
}

fn workload_json(name: &str, advice: &WorkloadAdvice) -> serde_json::Value {
    let options = advice.options.iter().map(|option| {
        json!({
            "placement": option.placement.name(),
            "vector_cores": option.vector_cores,
            "requests_percent": option.gain_percent,
            "p99_percent": option.p99_percent,
        })
    });
    json!({
        "workload": name,
        "run": advice.run,
        "model": advice.model,
        "cores": advice.cores,
        "wide_percent": advice.wide_percent,
        "requests_per_s": advice.as_is,
        "options": options.collect::<Vec<_>>(),
    })
}

const EXAMPLES: &str = "\
Examples:
  widelane-lab advise \"Gold 6130\" --workload cloudflare-2017 --cores 16
      which placement suits this workload there
  widelane-lab advise --workload kit-2018 --json";
