//! Tasks of the programs in the kernel, and their counts.

use std::sync::Arc;

use crate::functions::{Function, Role};
use crate::marks::Tells;

/// Events that are wanted of traced processes.
#[derive(Clone, Debug, Default)]
pub struct Want {
    /// Roles of the functions that are traced.
    pub roles: Vec<Role>,
    /// True if only handshakes are of interest. Probes are left out that tell nothing more about them: functions
    /// whose row names another one [`instead`](Function::instead), and the return of [`Role::Free`].
    pub handshakes_only: bool,
    /// Static probes that are traced, by what they report: an [`Event::Reached`](crate::Event::Reached) each time.
    pub tells: Vec<Tells>,
    /// An [`Event::Call`](crate::Event::Call) for each call.
    pub calls: bool,
    /// Calls are counted in the kernel, by their time: see [`Count`].
    pub counts: bool,
    /// An [`Event::Bytes`](crate::Event::Bytes) for each beginning of a TLS flight.
    pub bytes: bool,
    /// Calls that read or write data of the application bring it along.
    pub data: bool,
}

/// Calls of one function by one process, with the same outcome and about the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// The process; 0 for all that servers have forked for connections.
    pub pid: u32,
    /// The function.
    pub function: Arc<Function>,
    /// True if the calls succeeded. A call that waits for the peer has not.
    pub succeeded: bool,
    /// Times of the calls: a bucket of the histogram of [`bucket_of`](crate::latency::bucket_of).
    pub bucket: u32,
    /// Number of calls.
    pub calls: u64,
    /// Nanoseconds in all of them.
    pub total: u64,
}

impl Want {
    /// Events that [`Handshakes`](crate::Handshakes) takes, from as few probes as report all of them.
    pub fn handshakes() -> Self {
        Self {
            roles: Role::of_handshakes(),
            tells: Tells::HANDSHAKES.to_vec(),
            handshakes_only: true,
            calls: true,
            bytes: true,
            ..Self::default()
        }
    }

    /// Returns whether the calls of a function bring data along.
    pub(crate) fn carries_data(&self, function: &Function) -> bool {
        self.data && matches!(function.role, Role::Read | Role::Write)
    }
}
