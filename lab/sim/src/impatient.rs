//! Clients that leave a server that is too slow for them, and come back.
//!
//! One worker does one handshake after the other, and each takes as long as the scenario's requests do on average, so
//! that its own small loop of events does here instead of cores and licences. Clients arrive at random. One that is not
//! served within its time leaves and tries again later, a few times. The kernel drops connections for which it has no
//! place, and their clients do not notice before their time is over.
//!
//! A server with a wait begins handshakes by the policy of [`widelane_batching`], which it calls in the order in which
//! `apps/terminator/src/front/gate.rs` does. One without begins the oldest first, and does not look whether their clients
//! are still there: what a client sent before it left can be read as ever.

use std::collections::VecDeque;

use widelane_batching::{self as batching, Line, Overload, Place};

use crate::events::Events;
use crate::outcome::{Figure, Latencies};
use crate::plan::Plan;
use crate::random::Random;

/// Clients and their server. All times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Impatient {
    /// Clients that come, as a multiple of those that the worker can serve.
    pub(crate) load: f64,
    pub(crate) patience: u64,
    pub(crate) retries: u32,
    /// Time before the second attempt; doubled for each further one.
    pub(crate) backoff: u64,
    pub(crate) networks: usize,
    /// Time for which handshakes may wait in calm; 0 for a server without the policy.
    pub(crate) wait: u64,
    /// Connections that the worker accepts at once.
    pub(crate) accepts: usize,
    /// Handshakes that have begun or wait, at most: further connections are refused.
    pub(crate) handshakes: usize,
    /// Connections that the kernel queues in calm.
    pub(crate) kernel_queue: usize,
    /// Time of the worker for a handshake.
    pub(crate) cost: u64,
    /// Time of the worker for a connection, in addition to a handshake.
    pub(crate) accept_cost: u64,
    /// Handshakes that fill a pass.
    pub(crate) lanes: usize,
}

/// Figures of a run.
pub(crate) fn figures(plan: &Plan, impatient: &Impatient) -> Vec<(Figure, f64)> {
    let mut world = World::new(plan, impatient);
    world.run();
    let tally = world.tally;
    let rate = tally.served as f64 / plan.seconds;
    let most = 1e9 / impatient.each();
    let ended = tally.served + tally.gave_up;
    let all = [
        (Figure::Throughput, Some(rate)),
        (Figure::Mean, tally.times.mean()),
        (Figure::P50, tally.times.at(0.5)),
        (Figure::P99, tally.times.at(0.99)),
        (Figure::Goodput, Some(rate / most * 100.0)),
        (
            Figure::GaveUp,
            (ended > 0).then(|| tally.gave_up as f64 / ended as f64 * 100.0),
        ),
    ];
    let known = all.into_iter();
    known.filter_map(|(figure, value)| Some((figure, value?))).collect()
}

impl Impatient {
    /// Time of the worker for a client whose first attempt it serves.
    pub(crate) fn each(&self) -> f64 {
        (self.cost + self.accept_cost) as f64
    }
}

struct World<'a> {
    impatient: &'a Impatient,
    now: u64,
    /// Ends of the warm-up and of the run.
    counted: (u64, u64),
    events: Events<Event>,
    random: Random,
    attempts: Vec<Attempt>,
    /// Attempts that the kernel has queued.
    kernel: VecDeque<usize>,
    line: Line<usize, usize>,
    /// `None`: the server has no such policy.
    overload: Option<Overload>,
    /// Attempts whose handshakes begin in this turn of the worker.
    granted: Vec<usize>,
    tally: Tally,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A new client comes.
    Client,
    /// A client that has failed so often tries again.
    Again { network: usize, failed: u32 },
    /// The time of an attempt's client is over.
    Over { attempt: usize },
}

/// A connection of a client.
struct Attempt {
    network: usize,
    /// Attempts of this client before.
    failed: u32,
    began: u64,
    /// Time at which the worker accepted it.
    accepted: u64,
    /// Place of the attempt, if it is in the line.
    place: Option<Place>,
    /// True if it has waited for so long that the worker watches whether the client leaves.
    is_late: bool,
    /// True if its client has left, been refused or been served.
    is_over: bool,
}

/// Clients of the time that counts.
#[derive(Default)]
struct Tally {
    served: u64,
    gave_up: u64,
    times: Latencies,
}

impl<'a> World<'a> {
    fn new(plan: &Plan, impatient: &'a Impatient) -> Self {
        let [warm_up, seconds] = [plan.warm_up, plan.seconds].map(|seconds| (seconds * 1e9) as u64);
        let mut events = Events::default();
        events.plan(0, Event::Client);
        let overload = || Overload::new(0, impatient.wait, MOST_PATIENT);
        Self {
            impatient,
            now: 0,
            counted: (warm_up, warm_up + seconds),
            events,
            random: Random::new(plan.seed),
            attempts: Vec::new(),
            kernel: VecDeque::new(),
            line: Line::new(),
            overload: (impatient.wait > 0).then(overload),
            granted: Vec::new(),
            tally: Tally::default(),
        }
    }

    fn run(&mut self) {
        while self.now < self.counted.1 {
            self.catch_up();
            let is_idle = self.kernel.is_empty() && self.line.is_empty();
            match self.events.next_time().filter(|_| is_idle) {
                Some(next) => self.now = next,
                None => self.turn(),
            }
        }
    }

    // Clients.

    /// Lets clients act until now.
    fn catch_up(&mut self) {
        while self.events.next_time().is_some_and(|time| time <= self.now)
            && let Some((time, event)) = self.events.next()
        {
            match event {
                Event::Client => {
                    let mean = self.impatient.each() / self.impatient.load;
                    let next = self.random.exponential(mean);
                    self.events.plan(time + next as u64, Event::Client);
                    let network = self.random.share() * self.impatient.networks as f64;
                    self.connect(time, network as usize, 0);
                }
                Event::Again { network, failed } => self.connect(time, network, failed),
                Event::Over { attempt } => self.over(time, attempt),
            }
        }
    }

    fn connect(&mut self, time: u64, network: usize, failed: u32) {
        let attempt = self.attempts.len();
        self.attempts.push(Attempt {
            network,
            failed,
            began: time,
            accepted: 0,
            place: None,
            is_late: false,
            is_over: false,
        });
        let over = time + self.impatient.patience;
        self.events.plan(over, Event::Over { attempt });
        let queued = match self.is_overloaded() {
            true => self.worth_queueing(Overload::QUEUED_TARGETS),
            false => self.impatient.kernel_queue,
        };
        if self.kernel.len() < queued {
            self.kernel.push_back(attempt);
        }
    }

    fn over(&mut self, time: u64, attempt: usize) {
        if self.fail(time, attempt) && self.attempts[attempt].is_late {
            self.leave(attempt);
        }
    }

    /// A client sees that an attempt has failed. Returns whether it was still there.
    fn fail(&mut self, time: u64, attempt: usize) -> bool {
        let Attempt {
            network,
            failed,
            is_over,
            ..
        } = &mut self.attempts[attempt];
        if std::mem::replace(is_over, true) {
            return false;
        }
        if *failed == self.impatient.retries {
            self.tally.gave_up += u64::from(time >= self.counted.0);
            return true;
        }
        let wait = (self.impatient.backoff << *failed) as f64;
        let wait = wait * (0.5 + self.random.share() / 2.0);
        let again = Event::Again {
            network: *network,
            failed: *failed + 1,
        };
        self.events.plan(time + wait as u64, again);
        true
    }

    // The worker.

    /// A turn of the event loop: accepts, looks who may begin, and does these handshakes.
    fn turn(&mut self) {
        for _ in 0..self.impatient.accepts {
            if self.is_full() {
                break;
            }
            let Some(attempt) = self.kernel.pop_front() else {
                break;
            };
            self.enter(attempt);
        }
        self.look();
        for attempt in std::mem::take(&mut self.granted) {
            self.shake(attempt);
            self.catch_up();
        }
    }

    /// An accepted connection begins at once, waits in the line, or is refused.
    fn enter(&mut self, attempt: usize) {
        self.now += self.impatient.accept_cost;
        let (now, most) = (self.now, self.most());
        let state = &mut self.attempts[attempt];
        state.accepted = now;
        if self.granted.len() + self.line.len() >= self.impatient.handshakes {
            return self.refuse(attempt);
        }
        if let Some(overload) = &mut self.overload {
            overload.arrived();
        }
        if self.line.is_empty() && self.granted.len() < most {
            self.granted.push(attempt);
        } else {
            state.place = Some(self.line.push(now, state.network, attempt));
        }
    }

    fn look(&mut self) {
        let now = self.now;
        if let Some(overload) = &mut self.overload {
            let oldest = match overload.is_on() {
                true => self.line.oldest_fresh(),
                false => self.line.oldest(),
            };
            overload.look(now, oldest.map(|since| now - since));
            if overload.is_on() {
                let lost = now.saturating_sub(overload.patience());
                self.age(now.saturating_sub(self.late()));
                while self.line.oldest().is_some_and(|since| since < lost)
                    && let Some((_, attempt)) = self.line.pop_oldest()
                {
                    self.attempts[attempt].place = None;
                    self.refuse(attempt);
                }
            }
        }
        while self.granted.len() < self.most() {
            let next = match self.is_overloaded() {
                true => self.line.pop_fresh(self.worth_queueing(1)),
                false => self.line.pop_oldest(),
            };
            let Some((_, attempt)) = next else { break };
            self.attempts[attempt].place = None;
            self.granted.push(attempt);
        }
    }

    /// Watches the clients of those that arrived before `since`.
    fn age(&mut self, since: u64) {
        let mut late = Vec::new();
        self.line.age(since, |attempt| late.push(*attempt));
        for attempt in late {
            self.attempts[attempt].is_late = true;
            if self.attempts[attempt].is_over {
                self.leave(attempt);
            }
        }
    }

    fn shake(&mut self, attempt: usize) {
        if self.is_known_to_be_gone(attempt) {
            return self.gone(attempt);
        }
        if let Some(overload) = &mut self.overload {
            overload.served();
        }
        self.now += self.impatient.cost;
        let Attempt { began, is_over, .. } = &mut self.attempts[attempt];
        let took = self.now - *began;
        // Its answer comes too late for a client that has left meanwhile.
        if !*is_over && took <= self.impatient.patience {
            *is_over = true;
            if self.now >= self.counted.0 {
                self.tally.served += 1;
                self.tally.times.record(took);
            }
        }
    }

    /// The client of one that waits in the line has left.
    fn leave(&mut self, attempt: usize) {
        if let Some(place) = self.attempts[attempt].place.take() {
            self.line.remove(place);
            self.gone(attempt);
        }
    }

    /// Closes a connection, and its client sees that at once.
    fn refuse(&mut self, attempt: usize) {
        if self.is_known_to_be_gone(attempt) {
            return self.gone(attempt);
        }
        self.fail(self.now, attempt);
    }

    fn gone(&mut self, attempt: usize) {
        let wait = self.now - self.attempts[attempt].accepted;
        if let Some(overload) = &mut self.overload {
            overload.gave_up(wait);
        }
    }

    /// Returns whether the worker has looked, and the client has left.
    fn is_known_to_be_gone(&self, attempt: usize) -> bool {
        let state = &self.attempts[attempt];
        let looks = self.overload.is_some() && self.now - state.accepted > self.late();
        looks && state.is_over
    }

    fn is_overloaded(&self) -> bool {
        self.overload.as_ref().is_some_and(Overload::is_on)
    }

    fn is_full(&self) -> bool {
        self.is_overloaded() && self.line.fresh() >= self.worth_queueing(1)
    }

    /// Connections that are worth a place, if they wait for this number of targets at most.
    fn worth_queueing(&self, targets: u64) -> usize {
        batching::worth_queueing(self.impatient.cost, self.impatient.wait * targets)
    }

    /// The most handshakes that may be under way.
    fn most(&self) -> usize {
        let look = match self.is_overloaded() {
            true => Overload::LOOK,
            false => Overload::CALM_LOOK,
        };
        batching::under_way(self.impatient.cost, look, self.impatient.lanes)
    }

    fn late(&self) -> u64 {
        batching::late(self.impatient.cost, self.impatient.wait)
    }
}

/// Patience of clients that a server assumes until one gives up: its own limit of a handshake.
const MOST_PATIENT: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::{BUILTIN, Figure, Scenario, Settings};

    fn scenario() -> Scenario {
        let mut builtin = BUILTIN.iter();
        let found = builtin.find(|(name, _)| *name == "impatient-clients");
        let text = found.expect("it is builtin").1;
        // Less time than the scenario takes.
        let text = text.replace("seconds = 30\nwarm-up = 10", "seconds = 8\nwarm-up = 5");
        Scenario::parse(&text).expect("a scenario")
    }

    /// Figures of a server at a load.
    fn figures(server: &str, load: f64, set: &[(&str, f64)]) -> BTreeMap<Figure, f64> {
        let scenario = scenario();
        let mut runs = scenario.runs.iter();
        let run = runs.find(|run| run.name.starts_with(server));
        let set = set.iter().copied().chain([("load", load)]);
        let settings = Settings {
            set: set.map(|(name, value)| (name.to_owned(), value)).collect(),
            ..Settings::default()
        };
        let plan = scenario.plan(run.expect("runs of the server"), &settings);
        plan.expect("a plan").figures().figures
    }

    fn goodput(server: &str, load: f64, set: &[(&str, f64)]) -> f64 {
        figures(server, load, set)[&Figure::Goodput]
    }

    #[test]
    fn in_calm_every_server_serves_all_clients_alike() {
        let all = SERVERS.map(|server| figures(server, 0.7, &[]));
        for one in &all {
            assert_eq!(one[&Figure::GaveUp], 0.0);
            for (figure, value) in one {
                let other = all[0][figure];
                // Who accepts many at once begins the first of them a little later.
                assert!((value - other).abs() <= 0.03 * other, "{figure:?}: {all:?}");
            }
        }
    }

    /// Kleinrock, Queueing Systems (1975), chapter 5: in M/D/1 the wait is rho / (2 mu (1 - rho)).
    #[test]
    fn a_worker_that_accepts_one_at_a_time_is_an_md1_queue() {
        for rho in [0.3, 0.6] {
            let set = [("accept_us", 0.0), ("clock_ghz", CLOCK_GHZ)];
            let found = figures("a queue of 511", rho, &set)[&Figure::Mean];
            let known = SERVICE_US * (1.0 + rho / (2.0 * (1.0 - rho)));
            assert!((found / known - 1.0).abs() < 0.03, "{found} is not {known}");
        }
    }

    #[test]
    fn with_the_policy_nearly_all_of_the_worker_serves_clients_at_any_load() {
        for load in [2.0, 3.0, 10.0] {
            for networks in [1.0, 1000.0] {
                let set = [("networks", networks)];
                let found = figures("with the policy", load, &set);
                assert!(found[&Figure::Goodput] >= 90.0, "{load}: {found:?}");
                assert!(found[&Figure::P50] <= 100_000.0, "{load}: {found:?}");
                // The others find no place, or are not worth one.
                let lost = (1.0 - 1.0 / load) * 100.0;
                assert!((found[&Figure::GaveUp] - lost).abs() < 5.0, "{found:?}");
            }
        }
    }

    #[test]
    fn a_queue_that_takes_longer_than_clients_wait_serves_none() {
        for load in [2.0, 3.0] {
            assert!(goodput("without it", load, &[]) < 50.0);
            // 511 handshakes take a little longer than half a second.
            assert!(goodput("a queue of 511", load, &[]) >= 90.0);
            let hasty = [("patience_ms", 500.0)];
            assert!(goodput("a queue of 511", load, &hasty) < 50.0);
            assert!(goodput("with the policy", load, &hasty) >= 90.0);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let with = |seed| figures("with the policy", 2.0, &[("seed", seed)]);
        assert_eq!(with(1.0), with(1.0));
        assert_ne!(with(1.0), with(2.0));
    }

    #[test]
    fn mistakes_are_named() {
        for (name, value, says) in [
            ("load", 0.0, "load is 0"),
            ("retries", 11.0, "retries is 11; take up to 10"),
            ("patience_ms", 1e7, "patience-ms is more than an hour"),
            ("kernel_queue", 0.0, "it must be at least 1"),
        ] {
            let scenario = scenario();
            let settings = Settings {
                set: [(name.to_owned(), value)].into(),
                ..Settings::default()
            };
            let mut run = scenario.runs[0].clone();
            run.set.clear();
            let message = scenario.plan(&run, &settings).expect_err("a mistake");
            assert!(message.to_string().contains(says), "{message}");
        }
        let mut scenario = scenario();
        scenario.load.rate = Some(crate::scenario::Value::Number(1.0));
        let message = scenario.plan(&scenario.runs[0], &Settings::default());
        let message = message.expect_err("a mistake").to_string();
        assert!(message.contains("neither connections nor rate"), "{message}");
    }

    const SERVERS: [&str; 3] = ["with the policy", "without it", "a queue of 511"];
    /// A fast worker has many clients in little time.
    const CLOCK_GHZ: f64 = 50.0;
    const SERVICE_US: f64 = 50.04;
}
