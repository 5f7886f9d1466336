//! Functions of an ELF file and the classes of their instructions.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use object::{Architecture, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use widelane_cpu::licence::{Class, Generation, Level};
use widelane_threads::RegularFile;

use crate::callers::References;
use crate::classify::class;

/// Wide code in one file.
#[derive(Clone, Debug)]
pub struct Image {
    /// The file.
    pub path: PathBuf,
    /// Functions with wide code, the heaviest first.
    pub functions: Vec<Function>,
    /// Functions looked at.
    pub examined: usize,
    /// Instructions looked at.
    pub instructions: u64,
    /// True if function bounds are from symbols (else from `.eh_frame`, or of whole sections).
    pub symbols: bool,
}

/// A function with wide code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name of the function, if a symbol has it.
    pub name: Option<String>,
    /// The label of the nearest text among the code, where there is no name: a hint.
    pub near: Option<String>,
    /// Named functions that lead to a nameless one in the fewest steps by calls, jumps or its address, if they do in a
    /// few. In alphabetical order.
    pub used_by: Vec<String>,
    /// Address of the function in the file.
    pub address: u64,
    /// Length of the function in bytes.
    pub size: u64,
    /// Instructions by [`Class`], in the order of [`Class::ALL`].
    pub counts: [u64; 6],
    /// Multiply-adds of 52-bit digits (VPMADD52) among them: a mark of public-key arithmetic.
    pub digit_products: u64,
}

impl Function {
    /// The heaviest class in it.
    pub fn class(&self) -> Class {
        let classes = Class::ALL.into_iter().zip(self.counts);
        let present = classes.filter(|&(_, count)| count > 0);
        present.map(|(class, _)| class).max().unwrap_or(Class::Scalar)
    }

    /// The licence level that its heaviest instructions ask for if they are many, on processors of
    /// a generation; `None` where nothing is published.
    pub fn level(&self, generation: Generation) -> Option<Level> {
        generation.level(self.class())
    }
}

/// Reason why a file could not be scanned.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// A process without a program.
    #[error("process {pid} has no program: it belongs to the kernel, or has ended")]
    NoProgram {
        /// Number of the process.
        pid: u32,
    },
    /// The file could not be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The file is no ELF file for x86-64, or a damaged one.
    #[error("{} is not an x86-64 ELF program or library: {why}", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// Fault of the file.
        why: String,
    },
    /// The process does not exist.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Number of the process.
        pid: u32,
    },
    /// The process belongs to another user.
    #[error("process {pid} belongs to another user: run as that user, or as root with CAP_SYS_PTRACE")]
    NotAllowed {
        /// Number of the process.
        pid: u32,
    },
}

/// Scans a program or library.
///
/// # Errors
///
/// When the file cannot be read, or is not a whole ELF file for x86-64.
pub fn scan_file(path: &Path) -> Result<Image, ScanError> {
    let data = RegularFile::named(path).and_then(|file| file.read(MOST_BYTES));
    let data = data.map_err(|cause| ScanError::Read {
        path: path.to_owned(),
        cause,
    })?;
    scan_bytes(path, &data)
}

/// Scans the contents of a file; `path` is for messages.
///
/// # Errors
///
/// When they are not a whole ELF file for x86-64.
pub fn scan_bytes(path: &Path, data: &[u8]) -> Result<Image, ScanError> {
    let not_elf = |why: String| ScanError::NotElf {
        path: path.to_owned(),
        why,
    };
    if data.get(..4) != Some(b"\x7fELF") {
        return Err(not_elf("it does not begin with the ELF mark".to_owned()));
    }
    let file = object::File::parse(data).map_err(|error| not_elf(error.to_string()))?;
    let other = match file.architecture() {
        Architecture::X86_64 => None,
        Architecture::I386 => Some("32-bit x86"),
        Architecture::Aarch64 => Some("AArch64"),
        Architecture::Arm => Some("32-bit ARM"),
        Architecture::Riscv64 => Some("RISC-V"),
        _ => Some("another architecture than x86-64"),
    };
    if let Some(other) = other {
        return Err(not_elf(format!("it is for {other}")));
    }
    let mut codes = Codes::default();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let bytes = section
            .data()
            .map_err(|_| not_elf("it is truncated: a section lies beyond its end".to_owned()))?;
        codes.add(section.address(), bytes);
    }
    if codes.0.is_empty() {
        return Err(not_elf("it has no code".to_owned()));
    }

    // A file may say the same bytes to be in any number of functions, and names.
    let mut budget = Budget(data.len().saturating_mul(MOST_USES));
    let overlap = || not_elf("it is damaged: its functions or names overlap".to_owned());
    let (bounds, symbols) = functions(&file, &codes, &mut budget).ok_or_else(overlap)?;
    let mut image = Image {
        path: path.to_owned(),
        functions: Vec::new(),
        examined: bounds.len(),
        instructions: 0,
        symbols,
    };
    let mut references = References::default();
    let labels = OnceCell::new();
    for (&address, bound) in &bounds {
        let Some(bytes) = codes.part(address, bound.size) else {
            continue;
        };
        budget.spend(bytes.len()).ok_or_else(overlap)?;
        let (counts, digit_products) = count(address, bytes, &mut references);
        image.instructions += counts.iter().sum::<u64>();
        if counts[Class::Light256 as usize..].iter().any(|&n| n > 0) {
            let near = match bound.name {
                None => labels.get_or_init(|| codes.labels()).near(address),
                Some(_) => None,
            };
            image.functions.push(Function {
                name: bound.name.map(demangled),
                near,
                used_by: Vec::new(),
                address,
                size: bound.size,
                counts,
                digit_products,
            });
        }
    }
    let sizes = bounds.iter().map(|(&address, bound)| (address, bound.size));
    let callers = references.callers(&sizes.collect());
    for function in &mut image.functions {
        if function.name.is_none() {
            function.used_by = callers.names(function.address, |address| {
                let name = demangled(bounds.get(&address)?.name?);
                // Hints, without which a file can do.
                budget.spend(name.len())?;
                Some(name)
            });
        }
    }
    image.functions.sort_by_key(|function| {
        let class = function.class();
        let many = function.counts[class as usize];
        std::cmp::Reverse((class, many, std::cmp::Reverse(function.address)))
    });
    Ok(image)
}

/// Instructions that may still be decoded.
struct Budget(usize);

impl Budget {
    /// `None` if that is too much.
    fn spend(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }
}

/// Sections of code by address.
#[derive(Default)]
struct Codes<'a>(BTreeMap<u64, &'a [u8]>);

impl<'a> Codes<'a> {
    /// Adds a function. Of several at an address, the longest counts.
    fn add(&mut self, address: u64, bytes: &'a [u8]) {
        let present = self.0.entry(address).or_default();
        if bytes.len() > present.len() {
            *present = bytes;
        }
    }

    /// The bytes of a function, if they lie in a section.
    fn part(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        let (start, bytes) = self.0.range(..=address).next_back()?;
        let from = usize::try_from(address - start).ok()?;
        let to = from.checked_add(usize::try_from(size).ok()?)?;
        bytes.get(from..to)
    }

    /// The labels of modules.
    fn labels(&self) -> Labels {
        let mut labels = BTreeMap::new();
        for (start, bytes) in &self.0 {
            for mark in MARKS {
                let hits = bytes.windows(mark.len()).enumerate();
                for (hit, _) in hits.filter(|(_, window)| *window == mark) {
                    let printable = |byte: &&u8| byte.is_ascii_graphic() || **byte == b' ';
                    let text = bytes[..hit].iter().rev().take(MOST_LABEL);
                    let before = text.take_while(printable).count();
                    let text = String::from_utf8_lossy(&bytes[hit - before..hit]);
                    let text = text.trim_end_matches([',', ' ']).to_owned();
                    labels.insert(start.saturating_add(hit as u64), text);
                }
            }
        }
        Labels(labels)
    }
}

/// Text among the code by address.
///
/// Assembly modules of cryptographic libraries name themselves in the section of their code, before
/// or after it.
struct Labels(BTreeMap<u64, String>);

impl Labels {
    /// The one nearest to an address, if it is near and says anything.
    fn near(&self, address: u64) -> Option<String> {
        let before = self.0.range(..=address).next_back();
        let after = self.0.range(address..).next();
        let nearest = [before, after].into_iter().flatten();
        let (at, text) = nearest.min_by_key(|(at, _)| at.abs_diff(address))?;
        (at.abs_diff(address) <= NEAR && !text.is_empty()).then(|| text.clone())
    }
}

/// A function's size, and its name if a symbol has one.
struct Bound<'a> {
    size: u64,
    name: Option<&'a str>,
}

/// Every function by address, and whether local symbols gave them. `None` if that is too much.
fn functions<'a>(
    file: &object::File<'a>,
    codes: &Codes<'_>,
    budget: &mut Budget,
) -> Option<(BTreeMap<u64, Bound<'a>>, bool)> {
    let mut bounds = BTreeMap::new();
    let mut symbols = false;
    let exported = file.dynamic_symbols().map(|symbol| (symbol, false));
    for (symbol, local) in exported.chain(file.symbols().map(|symbol| (symbol, true))) {
        if symbol.kind() == SymbolKind::Text && symbol.size() > 0 && symbol.is_definition() {
            symbols |= local;
            let name = symbol.name().ok().filter(|name| !name.is_empty());
            budget.spend(name.map_or(0, str::len))?;
            let size = symbol.size();
            bounds.insert(symbol.address(), Bound { size, name });
        }
    }
    for (address, size) in frames(file) {
        bounds.entry(address).or_insert(Bound { size, name: None });
    }
    if bounds.is_empty() {
        // Nothing delimits functions: each section is one.
        for (&address, code) in &codes.0 {
            let size = code.len() as u64;
            bounds.insert(address, Bound { size, name: None });
        }
    }
    Some((bounds, symbols))
}

/// Functions that `.eh_frame` delimits. Damaged entries end the list.
fn frames(file: &object::File<'_>) -> Vec<(u64, u64)> {
    let Some(section) = file.section_by_name(".eh_frame") else {
        return Vec::new();
    };
    let Ok(data) = section.data() else {
        return Vec::new();
    };
    let eh_frame = EhFrame::from(EndianSlice::new(data, LittleEndian));
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = file.section_by_name(".text") {
        bases = bases.set_text(text.address());
    }
    let mut found = Vec::new();
    let mut entries = eh_frame.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
            && fde.len() > 0
        {
            found.push((fde.initial_address(), fde.len()));
        }
    }
    found
}

/// Instructions of a function by class, and multiply-adds of 52-bit digits; notes what it refers
/// to.
fn count(address: u64, bytes: &[u8], references: &mut References) -> ([u64; 6], u64) {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut counts, mut digit_products) = ([0; 6], 0);
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if !instruction.is_invalid() {
            counts[class(&instruction) as usize] += 1;
            let product = matches!(instruction.mnemonic(), Mnemonic::Vpmadd52luq | Mnemonic::Vpmadd52huq);
            digit_products += u64::from(product);
            references.note(address, &instruction);
        }
    }
    (counts, digit_products)
}

/// Rust symbols as their source spells them, without the hash. What a name can expand to is cut
/// off.
fn demangled(name: &str) -> String {
    let mut short = Short(String::new());
    // The call fails where the text is cut off.
    let _ = write!(short, "{:#}", rustc_demangle::demangle(name));
    short.0
}

/// A text that takes no more than [`MOST_NAME`] bytes.
struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(MOST_NAME - self.0.len());
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Greatest distance of a label: one that is farther away is of no use.
const NEAR: u64 = 24 << 10;
/// Text that follows the name of a module in its label.
const MARKS: [&[u8]; 2] = [b"for x86_64", b"for Intel"];
/// No label is longer.
const MOST_LABEL: usize = 200;
/// Longer names are cut off.
const MOST_NAME: usize = 1024;
/// Larger files are refused: no program or library has this size.
pub(crate) const MOST_BYTES: u64 = 1 << 30;
/// Each byte of a file may be looked at so often, on an average.
const MOST_USES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object as Writer, Symbol, SymbolSection};
    use object::{BinaryFormat, Endianness, SymbolFlags, SymbolScope};

    /// An object file with these functions.
    fn file(functions: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = writer.section_id(object::write::StandardSection::Text);
        for (name, code) in functions {
            let value = writer.append_section_data(text, code, 16);
            writer.add_symbol(Symbol {
                name: name.as_bytes().to_vec(),
                value,
                size: code.len() as u64,
                kind: SymbolKind::Text,
                scope: SymbolScope::Linkage,
                weak: false,
                section: SymbolSection::Section(text),
                flags: SymbolFlags::None,
            });
        }
        writer.write().expect("a small object can be written")
    }

    // vpmadd52luq zmm0, zmm1, zmm2; vpaddq zmm0, zmm1, zmm2; vpaddq ymm0, ymm1, ymm2; ret
    const MADD: [u8; 6] = [0x62, 0xf2, 0xf5, 0x48, 0xb4, 0xc2];
    const WIDE: [u8; 6] = [0x62, 0xf1, 0xf5, 0x48, 0xd4, 0xc2];
    const HALF: [u8; 4] = [0xc5, 0xf5, 0xd4, 0xc2];
    const RET: [u8; 1] = [0xc3];

    #[test]
    fn the_heaviest_come_first_and_narrow_code_not_at_all() {
        let light = [&WIDE[..], &WIDE, &HALF, &RET].concat();
        let heavy = [&MADD[..], &WIDE, &RET].concat();
        let data = file(&[
            ("light", &light),
            ("narrow", &RET),
            ("heavy", &heavy),
            ("half", &[&HALF[..], &RET].concat()),
        ]);
        let image = scan_bytes(Path::new("test"), &data).unwrap();
        assert!(image.symbols && image.examined == 4 && image.instructions == 10);
        let found: Vec<_> = image
            .functions
            .iter()
            .map(|f| (f.name.as_deref().unwrap_or(""), f.class(), f.counts))
            .collect();
        assert_eq!(
            found,
            [
                ("heavy", Class::Heavy512, [1, 0, 0, 0, 1, 1]),
                ("light", Class::Light512, [1, 0, 1, 0, 2, 0]),
                ("half", Class::Light256, [1, 0, 1, 0, 0, 0]),
            ]
        );
        assert_eq!(image.functions[0].level(Generation::IceLake), Some(Level::L2));
        assert_eq!(image.functions[0].level(Generation::Zen5), Some(Level::L0));
    }

    #[test]
    fn files_that_are_no_programs_are_refused_with_the_reason() {
        let whole = file(&[("light", &[&WIDE[..], &RET].concat())]);
        let why = |data: &[u8]| {
            let error = scan_bytes(Path::new("culprit"), data).unwrap_err().to_string();
            assert!(error.contains("culprit"), "{error}");
            error
        };
        assert!(why(b"#!/bin/sh\n").contains("ELF mark"));
        assert!(why(b"").contains("ELF mark"));
        why(&whole[..70]);
        let mut arm = whole.clone();
        arm[18] = 0xb7;
        assert!(why(&arm).contains("AArch64"));
        // Wherever it is cut, it is refused or scanned in part, and never a panic.
        for length in 0..whole.len() {
            let _ = scan_bytes(Path::new("cut"), &whole[..length]);
        }
    }

    #[test]
    fn a_nameless_function_has_the_label_beside_it() {
        let mut codes = Codes::default();
        let text = b"\0\x90ChaCha20 for x86_64, by its author\0\x90\x90";
        codes.add(0x1000, text);
        codes.add(0x8000, b"Poly1305 for x86_64");
        let labels = codes.labels();
        assert_eq!(labels.near(0x1001).as_deref(), Some("ChaCha20"));
        assert_eq!(labels.near(0x7fff).as_deref(), Some("Poly1305"));
        assert_eq!(labels.near(0x8000 + 2 * NEAR), None);
    }

    #[test]
    fn functions_that_overlap_without_end_are_refused() {
        let mut writer = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = writer.section_id(object::write::StandardSection::Text);
        let bytes = vec![0x90; 1 << 16];
        writer.append_section_data(text, &bytes, 16);
        for at in 0..256 {
            writer.add_symbol(Symbol {
                name: b"f".to_vec(),
                value: at,
                size: bytes.len() as u64 - at,
                kind: SymbolKind::Text,
                scope: SymbolScope::Linkage,
                weak: false,
                section: SymbolSection::Section(text),
                flags: SymbolFlags::None,
            });
        }
        let error = scan_bytes(Path::new("x"), &writer.write().unwrap()).unwrap_err();
        assert!(error.to_string().contains("overlap"), "{error}");
    }

    #[test]
    fn names_are_cut_off_wherever_they_come_from() {
        let long = "é".repeat(MOST_NAME);
        let wide = [&WIDE[..], &RET].concat();
        let image = scan_bytes(Path::new("x"), &file(&[(&long, &wide)])).unwrap();
        let name = image.functions[0].name.as_deref().unwrap();
        assert_eq!(name, &long[..MOST_NAME]);
        assert_eq!(demangled("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        for (path, why) in [("/dev/zero", "device"), ("/", "directory")] {
            let error = scan_file(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(path) && error.contains(why), "{error}");
        }
    }
}
