//! `widelane-lab simulate`: what wide code would cost on a processor that is not at hand.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use widelane_samples::{Table, cell, number, text as column};
use widelane_sim::{BUILTIN, Comparison, Figure, Fleet, Plan, RunFigures, Scenario, ScenarioError, Settings, timeline};

use widelane_cli::failure::Failure;
use widelane_cli::output;

/// Simulate a server on cores whose clock follows what they run
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A scenario of the program (see --list), or a TOML file
    #[arg(value_name = "SCENARIO", required_unless_present_any = ["all", "list"])]
    scenario: Option<String>,

    /// List the scenarios of the program
    #[arg(long, conflicts_with_all = ["scenario", "all", "json"])]
    list: bool,

    /// Simulate all of them, and compare with what is published; exit status 1 if a number misses
    /// its tolerance and no reason is given
    #[arg(long, conflicts_with = "scenario")]
    all: bool,

    /// The processor, in place of the scenario's, like "Silver 4116"
    #[arg(long, value_name = "MODEL", conflicts_with = "all")]
    machine: Option<String>,

    /// Physical cores of the processor
    #[arg(long, value_name = "N", conflicts_with = "all")]
    cores: Option<u32>,

    /// Another value for a parameter of the scenario, or for `seed`; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting, conflicts_with = "all")]
    set: Vec<(String, f64)>,

    /// One parameter in STEPS steps between two values (default: 5)
    #[arg(long, value_name = "NAME=A..B[:STEPS]", value_parser = sweep, conflicts_with = "all")]
    sweep: Option<Sweep>,

    /// Only this run of the scenario
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    run: Option<String>,

    /// Each run under every placement, with different numbers of vector cores
    #[arg(long, conflicts_with_all = ["all", "sweep"])]
    placements: bool,

    /// Requests a second that a fleet must serve
    #[arg(long, value_name = "N", conflicts_with = "all")]
    rate: Option<f64>,

    /// Draw what one core does in 5 ms, as SVG; needs --run if the scenario has several
    #[arg(long, value_name = "FILE", conflicts_with_all = ["all", "sweep", "placements", "json"])]
    time_line: Option<PathBuf>,

    /// Print the scenario's file, to begin one's own
    #[arg(long, conflicts_with_all = ["all", "json"])]
    show: bool,

    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.list {
        return list();
    }
    if args.all {
        return all(args.json);
    }
    let name = args.scenario.clone().unwrap_or_default();
    let text = text(&name)?;
    if args.show {
        return output::print(&text);
    }
    let mut scenario = parse(&name, &text)?;
    let settings = Settings {
        model: args.machine.clone(),
        cores: args.cores,
        set: args.set.iter().cloned().collect(),
        ..Settings::default()
    };
    if let Some(run) = &args.run {
        scenario.run(run).map_err(|error| wrong(&name, &error))?;
        scenario.runs.retain(|one| one.name == *run);
        scenario.numbers.clear();
    }
    if args.time_line.is_some() {
        return time_line(&args, &name, &scenario, &settings);
    }
    let wrong = |error: ScenarioError| wrong(&name, &error);
    if scenario.fleet.is_some() {
        let of_one_machine = [
            ("--machine", args.machine.is_some()),
            ("--cores", args.cores.is_some()),
            ("--sweep", args.sweep.is_some()),
            ("--placements", args.placements),
        ];
        if let Some((option, _)) = of_one_machine.iter().find(|(_, given)| *given) {
            return Err(Failure::Usage(format!(
                "{name} is a fleet, which chooses its machines; {option} is for one machine"
            )));
        }
        let fleet = scenario.fleet(args.rate, &settings).map_err(wrong)?;
        return output::print(&match args.json {
            true => format!("{}\n", fleet_json(&fleet)),
            false => fleet_words(&fleet),
        });
    }
    if args.rate.is_some() {
        return Err(Failure::Usage(format!("{name} is no fleet; --rate is for one")));
    }
    let steps = match &args.sweep {
        None => vec![(None, settings)],
        Some(sweep) => sweep.settings(&settings),
    };
    let progress = progress();
    let mut text = String::new();
    for (value, settings) in steps {
        let runs = match args.placements {
            true => under_every_placement(&scenario, &settings),
            false => scenario.figures(&settings),
        };
        let runs = runs.map_err(wrong)?;
        progress(value.as_deref().unwrap_or(&name));
        if args.json {
            for run in &runs {
                let _ = writeln!(text, "{}", line(&name, value.as_deref(), run));
            }
            continue;
        }
        if let Some(value) = &value {
            let _ = writeln!(text, "{value}");
        }
        text.push_str(&table(&runs));
        if value.is_none() && !args.placements {
            text.push_str(&below(&name, &scenario, &runs, &settings).map_err(wrong)?);
        }
    }
    output::print(&text)
}

/// The text of a scenario of the program, or of a file.
pub(crate) fn text(name: &str) -> Result<String, Failure> {
    if let Some((_, text)) = BUILTIN.iter().find(|(known, _)| *known == name) {
        return Ok((*text).to_owned());
    }
    std::fs::read_to_string(Path::new(name)).map_err(|error| {
        let known = BUILTIN.map(|(name, _)| name).join(", ");
        Failure::Usage(format!(
            "{name}: {error}; give a file, or a scenario of the program: {known}"
        ))
    })
}

/// A scenario, or a message that names it.
pub(crate) fn parse(name: &str, text: &str) -> Result<Scenario, Failure> {
    Scenario::parse(text).map_err(|error| wrong(name, &error))
}

pub(crate) fn wrong(name: &str, error: &ScenarioError) -> Failure {
    Failure::Usage(format!("{name}: {error}"))
}

fn list() -> Result<(), Failure> {
    let mut text = String::new();
    for (name, file) in BUILTIN {
        let title = parse(name, file)?.title;
        let _ = writeln!(text, "{name:22} {title}");
    }
    output::print(&text)
}

fn all(json: bool) -> Result<(), Failure> {
    let compared = compare_all(progress())?;
    let missed = compared.iter().filter(|one| !one.is_answered()).count();
    let mut text = String::new();
    if json {
        for one in &compared {
            text.push_str(&serde_json::to_string(one)?);
            text.push('\n');
        }
    } else {
        text.push_str(&compare_table(&compared));
        let within = compared.iter().filter(|one| one.is_met()).count();
        let held = compared.iter().filter(|one| one.held_out).count();
        let _ = writeln!(
            text,
            "\n{} numbers: {within} within their tolerance, {} explained, {missed} neither; {held} held \
             out from the choice of parameters",
            compared.len(),
            compared.len() - within - missed
        );
    }
    output::print(&text)?;
    match missed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!(
            "{missed} numbers miss their tolerance and are not explained"
        ))),
    }
}

/// Compares every published number of the program's scenarios with the simulated one. `done` is called for each
/// scenario.
pub(crate) fn compare_all(done: impl Fn(&str)) -> Result<Vec<Comparison>, Failure> {
    let mut compared = Vec::new();
    for (name, text) in BUILTIN {
        let mut scenario = parse(name, text)?;
        if scenario.numbers.is_empty() {
            continue;
        }
        scenario.keep_compared();
        let runs = scenario.figures(&Settings::default());
        let runs = runs.map_err(|error| wrong(name, &error))?;
        let numbers = scenario.compare(name, &runs);
        compared.extend(numbers.map_err(|error| wrong(name, &error))?);
        done(name);
    }
    Ok(compared)
}

fn under_every_placement(scenario: &Scenario, settings: &Settings) -> Result<Vec<RunFigures>, ScenarioError> {
    let plans: Result<Vec<Plan>, _> = (scenario.runs.iter()).map(|run| scenario.plan(run, settings)).collect();
    let mut runs = Vec::new();
    for plan in plans? {
        for plan in plan.placements() {
            let mut figures = plan.figures();
            if let Some(cores) = plan.vector_cores() {
                let _ = write!(figures.run, ", {cores} vector");
            }
            runs.push(figures);
        }
    }
    Ok(runs)
}

fn time_line(args: &Args, name: &str, scenario: &Scenario, settings: &Settings) -> Result<(), Failure> {
    let Some(file) = &args.time_line else {
        return Ok(());
    };
    let [run] = &scenario.runs[..] else {
        let runs: Vec<_> = scenario.runs.iter().map(|run| run.name.as_str()).collect();
        return Err(Failure::Usage(format!(
            "{name} has several runs; choose one with --run: {}",
            runs.join(", ")
        )));
    };
    let plan = scenario.plan(run, settings).map_err(|error| wrong(name, &error))?;
    let title = format!("{name}, {}: {} ({})", run.name, plan.model(), plan.placement());
    let svg = widelane_report::time_line(&timeline(&plan, 0, TIME_LINE), &title);
    let svg = svg.ok_or_else(|| {
        Failure::Failed(format!(
            "{name}: the run {:?} gives its first core nothing to do",
            run.name
        ))
    })?;
    output::replace(file, &svg)?;
    output::print(&format!("{}\n", file.display()))
}

// Tables.

fn table(runs: &[RunFigures]) -> String {
    let mut shown = COLUMNS.to_vec();
    shown.retain(|(figure, _)| runs.iter().any(|run| run.figures.contains_key(figure)));
    let figures = shown.iter().map(|(_, title)| number(*title));
    let head = ["run", "placement"].map(column).into_iter().chain(figures);
    let rows = runs.iter().map(|run| {
        let figures = shown.iter().map(|(figure, _)| run.figures.get(figure));
        let figures = figures.map(|value| value.map_or_else(Vec::new, |value| cell(rounded(*value))));
        [&run.run[..], run.placement.name()]
            .map(cell)
            .into_iter()
            .chain(figures)
            .collect()
    });
    Table::new(head, None).with(rows).text()
}

/// Published numbers and parameters, below the table of the runs.
fn below(name: &str, scenario: &Scenario, runs: &[RunFigures], settings: &Settings) -> Result<String, ScenarioError> {
    let mut text = String::new();
    // Another processor or parameter is not what was published.
    let as_published = settings.model.is_none() && settings.cores.is_none() && settings.set.is_empty();
    let compared = scenario.compare(name, runs);
    if as_published && !scenario.numbers.is_empty() {
        let _ = write!(text, "\n{}", compare_table(&compared?));
    }
    for gain in scenario.gains(runs) {
        let _ = writeln!(
            text,
            "\npredicted for {}, net of the clock: against \"{}\", \"{}\" serves most: {:+.1} %; 99th percentile \
             {:+.0} %",
            gain.model, gain.base, gain.best, gain.gain_percent, gain.p99_percent
        );
    }
    let _ = writeln!(text, "\nenergy: n/a, because {NO_ENERGY}");
    if !scenario.parameters.is_empty() {
        text.push_str("\nparameters\n");
    }
    for (name, parameter) in &scenario.parameters {
        let value = settings.set.get(name).unwrap_or(&parameter.value);
        let _ = writeln!(text, "  {name} = {value}: {}", parameter.source);
    }
    Ok(text)
}

fn compare_table(compared: &[Comparison]) -> String {
    let [published, simulated, error, tolerance] = ["published", "simulated", "error", "tolerance"].map(number);
    let head = [
        column("scenario"),
        column("what"),
        published,
        simulated,
        error,
        tolerance,
        column("notes"),
    ];
    let rows = compared.iter().map(|one| {
        let held_out = one.held_out.then(|| "held out".to_owned());
        let missed = (!one.is_met()).then(|| match &one.explanation {
            Some(why) => format!("missed: {why}"),
            None => "missed".to_owned(),
        });
        let notes: Vec<_> = held_out.into_iter().chain(missed).collect();
        let figures = [one.published, one.simulated, one.error].map(rounded);
        [one.scenario.clone(), one.what.clone()]
            .into_iter()
            .chain(figures)
            .chain([one.tolerance.to_string(), notes.join("; ")])
            .map(cell)
            .collect()
    });
    Table::new(head, None).with(rows).text()
}

fn fleet_words(fleet: &Fleet) -> String {
    let head = [column("model"), column("setting"), number("requests/s"), column("")];
    let tried = fleet.tried.iter().map(|one| {
        let best = if one.best { "best of its model" } else { "" };
        vec![
            cell(&one.model[..]),
            cell(&one.setting[..]),
            cell(format!("{:.0}", one.rate)),
            cell(best),
        ]
    });
    let mut text = format!("99 % within {} us\n", fleet.p99_us);
    text += &Table::new(head, None).with(tried).text();
    let _ = writeln!(
        text,
        "\nfor {:.0} requests/s, each machine planned for 80 % of what it can do:",
        fleet.rate
    );
    let head = [column("model"), column("setting"), number("machines")];
    let chosen = fleet.chosen.iter().map(|one| {
        let (taken, of) = one.machines;
        vec![
            cell(&one.model[..]),
            cell(&one.setting[..]),
            cell(format!("{taken} of {of}")),
        ]
    });
    text += &Table::new(head, None).with(chosen).text();
    let total: u32 = fleet.chosen.iter().map(|one| one.machines.0).sum();
    let _ = writeln!(
        text,
        "{total} machines serve {:.0} requests/s; the slowest one's 99th percentile is {:.0} us",
        fleet.served, fleet.slowest_p99_us
    );
    if fleet.served < 0.98 * fleet.rate {
        let _ = writeln!(
            text,
            "that is less than asked for: all machines together can do {:.0} requests/s",
            fleet.most
        );
    }
    text
}

fn rounded(value: f64) -> String {
    match value.abs() {
        least if least >= 1000.0 => format!("{value:.0}"),
        less if less >= 100.0 => format!("{value:.1}"),
        less if less >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

// Lines of JSON.

fn line(scenario: &str, sweep: Option<&str>, run: &RunFigures) -> Value {
    let cores = run.cores.iter().map(|core| {
        json!({
            "ghz": core.ghz,
            "busy_s": core.busy(),
            "level_s": core.busy,
            "throttled_s": core.throttled,
            "halted_s": core.halted,
        })
    });
    let mut line = json!({
        "scenario": scenario,
        "run": run.run,
        "placement": run.placement.name(),
        "model": run.model,
        "seconds": run.seconds,
        "cores": cores.collect::<Vec<_>>(),
        "energy_j": null,
        "energy_why": NO_ENERGY,
    });
    for (figure, value) in &run.figures {
        line[figure.name()] = json!(value);
    }
    if let Some(sweep) = sweep {
        line["sweep"] = json!(sweep);
    }
    line
}

fn fleet_json(fleet: &Fleet) -> Value {
    let tried = fleet
        .tried
        .iter()
        .map(|one| json!({"model": one.model, "setting": one.setting, "requests_per_s": one.rate, "best": one.best}));
    let chosen = fleet.chosen.iter().map(|one| {
        let (machines, of) = one.machines;
        json!({
            "model": one.model, "setting": one.setting, "machines": machines, "of": of, "requests_per_s": one.rate,
        })
    });
    json!({
        "rate": fleet.rate, "p99_bound_us": fleet.p99_us, "served": fleet.served, "most": fleet.most,
        "slowest_p99_us": fleet.slowest_p99_us, "chosen": chosen.collect::<Vec<_>>(),
        "tried": tried.collect::<Vec<_>>(),
    })
}

// Arguments.

/// A parameter in steps between two values.
#[derive(Clone, Debug, PartialEq)]
struct Sweep {
    name: String,
    from: f64,
    to: f64,
    steps: u32,
}

impl Sweep {
    /// Name and settings of each step.
    fn settings(&self, settings: &Settings) -> Vec<(Option<String>, Settings)> {
        let last = f64::from(self.steps - 1);
        let values = (0..self.steps).map(|step| {
            let value = self.from + (self.to - self.from) * f64::from(step) / last;
            let mut settings = settings.clone();
            settings.set.insert(self.name.clone(), value);
            (Some(format!("{} = {value}", self.name)), settings)
        });
        values.collect()
    }
}

fn setting(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("it must be NAME=VALUE")?;
    let value = value.parse().map_err(|_| format!("{value:?} is no number"))?;
    Ok((name.to_owned(), value))
}

fn sweep(text: &str) -> Result<Sweep, String> {
    let form = "it must be NAME=A..B or NAME=A..B:STEPS";
    let (name, range) = text.split_once('=').ok_or(form)?;
    let (range, steps) = range.split_once(':').unwrap_or((range, "5"));
    let (from, to) = range.split_once("..").ok_or(form)?;
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
    let steps = steps.parse().ok().filter(|steps| (2..=1000).contains(steps));
    let (from, to): (f64, f64) = (number(from)?, number(to)?);
    if !(from.is_finite() && to.is_finite()) || from >= to {
        return Err(format!("{from} is not below {to}"));
    }
    Ok(Sweep {
        name: name.to_owned(),
        from,
        to,
        steps: steps.ok_or("there must be 2 to 1000 steps")?,
    })
}

/// A function that says on standard error what is done, once the work has taken a while.
pub(crate) fn progress() -> impl Fn(&str) {
    let began = Instant::now();
    move |what| {
        if began.elapsed() > SILENCE {
            output::complain(&format!("widelane-lab: simulated {what}\n"));
        }
    }
}

/// The columns of the table of runs.
const COLUMNS: [(Figure, &str); 16] = [
    (Figure::Throughput, "requests/s"),
    (Figure::P50, "p50 us"),
    (Figure::P99, "p99 us"),
    (Figure::StepP50, "step p50 us"),
    (Figure::StepP99, "step p99 us"),
    (Figure::Clock, "clock GHz"),
    (Figure::Level1, "level 1 %"),
    (Figure::Level2, "level 2 %"),
    (Figure::Wide, "wide %"),
    (Figure::Lanes, "in a pass"),
    (Figure::DownP50, "down p50 us"),
    (Figure::DownP95, "down p95 us"),
    (Figure::TailP50, "tail p50 us"),
    (Figure::Steady, "steady GHz"),
    (Figure::Goodput, "goodput %"),
    (Figure::GaveUp, "gave up %"),
];
const NO_ENERGY: &str = "no source gives the power of a core by level";
/// Microseconds of a time line.
const TIME_LINE: u64 = 5_000;
const SILENCE: Duration = Duration::from_secs(2);
const EXAMPLES: &str = "\
Examples:
  widelane-lab simulate --list
  widelane-lab simulate cloudflare-2017
  widelane-lab simulate cloudflare-2017 --machine \"Gold 6130\" --cores 16
  widelane-lab simulate cloudflare-2017 --run chacha20-100 --placements
  widelane-lab simulate cloudflare-2017 --run chacha20-10 --sweep chacha=0..40:9
  widelane-lab simulate kit-2019-6130 --run avx-512 --time-line core.svg
  widelane-lab simulate fleet --rate 2000000
  widelane-lab simulate cloudflare-2017 --show > mine.toml
      then change it: widelane-lab simulate mine.toml
  widelane-lab simulate --all --json
      every published number beside the simulated one

Costs are cycles of a class of instructions. What no source tells is a parameter, marked as assumed.";
