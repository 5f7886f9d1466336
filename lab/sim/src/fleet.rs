//! Many machines of several models behind one load balancer: which settings serve a rate with the
//! fewest machines.

use rayon::prelude::*;

use crate::error::ScenarioError;
use crate::outcome::{Figure, Outcome};
use crate::plan::{Arrivals, Plan, Settings};
use crate::scenario::Scenario;
use crate::server::simulate;

/// Machines that a fleet needs to serve a rate.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Requests a second that are to be served.
    pub rate: f64,
    /// The bound of the 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Each model with each setting.
    pub tried: Vec<Capacity>,
    /// The machines to take, the strongest first.
    pub chosen: Vec<Chosen>,
    /// Requests a second that all machines can serve with their best settings.
    pub most: f64,
    /// The chosen machines at the rate, each simulated by itself: requests a second in all.
    pub served: f64,
    /// The largest 99th percentile of a machine, in microseconds.
    pub slowest_p99_us: f64,
}

/// Rate that one machine of a model serves with one setting.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// The model.
    pub model: String,
    /// The run of the scenario that has the setting.
    pub setting: String,
    /// Requests a second within the bound.
    pub rate: f64,
    /// True for the best setting of its model.
    pub best: bool,
}

/// Machines of one model that are taken.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The model.
    pub model: String,
    /// Best setting of the model.
    pub setting: String,
    /// Number of machines that are taken, and of all.
    pub machines: (u32, u32),
    /// Requests a second of each.
    pub rate: f64,
}

impl Scenario {
    /// Answers for the fleet of this scenario; `rate` in place of the file's.
    ///
    /// The load balancer gives each machine a share by its capacity. Every capacity and every chosen
    /// machine is simulated by itself, on all CPUs.
    ///
    /// # Errors
    ///
    /// When the scenario has no fleet, or a machine of it cannot be simulated.
    pub fn fleet(&self, rate: Option<f64>, settings: &Settings) -> Result<Fleet, ScenarioError> {
        let Some(fleet) = &self.fleet else {
            return Err(ScenarioError::Wrong("the scenario has no [fleet]".to_owned()));
        };
        let mut plans = Vec::new();
        let mut all = 0.0;
        for (index, machine) in fleet.machines.iter().enumerate() {
            let of_model = Settings {
                model: Some(machine.model.clone()),
                cores: Some(machine.cores),
                ..settings.clone()
            };
            for run in &self.runs {
                // A setting with more vector cores than the machine has cores is none for it.
                if let Ok(plan) = self.plan(run, &of_model) {
                    all = asked(&plan)?;
                    plans.push((index, plan));
                }
            }
            if plans.last().is_none_or(|(last, _)| *last != index) {
                self.plan(&self.runs[0], &of_model)?;
            }
        }
        let rate = rate.unwrap_or(all);
        if !(rate.is_finite() && rate > 0.0) {
            return Err(ScenarioError::Wrong(format!("the rate is {rate}; it must be above 0")));
        }
        let p99_us = fleet.p99_us;
        let mut tried: Vec<(usize, Plan, f64)> = (plans.into_par_iter())
            .map(|(index, plan)| {
                let capacity = capacity(&plan, p99_us);
                (index, plan, capacity)
            })
            .collect();
        // The best setting of each model first, the strongest model first.
        tried.sort_by(|a, b| b.2.total_cmp(&a.2));
        let mut best: Vec<&(usize, Plan, f64)> = Vec::new();
        for one in &tried {
            if !best.iter().any(|better| better.0 == one.0) {
                best.push(one);
            }
        }
        let mut most = 0.0;
        let mut missing = rate;
        let mut chosen: Vec<(&Plan, Chosen)> = Vec::new();
        for (index, plan, rate) in &best {
            let all = fleet.machines[*index].count;
            let needed = (missing / (rate * TARGET)).ceil().max(0.0);
            let taken = all.min(needed as u32);
            most += rate * f64::from(all);
            missing -= f64::from(taken) * rate * TARGET;
            let machines = Chosen {
                model: plan.model().to_owned(),
                setting: plan.name.clone(),
                machines: (taken, all),
                rate: *rate,
            };
            chosen.push((plan, machines));
        }
        let in_use = chosen.iter().map(|(_, one)| f64::from(one.machines.0) * one.rate);
        let share = (rate / in_use.sum::<f64>().max(1.0)).min(1.0);
        let machines: Vec<Plan> = (chosen.iter())
            .flat_map(|(plan, one)| {
                (0..one.machines.0).map(move |seed| at(plan, one.rate * share, u64::from(seed) + 1))
            })
            .collect();
        let outcomes: Vec<Outcome> = machines.par_iter().map(simulate).collect();
        let sum = |figure| outcomes.iter().filter_map(move |one| one.figure(figure));
        let is_best = |plan: &Plan| best.iter().any(|(_, other, _)| std::ptr::eq(other, plan));
        Ok(Fleet {
            rate,
            p99_us,
            most,
            served: sum(Figure::Throughput).sum(),
            slowest_p99_us: sum(Figure::P99).fold(0.0, f64::max),
            chosen: chosen.into_iter().map(|(_, machines)| machines).collect(),
            tried: tried
                .iter()
                .map(|(_, plan, rate)| Capacity {
                    model: plan.model().to_owned(),
                    setting: plan.name.clone(),
                    rate: *rate,
                    best: is_best(plan),
                })
                .collect(),
        })
    }
}

fn asked(plan: &Plan) -> Result<f64, ScenarioError> {
    match plan.arrivals {
        Arrivals::Open { rate, .. } => Ok(rate),
        Arrivals::Closed { .. } => Err(ScenarioError::Wrong(
            "a fleet takes [load] with a rate, not with connections".to_owned(),
        )),
    }
}

/// The highest rate at which a machine's 99th percentile is within the bound, to one per cent.
fn capacity(plan: &Plan, p99_us: f64) -> f64 {
    let holds = |rate: f64| {
        let outcome = simulate(&at(plan, rate, 1));
        let p99 = outcome.figure(Figure::P99).unwrap_or(f64::INFINITY);
        // By Little's law no more wait than come within the bound; a growing queue shows here first.
        let bound = rate * p99_us / 1e6 + plan.cores() as f64;
        p99 <= p99_us && outcome.waiting as f64 <= bound
    };
    let mut low = 0.0;
    // No core does a million requests a second.
    let mut high = plan.cores() as f64 * 1e6;
    // A first bound from below, so that no time is spent far above the limit.
    let mut rate = plan.cores() as f64 * 100.0;
    while rate < high && holds(rate) {
        low = rate;
        rate *= 2.0;
    }
    high = high.min(rate);
    while high - low > 0.01 * high && high > 1.0 {
        let middle = (low + high) / 2.0;
        match holds(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

fn at(plan: &Plan, rate: f64, seed: u64) -> Plan {
    let mut plan = plan.clone();
    plan.arrivals = Arrivals::Open { rate, burst: 1 };
    plan.seed = seed;
    // A hundredth of fewer requests is no percentile.
    plan.seconds = plan.seconds.max(REQUESTS / rate);
    plan
}

/// Requests that a machine is judged by, at least.
const REQUESTS: f64 = 10_000.0;
/// The share of its capacity that a machine is planned for.
const TARGET: f64 = 0.8;
