//! Configuration of an engine.

use widelane_batching::{Clock, Placement};
use widelane_crypto::Preference;

use crate::lending::CoreLending;

/// Function that tells an engine, before each job, whether an operator has switched lanes off.
///
/// Then the job runs on the thread that brings it, at once and without lanes, unless only a pass can do it: as on
/// a CPU without lanes. Jobs that were accepted before run as they were to.
#[derive(Clone, Copy, Debug)]
pub struct Switch(pub fn() -> bool);

impl Default for Switch {
    fn default() -> Self {
        Self(|| false)
    }
}

impl PartialEq for Switch {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

/// Configuration of an engine. With [`Config::default`], passes run on the threads that submit.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Place where passes run; `widelane_batching::placement` decides it by the clock and the CPUs of a
    /// machine. [`Placement::VectorCores`] is a thread for each CPU, pinned to it.
    pub placement: Placement,
    /// Effect of wide code on the clock of this machine. Decides the width of each pass, unless
    /// `backend` names one. The default is a machine where wide code costs nothing; then the width
    /// is not decided while passes run.
    pub clock: Clock,
    /// Jobs of one operation that may wait in one place: in each worker's gatherer, in the queue to
    /// the vector cores, in the waiting list of the blocking form. More are refused with
    /// [`SubmitError::Overloaded`](crate::SubmitError::Overloaded).
    pub queue_limit: usize,
    /// Lends the CPUs of idle vector cores to other threads. `None`: they stay reserved.
    pub lending: Option<CoreLending>,
    /// The code that does the arithmetic. [`Preference::Auto`] respects the environment variable
    /// `WIDELANE_CPU_DISABLE`.
    pub backend: Preference,
    /// Switch by which an operator turns lanes off. The default has no operator.
    pub switch: Switch,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            clock: Clock::default(),
            queue_limit: DEFAULT_QUEUE_LIMIT,
            lending: None,
            backend: Preference::default(),
            switch: Switch::default(),
        }
    }
}

/// About a quarter of a second of RSA-2048 on one core: clients that wait longer have probably
/// given up.
const DEFAULT_QUEUE_LIMIT: usize = 4096;
