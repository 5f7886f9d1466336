//! Facts about the CPU: which kernels may run here.
//!
//! A [`Target`] is a kind of machine code, and its [`Token`] is proof that the CPU and the operating
//! system support it. `detect` is the only constructor, and kernels take their token by value:
//! holding one is having checked. No vendor and no model is looked at, only features.
//!
//! What wide code does to the clock is published for some processors: [`licence`] is the model of
//! it. What it costs on this machine has to be measured, and is not said here.

#![forbid(unsafe_code)]

#[cfg(feature = "emulation")]
pub mod emulation;
mod environment;
mod lanes;
pub mod licence;
mod target;

pub use environment::variable;
pub use lanes::{Lanes, caveats, lanes};
pub use target::{AnyToken, Product, Registers, Target, Token};

use std::sync::OnceLock;

/// Returns whether this process may use 256-bit registers and AVX2, for measurements of what they cost.
pub fn has_avx2() -> bool {
    features().avx2
}

/// Returns whether this process may use 512-bit registers and AVX512F, for measurements of what they cost.
pub fn has_avx512f() -> bool {
    features().avx512f
}

/// The environment variable that takes features away, so that tests play other CPUs: a list of
/// `avx2`, `fma`, `avxifma`, `avx512f`, `avx512dq`, `avx512ifma` and `avx512vl`, separated by commas. Each takes away
/// what needs it: `avx512f` plays a CPU without AVX-512, `avx512ifma` one with AVX-512 of the first generation, `avx2` one
/// without AVX2. Read once.
///
/// AWS-LC and OpenSSL do not read it.
pub const DISABLE_VARIABLE: &str = "WIDELANE_CPU_DISABLE";

/// The features that [`DISABLE_VARIABLE`] knows. Each is only set if those above it are.
///
/// `dq` stands for AVX512DQ and AVX512BW, `ifma` for AVX512IFMA and AVX512BW: every CPU with the first of a
/// pair so far has the other. XCR0 says that the
/// operating system saves all registers of a feature: for AVX-512 32 of 512 bits and the masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Features {
    avx2: bool,
    /// With AVX2: there are 256-bit integer instructions, too.
    fma: bool,
    avxifma: bool,
    avx512f: bool,
    dq: bool,
    ifma: bool,
    vl: bool,
}

impl Features {
    const NONE: Self = Self {
        avx2: false,
        fma: false,
        avxifma: false,
        avx512f: false,
        dq: false,
        ifma: false,
        vl: false,
    };
    /// Features of servers with AVX-512 IFMA. None of them has AVX-IFMA.
    const SERVER: Self = Self {
        avx2: true,
        fma: true,
        avxifma: false,
        avx512f: true,
        dq: true,
        ifma: true,
        vl: true,
    };
    #[cfg(test)]
    const ALL: Self = Self {
        avxifma: true,
        ..Self::SERVER
    };
}

fn features() -> Features {
    static FEATURES: OnceLock<Features> = OnceLock::new();
    let found = *FEATURES.get_or_init(|| {
        let list = variable(DISABLE_VARIABLE).unwrap_or_default();
        let (features, unknown) = disable(hardware(), list.to_str().unwrap_or_default());
        for name in unknown {
            eprintln!(
                "widelane: {DISABLE_VARIABLE} names `{name}`, which is not a feature; the \
                 features are avx2, fma, avxifma, avx512f, avx512dq, avx512ifma and avx512vl"
            );
        }
        features
    });
    #[cfg(feature = "emulation")]
    let found = emulation::added_to(found);
    found
}

/// Returns `features` without those that `list` names, and the unknown names in `list`.
fn disable(mut features: Features, list: &str) -> (Features, Vec<&str>) {
    let mut unknown = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        features = match name {
            "avx2" => Features::NONE,
            "fma" => Features { fma: false, ..features },
            "avxifma" => Features {
                avxifma: false,
                ..features
            },
            "avx512f" => Features {
                avx2: features.avx2,
                fma: features.fma,
                avxifma: features.avxifma,
                ..Features::NONE
            },
            "avx512dq" => Features { dq: false, ..features },
            "avx512ifma" => Features {
                ifma: false,
                vl: false,
                ..features
            },
            "avx512vl" => Features { vl: false, ..features },
            _ => {
                unknown.push(name);
                features
            }
        };
    }
    (features, unknown)
}

#[cfg(target_arch = "x86_64")]
fn hardware() -> Features {
    // The macro looks at CPUID and, for features with registers of their own, at XCR0.
    let avx2 = std::arch::is_x86_feature_detected!("avx2");
    let avx512f = avx2 && std::arch::is_x86_feature_detected!("avx512f");
    let avx512bw = avx512f && std::arch::is_x86_feature_detected!("avx512bw");
    let ifma = avx512bw && std::arch::is_x86_feature_detected!("avx512ifma");
    Features {
        avx2,
        fma: avx2 && std::arch::is_x86_feature_detected!("fma"),
        avxifma: avx2 && std::arch::is_x86_feature_detected!("avxifma"),
        avx512f,
        dq: avx512bw && std::arch::is_x86_feature_detected!("avx512dq"),
        ifma,
        vl: ifma && std::arch::is_x86_feature_detected!("avx512vl"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn hardware() -> Features {
    Features::NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabling_a_feature_takes_what_needs_it() {
        let left = |list| {
            let (left, unknown) = disable(Features::ALL, list);
            assert!(unknown.is_empty(), "{unknown:?}");
            let Features {
                avx2,
                fma,
                avxifma,
                avx512f,
                dq,
                ifma,
                vl,
            } = left;
            [avx2, fma, avxifma, avx512f, dq, ifma, vl].map(u8::from)
        };
        assert_eq!(left(" avx512vl "), [1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(left("avx512ifma"), [1, 1, 1, 1, 1, 0, 0]);
        assert_eq!(left("avx512dq"), [1, 1, 1, 1, 0, 1, 1]);
        assert_eq!(left("avxifma"), [1, 1, 0, 1, 1, 1, 1]);
        assert_eq!(left("fma"), [1, 0, 1, 1, 1, 1, 1]);
        assert_eq!(left("avx512f"), [1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(left("avx512vl,avx2"), [0; 7]);
    }

    #[test]
    fn unknown_names_are_reported() {
        let (left, unknown) = disable(Features::ALL, "sse9,,avx512vl");
        assert!(left.ifma && !left.vl);
        assert_eq!(unknown, ["sse9"]);
    }
}
