//! `widelane-lab report`: one HTML file out of records and the profile of this machine.

use crate::features::COMMIT;
use crate::simulate;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use widelane_cli::failure::Failure;
use widelane_cli::places::{Places, profile_name};
use widelane_cli::version::known;
use widelane_cli::{machine, output};
use widelane_frequency::{Machine, Profile};
use widelane_report::{Inputs, goodput, latency, picture, proof, records, report};

/// Write what is known of this machine, and what was measured on it and others, into one HTML file
///
/// Its first screen answers whether wide code costs clock here, what Widelane would do, and what
/// that is worth. The file needs no other file, no script and no network.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Records of your own: a folder of .jsonl files or one such file; can be given several times.
    /// Beside them, those in lab/records are read
    #[arg(long, value_name = "PLACE")]
    records: Vec<PathBuf>,

    /// The profile of this machine [default: where `widelane probe` keeps it]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,

    /// The file to write
    #[arg(long, value_name = "FILE", default_value = "widelane-report.html")]
    output: PathBuf,

    /// Print the figures of the page as JSON, an object a line, and write no page
    #[arg(long, conflicts_with = "output")]
    json: bool,

    /// Leave out what the simulator says of published numbers, which takes most of the time
    #[arg(long)]
    no_simulation: bool,

    /// Draw the clocks of the profile into this file (SVG), and no page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "output", "records", "latency"])]
    clocks: Option<PathBuf>,

    /// Write a picture of latency against load to this file (SVG), from the last record that has it, and
    /// no page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "output"])]
    latency: Option<PathBuf>,

    /// Write a picture of the blocks of `widelane status --prove` to this file (SVG), from the last record of lab/proof,
    /// and no page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "output", "latency", "clocks"])]
    proof: Option<PathBuf>,

    /// Write a picture of goodput against offered load to this file (SVG), from the last record of `lab/overload`,
    /// and no page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "output", "latency", "clocks", "proof"])]
    goodput: Option<PathBuf>,

    /// The kind of handshake in the picture of latency
    #[arg(long, value_name = "NAME", default_value = "rsa-x25519", requires = "latency")]
    condition: String,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let here = Machine::here();
    if let Some(path) = &args.clocks {
        let profile = profile(args.profile, &here)?;
        let (_, profile) = profile.map_err(unmeasured)?;
        return draw(path, Some(picture(&profile)), "");
    }
    let (records, faults) = records(&places(args.records)?);
    for fault in &faults {
        output::complain(&format!("widelane-lab: {}\n", fault));
    }
    if let Some(path) = &args.goodput {
        let lacking = "no record has lines of overload: `lab/overload` writes one";
        return draw(path, goodput(&records), lacking);
    }
    if let Some(path) = &args.latency {
        let condition = &args.condition;
        let lacking = format!(
            "no record has latencies of {condition} at three loads or more: `widelane-lab \
             handshakes curve --condition {condition}` writes one (docs/bench.md)"
        );
        return draw(path, latency(&records, condition), &lacking);
    }
    if let Some(path) = &args.proof {
        return draw(path, proof(&records), "no record has proofs: lab/proof writes one");
    }
    // Reports mistakes before the simulations, which take a while.
    let profile = profile(args.profile, &here)?;
    let cannot_write =
        |error: std::io::Error| Failure::Failed(format!("cannot write {}: {error}", args.output.display()));
    let folder = match args.output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !args.json {
        std::fs::metadata(folder).map_err(cannot_write)?;
    }
    let count = records.len();
    let made = SystemTime::now().duration_since(UNIX_EPOCH);
    let predictions = match args.no_simulation {
        true => Vec::new(),
        false => simulate::compare_all(simulate::progress())?,
    };
    let report = report(&Inputs {
        profile,
        licences: here.has_licences(),
        machine: match here.name.is_empty() {
            true => "a machine that /proc/cpuinfo does not describe".to_owned(),
            false => here.name,
        },
        lanes: widelane_cpu::lanes(),
        records,
        faults,
        predictions,
        commit: known(COMMIT),
        page: args.output.clone(),
        made: made.map_or(0, |since| since.as_secs()),
    });
    let figures = report.json();
    if args.json {
        return output::print(&figures);
    }
    let name = args.output.display();
    std::fs::write(&args.output, report.html()).map_err(cannot_write)?;
    let figures = figures.lines().count();
    output::print(&format!("{name}: {figures} figures, from {count} records\n"))
}

/// Writes a picture, or fails by what is `lacking`.
fn draw(path: &Path, svg: Option<String>, lacking: &str) -> Result<(), Failure> {
    let svg = svg.ok_or_else(|| Failure::Failed(lacking.to_owned()))?;
    let name = path.display();
    std::fs::write(path, svg).map_err(|error| Failure::Failed(format!("cannot write {name}: {error}")))?;
    output::print(&format!("{name}\n"))
}

/// Places to search for records: a named one must exist.
fn places(named: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    if let Some(missing) = named.iter().find(|place| !place.exists()) {
        return Err(Failure::Failed(format!(
            "there is nothing at {}: --records takes a folder of records or a record",
            missing.display()
        )));
    }
    let shared = Some(PathBuf::from(SHARED)).filter(|folder| folder.is_dir());
    Ok(named.into_iter().chain(shared).collect())
}

/// The profile of this machine, or why there is none. One that was named must be of it.
fn profile(named: Option<PathBuf>, here: &Machine) -> Result<Result<(PathBuf, Profile), String>, Failure> {
    let Some(path) = named else {
        return Ok(machine::kept(&Places::here().to_read(profile_name()), here));
    };
    let kept = machine::kept(&[vec![path]], here);
    kept.map(Ok).map_err(unmeasured)
}

fn unmeasured(why: String) -> Failure {
    Failure::Failed(format!("{why}; measure this machine with `widelane probe`"))
}

/// The records in Widelane's sources.
const SHARED: &str = "lab/records";

const EXAMPLES: &str = "\
Examples:
  widelane probe && widelane-lab report
      then open widelane-report.html in a browser
  widelane-lab report --records ~/measurements --output /tmp/report.html
  widelane-lab report --latency latency.svg --condition rsa-x25519
  widelane-lab report --goodput goodput.svg
  widelane-lab report --clocks clocks.svg
  widelane-lab report --proof proof.svg
  widelane-lab report --json | jq 'select(.section == \"answer\")'

A line of a record that cannot be read is reported on standard error and listed on the page; the report
goes on without it.";
