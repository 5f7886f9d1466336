//! The collectors behind one interface, and why they may fail.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::account::{Thread, Use};
use crate::ebpf::Watch;
use crate::nudge::Nudge;
use crate::poll::Poll;

/// How use is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By programs in the kernel that look at every context switch.
    Ebpf,
    /// By reading `arch_status` of every thread.
    Poll,
}

impl Method {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ebpf => "ebpf",
            Self::Poll => "poll",
        }
    }
}

/// What happened in an interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// How long it was.
    pub elapsed: Duration,
    /// What threads used. Threads that used nothing are not there.
    pub uses: Vec<Use>,
    /// Where threads were found executing; `None` if nobody looked.
    pub samples: Option<Vec<Sample>>,
}

/// A thread was found executing at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The thread.
    pub thread: Thread,
    /// The address.
    pub address: u64,
    /// How often.
    pub count: u64,
}

/// Collects use, from when it is opened to when it is dropped.
pub struct Collector {
    inner: Inner,
    nudge: Option<Nudge>,
}

impl Collector {
    /// Begins to collect. With `nudge`, each interval ends with a short visit to each CPU, so that
    /// the time slices that are under way are counted.
    ///
    /// # Errors
    ///
    /// When this machine, or what this process may do on it, does not allow it.
    pub fn open(method: Method, nudge: bool) -> Result<Self, UsageError> {
        let inner = match method {
            Method::Ebpf => Inner::Ebpf(Box::new(Watch::open()?)),
            Method::Poll => Inner::Poll(Poll::open(Path::new("/proc"))?),
        };
        let nudge = nudge.then(Nudge::new);
        Ok(Self { inner, nudge })
    }

    /// How it collects.
    pub fn method(&self) -> Method {
        match self.inner {
            Inner::Ebpf(_) => Method::Ebpf,
            Inner::Poll(_) => Method::Poll,
        }
    }

    /// What happened since the last call, or since it was opened.
    ///
    /// # Errors
    ///
    /// When the kernel refuses what it allowed before.
    pub fn interval(&mut self) -> Result<Interval, UsageError> {
        if let Some(nudge) = &mut self.nudge {
            nudge.visit(MOST_FOR_VISITS);
        }
        match &mut self.inner {
            Inner::Ebpf(watch) => watch.interval(),
            Inner::Poll(poll) => poll.interval(),
        }
    }
}

enum Inner {
    Ebpf(Box<Watch>),
    Poll(Poll),
}

/// Why use cannot be collected.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// Something is not readable.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
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
        /// What was looked for.
        path: PathBuf,
    },
    /// The tracepoint is another than the one we know.
    #[error("{} has no field xfeatures of 64 bits: this kernel is unknown to us", path.display())]
    Tracepoint {
        /// Its format.
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
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        cause: String,
    },
    /// Two threads could not be made to switch.
    #[error("cannot measure what a switch takes: {cause}")]
    Switching {
        /// What the system said.
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

/// One round of visits takes longer on a large and busy machine; the next interval goes on with it.
const MOST_FOR_VISITS: Duration = Duration::from_millis(100);
