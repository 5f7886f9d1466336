//! Place where wide work runs.

use std::fmt;

use widelane_text::named;

named! {
    /// Place and form in which wide work runs.
    #[derive(Hash)]
    pub enum Placement: "placement" {
        /// Unchanged: in place, as wide as it is.
        AsIs = "as-is",
        /// 256-bit light code in place.
        Light256 = "light-256",
        /// Scalar or 128-bit code in place.
        AvxOff = "avx-off",
        /// Marked regions: the thread migrates to a vector core for each, and back.
        MarkedMigration = "marked-migration",
        /// Marked regions: a thread pool on the vector cores runs them.
        MarkedPool = "marked-pool",
        /// The first wide instruction traps and the thread migrates; it goes back at its next system
        /// call.
        FaultSystemCall = "fault-system-call",
        /// A trap in the same way; the thread goes back after a fixed time.
        FaultFixedTime = "fault-fixed-time",
        /// A trap in the same way; the thread goes back at once when its wide work is done.
        FaultOracle = "fault-oracle",
        /// Widelane: requests are shipped to vector cores and share passes, if the policy of the engine finds that worth
        /// while on this processor, and the record cipher runs in the form that it chooses.
        Widelane = "widelane",
    }
}

impl Placement {
    /// Returns whether some cores are for wide work only, whatever the processor is.
    pub(crate) fn needs_vector_cores(self) -> bool {
        self.is_marked() || self.traps()
    }

    pub(crate) fn is_marked(self) -> bool {
        matches!(self, Self::MarkedMigration | Self::MarkedPool)
    }

    pub(crate) fn traps(self) -> bool {
        matches!(self, Self::FaultSystemCall | Self::FaultFixedTime | Self::FaultOracle)
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
