//! Wide code that no program marks: an observer reports when and where it has run.
//!
//! The code is marked after it has run, so that its lost time is taken afterwards. A thread visits each CPU again and
//! again, because the code's thread must leave its CPU for its report to end, and a thread that has a CPU to itself
//! does not leave by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use widelane_affinity::pin;
use widelane_affinity::without_signals;
use widelane_cpu::licence::Class;
use widelane_marks::{Kind, Page};

use crate::error::BrakeError;
use crate::realtime::prioritise;
use crate::thread::{PRIORITY, Place, Shared};

/// Wide code that has run on one CPU. Times are in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedBurst {
    /// CPU on which the code ran.
    pub cpu: usize,
    /// Thread that ran the code.
    pub thread: u32,
    /// Class of the code.
    pub class: Class,
    /// Begin of the code.
    pub begin: u64,
    /// End of the code.
    pub end: u64,
}

/// Starts the thread, which asks `seen` what has run.
pub(crate) fn start(
    shared: &Arc<Shared>,
    places: &[Place],
    mut seen: impl FnMut() -> Vec<ObservedBurst> + Send + 'static,
) -> Result<JoinHandle<()>, BrakeError> {
    let (shared, places) = (Arc::clone(shared), places.to_vec());
    let work = move || {
        // Priority is possible here, since the other threads could be started. Without it, the thread visits each CPU
        // when it gets there.
        let _ = prioritise(PRIORITY - 1);
        while !shared.stop.load(Relaxed) {
            thread::sleep(PERIOD);
            for place in &places {
                let _ = pin(place.number);
            }
            mark(&shared.page, &seen());
        }
    };
    let thread = thread::Builder::new().name("brake-watch".to_owned());
    let thread = without_signals(|| thread.spawn(work));
    thread.map_err(BrakeError::system("a thread"))
}

/// Marks them, as one burst for each CPU and kind: from the end of the last for as long as all took.
fn mark(page: &Page, bursts: &[ObservedBurst]) {
    let mut bursts_by_cpu: Vec<(usize, Kind, ObservedBurst)> = Vec::new();
    for burst in bursts.iter().filter(|burst| burst.begin < burst.end) {
        let Some(kind) = Kind::of(burst.class) else {
            continue;
        };
        match bursts_by_cpu.iter_mut().find(|one| (one.0, one.1) == (burst.cpu, kind)) {
            Some((_, _, all)) => {
                let time = all.end - all.begin + (burst.end - burst.begin);
                all.end = all.end.max(burst.end);
                all.begin = all.end.saturating_sub(time);
            }
            None => bursts_by_cpu.push((burst.cpu, kind, *burst)),
        }
    }
    for (cpu, kind, burst) in bursts_by_cpu {
        let Some(slot) = page.slot(cpu).filter(|slot| slot.is_braked()) else {
            continue;
        };
        // The burst is over: whatever the brake knows of it, it has to look again.
        let _ = slot.begin(kind, burst.begin, burst.thread);
        slot.end(kind, burst.end);
        slot.wake();
    }
}

/// Short beside what a program notices, long beside a visit.
const PERIOD: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_marks::Header;

    #[test]
    fn what_ran_in_pieces_is_marked_as_one() {
        let header = Header {
            cpus: 2,
            brake: 1,
            model: "a model".to_owned(),
        };
        let (page, _file) = Page::create(header).expect("there is memory");
        let slot = |cpu| page.slot(cpu).expect("it has two");
        slot(1).set_braked(true);
        let burst = |cpu, begin, end| ObservedBurst {
            cpu,
            thread: 7,
            class: Class::Light512,
            begin,
            end,
        };
        mark(
            &page,
            &[burst(1, 1_000, 2_000), burst(0, 1_000, 2_000), burst(1, 5_000, 6_000)],
        );
        let look = slot(1).look();
        assert_eq!((look.begun[2], look.ended[2]), (4_000, 6_000));
        assert_eq!(look.running, [0; 4]);
        assert_eq!(slot(0).look().newest(), 0, "no brake is there");
    }
}
