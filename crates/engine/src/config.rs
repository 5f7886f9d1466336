//! How an engine is to run.

#[cfg(not(loom))]
use widelane_crypto::Preference;

use widelane_batching::Clock;

use crate::GiveBack;

/// How an engine is to run. [`Config::default`] suits a process that has told us nothing: passes
/// run on the threads that submit.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where passes run.
    pub placement: Placement,
    /// What wide code does to the clock of this machine. Decides where passes run with
    /// [`Placement::Auto`] and, where the backend is left to us, how wide the registers of each
    /// pass are. The default is that wide code costs nothing; then nothing is decided while passes
    /// run.
    pub clock: Clock,
    /// Jobs of one operation that may wait at one place: in each worker's gatherer, in the queue to
    /// the vector cores, among the threads of the blocking form. More are refused with
    /// [`SubmitError::Overloaded`](crate::SubmitError::Overloaded).
    pub queue_limit: usize,
    /// Who gets the vector cores while they have nothing to do. `None`: they sleep then, and are
    /// nobody else's.
    pub give_back: Option<GiveBack>,
    /// The code that does the arithmetic. [`Preference::Auto`] respects the environment variable
    /// `WIDELANE_CPU_DISABLE`.
    #[cfg(not(loom))]
    pub backend: Preference,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            placement: Placement::default(),
            clock: Clock::default(),
            queue_limit: DEFAULT_QUEUE_LIMIT,
            give_back: None,
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
    /// Where [`Config::clock`] makes it cheaper: on vector cores if wide code slows down what runs
    /// beside it and a CPU remains for that, else inline. Decided once, when the engine starts.
    Auto {
        /// CPUs that may become vector cores.
        cpus: Vec<usize>,
    },
    /// On threads of their own, each pinned to one of the named CPUs.
    VectorCores {
        /// The CPUs, as the kernel numbers them.
        cpus: Vec<usize>,
    },
}

/// About a quarter of a second of RSA-2048 on one core: whoever waits longer has likely given up.
const DEFAULT_QUEUE_LIMIT: usize = 4096;
