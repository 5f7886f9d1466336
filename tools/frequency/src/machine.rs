//! Describes this machine, and the CPUs that may be used.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

use crate::spin::ticks;
use widelane_cpu::licence::{Class, Generation, Level};
use widelane_files::cpuinfo;

/// Machine of a profile: on another processor or microcode the profile is stale.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// `GenuineIntel`, `AuthenticAMD` and so on.
    pub vendor: String,
    /// Family, as CPUID counts it with its extension.
    pub family: u32,
    /// Model, likewise.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// The name for people.
    pub name: String,
    /// The version of the microcode.
    pub microcode: String,
    /// CPUs that are online.
    pub cpus: usize,
    /// True on a virtual machine.
    pub virtual_machine: bool,
    /// The model whose behaviour a brake (`widelane-lab emulate`) lends to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulates: Option<String>,
}

impl Machine {
    /// This machine, as `/proc/cpuinfo` describes its first CPU. If that file cannot be read, the
    /// machine is not [known](Self::is_known).
    pub fn here() -> Self {
        Self {
            emulates: widelane_marks::emulated_model().map(str::to_owned),
            ..Self::from_cpuinfo(&widelane_files::kernel_text("/proc/cpuinfo").unwrap_or_default())
        }
    }

    /// The generation of its processor.
    pub fn generation(&self) -> Generation {
        Generation::of(&self.vendor, self.family, self.model, self.stepping)
    }

    /// Returns whether the machine's processors have licence levels, if that is published.
    pub fn has_licences(&self) -> Option<bool> {
        let level = self.generation().level(Class::Heavy512)?;
        Some(level > Level::L0)
    }

    /// Returns whether the kernel's description is enough to distinguish this machine from others.
    pub fn is_known(&self) -> bool {
        !self.vendor.is_empty() && !self.name.is_empty() && self.cpus > 0
    }

    fn from_cpuinfo(text: &str) -> Self {
        let first = cpuinfo::cpus(text).next();
        let value = |name| first.and_then(|cpu| cpu.value(name)).unwrap_or_default();
        let text_of = |name| value(name).to_owned();
        let number = |name| value(name).parse().unwrap_or(0);
        Self {
            vendor: text_of("vendor_id"),
            family: number("cpu family"),
            model: number("model"),
            stepping: number("stepping"),
            name: text_of("model name"),
            microcode: text_of("microcode"),
            cpus: cpuinfo::cpus(text).count(),
            virtual_machine: value("flags").split(' ').any(|flag| flag == "hypervisor"),
            emulates: None,
        }
    }
}

/// The CPUs that this process may use, in ascending order.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let allowed = widelane_affinity::allowed(None).unwrap_or_default();
    allowed.iter().collect()
}

/// The other hyperthreads of a CPU's core.
pub(crate) fn siblings(cpu: usize) -> Vec<usize> {
    let core = widelane_affinity::siblings(cpu);
    core.iter().filter(|&other| other != cpu).collect()
}

/// Ticks of the time-stamp counter a second, against the system's clock.
pub(crate) fn ticks_per_second() -> f64 {
    // Which of the two clocks is read first alternates, so that the time for it cancels out.
    let (tick, start) = (ticks(), Instant::now());
    while start.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (elapsed, end) = (start.elapsed(), ticks());
    (end - tick) as f64 / elapsed.as_secs_f64()
}

const CALIBRATION: Duration = Duration::from_millis(40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_what_the_kernel_says() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
            model name\t: Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz\nstepping\t: 4\n\
            microcode\t: 0x2007006\nflags\t\t: fpu hypervisor avx512f\n\nprocessor\t: 1\n";
        let machine = Machine::from_cpuinfo(text);
        assert_eq!((machine.family, machine.model, machine.stepping), (6, 85, 4));
        assert_eq!((machine.cpus, machine.virtual_machine), (2, true));
        assert!(machine.name.contains("6130") && machine.microcode == "0x2007006");
        assert!(machine.is_known());
        assert_eq!(machine.has_licences(), Some(true));
        let zen4 = text.replace("GenuineIntel", "AuthenticAMD");
        let zen4 = zen4.replace("family\t: 6", "family\t: 25").replace(": 85", ": 17");
        assert_eq!(Machine::from_cpuinfo(&zen4).has_licences(), Some(false));
        let nothing = Machine::from_cpuinfo("");
        assert_eq!(nothing.cpus, 0);
        assert!(!nothing.is_known());
        assert_eq!(nothing.has_licences(), None);
    }
}
