//! Code of a known number of cycles, timed by the time-stamp counter: the clock without counters.
//!
//! A chain of multiplications, each of which needs the result of the one before, takes three cycles
//! a link on every x86-64 core of the last fifteen years, whatever runs beside it. (Additions would
//! be as good if recent cores did not do away with some of them.) Wide instructions that nothing
//! waits for run in the shadow of the chain: it keeps its pace in cycles as long as the ports have
//! room, and tells by the time that it takes what the clock is while they run.
#![allow(unsafe_code)]

use widelane_cpu::licence::Class;

/// Three wide instructions on registers of their own: before the number, between, and after.
macro_rules! wide {
    ($head:literal, $tail:literal; $a:literal $b:literal $c:literal) => {
        concat!($head, $a, $tail, "\n", $head, $b, $tail, "\n", $head, $c, $tail, "\n")
    };
}

/// One class's loop: in each round eight links of the chain, and after each link three wide
/// instructions, so that there is one a cycle.
macro_rules! chain {
    ($rounds:expr, $head:literal, $tail:literal, $after:literal) => {{
        let (start_low, start_high, end_low, end_high): (u64, u64, u64, u64);
        // SAFETY: the code reads and writes registers only, all of which are declared; the caller
        // has checked that the CPU has its instructions; the counter in rcx is not zero at first,
        // so that the loop ends after that many rounds.
        unsafe {
            core::arch::asm!(
                "lfence",
                "rdtsc",
                "mov {start_low}, rax",
                "mov {start_high}, rdx",
                "mov {link}, 3",
                "2:",
                ".rept 2",
                "imul {link}, {link}",
                wide!($head, $tail; "0" "1" "2"),
                "imul {link}, {link}",
                wide!($head, $tail; "3" "4" "5"),
                "imul {link}, {link}",
                wide!($head, $tail; "6" "7" "8"),
                "imul {link}, {link}",
                wide!($head, $tail; "9" "10" "11"),
                ".endr",
                "dec rcx",
                "jnz 2b",
                "lfence",
                "rdtsc",
                $after,
                start_low = out(reg) start_low,
                start_high = out(reg) start_high,
                link = out(reg) _,
                inout("rcx") $rounds => _,
                out("rax") end_low,
                out("rdx") end_high,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                options(nomem, nostack),
            );
        }
        (end_high << 32 | end_low).wrapping_sub(start_high << 32 | start_low)
    }};
}

/// Returns whether this process can run code of a class.
pub fn runs(class: Class) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        match class {
            Class::Scalar | Class::Vector128 => true,
            Class::Light256 | Class::Heavy256 => widelane_cpu::has_avx2(),
            Class::Light512 => widelane_cpu::has_avx512f(),
            Class::Heavy512 => widelane_cpu::has_avx512f(),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = class;
        false
    }
}

/// Runs `rounds` of the chain with code of `class` in its shadow, and returns the ticks of the
/// time-stamp counter that it took. Each round is [`ROUND_CYCLES`] long.
///
/// # Panics
///
/// If this CPU cannot run the class.
pub(crate) fn spin(class: Class, rounds: u64) -> u64 {
    assert!(runs(class), "this CPU has no instructions of class {class}");
    if rounds == 0 {
        return 0;
    }
    #[cfg(target_arch = "x86_64")]
    {
        match class {
            Class::Scalar => chain!(rounds, "# ", "", ""),
            Class::Vector128 => chain!(rounds, "paddq xmm", ", xmm12", ""),
            Class::Light256 => chain!(rounds, "vpaddq ymm", ", ymm12, ymm13", "vzeroupper"),
            Class::Heavy256 => chain!(rounds, "vpmuludq ymm", ", ymm12, ymm13", "vzeroupper"),
            Class::Light512 => chain!(rounds, "vpaddq zmm", ", zmm12, zmm13", "vzeroupper"),
            Class::Heavy512 if widelane_cpu::Target::Avx512Ifma.is_available() => {
                chain!(rounds, "vpmadd52luq zmm", ", zmm12, zmm13", "vzeroupper")
            }
            Class::Heavy512 => chain!(rounds, "vpmuludq zmm", ", zmm12, zmm13", "vzeroupper"),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no class runs on this architecture")
}

/// Runs `rounds` of additions that do not wait for each other, as many as the core takes at once,
/// and returns the ticks of the time-stamp counter that it took.
pub(crate) fn additions(rounds: u64) -> u64 {
    if rounds == 0 {
        return 0;
    }
    let start = ticks();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the code reads and writes registers only, all of which are declared; the counter is
    // not zero at first, so that the loop ends after that many rounds.
    unsafe {
        core::arch::asm!(
            "2:",
            "add {a}, {step}",
            "add {b}, {step}",
            "add {c}, {step}",
            "add {d}, {step}",
            "add {e}, {step}",
            "add {f}, {step}",
            "dec {rounds}",
            "jnz 2b",
            a = inout(reg) 1u64 => _,
            b = inout(reg) 2u64 => _,
            c = inout(reg) 3u64 => _,
            d = inout(reg) 4u64 => _,
            e = inout(reg) 5u64 => _,
            f = inout(reg) 6u64 => _,
            step = in(reg) 7u64,
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    ticks().saturating_sub(start)
}

/// The time-stamp counter now.
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has RDTSC, and Linux lets programs read it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Cycles of one round: links of the chain times the latency of a multiplication.
pub(crate) const ROUND_CYCLES: u64 = 8 * 3;
