//! Finds the place in an object where a library notes whether a handshake is under way: what `SSL_in_init` returns.
//!
//! OpenSSL has no function that only does a handshake for those programs that simply read and write, and
//! where it keeps its state differs from release to release. The library's own code tells: the function
//! loads the state from the object into the register of results, and returns.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

use crate::symbols::Elf;

/// The field of 32 bits that a function of this address and size returns, by its distance from the
/// beginning of the object. `None` if there is none, or more than one.
pub(crate) fn field(elf: &Elf<'_>, address: u64, size: u64) -> Option<u32> {
    let (_, code) = elf.code(address)?;
    let size = usize::try_from(size).ok().filter(|&size| size <= MOST_BYTES)?;
    let code = code.get(..size)?;
    let mut info = InstructionInfoFactory::new();
    let mut loaded = None;
    let mut fields = Vec::new();
    for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
        match instruction.flow_control() {
            FlowControl::Return => fields.extend(loaded.take()),
            FlowControl::Next => match load(&instruction) {
                Some(at) => loaded = Some(at),
                None if writes_result(&instruction, &mut info) => loaded = None,
                None => {}
            },
            _ => loaded = None,
        }
    }
    fields.sort_unstable();
    fields.dedup();
    match fields[..] {
        [field] => Some(field),
        _ => None,
    }
}

/// The place that a load of the result reads, if it may be that of the state. The first field of an object
/// tells what the object is.
fn load(instruction: &Instruction) -> Option<u32> {
    let plain = instruction.code() == Code::Mov_r32_rm32
        && instruction.op0_register() == Register::EAX
        && instruction.op1_kind() == iced_x86::OpKind::Memory
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None
        && !matches!(
            instruction.memory_base(),
            Register::None | Register::RIP | Register::RSP | Register::RBP
        );
    let at = u32::try_from(instruction.memory_displacement64()).ok()?;
    (plain && (4..MOST_OF_OBJECT).contains(&at) && at.is_multiple_of(4)).then_some(at)
}

fn writes_result(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    let used = info.info(instruction).used_registers().iter();
    used.filter(|one| one.register().full_register() == Register::RAX)
        .any(|one| !matches!(one.access(), OpAccess::Read | OpAccess::CondRead))
}

/// Most bytes of the function, which does next to nothing.
const MOST_BYTES: usize = 512;
/// The state is among the first fields.
const MOST_OF_OBJECT: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CODE, Sample};

    fn of(code: &[u8]) -> Option<u32> {
        let bytes = Sample::of(&[("SSL_in_init", code)]).bytes();
        field(&Elf::parse(&bytes).unwrap(), CODE, code.len() as u64)
    }

    #[test]
    fn the_field_that_is_returned_is_found() {
        // mov 0x64(%rdi), %eax; xor %edi, %edi; ret
        assert_eq!(of(&[0x8b, 0x47, 0x64, 0x31, 0xff, 0xc3]), Some(0x64));
        // Without optimisation: mov -8(%rbp), %rax; mov 0x64(%rax), %eax; pop %rbp; ret
        let plain = [0x48, 0x8b, 0x45, 0xf8, 0x8b, 0x40, 0x64, 0x5d, 0xc3];
        assert_eq!(of(&plain), Some(0x64));
        // An object of another kind first: mov (%rdi), %eax; test %eax, %eax; jne +7;
        // mov 0x94(%rdi), %eax; ret; xor %eax, %eax; ret
        let kinds = [
            0x8b, 0x07, 0x85, 0xc0, 0x75, 7, 0x8b, 0x87, 0x94, 0, 0, 0, 0xc3, 0x31, 0xc0, 0xc3,
        ];
        assert_eq!(of(&kinds), Some(0x94));
    }

    #[test]
    fn what_is_no_field_or_several_is_not_guessed_at() {
        // mov 0x64(%rdi), %eax; and then: xor %eax, %eax; or a call; or a return of another field
        assert_eq!(of(&[0x8b, 0x47, 0x64, 0x31, 0xc0, 0xc3]), None);
        assert_eq!(of(&[0x8b, 0x47, 0x64, 0xe8, 0, 0, 0, 0, 0xc3]), None);
        assert_eq!(of(&[0x8b, 0x47, 0x64, 0xc3, 0x8b, 0x47, 0x68, 0xc3]), None);
        // mov (%rdi), %eax; mov 0x63(%rdi), %eax; mov -8(%rdi), %eax; mov 0x64(%rdi,%rcx), %eax: ret
        assert_eq!(of(&[0x8b, 0x07, 0xc3]), None);
        assert_eq!(of(&[0x8b, 0x47, 0x63, 0xc3]), None);
        assert_eq!(of(&[0x8b, 0x47, 0xf8, 0xc3]), None);
        assert_eq!(of(&[0x8b, 0x44, 0x0f, 0x64, 0xc3]), None);
        assert_eq!(of(&[]), None);
    }
}
