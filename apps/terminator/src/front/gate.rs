//! The place where handshakes wait for their worker, and what happens when more arrive than it can finish.
//!
//! A handshake whose ClientHello is whole passes the gate before it costs anything. Only so many begin between two
//! looks at the sockets that the looks are [`Overload::CALM_LOOK`] apart, or [`Overload::LOOK`] under overload, so
//! established connections have their turn however many handshakes wait. A [`Permit`] is given back as soon as the
//! answer to the ClientHello is computed, so a client that is slow to read or to answer holds no place.
//!
//! `widelane_batching::Overload` tells when the queue stands and grows. From then on
//! - the newest go first until all that wait can be served in time, the networks of clients in turn;
//! - a worker accepts no more than it can begin soon, and has the kernel queue only little: what cannot be
//!   served in time is refused by the kernel, without a cost;
//! - a client that has waited for long is watched, so that its place is free as soon as it gives up, and is refused
//!   by a reset when it has waited for longer than clients do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use widelane_batching::{self as batching, Line, Overload, Place, Turn};

use crate::front::client::Client;
use crate::front::sockets::BACKLOG;
use crate::observe::page;
use crate::observe::stats::{Failure, Stats};

/// The gate of one worker.
pub(crate) struct Gate {
    /// `None`: each handshake begins at once, as many as there are.
    defence: Option<RefCell<Overload>>,
    target: u64,
    /// The fewest handshakes under way that fill passes.
    lanes: usize,
    began: Instant,
    /// Handshakes that wait, by the cell of their source (`sources.rs`).
    line: RefCell<Line<u16, Rc<Waiter>>>,
    under_way: Cell<usize>,
    /// Connections that were accepted and whose tasks have not run yet.
    expected: Cell<usize>,
    /// Time since which the kernel has had connections, by the number of the listening socket; none where it has none.
    queued: RefCell<BTreeMap<usize, u64>>,
    /// Listening sockets so far.
    sockets: Cell<usize>,
    /// True if the newest go first.
    is_overloaded: Cell<bool>,
    /// Handshakes that have begun since the event loop last looked at its sockets.
    begun: Cell<usize>,
    pace: RefCell<Pace>,
    /// Wakes [`Gate::tend`]: a handshake waits, or a place is free.
    work: Notify,
    /// Wakes tasks that accept: there is room again, or the kernel is to queue more or less.
    changed: Notify,
    stats: Arc<Stats>,
}

/// A place among the handshakes that are under way, given back when dropped.
#[derive(Default)]
pub(crate) struct Permit {
    /// `None`: from a gate that is always open.
    gate: Option<Rc<Gate>>,
    /// True if there was a handshake, and not a client that had gone: then it says what handshakes cost.
    is_used: bool,
    /// Time for which the handshake waited for it.
    pub(crate) waited: Duration,
}

/// One that waits.
struct Waiter {
    state: Cell<State>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// The client may have given up.
    Late,
    Granted,
    Refused,
}

/// End of a wait.
#[derive(PartialEq, Eq)]
enum Answer {
    /// The gate has decided.
    Decided,
    /// The client has gone.
    Gone,
}

/// Cost of a handshake to the worker: the time from look to look while handshakes wait, and how many had their turn.
#[derive(Default)]
struct Pace {
    nanos: f64,
    served: f64,
    /// Time of the last look after which some still waited.
    looked: Option<u64>,
    served_since: u32,
}

impl Gate {
    /// `wait`: how long handshakes may wait in calm, zero for a gate that is always open. `patience`: how long a
    /// client may wait at most. `lanes`: how many handshakes fill a pass.
    pub(crate) fn new(wait: Duration, patience: Duration, lanes: usize, stats: Arc<Stats>) -> Rc<Self> {
        let target = nanos(wait);
        let overload = || RefCell::new(Overload::new(0, target, nanos(patience)));
        Rc::new(Self {
            defence: (target > 0).then(overload),
            target,
            lanes,
            began: Instant::now(),
            line: RefCell::default(),
            under_way: Cell::new(0),
            expected: Cell::new(0),
            queued: RefCell::default(),
            sockets: Cell::new(0),
            is_overloaded: Cell::new(false),
            begun: Cell::new(0),
            pace: RefCell::default(),
            work: Notify::new(),
            changed: Notify::new(),
            stats,
        })
    }

    /// Waits until a handshake may begin, or until `ends`.
    pub(crate) async fn enter(
        self: &Rc<Self>,
        source: u16,
        client: &mut Client,
        ends: Instant,
    ) -> Result<Permit, Failure> {
        let Some(defence) = &self.defence else {
            return Ok(Permit::default());
        };
        defence.borrow_mut().arrived();
        if self.line.borrow().is_empty() && self.has_place() {
            let queued = self.queued_since().map(|since| self.now().saturating_sub(since));
            if queued.is_some_and(|queued| queued > self.target) && client.has_gone() {
                return Err(self.gave_up(defence, queued.unwrap_or_default()));
            }
            self.served(defence, 0);
            return Ok(self.permit());
        }
        // In memory of its own: most connections never wait, and must not keep room for it.
        let turn = Box::pin(timeout_at(ends, self.wait(defence, source, client))).await;
        turn.unwrap_or(Err(Failure::Timeout))
    }

    async fn wait(
        self: &Rc<Self>,
        defence: &RefCell<Overload>,
        source: u16,
        client: &mut Client,
    ) -> Result<Permit, Failure> {
        let since = self.now();
        let waiting = Waiting::new(self, since, source);
        let answer = poll_fn(|cx| waiting.waiter.poll(cx, client)).await;
        let wait = self.now().saturating_sub(since);
        let permit = waiting.leave();
        drop(waiting);
        if answer == Answer::Gone || client.has_gone() {
            return Err(self.gave_up(defence, wait));
        }
        let Some(mut permit) = permit else {
            page::overload(|page| page.refused());
            client.reset();
            return Err(Failure::Overload);
        };
        permit.is_used = true;
        permit.waited = Duration::from_nanos(wait);
        self.served(defence, wait);
        Ok(permit)
    }

    fn gave_up(&self, defence: &RefCell<Overload>, wait: u64) -> Failure {
        defence.borrow_mut().gave_up(wait);
        page::overload(|page| page.gone());
        Failure::GaveUp
    }

    fn served(&self, defence: &RefCell<Overload>, wait: u64) {
        let waited = Duration::from_nanos(wait);
        self.stats.waited(waited);
        if self.is_overloaded.get() {
            page::overload(|page| page.served(waited.as_millis() as u64));
        }
        defence.borrow_mut().served();
    }

    /// Waits until it makes sense to accept another connection.
    pub(crate) async fn room(&self) {
        while self.is_full() {
            self.changed.notified().await;
        }
    }

    /// A number for a listening socket.
    pub(crate) fn socket(&self) -> usize {
        self.sockets.set(self.sockets.get() + 1);
        self.sockets.get()
    }

    /// The kernel had a connection at this socket.
    pub(crate) fn accepted(&self, socket: usize) {
        let now = self.now();
        let since = *self.queued.borrow_mut().entry(socket).or_insert(now);
        // Also where none waits at the gate, because handshakes end as soon as they have begun.
        if now.saturating_sub(since) > self.target {
            self.work.notify_one();
        }
    }

    fn queued_since(&self) -> Option<u64> {
        self.queued.borrow().values().min().copied()
    }

    /// A connection has a task, which has not run yet.
    pub(crate) fn expects(&self) {
        self.expected.set(self.expected.get() + 1);
    }

    /// The task of a connection runs, and reads the ClientHello if that is there.
    pub(crate) fn runs(&self) {
        let was_full = self.is_full();
        self.expected.set(self.expected.get() - 1);
        if was_full && !self.is_full() {
            self.changed.notify_waiters();
        }
    }

    /// A connection was refused by a limit.
    pub(crate) fn turned_away(&self) {
        if let Some(defence) = &self.defence {
            defence.borrow_mut().arrived();
        }
    }

    /// The kernel has no connection at this socket, or the worker accepts none there any more.
    pub(crate) fn nothing_queued(&self, socket: usize) {
        let mut queued = self.queued.borrow_mut();
        queued.remove(&socket);
        if queued.is_empty() {
            // The worker waits for the next look at the sockets.
            self.looked();
        }
    }

    /// The event loop has looked at its sockets.
    pub(crate) fn looked(&self) {
        self.begun.set(0);
    }

    /// Number of connections that the kernel is to queue for a listening socket.
    pub(crate) fn backlog(&self) -> i32 {
        if !self.is_overloaded.get() {
            return BACKLOG;
        }
        let most = batching::worth_queueing(self.cost(), self.target.saturating_mul(Overload::QUEUED_TARGETS));
        i32::try_from(most).unwrap_or(BACKLOG).min(BACKLOG)
    }

    /// Waits until the kernel is to queue more or fewer than `queued`. Small changes don't count.
    pub(crate) async fn other_backlog(&self, queued: i32) -> i32 {
        if self.defence.is_none() {
            return pending().await;
        }
        loop {
            let wanted = self.backlog();
            if wanted != queued && (wanted == BACKLOG || wanted.abs_diff(queued) > queued.unsigned_abs() / 4) {
                return wanted;
            }
            self.changed.notified().await;
        }
    }

    /// Lets handshakes begin. Runs as a task of the worker for ever.
    pub(crate) async fn tend(self: Rc<Self>, worker: usize) {
        let Some(defence) = &self.defence else {
            return;
        };
        loop {
            let is_idle = self.line.borrow().is_empty() || self.under_way.get() >= self.most_under_way();
            match is_idle {
                true if self.is_overloaded.get() => {
                    let interval = Duration::from_nanos(Overload::INTERVAL);
                    let _ = timeout(interval, self.work.notified()).await;
                }
                true => self.work.notified().await,
                false => {}
            }
            // Established connections have their turn first: the event loop looks at its sockets before this
            // goes on.
            tokio::task::yield_now().await;
            self.looked();
            self.look(&mut defence.borrow_mut(), worker);
        }
    }

    /// One look: decides whether there is overload, ages those that wait, and grants what places are free.
    fn look(&self, overload: &mut Overload, worker: usize) {
        let now = self.now();
        let mut line = self.line.borrow_mut();
        self.pace.borrow_mut().look(now);
        let oldest = match overload.is_on() {
            true => line.oldest_fresh(),
            false => line.oldest(),
        };
        // The kernel does not say since when its first one waits: since it last had none, at most.
        let oldest = oldest.into_iter().chain(self.queued_since()).min();
        let turn = overload.look(now, oldest.map(|since| now.saturating_sub(since)));
        if let Some(turn) = turn {
            self.is_overloaded.set(overload.is_on());
            self.note(turn, line.len(), worker);
        }
        if overload.is_on() {
            line.age(now.saturating_sub(self.late()), |waiter| waiter.turn(State::Late));
            let lost = now.saturating_sub(overload.patience());
            while line.oldest().is_some_and(|since| since < lost)
                && let Some((_, waiter)) = line.pop_oldest()
            {
                waiter.turn(State::Refused);
            }
        }
        while self.has_place() {
            let next = match overload.is_on() {
                true => line.pop_fresh(self.most_waiting()),
                false => line.pop_oldest(),
            };
            let Some((_, waiter)) = next else { break };
            self.begin();
            waiter.turn(State::Granted);
        }
        let is_busy = !line.is_empty();
        self.pace.borrow_mut().looked = is_busy.then_some(now);
        if overload.is_on() || turn.is_some() {
            self.changed.notify_waiters();
        }
    }

    fn note(&self, turn: Turn, waiting: usize, worker: usize) {
        let is_on = turn == Turn::Begins;
        self.stats.overloaded.store(is_on, Relaxed);
        if is_on {
            self.stats.overloads.fetch_add(1, Relaxed);
            page::overload(|page| page.begins());
            tracing::warn!(
                worker,
                waiting,
                "overload: more handshakes arrive than this worker can finish; the newest go first until it ends"
            );
        } else {
            page::overload(|page| page.ends());
            tracing::info!(worker, "overload ends: no handshake waits for long");
        }
    }

    fn permit(self: &Rc<Self>) -> Permit {
        self.begin();
        Permit {
            gate: Some(self.clone()),
            is_used: true,
            ..Permit::default()
        }
    }

    fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
        self.begun.set(self.begun.get() + 1);
    }

    /// Returns whether one more handshake may begin. Those under way wait for each other's operations, and the more
    /// there are the fuller are the passes; those that begin between two looks are what keeps the worker from looking.
    fn has_place(&self) -> bool {
        self.begun.get() < self.most() && self.under_way.get() < self.most_under_way()
    }

    fn most_under_way(&self) -> usize {
        self.most().max(self.lanes * PASSES_AHEAD)
    }

    fn is_full(&self) -> bool {
        self.is_overloaded.get() && self.line.borrow().fresh() + self.expected.get() >= self.most_waiting()
    }

    /// Number of handshakes that can be served in time.
    fn most_waiting(&self) -> usize {
        batching::worth_queueing(self.cost(), self.target)
    }

    /// The most handshakes that may begin between two looks.
    fn most(&self) -> usize {
        let look = if self.is_overloaded.get() {
            Overload::LOOK
        } else {
            Overload::CALM_LOOK
        };
        batching::under_way(self.cost(), look, self.lanes)
    }

    /// Cost of a handshake in nanoseconds; 0 while that is not known.
    fn cost(&self) -> u64 {
        self.pace.borrow().cost()
    }

    /// One that has waited for longer may have given up.
    fn late(&self) -> u64 {
        batching::late(self.cost(), self.target)
    }

    fn now(&self) -> u64 {
        nanos(self.began.elapsed())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // The page outlives a server that is stopped.
        if self.is_overloaded.get() {
            page::overload(|page| page.ends());
            self.stats.overloaded.store(false, Relaxed);
        }
    }
}

impl Waiter {
    fn turn(&self, state: State) {
        self.state.set(state);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn poll(&self, cx: &mut Context<'_>, client: &mut Client) -> Poll<Answer> {
        match self.state.get() {
            State::Granted | State::Refused => return Poll::Ready(Answer::Decided),
            State::Late if client.poll_gone(cx).is_ready() => return Poll::Ready(Answer::Gone),
            State::Waiting | State::Late => {}
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Pace {
    fn look(&mut self, now: u64) {
        let served = std::mem::take(&mut self.served_since);
        let Some(last) = self.looked else { return };
        // About the last hundred handshakes.
        let kept = 1.0 - f64::from(served.min(50)) / 100.0;
        self.nanos = self.nanos * kept + now.saturating_sub(last) as f64;
        self.served = self.served * kept + f64::from(served);
    }

    fn cost(&self) -> u64 {
        match self.served >= 1.0 {
            true => (self.nanos / self.served) as u64,
            false => 0,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(gate) = &self.gate else { return };
        gate.under_way.set(gate.under_way.get() - 1);
        gate.pace.borrow_mut().served_since += u32::from(self.is_used);
        if !gate.line.borrow().is_empty() {
            gate.work.notify_one();
        }
    }
}

/// A connection in the line. Leaves it when dropped, also if its time is over.
struct Waiting<'a> {
    gate: &'a Rc<Gate>,
    place: Place,
    waiter: Rc<Waiter>,
}

impl<'a> Waiting<'a> {
    fn new(gate: &'a Rc<Gate>, since: u64, source: u16) -> Self {
        let waiter = Rc::new(Waiter {
            state: Cell::new(State::Waiting),
            waker: RefCell::default(),
        });
        let place = gate.line.borrow_mut().push(since, source, waiter.clone());
        gate.work.notify_one();
        Self { gate, place, waiter }
    }

    /// Leaves the line, with the place that was granted.
    fn leave(&self) -> Option<Permit> {
        self.gate.line.borrow_mut().remove(self.place);
        let state = self.waiter.state.replace(State::Refused);
        (state == State::Granted).then(|| Permit {
            gate: Some(self.gate.clone()),
            ..Permit::default()
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Full passes of handshakes that may be under way.
const PASSES_AHEAD: usize = 4;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use tokio::runtime::LocalOptions;
    use tokio::task::{spawn_local, yield_now};
    use tokio::time::sleep;
    use widelane_crypto::Backend;

    use super::*;
    use crate::observe::page::tests::report;

    const SOURCE: u16 = 7;
    const WAIT: Duration = Duration::from_millis(20);
    const PATIENCE: Duration = Duration::from_secs(10);

    /// A worker whose clock stands still while it has something to do.
    fn on_a_worker(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build_local(LocalOptions::default());
        runtime.expect("a runtime").block_on(test);
    }

    fn gate(wait: Duration) -> Rc<Gate> {
        let gate = Gate::new(wait, PATIENCE, 1, Arc::default());
        spawn_local(gate.clone().tend(0));
        gate
    }

    fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").expect("a socket")
    }

    fn connect(listener: &TcpListener) -> (TcpStream, Client) {
        let peer = TcpStream::connect(listener.local_addr().expect("its address"));
        let (client, _) = Client::accept(listener).expect("a client");
        (peer.expect("a connection"), client)
    }

    /// A client that takes no port.
    fn near() -> (UnixStream, Client) {
        let (peer, client) = UnixStream::pair().expect("two sockets");
        client.set_nonblocking(true).expect("a socket");
        (peer, OwnedFd::from(client).into())
    }

    /// Handshakes that take a millisecond each, one after the other, until there is overload.
    async fn overload(gate: &Rc<Gate>, listener: &TcpListener) {
        let busy = Rc::new(tokio::sync::Mutex::new(()));
        while !gate.is_overloaded.get() {
            for _ in 0..3 {
                let (peer, client) = connect(listener);
                spawn_local(shake(gate.clone(), peer, client, busy.clone()));
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn shake(
        gate: Rc<Gate>,
        peer: impl Sized,
        mut client: Client,
        busy: Rc<tokio::sync::Mutex<()>>,
    ) -> Result<Duration, Failure> {
        let since = Instant::now();
        let permit = gate.enter(SOURCE, &mut client, Instant::now() + PATIENCE).await?;
        let waited = since.elapsed();
        let turn = busy.lock().await;
        sleep(Duration::from_millis(1)).await;
        drop((turn, permit, peer));
        Ok(waited)
    }

    #[test]
    fn a_gate_without_a_wait_is_open() {
        on_a_worker(async {
            let (gate, listener) = (gate(Duration::ZERO), listener());
            let mut permits = Vec::new();
            for _ in 0..200 {
                let (_peer, mut client) = connect(&listener);
                permits.push(
                    gate.enter(SOURCE, &mut client, Instant::now() + PATIENCE)
                        .await
                        .expect("a place"),
                );
            }
            assert_eq!(gate.backlog(), BACKLOG);
        });
    }

    #[test]
    fn handshakes_begin_in_their_order_and_not_too_many_at_once() {
        on_a_worker(async {
            let (gate, listener) = (gate(WAIT), listener());
            let busy = Rc::default();
            let clients: Vec<_> = (0..200).map(|_| connect(&listener)).collect();
            let tasks = clients
                .into_iter()
                .map(|(peer, client)| spawn_local(shake(gate.clone(), peer, client, Rc::clone(&busy))));
            let tasks: Vec<_> = tasks.collect();
            let mut waits = Vec::new();
            for task in tasks {
                waits.push(task.await.expect("no panic").expect("served"));
                assert!(gate.under_way.get() <= gate.most().max(64));
            }
            assert!(waits.is_sorted());
            assert!(!gate.is_overloaded.get(), "a burst is no overload");
            assert_eq!(gate.under_way.get(), 0);
            // A millisecond each, of which looks are four apart in calm.
            assert!((3..=4).contains(&gate.most()), "{}", gate.most());
        });
    }

    #[test]
    fn the_newest_go_first_under_overload_and_the_kernel_queues_little() {
        on_a_worker(async {
            let (gate, listener) = (gate(WAIT), listener());
            overload(&gate, &listener).await;
            let (peer, client) = connect(&listener);
            let waited = shake(gate.clone(), peer, client, Rc::default()).await;
            assert!(waited.expect("served") < 5 * WAIT);
            assert!(gate.backlog() < 100, "{}", gate.backlog());
            assert_eq!(gate.stats.overloads.load(Relaxed), 1);
            // Nothing more comes: those that wait have their turn, and the calm returns.
            while gate.is_overloaded.get() || gate.under_way.get() > 0 {
                sleep(WAIT).await;
            }
            assert!(gate.line.borrow().is_empty());
            assert_eq!(gate.backlog(), BACKLOG);
            assert!(!gate.stats.overloaded.load(Relaxed));
        });
    }

    #[test]
    fn a_worker_accepts_no_more_than_can_be_served_in_time() {
        on_a_worker(async {
            let (gate, listener) = (gate(WAIT), listener());
            overload(&gate, &listener).await;
            while gate.line.borrow().fresh() > 0 {
                sleep(WAIT).await;
            }
            assert!(gate.is_overloaded.get() && !gate.is_full());
            // Their tasks have not run yet, so they are not in the line.
            for _ in 0..gate.most_waiting() {
                assert!(!gate.is_full());
                gate.expects();
            }
            assert!(gate.is_full());
            gate.runs();
            assert!(!gate.is_full());
        });
    }

    #[test]
    fn tasks_that_have_run_make_room_at_once() {
        on_a_worker(async {
            let (gate, listener) = (gate(WAIT), listener());
            overload(&gate, &listener).await;
            while gate.line.borrow().fresh() > 0 {
                sleep(WAIT).await;
            }
            // Clients that send no ClientHello.
            let most = gate.most_waiting();
            (0..most).for_each(|_| gate.expects());
            let since = Instant::now();
            spawn_local({
                let gate = gate.clone();
                async move { (0..most).for_each(|_| gate.runs()) }
            });
            gate.room().await;
            assert_eq!(since.elapsed(), Duration::ZERO);
        });
    }

    #[test]
    fn an_idle_socket_says_nothing_of_another_one() {
        on_a_worker(async {
            let gate = gate(WAIT);
            let (busy, idle) = (gate.socket(), gate.socket());
            gate.accepted(busy);
            gate.nothing_queued(idle);
            assert!(gate.queued_since().is_some());
            gate.nothing_queued(busy);
            assert!(gate.queued_since().is_none());
        });
    }

    #[test]
    fn a_client_that_gives_up_leaves_its_place() {
        on_a_worker(async {
            let (gate, listener) = (gate(WAIT), listener());
            overload(&gate, &listener).await;
            let (peer, client) = connect(&listener);
            // It waits long since, so it is not among the first.
            let held: Vec<_> = (0..64).map(|_| gate.permit()).collect();
            let waiting = spawn_local({
                let gate = gate.clone();
                let mut client = client;
                async move {
                    gate.enter(SOURCE, &mut client, Instant::now() + PATIENCE)
                        .await
                        .map(drop)
                }
            });
            sleep(WAIT * 6).await;
            gate.look(&mut gate.defence.as_ref().expect("a defence").borrow_mut(), 0);
            drop(peer);
            assert_eq!(waiting.await.expect("no panic"), Err(Failure::GaveUp));
            drop(held);
        });
    }

    #[test]
    fn a_queue_of_clients_that_have_gone_is_an_overload_though_none_waits_at_the_gate() {
        on_a_worker(async {
            let (gate, listener) = (gate(WAIT), listener());
            // The kernel always has another connection, whose client has given up.
            for _ in 0..100 {
                gate.accepted(0);
                let (peer, mut client) = connect(&listener);
                drop(peer);
                let ends = Instant::now() + PATIENCE;
                let _ = gate.enter(SOURCE, &mut client, ends).await;
                gate.looked();
                sleep(Duration::from_millis(5)).await;
            }
            assert!(gate.is_overloaded.get());
        });
    }

    #[test]
    fn clients_that_have_gone_say_nothing_of_the_cost() {
        on_a_worker(async {
            let (gate, listener) = (gate(WAIT), listener());
            overload(&gate, &listener).await;
            let cost = gate.cost();
            assert!((500_000..2_000_000).contains(&cost), "{cost}");
            // All of them are gone before their turn comes.
            let mut held: Vec<_> = (0..64).map(|_| gate.permit()).collect();
            let gone = (0..300).map(|_| {
                let (peer, mut client) = connect(&listener);
                let gate = gate.clone();
                drop(peer);
                spawn_local(async move {
                    let ends = Instant::now() + PATIENCE;
                    gate.enter(SOURCE, &mut client, ends).await.map(drop)
                })
            });
            let gone: Vec<_> = gone.collect();
            yield_now().await;
            for permit in &mut held {
                permit.is_used = false;
            }
            drop(held);
            for client in gone {
                assert_eq!(client.await.expect("no panic"), Err(Failure::GaveUp));
            }
            assert!(gate.cost() >= cost / 2, "{} after {cost}", gate.cost());
        });
    }

    /// Three come in each millisecond, of which the worker finishes one.
    #[test]
    fn a_connection_may_end_at_any_point() {
        on_a_worker(async {
            let (gate, busy, living) = (gate(WAIT), Rc::default(), Rc::new(()));
            let mut random = 1_u64;
            let mut random = |below: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % below
            };
            let mut overloaded = 0;
            for number in 0..20_000 {
                let (peer, client) = near();
                let shake = shake(gate.clone(), living.clone(), client, Rc::clone(&busy));
                let then = Duration::from_micros(random(50_000));
                match random(16) {
                    0 => drop(spawn_local(async move { (shake.await, peer).0 })),
                    // Our side ends it.
                    1..8 => drop(spawn_local(async move {
                        let _ = (timeout(then, shake).await, peer);
                    })),
                    // The client goes away.
                    _ => {
                        spawn_local(shake);
                        spawn_local(async move {
                            sleep(then).await;
                            drop(peer);
                        });
                    }
                }
                // From none to all of the steps of its way.
                for _ in 0..random(7) {
                    yield_now().await;
                }
                if number % 3 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
                let entered = gate.under_way.get() + gate.line.borrow().len();
                assert!(entered < Rc::strong_count(&living));
                overloaded += u32::from(gate.is_overloaded.get());
            }
            assert!(overloaded > 15_000, "{overloaded}");
            while Rc::strong_count(&living) > 1 || gate.is_overloaded.get() {
                sleep(WAIT).await;
            }
            assert_eq!((gate.under_way.get(), gate.line.borrow().len()), (0, 0));
            assert_eq!(gate.line.borrow().fresh(), 0);
            // This test has it, and the task that lets handshakes begin.
            assert_eq!(Rc::strong_count(&gate), 2);
        });
    }

    #[test]
    fn other_processes_see_overload() {
        page::begin(Backend::AwsLc);
        on_a_worker(async {
            // Other tests count on the same page.
            let before = report().overload;
            let seen = || report().overload.since(&before);
            let (gate, listener) = (gate(WAIT), listener());
            overload(&gate, &listener).await;
            assert!(seen().now >= 1 && seen().begun >= 1, "{:?}", seen());
            let (peer, client) = near();
            drop(peer);
            let gone = shake(gate.clone(), (), client, Rc::default()).await;
            assert_eq!(gone, Err(Failure::GaveUp));
            let (peer, client) = near();
            let served = shake(gate.clone(), peer, client, Rc::default()).await;
            assert!(served.is_ok());
            assert!(seen().gone >= 1 && seen().wait(100).is_some(), "{:?}", seen());
            let defence = gate.defence.as_ref().expect("a defence");
            let patience = u64::from(WAIT.subsec_nanos()) * 20;
            defence.borrow_mut().gave_up(patience);
            let held: Vec<_> = (0..64).map(|_| gate.permit()).collect();
            let (peer, client) = near();
            let refused = shake(gate.clone(), peer, client, Rc::default()).await;
            assert_eq!(refused, Err(Failure::Overload));
            assert!(seen().refused >= 1, "{:?}", seen());
            drop(held);
        });
    }

    #[test]
    fn a_client_that_waits_for_longer_than_clients_do_is_refused() {
        on_a_worker(async {
            let (gate, listener) = (gate(WAIT), listener());
            overload(&gate, &listener).await;
            let defence = gate.defence.as_ref().expect("a defence");
            defence.borrow_mut().gave_up(u64::from(WAIT.subsec_nanos()) * 20);
            let held: Vec<_> = (0..64).map(|_| gate.permit()).collect();
            let (peer, mut client) = connect(&listener);
            let answer = gate
                .enter(SOURCE, &mut client, Instant::now() + PATIENCE)
                .await
                .map(drop);
            assert_eq!(answer, Err(Failure::Overload));
            drop((client, held));
            let error = std::io::Read::read(&mut &peer, &mut [0]).expect_err("a reset");
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        });
    }
}
