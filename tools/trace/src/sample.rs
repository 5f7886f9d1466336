//! Small ELF files for tests, put together byte by byte.

/// The address at which a sample's code begins. The file begins 4 KiB before it.
pub(crate) const CODE: u64 = 0x40_1000;

/// Parts of a sample.
#[derive(Clone, Default)]
pub(crate) struct Sample {
    /// The section `.text`.
    pub(crate) code: Vec<u8>,
    /// Symbols of the dynamic table: name, place in the code, size. Without a place: imported.
    pub(crate) dynamic: Vec<(&'static str, Option<u64>, u64)>,
    /// Symbols of the other table; `None`: there is no such table.
    pub(crate) local: Option<Vec<(&'static str, u64, u64)>>,
    /// Slots for the loader: address, number of the dynamic symbol.
    pub(crate) slots: Vec<(u64, u32)>,
    /// The kind of all symbols: 2 is a function, 10 one that is chosen at run time.
    pub(crate) kind: u8,
    /// More sections: name, address, bytes.
    pub(crate) sections: Vec<(&'static str, u64, Vec<u8>)>,
}

impl Sample {
    /// One with these functions.
    pub(crate) fn of(functions: &[(&'static str, &[u8])]) -> Self {
        let mut sample = Self {
            kind: 2,
            ..Self::default()
        };
        for (name, code) in functions {
            let at = sample.code.len() as u64;
            sample.dynamic.push((name, Some(at), code.len() as u64));
            sample.code.extend(*code);
        }
        sample
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        // Name, kind, address, bytes, link, size of an entry.
        let mut sections = vec![("", 0u32, 0u64, Vec::new(), 0u32, 0u64)];
        sections.push((".text", 1, CODE, self.code.clone(), 0, 0));
        let place = |at: &Option<u64>| at.map(|at| CODE + at);
        let dynamic = self.dynamic.iter();
        let dynamic = dynamic.map(|(name, at, size)| (*name, place(at), *size));
        let (symbols, names) = self.table(dynamic);
        sections.push((".dynsym", 11, 0, symbols, 3, 24));
        sections.push((".dynstr", 3, 0, names, 0, 0));
        let mut slots = Vec::new();
        for (address, symbol) in &self.slots {
            // R_X86_64_JUMP_SLOT. Symbol 0 is none.
            slots.extend(address.to_le_bytes());
            slots.extend((u64::from(symbol + 1) << 32 | 7).to_le_bytes());
            slots.extend([0; 8]);
        }
        sections.push((".rela.plt", 4, 0, slots, 2, 24));
        if let Some(local) = &self.local {
            let local = local.iter().map(|(name, at, size)| (*name, Some(CODE + at), *size));
            let (symbols, names) = self.table(local);
            let link = sections.len() as u32 + 1;
            sections.push((".symtab", 2, 0, symbols, link, 24));
            sections.push((".strtab", 3, 0, names, 0, 0));
        }
        for (name, address, bytes) in &self.sections {
            sections.push((name, 1, *address, bytes.clone(), 0, 0));
        }
        let names: Vec<u8> = sections
            .iter()
            .flat_map(|section| [section.0.as_bytes(), b"\0"].concat())
            .collect();
        sections.push((".shstrtab", 3, 0, [&names[..], b".shstrtab\0"].concat(), 0, 0));

        let mut file = vec![0; 0x1000];
        let (mut headers, mut name) = (Vec::new(), 0u32);
        for (text, kind, address, bytes, link, entry) in &sections {
            let offset = if *kind == 0 { 0 } else { file.len() as u64 };
            headers.extend(name.to_le_bytes());
            headers.extend(kind.to_le_bytes());
            headers.extend(0u64.to_le_bytes());
            headers.extend(address.to_le_bytes());
            headers.extend(offset.to_le_bytes());
            headers.extend((bytes.len() as u64).to_le_bytes());
            headers.extend(link.to_le_bytes());
            headers.extend(0u32.to_le_bytes());
            headers.extend(1u64.to_le_bytes());
            headers.extend(entry.to_le_bytes());
            name += text.len() as u32 + 1;
            file.extend(bytes);
            file.resize(file.len().next_multiple_of(16), 0);
        }
        let head = self.head(file.len() as u64, sections.len() as u16);
        file[..head.len()].copy_from_slice(&head);
        file.extend(headers);
        file
    }

    /// The header of the file and that of its one segment.
    fn head(&self, sections: u64, count: u16) -> Vec<u8> {
        let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        head.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        head.extend(CODE.to_le_bytes());
        head.extend(64u64.to_le_bytes());
        head.extend(sections.to_le_bytes());
        head.extend([0; 4]);
        for number in [64, 56, 1, 64, count, count - 1] {
            head.extend(number.to_le_bytes());
        }
        // PT_LOAD, to be read and executed: from the beginning of the code to its end.
        let size = self.code.len() as u64;
        head.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        for number in [0x1000, CODE, CODE, size, size, 0x1000] {
            head.extend(number.to_le_bytes());
        }
        head
    }

    fn table<'s>(&self, symbols: impl Iterator<Item = (&'s str, Option<u64>, u64)>) -> (Vec<u8>, Vec<u8>) {
        let (mut table, mut names) = (vec![0; 24], vec![0]);
        for (name, address, size) in symbols {
            table.extend((names.len() as u32).to_le_bytes());
            // Global; in section 1, or in none.
            table.extend([1 << 4 | self.kind, 0, u8::from(address.is_some()), 0]);
            table.extend(address.unwrap_or(0).to_le_bytes());
            table.extend(size.to_le_bytes());
            names.extend([name.as_bytes(), b"\0"].concat());
        }
        (table, names)
    }
}

/// A note of a static probe: provider, name, its address, the address of the base, arguments.
pub(crate) fn note_of(provider: &str, name: &str, address: u64, base: u64, arguments: &str) -> Vec<u8> {
    let mut description = Vec::new();
    for number in [address, base, 0] {
        description.extend(number.to_le_bytes());
    }
    for text in [provider, name, arguments] {
        description.extend([text.as_bytes(), b"\0"].concat());
    }
    let mut note = Vec::new();
    for number in [8, description.len() as u32, 3] {
        note.extend(number.to_le_bytes());
    }
    note.extend(b"stapsdt\0");
    description.resize(description.len().next_multiple_of(4), 0);
    [note, description].concat()
}
