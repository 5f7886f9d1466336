//! Reasons why use cannot be collected.

use std::io;
use std::path::PathBuf;

/// Reason why use cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// Something is not readable.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// File that could not be read.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The build has no programs for the kernel, or the kernel does not describe its structures.
    #[error(transparent)]
    Missing(#[from] widelane_bpf::Missing),
    /// Programs in the kernel are not for this user.
    #[error(
        "BPF programs and tracepoints take root, or the capabilities CAP_BPF and CAP_PERFMON with \
         read access to /sys/kernel/tracing"
    )]
    NoRights,
    /// The kernel, or what is mounted, has no such tracepoint.
    #[error(
        "there is no {}: it takes Linux 5.2 on x86-64 with CONFIG_TRACING, and tracefs (`mount -t \
         tracefs nodev /sys/kernel/tracing`)",
        path.display()
    )]
    NoTracepoint {
        /// Path that was looked for.
        path: PathBuf,
    },
    /// The kernel would count processes by other numbers than ours.
    #[error(
        "this process is in a PID namespace, and BPF programs count by the numbers outside of it: \
         run it on the host (for containers, `--pid=host`)"
    )]
    PidNamespace,
    /// The kernel refused for another reason.
    #[error("{what} failed (BPF programs take Linux 5.8): {cause}")]
    Kernel {
        /// Attempted step.
        what: &'static str,
        /// Error of the kernel.
        cause: String,
    },
    /// Two threads could not be made to switch.
    #[error("cannot measure what a switch takes: {cause}")]
    Switching {
        /// Error of the system.
        cause: io::Error,
    },
    /// The kernel has no such file.
    #[error(
        "this kernel has no /proc/PID/arch_status: it takes Linux 5.3 on x86-64 with \
         CONFIG_PROC_PID_ARCH_STATUS; `widelane scan PID` shows the wide code a process has mapped"
    )]
    NoArchStatus,
    /// No program can use AVX-512.
    #[error(
        "nothing can use AVX-512 here: the CPU has none, or the kernel or hypervisor hides it; \
         `widelane scan PID` shows the wide code a process would run elsewhere"
    )]
    NoAvx512,
}
