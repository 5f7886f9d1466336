//! Reasons why there is no brake.

use std::io;

/// Reason why there is no brake.
#[derive(Debug, thiserror::Error)]
pub enum BrakeError {
    /// No CPU was named.
    #[error("no CPU to emulate is named")]
    NoCpus,
    /// A CPU that is not there, or that this process may not use.
    #[error("CPU {cpu} cannot be used: it is not among {usable}, which this process may use")]
    Cpu {
        /// The CPU.
        cpu: usize,
        /// CPUs that can be used.
        usable: String,
    },
    /// Real-time threads are not for this user.
    #[error(
        "real-time threads are not allowed ({cause}): it takes root, CAP_SYS_NICE or a limit of {} \
         (`ulimit -r {}`); in a cgroup of version 1 also a share of real-time (cpu.rt_runtime_us)",
        crate::thread::PRIORITY,
        crate::thread::PRIORITY
    )]
    NoRights {
        /// Error of the system.
        cause: io::Error,
    },
    /// The kernel gives real-time threads less than is to be taken.
    #[error(
        "{model} takes {wanted:.0} % of a CPU's time away at its lowest clock, and the kernel lets \
         real-time threads have {allowed:.0} %; raise kernel.sched_rt_runtime_us (`sysctl -w \
         kernel.sched_rt_runtime_us=950000`)"
    )]
    Limit {
        /// The model.
        model: &'static str,
        /// Share of the CPU that the model takes, in percent.
        wanted: f64,
        /// Share that the kernel allows, in percent.
        allowed: f64,
    },
    /// Anything else that the system refused.
    #[error("cannot get {what}: {cause}")]
    System {
        /// Resource that was wanted.
        what: &'static str,
        /// Error of the system.
        cause: io::Error,
    },
}

impl BrakeError {
    /// Makes an error of the system one of these.
    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |cause| Self::System { what, cause }
    }
}
