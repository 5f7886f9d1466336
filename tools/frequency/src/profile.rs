//! The profile of a machine: made by measuring, kept as JSON, stale on another processor.

use crate::clocks::{Clock, Schedule, clocks};
use crate::counters::{Counter, counters};
use crate::estimate::Estimate;
use crate::handover::{HandOver, hand_over};
use crate::machine::{Machine, allowed_cpus, siblings, ticks_per_second};
use crate::transitions::{Transition, transitions};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What was measured on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The version of this format.
    pub format: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// When, in seconds since 1970.
    pub taken: u64,
    /// Whether it was measured in a hurry.
    pub quick: bool,
    /// Ticks of the time-stamp counter a nanosecond.
    pub tsc_ghz: f64,
    /// The CPUs that were measured.
    pub cpus: Vec<usize>,
    /// Whether two of them are hyperthreads of one core.
    pub hyperthreads: bool,
    /// The clock by class and number of active cores.
    pub clocks: Vec<Clock>,
    /// The edges of wide code.
    pub transitions: Vec<Transition>,
    /// Hand-over between two of the CPUs; `None` where there is one only.
    pub hand_over: Option<HandOver>,
    /// Counters that exist beside the clocks above, or why they do not.
    pub counters: Vec<Counter>,
}

/// What a class costs on a number of cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Depth {
    /// The class.
    pub class: String,
    /// Cores that ran it.
    pub cores: usize,
    /// The share of the clock that is missing while it runs, against scalar code.
    pub depth: Estimate,
}

/// What a profile says about wide code.
#[derive(Clone, Debug, PartialEq)]
pub enum Penalty {
    /// No class lowers the clock by more than could be noise.
    None {
        /// The largest loss that the intervals leave possible.
        at_most: f64,
    },
    /// These do, the deepest first.
    Some(Vec<Depth>),
    /// Too little was measured.
    Unknown,
}

/// Why a profile does not hold here and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// It is of another processor, or another microcode, or another number of CPUs.
    Machine,
    /// It has the format of another version.
    Format,
}

/// Why a profile could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file could not be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It is no profile.
    #[error("{} is not a machine profile ({why}); measure again with `widelane probe`", path.display())]
    NotAProfile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Measures this machine on the CPUs that this process may use. `progress` hears what is being
/// measured, and the share of it that is done.
pub fn probe(quick: bool, progress: &(dyn Fn(&str, f64) + Sync)) -> Profile {
    let hertz = ticks_per_second();
    let cpus = allowed_cpus();
    let schedule = if quick { QUICK } else { THOROUGH };
    let (repetitions, hand_overs) = if quick { (6, 400) } else { (100, 20_000) };
    let first = cpus.first().copied().unwrap_or(0);
    // Another core if there is one, else the other hyperthread of the first.
    let together = siblings(first);
    let apart = cpus
        .iter()
        .copied()
        .find(|cpu| *cpu != first && !together.contains(cpu));
    let other = apart.or(cpus.get(1).copied());
    Profile {
        format: FORMAT,
        machine: Machine::here(),
        taken: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        quick,
        tsc_ghz: hertz / 1e9,
        hyperthreads: cpus
            .iter()
            .any(|&cpu| siblings(cpu).iter().any(|s| cpus.contains(s))),
        clocks: clocks(&cpus, hertz, schedule, &|done| {
            progress("clock by class", done)
        }),
        transitions: transitions(first, hertz, repetitions, &|done| {
            progress("edges of wide code", done);
        }),
        hand_over: other.and_then(|other| hand_over(first, other, hertz, hand_overs)),
        counters: counters(first, hertz),
        cpus,
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// When there is none, or the file holds something else.
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let text = fs::read_to_string(path).map_err(|cause| ProfileError::File {
            path: path.to_owned(),
            cause,
        })?;
        Self::from_json(&text).map_err(|why| ProfileError::NotAProfile {
            path: path.to_owned(),
            why,
        })
    }

    /// Reads a profile from its text; the error is for people.
    ///
    /// # Errors
    ///
    /// When it is no profile, or says what cannot be.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let profile: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let plausible = |estimate: &Estimate| {
            estimate.value.is_finite()
                && estimate.low <= estimate.value
                && estimate.value <= estimate.high
        };
        let fine = |clock: &Clock| {
            plausible(&clock.ghz) && plausible(&clock.of_scalar) && clock.of_scalar.low > 0.0
        };
        if profile.clocks.iter().all(fine) {
            Ok(profile)
        } else {
            Err("a clock is outside its own interval".to_owned())
        }
    }

    /// Keeps the profile; a reader never sees half of it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        let failed = |cause| ProfileError::File {
            path: path.to_owned(),
            cause,
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", std::process::id()));
        let draft = PathBuf::from(draft);
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, path));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
        written.map_err(failed)
    }

    /// Where profiles are kept unless somebody says otherwise: `/var/lib/widelane` for root, else
    /// the user's state directory. `None` where there is none.
    pub fn default_path() -> Option<PathBuf> {
        let folder = if rustix::process::geteuid().is_root() {
            PathBuf::from("/var/lib")
        } else {
            let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
            let home = || set("HOME").map(|home| PathBuf::from(home).join(".local/state"));
            set("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?
        };
        Some(folder.join("widelane/profile.json"))
    }

    /// Why this profile does not hold on `machine`; `None` if it does.
    pub fn stale(&self, machine: &Machine) -> Option<Stale> {
        if self.format != FORMAT {
            Some(Stale::Format)
        } else if self.machine != *machine {
            Some(Stale::Machine)
        } else {
            None
        }
    }

    /// Whether wide code costs clock here.
    pub fn penalty(&self) -> Penalty {
        let wide = || self.clocks.iter().filter(|clock| clock.class != "scalar");
        let depth = |clock: &Clock| Depth {
            class: clock.class.clone(),
            cores: clock.cores,
            depth: Estimate {
                value: 1.0 - clock.of_scalar.value,
                low: 1.0 - clock.of_scalar.high,
                high: 1.0 - clock.of_scalar.low,
            },
        };
        let mut depths: Vec<_> = wide().map(depth).collect();
        let at_most = depths
            .iter()
            .map(|depth| depth.depth.high)
            .fold(0.0, f64::max);
        if depths.is_empty() {
            return Penalty::Unknown;
        }
        // Certain, and large enough to matter.
        depths.retain(|depth| depth.depth.low > 0.0 && depth.depth.value > MATTERS);
        depths.sort_by(|a, b| b.depth.value.total_cmp(&a.depth.value));
        match depths.is_empty() {
            true => Penalty::None { at_most },
            false => Penalty::Some(depths),
        }
    }
}

/// The version of the format.
const FORMAT: u32 = 2;
/// A loss of clock below this changes no decision.
const MATTERS: f64 = 0.015;
/// Under a minute on any number of cores, and under two seconds.
const THOROUGH: Schedule = Schedule {
    rounds: 40,
    settle: Duration::from_millis(5),
    slot: Duration::from_millis(15),
};
const QUICK: Schedule = Schedule {
    rounds: 9,
    settle: Duration::from_millis(3),
    slot: Duration::from_millis(4),
};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A profile with these clocks of scalar and 512-bit heavy code on all cores.
    pub(crate) fn profile(scalar: f64, heavy: f64) -> Profile {
        let sure = |value: f64| Estimate {
            value,
            low: value * 0.99,
            high: value * 1.01,
        };
        let clock = |class: &str, ghz: f64| Clock {
            class: class.to_owned(),
            cores: 2,
            ghz: sure(ghz),
            of_scalar: sure(ghz / scalar),
            vanished: sure(0.001),
        };
        Profile {
            format: FORMAT,
            machine: Machine::here(),
            taken: 0,
            quick: true,
            tsc_ghz: 2.1,
            cpus: vec![0, 1],
            hyperthreads: false,
            clocks: vec![clock("scalar", scalar), clock("512-heavy", heavy)],
            transitions: Vec::new(),
            hand_over: None,
            counters: Vec::new(),
        }
    }

    #[test]
    fn a_penalty_is_one_that_is_certain_and_matters() {
        assert!(
            matches!(profile(2.8, 2.79).penalty(), Penalty::None { at_most } if at_most < 0.02)
        );
        let Penalty::Some(depths) = profile(2.8, 1.9).penalty() else {
            panic!("a third of the clock is a penalty");
        };
        assert!((depths[0].depth.value - 0.32).abs() < 0.01 && depths[0].class == "512-heavy");
        let mut empty = profile(2.8, 1.9);
        empty.clocks.clear();
        assert_eq!(empty.penalty(), Penalty::Unknown);
    }

    #[test]
    fn profiles_survive_being_kept_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/profile.json");
        let kept = profile(2.8, 1.9);
        kept.save(&path).unwrap();
        assert_eq!(Profile::load(&path).unwrap(), kept);
        assert_eq!(kept.stale(&Machine::here()), None);
        let other = Machine {
            microcode: "0xffff".to_owned(),
            ..Machine::here()
        };
        assert_eq!(kept.stale(&other), Some(Stale::Machine));

        std::fs::write(&path, "{}").unwrap();
        let error = Profile::load(&path).unwrap_err().to_string();
        assert!(
            error.contains("profile.json") && error.contains("widelane probe"),
            "{error}"
        );
        let absurd = serde_json::to_string(&kept).unwrap().replace("1.9", "-1.9");
        assert!(Profile::from_json(&absurd).is_err());
    }

    #[test]
    fn a_quick_probe_finds_every_class_and_reports_its_progress() {
        let heard = Mutex::new(Vec::new());
        let profile = probe(true, &|what, _| {
            let mut heard = heard.lock().unwrap();
            if heard.last().map(String::as_str) != Some(what) {
                heard.push(what.to_owned());
            }
        });
        assert!(heard.lock().unwrap().len() >= 2);
        let classes = profile
            .clocks
            .iter()
            .filter(|clock| clock.cores == 1)
            .count();
        let here = widelane_cpu::licence::Class::ALL
            .into_iter()
            .filter(|c| crate::spin::runs(*c));
        assert_eq!(classes, here.count());
        for clock in &profile.clocks {
            assert!(
                clock.ghz.value > 0.0 && clock.ghz.contains(clock.ghz.value),
                "{clock:?}"
            );
        }
        assert_eq!(
            Profile::from_json(&serde_json::to_string(&profile).unwrap()),
            Ok(profile)
        );
    }
}
