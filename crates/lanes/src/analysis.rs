//! Cost of a kernel, computed from its instructions.

use widelane_cpu::Target;

use crate::allocate::{Allocated, Instruction, Memory, Operand};
use crate::trace::ThreeOp;

/// Instruction mix, licence level and port bound of one kernel for one target. Instructions of a loop
/// count as often as they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// 52-bit multiply-adds.
    pub multiply_adds: usize,
    /// Other vector multiplications.
    pub multiplies: usize,
    /// Other vector arithmetic: additions, shifts, logic, compares, permutations, masked moves.
    pub simple: usize,
    /// Reads of memory, those folded into arithmetic included.
    pub loads: usize,
    /// Writes to memory.
    pub stores: usize,
    /// Register moves and zeroings, which rename without an execution port.
    pub moves: usize,
    /// Writes and reads of spill slots among the stores and loads.
    pub spills: usize,
    /// Spill slots, in vectors.
    pub slots: usize,
    /// Vector instructions in all.
    pub instructions: usize,
    /// The licence that the instructions ask for.
    pub licence: Licence,
}

/// The clock class of code, by Intel's schedule for server CPUs ("Crypto Processing with Intel
/// AVX-512 on 3rd Gen Xeon Scalable Processors", 2021).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Licence {
    /// LVL0: up to 256-bit registers without multiplications.
    Level0,
    /// LVL1: 256-bit multiplications, or 512-bit registers without them.
    Level1,
    /// LVL2: 512-bit multiplications.
    Level2,
}

impl std::fmt::Display for Licence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Licence::Level0 => "LVL0",
            Licence::Level1 => "LVL1",
            Licence::Level2 => "LVL2",
        })
    }
}

impl Report {
    pub(crate) fn new(target: Target, code: &Allocated) -> Self {
        let mut report = Self {
            multiply_adds: 0,
            multiplies: 0,
            simple: 0,
            loads: 0,
            stores: 0,
            moves: 0,
            spills: 0,
            slots: code.slots,
            instructions: 0,
            licence: Licence::Level0,
        };
        let mut turns = 1;
        for instruction in &code.instructions {
            match *instruction {
                Instruction::Head { times, .. } => turns = times,
                Instruction::Foot { .. } => turns = 1,
                _ => (0..turns).for_each(|_| report.count(instruction)),
            }
        }
        report.licence = match (target.bits(), report.multiply_adds + report.multiplies > 0) {
            (..=256, false) => Licence::Level0,
            (..=256, true) | (_, false) => Licence::Level1,
            (_, true) => Licence::Level2,
        };
        report
    }

    /// The least cycles on a core that starts two multiplications, two loads and one store in a
    /// cycle, and has separate ports for simple operations (Zen 5).
    pub fn multiply_bound_cycles(&self) -> usize {
        (self.multiply_adds + self.multiplies)
            .div_ceil(2)
            .max(self.loads.div_ceil(2))
            .max(self.stores)
    }

    /// The least cycles on a core where all vector arithmetic shares two ports (Intel's cores with
    /// 512-bit registers).
    pub fn shared_bound_cycles(&self) -> usize {
        let arithmetic = self.multiply_adds + self.multiplies + self.simple;
        arithmetic.div_ceil(2).max(self.loads.div_ceil(2)).max(self.stores)
    }

    fn count(&mut self, instruction: &Instruction) {
        self.instructions += 1;
        match *instruction {
            Instruction::Head { .. } | Instruction::Foot { .. } => {
                unreachable!("the frame of a loop is no vector instruction")
            }
            Instruction::Load { .. } => {}
            Instruction::Store { to, .. } => {
                self.stores += 1;
                self.spills += usize::from(matches!(to, Memory::Slot(_)));
            }
            Instruction::Zero { .. } | Instruction::Move { .. } => self.moves += 1,
            Instruction::Three {
                op: ThreeOp::MaddLo | ThreeOp::MaddHi | ThreeOp::MulLo | ThreeOp::Fma,
                ..
            } => self.multiply_adds += 1,
            Instruction::Two { op, .. } if op.multiplies() => self.multiplies += 1,
            Instruction::Two { .. }
            | Instruction::Shift { .. }
            | Instruction::Double { .. }
            | Instruction::Three { .. }
            | Instruction::Compare { .. }
            | Instruction::Select { .. }
            | Instruction::Blend { .. } => self.simple += 1,
        }
        if let Some(Operand::Memory(memory)) = instruction.operand() {
            self.loads += 1;
            self.spills += usize::from(matches!(memory, Memory::Slot(_)));
        }
    }
}
