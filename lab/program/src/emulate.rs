//! `widelane-lab emulate`: runs a program on CPUs that behave as another model's under wide code.

mod truth;
mod unmarked;

use crate::PROGRAM;
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use widelane_affinity::{Cpus, allow, allowed, siblings};
use widelane_brake::{Brake, BrakeError, Exactness, Model, Summary};
use widelane_cli::failure::{Failure, status_of_program, status_of_unstarted};
use widelane_cli::output;
use widelane_cpu::licence::Generation;
use widelane_cpu::{DISABLE_VARIABLE, Lanes};

/// Run a program on CPUs that behave as the named model's do under wide code
///
/// One real-time thread on each CPU takes as much time away as that model loses while and after wide
/// code runs: throttling and halts first, then the share by which its clock is lower, until the tail
/// has run out. Takes root or CAP_SYS_NICE.
///
/// Programs of Widelane mark their wide code, and others can, by one call from C. Wide code
/// without marks is seen with --unmarked only, by time slices. Signals are passed on; the exit
/// status is the program's, or 128 and the number of the signal that ended it; 127 if there is no
/// such program, 126 if it cannot be started, 125 if anything else
/// went wrong before, and 2 if this was called wrongly.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The processor, by a name of which the data file has one; `widelane advise x` lists them
    #[arg(long = "as", value_name = "MODEL")]
    model: String,

    /// The CPUs that behave so, and on which alone the program runs [default: all that this process may
    /// use]. Their number chooses the clocks: published are those by active cores
    #[arg(long, value_name = "CPUS", value_parser = Cpus::named)]
    cpus: Option<Cpus>,

    /// The clock of level 1, where no source gives it, or instead of it
    #[arg(long, value_name = "GHZ")]
    level1_ghz: Option<f64>,

    /// Compare the figures of `widelane probe` under the brake with those given to the brake, TIMES times; status 1 if
    /// one of them is off
    #[arg(long, value_name = "TIMES", conflicts_with = "command",
        value_parser = clap::value_parser!(u16).range(1..))]
    check: Option<u16>,

    /// Also brake for programs that do not mark: each time slice at whose end 512-bit registers were in
    /// use counts as code that asks for level 1, or 2. Takes root and eBPF; the programs that do mark
    /// are not counted twice
    #[arg(long, value_name = "LEVEL", conflicts_with = "check",
        value_parser = clap::value_parser!(u8).range(1..=2))]
    unmarked: Option<u8>,

    /// Leave the program the instructions that the model does not have. Without it, models without AVX-512 IFMA
    /// hide it from Widelane, OpenSSL and AWS-LC
    #[arg(long, conflicts_with = "check")]
    all_instructions: bool,

    /// Tell on standard error what was taken as JSON
    #[arg(long)]
    json: bool,

    /// The program and its arguments
    #[arg(last = true, required_unless_present = "check", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs it; the program's status, or one of those that `nice` and its like give if there is none.
pub(crate) fn run(args: Args) -> ExitCode {
    status_of_program(PROGRAM, ran(args))
}

fn ran(args: Args) -> Result<u8, Failure> {
    let cpus = match args.cpus {
        Some(cpus) => cpus,
        None => allowed(None).map_err(|error| Failure::Failed(format!("the CPUs: {error}")))?,
    };
    let model = Model::find(&args.model, cores(&cpus), args.level1_ghz)
        .map_err(|error| Failure::Usage(format!("--as: {error}")))?;
    if widelane_marks::emulated_model().is_some() {
        return Err(Failure::Usage(
            "this process is emulated already: one brake does not see another".to_owned(),
        ));
    }
    if let Some(times) = args.check {
        return Ok(u8::from(!truth::holds(&model, &cpus, times.into(), args.json)?));
    }
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| Failure::Usage("there is no program to run; name it after --".to_owned()))?;
    let mut brake = start(&model, &cpus)?;
    if let Some(level) = args.unmarked {
        unmarked::watch(&mut brake, level)?;
    }
    let hidden = match args.all_instructions {
        true => Vec::new(),
        false => hidden(model.generation, |name| std::env::var(name).ok()),
    };
    if !args.json {
        output::complain(&introduction(&model, &cpus, brake.exactness()));
        if !hidden.is_empty() {
            output::complain(HIDDEN);
        }
        output::complain(match args.unmarked {
            Some(_) => SEEN_BY_SLICES,
            None => SEEN_BY_MARKS,
        });
    }
    let mut command = Command::new(program);
    command.args(arguments);
    command.env(widelane_marks::VARIABLE, brake.variable());
    command.envs(hidden);
    let all = allowed(None).unwrap_or_default();
    allow(None, &cpus).map_err(|error| Failure::Failed(format!("the CPUs {cpus}: {error}")))?;
    let ended = widelane_child::run(&mut command, || _ = allow(None, &all));
    let exactness = brake.exactness().to_vec();
    let summaries = brake.stop();
    let status = match ended {
        Ok(status) => status,
        Err(error) => {
            let name = program.display();
            Failure::Failed(format!("cannot start {name}: {error}")).report(PROGRAM);
            return Ok(status_of_unstarted(error.kind()));
        }
    };
    output::complain(&match args.json {
        true => format!("{}\n", json(&model, &exactness, &summaries)),
        false => summaries.iter().map(|one| summary(&model, one)).collect(),
    });
    Ok(status)
}

/// Variables that hide from a program what processors of this generation do not have, given those that are `set`.
fn hidden(generation: Generation, set: impl Fn(&str) -> Option<String>) -> Vec<(&'static str, String)> {
    if Lanes::of_generation(generation) != Some(Lanes::WITHOUT_IFMA) {
        return Vec::new();
    }
    let also = set(DISABLE_VARIABLE).filter(|list| !list.is_empty());
    let list = also.map_or(LATER_FEATURES.to_owned(), |list| format!("{list},{LATER_FEATURES}"));
    let mut variables = vec![(DISABLE_VARIABLE, list)];
    // Keeps the user's own setting for OpenSSL.
    if set(OPENSSL_VARIABLE).is_none() {
        variables.push((OPENSSL_VARIABLE, WITHOUT_IFMA.to_owned()));
    }
    variables
}

/// Checks that these CPUs can behave as this model: an error names what is missing.
pub(crate) fn check(model: &str, cpus: &Cpus) -> Result<(), Failure> {
    let model = Model::find(model, cores(cpus), None).map_err(|error| Failure::Usage(format!("--as: {error}")))?;
    start(&model, cpus).map(|brake| _ = brake.stop())
}

fn start(model: &Model, cpus: &Cpus) -> Result<Brake, Failure> {
    Brake::start(model, cpus).map_err(|error| match error {
        BrakeError::Cpu { .. } | BrakeError::NoCpus => Failure::Usage(format!("--cpus: {error}")),
        _ => Failure::Failed(error.to_string()),
    })
}

/// Cores that have one of these CPUs.
fn cores(cpus: &Cpus) -> usize {
    let first = |&cpu: &usize| siblings(cpu).and(cpus).iter().next().is_none_or(|one| one == cpu);
    cpus.iter().filter(first).count()
}

fn introduction(model: &Model, cpus: &Cpus, exactness: &[Exactness]) -> String {
    let [full, level1, level2] = model.clocks;
    let cores = match model.cores {
        1 => "one active core".to_owned(),
        cores => format!("up to {cores} active cores"),
    };
    let mut text = format!(
        "widelane-lab: CPUs {cpus} behave as {} does with {cores}: {full} GHz, {level1} at level 1, \
         {level2} at level 2 ({})\n",
        model.name, model.source
    );
    if let Some(assumed) = &model.assumed {
        text += &format!("widelane-lab: {assumed}\n");
    }
    for one in exactness {
        text += &format!(
            "widelane-lab: CPU {}: to take {:.1} % of the time, it took {:.1} %; a wake-up takes {:.0} µs, \
             by a mark {:.0}\n",
            one.cpu,
            100.0 * one.asked,
            100.0 * one.took,
            one.timer_us,
            one.mark_us
        );
    }
    text
}

fn summary(model: &Model, of: &Summary) -> String {
    let percent = |ns: u64| 100.0 * ns as f64 / (of.time as f64).max(1.0);
    let [full, level1, level2] = of.levels.map(percent);
    format!(
        "widelane-lab: CPU {} as {}: {full:.1} % of {:.1} s at the full clock, {level1:.1} % at level 1, \
         {level2:.1} % at level 2; to take were {:.2} %, taken {:.2} %\n",
        of.cpu,
        model.name,
        of.time as f64 / 1e9,
        percent(of.owed),
        percent(of.taken)
    )
}

fn json(model: &Model, exactness: &[Exactness], summaries: &[Summary]) -> serde_json::Value {
    let cpus = exactness.iter().zip(summaries).map(|(exact, of)| {
        serde_json::json!({
            "cpu": of.cpu, "seconds": of.time as f64 / 1e9,
            "level_seconds": of.levels.map(|ns| ns as f64 / 1e9),
            "owed_seconds": of.owed as f64 / 1e9, "taken_seconds": of.taken as f64 / 1e9,
            "wake_up_us": exact.timer_us, "wake_up_by_mark_us": exact.mark_us,
            "asked_share": exact.asked, "taken_share": exact.took,
        })
    });
    serde_json::json!({
        "model": model.name, "clocks_ghz": model.clocks, "cores": model.cores,
        "source": model.source, "assumed": model.assumed, "cpus": cpus.collect::<Vec<_>>(),
    })
}

/// Features of [`DISABLE_VARIABLE`] that came after AVX-512 of the first generation.
const LATER_FEATURES: &str = "avx512ifma,avxifma";
/// Mask of OpenSSL and AWS-LC for CPUID's leaf 7: all but bit 21 of EBX, which is AVX-512 IFMA.
const OPENSSL_VARIABLE: &str = "OPENSSL_ia32cap";
const WITHOUT_IFMA: &str = ":~0x200000";
const HIDDEN: &str = "widelane-lab: this model has no AVX-512 IFMA: the program finds none either \
     (WIDELANE_CPU_DISABLE, OPENSSL_ia32cap); --all-instructions leaves it\n";
const SEEN_BY_MARKS: &str = "widelane-lab: only wide code that its program marks is seen: Widelane's own, \
     and what calls widelane_mark_wide; --unmarked sees that of others\n";
const SEEN_BY_SLICES: &str = "widelane-lab: of programs that do not mark, whole time slices at whose end \
     512-bit registers were in use count as wide\n";
const EXAMPLES: &str = "\
Examples:
  sudo widelane-lab emulate --as \"Silver 4116\" -- widelane probe
  sudo widelane-lab emulate --as \"Gold 6130\" --cpus 2-5 -- widelane serve --demo
  sudo widelane-lab emulate --as \"Gold 6326\" --level1-ghz 3.4 -- ./server
  sudo widelane-lab emulate --as \"Silver 4116\" --unmarked 1 -- openssl speed -evp chacha20-poly1305
  sudo widelane-lab emulate --as \"Gold 6130\" --check 5
      whether the brake does what it should on this machine";

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_cpu::Target;

    #[test]
    fn a_model_without_ifma_hides_it_and_keeps_what_the_user_has_set() {
        let list = |variables: &[(&str, String)], name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone())
        };
        let alone = hidden(Generation::Skylake, |_| None);
        assert_eq!(list(&alone, DISABLE_VARIABLE).as_deref(), Some("avx512ifma,avxifma"));
        assert_eq!(list(&alone, OPENSSL_VARIABLE).as_deref(), Some(":~0x200000"));
        let beside = hidden(Generation::CascadeLake, |_| Some("avx512vl".to_owned()));
        let expected = Some("avx512vl,avx512ifma,avxifma".to_owned());
        assert_eq!(list(&beside, DISABLE_VARIABLE), expected);
        assert_eq!(list(&beside, OPENSSL_VARIABLE), None);
        assert!(hidden(Generation::IceLake, |_| None).is_empty());
        assert!(hidden(Generation::Unknown, |_| None).is_empty());
        // The other targets are those of such a CPU.
        let targets: Vec<_> = Lanes::WITHOUT_IFMA.targets().collect();
        assert_eq!(targets, [Target::Avx512F, Target::Avx2]);
    }
}
