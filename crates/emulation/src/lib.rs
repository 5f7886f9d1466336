//! AVX-IFMA on CPUs that lack it, for tests: a handler of SIGILL computes each VPMADD52 with a VEX prefix by integer
//! arithmetic.
//!
//! All other instructions of the code run on the CPU, so that it needs AVX2. A CPU with AVX-512 IFMA alone refuses the
//! VEX form, as wanted, and one that has AVX-IFMA runs it itself.
//!
//! Only tests depend on this crate: the guards check it.

#![deny(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod handler;
#[cfg(target_arch = "x86_64")]
mod multiply;

/// Gives this thread tokens of targets with AVX-IFMA from now on, by the CPU or by emulation. Returns which.
#[cfg(target_arch = "x86_64")]
pub fn install() -> Means {
    if widelane_cpu::emulation::has_avx_ifma() {
        return Means::Cpu;
    }
    static HANDLER: std::sync::Once = std::sync::Once::new();
    HANDLER.call_once(handler::install);
    widelane_cpu::emulation::allow_avx_ifma();
    Means::Emulation
}

/// Computes VPMADD52 with VEX prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// The CPU.
    Cpu,
    /// A handler of signals.
    Emulation,
}

impl std::fmt::Display for Means {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpu => "the CPU",
            Self::Emulation => "emulation",
        })
    }
}
