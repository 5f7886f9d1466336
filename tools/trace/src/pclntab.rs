//! Go's own table of functions, which a program keeps when its symbols are stripped.
//!
//! Its runtime needs the table (`pclntab`) to walk stacks. The layout is that of Go 1.18 and later.

use crate::symbols::Elf;

/// The table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Functions<'a> {
    /// Pairs of two `u32`: where a function begins, from the beginning of the code, and where it is
    /// described, from the beginning of `descriptions`.
    entries: &'a [u8],
    descriptions: &'a [u8],
    names: &'a [u8],
    /// The address at which the code begins.
    text: u64,
}

impl<'a> Functions<'a> {
    /// Finds the table of a file.
    ///
    /// # Errors
    ///
    /// Why it is not understood. `Ok(None)`: the file is not Go's.
    pub(crate) fn of(elf: &Elf<'a>) -> Result<Option<Self>, String> {
        let sections = [&b".gopclntab"[..], b".data.rel.ro.gopclntab"];
        let Some((address, table)) = sections.into_iter().find_map(|name| elf.section(name)) else {
            return Ok(None);
        };
        let damaged = || "its Go table of functions is damaged".to_owned();
        let head = table.get(..8).ok_or_else(damaged)?;
        let magic = number(head, 0, 4).ok_or_else(damaged)?;
        if !MAGICS.contains(&magic) || head.get(7) != Some(&8) {
            return Err("its Go table of functions has an unknown layout".to_owned());
        }
        let field = |at: usize| number(table, 8 + 8 * at, 8);
        let part = |at: usize| table.get(usize::try_from(field(at)?).ok()?..);
        let functions = || {
            let count = usize::try_from(field(0)?).ok()?;
            let (names, descriptions) = (part(3)?, part(7)?);
            // One more, with only a beginning: the end of the code.
            let length = count.checked_mul(8)?.checked_add(4)?;
            let entries = descriptions.get(..length)?;
            Some((names, descriptions, entries))
        };
        let (names, descriptions, entries) = functions().ok_or_else(damaged)?;
        let text = text(elf, address, field(2)).ok_or("the beginning of its Go code is not known")?;
        Ok(Some(Self {
            entries,
            descriptions,
            names,
            text,
        }))
    }

    /// Shows the name, the address and the size of every function.
    pub(crate) fn each(&self, mut each: impl FnMut(&'a [u8], u64, u64)) {
        let ends = self.entries.chunks(8).skip(1);
        for (entry, next) in self.entries.chunks_exact(8).zip(ends) {
            let function = || {
                let start = number(entry, 0, 4)?;
                let size = number(next, 0, 4)?.checked_sub(start)?;
                let description = usize::try_from(number(entry, 4, 4)?).ok()?;
                let name = number(self.descriptions, description.checked_add(4)?, 4)?;
                let name = self.names.get(usize::try_from(name).ok()?..)?;
                let name = name.get(..MOST_NAME).unwrap_or(name);
                let name = name.split(|&byte| byte == 0).next()?;
                Some((name, self.text.checked_add(start)?, size))
            };
            if let Some((name, address, size)) = function() {
                each(name, address, size);
            }
        }
    }
}

/// The address at which Go's code begins: where C is linked in, that is not where the section of the
/// code begins.
fn text(elf: &Elf<'_>, table: u64, in_head: Option<u64>) -> Option<u64> {
    // The runtime's record of the program begins with the address of the table. Since Go 1.26 it has a
    // section of its own.
    let sections = [&b".go.module"[..], b".noptrdata", b".data", b".data.rel.ro"];
    let recorded = sections.into_iter().find_map(|name| {
        let (_, data) = elf.section(name)?;
        let words = data.chunks_exact(8);
        let at = words.clone().position(|word| number(word, 0, 8) == Some(table))?;
        number(data, 8 * (at + TEXT_IN_RECORD), 8)
    });
    // The head of the table had it before Go 1.26. In a program that is loaded anywhere, both may be
    // left for the loader to fill in.
    let section = || elf.section(b".text").map(|(address, _)| address);
    [recorded, in_head, section()]
        .into_iter()
        .flatten()
        .find(|&text| text != 0 && elf.offset(text).is_some())
}

/// A number of that many bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    let digits = bytes.iter().rev();
    Some(digits.fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// Magic numbers of Go 1.18 and of Go 1.20, which differ only in how lines are counted.
const MAGICS: [u64; 2] = [0xffff_fff0, 0xffff_fff1];
/// The address of the code in the runtime's record, in words: after the address of the table, six
/// slices, and three addresses.
const TEXT_IN_RECORD: usize = 1 + 6 * 3 + 3;
/// No name that is wanted is longer.
const MOST_NAME: usize = 512;
