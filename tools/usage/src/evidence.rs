//! What a process could have run, and was found running: the code behind its use.
//!
//! Files are disassembled once each, on a thread of their own, so that a table can be shown
//! meanwhile; until then the verdict says that it is not complete.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use object::{Object, ObjectSegment};
use widelane_scan::{Class, Image, scan_bytes};

use crate::account::{Finding, Sampled, State, Use, Verdict};
use crate::collect::{Interval, Sample};
use crate::poll::recently;
use crate::procfs::{self, Mapping};

/// What is known of the files that processes have mapped as code.
pub struct Evidence {
    known: HashMap<Identity, Arc<Known>>,
    asked: HashSet<Identity>,
    /// The code of the processes of the last interval: they may have ended since.
    mapped: HashMap<u32, Mapped>,
    questions: Sender<Question>,
    answers: Receiver<(Identity, Option<Known>)>,
}

impl Evidence {
    /// Nothing is known yet.
    pub fn new() -> Self {
        let (questions, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        // It ends when either end of a channel is dropped.
        thread::spawn(move || {
            let mut waiting = BinaryHeap::new();
            while let Some(Question { identity, places }) = next(&mut waiting, &asked) {
                let same = |place: &&PathBuf| identify(place) == Some(identity);
                let known = places.iter().find(same).and_then(|place| look_at(place));
                if answer.send((identity, known)).is_err() {
                    break;
                }
            }
        });
        Self {
            known: HashMap::new(),
            asked: HashSet::new(),
            mapped: HashMap::new(),
            questions,
            answers,
        }
    }

    /// Asks for the code of processes that had wide registers in use not long ago, by what the
    /// kernel says of them without having been watched. So it is known when the first interval
    /// ends.
    pub fn look_ahead(&mut self) {
        for pid in recently(Path::new("/proc"))
            .into_iter()
            .take(MOST_PROCESSES)
        {
            if let Some(mapped) = Mapped::read(pid, None) {
                self.code(&mapped);
            }
        }
    }

    /// Judges every process of an interval, sorts its samples into [`Use::sampled`], and asks for
    /// the files it does not know.
    pub fn findings(&mut self, interval: &mut Interval) -> HashMap<u32, Finding> {
        while let Ok((identity, answer)) = self.answers.try_recv() {
            self.learn(identity, answer);
        }
        let mut processes: BTreeMap<u32, Duration> = BTreeMap::new();
        for r#use in &interval.uses {
            let live = r#use.live.iter().sum::<Duration>();
            *processes.entry(r#use.thread.pid).or_default() += live;
        }
        let mut busiest: Vec<_> = processes.into_iter().collect();
        busiest.sort_by_key(|&(_, live)| std::cmp::Reverse(live));
        let samples = interval.samples.as_deref();
        let mut findings = HashMap::new();
        let mut before = std::mem::take(&mut self.mapped);
        for (rank, (pid, _)) in busiest.into_iter().enumerate() {
            let threads = interval.uses.iter_mut();
            let mut threads: Vec<_> = threads.filter(|r#use| r#use.thread.pid == pid).collect();
            if rank >= MOST_PROCESSES {
                let why = "used less than those that were looked at".to_owned();
                let verdict = Verdict::Unknown;
                findings.insert(pid, Finding { verdict, why });
                continue;
            }
            let Some(mapped) = Mapped::read(pid, before.remove(&pid)) else {
                let why = "its code is not readable: run as its user or as root".to_owned();
                let verdict = Verdict::Unknown;
                findings.insert(pid, Finding { verdict, why });
                continue;
            };
            let code = self.code(&mapped);
            let of_process = |sample: &&Sample| sample.thread.pid == pid;
            let own = samples.map(|samples| samples.iter().filter(of_process));
            for r#use in &mut threads {
                r#use.sampled = samples.map(|_| Sampled::default());
            }
            let ran = own.map(|own| code.sort(own, &mapped.0, &mut threads));
            let wide = ran.as_ref().is_some_and(|ran| ran.all.wide > 0);
            if code.unseen.is_some() && !wide {
                // Nobody knows what was hit.
                for r#use in &mut threads {
                    r#use.sampled = None;
                }
            }
            let mut live = [Duration::ZERO; 4];
            for r#use in &threads {
                for (sum, part) in live.iter_mut().zip(r#use.live) {
                    *sum += part;
                }
            }
            let seen = Seen {
                upper: !live[State::Upper as usize].is_zero(),
                ran,
                has: code.summary(),
            };
            findings.insert(pid, judge(&seen));
            self.mapped.insert(pid, mapped);
        }
        findings
    }

    /// Waits until all files that were asked for are known, but not longer than this.
    pub fn wait(&mut self, most: Duration) {
        let until = Instant::now() + most;
        while !self.asked.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok((identity, answer)) => self.learn(identity, answer),
                Err(_) => break,
            }
        }
    }

    fn learn(&mut self, identity: Identity, answer: Option<Known>) {
        self.asked.remove(&identity);
        // What could not be read through one process may be through another.
        if let Some(known) = answer {
            self.known.insert(identity, Arc::new(known));
        }
    }

    /// The code of a process, as far as it is known.
    fn code(&mut self, mapped: &Mapped) -> Code {
        let mut code = Code::default();
        if mapped.0.is_empty() {
            code.unseen = Some("it ended before its code could be looked at");
        }
        for part in &mapped.0 {
            let Some(path) = &part.path else {
                code.generated = true;
                continue;
            };
            let Some(identity) = part.identity else {
                code.unseen = Some("a file of its code is not readable");
                continue;
            };
            if let Some(known) = self.known.get(&identity) {
                if let Known::Refused(why) = **known {
                    code.unseen = Some(why);
                }
                code.files.entry(path.clone()).or_insert(known.clone());
            } else {
                code.unseen = Some("its code is being looked at");
                if self.asked.insert(identity) {
                    // The thread lives as long as this.
                    let _ = self.questions.send(Question {
                        identity,
                        places: part.places.clone(),
                    });
                }
            }
        }
        code
    }
}

impl Default for Evidence {
    fn default() -> Self {
        Self::new()
    }
}

/// A file to be looked at. The smallest is the greatest, which a heap gives first: where time is
/// short, most files are known.
#[derive(PartialEq, Eq)]
struct Question {
    identity: Identity,
    /// Where it may be found.
    places: [PathBuf; 3],
}

impl Ord for Question {
    fn cmp(&self, other: &Self) -> Ordering {
        let lengths = other.identity.length.cmp(&self.identity.length);
        lengths.then_with(|| other.places.cmp(&self.places))
    }
}

impl PartialOrd for Question {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The question to answer now, of all that have been asked. `None` when nobody will ask any more.
fn next(waiting: &mut BinaryHeap<Question>, asked: &Receiver<Question>) -> Option<Question> {
    if waiting.is_empty() {
        waiting.push(asked.recv().ok()?);
    }
    waiting.extend(asked.try_iter());
    waiting.pop()
}

/// A file's contents.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    length: u64,
    changed: i64,
}

/// The mappings of a process with code. Empty if it has ended.
struct Mapped(Vec<Part>);

/// One of them.
struct Part {
    range: Range<u64>,
    offset: u64,
    path: Option<String>,
    identity: Option<Identity>,
    /// Where the file may be found.
    places: [PathBuf; 3],
}

impl Mapped {
    /// What is readable now; of a process that has ended, what was `before`. `None` if it belongs
    /// to somebody else.
    fn read(pid: u32, before: Option<Self>) -> Option<Self> {
        // Paths are bytes, and need not be text.
        match fs::read(format!("/proc/{pid}/maps")) {
            // One that is ending has no mappings any more.
            Ok(maps) if !maps.is_empty() => {
                let maps = String::from_utf8_lossy(&maps);
                let mappings = procfs::code_mappings(&maps).into_iter();
                Some(Self(mappings.map(|mapping| part(pid, &mapping)).collect()))
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
            _ => Some(before.unwrap_or(Self(Vec::new()))),
        }
    }
}

/// What is known of a file.
enum Known {
    /// Its functions with 512-bit code, and where its segments lie.
    Code(Wide),
    /// It is not looked at.
    Refused(&'static str),
}

/// Functions with 512-bit code of a file.
#[derive(Debug, Default)]
struct Wide {
    functions: Vec<Function>,
    /// Offset, length and address of each segment.
    segments: Vec<(u64, u64, u64)>,
}

/// A function with 512-bit code.
#[derive(Debug)]
struct Function {
    address: u64,
    size: u64,
    title: String,
    copies: bool,
}

impl Wide {
    /// The function at a place in the file.
    fn at(&self, offset: u64) -> Option<&Function> {
        let inside = |&&(from, length, _): &&(u64, u64, u64)| {
            offset.checked_sub(from).is_some_and(|at| at < length)
        };
        let &(from, _, address) = self.segments.iter().find(inside)?;
        let address = address.wrapping_add(offset - from);
        self.functions.iter().find(|function| {
            let at = address.checked_sub(function.address);
            at.is_some_and(|at| at < function.size)
        })
    }
}

/// The code of a process.
#[derive(Default)]
struct Code {
    files: BTreeMap<String, Arc<Known>>,
    generated: bool,
    unseen: Option<&'static str>,
}

impl Code {
    /// Sorts samples by what they hit, into their threads, and says what was hit.
    fn sort<'a>(
        &self,
        samples: impl Iterator<Item = &'a Sample>,
        mappings: &[Part],
        threads: &mut [&mut Use],
    ) -> Ran {
        let mut hits: HashMap<String, u64> = HashMap::new();
        let mut all = Sampled::default();
        for sample in samples {
            let count = sample.count;
            let (mut wide, mut copies, mut other) = (0, 0, 0);
            match self.function(sample.address, mappings) {
                Some((_, function)) if function.copies => copies = count,
                Some((path, function)) => {
                    wide = count;
                    let title = format!("{} in {}", function.title, base(path));
                    *hits.entry(title).or_default() += count;
                }
                None => other = count,
            }
            all.wide += wide;
            all.copies += copies;
            all.other += other;
            let owner = threads
                .iter_mut()
                .find(|r#use| r#use.thread == sample.thread);
            if let Some(r#use) = owner {
                let sampled = r#use.sampled.get_or_insert_default();
                sampled.wide += wide;
                sampled.copies += copies;
                sampled.other += other;
            }
        }
        let most = hits.into_iter().max_by_key(|(_, count)| *count);
        Ran {
            all,
            most: most.map(|(title, _)| title),
        }
    }

    fn function(&self, address: u64, mappings: &[Part]) -> Option<(&str, &Function)> {
        let hit = |part: &&Part| part.range.contains(&address);
        let part = mappings.iter().find(hit)?;
        let (path, known) = self.files.get_key_value(part.path.as_ref()?)?;
        let Known::Code(wide) = &**known else {
            return None;
        };
        let offset = part.offset.checked_add(address - part.range.start)?;
        Some((path, wide.at(offset)?))
    }

    fn summary(&self) -> Has {
        let mut has = Has {
            generated: self.generated,
            unseen: self.unseen,
            ..Has::default()
        };
        let mut most = 0;
        for (path, known) in &self.files {
            let Known::Code(wide) = &**known else {
                continue;
            };
            let copies = wide.functions.iter().filter(|f| f.copies).count();
            let others = wide.functions.len() - copies;
            has.copies |= copies > 0;
            if others > most {
                most = others;
                let name = base(path);
                has.others = Some(format!("{name} has {others} functions of 512 bits"));
            }
        }
        has
    }
}

/// What is known of a process, for its verdict.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Whether the upper halves of registers were in use.
    upper: bool,
    /// What it was found executing, if anybody looked.
    ran: Option<Ran>,
    /// What it could execute.
    has: Has,
}

/// What a process was found executing.
#[derive(Clone, Debug, Default)]
struct Ran {
    all: Sampled,
    /// The function with 512-bit code that was hit most.
    most: Option<String>,
}

/// What a process could execute.
#[derive(Clone, Debug, Default)]
struct Has {
    /// Memory and string functions with 512-bit code.
    copies: bool,
    /// Others, in words: the file with most of them.
    others: Option<String>,
    /// Code without a file.
    generated: bool,
    /// Not everything could be looked at, and why.
    unseen: Option<&'static str>,
}

/// The verdict on a process.
fn judge(seen: &Seen) -> Finding {
    let Seen { upper, ran, has } = seen;
    if let Some(Ran {
        all,
        most: Some(most),
    }) = ran
    {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let share = 100.0 * all.wide as f64 / all.all() as f64;
        let why = format!("{share:.0} % of samples in 512-bit code, most in {most}");
        return Finding {
            verdict: Verdict::Wide,
            why,
        };
    }
    let samples = ran.as_ref().map_or(0, |ran| ran.all.all());
    let copied = ran.as_ref().map_or(0, |ran| ran.all.copies);
    let (verdict, why) = match (upper, &has.others, has.unseen) {
        (true, Some(others), _) if samples < ENOUGH_SAMPLES || copied == 0 => {
            (Verdict::Wide, others.clone())
        }
        (false, Some(others), _) if samples < ENOUGH_SAMPLES => (Verdict::Possible, others.clone()),
        (_, Some(others), _) if copied > 0 => (
            Verdict::Copies,
            format!("{others}, but only memory and string functions were seen running"),
        ),
        (_, Some(others), _) => (
            Verdict::Narrow,
            format!("{others}, but none was seen running"),
        ),
        (true, None, Some(unseen)) => (
            Verdict::Wide,
            format!("512-bit values; from which code is unknown: {unseen}"),
        ),
        (false, None, Some(unseen)) => (Verdict::Unknown, unseen.to_owned()),
        (true, None, None) if has.generated => (
            Verdict::Wide,
            "only code made at run time can have done it".to_owned(),
        ),
        (_, None, None) if has.copies => (
            Verdict::Copies,
            "has 512-bit code only in memory and string functions".to_owned(),
        ),
        (true, None, None) => (
            Verdict::Unknown,
            "it has no 512-bit code now, but 512-bit values".to_owned(),
        ),
        (false, None, None) if has.generated => (
            Verdict::Unknown,
            "it makes code at run time, which is not looked at".to_owned(),
        ),
        (false, None, None) => (Verdict::Narrow, "has no 512-bit code".to_owned()),
    };
    Finding { verdict, why }
}

/// A mapping, with the places where its file can be read, and which it is.
///
/// The kernel's link to the mapped file itself is best: the path may lead to another file by now,
/// or in a container to anything. Following it takes root; without, or when the process has ended,
/// one of the paths must do.
fn part(pid: u32, mapping: &Mapping<'_>) -> Part {
    let (start, end) = (mapping.start, mapping.end);
    let path = mapping.path.unwrap_or("");
    let link = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    let inside = format!("/proc/{pid}/root{path}");
    let places = [link, inside, path.to_owned()].map(PathBuf::from);
    Part {
        range: start..end,
        offset: mapping.offset,
        path: mapping.path.map(str::to_owned),
        identity: places.iter().find_map(|place| identify(place)),
        places,
    }
}

/// Which file it is, if it is one.
fn identify(path: &Path) -> Option<Identity> {
    let status = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Identity {
        device: status.dev(),
        inode: status.ino(),
        length: status.len(),
        changed: status.mtime(),
    })
}

/// Disassembles a file. `None` if it cannot be read.
fn look_at(path: &Path) -> Option<Known> {
    if fs::metadata(path).ok()?.len() > MOST_BYTES {
        return Some(Known::Refused("a file of its code is too large to look at"));
    }
    let data = fs::read(path).ok()?;
    // Through the kernel's link, the path says nothing; the name matters for libraries.
    let real = fs::read_link(path).unwrap_or_else(|_| path.to_owned());
    match scan_bytes(&real, &data) {
        Ok(image) => Some(Known::Code(wide(&real, &image, &data))),
        Err(_) => Some(Known::Refused(
            "a file of its code is no ELF file for x86-64",
        )),
    }
}

fn wide(path: &Path, image: &Image, data: &[u8]) -> Wide {
    let library = base(&path.to_string_lossy()).to_owned();
    let whole = |function: &&widelane_scan::Function| function.class() >= Class::Light512;
    let functions = image.functions.iter().filter(whole).map(|function| {
        let title = match (&function.name, &function.near) {
            (Some(name), _) => name.clone(),
            (None, Some(near)) => format!("a function near \"{near}\""),
            (None, None) => format!("the function at {:#x}", function.address),
        };
        Function {
            address: function.address,
            size: function.size,
            copies: only_copies(&library, function.name.as_deref()),
            title,
        }
    });
    let segments = object::File::parse(data).map_or_else(
        |_| Vec::new(),
        |file| {
            let segment = |segment: object::Segment<'_, '_>| {
                let (offset, length) = segment.file_range();
                (offset, length, segment.address())
            };
            file.segments().map(segment).collect()
        },
    );
    Wide {
        functions: functions.collect(),
        segments,
    }
}

/// Whether a function with wide code is one that copies memory or looks at strings: all of them are
/// in C libraries; in programs that contain one, by the names that these give them.
fn only_copies(library: &str, function: Option<&str>) -> bool {
    if LIBRARIES.iter().any(|stem| library.starts_with(stem)) {
        return true;
    }
    let Some(name) = function else {
        return false;
    };
    let stem = name.trim_start_matches('_');
    let known = STRINGS.iter().any(|prefix| stem.starts_with(prefix));
    known && (name.contains("_evex") || name.contains("_avx512"))
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Files of C libraries begin so.
const LIBRARIES: [&str; 6] = [
    "libc.so.",
    "libc-",
    "ld-linux",
    "ld-2",
    "libc.musl",
    "ld-musl",
];
/// Memory and string functions begin so.
const STRINGS: [&str; 8] = [
    "mem", "str", "stp", "wcs", "wmem", "rawmem", "bzero", "bcopy",
];
/// Processes looked at in an interval, those that used most.
const MOST_PROCESSES: usize = 50;
/// With fewer samples, that none hit wide code says little.
const ENOUGH_SAMPLES: u64 = 20;
/// Larger files are not looked at: it would take seconds, and twice their size of memory.
const MOST_BYTES: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Thread;

    fn has(copies: bool, others: bool) -> Has {
        Has {
            copies,
            others: others.then(|| "libx has 3 functions of 512 bits".to_owned()),
            ..Has::default()
        }
    }

    fn ran(wide: u64, copies: u64, other: u64) -> Option<Ran> {
        Some(Ran {
            all: Sampled {
                wide,
                copies,
                other,
            },
            most: (wide > 0).then(|| "f in libx".to_owned()),
        })
    }

    fn verdict(upper: bool, ran: Option<Ran>, has: Has) -> Verdict {
        let finding = judge(&Seen { upper, ran, has });
        assert!(!finding.why.is_empty());
        finding.verdict
    }

    #[test]
    fn what_was_seen_running_decides() {
        let seen = Seen {
            upper: false,
            ran: ran(30, 10, 60),
            has: has(true, true),
        };
        let finding = judge(&seen);
        assert_eq!(finding.verdict, Verdict::Wide);
        assert!(finding.why.starts_with("30 % "), "{}", finding.why);
        assert!(finding.why.ends_with("f in libx"), "{}", finding.why);
        let copies = verdict(true, ran(0, 10, 60), has(true, true));
        assert_eq!(
            copies,
            Verdict::Copies,
            "zmm memcpy in a program with better code"
        );
        assert_eq!(
            verdict(false, ran(0, 0, 60), has(true, true)),
            Verdict::Narrow
        );
        let few = verdict(false, ran(0, 0, 5), has(true, true));
        assert_eq!(few, Verdict::Possible, "five samples exclude nothing");
    }

    #[test]
    fn without_samples_the_code_it_has_decides() {
        assert_eq!(verdict(true, None, has(true, true)), Verdict::Wide);
        assert_eq!(verdict(false, None, has(true, true)), Verdict::Possible);
        assert_eq!(verdict(true, None, has(true, false)), Verdict::Copies);
        assert_eq!(verdict(false, None, has(true, false)), Verdict::Copies);
        assert_eq!(verdict(false, None, has(false, false)), Verdict::Narrow);
        let hidden = Has {
            unseen: Some("not readable"),
            ..has(true, false)
        };
        assert_eq!(verdict(false, None, hidden.clone()), Verdict::Unknown);
        assert_eq!(verdict(true, None, hidden), Verdict::Wide);
        let generated = Has {
            generated: true,
            ..Has::default()
        };
        assert_eq!(verdict(true, None, generated.clone()), Verdict::Wide);
        assert_eq!(verdict(false, None, generated), Verdict::Unknown);
    }

    #[test]
    fn functions_that_copy_are_known_by_library_or_name() {
        assert!(only_copies("libc.so.6", None));
        assert!(only_copies("ld-linux-x86-64.so.2", None));
        assert!(only_copies(
            "program",
            Some("__memmove_avx512_unaligned_erms")
        ));
        assert!(only_copies("program", Some("__strlen_evex512")));
        assert!(!only_copies("program", Some("memory_hard_hash")));
        assert!(!only_copies("libcrypto.so.3", None));
        assert!(!only_copies("libmvec.so.1", Some("_ZGVeN8v_exp_avx512")));
    }

    #[test]
    fn samples_are_sorted_by_the_function_that_they_hit() {
        let function = |address, title: &str, copies| Function {
            address,
            size: 0x100,
            title: title.to_owned(),
            copies,
        };
        let wide = Wide {
            functions: vec![
                function(0x2000, "f", false),
                function(0x2100, "memcpy", true),
            ],
            segments: vec![(0, 0x500, 0), (0x1000, 0x2000, 0x2000)],
        };
        let mut code = Code::default();
        code.files
            .insert("/lib/libx".to_owned(), Arc::new(Known::Code(wide)));
        let mapping = Mapping {
            start: 0x7000_0000,
            end: 0x7000_2000,
            offset: 0x1000,
            path: Some("/lib/libx"),
        };
        let mappings = [part(1, &mapping)];
        let thread = Thread { pid: 1, tid: 2 };
        let mut r#use = Use {
            thread,
            name: String::new(),
            process: String::new(),
            cgroup: None,
            cpu: None,
            live: [Duration::ZERO; 4],
            sampled: None,
        };
        let hits = [
            (0x7000_0010, 4),
            (0x7000_00ff, 1),
            (0x7000_0100, 2),
            (0x7000_0200, 3),
            (0x6fff_ffff, 5),
        ];
        let samples = hits.map(|(address, count)| Sample {
            thread,
            address,
            count,
        });
        let ran = code.sort(samples.iter(), &mappings, &mut [&mut r#use]);
        let expected = Sampled {
            wide: 5,
            copies: 2,
            other: 8,
        };
        assert_eq!(ran.all, expected);
        assert_eq!(ran.most.as_deref(), Some("f in libx"));
        assert_eq!(r#use.sampled, Some(expected));
    }

    #[test]
    fn small_files_are_looked_at_before_large_ones() {
        let (ask, asked) = mpsc::channel();
        let mut waiting = BinaryHeap::new();
        for length in [30, 10, 20] {
            let identity = Identity {
                device: 1,
                inode: length,
                length,
                changed: 0,
            };
            let places = ["a", "b", "c"].map(PathBuf::from);
            ask.send(Question { identity, places }).unwrap();
        }
        drop(ask);
        let mut lengths = Vec::new();
        while let Some(question) = next(&mut waiting, &asked) {
            lengths.push(question.identity.length);
        }
        assert_eq!(lengths, [10, 20, 30]);
    }

    #[test]
    fn this_process_has_its_code_looked_at() {
        let pid = std::process::id();
        let mut interval = Interval {
            elapsed: Duration::from_secs(1),
            uses: vec![Use {
                thread: Thread { pid, tid: pid },
                name: String::new(),
                process: String::new(),
                cgroup: None,
                cpu: None,
                live: [Duration::from_millis(1); 4],
                sampled: None,
            }],
            samples: None,
        };
        let mut evidence = Evidence::new();
        let first = &evidence.findings(&mut interval)[&pid];
        assert!(first.why.contains("being looked at"), "{}", first.why);
        evidence.wait(Duration::from_secs(600));
        let then = &evidence.findings(&mut interval)[&pid];
        assert!(!then.why.contains("being looked at"), "{}", then.why);
    }
}
