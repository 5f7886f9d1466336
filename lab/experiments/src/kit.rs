//! Gottschlag and Bellosa (KIT), "Mitigating AVX-induced performance variability with core
//! specialization" (2018) and its successor of 2019, done again.
//!
//! A thread compresses pages and encrypts what comes out, a record of 16 KiB at a time, with
//! ChaCha20-Poly1305: in 256-bit light code, in 512-bit registers in place, and in 512-bit registers
//! on a vector core, reached by a thread pool or by migration. No network and no client take part, so
//! that one CPU serves and the other can be the vector core.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use widelane_handshakes::{Options, Record, Stage, TrialError, output};
use widelane_sim::{BUILTIN, Figure, Scenario, Settings};

use crate::error::ExperimentError;
use crate::rates::Interval;
use crate::worker::Order;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct KitPlan {
    /// Programs and CPUs: the server's is the scalar core, the load's is the vector core.
    pub options: Options,
    /// The model as which the brake is to make both CPUs behave; `None`: no brake.
    pub brake: Option<String>,
    /// Rounds of turns.
    pub rounds: usize,
    /// Seconds of a turn.
    pub seconds: f64,
    /// Where the record goes; `None`: nowhere.
    pub records: Option<PathBuf>,
    /// The command line, for the record.
    pub command: String,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Kit {
    /// As these CPUs are.
    pub native: Vec<KitRow>,
    /// Under the brake.
    pub braked: Vec<KitRow>,
    /// The record.
    pub record: Option<PathBuf>,
}

/// One way to run the wide code.
#[derive(Clone, Debug)]
pub struct KitRow {
    /// Which one.
    pub name: &'static str,
    /// Requests a second.
    pub rate: Interval,
    /// Against 256-bit light code in the same round, in per cent.
    pub change: Interval,
    /// How much requests in twentieths of a second vary: from the 5th to the 95th percentile, in per
    /// cent of the median.
    pub variation: Interval,
    /// What the simulator says of the change, before the turns under the brake.
    pub predicted: Option<f64>,
    /// What was published of it, for 16 cores.
    pub published: Option<f64>,
}

/// Does the experiment. `tell` gets a line of progress now and then, the predictions among them.
///
/// # Errors
///
/// When a program fails, the CPU lacks the registers, or Ctrl-C comes.
pub fn kit(plan: KitPlan, mut tell: impl FnMut(&str)) -> Result<Kit, ExperimentError> {
    let mut options = plan.options.clone();
    options.conditions = Vec::new();
    if options.server_cpu == options.load_cpu {
        return Err(ExperimentError::Cpus);
    }
    let stage = Stage::set(options)?;
    let what = match &plan.brake {
        Some(model) => format!("experiment kit as {model}"),
        None => "experiment kit".to_owned(),
    };
    let record = plan.records.as_deref();
    let record = record.map(|folder| Record::begin(&stage, folder, &what, &plan.command));
    let mut record = record.transpose()?.map(|(record, _)| record);
    tell("starts as these CPUs are");
    let native = Turns::take(&stage, &plan, None, &mut tell)?;
    let mut result = Kit {
        native: native.rows([None; 4]),
        braked: Vec::new(),
        record: None,
    };
    let mut taken = vec![native];
    if let Some(model) = &plan.brake {
        let predicted = predict(model, &taken[0])?;
        for (way, change) in WAYS.iter().zip(predicted).skip(1) {
            if let Some(change) = change {
                tell(&format!(
                    "the simulator predicts for {}: {change:+.1} %",
                    way.name
                ));
            }
        }
        tell(&format!("starts as a {model}"));
        let braked = Turns::take(&stage, &plan, Some(model), &mut tell)?;
        result.braked = braked.rows(predicted);
        taken.push(braked);
    }
    if let Some(mut record) = record.take() {
        for (turns, rows, brake) in [
            (&taken[..1], &result.native, None),
            (&taken[1..], &result.braked, plan.brake.as_deref()),
        ] {
            for turns in turns {
                for (index, row) in rows.iter().enumerate().skip(1) {
                    let what = format!(
                        "requests/s, {}, {}, per cent",
                        row.name,
                        brake.map_or("as this CPU is".to_owned(), |model| format!("as a {model}"))
                    );
                    let rounds = turns.rates(index).into_iter().zip(turns.rates(0));
                    for (round, (rate, base)) in rounds.enumerate() {
                        record.line(&json!({
                            "kind": "experiment", "scenario": "kit-2019-6130", "what": what,
                            "round": round, "value": (rate / base - 1.0) * 100.0,
                            "published": row.published, "simulated": row.predicted,
                            "turn": turns.0[index][round], "turn_256_light": turns.0[0][round],
                        }))?;
                    }
                }
            }
        }
        result.record = Some(record.end("")?);
    }
    Ok(result)
}

/// A way to run the wide code.
struct Way {
    name: &'static str,
    form: &'static str,
    wide: &'static str,
    /// The placement of the simulator.
    run: &'static str,
    published: Option<f64>,
}

/// What the worker printed in each round, by way.
struct Turns([Vec<Value>; WAYS.len()]);

impl Turns {
    fn take(
        stage: &Stage,
        plan: &KitPlan,
        brake: Option<&String>,
        tell: &mut impl FnMut(&str),
    ) -> Result<Self, ExperimentError> {
        let options = stage.options();
        let mut turns: [Vec<Value>; WAYS.len()] = Default::default();
        for round in 0..plan.rounds {
            for (way, turns) in WAYS.iter().zip(&mut turns) {
                let order = Order {
                    form: way.form.to_owned(),
                    wide: way.wide.replace("CPU", &options.load_cpu.to_string()),
                    cpu: options.server_cpu,
                    seconds: plan.seconds,
                };
                let mut command = Command::new(&options.widelane);
                if let Some(model) = brake {
                    command.args(["emulate", "--as", model, "--cpus"]);
                    command.arg(format!("{},{}", options.server_cpu, options.load_cpu));
                    command.arg("--").arg(&options.widelane);
                }
                command.args(["experiment", "kit", "--worker", &order.to_string()]);
                let printed = output(&mut command, None, stage.interrupt())?;
                let line = serde_json::from_slice(&printed);
                turns.push(line.map_err(|source| TrialError::Figures {
                    command: "widelane experiment kit --worker".to_owned(),
                    source,
                })?);
            }
            tell(&format!("round {} of {}", round + 1, plan.rounds));
        }
        Ok(Self(turns))
    }

    fn values(&self, way: usize, of: impl Fn(&Value) -> Option<f64>) -> Vec<f64> {
        self.0[way].iter().filter_map(of).collect()
    }

    fn rates(&self, way: usize) -> Vec<f64> {
        self.values(way, |turn| turn["requests_per_s"].as_f64())
    }

    fn rows(&self, predicted: [Option<f64>; WAYS.len()]) -> Vec<KitRow> {
        let base = self.rates(0);
        let rows = WAYS.iter().zip(predicted).enumerate();
        rows.filter_map(|(index, (way, predicted))| {
            let rates = self.rates(index);
            let variation = self.values(index, |turn| turn["variation_percent"].as_f64());
            Some(KitRow {
                name: way.name,
                rate: Interval::of(&rates)?,
                change: Interval::of_changes(&rates, &base)?,
                variation: Interval::of(&variation)?,
                predicted,
                published: way.published,
            })
        })
        .collect()
    }
}

/// The changes against 256-bit light code, in per cent, by simulation with the costs of `native`.
fn predict(model: &str, native: &Turns) -> Result<[Option<f64>; WAYS.len()], ExperimentError> {
    let text = BUILTIN.iter().find(|(name, _)| *name == "kit-2019-6130");
    let scenario = Scenario::parse(text.map_or("", |(_, text)| text))?;
    let us = |way: usize, key: &str| {
        let values = native.values(way, |turn| turn[key].as_f64());
        Interval::of(&values).map_or(0.0, |interval| interval.median)
    };
    // Any clock does: only quotients count.
    let cycles = |us: f64| (us * CLOCK_MHZ).max(1.0);
    let mut rates = [None; WAYS.len()];
    for (index, (way, rate)) in WAYS.iter().zip(&mut rates).enumerate() {
        // What a call takes there more than in place is the way to the vector core and back.
        let transfer = (us(index, "wide_us") - us(1, "wide_us")).max(0.0) / 2.0;
        let set = [
            ("connections", 1.0),
            ("page_rounds", 1.0),
            ("page_cycles", cycles(us(index, "page_us"))),
            ("burst_cycles", cycles(us(1, "wide_us"))),
            ("sse_cycles", cycles(us(0, "wide_us"))),
            ("migration_cycles", cycles(transfer)),
            ("marked_cores", 1.0),
        ];
        let settings = Settings {
            model: Some(model.to_owned()),
            cores: Some(2),
            // As the brake counts them.
            active: Some(2),
            set: set.map(|(name, value)| (name.to_owned(), value)).into(),
        };
        let figures = scenario.plan(scenario.run(way.run)?, &settings)?.figures();
        *rate = figures.figures.get(&Figure::Throughput).copied();
    }
    let base = rates[0];
    Ok(rates.map(|rate| Some((rate? / base? - 1.0) * 100.0)))
}

/// The first is what the others are compared with.
const WAYS: [Way; 4] = [
    Way {
        name: "256-light in place",
        form: "256-light",
        wide: "inline",
        run: "no-avx",
        published: None,
    },
    Way {
        name: "512-ifma in place",
        form: "512-ifma",
        wide: "inline",
        run: "avx-512",
        published: Some(-11.2),
    },
    Way {
        name: "512-ifma, thread pool",
        form: "512-ifma",
        wide: "pool:CPU",
        run: "marked",
        published: None,
    },
    Way {
        name: "512-ifma, migration",
        form: "512-ifma",
        wide: "migrate:CPU",
        run: "marked",
        published: Some(-3.2),
    },
];
const CLOCK_MHZ: f64 = 2800.0;
