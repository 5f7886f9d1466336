//! The profile of a machine: made by measuring, kept as JSON, stale on another processor.

use crate::clocks::{Clock, Schedule, clocks};
use crate::counters::{Counter, counters};
use crate::estimate::{Distribution, Estimate};
use crate::handover::{HandOver, hand_over};
use crate::machine::{Machine, allowed_cpus, siblings, ticks_per_second};
use crate::siblings::{Siblings, interplay};
use crate::transitions::{Transition, transitions};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use widelane_cpu::licence::Class;

/// Measurements of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The version of this format.
    pub format: u32,
    /// Machine that was measured.
    pub machine: Machine,
    /// Time of the measurement, in seconds since 1970.
    pub taken: u64,
    /// The commit of the program that measured, with `-modified` behind it if its sources differed. Who
    /// calls [`probe`] may know it.
    #[serde(default)]
    pub commit: Option<String>,
    /// True if the measurement was quick, and so less exact.
    pub quick: bool,
    /// Ticks of the time-stamp counter a nanosecond.
    pub tsc_ghz: f64,
    /// The CPUs that were measured.
    pub cpus: Vec<usize>,
    /// True if two of the CPUs are hyperthreads of one core.
    pub hyperthreads: bool,
    /// The clock by class and number of active cores.
    pub clocks: Vec<Clock>,
    /// The edges of wide code.
    pub transitions: Vec<Transition>,
    /// Hand-over between two of the CPUs; `None` where there is one only.
    pub hand_over: Option<HandOver>,
    /// Effect of wide code on the other hyperthread of its core.
    #[serde(default)]
    pub siblings: Siblings,
    /// Counters that exist beside the clocks above, or why they do not.
    pub counters: Vec<Counter>,
}

/// Loss by a class on a number of cores.
#[derive(Clone, Debug, PartialEq)]
pub struct Depth {
    /// The class.
    pub class: String,
    /// Cores that ran it.
    pub cores: usize,
    /// The share of the clock that is missing while it runs, against scalar code.
    pub depth: Estimate,
}

/// Effect of wide code on the clock, by a profile.
#[derive(Clone, Debug, PartialEq)]
pub enum Penalty {
    /// No class lowers the clock by more than could be noise.
    None {
        /// The largest loss that the intervals leave possible.
        at_most: f64,
    },
    /// Classes that cost clock, the deepest loss first.
    Some(Vec<Depth>),
    /// Too little was measured.
    Unknown,
}

/// Reason why a profile does not hold here and now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// The profile is of another processor, microcode or number of CPUs.
    Machine,
    /// The profile has the format of another version.
    Format,
}

/// Reason why a profile could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The machine has no name.
    #[error(
        "/proc/cpuinfo does not describe the CPU, so that this profile could be taken for that of \
         another machine; mount /proc and measure again"
    )]
    NoMachine,
    /// The file could not be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file is no profile.
    #[error("{} is not a machine profile ({why}); measure again with `widelane probe`", path.display())]
    NotAProfile {
        /// The file.
        path: PathBuf,
        /// Fault of the file.
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
        commit: None,
        quick,
        tsc_ghz: hertz / 1e9,
        hyperthreads: cpus.iter().any(|&cpu| siblings(cpu).iter().any(|s| cpus.contains(s))),
        clocks: clocks(&cpus, hertz, schedule, &|done| progress("clock by class", done)),
        transitions: transitions(first, hertz, repetitions, &|done| {
            progress("edges of wide code", done);
        }),
        hand_over: other.and_then(|other| hand_over(first, other, hertz, hand_overs)),
        siblings: interplay(&cpus, siblings, hertz, schedule, &|done| {
            progress("hyperthreads", done);
        }),
        counters: counters(first, hertz),
        cpus,
    }
}

impl Profile {
    /// Reads a profile that the user named.
    ///
    /// # Errors
    ///
    /// When there is none, or the file holds something else.
    pub fn load_named(path: &Path) -> Result<Self, ProfileError> {
        Self::from_read(path, widelane_files::read_named(path, LONGEST as u64))
    }

    /// Reads a profile in its usual place, which may belong to another user: no link is followed.
    ///
    /// # Errors
    ///
    /// As with [`load_named`](Self::load_named).
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        Self::from_read(path, widelane_files::read(path, LONGEST as u64))
    }

    fn from_read(path: &Path, read: io::Result<Vec<u8>>) -> Result<Self, ProfileError> {
        let bytes = read.map_err(|cause| ProfileError::File {
            path: path.to_owned(),
            cause,
        })?;
        let text = String::from_utf8(bytes).map_err(|_| "it is no text".to_owned());
        let profile = text.and_then(|text| Self::from_json(&text));
        profile.map_err(|why| ProfileError::NotAProfile {
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
        if text.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes"));
        }
        let profile: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match profile.absurdity() {
            Some(what) => Err(format!("{what} cannot be")),
            None => Ok(profile),
        }
    }

    /// Impossible value in this profile, if there is one, so that no decision is made on it.
    fn absurdity(&self) -> Option<String> {
        let within = |value: f64, low: f64, high: f64| (low..=high).contains(&value);
        let estimate = |e: &Estimate, low: f64, high: f64| within(e.low, low, e.value) && within(e.high, e.value, high);
        let distribution = |d: &Distribution| {
            let rising = [0.0, d.p5, d.p50, d.p95, d.p99, d.max, LONGEST_TIME];
            d.count > 0 && rising.is_sorted()
        };
        let class = |name: &str| Class::named(name).is_some();

        let lists = [self.clocks.len(), self.transitions.len(), self.counters.len()];
        if self.cpus.len() > MOST || lists.iter().any(|&length| length > MOST) {
            return Some(format!("a list with more than {MOST} entries"));
        }
        if !within(self.tsc_ghz, 0.0, HIGHEST_GHZ) {
            return Some(format!("a time-stamp counter of {} GHz", self.tsc_ghz));
        }
        let mut seen = HashSet::new();
        for clock in &self.clocks {
            let fine = class(&clock.class)
                && within(clock.cores as f64, 1.0, MOST as f64)
                && clock.ghz.low > 0.0
                && estimate(&clock.ghz, 0.0, HIGHEST_GHZ)
                && clock.of_scalar.low > 0.0
                && estimate(&clock.of_scalar, 0.0, HIGHEST_RATIO)
                && estimate(&clock.vanished, 0.0, HIGHEST_RATIO)
                && seen.insert((&clock.class, clock.cores));
            if !fine {
                return Some(format!("the clock of {} on {}", quoted(&clock.class), clock.cores));
            }
        }
        for edge in &self.transitions {
            let fine = class(&edge.class)
                && distribution(&edge.stall_us)
                && distribution(&edge.control_us)
                && edge.tail_us.as_ref().is_none_or(distribution)
                && within(edge.after, 0.0, HIGHEST_RATIO);
            if !fine {
                return Some(format!("the edges of {}", quoted(&edge.class)));
            }
        }
        if let Some(ways) = &self.hand_over {
            let ns = [
                &ways.spinning_ns,
                &ways.sleeping_ns,
                &ways.pool_call_ns,
                &ways.migration_ns,
            ];
            if !ns.into_iter().all(distribution) {
                return Some("the hand-over to another core".to_owned());
            }
        }
        for beside in &self.siblings.pace {
            let paces = [&beside.clock, &beside.throughput];
            let fine = |pace: &Estimate| estimate(pace, 0.0, HIGHEST_RATIO);
            if !class(&beside.class) || !paces.into_iter().all(fine) {
                return Some(format!("the pace beside {}", quoted(&beside.class)));
            }
        }
        for counter in &self.counters {
            let ghz = |(name, ghz): &(String, f64)| class(name) && within(*ghz, 0.0, HIGHEST_GHZ);
            let share = |(name, share): &(String, f64)| class(name) && within(*share, 0.0, 1.5);
            if !counter.ghz.iter().all(ghz) || !counter.share.iter().all(share) {
                return Some(format!("what {} counted", quoted(&counter.name)));
            }
        }
        None
    }

    /// Keeps the profile in a file that the user named, which may be a pipe; a reader never sees half of it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, or the kernel does not describe this machine well enough.
    pub fn save_named(&self, path: &Path) -> Result<(), ProfileError> {
        self.save_by(path, widelane_files::replace_named)
    }

    /// Keeps the profile in its usual place: a link or a device that is there is replaced, as another user may
    /// have put it there.
    ///
    /// # Errors
    ///
    /// As with [`save_named`](Self::save_named).
    pub fn save(&self, path: &Path) -> Result<(), ProfileError> {
        self.save_by(path, widelane_files::replace)
    }

    fn save_by(&self, path: &Path, replace: Replace) -> Result<(), ProfileError> {
        if !self.machine.is_known() {
            return Err(ProfileError::NoMachine);
        }
        let failed = |cause| ProfileError::File {
            path: path.to_owned(),
            cause,
        };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        let write = || {
            if let Some(folder) = path.parent() {
                widelane_files::make_folder(folder)?;
            }
            // Services read what root has measured, whatever root's umask is.
            replace(path, text.as_bytes(), 0o644)
        };
        write().map_err(failed)
    }

    /// Reason why this profile does not hold on `machine`; `None` if it does.
    pub fn stale(&self, machine: &Machine) -> Option<Stale> {
        if self.format != FORMAT {
            Some(Stale::Format)
        } else if self.machine != *machine || !machine.is_known() {
            Some(Stale::Machine)
        } else {
            None
        }
    }

    /// Penalty of wide code here.
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
        let at_most = depths.iter().map(|depth| depth.depth.high).fold(0.0, f64::max);
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

/// A name from a file, which any user may have written.
fn quoted(name: &str) -> String {
    format!("`{}`", name.escape_debug())
}

type Replace = fn(&Path, &[u8], u32) -> io::Result<()>;

/// The version of the format.
const FORMAT: u32 = 3;
/// Bounds of every profile: bytes, entries of a list, GHz, a share of something, and a time in nanoseconds or
/// microseconds.
const LONGEST: usize = 4 << 20;
const MOST: usize = 1 << 14;
const HIGHEST_GHZ: f64 = 20.0;
const HIGHEST_RATIO: f64 = 1000.0;
const LONGEST_TIME: f64 = 1e12;
/// A loss of clock below this changes no decision.
const MATTERS: f64 = 0.015;
/// Under a minute on any number of cores, and under two seconds.
const THOROUGH: Schedule = Schedule {
    rounds: 40,
    settle: Duration::from_millis(5),
    slot: Duration::from_millis(15),
    between: true,
};
const QUICK: Schedule = Schedule {
    rounds: 9,
    settle: Duration::from_millis(3),
    slot: Duration::from_millis(4),
    between: false,
};

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
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
            commit: None,
            quick: true,
            tsc_ghz: 2.1,
            cpus: vec![0, 1],
            hyperthreads: false,
            clocks: vec![clock("scalar", scalar), clock("512-heavy", heavy)],
            transitions: Vec::new(),
            hand_over: None,
            siblings: Siblings::default(),
            counters: Vec::new(),
        }
    }

    #[test]
    fn a_penalty_is_one_that_is_certain_and_matters() {
        assert!(matches!(profile(2.8, 2.79).penalty(), Penalty::None { at_most } if at_most < 0.02));
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
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let text = include_str!("../tests/data/profile.json");
        let sound = serde_json::from_str::<serde_json::Value>(text).unwrap();
        let read = Profile::from_json(text).unwrap();
        assert_eq!(read.commit.as_deref(), Some("0123456789ab"));
        // Profiles were kept without one before.
        let mut without = sound.clone();
        without.as_object_mut().unwrap().remove("commit");
        let without = Profile::from_json(&without.to_string()).unwrap();
        assert_eq!(without, Profile { commit: None, ..read });
        for (place, absurd) in [
            ("/tsc_ghz", "-1"),
            ("/clocks/0/ghz/value", "-2.8"),
            ("/clocks/0/ghz/high", "1e300"),
            ("/clocks/1/of_scalar/low", "0"),
            ("/clocks/1/of_scalar/low", "1.5"),
            ("/clocks/0/vanished/low", "-0.1"),
            ("/clocks/0/class", "\"1024-heavy\""),
            ("/clocks/1/class", "\"scalar\""),
            ("/clocks/0/cores", "0"),
            ("/transitions/0/stall_us/p50", "1e9"),
            ("/transitions/0/after", "-1"),
            ("/hand_over/spinning_ns/p5", "-5"),
            ("/siblings/pace/0/clock/value", "2000"),
            ("/counters/0/ghz/0/1", "99"),
        ] {
            let mut changed = sound.clone();
            *changed.pointer_mut(place).unwrap() = serde_json::from_str(absurd).unwrap();
            let error = Profile::from_json(&changed.to_string()).unwrap_err();
            assert!(error.ends_with("cannot be"), "{place}: {error}");
        }
        // Tries a number that JSON does not have, and lists without end.
        let infinite = text.replacen("2.8,", "1e999,", 1);
        assert_ne!(infinite, text);
        assert!(Profile::from_json(&infinite).is_err());
        let mut long = sound.clone();
        long["cpus"] = (0..=MOST).collect();
        let error = Profile::from_json(&long.to_string()).unwrap_err();
        assert!(error.contains("more than"), "{error}");
        assert!(Profile::from_json(&" ".repeat(LONGEST + 1)).is_err());
        for load in [Profile::load, Profile::load_named] {
            let error = load(Path::new("/dev/zero")).unwrap_err().to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
    }

    #[test]
    fn a_profile_without_a_machine_is_neither_kept_nor_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        let mut nameless = profile(2.8, 1.9);
        nameless.machine = Machine::default();
        assert!(matches!(nameless.save(&path), Err(ProfileError::NoMachine)));
        assert!(!path.exists());
        assert_eq!(nameless.stale(&Machine::default()), Some(Stale::Machine));
    }

    /// Services read what root has measured.
    #[test]
    fn everybody_may_read_a_profile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/profile.json");
        let mut known = profile(2.8, 1.9);
        known.machine.vendor = "GenuineIntel".to_owned();
        known.machine.name = "a CPU".to_owned();
        known.machine.cpus = 4;
        known.save(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(Profile::load(&path).unwrap(), known);
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
        let classes = profile.clocks.iter().filter(|clock| clock.cores == 1).count();
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

    #[test]
    fn only_a_device_that_the_user_named_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let profile = profile(3.0, 2.0);
        profile.save_named(Path::new("/dev/null")).unwrap();
        // The service user owns the folder of root's profile.
        let path = folder.path().join("profile.json");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        assert!(profile.save_named(&path).is_err());
        profile.save(&path).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(Profile::load(&path).unwrap(), profile);
        // A pipe is not waited for, and a link is not followed.
        let other = folder.path().join("other");
        fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(Profile::load(&path).is_err());
        assert!(Profile::load_named(&path).is_ok());
        fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        assert!(Profile::load(&path).is_err());
    }
}
