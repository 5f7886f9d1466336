//! One event-loop thread: accepts on its own sockets and runs its own connections to their end.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::net::TcpStream;
use tokio::runtime::LocalOptions;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_local;

use crate::connection::{self, SCRATCH_BYTES};
use crate::server::{Admission, Shared, Slot};
use crate::signing::Signing;
use crate::stats::Stats;
use crate::tenants::Tenants;

/// What the server asks of a worker.
pub(crate) enum Command {
    /// Accept from this socket.
    Listen {
        socket: TcpListener,
        slot: Arc<Slot>,
    },
    /// Accept what waits at this slot's sockets, then close them.
    Close { slot: Arc<Slot> },
    /// Close all sockets in that way and end once the last connection has ended.
    Drain,
    /// End now.
    Abort,
}

/// The CPUs of a worker.
pub(crate) enum RunOn {
    /// Whichever the process may use.
    Any,
    /// This one.
    Cpu(usize),
    /// The scalar ones, and vector cores that are lent.
    Beside(Arc<Tenants>, Option<Spare>),
}

/// For a worker that there is only for the sake of lent vector cores: while those are at work, it
/// leaves new connections to others. More workers than CPUs would gather fewer jobs each and keep
/// changing places.
#[derive(Clone)]
pub(crate) struct Spare {
    /// How many vector cores are lent.
    pub(crate) lent: watch::Receiver<usize>,
    /// It has a CPU to itself while more than this are.
    pub(crate) rank: usize,
}

/// A running worker, seen from the server.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) thread: JoinHandle<()>,
}

/// What the connections of one worker share, on its thread only.
pub(crate) struct Local {
    pub(crate) signing: Signing,
    /// Bytes on their way from a backend to a client pass through here within one poll.
    pub(crate) scratch: RefCell<Box<[u8]>>,
    pub(crate) stats: Arc<Stats>,
    /// When this worker last said that a backend is missing: an outage must not flood the log.
    pub(crate) complained: Cell<Option<Instant>>,
    spare: Option<Spare>,
    live: Cell<usize>,
    emptied: Notify,
}

/// Starts worker number `index` and waits until it is ready.
pub(crate) fn start(index: usize, run_on: RunOn, shared: Arc<Shared>) -> io::Result<Worker> {
    let (commands, inbox) = mpsc::unbounded_channel();
    let (report, ready) = std::sync::mpsc::channel();
    let name = format!("widelane-{index}");
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        // Until the thread ends, or panics.
        let (_tenant, spare) = match run_on {
            RunOn::Any => (None, None),
            RunOn::Cpu(cpu) => {
                pin(cpu);
                (None, None)
            }
            RunOn::Beside(tenants, spare) => (Some(tenants.join()), spare),
        };
        // A local runtime: its tasks never leave this thread, and so need no lock to be woken.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => {
                let _ = report.send(Ok(()));
                runtime.block_on(run(index, spare, shared, inbox));
                // Dropping the runtime drops every connection that is left, and with it its
                // sockets.
            }
            Err(error) => drop(report.send(Err(error))),
        }
    })?;
    ready
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("the worker thread ended at once")))?;
    Ok(Worker { commands, thread })
}

async fn run(
    index: usize,
    spare: Option<Spare>,
    shared: Arc<Shared>,
    mut inbox: mpsc::UnboundedReceiver<Command>,
) {
    let local = Rc::new(Local {
        signing: Signing::new(&shared.signing),
        scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
        stats: shared.stats[index].clone(),
        complained: Cell::new(None),
        spare,
        live: Cell::new(0),
        emptied: Notify::new(),
    });
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
                    Alive::new(&local),
                    closing,
                ));
            }
            // Dropping the senders tells the accepting tasks.
            Command::Close { slot } => drop(listening.remove(&slot.number)),
            Command::Drain => break,
            Command::Abort => return,
        }
    }
    drop(listening);
    while local.live.get() > 0 {
        tokio::select! {
            () = local.emptied.notified() => {}
            command = inbox.recv() => if matches!(command, None | Some(Command::Abort)) { return },
        }
    }
}

/// Accepts until `closing` is dropped, and then whatever the kernel has queued already.
async fn accept(
    mut socket: TcpListener,
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    alive: Alive,
    mut closing: oneshot::Receiver<()>,
) {
    let mut spare = alive.0.spare.clone();
    loop {
        tokio::select! {
            biased;
            _ = &mut closing => break,
            () = until(&mut spare, true) => {}
        }
        let watched = match tokio::net::TcpListener::from_std(socket) {
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
                accepted = watched.accept() => accepted,
            };
            match accepted {
                Ok((client, peer)) => welcome(client, peer, &slot, &shared, &alive.0),
                Err(error) => {
                    alive.0.stats.accept_errors.fetch_add(1, Relaxed);
                    if let Some(pause) = pause_after(&error) {
                        tracing::warn!(%error, "cannot accept; is RLIMIT_NOFILE too low?");
                        tokio::time::sleep(pause).await;
                    }
                }
            }
        };
        // No longer watched: others' connections do not wake this thread.
        let Ok(left) = watched.into_std() else {
            return;
        };
        socket = left;
        if closed {
            break;
        }
    }
    loop {
        match socket.accept() {
            Ok((client, peer)) => {
                let client = client
                    .set_nonblocking(true)
                    .and_then(|()| TcpStream::from_std(client));
                if let Ok(client) = client {
                    welcome(client, peer, &slot, &shared, &alive.0);
                }
            }
            Err(error)
                if pause_after(&error).is_none() && error.kind() != io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Until a worker has a CPU, or has none any more; those that are not spare always have one.
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

/// Starts a connection's task, or closes the connection at once if a limit is reached.
fn welcome(
    client: TcpStream,
    peer: SocketAddr,
    slot: &Slot,
    shared: &Arc<Shared>,
    local: &Rc<Local>,
) {
    local.stats.accepted.fetch_add(1, Relaxed);
    let site = slot.site.load_full();
    match Admission::ask(shared, &site) {
        Ok(admission) => {
            let alive = Alive::new(local);
            // Before its task runs: it is company for those that do already.
            let announced = local.signing.handshake();
            spawn_local(async move {
                connection::serve(client, peer, site, &alive.0, announced, admission).await;
            });
        }
        Err(refusal) => local.stats.refused(refusal),
    }
}

/// How long to wait after a failed accept; `None` if only that one connection was lost.
fn pause_after(error: &io::Error) -> Option<Duration> {
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    let code = error.raw_os_error()?;
    exhausted
        .iter()
        .any(|errno| errno.raw_os_error() == code)
        .then_some(EXHAUSTED_PAUSE)
}

/// A task that keeps its worker from ending.
struct Alive(Rc<Local>);

impl Alive {
    fn new(local: &Rc<Local>) -> Self {
        local.live.set(local.live.get() + 1);
        Self(local.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.live.set(self.0.live.get() - 1);
        if self.0.live.get() == 0 {
            self.0.emptied.notify_one();
        }
    }
}

fn pin(cpu: usize) {
    let pinned = if cpu < CpuSet::MAX_CPU {
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)
    } else {
        Err(Errno::INVAL)
    };
    if let Err(error) = pinned {
        tracing::warn!(cpu, %error, "cannot pin a worker; is this CPU online and allowed?");
    }
}

const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);
