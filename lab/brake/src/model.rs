//! The processor whose behaviour is lent, from the published figures.

use widelane_cpu::licence::machine::{Grant, Machine, Pace, Request, Rules};
use widelane_cpu::licence::{Class, Generation, Level, Turbo, turbo, turbo_of};

use crate::account::Account;
use crate::calibrate::median;

/// A processor, with as many active cores as are emulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name of the processor in the data file.
    pub name: &'static str,
    /// Generation of the processor.
    pub generation: Generation,
    /// Clock in GHz by level.
    pub clocks: [f64; 3],
    /// Greatest number of active cores for which these clocks hold.
    pub cores: u32,
    /// Source of the clocks.
    pub source: &'static str,
    /// Assumption of the operator about level 1.
    pub assumed: Option<String>,
    /// Durations of all transitions.
    pub rules: Rules,
}

/// Cost of a burst of one class on a model: medians of many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// The clock at which it ends, as a share of the full one.
    pub clock: f64,
    /// Microseconds of work lost on the way there, by throttling and halts.
    pub lost_us: f64,
    /// Microseconds from its end until the clock is full again.
    pub tail_us: f64,
}

/// Reason why a model cannot be emulated.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No such model is in the data file.
    #[error("no model {name:?} is known; known are {}", known())]
    Unknown {
        /// Name that was asked for.
        name: String,
    },
    /// Several models have such a name.
    #[error("{name:?} can be {}; say which", found.join(" or "))]
    Ambiguous {
        /// Name that was asked for.
        name: String,
        /// Models that the name can mean.
        found: Vec<&'static str>,
    },
    /// The model has no licences.
    #[error(
        "{name} has no licence levels: wide code costs no clock there but by limits of power, and \
         there is nothing to emulate"
    )]
    NoLicences {
        /// The model.
        name: &'static str,
    },
    /// No source says what its clock is.
    #[error("no source gives the clock of {name} at level {level}, so that it cannot be emulated")]
    NoClock {
        /// The model.
        name: &'static str,
        /// Level whose clock is missing.
        level: u8,
    },
    /// No source says what its clock at level 1 is, and it was not given.
    #[error(
        "no source gives the clock of {name} at level 1; choose one between {low} and {high} with \
         --level1-ghz"
    )]
    NoLevel1 {
        /// The model.
        name: &'static str,
        /// The clock at level 2.
        low: f64,
        /// The clock at level 0.
        high: f64,
    },
    /// A clock at level 1 that cannot be.
    #[error("level 1 of {name} cannot be at {given} GHz: level 0 is at {high}, level 2 at {low}")]
    Level1 {
        /// The model.
        name: &'static str,
        /// Clock that was given.
        given: f64,
        /// The clock at level 2.
        low: f64,
        /// The clock at level 0.
        high: f64,
    },
}

impl Model {
    /// The model of this name with `active` active cores. `level1` is its clock in GHz at level 1,
    /// instead of what a source says.
    ///
    /// # Errors
    ///
    /// When it is not known, has no licences, or too little is known of it.
    pub fn find(name: &str, active: usize, level1: Option<f64>) -> Result<Self, ModelError> {
        let rows = turbo_of(name);
        let mut found: Vec<_> = rows.iter().map(|row| row.cpu).collect();
        found.dedup();
        if found.len() > 1 {
            let name = name.to_owned();
            return Err(ModelError::Ambiguous { name, found });
        }
        let fits = |row: &&&Turbo| row.cores as usize >= active;
        let Some(&row) = rows.iter().find(fits).or(rows.last()) else {
            let name = name.to_owned();
            return Err(ModelError::Unknown { name });
        };
        Self::of(row, level1)
    }

    /// The share of the clock that is missing at a level.
    pub fn missing(&self, level: Level) -> f64 {
        1.0 - self.clocks[level as usize] / self.clocks[0]
    }

    /// Cost of a burst of `us` microseconds of dense code of `class`.
    pub fn burst(&self, class: Class, us: u64) -> Burst {
        let end = us * 1000;
        let (mut clock, mut lost, mut tail) = (1.0, Vec::new(), Vec::new());
        for seed in 0..DRAWS {
            let machine = Machine::new(self.rules.clone(), seed);
            let mut account = Account::new(machine, self.clocks, 0);
            account.run(0, Request::of(class, true), false);
            let mut stalls = 0;
            while let Some(next) = account.next_change().filter(|&next| next <= end) {
                let (owed, pace) = (account.owed(), account.state().pace);
                account.advance(next);
                stalls += if pace == Pace::Full { 0 } else { account.owed() - owed };
            }
            lost.push(stalls);
            account.run(end, Request::NOTHING, false);
            clock = 1.0 - self.missing(account.state().grant.level());
            while let Some(next) = account.next_change() {
                account.advance(next);
            }
            let is_lowered = clock < 1.0 && account.state().grant == Grant::Base;
            tail.push(if is_lowered { account.at() - end } else { 0 });
        }
        Burst {
            clock,
            lost_us: median(lost) as f64 / 1e3,
            tail_us: median(tail) as f64 / 1e3,
        }
    }

    fn of(row: &Turbo, level1: Option<f64>) -> Result<Self, ModelError> {
        let name = row.cpu;
        let rules = Rules::of(row.generation).ok_or(ModelError::NoLicences { name })?;
        let clock = |level| {
            let missing = ModelError::NoClock {
                name,
                level: level as u8,
            };
            row.clock(level).ok_or(missing)
        };
        let (high, low) = (clock(Level::L0)?, clock(Level::L2)?);
        let (middle, assumed) = match (level1, row.clock(Level::L1)) {
            (Some(given), _) if (low..=high).contains(&given) => {
                (given, Some(format!("level 1 is at {given} GHz as given")))
            }
            (Some(given), _) => {
                return Err(ModelError::Level1 { name, given, low, high });
            }
            (None, Some(known)) => (known, None),
            (None, None) => return Err(ModelError::NoLevel1 { name, low, high }),
        };
        Ok(Self {
            name,
            generation: row.generation,
            clocks: [high, middle, low],
            cores: row.cores,
            source: row.source,
            assumed,
            rules,
        })
    }
}

/// The models that a brake can emulate.
fn known() -> String {
    let can = |row: &&Turbo| Rules::of(row.generation).is_some();
    let mut names: Vec<_> = turbo().iter().filter(can).map(|row| row.cpu).collect();
    names.dedup();
    names.join("; ")
}

const DRAWS: u64 = 2001;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_with_the_clocks_of_as_many_cores() {
        let gold = |active| Model::find("Gold 6130", active, None).unwrap();
        assert_eq!(gold(1).clocks, [3.7, 3.6, 3.5]);
        assert_eq!(gold(2).clocks, [2.8, 2.4, 1.9]);
        assert_eq!(gold(100).clocks, [2.8, 2.4, 1.9]);
        assert!(gold(1).assumed.is_none());
        assert!((gold(2).missing(Level::L2) - 0.321).abs() < 0.001);
    }

    #[test]
    fn level_1_is_known_or_given() {
        let silver = Model::find("silver 4116", 2, None).unwrap();
        assert_eq!(silver.clocks, [2.4, 2.17, 1.4]);
        assert!(silver.assumed.is_none());
        let given = Model::find("Silver 4116", 2, Some(2.0)).unwrap();
        assert!(given.assumed.unwrap().contains("2 GHz as given"));
        assert_eq!(given.clocks, [2.4, 2.0, 1.4]);
        let error = |name, level1| Model::find(name, 2, level1).unwrap_err().to_string();
        assert!(error("Silver 4116", Some(2.5)).contains("cannot be at 2.5"));
        assert!(error("Gold 6326", None).contains("between 3.3 and 3.5 with --level1-ghz"));
        assert!(Model::find("Gold 6326", 2, Some(3.4)).is_ok());
    }

    /// Khalil (2019): medians of the ways down and back, of which throttling takes three quarters and
    /// halts all.
    #[test]
    fn bursts_cost_what_their_transitions_do() {
        let silver = Model::find("Silver 4116", 2, None).unwrap();
        let near = |found: f64, told: f64| assert!((found / told - 1.0).abs() < 0.03, "{found} {told}");
        let light = silver.burst(Class::Light512, 600);
        near(light.clock, 2.17 / 2.4);
        near(light.lost_us, 0.75 * 13.6 + 11.0);
        near(light.tail_us, 674.0 + 11.0);
        let heavy = silver.burst(Class::Heavy512, 600);
        near(heavy.clock, 1.4 / 2.4);
        near(
            heavy.lost_us,
            0.75 * 13.6 + 11.0 + (1.0 - 0.25 * 2.17 / 2.4) * 14.5 + 11.0,
        );
        let voltage = silver.burst(Class::Light256, 600);
        assert_eq!((voltage.clock, voltage.tail_us), (1.0, 0.0));
        near(voltage.lost_us, 0.75 * 9.0);
        assert_eq!(silver.burst(Class::Scalar, 600).lost_us, 0.0);
    }

    #[test]
    fn what_cannot_be_emulated_is_refused_with_the_reason() {
        let error = |name| Model::find(name, 2, None).unwrap_err().to_string();
        let unknown = error("Pentium");
        assert!(unknown.contains("\"Pentium\"") && unknown.contains("Xeon Silver 4116; Xeon Gold"));
        assert!(!unknown.contains("EPYC"), "{unknown}");
        assert!(error("").contains("known are"));
        assert!(error("Gold 61").contains("Xeon Gold 6130 or Xeon Gold 6140"));
        assert!(error("EPYC 9654").contains("nothing to emulate"));
        assert!(error("Gold 5512U").contains("no source gives the clock"));
    }
}
