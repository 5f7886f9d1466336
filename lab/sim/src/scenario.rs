//! Scenario files: what is simulated, in TOML.
//!
//! Each number may be written as a number or as the name of a parameter. A parameter has a value and
//! its source: a publication, or a sentence that begins with `assumed`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use widelane_cpu::licence::Class;

use crate::error::ScenarioError;

/// A scenario as its file says it. [`Scenario::plan`](crate::Plan) makes one of its runs ready.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// Description of the scenario, in a line.
    pub title: String,
    /// Publication of the experiment.
    pub source: String,
    /// Named numbers.
    #[serde(default, rename = "parameter")]
    pub parameters: BTreeMap<String, Parameter>,
    /// The processor.
    pub machine: MachineText,
    /// Arrivals of requests.
    pub load: LoadText,
    /// Kinds of requests.
    #[serde(default, rename = "kind")]
    pub kinds: Vec<KindText>,
    /// Operations that passes do for several requests at once.
    #[serde(default, rename = "operation")]
    pub operations: Vec<OperationText>,
    /// Work on hyperthreads beside the server, all the time.
    #[serde(default)]
    pub background: Vec<BackgroundText>,
    /// Costs of moving work between cores.
    #[serde(default)]
    pub transfer: TransferText,
    /// Clients that give up and try again. The runs simulate them, and a single worker in place of cores.
    pub impatient: Option<ImpatientText>,
    /// The runs: the scenario under different settings.
    #[serde(rename = "run")]
    pub runs: Vec<RunText>,
    /// Machines behind one load balancer.
    pub fleet: Option<FleetText>,
    /// Published numbers, and what they are compared with.
    #[serde(default, rename = "number")]
    pub numbers: Vec<NumberText>,
}

/// A named number.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Value of the parameter.
    pub value: f64,
    /// Source of the value.
    pub source: String,
}

/// A number, or the name of a parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// The name of a parameter.
    Named(String),
}

/// A time in microseconds: always the same, or evenly between two.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum SpreadText {
    /// Constant cycles.
    Exactly(Value),
    /// Evenly from the first to the second.
    Evenly([Value; 2]),
}

/// The processor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MachineText {
    /// A processor of the data file of turbo schedules.
    pub model: String,
    /// Physical cores.
    pub cores: Value,
    /// Hyperthreads of a core, 1 or 2.
    #[serde(default = "one")]
    pub threads: Value,
    /// Work that a hyperthread does while its sibling works, as a share of a core.
    #[serde(default = "sibling_share")]
    pub sibling_share: Value,
    /// Number of cores that count as active in the turbo schedule, if not those that are.
    pub active: Option<Value>,
    /// GHz of level 0, in place of the schedule's.
    pub level0_ghz: Option<Value>,
    /// GHz of level 1, in place of the schedule's.
    pub level1_ghz: Option<Value>,
    /// GHz of level 2, in place of the schedule's.
    pub level2_ghz: Option<Value>,
    /// Rules of the licence, in place of its generation's.
    #[serde(default)]
    pub rules: RulesText,
}

/// Rules of the licence, in microseconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RulesText {
    /// See [`Rules::to_level1`](widelane_cpu::licence::machine::Rules::to_level1).
    pub to_level1_us: Option<SpreadText>,
    /// See [`Rules::to_level2`](widelane_cpu::licence::machine::Rules::to_level2).
    pub to_level2_us: Option<SpreadText>,
    /// See [`Rules::halt_down`](widelane_cpu::licence::machine::Rules::halt_down).
    pub halt_down_us: Option<Value>,
    /// See [`Rules::tail`](widelane_cpu::licence::machine::Rules::tail).
    pub tail_us: Option<SpreadText>,
    /// See [`Rules::halt_up`](widelane_cpu::licence::machine::Rules::halt_up).
    pub halt_up_us: Option<Value>,
}

/// Arrivals of requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoadText {
    /// Closed loop: number of connections, each with one request at a time.
    pub connections: Option<Value>,
    /// Closed loop: mean seconds between an answer and the next request, at random.
    #[serde(default = "zero")]
    pub think_seconds: Value,
    /// Open loop: requests a second, at random.
    pub rate: Option<Value>,
    /// Open loop: how many come together.
    #[serde(default = "one")]
    pub burst: Value,
    /// Simulated seconds that count.
    #[serde(default = "one")]
    pub seconds: Value,
    /// Simulated seconds before them.
    #[serde(default = "warm_up")]
    pub warm_up: Value,
}

/// A kind of request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KindText {
    /// Name of the kind.
    pub name: String,
    /// Share of all requests; all shares are divided by their sum.
    #[serde(default = "one")]
    pub share: Value,
    /// Number of repetitions of the steps. After each round other requests get the core.
    #[serde(default = "one")]
    pub rounds: Value,
    /// Steps of one round, in order.
    pub steps: Vec<StepText>,
}

/// A piece of work of one class.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StepText {
    /// The class of its code.
    #[serde(default = "scalar")]
    pub class: String,
    /// True if heavy instructions come at about one in two cycles.
    #[serde(default)]
    pub dense: bool,
    /// Cycles that it takes; with `operation`, none.
    #[serde(default = "zero")]
    pub cycles: Value,
    /// True if the cycles are drawn at random (exponentially) with this mean.
    #[serde(default)]
    pub random: bool,
    /// Cycles of the same work in 256-bit light code.
    pub light_cycles: Option<Value>,
    /// Cycles of the same work in scalar or 128-bit code.
    pub scalar_cycles: Option<Value>,
    /// The operation that does it.
    pub operation: Option<String>,
    /// True if the step's duration is reported, apart from the request's.
    #[serde(default)]
    pub timed: bool,
}

/// An operation of which one pass serves several requests. Its costs are either written here or
/// taken from our own measurements, see [`measured`](Self::measured).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OperationText {
    /// Name of the operation.
    pub name: String,
    /// The class of a pass.
    pub class: String,
    /// True if heavy instructions come at about one in two cycles.
    #[serde(default = "yes")]
    pub dense: bool,
    /// A CPU of `lab/sim/data/operations.csv`: lanes and costs are those of the operation of this name
    /// there.
    pub measured: Option<String>,
    /// Requests that one pass serves.
    pub lanes: Option<Value>,
    /// Cycles of a pass for one.
    pub first_cycles: Option<Value>,
    /// Cycles that each further one adds; none if it is not said.
    pub further_cycles: Option<Value>,
    /// Cycles of one in scalar code.
    pub scalar_cycles: Option<Value>,
}

/// Work on hyperthreads beside the server, all the time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BackgroundText {
    /// The hyperthread of each core, counted from 0.
    pub thread: Value,
    /// The class of its code on one core after the other, again and again.
    pub classes: Vec<String>,
}

/// Costs of moving work between cores.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TransferText {
    /// Vector cores.
    pub vector_cores: Value,
    /// True if vector cores do scalar work while there is none for them.
    pub lend: bool,
    /// Cycles of a thread's way to another core.
    pub migration_cycles: Value,
    /// Cycles of handing a call to a thread of a pool, or the value back.
    pub pool_cycles: Value,
    /// Cycles of a trap at the first wide instruction.
    pub fault_cycles: Value,
    /// Cycles between two system calls of the server.
    pub system_call_cycles: Value,
    /// Time for which a thread that trapped stays, with `fault-fixed-time`.
    pub fixed_time_us: Value,
    /// Cycles of handing a request to a queue, and of taking its answer.
    pub queue_cycles: Value,
    /// Time from the order to wake a sleeping vector core until it works.
    pub wake_us: Value,
}

impl Default for TransferText {
    fn default() -> Self {
        Self {
            vector_cores: Value::Number(1.0),
            lend: true,
            migration_cycles: Value::Number(8_000.0),
            pool_cycles: Value::Number(4_000.0),
            fault_cycles: Value::Number(3_000.0),
            system_call_cycles: Value::Number(30_000.0),
            fixed_time_us: Value::Number(100.0),
            queue_cycles: Value::Number(300.0),
            wake_us: Value::Number(5.0),
        }
    }
}

/// Clients that give up and try again, and the worker that serves them. A request takes it the mean time that its
/// steps take at level 0, operations in full passes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ImpatientText {
    /// Clients that come, at random, as a multiple of those that the worker can serve.
    pub load: Value,
    /// Time for which a client waits for an answer.
    pub patience_ms: Value,
    /// Further attempts of a client.
    pub retries: Value,
    /// Time before the second attempt, up to half of it left to chance; doubled for each further one.
    pub backoff_ms: Value,
    /// Networks that the clients come from, each with as many.
    pub networks: Value,
    /// Time for which handshakes may wait for the worker in calm; 0: it begins them in the order in which they come.
    pub wait_ms: Value,
    /// Connections that the worker accepts before it goes on with handshakes.
    pub accepts: Value,
    /// Handshakes that it has at a time, beyond which it refuses connections.
    pub handshakes: Value,
    /// Connections that the kernel queues in calm.
    pub kernel_queue: Value,
    /// Time that the worker needs for each connection besides its handshake, also for one that it refuses or finds
    /// left by its client.
    pub accept_us: Value,
}

/// A run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunText {
    /// Name of the run.
    pub name: String,
    /// A name of [`Placement`](crate::Placement).
    #[serde(default = "as_is")]
    pub placement: String,
    /// The model of its processor, in place of the scenario's.
    pub model: Option<String>,
    /// Passes run in the lanes of this target, `avx512ifma`, `avx512f` or `avx2`: classes and costs of operations are
    /// predicted for the processor, from what such lanes took where they were measured. Without it, those of the
    /// operations.
    pub lanes: Option<String>,
    /// Parameters with other values.
    #[serde(default)]
    pub set: BTreeMap<String, f64>,
    /// Vector cores, in place of the scenario's.
    pub vector_cores: Option<Value>,
    /// The classes of the background, in place of the scenario's.
    pub background: Option<Vec<String>>,
    /// True if the level of wide code ends with the code, as if an oracle informed the processor.
    #[serde(default)]
    pub oracle: bool,
    /// Transition to measure: the run measures transitions of one core, and no requests.
    pub transition: Option<TransitionText>,
    /// Microseconds that one core spends at each level in turn.
    pub residency_us: Option<[Value; 3]>,
}

/// A transition of one core from the full clock, and back.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TransitionText {
    /// The class of the code that asks for it.
    pub class: String,
    /// True if heavy instructions come at about one in two cycles.
    #[serde(default)]
    pub dense: bool,
    /// True if two other cores change their level at the same time.
    #[serde(default)]
    pub crowded: bool,
}

/// Machines behind one load balancer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FleetText {
    /// The bound of the 99th percentile, in microseconds.
    pub p99_us: f64,
    /// The machines, by model.
    pub machines: Vec<FleetMachineText>,
}

/// Machines of one model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FleetMachineText {
    /// A processor of the data file of turbo schedules.
    pub model: String,
    /// Physical cores of a machine.
    pub cores: u32,
    /// Number of machines.
    pub count: u32,
}

/// A published number, and what it is compared with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NumberText {
    /// Meaning of the number.
    pub what: String,
    /// The published figure.
    pub published: f64,
    /// Greatest difference of the simulated number, in the same unit.
    pub tolerance: f64,
    /// The figure of a run, a name of [`Figure`](crate::Figure).
    pub figure: String,
    /// The run.
    pub run: String,
    /// Run against which the figure is a change in per cent.
    pub against: Option<String>,
    /// Run of which the figure is a multiple.
    pub times: Option<String>,
    /// True if no parameter was chosen with the number in view.
    #[serde(default)]
    pub held_out: bool,
    /// Reason why the tolerance cannot be met, in numbers.
    #[serde(default)]
    pub explanation: Option<String>,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    ///
    /// When the text is no TOML or no scenario: the message names line and field.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        scenario.check_use(toml::from_str(text)?)?;
        Ok(scenario)
    }

    /// A parameter that no number names is a mistake: to set it changes nothing.
    fn check_use(&self, mut text: toml::Table) -> Result<(), ScenarioError> {
        text.remove("parameter");
        let mut used = BTreeSet::new();
        strings(&toml::Value::Table(text), &mut used);
        match self.parameters.keys().find(|name| !used.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(ScenarioError::Wrong(format!(
                "the parameter {name:?} is used nowhere: write its name in place of a number, or \
                 remove it"
            ))),
        }
    }

    /// Checks that need no run.
    fn check(&self) -> Result<(), ScenarioError> {
        let wrong = |what: String| Err(ScenarioError::Wrong(what));
        if self.runs.is_empty() {
            return wrong("there is no [[run]]; add one with a name".to_owned());
        }
        for (index, run) in self.runs.iter().enumerate() {
            if self.runs[..index].iter().any(|other| other.name == run.name) {
                return wrong(format!("two runs are called {:?}", run.name));
            }
        }
        for number in &self.numbers {
            let named = [Some(&number.run), number.against.as_ref(), number.times.as_ref()];
            for name in named.into_iter().flatten() {
                self.run(name)?;
            }
        }
        Ok(())
    }

    /// The run of this name.
    ///
    /// # Errors
    ///
    /// When there is none: the message lists those that there are.
    pub fn run(&self, name: &str) -> Result<&RunText, ScenarioError> {
        let found = self.runs.iter().find(|run| run.name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self.runs.iter().map(|run| run.name.as_str()).collect();
            ScenarioError::Wrong(format!("there is no run {name:?}; the runs are {}", known.join(", ")))
        })
    }
}

/// All strings in a value.
fn strings(value: &toml::Value, found: &mut BTreeSet<String>) {
    match value {
        toml::Value::String(text) => _ = found.insert(text.clone()),
        toml::Value::Array(values) => values.iter().for_each(|value| strings(value, found)),
        toml::Value::Table(table) => table.values().for_each(|value| strings(value, found)),
        _ => {}
    }
}

/// The class of this name.
///
/// # Errors
///
/// When there is none: the message lists those that there are.
pub(crate) fn class(name: &str) -> Result<Class, ScenarioError> {
    Class::named(name).ok_or_else(|| {
        let known = Class::ALL.map(Class::name).join(", ");
        ScenarioError::Wrong(format!("{name:?} is no class; the classes are {known}"))
    })
}

fn zero() -> Value {
    Value::Number(0.0)
}

fn one() -> Value {
    Value::Number(1.0)
}

/// Two hyperthreads do about a quarter more than one: assumed.
fn sibling_share() -> Value {
    Value::Number(0.62)
}

fn warm_up() -> Value {
    Value::Number(0.05)
}

fn scalar() -> String {
    Class::Scalar.name().to_owned()
}

fn as_is() -> String {
    "as-is".to_owned()
}

fn yes() -> bool {
    true
}
