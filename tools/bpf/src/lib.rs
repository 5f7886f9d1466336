//! Programs for the kernel, compiled from `programs/`, and common parts of the tools that load them: limits and rights
//! that must be there, parts of a loaded file by their names, multi-probes, and errors with all their causes.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod calls;
mod multi;

pub use multi::{MultiLink, MultiProgram, Point};

use std::error::Error;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use aya::maps::{Map, MapError};
use aya::programs::{Program, ProgramError};
use aya::{Btf, Ebpf, include_bytes_aligned};
use rustix::process::{Resource, Rlimit, setrlimit};

/// Object file of the programs of `trace`.
pub const TRACE: Result<&[u8], Missing> = compiled(include_bytes_aligned!(concat!(env!("OUT_DIR"), "/trace.o")));

/// Object file of the programs of `usage`.
pub const USAGE: Result<&[u8], Missing> = compiled(include_bytes_aligned!(concat!(env!("OUT_DIR"), "/usage.o")));

/// Something that is needed to load programs.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum Missing {
    /// The programs.
    #[error(
        "this program was built without its programs for the kernel ({reason}); build it where clang is \
         installed (Debian: `apt-get install clang`)"
    )]
    Programs {
        /// Reason why they were not compiled.
        reason: &'static str,
    },
    /// The kernel's description of its structures.
    #[error(
        "there is no /sys/kernel/btf/vmlinux, which says where fields of this kernel's structures \
         are: it takes a kernel with CONFIG_DEBUG_INFO_BTF, as distributions have since 2020"
    )]
    Btf,
}

/// The object file as it is, or why the build script has left it empty.
const fn compiled(object: &'static [u8]) -> Result<&'static [u8], Missing> {
    match object {
        [] => Err(Missing::Programs {
            reason: include_str!(concat!(env!("OUT_DIR"), "/reason")),
        }),
        _ => Ok(object),
    }
}

/// Reads the kernel's description of its structures.
///
/// # Errors
///
/// When there is none.
pub fn btf() -> Result<Btf, Missing> {
    Btf::from_sys_fs().map_err(|_| Missing::Btf)
}

/// Returns whether the kernel's programs count processes by the numbers that this process knows: those of the first PID
/// namespace.
pub fn counts_as_we_do() -> bool {
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    namespace == Path::new(FIRST_PID_NAMESPACE)
}

/// Lets maps have the memory that they need: before Linux 5.11 they count as locked memory. If it
/// cannot be had, loading says so.
pub fn unlimit_memory() {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let _ = setrlimit(Resource::Memlock, unlimited);
}

/// Loads something into the kernel, and again if a signal has interrupted the verifier: the kernel says
/// `EAGAIN` then. Where signals come all the time, the last of [`ATTEMPTS`] attempts says so.
///
/// # Errors
///
/// The error of the last attempt.
pub fn persistently<T, E: Error + 'static>(mut load: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..ATTEMPTS {
        match load() {
            Err(error) if is_interrupted(&error) => {}
            ended => return ended,
        }
    }
    load()
}

/// Number of attempts of [`persistently`].
pub const ATTEMPTS: u32 = 8;

/// A program by its name.
///
/// # Errors
///
/// When there is none, or it is of another type.
pub fn program<'a, T>(programs: &'a mut Ebpf, name: &str) -> Result<&'a mut T, ProgramError>
where
    &'a mut T: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = programs.program_mut(name);
    program.ok_or(ProgramError::UnexpectedProgramType)?.try_into()
}

/// A map by its name and type.
///
/// # Errors
///
/// When there is none, or it is of another type.
pub fn map<T>(programs: &mut Ebpf, name: &str) -> Result<T, MapError>
where
    T: TryFrom<Map, Error = MapError>,
{
    let missing = || MapError::InvalidName { name: name.to_owned() };
    programs.take_map(name).ok_or_else(missing)?.try_into()
}

/// An error with all its causes.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Returns whether an error comes from rights that are missing.
pub fn is_refused(error: &(dyn Error + 'static)) -> bool {
    has_kind(error, &[ErrorKind::PermissionDenied])
}

/// Returns whether another attempt may succeed.
fn is_interrupted(error: &(dyn Error + 'static)) -> bool {
    has_kind(error, &[ErrorKind::WouldBlock, ErrorKind::Interrupted])
}

/// Returns whether an error or one of its causes is an I/O error of these kinds.
fn has_kind(error: &(dyn Error + 'static), kinds: &[ErrorKind]) -> bool {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        let io_error = inner.downcast_ref::<io::Error>();
        if io_error.is_some_and(|error| kinds.contains(&error.kind())) {
            return true;
        }
        // The source of an I/O error that holds another error is that error's source: `get_ref` is the
        // only way to the held error itself.
        let held = io_error.and_then(io::Error::get_ref);
        cause = match held {
            Some(held) => Some(held),
            None => inner.source(),
        };
    }
    false
}

/// Name of the first PID namespace, the same on every machine.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

#[cfg(test)]
mod tests {
    use super::*;
    use aya::sys::SyscallError;

    #[test]
    fn causes_are_told_and_refusals_are_found_below_others() {
        let refused = io::Error::from(ErrorKind::PermissionDenied);
        let said = refused.to_string();
        let outer = io::Error::other(io::Error::other(refused));
        assert!(is_refused(&outer));
        assert!(causes(&outer).contains(&said));
        let loading = ProgramError::SyscallError(SyscallError {
            call: "bpf_prog_load",
            io_error: io::Error::from(ErrorKind::PermissionDenied),
        });
        assert!(is_refused(&loading));
        assert!(causes(&loading).contains(&said));
        assert!(!is_refused(&io::Error::from(ErrorKind::NotFound)));
    }

    #[test]
    fn programs_that_are_missing_say_what_to_install() {
        assert!(compiled(b"\x7fELF").is_ok());
        let missing = compiled(&[]).unwrap_err().to_string();
        assert!(missing.contains("install clang"), "{missing}");
        assert_eq!(TRACE.is_ok(), USAGE.is_ok());
    }

    fn load_error(kind: ErrorKind) -> ProgramError {
        ProgramError::SyscallError(SyscallError {
            call: "bpf_prog_load",
            io_error: io::Error::from(kind),
        })
    }

    #[test]
    fn what_a_signal_has_interrupted_is_loaded_again() {
        for kind in [ErrorKind::WouldBlock, ErrorKind::Interrupted] {
            let mut attempts = 0;
            let loaded = persistently(|| {
                attempts += 1;
                match attempts {
                    1 | 2 => Err(load_error(kind)),
                    _ => Ok(attempts),
                }
            });
            assert_eq!((loaded.ok(), attempts), (Some(3), 3));
        }
    }

    #[test]
    fn other_errors_and_endless_signals_end_it() {
        let mut attempts = 0;
        let refused: Result<(), _> = persistently(|| {
            attempts += 1;
            Err(load_error(ErrorKind::PermissionDenied))
        });
        assert!(is_refused(&refused.unwrap_err()));
        assert_eq!(attempts, 1);

        attempts = 0;
        let interrupted: Result<(), _> = persistently(|| {
            attempts += 1;
            Err(load_error(ErrorKind::WouldBlock))
        });
        assert!(is_interrupted(&interrupted.unwrap_err()));
        assert_eq!(attempts, ATTEMPTS);
    }
}
