//! The parts of an ELF file that say where its functions are.
//!
//! The file may be anything: what is damaged is refused or left out, each symbol is looked at once,
//! and no name is read farther than the longest that is wanted.

use object::elf::{
    EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_X, PT_INTERP, PT_LOAD, ProgramHeader64, R_X86_64_GLOB_DAT,
    R_X86_64_JUMP_SLOT, SHN_UNDEF, SHT_DYNSYM, SHT_RELA, SHT_SYMTAB, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE,
    SectionHeader64, SectionType, Sym64,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, SectionTable, Sym as _};
use object::{LittleEndian, SectionIndex};

type Header = FileHeader64<LittleEndian>;

/// An ELF program or library for x86-64.
#[derive(Clone, Debug)]
pub(crate) struct Elf<'a> {
    data: &'a [u8],
    loaded: bool,
    codes: Vec<Piece<'a>>,
    sections: SectionTable<'a, Header>,
    section_names: &'a [u8],
}

/// A part of the file that is loaded as code.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    address: u64,
    offset: u64,
    bytes: &'a [u8],
}

/// A symbol of a function, or one that is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol<'a> {
    /// Name of the symbol, without a version, cut.
    pub(crate) name: &'a [u8],
    /// Kind of the symbol.
    pub(crate) kind: Kind,
}

/// Kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A function that is in the file.
    Function {
        /// Address of the function.
        address: u64,
        /// Size of the function in bytes; 0 if the file does not say.
        size: u64,
    },
    /// A function that another file has.
    Import,
    /// Something else: data, or a function that is chosen at run time.
    Other,
}

impl<'a> Elf<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, String> {
        if data.get(..4) != Some(b"\x7fELF") {
            return Err("it does not begin with the ELF mark".to_owned());
        }
        let text = |error: object::Error| error.to_string();
        let header = Header::parse(data).map_err(text)?;
        let endian = header.endian().map_err(text)?;
        if header.e_machine(endian) != EM_X86_64 {
            return Err("it is not for x86-64".to_owned());
        }
        if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
            return Err("it is neither a program nor a shared library".to_owned());
        }
        let segments = header.program_headers(endian, data).map_err(text)?;
        // A program runs without sections. Then it has no symbols that could be found.
        let sections = header.sections(endian, data).unwrap_or_default();
        let codes = segments.iter().filter_map(|segment| piece(segment, data));
        let mut elf = Self {
            data,
            loaded: segments.iter().any(|one| one.p_type(ENDIAN) == PT_INTERP),
            codes: codes.take(MOST_CODES).collect(),
            sections,
            section_names: &[],
        };
        let names = header.shstrndx(endian, data).unwrap_or_default();
        let names = usize::try_from(names).unwrap_or_default();
        elf.section_names = elf.section_data(SectionIndex(names)).unwrap_or_default();
        Ok(elf)
    }

    /// Returns whether this is a static program: it names no loader, and it shares no symbol.
    pub(crate) fn is_static(&self) -> bool {
        // The first entry of each table is empty.
        let shares = self.table(SHT_DYNSYM).is_some_and(|(symbols, _)| symbols.len() > 1);
        !shares && !self.loaded
    }

    /// Returns whether the file has a table of all symbols, not only of those that it shares.
    pub(crate) fn has_symbols(&self) -> bool {
        let mut kinds = self.sections.iter().map(|section| section.sh_type(ENDIAN));
        kinds.any(|kind| kind == SHT_SYMTAB)
    }

    /// Shows every symbol of a function in both tables, local ones as well.
    pub(crate) fn symbols(&self, mut each: impl FnMut(Symbol<'a>)) {
        for kind in [SHT_DYNSYM, SHT_SYMTAB] {
            let Some((symbols, strings)) = self.table(kind) else {
                continue;
            };
            for symbol in symbols {
                if let Some(name) = name_at(strings, symbol.st_name(ENDIAN).into())
                    && !name.is_empty()
                {
                    let kind = kind_of(symbol);
                    each(Symbol { name, kind });
                }
            }
        }
    }

    /// Shows where the file keeps the addresses of functions that the loader finds by name: the
    /// address of each slot, and the function if this file has it, too.
    pub(crate) fn slots(&self, mut each: impl FnMut(u64, Symbol<'a>)) {
        let Some((symbols, strings)) = self.table(SHT_DYNSYM) else {
            return;
        };
        let tables = self.sections.iter();
        let tables = tables.filter(|section| section.sh_type(ENDIAN) == SHT_RELA);
        for section in tables.take(MOST_RELOCATION_TABLES) {
            let Ok(Some((entries, _))) = section.rela(ENDIAN, self.data) else {
                continue;
            };
            for entry in entries {
                let kind = entry.r_type(ENDIAN, false);
                if !matches!(kind, R_X86_64_JUMP_SLOT | R_X86_64_GLOB_DAT) {
                    continue;
                }
                let index = usize::try_from(entry.r_sym(ENDIAN, false)).unwrap_or(usize::MAX);
                if let Some(symbol) = symbols.get(index)
                    && let Some(name) = name_at(strings, symbol.st_name(ENDIAN).into())
                {
                    let kind = kind_of(symbol);
                    each(entry.r_offset(ENDIAN), Symbol { name, kind });
                }
            }
        }
    }

    /// A section's address and bytes.
    pub(crate) fn section(&self, name: &[u8]) -> Option<(u64, &'a [u8])> {
        let mut sections = self.sections.iter();
        // Not as `object` does it, which reads each name to its end, however far that is.
        let section =
            sections.find(|section| name_at(self.section_names, section.sh_name(ENDIAN).into()) == Some(name))?;
        let data = section.data(ENDIAN, self.data).ok()?;
        Some((section.sh_addr(ENDIAN), data))
    }

    /// Offset in the file of the code at an address.
    pub(crate) fn offset(&self, address: u64) -> Option<u64> {
        Some(self.code(address)?.0)
    }

    /// Offset in the file of the code at an address, and all code from there on in its segment.
    pub(crate) fn code(&self, address: u64) -> Option<(u64, &'a [u8])> {
        let mut codes = self.codes.iter();
        codes.find_map(|code| {
            let into = address.checked_sub(code.address)?;
            let bytes = code.bytes.get(usize::try_from(into).ok()?..)?;
            (!bytes.is_empty()).then(|| (code.offset + into, bytes))
        })
    }

    /// All code, in pieces with their addresses.
    pub(crate) fn codes(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        self.codes.iter().map(|code| (code.address, code.bytes))
    }

    /// Addresses of functions, from the table that the unwinder searches (`.eh_frame_hdr`).
    pub(crate) fn frames(&self) -> Vec<u64> {
        let Some((base, table)) = self.section(b".eh_frame_hdr") else {
            return Vec::new();
        };
        // Version 1; numbers of four bytes, those of the table signed and from its own beginning.
        if table.get(..4) != Some(&[1, 0x1b, 0x03, 0x3b]) {
            return Vec::new();
        }
        let pairs = table.get(12..).unwrap_or_default().chunks_exact(8);
        let pairs = pairs.take(MOST_STARTS);
        let starts = pairs.filter_map(|pair| {
            let distance = i32::from_le_bytes(pair.get(..4)?.try_into().ok()?);
            base.checked_add_signed(distance.into())
        });
        starts.collect()
    }

    fn table(&self, kind: SectionType) -> Option<(&'a [Sym64<LittleEndian>], &'a [u8])> {
        let table = self.sections.symbols(ENDIAN, self.data, kind).ok()?;
        let strings = self.section_data(table.string_section())?;
        Some((table.symbols(), strings))
    }

    fn section_data(&self, index: SectionIndex) -> Option<&'a [u8]> {
        let section: &SectionHeader64<LittleEndian> = self.sections.section(index).ok()?;
        section.data(ENDIAN, self.data).ok()
    }
}

/// The code of a segment, as far as it is in the file.
fn piece<'a>(segment: &ProgramHeader64<LittleEndian>, data: &'a [u8]) -> Option<Piece<'a>> {
    let code = segment.p_type(ENDIAN) == PT_LOAD && segment.p_flags(ENDIAN).0 & PF_X.0 != 0;
    let offset = code.then(|| segment.p_offset(ENDIAN))?;
    let from = usize::try_from(offset).ok()?;
    let to = from.checked_add(usize::try_from(segment.p_filesz(ENDIAN)).ok()?)?;
    Some(Piece {
        address: segment.p_vaddr(ENDIAN),
        offset,
        bytes: data.get(from..to)?,
    })
}

fn kind_of(symbol: &Sym64<LittleEndian>) -> Kind {
    let (address, size) = (symbol.st_value(ENDIAN), symbol.st_size(ENDIAN));
    match (symbol.st_type(), symbol.st_shndx(ENDIAN)) {
        (STT_FUNC | STT_NOTYPE | STT_GNU_IFUNC, SHN_UNDEF) => Kind::Import,
        (STT_FUNC, _) if address != 0 => Kind::Function { address, size },
        _ => Kind::Other,
    }
}

/// The text at an offset, without a version: old tools write `name@VERSION` into the table.
fn name_at(strings: &[u8], offset: u64) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(offset).ok()?..)?;
    let rest = rest.get(..MOST_NAME).unwrap_or(rest);
    let end = rest.iter().position(|&byte| byte == 0 || byte == b'@');
    Some(end.map_or(rest, |end| &rest[..end]))
}

const ENDIAN: LittleEndian = LittleEndian;
/// No name that is wanted is longer.
const MOST_NAME: usize = 512;
/// The largest browsers have half as many functions. A file that was made for it could have a hundred times more.
const MOST_STARTS: usize = 4 << 20;
/// Room for one, or a few where a linker has cut the code.
const MOST_CODES: usize = 8;
/// Room for `.rela.dyn`, `.rela.plt` and some more.
const MOST_RELOCATION_TABLES: usize = 8;
