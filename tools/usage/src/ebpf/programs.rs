//! The three programs that run in the kernel, and the file that they are loaded from.
//!
//! At a context switch the kernel first tells `sched_switch`, then saves the registers of the
//! thread that leaves and tells `x86_fpu_regs_deactivated`; the thread that leaves is the current
//! one in both. So the first program notes how long the time slice was, and the second, if AVX-512
//! registers were in use, adds that to the thread. The third is run by a clock on every CPU and
//! notes where programs are.

use object::elf::R_BPF_64_64;
use object::write::{Object, Relocation, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope,
};

use super::assemble::{Assembled, Assembler, Helper, Register, When};

/// Time slice of each CPU: when it began; which thread had the last one; how long that was.
pub(crate) const SLICES: &str = "slices";
/// Times by thread: nanoseconds in each of the first three states, the cgroup, the name.
pub(crate) const THREADS: &str = "threads";
/// Number of samples by thread and address.
pub(crate) const SAMPLES: &str = "samples";
/// Slices, reported one by one.
pub(crate) const EVENTS: &str = "events";
/// Entry of [`THREADS`].
pub(crate) type ThreadEntry = [u64; 6];

/// The names of the programs.
pub(crate) const AT_SWITCH: &str = "at_switch";
pub(crate) const AT_SAVE: &str = "at_save";
pub(crate) const AT_SAMPLE: &str = "at_sample";

/// Entries of a map. When there are more threads, those that were idle longest are forgotten.
pub(crate) const MOST_ENTRIES: u32 = 32_768;

/// Record of [`EVENTS`]: the end of a slice, its length, its thread, its CPU.
pub(crate) type Event = [u64; 4];

/// The programs that count by thread, as an ELF file. `xfeatures` is the place of that field in the
/// record of `x86_fpu_regs_deactivated`.
pub(crate) fn object_file(xfeatures: i16) -> Result<Vec<u8>, object::write::Error> {
    let maps = [
        (SLICES, map(PERCPU_ARRAY, 4, 24, 1)),
        (THREADS, map(LRU_HASH, 8, 48, MOST_ENTRIES)),
        (SAMPLES, map(LRU_HASH, 16, 8, MOST_ENTRIES)),
    ];
    let programs = [
        ("raw_tracepoint", AT_SWITCH, at_switch()),
        ("tracepoint", AT_SAVE, at_save(xfeatures)),
        ("perf_event", AT_SAMPLE, at_sample()),
    ];
    file_of(maps, programs)
}

/// The programs that tell of each slice at whose end the upper halves were in use.
pub(crate) fn object_file_of_slices(xfeatures: i16) -> Result<Vec<u8>, object::write::Error> {
    let maps = [
        (SLICES, map(PERCPU_ARRAY, 4, 24, 1)),
        (EVENTS, map(RINGBUF, 0, 0, BYTES_OF_EVENTS)),
    ];
    let programs = [
        ("raw_tracepoint", AT_SWITCH, at_switch()),
        ("tracepoint", AT_SAVE, at_save_told(xfeatures)),
    ];
    file_of(maps, programs)
}

fn file_of<const N: usize>(
    definitions: [(&'static str, Vec<u8>); N],
    programs: impl IntoIterator<Item = (&'static str, &'static str, Assembled)>,
) -> Result<Vec<u8>, object::write::Error> {
    let mut file = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let maps = file.add_section(Vec::new(), b"maps".to_vec(), SectionKind::Data);
    let mut names = Vec::new();
    for (name, definition) in definitions {
        let value = file.append_section_data(maps, &definition, 4);
        let size = definition.len() as u64;
        let symbol = symbol(name, value, size, SymbolKind::Data, maps);
        names.push((name, file.add_symbol(symbol)));
    }
    for (section, name, program) in programs {
        let section = file.add_section(Vec::new(), section.into(), SectionKind::Text);
        file.append_section_data(section, &program.code, 8);
        let size = program.code.len() as u64;
        file.add_symbol(symbol(name, 0, size, SymbolKind::Text, section));
        for (offset, map) in program.maps {
            let known = names.iter().find(|(name, _)| *name == map);
            let &(_, symbol) = known.expect("programs name only our maps");
            let flags = RelocationFlags::Elf {
                r_type: R_BPF_64_64,
            };
            let relocation = Relocation {
                offset,
                symbol,
                addend: 0,
                flags,
            };
            file.add_relocation(section, relocation)?;
        }
    }
    let license = file.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    file.append_section_data(license, b"MIT\0", 1);
    file.write()
}

/// Program at `sched_switch`.
fn at_switch() -> Assembled {
    use Register::{R0, R1, R2, R6, R7};
    let mut a = Assembler::default();
    a.call(Helper::GetCurrentPidTgid);
    a.copy(R6, R0);
    a.call(Helper::KtimeGetNs);
    a.copy(R7, R0);
    look_up_slice(&mut a);
    // Length of the slice; nothing the first time.
    a.load(R1, R0, 0);
    a.copy(R2, R7);
    a.jump_if(R1, When::Differ, 0, "known");
    a.copy(R1, R7);
    a.label("known");
    a.subtract(R2, R1);
    a.store(R0, 0, R7);
    a.store(R0, 8, R6);
    a.store(R0, 16, R2);
    a.label("out");
    a.exit();
    a.finish()
}

/// Program at `x86_fpu_regs_deactivated`, which also fires outside of context switches.
fn at_save(xfeatures: i16) -> Assembled {
    use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R10};
    let mut a = Assembler::default();
    a.load(R7, R1, xfeatures);
    a.and(R7, MASKS | UPPER | HIGH);
    a.jump_if(R7, When::Equal, 0, "out");
    a.call(Helper::GetCurrentPidTgid);
    a.copy(R6, R0);
    look_up_slice(&mut a);
    // Only the thread that is leaving this CPU has ended a slice, and only once.
    a.load(R1, R0, 8);
    a.jump_unless_equal(R1, R6, "out");
    a.load(R8, R0, 16);
    a.jump_if(R8, When::Equal, 0, "out");
    a.store_number(R0, 16, 0);
    // The thread's entry, or a new one.
    a.store(R10, -8, R6);
    look_up(&mut a, THREADS, -8);
    a.jump_if(R0, When::Differ, 0, "found");
    a.store_number(R10, -56, 0);
    a.store_number(R10, -48, 0);
    a.store_number(R10, -40, 0);
    a.call(Helper::GetCurrentCgroupId);
    a.store(R10, -32, R0);
    a.store_number(R10, -24, 0);
    a.store_number(R10, -16, 0);
    a.copy(R1, R10);
    a.add_number(R1, -24);
    a.set(R2, 16);
    a.call(Helper::GetCurrentComm);
    a.map(R1, THREADS);
    a.copy(R2, R10);
    a.add_number(R2, -8);
    a.copy(R3, R10);
    a.add_number(R3, -56);
    a.set(R4, 0);
    a.call(Helper::MapUpdate);
    look_up(&mut a, THREADS, -8);
    a.jump_if(R0, When::Equal, 0, "out");
    // A thread runs on one CPU at a time: no other CPU adds to its entry.
    a.label("found");
    a.jump_if(R7, When::Common, UPPER, "upper");
    a.jump_if(R7, When::Common, HIGH, "high");
    a.add_number(R0, 8);
    a.label("high");
    a.add_number(R0, 8);
    a.label("upper");
    a.load(R1, R0, 0);
    a.add(R1, R8);
    a.store(R0, 0, R1);
    a.label("out");
    a.exit();
    a.finish()
}

/// Program at `x86_fpu_regs_deactivated` that reports each slice by itself.
fn at_save_told(xfeatures: i16) -> Assembled {
    use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R10};
    let mut a = Assembler::default();
    a.load(R7, R1, xfeatures);
    a.and(R7, UPPER);
    a.jump_if(R7, When::Equal, 0, "out");
    a.call(Helper::GetCurrentPidTgid);
    a.copy(R6, R0);
    look_up_slice(&mut a);
    // Only the thread that is leaving this CPU has ended a slice, and only once.
    a.load(R1, R0, 8);
    a.jump_unless_equal(R1, R6, "out");
    a.load(R8, R0, 16);
    a.jump_if(R8, When::Equal, 0, "out");
    a.store_number(R0, 16, 0);
    a.load(R7, R0, 0);
    a.store(R10, -32, R7);
    a.store(R10, -24, R8);
    a.store(R10, -16, R6);
    a.call(Helper::GetSmpProcessorId);
    a.store(R10, -8, R0);
    a.map(R1, EVENTS);
    a.copy(R2, R10);
    a.add_number(R2, -32);
    a.set(R3, size_of::<Event>() as i32);
    a.set(R4, 0);
    // If there is no room, its reader is late, and the slice is lost.
    a.call(Helper::RingbufOutput);
    a.label("out");
    a.exit();
    a.finish()
}

/// Program at a tick of the clock that looks where programs are.
fn at_sample() -> Assembled {
    use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R10};
    let mut a = Assembler::default();
    a.load(R8, R1, IP);
    a.load(R7, R1, CS);
    // In the kernel, nothing is asked.
    a.and(R7, 3);
    a.jump_if(R7, When::Equal, 0, "out");
    a.call(Helper::GetCurrentPidTgid);
    a.copy(R6, R0);
    a.store(R10, -16, R6);
    a.store(R10, -8, R8);
    look_up(&mut a, SAMPLES, -16);
    a.jump_if(R0, When::Equal, 0, "new");
    a.set(R1, 1);
    a.add_shared(R0, 0, R1);
    a.jump("out");
    a.label("new");
    a.store_number(R10, -24, 1);
    a.map(R1, SAMPLES);
    a.copy(R2, R10);
    a.add_number(R2, -16);
    a.copy(R3, R10);
    a.add_number(R3, -24);
    a.set(R4, 0);
    a.call(Helper::MapUpdate);
    a.label("out");
    a.exit();
    a.finish()
}

/// R0 = the slice of this CPU; "out" if there is none.
fn look_up_slice(a: &mut Assembler) {
    // The only key of the array is 0, of 32 bits.
    a.store_number(Register::R10, -8, 0);
    look_up(a, SLICES, -8);
    a.jump_if(Register::R0, When::Equal, 0, "out");
}

/// R0 = the entry of a map whose key lies at that place of the stack, or 0.
fn look_up(a: &mut Assembler, map: &'static str, key: i32) {
    a.map(Register::R1, map);
    a.copy(Register::R2, Register::R10);
    a.add_number(Register::R2, key);
    a.call(Helper::MapLookup);
}

/// The definition of a map: type, sizes of key and value, entries, flags, two fields of loaders.
fn map(kind: u32, key: u32, value: u32, entries: u32) -> Vec<u8> {
    let fields = [kind, key, value, entries, 0, 0, 0];
    fields.map(u32::to_le_bytes).concat()
}

fn symbol(
    name: &str,
    value: u64,
    size: u64,
    kind: SymbolKind,
    section: object::write::SectionId,
) -> Symbol {
    Symbol {
        name: name.into(),
        value,
        size,
        kind,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    }
}

/// Bits of XSTATE_BV (Intel, Software Developer's Manual, volume 1, section 13.1).
const MASKS: i32 = 1 << 5;
const UPPER: i32 = 1 << 6;
const HIGH: i32 = 1 << 7;
/// Places in `struct bpf_perf_event_data`, which begins with the registers as ptrace has them.
const IP: i16 = 16 * 8;
const CS: i16 = 17 * 8;
/// Kinds of maps.
const PERCPU_ARRAY: u32 = 6;
const LRU_HASH: u32 = 9;
const RINGBUF: u32 = 27;
/// A power of two, of whole pages: slices of a busy machine for many milliseconds.
const BYTES_OF_EVENTS: u32 = 1 << 18;
