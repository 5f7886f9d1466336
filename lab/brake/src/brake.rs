//! The threads, from their start to their end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use widelane_affinity::{Cpus, allowed, pin, siblings, without_signals};
use widelane_cpu::licence::machine::Machine;
use widelane_cpu::licence::{Class, Level};
use widelane_marks::{Header, Page, Slot, nanoseconds};

use crate::account::Account;
use crate::calibrate::{self, Exactness};
use crate::controller::Costs;
use crate::core::Core;
use crate::error::BrakeError;
use crate::model::Model;
use crate::realtime::prioritise;
use crate::thread::{PRIORITY, Place, Shared, Tuning, drive, lock};
use crate::watch::{self, ObservedBurst};

/// CPUs that behave as a model's. When it is dropped, or its process ends in whatever way, they are
/// as before.
#[derive(Debug)]
pub struct Brake {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    places: Vec<Place>,
    tunings: Vec<Arc<Tuning>>,
    exactness: Vec<Exactness>,
    began: Vec<Summary>,
    /// The page is there for as long as a process has this open or mapped.
    file: File,
}

/// Totals of one CPU. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The CPU.
    pub cpu: usize,
    /// Time for which the CPU was braked.
    pub time: u64,
    /// Time that the model would have lost.
    pub owed: u64,
    /// Time that the brake has taken.
    pub taken: u64,
    /// Time for which the CPU's core was at each level.
    pub levels: [u64; 3],
}

impl Brake {
    /// Starts a brake on these CPUs and tries it out, which takes about a second.
    ///
    /// # Errors
    ///
    /// When a CPU cannot be used or this process may not have real-time threads.
    pub fn start(model: &Model, cpus: &Cpus) -> Result<Self, BrakeError> {
        let usable = allowed(None).map_err(BrakeError::system("the CPUs of this process"))?;
        if let Some(cpu) = cpus.without(&usable).iter().next() {
            let usable = usable.to_string();
            return Err(BrakeError::Cpu { cpu, usable });
        }
        let last = cpus.iter().last().ok_or(BrakeError::NoCpus)?;
        check_limit(model, real_time_share())?;
        let header = Header {
            cpus: last + 1,
            brake: std::process::id(),
            model: model.name.to_owned(),
        };
        let (page, file) = Page::create(header).map_err(BrakeError::system("shared memory"))?;
        let (cores, places) = lay_out(model, cpus);
        let shared = Arc::new(Shared {
            page,
            cores,
            moving: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let mut brake = Self {
            shared,
            threads: Vec::new(),
            tunings: places.iter().map(|_| Arc::default()).collect(),
            places,
            exactness: Vec::new(),
            began: Vec::new(),
            file,
        };
        // If anything fails from here on, dropping the brake ends its threads.
        let costs = brake.spawn()?;
        brake.rehearse(model, &costs)?;
        brake.began = brake.now();
        Ok(brake)
    }

    /// Value of the environment variable `widelane_marks::VARIABLE` for programs that are to find the page.
    pub fn variable(&self) -> OsString {
        let (process, file) = (std::process::id(), self.file.as_raw_fd());
        format!("/proc/{process}/fd/{file}").into()
    }

    /// Exactness of the brake on each CPU.
    pub fn exactness(&self) -> &[Exactness] {
        &self.exactness
    }

    /// Brakes for wide code that no program marks, too. Calls `seen` about a hundred times a second for the code that
    /// has run since the last time.
    ///
    /// # Errors
    ///
    /// When the system has no thread for it.
    pub fn watch(&mut self, seen: impl FnMut() -> Vec<ObservedBurst> + Send + 'static) -> Result<(), BrakeError> {
        self.threads.push(watch::start(&self.shared, &self.places, seen)?);
        Ok(())
    }

    /// Ends it, and says what it did.
    pub fn stop(mut self) -> Vec<Summary> {
        self.end();
        let since = |(now, before): (Summary, &Summary)| Summary {
            cpu: now.cpu,
            time: now.time - before.time,
            owed: now.owed - before.owed,
            taken: now.taken - before.taken,
            levels: std::array::from_fn(|level| now.levels[level] - before.levels[level]),
        };
        self.now().into_iter().zip(&self.began).map(since).collect()
    }

    /// Starts the threads, and gives what they cost, once each of them has found that out.
    fn spawn(&mut self) -> Result<Vec<(Costs, f64)>, BrakeError> {
        let (sender, started) = channel();
        for (at, (&place, tuning)) in self.places.iter().zip(&self.tunings).enumerate() {
            let (shared, sender) = (Arc::clone(&self.shared), sender.clone());
            let tuning = Arc::clone(tuning);
            let thread = Builder::new().name(format!("brake-{}", place.number));
            let work = move || run(&shared, at, place, &tuning, &sender);
            let thread = without_signals(|| thread.spawn(work));
            let thread = thread.map_err(BrakeError::system("a thread"))?;
            self.threads.push(thread);
        }
        drop(sender);
        let mut found: Vec<_> = self.places.iter().map(|_| None).collect();
        for (at, result) in started {
            found[at] = Some(result?);
            if found.iter().all(Option::is_some) {
                break;
            }
        }
        let died = || BrakeError::system("a thread")(io::Error::other("it died at once"));
        found.into_iter().collect::<Option<_>>().ok_or_else(died)
    }

    /// Runs wide code on all CPUs at once, and looks how much of their time is missing.
    fn rehearse(&mut self, model: &Model, costs: &[(Costs, f64)]) -> Result<(), BrakeError> {
        let (page, asked) = (&self.shared.page, model.missing(Level::L2));
        let lost_us =
            [Class::Light512, Class::Heavy512, Class::Heavy256].map(|class| model.burst(class, BURST_US).lost_us);
        let took: io::Result<Vec<f64>> = without_signals(|| {
            thread::scope(|scope| {
                let threads: Vec<_> = self
                    .places
                    .iter()
                    .zip(&self.tunings)
                    .filter_map(|(place, tuning)| {
                        let (cpu, slot) = (place.number, page.slot(place.number)?);
                        let rehearse = move || calibrate::rehearse(cpu, slot, tuning, asked, lost_us);
                        Some(scope.spawn(rehearse))
                    })
                    .collect();
                let failed = |_| Err(io::Error::other("the rehearsal failed"));
                let found = threads.into_iter().map(|one| one.join().unwrap_or_else(failed));
                found.collect()
            })
        });
        let took = took.map_err(BrakeError::system("a rehearsal"))?;
        let exactness = |(at, (costs, mark_us)): (usize, &(Costs, f64))| {
            let more = self.tunings[at].more.load(Relaxed) as f64;
            Exactness {
                cpu: self.places[at].number,
                timer_us: ((costs.timer + costs.leave) as f64 + more) / 1e3,
                mark_us: *mark_us,
                asked,
                took: took[at],
            }
        };
        self.exactness = costs.iter().enumerate().map(exactness).collect();
        // The tail of the rehearsal is not the program's.
        thread::sleep(FORGOTTEN);
        Ok(())
    }

    /// Totals of each CPU so far.
    fn now(&self) -> Vec<Summary> {
        let now = nanoseconds();
        let summary = |place: &Place| {
            let mut core = lock(&self.shared.cores[place.core]);
            core.account.advance(now);
            Summary {
                cpu: place.number,
                time: now,
                owed: core.account.owed(),
                taken: self.shared.page.slot(place.number).map_or(0, Slot::taken),
                levels: core.account.levels(),
            }
        };
        self.places.iter().map(summary).collect()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for place in &self.places {
            self.shared.page.slot(place.number).into_iter().for_each(Slot::wake);
        }
        for thread in self.threads.drain(..) {
            // The thread does not panic; if it did, nothing could be done about it here.
            let _ = thread.join();
        }
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        self.end();
    }
}

/// Measurements of a thread at its start: its costs, and the microseconds of a wake-up by a mark.
type Begun = Result<(Costs, f64), BrakeError>;

/// The thread of a CPU.
fn run(shared: &Shared, at: usize, place: Place, tuning: &Tuning, started: &Sender<(usize, Begun)>) {
    let cpu = place.number;
    let begin = || {
        pin(cpu).map_err(BrakeError::system("a CPU"))?;
        prioritise(PRIORITY).map_err(|cause| BrakeError::NoRights { cause })?;
        calibrate::costs(cpu).map_err(BrakeError::system("the cost of a wake-up"))
    };
    let begun = begin();
    let costs = begun.as_ref().ok().map(|(costs, _)| *costs);
    if let (Some(_), Some(slot)) = (costs, shared.page.slot(cpu)) {
        slot.set_braked(true);
    }
    // The starter waits for this; if it has given up, it tells us to stop.
    let _ = started.send((at, begun));
    if let Some(costs) = costs {
        drive(shared, place, costs, tuning);
    }
}

/// A core for each that has CPUs in the set, and a place for each CPU.
fn lay_out(model: &Model, cpus: &Cpus) -> (Vec<Mutex<Core>>, Vec<Place>) {
    let (mut cores, mut places) = (Vec::new(), Vec::new());
    let mut left = *cpus;
    let now = nanoseconds();
    loop {
        let Some(first) = left.iter().next() else {
            break;
        };
        let mine = siblings(first).and(&left).or(&Cpus::from_iter([first]));
        let numbers: Vec<_> = mine.iter().collect();
        let place = |(cpu, &number)| Place {
            core: cores.len(),
            cpu,
            number,
        };
        places.extend(numbers.iter().enumerate().map(place));
        // Times are drawn anew in each run, and on each core.
        let machine = Machine::new(model.rules.clone(), now ^ ((first as u64) << 48));
        let account = Account::new(machine, model.clocks, now);
        cores.push(Mutex::new(Core::new(account, &numbers)));
        left = left.without(&mine);
    }
    (cores, places)
}

/// The share of a CPU that the kernel lets real-time threads have; 1 where it does not say.
fn real_time_share() -> f64 {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
        text.trim().parse::<f64>().ok()
    };
    match (read("sched_rt_runtime_us"), read("sched_rt_period_us")) {
        (Some(runtime), Some(period)) if runtime >= 0.0 && period > 0.0 => runtime / period,
        _ => 1.0,
    }
}

fn check_limit(model: &Model, allowed: f64) -> Result<(), BrakeError> {
    // Transitions and wake-ups take a little more than the lowest clock.
    let wanted = model.missing(Level::L2) + MARGIN;
    if wanted <= allowed {
        return Ok(());
    }
    Err(BrakeError::Limit {
        model: model.name,
        wanted: 100.0 * wanted,
        allowed: 100.0 * allowed,
    })
}

const MARGIN: f64 = 0.1;
const BURST_US: u64 = 600;
/// Longer than every known tail.
const FORGOTTEN: Duration = Duration::from_millis(8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_allow_is_refused() {
        let model = Model::find("Silver 4116", 2, None).unwrap();
        assert!(check_limit(&model, 0.95).is_ok());
        let error = check_limit(&model, 0.4).unwrap_err().to_string();
        assert!(error.contains("52 %") && error.contains("40 %"), "{error}");
        assert!(error.contains("sched_rt_runtime_us"), "{error}");
        assert!((0.0..=1.0).contains(&real_time_share()));
    }

    #[test]
    fn every_cpu_has_a_place_on_one_core() {
        let model = Model::find("Gold 6130", 2, None).unwrap();
        let cpus = allowed(None).unwrap();
        let (cores, places) = lay_out(&model, &cpus);
        assert_eq!(places.len(), cpus.iter().count());
        for place in places {
            let core = lock(&cores[place.core]);
            assert_eq!(core.cpus[place.cpu].number, place.number);
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused() {
        let model = Model::find("Gold 6130", 2, None).unwrap();
        let missing = Cpus::from_iter([Cpus::MOST - 1]);
        let error = Brake::start(&model, &missing).unwrap_err().to_string();
        assert!(error.contains("CPU") && error.contains("not among"), "{error}");
        assert!(matches!(
            Brake::start(&model, &Cpus::default()),
            Err(BrakeError::NoCpus)
        ));
    }
}
