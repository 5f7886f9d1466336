//! The static probes (USDT) that tell of handshakes and passes: rows of `functions.toml`.

use serde::Deserialize;

/// A static probe: a row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// The family of libraries it belongs to.
    pub library: String,
    /// The provider that its note names.
    pub provider: String,
    /// Name of the probe.
    pub name: String,
    /// Event that the probe reports.
    pub tells: Tells,
    /// Kinds of the probe's arguments, in their order.
    #[serde(default)]
    pub arguments: Vec<Argument>,
}

/// Event that a static probe reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tells {
    /// A handshake begins.
    HandshakeBegun,
    /// The thread goes on with a handshake.
    HandshakeStep,
    /// A handshake has ended.
    HandshakeEnded,
    /// A job was submitted, for the handshake with which the thread goes on.
    JobSubmitted,
    /// A job is done.
    JobDone,
    /// A pass begins.
    PassBegun,
    /// The last pass that began on this thread has ended.
    PassEnded,
}

impl Tells {
    /// Events of handshakes, and of the jobs inside.
    pub const HANDSHAKES: [Self; 5] = [
        Self::HandshakeBegun,
        Self::HandshakeStep,
        Self::HandshakeEnded,
        Self::JobSubmitted,
        Self::JobDone,
    ];
    /// Events of passes.
    pub const PASSES: [Self; 2] = [Self::PassBegun, Self::PassEnded];

    /// Returns whether the event only adds to handshakes, which other probes report.
    pub(crate) fn is_part(self) -> bool {
        matches!(self, Self::JobSubmitted | Self::JobDone)
    }
}

/// Kind of an argument of a static probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Argument {
    /// A number that the connection has in its process.
    Connection,
    /// 0 is the client's side, 1 the server's.
    Side,
    /// The version, by IANA's registry; 0 is not known.
    Version,
    /// The cipher suite, by IANA's registry; 0 is not known.
    Cipher,
    /// The group of the key exchange, by IANA's registry; 0 is not known.
    Group,
    /// 0 or 1; something else is not known.
    Resumed,
    /// Result of a handshake: 0 complete, 2 closed; something else is a failure.
    Ending,
    /// The alert that the peer sent, by IANA's registry; negative if there was none.
    Alert,
    /// A number that the job has in its process until it is done.
    Job,
    /// The operation, by the numbers of `widelane-probes`.
    Operation,
    /// Number of jobs in a pass.
    Jobs,
    /// Most jobs that a pass takes.
    Lanes,
    /// 0: without lanes.
    Way,
    /// Time that the jobs of a pass have waited, in nanoseconds, summed.
    Queued,
    /// 1 if there is a result.
    Succeeded,
    /// Something else.
    Other,
}

/// The arguments that a static probe can have; what follows them is not looked at.
pub(crate) const MOST_ARGUMENTS: usize = 8;
