//! Facts about the CPU: which kernels may run here.
//!
//! A value of a token type is proof that the CPU and the operating system support a set of
//! instructions. `detect` is the only constructor, and kernels take their token by value: holding
//! one is having checked. No vendor and no model is looked at, only features.
//!
//! What wide code does to the clock is published for some processors: [`licence`] is the model of
//! it. What it costs on this machine has to be measured, and is not said here.

#![forbid(unsafe_code)]

pub mod licence;

use std::sync::OnceLock;

/// Proof that 512-bit registers, VPMADD52 and arithmetic on 16-bit words may be used.
///
/// CPUID names AVX512F, AVX512BW and AVX512IFMA, and XCR0 says that the operating system saves all
/// 32 512-bit registers and the masks. Every CPU with IFMA so far has BW.
#[derive(Clone, Copy, Debug)]
pub struct Avx512Ifma(());

/// Proof that the same may be used on 256-bit registers, all 32 of them: [`Avx512Ifma`] and
/// AVX512VL.
#[derive(Clone, Copy, Debug)]
pub struct Avx512IfmaVl(());

impl Avx512Ifma {
    /// The token, if CPU, operating system and [`DISABLE_VARIABLE`] allow it.
    pub fn detect() -> Option<Self> {
        features().ifma.then_some(Self(()))
    }
}

impl Avx512IfmaVl {
    /// What a CPU with 256-bit kernels can do besides.
    pub fn zmm(self) -> Avx512Ifma {
        Avx512Ifma(())
    }

    /// The token, if CPU, operating system and [`DISABLE_VARIABLE`] allow it.
    pub fn detect() -> Option<Self> {
        features().vl.then_some(Self(()))
    }
}

/// Why the wide kernels cannot run in this process, for people: `None` if they can.
pub fn why_not() -> Option<String> {
    if Avx512Ifma::detect().is_some() {
        return None;
    }
    Some(if hardware().ifma {
        format!("{DISABLE_VARIABLE} disables avx512ifma")
    } else {
        "this CPU or its hypervisor does not offer AVX-512 IFMA, or the operating system does not \
         save 512-bit registers"
            .to_owned()
    })
}

/// The environment variable that takes features away, for tests: a list such as `avx512ifma` or
/// `avx512vl`, separated by commas. Read once.
pub const DISABLE_VARIABLE: &str = "WIDELANE_CPU_DISABLE";

#[derive(Clone, Copy)]
struct Features {
    ifma: bool,
    vl: bool,
}

fn features() -> Features {
    static FEATURES: OnceLock<Features> = OnceLock::new();
    *FEATURES.get_or_init(|| {
        let list = std::env::var(DISABLE_VARIABLE).unwrap_or_default();
        let (features, unknown) = disable(hardware(), &list);
        for name in unknown {
            eprintln!(
                "widelane: {DISABLE_VARIABLE} names `{name}`, which is not a feature; the \
                 features are avx512ifma and avx512vl"
            );
        }
        features
    })
}

/// What is left of `features` without those that `list` names, and what it names in vain.
fn disable(mut features: Features, list: &str) -> (Features, Vec<&str>) {
    let mut unknown = Vec::new();
    for name in list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        match name {
            "avx512ifma" => {
                features = Features {
                    ifma: false,
                    vl: false,
                }
            }
            "avx512vl" => features.vl = false,
            _ => unknown.push(name),
        }
    }
    (features, unknown)
}

#[cfg(target_arch = "x86_64")]
fn hardware() -> Features {
    // The macro looks at CPUID and, for features with registers of their own, at XCR0.
    let ifma = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512ifma");
    Features {
        ifma,
        vl: ifma && std::arch::is_x86_feature_detected!("avx512vl"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn hardware() -> Features {
    Features {
        ifma: false,
        vl: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Features = Features {
        ifma: true,
        vl: true,
    };

    #[test]
    fn disabling_ifma_takes_both_widths() {
        let (left, unknown) = disable(BOTH, " avx512ifma ");
        assert!(!left.ifma && !left.vl && unknown.is_empty());
    }

    #[test]
    fn disabling_vl_leaves_512_bit() {
        let (left, unknown) = disable(BOTH, "avx512vl");
        assert!(left.ifma && !left.vl && unknown.is_empty());
    }

    #[test]
    fn unknown_names_are_reported() {
        let (left, unknown) = disable(BOTH, "sse9,,avx512vl");
        assert!(left.ifma && !left.vl);
        assert_eq!(unknown, ["sse9"]);
    }

    #[test]
    fn reason_exists_exactly_without_token() {
        assert_eq!(Avx512Ifma::detect().is_none(), why_not().is_some());
    }
}
