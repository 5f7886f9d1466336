//! Finds the placement that suits a workload on a processor.

use rayon::prelude::*;

use crate::compare::RunFigures;
use crate::error::ScenarioError;
use crate::outcome::Figure;
use crate::placement::Placement;
use crate::plan::{Plan, Settings};
use crate::scenario::{RunText, Scenario};

/// A workload on a processor under every placement that it allows.
#[derive(Clone, Debug)]
pub struct WorkloadAdvice {
    /// The processor.
    pub model: String,
    /// Physical cores of the processor.
    pub cores: usize,
    /// The run of the scenario that was taken: the one with the most wide code.
    pub run: String,
    /// The share of CPU time in wide code as it is, in per cent.
    pub wide_percent: f64,
    /// Requests a second as it is.
    pub as_is: f64,
    /// The other placements, the best first.
    pub options: Vec<WorkloadOption>,
}

/// A placement with a number of vector cores.
#[derive(Clone, Debug)]
pub struct WorkloadOption {
    /// The placement.
    pub placement: Placement,
    /// Vector cores; `None` if it has none.
    pub vector_cores: Option<usize>,
    /// Requests a second against those as it is, in per cent.
    pub gain_percent: f64,
    /// The 99th percentile of a request against that as it is, in per cent.
    pub p99_percent: f64,
}

impl Plan {
    /// This plan and the same under every other placement, with numbers of vector cores from 1 to
    /// half of the cores. Placements that the scenario has no figures for are left out.
    pub fn placements(&self) -> Vec<Self> {
        let most = self.machine.cores / 2;
        let counts = (0..).map(|power| 1 << power).take_while(|count| *count <= most);
        let counts: Vec<usize> = counts.collect();
        let mut plans = Vec::new();
        for placement in Placement::ALL {
            let ours = placement == Placement::Widelane;
            let counts = match ours || placement.needs_vector_cores() {
                true => &counts[..],
                false => &[0],
            };
            for &count in counts {
                let mut plan = self.clone();
                plan.transfer.vector_cores = count;
                plans.extend(plan.placed(placement));
            }
        }
        plans
    }

    /// Vector cores, if the placement has any here.
    pub fn vector_cores(&self) -> Option<usize> {
        let has = self.placement.needs_vector_cores() || self.placement == Placement::Widelane;
        has.then_some(self.transfer.vector_cores)
    }
}

impl Scenario {
    /// Advice for the workload of this scenario on a processor.
    ///
    /// # Errors
    ///
    /// When the scenario has no run with requests, or cannot be simulated there.
    pub fn advise(&self, settings: &Settings) -> Result<WorkloadAdvice, ScenarioError> {
        // Lanes are no wide code that is there as it is.
        let served = self.runs.iter().filter(|run| {
            let requests = run.transition.is_none() && run.residency_us.is_none();
            let requests = requests && self.impatient.is_none();
            requests && !run.oracle && run.lanes.is_none()
        });
        // Uses the placement as it is first, so that a run with more vector cores than exist here does not fail.
        let plans = served.map(|run| {
            let as_it_is = RunText {
                placement: Placement::AsIs.name().to_owned(),
                ..run.clone()
            };
            self.plan(&as_it_is, settings)
        });
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let simulated: Vec<RunFigures> = plans.par_iter().map(Plan::figures).collect();
        let of = |run: &RunFigures, figure| run.figures.get(&figure).copied().unwrap_or(0.0);
        let wide = |run: &RunFigures| of(run, Figure::Wide);
        let widest = plans.iter().zip(&simulated);
        // The first of equals wins.
        let widest = widest.reduce(|a, b| if wide(b.1) > wide(a.1) { b } else { a });
        let Some((plan, as_is)) = widest else {
            return Err(ScenarioError::Wrong("the scenario has no run with requests".to_owned()));
        };
        let (base, base_p99) = (of(as_is, Figure::Throughput), of(as_is, Figure::P99));
        let change = |value: f64, base: f64| (value / base.max(1e-9) - 1.0) * 100.0;
        let others = plan.placements();
        let mut options: Vec<_> = (others.into_par_iter())
            .filter(|plan| plan.placement != Placement::AsIs)
            .map(|plan| {
                let run = plan.figures();
                WorkloadOption {
                    placement: plan.placement,
                    vector_cores: plan.vector_cores(),
                    gain_percent: change(of(&run, Figure::Throughput), base),
                    p99_percent: change(of(&run, Figure::P99), base_p99),
                }
            })
            .collect();
        options.sort_by(|a, b| b.gain_percent.total_cmp(&a.gain_percent));
        Ok(WorkloadAdvice {
            model: plan.model().to_owned(),
            cores: plan.cores(),
            run: plan.name.clone(),
            wide_percent: wide(as_is),
            as_is: base,
            options,
        })
    }
}
