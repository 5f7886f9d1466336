//! Finds the functions and static probes of a program or library.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::entries;
use crate::functions::Function;
use crate::marks::{Mark, Tells};
use crate::notes::{Place, notes};
use crate::pclntab;
use crate::returns::{MOST_IN_FILE, Ways};
use crate::search::Search;
use crate::state;
use crate::symbols::{Elf, Kind};
use crate::table::Table;

/// Functions and static probes found in one file.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Functions of the table, by their place.
    pub functions: Vec<Located>,
    /// Static probes of the table, by their place.
    pub marks: Vec<Marked>,
    /// True if the Go compiler made the file.
    pub go: bool,
    /// True if the file calls functions of the table in other files.
    pub imports: bool,
    /// Reason why functions that are there may not have been found.
    pub blind: Option<String>,
}

/// A function of the table in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// Row of the function in the table.
    pub function: Arc<Function>,
    /// Whole symbol of the function; bytes that are no text are replaced.
    pub symbol: String,
    /// Offset of the function in the file.
    pub entry: u64,
    /// Offset of the probe that sees the entry: the function's own, or a few instructions behind.
    pub probe: u64,
    /// Places in the file of the instructions by which the function is left, or why they cannot all be known.
    pub leaves: Result<Vec<u64>, String>,
    /// True for a function of Go.
    pub goroutine: bool,
    /// Offset in the function's object, in bytes, at which the library notes whether a handshake is under way, if this
    /// function goes on with one then.
    pub state: Option<u32>,
}

/// A static probe of the table at one place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Row of the static probe in the table.
    pub mark: Arc<Mark>,
    /// Offset of the probe's `nop` in the file.
    pub offset: u64,
    /// Places of the probe's arguments.
    pub places: Vec<Place>,
}

/// Reason why a file has no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not an x86-64 ELF program or library: {0}")]
pub struct ImageError(pub(crate) String);

impl Image {
    /// Looks through the bytes of a file.
    ///
    /// # Errors
    ///
    /// When they are no ELF program or library for x86-64.
    pub fn of(bytes: &[u8], table: &Table) -> Result<Self, ImageError> {
        let elf = Elf::parse(bytes).map_err(ImageError)?;
        let mut search = Search::new(table);
        elf.symbols(|symbol| search.symbol(symbol.name, symbol.kind));
        let go = pclntab::Functions::of(&elf);
        let mut blind = None;
        match &go {
            // Stripped: its functions are in Go's own table only.
            Ok(Some(functions)) if !elf.has_symbols() => {
                functions.each(|name, address, size| {
                    search.symbol(name, Kind::Function { address, size });
                });
            }
            Err(why) => blind = Some(why.clone()),
            Ok(None) if !elf.has_symbols() && elf.is_static() && search.is_empty() => {
                blind = Some("it is static and stripped".to_owned());
            }
            Ok(_) => {}
        }
        let is_go = !matches!(go, Ok(None));
        Ok(Self {
            imports: search.imports,
            functions: locate(&elf, search, table, is_go),
            marks: marks(&elf, table),
            go: is_go,
            blind,
        })
    }

    /// Returns whether static probes report the file's handshakes. Then they report the functions inside, too.
    pub(crate) fn tells_handshakes(&self) -> bool {
        let mut marks = self.marks.iter();
        marks.any(|one| one.mark.tells == Tells::HandshakeEnded)
    }
}

fn locate(elf: &Elf<'_>, search: Search<'_>, table: &Table, go: bool) -> Vec<Located> {
    let mut slots = HashMap::new();
    elf.slots(|slot, symbol| {
        if let Kind::Function { address, .. } = symbol.kind {
            slots.insert(slot, address);
        }
    });
    let slot = |slot| slots.get(&slot).copied();
    let ways = Ways {
        elf,
        slot: &slot,
        go,
        left: Cell::new(MOST_IN_FILE),
    };
    let mut functions: Vec<Located> = Vec::new();
    for (address, found) in search.best() {
        let Some(entry) = elf.offset(address) else {
            continue;
        };
        let returns = ways.returns(address, found.size);
        let leaves = returns.map(|found| {
            let places = found.into_iter();
            places.filter_map(|at| elf.offset(at)).collect()
        });
        functions.push(Located {
            goroutine: table.is_goroutine(found.function),
            function: Arc::clone(found.function),
            symbol: String::from_utf8_lossy(found.name).into_owned(),
            entry,
            probe: probe(elf, go, address, found.size).unwrap_or(entry),
            leaves,
            state: None,
        });
    }
    find_states(elf, &mut functions);
    functions.sort_by_key(|located| located.entry);
    functions
}

fn find_states(elf: &Elf<'_>, functions: &mut [Located]) {
    let with_state = functions.iter().filter_map(|one| one.function.state.clone());
    let mut fields: HashMap<String, Option<u32>> = with_state.map(|one| (one, None)).collect();
    if fields.is_empty() {
        return;
    }
    elf.symbols(|symbol| {
        if let Kind::Function { address, size } = symbol.kind
            && let Ok(name) = str::from_utf8(symbol.name)
            && let Some(found @ None) = fields.get_mut(name)
        {
            *found = state::field(elf, address, size);
        }
    });
    for one in functions {
        let symbol = one.function.state.as_ref();
        one.state = symbol.and_then(|symbol| *fields.get(symbol)?);
    }
}

fn probe(elf: &Elf<'_>, go: bool, address: u64, size: u64) -> Option<u64> {
    // Go's functions look first whether their stack is large enough, and start anew if not.
    match go {
        true => None,
        false => elf.offset(entries::place(elf, address, size)),
    }
}

fn marks(elf: &Elf<'_>, table: &Table) -> Vec<Marked> {
    let mut marks: Vec<Marked> = Vec::new();
    for note in notes(elf) {
        if let Some(mark) = table.mark(note.provider, note.name) {
            marks.push(Marked {
                mark: Arc::clone(mark),
                offset: note.offset,
                places: note.places,
            });
        }
    }
    marks.sort_by_key(|marked| marked.offset);
    // Two probes at one place cannot be distinguished.
    marks.dedup_by_key(|marked| marked.offset);
    marks
}

/// Returns whether `wanted` is among the bytes.
pub(crate) fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Calls;
    use crate::sample::{CODE, Sample};
    use proptest::prelude::*;

    const RET: &[u8] = &[0xc3];

    fn image(sample: &Sample) -> Image {
        Image::of(&sample.bytes(), &Table::builtin()).unwrap()
    }

    fn found(image: &Image) -> Vec<(&str, &str, u64)> {
        let functions = image.functions.iter();
        let found = functions.map(|one| (&*one.function.library, &*one.symbol, one.entry));
        found.collect()
    }

    #[test]
    fn symbols_of_both_tables_are_found_once_and_with_a_version_too() {
        let mut sample = Sample::of(&[("SSL_read", RET), ("other", RET)]);
        sample.local = Some(vec![("SSL_read", 0, 1), ("SSL_free@OLD", 1, 1)]);
        let image = image(&sample);
        let expected = [("openssl", "SSL_read", 0x1000), ("openssl", "SSL_free", 0x1001)];
        assert_eq!(found(&image), expected);
        assert_eq!(image.functions[0].leaves, Ok(vec![0x1000]));
        assert!(image.blind.is_none() && !image.go);
    }

    /// Browsers have some hundred thousand. Each is looked at once, and none but those of the table is kept.
    #[test]
    fn a_million_symbols_are_looked_through() {
        let mut sample = Sample::of(&[("other", RET)]);
        let mut symbols = vec![("_ZN7content6layout5blockC2ERKNS_4nodeE", 0, 1); 1_000_000];
        symbols.push(("SSL_read", 0, 1));
        sample.local = Some(symbols);
        assert_eq!(found(&image(&sample)), [("openssl", "SSL_read", 0x1000)]);
    }

    #[test]
    fn where_the_state_of_a_handshake_is_comes_from_the_file() {
        // mov 0x64(%rdi), %eax; ret
        let state: &[u8] = &[0x8b, 0x47, 0x64, 0xc3];
        let states = |functions: &[(&'static str, &[u8])]| {
            let image = image(&Sample::of(functions));
            image.functions.iter().map(|one| one.state).collect::<Vec<_>>()
        };
        let (read, free) = (("SSL_read", RET), ("SSL_free", RET));
        assert_eq!(states(&[read, free, ("SSL_in_init", state)]), [Some(0x64), None]);
        assert_eq!(states(&[read, ("SSL_in_init", RET)]), [None]);
        assert_eq!(states(&[read]), [None]);
    }

    #[test]
    fn what_is_chosen_at_run_time_is_no_function_and_what_is_imported_is_not_here() {
        let mut sample = Sample::of(&[("SSL_read", RET)]);
        sample.kind = 10;
        assert_eq!(found(&image(&sample)), []);
        sample.kind = 2;
        sample.dynamic = vec![("SSL_read", None, 0)];
        sample.local = Some(Vec::new());
        let image = image(&sample);
        assert!(image.functions.is_empty() && image.imports && image.blind.is_none());
    }

    #[test]
    fn boringssl_is_distinguished_from_openssl() {
        let names = |functions: &[(&'static str, &[u8])]| {
            let image = image(&Sample::of(functions));
            let names = image.functions.iter().map(|one| one.function.library.clone());
            names.collect::<Vec<_>>()
        };
        let open = ("SSL_do_handshake", RET);
        assert_eq!(names(&[open]), ["openssl"]);
        assert_eq!(names(&[open, ("CRYPTO_BUFFER_new", RET)]), ["boringssl"]);
        let prefixed = ("aws_lc_0_39_1_CRYPTO_BUFFER_new", RET);
        assert_eq!(names(&[open, prefixed]), ["boringssl"]);
        // LibreSSL has this, and OpenSSL's functions.
        assert_eq!(names(&[open, ("EVP_AEAD_CTX_seal", RET)]), ["openssl"]);
        let prefixed = [
            ("aws_lc_0_39_1_EVP_AEAD_CTX_seal", RET),
            ("aws_lc_0_39_1_RSA_sign", RET),
        ];
        assert_eq!(names(&prefixed), ["boringssl"]);
        assert!(names(&[("X25519", RET)]).is_empty(), "nothing says whose it is");
    }

    #[test]
    fn go_s_table_is_read_where_the_symbols_are_stripped() {
        let mut sample = Sample::of(&[("f", &[0x90, 0x90, 0xc3, 0x90, 0xc3])]);
        sample.dynamic.clear();
        sample.sections = go_sections(CODE + 1);
        let image = image(&sample);
        assert!(image.go && image.blind.is_none());
        let expected = [
            ("go", "crypto/tls.(*Conn).Close", 0x1001),
            ("go", "crypto/tls.(*Conn).Read", 0x1003),
        ];
        assert_eq!(found(&image), expected);
        let leaves = image.functions.iter().map(|one| one.leaves.clone());
        let expected = [Ok(vec![0x1002]), Ok(vec![0x1004])];
        assert_eq!(leaves.collect::<Vec<_>>(), expected);
        assert!(image.functions.iter().all(|one| one.goroutine));

        sample.sections[0].2[0] = 0xee;
        let image = self::image(&sample);
        assert!(image.go && image.blind.unwrap().contains("unknown layout"));
    }

    /// A Go program's table of two functions, each of two bytes, and the runtime's record of it.
    fn go_sections(text: u64) -> Vec<(&'static str, u64, Vec<u8>)> {
        let names = b"crypto/tls.(*Conn).Close\0crypto/tls.(*Conn).Read\0";
        let names_at = 8 + 8 * 8;
        let functions_at = names_at + names.len() as u64;
        let mut table = vec![0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        for field in [2, 0, 0, names_at, 0, 0, 0, functions_at] {
            table.extend(field.to_le_bytes());
        }
        table.extend(names);
        // Beginnings and descriptions; then each description: the beginning again, and the name.
        for number in [0u32, 20, 2, 28, 4, 0, 0, 2, 25] {
            table.extend(number.to_le_bytes());
        }
        let mut record = vec![0; 8 * 30];
        record[..8].copy_from_slice(&0x60_0000u64.to_le_bytes());
        record[8 * 22..8 * 23].copy_from_slice(&text.to_le_bytes());
        vec![(".gopclntab", 0x60_0000, table), (".go.module", 0x70_0000, record)]
    }

    /// A file that has something of everything.
    fn rich() -> Vec<u8> {
        let call = [0xe8, 0xfb, 0xff, 0xff, 0xff, 0xff, 0x15, 0, 1, 0, 0, 0xc3];
        let mut sample = Sample::of(&[("SSL_read", &[0xeb, 0xfe, 0xc3]), ("f", &call)]);
        sample.dynamic.push(("SSL_do_handshake", None, 0));
        sample.slots = vec![(CODE + 0x10e, 2)];
        sample.local = Some(vec![("SSL_accept", 3, 12)]);
        sample.sections = go_sections(CODE);
        sample.bytes()
    }

    #[test]
    fn places_after_calls_are_found_where_calls_are() {
        let call: &[u8] = &[0xff, 0x15, 0xfa, 0, 0, 0, 0xc3];
        let code = [call, &[0xb8, 0xff, 0x15, 0xfa, 0, 0, 0, 0xc3]].concat();
        let mut sample = Sample::of(&[("f", &code)]);
        sample.dynamic.push(("SSL_do_handshake", None, 0));
        // The second is the operand of another instruction.
        sample.slots = vec![(CODE + 0x100, 1), (CODE + 0x108, 1)];
        let calls = Calls::of(&sample.bytes(), &Table::builtin()).unwrap();
        let after = calls.after.get("SSL_do_handshake").unwrap();
        assert_eq!(after.iter().collect::<Vec<_>>(), [&0x1006]);
    }

    #[test]
    fn whatever_is_cut_off_is_refused_or_found_in_part() {
        let (bytes, table) = (rich(), Table::builtin());
        assert!(Image::of(&bytes, &table).is_ok());
        assert!(Calls::of(&bytes, &table).is_ok());
        for length in (0..bytes.len()).filter(|length| *length < 200 || *length > 0x1000) {
            let cut = &bytes[..length];
            let image = Image::of(cut, &table);
            let places = image.iter().flat_map(|image| &image.functions);
            assert!(places.map(|one| one.entry).all(|entry| entry < length as u64));
            let _ = Calls::of(cut, &table);
        }
        let error = |bytes: &[u8]| Image::of(bytes, &table).unwrap_err();
        assert!(error(b"#!/bin/sh").to_string().contains("ELF mark"));
        let mut other = bytes.clone();
        other[18] = 0xb7;
        assert!(error(&other).to_string().contains("x86-64"));
        other[18] = 62;
        other[16] = 1;
        assert!(error(&other).to_string().contains("neither"));
    }

    proptest! {
        #[test]
        fn whatever_the_bytes_nothing_panics(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        ) {
            let mut bytes = rich();
            // Most of the first page is padding.
            let interesting: Vec<_> = (0..bytes.len()).filter(|at| !(120..0x1000).contains(at)).collect();
            for (index, value) in changes {
                bytes[*index.get(&interesting)] = value;
            }
            let table = Table::builtin();
            if let Ok(image) = Image::of(&bytes, &table) {
                for one in &image.functions {
                    prop_assert!(one.entry < bytes.len() as u64);
                }
            }
            let _ = Calls::of(&bytes, &table);
        }
    }
}
