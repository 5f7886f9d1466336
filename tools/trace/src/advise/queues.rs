//! Counts the connections that wait for the servers, from the kernel's list of sockets.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use widelane_threads::{Proc, Socket};

use crate::event::{Bytes, Direction};
use crate::tls::HANDSHAKE;

/// A port in a network namespace.
pub(super) type Port = (u64, u16);

/// Processes that are TLS servers, and their ports.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Processes that have read a beginning of TLS, and the descriptors from which they did: to be looked
    /// up.
    read: Read,
    /// Ports at which clients of the processes came.
    pub(super) ports: BTreeMap<u32, BTreeSet<Port>>,
}

/// Descriptors from which processes have read a beginning of TLS.
pub(super) type Read = BTreeMap<u32, BTreeSet<u32>>;

/// Sockets behind descriptors, and what waits in others.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Number of handshakes that wait at each port.
    pub(super) waiting: BTreeMap<Port, u32>,
    /// Ports at which clients of processes came.
    ports: BTreeMap<u32, BTreeSet<Port>>,
}

impl Queues {
    /// A process has read or written something.
    pub(super) fn take(&mut self, bytes: &Bytes) {
        let handshake = bytes.bytes.first() == Some(&HANDSHAKE);
        if bytes.direction != Direction::Read || !handshake {
            return;
        }
        if self.read.contains_key(&bytes.pid) || self.read.len() < MOST_PROCESSES {
            let read = self.read.entry(bytes.pid).or_default();
            if read.len() < MOST_READ {
                read.insert(bytes.descriptor);
            }
        }
    }

    /// A process has ended.
    pub(super) fn forget(&mut self, pid: u32) {
        self.read.remove(&pid);
    }

    /// Takes the descriptors that are to be looked up.
    pub(super) fn take_read(&mut self) -> Read {
        let read = self.read.iter_mut();
        let read = read.map(|(&pid, read)| (pid, std::mem::take(read)));
        read.collect()
    }

    pub(super) fn learn(&mut self, answer: Answer) {
        for (pid, ports) in answer.ports {
            self.ports.entry(pid).or_default().extend(ports);
        }
    }
}

impl Answer {
    /// Looks descriptors up.
    pub(super) fn to(descriptors: &Read, proc: &Proc) -> Self {
        let mut answer = Self::default();
        let mut known: BTreeMap<u64, Vec<Socket>> = BTreeMap::new();
        for (&pid, read) in descriptors {
            let Some(network) = proc.network(pid) else {
                continue;
            };
            if let Entry::Vacant(entry) = known.entry(network) {
                let sockets = entry.insert(proc.sockets(pid).unwrap_or_default());
                count(network, sockets, &mut answer.waiting);
            }
            let sockets = known.get(&network).map_or(&[][..], Vec::as_slice);
            let ports = ports(proc, (pid, read), sockets);
            let ports = ports.into_iter().map(|port| (network, port));
            answer.ports.entry(pid).or_default().extend(ports);
        }
        answer
    }
}

/// Listening ports at which the clients came from whose descriptors a process has read.
fn ports(proc: &Proc, (pid, read): (u32, &BTreeSet<u32>), sockets: &[Socket]) -> BTreeSet<u16> {
    let listening: BTreeSet<u16> = (sockets.iter().filter(|socket| socket.listens))
        .map(|socket| socket.port)
        .collect();
    let inodes: HashMap<u64, u16> = sockets.iter().map(|one| (one.inode, one.port)).collect();
    let port = |&descriptor: &u32| {
        // The descriptor may be closed by now, or another connection: of the same server, mostly.
        let inode = proc.socket_behind(pid, descriptor)?;
        inodes.get(&inode).copied()
    };
    let ports = read.iter().filter_map(port);
    ports.filter(|port| listening.contains(port)).collect()
}

/// Adds connections that have not been accepted, and those of which a ClientHello has not been read.
fn count(network: u64, sockets: &[Socket], waiting: &mut BTreeMap<Port, u32>) {
    for socket in sockets {
        let handshakes = match socket.listens {
            true => socket.waiting,
            false => u32::from(socket.inode != 0 && socket.waiting >= SHORTEST_HELLO),
        };
        if handshakes > 0 {
            *waiting.entry((network, socket.port)).or_default() += handshakes;
        }
    }
}

/// Fewest unread bytes that count as a ClientHello. The rest of a client's handshake, its key exchange and Finished, is
/// shorter.
const SHORTEST_HELLO: u32 = 128;
/// Descriptors that are looked up at a time, of one process.
const MOST_READ: usize = 16;
const MOST_PROCESSES: usize = 1024;

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
