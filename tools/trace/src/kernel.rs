//! The programs in the kernel: loaded, attached, and what they report.
//!
//! Nothing holds them but our file descriptors. When the tracer is dropped, or its process ends in
//! whatever way, the kernel detaches and forgets them.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aya::maps::{Array, HashMap as BpfMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::{ProgramError, RawTracePoint, UProbe};
use aya::{Ebpf, EbpfLoader};
use rustix::process::{Resource, Rlimit, setrlimit};
use widelane_bpf::{Point, map, persistently, program};

use crate::error::TraceError;
use crate::functions::{Function, Returns, Role, Size};
use crate::marks::MOST_ARGUMENTS;
use crate::notes::{Form, Place, Register};
use crate::probes::{AttachMethod, Attached, NAMES, Refused, Run, Scope};
use crate::ready::Ready;
use crate::record::{Record, Rows};
use crate::targets::{Exits, MarkProbe, Probe, Site};
use crate::{Count, Want};

/// The programs, loaded.
pub(crate) struct Programs {
    programs: Ebpf,
    method: AttachMethod,
    ready: Option<Ready>,
    ring: RingBuf<MapData>,
    /// Says that a process has started or loaded something.
    bell: RingBuf<MapData>,
    table: Array<MapData, u64>,
    traced: BpfMap<MapData, u32, u32>,
    counts: BpfMap<MapData, [u32; 3], [u64; 2]>,
    lost: PerCpuArray<MapData, u64>,
    site_table: Array<MapData, Places>,
    /// Sites in the kernel's table, in its order.
    sites: Vec<Places>,
    rows: Rows,
    want: Want,
}

/// Facts about a process that the programs need.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessFlags {
    /// The process has goroutines.
    pub(crate) goroutines: bool,
    /// The programs do not look at what the process reads and writes.
    pub(crate) silent: bool,
    /// Children of the process are traced, too, from the first instruction on.
    pub(crate) forks: bool,
}

/// Places of the arguments of a static probe, as the programs know them: `struct site`.
type Places = [u64; 2 * MOST_ARGUMENTS];

impl Programs {
    /// Loads the programs and attaches those that are not a process's own.
    pub(crate) fn load(want: Want) -> Result<Self, TraceError> {
        let single = std::env::var(PROBES_VARIABLE).is_ok_and(|value| value == "single");
        Self::load_for(want, single, SLOT_BITS)
    }

    /// Loads the programs. With `single`, probes are made one by one. `slot_bits` is the number of bits in the number
    /// of a call under way.
    fn load_for(want: Want, single: bool, slot_bits: u32) -> Result<Self, TraceError> {
        let object = widelane_bpf::TRACE?;
        check_kernel()?;
        widelane_bpf::unlimit_memory();
        many_descriptors();
        let btf = widelane_bpf::btf()?;
        let namespace = pid_namespace()?;
        let slot_shift = u64::BITS - slot_bits;
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&btf))
            .override_global("NAMESPACE", &namespace, true)
            .override_global("SLOT_SHIFT", &slot_shift, true);
        let mut programs = loader.load(object).map_err(|error| {
            let refused = rights(&error);
            refused.unwrap_or_else(|| kernel("loading BPF maps", &error))
        })?;
        let method = match single {
            true => AttachMethod::Single,
            false => AttachMethod::best(object, &btf, &programs),
        };
        let refused = |error: ProgramError| match error {
            // The verifier refuses by the same number as one who has no rights, and says why.
            ProgramError::LoadError { verifier_log, .. } if !verifier_log.to_string().is_empty() => {
                TraceError::Verifier {
                    said: last_lines(&verifier_log.to_string()),
                }
            }
            _ => rights(&error).unwrap_or_else(|| kernel("loading BPF programs", &error)),
        };
        for name in NAMES {
            let program: &mut UProbe = program(&mut programs, name).map_err(refused)?;
            persistently(|| program.load()).map_err(refused)?;
        }
        let mut always = vec![
            ("forked", "sched_process_fork"),
            ("executed", "sched_process_exec"),
            ("ended", "sched_process_exit"),
        ];
        if want.bytes {
            always.push(("returned", "sys_exit"));
        }
        for (name, tracepoint) in always {
            let program: &mut RawTracePoint = program(&mut programs, name).map_err(refused)?;
            persistently(|| program.load()).map_err(refused)?;
            program.attach(tracepoint).map_err(refused)?;
        }
        let opened = |error: MapError| kernel("opening a BPF map", &error);
        Ok(Self {
            ready: method.ready(),
            method,
            ring: map(&mut programs, "EVENTS").map_err(opened)?,
            bell: map(&mut programs, "BELL").map_err(opened)?,
            table: map(&mut programs, "FUNCTION_TABLE").map_err(opened)?,
            traced: map(&mut programs, "TRACED").map_err(opened)?,
            counts: map(&mut programs, "COUNTS").map_err(opened)?,
            lost: map(&mut programs, "LOST").map_err(opened)?,
            site_table: map(&mut programs, "SITE_TABLE").map_err(opened)?,
            sites: Vec::new(),
            rows: Rows::default(),
            want,
            programs,
        })
    }

    /// Another process is expected soon.
    pub(crate) fn stay_ready(&mut self) {
        if let Some(ready) = &mut self.ready {
            ready.stay();
        }
    }

    /// Puts probes on functions. Those of the list that have none are returned.
    pub(crate) fn attach(
        &mut self,
        scope: Scope,
        probes: &[&Probe],
        to: &mut Attached,
    ) -> Result<Vec<Refused>, TraceError> {
        let cookies = self.cookies(scope, probes)?;
        // The exits first: a call that is entered and never seen to return would stay in the map.
        let (seen, mut missing) = self.attach_leaving(scope, (probes, &cookies), to)?;
        let mut entered = Points::new();
        let mut failed = Vec::new();
        for (of, probe) in probes.iter().enumerate() {
            let offset = probe.entry;
            let mut cookie = cookies[of];
            let run = match probe.function.role {
                Role::Load => Run::Loaded,
                _ => Run::Enter,
            };
            if !seen[of] {
                // That a connection ends is known without the return.
                match missing.remove(&of) {
                    Some(error) if probe.function.role != Role::Free => {
                        failed.push((of, error));
                        continue;
                    }
                    _ if run == Run::Enter => cookie |= COOKIE_ENTRY,
                    _ => {}
                }
            }
            let points = entered.entry((run, probe.file.link())).or_default();
            points.push((of, Point { offset, cookie }));
        }
        failed.extend(self.attach_points(scope, &entered, to)?);
        Ok(failed)
    }

    /// Puts probes on the exits alone of functions whose entries have probes. A place that cannot have one sees nothing.
    pub(crate) fn attach_exits(
        &mut self,
        scope: Scope,
        probes: &[&Probe],
        to: &mut Attached,
    ) -> Result<(), TraceError> {
        let cookies = self.cookies(scope, probes)?;
        self.attach_leaving(scope, (probes, &cookies), to)?;
        Ok(())
    }

    fn cookies(&mut self, scope: Scope, probes: &[&Probe]) -> Result<Vec<u64>, TraceError> {
        let cookies = probes.iter().map(|probe| self.cookie(probe));
        cookies.map(|cookie| Ok(cookie? | of_scope(scope))).collect()
    }

    /// Puts probes on the exits of functions. Returns for each whether one of its exits has a probe, and why others
    /// have none.
    fn attach_leaving(
        &mut self,
        scope: Scope,
        (probes, cookies): (&[&Probe], &[u64]),
        to: &mut Attached,
    ) -> Result<(Vec<bool>, BTreeMap<usize, TraceError>), TraceError> {
        let mut leaving = Points::new();
        let mut exits_of = vec![0; probes.len()];
        for (of, probe) in probes.iter().enumerate() {
            for (path, offset, bits) in exits(probe) {
                let cookie = cookies[of] | bits;
                let points = leaving.entry((Run::Leave, path)).or_default();
                points.push((of, Point { offset, cookie }));
                exits_of[of] += 1;
            }
        }
        // Some instructions cannot have a probe. Calls that return there are not reported.
        let refused = self.attach_points(scope, &leaving, to)?;
        refused.iter().for_each(|(of, _)| exits_of[*of] -= 1);
        let seen = exits_of.into_iter().map(|count| count > 0).collect();
        Ok((seen, refused.into_iter().collect()))
    }

    /// Puts probes on places of static probes. Those of the list that have none are returned.
    pub(crate) fn attach_marks(
        &mut self,
        scope: Scope,
        probes: &[&MarkProbe],
        to: &mut Attached,
    ) -> Result<Vec<Refused>, TraceError> {
        let mut reached = Points::new();
        for (of, probe) in probes.iter().enumerate() {
            let marks = &mut self.rows.marks;
            let known = marks.iter().position(|known| *known == probe.mark);
            let row = known.unwrap_or(marks.len());
            if known.is_none() {
                marks.push(Arc::clone(&probe.mark));
            }
            let site = self.site(&probe.places)?;
            // The table has few rows; the programs have 16 bits for the number of one.
            let cookie = (row as u64 & 0xffff) | of_scope(scope) | (site as u64) << 32;
            let offset = probe.offset;
            let points = reached.entry((Run::Reached, probe.file.link())).or_default();
            points.push((of, Point { offset, cookie }));
        }
        self.attach_points(scope, &reached, to)
    }

    /// Cookie of a function: the facts that the programs get about it.
    fn cookie(&mut self, probe: &Probe) -> Result<u64, TraceError> {
        if probe.function.role == Role::Load {
            return Ok(0);
        }
        let mut cookie = u64::from(self.number(&probe.function)?);
        for (wanted, bit) in [
            (probe.goroutine, COOKIE_GOROUTINE),
            (self.want.calls, COOKIE_EVENT),
            (self.want.counts, COOKIE_COUNT),
            (self.want.carries_data(&probe.function), COOKIE_DATA),
        ] {
            if wanted {
                cookie |= bit;
            }
        }
        if let Some(at) = probe.state {
            cookie |= COOKIE_HANDSHAKE | u64::from(at) << 32;
        }
        Ok(cookie)
    }

    /// Attaches probes. Returns which of a list have a place that cannot have one.
    fn attach_points(&mut self, scope: Scope, points: &Points, to: &mut Attached) -> Result<Vec<Refused>, TraceError> {
        let mut failed = Vec::new();
        for ((run, path), places) in points {
            let points: Vec<_> = places.iter().map(|(_, point)| *point).collect();
            let with = (&self.method, &mut self.programs);
            let refused = to.add(with, *run, (scope, path), &points)?;
            failed.extend(refused.into_iter().map(|(at, error)| (places[at].0, error)));
        }
        Ok(failed)
    }

    /// The number of a list of places in the kernel's table.
    fn site(&mut self, places: &[Place]) -> Result<usize, TraceError> {
        let places = places_of(places);
        if let Some(known) = self.sites.iter().position(|known| *known == places) {
            return Ok(known);
        }
        let number = self.sites.len();
        if number >= SITES {
            return Err(TraceError::Table(format!(
                "static probes with more than {SITES} different lists of arguments are traced at \
                 once; choose fewer processes"
            )));
        }
        let set = self.site_table.set(number as u32, places, 0);
        set.map_err(|error| kernel("writing a BPF map", &error))?;
        self.sites.push(places);
        Ok(number)
    }

    /// Tells when a process ends, and unless it is [silent](ProcessFlags::silent), looks at what it reads and
    /// writes from now on.
    pub(crate) fn trace(&mut self, pid: u32, of: ProcessFlags) -> Result<(), TraceError> {
        let mut flags = u32::from(of.goroutines);
        for (is_so, flag) in [(of.silent, FLAG_SILENT), (of.forks, FLAG_FORKS)] {
            if is_so {
                flags |= flag;
            }
        }
        let inserted = self.traced.insert(pid, flags, 0);
        inserted.map_err(|error| kernel("writing a BPF map", &error))
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        // The entry is missing if the process was never traced.
        let _ = self.traced.remove(&pid);
    }

    /// Takes what the programs have reported; not all of it, if they report more meanwhile.
    pub(crate) fn records(&mut self, mut each: impl FnMut(Record)) {
        for _ in 0..MOST_RECORDS {
            let Some(item) = self.ring.next() else {
                return;
            };
            if let Some(record) = Record::parse(&item, &self.rows) {
                each(record);
            }
        }
    }

    /// Becomes readable when a process has started or loaded something.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Makes that descriptor unreadable again.
    pub(crate) fn quiet(&mut self) {
        while self.bell.next().is_some() {}
    }

    /// Becomes readable when there is something to take.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Reports that had no room, since the start.
    pub(crate) fn lost(&self) -> u64 {
        let lost = self.lost.get(&0, 0);
        lost.map_or(0, |by_cpu| by_cpu.iter().sum())
    }

    /// Calls that were counted in the kernel, since the start.
    pub(crate) fn counts(&self) -> Result<Vec<Count>, TraceError> {
        let mut counts = Vec::new();
        for entry in self.counts.iter() {
            let ([pid, function, bucket], [calls, total]) =
                entry.map_err(|error| kernel("reading a BPF map", &error))?;
            let [low, high, outcome, _] = function.to_ne_bytes();
            let number = usize::from(u16::from_ne_bytes([low, high]));
            if let Some(function) = self.rows.functions.get(number) {
                counts.push(Count {
                    pid,
                    function: Arc::clone(function),
                    succeeded: outcome == 0,
                    bucket,
                    calls,
                    total,
                });
            }
        }
        Ok(counts)
    }

    /// The number of a function in the kernel's table.
    fn number(&mut self, function: &Arc<Function>) -> Result<u16, TraceError> {
        let functions = &mut self.rows.functions;
        let known = functions.iter().position(|known| known == function);
        let number = known.unwrap_or(functions.len());
        let short = u16::try_from(number).ok().filter(|_| number < FUNCTIONS);
        let Some(short) = short else {
            return Err(TraceError::Table(format!(
                "more than {FUNCTIONS} functions are traced at once; choose fewer with --functions"
            )));
        };
        if known.is_none() {
            let row = row(function);
            let set = self.table.set(u32::from(short), row, 0);
            set.map_err(|error| kernel("writing a BPF map", &error))?;
            functions.push(Arc::clone(function));
        }
        Ok(short)
    }
}

/// Bits of a probe's cookie for its scope.
fn of_scope(scope: Scope) -> u64 {
    match scope {
        Scope::Process(_) | Scope::All => 0,
        Scope::Traced => COOKIE_TRACED,
    }
}

/// Places of files that run one program, and of which of a list of probes they are.
type Points = BTreeMap<(Run, PathBuf), Vec<(usize, Point)>>;

/// Places at which a function is left, with bits for their cookies.
fn exits(probe: &Probe) -> Vec<(PathBuf, u64, u64)> {
    match &probe.returns {
        // Functions that load libraries are probed at their entry only.
        _ if probe.function.role == Role::Load => Vec::new(),
        Exits::At(offsets) => {
            let place = |&offset| (probe.file.link(), offset, COOKIE_AT_RET);
            offsets.iter().map(place).collect()
        }
        Exits::After(sites) => {
            let place = |site: &Site| (site.file.link(), site.offset, 0);
            sites.iter().map(place).collect()
        }
    }
}

/// A function as the programs know it: `struct function`.
fn row(function: &Function) -> u64 {
    let (kind, argument) = match function.size {
        None => (0, 0),
        Some(Size::Result) => (1, 0),
        Some(Size::Argument(argument)) => (2, argument),
        Some(Size::SizeBehind(argument)) => (3, argument),
        Some(Size::IntBehind(argument)) => (4, argument),
        Some(Size::GoResult(register)) => (5, register),
        Some(Size::PointersBehind(argument)) => (6, argument),
    };
    let returns = match function.returns {
        Returns::One => 0,
        Returns::Zero => 1,
        Returns::Any => 2,
        Returns::Pointer => 3,
        // The register, from 0, above what says that it is one.
        Returns::GoError(register) => 16 + register.min(15),
    };
    let output = function.output.unwrap_or(NO_OUTPUT);
    u64::from_ne_bytes([function.object, kind, argument, returns, output, 0, 0, 0])
}

/// Places as the programs know them: `struct place` of two words each.
fn places_of(places: &[Place]) -> Places {
    let mut words = [0; 2 * MOST_ARGUMENTS];
    for (to, place) in words.chunks_exact_mut(2).zip(places) {
        let in_register = |kind, register: Register, form: Form, displacement: i32| {
            let [a, b, c, d] = displacement.to_ne_bytes();
            let above = 64 - 8 * form.bytes.min(8);
            let signed = u8::from(form.signed);
            u64::from_ne_bytes([kind, register.offset(), above, signed, a, b, c, d])
        };
        let (first, second) = match *place {
            Place::Unknown => (0, 0),
            Place::Constant(value) => (1, value.cast_unsigned()),
            Place::Register { register, form } => (in_register(2, register, form, 0), 0),
            Place::Memory {
                register,
                displacement,
                form,
            } => (in_register(3, register, form, displacement), 0),
        };
        to.copy_from_slice(&[first, second]);
    }
    words
}

/// Says what the kernel lacks before it says so by a number.
fn check_kernel() -> Result<(), TraceError> {
    let release = widelane_files::kernel_text("/proc/sys/kernel/osrelease").unwrap_or_default();
    if version(&release).is_some_and(|version| version < OLDEST) {
        let release = release.trim().to_owned();
        return Err(TraceError::OldKernel { release });
    }
    if !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return Err(TraceError::NoUprobes);
    }
    let lockdown = widelane_files::kernel_text("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        let mode = "confidentiality".to_owned();
        return Err(TraceError::Lockdown { mode });
    }
    Ok(())
}

/// Our PID namespace, as the programs know it: 0 for the first one.
fn pid_namespace() -> Result<u32, TraceError> {
    if widelane_bpf::counts_as_we_do() {
        return Ok(0);
    }
    let path = Path::new("/proc/self/ns/pid");
    let of = fs::metadata(path).map_err(|cause| TraceError::Read {
        path: path.to_owned(),
        cause,
    })?;
    // The kernel numbers namespaces with 32 bits.
    Ok(u32::try_from(of.ino()).unwrap_or_default())
}

/// Major and minor number of a release, as `6.1` of `6.1.0-13-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.trim().split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Each probe takes a few descriptors. If more cannot be had, attaching says so.
fn many_descriptors() {
    let now = rustix::process::getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    let _ = setrlimit(Resource::Nofile, most);
}

/// Last lines of the verifier's log: before them it lists what it has followed.
fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().rev().filter(|line| !line.is_empty()).take(6).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

fn kernel(what: &'static str, error: &dyn std::error::Error) -> TraceError {
    let cause = widelane_bpf::causes(error);
    TraceError::Kernel { what, cause }
}

fn rights(error: &(dyn std::error::Error + 'static)) -> Option<TraceError> {
    widelane_bpf::is_refused(error).then_some(TraceError::NoRights)
}

/// No argument of a function is a place for its result.
const NO_OUTPUT: u8 = u8::MAX;
/// Variable that makes probes one by one, as on kernels before Linux 6.6, if its value is `single`.
const PROBES_VARIABLE: &str = "WIDELANE_TRACE_PROBES";
const COOKIE_GOROUTINE: u64 = 1 << 16;
const COOKIE_AT_RET: u64 = 1 << 17;
const COOKIE_EVENT: u64 = 1 << 18;
const COOKIE_COUNT: u64 = 1 << 19;
const COOKIE_DATA: u64 = 1 << 20;
const COOKIE_ENTRY: u64 = 1 << 21;
const COOKIE_HANDSHAKE: u64 = 1 << 22;
const COOKIE_TRACED: u64 = 1 << 23;
/// Records that are taken before anything else is done.
const MOST_RECORDS: usize = 100_000;
/// Rows of the table of functions in the kernel.
const FUNCTIONS: usize = 1024;
/// Rows of the table of places of arguments in the kernel.
const SITES: usize = 4096;
/// All places for calls under way, as a power of two: `SLOTS` in the programs.
const SLOT_BITS: u32 = 13;
/// Flag of a process whose reads and writes are not looked at.
const FLAG_SILENT: u32 = 16;
/// Flag of a process whose children are traced, too.
const FLAG_FORKS: u32 = 128;
/// The first kernel whose probes have cookies.
const OLDEST: (u32, u32) = (5, 15);

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::event::{Direction, Event};
    use crate::returns::{MOST_IN_FILE, Ways};
    use crate::symbols::Elf;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert_eq!(version("6.1.0-13-amd64\n"), Some((6, 1)));
        assert_eq!(version("5.15-rc1"), Some((5, 15)));
        assert_eq!(version("unknown"), None);
        assert!(version("5.4.0").unwrap() < OLDEST);
    }

    /// The programs; none where tracing is not allowed. Namespaces have a test of their own.
    fn load(want: Want, single: bool) -> Option<Programs> {
        load_with(want, single, SLOT_BITS)
    }

    fn load_with(want: Want, single: bool, slot_bits: u32) -> Option<Programs> {
        if !widelane_bpf::counts_as_we_do() {
            println!("SKIP: this is not the first PID namespace");
            return None;
        }
        match Programs::load_for(want, single, slot_bits) {
            Ok(programs) => Some(programs),
            Err(error @ (TraceError::Kernel { .. } | TraceError::Verifier { .. })) => {
                panic!("{error}")
            }
            Err(error) => {
                println!("SKIP: {error}");
                None
            }
        }
    }

    /// The programs pass the kernel's verifier, and report a call of this very process.
    #[test]
    fn a_call_of_this_process_is_reported() {
        for single in [false, true] {
            a_call_is_reported(single);
        }
    }

    /// Offsets of the instructions by which the function at an offset of this program returns.
    fn returns_of(entry: u64) -> Vec<u64> {
        let bytes = fs::read("/proc/self/exe").unwrap();
        let elf = Elf::parse(&bytes).unwrap();
        let mut codes = elf.codes();
        let address = codes.find_map(|(start, code)| {
            let into = entry.checked_sub(elf.offset(start)?)?;
            (into < code.len() as u64).then_some(start + into)
        });
        let ways = Ways {
            elf: &elf,
            slot: &|_| None,
            go: false,
            left: Cell::new(MOST_IN_FILE),
        };
        let returns = ways.returns(address.unwrap(), 0).unwrap().into_iter();
        returns.filter_map(|at| elf.offset(at)).collect()
    }

    /// A probe on a function of this program.
    fn probe_on(symbol: &str, address: u64) -> Probe {
        let function = Arc::new(Function {
            library: "test".to_owned(),
            symbol: symbol.to_owned(),
            role: Role::Sign,
            name: None,
            side: None,
            object: 0,
            output: None,
            size: Some(Size::Argument(1)),
            returns: Returns::One,
            instead: None,
            state: None,
        });
        let pid = std::process::id();
        let code = widelane_threads::Code::of(pid).unwrap();
        let holds = |mapping: &&widelane_threads::Mapping| mapping.range.contains(&address);
        let mapping = code.mappings.iter().find(holds).unwrap();
        let file = Arc::new(code.open(mapping).unwrap());
        let entry = address - mapping.range.start + mapping.offset;
        Probe {
            function,
            symbol: symbol.into(),
            file,
            entry,
            returns: Exits::At(returns_of(entry)),
            goroutine: false,
            state: None,
        }
    }

    /// Calls whose place another one has are kept elsewhere, and places are free again after a return.
    #[test]
    fn calls_that_share_a_place_are_all_counted() {
        for slot_bits in [1, SLOT_BITS] {
            let want = Want {
                counts: true,
                ..Want::default()
            };
            let Some(mut programs) = load_with(want, false, slot_bits) else {
                return;
            };
            let probe = probe_on("nested", nested as *const () as u64);
            let mut attached = Attached::default();
            let refused = programs.attach(Scope::Process(std::process::id()), &[&probe], &mut attached);
            assert!(refused.unwrap().is_empty());
            for round in 1..=3 {
                assert_eq!(nested(20), 21);
                let counts = programs.counts().unwrap();
                let calls: u64 = counts.iter().map(|count| count.calls).sum();
                assert_eq!(calls, 21 * round, "{slot_bits} bits: {counts:?}");
                assert!(counts.iter().all(|count| count.succeeded));
            }
            assert_eq!(programs.lost(), 0);
        }
    }

    #[inline(never)]
    extern "C" fn nested(depth: u64) -> u64 {
        match depth {
            0 => 1,
            _ => std::hint::black_box(nested(depth - 1)) + 1,
        }
    }

    fn a_call_is_reported(single: bool) {
        let want = Want {
            calls: true,
            counts: true,
            ..Want::default()
        };
        let Some(mut programs) = load(want, single) else {
            return;
        };
        let probe = probe_on("answer", answer as *const () as u64);
        let function = Arc::clone(&probe.function);
        let pid = std::process::id();
        // A place behind the end of the file cannot have a probe, and the others have theirs.
        let nowhere = Probe {
            entry: 1 << 40,
            ..probe.clone()
        };
        let probes = [&nowhere, &probe, &nowhere];
        let mut attached = Attached::default();
        let scope = Scope::Process(pid);
        let refused = programs.attach(scope, &probes, &mut attached).unwrap();
        let refused: Vec<_> = refused.into_iter().map(|(at, _)| at).collect();
        assert_eq!(refused, [0, 2]);
        assert_eq!(answer(41, 7), 42);
        let mut calls = Vec::new();
        programs.records(|record| match record {
            Record::Event(Event::Call(call)) => calls.push(call),
            // Other tests of this program start processes.
            Record::Changed(..) | Record::Event(Event::Bytes(_)) => {}
            other => panic!("{other:?}"),
        });
        let [call] = &calls[..] else {
            panic!("{calls:?}");
        };
        assert_eq!(call.function, function);
        assert_eq!((call.pid, call.object, call.size), (pid, 41, Some(7)));
        assert_eq!(call.result, 42);
        assert!(call.cpu.is_some_and(|cpu| cpu <= call.wall), "{call:?}");
        let counts = programs.counts().unwrap();
        assert_eq!(counts.len(), 1);
        assert_eq!((counts[0].calls, counts[0].total), (1, call.wall));
        assert!(counts[0].succeeded);
        drop(attached);
        answer(1, 1);
        programs.records(|record| {
            assert!(!matches!(record, Record::Event(Event::Call(_))), "{record:?}");
        });
        assert_eq!(programs.lost(), 0);
    }

    /// The programs, for what this process reads and writes.
    fn load_for_bytes() -> Option<Programs> {
        let want = Want {
            bytes: true,
            ..Want::default()
        };
        let mut programs = load(want, false)?;
        let flags = ProcessFlags::default();
        programs.trace(std::process::id(), flags).unwrap();
        Some(programs)
    }

    /// Records that were kept of a connection, as direction, length and bytes. Other tests of this program read and
    /// write, too.
    fn kept(programs: &mut Programs, (here, there): &(UnixStream, UnixStream)) -> Vec<(Direction, u64, Vec<u8>)> {
        let descriptors = [here.as_raw_fd(), there.as_raw_fd()];
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let mut kept = Vec::new();
        programs.records(|record| match record {
            Record::Event(Event::Bytes(bytes))
                if descriptors.contains(&bytes.descriptor.cast_signed()) && bytes.tid == thread.cast_unsigned() =>
            {
                kept.push((bytes.direction, bytes.length, bytes.bytes));
            }
            _ => {}
        });
        kept
    }

    /// A hello is kept whole, what follows it in TLS 1.3 is not; a body that is read after its header
    /// is kept, and other data is not.
    #[test]
    fn flights_of_this_process_are_reported() {
        let Some(mut programs) = load_for_bytes() else {
            return;
        };
        let connection = UnixStream::pair().unwrap();
        let (mut here, mut there) = (&connection.0, &connection.1);
        let mut flight = vec![22, 3, 3, 0, 100];
        flight.extend([7; 100]);
        flight.extend([23, 3, 3, 1, 0]);
        flight.extend([0; 256]);
        there.write_all(&flight).unwrap();
        there.write_all(b"data of an application").unwrap();
        let (mut header, mut body, mut rest) = ([0; 5], [0; 100], [0; 283]);
        here.read_exact(&mut header).unwrap();
        here.read_exact(&mut body).unwrap();
        here.read_exact(&mut rest).unwrap();
        let expected = vec![
            (Direction::Written, 366, flight[..105].to_vec()),
            (Direction::Read, 5, flight[..5].to_vec()),
            (Direction::Read, 100, flight[5..105].to_vec()),
        ];
        assert_eq!(kept(&mut programs, &connection), expected);
    }

    /// OpenSSL writes a long flight of TLS 1.2 in pieces, and Go reads one so: what follows the certificate
    /// tells the group.
    #[test]
    fn a_flight_in_pieces_is_reported() {
        let Some(mut programs) = load_for_bytes() else {
            return;
        };
        let connection = UnixStream::pair().unwrap();
        let (mut here, mut there) = (&connection.0, &connection.1);
        let record = |kind: u8, content: &[u8]| {
            let [high, low] = (content.len() as u16).to_be_bytes();
            [&[kind, 3, 3, high, low], content].concat()
        };
        let flight = [
            record(22, &[2; 90]),
            record(22, &[11; 9_000]),
            record(22, &[12; 300]),
            record(22, &[14; 4]),
        ]
        .concat();
        // The last piece of the certificate has the rest behind it; then comes data of an application.
        let pieces = [&flight[..4096], &flight[4096..8192], &flight[8192..]];
        let mut carry = |piece: &[u8]| {
            there.write_all(piece).unwrap();
            here.read_exact(&mut vec![0; piece.len()]).unwrap();
        };
        pieces.into_iter().for_each(&mut carry);
        // Sends the flight again, at once.
        carry(&flight);
        let data = [23, 3, 3, 0, 32, 22, 3, 3];
        there.write_all(&data).unwrap();
        here.read_exact(&mut [0; 8]).unwrap();
        let expected = vec![
            (4096, pieces[0].to_vec()),
            (4096, pieces[1][..1536].to_vec()),
            (pieces[2].len() as u64, pieces[2].to_vec()),
            (95, flight[..95].to_vec()),
            (9_005, flight[95..95 + 1536].to_vec()),
            (314, flight[9_100..].to_vec()),
        ];
        let kept = kept(&mut programs, &connection);
        for of in [Direction::Written, Direction::Read] {
            let kept = kept.iter().filter(|(direction, _, _)| *direction == of);
            let kept: Vec<_> = kept.map(|(_, size, bytes)| (*size, bytes.clone())).collect();
            assert_eq!(kept, expected);
        }
    }

    #[inline(never)]
    extern "C" fn answer(question: u64, size: u64) -> u64 {
        std::hint::black_box(size);
        std::hint::black_box(question) + 1
    }
}
