//! Taking the place of OpenSSL's functions without LD_PRELOAD: the addresses that the program and
//! its libraries import are replaced by those of this library.
//!
//! The dynamic linker has resolved each import into a slot of the object that imports it (System V
//! ABI for AMD64, section 5.2: `R_X86_64_JUMP_SLOT` and `R_X86_64_GLOB_DAT`). This module walks over
//! the objects of the process, compares the names of their imports with those of the stand-ins, and
//! writes the slots. The provider asks for it while OpenSSL reads its configuration. Objects that
//! are loaded later are looked at when the server loads a private key.
//!
//! Slots may lie in memory that the linker has made read-only (RELRO): it is writable while the slot
//! is written.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::{mem, ptr, slice};

use libc::{Elf64_Addr, Elf64_Phdr, Elf64_Rela, Elf64_Sym, dl_phdr_info};

use crate::boundary::guarded;

/// Finds the function that stands in for the one with a name.
pub(crate) type StandIn = fn(&CStr) -> Option<*const c_void>;

/// Replaces the imports of every object that was not looked at yet. Returns how many imports of
/// OpenSSL's functions were replaced in all.
pub(crate) fn take(stand_in: StandIn) -> usize {
    let _ = STAND_IN.set(stand_in);
    take_new()
}

/// Replaces imports in files that were loaded since; does nothing before [`take`] was called.
pub(crate) fn take_new() -> usize {
    let Some(stand_in) = STAND_IN.get() else {
        return 0;
    };
    // A thread that waited for another one here could keep that one from ending: it may be loading a library,
    // and fork meanwhile.
    let Ok(mut seen) = SEEN.try_lock() else {
        return TAKEN.load(Relaxed);
    };
    let mut walk = Walk {
        seen: &mut seen,
        own: own_base(),
        stand_in: *stand_in,
        taken: 0,
    };
    // SAFETY: the function calls `look` with the structure that it is given, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut walk).cast()) };
    TAKEN.fetch_add(walk.taken, Relaxed) + walk.taken
}

/// A walk over the objects of the process.
struct Walk<'a> {
    /// The addresses of those that were looked at before.
    seen: &'a mut Vec<u64>,
    own: u64,
    stand_in: StandIn,
    taken: usize,
}

unsafe extern "C" fn look(info: *mut dl_phdr_info, _: usize, walk: *mut c_void) -> c_int {
    guarded(|| {
        // SAFETY: `take_new` passes its own structure, and the linker a whole description.
        unsafe { look_at(&*info, &mut *walk.cast::<Walk<'_>>()) }
    });
    0
}

/// # Safety
///
/// The object must be loaded, and stay so during the call.
unsafe fn look_at(info: &dl_phdr_info, walk: &mut Walk<'_>) {
    let base = info.dlpi_addr;
    if base == walk.own || walk.seen.contains(&base) {
        return;
    }
    walk.seen.push(base);
    // SAFETY: the caller's promise.
    if let Some(object) = unsafe { Object::of(info) } {
        walk.taken += object.take(walk.stand_in);
    }
}

/// Address at which this library is loaded: its own imports are the originals.
fn own_base() -> u64 {
    let mut found: libc::Dl_info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: an address in this library, and a place for the answer.
    unsafe { libc::dladdr(take as *const c_void, &mut found) };
    found.dli_fbase.addr() as u64
}

/// The part of an object's dynamic section that tells its imports.
struct Object {
    base: u64,
    symbols: *const Elf64_Sym,
    names: *const c_char,
    relocations: [&'static [Elf64_Rela]; 2],
    /// Range that the linker made read-only.
    relro: (u64, u64),
}

impl Object {
    /// # Safety
    ///
    /// The object must be loaded. What this returns must not outlive it.
    unsafe fn of(info: &dl_phdr_info) -> Option<Self> {
        let base = info.dlpi_addr;
        // SAFETY: the caller's promise: program headers are mapped as the linker says.
        let headers: &[Elf64_Phdr] = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let find = |kind| headers.iter().find(|header| header.p_type == kind);
        let dynamic = find(libc::PT_DYNAMIC)?;
        let relro = find(libc::PT_GNU_RELRO).map(|header| read_only(base + header.p_vaddr, header.p_memsz));
        let entries = at::<[u64; 2]>(base + dynamic.p_vaddr);
        let most = dynamic.p_memsz as usize / size_of::<[u64; 2]>();
        let value = |tag: u64| {
            (0..most)
                // SAFETY: the section is mapped and has this many entries at most.
                .map(|i| unsafe { *entries.add(i) })
                .take_while(|[tag, _]| *tag != DT_NULL)
                .find_map(|[found, value]| (found == tag).then_some(value))
        };
        // glibc has replaced the addresses in the section by those in memory, except for the vDSO.
        let address = |tag| value(tag).filter(|address| *address >= base);
        let table = |start, bytes| {
            let start = address(start).unwrap_or_default();
            let count = match start {
                0 => 0,
                _ => value(bytes).unwrap_or_default() as usize / size_of::<Elf64_Rela>(),
            };
            match count {
                0 => &[][..],
                // SAFETY: the table is mapped and has this many bytes. The linker wrote it before.
                _ => unsafe { slice::from_raw_parts(at::<Elf64_Rela>(start), count) },
            }
        };
        let has_addends = value(DT_PLTREL).is_none_or(|kind| kind == DT_RELA);
        Some(Self {
            base,
            symbols: at(address(DT_SYMTAB)?),
            names: at(address(DT_STRTAB)?),
            relocations: [
                table(DT_RELA, DT_RELASZ),
                match has_addends {
                    true => table(DT_JMPREL, DT_PLTRELSZ),
                    false => &[],
                },
            ],
            relro: relro.unwrap_or_default(),
        })
    }

    /// Writes the slots of the functions that have stand-ins, and counts those of OpenSSL.
    fn take(&self, stand_in: StandIn) -> usize {
        let mut taken = 0;
        for relocation in self.relocations.iter().copied().flatten() {
            let kind = relocation.r_info & 0xffff_ffff;
            if !matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) {
                continue;
            }
            let index = (relocation.r_info >> 32) as usize;
            // SAFETY: the linker has resolved this relocation by the same symbol and its name.
            let (symbol, name) = unsafe {
                let symbol = &*self.symbols.add(index);
                (symbol, CStr::from_ptr(self.names.add(symbol.st_name as usize)))
            };
            if symbol.st_name != 0
                && let Some(stand_in) = stand_in(name)
                && self.write(self.base + relocation.r_offset, stand_in as u64)
            {
                taken += usize::from(name.to_bytes().starts_with(b"SSL_"));
            }
        }
        taken
    }

    /// Writes a slot; false if its memory cannot be made writable.
    fn write(&self, slot: Elf64_Addr, value: u64) -> bool {
        let page = page_of(slot);
        let is_read_only = (self.relro.0..self.relro.1).contains(&slot);
        let protect = |how| {
            // SAFETY: a page of an object's data, which stays readable. No code relies on writes to
            // it failing.
            !is_read_only || unsafe { libc::mprotect(at_mut(page), PAGE as usize, how) } == 0
        };
        if !protect(libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        // SAFETY: a slot of 8 aligned bytes, which the linker too writes while the program runs. The
        // stand-in has the type of the function that it replaces.
        unsafe { (*at_mut::<AtomicUsize>(slot)).store(value as usize, Relaxed) };
        protect(libc::PROT_READ);
        true
    }
}

/// The pages that the linker makes read-only for this part of an object: a page in which the part ends stays
/// writable, because the object's data goes on there.
fn read_only(start: u64, len: u64) -> (u64, u64) {
    (page_of(start), page_of(start + len))
}

fn page_of(address: u64) -> u64 {
    address & !(PAGE - 1)
}

fn at<T>(address: u64) -> *const T {
    ptr::with_exposed_provenance(address as usize)
}

fn at_mut<T>(address: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(address as usize)
}

const DT_NULL: u64 = 0;
const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_PLTREL: u64 = 20;
const DT_JMPREL: u64 = 23;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;
const PAGE: u64 = 4096;

static STAND_IN: OnceLock<StandIn> = OnceLock::new();
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static SEEN: Mutex<Vec<u64>> = Mutex::new(Vec::new());

const _: () = assert!(mem::size_of::<Elf64_Rela>() == 24 && mem::size_of::<Elf64_Sym>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_which_the_read_only_part_ends_is_left_writable() {
        assert_eq!(read_only(0x3d10, 0x2f0), (0x3000, 0x4000), "it ends with a page");
        assert_eq!(read_only(0x3d10, 0x300), (0x3000, 0x4000), "it ends inside the next");
        assert_eq!(read_only(0x3d10, 0x20), (0x3000, 0x3000), "no page is its own");
    }
}
