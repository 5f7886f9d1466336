//! Rings of io_uring, in which a thread waits without calling a function that could be stood in for.

use std::cell::Cell;
use std::fs;

/// Returns whether the process had a ring when this thread first asked: its handshakes are OpenSSL's then. A program
/// makes its rings before it serves.
pub(crate) fn are_there() -> bool {
    SEEN.get().unwrap_or_else(|| {
        let seen = look();
        SEEN.set(Some(seen));
        seen
    })
}

fn look() -> bool {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else {
        return false;
    };
    let files = descriptors
        .take(MOST)
        .filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    files
        .into_iter()
        .any(|file| file.as_os_str() == "anon_inode:[io_uring]")
}

/// Descriptors that are looked at: a look takes a microsecond for each, and rings are older than connections.
const MOST: usize = 1024;

thread_local! {
    static SEEN: Cell<Option<bool>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_rings_has_none() {
        assert!(!look() && !are_there());
    }
}
