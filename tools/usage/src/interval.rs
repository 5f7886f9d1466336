//! Use of registers by threads in an interval.

use std::time::Duration;

use widelane_text::named;
use widelane_threads::Thread;

/// Use in an interval.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Length of the interval.
    pub elapsed: Duration,
    /// Use by each thread. Threads that used nothing are left out.
    pub uses: Vec<Use>,
    /// Addresses at which threads were found executing; `None` if that was not looked at.
    pub samples: Option<Vec<Sample>>,
}

/// A thread was found executing at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The thread.
    pub thread: Thread,
    /// The address.
    pub address: u64,
    /// Number of samples at the address.
    pub count: u64,
}

named! {
    /// Registers that were in use at the end of a time slice. The whole slice is counted for the first of these that is
    /// true.
    pub enum State {
        /// The upper halves of registers 0 to 15: they held 512-bit values.
        Upper = "upper",
        /// Registers 16 to 31, with values of any width. Nothing but code that clears them on purpose
        /// ends this, so that one call of a string function may last for the life of a thread.
        High = "high",
        /// Mask registers alone.
        Masks = "masks",
        /// Some of the first two groups: more is not known.
        Undivided = "undivided",
    }
}

/// Use of a thread in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Thread.
    pub thread: Thread,
    /// Name of the thread.
    pub name: String,
    /// The name of its process.
    pub process: String,
    /// Cgroup of the thread, if it could be read.
    pub cgroup: Option<String>,
    /// Time of the thread on a CPU, whatever was in use; `None` if it ended before that was read.
    pub cpu: Option<Duration>,
    /// Time in slices at whose end a [`State`] was found, in the order of [`State::ALL`].
    pub live: [Duration; 4],
    /// Code that the thread was found executing; `None` if that was not looked at.
    pub sampled: Option<Sampled>,
}

/// Number of samples of a thread, by the kind of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// A function with 512-bit code that is none of the next kind.
    pub wide: u64,
    /// A function of the C library with 512-bit code, which copies memory or looks at strings.
    pub copies: u64,
    /// Anything else.
    pub other: u64,
}

impl Sampled {
    /// Sum of all samples.
    pub fn all(self) -> u64 {
        self.wide + self.copies + self.other
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.wide += other.wide;
        self.copies += other.copies;
        self.other += other.other;
    }
}
