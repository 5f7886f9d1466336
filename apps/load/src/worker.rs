//! One thread: an epoll loop over its share of the connections.

use crate::connection::{Connection, Interest, Recipe, Scratch, Step};
use crate::error::{Fault, LoadError};
use crate::lanes::{Batching, Lanes};
use crate::pace::Pace;
use crate::plan::{Close, Plan};
use crate::run::Watch;
use crate::slots::{Key, Slots};
use crate::tally::{Tally, Window};
use crate::{After, http};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The loop of one thread.
pub(crate) struct Worker {
    epoll: OwnedFd,
    recipe: Recipe,
    connections: Slots<Entry>,
    most: usize,
    starts_left: u64,
    timeout: Duration,
    /// By when handshakes and answers must be there. All have the same time, so the oldest is
    /// always at the front.
    deadlines: VecDeque<(Instant, Key)>,
    /// By when servers must have closed, likewise.
    lingers: VecDeque<(Instant, Key)>,
    window: Window,
    tally: Tally,
    scratch: Scratch,
    /// None where each connection's operations run alone.
    lanes: Option<Lanes>,
    /// Slots whose connections may go on, while that is looked at.
    woken: Vec<usize>,
    watch: Watch,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// What epoll watches for.
    interest: Interest,
    /// Whether it has a place in `lingers`.
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
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|errno| LoadError::System {
            what: "create an epoll instance",
            source: errno.into(),
        })?;
        let most = plan.share(plan.most_in_flight(), index);
        let request = match &plan.after {
            After::Get(path) => http::request(path, &plan.server_name),
            After::Close | After::Hold => Vec::new(),
        };
        let starts_left = plan.limit.map_or(u64::MAX, |limit| {
            let threads = plan.threads as u64;
            limit / threads + u64::from((index as u64) < limit % threads)
        });
        let now = Instant::now();
        Ok(Self {
            epoll,
            recipe: Recipe {
                address: plan.address,
                server_name: plan.server_name()?,
                config: plan.offer.client_config(most, batching)?,
                after: plan.after.clone(),
                close: plan.close,
                request,
            },
            connections: Slots::with_capacity(most.min(PREALLOCATED)),
            most,
            starts_left,
            timeout: plan.timeout,
            deadlines: VecDeque::new(),
            lingers: VecDeque::new(),
            window: Window { from: now, to: now },
            tally: Tally::new(),
            scratch: Scratch::new(),
            lanes: batching.map(Lanes::new),
            woken: Vec::new(),
            watch: watch.clone(),
        })
    }

    /// Runs until the window has passed and what was started in it has ended.
    pub(crate) fn run(
        mut self,
        mut pace: Pace,
        window: Window,
    ) -> Result<(Tally, Window), LoadError> {
        self.window = window;
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_A_TURN);
        let mut meter = Meter::default();
        loop {
            let now = Instant::now();
            if self.watch.is_stopped() {
                self.window.to = self.window.to.min(now);
                break;
            }
            if self.starts_left == 0 && self.connections.len() == 0 {
                // The last connection of a limited run ends the window.
                self.window.to = self.window.to.min(now);
            }
            meter.look(now, self.window);
            if now < self.window.to {
                self.start_due(&mut pace, now);
            } else {
                self.release_held();
                if self.connections.len() == 0 {
                    break;
                }
            }
            self.expire(&mut pace, now);
            let busy = self.lanes.as_ref().is_some_and(Lanes::is_busy);
            let wait = if busy {
                LOOK
            } else {
                self.patience(&pace, now)
            };
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&wait),
            ) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    return Err(LoadError::System {
                        what: "wait for sockets",
                        source: errno.into(),
                    });
                }
            }
            let mut progress = false;
            for event in events.drain(..) {
                progress |= self.look_at(&mut pace, &event);
            }
            progress |= self.resume_woken(&mut pace);
            // Only when there is nothing else to do, so that passes are full under load.
            if busy && !progress {
                self.lanes.iter().for_each(Lanes::turn);
                self.resume_woken(&mut pace);
            }
        }
        self.wind_up(&mut pace);
        (self.tally.cpu, self.tally.waited) = meter.spent();
        self.tally.busiest = self.tally.cpu;
        Ok((self.tally, self.window))
    }

    /// Starts what is due, a few at a time: generating a hundred key shares at a stretch would
    /// keep those waiting whose answer has come.
    fn start_due(&mut self, pace: &mut Pace, now: Instant) {
        for _ in 0..STARTS_A_TURN {
            if self.connections.len() >= self.most || self.starts_left == 0 {
                return;
            }
            let Some(intended) = pace.take_due(now) else {
                return;
            };
            self.starts_left -= 1;
            self.start(pace, intended);
        }
    }

    fn start(&mut self, pace: &mut Pace, intended: Instant) {
        let started = Instant::now();
        // A closed loop means "now", and now is when it happens.
        let intended = match pace {
            Pace::Closed(_) => started,
            Pace::Open(_) => intended,
        };
        self.tally.started(self.window, intended, started);
        self.watch.count_start();
        let key = self.connections.vacant();
        let lane = self.lanes.as_mut().map(|lanes| lanes.lane(key));
        match Connection::start(&self.recipe, intended, lane) {
            Ok((connection, Step::Ended(outcome))) => self.judge(pace, connection, outcome),
            Ok((connection, step)) => {
                let interest = match step {
                    Step::Wait(interest) => interest,
                    _ => Interest::Read,
                };
                let key = self.connections.insert(Entry {
                    connection,
                    interest,
                    lingering: false,
                });
                self.deadlines.push_back((started + self.timeout, key));
                if let Err(errno) = self.watch_socket(key) {
                    self.end(pace, key, Err(Fault::Socket(errno)));
                }
            }
            Err(fault) => {
                self.watch.count_end(true);
                self.tally.failed(self.window, intended, fault);
                pace.ended(started, true);
            }
        }
    }

    fn watch_socket(&mut self, key: Key) -> Result<(), Errno> {
        let Some(entry) = self.connections.get_mut(key) else {
            return Ok(());
        };
        epoll::add(
            &self.epoll,
            &entry.connection,
            EventData::new_u64(key.to_u64()),
            flags(entry.interest),
        )
    }

    /// Does what a socket is ready for; says whether that was anything.
    fn look_at(&mut self, pace: &mut Pace, event: &Event) -> bool {
        let key = Key::from_u64(event.data.u64());
        // Its connection may have ended earlier in this turn.
        let Some(entry) = self.connections.get_mut(key) else {
            return true;
        };
        // An error must be read for what it is; a close alone need not be read.
        let happened = event.flags;
        let closed = happened.contains(EventFlags::RDHUP) && !happened.contains(EventFlags::ERR);
        let was_away = entry.connection.is_away();
        let lane = self.lanes.as_mut().map(|lanes| lanes.lane(key));
        let step = entry
            .connection
            .ready(&self.recipe, closed, &mut self.scratch, lane);
        self.follow(pace, key, step);
        !was_away
    }

    /// Goes on with the connections that the engine has answered; says whether there were any.
    fn resume_woken(&mut self, pace: &mut Pace) -> bool {
        let Some(lanes) = &mut self.lanes else {
            return false;
        };
        let mut woken = std::mem::take(&mut self.woken);
        lanes.take_woken(&mut woken);
        let any = !woken.is_empty();
        for index in woken.drain(..) {
            let Some(key) = self.connections.key_at(index) else {
                continue;
            };
            let (Some(entry), Some(lanes)) = (self.connections.get_mut(key), &mut self.lanes)
            else {
                continue;
            };
            if entry.connection.is_away() {
                let lane = lanes.lane(key);
                let step = entry
                    .connection
                    .resume(&self.recipe, &mut self.scratch, lane);
                self.follow(pace, key, step);
            }
        }
        self.woken = woken;
        any
    }

    /// Does as a connection says.
    fn follow(&mut self, pace: &mut Pace, key: Key, step: Step) {
        let Some(entry) = self.connections.get_mut(key) else {
            return;
        };
        match step {
            Step::Suspended => {}
            Step::Wait(interest) => {
                if interest != entry.interest {
                    entry.interest = interest;
                    let data = EventData::new_u64(key.to_u64());
                    let changed =
                        epoll::modify(&self.epoll, &entry.connection, data, flags(interest));
                    if let Err(errno) = changed {
                        self.end(pace, key, Err(Fault::Socket(errno)));
                        return;
                    }
                }
                if entry.connection.is_closing() && !entry.lingering {
                    entry.lingering = true;
                    self.lingers
                        .push_back((Instant::now() + PATIENCE_FOR_CLOSE, key));
                }
            }
            Step::Ended(outcome) => self.end(pace, key, outcome),
        }
    }

    fn end(&mut self, pace: &mut Pace, key: Key, outcome: Result<(), Fault>) {
        if let Some(entry) = self.connections.remove(key) {
            self.judge(pace, entry.connection, outcome);
        }
    }

    fn judge(&mut self, pace: &mut Pace, connection: Connection, outcome: Result<(), Fault>) {
        let failed = outcome.is_err();
        self.watch.count_end(failed);
        pace.ended(Instant::now(), failed);
        match outcome {
            Ok(()) => {
                self.tally.succeeded(self.window, &connection);
                connection.finish(self.recipe.close);
            }
            Err(fault) => {
                // An alert of ours may be on its way to the server: a reset would overtake it.
                let close = match fault {
                    Fault::Tls(_) | Fault::Certificate(_) => Close::Fin,
                    _ => self.recipe.close,
                };
                self.tally.failed(self.window, connection.intended, fault);
                connection.finish(close);
            }
        }
    }

    /// Ends what took too long.
    fn expire(&mut self, pace: &mut Pace, now: Instant) {
        while let Some((_, key)) = self.deadlines.pop_front_if(|(by, _)| *by <= now) {
            let Some(entry) = self.connections.get_mut(key) else {
                continue;
            };
            if entry.connection.is_closing() || entry.connection.is_held() {
                continue;
            }
            let stage = entry.connection.stage();
            self.end(pace, key, Err(Fault::Timeout(stage)));
        }
        while let Some((_, key)) = self.lingers.pop_front_if(|(by, _)| *by <= now) {
            if let Some(entry) = self.connections.remove(key) {
                self.tally.unclosed += 1;
                self.watch.count_end(false);
                self.tally.succeeded(self.window, &entry.connection);
                pace.ended(now, false);
                entry.connection.finish(Close::Reset);
            }
        }
        // What ended long ago need not wait here for its deadline to be forgotten.
        while let Some((_, key)) = self.deadlines.front()
            && self.connections.get_mut(*key).is_none()
        {
            self.deadlines.pop_front();
        }
        while let Some((_, key)) = self.lingers.front()
            && self.connections.get_mut(*key).is_none()
        {
            self.lingers.pop_front();
        }
    }

    /// How long epoll may wait.
    fn patience(&self, pace: &Pace, now: Instant) -> Timespec {
        let mut until = now + LONGEST_WAIT;
        if now < self.window.from {
            until = until.min(self.window.from);
        }
        if now < self.window.to {
            until = until.min(self.window.to);
            if self.connections.len() < self.most && self.starts_left > 0 {
                until = pace.next_due(now).map_or(until, |due| until.min(due));
            }
        }
        for queue in [&self.deadlines, &self.lingers] {
            until = queue.front().map_or(until, |(by, _)| until.min(*by));
        }
        let wait = until.saturating_duration_since(now);
        Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        }
    }

    /// Held connections have done their duty when the window closes.
    fn release_held(&mut self) {
        if self.recipe.after != After::Hold {
            return;
        }
        for key in self.connections.keys() {
            if let Some(entry) = self.connections.get_mut(key)
                && entry.connection.is_held()
                && let Some(entry) = self.connections.remove(key)
            {
                self.succeed_early(entry);
            }
        }
    }

    fn succeed_early(&mut self, entry: Entry) {
        self.watch.count_end(false);
        self.tally.succeeded(self.window, &entry.connection);
        entry.connection.finish(Close::Reset);
    }

    /// Accounts for what is left when the loop ends.
    fn wind_up(&mut self, pace: &mut Pace) {
        for entry in self.connections.drain().collect::<Vec<_>>() {
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
        if let Pace::Open(_) = pace {
            while let Some(due) = pace.take_due(self.window.to)
                && due < self.window.to
            {
                if self.window.contains(due) {
                    self.tally.not_started += 1;
                }
            }
        }
    }
}

/// Reads this thread's clocks at both ends of the window.
#[derive(Debug, Default)]
struct Meter {
    from: Option<Reading>,
    to: Option<Reading>,
}

/// What a thread has had of its CPU so far.
#[derive(Clone, Copy, Debug)]
struct Reading {
    used: Duration,
    /// Ready to run, without a CPU; `None` where the kernel keeps no such account.
    waited: Option<Duration>,
}

impl Meter {
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
        let waited = to
            .waited
            .zip(from.waited)
            .map(|(to, from)| to.saturating_sub(from));
        (to.used.saturating_sub(from.used), waited)
    }
}

impl Reading {
    fn now() -> Self {
        let used = clock_gettime(ClockId::ThreadCPUTime);
        // Three numbers: nanoseconds on a CPU, nanoseconds waiting for one, time slices.
        let waited = std::fs::read_to_string("/proc/thread-self/schedstat")
            .ok()
            .and_then(|text| {
                text.split_ascii_whitespace()
                    .nth(1)?
                    .parse()
                    .ok()
                    .map(Duration::from_nanos)
            });
        Self {
            used: Duration::new(used.tv_sec as u64, used.tv_nsec as u32),
            waited,
        }
    }
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Read => EventFlags::IN | EventFlags::RDHUP,
        Interest::ReadWrite => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
        Interest::Close => EventFlags::RDHUP,
    }
}

/// Whether there is anything at the sockets.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// Stops are noticed this soon.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// How long a server may take to close after our close_notify before we do.
const PATIENCE_FOR_CLOSE: Duration = Duration::from_secs(1);
const STARTS_A_TURN: usize = 16;
const EVENTS_A_TURN: usize = 256;
const PREALLOCATED: usize = 1024;
