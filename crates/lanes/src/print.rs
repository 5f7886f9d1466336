//! Allocated instructions as GNU assembly, Intel syntax.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use widelane_cpu::{Registers, Target};

use crate::allocate::{Allocated, Instruction, MaskRegister, Memory, Operand, Register};
use crate::trace::{CompareOp, ShiftOp, ThreeOp, TwoOp};

/// The function `symbol` with `code`, for a kernel of `arrays` arrays.
pub(crate) fn print(symbol: &str, comment: &str, arrays: usize, target: Target, code: &Allocated) -> String {
    let printer = Printer {
        target,
        symbol,
        slots: arrays,
    };
    let mut out = String::new();
    let _ = writeln!(out, "# {symbol}: {comment}");
    let _ = writeln!(out, "    .p2align 6");
    let _ = writeln!(out, "    .globl {symbol}");
    let _ = writeln!(out, "    .hidden {symbol}");
    let _ = writeln!(out, "    .type {symbol}, @function");
    let _ = writeln!(out, "{symbol}:");
    let _ = writeln!(out, "    .cfi_startproc");
    let rounds = code.instructions.iter().any(is_fma);
    if rounds {
        // The caller's rounding, and its flags of exceptions, come back at the end. The red zone below the
        // stack pointer belongs to this function.
        let _ = writeln!(out, "    stmxcsr dword ptr [rsp - 4]");
        let _ = writeln!(out, "    mov dword ptr [rsp - 8], {TOWARDS_ZERO:#x}");
        let _ = writeln!(out, "    ldmxcsr dword ptr [rsp - 8]");
    }
    for instruction in &code.instructions {
        let _ = writeln!(out, "    {}", printer.instruction(instruction));
    }
    if rounds {
        let _ = writeln!(out, "    ldmxcsr dword ptr [rsp - 4]");
    }
    let _ = writeln!(out, "    vzeroupper");
    let _ = writeln!(out, "    ret");
    let _ = writeln!(out, "    .cfi_endproc");
    let _ = writeln!(out, "    .size {symbol}, . - {symbol}");
    let constants: BTreeSet<_> = code.instructions.iter().filter_map(constant).collect();
    if !constants.is_empty() {
        let _ = writeln!(out, "    .section .rodata");
        let _ = writeln!(out, "    .p2align 6");
        // Vectors first: each is as large as what the section is aligned to.
        let (vectors, single): (Vec<_>, Vec<_>) = constants.iter().partition(|values| values.len() > 1);
        for values in vectors.into_iter().chain(single) {
            let _ = writeln!(out, "{}:", printer.label(values));
            // A whole vector where instructions cannot broadcast it themselves.
            let copies = match (values.len(), target.registers()) {
                (1, Registers::Avx2) => target.lanes(),
                _ => 1,
            };
            for value in (0..copies).flat_map(|_| values) {
                let _ = writeln!(out, "    .quad {value:#x}");
            }
        }
        let _ = writeln!(out, "    .text");
    }
    out
}

struct Printer<'a> {
    target: Target,
    symbol: &'a str,
    /// The place of the pointer to the spill slots in the argument list.
    slots: usize,
}

impl Printer<'_> {
    fn instruction(&self, instruction: &Instruction) -> String {
        match *instruction {
            Instruction::Head { number, times, stride } => {
                let start = match stride {
                    0 => String::new(),
                    _ => format!("mov {MOVING}, {}\n    ", ARGUMENTS[self.slots]),
                };
                format!("{start}mov eax, {times}\n{}:", self.head(number))
            }
            Instruction::Foot { number, stride } => {
                let step = match stride {
                    0 => String::new(),
                    _ => format!("add {MOVING}, {}\n    ", stride * self.target.bytes()),
                };
                format!("{step}dec eax\n    jne {}", self.head(number))
            }
            Instruction::Load {
                to,
                from: from @ (Memory::Constant(_) | Memory::Word(..)),
            } => {
                let from = self.address(from);
                format!("vpbroadcastq {}, qword ptr {from}", self.register(to))
            }
            Instruction::Load { to, from } => {
                let mnemonic = self.by_prefix("vmovdqu", "vmovdqu64");
                format!("{mnemonic} {}, {}", self.register(to), self.memory(from))
            }
            Instruction::Store { to, from } => {
                let mnemonic = self.by_prefix("vmovdqu", "vmovdqu64");
                format!("{mnemonic} {}, {}", self.memory(to), self.register(from))
            }
            Instruction::Zero { to } => {
                let (mnemonic, to) = (self.by_prefix("vpxor", "vpxorq"), self.register(to));
                format!("{mnemonic} {to}, {to}, {to}")
            }
            Instruction::Move { to, from } => {
                let mnemonic = self.by_prefix("vmovdqa", "vmovdqa64");
                format!("{mnemonic} {}, {}", self.register(to), self.register(from))
            }
            Instruction::Two { op, to, a, b } => {
                let mnemonic = match op {
                    TwoOp::Add => "vpaddq",
                    TwoOp::Sub => "vpsubq",
                    TwoOp::And => self.by_prefix("vpand", "vpandq"),
                    TwoOp::Or => self.by_prefix("vpor", "vporq"),
                    TwoOp::Xor => self.by_prefix("vpxor", "vpxorq"),
                    TwoOp::Mul32 => "vpmuludq",
                    TwoOp::Add32 => "vpaddd",
                    TwoOp::Sub32 => "vpsubd",
                    TwoOp::Add16 => "vpaddw",
                    TwoOp::Sub16 => "vpsubw",
                    TwoOp::MulLo16 => "vpmullw",
                    TwoOp::MulHi16 => "vpmulhw",
                    TwoOp::UnpackLow32 => "vpunpckldq",
                    TwoOp::UnpackHigh32 => "vpunpckhdq",
                    TwoOp::UnpackLow64 => "vpunpcklqdq",
                    TwoOp::UnpackHigh64 => "vpunpckhqdq",
                    TwoOp::AndNot => "vpandn",
                    TwoOp::Eq => "vpcmpeqq",
                    TwoOp::Permute32 => "vpermd",
                    TwoOp::SubDouble => "vsubpd",
                };
                let (to, a, b) = (self.register(to), self.register(a), self.operand(b));
                format!("{mnemonic} {to}, {a}, {b}")
            }
            Instruction::Double { to, a } => {
                format!("vcvtuqq2pd {}, {}", self.register(to), self.operand(a))
            }
            Instruction::Shift { op, to, a, bits } => {
                let mnemonic = match op {
                    ShiftOp::Left => "vpsllq",
                    ShiftOp::Right => "vpsrlq",
                    ShiftOp::RightSigned => "vpsraq",
                    ShiftOp::Rotate => "vprolq",
                    ShiftOp::Rotate32 => "vprold",
                    ShiftOp::Right32 => "vpsrld",
                    ShiftOp::Left16 => "vpsllw",
                    ShiftOp::Right16 => "vpsrlw",
                    ShiftOp::RightSigned16 => "vpsraw",
                    ShiftOp::Left32 => "vpslld",
                };
                format!("{mnemonic} {}, {}, {bits}", self.register(to), self.operand(a))
            }
            Instruction::Three { op, acc, a, b } => {
                let (acc, a, b) = (self.register(acc), self.register(a), self.operand(b));
                match op {
                    ThreeOp::MaddLo | ThreeOp::MulLo => {
                        let mnemonic = self.by_prefix("{vex} vpmadd52luq", "vpmadd52luq");
                        format!("{mnemonic} {acc}, {a}, {b}")
                    }
                    ThreeOp::MaddHi => {
                        let mnemonic = self.by_prefix("{vex} vpmadd52huq", "vpmadd52huq");
                        format!("{mnemonic} {acc}, {a}, {b}")
                    }
                    ThreeOp::Pick2 => format!("vpermt2q {acc}, {a}, {b}"),
                    ThreeOp::Ternary(table) => format!("vpternlogq {acc}, {a}, {b}, {table:#x}"),
                    ThreeOp::Fma => format!("vfmadd231pd {acc}, {a}, {b}"),
                }
            }
            Instruction::Blend { to, no, yes, mask } => {
                let [to, no, mask] = [to, no, mask].map(|register| self.register(register));
                format!("vblendvpd {to}, {no}, {}, {mask}", self.operand(yes))
            }
            Instruction::Compare { op, mask, a, b } => {
                let mnemonic = match op {
                    CompareOp::Eq => "vpcmpeqq",
                    CompareOp::Test => "vptestmq",
                };
                let (a, b) = (self.register(a), self.operand(b));
                format!("{mnemonic} {}, {a}, {b}", self.mask(mask))
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
                yes: Operand::Memory(yes @ (Memory::Constant(_) | Memory::Word(..))),
            } => {
                let (to, yes) = (self.register(to), self.address(yes));
                let mask = self.mask(mask);
                format!("vpbroadcastq {to} {{{mask}}}, qword ptr {yes}")
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

    /// Mnemonic of an instruction that has another one with an EVEX prefix, or the prefix that assemblers need.
    fn by_prefix(&self, vex: &'static str, evex: &'static str) -> &'static str {
        match self.target.registers() {
            Registers::Avx2 => vex,
            Registers::Avx512 => evex,
        }
    }

    fn head(&self, number: usize) -> String {
        format!(".L{}_loop{number}", self.symbol)
    }

    fn register(&self, register: Register) -> String {
        format!("{}{}", self.target.register(), register.0)
    }

    fn mask(&self, mask: MaskRegister) -> String {
        // k0 as a mask means "no mask".
        format!("k{}", mask.0 + 1)
    }

    fn operand(&self, operand: Operand) -> String {
        match operand {
            Operand::Register(register) => self.register(register),
            Operand::Memory(memory @ (Memory::Constant(_) | Memory::Word(..)))
                if self.target.registers() == Registers::Avx512 =>
            {
                format!("qword ptr {}{{1to{}}}", self.address(memory), self.target.lanes())
            }
            Operand::Memory(memory) => self.memory(memory),
        }
    }

    fn memory(&self, memory: Memory) -> String {
        format!("{}word ptr {}", self.target.register(), self.address(memory))
    }

    fn address(&self, memory: Memory) -> String {
        let (base, index) = match memory {
            Memory::Array(array, index) => (ARGUMENTS[array.0], index),
            Memory::Word(array, index) => {
                return format!("[{} + {}]", ARGUMENTS[array.0], index * 8);
            }
            Memory::Slot(index) => (ARGUMENTS[self.slots], index),
            Memory::Moving(index) => (MOVING, index),
            Memory::Constant(_) | Memory::Vector(_) => {
                let values = constants_of(memory);
                return format!("[rip + {}]", self.label(&values));
            }
        };
        format!("[{base} + {}]", index * self.target.bytes())
    }

    fn label(&self, values: &[u64]) -> String {
        let mut label = format!(".L{}", self.symbol);
        for value in values {
            let _ = write!(label, "_{value:x}");
        }
        label
    }
}

/// Returns whether the instruction rounds.
fn is_fma(instruction: &Instruction) -> bool {
    matches!(instruction, Instruction::Three { op: ThreeOp::Fma, .. })
}

/// MXCSR with all exceptions masked, rounding towards zero, and subnormal numbers as they are. With the flags
/// of exceptions set, too, each write would take 75 cycles more where the caller has them clear (Xeon, model 207).
const TOWARDS_ZERO: u32 = 0x7f80;

/// The constants that an instruction reads from memory.
fn constant(instruction: &Instruction) -> Option<Vec<u64>> {
    match instruction.operand() {
        Some(Operand::Memory(memory)) => Some(constants_of(memory)),
        _ => None,
    }
    .filter(|values| !values.is_empty())
}

fn constants_of(memory: Memory) -> Vec<u64> {
    match memory {
        Memory::Constant(value) => vec![value],
        Memory::Vector(values) => values.to_vec(),
        Memory::Array(..) | Memory::Word(..) | Memory::Slot(_) | Memory::Moving(_) => Vec::new(),
    }
}

/// Register with the address of scratch memory in a turn of a loop: the callee may change it.
const MOVING: &str = "r10";
/// Integer arguments of the System V calling convention for x86-64, in order.
const ARGUMENTS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
