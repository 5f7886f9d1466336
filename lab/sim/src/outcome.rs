//! Outcome of a run.

use hdrhistogram::Histogram;
use widelane_text::named;

use crate::core::{Account, CYCLE};
use crate::plan::Plan;

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The run's name.
    pub run: String,
    /// Simulated seconds that count.
    pub seconds: f64,
    /// Requests that came, from the beginning.
    pub arrived: u64,
    /// Requests that were answered, from the beginning.
    pub answered: u64,
    /// Requests that are not answered at the end.
    pub waiting: u64,
    /// Requests answered in the seconds that count.
    pub finished: u64,
    /// Events that were simulated.
    pub events: u64,
    /// Cycles that threads took up, from the beginning.
    pub cycles_begun: f64,
    /// Cycles of these that were done after the warm-up.
    pub cycles_done: f64,
    /// Cycles of these that are not done at the end.
    pub cycles_left: f64,
    /// Shared passes, and the requests in them.
    pub passes: (u64, u64),
    /// Each core.
    pub cores: Vec<CoreOutcome>,
    wide_share: Option<f64>,
    requests: Latencies,
    steps: Latencies,
}

/// Times of one core, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct CoreOutcome {
    /// Busy, by level.
    pub busy: [f64; 3],
    /// Throttled on the way to another level, while busy.
    pub throttled: f64,
    /// Halted on the way to another level, while busy.
    pub halted: f64,
    /// The mean clock while busy and not halted, in GHz.
    pub ghz: Option<f64>,
}

named! {
    /// A figure of an outcome.
    #[derive(PartialOrd, Ord)]
    pub enum Figure: "figure" {
        /// Requests a second.
        Throughput = "requests_per_s",
        /// Mean time of a request, in microseconds.
        Mean = "mean_us",
        /// The median time of a request, in microseconds.
        P50 = "p50_us",
        /// 99th percentile of the time of a request, in microseconds.
        P99 = "p99_us",
        /// The median duration of the timed steps, in microseconds.
        StepP50 = "step_p50_us",
        /// The duration that the slowest hundredth of the timed steps exceeds.
        StepP99 = "step_p99_us",
        /// The mean clock of busy cores, in GHz.
        Clock = "clock_ghz",
        /// The share of busy time at level 0, in per cent.
        Level0 = "level0_percent",
        /// Share of busy time at level 1, in per cent.
        Level1 = "level1_percent",
        /// Share of busy time at level 2, in per cent.
        Level2 = "level2_percent",
        /// The share of CPU time in wide code, in per cent.
        Wide = "wide_percent",
        /// Microseconds for which a core halts, for each request.
        Halted = "halted_us",
        /// Microseconds for which a core is throttled, for each request.
        Throttled = "throttled_us",
        /// Requests that share a pass.
        Lanes = "lanes_filled",
        /// Median time from the first wide instruction to the level that it asks for, in microseconds.
        DownP50 = "down_p50_us",
        /// 95th percentile of the time to that level, in microseconds.
        DownP95 = "down_p95_us",
        /// Median time from the last wide instruction to the end of its level, in microseconds.
        TailP50 = "tail_p50_us",
        /// Mean time to the end of the level, in microseconds.
        TailMean = "tail_mean_us",
        /// The clock at the level that code asks for, in GHz.
        Steady = "steady_ghz",
        /// Clients that are served within their time, in per cent of those that the worker could serve.
        Goodput = "goodput_percent",
        /// Clients that leave for good without an answer, in per cent.
        GaveUp = "gave_up_percent",
    }
}

/// Durations that a run gathers.
#[derive(Default)]
pub(crate) struct Times {
    pub(crate) requests: Latencies,
    pub(crate) steps: Latencies,
}

/// Durations, to three digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
    sum: u128,
}

/// Requests that go through a run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Flow {
    pub(crate) arrived: u64,
    pub(crate) answered: u64,
    pub(crate) finished: u64,
    pub(crate) events: u64,
    pub(crate) passes: u64,
    pub(crate) jobs: u64,
    /// Units that threads took up.
    pub(crate) begun: u128,
    /// Units that threads had to give back undone.
    pub(crate) taken_back: u128,
    /// Units that are left at the end.
    pub(crate) left: u128,
}

impl Outcome {
    pub(crate) fn new(
        plan: &Plan,
        (from, end): (u64, u64),
        accounts: Vec<Account>,
        times: Times,
        flow: Flow,
        waiting: u64,
    ) -> Self {
        let wide: u64 = accounts.iter().map(|account| account.threads_wide).sum();
        let busy: u64 = accounts.iter().map(|account| account.threads_busy).sum();
        let done: u128 = accounts.iter().map(|account| account.done).sum();
        Self {
            run: plan.name.clone(),
            seconds: (end - from) as f64 / 1e9,
            arrived: flow.arrived,
            answered: flow.answered,
            waiting,
            finished: flow.finished,
            events: flow.events,
            cycles_begun: (flow.begun - flow.taken_back) as f64 / CYCLE,
            cycles_done: done as f64 / CYCLE,
            cycles_left: flow.left as f64 / CYCLE,
            passes: (flow.passes, flow.jobs),
            cores: accounts.iter().map(CoreOutcome::new).collect(),
            wide_share: (busy > 0).then(|| wide as f64 / busy as f64),
            requests: times.requests,
            steps: times.steps,
        }
    }

    /// A figure; `None` if there is nothing to tell it from.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        let sum = |of: fn(&CoreOutcome) -> f64| self.cores.iter().map(of).sum::<f64>();
        let busy = sum(CoreOutcome::busy);
        let level = |level: usize| {
            let at: f64 = self.cores.iter().map(|core| core.busy[level]).sum();
            (busy > 0.0).then(|| at / busy * 100.0)
        };
        let for_each = |seconds: f64| (self.finished > 0).then(|| seconds * 1e6 / self.finished as f64);
        match figure {
            Figure::Throughput => Some(self.finished as f64 / self.seconds),
            Figure::Mean => self.requests.mean(),
            Figure::P50 => self.requests.at(0.5),
            Figure::P99 => self.requests.at(0.99),
            Figure::StepP50 => self.steps.at(0.5),
            Figure::StepP99 => self.steps.at(0.99),
            Figure::Clock => {
                let clocked = |core: &CoreOutcome| core.ghz.unwrap_or(0.0) * (core.busy() - core.halted);
                let ran = busy - sum(|core| core.halted);
                (ran > 0.0).then(|| sum(clocked) / ran)
            }
            Figure::Level0 => level(0),
            Figure::Level1 => level(1),
            Figure::Level2 => level(2),
            Figure::Wide => self.wide_share.map(|share| share * 100.0),
            Figure::Halted => for_each(sum(|core| core.halted)),
            Figure::Throttled => for_each(sum(|core| core.throttled)),
            Figure::Lanes => {
                let (passes, jobs) = self.passes;
                (passes > 0).then(|| jobs as f64 / passes as f64)
            }
            // Figures of transitions, and of impatient clients.
            Figure::DownP50
            | Figure::DownP95
            | Figure::TailP50
            | Figure::TailMean
            | Figure::Steady
            | Figure::Goodput
            | Figure::GaveUp => None,
        }
    }
}

impl CoreOutcome {
    fn new(account: &Account) -> Self {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let busy: u64 = account.busy.iter().sum();
        let ran = busy - account.halted;
        Self {
            busy: account.busy.map(seconds),
            throttled: seconds(account.throttled),
            halted: seconds(account.halted),
            ghz: (ran > 0).then(|| account.clocked as f64 / ran as f64 / 1e6),
        }
    }

    /// Seconds in which it did anything.
    pub fn busy(&self) -> f64 {
        self.busy.iter().sum()
    }
}

impl Default for Latencies {
    fn default() -> Self {
        // Both are within the bounds that the library takes.
        let histogram = Histogram::new_with_max(LONGEST, 3).expect("three digits are allowed");
        Self { histogram, sum: 0 }
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.sum += u128::from(ns);
    }

    /// The quantile in microseconds.
    pub(crate) fn at(&self, share: f64) -> Option<f64> {
        let any = !self.histogram.is_empty();
        any.then(|| self.histogram.value_at_quantile(share) as f64 / 1e3)
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        let count = self.histogram.len();
        (count > 0).then(|| self.sum as f64 / count as f64 / 1e3)
    }
}

/// Nanoseconds: longer than anything that is simulated.
const LONGEST: u64 = 10_000_000_000_000;
