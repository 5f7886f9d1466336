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
    /// Its own name.
    pub name: String,
    /// What it tells.
    pub tells: Tells,
    /// What its arguments are, in their order.
    #[serde(default)]
    pub arguments: Vec<Argument>,
}

/// What a static probe tells.
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
    /// What tells of handshakes, and of the jobs inside.
    pub const HANDSHAKES: [Self; 5] = [
        Self::HandshakeBegun,
        Self::HandshakeStep,
        Self::HandshakeEnded,
        Self::JobSubmitted,
        Self::JobDone,
    ];
    /// What tells of passes.
    pub const PASSES: [Self; 2] = [Self::PassBegun, Self::PassEnded];

    /// Whether it only says more about handshakes, which others tell of.
    pub(crate) fn is_part(self) -> bool {
        matches!(self, Self::JobSubmitted | Self::JobDone)
    }
}

/// What an argument of a static probe is.
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
    /// How a handshake ended: 0 complete, 2 closed; something else is a failure.
    Ending,
    /// The alert that the peer sent, by IANA's registry; negative if there was none.
    Alert,
    /// A number that the job has in its process until it is done.
    Job,
    /// The operation, by the numbers of `widelane-probes`.
    Operation,
    /// How many jobs are in a pass.
    Jobs,
    /// How many jobs a pass takes at most.
    Lanes,
    /// 0: without lanes.
    Way,
    /// How long the jobs of a pass have waited, in nanoseconds, summed.
    Queued,
    /// Whether there is a result: 1.
    Succeeded,
    /// Something else.
    Other,
}

/// The arguments that a static probe can have; what follows them is not looked at.
pub(crate) const MOST_ARGUMENTS: usize = 8;
