//! Finds the cheapest places at which the entry of a function, and the return of a call, are seen.
//!
//! The kernel replaces the first byte of a probed instruction by a breakpoint. Some instructions it then
//! computes itself: `push`, `nop`, and calls of and jumps to a fixed place. Others it executes elsewhere in
//! single step, which costs a second exception: where a hypervisor handles exceptions, more than ten times as
//! much as the first. So a probe may stand a few instructions behind the entry, as long as they change
//! neither the stack pointer nor an argument, and nothing jumps between; and a few instructions behind a
//! call, as long as they change neither the stack pointer nor the result.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

use crate::symbols::Elf;

/// The address at which to probe the entry of a function of this address and size: the function's, or
/// one a few instructions behind it.
pub(crate) fn place(elf: &Elf<'_>, address: u64, size: u64) -> u64 {
    let Some(code) = body(elf, address, size) else {
        return address;
    };
    let Some(place) = emulated(code, address, &AT_ENTRY) else {
        return address;
    };
    match place == address || !is_entered_between(code, address, place) {
        true => place,
        false => address,
    }
}

/// The address at which to see that a call has returned to this one: the address, or one a few
/// instructions behind it. What else leads there is no harm: no call is open there then.
pub(crate) fn after_call(elf: &Elf<'_>, address: u64) -> u64 {
    let code = elf.code(address).map(|(_, code)| code);
    code.and_then(|code| emulated(code, address, &AFTER_CALL))
        .unwrap_or(address)
}

/// Registers that must be unchanged at a probe, and its greatest distance behind the place.
struct Untouched {
    registers: &'static [Register],
    most: usize,
}

fn body<'a>(elf: &Elf<'a>, address: u64, size: u64) -> Option<&'a [u8]> {
    let (_, code) = elf.code(address)?;
    let size = usize::try_from(size).ok()?;
    let sound = size > 0 && size <= MOST_BYTES;
    sound.then(|| code.get(..size)).flatten()
}

/// The first instruction that the kernel computes itself, if those before it may come first.
fn emulated(code: &[u8], address: u64, kept: &Untouched) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    for _ in 0..kept.most {
        let instruction = decoder.can_decode().then(|| decoder.decode())?;
        if is_emulated(&instruction) {
            return Some(instruction.ip());
        }
        let goes_on = !instruction.is_invalid()
            && instruction.flow_control() == FlowControl::Next
            && keeps(&instruction, kept.registers, &mut info);
        if !goes_on {
            return None;
        }
    }
    None
}

/// Returns whether Linux computes an instruction itself: `branch_setup_xol_ops` and `push_setup_xol_ops` of its
/// `arch/x86/kernel/uprobes.c`.
fn is_emulated(instruction: &Instruction) -> bool {
    // A prefix keeps the kernel from it, but for the one that names a new register.
    let register = instruction.op0_register();
    match instruction.code() {
        Code::Push_r64 => instruction.len() == if register < Register::R8 { 1 } else { 2 },
        Code::Nopd => instruction.len() == 1,
        code if code.is_jcc_short() || code.is_jmp_short() => instruction.len() == 2,
        code if code.is_jcc_near() => instruction.len() == 6,
        code if code.is_jmp_near() => instruction.len() == 5,
        Code::Call_rel32_64 => instruction.len() == 5,
        _ => false,
    }
}

/// Returns whether an instruction leaves these registers and all memory unchanged.
fn keeps(instruction: &Instruction, registers: &[Register], info: &mut InstructionInfoFactory) -> bool {
    let writes = |access: OpAccess| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let info = info.info(instruction);
    let mut used_registers = info.used_registers().iter();
    let mut memory = info.used_memory().iter();
    let kept = |register: Register| registers.contains(&register.full_register());
    !used_registers.any(|used| writes(used.access()) && kept(used.register()))
        && !memory.any(|used| writes(used.access()))
}

/// Returns whether an instruction of a function jumps to behind its entry, up to `place`.
fn is_entered_between(code: &[u8], address: u64, place: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let jumps = |instruction: &Instruction| {
        let target = instruction.near_branch_target();
        target > address && target <= place
    };
    decoder.iter().any(|instruction| jumps(&instruction))
}

/// The arguments of a function by the System V ABI, and the stack pointer.
const AT_ENTRY: Untouched = Untouched {
    registers: &[
        Register::RDI,
        Register::RSI,
        Register::RDX,
        Register::RCX,
        Register::R8,
        Register::R9,
        Register::RSP,
    ],
    most: 4,
};
/// The result of a function, and the stack pointer.
const AFTER_CALL: Untouched = Untouched {
    registers: &[Register::RAX, Register::RSP],
    most: 16,
};
/// Functions of this size and larger are probed at their entry.
const MOST_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CODE, Sample};

    /// Distance of the probe behind the entry of a function.
    fn behind(code: &[u8]) -> u64 {
        let sample = Sample::of(&[("f", code)]);
        let bytes = sample.bytes();
        let elf = Elf::parse(&bytes).unwrap();
        place(&elf, CODE, code.len() as u64) - CODE
    }

    #[test]
    fn what_the_kernel_computes_is_probed() {
        // push %rbx; push %r12; nop
        for first in [&[0x53][..], &[0x41, 0x54], &[0x90]] {
            assert_eq!(behind(&[first, &[0xc3]].concat()), 0);
        }
        // The beginning of SSL_free: test %rdi,%rdi; je; push %r13
        assert_eq!(behind(&[0x48, 0x85, 0xff, 0x74, 0x03, 0x41, 0x55, 0xc3, 0xc3]), 3);
        // The beginning of SSL_get_error: xor %eax,%eax; test %esi,%esi; jle
        assert_eq!(behind(&[0x31, 0xc0, 0x85, 0xf6, 0x7e, 0x00, 0xc3]), 4);
        // cmpl $4,(%rdi); jne near
        let near = [0x83, 0x3f, 0x04, 0x0f, 0x85, 0, 0, 0, 0, 0xc3];
        assert_eq!(behind(&near), 3);
        // endbr64; push %rbp
        assert_eq!(behind(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0xc3]), 4);
    }

    #[test]
    fn arguments_and_the_stack_are_seen_as_the_caller_left_them() {
        // mov %rdi,%rsi; push %rbx
        assert_eq!(behind(&[0x48, 0x89, 0xfe, 0x53, 0xc3]), 0);
        // xor %edx,%edx; push %rbx
        assert_eq!(behind(&[0x31, 0xd2, 0x53, 0xc3]), 0);
        // sub $8,%rsp; push %rbx
        assert_eq!(behind(&[0x48, 0x83, 0xec, 0x08, 0x53, 0xc3]), 0);
        // pop %rax; push %rbx
        assert_eq!(behind(&[0x58, 0x53, 0xc3]), 0);
        // movl $0,(%rdi); push %rbx
        assert_eq!(behind(&[0xc7, 0x07, 0, 0, 0, 0, 0x53, 0xc3]), 0);
        // call; push %rbx
        assert_eq!(behind(&[0xe8, 0, 0, 0, 0, 0x53, 0xc3]), 0);
        // mov %rdi,%rax; push %rbx
        assert_eq!(behind(&[0x48, 0x89, 0xf8, 0x53, 0xc3]), 3);
    }

    #[test]
    fn a_place_to_which_the_function_jumps_is_no_entry() {
        // xor %eax,%eax; push %rbx; jmp to the push
        assert_eq!(behind(&[0x31, 0xc0, 0x53, 0xeb, 0xfd, 0xc3]), 0);
        // A jump to the entry enters the function anew.
        assert_eq!(behind(&[0x31, 0xc0, 0x53, 0xeb, 0xfb, 0xc3]), 2);
    }

    #[test]
    fn returns_are_seen_as_the_function_left_them() {
        let behind = |code: &[u8]| {
            let bytes = Sample::of(&[("f", code)]).bytes();
            after_call(&Elf::parse(&bytes).unwrap(), CODE) - CODE
        };
        // The code of nginx after its call: mov %eax, %r12d; cmp $1, %eax; je
        assert_eq!(behind(&[0x41, 0x89, 0xc4, 0x83, 0xf8, 0x01, 0x74, 0, 0xc3]), 6);
        // mov %rbx, %rdi; call
        assert_eq!(behind(&[0x48, 0x89, 0xdf, 0xe8, 0, 0, 0, 0, 0xc3]), 3);
        // xor %eax, %eax; je, and: add $8, %rsp; je, and: mov %rax, (%rsp); je
        assert_eq!(behind(&[0x31, 0xc0, 0x74, 0, 0xc3]), 0);
        assert_eq!(behind(&[0x48, 0x83, 0xc4, 0x08, 0x74, 0, 0xc3]), 0);
        assert_eq!(behind(&[0x48, 0x89, 0x04, 0x24, 0x74, 0, 0xc3]), 0);
        // call *%rdx, which may change everything; ret
        assert_eq!(behind(&[0xff, 0xd2, 0x74, 0, 0xc3]), 0);
        assert_eq!(behind(&[0xc3]), 0);
    }

    #[test]
    fn code_that_is_not_there_or_no_code_is_left_alone() {
        assert_eq!(behind(&[0x06, 0x53]), 0);
        assert_eq!(behind(&[0x48]), 0);
        let sample = Sample::of(&[("f", &[0x31, 0xc0, 0x53, 0xc3])]);
        let bytes = sample.bytes();
        let elf = Elf::parse(&bytes).unwrap();
        for (address, size) in [(CODE, 0), (CODE, u64::MAX), (u64::MAX, 4), (0, 4)] {
            assert_eq!(place(&elf, address, size), address);
        }
    }
}
