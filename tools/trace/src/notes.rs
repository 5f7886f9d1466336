//! Finds the static probes (USDT) of a file and their arguments: reads its notes in the section `.note.stapsdt`, as
//! SystemTap's `sys/sdt.h` defines them.
//!
//! Such a note has the address of a `nop`, that of the section `.stapsdt.base` at the time of linking
//! (it tells how far a tool has moved the code since), that of a counter for attached tracers or 0, and
//! three texts: provider, name, arguments. The file may be anything: what is damaged is left out.

use crate::marks::MOST_ARGUMENTS;
use crate::reader::Reader;
use crate::symbols::Elf;

/// A static probe at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note<'a> {
    pub(crate) provider: &'a [u8],
    pub(crate) name: &'a [u8],
    /// Offset of the probe's instruction in the file.
    pub(crate) offset: u64,
    pub(crate) places: Vec<Place>,
}

/// Place of an argument when the probe is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A place that is not understood, such as beside a symbol.
    Unknown,
    /// Constant value.
    Constant(i64),
    /// Lower bytes of a register.
    Register {
        /// Register.
        register: Register,
        /// Size and sign of the value.
        form: Form,
    },
    /// Memory, `displacement` bytes from the address in a register.
    Memory {
        /// Register with the address.
        register: Register,
        /// Distance from that address, in bytes.
        displacement: i32,
        /// Size and sign of the value.
        form: Form,
    },
}

/// Size of a value, and whether it has a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// True if the value may be negative.
    pub signed: bool,
}

/// A register of 64 bits, by its number in instructions: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8…
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(u8);

impl Register {
    /// Offset of the register in the kernel's `struct pt_regs`, in bytes.
    pub fn offset(self) -> u8 {
        PLACES_IN_KERNEL.get(usize::from(self.0)).copied().unwrap_or_default()
    }
}

/// All static probes of a file whose instruction is what it should be.
pub(crate) fn notes<'a>(elf: &Elf<'a>) -> Vec<Note<'a>> {
    let Some((_, section)) = elf.section(b".note.stapsdt") else {
        return Vec::new();
    };
    let base = elf.section(b".stapsdt.base").map(|(address, _)| address);
    let mut found = Vec::new();
    let mut reader = Reader(section);
    while let Some(description) = reader.note() {
        if let Some(description) = description
            && let Some(note) = note(elf, base, description)
        {
            found.push(note);
        }
        if found.len() >= MOST_NOTES {
            break;
        }
    }
    found
}

fn note<'a>(elf: &Elf<'a>, base: Option<u64>, description: &'a [u8]) -> Option<Note<'a>> {
    let mut reader = Reader(description);
    let (address, linked, _counter) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (provider, name, arguments) = (reader.text()?, reader.text()?, reader.text()?);
    let address = match base {
        Some(base) => address.wrapping_add(base.wrapping_sub(linked)),
        None => address,
    };
    // The linker leaves out functions that are never called, and not their notes: these have the address 0.
    let (offset, code) = elf.code(address).filter(|_| address != 0)?;
    // A breakpoint anywhere else could destroy an instruction.
    if !NOPS.iter().any(|nop| code.starts_with(nop)) {
        return None;
    }
    Some(Note {
        provider,
        name,
        offset,
        places: places(arguments),
    })
}

/// The places of arguments: `-4@%edi 8@-16(%rbp) 4@$5`.
fn places(text: &[u8]) -> Vec<Place> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let words = text.split_ascii_whitespace().take(MOST_ARGUMENTS);
    words.map(|word| place(word).unwrap_or(Place::Unknown)).collect()
}

fn place(word: &str) -> Option<Place> {
    // A value without a size is as large as a register.
    let (form, operand) = match word.split_once('@') {
        Some((form, operand)) => (form_of(form)?, operand),
        None => (WHOLE, word),
    };
    if let Some(constant) = operand.strip_prefix('$') {
        return Some(Place::Constant(number(constant)?));
    }
    if let Some(name) = operand.strip_prefix('%') {
        let (register, bytes) = register(name)?;
        // A value is not larger than the register that has it.
        let form = Form {
            bytes: form.bytes.min(bytes),
            ..form
        };
        return Some(Place::Register { register, form });
    }
    let (displacement, rest) = operand.split_once('(')?;
    let displacement = match displacement {
        "" => 0,
        text => i32::try_from(number(text)?).ok()?,
    };
    // With an index, there would be a comma.
    let name = rest.strip_suffix(')')?.strip_prefix('%')?;
    let (register, bytes) = register(name)?;
    (bytes == 8).then_some(Place::Memory {
        register,
        displacement,
        form,
    })
}

fn form_of(text: &str) -> Option<Form> {
    let (signed, digits) = without_sign(text);
    // Numbers that are no integers ("8f") are unknown here.
    let bytes = digits.parse().ok()?;
    matches!(bytes, 1 | 2 | 4 | 8).then_some(Form { bytes, signed })
}

fn number(text: &str) -> Option<i64> {
    let (negative, digits) = without_sign(text);
    let number = match digits.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok()?.cast_signed(),
        // Also what only fits without a sign.
        None => digits.parse::<u64>().ok()?.cast_signed(),
    };
    Some(match negative {
        true => number.wrapping_neg(),
        false => number,
    })
}

/// Returns whether a number has a minus sign, and its digits.
fn without_sign(text: &str) -> (bool, &str) {
    text.strip_prefix('-').map_or((false, text), |digits| (true, digits))
}

/// A register by one of its names, and how many bytes that name means.
fn register(name: &str) -> Option<(Register, u8)> {
    if let Some(rest) = name.strip_prefix('r').filter(|rest| {
        let first = rest.as_bytes().first();
        first.is_some_and(u8::is_ascii_digit)
    }) {
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let number = number.parse().ok().filter(|number| (8..16).contains(number))?;
        let bytes = match suffix {
            "" => 8,
            "d" => 4,
            "w" => 2,
            "b" | "l" => 1,
            _ => return None,
        };
        return Some((Register(number), bytes));
    }
    for (number, names) in (0..).zip(NAMES) {
        if let Some(at) = names.iter().position(|known| *known == name) {
            return Some((Register(number), [8, 4, 2, 1][at]));
        }
    }
    None
}

impl<'a> Reader<'a> {
    /// The next note: its description, if it is a static probe's. `None` at the end.
    fn note(&mut self) -> Option<Option<&'a [u8]>> {
        let (owner, length, kind) = (self.u32()?, self.u32()?, self.u32()?);
        let owner = self.padded(owner)?;
        let description = self.padded(length)?;
        Some((kind == STATIC_PROBE && owner == OWNER).then_some(description))
    }

    /// Reads `length` bytes, and the padding to a multiple of four.
    fn padded(&mut self, length: u32) -> Option<&'a [u8]> {
        let length = usize::try_from(length).ok()?;
        let (taken, _) = self.0.split_at_checked(length)?;
        // The last one may end without.
        let padded = length.checked_next_multiple_of(4)?.min(self.0.len());
        self.0 = self.0.get(padded..)?;
        Some(taken)
    }

    /// A text up to its zero.
    fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = self.0.get(..end)?;
        self.0 = self.0.get(end + 1..)?;
        Some(text)
    }
}

const OWNER: &[u8] = b"stapsdt\0";
const STATIC_PROBE: u32 = 3;
/// One byte, and the form of five bytes that newer headers have.
const NOPS: [&[u8]; 2] = [&[0x90], &[0x0f, 0x1f, 0x44, 0, 0]];
const WHOLE: Form = Form { bytes: 8, signed: true };
/// The places of a file that are looked at.
const MOST_NOTES: usize = 65_536;

/// The names of registers, by their numbers, for 8, 4, 2 and 1 bytes.
const NAMES: [[&str; 4]; 8] = [
    ["rax", "eax", "ax", "al"],
    ["rcx", "ecx", "cx", "cl"],
    ["rdx", "edx", "dx", "dl"],
    ["rbx", "ebx", "bx", "bl"],
    ["rsp", "esp", "sp", "spl"],
    ["rbp", "ebp", "bp", "bpl"],
    ["rsi", "esi", "si", "sil"],
    ["rdi", "edi", "di", "dil"],
];
/// Offsets of the registers in `struct pt_regs`, by their numbers.
const PLACES_IN_KERNEL: [u8; 16] = [80, 88, 96, 40, 152, 32, 104, 112, 72, 64, 56, 48, 24, 16, 8, 0];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CODE, Sample, note_of};

    fn in_register(number: u8, bytes: u8, signed: bool) -> Place {
        Place::Register {
            register: Register(number),
            form: Form { bytes, signed },
        }
    }

    fn in_memory(number: u8, displacement: i32, bytes: u8) -> Place {
        Place::Memory {
            register: Register(number),
            displacement,
            form: Form { bytes, signed: false },
        }
    }

    #[test]
    fn arguments_are_understood_or_unknown() {
        let all = b"-4@%edi 8@-16(%rbp) 4@$5 -8@%r10 1@%r8b 2@%ax 8@0x20(%rsp) 8@(%rax)";
        let expected = [
            in_register(7, 4, true),
            in_memory(5, -16, 8),
            Place::Constant(5),
            in_register(10, 8, true),
            in_register(8, 1, false),
            in_register(0, 2, false),
            in_memory(4, 32, 8),
            in_memory(0, 0, 8),
        ];
        assert_eq!(places(all), expected);
        let constants = b"-4@$-1 8@$18446744073709551615 %rdi 8@%edi";
        let expected = [
            Place::Constant(-1),
            Place::Constant(-1),
            in_register(7, 8, true),
            in_register(7, 4, false),
        ];
        assert_eq!(places(constants), expected);
        for unknown in [
            "8@name(%rip)",
            "8@8(%rax,%rbx,2)",
            "8f@%xmm0",
            "3@%rax",
            "8@%ah",
            "8@%r16",
            "8@%r",
            "8@%",
            "8@",
            "@",
            "-@%rax",
            "8@$",
            "8@$x",
            "8@(%eax)",
            "8@99999999999(%rax)",
            "8@(%rax",
            "8@\u{b5}",
        ] {
            assert_eq!(places(unknown.as_bytes()), [Place::Unknown], "{unknown}");
        }
        assert_eq!(places(b""), []);
        assert_eq!(places(b"\xff 8@%rax"), []);
        assert_eq!(places(&b"8@%rax ".repeat(20)).len(), MOST_ARGUMENTS);
    }

    #[test]
    fn registers_are_where_the_kernel_has_them() {
        let offset = |name| register(name).unwrap().0.offset();
        for (name, expected) in [("r15", 0), ("rbx", 40), ("rax", 80), ("rdi", 112), ("esp", 152)] {
            assert_eq!(offset(name), expected, "{name}");
        }
    }

    fn found(sections: Vec<(&'static str, u64, Vec<u8>)>) -> Vec<(String, u64)> {
        let mut sample = Sample::of(&[("f", &[0x90, 0xc3, 0x0f, 0x1f, 0x44, 0, 0, 0x55])]);
        sample.sections = sections;
        let bytes = sample.bytes();
        let elf = Elf::parse(&bytes).unwrap();
        let name = |note: &Note<'_>| String::from_utf8_lossy(note.name).into_owned();
        let notes = notes(&elf);
        notes.iter().map(|note| (name(note), note.offset)).collect()
    }

    #[test]
    fn notes_are_found_where_there_is_a_nop() {
        let notes = [
            note_of("p", "one", CODE, 0x60_0000, "8@%rax"),
            note_of("p", "no_nop", CODE + 1, 0x60_0000, ""),
            note_of("p", "gone", 0, 0x60_0000, ""),
            note_of("p", "five", CODE + 2, 0x60_0000, ""),
            note_of("p", "beyond", CODE + 0x9999, 0x60_0000, ""),
        ]
        .concat();
        let all = found(vec![(".note.stapsdt", 0, notes.clone())]);
        let expected = [("one".to_owned(), 0x1000), ("five".to_owned(), 0x1002)];
        assert_eq!(all, expected);
        // A tool has moved the code by two bytes since.
        let moved = found(vec![(".note.stapsdt", 0, notes), (".stapsdt.base", 0x60_0002, vec![0])]);
        assert_eq!(moved, [("one".to_owned(), 0x1002)]);
    }

    #[test]
    fn damaged_notes_are_left_out() {
        let one = note_of("p", "one", CODE, 0, "8@%rax");
        for end in 0..one.len() - 4 {
            assert_eq!(found(vec![(".note.stapsdt", 0, one[..end].to_vec())]), []);
        }
        let mut other = one.clone();
        other[12] = b'X';
        let both = [other, one].concat();
        assert_eq!(found(vec![(".note.stapsdt", 0, both)]).len(), 1);
    }
}
