//! How an engine is to run.

#[cfg(not(loom))]
use widelane_crypto::Preference;

/// How an engine is to run. [`Config::default`] suits a process that has told us nothing: passes
/// run on the threads that submit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// Where passes run.
    pub placement: Placement,
    /// Jobs of one operation that may wait at one place: in each worker's gatherer, in the queue to
    /// the vector cores, among the threads of the blocking form. More are refused with
    /// [`SubmitError::Overloaded`](crate::SubmitError::Overloaded).
    pub queue_limit: usize,
    /// The code that does the arithmetic. [`Preference::Auto`] respects the environment variable
    /// `WIDELANE_CPU_DISABLE`.
    #[cfg(not(loom))]
    pub backend: Preference,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            queue_limit: DEFAULT_QUEUE_LIMIT,
            #[cfg(not(loom))]
            backend: Preference::default(),
        }
    }
}

/// Where passes run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Placement {
    /// On the thread that submits, when it has nothing else to do or a pass is full.
    #[default]
    Inline,
    /// On threads of their own, each pinned to one of the named CPUs.
    VectorCores {
        /// The CPUs, as the kernel numbers them.
        cpus: Vec<usize>,
    },
}

/// About a quarter of a second of RSA-2048 on one core: whoever waits longer has likely given up.
const DEFAULT_QUEUE_LIMIT: usize = 4096;
