//! Time slices in which wide registers were in use, one by one, for those who have to act on each.

use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use widelane_bpf::map;
use widelane_threads::Thread;

use crate::ebpf::{kernel, load, thread};
use crate::error::UsageError;
use crate::nudge::{MOST_FOR_VISITS, Nudge};

/// A time slice at whose end the upper halves of `zmm0` to `zmm15` were in use. Times are in
/// nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// CPU of the slice.
    pub cpu: usize,
    /// Thread that ran in it.
    pub thread: Thread,
    /// Beginning of the slice.
    pub begin: u64,
    /// End of the slice.
    pub end: u64,
}

/// Reports each such slice, on all CPUs, from when it is opened to when it is dropped.
pub struct Slices {
    /// Holds the programs.
    _programs: Ebpf,
    events: RingBuf<MapData>,
    nudge: Nudge,
}

impl Slices {
    /// Begins.
    ///
    /// # Errors
    ///
    /// When this machine, or what this process may do on it, does not allow it.
    pub fn open() -> Result<Self, UsageError> {
        let mut programs = load("report_save")?;
        let events = map(&mut programs, "EVENTS");
        Ok(Self {
            events: events.map_err(|error| kernel("opening a BPF map", &error))?,
            _programs: programs,
            nudge: Nudge::new(),
        })
    }

    /// Ends the slices that are under way by a short visit to each CPU, and takes all.
    pub fn end_and_take(&mut self) -> Vec<Slice> {
        self.nudge.visit(MOST_FOR_VISITS);
        self.take()
    }

    /// Slices that have ended since the last call. If calls come too seldom, some are lost.
    pub fn take(&mut self) -> Vec<Slice> {
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

/// Report of a slice, as the program writes it (`struct event`): its end, its length, its thread, its CPU.
type Event = [u64; 4];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_slices() {
        let event = [1_000_u64, 400, 7 << 32 | 8, 3].map(u64::to_ne_bytes).concat();
        let slice = slice(&event).expect("it is one");
        assert_eq!((slice.cpu, slice.begin, slice.end), (3, 600, 1_000));
        assert_eq!((slice.thread.pid, slice.thread.tid), (7, 8));
        assert_eq!(super::slice(&event[..24]), None);
    }

    #[test]
    fn slices_are_reported_here_or_it_says_why_not() {
        match Slices::open() {
            Ok(mut slices) => {
                slices.take();
            }
            Err(error @ UsageError::Kernel { .. }) => panic!("{error}"),
            Err(error) => println!("SKIP: {error}"),
        }
    }
}
