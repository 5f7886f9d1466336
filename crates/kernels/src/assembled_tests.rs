//! Every assembled kernel against the model, in every lane, on random and on boundary values.

use crate::assembled::Callable;
use crate::machine::Machine;
use widelane_cpu::Token;
use widelane_lanes::nist::Nist;
use widelane_lanes::{ArraySpec, DIGIT_MASK, Definition, Holds, Kernel, MlDsa};

#[test]
fn the_kernels_of_every_target_are_the_model() {
    let means = widelane_emulation::install();
    eprintln!("AVX-IFMA by {means}");
    widelane_cpu::on_every_target!(token => compare(token));
}

fn compare<const L: usize>(token: Token<L>) {
    let mut random = Random(0x5eed);
    // A signal for each product takes long.
    let rounds = match token.target().caveat() {
        Some(_) => ROUNDS / 16,
        None => ROUNDS,
    };
    for kernel in Kernel::all_for(token.target()) {
        let wide = Callable::new(token, kernel);
        let model = Callable::new(Machine::model(), kernel);
        for round in 0..rounds {
            let arrays = inputs(kernel, round, &mut random);
            let (mut found, mut expected) = (arrays.clone(), arrays);
            wide.call_slices(&mut found, &mut vec![[0; L]; wide.slots()]);
            model.call_slices(&mut expected, &mut []);
            assert!(
                found == expected,
                "{} differs from its model in round {round}",
                kernel.name()
            );
        }
    }
}

/// Arrays within the kernel's contract.
fn inputs<const L: usize>(kernel: Kernel, round: usize, random: &mut Random) -> Vec<Vec<[u64; L]>> {
    let specs = kernel.arrays(L);
    let mut inputs: Vec<Vec<[u64; L]>> = specs
        .iter()
        .map(|spec| {
            let vector = |_| std::array::from_fn(|_| random.lane(round, spec.holds));
            (0..spec.len).map(vector).collect()
        })
        .collect();
    match kernel {
        Kernel::Modular(_) => modular(&specs, &mut inputs),
        Kernel::MlDsa(kernel) => mldsa(kernel, &specs, &mut inputs),
        Kernel::ChaCha20Poly1305(_) => {}
        Kernel::Keccak(_) | Kernel::MlKem(_) | Kernel::Curve25519(_) | Kernel::Sha512(_) => {}
        Kernel::Nist(kernel) => nist(kernel, &specs, &mut inputs),
    }
    inputs
}

/// Makes `n` odd and `k0` its own, indices those of entries, the other numbers below `2 n` or, where they have twice as many
/// digits, below `R n`.
fn modular<const L: usize>(specs: &[ArraySpec], inputs: &mut [Vec<[u64; L]>]) {
    let len = |name| specs.iter().find(|spec| spec.name == name).map(|spec| spec.len);
    let entries = len("table").zip(len("out")).map(|(table, out)| (table / out) as u64);
    for (spec, input) in specs.iter().zip(inputs) {
        let top = input.len() - 1;
        match spec.name {
            "index" => {
                let entries = entries.expect("an index is one of a table");
                input[0] = input[0].map(|index| index % entries);
            }
            "n" => {
                input[0] = input[0].map(|digit| digit | 1);
                input[top - 1] = input[top - 1].map(|digit| digit >> 18 | 1 << 34);
                input[top] = input[0].map(|n| {
                    let newton = |x: u64, _| x.wrapping_mul(2u64.wrapping_sub(n.wrapping_mul(x)));
                    (0..5).fold(n, newton).wrapping_neg() & DIGIT_MASK
                });
            }
            "a" | "b" | "c" | "x" => input[top] = input[top].map(|digit| digit >> 17),
            "t" | "sum" => input[top] = input[top].map(|digit| digit >> 18),
            // Room for one more product.
            "columns" => {
                for column in input {
                    *column = column.map(|column| column >> 1);
                }
            }
            _ => {}
        }
    }
}

/// Makes the constants of a transform its own, as each stands beside its quotient.
fn mldsa<const L: usize>(kernel: MlDsa, specs: &[ArraySpec], inputs: &mut [Vec<[u64; L]>]) {
    let constants = match kernel {
        MlDsa::InverseNear => MlDsa::inverse_zetas(),
        _ => MlDsa::zetas(),
    };
    for (spec, input) in specs.iter().zip(inputs) {
        if spec.name == "zetas" {
            let lanes = input.as_flattened_mut();
            lanes.copy_from_slice(&constants[..lanes.len()]);
        }
    }
}

/// Makes numbers small enough: below 2^256 or 2^384.
fn nist<const L: usize>(kernel: Nist, specs: &[ArraySpec], inputs: &mut [Vec<[u64; L]>]) {
    let (digits, excess) = match kernel.name().starts_with("p256") {
        true => (5, 4),
        false => (8, 32),
    };
    for (spec, input) in specs.iter().zip(inputs) {
        if spec.name == "state" {
            // Four numbers, and `zeta` so far from its limits as one turn needs.
            for state in input.chunks_mut(4 * digits + 1) {
                for number in state[2 * digits..4 * digits].chunks_mut(digits) {
                    number[digits - 1] = number[digits - 1].map(|digit| digit >> excess);
                }
                state[4 * digits] = state[4 * digits].map(|zeta| 100 + zeta % 1800);
            }
            continue;
        }
        // In the table that lanes share one digit of all entries stands together.
        let repeated = match (kernel, spec.name) {
            (Nist::AddFixed(curve), "table") => curve.fixed_entries() / L,
            (_, "index") => continue,
            _ => 1,
        };
        for number in input.chunks_mut(digits * repeated) {
            for top in &mut number[(digits - 1) * repeated..] {
                *top = top.map(|digit| digit >> excess);
            }
        }
    }
}

const ROUNDS: usize = 64;

/// A pseudo-random generator (SplitMix64), so that failures repeat.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Value that an array may hold in one lane.
    fn lane(&mut self, round: usize, holds: Holds) -> u64 {
        match holds {
            Holds::Bits(bits) => self.value(round, bits),
            Holds::Words16 { limit } => (0..64).step_by(16).fold(0, |lane, at| {
                let word = self.value(round, 16) % (2 * u64::from(limit) + 1);
                let word = word.wrapping_sub(limit.into()) & 0xffff;
                lane | word << at
            }),
        }
    }

    /// Below 2^`bits`; in three rounds of four mostly zeros and ones.
    fn value(&mut self, round: usize, bits: u32) -> u64 {
        let value = match (round % 4, self.next() % 4) {
            (0, _) => self.next(),
            (_, 0) => 0,
            (_, 1) => self.next() >> (self.next() % 64),
            _ => u64::MAX,
        };
        value & (u64::MAX >> (64 - bits))
    }
}
