//! Gottschlag and Bellosa (KIT), "Mitigating AVX-induced performance variability with core
//! specialization" (2018) and its successor of 2019, done again with one scalar and one vector core.
//!
//! Two parts. In the first a thread does a server's work without its network: it compresses pages and
//! encrypts what comes out with ChaCha20-Poly1305, in place or by `run_wide` on the vector core, with
//! more and less wide code in a page. In the second real servers do it: the page of
//! [`cloudflare`](crate::cloudflare()) with the terminator in place or steered to the vector core, and
//! with a handshake for each page whose passes run in place or are shipped there.

use std::process::Command;

use serde_json::{Value, json};
use widelane_handshakes::{Stage, TrialError, output};

use crate::error::ExperimentError;
use crate::forecast::{Forecast, cycles};
use crate::handshakes::{self, PASSES, SHIPPED, SOFTWARE, page_case};
use crate::load::served;
use crate::outcome::{self, Design, Outcome, RATE, Turns};
use crate::plan::Plan;
use crate::programs::Programs;
use crate::terminator::{Placement, Setting, Terminator};
use crate::web;
use crate::worker::Order;

/// Does the experiment: the server's CPU is the scalar core, the load's is the vector core, and the
/// brake makes both behave as `brake`, if that is a model. `tell` gets a line of progress now and
/// then, the predictions among them. Without the programs of the web server the second part is left
/// out, and `tell` says so.
///
/// # Errors
///
/// When a program fails, the CPU lacks the registers, or Ctrl-C comes.
pub fn kit(plan: &Plan, brake: Option<&str>, tell: impl Fn(&str)) -> Result<Outcome, ExperimentError> {
    if plan.options.server_cpu == plan.options.load_cpu {
        return Err(ExperimentError::Cpus);
    }
    let mut stage = plan.stage()?;
    let needs = match Programs::find() {
        Ok(needs) => Some(needs),
        Err(error) => {
            tell(&format!("without real servers: {error}"));
            None
        }
    };
    let _backend = needs.as_ref().map(|needs| web::backend(&stage, needs)).transpose()?;
    let cases = cases(needs.is_some());
    let condition = |case: &Case| outcome::Condition {
        name: case.name.clone(),
        base: case.base,
        published: case.published,
    };
    let design = Design {
        name: "kit",
        scenario: SCENARIO,
        conditions: cases.iter().map(condition).collect(),
    };
    let take = |stage: &Stage| {
        plan.turns(&cases, &tell, |case| match &case.what {
            Workload::Work(work) => worked(stage, work, plan.seconds),
            Workload::Pages(setting) => pages(stage, needs.as_ref(), *setting, plan.seconds),
            Workload::Connections(case) => handshakes::turn(stage, case, plan.seconds),
        })
    };
    let predict = |model: &str, native: &Turns| {
        let forecast = Forecast::new(SCENARIO, model, 2)?;
        let rates = cases.iter().enumerate().map(|(index, case)| match &case.what {
            Workload::Work(work) => rate(&forecast, native, index, case.base, work),
            Workload::Pages(_) => Ok(None),
            Workload::Connections(case) => handshakes::rate(model, native, index, case),
        });
        rates.collect()
    };
    design.run(plan, &mut stage, brake, take, predict, &tell)
}

/// A workload with its name, and with what it is compared.
struct Case {
    name: String,
    base: usize,
    published: Option<f64>,
    what: Workload,
}

enum Workload {
    /// Work without a network.
    Work(Work),
    /// Pages over connections that stay.
    Pages(Setting),
    /// A connection for each page.
    Connections(handshakes::Case),
}

#[derive(Clone, Copy)]
struct Work {
    form: &'static str,
    /// Form in which `run_wide` runs the work; `CPU` is the vector core's.
    wide: &'static str,
    /// Records that a page is encrypted in.
    records: usize,
    /// The placement of the simulator.
    run: &'static str,
}

/// All of them, those of real servers among them if they are installed.
fn cases(servers: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for records in RECORDS {
        let base = cases.len();
        for (name, form, wide, run, published) in WORK {
            let name = format!("{records} records, {name}");
            let what = Workload::Work(Work {
                form,
                wide,
                records,
                run,
            });
            // Published is a share of about 5 %.
            let published = published.filter(|_| records == RECORDS[1]);
            cases.push(Case {
                name,
                base,
                published,
                what,
            });
        }
    }
    if !servers {
        return cases;
    }
    let base = cases.len();
    for (name, base, setting) in [
        ("pages, 256-light in place", base, Setting::form("256-light")),
        ("pages, 512-ifma in place", base, Setting::form("512-ifma")),
        ("pages, 256-light steered", base + 2, steered("256-light")),
        ("pages, 512-ifma steered", base + 2, steered("512-ifma")),
    ] {
        cases.push(Case {
            name: name.to_owned(),
            base,
            published: None,
            what: Workload::Pages(setting),
        });
    }
    let base = cases.len();
    for (name, setting) in [
        ("connections, software", SOFTWARE),
        ("connections, passes in place", PASSES),
        ("connections, passes shipped", SHIPPED),
    ] {
        cases.push(Case {
            name: name.to_owned(),
            base,
            published: None,
            what: Workload::Connections(page_case(name, base, setting, None)),
        });
    }
    cases
}

const fn steered(form: &'static str) -> Setting {
    Setting {
        placement: Placement::Steered,
        ..Setting::form(form)
    }
}

/// Output of the worker.
fn worked(stage: &Stage, work: &Work, seconds: f64) -> Result<Value, ExperimentError> {
    let options = stage.options();
    let order = Order {
        form: work.form.to_owned(),
        wide: work.wide.replace("CPU", &options.load_cpu.to_string()),
        cpu: options.server_cpu,
        records: work.records,
        seconds,
    };
    let mut command = Command::new(&options.lab);
    command.args(["experiment", "kit", "--worker", &json!(order).to_string()]);
    let mut command = options.emulated(command, None);
    let printed = output(&mut command, None, stage.interrupt())?;
    let line = serde_json::from_slice(&printed);
    line.map_err(|source| {
        let command = "widelane-lab experiment kit --worker".to_owned();
        TrialError::Figures { command, source }.into()
    })
}

/// Pages over connections that stay, all with ChaCha20-Poly1305.
fn pages(stage: &Stage, needs: Option<&Programs>, setting: Setting, seconds: f64) -> Result<Value, ExperimentError> {
    let Some(needs) = needs else {
        return Ok(json!({}));
    };
    let front = Terminator::start(stage, setting)?.front;
    let served = served(stage, needs, front, 100, seconds)?;
    Ok(json!({ RATE: served.requests_per_s, "levels": served.levels }))
}

/// The rate of the work without a network, by simulation with the costs of `native`.
fn rate(
    forecast: &Forecast,
    native: &Turns,
    index: usize,
    base: usize,
    work: &Work,
) -> Result<Option<f64>, ExperimentError> {
    let us = |case, figure| native.median(case, figure);
    let in_place = base + 1;
    // The way to the vector core and back is what a call takes there more than in place.
    let transfer = (us(index, "wide_us") - us(in_place, "wide_us")).max(0.0) / 2.0;
    let set = [
        ("connections", 1.0),
        ("page_rounds", 1.0),
        ("page_cycles", cycles(us(index, "page_us"))),
        ("burst_cycles", cycles(us(in_place, "wide_us"))),
        ("sse_cycles", cycles(us(base, "wide_us"))),
        ("migration_cycles", cycles(transfer)),
        ("marked_cores", 1.0),
    ];
    forecast.rate(work.run, &set)
}

/// Name, form, `run_wide`, the simulator's run, and what was published of it. The first is what the
/// others are compared with.
const WORK: [(&str, &str, &str, &str, Option<f64>); 4] = [
    ("256-light in place", "256-light", "inline", "no-avx", None),
    ("512-ifma in place", "512-ifma", "inline", "avx-512", Some(-11.2)),
    ("512-ifma, thread pool", "512-ifma", "pool:CPU", "marked", None),
    ("512-ifma, migration", "512-ifma", "migrate:CPU", "marked", Some(-3.2)),
];
/// Records of a page: how much of the work is wide.
const RECORDS: [usize; 3] = [1, 4, 16];
const SCENARIO: &str = "kit-2019-6130";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_compared_with_one_before_it() {
        let all = cases(true);
        assert_eq!(cases(false).len(), RECORDS.len() * WORK.len());
        for (index, case) in all.iter().enumerate() {
            assert!(case.base <= index && all[case.base].base == case.base, "{}", case.name);
        }
        let published = all.iter().filter(|case| case.published.is_some());
        assert_eq!(published.count(), 2);
    }
}
