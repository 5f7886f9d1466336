//! Finds where a function returns: the addresses of its `ret` instructions. The reason is in
//! `docs/decisions/return-probes.md`.
//!
//! The kernel's return probes replace the return address on the stack and expect that calls return in
//! the reverse order of their entries. A breakpoint at each `ret` tells the same and changes no stack.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::symbols::Elf;

/// Context to follow the ways out of functions of a file.
pub(crate) struct Ways<'e, 'a> {
    /// The file.
    pub(crate) elf: &'e Elf<'a>,
    /// The address of the function whose address the loader puts in a slot, if it is in this file.
    pub(crate) slot: &'e dyn Fn(u64) -> Option<u64>,
    /// True if the Go compiler made the code: it never ends a function by an indirect jump.
    pub(crate) go: bool,
    /// Number of instructions that may still be decoded in the file.
    pub(crate) left: Cell<usize>,
}

/// The state of a search for one function.
struct Search<'e, 'a> {
    ways: &'e Ways<'e, 'a>,
    body: std::ops::Range<u64>,
    returns: BTreeSet<u64>,
    seen: BTreeSet<u64>,
    outside: VecDeque<u64>,
    left: usize,
}

impl Ways<'_, '_> {
    /// The addresses of the `ret` instructions by which a function of this address and size may
    /// return. Those of the functions to which it jumps at its end count: they return to its caller,
    /// with the stack pointer with which it was entered.
    ///
    /// # Errors
    ///
    /// Why they cannot all be known.
    pub(crate) fn returns(&self, address: u64, size: u64) -> Result<Vec<u64>, String> {
        let end = address.checked_add(size).ok_or("it is damaged")?;
        let mut search = Search {
            ways: self,
            body: address..end,
            returns: BTreeSet::new(),
            seen: BTreeSet::new(),
            outside: VecDeque::new(),
            left: MOST_INSTRUCTIONS,
        };
        match size {
            0 => search.outside.push_back(address),
            _ => search.body()?,
        }
        while let Some(start) = search.outside.pop_front() {
            search.block(start)?;
        }
        match search.returns.is_empty() {
            true => Err("it has no return instruction".to_owned()),
            false => Ok(search.returns.into_iter().collect()),
        }
    }
}

impl Search<'_, '_> {
    /// All instructions of a function whose size is known. Blocks to which only a table of jumps
    /// leads are among them.
    fn body(&mut self) -> Result<(), String> {
        let size = usize::try_from(self.body.end - self.body.start).unwrap_or(usize::MAX);
        let (_, code) = self
            .ways
            .elf
            .code(self.body.start)
            .ok_or("its code is not in the file")?;
        let code = code.get(..size).ok_or("its code is not all in the file")?;
        let mut decoder = Decoder::with_ip(64, code, self.body.start, DecoderOptions::NONE);
        let (mut starts, mut targets) = (BTreeSet::new(), BTreeSet::new());
        let mut last = Last::default();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            self.spend()?;
            if instruction.is_invalid() {
                return Err("not all of its bytes are instructions".to_owned());
            }
            starts.insert(instruction.ip());
            match instruction.flow_control() {
                FlowControl::Return => self.found(&instruction)?,
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let target = instruction.near_branch_target();
                    match self.body.contains(&target) {
                        true => _ = targets.insert(target),
                        false => self.outside.push_back(target),
                    }
                }
                FlowControl::IndirectBranch => match self.indirect(&instruction, &last)? {
                    Indirect::Table => {}
                    Indirect::To(target) => self.outside.push_back(target),
                },
                _ => {}
            }
            last.push(instruction);
        }
        // A breakpoint inside an instruction would destroy it. A jump that leads there says that the
        // bytes are not cut into instructions as the processor does it.
        match targets.is_subset(&starts) {
            true => Ok(()),
            false => Err("a jump leads into the middle of an instruction".to_owned()),
        }
    }

    /// The instructions from an address outside of the function up to a jump or return.
    fn block(&mut self, start: u64) -> Result<(), String> {
        if self.body.contains(&start) || !self.seen.insert(start) {
            return Ok(());
        }
        let (_, code) = self.ways.elf.code(start).ok_or("it jumps to what is no code")?;
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut last = Last::default();
        while decoder.can_decode() {
            let instruction = decoder.decode();
            self.spend()?;
            if instruction.is_invalid() {
                return Err("it leads to bytes that are no instructions".to_owned());
            }
            match instruction.flow_control() {
                FlowControl::Return => {
                    return self.found(&instruction);
                }
                FlowControl::UnconditionalBranch => {
                    self.outside.push_back(instruction.near_branch_target());
                    return Ok(());
                }
                FlowControl::ConditionalBranch => {
                    self.outside.push_back(instruction.near_branch_target());
                }
                FlowControl::IndirectBranch => match self.indirect(&instruction, &last)? {
                    Indirect::Table => {
                        return Err("it jumps to a function with a table of jumps".to_owned());
                    }
                    Indirect::To(target) => {
                        self.outside.push_back(target);
                        return Ok(());
                    }
                },
                FlowControl::Exception | FlowControl::Interrupt => return Ok(()),
                _ => {}
            }
            // Blocks that meet are walked once.
            if !self.seen.insert(instruction.next_ip()) {
                return Ok(());
            }
            last.push(instruction);
        }
        Ok(())
    }

    fn found(&mut self, instruction: &Instruction) -> Result<(), String> {
        // Others return to another mode of the processor.
        if !matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) {
            return Err("it has a return instruction of the system".to_owned());
        }
        self.returns.insert(instruction.ip());
        Ok(())
    }

    fn spend(&mut self) -> Result<(), String> {
        self.left = self.left.checked_sub(1).ok_or("it is too long")?;
        let left = self.ways.left.get().checked_sub(1);
        self.ways.left.set(left.ok_or("its file has too many functions")?);
        Ok(())
    }

    fn indirect(&self, jump: &Instruction, last: &Last) -> Result<Indirect, String> {
        if jump.is_ip_rel_memory_operand() {
            // A jump through the linker's table (PLT), or of a compiler that does without.
            let slot = (self.ways.slot)(jump.ip_rel_memory_address());
            return slot
                .map(Indirect::To)
                .ok_or_else(|| "it ends in a jump to a function of another file".to_owned());
        }
        match last.is_table(jump, self.ways.go) {
            true => Ok(Indirect::Table),
            false => Err("it ends in an indirect jump".to_owned()),
        }
    }
}

/// Target of an indirect jump.
enum Indirect {
    /// Jump to a place in its own function, by a table.
    Table,
    /// Jump to a function.
    To(u64),
}

/// The instructions before one, the last at the end.
#[derive(Default)]
struct Last(VecDeque<Instruction>);

impl Last {
    fn push(&mut self, instruction: Instruction) {
        if self.0.len() == WINDOW {
            self.0.pop_front();
        }
        self.0.push_back(instruction);
    }

    /// Returns whether a jump is one of a `switch`. Compilers load an entry of four bytes, add the address of the
    /// table, and jump; or, where code has a fixed address, jump to an entry of a table at a fixed address. Under CET
    /// they mark these jumps `notrack`. Other indirect jumps are calls at the end of a function.
    fn is_table(&self, jump: &Instruction, go: bool) -> bool {
        if jump.segment_prefix() == Register::DS {
            return true;
        }
        match jump.op0_kind() {
            OpKind::Memory => is_entry(jump, go),
            OpKind::Register => {
                let target = jump.op0_register();
                let writes = |one: &&Instruction| {
                    one.op_count() > 0
                        && one.op0_kind() == OpKind::Register
                        && one.op0_register().full_register() == target
                        && !matches!(one.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
                };
                match self.0.iter().rev().find(writes) {
                    Some(one) if one.mnemonic() == Mnemonic::Add => {
                        let loads =
                            |one: &Instruction| one.code() == Code::Movsxd_r64_rm32 && one.memory_index_scale() == 4;
                        self.0.iter().any(loads)
                    }
                    Some(one) => one.mnemonic() == Mnemonic::Mov && is_entry(one, go),
                    None => false,
                }
            }
            _ => false,
        }
    }
}

/// Returns whether an operand is an entry of a table of addresses.
fn is_entry(instruction: &Instruction, go: bool) -> bool {
    let fixed = instruction.memory_base() == Register::None || go;
    fixed && instruction.memory_index() != Register::None && instruction.memory_index_scale() == 8
}

/// Most instructions between the computation of an address and the jump to it.
const WINDOW: usize = 12;
/// Most instructions in all functions of a file. Those of OpenSSL have some ten thousand.
pub(crate) const MOST_IN_FILE: usize = 4 << 20;
/// Most instructions in a function and all to which it jumps. The longest in question have some thousand.
const MOST_INSTRUCTIONS: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CODE, Sample};

    const RET: &[u8] = &[0xc3];
    /// jmp *%rax
    const JUMP: &[u8] = &[0xff, 0xe0];

    /// Places at which the first function of a sample returns, from the beginning of the code.
    fn returns(sample: &Sample) -> Result<Vec<u64>, String> {
        let bytes = sample.bytes();
        let elf = Elf::parse(&bytes).unwrap();
        let ways = Ways {
            elf: &elf,
            slot: &|slot| (slot == CODE + 0x100).then_some(CODE + 16),
            go: false,
            left: Cell::new(MOST_IN_FILE),
        };
        let (_, at, size) = sample.dynamic[0];
        let found = ways.returns(CODE + at.unwrap(), size)?;
        Ok(found.into_iter().map(|at| at - CODE).collect())
    }

    fn of(functions: &[&[u8]]) -> Result<Vec<u64>, String> {
        let functions: Vec<_> = functions.iter().map(|code| ("f", *code)).collect();
        returns(&Sample::of(&functions))
    }

    #[test]
    fn all_returns_count_also_those_of_the_functions_it_jumps_to() {
        // test %edi, %edi; je +1; ret; repz ret
        assert_eq!(of(&[&[0x85, 0xff, 0x74, 1, 0xc3, 0xf3, 0xc3]]), Ok(vec![4, 5]));
        // ret; jmp to the next function. That has: je back into the first; ret; and what follows is
        // another function.
        let next: &[u8] = &[0x74, 0xfa, 0xc3];
        assert_eq!(of(&[&[0x90, 0xc3, 0xeb, 0], next, RET]), Ok(vec![1, 6]));
        // je to the next, which jumps to the one after it.
        assert_eq!(of(&[&[0x74, 1, 0xc3], &[0xeb, 0], RET]), Ok(vec![2, 5]));
        // Two that jump to each other without an end.
        let error = of(&[&[0xeb, 0], &[0xeb, 0xfc]]).unwrap_err();
        assert!(error.contains("no return"), "{error}");
    }

    #[test]
    fn a_missing_size_is_no_obstacle() {
        let mut sample = Sample::of(&[("f", &[0x74, 2, 0x90, 0xc3, 0xf3, 0xc3]), ("g", RET)]);
        sample.dynamic[0].2 = 0;
        assert_eq!(returns(&sample), Ok(vec![3, 4]));
    }

    #[test]
    fn jumps_of_a_switch_stay_inside_and_others_leave() {
        let switch = |jump: &[u8]| {
            // lea 0(%rip), %rdx; movslq (%rdx, %rax, 4), %rax; add %rdx, %rax; the jump; ret
            let head = [0x48, 0x8d, 0x15, 0, 0, 0, 0, 0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0];
            of(&[&[&head, jump, RET].concat()])
        };
        assert_eq!(switch(JUMP), Ok(vec![16]));
        // jmp *%rcx, which nothing has computed.
        assert!(switch(&[0xff, 0xe1]).unwrap_err().contains("indirect"));
        // notrack jmp *%rcx; jmp *table(, %rax, 8); jmp *(%rdx, %rax, 8); jmp *8(%rdi)
        assert!(of(&[&[0x3e, 0xff, 0xe1, 0xc3]]).is_ok());
        assert!(of(&[&[0xff, 0x24, 0xc5, 0, 0, 0, 0, 0xc3]]).is_ok());
        assert!(of(&[&[0xff, 0x24, 0xc2, 0xc3]]).is_err());
        assert!(of(&[&[0xff, 0x67, 8, 0xc3]]).is_err());
    }

    #[test]
    fn a_jump_by_a_slot_is_followed_within_the_file() {
        // jmp *slot(%rip), at 0; the function that the slot leads to is at 16.
        let jump = |slot: u32| {
            let mut code = vec![0xff, 0x25];
            code.extend((slot - 6).to_le_bytes());
            code.resize(16, 0x90);
            let mut sample = Sample::of(&[("f", &code), ("g", RET)]);
            sample.dynamic[0].2 = 6;
            returns(&sample)
        };
        assert_eq!(jump(0x100), Ok(vec![16]));
        assert!(jump(0x108).unwrap_err().contains("another file"));
    }

    #[test]
    fn what_is_no_code_is_not_guessed_at() {
        // Not an instruction in 64-bit code; a far return.
        assert!(of(&[&[0x06, 0xc3]]).is_err());
        assert!(of(&[&[0xcb, 0xc3]]).is_err());
        // jmp into the operand of: mov $0xc3c3c3c3, %eax
        let error = of(&[&[0xeb, 1, 0xb8, 0xc3, 0xc3, 0xc3, 0xc3, 0xc3]]).unwrap_err();
        assert!(error.contains("middle"), "{error}");
        // A size beyond the file, and one beyond all addresses.
        let mut sample = Sample::of(&[("f", RET)]);
        for size in [2, u64::MAX] {
            sample.dynamic[0].2 = size;
            assert!(returns(&sample).is_err());
        }
        // jmp to nowhere.
        assert!(of(&[&[0xe9, 0, 0, 0, 0x10]]).unwrap_err().contains("no code"));
    }
}
