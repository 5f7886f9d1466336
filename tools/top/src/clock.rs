//! The clock of each CPU now, from the best source that this process may read.

use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;
use widelane_affinity::Cpus;
use widelane_files::cpuinfo::{Cpu, cpus};

/// Source of clocks, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Cycles over ticks while the CPU was not halted: the mean clock of the interval.
    Aperf,
    /// The clock that its driver reports now.
    Cpufreq,
    /// The kernel's "cpu MHz".
    Cpuinfo,
}

impl Source {
    /// Meaning of its figures, in words.
    pub fn meaning(self, virtual_machine: bool) -> &'static str {
        match self {
            Self::Aperf => "effective, by APERF/MPERF",
            Self::Cpufreq => "now, by cpufreq",
            Self::Cpuinfo if virtual_machine => "by /proc/cpuinfo: nominal, in a virtual machine",
            Self::Cpuinfo => "now, by /proc/cpuinfo",
        }
    }
}

/// The clock of a CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Core {
    /// Number of the CPU.
    pub cpu: usize,
    /// GHz; `None` if it was halted all the time.
    pub ghz: Option<f64>,
}

/// The clocks of all CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clocks {
    /// Source of the clocks.
    pub source: Source,
    /// Meaning of the source, in words.
    pub meaning: &'static str,
    /// Reasons why it is not a better source.
    pub why_not_better: Vec<String>,
    /// Each CPU that is online.
    pub cores: Vec<Core>,
}

/// Reads clocks, again and again.
pub(crate) struct Reader {
    /// Folder with `dev`, `sys` and `proc`.
    root: PathBuf,
    registers: Result<Vec<Registers>, String>,
}

impl Reader {
    /// Finds the best source below `root`, which is `/` but for tests.
    pub(crate) fn new(root: PathBuf) -> Self {
        let online = online(&root);
        let registers = online.iter().map(|cpu| {
            let path = root.join(format!("dev/cpu/{cpu}/msr"));
            Registers::open(cpu, &path).map_err(|error| {
                format!(
                    "no APERF: {}: {error} (it takes root and the module msr)",
                    path.display()
                )
            })
        });
        let registers = registers.collect();
        Self { root, registers }
    }

    /// The clocks since the last call, or now, depending on the source; or why there are none.
    pub(crate) fn read(&mut self, virtual_machine: bool) -> Result<Clocks, String> {
        let mut why_not_better = Vec::new();
        let clocks = |source: Source, why_not_better, cores| Clocks {
            source,
            meaning: source.meaning(virtual_machine),
            why_not_better,
            cores,
        };
        match &mut self.registers {
            Ok(registers) if !registers.is_empty() => {
                match registers.iter_mut().map(Registers::core).collect() {
                    Ok(cores) => return Ok(clocks(Source::Aperf, why_not_better, cores)),
                    // A CPU went away, or another one reads and resets.
                    Err(error) => why_not_better.push(format!("no APERF: {error}")),
                }
            }
            Ok(_) => why_not_better.push("no APERF: no CPU is known to be online".to_owned()),
            Err(why) => why_not_better.push(why.clone()),
        }
        match self.cpufreq() {
            Ok(cores) => return Ok(clocks(Source::Cpufreq, why_not_better, cores)),
            Err(why) => why_not_better.push(why),
        }
        let path = self.root.join("proc/cpuinfo");
        let cores = cpuinfo(&widelane_files::kernel_text(&path).unwrap_or_default());
        if cores.is_empty() {
            why_not_better.push(format!("no \"cpu MHz\" in {}", path.display()));
            return Err(why_not_better.join("; "));
        }
        Ok(clocks(Source::Cpuinfo, why_not_better, cores))
    }

    fn cpufreq(&self) -> Result<Vec<Core>, String> {
        let core = |cpu: usize| -> Result<Core, String> {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
            let path = self.root.join(file);
            let text = widelane_files::kernel_text(&path)
                .map_err(|error| format!("no cpufreq: {}: {error}", path.display()))?;
            let khz: f64 = text
                .trim()
                .parse()
                .map_err(|_| format!("no cpufreq: {} holds no number", path.display()))?;
            Ok(Core {
                cpu,
                ghz: Some(khz / 1e6),
            })
        };
        let cores: Vec<_> = online(&self.root).iter().map(core).collect::<Result<_, _>>()?;
        match cores.is_empty() {
            true => Err("no cpufreq: no CPU is known to be online".to_owned()),
            false => Ok(cores),
        }
    }
}

/// The registers of a CPU.
struct Registers {
    cpu: usize,
    file: File,
    before: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    /// Cycles while not halted.
    cycles: u64,
    /// Ticks of the time-stamp counter while not halted.
    awake: u64,
    /// All ticks of the time-stamp counter.
    ticks: u64,
    when: Instant,
}

impl Registers {
    fn open(cpu: usize, path: &std::path::Path) -> io::Result<Self> {
        let file = widelane_files::open_kernel(path)?;
        let before = Self::counts(&file)?;
        Ok(Self { cpu, file, before })
    }

    fn counts(file: &File) -> io::Result<Counts> {
        let read = |register| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, register)?;
            io::Result::Ok(u64::from_le_bytes(bytes))
        };
        Ok(Counts {
            cycles: read(APERF)?,
            awake: read(MPERF)?,
            ticks: read(TIME_STAMP)?,
            when: Instant::now(),
        })
    }

    fn core(&mut self) -> io::Result<Core> {
        let now = Self::counts(&self.file)?;
        let before = std::mem::replace(&mut self.before, now);
        Ok(Core {
            cpu: self.cpu,
            ghz: effective(&before, &now),
        })
    }
}

/// GHz while the CPU was not halted; `None` if it always was.
fn effective(before: &Counts, now: &Counts) -> Option<f64> {
    let rise = |of: fn(&Counts) -> u64| of(now).wrapping_sub(of(before)) as f64;
    let seconds = now.when.duration_since(before.when).as_secs_f64();
    let tick_ghz = rise(|counts| counts.ticks) / seconds / 1e9;
    let ghz = rise(|counts| counts.cycles) / rise(|counts| counts.awake) * tick_ghz;
    (ghz.is_finite() && ghz > 0.0).then_some(ghz)
}

/// CPUs that are online.
fn online(root: &std::path::Path) -> Cpus {
    Cpus::read(&root.join("sys/devices/system/cpu/online")).unwrap_or_default()
}

/// The clocks that `/proc/cpuinfo` has, as it does on most machines.
fn cpuinfo(text: &str) -> Vec<Core> {
    let core = |cpu: Cpu| {
        let mhz: f64 = cpu.value("cpu MHz")?.parse().ok()?;
        Some(Core {
            cpu: cpu.value("processor")?.parse().ok()?,
            ghz: mhz.is_finite().then_some(mhz / 1e3),
        })
    };
    let cores = cpus(text).filter_map(core);
    cores.filter(|core| core.ghz.is_some()).collect()
}

const TIME_STAMP: u64 = 0x10;
const MPERF: u64 = 0xe7;
const APERF: u64 = 0xe8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
            fs::write(path, text).expect("writable");
        }
        root
    }

    const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-1\n");
    const CPUINFO: (&str, &str) = (
        "proc/cpuinfo",
        "processor\t: 0\ncpu MHz\t\t: 2596.096\n\nprocessor\t: 1\ncpu MHz\t\t: 3000.0\n",
    );

    fn read(files: &[(&str, &str)]) -> Result<Clocks, String> {
        let root = machine(files);
        Reader::new(root.path().to_owned()).read(true)
    }

    #[test]
    fn the_best_source_is_taken_and_the_others_are_excused() {
        let freq = |cpu, khz| (format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"), khz);
        let (zero, one) = (freq(0, "2100000\n"), freq(1, "3700000\n"));
        let clocks = read(&[ONLINE, CPUINFO, (&zero.0, zero.1), (&one.0, one.1)]).unwrap();
        assert_eq!(clocks.source, Source::Cpufreq);
        assert_eq!(clocks.cores[1].ghz, Some(3.7));
        assert!(clocks.why_not_better[0].contains("dev/cpu/0/msr"));

        let clocks = read(&[ONLINE, CPUINFO]).unwrap();
        assert_eq!((clocks.source, clocks.cores.len()), (Source::Cpuinfo, 2));
        assert_eq!(clocks.cores[0].ghz, Some(2.596096));
        assert!(clocks.meaning.contains("nominal"));
        assert_eq!(clocks.why_not_better.len(), 2);
    }

    #[test]
    fn without_any_source_the_reasons_are_given() {
        let why = read(&[]).unwrap_err();
        assert!(why.contains("APERF") && why.contains("cpu MHz"), "{why}");
        let odd = (
            "proc/cpuinfo",
            "processor: x\ncpu MHz: 1\nprocessor: 1\ncpu MHz: NaN\n:\n",
        );
        assert!(read(&[odd]).is_err());
    }

    #[test]
    fn the_effective_clock_follows_from_the_counters() {
        let before = Counts {
            cycles: u64::MAX,
            awake: 100,
            ticks: 0,
            when: Instant::now(),
        };
        let now = Counts {
            cycles: before.cycles.wrapping_add(1_500_000_000),
            awake: 1_000_000_100,
            ticks: 4_000_000_000,
            when: before.when + Duration::from_secs(2),
        };
        assert_eq!(effective(&before, &now), Some(3.0));
        assert_eq!(effective(&before, &before), None);
        let halted = Counts { awake: 100, ..now };
        assert_eq!(effective(&before, &halted), None);
    }
}
