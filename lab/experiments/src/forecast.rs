//! Predictions of the simulator before the turns under a brake, from the costs of the native ones.

use widelane_sim::{BUILTIN, Figure, Scenario, Settings};

use crate::error::ExperimentError;

/// A scenario on the cores of a model.
pub(crate) struct Forecast {
    scenario: Scenario,
    settings: Settings,
}

impl Forecast {
    /// A built-in scenario on `cores` cores, at the clocks that the brake lends to two.
    pub(crate) fn new(scenario: &str, model: &str, cores: u32) -> Result<Self, ExperimentError> {
        let text = BUILTIN.iter().find(|(name, _)| *name == scenario);
        Ok(Self {
            scenario: Scenario::parse(text.map_or("", |(_, text)| text))?,
            settings: Settings {
                model: Some(model.to_owned()),
                cores: Some(cores),
                active: Some(2),
                ..Settings::default()
            },
        })
    }

    /// Requests a second in a run of the scenario, with these parameters.
    pub(crate) fn rate(&self, run: &str, set: &[(&str, f64)]) -> Result<Option<f64>, ExperimentError> {
        let mut settings = self.settings.clone();
        let set = set.iter().map(|&(name, value)| (name.to_owned(), value));
        settings.set.extend(set);
        let figures = self.scenario.plan(self.scenario.run(run)?, &settings)?;
        let figures = figures.figures().figures;
        Ok(figures.get(&Figure::Throughput).copied())
    }
}

/// Cycles in `us` microseconds. Any clock does, because only quotients count: a braked CPU takes for scalar code what
/// it takes now.
pub(crate) fn cycles(us: f64) -> f64 {
    (us * CLOCK_MHZ).max(1.0)
}

const CLOCK_MHZ: f64 = 2400.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_code_costs_requests_and_scalar_code_does_not() {
        let rate = |chacha: f64| {
            let forecast = Forecast::new("cloudflare-2017", "Silver 4116", 1).unwrap();
            let set = [
                ("threads", 1.0),
                ("connections", 20.0),
                ("page_rounds", 1.0),
                ("page_cycles", cycles(300.0)),
                ("aes_cycles", cycles(4.0)),
                ("burst_cycles", cycles(4.0)),
                ("chacha", chacha),
                ("aes", 100.0 - chacha),
            ];
            forecast.rate("chacha20-100", &set).unwrap().unwrap()
        };
        let (without, with) = (rate(0.0), rate(100.0));
        // Level 1 all the time, and what becomes level 2 where two bursts follow each other.
        let loss = 1.0 - with / without;
        assert!((0.08..0.15).contains(&loss), "{without} {with}");
        let unknown = Forecast::new("cloudflare-2017", "Silver 4116", 1).unwrap();
        assert!(unknown.rate("chacha20-100", &[("page", 1.0)]).is_err());
    }
}
