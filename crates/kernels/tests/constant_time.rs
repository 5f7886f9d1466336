//! Looks at the kernels' machine code, as it was linked, for anything whose time depends on data.
//!
//! That the source is constant time follows from its form (no operation of a machine branches on a
//! lane or addresses by one); this checks that what arrives in the program still is. The program is
//! this test itself, or the one that `WIDELANE_CONSTANT_TIME_BINARY` names, relative to the
//! directory of the workspace, for example `target/release/widelane`.
//!
//! The rules, for every function whose name begins with `widelane_` and ends like those of a target:
//!
//! * Every instruction is in a list: vector loads, stores, additions, logic, shifts and rotations
//!   by constants, multiplications, permutations of registers, compares into masks, masked moves
//!   between registers or from memory, and arithmetic on pointers and counters with constants.
//!   Their time depends on no operand (Intel, "Data Operand Independent Timing Instructions").
//! * Nothing moves from vector or mask registers, or from memory, to general registers, and no
//!   vector instruction of the list writes flags: general registers and flags are public.
//! * Addresses are an argument, perhaps moved by constants, plus a constant; or constants relative
//!   to the instruction.
//! * The one kind of branch is back to the head of a loop while a counter, set to a constant and
//!   decreased by constants, is not zero. The function ends with its only return.
//! * Stores are not masked.
//! * Code for AVX2 and AVX-IFMA has no EVEX prefix.
//!
//! A program that is named must not have any kernel in portable Rust: those are for tests, they are
//! larger than the machine code of all kernels, and nothing looks at what compilers make of them.
#![cfg(target_arch = "x86_64")]

use iced_x86::{
    Code, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, RflagsBits,
};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::collections::BTreeSet;
use std::path::Path;
use widelane_cpu::{Registers, Token};
use widelane_kernels::Montgomery;
use widelane_lanes::{Definition, Kernel, Target};

#[test]
fn the_kernels_in_the_program_are_constant_time() {
    // Keeps the linker from dropping what nothing here calls.
    std::hint::black_box(Montgomery::<8>::new as fn(Token<8>, usize) -> Montgomery<8>);
    let named = std::env::var_os(PROGRAM_VARIABLE);
    let program = match &named {
        Some(path) => Path::new(WORKSPACE).join(path),
        None => std::env::current_exe().unwrap(),
    };
    let data = std::fs::read(&program).unwrap_or_else(|error| panic!("cannot read {}: {error}", program.display()));
    if named.is_some() {
        let portable = portable(&data).unwrap();
        assert!(
            portable.is_empty(),
            "{} has kernels in portable Rust, which are for tests: does a dependency turn on the \
             feature `model` of widelane-kernels? {portable:#?}",
            program.display()
        );
    }
    match check_program(&data, &expected()) {
        Ok(checked) => eprintln!(
            "{}: {} kernels, {} instructions, {} bytes",
            program.display(),
            checked.kernels,
            checked.instructions,
            checked.bytes
        ),
        Err(fault) => panic!("{}: {fault}", program.display()),
    }
}

/// The symbols that a program with the kernels must have.
fn expected() -> BTreeSet<String> {
    let of = |target: Target| {
        Kernel::all_for(target)
            .into_iter()
            .map(move |kernel| kernel.symbol(target))
    };
    Target::ALL.into_iter().flat_map(of).collect()
}

/// Counts of what the test examined.
#[derive(Debug, Default, PartialEq, Eq)]
struct Checked {
    kernels: usize,
    instructions: usize,
    bytes: usize,
}

/// Checks every kernel of an ELF file, of which there must be the expected ones, each as long as
/// its symbol says.
fn check_program(data: &[u8], expected: &BTreeSet<String>) -> Result<Checked, String> {
    let file = object::File::parse(data).map_err(|error| format!("not an object: {error}"))?;
    // Addresses at which the symbols of each section begin.
    let mut starts = BTreeSet::new();
    let mut kernels = Vec::new();
    for symbol in file.symbols() {
        let (Ok(name), Some(section)) = (symbol.name(), symbol.section_index()) else {
            continue;
        };
        starts.insert((section.0, symbol.address()));
        if is_kernel(name) {
            kernels.push((name.to_owned(), section, symbol));
        }
    }
    if kernels.is_empty() {
        return Err("no kernel was found; is the program stripped?".to_owned());
    }
    let found: BTreeSet<_> = kernels.iter().map(|(name, ..)| name.clone()).collect();
    let missing: Vec<_> = expected.difference(&found).cloned().collect();
    if !missing.is_empty() {
        return Err(format!("not found: {}", missing.join(", ")));
    }
    let mut checked = Checked::default();
    for (name, index, symbol) in kernels {
        let fault = |what: String| format!("{name}: {what}");
        let (address, size) = (symbol.address(), symbol.size());
        if symbol.kind() != SymbolKind::Text || size == 0 {
            return Err(fault("is no function with a size".to_owned()));
        }
        let section = file.section_by_index(index).map_err(|error| fault(error.to_string()))?;
        let bytes = section
            .data_range(address, size)
            .map_err(|error| fault(error.to_string()))?
            .ok_or_else(|| fault("reaches beyond its section".to_owned()))?;
        checked.instructions += check_function(bytes, address).map_err(fault)?;
        if target_of(&name).is_some_and(|target| target.registers() == Registers::Avx2) {
            check_encoding(bytes, address).map_err(fault)?;
        }
        // The bytes behind `end` belong to another symbol, or only fill the gap.
        let end = address + size;
        let next = match starts.range((index.0, end)..).next() {
            Some(&(section, next)) if section == index.0 => next,
            _ => section.address() + section.size(),
        };
        let gap = section.data_range(end, next - end).ok().flatten();
        if !gap.is_some_and(|gap| is_padding(gap, end)) {
            return Err(fault(format!("is followed by code without a symbol at {end:#x}")));
        }
        checked.kernels += 1;
        checked.bytes += bytes.len();
    }
    Ok(checked)
}

/// The functions in an ELF file that run kernels in portable Rust.
fn portable(data: &[u8]) -> Result<Vec<String>, String> {
    let file = object::File::parse(data).map_err(|error| format!("not an object: {error}"))?;
    let defined = file.symbols().filter(|symbol| symbol.is_definition());
    let names = defined.filter_map(|symbol| symbol.name().ok());
    let is_portable = |name: &&str| PORTABLE.iter().any(|part| name.contains(part));
    Ok(names.filter(is_portable).map(str::to_owned).collect())
}

fn is_kernel(name: &str) -> bool {
    target_of(name).is_some()
}

/// The target of the kernel with this symbol.
fn target_of(name: &str) -> Option<Target> {
    let name = name.strip_prefix("widelane_")?;
    let of = |target: &Target| {
        name.strip_suffix(target.symbols())
            .is_some_and(|rest| rest.ends_with('_'))
    };
    Target::ALL.into_iter().find(of)
}

/// Checks that a function for AVX2 has nothing that needs AVX-512: an assembler may choose another form of an
/// instruction, and a CPU that has both runs it.
fn check_encoding(bytes: &[u8], address: u64) -> Result<(), String> {
    let decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut code = decoder.into_iter();
    match code.find(|instruction| instruction.code().encoding() == EncodingKind::EVEX) {
        Some(evex) => Err(format!("`{evex}` at {:#x} has an EVEX prefix", evex.ip())),
        None => Ok(()),
    }
}

/// Returns whether a gap holds only what assemblers and linkers align functions with.
fn is_padding(gap: &[u8], address: u64) -> bool {
    let nops = || {
        let mut decoder = Decoder::with_ip(64, gap, address, DecoderOptions::NONE);
        decoder.iter().all(|i| i.mnemonic() == Mnemonic::Nop)
    };
    gap.len() < PAGE && (gap.iter().all(|&byte| byte == 0 || byte == 0xcc) || nops())
}

/// Checks one function and returns the number of its instructions, or the first fault.
fn check_function(bytes: &[u8], address: u64) -> Result<usize, String> {
    let decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let code: Vec<Instruction> = decoder.into_iter().collect();
    let mut checker = Checker {
        starts: code.iter().map(Instruction::ip).collect(),
        public: ARGUMENTS.into_iter().collect(),
        counters: counters(&code),
        flags: None,
        rounding: Rounding::Callers,
        info: InstructionInfoFactory::new(),
    };
    for (at, instruction) in code.iter().enumerate() {
        let last = at + 1 == code.len();
        checker
            .check(instruction, last)
            .map_err(|what| format!("`{instruction}` at {:#x} {what}", instruction.ip()))?;
    }
    match code.last() {
        Some(last) if last.code() == Code::Retnq => Ok(code.len()),
        _ => Err("does not end with a return".to_owned()),
    }
}

/// Registers that are set to constants, decreased by constants, and written in no other way.
fn counters(code: &[Instruction]) -> BTreeSet<Register> {
    let (mut counters, mut others) = (BTreeSet::new(), BTreeSet::new());
    for instruction in code {
        let register = instruction.op0_register().full_register();
        if instruction.op0_kind() != OpKind::Register || !register.is_gpr64() {
            continue;
        }
        match instruction.mnemonic() {
            Mnemonic::Mov if is_immediate(instruction, 1) => counters.insert(register),
            Mnemonic::Sub if is_immediate(instruction, 1) => continue,
            Mnemonic::Dec => continue,
            _ => others.insert(register),
        };
    }
    &counters - &others
}

struct Checker {
    /// Addresses of instructions.
    starts: BTreeSet<u64>,
    /// General registers that hold arguments and constants; the others must not be read.
    public: BTreeSet<Register>,
    counters: BTreeSet<Register>,
    /// The register by whose decrease the flags were last written.
    flags: Option<Register>,
    rounding: Rounding,
    info: InstructionInfoFactory,
}

/// Progress of a function in setting its own rounding mode, or in restoring the caller's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Callers,
    Saved,
    Ready,
    TowardsZero,
}

impl Checker {
    fn check(&mut self, instruction: &Instruction, last: bool) -> Result<(), String> {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Return if last && self.rounding == Rounding::Callers => return Ok(()),
            FlowControl::Return if last => return Err("keeps a rounding of its own".to_owned()),
            FlowControl::ConditionalBranch => return self.branch(instruction),
            _ => return Err("leaves the straight line".to_owned()),
        }
        if let Some(rounding) = self.rounding(instruction) {
            self.rounding = rounding;
            return Ok(());
        }
        if is_vector(instruction) {
            vector(instruction)?;
            let rounds = matches!(instruction.mnemonic(), Mnemonic::Vfmadd231pd | Mnemonic::Vsubpd);
            if rounds && self.rounding != Rounding::TowardsZero {
                return Err("rounds as the caller has it".to_owned());
            }
        } else {
            self.scalar(instruction)?;
        }
        self.registers(instruction)
    }

    /// The next step to a rounding of its own or back. MXCSR is saved and set through the red zone, where
    /// nothing secret lies.
    fn rounding(&self, instruction: &Instruction) -> Option<Rounding> {
        let at = (instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None)
            .then_some(instruction.memory_displacement64() as i64)?;
        match (self.rounding, instruction.mnemonic(), at) {
            (Rounding::Callers, Mnemonic::Stmxcsr, -4) => Some(Rounding::Saved),
            (Rounding::Saved, Mnemonic::Mov, -8)
                if instruction.op0_kind() == OpKind::Memory
                    && instruction.op1_kind() == OpKind::Immediate32
                    && instruction.immediate32() == TOWARDS_ZERO =>
            {
                Some(Rounding::Ready)
            }
            (Rounding::Ready, Mnemonic::Ldmxcsr, -8) => Some(Rounding::TowardsZero),
            (Rounding::TowardsZero, Mnemonic::Ldmxcsr, -4) => Some(Rounding::Callers),
            _ => None,
        }
    }

    /// A counted loop.
    fn branch(&self, instruction: &Instruction) -> Result<(), String> {
        if instruction.mnemonic() != Mnemonic::Jne {
            return Err("is another branch than that of a counted loop".to_owned());
        }
        let target = instruction.near_branch_target();
        if target >= instruction.ip() || !self.starts.contains(&target) {
            return Err("does not go back to an instruction of the function".to_owned());
        }
        match self.flags {
            Some(register) if self.counters.contains(&register) => Ok(()),
            _ => Err("depends on more than a counter".to_owned()),
        }
    }

    /// Arithmetic on pointers and counters.
    fn scalar(&mut self, instruction: &Instruction) -> Result<(), String> {
        if instruction.mnemonic() == Mnemonic::Nop {
            return Ok(());
        }
        let to = instruction.op0_register();
        if instruction.op0_kind() != OpKind::Register || to.size() < 4 {
            return Err(NOT_IN_THE_LIST.to_owned());
        }
        let known = |register: Register| self.public.contains(&register.full_register());
        let constant = is_immediate(instruction, 1);
        let fine = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => known(instruction.op1_register()),
            Mnemonic::Mov => constant,
            // LEA's address is checked like all others.
            Mnemonic::Lea => true,
            Mnemonic::Add | Mnemonic::Sub => constant && known(to),
            Mnemonic::Inc | Mnemonic::Dec => known(to),
            _ => return Err(NOT_IN_THE_LIST.to_owned()),
        };
        if !fine {
            return Err("has an operand that is neither a constant nor an argument".to_owned());
        }
        if instruction.rflags_modified() & RflagsBits::ZF != 0 {
            let decreases = matches!(instruction.mnemonic(), Mnemonic::Sub | Mnemonic::Dec);
            self.flags = decreases.then(|| to.full_register());
        }
        Ok(())
    }

    /// Checks any instruction: its addresses are public, and it writes no general register and no flag that it should
    /// not.
    fn registers(&mut self, instruction: &Instruction) -> Result<(), String> {
        let vector = is_vector(instruction);
        let info = self.info.info(instruction);
        let addresses = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
        if addresses {
            if instruction.memory_index() != Register::None {
                return Err("has an address with an index".to_owned());
            }
            if matches!(instruction.memory_segment(), Register::FS | Register::GS) {
                return Err("has an address in a segment".to_owned());
            }
            let base = instruction.memory_base();
            if base != Register::RIP && !self.public.contains(&base) {
                return Err("has an address that is not an argument's".to_owned());
            }
        }
        for used in info.used_registers() {
            let register = used.register().full_register();
            let read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if !register.is_gpr64() || read {
                continue;
            }
            if vector || CALLEE_SAVED.contains(&register) {
                return Err(format!("writes {register:?}"));
            }
            self.public.insert(register);
        }
        if vector && instruction.rflags_modified() != 0 {
            return Err("writes flags from lanes".to_owned());
        }
        Ok(())
    }
}

/// Arithmetic on lanes.
fn vector(instruction: &Instruction) -> Result<(), String> {
    use Mnemonic::*;
    let constants = match instruction.mnemonic() {
        Vmovdqu64 | Vmovdqa64 => {
            if instruction.op0_kind() == OpKind::Memory && instruction.has_op_mask() {
                return Err("is a masked store".to_owned());
            }
            0
        }
        Vpaddq | Vpsubq | Vpandq | Vpandnq | Vporq | Vpxorq => 0,
        Vmovdqu | Vmovdqa | Vpand | Vpandn | Vpor | Vpxor => 0,
        // No operand is ever subnormal, see `lower.rs` of `widelane-lanes`.
        Vfmadd231pd | Vsubpd | Vcvtuqq2pd => 0,
        Vblendvpd => 0,
        Vpaddd | Vpsubd | Vpaddw | Vpsubw => 0,
        Vpmadd52luq | Vpmadd52huq | Vpmuludq | Vpmullw | Vpmulhw => 0,
        Vpblendmq | Vpbroadcastq => 0,
        // Permutations within registers, whatever chooses: registers have no addresses.
        Vpermq | Vpermt2q | Vpermd | Vpunpckldq | Vpunpckhdq | Vpunpcklqdq | Vpunpckhqdq => 0,
        Vpcmpeqq | Vptestmq | Vptestnmq => 0,
        // Shifts by a register are as good, but no kernel has a reason to.
        Vpsllq | Vpsrlq | Vpsraq | Vpternlogq | Vpcmpq | Vpcmpuq => 1,
        Vprolq | Vprold | Vpsrld | Vpslld | Vpsllw | Vpsrlw | Vpsraw => 1,
        Vzeroupper => 0,
        _ => return Err(NOT_IN_THE_LIST.to_owned()),
    };
    let count = instruction.op_count();
    let fine = (0..count).all(|i| match instruction.op_kind(i) {
        OpKind::Register => {
            let register = instruction.op_register(i);
            register.is_vector_register() || register.is_k()
        }
        OpKind::Memory => true,
        _ => i + constants >= count && is_immediate(instruction, i),
    });
    let immediates = (0..count).filter(|&i| is_immediate(instruction, i)).count();
    if !fine || immediates != constants as usize {
        return Err("has an operand of another kind than in the list".to_owned());
    }
    Ok(())
}

fn is_vector(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Vzeroupper
        || (0..instruction.op_count()).any(|i| {
            let register = instruction.op_register(i);
            instruction.op_kind(i) == OpKind::Register && (register.is_vector_register() || register.is_k())
        })
}

fn is_immediate(instruction: &Instruction, operand: u32) -> bool {
    use OpKind::*;
    operand < instruction.op_count()
        && matches!(
            instruction.op_kind(operand),
            Immediate8
                | Immediate16
                | Immediate32
                | Immediate64
                | Immediate8to16
                | Immediate8to32
                | Immediate8to64
                | Immediate32to64
        )
}

/// The System V calling convention for x86-64.
const ARGUMENTS: [Register; 6] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
];
const CALLEE_SAVED: [Register; 7] = [
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// MXCSR with all exceptions masked, rounding towards zero, and subnormal numbers as they are.
const TOWARDS_ZERO: u32 = 0x7f80;

/// Kernels begin on pages of their own.
const PAGE: usize = 4096;

/// Parts of the mangled names of `widelane_lanes::model`, of `Definition::model` and of
/// `widelane_kernels::model`.
const PORTABLE: [&str; 4] = [
    "widelane_lanes..model..",
    "widelane_lanes5model",
    "10Definition5model",
    "widelane_kernels5model",
];

const NOT_IN_THE_LIST: &str = "is not in the list";
const PROGRAM_VARIABLE: &str = "WIDELANE_CONSTANT_TIME_BINARY";
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The check must have been seen to fail: planted violations, some of each kind.
mod planted {
    use super::*;
    use iced_x86::IcedError;
    use iced_x86::code_asm::*;
    use object::write;

    /// The verdict on a function that begins like a kernel, has `body` in it, and ends like one.
    fn verdict(body: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Result<usize, String> {
        check_function(&assemble(body), ADDRESS)
    }

    fn assemble(body: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Vec<u8> {
        let build = || {
            let mut a = CodeAssembler::new(64)?;
            a.vmovdqu64(zmm0, ptr(rsi))?;
            a.vmovdqu64(zmm1, ptr(rdx + 64))?;
            body(&mut a)?;
            a.vmovdqu64(ptr(rdi), zmm0)?;
            a.vzeroupper()?;
            a.ret()?;
            a.assemble(ADDRESS)
        };
        build().unwrap_or_else(|error: IcedError| panic!("cannot assemble the snippet: {error}"))
    }

    #[track_caller]
    fn detected(what: &str, body: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) {
        let fault = verdict(body).expect_err("a planted violation passed");
        assert!(fault.contains(what), "detected for another reason: {fault}");
    }

    #[test]
    fn what_kernels_do_passes() {
        let instructions = verdict(|a| {
            a.vpmadd52luq(zmm0, zmm1, ptr(rcx + 0x1000))?;
            a.vpcmpeqq(k1, zmm0, zmm1)?;
            a.vmovdqa64(zmm2.k1(), zmm0)?;
            a.vmovdqu64(zmm2.k1(), ptr(r8))?;
            a.vpsrlq(zmm0, zmm0, 52)?;
            a.vpaddq(ymm3, ymm4, ymm5)
        });
        assert_eq!(instructions, Ok(11));
    }

    #[test]
    fn a_counted_loop_over_pointers_passes() {
        let instructions = verdict(|a| {
            let mut head = a.create_label();
            a.mov(eax, 5)?;
            a.mov(r10, rsi)?;
            a.set_label(&mut head)?;
            a.vpaddq(zmm0, zmm0, ptr(r10 + 64))?;
            a.add(r10, 64)?;
            a.dec(rax)?;
            a.jne(head)
        });
        assert_eq!(instructions, Ok(11));
    }

    #[test]
    fn an_address_from_a_lane() {
        detected("`vmovq rax,xmm0`", |a| {
            a.vmovq(rax, xmm0)?;
            a.vmovdqu64(zmm0, ptr(rsi + rax * 8))
        });
        detected("with an index", |a| a.vmovdqu64(zmm0, ptr(rsi + rdx * 8)));
        detected("not an argument's", |a| a.vmovdqu64(zmm0, ptr(rax)));
        detected("neither a constant", |a| a.mov(rax, ptr(rsi)));
        detected("neither a constant", |a| a.add(rsi, ptr(rdx)));
        detected("neither a constant", |a| a.mov(rsi, r11));
        detected("in a segment", |a| a.vmovdqu64(zmm0, ptr(rsi).fs()));
    }

    #[test]
    fn a_branch_on_a_lane() {
        detected("`vptest ymm0,ymm0`", |a| {
            let mut head = a.create_label();
            a.set_label(&mut head)?;
            a.vptest(ymm0, ymm0)?;
            a.jne(head)
        });
        detected("`kortestb k1,k1`", |a| {
            let mut head = a.create_label();
            a.set_label(&mut head)?;
            a.vpcmpeqq(k1, zmm0, zmm1)?;
            a.kortestb(k1, k1)?;
            a.jne(head)
        });
        detected("`kmovb eax,k1`", |a| a.kmovb(eax, k1));
    }

    #[test]
    fn a_loop_that_counts_something_else() {
        // Flags that the caller left.
        detected("more than a counter", |a| {
            let mut head = a.create_label();
            a.set_label(&mut head)?;
            a.vpaddq(zmm0, zmm0, zmm1)?;
            a.jne(head)
        });
        // An argument.
        detected("more than a counter", |a| {
            let mut head = a.create_label();
            a.set_label(&mut head)?;
            a.dec(rcx)?;
            a.jne(head)
        });
        // A counter that is an argument the next time.
        detected("more than a counter", |a| {
            let mut head = a.create_label();
            a.mov(eax, 5)?;
            a.set_label(&mut head)?;
            a.dec(rax)?;
            a.jne(head)?;
            a.mov(rax, rcx)
        });
        // Flags of other arithmetic after the counter's.
        detected("more than a counter", |a| {
            let mut head = a.create_label();
            a.mov(eax, 5)?;
            a.set_label(&mut head)?;
            a.dec(rax)?;
            a.add(rcx, 1)?;
            a.jne(head)
        });
    }

    #[test]
    fn other_ways_off_the_straight_line() {
        detected("another branch", |a| {
            let mut head = a.create_label();
            a.mov(eax, 5)?;
            a.set_label(&mut head)?;
            a.dec(rax)?;
            a.js(head)
        });
        detected("does not go back", |a| {
            let mut over = a.create_label();
            a.mov(eax, 5)?;
            a.dec(rax)?;
            a.jne(over)?;
            a.vpaddq(zmm0, zmm0, zmm1)?;
            a.set_label(&mut over)?;
            a.vpaddq(zmm0, zmm0, zmm1)
        });
        // Into the middle of an instruction.
        detected("does not go back", |a| {
            a.mov(eax, 5)?;
            a.dec(rax)?;
            a.jne(ADDRESS + 1)
        });
        detected("leaves the straight line", |a| a.call(rsi));
        detected("leaves the straight line", |a| a.jmp(rsi));
        detected("leaves the straight line", |a| a.ret());
    }

    #[test]
    fn gathers_and_scatters() {
        detected("`vpgatherqq", |a| a.vpgatherqq(zmm2.k1(), ptr(rsi + zmm1 * 8)));
        detected("`vpscatterqq", |a| a.vpscatterqq(ptr(rdi + zmm1 * 8).k1(), zmm2));
    }

    #[test]
    fn masked_stores() {
        detected("masked store", |a| a.vmovdqu64(ptr(rdi).k1(), zmm0));
        detected("not in the list", |a| a.vpcompressq(ptr(rdi).k1(), zmm0));
    }

    #[test]
    fn instructions_of_varying_time() {
        detected("not in the list", |a| a.div(rcx));
        detected("not in the list", |a| a.imul_2(rax, rcx));
        detected("not in the list", |a| a.vdivpd(zmm0, zmm0, zmm1));
        detected("not in the list", |a| a.vsqrtpd(zmm0, zmm0));
        detected("not in the list", |a| a.push(rcx));
    }

    fn with_rounding(
        [mxcsr, saved_at]: [i32; 2],
        body: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
    ) -> Result<usize, String> {
        verdict(|a| {
            a.stmxcsr(dword_ptr(rsp - 4))?;
            a.mov(dword_ptr(rsp - 8), mxcsr)?;
            a.ldmxcsr(dword_ptr(rsp - 8))?;
            a.vsubpd(ymm0, ymm1, ptr(rsi))?;
            body(a)?;
            a.ldmxcsr(dword_ptr(rsp + saved_at))
        })
    }

    #[test]
    fn rounding_that_is_given_back_passes() {
        let found = with_rounding([0x7f80, -4], |a| a.vfmadd231pd(ymm0, ymm1, ptr(rdx)));
        assert_eq!(found, Ok(11));
    }

    #[test]
    fn rounding_of_the_caller() {
        detected("rounds as the caller has it", |a| a.vsubpd(ymm0, ymm1, ymm2));
        detected("rounds as the caller has it", |a| {
            a.stmxcsr(dword_ptr(rsp - 4))?;
            a.vfmadd231pd(ymm0, ymm1, ymm2)
        });
        for (values, body_restores) in [([0x1f80, -4], false), ([0x7f80, -8], false), ([0x7f80, -4], true)] {
            let found = with_rounding(values, |a| match body_restores {
                true => a.ldmxcsr(dword_ptr(rsp - 4)),
                false => Ok(()),
            });
            assert!(found.is_err(), "{values:?}");
        }
        // Not given back.
        let found = verdict(|a| {
            a.stmxcsr(dword_ptr(rsp - 4))?;
            a.mov(dword_ptr(rsp - 8), 0x7f80)?;
            a.ldmxcsr(dword_ptr(rsp - 8))
        });
        assert_eq!(found.unwrap_err().split(" a ").last(), Some("rounding of its own"));
    }

    #[test]
    fn registers_that_belong_to_the_caller() {
        detected("writes RBX", |a| a.mov(ebx, 1));
        detected("writes RSP", |a| a.mov(rsp, rdi));
    }

    #[test]
    fn a_function_without_end() {
        let mut code = assemble(|_| Ok(()));
        code.pop();
        let fault = check_function(&code, ADDRESS).unwrap_err();
        assert!(fault.contains("does not end with a return"), "{fault}");
        // A return, and after it a byte that is no instruction.
        code.extend([0xc3, 0x06]);
        let fault = check_function(&code, ADDRESS).unwrap_err();
        assert!(fault.contains("leaves the straight line"), "{fault}");
    }

    #[test]
    fn the_same_in_a_whole_object() {
        let name = "widelane_planted_mb8";
        let wanted = BTreeSet::from([name.to_owned()]);
        let good = assemble(|_| Ok(()));
        let length = good.len() as u64;
        let checked = check_program(&elf(name, &good, length), &wanted).unwrap();
        assert_eq!((checked.kernels, checked.instructions), (1, 5));

        let bad = assemble(|a| a.vpgatherqq(zmm2.k1(), ptr(rsi + zmm1 * 8)));
        let fault = check_program(&elf(name, &bad, bad.len() as u64), &wanted).unwrap_err();
        assert!(fault.contains("vpgatherqq"), "{fault}");

        let hidden = [&good[..], &bad[..]].concat();
        let fault = check_program(&elf(name, &hidden, length), &wanted).unwrap_err();
        assert!(fault.contains("code without a symbol"), "{fault}");

        let fault = check_program(&elf(name, &good, 0), &wanted).unwrap_err();
        assert!(fault.contains("with a size"), "{fault}");

        let fault = check_program(&elf(name, &good, length), &expected()).unwrap_err();
        assert!(fault.contains("not found: "), "{fault}");
        assert!(fault.contains("widelane_ams52x20_mb4"), "{fault}");

        let fault = check_program(&elf("main", &good, length), &wanted).unwrap_err();
        assert!(fault.contains("no kernel was found"), "{fault}");
    }

    #[test]
    fn evex_prefixes_in_code_without_avx512() {
        // vpmadd52luq ymm1, ymm2, ymm3, with the one prefix and with the other.
        let [evex, vex] = [
            &[0x62, 0xf2, 0xed, 0x28, 0xb4, 0xcb][..],
            &[0xc4, 0xe2, 0xed, 0xb4, 0xcb],
        ];
        assert!(check_encoding(evex, ADDRESS).is_err());
        assert_eq!(check_encoding(vex, ADDRESS), Ok(()));
    }

    #[test]
    fn kernels_in_portable_rust() {
        let code = assemble(|_| Ok(()));
        let found = |name: &str| portable(&elf(name, &code, code.len() as u64)).unwrap();
        for name in [
            "_ZN90_$LT$widelane_lanes..model..Model$LT$_$GT$$u20$as$u20$widelane_lanes..machine..\
             Machine$GT$5add1617h0123456789abcdefE",
            "_ZN14widelane_lanes5model7words1617h0123456789abcdefE",
            "_ZN14widelane_lanes10definition10Definition5model17h0123456789abcdefE",
            "_ZN16widelane_kernels5model10on_4_lanes17h0123456789abcdefE",
            "_RNvMNtCs1_14widelane_lanes5modelINtB2_5ModelKj4_E3new",
        ] {
            assert_eq!(found(name), [name]);
        }
        for name in [
            "widelane_planted_mb8",
            "_ZN14widelane_lanes5trace5Trace3new17h0123456789abcdefE",
            "_ZN15widelane_engine6models3run17h0123456789abcdefE",
        ] {
            assert_eq!(found(name), [""; 0]);
        }
    }

    /// An object file with one function of this name and size.
    fn elf(name: &str, code: &[u8], size: u64) -> Vec<u8> {
        let mut file = write::Object::new(
            object::BinaryFormat::Elf,
            object::Architecture::X86_64,
            object::Endianness::Little,
        );
        let section = file.section_id(write::StandardSection::Text);
        let value = file.append_section_data(section, code, 64);
        file.add_symbol(write::Symbol {
            name: name.into(),
            value,
            size,
            kind: SymbolKind::Text,
            scope: object::SymbolScope::Linkage,
            weak: false,
            section: write::SymbolSection::Section(section),
            flags: object::SymbolFlags::None,
        });
        file.write().unwrap()
    }

    /// Address that snippets pretend to have.
    const ADDRESS: u64 = 0x1000;
}
