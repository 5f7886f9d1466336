//! The most multiply-adds that a core can do: a loop of them that depend on nothing.
//!
//! `widelane speed` compares the rate of a kernel with this one, measured on the same core in the
//! same minute, because clocks change.
#![allow(unsafe_code)]

use widelane_cpu::{Product, Registers, Token};

/// Runs `rounds` of the loop (0 counts as 1) with the multiply-adds of a target, and returns how many
/// that was.
pub fn run<const L: usize>(token: Token<L>, rounds: u32) -> u64 {
    let rounds = u64::from(rounds.max(1));
    let target = token.target();
    match (target.product(), target.registers(), target.bits()) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves VPMADD52 with VEX prefixes on ymm; the count is above zero, and only registers
        // change.
        (Product::Vpmadd52, Registers::Avx2, _) => unsafe { widelane_port_limit_vex(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves VPMADD52 with EVEX prefixes on ymm; the count is above zero, and only registers
        // change.
        (Product::Vpmadd52, _, 256) => unsafe { widelane_port_limit_ymm(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves VPMADD52 on zmm (512 bits remain); the count is above zero, and only registers
        // change.
        (Product::Vpmadd52, ..) => unsafe { widelane_port_limit_zmm(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves FMA on ymm; the count is above zero, and only registers change.
        (Product::Fma, _, 256) => unsafe { widelane_port_limit_fma_ymm(rounds) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves FMA on zmm (512 bits remain); the count is above zero, and only registers change.
        (Product::Fma, ..) => unsafe { widelane_port_limit_fma_zmm(rounds) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => {}
    }
    rounds * MULTIPLY_ADDS
}

/// Multiply-adds in a round: four on each of 16 accumulators, which is twice what a CPU with two
/// ports and a latency of four cycles needs to keep both busy. With 16 registers, eight on each of eight.
const MULTIPLY_ADDS: u64 = 64;

// Each takes a count above zero, touches no memory, and changes only its argument, rax, flags and vector registers,
// which this calling convention lets it.
#[cfg(target_arch = "x86_64")]
unsafe extern "sysv64" {
    fn widelane_port_limit_zmm(rounds: u64);
    fn widelane_port_limit_ymm(rounds: u64);
    fn widelane_port_limit_vex(rounds: u64);
    fn widelane_port_limit_fma_ymm(rounds: u64);
    fn widelane_port_limit_fma_zmm(rounds: u64);
}

/// A function that runs a loop as often as its argument says.
#[cfg(target_arch = "x86_64")]
macro_rules! function {
    ($symbol:literal, [$($before:expr),* $(,)?], [$($round:expr),* $(,)?]) => {
        core::arch::global_asm!(
            "    .text",
            "    .p2align 6",
            concat!("    .globl ", $symbol),
            concat!("    .hidden ", $symbol),
            concat!("    .type ", $symbol, ", @function"),
            concat!($symbol, ":"),
            "    .cfi_startproc",
            $($before,)*
            "    .p2align 6",
            "2:",
            $($round,)*
            "    dec rdi",
            "    jnz 2b",
            "    vzeroupper",
            "    ret",
            "    .cfi_endproc",
            concat!("    .size ", $symbol, ", . - ", $symbol),
        );
    };
}

/// An instruction on three registers.
#[cfg(target_arch = "x86_64")]
macro_rules! three {
    ($mnemonic:literal $register:literal: $to:literal, $a:literal, $b:literal) => {
        concat!(
            "    ", $mnemonic, " ", $register, $to, ", ", $register, $a, ", ", $register, $b
        )
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! port_limit {
    ($symbol:literal, $madd:literal $register:literal: $a:literal, $b:literal, $times:literal of $accumulators:literal) => {
        function!(
            $symbol,
            [
                // Multiplicands with many ones: a multiplication of zeros draws less power, and a
                // core may clock higher for it.
                "    mov rax, 0x000b6db6db6db6db",
                "    vmovq xmm0, rax",
                concat!("    vpbroadcastq ", $register, $a, ", xmm0"),
                "    mov rax, 0x000d5ab56ad5ab57",
                "    vmovq xmm0, rax",
                concat!("    vpbroadcastq ", $register, $b, ", xmm0"),
                concat!("    .irp i, ", $accumulators),
                "    vpxor xmm\\i, xmm\\i, xmm\\i",
                "    .endr",
            ],
            [
                concat!("    .rept ", $times),
                concat!("    .irp i, ", $accumulators),
                three!($madd $register: "\\i", $a, $b),
                "    .endr",
                "    .endr",
            ]
        );
    };
}

#[cfg(target_arch = "x86_64")]
port_limit!(
    "widelane_port_limit_zmm",
    "vpmadd52luq" "zmm": "16", "17", "4" of "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
);
#[cfg(target_arch = "x86_64")]
port_limit!(
    "widelane_port_limit_ymm",
    "vpmadd52luq" "ymm": "16", "17", "4" of "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15"
);
#[cfg(target_arch = "x86_64")]
port_limit!(
    "widelane_port_limit_vex",
    "{{vex}} vpmadd52luq" "ymm": "8", "9", "8" of "0,1,2,3,4,5,6,7"
);

#[cfg(target_arch = "x86_64")]
macro_rules! port_limit_fma {
    ($symbol:literal, $register:literal) => {
        function!(
            $symbol,
            [
                // 2^104, 2^104 + 2^52, and two factors with many ones.
                "    mov rax, 0x4670000000000000",
                "    vmovq xmm15, rax",
                "    inc rax",
                "    vmovq xmm14, rax",
                "    mov rax, 0x4326db6db6db6db6",
                "    vmovq xmm13, rax",
                "    mov rax, 0x432ab56ad5ab56ad",
                "    vmovq xmm12, rax",
                "    .irp i, 12,13,14,15",
                concat!("    vpbroadcastq ", $register, "\\i, xmm\\i"),
                "    .endr",
                "    .irp i, 0,1,2,3",
                "    vpxor xmm\\i, xmm\\i, xmm\\i",
                "    .endr",
            ],
            [
                "    .rept 8",
                "    .irp i, 4,6,8,10",
                concat!("    vmovapd ", $register, "\\i, ", $register, "15"),
                three!("vfmadd231pd" $register: "\\i", "13", "12"),
                "    .endr",
                three!("vsubpd" $register: "5", "14", "4"),
                three!("vsubpd" $register: "7", "14", "6"),
                three!("vsubpd" $register: "9", "14", "8"),
                three!("vsubpd" $register: "11", "14", "10"),
                "    .irp i, 5,7,9,11",
                three!("vfmadd231pd" $register: "\\i", "13", "12"),
                "    .endr",
                three!("vpaddq" $register: "0", "0", "4"),
                three!("vpaddq" $register: "1", "1", "5"),
                three!("vpaddq" $register: "2", "2", "6"),
                three!("vpaddq" $register: "3", "3", "7"),
                three!("vpaddq" $register: "0", "0", "8"),
                three!("vpaddq" $register: "1", "1", "9"),
                three!("vpaddq" $register: "2", "2", "10"),
                three!("vpaddq" $register: "3", "3", "11"),
                "    .endr",
            ]
        );
    };
}

// Both halves of 32 products, each by two multiply-adds and a subtraction, and added to an accumulator.
// The result is not looked at, so rounding stays as the caller has it.
#[cfg(target_arch = "x86_64")]
port_limit_fma!("widelane_port_limit_fma_ymm", "ymm");
#[cfg(target_arch = "x86_64")]
port_limit_fma!("widelane_port_limit_fma_zmm", "zmm");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_of_whole_rounds() {
        widelane_cpu::on_every_target!(token => {
            assert_eq!(run(token, 0), MULTIPLY_ADDS);
            assert_eq!(run(token, 3), 3 * MULTIPLY_ADDS);
        });
    }
}
