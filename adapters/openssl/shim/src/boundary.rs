//! Boundary for panics. A panic must not leave a function that C calls: the host would
//! be aborted for it. What panics counts as not done, and the original does it.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what this library does for a call; `None` if it panics. A thread that panics calls us, too, while
/// it says so: a second panic would end the process.
pub(crate) fn guarded<R>(work: impl FnOnce() -> R) -> Option<R> {
    if std::thread::panicking() {
        return None;
    }
    let caught = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        assert!(!tests::FAILS.get(), "a test wants this to fail");
        work()
    }));
    // To drop what was thrown could panic again.
    caught.map_err(std::mem::forget).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fs;
    use std::path::{Path, PathBuf};

    thread_local! {
        /// Makes everything on this thread fail that runs behind the boundary.
        pub(crate) static FAILS: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `work` while everything behind the boundary panics.
    pub(crate) fn failing<R>(work: impl FnOnce() -> R) -> R {
        FAILS.set(true);
        let result = work();
        FAILS.set(false);
        result
    }

    #[test]
    fn a_panic_stays_inside() {
        assert_eq!(guarded(|| 7), Some(7));
        assert_eq!(failing(|| guarded(|| 7)), None);
    }

    /// Every function that C can call begins with the boundary, or is a stand-in, of which the macro of `stand_ins`
    /// puts behind the boundary what could panic.
    #[test]
    fn no_function_for_c_is_without_the_boundary() {
        let mut functions = 0;
        for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
            let text = fs::read_to_string(&path).unwrap();
            // This text names what it looks for.
            let text = text.split("#[cfg(test)]").next().unwrap();
            for word in ["extern \"C\" fn ", "extern \"C-unwind\" fn "] {
                for (at, _) in text.match_indices(word) {
                    let rest = &text[at + word.len()..];
                    let Some(end) = rest.find(['{', ';']) else {
                        continue;
                    };
                    let name = rest[..rest.find('(').unwrap()].trim();
                    if name.is_empty() || &rest[end..=end] == ";" {
                        // A type of functions.
                        continue;
                    }
                    let body = rest[end + 1..].trim_start();
                    let stand_in = ["$name", "whole"].contains(&name) && path.ends_with("stand_ins/macros.rs");
                    assert!(
                        stand_in || body.starts_with("guarded("),
                        "{}: {name} does not begin with `guarded`",
                        path.display()
                    );
                    functions += 1;
                }
            }
        }
        assert!(functions >= 8, "{functions}");
    }

    /// The files of a folder, and of those in it.
    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
            .collect()
    }
}
