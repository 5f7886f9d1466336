//! The files that are to be looked at, and the order in which that is done.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

use widelane_threads::RegularFile;

/// A file to be looked at.
pub(super) struct Question {
    pub(super) file: RegularFile,
    /// Path of the file, for messages.
    pub(super) path: PathBuf,
}

/// The smallest file is the greatest question, which a heap gives first: where time is short, most
/// files are known.
impl Ord for Question {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = |question: &Self| question.file.identity().length;
        let lengths = length(other).cmp(&length(self));
        lengths.then_with(|| other.path.cmp(&self.path))
    }
}

impl PartialOrd for Question {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Question {}

/// The question to answer now, of all that have been asked. `None` when no more can come.
pub(super) fn next(waiting: &mut BinaryHeap<Question>, asked: &Receiver<Question>) -> Option<Question> {
    if waiting.is_empty() {
        waiting.push(asked.recv().ok()?);
    }
    waiting.extend(asked.try_iter());
    waiting.pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc;

    #[test]
    fn small_files_are_looked_at_before_large_ones() {
        let folder = tempfile::tempdir().unwrap();
        let (ask, asked) = mpsc::channel();
        let mut waiting = BinaryHeap::new();
        for length in [30, 10, 20] {
            let path = folder.path().join(length.to_string());
            fs::write(&path, vec![0; length]).unwrap();
            let file = RegularFile::named(&path).unwrap();
            ask.send(Question { file, path }).unwrap();
        }
        drop(ask);
        let mut lengths = Vec::new();
        while let Some(question) = next(&mut waiting, &asked) {
            lengths.push(question.file.identity().length);
        }
        assert_eq!(lengths, [10, 20, 30]);
    }
}
