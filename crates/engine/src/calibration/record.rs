//! The file that keeps costs: its text, its age and its origin.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use widelane_batching::Costs;
use widelane_crypto::Backend;

/// What a file of costs says. Text, one fact a line, a line `end` at the end:
///
/// ```text
/// widelane costs 1
/// machine GenuineIntel 6 207 2, microcode 0x21000290, widelane 0.1.0, program 9437184-1763769600
/// cost x25519-derive avx512ifma 8 50211 310 28012 1763769600
/// end
/// ```
///
/// A cost names operation, backend, lanes, the nanoseconds of a pass with one request, of each
/// further one, and of one alone, and when it was measured, in seconds since 1970. The program is
/// that which measured, by length and time of its file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    machine: String,
    entries: Vec<Entry>,
}

/// What the answers of one operation on one backend cost.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The operation.
    pub name: String,
    /// Whose lanes.
    pub backend: Backend,
    /// In nanoseconds.
    pub costs: Costs,
    /// When it was measured, in seconds since 1970.
    pub measured: u64,
}

/// The text is no record.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("this is no table of costs, or a damaged one; delete it, and it will be made anew")]
pub struct Damaged;

impl Record {
    /// What was found out on this machine.
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        Self {
            machine: this_machine().to_owned(),
            entries,
        }
    }

    /// All entries, of whatever machine and age.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries that hold here and now.
    pub(super) fn current(self) -> Vec<Entry> {
        self.at(this_machine(), now())
    }

    fn at(mut self, machine: &str, now: u64) -> Vec<Entry> {
        if self.machine != machine {
            return Vec::new();
        }
        self.entries.retain(|entry| {
            (now.saturating_sub(MOST_AGE)..=now.saturating_add(DAY)).contains(&entry.measured)
        });
        self.entries
    }
}

impl Entry {
    /// An entry of this moment.
    pub(super) fn new(name: &str, backend: Backend, costs: Costs) -> Self {
        Self {
            name: name.to_owned(),
            backend,
            costs,
            measured: now(),
        }
    }

    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        self.name == other.name && self.backend == other.backend
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}\nmachine {}", self.machine)?;
        for entry in &self.entries {
            let Entry {
                name,
                backend,
                costs,
                measured,
            } = entry;
            let Costs {
                lanes,
                first,
                further,
                alone,
            } = costs;
            writeln!(
                f,
                "cost {name} {backend} {lanes} {first} {further} {alone} {measured}"
            )?;
        }
        writeln!(f, "{END}")
    }
}

impl FromStr for Record {
    type Err = Damaged;

    fn from_str(text: &str) -> Result<Self, Damaged> {
        if text.len() > MOST_BYTES {
            return Err(Damaged);
        }
        // The last newline is there, or the last line may be cut.
        let body = text
            .strip_suffix(END_LINE)
            .and_then(|text| text.strip_prefix(HEAD_LINE))
            .ok_or(Damaged)?;
        // The end has a line of its own.
        if !body.ends_with('\n') {
            return Err(Damaged);
        }
        let (machine, costs) = body.split_once('\n').ok_or(Damaged)?;
        let machine = machine.strip_prefix("machine ").ok_or(Damaged)?;
        if machine.is_empty() || machine.chars().any(char::is_control) {
            return Err(Damaged);
        }
        let mut record = Self {
            machine: machine.to_owned(),
            entries: Vec::new(),
        };
        for line in costs.split_terminator('\n') {
            let entry = entry(line).ok_or(Damaged)?;
            if record
                .entries
                .iter()
                .any(|other| other.is_about_the_same(&entry))
            {
                return Err(Damaged);
            }
            record.entries.push(entry);
        }
        Ok(record)
    }
}

/// Reads a file; `None` if it does not hold a record.
pub(super) fn read(file: &Path) -> Option<Record> {
    // A pipe of that name would have us wait.
    if !fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let most = MOST_BYTES as u64 + 1;
    File::open(file)
        .ok()?
        .take(most)
        .read_to_string(&mut text)
        .ok()?;
    let record = text.parse();
    if let Err(error) = &record {
        tracing::warn!(file = %file.display(), "{error}");
    }
    record.ok()
}

/// Puts a record in the place of a file, whole or not at all.
pub(super) fn write(file: &Path, record: &Record) -> io::Result<()> {
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    let directory = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(directory)?;
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}-{number}", std::process::id()));
    let new = Path::new(&name);
    let written = (|| {
        // Never through a link that somebody else has put there.
        let mut target = File::create_new(new)?;
        target.write_all(record.to_string().as_bytes())?;
        fs::rename(new, file)
    })();
    if written.is_err() {
        // What is left of a failure; whether that goes away changes nothing.
        let _ = fs::remove_file(new);
    }
    written
}

/// One line, if it is in the order and within the bounds of what we write.
fn entry(line: &str) -> Option<Entry> {
    let mut words = line.split(' ');
    if words.next()? != "cost" {
        return None;
    }
    let name = words.next()?;
    let spelt = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !(1..=64).contains(&name.len()) || !name.chars().all(spelt) {
        return None;
    }
    let backend = words.next()?.parse().ok()?;
    let mut number = || {
        let word = words.next()?;
        let value: u64 = word.parse().ok()?;
        // No sign, no leading zero: what we write has one spelling.
        (value.to_string() == word).then_some(value)
    };
    let costs = Costs {
        lanes: usize::try_from(number()?).ok()?,
        first: number()?,
        further: number()?,
        alone: number()?,
    };
    let measured = number()?;
    let plausible = (2..=64).contains(&costs.lanes)
        && (1..=MOST_NANOSECONDS).contains(&costs.first)
        && costs.further <= costs.first
        && (1..=MOST_NANOSECONDS).contains(&costs.alone);
    let whole = plausible && words.next().is_none();
    whole.then(|| Entry {
        name: name.to_owned(),
        backend,
        costs,
        measured,
    })
}

/// What costs depend on: the CPU, its microcode and our own code.
fn this_machine() -> &'static str {
    static MACHINE: OnceLock<String> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        format!("{}, program {}", describe(&cpuinfo), this_program())
    })
}

/// The running program, told from other builds of it: one that was built with other kernels has
/// other costs, though it may have the same version. A question mark if the system hides it.
fn this_program() -> String {
    let file = fs::metadata("/proc/self/exe").ok();
    file.map_or_else(
        || "?".to_owned(),
        |file| format!("{}-{}", file.len(), file.mtime()),
    )
}

/// CPU and version, from the text of `/proc/cpuinfo`; what it does not say is a question mark.
fn describe(cpuinfo: &str) -> String {
    let value = |key: &str| {
        let line = cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().replace(|c: char| c.is_control(), "?"))
        });
        line.filter(|value| !value.is_empty())
            .unwrap_or_else(|| "?".to_owned())
    };
    format!(
        "{} {} {} {} ({}), microcode {}, widelane {}",
        value("vendor_id"),
        value("cpu family"),
        value("model"),
        value("stepping"),
        value("model name"),
        value("microcode"),
        env!("CARGO_PKG_VERSION"),
    )
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

const HEAD: &str = "widelane costs 1";
const HEAD_LINE: &str = "widelane costs 1\n";
const END: &str = "end";
const END_LINE: &str = "end\n";
const MOST_BYTES: usize = 64 * 1024;
const MOST_NANOSECONDS: u64 = 10_000_000_000;
const DAY: u64 = 24 * 60 * 60;
/// The same CPU with the same microcode may sit in another chassis, or run another kernel.
const MOST_AGE: u64 = 90 * DAY;

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let entry = |name, backend, first, alone| Entry {
            measured: 1_763_769_600,
            ..Entry::new(
                name,
                backend,
                Costs {
                    lanes: 8,
                    first,
                    further: 3,
                    alone,
                },
            )
        };
        Record {
            machine: "a CPU, microcode 1".to_owned(),
            entries: vec![
                entry("x25519-derive", Backend::Avx512Ifma, 50_211, 28_012),
                entry("x25519-derive", Backend::Avx512Ifma256, 48_000, 28_100),
                entry("rsa2048-sign", Backend::Avx512Ifma, 230_000, 240_000),
            ],
        }
    }

    #[test]
    fn the_text_is_stable_and_says_everything() {
        let text = record().to_string();
        let expected = "widelane costs 1\nmachine a CPU, microcode 1\n\
            cost x25519-derive avx512ifma 8 50211 3 28012 1763769600\n\
            cost x25519-derive avx512ifma-256 8 48000 3 28100 1763769600\n\
            cost rsa2048-sign avx512ifma 8 230000 3 240000 1763769600\nend\n";
        assert_eq!(text, expected);
        assert_eq!(text.parse(), Ok(record()));
        let empty = Record {
            entries: Vec::new(),
            ..record()
        };
        assert_eq!(empty.to_string().parse(), Ok(empty));
    }

    #[test]
    fn no_cut_text_is_a_record() {
        let text = record().to_string();
        for length in 0..text.len() {
            assert_eq!(text[..length].parse::<Record>(), Err(Damaged), "{length}");
        }
    }

    #[test]
    fn what_we_would_not_write_is_refused() {
        let text = record().to_string();
        for (ours, theirs) in [
            ("costs 1", "costs 2"),
            ("machine a CPU, microcode 1\n", "machine \n"),
            ("machine a CPU", "machine a\tCPU"),
            ("cost rsa2048-sign", "cost x25519-derive"),
            ("cost rsa2048-sign", "cost  rsa2048-sign"),
            ("cost rsa2048-sign", "cost RSA2048-sign"),
            ("cost rsa2048-sign avx512ifma", "cost rsa2048-sign sse9"),
            ("avx512ifma 8 230000", "avx512ifma 1 230000"),
            ("avx512ifma 8 230000", "avx512ifma 65 230000"),
            ("8 230000 3", "8 0 3"),
            ("8 230000 3", "8 +230000 3"),
            ("8 230000 3", "8 0230000 3"),
            ("8 230000 3", "8 10000000001 3"),
            ("8 230000 3", "8 230000 230001"),
            ("3 240000 1763769600", "3 0 1763769600"),
            ("3 240000 1763769600", "3 240000"),
            ("3 240000 1763769600", "3 240000 1763769600 1"),
            ("3 240000 1763769600", "3 240000 18446744073709551616"),
            ("1763769600\nend\n", "1763769600end\n"),
        ] {
            let changed = text.replacen(ours, theirs, 1);
            assert_ne!(changed, text, "{ours}");
            assert_eq!(changed.parse::<Record>(), Err(Damaged), "{theirs}");
        }
        let long = text.replace("a CPU", &"a CPU ".repeat(MOST_BYTES / 6));
        assert_eq!(long.parse::<Record>(), Err(Damaged));
    }

    #[test]
    fn entries_of_another_machine_or_time_do_not_count() {
        let then = record().entries[0].measured;
        let at = |machine, now| record().at(machine, now).len();
        assert_eq!(at("a CPU, microcode 1", then), 3);
        assert_eq!(at("a CPU, microcode 1", then + MOST_AGE), 3);
        assert_eq!(at("a CPU, microcode 1", then + MOST_AGE + 1), 0);
        assert_eq!(at("a CPU, microcode 1", then - DAY), 3, "clocks are set");
        assert_eq!(at("a CPU, microcode 1", then - DAY - 1), 0);
        assert_eq!(at("a CPU, microcode 2", then), 0);
    }

    #[test]
    fn a_machine_is_described_by_what_cpuinfo_says_and_never_over_lines() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n\
            model\t\t: 207\nmodel name\t: A\u{7} CPU\nstepping\t: 2\n\
            microcode\t: 0x21\nflags : a\n\nprocessor\t: 1\nmicrocode\t: 0x22\n";
        assert!(this_machine().contains(", program ") && this_program() != "?");
        let described = describe(text);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            described,
            format!("GenuineIntel 6 207 2 (A? CPU), microcode 0x21, widelane {version}")
        );
        let unknown = describe("");
        assert!(unknown.starts_with("? ? ? ? (?), microcode ?"), "{unknown}");
        for machine in [described, unknown] {
            let record = Record {
                machine,
                entries: Vec::new(),
            };
            assert_eq!(record.to_string().parse(), Ok(record));
        }
    }
}
