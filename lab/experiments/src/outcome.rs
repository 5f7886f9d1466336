//! What experiments under a brake have in common: turns as this CPU is, predictions from them, turns
//! under the brake, and a record.

use std::path::PathBuf;

use serde_json::{Value, json};
use widelane_handshakes::{Record, Stage};

use crate::error::ExperimentError;
use crate::interval::Interval;
use crate::plan::Plan;

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As this CPU is. The first row is what the others are compared with.
    pub native: Vec<Row>,
    /// Under the brake, in the same order; empty without one.
    pub braked: Vec<Row>,
    /// The record.
    pub record: Option<PathBuf>,
}

/// One condition.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which one.
    pub condition: String,
    /// Requests a second.
    pub rate: Interval,
    /// Against the first condition in the same round, in per cent.
    pub change: Interval,
    /// How much requests in twentieths of a second vary, where they were counted: from the 5th to the
    /// 95th percentile, in per cent of the median.
    pub variation: Option<Interval>,
    /// What the simulator says of the change, from the native turns, before those under the brake.
    pub predicted: Option<f64>,
    /// What was published of it.
    pub published: Option<f64>,
}

/// An experiment's name, its scenario for the simulator, and its conditions: name and published change.
pub(crate) struct Design {
    pub(crate) name: &'static str,
    pub(crate) scenario: &'static str,
    pub(crate) conditions: Vec<(String, Option<f64>)>,
}

/// What each turn gave, by condition and round: objects with `requests_per_s` at least.
pub(crate) struct Turns(pub(crate) Vec<Vec<Value>>);

impl Design {
    /// Takes the turns as this CPU is, and under the brake of a model if one is named.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        stage: &Stage,
        brake: Option<&str>,
        mut take: impl FnMut(Option<&str>) -> Result<Turns, ExperimentError>,
        predict: impl FnOnce(&str, &Turns) -> Result<Vec<Option<f64>>, ExperimentError>,
        tell: impl Fn(&str),
    ) -> Result<Outcome, ExperimentError> {
        let what = match brake {
            Some(model) => format!("experiment {} as {model}", self.name),
            None => format!("experiment {}", self.name),
        };
        let begin = |folder| Record::begin(stage, folder, &what, &plan.command);
        let record = plan.records.as_deref().map(begin).transpose()?;
        tell("starts as this CPU is");
        let native = take(None)?;
        let rows = self.rows(&native, &vec![None; self.conditions.len()]);
        let mut parts = vec![("as this CPU is".to_owned(), native, rows)];
        if let Some(model) = brake {
            let predicted = predict(model, &parts[0].1)?;
            for ((name, _), change) in self.conditions.iter().zip(&predicted).skip(1) {
                if let Some(change) = change {
                    tell(&format!(
                        "the simulator predicts for {name}: {change:+.1} %"
                    ));
                }
            }
            tell(&format!("starts as a {model}"));
            let braked = take(Some(model))?;
            let rows = self.rows(&braked, &predicted);
            parts.push((format!("as a {model}"), braked, rows));
        }
        let record = match record {
            None => None,
            Some((mut record, _)) => {
                for (machine, turns, rows) in &parts {
                    self.write(&mut record, machine, turns, rows)?;
                }
                Some(record.end("")?)
            }
        };
        let mut rows = parts.into_iter().map(|(_, _, rows)| rows);
        Ok(Outcome {
            native: rows.next().unwrap_or_default(),
            braked: rows.next().unwrap_or_default(),
            record,
        })
    }

    fn rows(&self, turns: &Turns, predicted: &[Option<f64>]) -> Vec<Row> {
        let base = turns.values(0, RATE);
        let rows = self.conditions.iter().zip(predicted).enumerate();
        rows.filter_map(|(index, ((condition, published), predicted))| {
            let rates = turns.values(index, RATE);
            Some(Row {
                condition: condition.clone(),
                rate: Interval::of(&rates)?,
                change: Interval::of_changes(&rates, &base)?,
                variation: Interval::of(&turns.values(index, "variation_percent")),
                predicted: *predicted,
                published: *published,
            })
        })
        .collect()
    }

    /// A line for each change in each round.
    fn write(
        &self,
        record: &mut Record,
        machine: &str,
        turns: &Turns,
        rows: &[Row],
    ) -> Result<(), ExperimentError> {
        for (row, of) in rows.iter().zip(&turns.0).skip(1) {
            let what = format!("requests/s, {}, {machine}, per cent", row.condition);
            for (round, (turn, base)) in of.iter().zip(&turns.0[0]).enumerate() {
                let Some((rate, base_rate)) = turn[RATE].as_f64().zip(base[RATE].as_f64()) else {
                    continue;
                };
                record.line(&json!({
                    "kind": "experiment", "scenario": self.scenario, "what": what,
                    "round": round, "value": (rate / base_rate - 1.0) * 100.0,
                    "published": row.published, "simulated": row.predicted,
                    "turn": turn, "base": base,
                }))?;
            }
        }
        Ok(())
    }
}

impl Turns {
    /// A figure of a condition, round by round.
    pub(crate) fn values(&self, condition: usize, figure: &str) -> Vec<f64> {
        let turns = self.0[condition].iter();
        turns.filter_map(|turn| turn[figure].as_f64()).collect()
    }

    /// Its median; 0 of none.
    pub(crate) fn median(&self, condition: usize, figure: &str) -> f64 {
        widelane_samples::median(self.values(condition, figure)).unwrap_or(0.0)
    }
}

/// The figure that every turn has.
pub(crate) const RATE: &str = "requests_per_s";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_with_the_first_in_the_same_round() {
        let turns = |rates: [f64; 2]| rates.map(|rate| json!({ RATE: rate })).to_vec();
        let turns = Turns(vec![turns([100.0, 200.0]), turns([90.0, 160.0])]);
        let design = Design {
            name: "x",
            scenario: "x",
            conditions: vec![("base".to_owned(), None), ("wide".to_owned(), Some(-10.0))],
        };
        let rows = design.rows(&turns, &[None, Some(-9.0)]);
        assert_eq!(rows[0].change.median, 0.0);
        let wide = &rows[1];
        assert!((wide.change.median + 15.0).abs() < 1e-9, "{wide:?}");
        assert!((wide.change.low + 20.0).abs() < 1e-9, "{wide:?}");
        assert_eq!((wide.rate.median, wide.predicted), (125.0, Some(-9.0)));
        assert_eq!((wide.published, wide.variation), (Some(-10.0), None));
    }
}
