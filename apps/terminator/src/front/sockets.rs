//! Listening sockets: one for each worker and address, or those that the service manager has
//! passed.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{Config, Fault};

/// Sockets passed by the service manager (`LISTEN_FDS`), by their address. They stay open here while no
/// listener uses them: the service manager holds them too, so that connections come to them all the same, and a
/// listener may use them again.
#[derive(Debug, Default)]
pub(crate) struct Inherited(HashMap<SocketAddr, Vec<TcpListener>>);

impl Inherited {
    /// Takes the sockets that `LISTEN_FDS` announces. Empty if there are none.
    pub(crate) fn from_environment() -> Result<Self, Fault> {
        let mut sockets: HashMap<_, Vec<_>> = HashMap::new();
        let mut passed = listenfd::ListenFd::from_env();
        for index in 0..passed.len() {
            let fault = |error: io::Error| {
                Fault::new(
                    "listener",
                    format!("socket {index} passed by the service manager is unusable: {error}"),
                    "pass only ListenStream= sockets with a TCP address",
                )
            };
            if let Some(socket) = passed.take_tcp_listener(index).map_err(fault)? {
                let address = socket.local_addr().map_err(fault)?;
                sockets.entry(address).or_default().push(socket);
            }
        }
        Ok(Self(sockets))
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = &SocketAddr> {
        self.0.keys()
    }

    pub(crate) fn has(&self, address: &SocketAddr) -> bool {
        self.0.contains_key(address)
    }
}

/// An address as configured, and its number among those that are written the same: port 0 may occur
/// several times.
pub(crate) type SlotName = (SocketAddr, usize);

/// The sockets of one address, by worker.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// The actual address.
    pub(crate) bound: SocketAddr,
    pub(crate) of_workers: Vec<Vec<TcpListener>>,
}

/// Numbers of workers that accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepting {
    /// The first of them, which always do.
    pub(crate) regular: usize,
    /// All of them, with those that accept at times.
    pub(crate) all: usize,
}

/// An address of a configuration.
pub(crate) struct Place {
    /// The key that names it.
    pub(crate) key: String,
    /// The index of its listener.
    pub(crate) listener: usize,
    pub(crate) name: SlotName,
}

/// All addresses of a configuration, in order.
pub(crate) fn places(config: &Config) -> Vec<Place> {
    let mut ordinals: HashMap<SocketAddr, usize> = HashMap::new();
    let mut places = Vec::new();
    for (listener, settings) in config.listeners.iter().enumerate() {
        for (index, address) in settings.listen.iter().enumerate() {
            let ordinal = ordinals.entry(*address).or_default();
            places.push(Place {
                key: format!("listener[{listener}].listen[{index}]"),
                listener,
                name: (*address, *ordinal),
            });
            *ordinal += 1;
        }
    }
    places
}

/// Opens the sockets of all addresses of a configuration but those that are open.
pub(crate) fn open(
    config: &Config,
    accepting: Accepting,
    inherited: &Inherited,
    is_open: impl Fn(&SlotName) -> bool,
) -> Result<HashMap<SlotName, Sockets>, Fault> {
    let missing = places(config).into_iter().filter(|one| !is_open(&one.name));
    let opened = missing.map(|Place { key, name, .. }| {
        let sockets = listen(name.0, accepting, inherited);
        let sockets = sockets.map_err(|error| listen_fault(&key, name.0, &error, inherited))?;
        Ok((name, sockets))
    });
    opened.collect()
}

/// Opens the sockets for one address, at least one for each worker, and returns them with their
/// actual address.
///
/// If the service manager has passed one socket for the address, all workers accept from it. If it
/// has passed more (several `ListenStream=` lines and `ReusePort=yes`), each socket has at least
/// one worker.
///
/// Only the first `regular` workers always accept. Each of the others shares the sockets of one of
/// them, so that no connection waits for a worker that does not accept.
fn listen(address: SocketAddr, Accepting { regular, all }: Accepting, inherited: &Inherited) -> io::Result<Sockets> {
    let (bound, mut of_workers) = match inherited.0.get(&address) {
        Some(passed) => (address, share_out(passed, regular)?),
        None => {
            let first = bind(address)?;
            let bound = first.local_addr()?;
            let mut sockets = vec![vec![first]];
            while sockets.len() < regular {
                sockets.push(vec![bind(bound)?]);
            }
            (bound, sockets)
        }
    };
    for index in regular..all {
        let shared = of_workers[index % regular].iter();
        let shared = shared.map(TcpListener::try_clone);
        of_workers.push(shared.collect::<io::Result<_>>()?);
    }
    Ok(Sockets { bound, of_workers })
}

fn share_out(passed: &[TcpListener], workers: usize) -> io::Result<Vec<Vec<TcpListener>>> {
    let mut shares: Vec<Vec<TcpListener>> = Vec::new();
    for worker in 0..workers {
        let mine: Vec<&TcpListener> = if passed.len() >= workers {
            passed.iter().skip(worker).step_by(workers).collect()
        } else {
            vec![&passed[worker % passed.len()]]
        };
        shares.push(
            mine.into_iter()
                .map(TcpListener::try_clone)
                .collect::<io::Result<_>>()?,
        );
    }
    for socket in passed {
        let socket = socket2::SockRef::from(socket);
        prepare(&socket)?;
        // A process that was killed under overload leaves a short queue behind.
        socket.listen(BACKLOG)?;
    }
    Ok(shares)
}

/// With `SO_REUSEPORT` each worker has its own queue, which the kernel fills by a hash of the
/// client's address. So workers need no lock, and a connection wakes only one of them.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        // So that `[::]` and `0.0.0.0` can have the same port.
        socket.set_only_v6(true)?;
    }
    prepare(&(&socket).into())?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepted sockets inherit these options, which saves system calls for each connection.
fn prepare(socket: &socket2::SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.set_nonblocking(true)
}

/// The fault of a listener's address at which no socket can be opened.
fn listen_fault(key: &str, address: SocketAddr, error: &io::Error, inherited: &Inherited) -> Fault {
    let mut passed = inherited.addresses();
    match passed.find(|passed| passed.port() == address.port()) {
        Some(passed) if error.kind() == io::ErrorKind::AddrInUse => Fault::new(
            key,
            format!("cannot listen on {address}: the service manager has passed a socket for {passed}"),
            format!("write {passed} here, or {address} as ListenStream= in the socket unit"),
        )
        .because_of(error),
        _ => bind_fault(key, address, error),
    }
}

/// The fault of an address at which no socket can be opened.
pub(crate) fn bind_fault(key: &str, address: SocketAddr, error: &io::Error) -> Fault {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "ports below 1024 need root, CAP_NET_BIND_SERVICE or a socket unit (this is {})",
            widelane_files::this_user()
        ),
        io::ErrorKind::AddrInUse => {
            format!("stop what listens there (`ss -ltnp 'sport = :{}'`)", address.port())
        }
        io::ErrorKind::AddrNotAvailable => "use an address of this machine".into(),
        _ => "correct the address".into(),
    };
    Fault::new(key, format!("cannot listen on {address}: {error}"), remedy).because_of(error)
}

/// The kernel limits it to `net.core.somaxconn`.
pub(crate) const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_has_a_socket_on_the_same_port() {
        let any = "127.0.0.1:0".parse().unwrap();
        let accepting = Accepting { regular: 3, all: 3 };
        let Sockets { bound, of_workers } = listen(any, accepting, &Inherited::default()).unwrap();
        assert_eq!(of_workers.len(), 3);
        assert!(
            of_workers
                .iter()
                .flatten()
                .all(|one| one.local_addr().unwrap() == bound)
        );
    }

    #[test]
    fn every_passed_socket_has_a_worker() {
        for (passed, workers) in [(1, 3), (3, 3), (5, 2), (2, 3)] {
            let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
            let sockets: Vec<_> = (0..passed).map(|_| bind(any).unwrap()).collect();
            let mut expected: Vec<_> = sockets.iter().map(|s| s.local_addr().unwrap()).collect();
            let shares = share_out(&sockets, workers).unwrap();
            assert_eq!(shares.len(), workers);
            assert!(shares.iter().all(|share| !share.is_empty()));
            let mut taken: Vec<_> = shares.iter().flatten().map(|s| s.local_addr().unwrap()).collect();
            taken.sort();
            taken.dedup();
            expected.sort();
            assert_eq!(taken, expected, "{passed} sockets, {workers} workers");
        }
    }
}
