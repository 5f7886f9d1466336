//! Common parts of experiments under a brake: native turns, predictions from them, turns under the brake, and a record.

use std::path::PathBuf;

use serde_json::{Value, json};
use widelane_handshakes::{Record, Stage};

use crate::error::ExperimentError;
use crate::interval::Interval;
use crate::plan::Plan;

/// Result of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Rows of the native turns. Rows that are compared with one come after it.
    pub native: Vec<Row>,
    /// Under the brake, in the same order; empty without one.
    pub braked: Vec<Row>,
    /// The record.
    pub record: Option<PathBuf>,
}

/// One condition.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the condition.
    pub condition: String,
    /// Index of the row with which this one is compared; `None` if others are compared with it.
    pub against: Option<usize>,
    /// Requests a second.
    pub rate: Interval,
    /// Against that row in the same round, in per cent. Of a row that others are compared with it is 0.
    pub change: Interval,
    /// Variation of the requests in twentieths of a second, if they were counted: from the 5th to the 95th percentile,
    /// in per cent of the median.
    pub variation: Option<Interval>,
    /// The median time of a handshake or request in microseconds, where it was measured.
    pub p50_us: Option<Interval>,
    /// Lanes that were filled by a pass of RSA, on average.
    pub batch: Option<Interval>,
    /// The shares of the time for which the servers' core was at each level: medians, under a brake.
    pub levels: Option<[f64; 3]>,
    /// The share of the time in wide code as this CPU is, in per cent, where it was measured.
    pub wide_percent: Option<f64>,
    /// Change that the simulator predicts from the native turns, before those under the brake.
    pub predicted: Option<f64>,
    /// Published change.
    pub published: Option<f64>,
}

/// An experiment's name, its scenario for the simulator, and its conditions.
pub(crate) struct Design {
    pub(crate) name: &'static str,
    pub(crate) scenario: &'static str,
    pub(crate) conditions: Vec<Condition>,
}

/// One condition of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) name: String,
    /// The place of the one with which it is compared; its own of one with which others are.
    pub(crate) base: usize,
    /// The published change, in per cent.
    pub(crate) published: Option<f64>,
}

/// Results of each turn, by condition and round: objects with `requests_per_s` at least.
pub(crate) struct Turns(pub(crate) Vec<Vec<Value>>);

impl Design {
    /// Takes the turns as this CPU is, and under the brake of a model if one is named. `predict` gives
    /// the rate of each condition there, where it knows one.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        stage: &mut Stage,
        brake: Option<&str>,
        mut take: impl FnMut(&Stage) -> Result<Turns, ExperimentError>,
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
        stage.emulate(None);
        let native = take(stage)?;
        let rows = self.rows(&native, &vec![None; self.conditions.len()]);
        let mut parts = vec![("as this CPU is".to_owned(), native, rows)];
        if let Some(model) = brake {
            let predicted = self.changes(&predict(model, &parts[0].1)?);
            for (index, (condition, change)) in self.conditions.iter().zip(&predicted).enumerate() {
                if let Some(change) = change.filter(|_| condition.base != index) {
                    let name = &condition.name;
                    tell(&format!("the simulator predicts for {name}: {change:+.1} %"));
                }
            }
            tell(&format!("starts as a {model}"));
            stage.emulate(Some(model));
            let braked = take(stage);
            stage.emulate(None);
            let braked = braked?;
            let rows = self.rows(&braked, &predicted);
            parts.push((format!("as a {model}"), braked, rows));
        }
        let record = match record {
            None => None,
            Some(mut record) => {
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

    /// Changes of rates against those with which they are compared, in per cent.
    fn changes(&self, rates: &[Option<f64>]) -> Vec<Option<f64>> {
        let change = |(condition, rate): (&Condition, &Option<f64>)| {
            let base = *rates.get(condition.base)?;
            Some(((*rate)? / base? - 1.0) * 100.0)
        };
        self.conditions.iter().zip(rates).map(change).collect()
    }

    fn rows(&self, turns: &Turns, predicted: &[Option<f64>]) -> Vec<Row> {
        let rows = self.conditions.iter().zip(predicted).enumerate();
        rows.filter_map(|(index, (condition, predicted))| {
            let rates = turns.values(index, RATE);
            let base = turns.values(condition.base, RATE);
            let others = |figure| Interval::of(&turns.values(index, figure));
            Some(Row {
                condition: condition.name.clone(),
                against: (condition.base != index).then_some(condition.base),
                rate: Interval::of(&rates)?,
                change: Interval::of_changes(&rates, &base)?,
                variation: others("variation_percent"),
                p50_us: others("p50_us"),
                batch: others("batch"),
                levels: turns.levels(index),
                wide_percent: turns.wide_percent(index),
                predicted: *predicted,
                published: condition.published,
            })
        })
        .collect()
    }

    /// A line for each change in each round.
    fn write(&self, record: &mut Record, machine: &str, turns: &Turns, rows: &[Row]) -> Result<(), ExperimentError> {
        for (row, of) in rows.iter().zip(&turns.0) {
            let Some(against) = row.against else {
                continue;
            };
            let base = &self.conditions[against].name;
            let what = format!("requests/s, {} against {base}, {machine}, per cent", row.condition);
            for (round, (turn, base)) in of.iter().zip(&turns.0[against]).enumerate() {
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

    /// Medians of the shares of time at each level.
    fn levels(&self, condition: usize) -> Option<[f64; 3]> {
        let at = |level: usize| {
            let turns = self.0[condition].iter();
            let shares = turns.filter_map(|turn| turn["levels"][level].as_f64());
            widelane_samples::median(shares.collect())
        };
        Some([at(0)?, at(1)?, at(2)?])
    }

    /// The share of wide code, where both parts of a request were timed.
    fn wide_percent(&self, condition: usize) -> Option<f64> {
        let [wide, page] = ["wide_us", "page_us"].map(|figure| self.median(condition, figure));
        (wide > 0.0 && page > 0.0).then(|| 100.0 * wide / (wide + page))
    }

    /// Median of a condition's figure; 0 of none.
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
        let condition = |name: &str, base, published| Condition {
            name: name.to_owned(),
            base,
            published,
        };
        let design = Design {
            name: "x",
            scenario: "x",
            conditions: vec![condition("base", 0, None), condition("wide", 0, Some(-10.0))],
        };
        let predicted = design.changes(&[Some(200.0), Some(182.0)]);
        assert_eq!(design.changes(&[None, Some(1.0)]), [None, None]);
        let rows = design.rows(&turns, &predicted);
        assert_eq!((rows[0].change.median, rows[0].against), (0.0, None));
        let wide = &rows[1];
        assert_eq!(wide.against, Some(0));
        assert!((wide.change.median + 15.0).abs() < 1e-9, "{wide:?}");
        assert!((wide.change.low + 20.0).abs() < 1e-9, "{wide:?}");
        assert_eq!(wide.rate.median, 125.0);
        assert!(wide.predicted.is_some_and(|change| (change + 9.0).abs() < 1e-9));
        assert_eq!((wide.published, wide.variation), (Some(-10.0), None));
    }
}
