//! Place where wide work runs.

use std::fmt;

use crate::error::ScenarioError;

/// Place and form in which wide work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In place, as wide as it is.
    AsIs,
    /// In place, in 256-bit light code.
    Light256,
    /// In place, in scalar or 128-bit code.
    AvxOff,
    /// In marked regions: the thread migrates to a vector core for each, and back.
    MarkedMigration,
    /// In marked regions: a thread pool on the vector cores runs them.
    MarkedPool,
    /// The first wide instruction traps and the thread migrates; it goes back at its next system
    /// call.
    FaultSystemCall,
    /// The same; it goes back after a fixed time.
    FaultFixedTime,
    /// The same; it goes back at once when its wide work is done.
    FaultOracle,
    /// Widelane: requests are shipped to vector cores and share passes, if the policy of the engine finds that worth
    /// while on this processor, and the record cipher runs in the form that it chooses.
    Widelane,
}

impl Placement {
    /// Every placement, in the order of tables.
    pub const ALL: [Self; 9] = [
        Self::AsIs,
        Self::Light256,
        Self::AvxOff,
        Self::MarkedMigration,
        Self::MarkedPool,
        Self::FaultSystemCall,
        Self::FaultFixedTime,
        Self::FaultOracle,
        Self::Widelane,
    ];

    /// Name of the placement in files, flags and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AsIs => "as-is",
            Self::Light256 => "light-256",
            Self::AvxOff => "avx-off",
            Self::MarkedMigration => "marked-migration",
            Self::MarkedPool => "marked-pool",
            Self::FaultSystemCall => "fault-system-call",
            Self::FaultFixedTime => "fault-fixed-time",
            Self::FaultOracle => "fault-oracle",
            Self::Widelane => "widelane",
        }
    }

    /// The placement of this name.
    ///
    /// # Errors
    ///
    /// When there is none: the message lists those that there are.
    pub fn named(name: &str) -> Result<Self, ScenarioError> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            ScenarioError::Wrong(format!(
                "{name:?} is no placement; the placements are {known}"
            ))
        })
    }

    /// Returns whether some cores are for wide work only, whatever the processor is.
    pub(crate) fn needs_vector_cores(self) -> bool {
        self.is_marked() || self.traps()
    }

    pub(crate) fn is_marked(self) -> bool {
        matches!(self, Self::MarkedMigration | Self::MarkedPool)
    }

    pub(crate) fn traps(self) -> bool {
        matches!(
            self,
            Self::FaultSystemCall | Self::FaultFixedTime | Self::FaultOracle
        )
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
