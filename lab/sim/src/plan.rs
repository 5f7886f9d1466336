//! One run of a scenario with all its numbers.

use std::collections::BTreeMap;

use widelane_batching::{Clock, ClockPenalty, Costs};
use widelane_cpu::Target;
use widelane_cpu::licence::machine::{Request, Rules, Spread};
use widelane_cpu::licence::{Class, Generation, Level, Turbo, turbo, turbo_of};

use crate::error::ScenarioError;
use crate::impatient::Impatient;
use crate::measured;
use crate::placement::Placement;
use crate::scenario::{
    ImpatientText, MachineText, OperationText, RunText, Scenario, SpreadText, StepText, TransferText, TransitionText,
    Value, class,
};

/// Settings of the operator besides a scenario's own text.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The model of the processor.
    pub model: Option<String>,
    /// Physical cores of the processor.
    pub cores: Option<u32>,
    /// Number of cores that count as active in its turbo schedule, if not those that are.
    pub active: Option<u32>,
    /// Parameters.
    pub set: BTreeMap<String, f64>,
}

/// One run with all its numbers.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) name: String,
    pub(crate) placement: Placement,
    pub(crate) machine: Processor,
    pub(crate) arrivals: Arrivals,
    pub(crate) seconds: f64,
    pub(crate) warm_up: f64,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) operations: Vec<Operation>,
    /// Hyperthread, and the classes that run on it all the time, by core.
    pub(crate) background: Option<(usize, Vec<Class>)>,
    /// The target whose lanes all passes use, if the run says one.
    pub(crate) lanes: Option<Target>,
    pub(crate) transfer: Transfer,
    pub(crate) transition: Option<Transition>,
    pub(crate) impatient: Option<Impatient>,
    pub(crate) seed: u64,
}

/// A transition of one core that is measured, in place of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transition {
    pub(crate) request: Request,
    pub(crate) crowded: bool,
}

/// A processor.
#[derive(Clone, Debug)]
pub(crate) struct Processor {
    pub(crate) model: String,
    pub(crate) generation: Generation,
    pub(crate) cores: usize,
    pub(crate) threads: usize,
    /// Share in 1024 parts of a core.
    pub(crate) sibling_share: u64,
    pub(crate) rules: Option<Rules>,
    /// kHz by level, for each greatest number of active cores; the fewest first.
    pub(crate) schedule: Vec<(usize, [u64; 3])>,
    /// Number of cores that count as active, if not those that are.
    pub(crate) active: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    Closed { connections: usize, think: f64 },
    Open { rate: f64, burst: usize },
}

#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) share: f64,
    pub(crate) rounds: u32,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) class: Class,
    pub(crate) dense: bool,
    pub(crate) cycles: f64,
    pub(crate) random: bool,
    pub(crate) light: Option<f64>,
    pub(crate) scalar: Option<f64>,
    pub(crate) operation: Option<usize>,
    pub(crate) timed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) class: Class,
    pub(crate) dense: bool,
    pub(crate) costs: Costs,
}

#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) vector_cores: usize,
    pub(crate) lend: bool,
    pub(crate) migration: f64,
    pub(crate) pool: f64,
    pub(crate) fault: f64,
    pub(crate) system_call: f64,
    pub(crate) fixed_us: f64,
    pub(crate) queue: f64,
    pub(crate) wake_ns: u64,
}

impl Scenario {
    /// Makes a run ready.
    ///
    /// # Errors
    ///
    /// When a name means nothing, a number is out of bounds, or a figure that the run needs is not
    /// known. The message says which.
    pub fn plan(&self, run: &RunText, settings: &Settings) -> Result<Plan, ScenarioError> {
        let numbers = Numbers::new(self, run, settings)?;
        let placement: Placement = run.placement.parse().map_err(ScenarioError::Wrong)?;
        let model = settings.model.as_ref().or(run.model.as_ref());
        let mut machine = numbers.processor(&self.machine, model, settings)?;
        if let (true, Some(rules)) = (run.oracle, &mut machine.rules) {
            rules.tail = Spread::exactly(0);
        }
        let target = |name: &String| {
            Target::named(name).ok_or_else(|| {
                let known = Target::ALL.map(Target::name).join(", ");
                ScenarioError::Wrong(format!("lanes: {name:?} is no target; the targets are {known}"))
            })
        };
        let lanes = run.lanes.as_ref().map(target).transpose()?;
        let operations = self.operations(&numbers, &machine, lanes)?;
        let mut kinds = self.kinds(&numbers)?;
        let mut transfer = numbers.transfer(&self.transfer)?;
        if let Some(vector_cores) = &run.vector_cores {
            transfer.vector_cores = numbers.count("vector-cores", vector_cores)?;
        }
        let transition = |text: &TransitionText| {
            class(&text.class).map(|class| Transition {
                request: Request::of(class, text.dense),
                crowded: text.crowded,
            })
        };
        let transition = run.transition.as_ref().map(transition).transpose()?;
        let background = match &self.background[..] {
            [] => None,
            [one] => {
                let thread = numbers.count("background.thread", &one.thread)?;
                if thread >= machine.threads {
                    return wrong(format!(
                        "background.thread is {thread}, and a core has {} hyperthreads, counted from 0",
                        machine.threads
                    ));
                }
                let classes = run.background.as_ref().unwrap_or(&one.classes);
                let classes: Result<Vec<_>, _> = classes.iter().map(|name| class(name)).collect();
                Some((thread, classes?))
            }
            _ => return wrong("there is more than one [[background]]".to_owned()),
        };
        if background.as_ref().is_some_and(|(_, classes)| classes.is_empty()) {
            return wrong("background.classes is empty".to_owned());
        }
        if placement.needs_vector_cores() && transfer.vector_cores == 0 {
            return wrong(format!("the placement {placement} needs vector-cores above 0"));
        }
        if transfer.vector_cores > 0 && placement.needs_vector_cores() && transfer.vector_cores >= machine.cores {
            return wrong(format!(
                "{} of {} cores are vector cores, so that none is left for other work; set fewer \
                 vector-cores or more cores",
                transfer.vector_cores, machine.cores
            ));
        }
        let load = &self.load;
        let impatient = self.impatient.as_ref();
        let impatient = impatient.map(|text| numbers.impatient(text, &kinds, &operations, &machine));
        let impatient = impatient.transpose()?;
        let mut arrivals = match (&load.connections, &load.rate, &impatient) {
            (Some(connections), None, None) => Arrivals::Closed {
                connections: numbers.at_least_one("connections", connections)?,
                think: numbers.value("think-seconds", &load.think_seconds)?,
            },
            (None, Some(rate), None) => Arrivals::Open {
                rate: numbers.positive("rate", rate)?,
                burst: numbers.at_least_one("burst", &load.burst)?,
            },
            (None, None, Some(impatient)) => Arrivals::Open {
                rate: 1e9 / impatient.each() * impatient.load,
                burst: 1,
            },
            (.., None) => return wrong("[load] takes either connections or rate".to_owned()),
            (.., Some(_)) => {
                return wrong("[load] takes neither connections nor rate beside [impatient]".to_owned());
            }
        };
        if let Some(times) = &run.residency_us {
            machine.cores = 1;
            arrivals = Arrivals::Closed {
                connections: 1,
                think: 0.0,
            };
            kinds = vec![numbers.residency(times, &machine)?];
        }
        let plan = Plan {
            name: run.name.clone(),
            placement,
            machine,
            arrivals,
            seconds: numbers.positive("seconds", &load.seconds)?,
            warm_up: numbers.value("warm-up", &load.warm_up)?,
            kinds,
            operations,
            background,
            lanes,
            transfer,
            transition,
            impatient,
            seed: numbers.seed,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Operations with their own costs, or predicted in the lanes of a target on a processor.
    fn operations(
        &self,
        numbers: &Numbers,
        machine: &Processor,
        lanes: Option<Target>,
    ) -> Result<Vec<Operation>, ScenarioError> {
        let ready = self.operations.iter().map(|one| {
            let (class, costs) = match (lanes, &one.measured) {
                (Some(target), _) => (
                    target.class(),
                    measured::predicted(&machine.model, machine.generation, target, &one.name)?,
                ),
                (None, Some(cpu)) => (class(&one.class)?, one.measured_costs(cpu)?),
                (None, None) => (class(&one.class)?, one.written_costs(numbers)?),
            };
            Ok(Operation {
                class,
                dense: one.dense,
                costs,
            })
        });
        ready.collect()
    }

    fn kinds(&self, numbers: &Numbers) -> Result<Vec<Kind>, ScenarioError> {
        let kinds = self.kinds.iter().map(|kind| {
            if kind.steps.is_empty() {
                return wrong(format!("the kind {:?} has no steps", kind.name));
            }
            let steps = kind.steps.iter().map(|step| self.step(numbers, step));
            Ok(Kind {
                name: kind.name.clone(),
                share: numbers.value("share", &kind.share)?,
                rounds: numbers.at_least_one("rounds", &kind.rounds)? as u32,
                steps: steps.collect::<Result<_, _>>()?,
            })
        });
        let kinds: Vec<Kind> = kinds.collect::<Result<_, _>>()?;
        let shares: f64 = kinds.iter().map(|kind| kind.share).sum();
        if shares <= 0.0 {
            return wrong("no kind of request has a share above 0".to_owned());
        }
        Ok(kinds)
    }

    fn step(&self, numbers: &Numbers, step: &StepText) -> Result<Step, ScenarioError> {
        let operation = |name: &String| {
            let found = self.operations.iter().position(|one| one.name == *name);
            found
                .ok_or_else(|| ScenarioError::Wrong(format!("a step names the operation {name:?}, which there is not")))
        };
        let optional =
            |name: &str, value: &Option<Value>| value.as_ref().map(|value| numbers.value(name, value)).transpose();
        Ok(Step {
            class: class(&step.class)?,
            dense: step.dense,
            cycles: numbers.value("cycles", &step.cycles)?,
            random: step.random,
            light: optional("light-cycles", &step.light_cycles)?,
            scalar: optional("scalar-cycles", &step.scalar_cycles)?,
            operation: step.operation.as_ref().map(operation).transpose()?,
            timed: step.timed,
        })
    }
}

impl OperationText {
    fn measured_costs(&self, cpu: &str) -> Result<Costs, ScenarioError> {
        let written = [
            &self.lanes,
            &self.first_cycles,
            &self.further_cycles,
            &self.scalar_cycles,
        ];
        if written.into_iter().any(Option::is_some) {
            return wrong(format!(
                "the operation {:?} has `measured` beside lanes or cycles of its own; remove either",
                self.name
            ));
        }
        measured::costs(cpu, &self.name)
    }

    fn written_costs(&self, numbers: &Numbers) -> Result<Costs, ScenarioError> {
        let cycles = |field, value: &Option<Value>| {
            let (name, value) = self.written(field, value)?;
            numbers.value(&name, value).map(|cycles| cycles as u64)
        };
        let (name, lanes) = self.written("lanes", &self.lanes)?;
        Ok(Costs {
            lanes: numbers.at_least_one(&name, lanes)?,
            first: cycles("first-cycles", &self.first_cycles)?,
            further: match self.further_cycles {
                Some(_) => cycles("further-cycles", &self.further_cycles)?,
                None => 0,
            },
            alone: cycles("scalar-cycles", &self.scalar_cycles)?,
        })
    }

    /// A field's name for messages, and its value.
    fn written<'a>(&self, field: &str, value: &'a Option<Value>) -> Result<(String, &'a Value), ScenarioError> {
        let name = format!("{}.{field}", self.name);
        match value {
            Some(value) => Ok((name, value)),
            None => wrong(format!(
                "{name} is missing; write it, or `measured` with the name of a CPU"
            )),
        }
    }
}

impl Plan {
    /// Place where the run's wide work runs.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The model of the processor.
    pub fn model(&self) -> &str {
        &self.machine.model
    }

    /// Physical cores.
    pub fn cores(&self) -> usize {
        self.machine.cores
    }

    /// Plan with another placement.
    ///
    /// # Errors
    ///
    /// When the scenario lacks a figure that it takes.
    pub fn placed(&self, placement: Placement) -> Result<Self, ScenarioError> {
        let plan = Self {
            placement,
            ..self.clone()
        };
        plan.check()?;
        Ok(plan)
    }

    /// Clock of this processor as the policy of the engine gets it.
    pub(crate) fn clock(&self) -> Clock {
        let Some(rules) = &self.machine.rules else {
            return Clock::default();
        };
        let clocks = self.machine.all_active();
        let depth = |level: Level| 1.0 - clocks[level as usize] as f64 / clocks[0] as f64;
        let tail = rules.tail.median();
        let down = rules.to_level1.median();
        let clock = Clock {
            wide: ClockPenalty {
                depth: depth(Level::L2),
                stall: down + rules.to_level2.median(),
                tail,
            },
            narrow: ClockPenalty {
                depth: depth(Level::L1),
                stall: down,
                tail,
            },
        };
        match self.lanes {
            Some(target) => clock.of_registers(target.bits()),
            None => clock,
        }
    }

    fn check(&self) -> Result<(), ScenarioError> {
        for kind in &self.kinds {
            let cycles: f64 = kind.least_cycles(&self.operations);
            if cycles < LEAST_ROUND {
                return wrong(format!(
                    "a round of the kind {:?} takes {cycles} cycles; give its steps {LEAST_ROUND} or \
                     more, or the simulator has too many events in no time",
                    kind.name
                ));
            }
        }
        let steps = self.kinds.iter().flat_map(|kind| &kind.steps);
        for step in steps.filter(|step| is_wide(step.class) && step.operation.is_none()) {
            let lacks = match self.placement {
                Placement::AvxOff => step.scalar.is_none().then_some("scalar-cycles"),
                Placement::Light256 => step.light.is_none().then_some("light-cycles"),
                _ => None,
            };
            if let Some(lacks) = lacks {
                return wrong(format!(
                    "the placement {} needs {lacks} for each step of class {}",
                    self.placement, step.class
                ));
            }
        }
        Ok(())
    }
}

impl Kind {
    /// Cycles of a round with each step in the form that takes least.
    fn least_cycles(&self, operations: &[Operation]) -> f64 {
        let least = |step: &Step| match step.operation {
            Some(operation) => {
                let costs = &operations[operation].costs;
                costs.alone.min(costs.pass(costs.lanes) / costs.lanes as u64) as f64
            }
            None => {
                let forms = [Some(step.cycles), step.light, step.scalar];
                forms.into_iter().flatten().fold(f64::MAX, f64::min)
            }
        };
        self.steps.iter().map(least).sum()
    }
}

/// Returns whether code of a class asks for more than the full clock allows.
pub(crate) fn is_wide(class: Class) -> bool {
    class > Class::Light256
}

impl Processor {
    /// kHz by level while `active` cores are.
    pub(crate) fn clocks(&self, active: usize) -> [u64; 3] {
        let active = self.active.unwrap_or(active);
        let row = self.schedule.iter().find(|(up_to, _)| active <= *up_to);
        row.or(self.schedule.last()).map_or([0; 3], |(_, clocks)| *clocks)
    }

    pub(crate) fn all_active(&self) -> [u64; 3] {
        self.clocks(self.cores)
    }

    /// Returns whether the clocks depend on how many cores are active.
    pub(crate) fn follows_activity(&self) -> bool {
        self.schedule.len() > 1 && self.active.is_none()
    }
}

/// Number up to which f64 has every whole number.
const LARGEST_SEED: f64 = (1_u64 << 53) as f64;

/// The numbers of a run.
struct Numbers {
    values: BTreeMap<String, f64>,
    seed: u64,
}

impl Numbers {
    fn new(scenario: &Scenario, run: &RunText, settings: &Settings) -> Result<Self, ScenarioError> {
        let mut values: BTreeMap<_, _> = (scenario.parameters.iter())
            .map(|(name, parameter)| (name.clone(), parameter.value))
            .collect();
        let mut seed = 1;
        for (name, value) in run.set.iter().chain(&settings.set) {
            if name == "seed" {
                if !(0.0..=LARGEST_SEED).contains(value) || value.fract() != 0.0 {
                    return wrong(format!("seed: {value} is no whole number from 0 to {LARGEST_SEED}"));
                }
                seed = *value as u64;
            } else if let Some(known) = values.get_mut(name) {
                *known = *value;
            } else {
                let known: Vec<_> = values.keys().map(String::as_str).collect();
                return wrong(format!(
                    "there is no parameter {name:?}; the parameters are {} and seed",
                    known.join(", ")
                ));
            }
        }
        Ok(Self { values, seed })
    }

    fn value(&self, what: &str, value: &Value) -> Result<f64, ScenarioError> {
        let number = match value {
            Value::Number(number) => *number,
            Value::Named(name) => match self.values.get(name) {
                Some(number) => *number,
                None => {
                    return wrong(format!("{what} names the parameter {name:?}, which there is not"));
                }
            },
        };
        // A larger number of cycles or seconds is no sensible request, and would overflow a counter.
        if number.is_finite() && (0.0..=1e12).contains(&number) {
            Ok(number)
        } else {
            let shown = match number.abs() > 1e12 {
                true => format!("{number:e}"),
                false => number.to_string(),
            };
            wrong(format!("{what} is {shown}; it must be from 0 to 1e12"))
        }
    }

    fn positive(&self, what: &str, value: &Value) -> Result<f64, ScenarioError> {
        match self.value(what, value)? {
            0.0 => wrong(format!("{what} is 0")),
            number => Ok(number),
        }
    }

    fn count(&self, what: &str, value: &Value) -> Result<usize, ScenarioError> {
        let number = self.value(what, value)?;
        if number.fract() == 0.0 && number <= 1e6 {
            Ok(number as usize)
        } else {
            wrong(format!("{what} is {number}; it must be a whole number up to 1000000"))
        }
    }

    fn at_least_one(&self, what: &str, value: &Value) -> Result<usize, ScenarioError> {
        match self.count(what, value)? {
            0 => wrong(format!("{what} is 0; it must be at least 1")),
            number => Ok(number),
        }
    }

    fn spread(&self, what: &str, spread: &SpreadText) -> Result<Spread, ScenarioError> {
        let ns = |value| self.value(what, value).map(|us| (us * 1e3) as u64);
        Ok(match spread {
            SpreadText::Exactly(value) => Spread::exactly(ns(value)?),
            SpreadText::Evenly([low, high]) => Spread::evenly(ns(low)?, ns(high)?),
        })
    }

    fn processor(
        &self,
        text: &MachineText,
        model: Option<&String>,
        settings: &Settings,
    ) -> Result<Processor, ScenarioError> {
        let name = model.unwrap_or(&text.model);
        let rows = rows(name)?;
        let cores = match settings.cores {
            Some(cores) => cores as usize,
            None => self.count("cores", &text.cores)?,
        };
        let threads = self.count("threads", &text.threads)?;
        if cores == 0 || cores > MOST_CORES || !(1..=2).contains(&threads) {
            return wrong(format!(
                "{cores} cores with {threads} hyperthreads each; take 1 to {MOST_CORES} cores with 1 or 2"
            ));
        }
        // Figures of the scenario are about its own model only.
        let own = model.is_none() || rows[0].cpu == self::rows(&text.model)?[0].cpu;
        let given = |value: &Option<Value>| {
            let value = value.as_ref().filter(|_| own);
            value.map(|value| self.positive("a clock", value)).transpose()
        };
        let given = [
            given(&text.level0_ghz)?,
            given(&text.level1_ghz)?,
            given(&text.level2_ghz)?,
        ];
        let schedule: Result<Vec<_>, _> = rows.iter().map(|row| clocks(row, given)).collect();
        let generation = rows[0].generation;
        let active = text.active.as_ref().filter(|_| own);
        let active = active.map(|value| self.count("active", value)).transpose()?;
        let active = settings.active.map(|active| active as usize).or(active);
        Ok(Processor {
            model: rows[0].cpu.to_owned(),
            generation,
            cores,
            threads,
            sibling_share: (self.value("sibling-share", &text.sibling_share)?.min(1.0) * 1024.0) as u64,
            rules: self.rules(text, generation)?,
            schedule: schedule?,
            active,
        })
    }

    fn rules(&self, text: &MachineText, generation: Generation) -> Result<Option<Rules>, ScenarioError> {
        let Some(mut rules) = Rules::of(generation) else {
            return Ok(None);
        };
        let text = &text.rules;
        for (name, spread, rule) in [
            ("to-level1-us", &text.to_level1_us, &mut rules.to_level1),
            ("to-level2-us", &text.to_level2_us, &mut rules.to_level2),
            ("tail-us", &text.tail_us, &mut rules.tail),
        ] {
            if let Some(spread) = spread {
                *rule = self.spread(name, spread)?;
            }
        }
        if text.to_level1_us.is_some() {
            rules.to_level1_crowded = rules.to_level1.clone();
        }
        for (name, value, rule) in [
            ("halt-down-us", &text.halt_down_us, &mut rules.halt_down),
            ("halt-up-us", &text.halt_up_us, &mut rules.halt_up),
        ] {
            if let Some(value) = value {
                *rule = (self.value(name, value)? * 1e3) as u64;
            }
        }
        Ok(Some(rules))
    }

    /// One kind of request, which is at each level for so long.
    fn residency(&self, times: &[Value; 3], machine: &Processor) -> Result<Kind, ScenarioError> {
        let classes = [Class::Scalar, Class::Light512, Class::Heavy512];
        let clocks = machine.all_active();
        let steps = (times.iter().zip(classes).zip(clocks)).map(|((time, class), khz)| {
            let us = self.value("residency-us", time)?;
            Ok(Step {
                class,
                dense: true,
                cycles: us * khz as f64 / 1e3,
                random: false,
                light: None,
                scalar: None,
                operation: None,
                timed: false,
            })
        });
        Ok(Kind {
            name: "residency".to_owned(),
            share: 1.0,
            rounds: 1,
            steps: steps.collect::<Result<_, ScenarioError>>()?,
        })
    }

    fn impatient(
        &self,
        text: &ImpatientText,
        kinds: &[Kind],
        operations: &[Operation],
        machine: &Processor,
    ) -> Result<Impatient, ScenarioError> {
        let shares: f64 = kinds.iter().map(|kind| kind.share).sum();
        let cycles = kinds
            .iter()
            .map(|kind| kind.share / shares * f64::from(kind.rounds) * kind.least_cycles(operations));
        // A core of one kHz does a cycle in a million nanoseconds.
        let cost = cycles.sum::<f64>() * 1e6 / machine.all_active()[0] as f64;
        let ns = |what, value, of_unit: f64| -> Result<u64, ScenarioError> {
            let ns = self.value(what, value)? * of_unit;
            match ns > LONGEST_TIME {
                true => wrong(format!("{what} is more than an hour")),
                false => Ok(ns as u64),
            }
        };
        let retries = self.count("retries", &text.retries)?;
        if retries > MOST_RETRIES {
            return wrong(format!("retries is {retries}; take up to {MOST_RETRIES}"));
        }
        Ok(Impatient {
            load: self.positive("load", &text.load)?,
            patience: ns("patience-ms", &text.patience_ms, 1e6)?,
            retries: retries as u32,
            backoff: ns("backoff-ms", &text.backoff_ms, 1e6)?,
            networks: self.at_least_one("networks", &text.networks)?,
            wait: ns("wait-ms", &text.wait_ms, 1e6)?,
            accepts: self.at_least_one("accepts", &text.accepts)?,
            handshakes: self.at_least_one("handshakes", &text.handshakes)?,
            kernel_queue: self.at_least_one("kernel-queue", &text.kernel_queue)?,
            cost: cost as u64,
            accept_cost: ns("accept-us", &text.accept_us, 1e3)?,
            lanes: (operations.iter().map(|one| one.costs.lanes).max()).unwrap_or(1),
        })
    }

    fn transfer(&self, text: &TransferText) -> Result<Transfer, ScenarioError> {
        Ok(Transfer {
            vector_cores: self.count("vector-cores", &text.vector_cores)?,
            lend: text.lend,
            migration: self.value("migration-cycles", &text.migration_cycles)?,
            pool: self.value("pool-cycles", &text.pool_cycles)?,
            fault: self.value("fault-cycles", &text.fault_cycles)?,
            system_call: self.value("system-call-cycles", &text.system_call_cycles)?,
            fixed_us: self.value("fixed-time-us", &text.fixed_time_us)?,
            queue: self.value("queue-cycles", &text.queue_cycles)?,
            wake_ns: (self.value("wake-us", &text.wake_us)? * 1e3) as u64,
        })
    }
}

/// The rows of the one processor that a name means.
fn rows(name: &str) -> Result<Vec<&'static Turbo>, ScenarioError> {
    let rows = turbo_of(name);
    let mut names: Vec<_> = rows.iter().map(|row| row.cpu).collect();
    names.dedup();
    match names.len() {
        1 => Ok(rows),
        0 => {
            let mut known: Vec<_> = turbo().iter().map(|row| row.cpu).collect();
            known.dedup();
            wrong(format!(
                "nothing is known of the processor {name:?}; known are {}",
                known.join("; ")
            ))
        }
        _ => wrong(format!("{name:?} may be {}; name one", names.join(", "))),
    }
}

/// kHz of a row. Without a source for level 1 or 2, and without a figure of the scenario, the next
/// known level below stands in for it: the loss is too large rather than too small.
fn clocks(row: &Turbo, given: [Option<f64>; 3]) -> Result<(usize, [u64; 3]), ScenarioError> {
    let known = [Level::L0, Level::L1, Level::L2].map(|level| row.clock(level));
    let known = [0, 1, 2].map(|level| given[level].or(known[level]));
    let [Some(level0), level1, level2] = known else {
        return wrong(format!(
            "no source gives the scalar clock of {} with {} active cores; take another processor",
            row.cpu, row.cores
        ));
    };
    let level1 = level1.or(level2).unwrap_or(level0);
    let level2 = level2.unwrap_or(level1);
    let khz = |ghz: f64| (ghz * 1e6).round() as u64;
    Ok((row.cores as usize, [khz(level0), khz(level1), khz(level2)]))
}

fn wrong<T>(what: String) -> Result<T, ScenarioError> {
    Err(ScenarioError::Wrong(what))
}

const MOST_CORES: usize = 1024;
/// Cycles.
const LEAST_ROUND: f64 = 100.0;
/// Nanoseconds that a client may wait, so that no sum of such times overflows.
const LONGEST_TIME: f64 = 3.6e12;
/// The wait before the last attempt is 2^10 times the first one.
const MOST_RETRIES: usize = 10;
