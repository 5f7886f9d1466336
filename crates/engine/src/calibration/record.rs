//! The file that keeps costs: JSON, with the machine and the age of each entry.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use widelane_batching::Costs;
use widelane_crypto::Backend;
use widelane_files::cpuinfo::cpus;

/// The contents of a calibration file:
///
/// ```json
/// {
///   "format": "widelane costs 4",
///   "machine": "GenuineIntel 6 207 2, microcode 0x21000290, widelane 0.1.0, program 94371-17637",
///   "entries": [
///     {
///       "operation": "x25519-derive",
///       "backend": "avx512ifma",
///       "methods": ["only"],
///       "costs": { "lanes": 8, "first": 50211, "further": 310, "alone": 28012 },
///       "measured": 1763769600
///     }
///   ],
///   "comparisons": [
///     {
///       "operation": "x25519-derive",
///       "with": "OpenSSL 3.0.17 1 Jul 2025",
///       "theirs": 38950,
///       "alone": 28020,
///       "measured": 1763769600
///     }
///   ]
/// }
/// ```
///
/// Methods are the ways to run passes, the fastest first. Costs are the nanoseconds of a pass with
/// one request, of each further request in it, and of one request alone. `measured` is in seconds
/// since 1970. A comparison has the nanoseconds of one request alone, and of another library's answer to the
/// same, measured by turns. `program` is the length and the time of the file with the code that measured: a program,
/// or a library that another program has loaded.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    format: Format,
    machine: String,
    entries: Vec<Entry>,
    comparisons: Vec<Comparison>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
enum Format {
    #[serde(rename = "widelane costs 4")]
    Costs4,
}

/// Cost of one answer of another library, beside the same from aws-lc-rs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The operation.
    pub operation: String,
    /// The other library and its version.
    pub with: String,
    /// Nanoseconds of the other library.
    pub theirs: u64,
    /// Nanoseconds of one request alone.
    pub alone: u64,
    /// Time of the measurement, in seconds since 1970.
    pub measured: u64,
}

impl Comparison {
    /// One of this moment.
    pub(super) fn new(operation: &str, with: &str, theirs: u64, alone: u64) -> Self {
        Self {
            operation: operation.to_owned(),
            with: with.to_owned(),
            theirs,
            alone,
            measured: now(),
        }
    }

    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        self.operation == other.operation && self.with == other.with
    }
}

/// Costs of one operation's answers on one backend.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Entry {
    /// The operation.
    #[serde(rename = "operation")]
    pub name: String,
    /// The backend whose lanes the passes used.
    #[serde(serialize_with = "write_backend", deserialize_with = "read_backend")]
    pub backend: Backend,
    /// The ways to run its passes, the fastest first; the costs are of that one.
    pub methods: Vec<String>,
    /// In nanoseconds.
    #[serde(with = "CostsFields")]
    pub costs: Costs,
    /// Time of the measurement, in seconds since 1970.
    pub measured: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Costs", deny_unknown_fields)]
struct CostsFields {
    lanes: usize,
    first: u64,
    further: u64,
    alone: u64,
}

/// The text is no record, or a value in it is impossible.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("no calibration file of this version: {0}; delete the file, the next start measures anew")]
pub struct Damaged(String);

impl Record {
    /// A record of this machine.
    pub(super) fn new(entries: Vec<Entry>, comparisons: Vec<Comparison>) -> Self {
        Self {
            format: Format::Costs4,
            machine: this_machine().to_owned(),
            entries,
            comparisons,
        }
    }

    /// All entries, of any machine and any age.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Entries that are of this machine and not too old.
    pub(super) fn current(self) -> (Vec<Entry>, Vec<Comparison>) {
        self.at(this_machine(), now())
    }

    fn at(mut self, machine: &str, now: u64) -> (Vec<Entry>, Vec<Comparison>) {
        if self.machine != machine {
            return Default::default();
        }
        let ages = now.saturating_sub(MOST_AGE)..=now.saturating_add(DAY);
        self.entries.retain(|entry| ages.contains(&entry.measured));
        self.comparisons.retain(|one| ages.contains(&one.measured));
        (self.entries, self.comparisons)
    }

    /// Refuses values that this program never writes.
    fn check(&self) -> Result<(), Damaged> {
        for (place, entry) in self.entries.iter().enumerate() {
            let seen = &self.entries[..place];
            if seen.iter().any(|other| other.is_about_the_same(entry)) {
                return Err(Damaged(format!("{} is there twice", entry.name)));
            }
            if !entry.is_plausible() {
                return Err(Damaged(format!("impossible costs of {:?}", entry.name)));
            }
        }
        for (place, one) in self.comparisons.iter().enumerate() {
            let possible = 1..=MOST_NANOSECONDS;
            let is_new = !self.comparisons[..place]
                .iter()
                .any(|other| other.is_about_the_same(one));
            if !is_new || !possible.contains(&one.theirs) || !possible.contains(&one.alone) {
                let operation = one.operation.escape_debug();
                return Err(Damaged(format!("an impossible comparison of {operation}")));
            }
        }
        Ok(())
    }
}

impl Entry {
    /// An entry of this moment.
    pub(super) fn new(name: &str, backend: Backend, methods: &[&str], costs: Costs) -> Self {
        Self {
            name: name.to_owned(),
            backend,
            methods: methods.iter().map(|&method| method.to_owned()).collect(),
            costs,
            measured: now(),
        }
    }

    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        self.name == other.name && self.backend == other.backend
    }

    /// Returns whether these are the methods that were compared, in any order.
    pub(super) fn compares(&self, methods: &[&str]) -> bool {
        self.methods.len() == methods.len()
            && methods
                .iter()
                .all(|&name| self.methods.iter().any(|method| method == name))
    }

    fn is_plausible(&self) -> bool {
        let costs = &self.costs;
        (2..=64).contains(&costs.lanes)
            && (1..=MOST_METHODS).contains(&self.methods.len())
            && (1..=MOST_NANOSECONDS).contains(&costs.first)
            && costs.further <= costs.first
            && (1..=MOST_NANOSECONDS).contains(&costs.alone)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?;
        writeln!(f, "{text}")
    }
}

impl FromStr for Record {
    type Err = Damaged;

    fn from_str(text: &str) -> Result<Self, Damaged> {
        if text.len() > MOST_BYTES {
            return Err(Damaged(format!("more than {MOST_BYTES} bytes")));
        }
        let record: Self = serde_json::from_str(text).map_err(|error| Damaged(error.to_string()))?;
        record.check()?;
        Ok(record)
    }
}

/// Reads a file; `None` if it holds no record, or other users can change it.
pub(super) fn read(file: &Path) -> Option<Record> {
    let read = || {
        let bytes = widelane_files::read_trusted(file, MOST_BYTES as u64)?;
        let text = String::from_utf8(bytes).map_err(io::Error::other)?;
        text.parse::<Record>().map_err(io::Error::other)
    };
    match read() {
        Ok(record) => Some(record),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::debug!(file = %file.display(), %error, "measured anew");
            None
        }
    }
}

/// Replaces a file by a record, whole or not at all. Its folder is made, and refused as root if other users can
/// write to it: they would decide when passes run.
pub(super) fn write(file: &Path, record: &Record) -> io::Result<()> {
    widelane_files::replace_trusted(file, record.to_string().as_bytes())
}

fn write_backend<S: Serializer>(backend: &Backend, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(backend)
}

fn read_backend<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Backend, D::Error> {
    let name = String::deserialize(deserializer)?;
    name.parse().map_err(serde::de::Error::custom)
}

/// Name of all that costs depend on: the CPU, its microcode and our own code.
fn this_machine() -> &'static str {
    static MACHINE: OnceLock<String> = OnceLock::new();
    MACHINE.get_or_init(|| format!("{}, program {}", describe(&first_cpu()), this_program()))
}

/// The beginning of `/proc/cpuinfo`, which describes one CPU. The rest takes long on machines with many.
fn first_cpu() -> String {
    let bytes = widelane_files::kernel_beginning("/proc/cpuinfo", 4096);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Tells this code from other builds of the same version, whose kernels may have other costs. A
/// question mark if the system hides its file.
fn this_program() -> String {
    let maps = widelane_files::kernel("/proc/self/maps").unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let code = (this_program as *const ()).addr();
    let file = file_mapped_at(&maps, code).and_then(|path| fs::metadata(path).ok());
    file.map_or_else(|| "?".to_owned(), |file| format!("{}-{}", file.len(), file.mtime()))
}

/// The file that is mapped at an address, from the text of `/proc/PID/maps`.
fn file_mapped_at(maps: &str, address: usize) -> Option<&Path> {
    let contains = |range: &str| {
        let (start, end) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        Some((bound(start)?..bound(end)?).contains(&address))
    };
    let line = maps.lines().find(|line| {
        let range = line.split(' ').next();
        range.and_then(contains) == Some(true)
    })?;
    // No other field of a line has a slash.
    Some(Path::new(&line[line.find('/')?..]))
}

/// CPU and version, from the text of `/proc/cpuinfo`; a question mark for what is missing there.
fn describe(cpuinfo: &str) -> String {
    let first = cpus(cpuinfo).next();
    let value = |key| first.and_then(|cpu| cpu.value(key)).unwrap_or("?");
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

const MOST_BYTES: usize = 64 * 1024;
const MOST_NANOSECONDS: u64 = 10_000_000_000;
const MOST_METHODS: usize = 16;
const DAY: u64 = 24 * 60 * 60;
/// Age after which entries are measured anew: a CPU may be moved to another machine, or run another kernel.
const MOST_AGE: u64 = 90 * DAY;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use widelane_crypto::Target;

    fn record() -> Record {
        let entry = |name, backend, first, alone| Entry {
            measured: 1_763_769_600,
            ..Entry::new(
                name,
                backend,
                &["only"],
                Costs {
                    lanes: 8,
                    first,
                    further: 3,
                    alone,
                },
            )
        };
        Record {
            format: Format::Costs4,
            comparisons: vec![Comparison {
                measured: 1_763_769_600,
                ..Comparison::new("x25519-derive", "OpenSSL 3.0.17", 38_950, 28_020)
            }],
            machine: "a CPU, microcode 1".to_owned(),
            entries: vec![
                entry("x25519-derive", Backend::Lanes(Target::Avx512Ifma), 50_211, 28_012),
                entry("x25519-derive", Backend::Lanes(Target::Avx512Ifma256), 48_000, 28_100),
                entry("rsa2048-sign", Backend::Lanes(Target::Avx512Ifma), 230_000, 240_000),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = record().to_string();
        assert!(text.contains("\"backend\": \"avx512ifma-256\""), "{text}");
        assert_eq!(text.parse(), Ok(record()));
        let empty = Record {
            entries: Vec::new(),
            comparisons: Vec::new(),
            ..record()
        };
        assert_eq!(empty.to_string().parse(), Ok(empty));
    }

    #[test]
    fn a_cut_text_is_no_record() {
        let text = record().to_string();
        for length in 0..text.trim_end().len() {
            assert!(text[..length].parse::<Record>().is_err(), "{length}");
        }
    }

    #[test]
    fn what_we_would_not_write_is_refused() {
        let text = serde_json::to_string(&record()).unwrap();
        for (ours, theirs) in [
            ("costs 4", "costs 3"),
            ("\"theirs\":38950", "\"theirs\":0"),
            ("\"alone\":28020", "\"alone\":10000000001"),
            (",\"comparisons\":", ",\"comparison\":"),
            ("\"machine\":", "\"engine\":"),
            ("{\"format\"", "{\"more\":1,\"format\""),
            ("rsa2048-sign\",", "x25519-derive\","),
            ("\"avx512ifma-256\"", "\"sse9\""),
            ("\"methods\":[\"only\"]", "\"methods\":[]"),
            (",\"methods\":[\"only\"]", ""),
            ("\"lanes\":8", "\"lanes\":1"),
            ("\"lanes\":8", "\"lanes\":65"),
            ("\"first\":50211", "\"first\":0"),
            ("\"first\":50211", "\"first\":-50211"),
            ("\"first\":50211", "\"first\":10000000001"),
            ("\"first\":50211,\"further\":3", "\"first\":50211,\"further\":50212"),
            ("\"alone\":28012", "\"alone\":0"),
            ("\"measured\":1763769600", "\"measured\":18446744073709551616"),
            (",\"measured\":1763769600", ""),
            ("]}", "]} more"),
        ] {
            let changed = text.replacen(ours, theirs, 1);
            assert_ne!(changed, text, "{ours}");
            assert!(changed.parse::<Record>().is_err(), "{theirs}");
        }
        let long = text.replace("a CPU", &"a CPU ".repeat(MOST_BYTES / 6));
        assert!(long.parse::<Record>().is_err());
    }

    #[test]
    fn entries_of_another_machine_or_time_do_not_count() {
        let then = record().entries[0].measured;
        let at = |machine, now| {
            let (entries, comparisons) = record().at(machine, now);
            assert_eq!(entries.is_empty(), comparisons.is_empty());
            entries.len()
        };
        assert_eq!(at("a CPU, microcode 1", then), 3);
        assert_eq!(at("a CPU, microcode 1", then + MOST_AGE), 3);
        assert_eq!(at("a CPU, microcode 1", then + MOST_AGE + 1), 0);
        assert_eq!(at("a CPU, microcode 1", then - DAY), 3, "clocks are set");
        assert_eq!(at("a CPU, microcode 1", then - DAY - 1), 0);
        assert_eq!(at("a CPU, microcode 2", then), 0);
    }

    #[test]
    fn a_build_is_told_by_the_file_that_has_its_code() {
        let maps = "\
            00400000-0041f000 r-xp 00000000 fe:00 1234      /usr/sbin/nginx\n\
            7f0000000000-7f0000001000 rw-p 00000000 00:00 0\n\
            7f0000001000-7f0000002000 r-xp 00001000 fe:00 77        /opt/a b/widelane.so\n\
            7f0000002000-7f0000003000 r-xp 00000000 00:00 0         [vdso]\n";
        let at = |address| file_mapped_at(maps, address);
        assert_eq!(at(0x40_0000), Some(Path::new("/usr/sbin/nginx")));
        assert_eq!(at(0x41_f000), None, "behind its last byte");
        let library = Path::new("/opt/a b/widelane.so");
        assert_eq!(at(0x7f00_0000_1fff), Some(library));
        assert_eq!(at(0x7f00_0000_0800), None, "no file");
        assert_eq!(at(0x7f00_0000_2000), None, "no file, but a name");
        assert_eq!(file_mapped_at("no map\n\n", 0), None);
        let program = fs::metadata("/proc/self/exe").unwrap();
        let expected = format!("{}-{}", program.len(), program.mtime());
        assert_eq!(this_program(), expected, "tests are one program");
    }

    #[test]
    fn a_machine_is_described_by_cpuinfo() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n\
            model\t\t: 207\nmodel name\t: A\u{7} CPU\nstepping\t: 2\n\
            microcode\t: 0x21\nflags : a\n\nprocessor\t: 1\nmicrocode\t: 0x22\n";
        let this = this_machine();
        let (_, program) = this.split_once(", program ").unwrap();
        assert_ne!(program, "?");
        let described = describe(text);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            described,
            format!("GenuineIntel 6 207 2 (A\u{7} CPU), microcode 0x21, widelane {version}")
        );
        let unknown = describe("");
        assert!(unknown.starts_with("? ? ? ? (?), microcode ?"), "{unknown}");
        for machine in [described, unknown] {
            let record = Record {
                machine,
                ..Record::new(Vec::new(), Vec::new())
            };
            assert_eq!(record.to_string().parse(), Ok(record));
        }
    }
}
