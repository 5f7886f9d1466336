//! `widelane advise`: what follows from the profile of this machine, or from published figures.

use std::fmt::Write as _;
use std::path::PathBuf;
use widelane_affinity::Cpus;
use widelane_cli::failure::Failure;
use widelane_cli::places::{Places, profile_name};
use widelane_cli::{machine, output};
use widelane_cpu::lanes;
use widelane_cpu::licence::{turbo, turbo_of};
use widelane_frequency::{Advice, Machine, Profile, ProfileError, Subject, advise, run_wide};
use widelane_text::{escaped, json_line};

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

    /// Print only what WIDELANE_RUN_WIDE should be, with these CPUs for `run_wide`
    #[arg(long, value_name = "CPUS", value_parser = Cpus::named, conflicts_with_all = ["model", "json"])]
    run_wide: Option<Cpus>,

    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if let Some(cpus) = args.run_wide {
        let placement = run_wide(&profile(args.profile)?, cpus);
        return output::print(&format!("{placement}\n"));
    }
    let advice = match &args.model {
        Some(model) => published(model)?,
        None => vec![advise(Subject::Measured(&profile(args.profile)?), lanes())],
    };
    let mut text = String::new();
    for advice in &advice {
        if args.json {
            text.push_str(&json_line(advice));
        } else {
            text.push_str(&words(advice));
        }
    }
    output::print(&text)
}

fn published(model: &str) -> Result<Vec<Advice>, Failure> {
    let rows = turbo_of(model);
    if rows.is_empty() {
        let mut known: Vec<_> = turbo().iter().map(|row| row.cpu).collect();
        known.dedup();
        return Err(Failure::Usage(format!(
            "no published figures for `{}`; there are some for {}",
            model.escape_debug(),
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
        let (_, profile) =
            kept.map_err(|why| Failure::Failed(format!("{why}; measure this machine with `widelane probe`")))?;
        return Ok(profile);
    };
    let profile = Profile::load_named(&path).map_err(|error| {
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
    let mut text = format!(
        "{} ({})
",
        escaped(&advice.machine),
        advice.basis
    );
    for line in &advice.words {
        let _ = writeln!(text, "  {line}");
    }
    let registers = match (advice.heavy_width, advice.light_width) {
        (Some(heavy), Some(light)) => {
            format!("registers of {heavy} bits for kernels that multiply, of {light} for others")
        }
        (Some(heavy), None) => format!("registers of {heavy} bits for kernels"),
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
  widelane advise --json
  WIDELANE_RUN_WIDE=$(widelane advise --run-wide 7) ./program
      a program that calls run_wide, with CPU 7 for its wide code where that is cheaper

Which placement suits a workload there, `widelane-lab advise` says by simulation.";
