//! Krasnov (Cloudflare), "On the dangers of Intel's frequency scaling" (2017), done again.
//!
//! A page that Lua and brotli work on, at full load, with AES-128-GCM or with ChaCha20-Poly1305 in
//! four forms. First as this CPU is; these turns also give the costs from which the simulator
//! predicts what a braked CPU does. Then under the brake, if one was asked for.

use std::path::{Path, PathBuf};

use serde_json::json;
use widelane_handshakes::{Options, Record, Stage};
use widelane_sim::{BUILTIN, Figure, Scenario, Settings};

use crate::error::ExperimentError;
use crate::load::{CONNECTIONS, requests_per_second};
use crate::needs::Needs;
use crate::rates::Interval;
use crate::web::{Backend, Terminator};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct CloudflarePlan {
    /// Programs and CPUs.
    pub options: Options,
    /// The model as which the brake is to make the CPU behave; `None`: no brake.
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
pub struct Cloudflare {
    /// As this CPU is.
    pub native: Vec<Row>,
    /// Under the brake.
    pub braked: Vec<Row>,
    /// What the brake said of itself.
    pub brake: Option<String>,
    /// Bytes of the page as it is sent.
    pub page_bytes: usize,
    /// The record.
    pub record: Option<PathBuf>,
}

/// One condition.
#[derive(Clone, Debug)]
pub struct Row {
    /// The form of the cipher, or `aes-128-gcm`.
    pub form: &'static str,
    /// How many per cent of the requests use ChaCha20-Poly1305.
    pub chacha_percent: usize,
    /// Requests a second.
    pub rate: Interval,
    /// Against AES-128-GCM in the same round, in per cent.
    pub change: Interval,
    /// What the simulator says of that change, from the costs of the native turns, before the turns
    /// under the brake.
    pub predicted: Option<f64>,
    /// What was published of it, for 24 cores.
    pub published: Option<f64>,
}

/// Does the experiment. `tell` gets a line of progress now and then, the predictions among them.
///
/// # Errors
///
/// When something is not installed, a server fails or answers wrongly, or Ctrl-C comes.
pub fn cloudflare(
    plan: CloudflarePlan,
    mut tell: impl FnMut(&str),
) -> Result<Cloudflare, ExperimentError> {
    let needs = Needs::find()?;
    let mut options = plan.options.clone();
    options.conditions = Vec::new();
    let stage = Stage::set(options)?;
    let record = plan
        .records
        .as_deref()
        .map(|folder| begin(&stage, folder, &plan));
    let mut record = record.transpose()?;
    let backend = Backend::start(&stage, &needs)?;
    tell("starts as this CPU is");
    let mut native = Turns::take(&stage, &needs, &plan, None, &mut tell)?;
    let page_bytes = native.page_bytes;
    let mut result = Cloudflare {
        native: native.rows(|_| None),
        braked: Vec::new(),
        brake: plan.brake.clone(),
        page_bytes,
        record: None,
    };
    let mut taken = vec![native.clone()];
    if let Some(model) = &plan.brake {
        let costs = Costs::of(&native);
        let predicted: Result<Vec<_>, ExperimentError> = CONDITIONS
            .iter()
            .map(|condition| costs.predict(model, condition))
            .collect();
        let predicted = predicted?;
        for (condition, change) in CONDITIONS.iter().zip(&predicted).skip(1) {
            tell(&format!(
                "the simulator predicts for {} at {} %: {change:+.1} %",
                condition.form, condition.percent
            ));
        }
        tell(&format!("starts as a {model}"));
        native = Turns::take(&stage, &needs, &plan, Some(model), &mut tell)?;
        result.braked = native.rows(|index| Some(predicted[index]));
        taken.push(native);
    }
    drop(backend);
    if let Some(mut record) = record.take() {
        for (turns, rows, brake) in [
            (&taken[..1], &result.native, None),
            (&taken[1..], &result.braked, plan.brake.as_deref()),
        ] {
            for turns in turns {
                for (rates, row) in turns.rates.iter().zip(rows).skip(1) {
                    let what = format!(
                        "requests/s, {} at {} %, {}, per cent",
                        row.form,
                        row.chacha_percent,
                        brake.map_or("as this CPU is".to_owned(), |model| format!("as a {model}"))
                    );
                    for (round, (rate, base)) in rates.iter().zip(&turns.rates[0]).enumerate() {
                        record.line(&json!({
                            "kind": "experiment", "scenario": "cloudflare-2017", "what": what,
                            "round": round, "value": (rate / base - 1.0) * 100.0,
                            "published": row.published, "simulated": row.predicted,
                            "requests_per_s": rate, "requests_per_s_aes": base,
                        }))?;
                    }
                }
            }
        }
        result.record = Some(record.end("")?);
    }
    Ok(result)
}

fn begin(stage: &Stage, folder: &Path, plan: &CloudflarePlan) -> Result<Record, ExperimentError> {
    let what = match &plan.brake {
        Some(model) => format!("experiment cloudflare as {model}"),
        None => "experiment cloudflare".to_owned(),
    };
    let (record, _) = Record::begin(stage, folder, &what, &plan.command)?;
    Ok(record)
}

/// A share of requests with ChaCha20-Poly1305 in a form.
struct Condition {
    form: &'static str,
    percent: usize,
    published: Option<f64>,
}

/// The rates of all rounds, by condition.
#[derive(Clone)]
struct Turns {
    rates: Vec<Vec<f64>>,
    page_bytes: usize,
}

impl Turns {
    fn take(
        stage: &Stage,
        needs: &Needs,
        plan: &CloudflarePlan,
        brake: Option<&String>,
        tell: &mut impl FnMut(&str),
    ) -> Result<Self, ExperimentError> {
        let mut terminators = Vec::new();
        let mut page_bytes = 0;
        for form in FORMS {
            // One brake for a CPU: it sees the marks of the programs that it started. So only one
            // terminator runs at a time under it.
            if brake.is_none() {
                let terminator = Terminator::start(stage, form, None)?;
                page_bytes = terminator.check(stage, needs)?;
                terminators.push(terminator);
            }
        }
        let mut rates = vec![Vec::new(); CONDITIONS.len()];
        for round in 0..plan.rounds {
            for (condition, rates) in CONDITIONS.iter().zip(&mut rates) {
                stage.interrupt().check()?;
                let form = FORMS.iter().position(|form| *form == condition.form);
                let form = form.unwrap_or(0);
                let mut own;
                let terminator = match terminators.get_mut(form) {
                    Some(terminator) => terminator,
                    None => {
                        own = Terminator::start(stage, FORMS[form], brake.map(String::as_str))?;
                        page_bytes = own.check(stage, needs)?;
                        &mut own
                    }
                };
                let address = terminator.address;
                let rate =
                    requests_per_second(stage, needs, address, condition.percent, plan.seconds)?;
                terminator.alive()?;
                rates.push(rate);
            }
            tell(&format!("round {} of {}", round + 1, plan.rounds));
        }
        Ok(Self { rates, page_bytes })
    }

    fn rows(&self, predicted: impl Fn(usize) -> Option<f64>) -> Vec<Row> {
        let base = &self.rates[0];
        let rows = CONDITIONS.iter().zip(&self.rates).enumerate();
        rows.filter_map(|(index, (condition, rates))| {
            Some(Row {
                form: condition.form,
                chacha_percent: condition.percent,
                rate: Interval::of(rates)?,
                change: Interval::of_changes(rates, base)?,
                predicted: predicted(index),
                published: condition.published,
            })
        })
        .collect()
    }
}

/// What requests cost as this CPU is, in seconds.
struct Costs {
    /// A request with AES-128-GCM.
    page: f64,
    /// What ChaCha20-Poly1305 in each form adds to it.
    added: [f64; FORMS.len()],
    records: f64,
    cipher: f64,
}

impl Costs {
    fn of(native: &Turns) -> Self {
        let each = |rates: &[f64]| Interval::of(rates).map_or(0.0, |rate| 1.0 / rate.median);
        let page = each(&native.rates[0]);
        let added = FORMS.map(|form| {
            let of = |one: &Condition| one.form == form && one.percent == 100;
            let index = CONDITIONS.iter().position(of);
            index.map_or(0.0, |index| each(&native.rates[index]) - page)
        });
        let records = (native.page_bytes as f64 / RECORD).ceil();
        Self {
            page,
            added,
            records,
            cipher: records * AES_RECORD,
        }
    }

    /// The change of the rate on one core of `model`, in per cent, by simulation.
    fn predict(&self, model: &str, condition: &Condition) -> Result<f64, ExperimentError> {
        let (_, text) = BUILTIN[0];
        let scenario = Scenario::parse(text)?;
        let form = FORMS.iter().position(|form| *form == condition.form);
        let added = form.map_or(0.0, |form| self.added[form]);
        // Any clock does: only quotients count. A braked CPU takes for scalar code what it takes now.
        let cycles = |seconds: f64| (seconds * CLOCK).max(1.0);
        let cipher = cycles((self.cipher + added) / self.records);
        let set = [
            ("threads", 1.0),
            ("connections", CONNECTIONS as f64),
            ("page_rounds", self.records),
            (
                "page_cycles",
                cycles((self.page - self.cipher) / self.records),
            ),
            ("aes_cycles", cycles(AES_RECORD)),
            ("burst_cycles", cipher),
            ("light_cycles", cipher),
            ("chacha", condition.percent as f64),
            ("aes", 100.0 - condition.percent as f64),
        ];
        let set = set.map(|(name, value)| (name.to_owned(), value)).into();
        let settings = Settings {
            model: Some(model.to_owned()),
            cores: Some(1),
            // As the brake counts them.
            active: Some(2),
            set,
        };
        let run = match condition.form {
            "256" | "256-light" => "light-100",
            _ => "chacha20-100",
        };
        let plan = |run: &str, settings: &Settings| scenario.plan(scenario.run(run)?, settings);
        let with = plan(run, &settings)?.figures();
        let mut without = settings;
        without
            .set
            .extend([("chacha".to_owned(), 0.0), ("aes".to_owned(), 100.0)]);
        let without = plan("aes-gcm", &without)?.figures();
        let rate = |run: &widelane_sim::RunFigures| run.figures.get(&Figure::Throughput).copied();
        let change = rate(&with)
            .zip(rate(&without))
            .map(|(with, base)| (with / base - 1.0) * 100.0);
        Ok(change.unwrap_or(0.0))
    }
}

/// Forms of `widelane serve`, the widest first.
const FORMS: [&str; 4] = ["512-ifma", "512", "256", "256-light"];
/// The first is what the others are compared with. The published form is OpenSSL's of 2017, in
/// 512-bit registers.
const CONDITIONS: [Condition; 7] = [
    condition("aes-128-gcm", 0, None),
    condition("512-ifma", 100, Some(-10.0)),
    condition("512-ifma", 20, Some(-7.0)),
    condition("512-ifma", 10, Some(-5.5)),
    condition("512", 100, Some(-10.0)),
    condition("256", 100, None),
    condition("256-light", 100, Some(0.0)),
];
/// Bytes of a record.
const RECORD: f64 = 16384.0;
/// Seconds of a record with AES-128-GCM: 16 KiB at 4 GB/s, which is assumed. Only its sum with the
/// measured difference counts.
const AES_RECORD: f64 = 4e-6;
const CLOCK: f64 = 2.4e9;

const fn condition(form: &'static str, percent: usize, published: Option<f64>) -> Condition {
    Condition {
        form,
        percent,
        published,
    }
}
