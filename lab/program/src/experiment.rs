//! `widelane-lab experiment`: published experiments, done again with real servers on this machine.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};
use widelane_experiments::{
    CipherPlace, ExperimentError, Interval, Options, Order, Outcome, Plan, RecoveredShare, Recovery, Row, Verdict,
    cloudflare, intel, kit, remedy, work, xu,
};
use widelane_samples::{Table, cell, number, text};

use crate::PROGRAM;
use widelane_affinity::Cpus;
use widelane_cli::failure::Failure;
use widelane_cli::output;

/// Do a published experiment again, with real servers on this machine
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The experiment
    #[arg(value_name = "NAME")]
    name: Name,

    /// The model as which the servers' CPU is to behave in the second half (see `widelane-lab
    /// emulate`) [default: Silver 4116 of `cloudflare` and `remedy`, Gold 6130 of `kit`, Gold 6338N of `xu` and `intel`]
    #[arg(long = "as", value_name = "MODEL")]
    model: Option<String>,

    /// Only as this CPU is
    #[arg(long, conflicts_with = "model")]
    native: bool,

    /// For `cloudflare`: ChaCha20-Poly1305 in nginx, by Widelane's provider in its OpenSSL, and not in `widelane serve`
    /// in front of it
    #[arg(long)]
    inside_nginx: bool,

    /// Few rounds: within five minutes
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,

    /// Rounds of turns [default: 7; 20 of `remedy`, which needs six to say anything]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,

    /// Seconds of a turn [default: 4; 1 with --quick, and 3 of `cloudflare`; 2 of `remedy`]
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds)]
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

    /// Order for a process of the experiment itself
    #[arg(long, hide = true)]
    worker: Option<Order>,
}

/// The experiments.
#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// A web page from Lua and brotli, with ChaCha20-Poly1305 in several forms (Cloudflare, 2017)
    Cloudflare,
    /// Compression and ChaCha20-Poly1305, with and without a vector core (KIT, 2018 and 2019)
    Kit,
    /// Full handshakes beside nginx, one worker on one core (Xu, 2022)
    Xu,
    /// Full handshakes, alone and for each page, in software and in vector code (Intel, 2021)
    Intel,
    /// Share of the loss that `cloudflare` shows which 256-bit light code gives back; only under a brake
    Remedy,
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if let Some(order) = &args.worker {
        let line = work(order).map_err(failure)?;
        return output::print(&format!("{line}\n"));
    }
    let place = match (args.inside_nginx, args.name) {
        (false, _) => CipherPlace::InFront,
        (true, Name::Cloudflare) => CipherPlace::InsideNginx,
        (true, other) => {
            return Err(Failure::Usage(format!(
                "--inside-nginx is for `cloudflare`, not for `{}`",
                other.text()
            )));
        }
    };
    let mut options = Options::find()?;
    options.server_cpu = args.server_cpu.unwrap_or(options.server_cpu);
    options.load_cpu = args.load_cpu.unwrap_or(options.load_cpu);
    options.allow_modified = args.allow_modified;
    for note in &options.notes {
        output::complain(&format!("widelane-lab: {note}\n"));
    }
    let (rounds, seconds) = args.name.turns(args.quick);
    let plan = Plan {
        options,
        rounds: args.rounds.map_or(rounds, usize::from),
        seconds: args.seconds.map_or(seconds, |seconds| seconds.as_secs_f64()),
        records: args.record,
        command: output::command_line(PROGRAM),
    };
    let tell = |line: &str| output::complain(&format!("widelane-lab: {line}\n"));
    let model = match (args.native, args.model) {
        (true, _) => None,
        (false, model) => Some(model.unwrap_or_else(|| args.name.model().to_owned())),
    };
    let brake = model.as_deref();
    // Before the turns that go before it.
    if let Some(model) = brake {
        let cpus = Cpus::from_iter([plan.options.server_cpu, plan.options.load_cpu]);
        crate::emulate::check(model, &cpus)?;
    }
    let outcome = match (args.name, brake) {
        (Name::Cloudflare, _) => cloudflare(&plan, place, brake, tell),
        (Name::Kit, _) => kit(&plan, brake, tell),
        (Name::Xu, _) => xu(&plan, brake, tell),
        (Name::Intel, _) => intel(&plan, brake, tell),
        (Name::Remedy, None) => {
            return Err(Failure::Usage(
                "remedy compares turns under a brake with turns without one: leave out --native".into(),
            ));
        }
        (Name::Remedy, Some(model)) => {
            let remedy = remedy(&plan, model, tell).map_err(failure)?;
            return output::print(&match args.json {
                true => remedy_line(model, plan.rounds, &remedy),
                false => remedy_words(model, &remedy),
            });
        }
    };
    let outcome = outcome.map_err(failure)?;
    output::print(&match args.json {
        true => lines(&args.name.text(), brake, &outcome),
        false => words(brake, &outcome),
    })
}

impl Name {
    fn text(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// CPU of the publication, or the nearest of which enough is known.
    fn model(self) -> &'static str {
        match self {
            Self::Cloudflare | Self::Remedy => "Silver 4116",
            Self::Kit => "Gold 6130",
            Self::Xu | Self::Intel => "Gold 6338N",
        }
    }

    /// Rounds, and seconds of a turn.
    fn turns(self, quick: bool) -> (usize, f64) {
        match (self, quick) {
            (Self::Cloudflare, true) => (2, 3.0),
            (Self::Remedy, true) => (8, 2.0),
            (Self::Remedy, false) => (20, 2.0),
            (_, true) => (2, 1.2),
            (_, false) => (7, 4.0),
        }
    }
}

/// Reads a span of time in seconds that is not zero.
fn some_seconds(text: &str) -> Result<Duration, String> {
    match widelane_cli::values::seconds(text)? {
        Duration::ZERO => Err("0 seconds measure nothing; give for example 0.5".to_owned()),
        span => Ok(span),
    }
}

fn failure(error: ExperimentError) -> Failure {
    match error {
        // The message says what to do.
        ExperimentError::Lacking { .. } => Failure::Failed(error.to_string()),
        error => error.into(),
    }
}

fn words(brake: Option<&str>, outcome: &Outcome) -> String {
    let mut text = table("as this CPU is", &outcome.native);
    if let Some(model) = brake {
        text.push('\n');
        text += &table(&format!("as a {model}"), &outcome.braked);
    }
    if let Some(record) = &outcome.record {
        let _ = writeln!(text, "\nrecord: {}", record.display());
    }
    text
}

/// Returns the text of one column, if the row has it.
type Cell = fn(&Row) -> Option<String>;

fn table(title: &str, rows: &[Row]) -> String {
    let head = ["requests/s", "change, %", "predicted", "published"];
    let optional: [(_, Cell); 5] = [
        ("p50, us", |row| row.p50_us.map(|of| format!("{:.0}", of.median))),
        ("lanes", |row| row.batch.map(|of| format!("{:.1}", of.median))),
        ("wide, %", |row| row.wide_percent.map(|share| format!("{share:.1}"))),
        ("variation, %", |row| {
            row.variation.map(|of| format!("{:.1}", of.median))
        }),
        ("at level 0/1/2, %", |row| {
            let levels = row.levels?.map(|share| format!("{:.1}", 100.0 * share));
            Some(levels.join("/"))
        }),
    ];
    let shown: Vec<_> = optional
        .iter()
        .filter(|(_, of)| rows.iter().any(|row| of(row).is_some()))
        .collect();
    let cells = rows.iter().map(|row| {
        let signed = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:+.1}"));
        let compared = row.against.map(|_| interval(&row.change, 1));
        let predicted = signed(row.predicted.filter(|_| compared.is_some()));
        let first = [
            row.condition.clone(),
            interval(&row.rate, 0),
            compared.unwrap_or_default(),
            predicted,
            signed(row.published),
        ];
        let others = shown.iter().map(|(_, of)| of(row).unwrap_or_else(|| "n/a".to_owned()));
        first.into_iter().chain(others).map(cell).collect()
    });
    let titles = head.into_iter().chain(shown.iter().map(|(title, _)| *title));
    let head = std::iter::once(text(title)).chain(titles.map(number));
    Table::new(head, None).with(cells.collect::<Vec<_>>()).text()
}

fn remedy_words(model: &str, remedy: &Recovery) -> String {
    let mut text = format!("requests/s lost as a {model}, against the same form as this CPU is\n");
    for loss in &remedy.losses {
        let bounds = loss.bounds.map_or("no interval".to_owned(), |(low, high)| {
            format!("95 % interval: {low:.1} to {high:.1}")
        });
        let _ = writeln!(text, "  {:12} {:6.1} % ({bounds})", loss.form, loss.median);
    }
    let (light, given) = (remedy.losses[1].form, &remedy.recovered);
    let percent =
        |share: Option<f64>, without: &str| share.map_or(without.to_owned(), |share| format!("{:.0} %", 100.0 * share));
    let _ = writeln!(
        text,
        "{light} gives back {} of it (95 % interval: {} to {})",
        percent(given.share, "nothing, because nothing was lost"),
        percent(given.low, "no bound"),
        percent(given.high, "no bound"),
    );
    text.push_str(match given.verdict {
        Verdict::Proved => "proved: at least two thirds come back\n",
        Verdict::Refuted => "refuted: less than two thirds come back\n",
        Verdict::Open => {
            "open: these rounds do not tell whether two thirds come back; take more (--rounds), and stop other \
             programs\n"
        }
    });
    if let Some(record) = &remedy.record {
        let _ = writeln!(text, "\nrecord: {}", record.display());
    }
    text
}

fn remedy_line(model: &str, rounds: usize, remedy: &Recovery) -> String {
    let losses = remedy.losses.iter();
    let losses = losses.map(|loss| {
        let (low, high) = loss.bounds.unzip();
        (loss.form.to_owned(), [Some(loss.median), low, high].into())
    });
    let given = &remedy.recovered;
    let line = json!({
        "experiment": Name::Remedy.text(),
        "as": model,
        "rounds": rounds,
        "loss_percent": Value::Object(losses.collect()),
        "given_back": [given.share, given.low, given.high],
        "needed": RecoveredShare::NEEDED,
        "verdict": given.verdict.name(),
    });
    format!("{line}\n")
}

fn interval(interval: &Interval, digits: usize) -> String {
    let Interval { median, low, high } = interval;
    format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
}

/// Intervals are median, least, most.
fn lines(name: &str, brake: Option<&str>, outcome: &Outcome) -> String {
    let numbers = |of: &Interval| [of.median, of.low, of.high];
    let mut text = String::new();
    for (rows, brake) in [(&outcome.native, None), (&outcome.braked, brake)] {
        for row in rows {
            let against = row.against.and_then(|at| rows.get(at));
            let line = json!({
                "experiment": name,
                "as": brake,
                "condition": row.condition,
                "against": against.map(|row| &row.condition),
                "requests_per_s": numbers(&row.rate),
                "change_percent": numbers(&row.change),
                "variation_percent": row.variation.as_ref().map(numbers),
                "p50_us": row.p50_us.as_ref().map(numbers),
                "lanes_per_pass": row.batch.as_ref().map(numbers),
                "level_share": row.levels,
                "wide_percent": row.wide_percent,
                "predicted_percent": row.predicted,
                "published_percent": row.published,
            });
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

const EXAMPLES: &str = "\
Examples:
  sudo widelane-lab experiment cloudflare --quick
      first as this CPU is, then as a Silver 4116
  widelane-lab experiment cloudflare --native
  sudo widelane-lab experiment cloudflare --inside-nginx
  sudo widelane-lab experiment cloudflare --as \"Gold 6130\" --record records
  sudo widelane-lab experiment kit --as \"Gold 6130\" --quick
  widelane-lab experiment xu --quick --native
  sudo widelane-lab experiment remedy --rounds 40

nginx, its modules for Lua and brotli, h2load and curl must be installed; if one is
missing, the message names the packages. The brake takes real-time threads, and so root or
CAP_SYS_NICE. All that is started is stopped at the end, also after Ctrl-C.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_seconds_measure_nothing() {
        assert_eq!(some_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(some_seconds("0").is_err());
    }
}
