//! Published effects of wide code on a core's clock: pure arithmetic.
//!
//! A core grants its code a clock by *licence level*. Which level an instruction asks for depends
//! on its [`Class`] and on the [`Generation`] of the processor ([`Generation::level`]); what clock
//! a level gets depends on the model and the number of active cores ([`turbo`]). A core that has
//! run wide code stays at the lower clock for a while after ([`Generation::transition`]), so that a
//! short burst can cost the scalar code after it many times its own length
//! ([`Transition::burst_cost`]).
//!
//! Nothing here is measured on this machine. Where no source says anything, the answer is `None`.

pub mod machine;
pub mod ports;

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Class of an instruction, which decides about the clock: the width of its registers and whether it is heavy, that is,
/// multiplies or works on floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// General registers.
    Scalar,
    /// 128-bit registers.
    Vector128,
    /// 256-bit registers, light.
    Light256,
    /// 256-bit registers, heavy.
    Heavy256,
    /// 512-bit registers, light: VAES, VPCLMULQDQ and GFNI among them.
    Light512,
    /// 512-bit registers, heavy: VPMADD52 among them.
    Heavy512,
}

impl Class {
    /// Every class, the lightest first.
    pub const ALL: [Self; 6] = [
        Self::Scalar,
        Self::Vector128,
        Self::Light256,
        Self::Heavy256,
        Self::Light512,
        Self::Heavy512,
    ];

    /// Name of the class, in files, tables and flags alike.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector128 => "128",
            Self::Light256 => "256-light",
            Self::Heavy256 => "256-heavy",
            Self::Light512 => "512-light",
            Self::Heavy512 => "512-heavy",
        }
    }

    /// The class of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A licence level, and so a column of a turbo schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The full clock ("SSE").
    L0,
    /// The clock of 256-bit heavy and 512-bit light code ("AVX2").
    L1,
    /// The clock of 512-bit heavy code ("AVX-512").
    L2,
}

impl Level {
    /// Name of the level, as Intel's events spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::L0 => "LVL0",
            Self::L1 => "LVL1",
            Self::L2 => "LVL2",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Processors that treat wide code alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generation {
    /// Xeon Scalable of 2017, and the Core X of its kind.
    Skylake,
    /// Xeon Scalable of 2019.
    CascadeLake,
    /// Xeon Scalable of 2021.
    IceLake,
    /// Xeon Scalable of 2023, January.
    SapphireRapids,
    /// Xeon Scalable of 2023, December.
    EmeraldRapids,
    /// Xeon 6 with performance cores.
    GraniteRapids,
    /// EPYC 9004 and its kin.
    Zen4,
    /// EPYC 9005 and its kin.
    Zen5,
    /// Anything else.
    Unknown,
}

impl Generation {
    /// Every generation, with the spelling of data files and output.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Skylake, "skylake"),
        (Self::CascadeLake, "cascade-lake"),
        (Self::IceLake, "ice-lake"),
        (Self::SapphireRapids, "sapphire-rapids"),
        (Self::EmeraldRapids, "emerald-rapids"),
        (Self::GraniteRapids, "granite-rapids"),
        (Self::Zen4, "zen4"),
        (Self::Zen5, "zen5"),
        (Self::Unknown, "unknown"),
    ];

    /// The generation of a processor, from what CPUID says of it (vendor string, and family, model
    /// and stepping with their extensions added).
    pub fn of(vendor: &str, family: u32, model: u32, stepping: u32) -> Self {
        match (vendor, family, model) {
            ("GenuineIntel", 6, 0x55) if stepping >= 5 => Self::CascadeLake,
            ("GenuineIntel", 6, 0x55) => Self::Skylake,
            ("GenuineIntel", 6, 0x6a | 0x6c) => Self::IceLake,
            ("GenuineIntel", 6, 0x8f) => Self::SapphireRapids,
            ("GenuineIntel", 6, 0xcf) => Self::EmeraldRapids,
            ("GenuineIntel", 6, 0xad | 0xae) => Self::GraniteRapids,
            ("AuthenticAMD", 0x19, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf) => Self::Zen4,
            ("AuthenticAMD", 0x1a, _) => Self::Zen5,
            _ => Self::Unknown,
        }
    }

    /// The level that a steady stream of instructions of `class` asks for, where it is known.
    ///
    /// Intel, "Crypto Processing with 3rd Gen Xeon Scalable Processors" (2021), for the processors
    /// with licences; Zen 4 and 5 have none, only limits of power. Later Xeons have turbo tables by
    /// class and no published list of what belongs to which: the list of Ice Lake is the best guess
    /// and is taken.
    pub fn level(self, class: Class) -> Option<Level> {
        match self {
            Self::Unknown => None,
            Self::Zen4 | Self::Zen5 => Some(Level::L0),
            Self::Skylake
            | Self::CascadeLake
            | Self::IceLake
            | Self::SapphireRapids
            | Self::EmeraldRapids
            | Self::GraniteRapids => Some(match class {
                Class::Scalar | Class::Vector128 | Class::Light256 => Level::L0,
                Class::Heavy256 | Class::Light512 => Level::L1,
                Class::Heavy512 => Level::L2,
            }),
        }
    }

    /// Cost of a change of level, if it has been measured.
    ///
    /// Skylake and Cascade Lake: Khalil, bachelor's thesis (KIT, 2019), i9-7940X, medians, and
    /// Downs (2020) for the way back. Ice Lake: Intel (2021), ranges.
    pub fn transition(self, level: Level) -> Option<Transition> {
        let exactly = |us: f64| Range { low: us, high: us };
        match (self, level) {
            (Self::Zen4 | Self::Zen5, _) => Some(Transition::default()),
            (Self::Unknown, _) => None,
            (_, Level::L0) => Some(Transition::default()),
            (Self::Skylake | Self::CascadeLake, level) => Some(Transition {
                down_us: exactly(if level == Level::L1 { 24.6 } else { 51.4 }),
                tail_us: exactly(670.0),
                up_us: exactly(11.0),
            }),
            (Self::IceLake, _) => Some(Transition {
                down_us: Range { low: 20.0, high: 200.0 },
                tail_us: Range {
                    low: 1000.0,
                    high: 4000.0,
                },
                up_us: exactly(0.0),
            }),
            (Self::SapphireRapids | Self::EmeraldRapids | Self::GraniteRapids, _) => None,
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(generation, _)| generation == self);
        f.pad(name.map_or("unknown", |(_, name)| name))
    }
}

impl FromStr for Generation {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let known = Self::ALL.iter().find(|(_, name)| *name == text);
        known.map(|&(generation, _)| generation).ok_or(())
    }
}

/// Range from `low` to `high`: what a source gives as a range, or two equal numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Range {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

/// A core's way to a lower level and back, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transition {
    /// Time from the first wide instruction to the lower clock: hardly anything runs meanwhile.
    pub down_us: Range,
    /// Time that the lower clock outlives the last wide instruction.
    pub tail_us: Range,
    /// The halt on the way back.
    pub up_us: Range,
}

impl Transition {
    /// Scalar time in microseconds that one isolated burst of wide code takes away from what runs
    /// after it, if the burst lowers the clock from `full` to `lowered`: both halts, and the tail
    /// times the share of the clock that is missing in it.
    pub fn burst_cost(&self, full: f64, lowered: f64) -> Range {
        let depth = (1.0 - lowered / full).max(0.0);
        let cost = |down: f64, tail: f64, up: f64| down + tail * depth + up;
        Range {
            low: cost(self.down_us.low, self.tail_us.low, self.up_us.low),
            high: cost(self.down_us.high, self.tail_us.high, self.up_us.high),
        }
    }
}

/// A row of a turbo schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turbo {
    /// The processor's model name without the maker's.
    pub cpu: &'static str,
    /// Generation of the processor.
    pub generation: Generation,
    /// Up to how many active cores the row holds for.
    pub cores: u32,
    /// GHz by level; `None` where no source gives it.
    pub clocks: [Option<f64>; 3],
    /// Source of the figures.
    pub source: &'static str,
}

impl Turbo {
    /// The clock of a level in GHz.
    pub fn clock(&self, level: Level) -> Option<f64> {
        self.clocks[level as usize]
    }
}

/// Every row of the data file, in its order.
pub fn turbo() -> &'static [Turbo] {
    static ROWS: OnceLock<Vec<Turbo>> = OnceLock::new();
    // The file is part of the program, and a test reads all of it.
    ROWS.get_or_init(|| rows(include_str!("../data/turbo.csv")).unwrap_or_default())
}

/// The rows of one processor whose name is part of `name`, as CPUID and people spell it, or has
/// `name` in it; the fewest active cores first.
pub fn turbo_of(name: &str) -> Vec<&'static Turbo> {
    let name = name.to_lowercase().replace("(r)", "").replace("(tm)", "");
    let named = |row: &&Turbo| {
        let cpu = row.cpu.to_lowercase();
        name.contains(&cpu) || (!name.is_empty() && cpu.contains(&name))
    };
    let mut rows: Vec<_> = turbo().iter().filter(named).collect();
    rows.sort_by_key(|row| (row.cpu, row.cores));
    rows
}

/// Reads a schedule, or says which line is wrong.
fn rows(text: &'static str) -> Result<Vec<Turbo>, String> {
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| row(line).ok_or_else(|| format!("line {}: {line}", number + 1)))
        .collect()
}

fn row(line: &'static str) -> Option<Turbo> {
    let mut fields = line.splitn(7, ';');
    let mut next = || fields.next().map(str::trim);
    let (cpu, generation, cores) = (next()?, next()?.parse().ok()?, next()?.parse().ok()?);
    let clock = |text: &str| match text {
        "" => Some(None),
        text => text.parse().ok().map(Some),
    };
    let clocks = [clock(next()?)?, clock(next()?)?, clock(next()?)?];
    let source = next().filter(|source| !source.is_empty())?;
    Some(Turbo {
        cpu,
        generation,
        cores,
        clocks,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read_and_has_a_source() {
        let rows = rows(include_str!("../data/turbo.csv")).expect("the file is well-formed");
        assert_eq!(rows.len(), turbo().len());
        for row in rows {
            let clocks: Vec<_> = row.clocks.into_iter().flatten().collect();
            assert!(!clocks.is_empty() && row.cores > 0, "{row:?}");
            assert!(clocks.is_sorted_by(|a, b| a >= b), "{row:?}");
            assert!(clocks.iter().all(|clock| (1.0..6.0).contains(clock)), "{row:?}");
        }
    }

    #[test]
    fn malformed_rows_are_found() {
        for bad in [
            "Xeon;skylake;4;3.0;2.0;1.0",
            "Xeon;skylake;4;3.0;2.0;1.0;",
            "Xeon;lake;4;3.0;2.0;1.0;somewhere",
            "Xeon;skylake;many;3.0;2.0;1.0;somewhere",
            "Xeon;skylake;4;3.0;fast;1.0;somewhere",
        ] {
            assert!(rows(bad).is_err(), "{bad}");
        }
    }

    /// Intel (2021): mean clock by residencies, in GHz.
    #[test]
    fn published_clocks_follow_from_published_residencies() {
        for (cpu, residency, published) in [
            ("6338N", [23.72, 0.47, 75.81], 1.96),
            ("6330", [51.27, 12.01, 36.63], 2.69),
            ("8380", [51.72, 21.11, 27.17], 2.83),
            ("8380", [50.58, 28.35, 21.06], 2.84),
        ] {
            let rows = turbo_of(cpu);
            let clocks = rows[0].clocks.map(|clock| clock.expect("all levels are given"));
            let sum: f64 = residency.iter().zip(clocks).map(|(share, clock)| share * clock).sum();
            let clock = sum / residency.iter().sum::<f64>();
            assert!((clock - published).abs() < 0.05, "{cpu}: {clock} is not {published}");
        }
    }

    /// Isolated bursts cost what the published transitions say, in microseconds.
    #[test]
    fn bursts_cost_what_is_published() {
        let cost = |generation: Generation, level, full, lowered| {
            let transition = generation.transition(level).expect("it is measured");
            transition.burst_cost(full, lowered)
        };
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.05;
        let l1 = cost(Generation::Skylake, Level::L1, 2.8, 2.4);
        assert!(near(l1.low, 130.0) && near(l1.high, 130.0), "{l1:?}");
        let l2 = cost(Generation::Skylake, Level::L2, 2.8, 1.9);
        assert!(near(l2.low, 270.0), "{l2:?}");
        let l2 = cost(Generation::Skylake, Level::L2, 2.4, 1.4);
        assert!(near(l2.low, 340.0), "{l2:?}");
        let bins = |bins: f64| cost(Generation::IceLake, Level::L2, 2.9, 2.9 - bins / 10.0);
        assert!(
            near(bins(2.0).low, 90.0) && near(bins(2.0).high, 480.0),
            "{:?}",
            bins(2.0)
        );
        assert!(
            near(bins(7.0).low, 260.0) && near(bins(7.0).high, 1170.0),
            "{:?}",
            bins(7.0)
        );
        let none = cost(Generation::Zen5, Level::L0, 3.7, 3.7);
        assert_eq!(none, Range::default());
    }

    /// The schedule of Intel's paper, and the absence of one.
    #[test]
    fn levels_follow_width_and_weight() {
        let ice_lake = Class::ALL.map(|class| Generation::IceLake.level(class));
        let [l0, l1, l2] = [Level::L0, Level::L1, Level::L2].map(Some);
        assert_eq!(ice_lake, [l0, l0, l0, l1, l1, l2]);
        assert_eq!(Generation::Zen5.level(Class::Heavy512), l0);
        assert_eq!(Generation::Unknown.level(Class::Scalar), None);
    }

    #[test]
    fn classes_are_found_by_the_names_that_they_show() {
        for class in Class::ALL {
            assert_eq!(Class::named(&class.to_string()), Some(class));
        }
        assert_eq!(Class::named("heavy512"), None);
        assert_eq!(Level::L2.to_string(), "LVL2");
    }

    #[test]
    fn processors_are_told_apart() {
        for (vendor, family, model, stepping, expected) in [
            ("GenuineIntel", 6, 0x55, 4, Generation::Skylake),
            ("GenuineIntel", 6, 0x55, 7, Generation::CascadeLake),
            ("GenuineIntel", 6, 0x6a, 6, Generation::IceLake),
            ("GenuineIntel", 6, 0xcf, 2, Generation::EmeraldRapids),
            ("AuthenticAMD", 0x19, 0x01, 1, Generation::Unknown),
            ("AuthenticAMD", 0x19, 0x11, 1, Generation::Zen4),
            ("AuthenticAMD", 0x1a, 0x02, 1, Generation::Zen5),
            ("HygonGenuine", 0x1a, 0x02, 1, Generation::Unknown),
        ] {
            assert_eq!(Generation::of(vendor, family, model, stepping), expected);
        }
        for (generation, name) in Generation::ALL {
            assert_eq!(name.parse(), Ok(generation));
            assert_eq!(generation.to_string(), name);
        }
    }

    #[test]
    fn schedules_are_found_by_the_names_that_people_use() {
        let rows = turbo_of("Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz");
        assert_eq!(rows, turbo_of("gold 6130"));
        assert_eq!(rows.iter().map(|row| row.cores).collect::<Vec<_>>(), [1, 16]);
        assert_eq!(rows[1].clock(Level::L2), Some(1.9));
        assert!(turbo_of("").is_empty());
    }
}
