//! The exponentiation kernels, and the limit that the CPU's ports set for them.

use crate::operation::{Done, Subject};
use crate::works::why_not;
use widelane_cpu::{Avx512Ifma, Avx512IfmaVl};
use widelane_crypto::Backend;
use widelane_kernels::{Arena, Moduli, Montgomery, PowerSpace, port_limit};

/// The name of the operation that measures the limit.
pub(crate) const PORT_LIMIT: &str = "port-limit";

/// Independent multiply-adds.
pub(crate) fn port_limit(backend: Backend) -> Result<Box<dyn Subject>, String> {
    let run: Box<dyn Fn(u32) -> u64> = match backend {
        Backend::Avx512Ifma => {
            let token = Avx512Ifma::detect().ok_or_else(|| why_not(backend))?;
            Box::new(move |rounds| port_limit::zmm(token, rounds))
        }
        Backend::Avx512Ifma256 => {
            let token = Avx512IfmaVl::detect().ok_or_else(|| why_not(backend))?;
            Box::new(move |rounds| port_limit::ymm(token, rounds))
        }
        Backend::AwsLc => return Err("aws-lc has no vector kernels of ours".to_owned()),
    };
    Ok(Box::new(PortLimit { run }))
}

/// Exponentiations with moduli of `bits` bits in all lanes of a register.
pub(crate) fn power(bits: usize, backend: Backend) -> Result<Box<dyn Subject>, String> {
    Ok(match backend {
        Backend::Avx512Ifma => {
            let token = Avx512Ifma::detect().ok_or_else(|| why_not(backend))?;
            Box::new(Power::new(Montgomery::zmm(token, bits)))
        }
        Backend::Avx512Ifma256 => {
            let token = Avx512IfmaVl::detect().ok_or_else(|| why_not(backend))?;
            Box::new(Power::new(Montgomery::ymm(token, bits)))
        }
        Backend::AwsLc => return Err("aws-lc has no vector kernels of ours".to_owned()),
    })
}

struct PortLimit {
    run: Box<dyn Fn(u32) -> u64>,
}

impl Subject for PortLimit {
    fn run(&mut self, _: usize) -> Result<Done, String> {
        let multiply_adds = (self.run)(ROUNDS);
        Ok(Done {
            operations: multiply_adds,
            multiply_adds,
        })
    }
}

struct Power<const L: usize> {
    kernels: Montgomery<L>,
    multiply_adds: u64,
    memory: Arena<L>,
}

impl<const L: usize> Power<L> {
    fn new(kernels: Montgomery<L>) -> Self {
        let (d, limbs) = (kernels.digits(), kernels.limbs());
        let len =
            kernels.table_len() + kernels.scratch_len() + kernels.windows() + 6 * d + 1 + limbs;
        let mut memory = Arena::new(len);
        // The time does not depend on the values. Any digits within the kernel's bounds will do.
        let mut state = 0x5eed_u64;
        for word in memory.vectors().as_flattened_mut() {
            state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
            *word = state >> 13;
        }
        Self {
            kernels,
            multiply_adds: kernels.power_multiply_adds() as u64,
            memory,
        }
    }
}

impl<const L: usize> Subject for Power<L> {
    fn run(&mut self, _: usize) -> Result<Done, String> {
        let k = &self.kernels;
        let d = k.digits();
        let mut rest = self.memory.vectors();
        let mut take = |len: usize| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
            rest = after;
            part
        };
        let space = PowerSpace {
            table: take(k.table_len()),
            entry: take(d),
            indices: take(k.windows()),
            power: take(d),
        };
        let (scratch, out, base) = (take(k.scratch_len()), take(d), take(d));
        let moduli = Moduli {
            n: take(d + 1),
            one: take(d),
        };
        let exponent = take(k.limbs());
        k.power(out, base, exponent, moduli, space, scratch);
        Ok(Done {
            operations: L as u64,
            multiply_adds: self.multiply_adds,
        })
    }
}

/// Rounds of the loop in one run: about ten microseconds.
const ROUNDS: u32 = 1000;

/// Knuth's linear congruential generator (MMIX).
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;
