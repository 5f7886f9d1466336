//! `widelane advise`: what follows from the profile of this machine, or from published figures.

use crate::failure::Failure;
use crate::places::{Places, profile_name};
use crate::values::{Cpus, cpus};
use crate::{machine, output, simulate};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use widelane_cpu::lanes;
use widelane_cpu::licence::{turbo, turbo_of};
use widelane_frequency::{Advice, Machine, Profile, ProfileError, Subject, advise, run_wide};
use widelane_sim::{Settings, WorkloadAdvice};

/// Say what follows for this machine, or for a model that is known from published figures
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A processor of the data file, like "Gold 6130" [default: this machine, by its profile]
    #[arg(value_name = "MODEL")]
    model: Option<String>,

    /// The profile [default: where `widelane probe` keeps it]
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    profile: Option<PathBuf>,

    /// Simulate this workload on MODEL, or on the workload's own processor: a scenario of `widelane
    /// simulate`, or its file
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = ["profile", "run_wide"])]
    workload: Option<String>,

    /// With --workload: the physical cores of the processor
    #[arg(long, value_name = "N", requires = "workload")]
    cores: Option<u32>,

    /// Print only what WIDELANE_RUN_WIDE should be, with these CPUs for `run_wide`
    #[arg(long, value_name = "CPUS", value_parser = cpus, conflicts_with_all = ["model", "json"])]
    run_wide: Option<Cpus>,

    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if let Some(Cpus(cpus)) = args.run_wide {
        let placement = run_wide(&profile(args.profile)?, cpus);
        return output::print(&format!("{placement}\n"));
    }
    if let Some(workload) = &args.workload {
        return about_workload(&args, workload);
    }
    let advice = match &args.model {
        Some(model) => published(model)?,
        None => vec![advise(Subject::Measured(&profile(args.profile)?), lanes())],
    };
    let mut text = String::new();
    for advice in &advice {
        if args.json {
            text.push_str(&serde_json::to_string(advice)?);
            text.push('\n');
        } else {
            text.push_str(&words(advice));
        }
    }
    output::print(&text)
}

/// What the simulator says about a workload.
fn about_workload(args: &Args, name: &str) -> Result<(), Failure> {
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

fn published(model: &str) -> Result<Vec<Advice>, Failure> {
    let rows = turbo_of(model);
    if rows.is_empty() {
        let mut known: Vec<_> = turbo().iter().map(|row| row.cpu).collect();
        known.dedup();
        return Err(Failure::Usage(format!(
            "no published figures for {model:?}; there are some for {}",
            known.join("; ")
        )));
    }
    Ok(rows
        .into_iter()
        .map(|row| advise(Subject::Published(row), lanes()))
        .collect())
}

fn profile(path: Option<PathBuf>) -> Result<Profile, Failure> {
    let machine = Machine::here();
    let Some(path) = path else {
        let kept = machine::kept(&Places::here().to_read(profile_name()), &machine);
        let (_, profile) = kept.map_err(|why| {
            Failure::Failed(format!("{why}; measure this machine with `widelane probe`"))
        })?;
        return Ok(profile);
    };
    let profile = Profile::load(&path).map_err(|error| {
        Failure::Failed(match error {
            ProfileError::NotAProfile { .. } => error.to_string(),
            _ => format!("{error}; measure this machine first with `widelane probe`"),
        })
    })?;
    match machine::fault(&profile, &machine) {
        None => Ok(profile),
        Some(fault) => Err(Failure::Failed(format!(
            "{} {fault}; measure this machine with `widelane probe`",
            path.display()
        ))),
    }
}

fn words(advice: &Advice) -> String {
    let mut text = format!("{} ({})\n", advice.machine, advice.basis);
    for line in &advice.words {
        let _ = writeln!(text, "  {line}");
    }
    let registers = match (advice.heavy_width, advice.light_width) {
        (Some(heavy), Some(light)) => {
            format!("registers of {heavy} bits for kernels that multiply, of {light} for others")
        }
        _ => "no registers for kernels of Widelane, which has no lanes there".to_owned(),
    };
    let _ = writeln!(text, "  placement {}; {registers}\n", advice.placement);
    text
}

const EXAMPLES: &str = "\
Examples:
  widelane probe && widelane advise
  widelane advise \"Gold 6130\"
      what would happen there
  widelane advise \"Gold 6130\" --workload cloudflare-2017 --cores 16
      which placement suits this workload there, by simulation
  widelane advise --json
  WIDELANE_RUN_WIDE=$(widelane advise --run-wide 7) ./program
      a program that calls run_wide, with CPU 7 for its wide code where that is cheaper";
