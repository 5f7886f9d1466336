//! Finds the calls in a file of functions of the table: the places to which they return.
//!
//! Many functions of libraries end in a jump to a function that only the running program knows, and
//! have no `ret` of their own. They return to the instruction after the one that called them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{Decoder, DecoderOptions};

use crate::entries;
use crate::image::ImageError;
use crate::symbols::{Elf, Kind};
use crate::table::{Pattern, Table};

/// The calls in a file, by the symbol of what is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Places in the file after calls, at which their return is seen.
    pub after: BTreeMap<String, BTreeSet<u64>>,
    /// Functions of other files that it may call.
    pub imports: BTreeSet<String>,
    /// Functions that end in a jump to another: first that function's symbol, then their own. Where
    /// those return to, it does.
    pub ends: BTreeSet<(String, String)>,
}

/// Names and addresses to look for in a file.
struct Search<'e, 'a> {
    elf: &'e Elf<'a>,
    /// Slots of the loader with the address of a function.
    slots: HashMap<u64, String>,
    /// Functions that are in the file. One that ends in a jump to a function counts as that.
    addresses: HashMap<u64, BTreeSet<String>>,
    /// Names of functions in the file.
    names: HashMap<u64, BTreeSet<String>>,
    /// Addresses at which functions begin.
    starts: Vec<u64>,
    left: usize,
}

/// An instruction that calls or jumps.
struct Branch {
    address: u64,
    next: u64,
    call: bool,
    to: BTreeSet<String>,
}

impl Calls {
    /// Looks through the bytes of a file.
    ///
    /// # Errors
    ///
    /// When they are no ELF program or library for x86-64.
    pub fn of(bytes: &[u8], table: &Table) -> Result<Self, ImageError> {
        let elf = Elf::parse(bytes).map_err(ImageError)?;
        let patterns: Vec<_> = (table.functions().iter())
            .map(|function| Pattern::of(&function.symbol))
            .collect();
        let wanted = |name: &[u8]| patterns.iter().any(|pattern| pattern.matches(name));
        Ok(Self::search(&elf, &wanted))
    }

    fn search(elf: &Elf<'_>, wanted: &dyn Fn(&[u8]) -> bool) -> Self {
        let mut search = Search::new(elf, wanted);
        let mut calls = Self {
            imports: search.slots.values().cloned().collect(),
            ..Self::default()
        };
        if search.slots.is_empty() && search.addresses.is_empty() {
            return calls;
        }
        for _ in 0..MOST_ENDS {
            let mut ending: HashMap<u64, BTreeSet<String>> = HashMap::new();
            for branch in search.branches() {
                let Some(start) = search.function(branch.address) else {
                    continue;
                };
                if branch.call {
                    let after = elf.offset(entries::after_call(elf, branch.next));
                    for (symbol, after) in branch.to.into_iter().zip(after.into_iter().cycle()) {
                        calls.after.entry(symbol).or_default().insert(after);
                    }
                    continue;
                }
                for own in search.names.get(&start).into_iter().flatten() {
                    let ends = branch.to.iter().map(|to| (to.clone(), own.clone()));
                    calls.ends.extend(ends.filter(|(to, own)| to != own));
                }
                ending.entry(start).or_default().extend(branch.to);
            }
            // A caller of a function that ends in a jump to another is a caller of that one, too.
            let mut more = false;
            for (start, to) in ending {
                let known = search.addresses.entry(start).or_default();
                let before = known.len();
                known.extend(to);
                more |= known.len() > before;
            }
            if !more {
                break;
            }
        }
        calls
    }
}

impl<'e, 'a> Search<'e, 'a> {
    fn new(elf: &'e Elf<'a>, wanted: &dyn Fn(&[u8]) -> bool) -> Self {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let mut slots = HashMap::new();
        elf.slots(|slot, symbol| {
            if slots.len() < MOST_NAMES && wanted(symbol.name) {
                slots.insert(slot, text(symbol.name));
            }
        });
        let mut addresses: HashMap<u64, BTreeSet<String>> = HashMap::new();
        let mut starts = elf.frames();
        elf.symbols(|symbol| {
            if let Kind::Function { address, .. } = symbol.kind {
                starts.push(address);
                if addresses.len() < MOST_NAMES && wanted(symbol.name) {
                    let names = addresses.entry(address).or_default();
                    names.insert(text(symbol.name));
                }
            }
        });
        starts.sort_unstable();
        starts.dedup();
        Self {
            elf,
            slots,
            names: addresses.clone(),
            addresses,
            starts,
            left: MOST_INSTRUCTIONS,
        }
    }

    /// The instructions that may call or jump to what is wanted, by their bytes alone.
    fn branches(&self) -> Vec<Branch> {
        let mut ways = Vec::new();
        for (start, code) in self.elf.codes() {
            for (at, &byte) in code.iter().enumerate() {
                // Most bytes begin nothing of interest.
                let (length, call, by_slot) = match (byte, code.get(at + 1)) {
                    (0xe8, _) => (5, true, false),
                    (0xe9, _) => (5, false, false),
                    (0xff, Some(0x15)) => (6, true, true),
                    (0xff, Some(0x25)) => (6, false, true),
                    (0x0f, Some(0x80..=0x8f)) => (6, false, false),
                    _ => continue,
                };
                let distance = code.get(at + length - 4..at + length);
                let distance = distance.and_then(|bytes| bytes.try_into().ok());
                let Some(distance) = distance.map(i32::from_le_bytes) else {
                    continue;
                };
                let address = start.wrapping_add(at as u64);
                let next = address.wrapping_add(length as u64);
                let target = next.wrapping_add_signed(distance.into());
                let to = match by_slot {
                    true => self.slots.get(&target).map(|name| [name.clone()].into()),
                    false => self.called(target),
                };
                if let Some(to) = to
                    && ways.len() < MOST_WAYS
                {
                    ways.push(Branch {
                        address,
                        next,
                        call,
                        to,
                    });
                }
            }
        }
        ways
    }

    /// Functions that a call of an address calls: the function there, or an entry of the linker's table (PLT), which
    /// jumps to the address in a slot.
    fn called(&self, target: u64) -> Option<BTreeSet<String>> {
        if let Some(names) = self.addresses.get(&target) {
            return Some(names.clone());
        }
        let (_, code) = self.elf.code(target)?;
        let rest = code.strip_prefix(b"\xf3\x0f\x1e\xfa").unwrap_or(code);
        let rest = rest.strip_prefix(b"\xf2").unwrap_or(rest);
        let distance = rest.strip_prefix(b"\xff\x25")?.get(..4)?;
        let distance = i32::from_le_bytes(distance.try_into().ok()?);
        let into = u64::try_from(code.len() - rest.len()).ok()?;
        let next = target.wrapping_add(into + 6);
        let slot = next.wrapping_add_signed(distance.into());
        Some([self.slots.get(&slot)?.clone()].into())
    }

    /// The beginning of the function in which an instruction is. `None` if none is there: the bytes
    /// are the middle of another instruction, and a breakpoint would destroy it.
    fn function(&mut self, address: u64) -> Option<u64> {
        let at = self.starts.partition_point(|&start| start <= address);
        let start = *self.starts.get(at.checked_sub(1)?)?;
        let (_, code) = self.elf.code(start)?;
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        while decoder.ip() < address && decoder.can_decode() {
            self.left = self.left.checked_sub(1)?;
            if decoder.decode().is_invalid() {
                return None;
            }
        }
        (decoder.ip() == address).then_some(start)
    }
}

/// A function that ends in a jump to a function that ends in a jump to a function…
const MOST_ENDS: usize = 4;
/// The table has fewer.
const MOST_NAMES: usize = 4096;
/// Calls of all functions together.
const MOST_WAYS: usize = 16 << 10;
/// Looked at to know that calls are calls.
const MOST_INSTRUCTIONS: usize = 8 << 20;
