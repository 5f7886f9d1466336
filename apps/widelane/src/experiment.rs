//! `widelane experiment`: published experiments, done again with real servers on this machine.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use widelane_experiments::{
    Cloudflare, CloudflarePlan, ExperimentError, Interval, Kit, KitPlan, KitRow, Options, Order,
    PairRow, Pairs, PairsPlan, Row, cloudflare, kit, pairs, work,
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

    /// The model as which the servers' CPU is to behave in the second half (see `widelane emulate`)
    #[arg(long = "as", value_name = "MODEL", default_value = "Silver 4116")]
    model: String,

    /// Only as this CPU is
    #[arg(long, conflicts_with = "model")]
    native: bool,

    /// Two rounds in place of seven: within five minutes
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,

    /// Rounds of turns
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Seconds of a turn
    #[arg(long, value_name = "SECONDS", default_value = "4", value_parser = crate::values::seconds)]
    seconds: Duration,

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
    let mut options = Options::find().map_err(|error| Failure::from_error(&error))?;
    // This very program, whatever it is called.
    options.widelane = std::env::current_exe()?;
    options.server_cpu = args.server_cpu.unwrap_or(options.server_cpu);
    options.load_cpu = args.load_cpu.unwrap_or(options.load_cpu);
    options.allow_modified = args.allow_modified;
    for note in &options.notes {
        output::complain(&format!("widelane: {note}\n"));
    }
    let (rounds, seconds) = match args.quick {
        true => (2, 3.0),
        false => (usize::from(args.rounds), args.seconds.as_secs_f64()),
    };
    let brake = (!args.native).then_some(args.model);
    let records = args.record;
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let tell = |line: &str| output::complain(&format!("widelane: {line}\n"));
    let text = match args.name {
        Name::Xu | Name::Intel => {
            let (name, which) = match args.name {
                Name::Xu => ("xu", Pairs::Xu),
                _ => ("intel", Pairs::Intel),
            };
            let plan = PairsPlan {
                options,
                // These turns take half a second each.
                rounds: if args.quick { 10 } else { 40 },
                records,
                command,
            };
            let rows = pairs(which, &plan, tell).map_err(failure)?;
            match args.json {
                true => pair_lines(name, &rows)?,
                false => pair_words(&rows),
            }
        }
        Name::Cloudflare => {
            let plan = CloudflarePlan {
                options,
                brake,
                rounds,
                seconds,
                records,
                command,
            };
            let result = cloudflare(plan, tell).map_err(failure)?;
            match args.json {
                true => lines(&result)?,
                false => words(&result),
            }
        }
        Name::Kit => {
            let title = brake.as_ref().map(|model| format!("as a {model}"));
            let plan = KitPlan {
                options,
                brake,
                rounds,
                seconds,
                records,
                command,
            };
            let result = kit(plan, tell).map_err(failure)?;
            match args.json {
                true => kit_lines(&result, title.as_deref())?,
                false => kit_words(&result, title.as_deref()),
            }
        }
    };
    output::print(&text)
}

fn failure(error: ExperimentError) -> Failure {
    match error {
        // The message says what to do.
        ExperimentError::Lacking { .. } => Failure::Failed(error.to_string()),
        error => Failure::from_error(&error),
    }
}

fn words(result: &Cloudflare) -> String {
    let mut text = format!("a page of {} bytes as it is sent\n", result.page_bytes);
    table(&mut text, "as this CPU is", &result.native);
    if let Some(model) = &result.brake {
        text.push('\n');
        table(&mut text, &format!("as a {model}"), &result.braked);
    }
    if let Some(record) = &result.record {
        let _ = writeln!(text, "\nrecord: {}", record.display());
    }
    text
}

fn table(text: &mut String, title: &str, rows: &[Row]) {
    let _ = writeln!(
        text,
        "{title:26} {:>24} {:>22} {:>10} {:>10}",
        "requests/s", "against AES-GCM, %", "predicted", "published"
    );
    for row in rows {
        let name = match row.chacha_percent {
            0 => row.form.to_owned(),
            percent => format!("{} at {percent} %", row.form),
        };
        let optional = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:+.1}"));
        let _ = writeln!(
            text,
            "  {name:24} {:>24} {:>22} {:>10} {:>10}",
            interval(&row.rate, 0),
            match row.chacha_percent {
                0 => String::new(),
                _ => interval(&row.change, 1),
            },
            optional(row.predicted.filter(|_| row.chacha_percent > 0)),
            optional(row.published),
        );
    }
}

fn interval(interval: &Interval, digits: usize) -> String {
    let Interval { median, low, high } = interval;
    format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
}

fn lines(result: &Cloudflare) -> Result<String, Failure> {
    let mut text = String::new();
    let braked = result
        .braked
        .iter()
        .map(|row| (row, result.brake.as_deref()));
    let native = result.native.iter().map(|row| (row, None));
    for (row, brake) in native.chain(braked) {
        let interval = |one: &Interval| [one.median, one.low, one.high];
        let line = Line {
            experiment: "cloudflare",
            brake,
            form: row.form,
            chacha_percent: row.chacha_percent,
            requests_per_s: interval(&row.rate),
            change_percent: interval(&row.change),
            predicted_percent: row.predicted,
            published_percent: row.published,
        };
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    Ok(text)
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
        let interval = |one: &Interval| [one.median, one.low, one.high];
        let line = serde_json::json!({
            "experiment": name,
            "condition": row.condition,
            "in_flight": row.in_flight,
            "sides": row.sides,
            "handshakes_per_s": row.rates.each_ref().map(interval),
            "p50_us": row.p50_us.each_ref().map(interval),
            "times": interval(&row.quotient),
            "published_times": row.published,
        });
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    Ok(text)
}

fn kit_words(result: &Kit, braked: Option<&str>) -> String {
    let mut text = String::new();
    kit_table(&mut text, "as these CPUs are", &result.native);
    if let Some(title) = braked {
        text.push('\n');
        kit_table(&mut text, title, &result.braked);
    }
    if let Some(record) = &result.record {
        let _ = writeln!(text, "\nrecord: {}", record.display());
    }
    text
}

fn kit_table(text: &mut String, title: &str, rows: &[KitRow]) {
    let _ = writeln!(
        text,
        "{title:26} {:>24} {:>24} {:>10} {:>10} {:>22}",
        "requests/s", "against 256-light, %", "predicted", "published", "variation, %"
    );
    for (index, row) in rows.iter().enumerate() {
        let optional = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:+.1}"));
        let _ = writeln!(
            text,
            "  {:24} {:>24} {:>24} {:>10} {:>10} {:>22}",
            row.name,
            interval(&row.rate, 0),
            match index {
                0 => String::new(),
                _ => interval(&row.change, 1),
            },
            optional(row.predicted.filter(|_| index > 0)),
            optional(row.published),
            interval(&row.variation, 1),
        );
    }
}

fn kit_lines(result: &Kit, braked: Option<&str>) -> Result<String, Failure> {
    let mut text = String::new();
    let native = result.native.iter().map(|row| (row, None));
    for (row, title) in native.chain(result.braked.iter().map(|row| (row, braked))) {
        let interval = |one: &Interval| [one.median, one.low, one.high];
        let line = serde_json::json!({
            "experiment": "kit",
            "as": title.and_then(|title| title.strip_prefix("as a ")),
            "form": row.name,
            "requests_per_s": interval(&row.rate),
            "change_percent": interval(&row.change),
            "variation_percent": interval(&row.variation),
            "predicted_percent": row.predicted,
            "published_percent": row.published,
        });
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    Ok(text)
}

/// Intervals are median, least, most.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'static str,
    #[serde(rename = "as")]
    brake: Option<&'a str>,
    form: &'static str,
    chacha_percent: usize,
    requests_per_s: [f64; 3],
    change_percent: [f64; 3],
    predicted_percent: Option<f64>,
    published_percent: Option<f64>,
}

const EXAMPLES: &str = "\
Examples:
  sudo widelane experiment cloudflare --quick
      first as this CPU is, then as a Silver 4116
  widelane experiment cloudflare --native
  sudo widelane experiment cloudflare --as \"Gold 6130\" --record records
  sudo widelane experiment kit --as \"Gold 6130\" --quick
  widelane experiment xu --quick

For `cloudflare` nginx, its modules for Lua and brotli, h2load and curl must be installed; if one is
missing, the message names the packages. The brake takes real-time threads, and so root or CAP_SYS_NICE. All that is started
is stopped at the end, also after Ctrl-C.";
