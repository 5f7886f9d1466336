//! Experiments with a full handshake for each connection, one worker on one core.
//!
//! - Xu, "Analyze Ice Lake crypto acceleration with bcc/bpftrace" (2022): RSA-2048, nginx beside a
//!   server whose signatures share passes;
//! - Intel, "Crypto Processing with 3rd Gen Xeon Scalable Processors" (2021): the same server with
//!   software and with vector cryptography, handshakes alone and as a part of a page's work.

use serde_json::{Value, json};
use widelane_handshakes::{Condition, Contender, Side, Stage};

use crate::error::ExperimentError;
use crate::forecast::{Forecast, cycles};
use crate::load::connections;
use crate::outcome::{self, Design, Outcome, RATE, Turns};
use crate::plan::Plan;
use crate::programs::Programs;
use crate::terminator::{Placement, Setting, Terminator};
use crate::web;

/// Xu's experiment. `brake` and `tell` are as in [`cloudflare`](crate::cloudflare()).
///
/// # Errors
///
/// When something is not installed, a server fails or answers wrongly, or Ctrl-C comes.
pub fn xu(plan: &Plan, brake: Option<&str>, tell: impl Fn(&str)) -> Result<Outcome, ExperimentError> {
    run("xu", "xu-2022", &XU, plan, brake, tell)
}

/// Intel's, with a page instead of WordPress. `brake` and `tell` are as in
/// [`cloudflare`](crate::cloudflare()).
///
/// # Errors
///
/// As [`xu`].
pub fn intel(plan: &Plan, brake: Option<&str>, tell: impl Fn(&str)) -> Result<Outcome, ExperimentError> {
    run("intel", "intel-2021", &INTEL, plan, brake, tell)
}

/// A server with its setting, and its load.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) base: usize,
    /// `None`: nginx.
    pub(crate) setting: Option<Setting>,
    pub(crate) kind: Condition,
    pub(crate) in_flight: usize,
    /// True if each connection asks for the page.
    pub(crate) page: bool,
    pub(crate) published: Option<f64>,
}

/// A turn: the server's start, its load, its end.
pub(crate) fn turn(stage: &Stage, case: &Case, seconds: f64) -> Result<Value, ExperimentError> {
    stage.interrupt().check()?;
    let path = case.page.then_some(PAGE);
    let load = |address| connections(stage, address, case.kind, case.in_flight, path, seconds);
    let mut turn = json!({});
    let report = match case.setting {
        Some(setting) => {
            let mut terminator = Terminator::start(stage, setting)?;
            let report = load(terminator.front.address)?;
            terminator.front.server.alive()?;
            turn = terminator.passes();
            turn["levels"] = json!(terminator.front.stop());
            report
        }
        None => {
            let mut nginx = Contender::start(stage, Side::Nginx)?;
            let report = load(nginx.address())?;
            nginx.alive()?;
            report
        }
    };
    turn[RATE] = report["handshakes_per_s"].clone();
    turn["p50_us"] = report["p50_us"].clone();
    Ok(turn)
}

fn run(
    name: &'static str,
    scenario: &'static str,
    cases: &[Case],
    plan: &Plan,
    brake: Option<&str>,
    tell: impl Fn(&str),
) -> Result<Outcome, ExperimentError> {
    let mut stage = plan.stage()?;
    let pages = cases.iter().any(|case| case.page);
    let needs = pages.then(Programs::find).transpose()?;
    let _backend = needs.map(|needs| web::backend(&stage, &needs)).transpose()?;
    let condition = |case: &Case| outcome::Condition {
        name: case.name.to_owned(),
        base: case.base,
        published: case.published,
    };
    let design = Design {
        name,
        scenario,
        conditions: cases.iter().map(condition).collect(),
    };
    let take = |stage: &Stage| plan.turns(cases, &tell, |case| turn(stage, case, plan.seconds));
    let predict = |model: &str, native: &Turns| {
        let rates = cases.iter().enumerate();
        let rates = rates.map(|(index, case)| rate(model, native, index, case));
        rates.collect()
    };
    design.run(plan, &mut stage, brake, take, predict, &tell)
}

/// Handshakes a second under the brake of `model`: those of the native turns, less what the simulator
/// says of their wide code. `None` of passes on the other CPU, where the client is, of which the
/// simulator knows nothing.
pub(crate) fn rate(model: &str, native: &Turns, index: usize, case: &Case) -> Result<Option<f64>, ExperimentError> {
    if case
        .setting
        .is_some_and(|setting| setting.placement != Placement::InPlace)
    {
        return Ok(None);
    }
    let us = |figure| native.median(index, figure);
    let (rate, wide, pass) = (us(RATE), us("wide_us"), us("pass_us"));
    if rate <= 0.0 || wide <= 0.0 {
        return Ok((rate > 0.0).then_some(rate));
    }
    // A request of the simulator is as many handshakes as share a pass.
    let handshakes = pass / wide;
    let rest = (1e6 / rate - wide).max(1.0) * handshakes;
    let set = |burst: f64| {
        [
            ("threads", 1.0),
            ("connections", case.in_flight as f64),
            ("page_rounds", 1.0),
            ("page_cycles", cycles(rest)),
            ("aes_cycles", cycles(pass)),
            ("burst_cycles", cycles(pass)),
            ("chacha", burst),
            ("aes", 100.0 - burst),
        ]
    };
    let forecast = Forecast::new(SCENARIO, model, 1)?;
    let with = forecast.rate("chacha20-100", &set(100.0))?;
    let without = forecast.rate("chacha20-100", &set(0.0))?;
    let share = with.zip(without).map(|(with, without)| with / without);
    Ok(share.map(|share| rate * share))
}

/// AWS-LC makes each signature alone.
pub(crate) const SOFTWARE: Setting = Setting {
    form: "256-light",
    batching: false,
    placement: Placement::InPlace,
};
/// Passes where the handshakes are.
pub(crate) const PASSES: Setting = Setting {
    batching: true,
    ..SOFTWARE
};
/// Passes on the other CPU.
pub(crate) const SHIPPED: Setting = Setting {
    placement: Placement::Shipped,
    ..PASSES
};
/// Path for which the backend compresses, whatever the client accepts.
const PAGE: &str = "/?br=1";

const XU: [Case; 6] = [
    handshake_case("nginx, RSA-2048, 64 in flight", 0, None, RSA, 64, None),
    handshake_case(
        "widelane, RSA-2048, 64 in flight",
        0,
        Some(PASSES),
        RSA,
        64,
        Some((4141.0 / 1343.0 - 1.0) * 100.0),
    ),
    handshake_case("nginx, RSA-2048, one in flight", 2, None, RSA, 1, None),
    handshake_case("widelane, RSA-2048, one in flight", 2, Some(PASSES), RSA, 1, None),
    handshake_case("nginx, ECDSA P-256, 64 in flight", 4, None, ECDSA, 64, None),
    handshake_case(
        "widelane, ECDSA P-256, 64 in flight",
        4,
        Some(PASSES),
        ECDSA,
        64,
        Some(30.0),
    ),
];

const INTEL: [Case; 6] = [
    handshake_case("handshakes, software", 0, Some(SOFTWARE), RSA, 64, None),
    handshake_case("handshakes, vector code", 0, Some(PASSES), RSA, 64, Some(207.0)),
    handshake_case("handshakes, on a vector core", 0, Some(SHIPPED), RSA, 64, None),
    page_case("page, software", 3, SOFTWARE, None),
    page_case("page, vector code", 3, PASSES, Some(16.0)),
    page_case("page, on a vector core", 3, SHIPPED, None),
];

/// One core with scalar work between bursts of dense 512-bit code.
const SCENARIO: &str = "cloudflare-2017";
const RSA: Condition = Condition::RsaX25519;
const ECDSA: Condition = Condition::EcdsaX25519;

const fn handshake_case(
    name: &'static str,
    base: usize,
    setting: Option<Setting>,
    kind: Condition,
    in_flight: usize,
    published: Option<f64>,
) -> Case {
    Case {
        name,
        base,
        setting,
        kind,
        in_flight,
        page: false,
        published,
    }
}

/// A connection for each page, with a full handshake by RSA-2048.
pub(crate) const fn page_case(name: &'static str, base: usize, setting: Setting, published: Option<f64>) -> Case {
    Case {
        name,
        base,
        setting: Some(setting),
        kind: RSA,
        in_flight: 20,
        page: true,
        published,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_compared_with_one_that_is_compared_with_none() {
        for cases in [&XU[..], &INTEL[..]] {
            for (index, case) in cases.iter().enumerate() {
                assert_eq!(cases[case.base].base, case.base, "{}", case.name);
                assert!(case.base <= index && (case.base != index || case.published.is_none()));
            }
        }
    }
}
