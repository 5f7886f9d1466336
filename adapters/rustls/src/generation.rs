//! Tells copies of a process apart: forks of it, and copies of the virtual machine that it runs in.
//!
//! Random bytes that are made in advance must not be used twice. Two events copy them: `fork`, and a
//! hypervisor that starts a machine twice from one snapshot. [`Generation::now`] is a value that
//! differs after either event, at the price of two reads of memory:
//!
//! * A page of this process that the kernel fills with zeroes in each child (`MADV_WIPEONFORK`,
//!   madvise(2), Linux 4.14). Where the kernel refuses it, the process id stands in, by a system
//!   call each time.
//! * The generation counter of the virtual machine, where the kernel maps one (`/dev/sysgenid`). A
//!   kernel without this device shows programs nothing of a restored snapshot.
//!
//! The mapping of the counter and the reference into it are this file's unsafe code.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use widelane_forks::wiped_word;

/// Equal values: no fork and no restored snapshot lies between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    process: u64,
    machine: u32,
}

impl Generation {
    /// The generation of the calling process at this moment.
    ///
    /// The first call opens the device. Make it before the process gives up the rights to do so.
    pub(crate) fn now() -> Self {
        static SOURCES: OnceLock<Sources> = OnceLock::new();
        SOURCES.get_or_init(|| Sources::open(Path::new("/dev/sysgenid"))).now()
    }

    /// A generation with this number, for tests.
    #[cfg(test)]
    pub(crate) const fn numbered(process: u64) -> Self {
        Self { process, machine: 0 }
    }
}

struct Sources {
    /// Zero in a process that has not asked yet: at first, and after each fork.
    word: Option<&'static AtomicU64>,
    /// The number of the last generation of processes; a child starts with a copy of it.
    last: AtomicU64,
    machine: Option<&'static AtomicU32>,
}

impl Sources {
    fn open(device: &Path) -> Self {
        Self {
            word: wiped_word().ok(),
            last: AtomicU64::new(0),
            machine: machine_counter(device).ok(),
        }
    }

    fn now(&self) -> Generation {
        let process = match self.word {
            Some(word) => self.numbered(word),
            None => u64::from(std::process::id()),
        };
        let machine = self.machine.map_or(0, |counter| counter.load(Ordering::Acquire));
        Generation { process, machine }
    }

    /// The word, after this process has given itself a number if it has none.
    ///
    /// The number of a child is above those of all its ancestors, because it copies `last` from
    /// its parent. Two children of one parent may have the same number; neither has any bytes of
    /// the other.
    fn numbered(&self, word: &AtomicU64) -> u64 {
        let number = word.load(Ordering::Relaxed);
        if number != 0 {
            return number;
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        match word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => number,
            // Another thread was first.
            Err(number) => number,
        }
    }
}

/// The counter at the beginning of a device's first page.
fn machine_counter(device: &Path) -> io::Result<&'static AtomicU32> {
    let file = File::open(device)?;
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
    let page = unsafe { mmap(ptr::null_mut(), PAGE, ProtFlags::READ, MapFlags::SHARED, &file, 0)? };
    let counter = NonNull::new(page.cast::<AtomicU32>()).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: the mapping is aligned to a page, readable and never unmapped. The kernel changes the
    // counter at any time, which an atomic load allows; the program only loads from it, as the
    // page is mapped for reading.
    Ok(unsafe { counter.as_ref() })
}

/// Bytes of a page of memory.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    /// Result of `in_child` in a forked process: the child tells it by its exit status.
    fn in_child(in_child: impl FnOnce() -> u8) -> u8 {
        // SAFETY: the child allocates nothing and takes no lock that another thread may have held:
        // it runs `in_child`, which only reads and writes atomics, and leaves by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let status = in_child();
                // SAFETY: ends this process, whatever its state.
                unsafe { libc::_exit(i32::from(status)) }
            }
            child => {
                assert!(child > 0, "fork: {}", io::Error::last_os_error());
                let mut status = 0;
                // SAFETY: `status` is writable for the call, and the child is this process's own.
                let waited = unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(waited, child);
                assert!(libc::WIFEXITED(status), "status {status}");
                libc::WEXITSTATUS(status) as u8
            }
        }
    }

    #[test]
    fn a_process_keeps_its_generation_and_children_get_higher_ones() {
        let sources = Sources::open(Path::new("/nonexistent"));
        assert!(sources.word.is_some(), "this kernel has MADV_WIPEONFORK");
        let parent = sources.now();
        assert_eq!(sources.now(), parent);
        assert_ne!(parent.process, 0);
        let differs = in_child(|| {
            let child = sources.now();
            let again = sources.now() == child;
            let grandchild = in_child(|| {
                let grandchild = sources.now();
                u8::from(grandchild != child && grandchild != parent)
            });
            u8::from(again && child != parent && grandchild == 1)
        });
        assert_eq!(differs, 1);
        assert_eq!(sources.now(), parent, "a fork changes nothing in the parent");
    }

    #[test]
    fn a_child_without_the_advice_differs_by_its_process_id() {
        let sources = Sources {
            word: None,
            last: AtomicU64::new(0),
            machine: None,
        };
        let parent = sources.now();
        assert_eq!(in_child(|| u8::from(sources.now() != parent)), 1);
    }

    #[test]
    fn the_counter_of_the_machine_is_read_each_time() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[0; PAGE]).unwrap();
        let sources = Sources::open(file.path());
        let before = sources.now();
        assert_eq!(sources.now(), before);
        file.rewind().unwrap();
        file.write_all(&7_u32.to_ne_bytes()).unwrap();
        let after = sources.now();
        assert_ne!(after, before);
        assert_eq!(after.machine, 7);
        assert_eq!(after.process, before.process);
        let mut word = [0; 4];
        file.rewind().unwrap();
        file.read_exact(&mut word).unwrap();
        assert_eq!(word, 7_u32.to_ne_bytes(), "nothing writes to the device");
    }

    #[test]
    fn a_missing_device_is_no_error() {
        assert!(machine_counter(Path::new("/nonexistent")).is_err());
        assert_eq!(Sources::open(Path::new("/nonexistent")).now().machine, 0);
    }
}
