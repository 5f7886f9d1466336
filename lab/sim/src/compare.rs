//! Whole scenarios: every run, and published numbers beside simulated ones.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::ScenarioError;
use crate::outcome::{CoreOutcome, Figure};
use crate::placement::Placement;
use crate::plan::{Plan, Settings};
use crate::scenario::{NumberText, Scenario};
use crate::server::simulate;
use crate::transition;

/// The figures of one run of a scenario.
#[derive(Clone, Debug)]
pub struct RunFigures {
    /// The run's name.
    pub run: String,
    /// Where its wide work runs.
    pub placement: Placement,
    /// The processor.
    pub model: String,
    /// What is known of it.
    pub figures: BTreeMap<Figure, f64>,
    /// What each core did; empty for transitions.
    pub cores: Vec<CoreOutcome>,
    /// Simulated seconds that count.
    pub seconds: f64,
    /// Events that were simulated.
    pub events: u64,
}

/// A published number beside the simulated one; as JSON, a line of `widelane-lab simulate --all`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The scenario.
    pub scenario: String,
    /// What the number says.
    pub what: String,
    /// As published.
    pub published: f64,
    /// As simulated.
    pub simulated: f64,
    /// Simulated less published.
    pub error: f64,
    /// How large the error may be.
    pub tolerance: f64,
    /// Whether no parameter was chosen with it in view.
    pub held_out: bool,
    /// Why the tolerance cannot be met.
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

    /// Whether the error is within its tolerance.
    pub fn is_met(&self) -> bool {
        // Decimal fractions of the files are not exact.
        self.error.abs() <= self.tolerance + 1e-9
    }

    /// Whether it is met, or said in numbers why it cannot be.
    pub fn is_answered(&self) -> bool {
        self.is_met() || self.explanation.is_some()
    }
}

impl Plan {
    /// Simulates the run, or measures its transitions.
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
    /// Every run, in the order of the file; several at a time.
    ///
    /// # Errors
    ///
    /// When one cannot be simulated.
    pub fn figures(&self, settings: &Settings) -> Result<Vec<RunFigures>, ScenarioError> {
        let plans: Result<Vec<_>, _> = (self.runs.iter())
            .map(|run| self.plan(run, settings))
            .collect();
        Ok(plans?.par_iter().map(Plan::figures).collect())
    }

    /// The published numbers beside the simulated ones. `name` is the scenario's.
    ///
    /// # Errors
    ///
    /// When a number names a figure that its run does not have.
    pub fn compare(
        &self,
        name: &str,
        runs: &[RunFigures],
    ) -> Result<Vec<Comparison>, ScenarioError> {
        let compared = self.numbers.iter().map(|number| {
            let simulated = simulated(number, runs)?;
            Ok(Comparison::of(name, number, simulated))
        });
        compared.collect()
    }
}

fn simulated(number: &NumberText, runs: &[RunFigures]) -> Result<f64, ScenarioError> {
    let figure = Figure::named(&number.figure)?;
    let of = |name: &str| {
        let run = runs.iter().find(|run| run.run == name);
        let value = run.and_then(|run| run.figures.get(&figure));
        value.copied().ok_or_else(|| {
            ScenarioError::Wrong(format!("the run {name:?} has no figure {}", figure.name()))
        })
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
