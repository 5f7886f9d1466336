//! Reasons why nothing can be traced.

use std::io;
use std::path::PathBuf;

/// Reason why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The build has no programs for the kernel, or the kernel does not describe its structures.
    #[error(transparent)]
    Missing(#[from] widelane_bpf::Missing),
    /// Programs in the kernel are not for this user.
    #[error(
        "tracing takes root, or the capabilities CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE; in a \
         container also --pid=host and a seccomp profile that allows bpf and perf_event_open"
    )]
    NoRights,
    /// The kernel lets no program look into it: it is locked down.
    #[error(
        "the kernel is locked down ({mode} in /sys/kernel/security/lockdown), so that no program can \
         read memory; boot without lockdown=confidentiality"
    )]
    Lockdown {
        /// Mode in `/sys/kernel/security/lockdown`.
        mode: String,
    },
    /// Uprobes cannot tell functions apart.
    #[error("this kernel is {release}; tracing takes Linux 5.15")]
    OldKernel {
        /// Release of the kernel.
        release: String,
    },
    /// The kernel has no uprobes.
    #[error(
        "there is no /sys/bus/event_source/devices/uprobe: it takes a kernel with CONFIG_UPROBES \
         and CONFIG_UPROBE_EVENTS"
    )]
    NoUprobes,
    /// Something is not readable.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// File that could not be used.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The table of functions is wrong.
    #[error("{0}")]
    Table(String),
    /// The kernel does not take our programs.
    #[error("this kernel does not accept the programs of `trace`; please report what it says:\n{said}")]
    Verifier {
        /// The end of what it says.
        said: String,
    },
    /// The kernel refused for another reason.
    #[error("{what} failed: {cause}")]
    Kernel {
        /// Attempted step.
        what: &'static str,
        /// Error of the kernel.
        cause: String,
    },
}
