//! Computes VPMADD52 on the lanes of registers: integer arithmetic, and the decoding of the instructions.

use iced_x86::{Code, Instruction, OpKind, Register};

/// A half of a product, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Multiply {
    pub(crate) half: Half,
    /// The register that is added to.
    pub(crate) sum: usize,
    /// The first factor.
    pub(crate) a: usize,
    /// The second factor; `None`: it lies in memory.
    pub(crate) b: Option<usize>,
}

/// Half of a product: 52 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Low,
    High,
}

impl Multiply {
    /// `None` for every other instruction.
    pub(crate) fn of(instruction: &Instruction) -> Option<Self> {
        let half = match instruction.code() {
            Code::VEX_Vpmadd52luq_ymm_ymm_ymmm256 => Half::Low,
            Code::VEX_Vpmadd52huq_ymm_ymm_ymmm256 => Half::High,
            _ => return None,
        };
        let register = |operand| {
            let register = instruction.op_register(operand);
            (register >= Register::YMM0 && register <= Register::YMM15).then(|| register.number())
        };
        let b = match instruction.op_kind(2) {
            OpKind::Memory => None,
            _ => Some(register(2)?),
        };
        Some(Self {
            half,
            sum: register(0)?,
            a: register(1)?,
            b,
        })
    }
}

/// `sum` plus a half of `a b`, lane by lane. Of factors only the lowest 52 bits count.
pub(crate) fn multiply_add(half: Half, sum: [u64; 4], a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|lane| {
        let product = u128::from(a[lane] & DIGIT) * u128::from(b[lane] & DIGIT);
        let half = match half {
            Half::Low => product as u64 & DIGIT,
            Half::High => (product >> 52) as u64,
        };
        sum[lane].wrapping_add(half)
    })
}

const DIGIT: u64 = (1 << 52) - 1;

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    #[test]
    fn halves_make_the_product() {
        let (a, b) = ([3, DIGIT, u64::MAX, 1 << 51], [5, DIGIT, 1 << 52, 2]);
        let low = multiply_add(Half::Low, [1, 0, 7, 0], a, b);
        let high = multiply_add(Half::High, [0, 0, u64::MAX, 1], a, b);
        assert_eq!(low, [16, 1, 7, 0]);
        assert_eq!(high, [0, DIGIT - 1, u64::MAX, 2]);
    }

    #[test]
    fn only_the_vex_form_on_four_lanes_is_taken() {
        let of = |bytes: &[u8]| {
            let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
            Multiply::of(&decoder.decode())
        };
        // {vex} vpmadd52luq ymm1, ymm2, ymm3
        let low = Multiply {
            half: Half::Low,
            sum: 1,
            a: 2,
            b: Some(3),
        };
        assert_eq!(of(&[0xc4, 0xe2, 0xed, 0xb4, 0xcb]), Some(low));
        // {vex} vpmadd52huq ymm9, ymm10, [rsi + 32]
        let high = Multiply {
            half: Half::High,
            sum: 9,
            a: 10,
            b: None,
        };
        assert_eq!(of(&[0xc4, 0x62, 0xad, 0xb5, 0x4e, 0x20]), Some(high));
        // On two lanes, with an EVEX prefix, and another instruction.
        for other in [
            &[0xc4, 0xe2, 0xe9, 0xb4, 0xcb][..],
            &[0x62, 0xf2, 0xed, 0x28, 0xb4, 0xcb],
            &[0xc3],
        ] {
            assert_eq!(of(other), None);
        }
    }
}
