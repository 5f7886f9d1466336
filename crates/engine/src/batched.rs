//! Any [`Work`] of `widelane-crypto` as an [`Operation`]: in lanes or alone, by what is cheaper.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use widelane_batching::{self as batching, Clock, NEVER, Width};
use widelane_crypto::{Backend, Work};

use crate::calibration::{self, Price, Table};
use crate::{Operation, Request, core};

/// Serves the requests of a [`Work`].
///
/// How many requests are worth a pass depends on the machine. It is taken from the process's table
/// of [costs](crate::calibration); what is not in there is measured on a thread of its own, a few
/// milliseconds long, once the first request has come, and guessed until then.
pub struct Batched<W> {
    job: Arc<Measured<W>>,
    /// The same in narrower registers, where the width is decided pass by pass.
    narrow: Option<Narrow<W>>,
    /// Whether somebody measures already.
    asked: AtomicBool,
}

/// The other way to run a pass, and what decides between the two.
struct Narrow<W> {
    job: Arc<Measured<W>>,
    clock: Clock,
}

/// A work and what its answers cost.
struct Measured<W> {
    work: W,
    choice: Choice,
}

/// Who decides whether requests go to the lanes.
enum Choice {
    /// There is only one way: so many requests are worth a pass.
    Given(usize),
    /// The costs of this machine.
    Costs(Arc<Price>),
}

impl<W: Work> Batched<W> {
    /// Requests go to the lanes, however few they are, or alone if there are no lanes.
    pub fn always(work: W) -> Self {
        let worth = if work.lanes() > 1 { 1 } else { NEVER };
        Self::new(work, Choice::Given(worth))
    }

    /// Requests go to the lanes of `backend`, which `work` was made for, whenever that is cheaper.
    pub fn cheapest(work: W, backend: Backend) -> Self {
        Self::in_table(work, backend, calibration::table())
    }

    /// Lets each pass run in the narrower registers of `work`, which was made for `backend`, where
    /// that costs the core less altogether by `clock`.
    #[must_use]
    pub(crate) fn or_narrow(mut self, work: W, backend: Backend, clock: Clock) -> Self {
        let narrower = Self::cheapest(work, backend);
        if self.job.work.lanes() > 1 && narrower.job.work.lanes() > 1 {
            self.narrow = Some(Narrow {
                job: narrower.job,
                clock,
            });
        }
        self
    }

    fn in_table(work: W, backend: Backend, table: &Arc<Table>) -> Self {
        if work.lanes() <= 1 {
            return Self::always(work);
        }
        let price = table.price(work.name(), backend, work.lanes());
        Self::new(work, Choice::Costs(price))
    }

    fn new(work: W, choice: Choice) -> Self {
        Self {
            job: Arc::new(Measured { work, choice }),
            narrow: None,
            asked: AtomicBool::new(false),
        }
    }

    /// Sees to it that the costs will be known; does not wait for that.
    fn ask(&self) {
        let Choice::Costs(price) = &self.job.choice else {
            return;
        };
        if price.is_known() || self.asked.swap(true, Ordering::Relaxed) {
            return;
        }
        let job = Arc::clone(&self.job);
        let thread = std::thread::Builder::new().name("calibration".to_owned());
        // Without a thread the guess stands.
        if let Err(error) = thread.spawn(move || job.calibrate()) {
            tracing::debug!(%error, "no thread to measure {}", self.job.work.name());
        }
    }
}

impl<W: Work> Measured<W> {
    fn calibrate(&self) {
        if let Choice::Costs(price) = &self.choice {
            price.measure(&self.work);
        }
    }

    /// Nanoseconds for so many requests in passes; `None` as long as nobody has measured.
    fn busy(&self, jobs: usize) -> Option<u64> {
        let Choice::Costs(price) = &self.choice else {
            return None;
        };
        let costs = price.costs()?;
        Some(costs.total(batching::Split {
            in_lanes: jobs,
            alone: 0,
        }))
    }
}

impl<W: Work> Operation for Batched<W>
where
    W::Request: Request<Output = W::Output>,
{
    type Request = W::Request;

    fn name(&self) -> &'static str {
        self.job.work.name()
    }

    fn lanes(&self) -> usize {
        self.job.work.lanes()
    }

    fn takes(&self, request: &W::Request) -> bool {
        self.job.work.takes(request)
    }

    fn worth(&self) -> usize {
        match &self.job.choice {
            Choice::Given(worth) => *worth,
            Choice::Costs(price) => price.worth(),
        }
    }

    fn needs_lanes(&self, request: &W::Request) -> bool {
        self.job.work.needs_lanes(request)
    }

    fn calibrate(&self) {
        self.job.calibrate();
        if let Some(narrow) = &self.narrow {
            narrow.job.calibrate();
        }
    }

    fn width(&self, jobs: usize) -> Width {
        let Some(narrow) = &self.narrow else {
            return Width::Wide;
        };
        let core = core::now();
        match (self.job.busy(jobs), narrow.job.busy(jobs)) {
            (Some(in_wide), Some(in_narrow)) => {
                batching::width(&narrow.clock, &core, in_wide, in_narrow)
            }
            // Not known yet: what harms least.
            _ if core.dedicated => Width::Wide,
            _ => Width::Narrow,
        }
    }

    fn run_in(&self, width: Width, requests: &[W::Request]) -> Vec<W::Output> {
        let Some(narrow) = &self.narrow else {
            return self.run(requests);
        };
        self.ask();
        let outputs = match width {
            Width::Wide => self.job.work.pass(requests),
            Width::Narrow => narrow.job.work.pass(requests),
        };
        core::ran();
        outputs
    }

    fn run(&self, requests: &[W::Request]) -> Vec<W::Output> {
        self.ask();
        self.job.work.pass(requests)
    }

    fn run_alone(&self, request: &W::Request) -> W::Output {
        self.ask();
        self.job.work.alone(request)
    }
}
