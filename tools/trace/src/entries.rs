//! Where the entry of a function is seen at the least cost.
//!
//! The kernel replaces the first byte of a probed instruction by a breakpoint. Some instructions it then
//! computes itself: `push`, `nop`, and jumps to a fixed place. Others it executes elsewhere in single
//! step, which costs a second exception: where a hypervisor handles exceptions, more than ten times as
//! much as the first. So a probe may stand a few instructions behind the entry, as long as they change
//! neither the stack pointer nor an argument, and nothing jumps between.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
    Register,
};

use crate::symbols::Elf;

/// The address at which to probe the entry of a function of this address and size: the function's, or
/// one a few instructions behind it.
pub(crate) fn place(elf: &Elf<'_>, address: u64, size: u64) -> u64 {
    let Some(code) = body(elf, address, size) else {
        return address;
    };
    let Some(place) = emulated(code, address) else {
        return address;
    };
    match place == address || !is_entered_between(code, address, place) {
        true => place,
        false => address,
    }
}

fn body<'a>(elf: &Elf<'a>, address: u64, size: u64) -> Option<&'a [u8]> {
    let (_, code) = elf.code(address)?;
    let size = usize::try_from(size).ok()?;
    let sound = size > 0 && size <= MOST_BYTES;
    sound.then(|| code.get(..size)).flatten()
}

/// The first instruction that the kernel computes itself, if those before it may come first.
fn emulated(code: &[u8], address: u64) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut info = InstructionInfoFactory::new();
    for _ in 0..MOST_BEFORE {
        let instruction = decoder.can_decode().then(|| decoder.decode())?;
        if is_emulated(&instruction) {
            return Some(instruction.ip());
        }
        let keeps = !instruction.is_invalid()
            && instruction.flow_control() == FlowControl::Next
            && keeps_arguments(&instruction, &mut info);
        if !keeps {
            return None;
        }
    }
    None
}

/// Whether Linux computes an instruction itself: `branch_setup_xol_ops` and `push_setup_xol_ops` of its
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
        _ => false,
    }
}

/// Whether an instruction leaves the stack pointer and the arguments of a function as they are, also
/// those in memory.
fn keeps_arguments(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    let writes = |access: OpAccess| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let info = info.info(instruction);
    let mut registers = info.used_registers().iter();
    let mut memory = info.used_memory().iter();
    !registers.any(|used| writes(used.access()) && KEPT.contains(&used.register().full_register()))
        && !memory.any(|used| writes(used.access()))
}

/// Whether an instruction of a function jumps to behind its entry, up to `place`.
fn is_entered_between(code: &[u8], address: u64, place: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let jumps = |instruction: &Instruction| {
        let target = instruction.near_branch_target();
        target > address && target <= place
    };
    decoder.iter().any(|instruction| jumps(&instruction))
}

/// The arguments of a function by the System V ABI, and the stack pointer.
const KEPT: [Register; 7] = [
    Register::RDI,
    Register::RSI,
    Register::RDX,
    Register::RCX,
    Register::R8,
    Register::R9,
    Register::RSP,
];
/// More instructions cost what they save.
const MOST_BEFORE: usize = 4;
/// Functions of this size and larger are probed at their entry.
const MOST_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CODE, Sample};

    /// How far behind the entry of a function its entry is seen.
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
        // As SSL_free begins: test %rdi,%rdi; je; push %r13
        assert_eq!(
            behind(&[0x48, 0x85, 0xff, 0x74, 0x03, 0x41, 0x55, 0xc3, 0xc3]),
            3
        );
        // As SSL_get_error does: xor %eax,%eax; test %esi,%esi; jle
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
        // The same with a jump to the entry: it enters anew.
        assert_eq!(behind(&[0x31, 0xc0, 0x53, 0xeb, 0xfb, 0xc3]), 2);
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
