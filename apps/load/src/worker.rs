//! One thread: an epoll loop over its share of the connections.

use crate::batching::{Batcher, Batching, StepContext};
use crate::connection::{Connection, ConnectionConfig, Interest, Scratch, Step};
use crate::error::{Fault, LoadError};
use crate::plan::{Close, Plan};
use crate::schedule::{Random, Schedule};
use crate::tally::{Tally, Window};
use crate::watch::Watch;
use crate::{After, http};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The loop of one thread.
pub(crate) struct Worker {
    epoll: OwnedFd,
    config: ConnectionConfig,
    /// Connections by their numbers, which are used once.
    connections: HashMap<u64, Entry>,
    /// Number of the next connection.
    next: u64,
    most: usize,
    starts_left: u64,
    timeout: Duration,
    retries: u32,
    /// Numbers of failures of clients that try again, by when they do. The second number keeps those of one instant
    /// apart.
    retrying: BTreeMap<(Instant, u64), u32>,
    /// Number of times that clients have begun to wait.
    failures: u64,
    random: Random,
    /// Deadlines of handshakes and answers. The timeout is the same for all, so the oldest is at the front.
    deadlines: VecDeque<(Instant, u64)>,
    /// Ends of the wait for servers' closes, in the same order.
    lingers: VecDeque<(Instant, u64)>,
    window: Window,
    tally: Tally,
    scratch: Scratch,
    /// `None`: the operations of each connection run alone.
    batcher: Option<Batcher>,
    /// Connections that can go on. A buffer of `resume_woken`.
    woken: Vec<u64>,
    watch: Watch,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// The client's number of failures: it wants a handshake, and tries more than once if need be.
    failed: u32,
    /// Says that the connection can go on; `None` without a batcher.
    waker: Option<Waker>,
    /// Event that epoll watches for.
    interest: Interest,
    /// True if the connection is in `lingers`.
    lingering: bool,
}

impl Worker {
    /// Sets up thread `index` of a plan.
    pub(crate) fn new(
        plan: &Plan,
        index: usize,
        batching: Option<&Batching>,
        watch: &Watch,
    ) -> Result<Self, LoadError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(LoadError::system("create an epoll instance"))?;
        let most = plan.share(plan.most_in_flight(), index);
        let request = match &plan.after {
            After::Get(path) => http::request(path, &plan.server_name),
            After::Exchange { send, .. } => send.clone(),
            After::Close | After::Hold => Vec::new(),
        };
        let starts_left = plan.limit.map_or(u64::MAX, |limit| {
            let threads = plan.threads as u64;
            limit / threads + u64::from((index as u64) < limit % threads)
        });
        let now = Instant::now();
        Ok(Self {
            epoll,
            config: ConnectionConfig {
                address: plan.address,
                server_name: plan.server_name()?,
                tls: plan.offer.client_config(most, batching)?,
                starttls: plan.starttls,
                after: plan.after.clone(),
                close: plan.close,
                request,
            },
            connections: HashMap::with_capacity(most.min(PREALLOCATED)),
            next: 0,
            most,
            starts_left,
            timeout: plan.timeout,
            retries: plan.retries,
            retrying: BTreeMap::new(),
            failures: 0,
            random: Random::seeded(index as u64),
            deadlines: VecDeque::new(),
            lingers: VecDeque::new(),
            window: Window { from: now, to: now },
            tally: Tally::default(),
            scratch: Scratch::new(),
            batcher: batching.map(Batcher::new),
            woken: Vec::new(),
            watch: watch.clone(),
        })
    }

    /// Runs until the window is over and all connections that started in it have ended.
    pub(crate) fn run(mut self, mut schedule: Schedule, window: Window) -> Result<(Tally, Window), LoadError> {
        self.window = window;
        let mut events: Vec<Event> = Vec::with_capacity(MOST_EVENTS);
        let mut meter = CpuMeter::default();
        loop {
            let now = Instant::now();
            if self.watch.is_stopped() {
                self.window.to = self.window.to.min(now);
                break;
            }
            if self.starts_left == 0 && self.connections.is_empty() && self.retrying.is_empty() {
                // The last connection of a limited run ends the window.
                self.window.to = self.window.to.min(now);
            }
            meter.look(now, self.window);
            if now < self.window.to {
                self.start_due(&mut schedule, now);
            } else {
                self.release_held();
                if self.connections.is_empty() {
                    break;
                }
            }
            self.expire(&mut schedule, now);
            let busy = self.batcher.as_ref().is_some_and(Batcher::is_busy);
            let wait = match busy {
                true => NO_WAIT,
                false => self.longest_wait(&schedule, now),
            };
            match ready(&self.epoll, &mut events, &wait) {
                Ok(()) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(LoadError::system("wait for sockets")(errno)),
            }
            let mut progress = false;
            for event in events.drain(..) {
                progress |= self.look_at(&mut schedule, &event);
            }
            progress |= self.resume_woken(&mut schedule);
            // Only when there is nothing else to do. So passes are full under load.
            if busy && !progress {
                if let Some(batcher) = &self.batcher {
                    batcher.turns.turn();
                }
                self.resume_woken(&mut schedule);
            }
        }
        self.count_rest(&mut schedule);
        (self.tally.cpu, self.tally.waited) = meter.spent();
        self.tally.busiest = self.tally.cpu;
        Ok((self.tally, self.window))
    }

    /// Starts the connections that are due, a few at a time. To make a hundred key shares at once
    /// would delay connections whose answer has come.
    fn start_due(&mut self, schedule: &mut Schedule, now: Instant) {
        for _ in 0..MOST_STARTS {
            if self.connections.len() >= self.most {
                return;
            }
            if let Some(entry) = self.retrying.first_entry()
                && entry.key().0 <= now
            {
                let ((due, _), failed) = entry.remove_entry();
                self.start(schedule, due, failed);
                continue;
            }
            if self.starts_left == 0 {
                return;
            }
            let Some(intended) = schedule.take_due(now) else {
                return;
            };
            self.starts_left -= 1;
            self.start(schedule, intended, 0);
        }
    }

    fn start(&mut self, schedule: &mut Schedule, intended: Instant, failed: u32) {
        let started = Instant::now();
        // In a closed loop the intended start is the actual one.
        let intended = match schedule {
            Schedule::Closed(_) => started,
            Schedule::Open(_) => intended,
        };
        self.tally.started(self.window, intended, started, failed > 0);
        self.watch.count_start();
        let key = self.next;
        self.next += 1;
        let waker = self.batcher.as_ref().map(|batcher| batcher.waker(key));
        let context = context(&self.batcher, &waker);
        match Connection::start(&self.config, intended, context) {
            Ok((connection, Step::Ended(outcome))) => self.count_and_close(schedule, connection, failed, outcome),
            Ok((connection, step)) => {
                let interest = match step {
                    Step::Wait(interest) => interest,
                    _ => Interest::Read,
                };
                let data = EventData::new_u64(key);
                let watched = epoll::add(&self.epoll, &connection.socket, data, flags(interest));
                let entry = Entry {
                    connection,
                    failed,
                    waker,
                    interest,
                    lingering: false,
                };
                self.connections.insert(key, entry);
                self.deadlines.push_back((started + self.timeout, key));
                if let Err(errno) = watched {
                    self.end(schedule, key, Err(Fault::Socket(errno)));
                }
            }
            Err(fault) => {
                self.watch.count_end(true);
                self.tally.failed(self.window, intended, fault);
                self.try_again(schedule, failed);
            }
        }
    }

    /// Handles a socket that is ready. Returns whether the connection could go on.
    fn look_at(&mut self, schedule: &mut Schedule, event: &Event) -> bool {
        let key = event.data.u64();
        // The connection may have ended earlier in this round of events.
        let Some(entry) = self.connections.get_mut(&key) else {
            return true;
        };
        // An error is found by reading. A close without an error needs no read.
        let happened = event.flags;
        let closed = happened.contains(EventFlags::RDHUP) && !happened.contains(EventFlags::ERR);
        let was_suspended = entry.connection.is_suspended();
        let context = context(&self.batcher, &entry.waker);
        let step = entry.connection.ready(&self.config, closed, &mut self.scratch, context);
        self.follow(schedule, key, step);
        !was_suspended
    }

    /// Goes on with the connections whose jobs the engine has done. Returns whether there were any.
    fn resume_woken(&mut self, schedule: &mut Schedule) -> bool {
        let Some(batcher) = &self.batcher else {
            return false;
        };
        let mut woken = std::mem::take(&mut self.woken);
        batcher.take_woken(&mut woken);
        let any = !woken.is_empty();
        for key in woken.drain(..) {
            // The connection may have ended since.
            let Some(entry) = self.connections.get_mut(&key) else {
                continue;
            };
            if entry.connection.is_suspended()
                && let Some(context) = context(&self.batcher, &entry.waker)
            {
                let step = entry.connection.resume(&self.config, &mut self.scratch, context);
                self.follow(schedule, key, step);
            }
        }
        self.woken = woken;
        any
    }

    /// Does what a connection needs next.
    fn follow(&mut self, schedule: &mut Schedule, key: u64, step: Step) {
        let Some(entry) = self.connections.get_mut(&key) else {
            return;
        };
        match step {
            Step::Suspended => {}
            Step::Wait(interest) => {
                if interest != entry.interest {
                    entry.interest = interest;
                    let data = EventData::new_u64(key);
                    let changed = epoll::modify(&self.epoll, &entry.connection.socket, data, flags(interest));
                    if let Err(errno) = changed {
                        self.end(schedule, key, Err(Fault::Socket(errno)));
                        return;
                    }
                }
                if entry.connection.is_closing() && !entry.lingering {
                    entry.lingering = true;
                    self.lingers.push_back((Instant::now() + CLOSE_TIMEOUT, key));
                }
            }
            Step::Ended(outcome) => self.end(schedule, key, outcome),
        }
    }

    fn end(&mut self, schedule: &mut Schedule, key: u64, outcome: Result<(), Fault>) {
        if let Some(entry) = self.connections.remove(&key) {
            self.count_and_close(schedule, entry.connection, entry.failed, outcome);
        }
    }

    fn count_and_close(
        &mut self,
        schedule: &mut Schedule,
        connection: Connection,
        failed: u32,
        outcome: Result<(), Fault>,
    ) {
        self.watch.count_end(outcome.is_err());
        match outcome {
            Ok(()) => {
                schedule.ended(Instant::now(), false);
                self.tally.succeeded(self.window, &connection, self.timeout);
                connection.finish(self.config.close);
            }
            Err(fault) => {
                // Our alert may be on its way to the server, and a reset would overtake it.
                let close = match fault {
                    Fault::Tls(_) | Fault::Certificate(_) => Close::Fin,
                    _ => self.config.close,
                };
                self.tally.failed(self.window, connection.intended, fault);
                connection.finish(close);
                self.try_again(schedule, failed);
            }
        }
    }

    /// A connection of a client has failed: the client waits and tries again, or gives up.
    fn try_again(&mut self, schedule: &mut Schedule, failed: u32) {
        let now = Instant::now();
        if failed == self.retries {
            if self.retries > 0 && now < self.window.to {
                self.tally.gave_up += u64::from(now >= self.window.from);
            }
            schedule.ended(now, true);
            return;
        }
        // Up to half of the wait is left to chance: clients that were refused together must not come back together.
        let wait = BACKOFF * (1 << failed);
        let due = now + wait.mul_f64(0.5 + self.random.uniform() / 2.0);
        self.failures += 1;
        self.retrying.insert((due, self.failures), failed + 1);
    }

    /// Ends connections that took too long.
    fn expire(&mut self, schedule: &mut Schedule, now: Instant) {
        while let Some((_, key)) = self.deadlines.pop_front_if(|(by, _)| *by <= now) {
            let Some(entry) = self.connections.get_mut(&key) else {
                continue;
            };
            if entry.connection.is_closing() || entry.connection.is_held() {
                continue;
            }
            let stage = entry.connection.stage();
            self.end(schedule, key, Err(Fault::Timeout(stage)));
        }
        while let Some((_, key)) = self.lingers.pop_front_if(|(by, _)| *by <= now) {
            if let Some(entry) = self.connections.remove(&key) {
                self.tally.unclosed += 1;
                schedule.ended(now, false);
                self.succeed_early(entry);
            }
        }
        // Removes connections that have ended before their deadline.
        for queue in [&mut self.deadlines, &mut self.lingers] {
            while queue
                .pop_front_if(|(_, key)| !self.connections.contains_key(key))
                .is_some()
            {}
        }
    }

    /// Longest time that epoll may wait.
    fn longest_wait(&self, schedule: &Schedule, now: Instant) -> Timespec {
        let mut until = now + LONGEST_WAIT;
        if now < self.window.from {
            until = until.min(self.window.from);
        }
        if now < self.window.to {
            until = until.min(self.window.to);
            if self.connections.len() < self.most {
                if self.starts_left > 0 {
                    until = schedule.next_due(now).map_or(until, |due| until.min(due));
                }
                let retry = self.retrying.first_key_value();
                until = retry.map_or(until, |(&(due, _), _)| until.min(due));
            }
        }
        for queue in [&self.deadlines, &self.lingers] {
            until = queue.front().map_or(until, |(by, _)| until.min(*by));
        }
        let wait = until.saturating_duration_since(now);
        Timespec::try_from(wait).unwrap_or(NO_WAIT)
    }

    /// Ends held connections, which are complete when the window is over.
    fn release_held(&mut self) {
        if self.config.after != After::Hold {
            return;
        }
        let held = |_: &u64, entry: &mut Entry| entry.connection.is_held();
        for (_, entry) in self.connections.extract_if(held).collect::<Vec<_>>() {
            self.succeed_early(entry);
        }
    }

    fn succeed_early(&mut self, entry: Entry) {
        self.watch.count_end(false);
        self.tally.succeeded(self.window, &entry.connection, self.timeout);
        entry.connection.finish(Close::Reset);
    }

    /// Counts the connections that are left when the loop ends.
    fn count_rest(&mut self, schedule: &mut Schedule) {
        for (_, entry) in std::mem::take(&mut self.connections) {
            if entry.connection.is_closing() || entry.connection.is_held() {
                self.succeed_early(entry);
            } else {
                if self.window.contains(entry.connection.intended) {
                    self.tally.unfinished += 1;
                }
                entry.connection.finish(Close::Reset);
            }
        }
        if self.starts_left == 0 {
            return;
        }
        if let Schedule::Open(_) = schedule {
            while let Some(due) = schedule.take_due(self.window.to)
                && due < self.window.to
            {
                if self.window.contains(due) {
                    self.tally.not_started += 1;
                }
            }
        }
    }
}

/// Context of a step of a connection whose waker this is; `None` without a batcher.
fn context<'a>(batcher: &'a Option<Batcher>, waker: &'a Option<Waker>) -> Option<StepContext<'a>> {
    Some(batcher.as_ref()?.context(waker.as_ref()?))
}

/// Reads this thread's CPU times at both ends of the window.
#[derive(Debug, Default)]
struct CpuMeter {
    from: Option<Reading>,
    to: Option<Reading>,
}

/// A thread's CPU times so far.
#[derive(Clone, Copy, Debug)]
struct Reading {
    used: Duration,
    /// Time ready to run without a CPU. `None` if the kernel does not count it.
    waited: Option<Duration>,
}

impl CpuMeter {
    fn look(&mut self, now: Instant, window: Window) {
        if self.from.is_none() && now >= window.from {
            self.from = Some(Reading::now());
        }
        if self.to.is_none() && now >= window.to {
            self.to = Some(Reading::now());
        }
    }

    /// CPU time used and waited for; nothing if the run was stopped before the window.
    fn spent(self) -> (Duration, Option<Duration>) {
        let Some(from) = self.from else {
            return (Duration::ZERO, None);
        };
        let to = self.to.unwrap_or_else(Reading::now);
        let waited = to.waited.zip(from.waited).map(|(to, from)| to.saturating_sub(from));
        (to.used.saturating_sub(from.used), waited)
    }
}

impl Reading {
    fn now() -> Self {
        // Three numbers: nanoseconds on a CPU, nanoseconds waiting for one, time slices.
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited = statistics.split_ascii_whitespace().nth(1);
        Self {
            used: widelane_affinity::thread_time(),
            waited: waited.and_then(|text| text.parse().ok()).map(Duration::from_nanos),
        }
    }
}

/// Waits until a socket is ready or the time has passed, and adds what is ready to `events`.
///
/// The wait is that of `ppoll`, whose timeouts are nanoseconds on every kernel: an arrival schedule of
/// thousands a second cannot be kept in the milliseconds of `epoll_wait`, and `epoll_pwait2` takes Linux 5.11.
fn ready(epoll: &OwnedFd, events: &mut Vec<Event>, longest: &Timespec) -> Result<(), Errno> {
    if *longest != NO_WAIT {
        poll(&mut [PollFd::new(epoll, PollFlags::IN)], Some(longest))?;
    }
    let space = rustix::buffer::spare_capacity(events);
    epoll::wait(epoll, space, Some(&NO_WAIT)).map(drop)
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Read => EventFlags::IN | EventFlags::RDHUP,
        Interest::ReadWrite => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
        Interest::Close => EventFlags::RDHUP,
    }
}

/// Timeout for a look at the sockets without a wait.
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// A stop is noticed within this time.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// Longest wait for the server's close after our close_notify.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// The first wait of a client that tries again.
const BACKOFF: Duration = Duration::from_millis(100);
const MOST_STARTS: usize = 16;
const MOST_EVENTS: usize = 256;
const PREALLOCATED: usize = 1024;
