//! Ways in which handshakes of a server wait.

/// Way in which handshakes of a server wait for their passes, or a reason for which some are not suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// They are suspended, and go on when `epoll_wait` or a sibling tells of their sockets.
    Epoll,
    /// The same with `poll` or `ppoll`.
    Poll,
    /// The same with `select` or `pselect`.
    Select,
    /// They are paused as jobs of OpenSSL's own.
    Jobs,
    /// Their threads block, and share passes with others that do.
    Threads,
    /// Not suspended: the socket blocks.
    BlockingSocket,
    /// Not suspended: OpenSSL itself has no stream socket.
    NoSocket,
    /// Not suspended: no wait of the thread for the socket was seen.
    NoLoop,
    /// Not suspended: several threads wait in one epoll instance.
    SharedEpoll,
    /// Not suspended: the thread waits for one connection only.
    OneConnection,
    /// Not suspended: the process has a ring of io_uring.
    IoUring,
    /// Not suspended: another thread has used a connection in the middle of its handshake.
    Moved,
    /// Not suspended: a runtime in the process knows the bounds of its stacks.
    Runtime,
}

impl Way {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Epoll,
        Self::Poll,
        Self::Select,
        Self::Jobs,
        Self::Threads,
        Self::BlockingSocket,
        Self::NoSocket,
        Self::NoLoop,
        Self::SharedEpoll,
        Self::OneConnection,
        Self::IoUring,
        Self::Moved,
        Self::Runtime,
    ];

    /// The one with this number, by which libraries tell each other of it: `way as u32`.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Poll => "poll",
            Self::Select => "select",
            Self::Jobs => "jobs",
            Self::Threads => "threads",
            Self::BlockingSocket => "blocking-socket",
            Self::NoSocket => "no-socket",
            Self::NoLoop => "no-loop",
            Self::SharedEpoll => "shared-epoll",
            Self::OneConnection => "one-connection",
            Self::IoUring => "io-uring",
            Self::Moved => "moved",
            Self::Runtime => "runtime",
        }
    }

    /// Returns whether handshakes wait in this way; else it is a reason for which some are not suspended.
    pub fn waits(self) -> bool {
        matches!(
            self,
            Self::Epoll | Self::Poll | Self::Select | Self::Jobs | Self::Threads
        )
    }

    pub(crate) fn bit(self) -> u64 {
        1 << self as u8
    }

    /// The ways of a word with a bit for each; `None` if it has bits of none.
    pub(crate) fn set(bits: u64) -> Option<Vec<Self>> {
        let is_known = bits >> Self::ALL.len() == 0;
        let ways = Self::ALL.into_iter().filter(|way| bits & way.bit() != 0);
        is_known.then(|| ways.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_names_and_bits_are_each_ones_own() {
        for (number, way) in Way::ALL.into_iter().enumerate() {
            assert_eq!(Way::of(way as u32), Some(way));
            assert_eq!(way as usize, number);
            assert_eq!(Way::set(way.bit()), Some(vec![way]));
        }
        assert_eq!(Way::of(Way::ALL.len() as u32), None);
        let names: BTreeSet<_> = Way::ALL.into_iter().map(Way::name).collect();
        assert_eq!(names.len(), Way::ALL.len());
        assert_eq!(Way::set(0), Some(Vec::new()));
        assert_eq!(Way::set(1 << Way::ALL.len()), None);
    }
}
