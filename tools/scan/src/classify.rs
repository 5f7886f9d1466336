//! The class of one instruction.

use iced_x86::{Instruction, Mnemonic};
use widelane_cpu::licence::Class;

/// The class of an instruction: its widest vector register, and whether it multiplies or works on
/// floating-point numbers.
pub(crate) fn class(instruction: &Instruction) -> Class {
    let operands = (0..instruction.op_count()).map(|i| instruction.op_register(i));
    let vectors = operands.filter(|register| register.is_vector_register());
    match vectors.map(|register| register.size()).max().unwrap_or(0) {
        0 => Class::Scalar,
        1..=16 => Class::Vector128,
        17..=32 if is_heavy(instruction.mnemonic()) => Class::Heavy256,
        17..=32 => Class::Light256,
        _ if is_heavy(instruction.mnemonic()) => Class::Heavy512,
        _ => Class::Light512,
    }
}

/// Returns whether instructions of this name count as heavy: multiplications of integers, and arithmetic on
/// floating-point numbers (Intel, Optimization Reference Manual, "Skylake Server Power Management").
fn is_heavy(mnemonic: Mnemonic) -> bool {
    let name = format!("{mnemonic:?}").to_lowercase();
    let floating = ["ps", "pd", "ph", "ss", "sd", "sh", "bf16"]
        .iter()
        .any(|suffix| name.ends_with(suffix));
    let arithmetic = FLOATING.split(' ').any(|stem| name.starts_with(stem));
    MULTIPLYING.iter().any(|stem| name.starts_with(stem)) || (floating && arithmetic)
}

/// Integer multiplications and multiply-adds, by the beginning of their names.
const MULTIPLYING: [&str; 8] = [
    "vpmul", "vpmadd", "vpdpbus", "vpdpwss", "vpdpbss", "vpdpbuu", "vpdpwus", "vpdpwuu",
];
/// Floating-point arithmetic that the multipliers do.
const FLOATING: &str = "vadd vsub vmul vdiv vfm vfnm vsqrt vdp vrcp vrsqrt vscalef vreduce vrndscale vfc";

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn class_of(code: &[u8]) -> Class {
        let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid());
        class(&instruction)
    }

    #[test]
    fn width_and_weight_make_the_class() {
        // add rax, rbx
        assert_eq!(class_of(&[0x48, 0x01, 0xd8]), Class::Scalar);
        // paddq xmm0, xmm1
        assert_eq!(class_of(&[0x66, 0x0f, 0xd4, 0xc1]), Class::Vector128);
        // vpaddq xmm0, xmm1, xmm2: clears the upper part of its register, which is no work.
        assert_eq!(class_of(&[0xc5, 0xf1, 0xd4, 0xc2]), Class::Vector128);
        // vpaddq ymm0, ymm1, ymm2
        assert_eq!(class_of(&[0xc5, 0xf5, 0xd4, 0xc2]), Class::Light256);
        // vpmuludq ymm0, ymm1, ymm2
        assert_eq!(class_of(&[0xc5, 0xf5, 0xf4, 0xc2]), Class::Heavy256);
        // vpaddq zmm0, zmm1, zmm2
        assert_eq!(class_of(&[0x62, 0xf1, 0xf5, 0x48, 0xd4, 0xc2]), Class::Light512);
        // vpmadd52luq zmm0, zmm1, zmm2
        assert_eq!(class_of(&[0x62, 0xf2, 0xf5, 0x48, 0xb4, 0xc2]), Class::Heavy512);
        // vaesenc zmm0, zmm1, zmm2: light by Intel's schedule
        assert_eq!(class_of(&[0x62, 0xf2, 0x75, 0x48, 0xdc, 0xc2]), Class::Light512);
        // vfmadd231pd ymm0, ymm1, ymm2
        assert_eq!(class_of(&[0xc4, 0xe2, 0xf5, 0xb8, 0xc2]), Class::Heavy256);
        // vmovups ymm0, [rdi]: moves are light whatever their name
        assert_eq!(class_of(&[0xc5, 0xfc, 0x10, 0x07]), Class::Light256);
        // vzeroupper
        assert_eq!(class_of(&[0xc5, 0xf8, 0x77]), Class::Scalar);
    }
}
