//! Finds what to probe in a process.

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use widelane_threads::{Code, Identity, Mapping, Proc, RegularFile};

use crate::calls::Calls;
use crate::functions::{Function, Role};
use crate::image::{Image, Located};
use crate::marks::{Mark, Tells};
use crate::notes::Place;
use crate::table::Table;
use crate::text::escaped;
use crate::want::Want;

/// Finds what to probe in processes. A file that several processes have mapped is read once.
#[derive(Debug)]
pub struct Targets {
    table: Table,
    roles: Vec<Role>,
    handshakes_only: bool,
    /// Functions that read and write matter while a handshake goes on in them.
    inside: bool,
    tells: Vec<Tells>,
    known: HashMap<Identity, Option<Arc<TracedFile>>>,
}

/// A file that has something to say.
#[derive(Debug)]
struct TracedFile {
    image: Image,
    file: Arc<RegularFile>,
    /// Calls of functions in the file, once they have been asked for.
    calls: OnceLock<Calls>,
}

/// Probes of a process.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The probes. None: the process has no function of the table.
    pub probes: Vec<Probe>,
    /// The static probes.
    pub marks: Vec<MarkProbe>,
    /// Notes for the user. Safe to print.
    pub notes: Vec<String>,
}

/// A function to probe.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Row of the function in the table.
    pub function: Arc<Function>,
    /// Whole symbol of the function.
    pub symbol: Arc<str>,
    /// The file in which it is.
    pub file: Arc<RegularFile>,
    /// Offset in the file at which the entry is seen: the beginning of the function, or a few instructions behind.
    pub entry: u64,
    /// Places at which the function returns.
    pub returns: Exits,
    /// True for a function of Go: arguments and results are in Go's registers, and a call belongs to a goroutine.
    pub goroutine: bool,
    /// Offset in the object, in bytes, at which the library notes that a handshake is under way. Calls at other times
    /// are of no interest.
    pub state: Option<u32>,
}

/// A place of a static probe.
#[derive(Clone, Debug)]
pub struct MarkProbe {
    /// Row of the static probe in the table.
    pub mark: Arc<Mark>,
    /// The file.
    pub file: Arc<RegularFile>,
    /// Offset in the file.
    pub offset: u64,
    /// Places of the probe's arguments.
    pub places: Vec<Place>,
}

/// Way to see that a function returns. Nothing on the stack is changed: return probes of the kernel would crash
/// every process that has the file and suspends calls on stacks of their own, also those that are not traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exits {
    /// Probe at each of these places in the file. All of them are `ret` instructions, where the stack pointer is what
    /// it was at the entry. If there are none, only the entry is seen.
    At(Vec<u64>),
    /// A probe after each call of it, in the files that call it: it has no `ret` of its own for
    /// every way out, or the places after its calls cost less. There the stack pointer is 8 more than at
    /// the entry, since the return address has been taken off, and rax has the result. A call by way of
    /// a pointer is not among them: it seems never to return.
    After(Vec<Site>),
}

/// A place in a file.
#[derive(Clone, Debug)]
pub struct Site {
    /// The file.
    pub file: Arc<RegularFile>,
    /// Offset in the file.
    pub offset: u64,
}

impl PartialEq for Site {
    fn eq(&self, other: &Self) -> bool {
        (self.file.identity(), self.offset) == (other.file.identity(), other.offset)
    }
}

impl Eq for Site {}

impl Hash for Site {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.file.identity(), self.offset).hash(state);
    }
}

/// Reason why nothing can be probed in a process.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The process does not exist.
    #[error("there is no process {pid}, or it has ended")]
    NoProcess {
        /// Number of the process.
        pid: u32,
    },
    /// A process that this user may not look at.
    #[error("process {pid} may not be looked at: that takes root with CAP_SYS_PTRACE")]
    NotAllowed {
        /// Number of the process.
        pid: u32,
    },
    /// The system does not tell.
    #[error("cannot read what process {pid} has mapped: {cause}")]
    Unreadable {
        /// Number of the process.
        pid: u32,
        /// Error of the system.
        cause: io::Error,
    },
}

impl Targets {
    /// Starts without any knowledge. Functions with the wanted roles are probed, the wanted static probes, and
    /// functions that load libraries.
    pub fn new(table: Table, want: &Want) -> Self {
        let mut roles = want.roles.clone();
        roles.push(Role::Load);
        Self {
            table,
            roles,
            handshakes_only: want.handshakes_only,
            inside: want.calls && want.bytes,
            tells: want.tells.clone(),
            known: HashMap::new(),
        }
    }

    /// Finds what to probe in a process.
    ///
    /// # Errors
    ///
    /// When there is no such process, or its code may not be looked at.
    pub fn of(&mut self, proc: &Proc, pid: u32) -> Result<Target, TargetError> {
        match self.of_ending(proc, pid)? {
            (target, false) => Ok(target),
            (_, true) => Err(TargetError::NoProcess { pid }),
        }
    }

    /// Finds what to probe, and returns whether the process has ended meanwhile: then it is no target any more, but the
    /// next process with the same program will be like it.
    pub(crate) fn of_ending(&mut self, proc: &Proc, pid: u32) -> Result<(Target, bool), TargetError> {
        let no_process = || TargetError::NoProcess { pid };
        let stat = proc.stat_of(pid).filter(|stat| !stat.dead);
        let stat = stat.ok_or_else(no_process)?;
        let code = Code::of(pid).map_err(|cause| match cause.kind() {
            _ if is_no_process(&cause) => no_process(),
            io::ErrorKind::NotFound => no_process(),
            io::ErrorKind::PermissionDenied => TargetError::NotAllowed { pid },
            _ => TargetError::Unreadable { pid, cause },
        })?;
        let who = format!("PID {pid} {}", escaped(&stat.name));
        let mut target = Target::default();
        let mut files: Vec<File> = Vec::new();
        // All are opened before the first is looked through: the process may end meanwhile.
        let mappings = code.files().into_iter();
        let opened: Vec<_> = mappings
            .filter(|mapping| !is_memory(mapping))
            .map(|mapping| (mapping, code.open(mapping)))
            .collect();
        for (mapping, file) in opened {
            let path = mapping.path.as_deref().unwrap_or(Path::new(""));
            match file.and_then(|file| self.known(file)) {
                Ok(Some(known)) => files.push((path.to_owned(), known)),
                Ok(None) => {}
                // The process has ended, and its target would be incomplete: no model for others.
                Err(error) if is_no_process(&error) => return Err(no_process()),
                Err(error) => target
                    .notes
                    .push(format!("{who}: {} is not looked through: {error}", shown(path))),
            }
        }
        for (path, known) in &files {
            self.probe(&mut target, path, known, &files);
            self.mark(&mut target, known);
        }
        if target.probes.is_empty() && target.marks.is_empty() {
            for (path, known) in &files {
                if let Some(why) = &known.image.blind {
                    let path = shown(path);
                    let note = format!("{who}: {path}: {why}: no functions are found in it");
                    target.notes.push(note);
                }
            }
        }
        // Meanwhile the process may have ended, and another have its number.
        let after = proc.stat_of(pid).filter(|stat| !stat.dead);
        let ended = after.is_none_or(|after| after.start != stat.start);
        Ok((target, ended))
    }

    /// Forgets files of which no probe is left, and closes them. One that a process still has
    /// mapped is read again when that is looked at the next time.
    pub fn forget_unused(&mut self) {
        let many = self.known.len() > MOST_REMEMBERED;
        self.known.retain(|_, known| match known {
            Some(known) => Arc::strong_count(&known.file) > 1,
            // Files without functions cost nothing to remember.
            None => !many,
        });
    }

    fn known(&mut self, file: RegularFile) -> io::Result<Option<Arc<TracedFile>>> {
        let identity = file.identity();
        if let Some(known) = self.known.get(&identity) {
            return Ok(known.clone());
        }
        let bytes = file.read(MOST_BYTES)?;
        // Fonts and archives of locales are mapped, too, if rarely as code.
        let image = Image::of(&bytes, &self.table).ok();
        let matters = |image: &Image| {
            !image.functions.is_empty() || !image.marks.is_empty() || image.imports || image.blind.is_some()
        };
        let known = image.filter(matters).map(|image| {
            let file = Arc::new(file);
            Arc::new(TracedFile {
                image,
                file,
                calls: OnceLock::new(),
            })
        });
        self.known.insert(identity, known.clone());
        Ok(known)
    }

    fn probe(&self, target: &mut Target, path: &Path, known: &TracedFile, files: &[File]) {
        let functions = known.image.functions.iter();
        for located in functions.filter(|located| self.is_wanted(&known.image, located)) {
            let role = located.function.role;
            let returns = match &located.leaves {
                _ if self.handshakes_only && role == Role::Free => Ok(Exits::At(Vec::new())),
                Ok(places) => match self.sites(&located.symbol, files) {
                    // A `ret` is executed in single step, and most places behind a call are not. That
                    // other files call the function is a sign that it is not called by a pointer.
                    sites if !located.goroutine && is_called(known, &sites) => Ok(Exits::After(sites)),
                    _ => Ok(Exits::At(places.clone())),
                },
                Err(why) => match self.sites(&located.symbol, files) {
                    // That a connection ends is known from the entry alone.
                    sites if sites.is_empty() && role == Role::Free => Ok(Exits::At(Vec::new())),
                    sites if sites.is_empty() => Err(why),
                    sites => Ok(Exits::After(sites)),
                },
            };
            match returns {
                Ok(returns) => target.probes.push(Probe {
                    function: Arc::clone(&located.function),
                    symbol: located.symbol.as_str().into(),
                    file: Arc::clone(&known.file),
                    entry: located.probe,
                    returns,
                    goroutine: located.goroutine,
                    state: located.state.filter(|_| !self.roles.contains(&role)),
                }),
                // That is worth a note if a file of the process may call it.
                Err(why) if self.is_imported(&located.symbol, files) => {
                    target.notes.push(format!(
                        "{} in {}: {why}, and no call of it is found: it is not traced",
                        escaped(&located.symbol),
                        shown(path)
                    ));
                }
                Err(_) => {}
            }
        }
    }

    fn is_wanted(&self, image: &Image, located: &Located) -> bool {
        let function = &located.function;
        let has = |symbol: &String| image.functions.iter().any(|other| other.symbol == *symbol);
        let reported_elsewhere = self.handshakes_only && function.instead.as_ref().is_some_and(has);
        // Static probes report the parts of a handshake where they report handshakes.
        let by_marks = self.tells_handshakes() && image.tells_handshakes();
        let reported_by_marks = by_marks && Role::PARTS.contains(&function.role);
        let goes_on = self.inside && located.state.is_some();
        let wanted = self.roles.contains(&function.role) || goes_on;
        wanted && !reported_elsewhere && !reported_by_marks
    }

    fn mark(&self, target: &mut Target, known: &TracedFile) {
        let handshakes = known.image.tells_handshakes();
        for one in &known.image.marks {
            let tells = one.mark.tells;
            // Jobs belong to handshakes: where no probe tells of these, they tell nothing.
            let matters = handshakes || !tells.is_part();
            if matters && self.tells.contains(&tells) {
                target.marks.push(MarkProbe {
                    mark: Arc::clone(&one.mark),
                    file: Arc::clone(&known.file),
                    offset: one.offset,
                    places: one.places.clone(),
                });
            }
        }
    }

    fn tells_handshakes(&self) -> bool {
        self.tells.contains(&Tells::HandshakeEnded)
    }

    fn is_imported(&self, symbol: &str, files: &[File]) -> bool {
        let mut calls = files.iter().map(|(_, known)| known.calls(&self.table));
        calls.any(|calls| calls.imports.contains(symbol))
    }

    /// Places to which a function returns, in all files of a process.
    fn sites(&self, symbol: &str, files: &[File]) -> Vec<Site> {
        let calls: Vec<_> = (files.iter())
            .map(|(_, known)| (known, known.calls(&self.table)))
            .collect();
        let mut symbols = vec![symbol];
        let mut at = 0;
        while let Some(&symbol) = symbols.get(at) {
            let ends = calls.iter().flat_map(|(_, calls)| &calls.ends);
            for (_, own) in ends.filter(|(to, _)| to == symbol) {
                if !symbols.contains(&own.as_str()) {
                    symbols.push(own);
                }
            }
            at += 1;
        }
        let mut sites = Vec::new();
        for (known, calls) in &calls {
            let after = symbols.iter().filter_map(|symbol| calls.after.get(*symbol));
            let offsets: BTreeSet<u64> = after.flatten().copied().collect();
            sites.extend(offsets.into_iter().map(|offset| Site {
                file: Arc::clone(&known.file),
                offset,
            }));
        }
        sites
    }
}

impl TracedFile {
    fn calls(&self, table: &Table) -> &Calls {
        self.calls.get_or_init(|| {
            let bytes = self.file.read(MOST_BYTES);
            let calls = bytes.ok().and_then(|bytes| Calls::of(&bytes, table).ok());
            calls.unwrap_or_default()
        })
    }
}

/// Error of the system for a process that is about to end.
fn is_no_process(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::SRCH)
}

/// Returns whether another file than the function's own calls it.
fn is_called(own: &TracedFile, sites: &[Site]) -> bool {
    let own = own.file.identity();
    sites.iter().any(|site| site.file.identity() != own)
}

/// A file of a process, by the name that the process has for it.
type File = (PathBuf, Arc<TracedFile>);

/// Returns whether a mapping is memory that looks like a file. Runtimes that compile while they run keep their code in
/// it, which may be large and changes all the time.
fn is_memory(mapping: &Mapping) -> bool {
    let path = mapping.path.as_deref().unwrap_or(Path::new(""));
    let path = path.as_os_str().as_encoded_bytes();
    path.starts_with(b"/memfd:") || path.starts_with(b"/dev/")
}

fn shown(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// Larger files are refused: no program or library has this size.
const MOST_BYTES: u64 = 1 << 30;
/// A machine has some thousand programs and libraries.
const MOST_REMEMBERED: usize = 64 << 10;
