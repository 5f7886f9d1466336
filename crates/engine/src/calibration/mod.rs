//! What answers cost on this machine, measured once.
//!
//! A process has one table: for every operation and backend that it uses, a pass with one request,
//! a pass with every lane filled, and one request through aws-lc-rs. Entries are measured when an
//! operation is first used, in the background, or all together by
//! [`Engine::calibrate`](crate::Engine::calibrate), which a server calls before it listens. Nothing
//! is measured twice in a process; with [`keep_in`], nor in the next one.
//!
//! The file is believed only as far as it goes: [`Record`] refuses what is damaged, and an entry
//! counts only if this machine and this version wrote it, not too long ago. All that a wrong entry
//! could do is to make some requests slower.

mod measure;
mod record;

pub use record::{Entry, Record};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use widelane_batching::Costs;
use widelane_crypto::{Backend, Work};

/// Takes what is known from this file, and writes to it what is measured from now on. For programs;
/// a library that uses the engine should leave it to them.
///
/// A file that is missing, damaged, or of another machine is no error: it will be replaced. So is
/// one that cannot be written; that is logged.
pub fn keep_in(file: &Path) {
    table().keep_in(file);
}

/// Where such a file belongs: in the state directory that the service manager names, in the user's
/// cache (`XDG_CACHE_HOME`, else `~/.cache`), or in `/var/cache`.
pub fn default_file() -> PathBuf {
    let absolute = |variable: &str| {
        // A service manager may name several, separated by colons.
        let value = std::env::var_os(variable)?.into_string().ok()?;
        let path = PathBuf::from(value.split(':').next()?);
        path.is_absolute().then_some(path)
    };
    if let Some(state) = absolute("STATE_DIRECTORY") {
        return state.join(FILE);
    }
    absolute("XDG_CACHE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".cache")))
        .unwrap_or_else(|| PathBuf::from("/var/cache"))
        .join("widelane")
        .join(FILE)
}

/// The table of this process.
pub(crate) fn table() -> &'static Arc<Table> {
    static TABLE: std::sync::LazyLock<Arc<Table>> = std::sync::LazyLock::new(Arc::default);
    &TABLE
}

/// Costs by operation and backend.
#[derive(Debug, Default)]
pub(crate) struct Table {
    state: Mutex<State>,
    /// Held while something is measured: two measurements would disturb each other.
    measuring: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    prices: BTreeMap<(&'static str, Backend), Arc<Price>>,
    file: Option<PathBuf>,
    /// What the file says of operations that nobody has asked for yet.
    read: Vec<Entry>,
}

/// What the answers of one operation on one backend cost, once that is known.
#[derive(Debug)]
pub(crate) struct Price {
    name: &'static str,
    backend: Backend,
    lanes: usize,
    /// The fewest requests that are worth a pass, or [`UNKNOWN`].
    worth: AtomicUsize,
    entry: Mutex<Option<Entry>>,
    table: std::sync::Weak<Table>,
}

impl Table {
    /// The price of an operation; the same one for all who ask.
    pub(crate) fn price(
        self: &Arc<Self>,
        name: &'static str,
        backend: Backend,
        lanes: usize,
    ) -> Arc<Price> {
        let state = &mut *lock(&self.state);
        let new = || {
            let price = Arc::new(Price {
                name,
                backend,
                lanes,
                worth: AtomicUsize::new(UNKNOWN),
                entry: Mutex::default(),
                table: Arc::downgrade(self),
            });
            price.look_up(&state.read);
            price
        };
        let price = state.prices.entry((name, backend)).or_insert_with(new);
        Arc::clone(price)
    }

    fn keep_in(&self, file: &Path) {
        let read = record::read(file).map_or_else(Vec::new, |record| record.current());
        tracing::debug!(file = %file.display(), entries = read.len(), "costs read");
        let state = &mut *lock(&self.state);
        for price in state.prices.values() {
            price.look_up(&read);
        }
        state.read = read;
        state.file = Some(file.to_owned());
    }

    /// Writes the file anew: what it holds, overlaid with what is known here.
    fn save(&self) {
        let (file, ours) = {
            let state = lock(&self.state);
            let known = |price: &Arc<Price>| lock(&price.entry).clone();
            let Some(file) = state.file.clone() else {
                return;
            };
            let ours: Vec<Entry> = state.prices.values().filter_map(known).collect();
            (file, ours)
        };
        // Another process may have written since.
        let mut entries = record::read(&file).map_or_else(Vec::new, |record| record.current());
        entries.retain(|entry| !ours.iter().any(|our| our.is_about_the_same(entry)));
        entries.extend(ours);
        if let Err(error) = record::write(&file, &Record::new(entries)) {
            tracing::debug!(file = %file.display(), %error, "costs are not kept");
        }
    }
}

impl Price {
    /// The fewest requests that are worth a pass; a guess while the costs are not known.
    pub(crate) fn worth(&self) -> usize {
        match self.worth.load(Ordering::Relaxed) {
            UNKNOWN => GUESS,
            worth => worth,
        }
    }

    /// What is known.
    pub(crate) fn costs(&self) -> Option<Costs> {
        lock(&self.entry).as_ref().map(|entry| entry.costs)
    }

    pub(crate) fn is_known(&self) -> bool {
        self.worth.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Measures, unless the costs are known by then, and keeps the result.
    pub(crate) fn measure<W: Work>(&self, work: &W) {
        let Some(table) = self.table.upgrade() else {
            return;
        };
        let _alone = lock(&table.measuring);
        if self.is_known() {
            return;
        }
        let measured =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| measure::costs(work)));
        let costs = match measured {
            Ok(Some(costs)) => costs,
            Ok(None) => return,
            Err(_) => {
                tracing::error!(operation = self.name, "it panicked while it was measured");
                return;
            }
        };
        self.learn(Entry::new(self.name, self.backend, costs));
        tracing::debug!(operation = self.name, backend = %self.backend, ?costs, "measured");
        table.save();
    }

    fn look_up(&self, entries: &[Entry]) {
        let ours = |entry: &&Entry| {
            entry.name == self.name
                && entry.backend == self.backend
                && entry.costs.lanes == self.lanes
        };
        if let Some(entry) = entries.iter().find(ours)
            && !self.is_known()
        {
            self.learn(entry.clone());
        }
    }

    fn learn(&self, entry: Entry) {
        let costs = entry.costs;
        let clearly_less = costs.alone - costs.alone / CLEAR;
        let worth = match costs.worth() {
            1 if costs.lanes > 1 && costs.first > clearly_less => 2,
            worth => worth,
        };
        self.worth.store(worth, Ordering::Relaxed);
        *lock(&self.entry) = Some(entry);
    }
}

/// Locks, whatever happened to the last holder: holders leave the data whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request by itself goes into a pass only if that saves more than one part in so many: on a busy
/// machine, trials of the two ways are off by some percent, and not by the same.
const CLEAR: u64 = 8;

/// No answer of [`Costs::worth`].
const UNKNOWN: usize = 0;

/// Two share a pass gladly, in all that we have measured; one by itself is safe with aws-lc-rs.
const GUESS: usize = 2;

const FILE: &str = "calibration";

#[cfg(test)]
mod tests {
    use super::*;
    use widelane_batching::{Costs, NEVER};

    /// Answers; panics or fails if it is told to.
    struct Toy {
        lanes: usize,
        panics: bool,
        fails: bool,
        passes: AtomicUsize,
        alone: AtomicUsize,
    }

    impl Toy {
        fn new(lanes: usize) -> Self {
            Self {
                lanes,
                panics: false,
                fails: false,
                passes: AtomicUsize::new(0),
                alone: AtomicUsize::new(0),
            }
        }

        fn calls(&self) -> usize {
            self.passes.load(Ordering::Relaxed) + self.alone.load(Ordering::Relaxed)
        }
    }

    impl Work for Toy {
        type Request = ();
        type Output = Result<(), std::fmt::Error>;

        fn name(&self) -> &'static str {
            "toy"
        }

        fn lanes(&self) -> usize {
            self.lanes
        }

        fn pass(&self, requests: &[()]) -> Vec<Self::Output> {
            assert!(!self.panics, "a toy that panics");
            assert!((1..=self.lanes).contains(&requests.len()));
            self.passes.fetch_add(1, Ordering::Relaxed);
            requests.iter().map(|()| Ok(())).collect()
        }

        fn alone(&self, (): &()) -> Self::Output {
            self.alone.fetch_add(1, Ordering::Relaxed);
            if self.fails {
                Err(std::fmt::Error)
            } else {
                Ok(())
            }
        }

        fn specimen(&self) {}
    }

    const BACKEND: Backend = Backend::Avx512Ifma;

    fn price(table: &Arc<Table>) -> Arc<Price> {
        table.price("toy", BACKEND, 8)
    }

    fn costs(first: u64, alone: u64) -> Costs {
        Costs {
            lanes: 8,
            first,
            further: 0,
            alone,
        }
    }

    /// A file of this machine that says this of the toy.
    fn file_saying(costs: Costs) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cache/widelane/calibration");
        let entry = Entry::new("toy", BACKEND, costs);
        record::write(&file, &Record::new(vec![entry])).unwrap();
        (directory, file)
    }

    #[test]
    fn what_is_not_known_is_guessed_and_measured_once() {
        let table = Arc::<Table>::default();
        let price = price(&table);
        assert_eq!((price.is_known(), price.worth()), (false, GUESS));
        let toy = Toy::new(8);
        price.measure(&toy);
        assert!(price.is_known());
        let calls = toy.calls();
        // Three kinds of trials in turn, the first round for warming up.
        assert!(calls >= 3 * 6 && calls.is_multiple_of(3), "{calls}");
        assert_eq!(3 * toy.alone.load(Ordering::Relaxed), calls);
        price.measure(&toy);
        self::price(&table).measure(&toy);
        assert_eq!(toy.calls(), calls);
    }

    #[test]
    fn a_second_process_reads_what_the_first_has_measured() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/calibration");
        let first = Arc::<Table>::default();
        first.keep_in(&file);
        assert!(!file.exists(), "nothing is known yet");
        price(&first).measure(&Toy::new(8));
        let second = Arc::<Table>::default();
        let asked_early = price(&second);
        assert!(!asked_early.is_known());
        second.keep_in(&file);
        assert!(asked_early.is_known());
        assert_eq!(asked_early.worth(), price(&first).worth());
        assert!(second.price("toy", BACKEND, 8).is_known());
        assert!(!second.price("toy", Backend::Avx512Ifma256, 8).is_known());
        assert!(!second.price("joy", BACKEND, 8).is_known());
        assert!(!second.price("roy", BACKEND, 4).is_known());
        let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary files: {left:?}");
    }

    #[test]
    fn costs_decide() {
        for (costs, worth) in [
            (costs(10, 20), 1),
            (costs(17, 20), 1),
            (costs(19, 20), 2),
            (costs(20, 10), 3),
            (costs(90, 10), NEVER),
        ] {
            let (_directory, file) = file_saying(costs);
            let table = Arc::<Table>::default();
            table.keep_in(&file);
            assert_eq!(price(&table).worth(), worth);
        }
    }

    #[test]
    fn an_entry_for_another_number_of_lanes_is_none() {
        let (_directory, file) = file_saying(costs(10, 20));
        let table = Arc::<Table>::default();
        table.keep_in(&file);
        assert!(!table.price("toy", BACKEND, 4).is_known());
    }

    #[test]
    fn useless_files_are_measured_anew_and_replaced() {
        let (_directory, file) = file_saying(costs(10, 20));
        let whole = std::fs::read_to_string(&file).unwrap();
        let foreign = whole.replace("machine ", "machine Somebody else's ");
        let cut = &whole[..whole.len() - 1];
        for text in [
            "",
            "widelane costs 1\n",
            "\u{0}\u{fffd}",
            cut,
            foreign.as_str(),
        ] {
            std::fs::write(&file, text).unwrap();
            let table = Arc::<Table>::default();
            table.keep_in(&file);
            let price = price(&table);
            assert!(!price.is_known(), "{text:?}");
            price.measure(&Toy::new(8));
            let record: Record = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            assert_eq!(record.entries().len(), 1, "{text:?}");
        }
    }

    #[test]
    fn what_others_have_written_meanwhile_stays() {
        let (_directory, file) = file_saying(costs(10, 20));
        let table = Arc::<Table>::default();
        table.keep_in(&file);
        let other = Entry::new("other", BACKEND, costs(1, 2));
        record::write(&file, &Record::new(vec![other.clone()])).unwrap();
        let third = table.price("third", BACKEND, 8);
        third.measure(&Toy::new(8));
        let record = record::read(&file).unwrap();
        let mut names: Vec<_> = record.entries().iter().map(|e| e.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["other", "third"], "the toy was not asked for");
        assert!(record.entries().contains(&other));
    }

    #[test]
    fn where_nothing_can_be_written_costs_are_known_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let in_the_way = directory.path().join("a file");
        std::fs::write(&in_the_way, "").unwrap();
        for file in [in_the_way.join("calibration"), directory.path().to_owned()] {
            let table = Arc::<Table>::default();
            table.keep_in(&file);
            price(&table).measure(&Toy::new(8));
            assert!(price(&table).is_known());
        }
    }

    #[test]
    fn a_work_that_panics_or_fails_stays_a_guess() {
        let table = Arc::<Table>::default();
        let price = price(&table);
        for panics in [true, false] {
            price.measure(&Toy {
                panics,
                fails: !panics,
                ..Toy::new(8)
            });
            assert_eq!((price.is_known(), price.worth()), (false, GUESS));
        }
        price.measure(&Toy::new(8));
        assert!(price.is_known());
    }

    #[test]
    fn the_default_file_is_absolute_and_ours() {
        let file = default_file();
        assert!(file.is_absolute() && file.ends_with(FILE), "{file:?}");
    }
}
