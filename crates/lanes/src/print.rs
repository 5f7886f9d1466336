//! Allocated instructions as GNU assembly, Intel syntax.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::allocate::{
    Allocated, Instruction, MaskRegister, Memory, Operand, Register, ShiftOp, TwoOp,
};
use crate::kernel::Kernel;

/// The registers that a kernel is printed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 256-bit registers, four lanes (AVX-512 VL and IFMA).
    Ymm,
    /// 512-bit registers, eight lanes (AVX-512 F and IFMA).
    Zmm,
}

impl Width {
    /// 64-bit lanes of a register.
    pub fn lanes(self) -> usize {
        match self {
            Width::Ymm => 4,
            Width::Zmm => 8,
        }
    }

    fn bytes(self) -> usize {
        8 * self.lanes()
    }
}

pub(crate) fn print(kernel: Kernel, width: Width, code: &Allocated) -> String {
    let symbol = kernel.symbol(width);
    let arrays = kernel.arrays();
    let printer = Printer {
        width,
        symbol: &symbol,
        slots: arrays.len(),
    };
    let mut out = String::new();
    let names: Vec<_> = arrays
        .iter()
        .map(|array| format!("{}[{}]", array.name, array.len))
        .collect();
    let _ = writeln!(out, "# {symbol}: {}; {}", kernel.formula(), names.join(" "));
    let _ = writeln!(out, "    .p2align 6");
    let _ = writeln!(out, "    .globl {symbol}");
    let _ = writeln!(out, "    .hidden {symbol}");
    let _ = writeln!(out, "    .type {symbol}, @function");
    let _ = writeln!(out, "{symbol}:");
    let _ = writeln!(out, "    .cfi_startproc");
    for instruction in &code.instructions {
        let _ = writeln!(out, "    {}", printer.instruction(instruction));
    }
    let _ = writeln!(out, "    vzeroupper");
    let _ = writeln!(out, "    ret");
    let _ = writeln!(out, "    .cfi_endproc");
    let _ = writeln!(out, "    .size {symbol}, . - {symbol}");
    let constants: BTreeSet<u64> = code.instructions.iter().filter_map(constant).collect();
    if !constants.is_empty() {
        let _ = writeln!(out, "    .section .rodata");
        let _ = writeln!(out, "    .p2align 3");
        for value in constants {
            let _ = writeln!(out, "{}:", printer.label(value));
            let _ = writeln!(out, "    .quad {value:#x}");
        }
        let _ = writeln!(out, "    .text");
    }
    out
}

struct Printer<'a> {
    width: Width,
    symbol: &'a str,
    /// The place of the pointer to the spill slots in the argument list.
    slots: usize,
}

impl Printer<'_> {
    fn instruction(&self, instruction: &Instruction) -> String {
        match *instruction {
            Instruction::Load {
                to,
                from: from @ Memory::Constant(_),
            } => {
                let from = self.address(from);
                format!("vpbroadcastq {}, qword ptr {from}", self.register(to))
            }
            Instruction::Load { to, from } => {
                format!("vmovdqu64 {}, {}", self.register(to), self.memory(from))
            }
            Instruction::Store { to, from } => {
                format!("vmovdqu64 {}, {}", self.memory(to), self.register(from))
            }
            Instruction::Zero { to } => {
                let to = self.register(to);
                format!("vpxorq {to}, {to}, {to}")
            }
            Instruction::Move { to, from } => {
                format!("vmovdqa64 {}, {}", self.register(to), self.register(from))
            }
            Instruction::Two { op, to, a, b } => {
                let mnemonic = match op {
                    TwoOp::Add => "vpaddq",
                    TwoOp::Sub => "vpsubq",
                    TwoOp::And => "vpandq",
                    TwoOp::Or => "vporq",
                };
                let (to, a, b) = (self.register(to), self.register(a), self.operand(b));
                format!("{mnemonic} {to}, {a}, {b}")
            }
            Instruction::Shift { op, to, a, bits } => {
                let mnemonic = match op {
                    ShiftOp::Left => "vpsllq",
                    ShiftOp::Right => "vpsrlq",
                    ShiftOp::RightSigned => "vpsraq",
                };
                format!(
                    "{mnemonic} {}, {}, {bits}",
                    self.register(to),
                    self.operand(a)
                )
            }
            Instruction::Madd { high, acc, a, b } => {
                let mnemonic = if high { "vpmadd52huq" } else { "vpmadd52luq" };
                let (acc, a, b) = (self.register(acc), self.register(a), self.operand(b));
                format!("{mnemonic} {acc}, {a}, {b}")
            }
            Instruction::Eq { mask, a, b } => {
                let (a, b) = (self.register(a), self.operand(b));
                format!("vpcmpeqq {}, {a}, {b}", self.mask(mask))
            }
            Instruction::Select {
                mask,
                to,
                yes: Operand::Register(yes),
            } => {
                let (to, yes) = (self.register(to), self.register(yes));
                format!("vmovdqa64 {to} {{{}}}, {yes}", self.mask(mask))
            }
            Instruction::Select {
                mask,
                to,
                yes: Operand::Memory(yes),
            } => {
                let (to, yes) = (self.register(to), self.memory(yes));
                format!("vmovdqu64 {to} {{{}}}, {yes}", self.mask(mask))
            }
        }
    }

    fn register(&self, register: Register) -> String {
        match self.width {
            Width::Ymm => format!("ymm{}", register.0),
            Width::Zmm => format!("zmm{}", register.0),
        }
    }

    fn mask(&self, mask: MaskRegister) -> String {
        // k0 as a mask means "no mask".
        format!("k{}", mask.0 + 1)
    }

    fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Register(register) => self.register(register),
            Operand::Memory(memory @ Memory::Constant(_)) => {
                format!(
                    "qword ptr {}{{1to{}}}",
                    self.address(memory),
                    self.width.lanes()
                )
            }
            Operand::Memory(memory) => self.memory(memory),
        }
    }

    fn memory(&self, memory: Memory) -> String {
        let size = match self.width {
            Width::Ymm => "ymmword",
            Width::Zmm => "zmmword",
        };
        format!("{size} ptr {}", self.address(memory))
    }

    fn address(&self, memory: Memory) -> String {
        let (base, index) = match memory {
            Memory::Array(array, index) => (ARGUMENTS[array.0], index),
            Memory::Slot(index) => (ARGUMENTS[self.slots], index),
            Memory::Constant(value) => return format!("[rip + {}]", self.label(value)),
        };
        format!("[{base} + {}]", index * self.width.bytes())
    }

    fn label(&self, value: u64) -> String {
        format!(".L{}_{value:x}", self.symbol)
    }
}

fn constant(instruction: &Instruction) -> Option<u64> {
    let memory = match *instruction {
        Instruction::Load { from, .. } => from,
        Instruction::Two {
            b: Operand::Memory(memory),
            ..
        }
        | Instruction::Shift {
            a: Operand::Memory(memory),
            ..
        }
        | Instruction::Madd {
            b: Operand::Memory(memory),
            ..
        }
        | Instruction::Eq {
            b: Operand::Memory(memory),
            ..
        } => memory,
        _ => return None,
    };
    match memory {
        Memory::Constant(value) => Some(value),
        Memory::Array(..) | Memory::Slot(_) => None,
    }
}

/// Integer arguments of the System V calling convention for x86-64, in order.
const ARGUMENTS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
