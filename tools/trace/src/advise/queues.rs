//! How many connections wait for the servers, as the kernel's list of sockets tells.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use widelane_threads::{Proc, Socket};

use crate::event::{Bytes, Direction};

/// A port in a network namespace.
pub(super) type Port = (u64, u16);

/// Looks at the sockets of processes that are TLS servers.
#[derive(Debug)]
pub(super) struct Queues {
    proc: Proc,
    /// Processes that have read a beginning of TLS, with their network namespaces.
    networks: BTreeMap<u32, u64>,
    /// On which ports their clients came.
    pub(super) ports: BTreeMap<u32, BTreeSet<Port>>,
    /// Descriptors from which such beginnings were read, to be looked up.
    read: BTreeSet<(u32, u32)>,
    next: Option<Instant>,
}

impl Queues {
    pub(super) fn new(proc: Proc) -> Self {
        Self {
            proc,
            networks: BTreeMap::new(),
            ports: BTreeMap::new(),
            read: BTreeSet::new(),
            next: None,
        }
    }

    /// A process has read or written something.
    pub(super) fn take(&mut self, bytes: &Bytes) {
        let handshake = bytes.bytes.first() == Some(&HANDSHAKE);
        if bytes.direction != Direction::Read || !handshake || self.read.len() >= MOST_READ {
            return;
        }
        if !self.networks.contains_key(&bytes.pid) {
            let Some(network) = self.proc.network(bytes.pid) else {
                return;
            };
            self.networks.insert(bytes.pid, network);
        }
        self.read.insert((bytes.pid, bytes.descriptor));
    }

    pub(super) fn forget(&mut self, pid: u32) {
        self.networks.remove(&pid);
    }

    /// How many handshakes wait at each port, unless the last look was a moment ago.
    pub(super) fn look(&mut self) -> Option<BTreeMap<Port, u32>> {
        let start = Instant::now();
        if self.next.is_some_and(|next| start < next) {
            return None;
        }
        let mut waiting = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let networks: Vec<(u32, u64)> = self.networks.iter().map(|(&p, &n)| (p, n)).collect();
        for (pid, network) in networks {
            if !seen.contains(&network)
                && let Some(sockets) = self.proc.sockets(pid)
            {
                seen.insert(network);
                self.learn(network, &sockets);
                count(network, &sockets, &mut waiting);
            }
        }
        self.read.clear();
        let pause = LEAST_PAUSE.max(start.elapsed() * PAUSES);
        self.next = Some(Instant::now() + pause);
        let ports: BTreeSet<&Port> = self.ports.values().flatten().collect();
        waiting.retain(|port, _| ports.contains(port));
        Some(waiting)
    }

    /// Looks up at which ports the clients came whose beginnings were read.
    fn learn(&mut self, network: u64, sockets: &[Socket]) {
        let listening = |socket: &&Socket| socket.listens;
        let listening: BTreeSet<u16> = (sockets.iter().filter(listening))
            .map(|socket| socket.port)
            .collect();
        let inodes: HashMap<u64, u16> = sockets.iter().map(|one| (one.inode, one.port)).collect();
        for &(pid, descriptor) in &self.read {
            if self.networks.get(&pid) != Some(&network) {
                continue;
            }
            // It may be closed by now, or another connection: of the same server, mostly.
            let inode = self.proc.socket_behind(pid, descriptor);
            let port = inode.and_then(|inode| inodes.get(&inode));
            if let Some(&port) = port.filter(|port| listening.contains(port)) {
                self.ports.entry(pid).or_default().insert((network, port));
            }
        }
    }
}

/// Adds connections that have not been accepted, and those of which a ClientHello has not been read.
fn count(network: u64, sockets: &[Socket], waiting: &mut BTreeMap<Port, u32>) {
    for socket in sockets {
        let handshakes = match socket.listens {
            true => socket.waiting,
            false => u32::from(socket.inode != 0 && socket.waiting >= SHORTEST_HELLO),
        };
        *waiting.entry((network, socket.port)).or_default() += handshakes;
    }
}

/// The type of a TLS record that carries a handshake message.
const HANDSHAKE: u8 = 22;
/// So many bytes that have not been read are a ClientHello. What else a client sends in a handshake, its
/// key exchange and Finished, is shorter.
const SHORTEST_HELLO: u32 = 128;
/// Descriptors that are looked up at a time.
const MOST_READ: usize = 64;
const LEAST_PAUSE: Duration = Duration::from_millis(10);
/// Looks take a fiftieth of a CPU at most: where there are many sockets, the list is long.
const PAUSES: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_hellos_and_unaccepted_connections_wait() {
        let socket = |port, inode, listens, waiting| Socket {
            port,
            inode,
            listens,
            waiting,
        };
        let sockets = [
            socket(443, 1, true, 7),
            // Not accepted: the listening socket counts it.
            socket(443, 0, false, 250),
            socket(443, 2, false, 250),
            socket(443, 3, false, 80),
            socket(443, 4, false, 0),
            socket(80, 5, true, 3),
        ];
        let mut waiting = BTreeMap::new();
        count(9, &sockets, &mut waiting);
        assert_eq!(waiting, BTreeMap::from([((9, 443), 8), ((9, 80), 3)]));
    }
}
