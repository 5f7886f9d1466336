//! Looking at processes.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use widelane_status::{BadPage, NAME, Report, SIZE};
use widelane_threads::{Mapping, Memory, Proc};

use crate::error::StatusError;

/// What was found on this machine.
#[derive(Debug, Default)]
pub struct Survey {
    /// Processes that have to do with the provider, by their numbers.
    pub processes: Vec<Process>,
    /// How many processes this user may not look at.
    pub hidden: usize,
    /// How many processes could not be read in time: their owners hold that up.
    pub held_up: usize,
}

/// A process that has to do with the provider.
#[derive(Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number here.
    pub pid: u32,
    /// Its name, which its owner chooses.
    pub name: String,
    /// What was found.
    pub state: State,
}

/// What was found in a process.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It counts. That all figures are 0 is possible.
    Counts(Report),
    /// Its parent has loaded the provider, and it has done nothing with it since. The report is the
    /// parent's; the facts in it hold for both.
    Inherited(Report),
    /// It has loaded the provider and has no page: memory for it could not be had.
    Uncounted,
    /// Its page cannot be read.
    Damaged(BadPage),
    /// It has a page, and this user may list its memory but not read it.
    NotAllowed,
    /// The library that suspends handshakes is loaded, OpenSSL too, and the provider is not.
    NoProvider,
    /// The library that suspends handshakes is loaded, but no libssl that is a library: there is
    /// nothing that could use the provider.
    NoSharedLibssl,
    /// `LD_PRELOAD` names that library, and the program has not loaded it: it is linked statically
    /// or has gained rights.
    NotPreloaded,
}

impl State {
    /// Whether the provider is loaded.
    pub fn is_loaded(&self) -> bool {
        !matches!(self, Self::NoProvider | Self::NoSharedLibssl | Self::NotPreloaded)
    }
}

/// Looks at every process.
///
/// # Errors
///
/// When processes cannot be listed.
pub fn survey() -> io::Result<Survey> {
    let mut survey = Survey::default();
    let mut pids = Proc::here().processes()?;
    pids.sort_unstable();
    for pid in pids {
        match process(pid) {
            Ok(found) => survey.processes.extend(found),
            Err(StatusError::NotAllowed { .. }) => survey.hidden += 1,
            Err(StatusError::Unreadable { cause, .. }) if cause.kind() == io::ErrorKind::TimedOut => {
                survey.held_up += 1;
            }
            // It has ended meanwhile, or has no memory that could be listed.
            Err(_) => {}
        }
    }
    Ok(survey)
}

/// Looks at one process; `None` if it has nothing to do with the provider.
///
/// # Errors
///
/// When there is none, or this user may not look at it.
pub fn process(pid: u32) -> Result<Option<Process>, StatusError> {
    let memory = Memory::of(pid).map_err(|cause| StatusError::of(pid, cause))?;
    let proc = Proc::here();
    let has = |wanted: fn(&[u8]) -> bool| {
        let mut names = memory.mappings.iter().filter_map(file_name);
        names.any(wanted)
    };
    let state = if let Some((state, _)) = page_of(pid, &memory, &proc)? {
        state
    } else if has(is_provider) {
        State::Uncounted
    } else if has(is_shim) {
        match has(is_libssl) {
            true => State::NoProvider,
            false => State::NoSharedLibssl,
        }
    } else if names_shim(pid, &proc) {
        State::NotPreloaded
    } else {
        return Ok(None);
    };
    Ok(Some(Process {
        pid,
        name: proc.process_name(pid),
        state,
    }))
}

/// The page of a process, and what it says; `None` if there is none. There is one; others may be there if it was
/// made by a process that means harm.
pub(crate) fn page_of<'a>(
    pid: u32,
    memory: &'a Memory,
    proc: &Proc,
) -> Result<Option<(State, &'a Mapping)>, StatusError> {
    let own = proc.own_number(pid).unwrap_or(pid);
    let mut found = None;
    let pages = memory.mappings.iter().filter(|one| is_page(one));
    for page in pages.take(MOST_PAGES) {
        let state = match memory.read(page, MOST_BYTES) {
            Ok(bytes) => match Report::parse(&bytes) {
                Ok(report) if report.process == own => {
                    return Ok(Some((State::Counts(report), page)));
                }
                Ok(report) => State::Inherited(report),
                Err(bad) => State::Damaged(bad),
            },
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Ok(Some((State::NotAllowed, page)));
            }
            Err(error) => return Err(StatusError::of(pid, error)),
        };
        found = Some((state, page));
    }
    Ok(found)
}

fn is_page(mapping: &Mapping) -> bool {
    // The kernel names memory without a file so, and says of all of it that its file is deleted.
    let path = mapping.path.as_deref().map(Path::to_str);
    let name = path.flatten().and_then(|path| path.strip_prefix("/memfd:"));
    name.and_then(|name| name.strip_suffix(DELETED)) == Some(NAME)
}

/// The name of the mapped file, also of one that was replaced since.
fn file_name(mapping: &Mapping) -> Option<&[u8]> {
    let name = mapping.path.as_deref()?.file_name()?.as_bytes();
    Some(name.strip_suffix(DELETED.as_bytes()).unwrap_or(name))
}

fn is_provider(name: &[u8]) -> bool {
    PROVIDER.contains(&name)
}

fn is_shim(name: &[u8]) -> bool {
    name == SHIM
}

fn is_libssl(name: &[u8]) -> bool {
    name.starts_with(b"libssl")
}

fn names_shim(pid: u32, proc: &Proc) -> bool {
    let Some(list) = proc.variable(pid, "LD_PRELOAD") else {
        return false;
    };
    let mut paths = list.as_bytes().split(|byte| b": ".contains(byte));
    paths.any(|path| path.rsplit(|&byte| byte == b'/').next().is_some_and(is_shim))
}

/// What the files of the provider are called: as they are built, and in OpenSSL's folder of modules.
const PROVIDER: [&[u8]; 2] = [b"libwidelane_openssl.so", b"widelane.so"];
/// What the library that suspends handshakes is called.
const SHIM: &[u8] = b"libwidelane_openssl_shim.so";
const DELETED: &str = " (deleted)";
/// A page of another layout may be longer; its number tells.
const MOST_BYTES: usize = 8 * SIZE;
/// Pages of one process that are looked at.
const MOST_PAGES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn mappings(text: &str) -> Vec<Mapping> {
        Mapping::parse_all(text.as_bytes())
    }

    #[test]
    fn files_are_known_by_their_names() {
        let found = mappings(
            "1000-3000 rw-s 00000000 00:01 7 /memfd:widelane-status (deleted)\n\
             3000-4000 rw-s 00000000 00:01 8 /memfd:widelane-status-2 (deleted)\n\
             4000-5000 r-xp 00000000 00:02 9 /opt/libwidelane_openssl.so (deleted)\n\
             5000-6000 r-xp 00000000 00:02 9 /usr/lib/libssl.so.3\n\
             6000-7000 r-xp 00000000 00:02 9 /opt/libwidelane_openssl_shim.so\n",
        );
        let pages: Vec<_> = found.iter().filter(|one| is_page(one)).collect();
        assert_eq!(pages, [&found[0]]);
        let names: Vec<_> = found.iter().filter_map(file_name).collect();
        assert!(is_provider(names[2]) && !is_provider(names[4]));
        assert!(is_libssl(names[3]) && is_shim(names[4]));
    }

    #[test]
    fn a_process_without_the_provider_is_nothing() {
        assert_eq!(process(std::process::id()).unwrap(), None);
        let error = process(u32::MAX).unwrap_err();
        assert!(matches!(error, StatusError::NoProcess { .. }), "{error}");
    }
}
