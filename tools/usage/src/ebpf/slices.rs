//! Time slices at whose end the upper halves of `zmm0` to `zmm15` were in use, one by one.

use aya::maps::MapData;
use aya::maps::RingBuf;
use aya::programs::{RawTracePoint, TracePoint};
use aya::{Ebpf, EbpfLoader};
use widelane_bpf::{map, program};

use super::programs::{self, Event};
use super::{kernel, rights, thread, xfeatures};
use crate::error::UsageError;
use crate::slice::Slice;

/// The programs, attached, and what they tell.
pub(crate) struct Slices {
    /// Holds the programs.
    _programs: Ebpf,
    events: RingBuf<MapData>,
}

impl Slices {
    pub(crate) fn open() -> Result<Self, UsageError> {
        if !widelane_bpf::counts_as_we_do() {
            return Err(UsageError::PidNamespace);
        }
        let file = programs::object_file_of_slices(xfeatures()?);
        let file = file.map_err(|error| UsageError::Kernel {
            what: "assembling the programs",
            cause: error.to_string(),
        })?;
        widelane_bpf::unlimit_memory();
        let refused = |what| {
            move |error: &(dyn std::error::Error + 'static)| {
                rights(error).unwrap_or_else(|| kernel(what, error))
            }
        };
        let loaded = EbpfLoader::new().btf(None).load(&file);
        let mut programs = loaded.map_err(|error| refused("loading BPF maps")(&error))?;
        let events = map(&mut programs, programs::EVENTS);
        let events = events.map_err(|error| kernel("opening a BPF map", &error))?;
        attach(&mut programs).map_err(|error| refused("attaching BPF programs")(&error))?;
        Ok(Self {
            _programs: programs,
            events,
        })
    }

    pub(crate) fn take(&mut self) -> Vec<Slice> {
        let mut slices = Vec::new();
        while let Some(event) = self.events.next() {
            slices.extend(slice(&event));
        }
        slices
    }
}

fn slice(event: &[u8]) -> Option<Slice> {
    let mut words: Event = [0; 4];
    for (word, bytes) in words.iter_mut().zip(event.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    let [end, length, of, cpu] = words;
    (event.len() >= size_of::<Event>()).then(|| Slice {
        cpu: cpu as usize,
        thread: thread(of),
        begin: end.saturating_sub(length),
        end,
    })
}

fn attach(programs: &mut Ebpf) -> Result<(), aya::programs::ProgramError> {
    let save: &mut TracePoint = program(programs, programs::AT_SAVE)?;
    save.load()?;
    save.attach("x86_fpu", "x86_fpu_regs_deactivated")?;
    let switch: &mut RawTracePoint = program(programs, programs::AT_SWITCH)?;
    switch.load()?;
    switch.attach("sched_switch")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_slices() {
        let event = [1_000_u64, 400, 7 << 32 | 8, 3]
            .map(u64::to_ne_bytes)
            .concat();
        let slice = slice(&event).expect("it is one");
        assert_eq!((slice.cpu, slice.begin, slice.end), (3, 600, 1_000));
        assert_eq!((slice.thread.pid, slice.thread.tid), (7, 8));
        assert_eq!(super::slice(&event[..24]), None);
    }
}
