//! An assembler for the kernel's BPF machine, as far as our programs need it.
//!
//! So that no compiler for BPF is needed, neither to build Widelane nor to run it. The encoding is
//! that of RFC 9669; the kernel's verifier checks every program once more when it is loaded.

use std::collections::HashMap;

/// A register. R0 has the result of a call, R1 to R5 its arguments, which it destroys (five is more
/// than we pass); R6 to R9 stay; R10 is the end of the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    R10 = 10,
}

/// Condition of a jump.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// The register equals the number.
    Equal = 0x10,
    /// The operands have a bit in common.
    Common = 0x40,
    /// The operands differ.
    Differ = 0x50,
}

/// Functions of the kernel, by their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    KtimeGetNs = 5,
    GetSmpProcessorId = 8,
    GetCurrentPidTgid = 14,
    GetCurrentComm = 16,
    GetCurrentCgroupId = 80,
    RingbufOutput = 130,
}

/// A program under construction.
#[derive(Default)]
pub(crate) struct Assembler {
    code: Vec<[u8; 8]>,
    labels: HashMap<&'static str, usize>,
    jumps: Vec<(usize, &'static str)>,
    maps: Vec<(u64, &'static str)>,
}

/// A finished program.
#[derive(Debug)]
pub(crate) struct Assembled {
    /// Instructions of the program.
    pub(crate) code: Vec<u8>,
    /// Places at which the program names a map, and the maps.
    pub(crate) maps: Vec<(u64, &'static str)>,
}

impl Assembler {
    /// `to = from`
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(0xbf, to, from, 0, 0);
    }

    /// `to = number`
    pub(crate) fn set(&mut self, to: Register, number: i32) {
        self.push(0xb7, to, Register::R0, 0, number);
    }

    /// `to += from`
    pub(crate) fn add(&mut self, to: Register, from: Register) {
        self.push(0x0f, to, from, 0, 0);
    }

    /// `to += number`
    pub(crate) fn add_number(&mut self, to: Register, number: i32) {
        self.push(0x07, to, Register::R0, 0, number);
    }

    /// `to -= from`
    pub(crate) fn subtract(&mut self, to: Register, from: Register) {
        self.push(0x1f, to, from, 0, 0);
    }

    /// `to &= number`
    pub(crate) fn and(&mut self, to: Register, number: i32) {
        self.push(0x57, to, Register::R0, 0, number);
    }

    /// `to = *(u64 *)(base + offset)`
    pub(crate) fn load(&mut self, to: Register, base: Register, offset: i16) {
        self.push(0x79, to, base, offset, 0);
    }

    /// `*(u64 *)(base + offset) = from`
    pub(crate) fn store(&mut self, base: Register, offset: i16, from: Register) {
        self.push(0x7b, base, from, offset, 0);
    }

    /// `*(u64 *)(base + offset) = number`
    pub(crate) fn store_number(&mut self, base: Register, offset: i16, number: i32) {
        self.push(0x7a, base, Register::R0, offset, number);
    }

    /// `*(u64 *)(base + offset) += from`, in one step for all CPUs
    pub(crate) fn add_shared(&mut self, base: Register, offset: i16, from: Register) {
        self.push(0xdb, base, from, offset, 0);
    }

    /// `to` = the map of that name
    pub(crate) fn map(&mut self, to: Register, name: &'static str) {
        self.maps.push((8 * self.code.len() as u64, name));
        // Two instructions wide: a number of 64 bits, which the loader fills in.
        self.push(0x18, to, Register::R0, 0, 0);
        self.push(0, Register::R0, Register::R0, 0, 0);
    }

    /// Calls a function of the kernel.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(0x85, Register::R0, Register::R0, 0, helper as i32);
    }

    /// Goes on at the label if the register fulfils the condition.
    pub(crate) fn jump_if(
        &mut self,
        register: Register,
        when: When,
        number: i32,
        to: &'static str,
    ) {
        self.jumps.push((self.code.len(), to));
        self.push(0x05 | when as u8, register, Register::R0, 0, number);
    }

    /// Goes on at the label if the registers differ.
    pub(crate) fn jump_unless_equal(&mut self, a: Register, b: Register, to: &'static str) {
        self.jumps.push((self.code.len(), to));
        self.push(0x5d, a, b, 0, 0);
    }

    /// Goes on at the label.
    pub(crate) fn jump(&mut self, to: &'static str) {
        self.jumps.push((self.code.len(), to));
        self.push(0x05, Register::R0, Register::R0, 0, 0);
    }

    /// A label for the next instruction.
    pub(crate) fn label(&mut self, name: &'static str) {
        let before = self.labels.insert(name, self.code.len());
        assert!(before.is_none(), "the label {name} is there twice");
    }

    /// Returns 0.
    pub(crate) fn exit(&mut self) {
        self.set(Register::R0, 0);
        self.push(0x95, Register::R0, Register::R0, 0, 0);
    }

    /// The program, with its jumps resolved.
    pub(crate) fn finish(mut self) -> Assembled {
        for (at, label) in self.jumps {
            let to = self.labels.get(label);
            let to = to.unwrap_or_else(|| panic!("there is no label {label}"));
            // Counted from the instruction after the jump.
            let distance = i16::try_from(*to as i64 - at as i64 - 1);
            let distance = distance.expect("our programs are short");
            self.code[at][2..4].copy_from_slice(&distance.to_le_bytes());
        }
        Assembled {
            code: self.code.concat(),
            maps: self.maps,
        }
    }

    fn push(&mut self, operation: u8, to: Register, from: Register, offset: i16, number: i32) {
        let registers = (from as u8) << 4 | to as u8;
        let [o0, o1] = offset.to_le_bytes();
        let [n0, n1, n2, n3] = number.to_le_bytes();
        self.code
            .push([operation, registers, o0, o1, n0, n1, n2, n3]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_encoded_as_the_standard_says() {
        let mut a = Assembler::default();
        a.load(Register::R7, Register::R1, 24);
        a.and(Register::R7, 0xe0);
        a.jump_if(Register::R7, When::Equal, 0, "out");
        a.map(Register::R1, "threads");
        a.call(Helper::MapLookup);
        a.store(Register::R10, -16, Register::R6);
        a.label("out");
        a.exit();
        let assembled = a.finish();
        let expected: [[u8; 8]; 9] = [
            [0x79, 0x17, 24, 0, 0, 0, 0, 0],
            [0x57, 0x07, 0, 0, 0xe0, 0, 0, 0],
            [0x15, 0x07, 4, 0, 0, 0, 0, 0],
            [0x18, 0x01, 0, 0, 0, 0, 0, 0],
            [0; 8],
            [0x85, 0, 0, 0, 1, 0, 0, 0],
            [0x7b, 0x6a, 0xf0, 0xff, 0, 0, 0, 0],
            [0xb7, 0, 0, 0, 0, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(assembled.code, expected.concat());
        assert_eq!(assembled.maps, [(24, "threads")]);
    }

    #[test]
    #[should_panic(expected = "no label nowhere")]
    fn a_jump_to_nowhere_is_refused() {
        let mut a = Assembler::default();
        a.jump("nowhere");
        a.finish();
    }
}
