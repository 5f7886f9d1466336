//! Plan of an experiment.

use std::path::PathBuf;

use serde_json::Value;
use widelane_handshakes::{Options, Stage};

use crate::error::ExperimentError;
use crate::outcome::Turns;

/// Plan of an experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Programs and CPUs.
    pub options: Options,
    /// Rounds of turns.
    pub rounds: usize,
    /// Seconds of a turn.
    pub seconds: f64,
    /// Folder for records; `None`: no record is written.
    pub records: Option<PathBuf>,
    /// The command line, for the record.
    pub command: String,
}

impl Plan {
    /// The stage of an experiment.
    pub(crate) fn stage(&self) -> Result<Stage, ExperimentError> {
        let mut options = self.options.clone();
        options.conditions = Vec::new();
        Ok(Stage::set(options)?)
    }

    /// Takes a turn of each condition, round by round. One that does not count goes before: the first
    /// after a rest was slow by a quarter.
    pub(crate) fn turns<C>(
        &self,
        conditions: &[C],
        tell: impl Fn(&str),
        mut turn: impl FnMut(&C) -> Result<Value, ExperimentError>,
    ) -> Result<Turns, ExperimentError> {
        if let Some(first) = conditions.first() {
            turn(first)?;
        }
        let mut turns: Vec<_> = conditions.iter().map(|_| Vec::new()).collect();
        for round in 0..self.rounds {
            for (condition, turns) in conditions.iter().zip(&mut turns) {
                turns.push(turn(condition)?);
            }
            tell(&format!("round {} of {}", round + 1, self.rounds));
        }
        Ok(Turns(turns))
    }
}
