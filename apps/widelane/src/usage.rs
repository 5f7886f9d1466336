//! `widelane usage`: who uses 512-bit registers now.

mod overhead;
mod show;

use crate::screen::Screen;
use crate::values::one_of;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_usage::{By, Collector, Evidence, Method, UsageError, grouped};

/// Show which processes, threads, cgroups or containers use 512-bit registers now
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What the rows are
    #[arg(long, value_name = "WHAT", default_value = "process", value_parser = one_of(ROWS))]
    by: By,

    /// How to find out
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = one_of(METHODS))]
    method: How,

    /// Seconds between tables
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// End after this many tables [default: at q, ^C or SIGTERM]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// The same as --count 1
    #[arg(long, conflicts_with = "count")]
    once: bool,

    /// Show at most this many rows of a table; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,

    /// Do not visit each CPU at the end of an interval: threads that keep their CPU are counted
    /// when they leave it
    #[arg(long)]
    no_visits: bool,

    /// Measure what eBPF costs a process that switches often, print that and end
    #[arg(long, conflicts_with_all = OF_TABLES)]
    overhead: bool,

    /// Print a JSON object for each interval
    #[arg(long)]
    json: bool,

    /// Print the sums since the start as Prometheus text after each interval
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,

    /// Write the Prometheus text to this file instead, replacing it whole; it is removed at the end
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    output: Option<PathBuf>,
}

/// The method that is wanted, or the best that is allowed.
type How = Option<Method>;

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.overhead {
        return overhead::run(args.json);
    }
    let (mut collector, fallback) = collector(args)?;
    let table = !args.json && !args.prometheus;
    if let Some(why) = &fallback
        && !table
    {
        output::complain(&format!("widelane: polls, for eBPF failed: {why}\n"));
    }
    let screen = Screen::open(table && !args.once)?;
    let mut evidence = Evidence::new();
    evidence.look_ahead();
    let mut sums = show::Sums::default();
    let file = args.output.as_deref().map(Replaced);
    let tables = if args.once { Some(1) } else { args.count };
    let mut shown = 0;
    let mut next = Instant::now() + args.interval;
    while tables.is_none_or(|tables| shown < tables) {
        if screen.ended_before(next)? {
            break;
        }
        let mut interval = collector.interval()?;
        next = (next + args.interval).max(Instant::now());
        let mut findings = evidence.findings(&mut interval);
        if !screen.live {
            // There is no next table that could show what this one does not know yet.
            evidence.wait(MOST_FOR_FILES);
            findings = evidence.findings(&mut interval);
        }
        let rows = grouped(&interval, &findings, args.by);
        let picture = show::Picture {
            method: collector.method(),
            fallback: fallback.as_deref(),
            by: args.by,
            elapsed: interval.elapsed,
            rows: &rows,
        };
        if args.json {
            output::print(&show::json(&picture))?;
        } else if args.prometheus {
            sums.add(&picture);
            let text = sums.text()?;
            match &file {
                Some(file) => file.write(&text)?,
                None => output::print(&text)?,
            }
        } else {
            screen.show(&show::table(&picture, args.limit))?;
        }
        shown += 1;
    }
    Ok(())
}

/// The collector that is wanted; if polling takes the place of another, why.
fn collector(args: &Args) -> Result<(Collector, Option<String>), UsageError> {
    let open = |method| Collector::open(method, !args.no_visits);
    match args.method {
        Some(method) => Ok((open(method)?, None)),
        None => match open(Method::Ebpf) {
            Ok(collector) => Ok((collector, None)),
            Err(why) => Ok((open(Method::Poll)?, Some(why.to_string()))),
        },
    }
}

/// A file that is replaced whole, and removed in the end.
struct Replaced<'a>(&'a Path);

impl Replaced<'_> {
    fn write(&self, text: &str) -> Result<(), Failure> {
        output::replace(self.0, text)
    }
}

impl Drop for Replaced<'_> {
    fn drop(&mut self) {
        // It may never have been written, or be a pipe or /dev/null, which stay.
        let _ = widelane_files::remove(self.0);
    }
}

/// Reads the length of an interval.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("a number of seconds from {SHORTEST} to {LONGEST}, like 1 or 0.5");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if !(SHORTEST..=LONGEST).contains(&seconds) {
        return Err(wrong());
    }
    Ok(Duration::from_secs_f64(seconds))
}

const ROWS: [(&str, &str, By); 4] = [
    ("process", "Processes", By::Process),
    ("thread", "Threads", By::Thread),
    ("cgroup", "Cgroups", By::Cgroup),
    ("container", "Containers; outside of one, systemd units", By::Container),
];
const METHODS: [(&str, &str, How); 3] = [
    ("auto", "By eBPF where that is allowed, else by polling", None),
    (
        "ebpf",
        "By programs in the kernel, at every context switch; takes root",
        Some(Method::Ebpf),
    ),
    (
        "poll",
        "By reading /proc at the end of each interval; takes no rights",
        Some(Method::Poll),
    ),
];
/// Shorter intervals say nothing, for the kernel counts in ticks.
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 86_400.0;
/// Files that take longer to read are listed in the next table: that of a second must be
/// there in two.
const MOST_FOR_FILES: Duration = Duration::from_millis(700);
/// Options that say nothing without tables.
const OF_TABLES: [&str; 8] = [
    "by",
    "method",
    "interval",
    "count",
    "once",
    "limit",
    "no_visits",
    "prometheus",
];
const EXAMPLES: &str = "\
Examples:
  widelane usage
      a table that is renewed each second, until q
  widelane usage --by container --interval 5
  widelane usage --once --json
  widelane usage --overhead
  widelane usage --prometheus --output /var/lib/node_exporter/widelane.prom --by cgroup";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn intervals_are_seconds_within_reason() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "1s", ""] {
            assert!(seconds(wrong).unwrap_err().contains("0.1"), "{wrong}");
        }
    }

    #[test]
    fn a_file_is_replaced_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("widelane.prom");
        {
            let file = Replaced(&path);
            file.write("one").unwrap();
            file.write("two").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let nowhere = folder.path().join("missing/widelane.prom");
        let Err(Failure::Failed(message)) = Replaced(&nowhere).write("x") else {
            panic!("there is no such folder");
        };
        assert!(message.contains("missing/widelane.prom"), "{message}");
    }
}
