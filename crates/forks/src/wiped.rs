//! The page, and the references into it: this crate's unsafe code.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The id of this process (getpid(2)), from memory once it is known.
pub fn process_id() -> u32 {
    let Some(word) = word() else {
        return std::process::id();
    };
    let known = word.load(Relaxed);
    if known != 0 {
        return known as u32;
    }
    let id = std::process::id();
    word.store(u64::from(id), Relaxed);
    id
}

/// A word, zero now, that is zero again in each child of this process. It takes a page that is never freed.
///
/// # Errors
///
/// Those of mmap(2), and of madvise(2) where the kernel is older than 4.14.
pub fn wiped_word() -> io::Result<&'static AtomicU64> {
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no memory in use.
    let page = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )?
    };
    // SAFETY: the page was mapped above and is not referred to yet. The advice changes what a child
    // finds there and nothing in this process.
    if let Err(error) = unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) } {
        // SAFETY: the page was mapped above with this length, and nothing refers to it.
        unsafe { munmap(page, PAGE)? };
        return Err(error.into());
    }
    let word = NonNull::new(page.cast::<AtomicU64>()).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: the mapping is aligned to a page, long enough, readable, writable and zero, which is a
    // valid `AtomicU64`; it is never unmapped, and only this reference leads to it. In a child the
    // kernel puts a zero page there before the child runs.
    Ok(unsafe { word.as_ref() })
}

/// The word for the id. `None`: this kernel gives none.
///
/// Not a `OnceLock`: a child that is forked while another thread fills it would wait for ever.
fn word() -> Option<&'static AtomicU64> {
    let mut known = WORD.load(Acquire);
    if known.is_null() {
        let made = ptr::from_ref(wiped_word().unwrap_or(&NONE)).cast_mut();
        // Threads that race make a page each, and all use that of the first.
        known = match WORD.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(first) => first,
        };
    }
    // SAFETY: not null, and only references that live as long as the process are stored.
    let word = unsafe { &*known };
    (!ptr::eq(word, &NONE)).then_some(word)
}

static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Bytes of a page of memory.
const PAGE: usize = 4096;

/// Stands in [`WORD`] for a word that there is not.
static NONE: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of `in_child` in a forked process, by its exit status.
    fn in_child(in_child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child allocates nothing and takes no lock that another thread may have held:
        // it runs `in_child`, which only reads and writes atomics, and leaves by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                let status = i32::from(!in_child());
                // SAFETY: ends this process, whatever its state.
                unsafe { libc::_exit(status) }
            }
            child => {
                assert!(child > 0, "fork: {}", io::Error::last_os_error());
                let mut status = 0;
                // SAFETY: `status` is writable for the call, and the child is this process's own.
                let waited = unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(waited, child);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
            }
        }
    }

    #[test]
    fn each_process_sees_its_own_id() {
        let is_right = || process_id() == std::process::id();
        assert!(is_right() && is_right());
        let parent = process_id();
        assert!(in_child(|| {
            let child = process_id();
            is_right() && child != parent && in_child(|| is_right() && process_id() != child)
        }));
        assert_eq!(process_id(), parent, "a fork changes nothing in the parent");
    }

    #[test]
    fn the_word_of_a_child_is_zero() {
        let word = wiped_word().expect("this kernel has MADV_WIPEONFORK");
        word.store(7, Relaxed);
        assert!(in_child(|| word.load(Relaxed) == 0));
        assert_eq!(word.load(Relaxed), 7);
    }
}
