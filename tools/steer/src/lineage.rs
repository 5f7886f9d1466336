//! Finds threads with an affinity of ours that they were never given: they inherited it.
//!
//! A thread starts with the affinity of the thread that made it. The kernel does not say which one
//! that was, so it is concluded: a new thread of a process was made by that process, a new process
//! by its parent, or, if that is gone, by a process of its session. If a process there has just this
//! affinity by its own choice, the new thread may have it from there, and is left alone.

use crate::policy::ThreadId;
use crate::state::{Original, Record};
use crate::tasks::Task;
use std::collections::{HashMap, HashSet};
use widelane_affinity::Cpus;

/// Records for those `tasks`, sorted by age, that inherited affinities given by `records`. Tasks that are `settled`
/// have their affinity by their own choice.
pub(crate) fn heirs(records: &[Record], tasks: &[Task], settled: impl Fn(&Task) -> bool) -> Vec<Record> {
    let recorded: HashSet<ThreadId> = records.iter().map(|record| record.id).collect();
    let mut given = Given::default();
    records.iter().for_each(|record| given.add(record));
    let mut own_of_process: HashSet<(i32, Cpus)> = HashSet::new();
    let mut own_of_session: HashSet<(i32, Cpus)> = HashSet::new();
    let live: HashSet<i32> = tasks.iter().map(|task| task.pid).collect();
    let mut found = Vec::new();
    for task in tasks.iter().filter(|task| !recorded.contains(&task.id)) {
        let first = task.id.tid == task.pid;
        let maker = if first { task.parent } else { task.pid };
        let orphan = first && !live.contains(&maker);
        let session = (orphan && task.session > 0).then_some(task.session);
        let from_process = given.by_process.get(&(maker, task.mask));
        let from_session = session.and_then(|id| given.by_session.get(&(id, task.mask)));
        let original = if settled(task) || own_of_process.contains(&(maker, task.mask)) {
            None
        } else if from_process.is_some() {
            from_process
        } else if session.is_some_and(|id| own_of_session.contains(&(id, task.mask))) {
            None
        } else {
            from_session
        };
        match original.cloned() {
            Some((original, given_masks)) => {
                let record = Record {
                    id: task.id,
                    pid: task.pid,
                    session: task.session,
                    original,
                    given: given_masks,
                };
                given.add(&record);
                found.push(record);
            }
            None => {
                own_of_process.insert((task.pid, task.mask));
                own_of_session.insert((task.session, task.mask));
            }
        }
    }
    found
}

/// Affinities that were given, by who may have passed them on. Of several originals the narrowest counts: rather leave
/// a thread narrow than widen one that its owner has restricted.
#[derive(Default)]
struct Given {
    by_process: HashMap<(i32, Cpus), (Original, Vec<Cpus>)>,
    by_session: HashMap<(i32, Cpus), (Original, Vec<Cpus>)>,
}

impl Given {
    fn add(&mut self, record: &Record) {
        let put = |map: &mut HashMap<_, (Original, Vec<Cpus>)>, who| {
            for mask in &record.given {
                let value = || (record.original, record.given.clone());
                let present = map.entry((who, *mask)).or_insert_with(value);
                if width(record.original) < width(present.0) {
                    *present = value();
                }
            }
        };
        put(&mut self.by_process, record.pid);
        put(&mut self.by_session, record.session);
    }
}

fn width(original: Original) -> usize {
    match original {
        Original::Whole => usize::MAX,
        Original::Only(cpus) => cpus.count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> Cpus {
        text.parse().unwrap()
    }

    /// A thread of `pid`, as old as its number says.
    fn task(tid: i32, pid: i32, parent: i32, session: i32, mask: &str) -> Task {
        Task {
            id: ThreadId { tid, start: tid as u64 },
            pid,
            parent,
            session,
            name: "t".into(),
            mask: cpus(mask),
            ran: 0,
            waited: 0,
        }
    }

    fn record(task: &Task, original: Original) -> Record {
        Record {
            id: task.id,
            pid: task.pid,
            session: task.session,
            original,
            given: vec![task.mask],
        }
    }

    fn found(records: &[Record], tasks: &[Task]) -> Vec<(i32, Original)> {
        let older = |task: &Task| task.id.start < 10;
        let heirs = heirs(records, tasks, older);
        heirs.iter().map(|heir| (heir.id.tid, heir.original)).collect()
    }

    #[test]
    fn threads_and_children_and_their_children_are_found() {
        let shell = task(20, 20, 1, 20, "0");
        let tasks = [
            shell.clone(),
            task(21, 20, 1, 20, "0"),
            task(22, 22, 20, 20, "0"),
            task(23, 23, 22, 23, "0"),
            task(24, 24, 1, 24, "0"),
        ];
        let whole = |tid| (tid, Original::Whole);
        let records = [record(&shell, Original::Whole)];
        assert_eq!(found(&records, &tasks), [whole(21), whole(22), whole(23)]);
    }

    #[test]
    fn orphans_are_found_by_their_session() {
        let gone = record(&task(20, 20, 1, 5, "0"), Original::Only(cpus("0-1")));
        let tasks = [task(30, 30, 1, 5, "0"), task(31, 31, 1, 6, "0")];
        assert_eq!(found(&[gone], &tasks), [(30, Original::Only(cpus("0-1")))]);
    }

    #[test]
    fn an_affinity_of_ones_own_is_no_heritage() {
        let parent = task(20, 20, 1, 20, "0");
        let records = [record(&parent, Original::Whole)];
        // Another mask than was given; and older than the steerer.
        let tasks = [parent.clone(), task(21, 21, 20, 20, "1"), task(9, 9, 20, 20, "0")];
        assert_eq!(found(&records, &tasks), []);
    }

    #[test]
    fn a_living_parent_that_was_given_nothing_passes_nothing_on() {
        let steered = task(20, 20, 1, 5, "0");
        let records = [record(&steered, Original::Whole)];
        let shell = task(8, 8, 1, 5, "0-1");
        let tasks = [shell, steered, task(30, 30, 8, 5, "0")];
        assert_eq!(found(&records, &tasks), []);
    }

    #[test]
    fn where_somebody_has_it_by_choice_it_is_left_alone() {
        let steered = task(20, 20, 1, 20, "0");
        let chosen = task(5, 20, 1, 20, "0");
        let tasks = [chosen, steered.clone(), task(30, 20, 1, 20, "0")];
        assert_eq!(found(&[record(&steered, Original::Whole)], &tasks), []);
    }

    #[test]
    fn of_two_possible_originals_the_narrow_one_is_taken() {
        let (a, b) = (task(20, 20, 1, 20, "0"), task(21, 20, 1, 20, "0"));
        let narrow = Original::Only(cpus("0-1"));
        let records = [record(&a, Original::Whole), record(&b, narrow)];
        let tasks = [a, b, task(30, 20, 1, 20, "0")];
        assert_eq!(found(&records, &tasks), [(30, narrow)]);
    }
}
