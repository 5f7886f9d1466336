//! Whole scenarios: every run, and published numbers beside simulated ones.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::ScenarioError;
use crate::impatient;
use crate::outcome::{CoreOutcome, Figure};
use crate::placement::Placement;
use crate::plan::{Plan, Settings};
use crate::scenario::{NumberText, RunText, Scenario};
use crate::server::simulate;
use crate::transition;

/// The figures of one run of a scenario.
#[derive(Clone, Debug)]
pub struct RunFigures {
    /// The run's name.
    pub run: String,
    /// Place where the run's wide work runs.
    pub placement: Placement,
    /// The processor.
    pub model: String,
    /// Figures of the run.
    pub figures: BTreeMap<Figure, f64>,
    /// Outcome of each core; empty for transitions.
    pub cores: Vec<CoreOutcome>,
    /// Simulated seconds that count.
    pub seconds: f64,
    /// Events that were simulated.
    pub events: u64,
}

/// Gain of lanes on a processor under a load, net of the clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The run with AWS-LC alone.
    pub base: String,
    /// The run in lanes that serves most: it names target and place.
    pub best: String,
    /// The processor.
    pub model: String,
    /// Requests a second against those of `base`, in per cent.
    pub gain_percent: f64,
    /// 99th percentile against that of `base`, in per cent.
    pub p99_percent: f64,
}

/// A published number beside the simulated one; as JSON, a line of `widelane-lab simulate --all`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The scenario.
    pub scenario: String,
    /// Meaning of the number.
    pub what: String,
    /// Published number.
    pub published: f64,
    /// Simulated number.
    pub simulated: f64,
    /// Simulated less published.
    pub error: f64,
    /// Greatest error that is allowed.
    pub tolerance: f64,
    /// True if no parameter was chosen with the number in view.
    pub held_out: bool,
    /// Reason why the tolerance cannot be met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

impl Comparison {
    /// A number of a scenario beside what was simulated.
    pub fn of(scenario: &str, number: &NumberText, simulated: f64) -> Self {
        Self {
            scenario: scenario.to_owned(),
            what: number.what.clone(),
            published: number.published,
            simulated,
            error: simulated - number.published,
            tolerance: number.tolerance,
            held_out: number.held_out,
            explanation: number.explanation.clone(),
        }
    }

    /// Returns whether the error is within its tolerance.
    pub fn is_met(&self) -> bool {
        // Decimal fractions of the files are not exact.
        self.error.abs() <= self.tolerance + 1e-9
    }

    /// Returns whether the number is met, or an explanation gives the reason in numbers.
    pub fn is_answered(&self) -> bool {
        self.is_met() || self.explanation.is_some()
    }
}

impl Plan {
    /// Simulates the run with its cores or its impatient clients, or measures its transitions.
    pub fn figures(&self) -> RunFigures {
        let mut run = RunFigures {
            run: self.name.clone(),
            placement: self.placement,
            model: self.machine.model.clone(),
            figures: BTreeMap::new(),
            cores: Vec::new(),
            seconds: 0.0,
            events: 0,
        };
        if let Some(transition) = self.transition {
            run.figures.extend(transition::figures(self, transition));
            return run;
        }
        if let Some(impatient) = &self.impatient {
            run.figures.extend(impatient::figures(self, impatient));
            run.seconds = self.seconds;
            return run;
        }
        let outcome = simulate(self);
        let known = Figure::ALL.into_iter();
        let known = known.filter_map(|figure| Some((figure, outcome.figure(figure)?)));
        run.figures.extend(known);
        run.seconds = outcome.seconds;
        run.events = outcome.events;
        run.cores = outcome.cores;
        run
    }
}

impl Scenario {
    /// Every run, in the order of the file; several at a time. Runs in lanes are left out on a processor of the
    /// operator's choice that lacks them.
    ///
    /// # Errors
    ///
    /// When one cannot be simulated.
    pub fn figures(&self, settings: &Settings) -> Result<Vec<RunFigures>, ScenarioError> {
        let is_own = settings.model.is_none();
        let plans: Result<Vec<_>, _> = (self.runs.iter())
            .map(|run| self.plan(run, settings))
            .filter(|plan| is_own || !matches!(plan, Err(ScenarioError::NoLanes(_))))
            .collect();
        Ok(plans?.par_iter().map(Plan::figures).collect())
    }

    /// The runs that its published numbers need.
    pub fn keep_compared(&mut self) {
        let numbers = &self.numbers;
        self.runs.retain(|run| {
            numbers.iter().any(|number| {
                let others = [&number.against, &number.times].into_iter().flatten();
                others.chain([&number.run]).any(|name| *name == run.name)
            })
        });
    }

    /// Gains of lanes: for each processor and load, the best of the runs in lanes against AWS-LC.
    pub fn gains(&self, figures: &[RunFigures]) -> Vec<Gain> {
        let simulated = |run: &RunText| figures.iter().find(|one| one.run == run.name);
        let all = self.runs.iter().filter(|run| run.lanes.is_some());
        let all: Vec<_> = all.filter_map(|run| Some((run, simulated(run)?))).collect();
        let of = |run: &RunFigures, figure| run.figures.get(&figure).copied();
        let rate = |run: &RunFigures| of(run, Figure::Throughput).unwrap_or(0.0);
        let gain = |(base, alone): &(&RunText, &RunFigures)| {
            let same = all.iter().filter(|(run, one)| {
                let load = (&run.model, &run.set) == (&base.model, &base.set);
                load && one.placement == Placement::Widelane
            });
            let (best, in_lanes) = same.max_by(|a, b| rate(a.1).total_cmp(&rate(b.1)))?;
            let change = |figure| Some((of(in_lanes, figure)? / of(alone, figure)? - 1.0) * 100.0);
            Some(Gain {
                base: base.name.clone(),
                best: best.name.clone(),
                model: in_lanes.model.clone(),
                gain_percent: change(Figure::Throughput)?,
                p99_percent: change(Figure::P99)?,
            })
        };
        let bases = all.iter().filter(|(_, one)| one.placement == Placement::AvxOff);
        bases.filter_map(gain).collect()
    }

    /// The published numbers beside the simulated ones. `name` is the scenario's.
    ///
    /// # Errors
    ///
    /// When a number names a figure that its run does not have.
    pub fn compare(&self, name: &str, runs: &[RunFigures]) -> Result<Vec<Comparison>, ScenarioError> {
        let compared = self.numbers.iter().map(|number| {
            let simulated = simulated(number, runs)?;
            Ok(Comparison::of(name, number, simulated))
        });
        compared.collect()
    }
}

fn simulated(number: &NumberText, runs: &[RunFigures]) -> Result<f64, ScenarioError> {
    let figure: Figure = number.figure.parse().map_err(ScenarioError::Wrong)?;
    let of = |name: &str| {
        let run = runs.iter().find(|run| run.run == name);
        let value = run.and_then(|run| run.figures.get(&figure));
        value
            .copied()
            .ok_or_else(|| ScenarioError::Wrong(format!("the run {name:?} has no figure {}", figure.name())))
    };
    let value = of(&number.run)?;
    match (&number.against, &number.times) {
        (None, None) => Ok(value),
        (Some(against), None) => Ok((value / of(against)? - 1.0) * 100.0),
        (None, Some(times)) => Ok(value / of(times)?),
        (Some(_), Some(_)) => Err(ScenarioError::Wrong(format!(
            "the number {:?} has both `against` and `times`",
            number.what
        ))),
    }
}
