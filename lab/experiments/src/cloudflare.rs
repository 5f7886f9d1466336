//! Krasnov (Cloudflare), "On the dangers of Intel's frequency scaling" (2017), done again.
//!
//! A page that Lua and brotli work on, at full load, with AES-128-GCM or with ChaCha20-Poly1305 in
//! four forms, in front of the web server or inside it. First as this CPU is; these turns also give
//! the costs from which the simulator predicts what a braked CPU does. Then under the brake, if one
//! was asked for.

use std::cell::Cell;

use serde_json::json;
use widelane_handshakes::Stage;

use crate::error::ExperimentError;
use crate::forecast::{Forecast, cycles};
use crate::inside;
use crate::load::{CONNECTIONS, served};
use crate::outcome::{self, Design, Outcome, RATE, Turns};
use crate::plan::Plan;
use crate::programs::Programs;
use crate::terminator::{Setting, Terminator};
use crate::web;

/// Place where ChaCha20-Poly1305 runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherPlace {
    /// `widelane serve`, in front of nginx.
    InFront,
    /// Nginx, whose OpenSSL has Widelane's provider.
    InsideNginx,
}

impl CipherPlace {
    /// Suffix of the names of conditions.
    fn suffix(self) -> &'static str {
        match self {
            Self::InFront => "",
            Self::InsideNginx => ", in nginx",
        }
    }
}

/// Does the experiment; the brake makes the servers' CPU behave as `brake`, if that is a model.
/// `tell` gets a line of progress now and then, the predictions among them.
///
/// # Errors
///
/// When something is not installed, a server fails or answers wrongly, or Ctrl-C comes.
pub fn cloudflare(
    plan: &Plan,
    place: CipherPlace,
    brake: Option<&str>,
    tell: impl Fn(&str),
) -> Result<Outcome, ExperimentError> {
    let needs = Programs::find()?;
    let mut stage = plan.stage()?;
    let _backend = match place {
        CipherPlace::InFront => Some(web::backend(&stage, &needs)?),
        CipherPlace::InsideNginx => None,
    };
    let page_bytes = Cell::new(0);
    let conditions = CONDITIONS.map(|one| outcome::Condition {
        name: one.name() + place.suffix(),
        base: 0,
        published: one.published,
    });
    let design = Design {
        name: match place {
            CipherPlace::InFront => "cloudflare",
            CipherPlace::InsideNginx => "cloudflare inside nginx",
        },
        scenario: SCENARIO,
        conditions: conditions.to_vec(),
    };
    let take = |stage: &Stage| take(stage, (&needs, place), plan, &page_bytes, &tell);
    let predict = |model: &str, native: &Turns| {
        let bytes = page_bytes.get();
        tell(&format!("a page has {bytes} bytes as it is sent"));
        let costs = Costs::of(native, bytes);
        let forecast = Forecast::new(SCENARIO, model, 1)?;
        let rates = CONDITIONS.iter().map(|one| costs.rate(&forecast, one));
        rates.collect()
    };
    design.run(plan, &mut stage, brake, take, predict, &tell)
}

/// A share of requests with ChaCha20-Poly1305 in a form.
#[derive(Clone, Copy)]
struct Condition {
    form: &'static str,
    percent: usize,
    published: Option<f64>,
}

impl Condition {
    fn name(&self) -> String {
        match self.percent {
            0 => self.form.to_owned(),
            percent => format!("{} at {percent} %", self.form),
        }
    }

    /// The form that its terminator has; without ChaCha20-Poly1305 any does.
    fn form(&self) -> &'static str {
        let form = FORMS.into_iter().find(|form| *form == self.form);
        form.unwrap_or(FORMS[0])
    }
}

/// The rates of all rounds, and the size of the page on its way.
fn take(
    stage: &Stage,
    (needs, place): (&Programs, CipherPlace),
    plan: &Plan,
    page_bytes: &Cell<usize>,
    tell: impl Fn(&str),
) -> Result<Turns, ExperimentError> {
    plan.turns(&CONDITIONS, tell, |condition| {
        let (form, percent) = (condition.form(), condition.percent);
        let front = match place {
            CipherPlace::InFront => Terminator::start(stage, Setting::form(form))?.front,
            CipherPlace::InsideNginx => inside::start(stage, needs, form)?,
        };
        let served = served(stage, needs, front, percent, plan.seconds)?;
        page_bytes.set(served.page_bytes);
        Ok(json!({ RATE: served.requests_per_s, "levels": served.levels }))
    })
}

/// Costs of requests on this CPU without a brake, in microseconds.
struct Costs {
    /// A request with AES-128-GCM.
    page: f64,
    /// Additional cost of ChaCha20-Poly1305 in each form.
    added: [f64; FORMS.len()],
    records: f64,
    cipher: f64,
}

impl Costs {
    fn of(native: &Turns, page_bytes: usize) -> Self {
        let each = |condition| match native.median(condition, RATE) {
            0.0 => 0.0,
            rate => 1e6 / rate,
        };
        let page = each(0);
        let added = FORMS.map(|form| {
            let of = |one: &Condition| one.form == form && one.percent == 100;
            let index = CONDITIONS.iter().position(of);
            index.map_or(0.0, |index| each(index) - page)
        });
        let records = (page_bytes as f64 / RECORD).ceil();
        Self {
            page,
            added,
            records,
            cipher: records * AES_RECORD,
        }
    }

    /// The rate on one core, by simulation.
    fn rate(&self, forecast: &Forecast, condition: &Condition) -> Result<Option<f64>, ExperimentError> {
        let form = FORMS.iter().position(|form| *form == condition.form);
        let added = form.map_or(0.0, |form| self.added[form]);
        let cipher = cycles((self.cipher + added) / self.records);
        let page = cycles((self.page - self.cipher) / self.records);
        let percent = condition.percent as f64;
        let set = [
            ("threads", 1.0),
            ("connections", CONNECTIONS as f64),
            ("page_rounds", self.records),
            ("page_cycles", page),
            ("aes_cycles", cycles(AES_RECORD)),
            ("burst_cycles", cipher),
            ("light_cycles", cipher),
            ("chacha", percent),
            ("aes", 100.0 - percent),
        ];
        let run = match condition.form {
            "256" | "256-light" => "light-100",
            _ => "chacha20-100",
        };
        forecast.rate(run, &set)
    }
}

/// Forms of ours, the widest first.
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
const SCENARIO: &str = "cloudflare-2017";
/// Bytes of a record.
const RECORD: f64 = 16384.0;
/// Microseconds of a record with AES-128-GCM: 16 KiB at 4 GB/s, which is assumed. Only its sum with the
/// measured difference counts.
const AES_RECORD: f64 = 4.0;

const fn condition(form: &'static str, percent: usize, published: Option<f64>) -> Condition {
    Condition {
        form,
        percent,
        published,
    }
}
