//! `widelane steer`: core specialisation for programs that know nothing of it.

use crate::object::object;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use widelane_affinity::Cpus;
use widelane_cli::failure::Failure;
use widelane_cli::output;
use widelane_cli::places::Places;
use widelane_cli::values;
use widelane_steer::{
    Either, Event, Folder, Limits, Named, Options, RegistersInUse, Returning, Scope, Sensor, SteerError, Summary, Why,
};
use widelane_text::{escaped, json_line};

/// Keep threads that use wide registers on vector cores, and the others off them
///
/// Until SIGTERM, SIGINT or SIGHUP, or for --duration. Only affinities are changed, only within
/// what users and service managers have set, and all are restored at the end.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Count this process, or threads of this name, as wide, too; may be given several times
    #[arg(long = "wide", value_name = "PID|NAME",
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    wide: Vec<String>,

    /// Count only what --wide names as wide, and do not look at registers
    #[arg(long, requires = "wide")]
    named_only: bool,

    /// Steer only this process and its descendants; may be given several times
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    only: Vec<i32>,

    #[command(flatten)]
    shared: Shared,

    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    duration: Option<Duration>,

    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Restore what `steer` or `run` left behind when it was killed, and end
    #[arg(long, conflicts_with_all = ["wide", "named_only", "only", "dry_run", "duration"])]
    restore: bool,
}

/// Options that `steer` and `run` share.
#[derive(clap::Args)]
pub(crate) struct Shared {
    /// Only these CPUs, and the hyperthreads of their cores, may become vector cores (like 2-3)
    #[arg(long, value_name = "CPUS", value_parser = Cpus::named)]
    pub(crate) cores: Option<Cpus>,

    /// Keep at least so many vector cores, even while nothing is wide
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) min: usize,

    /// Take at most so many vector cores; one core is always left to scalar code
    #[arg(long, value_name = "N")]
    pub(crate) max: Option<usize>,

    /// When a thread that was wide goes back: so many seconds after it was last seen wide, or when
    /// its own pauses so far say that waiting longer costs more (measured)
    #[arg(long = "return", value_name = "SECONDS|measured", default_value = "measured",
        value_parser = returning)]
    pub(crate) returning: Return,

    /// Look and decide every so many seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.25", value_parser = interval)]
    pub(crate) interval: Duration,

    /// Keep what must be restored in this folder instead of /run/widelane (root),
    /// $XDG_RUNTIME_DIR/widelane, or without that /tmp/widelane-UID
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Print a JSON object a line for each event
    #[arg(long)]
    pub(crate) json: bool,
}

/// Choice of when threads go back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Return {
    After(Duration),
    Measured,
}

impl Shared {
    /// Options of the library.
    pub(crate) fn options(&self, scope: Scope, dry_run: bool) -> Result<Options, Failure> {
        if self.max.is_some_and(|max| max < self.min) {
            return Err(Failure::Usage("--max is less than --min".to_owned()));
        }
        Ok(Options {
            scope,
            limits: Limits {
                candidates: self.cores,
                min: self.min,
                max: self.max,
                reserved: false,
            },
            returning: match self.returning {
                Return::After(hold) => Returning::Fixed(hold),
                Return::Measured => Returning::measured(self.interval),
            },
            dry_run,
            folder: self.folder(),
            roots: Folder::at(Places::here().roots()),
        })
    }

    fn folder(&self) -> Folder {
        match &self.state_dir {
            Some(named) => Folder::at(named),
            None => Folder::at(Places::here().runtime()),
        }
    }
}

/// Runs it.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.restore {
        let restored = widelane_steer::restore(&args.shared.folder()).map_err(failed)?;
        return output::print(&match args.shared.json {
            true => json_line(&object! { event: "restored", threads: restored }),
            false => format!("{restored} threads have their affinities back\n"),
        });
    }
    let scope = match args.only.is_empty() {
        true => Scope::Machine,
        false => Scope::Only(args.only),
    };
    let options = args.shared.options(scope, args.dry_run)?;
    let named = Box::new(named(&args.wide));
    let sensor: Box<dyn Sensor> = match args.named_only {
        true => named,
        false => Box::new(Either(Box::new(sensed("--wide PID|NAME --named-only")?), named)),
    };
    let mut printed = Ok(());
    let mut tell = |event: Event| {
        // A reader that has gone ends nothing: what was changed must be restored in good order.
        let text = output::print(&event_text(&event, args.shared.json, args.dry_run));
        if printed.is_ok() {
            printed = text;
        }
    };
    let summary = widelane_steer::steer(options, sensor, args.shared.interval, args.duration, &mut tell);
    let summary = summary.map_err(failed)?;
    printed?;
    output::print(&summary_text(&summary, args.shared.json, args.dry_run))
}

/// Text of an event, for people or for programs.
pub(crate) fn event_text(event: &Event, json: bool, dry_run: bool) -> String {
    if json {
        return json_line(event);
    }
    let mut text = String::new();
    let _ = match event {
        Event::VectorCores { cpus, .. } if cpus.is_empty() => {
            writeln!(text, "no vector cores: nothing is wide")
        }
        Event::VectorCores { cpus, open: true } => {
            writeln!(text, "vector cores: CPU {cpus}, idle: scalar threads may use them")
        }
        Event::VectorCores { cpus, open: false } => {
            writeln!(text, "vector cores: CPU {cpus}")
        }
        Event::Moved {
            tid,
            name,
            from,
            to,
            why,
            ..
        } => {
            let verb = if dry_run { "would move" } else { "moved" };
            let (name, why) = (escaped(name), reason(*why));
            writeln!(text, "{verb} {name} ({tid}) from CPU {from} to {to}: {why}")
        }
        Event::Refused { tid, name, error } => {
            writeln!(text, "left {} ({tid}) alone: {error}", escaped(name))
        }
        Event::Failed { error } => writeln!(text, "nothing done this time: {error}"),
        Event::Overruled { pid } => {
            writeln!(text, "root's steer has begun as process {pid}: ending")
        }
    };
    text
}

/// Text of the summary, for people or for programs.
pub(crate) fn summary_text(summary: &Summary, json: bool, dry_run: bool) -> String {
    if json {
        return json_line(&object! {
            event: "ended",
            #[serde(flatten)]
            summary,
        });
    }
    let Summary {
        rounds,
        threads,
        moves,
        refused,
        restored,
        respected,
    } = summary;
    let verb = if dry_run { "would be moved" } else { "moved" };
    format!(
        "{threads} threads {verb} {moves} times in {rounds} rounds; {refused} could not be moved, \
         {respected} were changed by others and respected; {restored} restored at the end\n"
    )
}

/// The sensor of wide code; if there is none, `instead` is what else could be done.
pub(crate) fn sensed(instead: &str) -> Result<RegistersInUse, Failure> {
    RegistersInUse::open().map_err(|error| Failure::Failed(format!("{error}, or say it with {instead}")))
}

/// A library's error as ours.
pub(crate) fn failed(error: SteerError) -> Failure {
    Failure::Failed(match error {
        SteerError::Folder { .. } | SteerError::Untrusted { .. } => {
            format!("{error}; name a folder of your own with --state-dir")
        }
        error => error.to_string(),
    })
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::Wide => "uses wide registers",
        Why::WideLately => "used wide registers lately",
        Why::Scalar => "does not use wide registers",
        Why::VectorCoresIdle => "the vector cores are idle",
        Why::NoVectorCores => "nothing is wide",
        Why::NotAllowedThere => "it is not allowed elsewhere",
    }
}

fn named(wide: &[String]) -> Named {
    let mut named = Named::default();
    for who in wide {
        match who.parse() {
            Ok(pid) => named.pids.insert(pid),
            Err(_) => named.names.insert(who.clone()),
        };
    }
    named
}

fn returning(text: &str) -> Result<Return, String> {
    if text == "measured" {
        return Ok(Return::Measured);
    }
    let wrong = |_| {
        format!(
            "`{}` is neither a number of seconds nor `measured`",
            text.escape_debug()
        )
    };
    values::seconds(text).map(Return::After).map_err(wrong)
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = values::seconds(text)?;
    if interval < SHORTEST {
        return Err(format!("an interval is at least {} s", SHORTEST.as_secs_f64()));
    }
    Ok(interval)
}

/// Below this, looking at every thread costs more than steering gains.
const SHORTEST: Duration = Duration::from_millis(20);

const EXAMPLES: &str = "\
Examples:
  widelane steer --dry-run
  widelane steer --cores 6-7 --return 2
  widelane steer --only $(pidof -s nginx) --json
  widelane steer --wide ffmpeg --wide 4711 --named-only --max 2
  widelane steer --restore

Wide code is found by the registers in use, which takes root. Without root, only the processes of
the same user are steered. Kernel threads, real-time threads and process 1 are left alone.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused() {
        assert_eq!(returning("measured"), Ok(Return::Measured));
        assert_eq!(returning("2"), Ok(Return::After(Duration::from_secs(2))));
        assert!(returning("soon").unwrap_err().contains("measured"));
        assert!(interval("0.001").is_err() && interval("0.02").is_ok());
        let cores = Cpus::named;
        assert!(cores("").is_err() && cores("x").is_err() && cores("2-3").is_ok());
    }

    #[test]
    fn numbers_are_processes_and_all_else_names() {
        let named = named(&["12".into(), "openssl".into(), "-1x".into()]);
        assert!(named.pids.contains(&12) && named.pids.len() == 1);
        assert!(named.names.contains("openssl") && named.names.len() == 2);
    }

    fn moved(name: &str) -> Event {
        Event::Moved {
            tid: 7,
            pid: 7,
            name: name.into(),
            from: "0-1".parse().unwrap(),
            to: "1".parse().unwrap(),
            why: Why::Wide,
        }
    }

    #[test]
    fn an_event_is_a_line_whatever_a_thread_is_called() {
        let refused = Event::Refused {
            tid: 7,
            name: "a\u{9b}\u{202e}b\nc".into(),
            error: "no".into(),
        };
        for event in [moved("a\u{9b}\u{202e}b\nc"), refused] {
            let text = event_text(&event, false, false);
            assert!(text.contains("a\\u{9b}\\u{202e}b\\nc (7)"), "{text}");
            assert_eq!(text.matches('\n').count(), 1);
            let json = event_text(&event, true, false);
            assert!(json.contains(r#""a\u009b\u202eb\nc""#), "{json}");
        }
    }

    #[test]
    fn a_move_is_told_with_its_reason() {
        let event = moved("openssl");
        assert_eq!(
            event_text(&event, false, true),
            "would move openssl (7) from CPU 0-1 to 1: uses wide registers\n"
        );
        assert_eq!(
            event_text(&event, true, false),
            "{\"event\":\"moved\",\"tid\":7,\"pid\":7,\"name\":\"openssl\",\"from\":\"0-1\",\
             \"to\":\"1\",\"why\":\"wide\"}\n"
        );
    }
}
