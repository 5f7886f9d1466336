//! Measures how much of the loss by 512-bit code comes back with 256-bit light code.
//!
//! The servers and the page of [`crate::cloudflare()`], all requests with ChaCha20-Poly1305. A form's
//! own speed must not count, and neither must what drifts over minutes: so each form is compared with
//! itself, braked against not braked, in turns that follow each other.

use std::path::PathBuf;

use serde_json::json;
use widelane_handshakes::Record;
use widelane_samples::{interval_of_median, median, named};

use crate::error::ExperimentError;
use crate::load::served;
use crate::plan::Plan;
use crate::programs::Programs;
use crate::terminator::{Setting, Terminator};
use crate::web;

/// Result of the experiment.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// Loss of each form under the brake, the wide one first.
    pub losses: [Loss; 2],
    /// The share of the wide form's loss that the light form gives back.
    pub recovered: RecoveredShare,
    /// The record.
    pub record: Option<PathBuf>,
}

/// Loss of a form under the brake, in per cent of its requests/s. A loss is positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The form.
    pub form: &'static str,
    /// The median of the rounds.
    pub median: f64,
    /// The 95 % confidence interval of the median; fewer than six rounds have none.
    pub bounds: Option<(f64, f64)>,
}

/// The share of a loss that comes back, from rounds of both losses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveredShare {
    /// The quotient of the medians; `None` if nothing was lost.
    pub share: Option<f64>,
    /// The lowest share that the rounds do not contradict at 95 %; `None` if there is no such bound.
    pub low: Option<f64>,
    /// The highest.
    pub high: Option<f64>,
    /// Verdict of the rounds on [`RecoveredShare::NEEDED`].
    pub verdict: Verdict,
}

named! {
    /// Verdict of rounds on a share.
    pub enum Verdict {
        /// Proof that at least that much comes back.
        Proved = "proved",
        /// Proof that less comes back.
        Refuted = "refuted",
        /// No proof: the rounds are too few, too noisy, or lose nothing that could come back.
        Open = "open",
    }
}

/// Takes the turns; under the brake the servers' CPU behaves as `model`. `tell` gets lines of progress.
///
/// # Errors
///
/// When something is not installed, a server fails or answers wrongly, or Ctrl-C comes.
pub fn remedy(plan: &Plan, model: &str, tell: impl Fn(&str)) -> Result<Recovery, ExperimentError> {
    let needs = Programs::find()?;
    let mut stage = plan.stage()?;
    let _backend = web::backend(&stage, &needs)?;
    let what = format!("experiment remedy as {model}");
    let begin = |folder| Record::begin(&stage, folder, &what, &plan.command);
    let mut record = plan.records.as_deref().map(begin).transpose()?;
    if plan.rounds < FEWEST {
        tell("fewer than six rounds have no 95 % interval: the verdict will be open");
    }
    let mut rate = |form, brake: Option<&str>| {
        stage.emulate(brake);
        let front = Terminator::start(&stage, Setting::form(form))?.front;
        let served = served(&stage, &needs, front, 100, plan.seconds)?;
        Ok::<_, ExperimentError>(served.requests_per_s)
    };
    // One that does not count: the first after a rest is slow.
    rate(FORMS[0], None)?;
    let mut losses = [Vec::new(), Vec::new()];
    for round in 0..plan.rounds {
        let mut rates = [[0.0; 2]; FORMS.len()];
        for (form, braked) in order(round) {
            rates[form][usize::from(braked)] = rate(FORMS[form], braked.then_some(model))?;
        }
        for ((form, [free, braked]), losses) in FORMS.iter().zip(rates).zip(&mut losses) {
            losses.push((1.0 - braked / free) * 100.0);
            if let Some(record) = &mut record {
                record.line(&json!({
                    "kind": "experiment", "scenario": SCENARIO,
                    "what": format!(
                        "requests/s, {form} at 100 % as a {model} against as this CPU is, per cent"
                    ),
                    "round": round, "value": (braked / free - 1.0) * 100.0,
                    "turn": { "requests_per_s": braked }, "base": { "requests_per_s": free },
                }))?;
            }
        }
        tell(&format!("round {} of {}", round + 1, plan.rounds));
    }
    let [wide, light] = &losses;
    let of = |form, losses: &Vec<f64>| Loss {
        form,
        median: median(losses.clone()).unwrap_or(0.0),
        bounds: interval_of_median(losses),
    };
    Ok(Recovery {
        losses: [of(FORMS[0], wide), of(FORMS[1], light)],
        recovered: RecoveredShare::of(wide, light),
        record: record.map(|record| record.end("")).transpose()?,
    })
}

impl RecoveredShare {
    /// The share that a remedy must give back to be one.
    pub const NEEDED: f64 = 2.0 / 3.0;

    /// Share of the losses of the same rounds, in any unit.
    ///
    /// A share `s` fits the rounds if the median of `wide (1 - s) - light` may be 0: if the confidence
    /// interval of that median has both signs. So no quotient of two noisy numbers is taken in a round. (E. C.
    /// Fieller, Some Problems in Interval Estimation, J. R. Stat. Soc. B 16, 1954, with the order
    /// statistics of the sign test in place of the normal distribution.)
    fn of(wide: &[f64], light: &[f64]) -> Self {
        let lost = median(wide.to_vec()).filter(|lost| *lost > 0.0);
        let share = lost.and_then(|lost| Some(1.0 - median(light.to_vec())? / lost));
        let left = |share: f64| {
            let rounds = wide.iter().zip(light);
            let left: Vec<_> = rounds.map(|(wide, light)| wide * (1.0 - share) - light).collect();
            interval_of_median(&left)
        };
        // Without a sure loss, any share fits.
        let is_lost = interval_of_median(wide).is_some_and(|(low, _)| low > 0.0);
        let fits = |share: &f64| left(*share).is_some_and(|(low, high)| low <= 0.0 && high >= 0.0);
        let shares = || (-STEPS..=STEPS).map(|step| f64::from(step) / STEPS_OF_ONE);
        // At the end of what is looked at there is no bound.
        let bound = |share: Option<f64>| share.filter(|share| is_lost && share.abs() < f64::from(STEPS) / STEPS_OF_ONE);
        // More of the loss comes back than a share that leaves something.
        let verdict = match left(Self::NEEDED) {
            Some((low, _)) if is_lost && low > 0.0 => Verdict::Proved,
            Some((_, high)) if is_lost && high < 0.0 => Verdict::Refuted,
            _ => Verdict::Open,
        };
        Self {
            share,
            low: bound(shares().find(fits)),
            high: bound(shares().rev().find(fits)),
            verdict,
        }
    }
}

/// The turns of a round: which form, and whether it is braked. What drifts steadily falls out, because the
/// next round goes the other way.
fn order(round: usize) -> [(usize, bool); 4] {
    let mut turns = [(0, false), (0, true), (1, true), (1, false)];
    if round % 2 == 1 {
        turns.reverse();
    }
    turns
}

/// The wide form, and the remedy.
const FORMS: [&str; 2] = ["512", "256-light"];
const SCENARIO: &str = "cloudflare-2017";
/// Rounds, that [`interval_of_median`] gives any.
const FEWEST: usize = 6;
/// Shares are looked at in steps of a hundredth, from -10 to 10.
const STEPS_OF_ONE: f64 = 100.0;
const STEPS: i32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve rounds with these medians, and noise that has both signs alike.
    fn rounds(lost: f64, noise: f64) -> Vec<f64> {
        (0..12)
            .map(|round| lost + noise * (f64::from(round * 7 % 12) - 5.5) / 5.5)
            .collect()
    }

    #[test]
    fn what_surely_comes_back_is_proved() {
        let given = RecoveredShare::of(&rounds(8.0, 1.0), &rounds(0.5, 0.8));
        assert_eq!(given.verdict, Verdict::Proved);
        let share = given.share.expect("a loss");
        assert!((share - 0.9375).abs() < 1e-9, "{given:?}");
        assert!(given.low.expect("a bound") > RecoveredShare::NEEDED, "{given:?}");
        assert!(given.low <= given.share && given.share <= given.high);
    }

    #[test]
    fn what_surely_does_not_is_refuted() {
        let given = RecoveredShare::of(&rounds(8.0, 1.0), &rounds(6.0, 0.8));
        assert_eq!(given.verdict, Verdict::Refuted);
        assert!(given.high.expect("a bound") < RecoveredShare::NEEDED, "{given:?}");
    }

    #[test]
    fn noise_leaves_it_open() {
        let given = RecoveredShare::of(&rounds(8.0, 3.0), &rounds(1.5, 12.0));
        assert_eq!(given.verdict, Verdict::Open);
        assert!(given.low < Some(RecoveredShare::NEEDED) && given.high > Some(RecoveredShare::NEEDED));
    }

    /// All of nothing is nothing: a light form that loses nothing beside a wide one that loses nothing.
    #[test]
    fn where_nothing_is_lost_nothing_is_proved() {
        for wide in [rounds(0.0, 1.0), rounds(0.5, 4.0), rounds(-3.0, 1.0)] {
            let given = RecoveredShare::of(&wide, &rounds(-5.0, 0.1));
            assert_eq!(given.verdict, Verdict::Open, "{given:?}");
            assert_eq!((given.low, given.high), (None, None));
        }
        assert_eq!(RecoveredShare::of(&rounds(-3.0, 1.0), &rounds(0.0, 1.0)).share, None);
    }

    #[test]
    fn five_rounds_are_too_few() {
        let given = RecoveredShare::of(&[8.0; 5], &[0.0; 5]);
        assert_eq!((given.verdict, given.low, given.high), (Verdict::Open, None, None));
        assert_eq!(given.share, Some(1.0));
    }

    /// Each form is braked next to its turn without a brake, and a steady drift counts for none.
    #[test]
    fn turns_that_are_compared_are_neighbours() {
        for round in 0..2 {
            let turns = order(round);
            for form in 0..FORMS.len() {
                let at = |braked| turns.iter().position(|turn| *turn == (form, braked));
                let (free, braked) = (at(false).expect("a turn"), at(true).expect("a turn"));
                assert_eq!(free.abs_diff(braked), 1);
            }
        }
        let backwards: Vec<_> = order(1).into_iter().rev().collect();
        assert_eq!(order(0).to_vec(), backwards);
    }
}
