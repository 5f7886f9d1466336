//! `widelane experiment`: published experiments, done again with real servers on this machine.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use widelane_experiments::{
    ExperimentError, Interval, Options, Order, Outcome, PairRow, Pairs, Plan, Row, cloudflare, kit,
    pairs, work,
};

use crate::failure::Failure;
use crate::output;

/// Do a published experiment again, with real servers on this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The experiment
    #[arg(value_name = "NAME")]
    name: Name,

    /// The model as which the servers' CPU is to behave in the second half of `cloudflare` and `kit`
    /// (see `widelane emulate`) [default: Silver 4116]
    #[arg(long = "as", value_name = "MODEL")]
    model: Option<String>,

    /// Only as this CPU is, as `xu` and `intel` always are
    #[arg(long, conflicts_with = "model")]
    native: bool,

    /// Few rounds: within five minutes
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,

    /// Rounds of turns [default: 7; 40 of `xu` and `intel`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,

    /// Seconds of a turn [default: 4; 0.5 of `xu` and `intel`]
    #[arg(long, value_name = "SECONDS", value_parser = crate::values::seconds)]
    seconds: Option<Duration>,

    /// CPU of the servers [default: the first]
    #[arg(long, value_name = "CPU")]
    server_cpu: Option<usize>,

    /// CPU of the clients [default: one of another core]
    #[arg(long, value_name = "CPU")]
    load_cpu: Option<usize>,

    /// Write a record to this folder: raw samples, machine, commit
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,

    /// Also from a tree with changes that no commit has
    #[arg(long, requires = "record")]
    allow_modified: bool,

    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,

    /// What a process of the experiment itself does
    #[arg(long, hide = true)]
    worker: Option<Order>,
}

/// The experiments.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Name {
    /// A web page from Lua and brotli, with ChaCha20-Poly1305 in several forms (Cloudflare, 2017)
    Cloudflare,
    /// Compression and ChaCha20-Poly1305, with and without a vector core (KIT, 2018 and 2019)
    Kit,
    /// Full handshakes beside nginx, one worker on one core (Xu, 2022); as this CPU is
    Xu,
    /// Full handshakes in software and in passes (Intel, 2021); as this CPU is
    Intel,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if let Some(order) = &args.worker {
        let line = work(order).map_err(failure)?;
        return output::print(&format!("{line}\n"));
    }
    if args.model.is_some() && !args.name.has_brake() {
        return Err(Failure::Usage(format!(
            "`{}` runs as this CPU is; leave out --as, or take `cloudflare` or `kit`",
            args.name.text()
        )));
    }
    let mut options = Options::find().map_err(|error| Failure::from_error(&error))?;
    // This very program, whatever it is called.
    options.widelane = std::env::current_exe()?;
    options.server_cpu = args.server_cpu.unwrap_or(options.server_cpu);
    options.load_cpu = args.load_cpu.unwrap_or(options.load_cpu);
    options.allow_modified = args.allow_modified;
    for note in &options.notes {
        output::complain(&format!("widelane: {note}\n"));
    }
    let (rounds, seconds) = args.name.turns(args.quick);
    let plan = Plan {
        options,
        rounds: args.rounds.map_or(rounds, usize::from),
        seconds: args
            .seconds
            .map_or(seconds, |seconds| seconds.as_secs_f64()),
        records: args.record,
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    let tell = |line: &str| output::complain(&format!("widelane: {line}\n"));
    let model = match (args.native, args.model) {
        (true, _) => None,
        (false, model) => Some(model.unwrap_or_else(|| MODEL.to_owned())),
    };
    let brake = model.as_deref();
    let pairs = |which| {
        let rows = pairs(which, &plan, tell).map_err(failure)?;
        match args.json {
            true => pair_lines(args.name.text(), &rows),
            false => Ok(pair_words(&rows)),
        }
    };
    let outcome = match args.name {
        Name::Xu => return output::print(&pairs(Pairs::Xu)?),
        Name::Intel => return output::print(&pairs(Pairs::Intel)?),
        Name::Cloudflare => cloudflare(&plan, brake, tell),
        Name::Kit => kit(&plan, brake, tell),
    };
    let outcome = outcome.map_err(failure)?;
    output::print(&match args.json {
        true => lines(args.name.text(), brake, &outcome)?,
        false => words(brake, &outcome),
    })
}

impl Name {
    fn text(self) -> &'static str {
        match self {
            Self::Cloudflare => "cloudflare",
            Self::Kit => "kit",
            Self::Xu => "xu",
            Self::Intel => "intel",
        }
    }

    fn has_brake(self) -> bool {
        matches!(self, Self::Cloudflare | Self::Kit)
    }

    /// Rounds, and seconds of a turn.
    fn turns(self, quick: bool) -> (usize, f64) {
        match (self.has_brake(), quick) {
            (true, true) => (2, 3.0),
            (true, false) => (7, 4.0),
            (false, true) => (10, 0.5),
            (false, false) => (40, 0.5),
        }
    }
}

fn failure(error: ExperimentError) -> Failure {
    match error {
        // The message says what to do.
        ExperimentError::Lacking { .. } => Failure::Failed(error.to_string()),
        error => Failure::from_error(&error),
    }
}

fn words(brake: Option<&str>, outcome: &Outcome) -> String {
    let mut text = String::new();
    table(&mut text, "as this CPU is", &outcome.native);
    if let Some(model) = brake {
        text.push('\n');
        table(&mut text, &format!("as a {model}"), &outcome.braked);
    }
    if let Some(record) = &outcome.record {
        let _ = writeln!(text, "\nrecord: {}", record.display());
    }
    text
}

fn table(text: &mut String, title: &str, rows: &[Row]) {
    let base = rows.first().map_or("", |row| &row.condition);
    let against = format!("against {base}, %");
    let varies = rows.iter().any(|row| row.variation.is_some());
    let _ = writeln!(
        text,
        "{title:26} {:>24} {against:>29} {:>10} {:>10}{}",
        "requests/s",
        "predicted",
        "published",
        if varies { "          variation, %" } else { "" },
    );
    for (index, row) in rows.iter().enumerate() {
        let optional = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:+.1}"));
        let _ = writeln!(
            text,
            "  {:24} {:>24} {:>29} {:>10} {:>10}{}",
            row.condition,
            interval(&row.rate, 0),
            match index {
                0 => String::new(),
                _ => interval(&row.change, 1),
            },
            optional(row.predicted.filter(|_| index > 0)),
            optional(row.published),
            match &row.variation {
                Some(variation) => format!(" {:>21}", interval(variation, 1)),
                None => String::new(),
            },
        );
    }
}

fn interval(interval: &Interval, digits: usize) -> String {
    let Interval { median, low, high } = interval;
    format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
}

fn lines(name: &str, brake: Option<&str>, outcome: &Outcome) -> Result<String, Failure> {
    let mut text = String::new();
    let native = outcome.native.iter().map(|row| (row, None));
    let braked = outcome.braked.iter().map(|row| (row, brake));
    for (row, brake) in native.chain(braked) {
        let line = Line {
            experiment: name,
            brake,
            condition: &row.condition,
            requests_per_s: numbers(&row.rate),
            change_percent: numbers(&row.change),
            variation_percent: row.variation.as_ref().map(numbers),
            predicted_percent: row.predicted,
            published_percent: row.published,
        };
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    Ok(text)
}

fn numbers(interval: &Interval) -> [f64; 3] {
    [interval.median, interval.low, interval.high]
}

fn pair_words(rows: &[PairRow]) -> String {
    let mut text = format!(
        "{:34} {:>24} {:>24} {:>22} {:>10}\n",
        "handshakes/s, p50", "with passes", "without", "times", "published"
    );
    for row in rows {
        let name = format!("{}, {} in flight", row.condition, row.in_flight);
        let published = row
            .published
            .map_or(String::new(), |times| format!("{times:.2}"));
        let _ = writeln!(
            text,
            "{name:34} {:>24} {:>24} {:>22} {published:>10}",
            interval(&row.rates[0], 0),
            interval(&row.rates[1], 0),
            interval(&row.quotient, 2),
        );
        let us = |interval: &Interval| format!("{:.0} us", interval.median);
        let _ = writeln!(
            text,
            "  {:32} {:>24} {:>24}",
            row.sides.join(" beside "),
            us(&row.p50_us[0]),
            us(&row.p50_us[1])
        );
        if let Some(record) = &row.record {
            let _ = writeln!(text, "  record: {}", record.display());
        }
    }
    text
}

fn pair_lines(name: &str, rows: &[PairRow]) -> Result<String, Failure> {
    let mut text = String::new();
    for row in rows {
        let line = json!({
            "experiment": name,
            "condition": row.condition,
            "in_flight": row.in_flight,
            "sides": row.sides,
            "handshakes_per_s": row.rates.each_ref().map(numbers),
            "p50_us": row.p50_us.each_ref().map(numbers),
            "times": numbers(&row.quotient),
            "published_times": row.published,
        });
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    Ok(text)
}

/// Intervals are median, least, most.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    #[serde(rename = "as")]
    brake: Option<&'a str>,
    condition: &'a str,
    requests_per_s: [f64; 3],
    change_percent: [f64; 3],
    #[serde(skip_serializing_if = "Option::is_none")]
    variation_percent: Option<[f64; 3]>,
    predicted_percent: Option<f64>,
    published_percent: Option<f64>,
}

/// Cloudflare's.
const MODEL: &str = "Silver 4116";

const EXAMPLES: &str = "\
Examples:
  sudo widelane experiment cloudflare --quick
      first as this CPU is, then as a Silver 4116
  widelane experiment cloudflare --native
  sudo widelane experiment cloudflare --as \"Gold 6130\" --record records
  sudo widelane experiment kit --as \"Gold 6130\" --quick
  widelane experiment xu --quick

For `cloudflare` nginx, its modules for Lua and brotli, h2load and curl must be installed; if one is
missing, the message names the packages. The brake takes real-time threads, and so root or
CAP_SYS_NICE. All that is started is stopped at the end, also after Ctrl-C.";
