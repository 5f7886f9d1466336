//! `widelane probe`: what wide code does to the clock of this machine.

use crate::features;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Instant;
use widelane_cli::failure::Failure;
use widelane_cli::places::{Places, profile_name};
use widelane_cli::{machine, output};
use widelane_cpu::lanes;
use widelane_cpu::licence::Class;
use widelane_frequency::{Distribution, Estimate, Machine, Penalty, Profile, Siblings, probe, runs};
use widelane_text::json_line;

/// Measure what wide code does to the clock of this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Measure for a second or two in place of about twenty: wider intervals
    #[arg(long)]
    quick: bool,

    /// Keep the profile in this file [default: /var/lib/widelane/profile.json for root, else
    /// widelane/profile.json in the user's state directory]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Show the profile that is kept, if it is of this machine; measure only if not
    #[arg(long)]
    cached: bool,

    /// Print the profile as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let places = Places::here();
    let path = args.output.clone().or_else(|| places.to_write(profile_name()));
    let kept = match &args.output {
        _ if !args.cached => None,
        Some(named) => machine::kept(&[vec![named.clone()]], &Machine::here()).ok(),
        None => machine::kept(&places.to_read(profile_name()), &Machine::here()).ok(),
    };
    let profile = match kept {
        Some((_, profile)) => profile,
        None => {
            let profile = measure(args.quick);
            keep(&profile, path, args.output.is_some())?;
            profile
        }
    };
    if args.json {
        output::print(&json_line(&profile))
    } else {
        output::print(&table(&profile))
    }
}

fn measure(quick: bool) -> Profile {
    let started = Instant::now();
    let progress = |what: &str, done: f64| {
        if io::stderr().is_terminal() && started.elapsed().as_secs() >= 2 {
            output::progress(&format!("{what}: {:3.0} %", 100.0 * done));
        }
    };
    let profile = Profile {
        commit: widelane_cli::version::known(features::COMMIT),
        ..probe(quick, &progress)
    };
    if io::stderr().is_terminal() {
        output::progress("");
    }
    profile
}

/// Keeps the profile. If it cannot be kept in the usual place, the measurement is still worth
/// showing; a place that the user named must work.
fn keep(profile: &Profile, path: Option<PathBuf>, named: bool) -> Result<(), Failure> {
    let kept = match path {
        Some(path) => {
            let save = match named {
                true => Profile::save_named,
                false => Profile::save,
            };
            save(profile, &path).map_err(|error| error.to_string())
        }
        None => Err("this user has no state directory (HOME is not set)".to_owned()),
    };
    match kept {
        Ok(()) => Ok(()),
        Err(why) if named => Err(Failure::Failed(format!("cannot keep the profile: {why}"))),
        Err(why) => {
            output::complain(&format!(
                "widelane: the profile is not kept: {why}; name a file with --output\n"
            ));
            Ok(())
        }
    }
}

fn table(profile: &Profile) -> String {
    let mut text = String::new();
    let machine = &profile.machine;
    let _ = writeln!(
        text,
        "{}{}{}, microcode {}, time-stamp counter {:.4} GHz{}\n",
        machine.name,
        match &machine.emulates {
            Some(model) => format!(", which emulates {model}"),
            None => String::new(),
        },
        if machine.virtual_machine {
            " (virtual machine)"
        } else {
            ""
        },
        machine.microcode,
        profile.tsc_ghz,
        if profile.quick { "; measured in a hurry" } else { "" },
    );
    let _ = writeln!(
        text,
        "{:<10} {:>6} {:>7} {:>15} {:>10} {:>15} {:>9}",
        "class", "cores", "GHz", "95 %", "of scalar", "95 %", "vanished"
    );
    for clock in &profile.clocks {
        let _ = writeln!(
            text,
            "{:<10} {:>6} {:>7.3} {:>15} {:>9.1}% {:>15} {:>8.1}%",
            clock.class,
            clock.cores,
            clock.ghz.value,
            format!("{:.3}–{:.3}", clock.ghz.low, clock.ghz.high),
            100.0 * clock.of_scalar.value,
            format!(
                "{:.1}–{:.1}%",
                100.0 * clock.of_scalar.low,
                100.0 * clock.of_scalar.high
            ),
            100.0 * clock.vanished.value,
        );
    }
    for class in Class::ALL {
        if !profile.clocks.iter().any(|clock| clock.class == class.name()) {
            let why = match runs(class) {
                true => "not measured",
                false => "this CPU has no such instructions that can be used here",
            };
            let _ = writeln!(text, "{:<10} n/a: {why}", class.name());
        }
    }
    let _ = writeln!(
        text,
        "\n{:<10} {:>20} {:>20} {:>12} {:>20}",
        "edges", "work lost, µs", "of scalar code, µs", "clock after", "until it is back, µs"
    );
    for edge in &profile.transitions {
        let _ = writeln!(
            text,
            "{:<10} {:>20} {:>20} {:>11.1}% {:>20}",
            edge.class,
            spread(&edge.stall_us),
            spread(&edge.control_us),
            100.0 * edge.after,
            edge.tail_us.as_ref().map_or("n/a (not lower)".to_owned(), spread),
        );
    }
    match &profile.hand_over {
        Some(ways) => {
            let _ = writeln!(text, "\nrun_wide on another core, µs      p50 (p5–p99)");
            for (way, ns) in [
                ("pool, until it runs, spinning", &ways.spinning_ns),
                ("pool, until it runs, sleeping", &ways.sleeping_ns),
                ("pool, whole call, spinning", &ways.pool_call_ns),
                ("migration, whole call", &ways.migration_ns),
            ] {
                let us = |ns: f64| ns / 1e3;
                let _ = writeln!(
                    text,
                    "  {way:<31} {:.2} ({:.2}–{:.2})",
                    us(ns.p50),
                    us(ns.p5),
                    us(ns.p99)
                );
            }
        }
        None => text.push_str("\nhand-over to another core: n/a: this process may use one CPU only\n"),
    }
    hyperthreads(&mut text, &profile.siblings);
    text.push_str("\ncounters\n");
    for counter in &profile.counters {
        let clocks = counter.ghz.iter().map(|(class, ghz)| format!("{class} {ghz:.3} GHz"));
        let shares = counter
            .share
            .iter()
            .map(|(class, share)| format!("{class} {:.1} %", 100.0 * share));
        let said = match &counter.why_not {
            Some(why) => format!("n/a: {why}"),
            None => clocks.chain(shares).collect::<Vec<_>>().join(", "),
        };
        let _ = writeln!(text, "  {}: {said}", counter.name);
    }
    let _ = writeln!(text, "\n{}", verdict(&profile.penalty()));
    if let Some(none) = lanes().why_none() {
        let _ = writeln!(text, "For Widelane itself that does not matter: {none}.");
    }
    text
}

fn hyperthreads(text: &mut String, siblings: &Siblings) {
    let Some((scalar, other)) = siblings.cpus else {
        let why = siblings.why_not.as_deref().unwrap_or("not measured");
        let _ = writeln!(text, "\nhyperthreads of one core: n/a: {why}");
        return;
    };
    let _ = writeln!(
        text,
        "\nscalar code on CPU {scalar} beside a class on CPU {other}, of its pace beside nothing\n\
         {:<10} {:>9} {:>15} {:>11} {:>15}",
        "beside", "clock", "95 %", "throughput", "95 %"
    );
    let interval = |pace: &Estimate| format!("{:.1}–{:.1}%", 100.0 * pace.low, 100.0 * pace.high);
    for beside in &siblings.pace {
        let _ = writeln!(
            text,
            "{:<10} {:>8.1}% {:>15} {:>10.1}% {:>15}",
            beside.class,
            100.0 * beside.clock.value,
            interval(&beside.clock),
            100.0 * beside.throughput.value,
            interval(&beside.throughput),
        );
    }
}

fn spread(distribution: &Distribution) -> String {
    format!(
        "{:.1} ({:.1}–{:.1})",
        distribution.p50, distribution.p5, distribution.p95
    )
}

fn verdict(penalty: &Penalty) -> String {
    match penalty {
        Penalty::None { at_most } => format!(
            "No penalty: wide code costs no clock here that could be told from noise (at most {:.1} %).",
            100.0 * at_most
        ),
        Penalty::Some(depths) => {
            let deepest = depths.iter().map(|depth| {
                format!(
                    "{} on {} cores: {:.1} % ({:.1} to {:.1})",
                    depth.class,
                    depth.cores,
                    100.0 * depth.depth.value,
                    100.0 * depth.depth.low,
                    100.0 * depth.depth.high
                )
            });
            format!(
                "Penalty: wide code costs clock here.\n  {}",
                deepest.collect::<Vec<_>>().join("\n  ")
            )
        }
        Penalty::Unknown => "Nothing could be measured about wide code here.".to_owned(),
    }
}

const EXAMPLES: &str = "\
Examples:
  widelane probe
  widelane probe --quick
  widelane probe --cached --json
  taskset -c 2,3 widelane probe
      only CPUs 2 and 3

The clock is that of a chain of multiplications with wide code in its shadow, timed by the
time-stamp counter: no counters and no rights are needed. vanished: the share of the time in which
the core was taken away, by the hypervisor, interrupts or other programs. Measure on a machine that
is quiet. `widelane-lab report --clocks FILE` draws the clocks.";
