//! Gottschlag and Bellosa (KIT), "Mitigating AVX-induced performance variability with core
//! specialization" (2018) and its successor of 2019, done again.
//!
//! A thread compresses pages and encrypts what comes out, a record of 16 KiB at a time, with
//! ChaCha20-Poly1305: in 256-bit light code, in 512-bit registers in place, and in 512-bit registers
//! on a vector core, reached by a thread pool or by migration. No network and no client take part, so
//! that one CPU serves and the other can be the vector core.

use std::process::Command;

use widelane_handshakes::{Stage, TrialError, output};
use widelane_sim::{BUILTIN, Figure, Scenario, Settings};

use crate::error::ExperimentError;
use crate::outcome::{Design, Outcome, Turns};
use crate::plan::Plan;
use crate::worker::Order;

/// Does the experiment: the server's CPU is the scalar core, the load's is the vector core, and the
/// brake makes both behave as `brake`, if that is a model. `tell` gets a line of progress now and
/// then, the predictions among them.
///
/// # Errors
///
/// When a program fails, the CPU lacks the registers, or Ctrl-C comes.
pub fn kit(
    plan: &Plan,
    brake: Option<&str>,
    tell: impl Fn(&str),
) -> Result<Outcome, ExperimentError> {
    let mut options = plan.options.clone();
    options.conditions = Vec::new();
    if options.server_cpu == options.load_cpu {
        return Err(ExperimentError::Cpus);
    }
    let stage = Stage::set(options)?;
    let conditions = WAYS.map(|way| (way.name.to_owned(), way.published));
    let design = Design {
        name: "kit",
        scenario: SCENARIO,
        conditions: conditions.to_vec(),
    };
    let take = |brake: Option<&str>| take(&stage, plan, brake, &tell);
    design.run(plan, &stage, brake, take, predict, &tell)
}

/// A way to run the wide code.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    form: &'static str,
    wide: &'static str,
    /// The placement of the simulator.
    run: &'static str,
    published: Option<f64>,
}

/// What the worker printed.
fn take(
    stage: &Stage,
    plan: &Plan,
    brake: Option<&str>,
    tell: impl Fn(&str),
) -> Result<Turns, ExperimentError> {
    let options = stage.options();
    let mut turns = vec![Vec::new(); WAYS.len()];
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
    Ok(Turns(turns))
}

/// The changes against 256-bit light code, in per cent, by simulation with the costs of `native`.
fn predict(model: &str, native: &Turns) -> Result<Vec<Option<f64>>, ExperimentError> {
    let text = BUILTIN.iter().find(|(name, _)| *name == SCENARIO);
    let scenario = Scenario::parse(text.map_or("", |(_, text)| text))?;
    let us = |way, figure| native.median(way, figure);
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
    let change = |rate: Option<f64>| Some((rate? / base? - 1.0) * 100.0);
    Ok(rates.map(change).to_vec())
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
const SCENARIO: &str = "kit-2019-6130";
const CLOCK_MHZ: f64 = 2800.0;
