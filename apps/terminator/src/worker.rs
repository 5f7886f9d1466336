//! A worker: one thread with an event loop, which accepts on its own sockets and serves the
//! connections to their end.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::LocalOptions;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::Instant;
use widelane_access_log::LogEntry;

use crate::front::admission::Admission;
use crate::front::client::Client;
use crate::front::connection;
use crate::front::gate::Gate;
use crate::front::idle_queue::Kind;
use crate::front::site::Slot;
use crate::front::sockets::BACKLOG;
use crate::lending::Borrowers;
use crate::shared::Shared;
use crate::worker_state::{Alive, WorkerState};

/// Order of the server to a worker.
pub(crate) enum Command {
    /// Accept from this socket.
    Listen { socket: TcpListener, slot: Arc<Slot> },
    /// Accept the connections that wait in this slot's sockets, then close the sockets.
    Close { slot: Arc<Slot> },
    /// Close all sockets in this way, and end after the last connection.
    Drain,
    /// End now.
    Abort,
}

/// The CPUs of a worker.
pub(crate) enum RunOn {
    /// All CPUs that the process may use.
    Any,
    /// This one.
    Cpu(usize),
    /// The CPUs that are no vector cores, and vector cores that are lent.
    Beside(Arc<Borrowers>, Option<Spare>),
}

/// Property of a worker that exists to use lent vector cores. While they are not lent, it leaves new
/// connections to the other workers: with more workers than CPUs, each would gather fewer jobs, and
/// the threads would preempt each other.
#[derive(Clone)]
pub(crate) struct Spare {
    /// Number of vector cores that are lent.
    pub(crate) lent: watch::Receiver<usize>,
    /// The worker has a CPU to itself while more than `rank` are lent.
    pub(crate) rank: usize,
}

/// A running worker, seen from the server.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) thread: JoinHandle<()>,
}

/// Starts worker number `index` and waits until it is ready.
pub(crate) fn start(index: usize, run_on: RunOn, shared: Arc<Shared>) -> io::Result<Worker> {
    let (commands, inbox) = mpsc::unbounded_channel();
    let (report, ready) = std::sync::mpsc::channel();
    let name = format!("widelane-{index}");
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        // Kept until the thread ends or panics.
        let (_borrower, spare) = match run_on {
            RunOn::Any => (None, None),
            RunOn::Cpu(cpu) => {
                if let Err(error) = widelane_affinity::pin(cpu) {
                    tracing::warn!(cpu, %error, "cannot pin a worker; is this CPU online and allowed?");
                }
                (None, None)
            }
            RunOn::Beside(borrowers, spare) => (Some(borrowers.join()), spare),
        };
        // The tasks of a local runtime never leave this thread, so waking them needs no lock.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => {
                let _ = report.send(Ok(()));
                runtime.block_on(run(index, spare, shared, inbox));
                // Dropping the runtime drops all connections that are left, and their sockets.
            }
            Err(error) => drop(report.send(Err(error))),
        }
    })?;
    ready
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the worker thread ended at once")))?;
    Ok(Worker { commands, thread })
}

async fn run(index: usize, spare: Option<Spare>, shared: Arc<Shared>, mut inbox: mpsc::UnboundedReceiver<Command>) {
    let worker = Rc::new(WorkerState::new(&shared, index));
    spawn_local(give_back_memory(worker.clone(), shared.clone()));
    spawn_local(worker.gate.clone().tend(index));
    let mut listening: HashMap<usize, Vec<oneshot::Sender<()>>> = HashMap::new();
    while let Some(command) = inbox.recv().await {
        match command {
            Command::Listen { socket, slot } => {
                let (closer, closing) = oneshot::channel();
                listening.entry(slot.number).or_default().push(closer);
                spawn_local(accept(
                    socket,
                    slot,
                    shared.clone(),
                    Alive::new(&worker),
                    spare.clone(),
                    closing,
                ));
            }
            // The accepting tasks end when their senders are dropped.
            Command::Close { slot } => drop(listening.remove(&slot.number)),
            Command::Drain => break,
            Command::Abort => return,
        }
    }
    drop(listening);
    while worker.live.get() > 0 {
        tokio::select! {
            () = worker.emptied.notified() => {}
            command = inbox.recv() => if matches!(command, None | Some(Command::Abort)) { return },
        }
    }
}

/// Accepts until `closing` is dropped, and then the connections that the kernel has queued by then.
async fn accept(
    mut socket: TcpListener,
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    alive: Alive,
    mut spare: Option<Spare>,
    mut closing: oneshot::Receiver<()>,
) {
    let gate = alive.0.gate.clone();
    let number = gate.socket();
    let (mut queued, mut turn) = (BACKLOG, 0);
    loop {
        tokio::select! {
            biased;
            _ = &mut closing => break,
            () = until(&mut spare, true) => {}
        }
        let watched = match watch(socket) {
            Ok(watched) => watched,
            Err(error) => {
                tracing::error!(%error, "cannot watch a listening socket");
                return;
            }
        };
        let closed = loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut closing => break true,
                () = until(&mut spare, false) => break false,
                backlog = gate.other_backlog(queued) => {
                    queued = backlog;
                    queue(watched.get_ref(), queued);
                    continue;
                }
                accepted = next(&watched, number, &gate) => accepted,
            };
            turn += 1;
            if turn % ACCEPTS_A_TURN == 0 {
                tokio::task::yield_now().await;
                gate.looked();
            }
            match accepted {
                Ok((client, peer)) => {
                    gate.accepted(number);
                    welcome(client, peer, &slot, &shared, &alive.0);
                }
                Err(error) => {
                    alive.0.stats.accept_errors.fetch_add(1, Relaxed);
                    if let Some(pause) = pause_after(&error) {
                        tracing::warn!(%error, "cannot accept; is RLIMIT_NOFILE too low?");
                        tokio::time::sleep(pause).await;
                    }
                }
            }
        };
        // No longer watched: connections for other workers do not wake this thread.
        socket = watched.into_inner();
        gate.nothing_queued(number);
        // Another worker, process or the service manager may hold the socket as well.
        if queued != BACKLOG {
            queued = BACKLOG;
            queue(&socket, queued);
        }
        if closed {
            break;
        }
    }
    accept_queued(&socket, MOST_QUEUED, |client, peer| {
        welcome(client, peer, &slot, &shared, &alive.0);
    })
    .await;
}

/// Sets how many connections the kernel queues for a listening socket.
fn queue(socket: &TcpListener, most: i32) {
    if let Err(error) = rustix::net::listen(socket, most) {
        tracing::warn!(%error, "cannot change the length of a listening socket's queue");
    }
}

/// The next connection, when there is one and the worker has room for it.
async fn next(socket: &AsyncFd<TcpListener>, number: usize, gate: &Gate) -> io::Result<(Client, SocketAddr)> {
    gate.room().await;
    let mut accepted = pin!(socket.async_io(Interest::READABLE, Client::accept));
    poll_fn(|cx| {
        let polled = accepted.as_mut().poll(cx);
        if polled.is_pending() {
            gate.nothing_queued(number);
        }
        polled
    })
    .await
}

/// Has the event loop watch a listening socket. tokio's own listener would have it watch each
/// accepted connection as well.
fn watch(socket: TcpListener) -> io::Result<AsyncFd<TcpListener>> {
    // The successor is an unsafe function, since some types change their descriptor. A listener's
    // is the same for its whole life.
    #[expect(deprecated)]
    AsyncFd::with_interest(socket, Interest::READABLE)
}

/// Accepts what the kernel has queued, but at most `most`: new connections can come as fast as
/// these are accepted. Lets the worker's other tasks run in between.
async fn accept_queued(socket: &TcpListener, most: usize, mut welcome: impl FnMut(Client, SocketAddr)) {
    for turn in 1..=most {
        match Client::accept(socket) {
            Ok((client, peer)) => welcome(client, peer),
            Err(error) if pause_after(&error).is_none() && error.kind() != io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        if turn % ACCEPTS_A_TURN == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Waits until a spare worker has a CPU (`has_cpu`) or has none. Other workers always have one.
async fn until(spare: &mut Option<Spare>, has_cpu: bool) {
    let so = match spare {
        None => has_cpu,
        Some(Spare { lent, rank }) => {
            let so = lent.wait_for(|&lent| (lent > *rank) == has_cpu).await;
            so.is_ok()
        }
    };
    if !so {
        std::future::pending().await
    }
}

/// Gives memory back after many connections have gone.
async fn give_back_memory(worker: Rc<WorkerState>, shared: Arc<Shared>) {
    loop {
        worker.shrunk.notified().await;
        // The others of these many are likely to go as well.
        tokio::time::sleep(MEMORY_PAUSE).await;
        if let Some(give_back) = shared.give_back_memory.get() {
            give_back();
        }
    }
}

/// Starts a connection's task. If a limit is reached, closes this connection or another one that can make
/// room.
fn welcome(client: Client, peer: SocketAddr, slot: &Slot, shared: &Arc<Shared>, worker: &Rc<WorkerState>) {
    worker.stats.accepted.fetch_add(1, Relaxed);
    let site = slot.site.load_full();
    let source = Some(peer.ip()).filter(|peer| !site.has_proxy(*peer));
    let mut log = LogEntry::new(site.access_log.as_ref(), peer, slot.address);
    match Admission::ask(shared, &site, source, || worker.idle.evict()) {
        Ok(admission) => {
            let alive = Alive::new(worker);
            let pending = worker.idle.enter(Kind::Silent, admission);
            worker.probe.begin(Instant::now(), &worker.stats);
            // Before its task runs, so that jobs of other handshakes wait for its jobs.
            let announced = worker.handshaker.handshake();
            worker.gate.expects();
            spawn_local(async move {
                alive.0.gate.runs();
                connection::serve(client, peer, site, &alive.0, announced, pending, log).await;
            });
        }
        Err(refusal) => {
            worker.gate.turned_away();
            worker.stats.refused(refusal);
            log.refused(refusal.name());
        }
    }
}

/// Pause after a failed accept. `None`: only one connection was lost.
fn pause_after(error: &io::Error) -> Option<Duration> {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    let errno = Errno::from_io_error(error)?;
    exhausted.contains(&errno).then_some(EXHAUSTED_PAUSE)
}

/// Also the shortest time between two times that memory is given back.
const MEMORY_PAUSE: Duration = Duration::from_secs(1);
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
/// Most connections in a queue: one more than `listen(2)` gets.
const MOST_QUEUED: usize = BACKLOG as usize + 1;
/// About two milliseconds. What the kernel queues has no age that the worker knows, so it accepts more than it can
/// begin.
const ACCEPTS_A_TURN: usize = 128;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Queues `connections`, accepts at most `most`, and says how many it accepted and how many
    /// turns another task had meanwhile.
    fn accept_beside_a_task(connections: usize, most: usize) -> (usize, usize) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let clients: Vec<_> = (0..connections)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build_local(LocalOptions::default())
            .unwrap();
        let counts = runtime.block_on(async {
            let turns = Rc::new(Cell::new(0));
            let counter = turns.clone();
            spawn_local(async move {
                loop {
                    counter.set(counter.get() + 1);
                    tokio::task::yield_now().await;
                }
            });
            let mut accepted = 0;
            accept_queued(&socket, most, |_, _| accepted += 1).await;
            (accepted, turns.get())
        });
        drop(clients);
        counts
    }

    #[test]
    fn accepting_at_the_end_is_bounded() {
        let (accepted, _) = accept_beside_a_task(100, 70);
        assert_eq!(accepted, 70, "others that wait are left to the kernel");
        let (accepted, _) = accept_beside_a_task(100, MOST_QUEUED);
        assert_eq!(accepted, 100, "all that wait");
    }

    #[test]
    fn accepting_at_the_end_lets_other_tasks_run() {
        let (accepted, turns) = accept_beside_a_task(ACCEPTS_A_TURN, MOST_QUEUED);
        assert_eq!(accepted, ACCEPTS_A_TURN);
        assert!(turns > 0, "another task has had no turn");
    }
}
