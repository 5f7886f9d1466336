//! Libraries that an ELF file needs. The file may be anything: what is damaged is refused or left out.

use object::LittleEndian;
use object::elf::{
    DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_STRTAB, DataEncoding, ELFCLASS32, ELFCLASS64, ELFDATA2MSB, ELFMAG,
    EM_386, EM_X86_64, FileClass, FileHeader64, Machine, PT_INTERP, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB,
};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};

type Header = FileHeader64<LittleEndian>;

/// An ELF program or library for x86-64, as far as it says where its TLS comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// True if the file names a loader: others are static programs, or libraries.
    pub has_loader: bool,
    /// Names of the libraries that it needs.
    pub needed: Vec<String>,
    /// Folders in which the loader looks for them first.
    pub folders: Vec<String>,
    /// True if functions of libssl are in the file itself.
    pub has_libssl: bool,
    /// True if it is a Go program, whose TLS is mostly Go's own.
    pub is_go: bool,
}

/// What a file is that is no ELF file for x86-64: a part of a sentence whose subject is the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// A script, which another program runs.
    #[error("is a script")]
    Script,
    /// Something else.
    #[error("is no ELF file")]
    NoElf,
    /// An ELF file without a whole header.
    #[error("is a damaged ELF file")]
    Damaged,
    /// A 32-bit program of this machine, also of the x32 ABI.
    #[error("is a 32-bit program, which cannot load the provider: that is a 64-bit library")]
    Bits32,
    /// A program of another machine, which an emulator runs.
    #[error("is not for x86-64, and cannot load the provider, which is")]
    OtherMachine,
}

impl Unfit {
    /// Returns whether the file is a program into which no library for x86-64 can be loaded.
    pub(crate) fn is_of_other_kind(self) -> bool {
        matches!(self, Self::Bits32 | Self::OtherMachine)
    }

    /// Decides by the first bytes of a file, which ELF files of all classes have in common.
    fn of(data: &[u8]) -> Option<Self> {
        if data.starts_with(b"#!") {
            return Some(Self::Script);
        }
        if !data.starts_with(&ELFMAG) {
            return Some(Self::NoElf);
        }
        let (Some(class), Some(order), Some(machine)) = (data.get(4), data.get(5), data.get(18..20)) else {
            return Some(Self::Damaged);
        };
        let machine = [machine[0], machine[1]];
        let machine = match DataEncoding(*order) {
            ELFDATA2MSB => u16::from_be_bytes(machine),
            _ => u16::from_le_bytes(machine),
        };
        match (FileClass(*class), Machine(machine)) {
            (ELFCLASS32, EM_386 | EM_X86_64) => Some(Self::Bits32),
            (ELFCLASS64, EM_X86_64) => None,
            (ELFCLASS32 | ELFCLASS64, _) => Some(Self::OtherMachine),
            _ => Some(Self::Damaged),
        }
    }
}

impl Elf {
    /// Reads the content of a file.
    ///
    /// # Errors
    ///
    /// When it is no ELF file for x86-64: says what it is instead.
    pub fn parse(data: &[u8]) -> Result<Self, Unfit> {
        if let Some(unfit) = Unfit::of(data) {
            return Err(unfit);
        }
        let header = Header::parse(data).map_err(|_| Unfit::Damaged)?;
        let segments = header.program_headers(ENDIAN, data).map_err(|_| Unfit::Damaged)?;
        let mut elf = Self {
            has_loader: segments.iter().any(|one| one.p_type(ENDIAN) == PT_INTERP),
            has_libssl: defines(header, data, LIBSSL),
            is_go: (header.sections(ENDIAN, data)).is_ok_and(|all| all.section_by_name(ENDIAN, GO).is_some()),
            ..Self::default()
        };
        let dynamic = segments.iter().find_map(|one| one.dynamic(ENDIAN, data).ok()?);
        let entries = dynamic.unwrap_or_default().iter();
        let entries = entries
            .take(MOST_ENTRIES)
            .map(|entry| (entry.d_tag(ENDIAN), entry.d_val(ENDIAN)));
        let entries: Vec<_> = entries.take_while(|(tag, _)| *tag != DT_NULL).collect();
        let table = entries.iter().find(|(tag, _)| *tag == DT_STRTAB);
        let Some((_, table)) = table else {
            return Ok(elf);
        };
        // The table of names is an address: it lies in the file where a segment says so.
        let text = |offset: u64| -> Option<String> {
            let address = table.checked_add(offset)?;
            let bytes = segments.iter().find_map(|one| {
                let into = address.checked_sub(one.p_vaddr(ENDIAN))?;
                let bytes = one.data(ENDIAN, data).ok()?;
                bytes.get(usize::try_from(into).ok()?..)
            })?;
            let bytes = bytes.get(..MOST_NAME).unwrap_or(bytes);
            let end = bytes.iter().position(|byte| *byte == 0)?;
            Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
        };
        for (tag, offset) in &entries {
            match *tag {
                DT_NEEDED => elf.needed.extend(text(*offset)),
                DT_RPATH | DT_RUNPATH => {
                    let folders = text(*offset).unwrap_or_default();
                    elf.folders.extend(folders.split(':').map(str::to_owned));
                }
                _ => {}
            }
        }
        elf.folders.truncate(MOST_FOLDERS);
        Ok(elf)
    }
}

/// Returns whether a function with this name is in the file.
fn defines(header: &Header, data: &[u8], function: &[u8]) -> bool {
    let Ok(sections) = header.sections(ENDIAN, data) else {
        return false;
    };
    let in_table = |kind| {
        let table = sections.symbols(ENDIAN, data, kind).ok()?;
        let names = sections.section(table.string_section()).ok()?;
        let names = names.data(ENDIAN, data).ok()?;
        let mut symbols = table.iter();
        // No name is read to its end: a damaged file could have one long name many times.
        Some(symbols.any(|symbol| {
            let at = usize::try_from(symbol.st_name(ENDIAN)).unwrap_or(usize::MAX);
            let name = names.get(at..).unwrap_or_default();
            symbol.st_shndx(ENDIAN) != SHN_UNDEF && name.starts_with(function)
        }))
    };
    [SHT_DYNSYM, SHT_SYMTAB]
        .into_iter()
        .any(|kind| in_table(kind).unwrap_or_default())
}

const ENDIAN: LittleEndian = LittleEndian;
/// A function that every libssl has, with the end of its name.
const LIBSSL: &[u8] = b"SSL_do_handshake\0";
/// A section that every Go program has.
const GO: &[u8] = b".go.buildinfo";
/// Programs have some hundred entries.
const MOST_ENTRIES: usize = 4096;
/// Longest list of folders; names of files are shorter.
const MOST_NAME: usize = 4096;
/// Folders in which a program looks for its libraries: real ones name one or two.
const MOST_FOLDERS: usize = 64;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use object::elf::{ELFDATA2LSB, EM_AARCH64, EM_ARM, EM_S390};
    use proptest::prelude::*;

    /// A file that needs these libraries.
    pub(crate) fn sample(has_loader: bool, needed: &[&str], folders: Option<&str>) -> Vec<u8> {
        const BASE: u64 = 0x40_0000;
        let (mut names, mut dynamic) = (vec![0_u8], Vec::new());
        let texts = needed.iter().map(|name| (1_u64, *name));
        for (tag, text) in texts.chain(folders.map(|folders| (29, folders))) {
            dynamic.push((tag, names.len() as u64));
            names.extend(text.as_bytes());
            names.push(0);
        }
        let segments = 2 + u64::from(has_loader);
        let dynamic_at = 64 + 56 * segments;
        let names_at = dynamic_at + 16 * (dynamic.len() as u64 + 2);
        dynamic.extend([(5, BASE + names_at), (0, 0)]);
        let length = names_at + names.len() as u64;
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        // Entry, program headers, section headers; flags; sizes and numbers of headers.
        for number in [0_u64, 64, 0] {
            file.extend(number.to_le_bytes());
        }
        file.extend([0; 4]);
        for number in [64, 56, u16::try_from(segments).unwrap(), 64, 0, 0] {
            file.extend(number.to_le_bytes());
        }
        // Kind, offset, size.
        let mut headers = vec![(1_u32, 0, length), (2, dynamic_at, names_at - dynamic_at)];
        headers.extend(has_loader.then_some((3, 0, 0)));
        for (kind, offset, size) in headers {
            file.extend(kind.to_le_bytes());
            file.extend(4_u32.to_le_bytes());
            for number in [offset, BASE + offset, BASE + offset, size, size, 8] {
                file.extend(number.to_le_bytes());
            }
        }
        for (tag, value) in dynamic {
            file.extend(tag.to_le_bytes());
            file.extend(value.to_le_bytes());
        }
        file.extend(names);
        assert_eq!(file.len() as u64, length);
        file
    }

    /// The first bytes of a program of another class, byte order or machine.
    pub(crate) fn foreign_sample(class: FileClass, order: DataEncoding, machine: Machine) -> Vec<u8> {
        let mut file = sample(true, &["libssl.so.3"], None);
        (file[4], file[5]) = (class.0, order.0);
        let machine = match order {
            ELFDATA2MSB => machine.0.to_be_bytes(),
            _ => machine.0.to_le_bytes(),
        };
        file[18..20].copy_from_slice(&machine);
        file
    }

    /// A static Go program: a file with the section that tells so.
    pub(crate) fn go_sample() -> Vec<u8> {
        let names = b"\0.shstrtab\0.go.buildinfo\0";
        let mut file = sample(false, &[], None);
        let names_at = file.len() as u64;
        file.extend(names);
        let sections_at = file.len() as u64;
        // Name, kind; place and size in the file.
        for (name, kind, at, size) in [
            (0_u32, 0_u32, 0, 0),
            (1, 3, names_at, names.len() as u64),
            (11, 1, names_at, 1),
        ] {
            file.extend([name, kind].map(u32::to_le_bytes).concat());
            file.extend([0, 0, at, size, 0, 1, 0].map(u64::to_le_bytes).concat());
        }
        file[40..48].copy_from_slice(&sections_at.to_le_bytes());
        // Size and number of sections, and which has the names.
        file[58..64].copy_from_slice(&[64_u16, 3, 1].map(u16::to_le_bytes).concat());
        file
    }

    #[test]
    fn a_go_program_is_known_by_its_section() {
        assert!(Elf::parse(&go_sample()).unwrap().is_go);
    }

    #[test]
    fn needed_libraries_and_folders_are_read() {
        let file = sample(true, &["libssl.so.3", "libc.so.6"], Some("$ORIGIN/a:/b"));
        let expected = Elf {
            has_loader: true,
            needed: vec!["libssl.so.3".into(), "libc.so.6".into()],
            folders: vec!["$ORIGIN/a".into(), "/b".into()],
            ..Elf::default()
        };
        assert_eq!(Elf::parse(&file), Ok(expected));
        assert!(!Elf::parse(&sample(false, &[], None)).unwrap().has_loader);
    }

    #[test]
    fn this_program_needs_the_c_library_and_has_no_libssl() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let own = Elf::parse(&own).unwrap();
        assert!(own.needed.iter().any(|name| name.starts_with("libc.so")), "{own:?}");
        assert!(!own.has_libssl && !own.is_go);
        let header = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let parsed = Header::parse(&*header).unwrap();
        // A function that it has.
        assert!(defines(parsed, &header, b"main\0") || parsed.sections(ENDIAN, &*header).unwrap().is_empty());
    }

    #[test]
    fn other_files_are_named() {
        let why = |data: &[u8]| Elf::parse(data).unwrap_err();
        assert_eq!(why(b"#!/bin/sh\n"), Unfit::Script);
        assert_eq!(why(b""), Unfit::NoElf);
        assert_eq!(why(b"\x7fELF"), Unfit::Damaged);
        for (class, order, machine, expected) in [
            (ELFCLASS32, ELFDATA2LSB, EM_386, Unfit::Bits32),
            // The x32 ABI.
            (ELFCLASS32, ELFDATA2LSB, EM_X86_64, Unfit::Bits32),
            (ELFCLASS32, ELFDATA2LSB, EM_ARM, Unfit::OtherMachine),
            (ELFCLASS64, ELFDATA2LSB, EM_AARCH64, Unfit::OtherMachine),
            (ELFCLASS64, ELFDATA2MSB, EM_S390, Unfit::OtherMachine),
            (FileClass(7), ELFDATA2LSB, EM_X86_64, Unfit::Damaged),
        ] {
            assert_eq!(why(&foreign_sample(class, order, machine)), expected);
        }
    }

    #[test]
    fn a_file_that_is_cut_off_is_refused_or_read_in_part() {
        let whole = sample(true, &["libssl.so.3"], Some("/a"));
        for length in 0..whole.len() {
            if let Ok(elf) = Elf::parse(&whole[..length]) {
                assert!(elf.needed.len() <= 1);
            }
        }
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_panics(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        ) {
            let mut bytes = sample(true, &["libssl.so.3", "libc.so.6"], Some("/a:/b"));
            for (index, value) in changes {
                let at = index.index(bytes.len());
                bytes[at] = value;
            }
            let _ = Elf::parse(&bytes);
        }
    }
}
