//! How an experiment is run.

use std::path::PathBuf;

use widelane_handshakes::Options;

/// How an experiment is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Programs and CPUs.
    pub options: Options,
    /// Rounds of turns.
    pub rounds: usize,
    /// Seconds of a turn.
    pub seconds: f64,
    /// Where records go; `None`: nowhere.
    pub records: Option<PathBuf>,
    /// The command line, for the record.
    pub command: String,
}
