//! The forms of Widelane's code that a published processor without AVX-512 IFMA could run, and what they would
//! gain there: predicted from its ports and its clocks, not measured.

use serde::Serialize;
use widelane_cpu::licence::{Class, Level, Turbo, ports};
use widelane_cpu::{Lanes, Product, Target};

/// RSA-2048 signatures in lanes of AVX2, eight in flight, as a multiple of AWS-LC's, at one clock. A Xeon whose ports
/// take as many cycles for a product as those of Skylake; `lab/records/2026-11-28-intel-r-xeon-r-processor-speed-2.jsonl`.
pub const RSA2048_IN_AVX2: f64 = 1.84;

/// One form on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Form {
    /// Target of the form.
    pub target: &'static str,
    /// Bits of its registers.
    pub bits: u32,
    /// Class of the form's multiplications.
    #[serde(skip)]
    pub class: Class,
    /// The clock while it runs, in GHz; `None` where no source gives it.
    pub ghz: Option<f64>,
    /// Products a cycle, as a multiple of AVX2's; `None` where no source says what units the CPU has.
    pub per_cycle: Option<f64>,
    /// RSA-2048 signatures of a core that runs only passes, as a multiple of AWS-LC's on a core at the full
    /// clock: net of what the form costs the clock.
    pub rsa2048: Option<f64>,
}

/// The forms that multiply by floating-point numbers, the preferred one first; none on processors that have
/// others, which were measured.
pub fn forms(turbo: &Turbo) -> Vec<Form> {
    let lanes = Lanes::of_generation(turbo.generation);
    let lanes = lanes.filter(|lanes| *lanes == Lanes::WITHOUT_IFMA);
    let targets = lanes.into_iter().flat_map(Lanes::targets);
    let fma = targets.filter(|target| target.product() == Product::Fma);
    fma.map(|target| form(turbo, target)).collect()
}

fn form(turbo: &Turbo, target: Target) -> Form {
    let clock = |class| turbo.clock(turbo.generation.level(class)?);
    let ghz = clock(target.class());
    let per_cycle = match target {
        Target::Avx2 => Some(1.0),
        target => ports::wide_multipliers(turbo.cpu).and_then(|units| ports::speed_up(target, units)),
    };
    let net = || Some(RSA2048_IN_AVX2 * per_cycle? * ghz? / turbo.clock(Level::L0)?);
    Form {
        target: target.name(),
        bits: target.bits(),
        class: target.class(),
        ghz,
        per_cycle,
        rsa2048: net(),
    }
}

/// The form that signs most on a core that runs only passes, where that is known of all of them.
pub fn fastest(forms: &[Form]) -> Option<&Form> {
    let known = forms.iter().all(|form| form.rsa2048.is_some());
    let by = |form: &&Form| form.rsa2048.unwrap_or_default();
    let most = forms.iter().max_by(|a, b| by(a).total_cmp(&by(b)));
    most.filter(|_| known)
}

/// A statement for people about each.
pub(crate) fn words(forms: &[Form]) -> Vec<String> {
    let mut words = Vec::new();
    for form in forms {
        let mut line = format!("Predicted for {}, registers of {} bits", form.target, form.bits);
        line += &match (form.target, form.per_cycle) {
            ("avx2", _) => String::new(),
            (_, Some(times)) => format!(", {times:.2} times as many products a cycle as avx2"),
            (_, None) => ", with units for products that no source counts".to_owned(),
        };
        line += &match form.ghz {
            Some(ghz) => format!(", at {ghz} GHz"),
            None => ", at a clock that no source gives".to_owned(),
        };
        if let Some(times) = form.rsa2048 {
            line += &format!(
                "; a core that runs only passes signs {times:.2} times as often with RSA-2048 as AWS-LC does at \
                 the full clock"
            );
        }
        words.push(line + ".");
    }
    if let Some(best) = fastest(forms) {
        words.push(format!(
            "Of these, {} gains most there, net of the clock (rates: an Intel Xeon with the same ports; clocks: as \
             published above).",
            best.target
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_cpu::licence::turbo_of;

    fn last(name: &str) -> Vec<Form> {
        forms(turbo_of(name).last().expect("a row"))
    }

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 0.005)
    }

    /// 1.84 x 4/3 x 1.9/2.8 and 1.84 x 2.4/2.8.
    #[test]
    fn a_gold_6130_gains_more_by_zmm_though_its_clock_falls_lower() {
        let forms = last("Gold 6130");
        assert_eq!([forms[0].target, forms[1].target], ["avx512f", "avx2"]);
        assert!(near(forms[0].rsa2048, 1.665) && near(forms[1].rsa2048, 1.577));
        assert_eq!(fastest(&forms).expect("known").target, "avx512f");
    }

    /// 1.84 x 10/9 x 1.4/2.4 and 1.84 x 2.17/2.4.
    #[test]
    fn a_silver_4116_with_one_unit_gains_more_by_ymm() {
        let forms = last("Silver 4116");
        assert!(near(forms[0].rsa2048, 1.193) && near(forms[1].rsa2048, 1.664));
        assert_eq!(fastest(&forms).expect("known").target, "avx2");
    }

    #[test]
    fn what_no_source_gives_is_not_predicted() {
        let forms = last("8269CY");
        assert!(near(forms[0].per_cycle, 1.333));
        assert!(forms.iter().all(|form| form.ghz.is_none() && form.rsa2048.is_none()));
        assert_eq!(fastest(&forms), None);
        assert!(words(&forms)[0].contains("no source gives"));
        assert_eq!(last("W-2104")[0].per_cycle, None);
        assert!(last("8380").is_empty() && last("EPYC 9654").is_empty());
    }
}
