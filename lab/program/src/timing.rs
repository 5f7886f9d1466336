//! `widelane-lab timing`: prints for each operation whether its time depends on secrets.
//!
//! It also fails if it does not find the planted leak.

use serde_json::json;
use std::time::Duration;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_timing::{Finding, Random, Subject, Verdict, measure, subjects};

/// Measure whether the time of an operation depends on its secrets (Welch's t, as dudect does)
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Operations [default: all and the planted leak]
    operations: Vec<String>,

    /// Seconds for each operation
    #[arg(long, default_value_t = 20.0, value_parser = seconds)]
    seconds: f64,

    /// Measure on this CPU [default: the last that this process may use]
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,

    /// Print JSON, one line for each operation
    #[arg(long)]
    json: bool,

    /// Print the names of all operations and end
    #[arg(long)]
    list: bool,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut subjects = subjects().map_err(|error| Failure::from_error(&*error))?;
    let names: Vec<_> = subjects.iter().map(|subject| subject.name()).collect();
    if args.list {
        return output::print(&format!("{}\n", names.join("\n")));
    }
    if let Some(unknown) = args.operations.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Failure::Usage(format!(
            "there is no operation {unknown:?}; choose from {}",
            names.join(", ")
        )));
    }
    let cpus = widelane_affinity::allowed(None)?;
    let cpu = args.cpu.or(cpus.iter().last()).unwrap_or(0);
    widelane_affinity::pin(cpu).map_err(|error| Failure::Failed(format!("cannot run on CPU {cpu}: {error}")))?;
    let mut random = Random::new();
    let mut found_leak = true;
    for subject in &mut subjects {
        let asked = args.operations.is_empty() || args.operations.iter().any(|name| name == subject.name());
        if !asked {
            continue;
        }
        let span = Duration::from_secs_f64(args.seconds);
        let finding = if args.json {
            let finding = measure(subject.as_mut(), span, &mut random, |_| ());
            output::print(&format!("{}\n", line(subject.as_ref(), &finding)))?;
            finding
        } else {
            one(subject.as_mut(), span, &mut random)?
        };
        if subject.name() == "planted-leak" {
            found_leak = finding.verdict() == Verdict::Depends;
        }
    }
    if !found_leak {
        return Err(Failure::Failed(
            "the planted leak was not found, so the other results mean nothing".to_owned(),
        ));
    }
    Ok(())
}

fn one(subject: &mut dyn Subject, span: Duration, random: &mut Random) -> Result<Finding, Failure> {
    let [a, b] = subject.classes();
    let (name, backend) = (subject.name(), subject.backend());
    output::print(&format!(
        "{name} ({backend}): {a}, or {b}\n  {:>12} {:>8}  {:<20} {:>22}\n",
        "measurements", "max |t|", "in", "means, ns"
    ))?;
    // A measurement that has begun goes on; an error of its reader is returned at its end.
    let mut printed = Ok(());
    let finding = measure(subject, span, random, |finding| {
        let [a, b] = finding.means;
        printed = output::print(&format!(
            "  {:>12} {:>8.2}  {:<20} {a:>10.0} {b:>11.0}\n",
            finding.measurements, finding.t, finding.test
        ));
    });
    printed?;
    let verdict = match finding.verdict() {
        Verdict::NothingSeen => "nothing seen: |t| stays below 4.5",
        Verdict::Suspicious => "suspicious: measure longer; a real dependency makes t grow",
        Verdict::Depends => "the time depends on the class",
    };
    output::print(&format!("  {verdict}\n\n"))?;
    Ok(finding)
}

/// Finding as a line for `--json`.
fn line(subject: &dyn Subject, finding: &Finding) -> serde_json::Value {
    let verdict = match finding.verdict() {
        Verdict::NothingSeen => "nothing-seen",
        Verdict::Suspicious => "suspicious",
        Verdict::Depends => "depends",
    };
    json!({
        "operation": subject.name(),
        "backend": subject.backend(),
        "classes": subject.classes(),
        "measurements": finding.measurements,
        "t": finding.t,
        "test": finding.test,
        "means_ns": finding.means,
        "verdict": verdict,
    })
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse::<f64>()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 0.1 to 86400".to_owned())
}

const HELP: &str = "\
Examples:
  widelane-lab timing
  widelane-lab timing mlkem768-decaps tag-comparison --seconds 60
  widelane-lab timing planted-leak --seconds 2

Two classes of secrets or inputs are measured in random order. |t| is the difference of their mean
times in standard errors: the largest of 102 tests, over all times, over the times below 100
percentiles, and over squared deviations. Below 4.5 nothing is seen. From 4.5 on, measure longer: t
grows with the square root of the number of measurements if the time depends on the class. From 10 on
it does. The planted leak, a comparison that stops at the first difference, must be found.
Other programs on the machine make the test weaker, and can make |t| pass 4.5 for a while.";
