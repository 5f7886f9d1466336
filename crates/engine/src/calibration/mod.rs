//! Costs of answers on this machine, measured once.
//!
//! A process has one table. For every operation and backend in use it holds the cost of a pass with
//! one request, of a full pass, and of one request through aws-lc-rs. An entry is measured in the
//! background when its operation has been used some times; [`Engine::calibrate`](crate::Engine::calibrate)
//! measures all of them at once, and a server calls it before it listens. A process measures
//! nothing twice; with [`keep_in`], neither does the next process.
//!
//! A file cannot do harm: it is used only if no other user can change it, [`Record`] refuses a damaged one, and
//! an entry counts only if this version wrote it on this machine, not too long ago. A wrong entry only makes some
//! requests slower.

mod measure;
mod record;

pub use record::{Comparison, Damaged, Entry, Record};

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use widelane_batching::{Costs, Methods};
use widelane_crypto::{Backend, Operation, Request};

use crate::cost::{CostModel, lock};
use measure::{Specimens, Subject};

/// Reads costs from this file, and writes to it what is measured from now on. For programs, and for
/// libraries whose user names a file.
///
/// A file that is missing, damaged, or of another machine or version is no error: it is replaced. A
/// file that cannot be written is logged.
pub fn keep_in(file: &Path) {
    table().keep_in(file);
}

/// The costs that this process knows: of operations in use, measured by it or read from its file.
pub fn known() -> Vec<Entry> {
    let state = lock(&table().state);
    let rows = state.rows.values();
    rows.filter_map(|row| row.entry.clone()).collect()
}

/// Costs of an operation's passes on a backend, as far as this process knows or its file says.
pub fn costs(operation: &str, backend: Backend) -> Option<Costs> {
    let state = lock(&table().state);
    let ours = state.rows.values().filter_map(|row| row.entry.as_ref());
    let mut entries = ours.chain(&state.read);
    entries
        .find(|entry| entry.name == operation && entry.backend == backend)
        .map(|entry| entry.costs)
}

/// Cost of an operation in another library, as far as this process knows or its file says.
pub fn comparison(operation: &str, with: &str) -> Option<Comparison> {
    let state = lock(&table().state);
    let is_meant = |one: &&Comparison| one.operation == operation && one.with == with;
    state.comparisons.iter().find(is_meant).cloned()
}

/// Measures what an operation costs one by one, and what `theirs` costs, which does the same by another
/// library and says whether it succeeded. `None` if one of them fails.
pub fn compare<R: Request>(
    operation: &dyn Operation<Request = R>,
    with: &str,
    theirs: &mut dyn FnMut() -> bool,
) -> Option<Comparison> {
    let _alone = lock(&table().measuring);
    let [taken, alone] = measure::beside(&Specimens(operation), theirs)?;
    Some(Comparison::new(operation.name(), with, taken, alone))
}

/// Remembers comparisons, and keeps them in the file. False if there is no file, or it cannot be written.
pub fn keep(comparisons: Vec<Comparison>) -> bool {
    let table = table();
    {
        let known = &mut lock(&table.state).comparisons;
        known.retain(|one| !comparisons.iter().any(|other| other.is_about_the_same(one)));
        known.extend(comparisons);
    }
    table.save()
}

/// The place of the fastest of an operation's methods, as measured now; for programs that run
/// passes themselves. The first if a measurement fails.
pub fn fastest_method<R: Request>(operation: &dyn Operation<Request = R>) -> usize {
    let order = measure::methods(&Specimens(operation)).unwrap_or_default();
    order.first().copied().unwrap_or(0)
}

/// The table of this process.
pub(crate) fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(Table::default);
    &TABLE
}

/// Costs by operation and backend.
#[derive(Debug, Default)]
pub(crate) struct Table {
    state: Mutex<State>,
    /// Held during a measurement: two at once would disturb each other.
    measuring: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<(&'static str, Backend), Row>,
    file: Option<PathBuf>,
    /// Entries of the file, also of operations that are not in use yet.
    read: Vec<Entry>,
    /// With other libraries; what the file says, and what was measured here.
    comparisons: Vec<Comparison>,
}

/// An operation in use.
#[derive(Debug)]
struct Row {
    lanes: usize,
    methods: &'static [&'static str],
    model: Arc<CostModel>,
    /// The costs that the model has learnt.
    entry: Option<Entry>,
}

impl Table {
    /// The cost model of an operation; the same one in every call.
    pub(crate) fn model(
        &self,
        name: &'static str,
        backend: Backend,
        lanes: usize,
        methods: &'static [&'static str],
    ) -> Arc<CostModel> {
        let State { rows, read, .. } = &mut *lock(&self.state);
        let row = rows.entry((name, backend)).or_insert_with(|| {
            let mut row = Row {
                lanes,
                methods,
                model: Arc::default(),
                entry: None,
            };
            row.look_up(name, backend, read);
            row
        });
        Arc::clone(&row.model)
    }

    /// Measures an operation that has a [`model`](Self::model), unless its costs are known.
    pub(crate) fn measure<R: Request>(&self, operation: &dyn Operation<Request = R>, backend: Backend) {
        self.measure_subject(&Specimens(operation), backend);
    }

    fn measure_subject(&self, operation: &dyn Subject, backend: Backend) {
        let _alone = lock(&self.measuring);
        let name = operation.name();
        let methods = operation.methods();
        let model = self.model(name, backend, operation.lanes(), methods);
        if !model.is_known() {
            self.read_again(name, backend);
        }
        if model.is_known() {
            return;
        }
        let measure = || {
            let order = measure::methods(operation)?;
            let costs = measure::costs(operation, *order.first()?)?;
            Some((order, costs))
        };
        let (order, costs) = match catch_unwind(AssertUnwindSafe(measure)) {
            Ok(Some(measured)) => measured,
            Ok(None) => return,
            Err(_) => {
                tracing::error!(operation = name, "the operation panicked in its measurement");
                return;
            }
        };
        let order: Vec<_> = order.into_iter().map(|method| methods[method]).collect();
        tracing::debug!(operation = name, %backend, ?costs, methods = ?order, "measured");
        let entry = Entry::new(name, backend, &order, costs);
        if let Some(row) = lock(&self.state).rows.get_mut(&(name, backend)) {
            row.learn(entry);
        }
        self.save();
    }

    fn keep_in(&self, file: &Path) {
        let (read, comparisons) = record::read(file).map_or_else(Default::default, Record::current);
        tracing::debug!(file = %file.display(), entries = read.len(), "costs read");
        let state = &mut *lock(&self.state);
        for ((name, backend), row) in &mut state.rows {
            row.look_up(name, *backend, &read);
        }
        state.read = read;
        state.comparisons = comparisons;
        state.file = Some(file.to_owned());
    }

    /// Looks at the file again: another process may have measured meanwhile.
    fn read_again(&self, name: &'static str, backend: Backend) {
        let State { rows, file, read, .. } = &mut *lock(&self.state);
        let found = file.as_deref().and_then(record::read);
        if let Some(found) = found {
            (*read, _) = found.current();
        }
        if let Some(row) = rows.get_mut(&(name, backend)) {
            row.look_up(name, backend, read);
        }
    }

    /// Writes the file again: its entries, replaced by those known here. False if that is impossible.
    fn save(&self) -> bool {
        let (file, ours, compared) = {
            let state = lock(&self.state);
            let Some(file) = state.file.clone() else {
                return false;
            };
            let known = |row: &Row| row.entry.clone();
            let ours: Vec<Entry> = state.rows.values().filter_map(known).collect();
            (file, ours, state.comparisons.clone())
        };
        // Another process may have written since.
        let read = record::read(&file);
        let (mut entries, mut comparisons) = read.map_or_else(Default::default, Record::current);
        entries.retain(|entry| !ours.iter().any(|our| our.is_about_the_same(entry)));
        entries.extend(ours);
        comparisons.retain(|one| !compared.iter().any(|our| our.is_about_the_same(one)));
        comparisons.extend(compared);
        let written = record::write(&file, &Record::new(entries, comparisons));
        let is_kept = written.is_ok();
        match written {
            Ok(()) => {}
            Err(error) if widelane_files::is_untrusted(&error) => {
                tracing::warn!(
                    file = %file.display(),
                    %error,
                    "does not keep measured costs in this folder; let it belong to the user who starts the server, with mode 0755"
                );
            }
            Err(error) => {
                tracing::debug!(file = %file.display(), %error, "cannot keep measured costs");
            }
        }
        is_kept
    }
}

impl Row {
    fn look_up(&mut self, name: &str, backend: Backend, entries: &[Entry]) {
        let ours = |entry: &&Entry| {
            entry.name == name
                && entry.backend == backend
                && entry.costs.lanes == self.lanes
                && entry.compares(self.methods)
        };
        if self.entry.is_none()
            && let Some(entry) = entries.iter().find(ours)
        {
            self.learn(entry.clone());
        }
    }

    fn learn(&mut self, entry: Entry) {
        let fastest = entry.methods.first();
        let place = |name| self.methods.iter().position(|method| *method == name);
        let used = fastest.and_then(place).unwrap_or(0);
        self.model.choose_among(Methods::new(self.methods.len(), used));
        self.model.learn(entry.costs);
        self.entry = Some(entry);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use widelane_crypto::Target;

    /// Answers; panics or fails if the test wants that.
    struct Toy {
        name: &'static str,
        lanes: usize,
        panics: bool,
        fails: bool,
        passes: AtomicUsize,
        alone: AtomicUsize,
    }

    impl Toy {
        fn new(lanes: usize) -> Self {
            Self {
                name: "toy",
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

    struct Job;

    impl Request for Job {
        type Output = Result<(), std::fmt::Error>;

        fn failure(output: &Self::Output) -> Option<&(dyn std::error::Error + 'static)> {
            output.as_ref().err().map(|error| error as _)
        }
    }

    impl Operation for Toy {
        type Request = Job;

        fn name(&self) -> &'static str {
            self.name
        }

        fn lanes(&self) -> usize {
            self.lanes
        }

        fn pass(&self, requests: &[Job]) -> Vec<Result<(), std::fmt::Error>> {
            assert!(!self.panics, "a toy that panics");
            assert!((1..=self.lanes).contains(&requests.len()));
            self.passes.fetch_add(1, Ordering::Relaxed);
            requests.iter().map(|_| Ok(())).collect()
        }

        fn alone(&self, _: &Job) -> Result<(), std::fmt::Error> {
            self.alone.fetch_add(1, Ordering::Relaxed);
            if self.fails { Err(std::fmt::Error) } else { Ok(()) }
        }

        fn specimen(&self) -> Job {
            Job
        }
    }

    const BACKEND: Backend = Backend::Lanes(Target::Avx512Ifma);
    const ONLY: &[&str] = &["only"];

    fn model(table: &Table) -> Arc<CostModel> {
        table.model("toy", BACKEND, 8, ONLY)
    }

    fn measure(table: &Table, toy: &Toy) {
        table.measure(toy, BACKEND);
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
        let entry = Entry::new("toy", BACKEND, ONLY, costs);
        record::write(&file, &Record::new(vec![entry], Vec::new())).unwrap();
        (directory, file)
    }

    #[test]
    fn what_is_not_known_is_guessed_and_measured_once() {
        let table = Table::default();
        let model = model(&table);
        assert!(!model.is_known());
        let toy = Toy::new(8);
        measure(&table, &toy);
        assert!(model.is_known());
        let calls = toy.calls();
        // Three kinds of trials in turn, the first round for warming up.
        assert!(calls >= 3 * 6 && calls.is_multiple_of(3), "{calls}");
        assert_eq!(3 * toy.alone.load(Ordering::Relaxed), calls);
        measure(&table, &toy);
        assert_eq!(toy.calls(), calls);
    }

    #[test]
    fn a_second_process_reads_what_the_first_has_measured() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("new/calibration");
        let first = Table::default();
        first.keep_in(&file);
        assert!(!file.exists(), "nothing is known yet");
        measure(&first, &Toy::new(8));
        let second = Table::default();
        let asked_early = model(&second);
        assert!(!asked_early.is_known());
        second.keep_in(&file);
        assert!(asked_early.is_known());
        assert_eq!(asked_early.worth(), model(&first).worth());
        assert!(second.model("toy", BACKEND, 8, ONLY).is_known());
        assert!(
            !second
                .model("toy", Backend::Lanes(Target::Avx512Ifma256), 8, ONLY)
                .is_known()
        );
        assert!(!second.model("joy", BACKEND, 8, ONLY).is_known());
        assert!(!second.model("roy", BACKEND, 4, ONLY).is_known());
        let left: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary files: {left:?}");
    }

    #[test]
    fn comparisons_are_kept_beside_costs() {
        let (_directory, file) = file_saying(costs(10, 20));
        let known = Comparison::new("toy", "a library", 30, 20);
        let table = Table::default();
        table.keep_in(&file);
        lock(&table.state).comparisons.push(known.clone());
        assert!(table.save());
        let record = record::read(&file).unwrap();
        assert_eq!(record.entries().len(), 1);
        assert_eq!(record.current().1, [known]);
        assert!(!Table::default().save(), "there is no file");
    }

    #[test]
    fn two_libraries_take_turns() {
        let (toy, mut theirs) = (Toy::new(1), 0);
        let found = measure::beside(&Specimens(&toy), &mut || {
            theirs += 1;
            true
        });
        assert!(found.is_some_and(|found| found.iter().all(|&taken| taken > 0)));
        assert_eq!(toy.alone.load(Ordering::Relaxed), theirs);
        assert_eq!(measure::beside(&Specimens(&toy), &mut || false), None);
    }

    #[test]
    fn an_entry_for_another_number_of_lanes_is_none() {
        let (_directory, file) = file_saying(costs(10, 20));
        let table = Table::default();
        table.keep_in(&file);
        assert!(!table.model("toy", BACKEND, 4, ONLY).is_known());
    }

    #[test]
    fn useless_files_are_measured_anew_and_replaced() {
        let (_directory, file) = file_saying(costs(10, 20));
        let whole = std::fs::read_to_string(&file).unwrap();
        let foreign = whole.replace("\"machine\": \"", "\"machine\": \"another ");
        assert_ne!(foreign, whole);
        let cut = &whole[..whole.len() - 3];
        let former = "widelane costs 1\nmachine m\ncost toy avx512ifma 8 10 0 20 1763769600\nend\n";
        for text in ["", former, "\u{0}\u{fffd}", cut, foreign.as_str()] {
            std::fs::write(&file, text).unwrap();
            let table = Table::default();
            table.keep_in(&file);
            assert!(!model(&table).is_known(), "{text:?}");
            measure(&table, &Toy::new(8));
            let record: Record = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            assert_eq!(record.entries().len(), 1, "{text:?}");
        }
    }

    #[test]
    fn what_another_process_has_measured_meanwhile_is_not_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("calibration");
        let [first, second] = [Table::default(), Table::default()];
        for table in [&first, &second] {
            table.keep_in(&file);
            assert!(!model(table).is_known());
        }
        measure(&first, &Toy::new(8));
        let toy = Toy::new(8);
        measure(&second, &toy);
        assert!(model(&second).is_known());
        assert_eq!(toy.calls(), 0);
    }

    #[test]
    fn what_others_have_written_meanwhile_stays() {
        let (_directory, file) = file_saying(costs(10, 20));
        let table = Table::default();
        table.keep_in(&file);
        let other = Entry::new("other", BACKEND, ONLY, costs(1, 2));
        record::write(&file, &Record::new(vec![other.clone()], Vec::new())).unwrap();
        let third = Toy {
            name: "third",
            ..Toy::new(8)
        };
        measure(&table, &third);
        let record = record::read(&file).unwrap();
        let mut names: Vec<_> = record.entries().iter().map(|e| e.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["other", "third"], "the toy was not asked for");
        assert!(record.entries().contains(&other));
    }

    /// Takes longer by one of its methods.
    struct Choice;

    impl Operation for Choice {
        type Request = Job;

        fn name(&self) -> &'static str {
            "choice"
        }

        fn lanes(&self) -> usize {
            2
        }

        fn methods(&self) -> &'static [&'static str] {
            &["slow", "fast"]
        }

        fn pass_by(&self, method: usize, requests: &[Job]) -> Vec<Result<(), std::fmt::Error>> {
            let rounds = [400_000u64, 1000][method];
            let sum = (0..rounds).fold(0u64, |sum, x| std::hint::black_box(sum ^ x));
            std::hint::black_box(sum);
            requests.iter().map(|_| Ok(())).collect()
        }

        fn pass(&self, requests: &[Job]) -> Vec<Result<(), std::fmt::Error>> {
            self.pass_by(0, requests)
        }

        fn specimen(&self) -> Job {
            Job
        }
    }

    #[test]
    fn the_fastest_method_is_used_and_kept_in_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("calibration");
        let first = Table::default();
        first.keep_in(&file);
        first.measure(&Choice, BACKEND);
        let record = record::read(&file).unwrap();
        assert_eq!(record.entries()[0].methods, ["fast", "slow"]);
        let second = Table::default();
        second.keep_in(&file);
        let known = |methods| second.model("choice", BACKEND, 2, methods);
        let model = known(&["slow", "fast"]);
        assert!(model.is_known());
        assert_eq!(model.next_method(), 1);
        assert_eq!(fastest_method(&Choice), 1);
        for others in [&["fast"][..], &["slow", "fast", "new"], &["slow", "old"]] {
            let third = Table::default();
            third.keep_in(&file);
            assert!(!third.model("choice", BACKEND, 2, others).is_known());
        }
    }

    /// A user who can write there would decide when passes run, and could lay a pipe there that holds the server up.
    #[test]
    fn a_folder_of_others_is_neither_read_nor_written_to_as_root() {
        if !rustix::process::geteuid().is_root() {
            return println!("SKIP: others may use such a folder");
        }
        let (_directory, file) = file_saying(costs(10, 20));
        let folder = file.parent().unwrap();
        std::fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        let before = std::fs::read(&file).unwrap();
        let table = Table::default();
        table.keep_in(&file);
        assert!(!model(&table).is_known());
        measure(&table, &Toy::new(8));
        assert!(model(&table).is_known());
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }

    #[test]
    fn a_pipe_or_a_link_in_place_of_the_file_is_not_read() {
        let (directory, file) = file_saying(costs(10, 20));
        let other = directory.path().join("other");
        std::fs::rename(&file, &other).unwrap();
        std::os::unix::fs::symlink(&other, &file).unwrap();
        assert_eq!(record::read(&file), None);
        std::fs::remove_file(&file).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &file, kind, mode, 0).unwrap();
        assert_eq!(record::read(&file), None);
    }

    #[test]
    fn where_nothing_can_be_written_costs_are_known_all_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let in_the_way = directory.path().join("a file");
        std::fs::write(&in_the_way, "").unwrap();
        for file in [in_the_way.join("calibration"), directory.path().to_owned()] {
            let table = Table::default();
            table.keep_in(&file);
            measure(&table, &Toy::new(8));
            assert!(model(&table).is_known());
        }
    }

    #[test]
    fn an_operation_that_panics_or_fails_stays_a_guess() {
        let table = Table::default();
        for panics in [true, false] {
            let toy = Toy {
                panics,
                fails: !panics,
                ..Toy::new(8)
            };
            measure(&table, &toy);
            assert!(!model(&table).is_known());
        }
        measure(&table, &Toy::new(8));
        assert!(model(&table).is_known());
    }
}
