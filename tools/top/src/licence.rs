//! Licence levels that the cores may be at: from the publications about this generation, and from the programs that
//! run wide code. Bounds, no guesses.

use crate::snapshot::Known;
use crate::users::Users;
use serde::Serialize;
use widelane_cpu::licence::{Class, Generation, Level, Turbo};

/// Licence levels, as far as they are known.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Licence {
    /// The generation of this processor.
    pub generation: String,
    /// The level of 512-bit code that does not multiply, and that of code that does.
    pub of_512_bit: [&'static str; 2],
    /// The clocks of levels LVL0, LVL1 and LVL2 on all cores in GHz, if they are published.
    pub published_ghz: Option<[Option<f64>; 3]>,
    /// The share of all CPU time in which wide code ran: surely, and at most.
    pub wide_share: Known<[f64; 2]>,
    /// The result in words.
    pub words: String,
}

/// The estimate for a processor of `generation`, whose published clocks are `turbo`, with `cpus`.
pub(crate) fn estimate(
    generation: Generation,
    turbo: Option<&Turbo>,
    cpus: usize,
    users: &Known<Users>,
) -> Known<Licence> {
    let of = |class| generation.level(class);
    let (Some(light), Some(heavy)) = (of(Class::Light512), of(Class::Heavy512)) else {
        let why_not = "what this processor does with wide code is not published; `widelane probe` \
                       measures it";
        return Known::missing(why_not);
    };
    let share = match users {
        Known::Known(users) if cpus > 0 => {
            let share = |time: f64| (time / cpus as f64).min(1.0);
            Known::Known([share(users.wide), share(users.at_most)])
        }
        Known::Known(_) => Known::missing("the number of CPUs is not known"),
        Known::Missing { why_not } => Known::missing(why_not),
    };
    let words = match (&share, heavy) {
        (_, Level::L0) => {
            format!("LVL0 always: {generation} has no licences, only limits of power")
        }
        (Known::Missing { .. }, _) => "n/a: who runs wide code is not known".to_owned(),
        (Known::Known([_, most]), _) if *most == 0.0 => {
            "LVL0 as far as can be seen: no process was found running wide code".to_owned()
        }
        (Known::Known([sure, most]), _) => format!(
            "{} to {} in {:.0} to {:.0} % of CPU time, and for a while after each burst",
            light,
            heavy,
            100.0 * sure,
            100.0 * most
        ),
    };
    Known::Known(Licence {
        generation: generation.to_string(),
        of_512_bit: [light.name(), heavy.name()],
        published_ghz: turbo.map(|turbo| turbo.clocks),
        wide_share: share,
        words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(wide: f64, at_most: f64) -> Known<Users> {
        Known::Known(Users {
            method: "ebpf",
            why_not_better: None,
            wide,
            at_most,
            processes: Vec::new(),
        })
    }

    fn words(generation: Generation, users: &Known<Users>) -> Option<String> {
        match estimate(generation, None, 4, users) {
            Known::Known(licence) => Some(licence.words),
            Known::Missing { .. } => None,
        }
    }

    #[test]
    fn levels_are_bounds_and_need_a_known_generation_and_known_users() {
        let said = words(Generation::Skylake, &users(1.0, 2.0)).expect("it is published");
        assert!(said.contains("LVL1 to LVL2") && said.contains("25 to 50 %"), "{said}");
        let said = words(Generation::Skylake, &users(0.0, 0.0)).expect("it is published");
        assert!(said.contains("no process was found"), "{said}");
        let said = words(Generation::Skylake, &Known::missing("not asked")).expect("published");
        assert!(said.starts_with("n/a"), "{said}");
        let said = words(Generation::Zen5, &Known::missing("not asked")).expect("published");
        assert!(said.starts_with("LVL0 always"), "{said}");
        assert_eq!(words(Generation::Unknown, &users(1.0, 1.0)), None);
    }
}
